// Convolutions with a filter for each channel, channels last, with bias and any
// chain of element-wise layers after them.
//
// cuDNN (convolution.c) has engines for few windows and strides; its others
// treat each channel as a product of its own.
#include <assert.h>
#include <stdio.h>

#include "core/view.h"
#include "device/cuda/image/depthwise_params.h"
#include "device/cuda/products/layers.h"
#include "device/cuda/programs/launch.h"
#include "ops/image/window.h"

// Larger windows would not be unrolled, and their filters not fit into shared
// memory.
enum { MOST_REACH = 48, SHARED = 48 << 10, BLOCKS = 4 };
// Rows of a window from which threads may share it.
enum { SHARED_ROWS = 5 };

// VECTOR, STRIP, ROWS and SHARES of image/depthwise.cuh; a tactic is an index.
static const struct {
  int vector, strip, rows, shares;
} depthwise_tactics[] = {{4, 4, 1, 1}, {2, 4, 2, 1}, {2, 8, 1, 1}, {2, 2, 1, 1},
                         {4, 2, 1, 8}, {2, 4, 1, 8}, {1, 4, 1, 1}};
enum {
  TACTICS = sizeof(depthwise_tactics) / sizeof(depthwise_tactics[0]),
  SINGLE = TACTICS - 1,  // for odd numbers of channels
};

typedef struct depthwise_kernel_t {
  rabbet_cuda_node_t node;
  int tactic;
  CUfunction function;
} depthwise_kernel_t;

typedef struct cuda_depthwise_state_t {
  depthwise_t parameters;
  rabbet_cuda_layers_t layers;
  int x, w, bias;  // boundary inputs; bias -1: none
  bool is_empty;
  rabbet_cuda_launch_t launch;
} cuda_depthwise_state_t;

// ---- Proposing -------------------------------------------------------------

// The window as two axes: a single one is that of columns.
static bool depthwise_window(const rabbet_group_node_t* node,
                             const rabbet_dims_t* w, rabbet_window_t* out) {
  rabbet_window_t* o = out;
  rabbet_status_t status = rabbet_window_read(node->attrs, node->op->attr_count,
                                              w->rank - 2, w->d + 2, o);
  bool fits = rabbet_is_ok(status);
  rabbet_status_ignore(status);
  if (fits && o->spatial == 1) {
    o->size[1] = o->size[0], o->stride[1] = o->stride[0];
    o->dilation[1] = o->dilation[0];
    o->size[0] = o->stride[0] = o->dilation[0] = 1;
  }
  for (int i = 0; fits && i < 2; ++i)
    fits = o->size[i] > 0 && o->stride[i] <= MOST_REACH &&
           o->size[i] <= MOST_REACH && o->dilation[i] <= MOST_REACH &&
           (o->size[i] - 1) * o->dilation[i] <= MOST_REACH;
  return fits;
}

static bool depthwise_matches(const rabbet_group_t* group) {
  if (group->node_count == 0 || group->output_count != 1 ||
      !rabbet_op_is(group->nodes[0].op, RABBET_OP_CONVOLUTION))
    return false;
  const rabbet_group_node_t* node = &group->nodes[0];
  const rabbet_group_value_t* w = &group->values[node->inputs[1]];
  rabbet_window_t window;
  int64_t channels = rabbet_node_int(node, "num_groups");
  return w->constant && (w->dims.rank == 3 || w->dims.rank == 4) &&
         channels > 1 && channels < INT32_MAX / 2 && w->dims.d[0] == channels &&
         w->dims.d[1] == 1 && rabbet_group_feeds(group, node) &&
         depthwise_window(node, &w->dims, &window);
}

static bool depthwise_has_tactic(const rabbet_group_t* group, int tactic) {
  const rabbet_dims_t* w = &group->values[group->nodes[0].inputs[1]].dims;
  int64_t taps = w->d[2] * (w->rank == 4 ? w->d[3] : 1);
  int vector = depthwise_tactics[tactic].vector;
  if (depthwise_tactics[tactic].shares > 1 &&
      (w->rank != 4 || w->d[2] < SHARED_ROWS))
    return false;
  return (w->d[0] % 2 != 0) == (tactic == SINGLE) && w->d[0] % vector == 0 &&
         taps * (DEPTHWISE_LANES + 1) * vector * (int)sizeof(float) <= SHARED;
}

