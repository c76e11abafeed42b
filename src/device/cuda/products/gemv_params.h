// Parameters of the kernels in gemv.cuh. C and CUDA C++.
#pragma once

#include "device/cuda/products/layers_params.h"

enum { GEMV_BLOCK = 256 };

// y[batch][row][column] = f(sum over k of a[batch][row][k] b[batch][k][column])
// with few rows; strides in elements. With a normalization a is its input, and
// `scale` has k numbers; `second` is another b, which lies as b does.
typedef struct gemv_t {
  const void *a, *b, *second, *scale;
  void* y;
  int64_t rows, columns, k;
  int64_t a_batch, a_row, a_k;
  int64_t b_batch, b_k, b_column;
  int64_t y_batch, y_row, y_column;
  float epsilon;
  layers_t layers;
} gemv_t;
