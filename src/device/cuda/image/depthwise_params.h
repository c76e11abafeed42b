// Parameters of the kernel in depthwise.cuh. C and CUDA C++.
#pragma once

#include "device/cuda/products/layers_params.h"

enum {
  DEPTHWISE_THREADS = 256,
  DEPTHWISE_LANES = 32,  // vectors of channels of a block, at most
};

// Extents of images with channels last. A strip is what a thread computes at a
// time: STRIP columns of ROWS rows.
typedef struct depthwise_t {
  const void *x, *w, *bias;  // bias: NULL if there is none
  void* y;
  int32_t channels, height, width, out_height, out_width;
  int32_t pre_height, pre_width;
  int32_t lanes, owners;  // of a block: vectors of channels, strips at once
  int32_t count;          // strips of all images
  divider_t lane, down, along;  // by lanes, and strips along both axes
  layers_t layers;
} depthwise_t;
