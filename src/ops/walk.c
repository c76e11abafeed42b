#include "ops/walk.h"

#include <assert.h>

void rabbet_walk_initialize(const rabbet_dims_t* dims,
                            rabbet_walk_t* out_walk) {
  assert(dims->rank >= 0 && dims->rank <= RABBET_MAX_RANK);
  *out_walk = (rabbet_walk_t){.dims = *dims};
  for (int32_t i = 0; i < dims->rank; ++i) {
    if (dims->d[i] <= 0) out_walk->done = true;
  }
}

void rabbet_walk_add(rabbet_walk_t* walk, const int64_t* strides,
                     int64_t offset) {
  assert(walk->operands < RABBET_WALK_OPERANDS && walk->linear == 0);
  for (int32_t i = 0; i < walk->dims.rank; ++i) {
    walk->strides[walk->operands][i] = strides[i];
  }
  walk->offsets[walk->operands++] = offset;
}

void rabbet_walk_next(rabbet_walk_t* walk) {
  assert(!walk->done);
  ++walk->linear;
  for (int32_t axis = walk->dims.rank - 1; axis >= 0; --axis) {
    for (int k = 0; k < walk->operands; ++k) {
      walk->offsets[k] += walk->strides[k][axis];
    }
    if (++walk->at[axis] < walk->dims.d[axis]) return;
    for (int k = 0; k < walk->operands; ++k) {
      walk->offsets[k] -= walk->strides[k][axis] * walk->at[axis];
    }
    walk->at[axis] = 0;
  }
  walk->done = true;
}

void rabbet_row_major(const rabbet_dims_t* dims,
                      int64_t out_strides[RABBET_MAX_RANK]) {
  // A product wraps only if another extent is 0: then no element is addressed.
  uint64_t stride = 1;
  for (int32_t i = dims->rank - 1; i >= 0; --i) {
    out_strides[i] = (int64_t)stride;
    stride *= (uint64_t)dims->d[i];
  }
}

rabbet_status_t rabbet_broadcast_strides(const char* operand,
                                         const rabbet_dims_t* from,
                                         const rabbet_dims_t* to,
                                         int64_t out_strides[RABBET_MAX_RANK]) {
  assert(from->rank == to->rank);
  rabbet_row_major(from, out_strides);
  for (int32_t i = 0; i < to->rank; ++i) {
    if (from->d[i] == to->d[i]) continue;
    if (from->d[i] != 1) {
      char a[128], b[128];
      return RABBET_STATUS(
          RABBET_STATUS_OUT_OF_RANGE,
          "input '%s' has shape %s, which does not broadcast to %s: dimension "
          "%d must be 1 or equal",
          operand, rabbet_dims_print(from, a, sizeof a),
          rabbet_dims_print(to, b, sizeof b), i);
    }
    out_strides[i] = 0;
  }
  return rabbet_ok();
}

rabbet_status_t rabbet_check_dims(const char* operand,
                                  const rabbet_dims_t* found,
                                  const rabbet_dims_t* expected) {
  bool equal = found->rank == expected->rank;
  for (int32_t i = 0; equal && i < found->rank; ++i) {
    equal = found->d[i] == expected->d[i];
  }
  if (equal) return rabbet_ok();
  char a[128], b[128];
  return RABBET_STATUS(RABBET_STATUS_OUT_OF_RANGE,
                       "%s has shape %s; expected %s", operand,
                       rabbet_dims_print(found, a, sizeof a),
                       rabbet_dims_print(expected, b, sizeof b));
}

int64_t rabbet_count_of(const rabbet_dims_t* dims) {
  uint64_t count = 1;
  for (int32_t i = 0; i < dims->rank; ++i) {
    if (dims->d[i] == 0) return 0;
    count *= (uint64_t)dims->d[i];
  }
  return (int64_t)count;
}
