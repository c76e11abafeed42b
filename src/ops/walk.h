// Row-major walks over boxes of elements: the loops of reference kernels.
#ifndef RABBET_SRC_OPS_WALK_H_
#define RABBET_SRC_OPS_WALK_H_

#include "core/view.h"

#define RABBET_WALK_OPERANDS 4

// `offsets` follow the walk, in elements; `linear` counts positions.
typedef struct rabbet_walk_t {
  rabbet_dims_t dims;
  int64_t at[RABBET_MAX_RANK];
  int64_t strides[RABBET_WALK_OPERANDS][RABBET_MAX_RANK];
  int64_t offsets[RABBET_WALK_OPERANDS];
  int operands;
  int64_t linear;
  bool done;  // at once for a box without elements
} rabbet_walk_t;

void rabbet_walk_initialize(const rabbet_dims_t* dims, rabbet_walk_t* out_walk);
// One more operand, at `offset`, moving by strides[axis]; operands are numbered
// from 0 in the order in which they are added.
void rabbet_walk_add(rabbet_walk_t* walk, const int64_t* strides,
                     int64_t offset);
void rabbet_walk_next(rabbet_walk_t* walk);

// Strides of row-major elements.
void rabbet_row_major(const rabbet_dims_t* dims,
                      int64_t out_strides[RABBET_MAX_RANK]);
// Strides with which `from` is read as if it had shape `to`: 0 where it is 1.
// OUT_OF_RANGE, naming the operand, where neither 1 nor equal: this is the
// run-time check of shapes that inference could not decide.
rabbet_status_t rabbet_broadcast_strides(const char* operand,
                                         const rabbet_dims_t* from,
                                         const rabbet_dims_t* to,
                                         int64_t out_strides[RABBET_MAX_RANK]);
// OUT_OF_RANGE, naming the operand, unless equal.
rabbet_status_t rabbet_check_dims(const char* operand,
                                  const rabbet_dims_t* found,
                                  const rabbet_dims_t* expected);
// Product of the dims; the caller knows that it does not overflow.
int64_t rabbet_count_of(const rabbet_dims_t* dims);

static inline void rabbet_copy_element(void* target, int64_t to,
                                       const void* source, int64_t from,
                                       size_t size) {
  __builtin_memcpy((char*)target + (size_t)to * size,
                   (const char*)source + (size_t)from * size, size);
}
static inline size_t rabbet_element_size(rabbet_dtype_t dtype) {
  return (size_t)rabbet_dtype_bits(dtype) / 8;
}

#endif  // RABBET_SRC_OPS_WALK_H_
