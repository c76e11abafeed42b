// Parameters of the kernels in dynamic_quantize.cu. C and CUDA C++.
#pragma once

#include "device/cuda/programs/index.h"

#define QUANTIZE_AXES 8

// Of an axis, outermost first; the last one counts packs where a kernel works
// with packs.
typedef struct quantize_axis_t {
  divisor_t count;  // blocks
  divisor_t block;  // elements of a block
  int64_t dim, stride;
} quantize_axis_t;

typedef struct dynamic_quantize_t {
  int64_t count;     // blocks of all
  int64_t elements;  // of a block; packs of them
  int32_t rank;
  int32_t across_log;  // threads that share a block: 1 << across_log
  quantize_axis_t axes[QUANTIZE_AXES];
} dynamic_quantize_t;
