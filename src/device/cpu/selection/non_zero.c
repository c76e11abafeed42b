// Positions of the elements that are not zero. Threads count the elements of
// pieces of the input, then write their positions.
#include <assert.h>
#include <string.h>

#include "device/cpu/cpu.h"
#include "device/cpu/parallel.h"

enum { PIECE = 8192 };  // elements

typedef struct cpu_non_zero_state_t {
  rabbet_dims_t dims;
  int64_t count, pieces;
  int32_t bytes;  // of an element
  bool is_float, is_long;
} cpu_non_zero_state_t;

static rabbet_status_t cpu_non_zero_body(rabbet_proposal_t* proposal) {
  return rabbet_proposal_offer(proposal, "pieces", -1);
}

RABBET_PROPOSE_FOR(cpu_non_zero, NON_ZERO)

static rabbet_status_t cpu_non_zero_prepare(
    rabbet_kernel_t* base, const rabbet_kernel_shapes_t* shapes,
    cpu_non_zero_state_t** out_state, size_t* out_workspace) {
  const rabbet_node_kernel_t* kernel = (const rabbet_node_kernel_t*)base;
  const rabbet_group_node_t* node = kernel->node;
  const rabbet_group_value_t* values = kernel->group->values;
  rabbet_dtype_t dtype = values[node->inputs[0]].dtype;
  int64_t count = 0;
  *out_workspace = 0;
  *out_state = NULL;
  RABBET_RETURN_IF_ERROR(
      rabbet_dims_count(&shapes->dims[node->inputs[0]], &count));
  RABBET_RETURN_IF_ERROR(
      rabbet_node_state_allocate(base, sizeof(**out_state), (void**)out_state));
  cpu_non_zero_state_t* state = *out_state;
  state->dims = shapes->dims[node->inputs[0]];
  state->count = count;
  state->pieces = rabbet_ceildiv(count, (int64_t)PIECE);
  state->bytes = rabbet_dtype_bits(dtype) / 8;
  state->is_float = rabbet_dtype_is_float(dtype);
  state->is_long = values[node->outputs[0]].dtype == RABBET_DTYPE_INT64;
  // The count of each piece; afterwards the sum of the pieces before it.
  *out_workspace = (size_t)state->pieces * sizeof(int64_t);
  return rabbet_ok();
}

// ---- Running ---------------------------------------------------------------

typedef struct non_zero_call_t {
  const cpu_non_zero_state_t* state;
  const void* source;
  void* target;
  int64_t* places;
  int64_t total;
} non_zero_call_t;

// -0 is zero.
#define RABBET_NON_ZERO_SET(type, sign) \
  for (int64_t i = 0; i < count; ++i)   \
  set[i] = (type)(((const type*)x)[i] & \
                  (is_float ? (type) ~(sign) : (type) ~(type)0)) != 0

// set[i]: element i is not zero.
static void non_zero_set(const cpu_non_zero_state_t* state, const void* x,
                         int64_t count, uint8_t set[PIECE]) {
  bool is_float = state->is_float;
  switch (state->bytes) {
    case 1:
      RABBET_NON_ZERO_SET(uint8_t, 0x80u);
      return;
    case 2:
      RABBET_NON_ZERO_SET(uint16_t, 0x8000u);
      return;
    case 4:
      RABBET_NON_ZERO_SET(uint32_t, 0x80000000u);
      return;
    default:
      RABBET_NON_ZERO_SET(uint64_t, UINT64_C(1) << 63);
      return;
  }
}

static int64_t non_zero_piece(const non_zero_call_t* call, int64_t piece,
                              uint8_t set[PIECE]) {
  const cpu_non_zero_state_t* state = call->state;
  int64_t first = piece * PIECE;
  int64_t count = rabbet_min_i64(PIECE, state->count - first);
  assert(count > 0);
  non_zero_set(state, (const char*)call->source + first * state->bytes, count,
               set);
  return count;
}

