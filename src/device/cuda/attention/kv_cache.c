// Stores keys and values into their cache, in place. Bound by the bytes of the
// update, or by the launch.
#include "device/common/kv_cache.h"

#include "core/view.h"
#include "device/cuda/attention/kv_cache_params.h"
#include "device/cuda/programs/launch.h"
#include "device/cuda/programs/node.h"
#include "ops/enums.h"

enum { THREADS = 256, NARROW = 0, WIDE = 1 };

typedef struct cuda_kv_cache_kernel_t {
  rabbet_cuda_node_t node;
  rabbet_device_t* base;
  int64_t size;  // bytes of an element
  CUfunction functions[2];
} cuda_kv_cache_kernel_t;

typedef struct cuda_kv_cache_state_t {
  size_t bytes;  // of the cache
  bool has_wide;
  kv_cache_t parameters[2];
  rabbet_cuda_launch_t launch[2];
} cuda_kv_cache_state_t;

static rabbet_status_t cuda_kv_cache_propose(const rabbet_propose_t* propose,
                                             rabbet_candidate_sink_t sink) {
  return rabbet_kv_cache_propose(propose, sink, &rabbet_cuda_kv_cache);
}

static rabbet_status_t cuda_kv_cache_program(rabbet_cuda_node_t* node,
                                             const rabbet_kernel_spec_t* spec) {
  cuda_kv_cache_kernel_t* kernel = (cuda_kv_cache_kernel_t*)node;
  const rabbet_group_node_t* layer = node->node.node;
  const rabbet_group_value_t* values = spec->group->values;
  if (!rabbet_node_is(spec->group, RABBET_OP_KV_CACHE_UPDATE))
    return RABBET_STATUS(RABBET_STATUS_INVALID_ARGUMENT,
                         "layer '%s' updates no cache", layer->name);
  RABBET_RETURN_IF_ERROR(rabbet_kv_cache_check_types(spec->group, layer));
  rabbet_cuda_options_t options = {.count = 0};
  kernel->base = spec->device;
  kernel->size = rabbet_dtype_bits(values[layer->inputs[0]].dtype) / 8;
  rabbet_cuda_option(&options, "-DUNIT=%d", (int)kernel->size);
  RABBET_RETURN_IF_ERROR(rabbet_cuda_node_add(
      node, spec, "attention/kv_cache.cu", NULL, &options));
  RABBET_RETURN_IF_ERROR(rabbet_cuda_node_function(node, 0, "kv_cache",
                                                   &kernel->functions[NARROW]));
  return rabbet_cuda_node_function(node, 0, "kv_cache_wide",
                                   &kernel->functions[WIDE]);
}

// Parameters for rows of `unit` units.
static rabbet_status_t kv_cache_set(const cuda_kv_cache_kernel_t* kernel,
                                    const rabbet_kv_cache_rows_t* rows,
                                    int64_t unit, int width,
                                    cuda_kv_cache_state_t* state) {
  const rabbet_group_node_t* layer = kernel->node.node.node;
  int32_t indices = rabbet_node_input(layer, 2);
  int64_t count = rows->batch * rows->outer * rows->count * unit;
  int64_t blocks = rabbet_ceildiv(count, (int64_t)THREADS);
  if (blocks > INT32_MAX)
    return RABBET_STATUS(RABBET_STATUS_OUT_OF_RANGE,
                         "layer '%s': the update has too many elements",
                         layer->name);
  state->parameters[width] = (kv_cache_t){
      .count = count,
      .unit = rabbet_cuda_divisor(unit),
      .rows = rabbet_cuda_divisor(rows->count),
      .outer = rabbet_cuda_divisor(rows->outer),
      .extent = rows->extent,
      .indices = indices < 0
                     ? 0
                     : rabbet_dtype_bits(
                           kernel->node.node.group->values[indices].dtype) /
                           8,
      .circular =
          rabbet_node_int(layer, "cache_mode") == RABBET_KV_CACHE_CIRCULAR};
  state->launch[width] =
      (rabbet_cuda_launch_t){.function = kernel->functions[width],
                             .grid = {(unsigned)blocks, 1, 1},
                             .block = {THREADS, 1, 1}};
  return rabbet_ok();
}

static rabbet_status_t cuda_kv_cache_prepare(
    rabbet_kernel_t* base, const rabbet_kernel_shapes_t* shapes,
    cuda_kv_cache_state_t** out_state, size_t* out_workspace) {
  const cuda_kv_cache_kernel_t* kernel = (const cuda_kv_cache_kernel_t*)base;
  rabbet_kv_cache_rows_t rows;
  *out_workspace = 0;
  *out_state = NULL;
  RABBET_RETURN_IF_ERROR(rabbet_kv_cache_resolve_node(kernel->node.node.node,
                                                      shapes->dims, &rows));
  cuda_kv_cache_state_t* state = NULL;
  RABBET_RETURN_IF_ERROR(
      rabbet_node_state_allocate(base, sizeof(*state), (void**)&state));
  int64_t row = rows.row * kernel->size;
  state->bytes = (size_t)(rows.batch * rows.outer * rows.extent * row);
  state->has_wide = row % 16 == 0;
  rabbet_status_t status = kv_cache_set(kernel, &rows, rows.row, NARROW, state);
  if (rabbet_is_ok(status) && state->has_wide)
    status = kv_cache_set(kernel, &rows, row / 16, WIDE, state);
  return rabbet_node_state_finish(base, state, status, (void**)out_state);
}

static rabbet_status_t cuda_kv_cache_enqueue(rabbet_kernel_t* base,
                                             cuda_kv_cache_state_t* state,
                                             const rabbet_kernel_call_t* call) {
  const cuda_kv_cache_kernel_t* kernel = (const cuda_kv_cache_kernel_t*)base;
  const rabbet_node_kernel_t* node = &kernel->node.node;
  const void* cache = rabbet_node_input_at(node, call, 0);
  const void* update = rabbet_node_input_at(node, call, 1);
  const void* indices = rabbet_node_input_at(node, call, 2);
  void* y = rabbet_node_output(node, call, 0);
  if (y != cache && state->bytes > 0)
    RABBET_RETURN_IF_ERROR(kernel->base->vtable->copy(
        kernel->base, y, cache, state->bytes, call->stream));
  int width = state->has_wide && rabbet_cuda_is_aligned(update, 16) &&
                      rabbet_cuda_is_aligned(y, 16)
                  ? WIDE
                  : NARROW;
  if (state->parameters[width].count == 0) return rabbet_ok();
  void* parameters[] = {&indices, &update, &y, &state->parameters[width]};
  return rabbet_cuda_launch(kernel->node.device, &state->launch[width],
                            parameters, call->stream);
}

RABBET_TAKES_NODE(cuda_kv_cache, KV_CACHE_UPDATE, 0)

RABBET_CUDA_NODE_CLASS(cuda_kv_cache, cuda_kv_cache_kernel_t, "cuda.kv_cache",
                       1);
