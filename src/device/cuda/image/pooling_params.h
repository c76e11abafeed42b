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
  int32_t end[3];  // first position that is not even padding
  // Of the output; by rows, threads along the axes.
  divisor_t out_height, out_width;
  divisor_t groups;  // of channels that a thread takes, channels last
  float blend;       // share of the average
  int32_t threads;   // by rows
} pooling_t;
