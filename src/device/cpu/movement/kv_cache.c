// Stores keys and values into their cache, in place.
#include <assert.h>

#include "device/common/kv_cache.h"

#include "core/view.h"
#include "device/cpu/cpu.h"
#include "device/cpu/movement/move.h"
#include "device/cpu/parallel.h"
#include "ops/enums.h"

typedef struct cpu_kv_cache_state_t {
  rabbet_kv_cache_rows_t rows;
  rabbet_dtype_t index_type;  // NONE: there are no indices
  bool circular;
  int64_t row;    // bytes
  int64_t bytes;  // of the cache
} cpu_kv_cache_state_t;

static rabbet_status_t cpu_kv_cache_propose(const rabbet_propose_t* propose,
                                            rabbet_candidate_sink_t sink) {
  return rabbet_kv_cache_propose(propose, sink, &rabbet_cpu_kv_cache);
}

static rabbet_status_t cpu_kv_cache_prepare(
    rabbet_kernel_t* base, const rabbet_kernel_shapes_t* shapes,
    cpu_kv_cache_state_t** out_state, size_t* out_workspace) {
  const rabbet_node_kernel_t* kernel = (const rabbet_node_kernel_t*)base;
  const rabbet_group_node_t* node = kernel->node;
  const rabbet_group_value_t* values = kernel->group->values;
  rabbet_kv_cache_rows_t rows;
  *out_workspace = 0;
  *out_state = NULL;
  RABBET_RETURN_IF_ERROR(rabbet_kv_cache_check_types(kernel->group, node));
  RABBET_RETURN_IF_ERROR(
      rabbet_kv_cache_resolve_node(node, shapes->dims, &rows));
  RABBET_RETURN_IF_ERROR(
      rabbet_node_state_allocate(base, sizeof(**out_state), (void**)out_state));
  int64_t size = rabbet_dtype_bits(values[node->inputs[0]].dtype) / 8;
  int32_t indices = rabbet_node_input(node, 2);
  **out_state = (cpu_kv_cache_state_t){
      .rows = rows,
      .index_type = indices < 0 ? RABBET_DTYPE_NONE : values[indices].dtype,
      .circular =
          rabbet_node_int(node, "cache_mode") == RABBET_KV_CACHE_CIRCULAR,
      .row = rows.row * size,
      .bytes = rows.batch * rows.outer * rows.extent * rows.row * size};
  return rabbet_ok();
}

typedef struct kv_cache_call_t {
  const cpu_kv_cache_state_t* state;
  const void* indices;
  const char* update;
  char* cache;
} kv_cache_call_t;

// Copies rows [begin, end) of the update, as many at once as are contiguous.
static void kv_cache_part(void* context, int64_t begin, int64_t end) {
  const kv_cache_call_t* call = context;
  const cpu_kv_cache_state_t* state = call->state;
  const rabbet_kv_cache_rows_t* rows = &state->rows;
  for (int64_t r = begin, n = 0; r < end; r += n) {
    int64_t slice = r / rows->count, i = r % rows->count;
    int64_t first = 0;
    if (state->index_type != RABBET_DTYPE_NONE)
      first = rabbet_load_int64(state->index_type, call->indices,
                                slice / rows->outer);
    int64_t at = rabbet_kv_cache_place(rows, state->circular, first, i);
    n = 1;
    if (at < 0) continue;
    n = rabbet_min_i64(rabbet_min_i64(end - r, rows->count - i),
                       rows->extent - at);
    assert(n > 0);
    rabbet_copy_bytes(call->cache + (slice * rows->extent + at) * state->row,
                      call->update + r * state->row, n * state->row);
  }
}

static rabbet_status_t cpu_kv_cache_enqueue(rabbet_kernel_t* base,
                                            cpu_kv_cache_state_t* state,
                                            const rabbet_kernel_call_t* call) {
  const rabbet_node_kernel_t* kernel = (const rabbet_node_kernel_t*)base;
  kv_cache_call_t run = {.state = state,
                         .update = rabbet_node_input_at(kernel, call, 1),
                         .indices = rabbet_node_input_at(kernel, call, 2),
                         .cache = rabbet_node_output(kernel, call, 0)};
  const rabbet_kv_cache_rows_t* rows = &state->rows;
  rabbet_copy_flat(run.cache, rabbet_node_input_at(kernel, call, 0),
                   state->bytes);
  if (state->row == 0) return rabbet_ok();
  rabbet_cpu_parallel(rows->batch * rows->outer * rows->count,
                      rabbet_ceildiv(RABBET_CPU_GRAIN_BYTES, state->row),
                      kv_cache_part, &run);
  return rabbet_ok();
}

RABBET_TAKES_NODE(cpu_kv_cache, KV_CACHE_UPDATE, 0)

RABBET_NODE_CLASS_WITH(cpu_kv_cache, "cpu.kv_cache", 1, RABBET_KERNEL_DOUBLE);
