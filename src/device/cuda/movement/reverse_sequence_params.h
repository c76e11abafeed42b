// Parameters of the kernels in reverse_sequence.cu. C and CUDA C++.
#pragma once

#include "device/cuda/programs/index.h"

// The tensor as (outer, first, middle, second, inner). One of `first` and
// `second` is the batch axis, the other one the sequence axis.
typedef struct reverse_sequence_t {
  int64_t count, size;  // elements, of the output and of the input
  divisor_t first, middle, second, inner;
  int64_t extent,
      step;  // of the sequence: length, elements from one to the next
  int32_t sequence_first;
  int32_t is_long;  // lengths of 64 bits
} reverse_sequence_t;
