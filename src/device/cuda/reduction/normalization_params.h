// Parameters of the kernels of normalization.cu. C and CUDA C++.
#pragma once

#include "device/cuda/reduction/axes_params.h"

enum { INPUT = 0, SCALE = 1, BIAS = 2 };

typedef struct normalize_t {
  // outer: one position per mean. inner: the positions that a mean is over, for
  // input, scale and bias; moments: the same for the input alone. Rows: `inner`
  // counts the contiguous axis in vectors. Columns: `outer` lacks the
  // contiguous axis.
  axes_t outer, inner, moments;
  float epsilon;
  float share;        // 1 / elements of a mean
  float alpha, beta;  // of the activation
  uint32_t outputs;   // means
  uint32_t count;     // positions inside
  uint32_t part;      // positions inside, of a part
  uint32_t parts;
  uint32_t across_log;  // log2 of threads; rows: per row; columns: side by side
  // Columns: extent of the contiguous axis; in vectors; in tiles.
  uint32_t columns, column_vectors, tiles;
  uint32_t each;   // channels last: neighbouring columns that share a mean
  uint32_t moves;  // bits SCALE and BIAS: contiguous where the input is
  int64_t along[AXES_OPERANDS];  // columns: strides of the contiguous axis
} normalize_t;