// Long strips save loads, but win only where they leave no multiprocessor
// without blocks, and threads that share a strip only where these would. Up to
// level 3 they are not tried elsewhere: each is a program.
static bool depthwise_is_promising(const rabbet_propose_t* propose,
                                   const rabbet_dims_t* y, int tactic) {
  enum { FEW = 4, LEVEL = 3 };
  int strip = depthwise_tactics[tactic].strip;
  int rows = depthwise_tactics[tactic].rows;
  int shares = depthwise_tactics[tactic].shares;
  if ((strip * rows <= FEW && shares == 1) ||
      propose->optimization_level > LEVEL)
    return true;
  int64_t vectors = y->d[1] / depthwise_tactics[tactic].vector;
  int64_t tiles = rabbet_ceildiv(vectors, (int64_t)DEPTHWISE_LANES);
  int64_t owners = DEPTHWISE_THREADS / rabbet_ceildiv(vectors, tiles);
  int64_t down = y->rank == 4 ? rabbet_ceildiv(y->d[2], (int64_t)rows) : 1;
  double strips = (double)y->d[0] * (double)down *
                  (double)rabbet_ceildiv(y->d[y->rank - 1], (int64_t)strip);
  bool is_full = strips / (double)owners * (double)tiles >=
                 BLOCKS * rabbet_cuda(propose->device)->multiprocessors;
  return is_full == (shares == 1);
}

static rabbet_status_t depthwise_offer(rabbet_proposal_t* proposal,
                                       const rabbet_dims_t* y) {
  const rabbet_propose_t* propose = proposal->propose;
  int left = propose->optimization_level >= 2 ? TACTICS : 1;
  for (int i = 0; i < TACTICS && left > 0; ++i) {
    if (!depthwise_has_tactic(propose->group, i) ||
        !depthwise_is_promising(propose, y, i))
      continue;
    rabbet_candidate_t candidate = {
        .kernel = proposal->kernel, .tactic = i, .tensors = proposal->tensors};
    int shares = depthwise_tactics[i].shares;
    int length =
        snprintf(candidate.tactic_name, sizeof(candidate.tactic_name),
                 "%d channels, %d x %d", depthwise_tactics[i].vector,
                 depthwise_tactics[i].rows, depthwise_tactics[i].strip);
    if (shares > 1)
      snprintf(candidate.tactic_name + length,
               sizeof(candidate.tactic_name) - (size_t)length, " by %d",
               shares);
    RABBET_RETURN_IF_ERROR(rabbet_offer(propose, proposal->sink, &candidate));
    --left;
  }
  return rabbet_ok();
}

static rabbet_status_t depthwise_offer_types(rabbet_proposal_t* proposal,
                                             const rabbet_dims_t* y) {
  const rabbet_propose_t* propose = proposal->propose;
  const rabbet_group_t* group = propose->group;
  size_t boundary = group->input_count + group->output_count;
  rabbet_dtype_t types[4];
  int count = rabbet_compute_types(
      propose, group->values[group->nodes[0].inputs[0]].dtype, types);
  for (int t = 0; t < count; ++t) {
    if (!rabbet_cuda_layers_computes(types[t])) continue;
    for (size_t i = 0; i < boundary; ++i) {
      if (rabbet_dtype_is_float(proposal->tensors[i].dtype))
        proposal->tensors[i].dtype = types[t];
      proposal->tensors[i].format = rabbet_cuda_layers_format(group, i);
    }
    RABBET_RETURN_IF_ERROR(depthwise_offer(proposal, y));
  }
  return rabbet_ok();
}

static rabbet_status_t cuda_depthwise_body(rabbet_proposal_t* proposal) {
  const rabbet_propose_t* propose = proposal->propose;
  const rabbet_group_t* group = propose->group;
  rabbet_dims_t* opt = NULL;
  RABBET_RETURN_IF_ERROR(
      rabbet_group_opt_dims(group, propose->allocator, &opt));
  rabbet_status_t status =
      rabbet_cuda_layers_fit(group, opt)
          ? depthwise_offer_types(proposal, &opt[group->nodes[0].outputs[0]])
          : rabbet_ok();
  rabbet_free(propose->allocator, opt);
  return status;
}

static rabbet_status_t cuda_depthwise_propose(const rabbet_propose_t* propose,
                                              rabbet_candidate_sink_t sink) {
  return depthwise_matches(propose->group)
             ? rabbet_proposal_make(propose, sink, &rabbet_cuda_depthwise, NULL,
                                    cuda_depthwise_body)
             : rabbet_ok();
}

// ---- The program -----------------------------------------------------------

