// Parameters of the kernels in non_zero.cu. C and CUDA C++.
#pragma once

#include "device/cuda/programs/index.h"

typedef struct non_zero_t {
  int64_t count;   // elements
  int64_t blocks;  // each has NON_ZERO_TILE elements
  int32_t rank;
  int32_t is_long;  // indices of 64 bits
  divisor_t extents[8];
} non_zero_t;

enum { NON_ZERO_THREADS = 256, NON_ZERO_ITEMS = 16 };
enum { NON_ZERO_TILE = NON_ZERO_THREADS * NON_ZERO_ITEMS };
