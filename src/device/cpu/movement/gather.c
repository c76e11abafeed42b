// Gather. If the axes after the indexed one are contiguous, rows of the data
// are copied.
#include <assert.h>
#include <string.h>

#include "device/common/gather.h"
#include "device/cpu/cpu.h"
#include "device/cpu/movement/move.h"
#include "device/cpu/parallel.h"
#include "ops/enums.h"

// The output is (batch, outer, count) rows of `row` bytes. For ELEMENT a row is
// the last axis.
typedef struct cpu_gather_state_t {
  int64_t mode;
  rabbet_dtype_t index_type;
  int64_t size;  // bytes of an element
  int64_t row;   // bytes
  int64_t batch, outer, count;
  int64_t batch_bytes, outer_bytes;  // strides in the data
  // The axes that are indexed: extents, and bytes from one element to the next.
  int32_t depth;
  int64_t extent[RABBET_MAX_RANK], bytes[RABBET_MAX_RANK];
  // ELEMENT: axes before the row's, and their index arithmetic.
  int32_t axis, rank;
  rabbet_dims_t dims;                // of the indices
  int64_t strides[RABBET_MAX_RANK];  // bytes, of the data
} cpu_gather_state_t;

static inline int64_t gather_index(rabbet_dtype_t dtype, const void* indices,
                                   int64_t at) {
  return dtype == RABBET_DTYPE_INT32 ? ((const int32_t*)indices)[at]
                                     : ((const int64_t*)indices)[at];
}

// The position for an index, which may count from the end; -1: out of bounds.
static inline int64_t gather_position(int64_t index, int64_t extent) {
  if (index < 0) index += extent;
  return index >= 0 && index < extent ? index : -1;
}

// ---- The class -------------------------------------------------------------

static rabbet_status_t cpu_gather_body(rabbet_proposal_t* proposal) {
  return rabbet_cpu_offer_same(proposal, RABBET_CPU_OFFER_LINEAR, "rows", -1);
}

RABBET_PROPOSE_FOR(cpu_gather, GATHER)

static int64_t gather_product(const rabbet_dims_t* dims, int32_t begin,
                              int32_t end) {
  assert(begin >= 0 && begin <= end && end <= dims->rank);
  int64_t product = 1;
  for (int32_t i = begin; i < end; ++i)
    product *= dims->d[i];
  return product;
}

static void gather_set_default(const rabbet_dims_t* data,
                               const rabbet_dims_t* indices, int32_t axis,
                               int32_t batch, cpu_gather_state_t* state) {
  state->row = gather_product(data, axis + 1, data->rank) * state->size;
  state->depth = 1;
  state->extent[0] = data->d[axis];
  state->bytes[0] = state->row;
  state->batch = gather_product(data, 0, batch);
  state->outer = gather_product(data, batch, axis);
  state->outer_bytes = data->d[axis] * state->row;
  state->batch_bytes = state->outer * state->outer_bytes;
  state->count = gather_product(indices, batch, indices->rank);
}

static void gather_set_nd(const rabbet_dims_t* data,
                          const rabbet_dims_t* indices, int32_t batch,
                          cpu_gather_state_t* state) {
  state->depth = (int32_t)indices->d[indices->rank - 1];
  int32_t rest = batch + state->depth;
  assert(rest <= data->rank);
  state->row = gather_product(data, rest, data->rank) * state->size;
  int64_t bytes = state->row;
  for (int32_t i = state->depth - 1; i >= 0; --i) {
    state->extent[i] = data->d[batch + i];
    state->bytes[i] = bytes;
    bytes *= data->d[batch + i];
  }
  state->batch = gather_product(data, 0, batch);
  state->batch_bytes = bytes;
  state->outer = 1;
  state->count = gather_product(indices, batch, indices->rank - 1);
}

static void gather_set_element(const rabbet_dims_t* data,
                               const rabbet_dims_t* indices, int32_t axis,
                               cpu_gather_state_t* state) {
  assert(data->rank == indices->rank && axis >= 0 && axis < data->rank);
  state->dims = *indices;
  state->rank = data->rank;
  state->axis = axis;
  int64_t bytes = state->size;
  for (int32_t i = data->rank - 1; i >= 0; --i) {
    state->strides[i] = bytes;
    bytes *= data->d[i];
  }
  state->extent[0] = data->d[axis];
  state->row = indices->d[data->rank - 1] * state->size;
  state->batch = state->outer = 1;
  state->count = gather_product(indices, 0, data->rank - 1);
}

static rabbet_status_t cpu_gather_prepare(rabbet_kernel_t* base,
                                          const rabbet_kernel_shapes_t* shapes,
                                          cpu_gather_state_t** out_state,
                                          size_t* out_workspace) {
  const rabbet_node_kernel_t* kernel = (const rabbet_node_kernel_t*)base;
  const rabbet_group_node_t* node = kernel->node;
  const rabbet_dims_t* data = &shapes->dims[node->inputs[0]];
  const rabbet_dims_t* indices = &shapes->dims[node->inputs[1]];
  int64_t mode = rabbet_node_int(node, "mode");
  int32_t batch = (int32_t)rabbet_node_int(node, "num_elementwise_dims");
  int32_t axis = (int32_t)rabbet_node_int(node, "axis");
  if (axis < 0) axis += data->rank;
  *out_workspace = 0;
  RABBET_RETURN_IF_ERROR(rabbet_gather_check(node, data, indices));
  RABBET_RETURN_IF_ERROR(
      rabbet_node_state_allocate(base, sizeof(**out_state), (void**)out_state));
  cpu_gather_state_t* state = *out_state;
  const rabbet_group_value_t* values = kernel->group->values;
  state->mode = mode;
  state->index_type = values[node->inputs[1]].dtype;
  state->size = rabbet_dtype_bits(values[node->inputs[0]].dtype) / 8;
  if (mode == RABBET_GATHER_ELEMENT) {
    gather_set_element(data, indices, axis, state);
  } else if (mode == RABBET_GATHER_ND) {
    gather_set_nd(data, indices, batch, state);
  } else {
    gather_set_default(data, indices, axis, batch, state);
  }
  return rabbet_ok();
}

