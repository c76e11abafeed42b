// Maxima over windows of tensors of 8 bits: as scales are positive, they are
// those of the bytes. A table has what each byte becomes.
#include <assert.h>
#include <math.h>
#include <string.h>

#include "core/view.h"
#include "device/common/quantized.h"
#include "device/cpu/bytes/kernels.h"
#include "device/cpu/cpu.h"
#include "device/cpu/parallel.h"
#include "ops/enums.h"
#include "ops/image/window.h"

enum { NODES = 3, BYTES = 256, ALIGNMENT = 64 };

typedef struct bytes_maximum_t {
  const rabbet_group_node_t* node;
  int32_t x, y;
  double scales[2];  // of x and y
  int32_t zeros[2];
} bytes_maximum_t;

typedef struct cpu_bytes_pooling_kernel_t {
  rabbet_node_kernel_t node;
  bytes_maximum_t maximum;
  bool is_same;  // bytes stay what they are
  uint8_t table[BYTES];
} cpu_bytes_pooling_kernel_t;

typedef struct cpu_bytes_pooling_state_t {
  rabbet_window_t window;
  int64_t before[2];
  int64_t channels, height, width, out_height, out_width;
  int64_t rows;  // of the result, of all images
  size_t slot;   // bytes
} cpu_bytes_pooling_state_t;

// ---- Which groups ----------------------------------------------------------

static bool pooling_is_byte(rabbet_dtype_t dtype) {
  return dtype == RABBET_DTYPE_INT8 || dtype == RABBET_DTYPE_UINT8;
}

// Dequantize, pooling, quantize.
static bool pooling_parse(const rabbet_group_t* group, bytes_maximum_t* out) {
  if (group->node_count != NODES || group->output_count != 1) return false;
  const rabbet_group_node_t *first = &group->nodes[0], *pool = &group->nodes[1],
                            *last = &group->nodes[2];
  for (int i = 0; i < NODES; ++i)
    if (group->nodes[i].output_count != 1) return false;
  *out = (bytes_maximum_t){
      .node = pool, .x = first->inputs[0], .y = last->outputs[0]};
  return rabbet_op_is(pool->op, RABBET_OP_POOLING) &&
         rabbet_node_int(pool, "type") == RABBET_POOLING_MAX &&
         rabbet_op_is(last->op, RABBET_OP_QUANTIZE) &&
         rabbet_quantized_maker(group, pool->inputs[0]) == first &&
         last->inputs[0] == pool->outputs[0] && out->y == group->outputs[0] &&
         group->values[out->x].dims.rank == 4 &&
         pooling_is_byte(group->values[out->x].dtype) &&
         group->values[out->y].dtype == group->values[out->x].dtype &&
         rabbet_quantized_number(group, first->inputs[1], &out->scales[0]) &&
         rabbet_quantized_number(group, last->inputs[1], &out->scales[1]) &&
         rabbet_quantized_zero(group, first, &out->zeros[0]) &&
         rabbet_quantized_zero(group, last, &out->zeros[1]);
}

// A window that lies in the padding has no maximum.
static bool pooling_is_inside(const bytes_maximum_t* maximum) {
  const rabbet_group_node_t* node = maximum->node;
  size_t count = 0;
  rabbet_window_t window;
  const int64_t* size = rabbet_attr_ints(node->attrs, node->op->attr_count,
                                         "window_size_nd", &count);
  if (count != 2) return false;
  rabbet_status_t status = rabbet_window_read(node->attrs, node->op->attr_count,
                                              (int32_t)count, size, &window);
  bool inside = rabbet_is_ok(status);
  rabbet_status_ignore(status);
  for (int i = 0; inside && i < window.spatial; ++i)
    inside = window.mode == RABBET_PADDING_EXPLICIT_ROUND_DOWN &&
             window.pre[i] < window.size[i] && window.post[i] < window.size[i];
  return inside;
}

static bool pooling_matches(const rabbet_group_t* group, bytes_maximum_t* out) {
  return rabbet_bytes_kernels() && pooling_parse(group, out) &&
         pooling_is_inside(out);
}

static rabbet_format_t pooling_format(const bytes_maximum_t* maximum,
                                      int32_t value) {
  return value == maximum->x || value == maximum->y ? RABBET_FORMAT_HWC
                                                    : RABBET_FORMAT_LINEAR;
}

