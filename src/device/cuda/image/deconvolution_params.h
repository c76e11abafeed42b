// Parameters of the kernel in deconvolution.cu. C and CUDA C++.
#pragma once

#include "device/cuda/programs/index.h"

// Spatial axes are depth, height and width; missing ones have one element.
typedef struct deconvolution_t {
  int64_t planes;    // batch times sets of maps that a thread makes
  int32_t groups;    // of channels
  int32_t channels;  // of a group's input
  int32_t maps;      // of a group's output
  int32_t in[3], out[3], window[3];
  int32_t pre[3];  // elements of the output that are cut off before
  int32_t reserved;
  divisor_t out_height, out_width;
} deconvolution_t;
