// Rows of a cache that an update is written to (ops/movement/kv_cache.h).
#pragma once

#include "device/cuda/programs/number.cuh"

// `bytes` of an index; 0: all begin at 0.
DEVICE int64_t read_index(const void* indices, int32_t bytes, int64_t batch) {
  return bytes == 0   ? 0
         : bytes == 8 ? ((const int64_t*)indices)[batch]
                      : (int64_t)((const int32_t*)indices)[batch];
}

// The row of an update's row i, of `count`, that begins at `first`; -1: it is
// not stored.
DEVICE int64_t cache_row(int64_t first, int64_t i, int64_t count,
                         int64_t extent, bool circular) {
  if (circular) {
    first %= extent;
    first += i + (first < 0 ? extent : 0);
    return first >= extent ? first - extent : first;
  }
  if (first < -count || first >= extent) return -1;
  first += i;
  return first < 0 || first >= extent ? -1 : first;
}
