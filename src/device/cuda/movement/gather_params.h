// Parameters of the kernels in gather.cu and concatenation.cu. C and CUDA C++.
#pragma once

#include "device/cuda/programs/index.h"

#define GATHER_AXES 8

// An axis of the output, with its strides in the data and in the indices.
typedef struct gather_axis_t {
  divisor_t extent;
  int64_t data, index;
} gather_axis_t;

// Axes from the innermost outwards. An element's offset in the data is the sum
// over the axes' strides plus that of `depth` consecutive indices.
typedef struct gather_t {
  int64_t count;  // elements of the output
  int64_t size;   // elements of the data
  int32_t rank, depth;
  int32_t is_long;  // indices of 64 bits
  int32_t reserved;
  gather_axis_t axes[GATHER_AXES];
  int64_t extent[GATHER_AXES];  // of the data's axis that index i selects from
  int64_t stride[GATHER_AXES];  // elements of the data
} gather_t;

#define CONCATENATION_INPUTS 64

// A row of the output is the rows of all inputs, one after the other. A launch
// writes the elements of `input_count` inputs and skips the others'.
typedef struct concatenation_t {
  int64_t count;  // elements of the output
  int64_t rows;
  divisor_t row;
  int32_t input_count;  // of this launch
  int32_t half;         // the largest power of two below it, or 0
  // Offsets in a row where each input begins, and where the last one ends.
  int64_t begins[CONCATENATION_INPUTS + 1];
  const void* inputs[CONCATENATION_INPUTS];
} concatenation_t;