static void non_zero_count(void* context, int64_t begin, int64_t end) {
  const non_zero_call_t* call = context;
  uint8_t set[PIECE];
  for (int64_t piece = begin; piece < end; ++piece) {
    int64_t count = non_zero_piece(call, piece, set);
    int32_t found = 0;
    for (int64_t i = 0; i < count; ++i)
      found += set[i];
    call->places[piece] = found;
  }
}

static void non_zero_store(const non_zero_call_t* call, int64_t place,
                           const int64_t* at) {
  assert(place >= 0 && place < call->total);
  for (int32_t i = 0; i < call->state->dims.rank; ++i, place += call->total) {
    assert(at[i] >= 0 && at[i] < call->state->dims.d[i]);
    if (call->state->is_long)
      ((int64_t*)call->target)[place] = at[i];
    else
      ((int32_t*)call->target)[place] = (int32_t)at[i];
  }
}

// The first set element from `i` on, or `count`.
static inline int64_t non_zero_next(const uint8_t* set, int64_t i,
                                    int64_t count) {
  for (uint64_t eight = 0; i + 8 <= count; i += 8) {
    memcpy(&eight, set + i, sizeof(eight));
    if (eight != 0) break;
  }
  while (i < count && !set[i])
    ++i;
  return i;
}

static inline void non_zero_advance(const rabbet_dims_t* dims, int64_t* at,
                                    int64_t by) {
  for (int32_t k = dims->rank - 1; k >= 0; --k) {
    at[k] += by;
    if (at[k] < dims->d[k]) return;
    by = at[k] / dims->d[k];
    at[k] -= by * dims->d[k];
  }
}

static void non_zero_write(void* context, int64_t begin, int64_t end) {
  const non_zero_call_t* call = context;
  const rabbet_dims_t* dims = &call->state->dims;
  uint8_t set[PIECE];
  int64_t at[RABBET_MAX_RANK];
  for (int64_t piece = begin; piece < end; ++piece) {
    int64_t place = call->places[piece], first = piece * PIECE;
    int64_t count = non_zero_piece(call, piece, set);
    for (int32_t i = dims->rank - 1; i >= 0; first /= dims->d[i], --i)
      at[i] = first % dims->d[i];
    int64_t done = 0;
    for (int64_t i = non_zero_next(set, 0, count); i < count;
         i = non_zero_next(set, i + 1, count)) {
      non_zero_advance(dims, at, i - done);
      non_zero_store(call, place++, at);
      done = i;
    }
  }
}

static rabbet_status_t cpu_non_zero_enqueue(rabbet_kernel_t* base,
                                            cpu_non_zero_state_t* state,
                                            const rabbet_kernel_call_t* call) {
  const rabbet_node_kernel_t* kernel = (const rabbet_node_kernel_t*)base;
  non_zero_call_t run = {.state = state,
                         .source = rabbet_node_input_at(kernel, call, 0),
                         .target = rabbet_node_output(kernel, call, 0),
                         .places = call->workspace};
  int64_t grain = rabbet_max_i64(
      1, RABBET_CPU_GRAIN_BYTES / (PIECE * (int64_t)state->bytes));
  rabbet_cpu_parallel(state->pieces, grain, non_zero_count, &run);
  for (int64_t i = 0; i < state->pieces; ++i) {
    int64_t found = run.places[i];
    run.places[i] = run.total;
    run.total += found;
  }
  assert(run.total <= state->count);
  *(int64_t*)rabbet_node_output(kernel, call, 1) = run.total;
  if (run.total > 0)
    rabbet_cpu_parallel(state->pieces, 2, non_zero_write, &run);
  return rabbet_ok();
}

RABBET_TAKES_NODE(cpu_non_zero, NON_ZERO, 0)

RABBET_NODE_CLASS_WITH(cpu_non_zero, "cpu.non_zero", 1, RABBET_KERNEL_DOUBLE);
