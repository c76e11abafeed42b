// Determinants, for the reference and the devices' kernels (C and CUDA C++).
//
// All use Gaussian elimination with partial pivoting. A column without a pivot
// makes the determinant 0, whatever the later columns contain.
#ifndef RABBET_SRC_OPS_PRODUCTS_DETERMINANT_H_
#define RABBET_SRC_OPS_PRODUCTS_DETERMINANT_H_

#ifdef __cplusplus
#define RABBET_DETERMINANT_INLINE static __device__ __forceinline__
#else
#include <math.h>

#include "ops/op.h"
#define RABBET_DETERMINANT_INLINE static inline
#endif

// A parameter of the CUDA kernel.
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
// OUT_OF_RANGE unless the matrices are square: dynamic extents are checked at
// run time.
RABBET_PRIVATE_API rabbet_status_t rabbet_determinant_read(
    const rabbet_dims_t* dims, rabbet_determinant_t* out_determinant);
#endif

#endif  // RABBET_SRC_OPS_PRODUCTS_DETERMINANT_H_