static bool cpu_bytes_pooling_takes(const rabbet_kernel_spec_t* spec) {
  const rabbet_group_t* group = spec->group;
  bytes_maximum_t maximum;
  if (!pooling_matches(group, &maximum)) return false;
  for (size_t i = 0; i < group->input_count + group->output_count; ++i) {
    int32_t value = rabbet_group_boundary(group, i);
    if (group->values[value].format != pooling_format(&maximum, value))
      return false;
  }
  return true;
}

static rabbet_status_t cpu_bytes_pooling_body(rabbet_proposal_t* proposal) {
  const rabbet_group_t* group = proposal->propose->group;
  bytes_maximum_t maximum;
  if (!pooling_matches(group, &maximum)) return rabbet_ok();
  for (size_t i = 0; i < group->input_count + group->output_count; ++i)
    proposal->tensors[i].format =
        pooling_format(&maximum, rabbet_group_boundary(group, i));
  return rabbet_proposal_offer(proposal, "bytes", -1);
}

static rabbet_status_t cpu_bytes_pooling_propose(
    const rabbet_propose_t* propose, rabbet_candidate_sink_t sink) {
  return rabbet_proposal_make(propose, sink, &rabbet_cpu_bytes_pooling, NULL,
                              cpu_bytes_pooling_body);
}

// ---- The table -------------------------------------------------------------

static void pooling_fill_table(cpu_bytes_pooling_kernel_t* kernel) {
  const bytes_maximum_t* m = &kernel->maximum;
  rabbet_dtype_t dtype = kernel->node.group->values[m->x].dtype;
  const int low = dtype == RABBET_DTYPE_INT8 ? INT8_MIN : 0;
  kernel->is_same = true;
  for (int q = low; q < low + BYTES; ++q) {
    float real = (float)(q - m->zeros[0]) * (float)m->scales[0];
    float whole = rintf(real / (float)m->scales[1]) + (float)m->zeros[1];
    whole = fmaxf(whole, (float)low);
    uint8_t to = (uint8_t)(int)fminf(whole, (float)(low + BYTES - 1));
    kernel->table[(uint8_t)q] = to;
    kernel->is_same &= to == (uint8_t)q;
  }
}

static void cpu_bytes_pooling_destroy(rabbet_kernel_t* base) {
  cpu_bytes_pooling_kernel_t* kernel = (cpu_bytes_pooling_kernel_t*)base;
  if (kernel) rabbet_free(kernel->node.allocator, kernel);
}

static rabbet_status_t cpu_bytes_pooling_create(
    const rabbet_kernel_spec_t* spec, rabbet_kernel_t** out_kernel) {
  cpu_bytes_pooling_kernel_t* kernel = NULL;
  *out_kernel = NULL;
  RABBET_RETURN_IF_ERROR(
      rabbet_allocate(spec->allocator, sizeof(*kernel), (void**)&kernel));
  bool matches = pooling_matches(spec->group, &kernel->maximum);
  assert(matches);  // `takes` has checked it
  (void)matches;
  kernel->node = (rabbet_node_kernel_t){
      .base = {.kernel_class = &rabbet_cpu_bytes_pooling},
      .allocator = spec->allocator,
      .group = spec->group,
      .node = kernel->maximum.node};
  pooling_fill_table(kernel);
  *out_kernel = &kernel->node.base;
  return rabbet_ok();
}

// ---- Geometry --------------------------------------------------------------

static rabbet_status_t pooling_measure(const bytes_maximum_t* maximum,
                                       const rabbet_dims_t* x,
                                       const rabbet_dims_t* y,
                                       cpu_bytes_pooling_state_t* state) {
  const rabbet_group_node_t* node = maximum->node;
  size_t count = 0;
  int64_t before[RABBET_MAX_RANK], after[RABBET_MAX_RANK];
  const int64_t* size = rabbet_attr_ints(node->attrs, node->op->attr_count,
                                         "window_size_nd", &count);
  RABBET_RETURN_IF_ERROR(rabbet_window_read(
      node->attrs, node->op->attr_count, (int32_t)count, size, &state->window));
  rabbet_window_pads(&state->window, x->d + 2, y->d + 2, before, after);
  for (int i = 0; i < 2; ++i)
    state->before[i] = before[i];
  state->channels = x->d[1];
  state->height = x->d[2];
  state->width = x->d[3];
  state->out_height = y->d[2];
  state->out_width = y->d[3];
  state->rows = y->d[0] * y->d[2];
  return rabbet_ok();
}

