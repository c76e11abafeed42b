// Parameters of the kernel in squeeze.cuh. C and CUDA C++.
#pragma once

#include "device/cuda/products/layers_params.h"

enum {
  SQUEEZE_BLOCKS = 8,  // of a cluster
  SQUEEZE_THREADS = 512,
  SQUEEZE_PRODUCTS = 2,  // at most
};

typedef struct squeeze_product_t {
  const void *w, *bias;  // bias: NULL if there is none
  int32_t lanes_log;     // threads of an output
  layers_t layers;
} squeeze_product_t;

typedef struct squeeze_t {
  const void* x;
  void* y;
  int32_t positions;                       // of an image
  int32_t channels[SQUEEZE_PRODUCTS + 1];  // pooled, and after each product
  // Channels last: runs of positions that a block adds up side by side. Else:
  // warps of a channel.
  int32_t shares;
  float scale;  // of the sums
  // Where shared memory has the pooled numbers, those after the first product,
  // and sums before they are combined, in floats.
  int32_t pooled, hidden, scratch;
  squeeze_product_t products[SQUEEZE_PRODUCTS];
} squeeze_t;
