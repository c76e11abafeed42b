// Parameters of the kernels in gemv.cuh. C and CUDA C++.
#pragma once

#include "index.cuh"

enum { GEMV_OPERANDS = 12, GEMV_BLOCK = 256 };

// A tensor that a layer behind the product reads; distances of 0 where it has
// one element for all.
typedef struct gemv_operand_t {
  const void* data;
  int64_t batch, row, column;
} gemv_operand_t;

// y[batch][row][column] = f(sum over k of a[batch][row][k] b[batch][k][column])
// with few rows; distances in elements.
typedef struct gemv_t {
  const void *a, *b;
  void* y;
  int64_t rows, columns, k;
  int64_t a_batch, a_row, a_k;
  int64_t b_batch, b_k, b_column;
  int64_t y_batch, y_row, y_column;
  gemv_operand_t operands[GEMV_OPERANDS];  // of layer i
  float alpha[GEMV_OPERANDS], beta[GEMV_OPERANDS];
} gemv_t;
