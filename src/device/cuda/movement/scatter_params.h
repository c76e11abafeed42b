// Parameters of the kernels in scatter.cu. C and CUDA C++.
#pragma once

#include "device/cuda/programs/index.h"

#define SCATTER_AXES 8

typedef struct scatter_t {
  int64_t count;  // elements of the updates
  divisor_t row;  // elements of the updates for each group of indices
  int32_t rank, depth;
  int32_t is_long;  // indices of 64 bits
  int32_t reserved;
  divisor_t dims[SCATTER_AXES];  // of the updates' rows
  int64_t steps[SCATTER_AXES];   // their strides in the data
  int64_t extent[SCATTER_AXES];  // of the data's axis that index i selects from
  int64_t stride[SCATTER_AXES];
} scatter_t;
