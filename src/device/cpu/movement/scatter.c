// Scatter into a copy or in place. Each thread reads all indices and applies
// the updates of its own part of the output, so that updates of one element
// keep their order.
#include "device/common/scatter.h"

#include <assert.h>
#include <string.h>

#include "core/view.h"
#include "device/cpu/cpu.h"
#include "device/cpu/movement/move.h"
#include "device/cpu/parallel.h"
#include "ops/movement/scatter.h"

typedef struct cpu_scatter_state_t {
  rabbet_scatter_t scatter;
  rabbet_dtype_t dtype, index_type;
  int64_t reduction, size;
} cpu_scatter_state_t;

static rabbet_status_t cpu_scatter_body(rabbet_proposal_t* proposal) {
  return rabbet_proposal_offer_linear(
      proposal, "rows",
      rabbet_group_input_of(proposal->propose->group,
                            proposal->node->inputs[0]));
}

RABBET_PROPOSE_FOR(cpu_scatter, SCATTER)

static rabbet_status_t cpu_scatter_prepare(rabbet_kernel_t* base,
                                           const rabbet_kernel_shapes_t* shapes,
                                           cpu_scatter_state_t** out_state,
                                           size_t* out_workspace) {
  const rabbet_node_kernel_t* kernel = (const rabbet_node_kernel_t*)base;
  const rabbet_group_node_t* node = kernel->node;
  rabbet_scatter_t scatter;
  *out_workspace = 0;
  *out_state = NULL;
  RABBET_RETURN_IF_ERROR(rabbet_scatter_resolve(
      node, &shapes->dims[node->inputs[0]], &shapes->dims[node->inputs[1]],
      &shapes->dims[node->inputs[2]], &scatter));
  RABBET_RETURN_IF_ERROR(
      rabbet_node_state_allocate(base, sizeof(**out_state), (void**)out_state));
  const rabbet_group_value_t* values = kernel->group->values;
  **out_state = (cpu_scatter_state_t){
      .scatter = scatter,
      .dtype = values[node->inputs[0]].dtype,
      .index_type = values[node->inputs[1]].dtype,
      .reduction = rabbet_node_int(node, "reduction"),
      .size = rabbet_dtype_bits(values[node->inputs[0]].dtype) / 8};
  return rabbet_ok();
}

// ---- Running ---------------------------------------------------------------

typedef struct scatter_call_t {
  const cpu_scatter_state_t* state;
  const void* indices;
  const char* updates;
  char* target;
} scatter_call_t;

static int64_t scatter_index(const scatter_call_t* call, int64_t at) {
  return call->state->index_type == RABBET_DTYPE_INT32
             ? ((const int32_t*)call->indices)[at]
             : ((const int64_t*)call->indices)[at];
}

// The offset of a row in the data, in elements; -1: an index is out of bounds.
static int64_t scatter_find(const scatter_call_t* call, int64_t row) {
  const rabbet_scatter_t* s = &call->state->scatter;
  int64_t offset = 0, rest = row;
  for (int32_t i = s->rank - 1; i >= 0; --i) {
    offset += rest % s->dims[i] * s->steps[i];
    rest /= s->dims[i];
  }
  for (int32_t i = 0; i < s->depth; ++i) {
    int64_t index = scatter_index(call, row * s->depth + i);
    if (index < 0) index += s->extent[i];
    if (index < 0 || index >= s->extent[i]) return -1;
    offset += index * s->stride[i];
  }
  return offset;
}

// Updates elements [at, at + count) of the output.
static void scatter_put(const scatter_call_t* call, int64_t at, int64_t from,
                        int64_t count) {
  assert(at >= 0 && count > 0);
  const cpu_scatter_state_t* state = call->state;
  rabbet_dtype_t dtype = state->dtype;
  int64_t reduction = state->reduction;
  if (reduction == RABBET_SCATTER_REDUCTION_NONE) {
    rabbet_copy_bytes(call->target + at * state->size,
                      call->updates + from * state->size, count * state->size);
    return;
  }
  for (int64_t i = 0; i < count; ++i) {
    if (rabbet_dtype_is_integer(dtype))
      rabbet_store_int64(
          dtype, call->target, at + i,
          rabbet_scatter_join_int64(
              reduction, rabbet_load_int64(dtype, call->target, at + i),
              rabbet_load_int64(dtype, call->updates, from + i)));
    else
      rabbet_store_double(
          dtype, call->target, at + i,
          rabbet_scatter_join(
              reduction, rabbet_load_double(dtype, call->target, at + i),
              rabbet_load_double(dtype, call->updates, from + i)));
  }
}

static void scatter_part(void* context, int64_t begin, int64_t end) {
  const scatter_call_t* call = context;
  const rabbet_scatter_t* s = &call->state->scatter;
  for (int64_t row = 0; row < s->rows; ++row) {
    int64_t first = scatter_find(call, row);
    int64_t from = rabbet_max_i64(first, begin);
    int64_t to = rabbet_min_i64(first + s->row, end);
    if (first < 0 || from >= to) continue;
    scatter_put(call, from, row * s->row + from - first, to - from);
  }
}

static rabbet_status_t cpu_scatter_enqueue(rabbet_kernel_t* base,
                                           cpu_scatter_state_t* state,
                                           const rabbet_kernel_call_t* call) {
  const rabbet_node_kernel_t* kernel = (const rabbet_node_kernel_t*)base;
  scatter_call_t run = {.state = state,
                        .indices = rabbet_node_input_at(kernel, call, 1),
                        .updates = rabbet_node_input_at(kernel, call, 2),
                        .target = rabbet_node_output(kernel, call, 0)};
  const rabbet_scatter_t* s = &state->scatter;
  rabbet_copy_flat(run.target, rabbet_node_input_at(kernel, call, 0),
                   s->elements * state->size);
  // All threads read all indices, so several pay only if updates are larger.
  int64_t work = s->rows * (s->row * state->size + 16);
  int64_t parts = rabbet_max_i64(1, work / RABBET_CPU_GRAIN_BYTES);
  rabbet_cpu_parallel(s->elements, rabbet_ceildiv(s->elements, parts),
                      scatter_part, &run);
  return rabbet_ok();
}

RABBET_TAKES_NODE(cpu_scatter, SCATTER, 0)

RABBET_NODE_CLASS_WITH(cpu_scatter, "cpu.scatter", 1, RABBET_KERNEL_DOUBLE);
