// Parameters of the kernels in few.cuh. C and CUDA C++.
#pragma once

#include "device/cuda/products/layers_params.h"

enum {
  FEW_WARPS = 8,   // of a block
  FEW_LINES = 8,   // of a tile
  FEW_CHUNK = 32,  // elements of k that a warp loads at once of each line
};

// y[row][line] = f(sum over k of x[row][k] w[line][k]); strides in elements.
typedef struct few_t {
  const void *x, *w;
  void* y;
  int64_t x_row, w_line, y_row;
  int32_t rows, lines, k;
  int32_t tiles, stages;  // of a line
  layers_t layers;
} few_t;
