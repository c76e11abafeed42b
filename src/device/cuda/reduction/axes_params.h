// Strides of up to AXES_OPERANDS operands along some axes, to turn the number
// of a position into offsets. C and CUDA C++: the host fills the tables
// (axes.c).
#pragma once

#include "device/cuda/programs/divider.h"

enum { AXES_MOST = 9, AXES_OPERANDS = 3 };

typedef struct axes_t {
  uint32_t rank;
  divider_t extent[AXES_MOST];               // from the innermost
  int64_t stride[AXES_OPERANDS][AXES_MOST];  // elements
} axes_t;

#ifdef __cplusplus
// Adds the offsets of position number `at`, below 2^31, to place[0..K).
template <int K>
__device__ __forceinline__ void locate(const axes_t& axes, uint32_t at,
                                       int64_t* place) {
  for (uint32_t i = 0; i < axes.rank; ++i) {
    uint32_t rest = 0, index = at;
    if (i + 1 < axes.rank) rest = divide(at, axes.extent[i], &index);
#pragma unroll
    for (int k = 0; k < K; ++k)
      place[k] += index * axes.stride[k][i];
    at = rest;
  }
}
#endif
