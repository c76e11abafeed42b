// Parameters that the host passes to the kernels of reduce.cu. C and CUDA C++.
#pragma once

#include "device/cuda/reduction/axes_params.h"

typedef struct reduce_t {
  // Where the elements of an output lie (rows: in vectors), and where they
  // begin: outputs without the columns' axis.
  axes_t reduced, kept;
  axes_t targets;    // places of all outputs, in order
  int64_t elements;  // that an output is reduced from
  uint32_t outputs;
  uint32_t count;    // positions of `reduced`
  uint32_t part;     // of them to a part
  uint32_t columns;  // extent of the contiguous axis
  uint32_t column_vectors;
  uint32_t tiles;       // of the columns
  uint32_t across_log;  // rows: threads to a row; columns: threads along one
  uint32_t packed;      // columns: outputs can be stored as vectors
} reduce_t;
