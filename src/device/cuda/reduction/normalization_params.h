// Parameters of the kernels of normalization.cu. C and CUDA C++.
#pragma once

#include "device/cuda/reduction/axes_params.h"

enum { INPUT = 0, SCALE = 1, BIAS = 2 };

typedef struct normalize_t {
  // Positions outside and inside of a mean, for input, scale and bias; inside
  // for the input alone. Rows: those inside are vectors of the contiguous axis;
  // columns: those outside are without it.
  axes_t outer, inner, moments;
  float epsilon;
  float share;       // 1 / elements of a mean
  uint32_t outputs;  // means
  uint32_t count;    // positions inside
  uint32_t part;     // of them to a part
  uint32_t parts;
  uint32_t across_log;  // rows: threads to a row; columns: threads along one
  // Columns.
  uint32_t columns, column_vectors, tiles;
  // Bit SCALE, BIAS: it is there; it is contiguous where the input is.
  uint32_t present, moves;
  int64_t along[AXES_OPERANDS];  // columns: strides of the contiguous axis
} normalize_t;
