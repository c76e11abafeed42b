// Parameters of the kernel in fill.cu. C and CUDA C++.
#pragma once

#include "device/cuda/programs/index.h"

typedef struct fill_t {
  int64_t count;
  double alpha, beta;  // tensors, if there are, replace them
  uint64_t seed;
  int32_t rank, beta_count;
  divisor_t dims[8];
} fill_t;