static rabbet_status_t cpu_bytes_pooling_prepare(
    rabbet_kernel_t* base, const rabbet_kernel_shapes_t* shapes,
    cpu_bytes_pooling_state_t** out_state, size_t* out_workspace) {
  const cpu_bytes_pooling_kernel_t* kernel =
      (const cpu_bytes_pooling_kernel_t*)base;
  const rabbet_dims_t* x = &shapes->dims[kernel->maximum.x];
  cpu_bytes_pooling_state_t* state = NULL;
  *out_workspace = 0;
  *out_state = NULL;
  RABBET_RETURN_IF_ERROR(
      rabbet_node_state_allocate(base, sizeof(*state), (void**)&state));
  rabbet_status_t status = pooling_measure(
      &kernel->maximum, x, &shapes->dims[kernel->maximum.y], state);
  state->slot = rabbet_align_up((size_t)(state->width * state->channels),
                                (size_t)ALIGNMENT);
  *out_workspace = state->slot * (size_t)rabbet_cpu_slots(shapes->threads);
  return rabbet_node_state_finish(base, state, status, (void**)out_state);
}

// ---- A call ----------------------------------------------------------------

typedef struct pooling_call_t {
  const cpu_bytes_pooling_kernel_t* kernel;
  const cpu_bytes_pooling_state_t* state;
  const char* x;
  char* y;
  char* workspace;
  bool is_signed;
} pooling_call_t;

// The taps of a window along an axis that lie in the tensor.
static void pooling_taps(const cpu_bytes_pooling_state_t* s, int axis,
                         int64_t at, int64_t extent, int64_t* out_first,
                         int64_t* out_end) {
  int64_t first = at * s->window.stride[axis] - s->before[axis];
  *out_end = rabbet_min_i64(first + s->window.size[axis], extent);
  *out_first = rabbet_max_i64(first, 0);
}

// Maxima of columns first, then of the taps of each row.
static void pooling_row(const pooling_call_t* call, int64_t row, char* lines) {
  const cpu_bytes_pooling_state_t* s = call->state;
  const rabbet_bytes_kernels_t* kernels = rabbet_bytes_kernels();
  int64_t line = s->width * s->channels, first = 0, end = 0;
  const char* x = call->x + row / s->out_height * s->height * line;
  char* y = call->y + row * s->out_width * s->channels;
  pooling_taps(s, 0, row % s->out_height, s->height, &first, &end);
  assert(first < end);
  memcpy(lines, x + first * line, (size_t)line);
  while (++first < end)
    kernels->maxima(x + first * line, line, call->is_signed, lines);
  for (int64_t i = 0; i < s->out_width; ++i) {
    char* to = y + i * s->channels;
    pooling_taps(s, 1, i, s->width, &first, &end);
    memcpy(to, lines + first * s->channels, (size_t)s->channels);
    while (++first < end)
      kernels->maxima(lines + first * s->channels, s->channels, call->is_signed,
                      to);
  }
  for (int64_t i = 0; !call->kernel->is_same && i < s->out_width * s->channels;
       ++i)
    y[i] = (char)call->kernel->table[(uint8_t)y[i]];
}

static void pooling_rows(void* context, int64_t begin, int64_t end) {
  const pooling_call_t* call = context;
  char* lines = call->workspace + (size_t)rabbet_cpu_slot() * call->state->slot;
  for (int64_t row = begin; row < end; ++row)
    pooling_row(call, row, lines);
}

static rabbet_status_t cpu_bytes_pooling_enqueue(
    rabbet_kernel_t* base, cpu_bytes_pooling_state_t* state,
    const rabbet_kernel_call_t* call) {
  const cpu_bytes_pooling_kernel_t* kernel =
      (const cpu_bytes_pooling_kernel_t*)base;
  const rabbet_group_t* group = kernel->node.group;
  pooling_call_t run = {
      .kernel = kernel,
      .state = state,
      .x = call->inputs[rabbet_group_input_of(group, kernel->maximum.x)],
      .y = call->outputs[0],
      .workspace = call->workspace,
      .is_signed = group->values[kernel->maximum.x].dtype == RABBET_DTYPE_INT8,
  };
  int64_t bytes = state->width * state->channels * state->window.size[0];
  if (state->channels == 0 || state->out_width == 0) return rabbet_ok();
  rabbet_cpu_parallel(
      state->rows,
      rabbet_max_i64(1, RABBET_CPU_GRAIN_BYTES / rabbet_max_i64(1, bytes)),
      pooling_rows, &run);
  return rabbet_ok();
}

RABBET_NODE_TABLE(cpu_bytes_pooling, "cpu.bytes.pooling", 1,
                  .destroy = cpu_bytes_pooling_destroy);
