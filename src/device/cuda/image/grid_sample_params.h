// Parameters of the kernel in grid_sample.cu. C and CUDA C++.
#pragma once

#include "device/cuda/programs/index.h"

// Spatial axes are depth, height and width.
typedef struct grid_sample_t {
  int64_t points;  // of all batches
  divisor_t out_plane;
  int64_t channels, in_plane;
  int64_t strides[3];
  int32_t extent[3];
  int32_t reserved;
} grid_sample_t;
