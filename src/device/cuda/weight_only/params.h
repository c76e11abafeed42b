// Parameters of the kernels in weight_only.cuh. C and CUDA C++.
#pragma once

#include "device/cuda/products/layers_params.h"

enum {
  WEIGHT_ONLY_WARPS = 8,   // of a block
  WEIGHT_ONLY_LINE = 128,  // bytes of a line of weights in a stage
  WEIGHT_ONLY_TILE = 16,   // lines
};

// Scales or zero points: that of element k of line n is number
// n / lines * line_step + k / depth * block_step.
typedef struct weight_only_places_t {
  int64_t lines, depth, line_step, block_step;
} weight_only_places_t;

// y[row][n] = f(sum over k of x[row][k] (w[n][k] - zero) scale). The lines of w
// are the columns of y. A pair has two such sums: of w[0], and of w[1] with its
// own scales and zero points. With a normalization x is its input, and
// `numbers` are what it multiplies by.
typedef struct weight_only_t {
  const void *x, *w[2], *scales[2], *zeros[2], *numbers;
  void* y;
  weight_only_places_t scale, zero;
  int64_t pitch;  // bytes of a line of w, a multiple of 16
  int64_t x_row, x_k, y_row;
  int32_t rows, lines, k;
  int32_t stages;     // of a line
  int32_t split_log;  // 2^split_log warps of a block share a tile's stages
  // 2^cluster_log blocks share them, too; then all warps of a block have one
  // tile. The first block adds up their sums, which come to float `received` of
  // its shared memory.
  int32_t cluster_log, received;
  int32_t blocks;  // of k, those that have a scale
  float epsilon;
  uint32_t mask;  // 0x000f000f (packed_weights.cuh)
  layers_t layers;
} weight_only_t;