static rabbet_status_t cuda_depthwise_program(
    rabbet_cuda_node_t* base, const rabbet_kernel_spec_t* spec) {
  depthwise_kernel_t* kernel = (depthwise_kernel_t*)base;
  const rabbet_group_t* group = spec->group;
  const rabbet_group_node_t* node = base->node.node;
  rabbet_dtype_t dtype = group->values[node->inputs[0]].dtype;
  rabbet_window_t window;
  if (!rabbet_cuda_layers_take_images(group) || spec->tactic < 0 ||
      spec->tactic >= TACTICS || !depthwise_has_tactic(group, spec->tactic) ||
      !depthwise_window(node, &group->values[node->inputs[1]].dims, &window))
    return RABBET_STATUS(
        RABBET_STATUS_INCOMPATIBLE,
        "convolution '%s': cuda.convolution.depthwise computes "
        "images in HWC of one floating type; these are not, "
        "or it has no tactic %d for them",
        node->name, (int)spec->tactic);
  kernel->tactic = spec->tactic;
  int vector = depthwise_tactics[kernel->tactic].vector;
  base->node.base.alignment = (size_t)(vector * rabbet_dtype_bits(dtype) / 8);
  char begin[384];
  snprintf(begin, sizeof(begin),
           "#define ELEMENT %s\n#define VECTOR %d\n#define STRIP %d\n"
           "#define ROWS %d\n#define SHARES %d\n#define WINDOW_H %d\n"
           "#define WINDOW_W %d\n"
           "#define STRIDE_H %d\n#define STRIDE_W %d\n"
           "#define DILATION_H %d\n#define DILATION_W %d\n",
           rabbet_cuda_type(dtype), vector,
           depthwise_tactics[kernel->tactic].strip,
           depthwise_tactics[kernel->tactic].rows,
           depthwise_tactics[kernel->tactic].shares, (int)window.size[0],
           (int)window.size[1], (int)window.stride[0], (int)window.stride[1],
           (int)window.dilation[0], (int)window.dilation[1]);
  RABBET_RETURN_IF_ERROR(
      rabbet_cuda_layers_add(base, spec, "image/depthwise.cu", begin,
                             "device/cuda/image/depthwise.cuh"));
  return rabbet_cuda_node_function(base, 0, "depthwise", &kernel->function);
}

// ---- Preparing -------------------------------------------------------------

static rabbet_status_t depthwise_refuse(const rabbet_group_node_t* node,
                                        const rabbet_dims_t* x) {
  char text[128];
  return RABBET_STATUS(RABBET_STATUS_UNSUPPORTED,
                       "convolution '%s': cuda.convolution.depthwise takes "
                       "images of at most 2^30 positions and as many channels "
                       "as filters; the input is %s",
                       node->name, rabbet_dims_print(x, text, sizeof(text)));
}

// Extents and padding; false if they exceed the kernel's integers.
static bool depthwise_extents(const rabbet_group_node_t* node,
                              const rabbet_dims_t* x, const rabbet_dims_t* w,
                              const rabbet_dims_t* y, depthwise_t* p) {
  const int64_t most = INT64_C(1) << 30;
  int64_t pre[RABBET_MAX_RANK], post[RABBET_MAX_RANK];
  rabbet_window_t window;
  rabbet_status_t status = rabbet_window_read(node->attrs, node->op->attr_count,
                                              x->rank - 2, w->d + 2, &window);
  bool fits = rabbet_is_ok(status) && x->d[1] == w->d[0];
  rabbet_status_ignore(status);
  if (!fits) return false;
  rabbet_window_pads(&window, x->d + 2, y->d + 2, pre, post);
  bool plane = window.spatial == 2;
  int last = plane ? 3 : 2, end = last - 2;
  int64_t height = plane ? x->d[2] : 1, out_height = plane ? y->d[2] : 1;
  if (height > most || x->d[last] > most || out_height > most ||
      y->d[last] > most || pre[end] > most || (plane && pre[0] > most) ||
      (out_height + 1) * window.stride[0] > most ||
      (y->d[last] + 1) * window.stride[end] > most)
    return false;
  p->channels = (int32_t)x->d[1];
  p->height = (int32_t)height;
  p->width = (int32_t)x->d[last];
  p->out_height = (int32_t)out_height;
  p->out_width = (int32_t)y->d[last];
  p->pre_height = plane ? (int32_t)pre[0] : 0;
  p->pre_width = (int32_t)pre[end];
  return true;
}

