// Parameters that the host passes to the kernels of reduce.cu. C and CUDA C++.
#pragma once

#include "device/cuda/reduction/axes_params.h"

// Element-wise layers on each side of a reduction, at most, and numbers of
// each.
enum { REDUCE_STEPS = 3, REDUCE_NUMBERS = 2 };

typedef struct reduce_t {
  // reduced: the positions of an output's elements (rows: in vectors). kept:
  // the position of its first element, over the outputs without the columns'
  // axis.
  axes_t reduced, kept;
  axes_t targets;    // places of all outputs, in order
  int64_t elements;  // number of elements of each output
  uint32_t outputs;
  uint32_t count;    // positions of `reduced`
  uint32_t part;     // positions of a part
  uint32_t columns;  // extent of the contiguous axis
  uint32_t column_vectors;
  uint32_t tiles;       // of the columns
  uint32_t across_log;  // log2 of threads; rows: per row; columns: side by side
  uint32_t packed;      // columns: outputs can be stored as vectors
  // Of the layers before, then of those after.
  float numbers[2 * REDUCE_STEPS * REDUCE_NUMBERS];
} reduce_t;
