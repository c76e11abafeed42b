// Cumulative sums along an axis. Neighbouring rows are summed together, so that
// memory is read in order for any axis.
#include "ops/reduction/cumulative.h"

#include <assert.h>

#include "core/view.h"
#include "device/cpu/cpu.h"
#include "device/cpu/parallel.h"

enum { COLUMNS = 256 };  // rows that are summed together

typedef struct cpu_cumulative_state_t {
  rabbet_dtype_t dtype;
  bool exclusive, reverse;
  int64_t outer, count, inner;
  int64_t pieces;  // of `inner`
  int64_t size;
} cpu_cumulative_state_t;

static rabbet_status_t cpu_cumulative_body(rabbet_proposal_t* proposal) {
  return rabbet_proposal_offer_linear(
      proposal, "rows",
      rabbet_group_input_of(proposal->propose->group,
                            proposal->node->inputs[0]));
}

RABBET_PROPOSE_FOR(cpu_cumulative, CUMULATIVE)

static rabbet_status_t cpu_cumulative_prepare(
    rabbet_kernel_t* base, const rabbet_kernel_shapes_t* shapes,
    cpu_cumulative_state_t** out_state, size_t* out_workspace) {
  const rabbet_node_kernel_t* kernel = (const rabbet_node_kernel_t*)base;
  const rabbet_group_node_t* node = kernel->node;
  const rabbet_dims_t* dims = &shapes->dims[node->inputs[0]];
  rabbet_view_t views[3];
  rabbet_op_eval_t eval;
  rabbet_node_eval(kernel->group, shapes->dims, shapes->host_values,
                   kernel->allocator, views, &eval);
  int32_t axis = rabbet_cumulative_axis(&eval);
  assert(axis >= 0 && axis < dims->rank);
  *out_workspace = 0;
  RABBET_RETURN_IF_ERROR(
      rabbet_node_state_allocate(base, sizeof(**out_state), (void**)out_state));
  cpu_cumulative_state_t* state = *out_state;
  state->dtype = kernel->group->values[node->inputs[0]].dtype;
  state->size = rabbet_dtype_bits(state->dtype) / 8;
  state->exclusive = rabbet_node_int(node, "exclusive") != 0;
  state->reverse = rabbet_node_int(node, "reverse") != 0;
  state->outer = state->inner = state->count = 1;
  for (int32_t i = 0; i < dims->rank; ++i)
    *(i < axis   ? &state->outer
      : i > axis ? &state->inner
                 : &state->count) *= dims->d[i];
  state->pieces = rabbet_ceildiv(state->inner, (int64_t)COLUMNS);
  return rabbet_ok();
}

// ---- Running ---------------------------------------------------------------

typedef struct cumulative_call_t {
  const cpu_cumulative_state_t* state;
  const char* source;
  char* target;
} cumulative_call_t;

#define RABBET_CUMULATIVE_ROWS(type, sum_t, load, store)        \
  {                                                             \
    sum_t sums[COLUMNS] = {0};                                  \
    for (int64_t i = 0; i < count; ++i, x += step, y += step) { \
      for (int64_t k = 0; k < width; ++k) {                     \
        type element = ((const type*)x)[k];                     \
        sum_t before = sums[k];                                 \
        sums[k] = before + (sum_t)(load);                       \
        sum_t sum = exclusive ? before : sums[k];               \
        ((type*)y)[k] = (type)(store);                          \
      }                                                         \
    }                                                           \
    return;                                                     \
  }

static void cumulative_columns(const cpu_cumulative_state_t* state,
                               const char* x, char* y, int64_t step,
                               int64_t width) {
  assert(width > 0 && width <= COLUMNS);
  int64_t count = state->count;
  bool exclusive = state->exclusive;
  switch (state->dtype) {
    case RABBET_DTYPE_FLOAT:
      RABBET_CUMULATIVE_ROWS(float, double, element, sum)
    case RABBET_DTYPE_HALF:
      RABBET_CUMULATIVE_ROWS(uint16_t, double, rabbet_half_to_float(element),
                             rabbet_float_to_half((float)sum))
    case RABBET_DTYPE_BF16:
      RABBET_CUMULATIVE_ROWS(uint16_t, double, rabbet_bf16_to_float(element),
                             rabbet_float_to_bf16((float)sum))
    case RABBET_DTYPE_INT8:
    case RABBET_DTYPE_UINT8:
      RABBET_CUMULATIVE_ROWS(uint8_t, uint64_t, element, sum)
    case RABBET_DTYPE_INT32:
      RABBET_CUMULATIVE_ROWS(uint32_t, uint64_t, element, sum)
    default:
      RABBET_CUMULATIVE_ROWS(uint64_t, uint64_t, element, sum)
  }
}

static void cumulative_items(void* context, int64_t first, int64_t last) {
  const cumulative_call_t* call = context;
  const cpu_cumulative_state_t* state = call->state;
  for (int64_t item = first; item < last; ++item) {
    int64_t outer = item / state->pieces, piece = item % state->pieces;
    int64_t row = state->inner * state->size;
    int64_t offset = outer * state->count * row + piece * COLUMNS * state->size;
    if (state->reverse) offset += (state->count - 1) * row;
    cumulative_columns(state, call->source + offset, call->target + offset,
                       state->reverse ? -row : row,
                       rabbet_min_i64(COLUMNS, state->inner - piece * COLUMNS));
  }
}

static rabbet_status_t cpu_cumulative_enqueue(
    rabbet_kernel_t* base, cpu_cumulative_state_t* state,
    const rabbet_kernel_call_t* call) {
  const rabbet_node_kernel_t* kernel = (const rabbet_node_kernel_t*)base;
  if (state->count == 0) return rabbet_ok();
  cumulative_call_t run = {.state = state,
                           .source = rabbet_node_input_at(kernel, call, 0),
                           .target = rabbet_node_output(kernel, call, 0)};
  int64_t bytes =
      state->count * state->size * rabbet_min_i64(COLUMNS, state->inner);
  rabbet_cpu_parallel(
      state->outer * state->pieces,
      rabbet_max_i64(1, RABBET_CPU_GRAIN_BYTES / rabbet_max_i64(bytes, 1)),
      cumulative_items, &run);
  return rabbet_ok();
}

RABBET_TAKES_NODE(cpu_cumulative, CUMULATIVE, 0)

RABBET_NODE_CLASS(cpu_cumulative, "cpu.cumulative", 1);
