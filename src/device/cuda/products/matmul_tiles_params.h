// Parameters of the kernels in matmul_tiles.cuh. C and CUDA C++.
#pragma once

#include "device/cuda/image/patches_params.h"
#include "device/cuda/products/layers_params.h"

// Elements of k in a stage. A panel of b that is contiguous along columns has
// as many columns.
enum { TILES_INNER = 64 };

// A matrix as `count` lines of `length` elements. Strides: `step` from line to
// line, `pace` within a line, `batch` from batch to batch.
typedef struct tiles_lines_t {
  const void* data;
  int64_t count, length;
  int64_t batch, step, pace;
} tiles_lines_t;

// y[batch][row][column] = f(sum over k of a[batch][row][k]
// b[batch][k][column]). The lines of a are rows. The lines of b are columns,
// or, if b is contiguous along columns, positions of k.
typedef struct tiles_t {
  tiles_lines_t a, b;
  void* y;
  int64_t rows, columns;
  int64_t y_batch, y_row;
  int32_t stages;  // of k, in all blocks of a cluster together
  int32_t ahead;   // b is constant: loads need not wait for the last kernel
  layers_t layers;
  patches_t patches;  // where a is an image
} tiles_t;
