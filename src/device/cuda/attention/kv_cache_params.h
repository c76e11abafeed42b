// Parameters of the kernels in kv_cache.cu. C and CUDA C++.
#pragma once

#include "device/cuda/programs/index.h"

// The update is [batch, outer, rows, units]: see ops/movement/kv_cache.h.
typedef struct kv_cache_t {
  int64_t count;    // units of the update
  divisor_t unit;   // units of a row
  divisor_t rows;   // rows of the update for each slice
  divisor_t outer;  // slices for each index
  int64_t extent;   // rows of the cache for each slice
  int32_t indices;  // bytes of an index; 0: without indices
  int32_t circular;
} kv_cache_t;
