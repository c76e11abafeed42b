// Parameters of the kernels in cumulative.cu. C and CUDA C++.
#pragma once

#include "device/cuda/programs/index.h"

typedef struct cumulative_t {
  int64_t rows, count;
  divisor_t inner;  // stride of a row's elements
  int32_t exclusive, reverse;
} cumulative_t;