// The grid; false if there are too many strips.
static bool depthwise_launch(const depthwise_kernel_t* kernel, int64_t images,
                             cuda_depthwise_state_t* state) {
  depthwise_t* p = &state->parameters;
  int64_t vectors = p->channels / depthwise_tactics[kernel->tactic].vector;
  int64_t tiles = rabbet_ceildiv(vectors, (int64_t)DEPTHWISE_LANES);
  int64_t down = rabbet_ceildiv(
      (int64_t)p->out_height, (int64_t)depthwise_tactics[kernel->tactic].rows);
  int64_t along = rabbet_ceildiv(
      (int64_t)p->out_width, (int64_t)depthwise_tactics[kernel->tactic].strip);
  int64_t count = 0;
  if (__builtin_mul_overflow(down * along, images, &count) ||
      count > INT32_MAX / 2)
    return false;
  p->lanes = (int32_t)rabbet_ceildiv(vectors, tiles);
  p->owners =
      DEPTHWISE_THREADS / depthwise_tactics[kernel->tactic].shares / p->lanes;
  p->count = (int32_t)count;
  p->lane = rabbet_cuda_divider(p->lanes);
  p->down = rabbet_cuda_divider(down);
  p->along = rabbet_cuda_divider(along);
  int64_t blocks = rabbet_ceildiv(count, (int64_t)p->owners);
  int64_t most = rabbet_max_i64(
      BLOCKS * (int64_t)kernel->node.device->multiprocessors / tiles, 1);
  int64_t turns = rabbet_ceildiv(blocks, most);
  state->launch = (rabbet_cuda_launch_t){
      .function = kernel->function,
      .grid = {(unsigned)tiles, (unsigned)rabbet_ceildiv(blocks, turns), 1},
      .block = {DEPTHWISE_THREADS, 1, 1}};
  return true;
}

static rabbet_status_t depthwise_fill(const depthwise_kernel_t* kernel,
                                      const rabbet_dims_t* dims,
                                      cuda_depthwise_state_t* state) {
  const rabbet_group_t* group = kernel->node.node.group;
  const rabbet_group_node_t* node = kernel->node.node.node;
  const rabbet_dims_t* x = &dims[node->inputs[0]];
  const rabbet_dims_t* y = &dims[node->outputs[0]];
  int32_t bias = rabbet_node_input(node, 2);
  int64_t elements = 0;
  state->x = rabbet_group_input_of(group, node->inputs[0]);
  state->w = rabbet_group_input_of(group, node->inputs[1]);
  state->bias = bias < 0 ? -1 : rabbet_group_input_of(group, bias);
  assert(state->x >= 0 && state->w >= 0);
  RABBET_RETURN_IF_ERROR(rabbet_dims_count(y, &elements));
  state->is_empty = elements == 0;
  if (state->is_empty) return rabbet_ok();
  if (!depthwise_extents(node, x, &dims[node->inputs[1]], y,
                         &state->parameters) ||
      !depthwise_launch(kernel, x->d[0], state))
    return depthwise_refuse(node, x);
  const layer_operand_t result = {NULL, 0, state->parameters.channels, 1};
  return rabbet_cuda_layers_place(&kernel->node, group, dims, &result, false,
                                  &state->layers, &state->parameters.layers);
}

static rabbet_status_t cuda_depthwise_prepare(
    rabbet_kernel_t* base, const rabbet_kernel_shapes_t* shapes,
    cuda_depthwise_state_t** out_state, size_t* out_workspace) {
  cuda_depthwise_state_t* state = NULL;
  *out_workspace = 0;
  *out_state = NULL;
  RABBET_RETURN_IF_ERROR(
      rabbet_node_state_allocate(base, sizeof(*state), (void**)&state));
  rabbet_status_t status =
      depthwise_fill((const depthwise_kernel_t*)base, shapes->dims, state);
  return rabbet_node_state_finish(base, state, status, (void**)out_state);
}

// ---- Running ---------------------------------------------------------------

static rabbet_status_t cuda_depthwise_enqueue(
    rabbet_kernel_t* base, cuda_depthwise_state_t* state,
    const rabbet_kernel_call_t* call) {
  const depthwise_kernel_t* kernel = (const depthwise_kernel_t*)base;
  depthwise_t* p = &state->parameters;
  if (state->is_empty) return rabbet_ok();
  p->x = call->inputs[state->x];
  p->w = call->inputs[state->w];
  p->bias = state->bias < 0 ? NULL : call->inputs[state->bias];
  p->y = call->outputs[0];
  rabbet_cuda_layers_bind(&state->layers, call, 0, &p->layers);
  void* parameters[] = {p};
  return rabbet_cuda_launch(kernel->node.device, &state->launch, parameters,
                            call->stream);
}

static bool cuda_depthwise_takes(const rabbet_kernel_spec_t* spec) {
  return depthwise_matches(spec->group);
}

RABBET_CUDA_NODE_CLASS(cuda_depthwise, depthwise_kernel_t,
                       "cuda.convolution.depthwise", 2);
