// Parameters of the kernels in dynamic_quantize.cu. C and CUDA C++.
#pragma once

#include "device/cuda/programs/index.h"

#define QUANTIZE_AXES 8

// An axis, outermost first. Kernels for packs count the last axis in packs.
typedef struct quantize_axis_t {
  divisor_t count;  // blocks
  divisor_t block;  // elements of a block
  int64_t dim, stride;
} quantize_axis_t;

typedef struct dynamic_quantize_t {
  int64_t count;     // blocks
  int64_t elements;  // elements or packs of a block
  int32_t rank;
  int32_t across_log;  // threads that share a block: 1 << across_log
  quantize_axis_t axes[QUANTIZE_AXES];
} dynamic_quantize_t;
