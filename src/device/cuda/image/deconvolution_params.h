// Parameters of the kernel in deconvolution.cu. C and CUDA C++.
#pragma once

#include "device/cuda/programs/index.h"

// Spatial axes are depth, height and width; missing ones have one element.
typedef struct deconvolution_t {
  int64_t planes;    // batch times sets of maps; a thread computes one set
  int32_t groups;    // of channels
  int32_t channels;  // of a group's input
  int32_t maps;      // of a group's output
  int32_t in[3], out[3], window[3];
  int32_t pre[3];  // padding: elements cut off at the output's beginning
  int32_t reserved;
  divisor_t out_height, out_width;
} deconvolution_t;
