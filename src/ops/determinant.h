// Determinants: what the reference and the devices' kernels share. C and CUDA
// C++.
//
// All of them eliminate columns with partial pivoting. A column without a pivot
// makes the determinant 0, whatever is in columns after it.
#ifndef RABBET_SRC_OPS_DETERMINANT_H_
#define RABBET_SRC_OPS_DETERMINANT_H_

#ifdef __cplusplus
#define RABBET_DETERMINANT_INLINE static __device__ __forceinline__
#else
#include <math.h>

#include "ops/op.h"
#define RABBET_DETERMINANT_INLINE static inline
#endif

// The kernel on CUDA has it as parameter.
typedef struct rabbet_determinant_t {
  int64_t count;  // matrices
  int32_t order;  // rows and columns of each; 0 where there are no matrices
} rabbet_determinant_t;

// Whether `a` is the better pivot: the greater magnitude, or NaN, so that a NaN
// reaches the result.
RABBET_DETERMINANT_INLINE int rabbet_determinant_better(float a, float b) {
  return fabsf(a) > fabsf(b) || (a != a && b == b);
}

#ifndef __cplusplus
// OUT_OF_RANGE unless matrices are square: dynamic extents are checked in the
// run.
RABBET_PRIVATE_API rabbet_status_t rabbet_determinant_read(
    const rabbet_dims_t* dims, rabbet_determinant_t* out_determinant);
#endif

#endif  // RABBET_SRC_OPS_DETERMINANT_H_
