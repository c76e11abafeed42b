// Numbers that the kernels' headers and their host sides share.
#ifndef RABBET_SRC_DEVICE_CUDA_LAUNCH_H_
#define RABBET_SRC_DEVICE_CUDA_LAUNCH_H_

#include "device/cuda/cuda.h"

// divider_t of kernels/number.cuh: for n < 2^31,
// n / divisor = (n * multiplier / 2^32 + n) >> shift.
typedef struct rabbet_cuda_divider_t {
  uint32_t divisor, multiplier, shift;
} rabbet_cuda_divider_t;

// `divisor` in [1, 2^31). (Granlund and Montgomery, PLDI 1994.)
static inline rabbet_cuda_divider_t rabbet_cuda_divider(int64_t divisor) {
  uint32_t shift = 0;
  while ((INT64_C(1) << shift) < divisor)
    ++shift;
  uint64_t over = (UINT64_C(1) << shift) - (uint64_t)divisor;
  return (rabbet_cuda_divider_t){
      .divisor = (uint32_t)divisor,
      .multiplier = (uint32_t)((over << 32) / (uint64_t)divisor + 1),
      .shift = shift};
}
// What a kernel counts in 32 bits and divides by dividers.
#define RABBET_CUDA_MAX_COUNT (INT64_C(1) << 31)

static inline bool rabbet_cuda_is_aligned(const void* address, int64_t bytes) {
  return (uintptr_t)address % (uintptr_t)bytes == 0;
}

#endif  // RABBET_SRC_DEVICE_CUDA_LAUNCH_H_