// ---- Running ---------------------------------------------------------------

typedef struct gather_call_t {
  const cpu_gather_state_t* state;
  const char* data;
  const void* indices;
  char* target;
} gather_call_t;

// The offset in the data, in bytes; -1: an index is out of bounds.
static inline int64_t gather_find(const gather_call_t* call, int64_t at) {
  const cpu_gather_state_t* state = call->state;
  int64_t offset = 0;
  for (int32_t i = 0; i < state->depth; ++i) {
    int64_t position = gather_position(
        gather_index(state->index_type, call->indices, at * state->depth + i),
        state->extent[i]);
    if (position < 0) return -1;
    offset += position * state->bytes[i];
  }
  return offset;
}

#define RABBET_GATHER_ROWS(copy, clear)                \
  for (int64_t i = 0; i < count; ++i, target += row) { \
    int64_t offset = gather_find(call, at + i);        \
    if (offset >= 0) {                                 \
      copy;                                            \
    } else {                                           \
      clear;                                           \
    }                                                  \
  }
#define RABBET_GATHER_SMALL(n)                                   \
  RABBET_GATHER_ROWS(__builtin_memcpy(target, data + offset, n), \
                     __builtin_memset(target, 0, n))

// `count` rows from index `at` on.
static void gather_rows(const gather_call_t* call, const char* data, int64_t at,
                        int64_t count, char* target) {
  int64_t row = call->state->row;
  if (row == 4) {
    RABBET_GATHER_SMALL(4)
  } else if (row == 8) {
    RABBET_GATHER_SMALL(8)
  } else {
    RABBET_GATHER_ROWS(rabbet_copy_bytes(target, data + offset, row),
                       memset(target, 0, (size_t)row))
  }
}

static void gather_items(void* context, int64_t begin, int64_t end) {
  const gather_call_t* call = context;
  const cpu_gather_state_t* state = call->state;
  while (begin < end) {
    int64_t at = begin % state->count, rest = begin / state->count;
    int64_t outer = rest % state->outer, batch = rest / state->outer;
    int64_t count = rabbet_min_i64(end - begin, state->count - at);
    assert(batch < state->batch && count > 0);
    gather_rows(
        call,
        call->data + batch * state->batch_bytes + outer * state->outer_bytes,
        batch * state->count + at, count, call->target + begin * state->row);
    begin += count;
  }
}

// ELEMENT: rows of the last axis.
static void gather_elements(void* context, int64_t begin, int64_t end) {
  const gather_call_t* call = context;
  const cpu_gather_state_t* state = call->state;
  int32_t last = state->rank - 1;
  int64_t length = state->dims.d[last], size = state->size;
  // The step along the row in the data; 0 if the row's axis is the indexed one.
  int64_t step = state->axis == last ? 0 : size;
  for (int64_t row = begin; row < end; ++row) {
    const char* data = call->data;
    int64_t rest = row;
    for (int32_t i = last - 1; i >= 0; --i) {
      int64_t at = rest % state->dims.d[i];
      rest /= state->dims.d[i];
      if (i != state->axis) data += at * state->strides[i];
    }
    char* target = call->target + row * state->row;
    for (int64_t i = 0; i < length; ++i, target += size) {
      int64_t position = gather_position(
          gather_index(state->index_type, call->indices, row * length + i),
          state->extent[0]);
      if (position < 0) {
        memset(target, 0, (size_t)size);
      } else {
        rabbet_copy_strided(
            target, data + i * step + position * state->strides[state->axis], 0,
            1, size);
      }
    }
  }
}

static rabbet_status_t cpu_gather_enqueue(rabbet_kernel_t* base,
                                          cpu_gather_state_t* state,
                                          const rabbet_kernel_call_t* call) {
  const rabbet_node_kernel_t* kernel = (const rabbet_node_kernel_t*)base;
  const rabbet_group_t* group = kernel->group;
  gather_call_t run = {
      .state = state,
      .data =
          call->inputs[rabbet_group_input_of(group, kernel->node->inputs[0])],
      .indices =
          call->inputs[rabbet_group_input_of(group, kernel->node->inputs[1])],
      .target = call->outputs[0]};
  if (state->row == 0) return rabbet_ok();
  // An index costs about as much as 16 bytes.
  int64_t work = state->row + 16;
  if (state->mode == RABBET_GATHER_ELEMENT)
    work += 16 * state->row / state->size;
  rabbet_cpu_parallel(
      state->batch * state->outer * state->count,
      rabbet_max_i64(1, RABBET_CPU_GRAIN_BYTES / work),
      state->mode == RABBET_GATHER_ELEMENT ? gather_elements : gather_items,
      &run);
  return rabbet_ok();
}

RABBET_TAKES_NODE(cpu_gather, GATHER, 0)

RABBET_NODE_CLASS_WITH(cpu_gather, "cpu.gather", 1, RABBET_KERNEL_DOUBLE);
