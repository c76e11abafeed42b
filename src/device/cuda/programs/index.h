// Divisions of indices by extents that the host knows. C and CUDA C++: the host
// fills the structures that kernels read.
#pragma once

#ifdef __cplusplus
#include "device/cuda/programs/number.cuh"
#else
#include <stdint.h>

#include "device/cuda/programs/divider.h"
#endif

// For numerators below 2^31: (high half of n * magic + n) >> shift. A magic of
// 0: the divisor is too large for that.
typedef struct divisor_t {
  int64_t divisor;
  uint32_t magic, shift;
} divisor_t;

#ifdef __cplusplus
__device__ __forceinline__ int32_t divide(int32_t n, const divisor_t& by) {
  uint32_t high = (uint32_t)((uint64_t)(uint32_t)n * by.magic >> 32);
  return (int32_t)((high + (uint32_t)n) >> by.shift);
}
__device__ __forceinline__ int64_t divide(int64_t n, const divisor_t& by) {
  if (by.magic != 0 && n < 0x80000000ll) return divide((int32_t)n, by);
  return n / by.divisor;
}
#else
static inline divisor_t rabbet_cuda_divisor(int64_t divisor) {
  divisor_t made = {.divisor = divisor};
  if (divisor < 1 || divisor > INT32_MAX) return made;
  divider_t narrow = rabbet_cuda_divider(divisor);
  made.magic = narrow.multiplier;
  made.shift = narrow.shift;
  return made;
}
#endif
