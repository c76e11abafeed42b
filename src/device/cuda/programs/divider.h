// Divisions of indices below 2^31 by extents that the host knows. C and CUDA
// C++: the host fills the structures that kernels read; both have the
// fixed-width types.
#pragma once

// n / divisor = (n * multiplier / 2^32 + n) >> shift. (Granlund and Montgomery,
// PLDI 1994.)
typedef struct divider_t {
  uint32_t divisor, multiplier, shift;
} divider_t;

#ifdef __cplusplus
__device__ __forceinline__ uint32_t divide(uint32_t n, const divider_t& by,
                                           uint32_t* out_rest) {
  uint32_t quotient = (__umulhi(n, by.multiplier) + n) >> by.shift;
  *out_rest = n - quotient * by.divisor;
  return quotient;
}
#else
// `divisor` in [1, 2^31).
static inline divider_t rabbet_cuda_divider(int64_t divisor) {
  uint32_t shift = 0;
  while ((INT64_C(1) << shift) < divisor)
    ++shift;
  uint64_t over = (UINT64_C(1) << shift) - (uint64_t)divisor;
  divider_t made = {
      .divisor = (uint32_t)divisor,
      .multiplier = (uint32_t)((over << 32) / (uint64_t)divisor + 1),
      .shift = shift};
  return made;
}
#endif
