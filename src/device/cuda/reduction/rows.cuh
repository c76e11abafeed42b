// Sums of columns of a matrix in shared memory by all threads of a block, whose
// rows the threads wrote: some threads of a column add up a part of its rows
// each, so that neighbours read neighbours, and few steps depend on each other.
#pragma once

#include "device/cuda/programs/number.cuh"

// The parts into which `threads` threads divide the rows.
DEVICE int32_t row_parts(int32_t rows, int32_t columns, int32_t threads) {
  int32_t parts = 1;
  while (2 * parts * columns <= threads && 4 * parts * parts <= rows)
    parts *= 2;
  return parts;
}

// Adds rows up to the first `parts`, after a barrier. The caller's barrier
// follows, and then sum_parts.
DEVICE void add_rows(float* x, int32_t rows, int32_t columns, int32_t parts,
                     int32_t threads) {
  for (int32_t i = (int32_t)threadIdx.x; i < columns * parts; i += threads) {
    float sum = 0;
#pragma unroll 4
    for (int32_t at = i; at < rows * columns; at += parts * columns)
      sum += x[at];
    x[i] = sum;
  }
}

DEVICE float sum_parts(const float* x, int32_t column, int32_t columns,
                       int32_t parts) {
  float sum = 0;
#pragma unroll 4
  for (int32_t i = 0; i < parts; ++i) sum += x[i * columns + column];
  return sum;
}
