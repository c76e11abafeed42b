// Parameters of the kernel in group_normalization.cuh. C and CUDA C++.
#pragma once

#include "device/cuda/products/layers_params.h"

enum {
  GROUPS_BLOCKS = 8,  // of a cluster
  GROUPS_THREADS = 256,
};

typedef struct group_normalization_t {
  const void *x, *scale, *bias;  // scale, bias: NULL if there is none
  void* y;
  int32_t channels, positions;  // of an image
  int32_t each;                 // channels of a group
  // Channels of a cluster: whole groups and whole vectors; how many clusters an
  // image has.
  int32_t tile, tiles;
  int32_t rows;                   // positions that a block reads at once
  int32_t scratch;                // bytes of shared memory before the sums
  float epsilon, share;           // share: 1 / elements of a group
  int32_t scale_step, bias_step;  // from channel to channel: 0 or 1
  layers_t layers;
} group_normalization_t;
