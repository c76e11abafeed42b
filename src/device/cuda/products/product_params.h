// Parameters of the kernel in product.cu. C and CUDA C++.
#pragma once

#include "device/cuda/programs/index.h"

// y[batch][row][column] = sum over k of a[batch][row][k] b[batch][k][column];
// strides in elements.
typedef struct product_t {
  int64_t count;  // elements of y
  int64_t rows, columns, k;
  int64_t a_batch, a_row, a_column;
  int64_t b_batch, b_row, b_column;
  int64_t y_batch, y_row;
} product_t;
