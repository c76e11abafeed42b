// Parameters of the kernels in matmul_tiles.cuh. C and CUDA C++.
#pragma once

#include "device/cuda/products/layers_params.h"

// Elements of k in a stage; where b lies along columns, also of them.
enum { TILES_INNER = 64 };

// Lines of elements, `step` apart, whose neighbours lie `pace` apart; of other
// batches `batch` apart.
typedef struct tiles_lines_t {
  const void* data;
  int64_t count, length;
  int64_t batch, step, pace;
} tiles_lines_t;

// y[batch][row][column] = f(sum over k of a[batch][row][k]
// b[batch][k][column]): lines of a are rows, those of b columns or, where it
// lies along these, k.
typedef struct tiles_t {
  tiles_lines_t a, b;
  void* y;
  int64_t rows, columns;
  int64_t y_batch, y_row;
  int32_t stages;  // of k, all blocks of a cluster together
  int32_t ahead;   // b is loaded before the kernel before has ended
  layers_t layers;
} tiles_t;
