// Convolutions and deconvolutions of DOUBLE, as products with the elements that
// lie under the window.
#include "ops/image/convolution.h"
#include "device/cpu/cpu.h"
#include "device/cpu/doubles/product.h"
#include "device/cpu/parallel.h"
#include "device/cpu/vectors/vectors.h"
#include "ops/image/window.h"

enum { AXES = 3 };  // spatial

typedef struct cpu_double_convolution_state_t {
  rabbet_window_t window;
  int64_t pre[RABBET_MAX_RANK];
  int64_t in[AXES], out[AXES];
  int64_t batches, groups;
  int64_t channels, maps;   // of a group
  int64_t taps;             // of a channel
  int64_t pixels, targets;  // of a channel of the input, and of the output
  bool is_turned;           // deconvolution
  int64_t blocks;           // of a group
  size_t room;
} cpu_double_convolution_state_t;

static bool double_convolution_is_double(const rabbet_group_t* group) {
  return (rabbet_node_is(group, RABBET_OP_CONVOLUTION) ||
          rabbet_node_is(group, RABBET_OP_DECONVOLUTION)) &&
         group->values[group->outputs[0]].dtype == RABBET_DTYPE_DOUBLE;
}

static rabbet_status_t double_convolution_body(rabbet_proposal_t* proposal) {
  return rabbet_proposal_offer(proposal, "blocks", -1);
}

static rabbet_status_t cpu_double_convolution_propose(
    const rabbet_propose_t* propose, rabbet_candidate_sink_t sink) {
  if (!double_convolution_is_double(propose->group)) return rabbet_ok();
  return rabbet_proposal_make(propose, sink, &rabbet_cpu_double_convolution,
                              NULL, double_convolution_body);
}

// ---- Geometry --------------------------------------------------------------

static rabbet_status_t double_convolution_resolve(
    const rabbet_group_node_t* node, const rabbet_dims_t* x,
    const rabbet_dims_t* kernel, const rabbet_dims_t* y,
    cpu_double_convolution_state_t* s) {
  int64_t post[RABBET_MAX_RANK];
  s->is_turned = rabbet_op_is(node->op, RABBET_OP_DECONVOLUTION);
  s->groups = rabbet_node_int(node, "num_groups");
  s->batches = x->d[0];
  s->channels =
      (s->is_turned ? kernel->d[0] : kernel->d[1] * s->groups) / s->groups;
  s->maps = s->is_turned ? kernel->d[1] : kernel->d[0] / s->groups;
  if (x->d[1] != s->channels * s->groups)
    return RABBET_STATUS(RABBET_STATUS_OUT_OF_RANGE,
                         "layer '%s': the input has %lld channels; the kernel "
                         "takes %lld",
                         node->name, (long long)x->d[1],
                         (long long)(s->channels * s->groups));
  RABBET_RETURN_IF_ERROR(rabbet_window_read(node->attrs, node->op->attr_count,
                                            kernel->rank - 2, kernel->d + 2,
                                            &s->window));
  (s->is_turned ? rabbet_window_pads_transposed : rabbet_window_pads)(
      &s->window, x->d + 2, y->d + 2, s->pre, post);
  s->taps = s->pixels = s->targets = 1;
  for (int32_t i = 0; i < s->window.spatial; ++i) {
    s->in[i] = x->d[i + 2];
    s->out[i] = y->d[i + 2];
    s->taps *= s->window.size[i];
    s->pixels *= s->in[i];
    s->targets *= s->out[i];
  }
  return rabbet_ok();
}

static rabbet_status_t cpu_double_convolution_prepare(
    rabbet_kernel_t* base, const rabbet_kernel_shapes_t* shapes,
    cpu_double_convolution_state_t** out_state, size_t* out_workspace) {
  const rabbet_group_node_t* node = ((rabbet_node_kernel_t*)base)->node;
  cpu_double_convolution_state_t* state = NULL;
  *out_workspace = 0;
  RABBET_RETURN_IF_ERROR(
      rabbet_node_state_allocate(base, sizeof(*state), (void**)&state));
  rabbet_status_t status = double_convolution_resolve(
      node, &shapes->dims[node->inputs[RABBET_CONVOLUTION_INPUT]],
      &shapes->dims[node->inputs[RABBET_CONVOLUTION_KERNEL]],
      &shapes->dims[node->outputs[0]], state);
  state->blocks = rabbet_double_blocks(state->maps, state->targets);
  state->room = rabbet_double_room();
  *out_workspace = state->room * (size_t)rabbet_cpu_slots(shapes->threads);
  return rabbet_node_state_finish(base, state, status, (void**)out_state);
}

// ---- Factors ---------------------------------------------------------------

typedef struct double_image_t {
  const cpu_double_convolution_state_t* state;
  const double* data;  // of a group
} double_image_t;

// The weights of a group's maps, each of them for all channels and taps.
static void double_weights_pack(const void* factor,
                                const rabbet_double_part_t* part, int64_t width,
                                double* panel) {
  const double_image_t* kernel = factor;
  const cpu_double_convolution_state_t* s = kernel->state;
  for (int64_t k = part->begin; k < part->begin + part->depth; ++k) {
    int64_t channel = k / s->taps, tap = k % s->taps;
    for (int64_t i = 0; i < width; ++i, ++panel) {
      int64_t map = part->first + i;
      int64_t at = s->is_turned ? (channel * s->maps + map) * s->taps + tap
                                : map * s->channels * s->taps + k;
      *panel = i < part->count ? kernel->data[at] : 0;
    }
  }
}

