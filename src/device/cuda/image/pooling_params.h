// Parameters of the kernels in pooling.cu. C and CUDA C++.
#pragma once

#include "device/cuda/programs/index.h"

// Spatial axes are depth, height and width; missing ones have one element.
typedef struct pooling_t {
  int64_t planes;    // LINEAR: batch times channels; channels last: batch
  int32_t channels;  // channels last
  int32_t pitch;     // elements from one position to the next, channels last
  int32_t in[3], out[3];
  int32_t pre[3];  // padding before
  int32_t end[3];  // first position behind the padding at the end
  // Extents of the output; kernels for rows: threads along them.
  divisor_t out_height, out_width;
  divisor_t groups;  // channels last: threads for a position's channels
  float blend;       // share of the average, from 0 to 1
  int32_t threads;   // kernels for rows: all threads
} pooling_t;
