// Limits and sizes that several kernel classes share.
#ifndef RABBET_SRC_DEVICE_CUDA_PROGRAMS_LAUNCH_H_
#define RABBET_SRC_DEVICE_CUDA_PROGRAMS_LAUNCH_H_

#include "device/cuda/cuda.h"

#include "device/cuda/programs/divider.h"

// Extents below this limit can be counted in 32 bits and divided by dividers.
#define RABBET_CUDA_MAX_COUNT (INT64_C(1) << 31)

static inline bool rabbet_cuda_is_aligned(const void* address, int64_t bytes) {
  return (uintptr_t)address % (uintptr_t)bytes == 0;
}

// The exponent of the least power of two that is not below `value`.
static inline uint32_t rabbet_cuda_log2(int64_t value) {
  uint32_t log = 0;
  while ((INT64_C(1) << log) < value)
    ++log;
  return log;
}

#endif  // RABBET_SRC_DEVICE_CUDA_PROGRAMS_LAUNCH_H_