// The input's position under a tap; false if there is none.
static inline bool double_position(const cpu_double_convolution_state_t* s,
                                   int32_t axis, int64_t out, int64_t tap,
                                   int64_t* out_position) {
  int64_t reach = tap * s->window.dilation[axis];
  int64_t stride = s->window.stride[axis];
  int64_t at = s->is_turned ? out + s->pre[axis] - reach
                            : out * stride + reach - s->pre[axis];
  if (at < 0 || (s->is_turned && at % stride != 0)) return false;
  *out_position = s->is_turned ? at / stride : at;
  return *out_position < s->in[axis];
}

// Writes the elements that a tap reads for some targets of a channel.
static void double_pixels_row(const cpu_double_convolution_state_t* s,
                              const double* channel, int64_t tap,
                              const int64_t (*targets)[AXES], int64_t count,
                              double* row) {
  int64_t taps[AXES];
  for (int32_t i = s->window.spatial - 1; i >= 0; --i) {
    taps[i] = tap % s->window.size[i];
    tap /= s->window.size[i];
  }
  for (int64_t k = 0; k < count; ++k) {
    int64_t offset = 0, position = 0;
    bool inside = true;
    for (int32_t i = 0; inside && i < s->window.spatial; ++i) {
      inside = double_position(s, i, targets[k][i], taps[i], &position);
      offset = offset * s->in[i] + position;
    }
    row[k] = inside ? channel[offset] : 0;
  }
}

static void double_pixels_pack(const void* factor,
                               const rabbet_double_part_t* part, int64_t width,
                               double* panel) {
  const double_image_t* x = factor;
  const cpu_double_convolution_state_t* s = x->state;
  int64_t targets[RABBET_DOUBLE_COLUMNS][AXES];
  for (int64_t i = 0; i < part->count; ++i) {
    int64_t rest = part->first + i;
    for (int32_t axis = s->window.spatial - 1; axis >= 0; --axis) {
      targets[i][axis] = rest % s->out[axis];
      rest /= s->out[axis];
    }
  }
  for (int64_t k = part->begin; k < part->begin + part->depth; ++k) {
    double_pixels_row(s, x->data + k / s->taps * s->pixels, k % s->taps,
                      (const int64_t(*)[AXES])targets, part->count, panel);
    for (int64_t i = part->count; i < width; ++i)
      panel[i] = 0;
    panel += width;
  }
}

// ---- Running ---------------------------------------------------------------

typedef struct double_convolution_call_t {
  const cpu_double_convolution_state_t* state;
  const double *x, *kernel, *bias;
  double* y;
  char* workspace;
} double_convolution_call_t;

static void double_convolution_part(void* context, int64_t begin, int64_t end) {
  const double_convolution_call_t* call = context;
  const cpu_double_convolution_state_t* s = call->state;
  for (int64_t at = begin; at < end; ++at) {
    int64_t place = at / s->blocks, group = place % s->groups;
    const double_image_t kernel = {
        s, call->kernel + group * s->channels * s->maps * s->taps};
    const double_image_t x = {s, call->x + place * s->channels * s->pixels};
    const rabbet_double_product_t product = {
        .m = s->maps,
        .n = s->targets,
        .k = s->channels * s->taps,
        .pack_a = double_weights_pack,
        .pack_b = double_pixels_pack,
        .a = &kernel,
        .b = &x,
        .bias = call->bias ? call->bias + group * s->maps : NULL,
        .y = call->y + place * s->maps * s->targets};
    rabbet_double_block(&product, at % s->blocks,
                        call->workspace + (size_t)rabbet_cpu_slot() * s->room);
  }
}

static rabbet_status_t cpu_double_convolution_enqueue(
    rabbet_kernel_t* base, cpu_double_convolution_state_t* state,
    const rabbet_kernel_call_t* call) {
  const rabbet_node_kernel_t* kernel = (const rabbet_node_kernel_t*)base;
  double_convolution_call_t run = {
      .state = state,
      .x = rabbet_node_input_at(kernel, call, RABBET_CONVOLUTION_INPUT),
      .kernel = rabbet_node_input_at(kernel, call, RABBET_CONVOLUTION_KERNEL),
      .bias = rabbet_node_input_at(kernel, call, RABBET_CONVOLUTION_BIAS),
      .y = call->outputs[0],
      .workspace = call->workspace};
  rabbet_cpu_parallel(state->batches * state->groups * state->blocks, 1,
                      double_convolution_part, &run);
  return rabbet_ok();
}

static bool cpu_double_convolution_takes(const rabbet_kernel_spec_t* spec) {
  return double_convolution_is_double(spec->group) &&
         (rabbet_takes_node(spec->group, RABBET_OP_CONVOLUTION, 0) ||
          rabbet_takes_node(spec->group, RABBET_OP_DECONVOLUTION, 0));
}

RABBET_NODE_CLASS_WITH(cpu_double_convolution, "cpu.double.convolution", 1,
                       RABBET_KERNEL_DOUBLE);
