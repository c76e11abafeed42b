// Parameters of the kernels in topk.cu. C and CUDA C++.
#pragma once

#include "device/cuda/programs/index.h"

// Rows of `count` elements that are `inner.divisor` apart, of which the first k
// in order are written.
typedef struct topk_t {
  int64_t rows, count, k;
  int64_t padded;  // count, or k, as a power of two
  divisor_t inner;
  int32_t is_long;  // indices of 64 bits
  int32_t smallest;
} topk_t;
