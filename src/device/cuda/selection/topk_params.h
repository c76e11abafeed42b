// Parameters of the kernels in topk.cu. C and CUDA C++.
#pragma once

#include "device/cuda/programs/index.h"

// Rows of `count` elements with stride `inner.divisor`; the first k in order of
// each are written.
typedef struct topk_t {
  int64_t rows, count, k;
  int64_t padded;  // count or k, rounded up to a power of two
  divisor_t inner;
  int32_t is_long;  // indices of 64 bits
  int32_t smallest;
} topk_t;
