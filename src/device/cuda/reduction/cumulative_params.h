// Parameters of the kernels in cumulative.cu. C and CUDA C++.
#pragma once

#include "device/cuda/programs/index.h"

typedef struct cumulative_t {
  int64_t rows, count;
  divisor_t inner;  // elements from one of a row to the next
  int32_t exclusive, reverse;
} cumulative_t;
