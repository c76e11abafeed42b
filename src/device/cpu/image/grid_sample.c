// Samples of an image at the points of a grid. Neighbours and weights of a few
// points are computed once and used for all channels.
#include "ops/image/grid_sample.h"

#include "core/view.h"
#include "device/cpu/cpu.h"
#include "device/cpu/parallel.h"

enum { POINTS = 16 };  // points whose neighbours are computed together

typedef struct cpu_grid_sample_state_t {
  rabbet_grid_sample_t sample;
  rabbet_dtype_t dtype, grid_type;
  int64_t batch, channels, in_plane, out_plane;
  int64_t pieces;  // of a plane of the output
} cpu_grid_sample_state_t;

static rabbet_status_t cpu_grid_sample_body(rabbet_proposal_t* proposal) {
  return rabbet_proposal_offer_linear(proposal, "points", -1);
}

RABBET_PROPOSE_FOR(cpu_grid_sample, GRID_SAMPLE)

static rabbet_status_t cpu_grid_sample_prepare(
    rabbet_kernel_t* base, const rabbet_kernel_shapes_t* shapes,
    cpu_grid_sample_state_t** out_state, size_t* out_workspace) {
  const rabbet_node_kernel_t* kernel = (const rabbet_node_kernel_t*)base;
  const rabbet_group_node_t* node = kernel->node;
  const rabbet_dims_t* in = &shapes->dims[node->inputs[0]];
  const rabbet_dims_t* out = &shapes->dims[node->outputs[0]];
  cpu_grid_sample_state_t made = {
      .batch = out->d[0], .channels = out->d[1], .in_plane = 1, .out_plane = 1};
  *out_workspace = 0;
  *out_state = NULL;
  rabbet_grid_sample_read(node->attrs, node->op->attr_count, in, &made.sample);
  made.dtype = kernel->group->values[node->inputs[0]].dtype;
  made.grid_type = kernel->group->values[node->inputs[1]].dtype;
  for (int32_t i = 2; i < in->rank; ++i) {
    made.in_plane *= in->d[i];
    made.out_plane *= out->d[i];
  }
  made.pieces = rabbet_ceildiv(made.out_plane, (int64_t)POINTS);
  RABBET_RETURN_IF_ERROR(RABBET_ANNOTATE(
      rabbet_grid_sample_check(in, &shapes->dims[node->inputs[1]]),
      "layer '%s'", node->name));
  RABBET_RETURN_IF_ERROR(
      rabbet_node_state_allocate(base, sizeof(made), (void**)out_state));
  **out_state = made;
  return rabbet_ok();
}

// ---- Running ---------------------------------------------------------------

typedef struct grid_call_t {
  const cpu_grid_sample_state_t* state;
  const void *source, *grid;
  void* target;
} grid_call_t;

static inline float grid_load(rabbet_dtype_t dtype, const void* data,
                              int64_t at) {
  switch (dtype) {
    case RABBET_DTYPE_HALF:
      return rabbet_half_to_float(((const uint16_t*)data)[at]);
    case RABBET_DTYPE_BF16:
      return rabbet_bf16_to_float(((const uint16_t*)data)[at]);
    default:
      return ((const float*)data)[at];
  }
}

static void grid_channel(const grid_call_t* call,
                         const rabbet_grid_taps_t* taps, int64_t points,
                         int64_t from, int64_t to) {
  rabbet_dtype_t dtype = call->state->dtype;
  for (int64_t p = 0; p < points; ++p) {
    float sum = 0;
    if (dtype == RABBET_DTYPE_FLOAT) {
      const float* x = (const float*)call->source + from;
      for (int i = 0; i < taps[p].count; ++i)
        sum += x[taps[p].offset[i]] * taps[p].weight[i];
      ((float*)call->target)[to + p] = sum;
      continue;
    }
    for (int i = 0; i < taps[p].count; ++i)
      sum += grid_load(dtype, call->source, from + taps[p].offset[i]) *
             taps[p].weight[i];
    ((uint16_t*)call->target)[to + p] = dtype == RABBET_DTYPE_HALF
                                            ? rabbet_float_to_half(sum)
                                            : rabbet_float_to_bf16(sum);
  }
}

static void grid_items(void* context, int64_t first, int64_t last) {
  const grid_call_t* call = context;
  const cpu_grid_sample_state_t* state = call->state;
  rabbet_grid_taps_t taps[POINTS];
  int32_t axes = state->sample.spatial;
  for (int64_t item = first; item < last; ++item) {
    int64_t batch = item / state->pieces;
    int64_t begin = item % state->pieces * POINTS;
    int64_t points = rabbet_min_i64(POINTS, state->out_plane - begin);
    for (int64_t p = 0; p < points; ++p) {
      float point[RABBET_GRID_AXES];
      int64_t at = (batch * state->out_plane + begin + p) * axes;
      for (int32_t i = 0; i < axes; ++i)
        point[i] = grid_load(state->grid_type, call->grid, at + i);
      rabbet_grid_sample_find(&state->sample, point, &taps[p]);
    }
    for (int64_t c = 0; c < state->channels; ++c) {
      int64_t plane = batch * state->channels + c;
      grid_channel(call, taps, points, plane * state->in_plane,
                   plane * state->out_plane + begin);
    }
  }
}

static rabbet_status_t cpu_grid_sample_enqueue(
    rabbet_kernel_t* base, cpu_grid_sample_state_t* state,
    const rabbet_kernel_call_t* call) {
  const rabbet_node_kernel_t* kernel = (const rabbet_node_kernel_t*)base;
  grid_call_t run = {.state = state,
                     .source = rabbet_node_input_at(kernel, call, 0),
                     .grid = rabbet_node_input_at(kernel, call, 1),
                     .target = rabbet_node_output(kernel, call, 0)};
  int64_t work = POINTS * (state->channels + 8) * 16;
  rabbet_cpu_parallel(state->batch * state->pieces,
                      rabbet_max_i64(1, RABBET_CPU_GRAIN_BYTES / work),
                      grid_items, &run);
  return rabbet_ok();
}

RABBET_TAKES_NODE(cpu_grid_sample, GRID_SAMPLE, 0)

RABBET_NODE_CLASS(cpu_grid_sample, "cpu.grid_sample", 1);
