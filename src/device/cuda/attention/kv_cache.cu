// Stores keys and values into their cache (-DUNIT: bytes of an element). A
// thread moves one unit of the update: 16 bytes, or one element where rows or
// addresses are not aligned. Bound by the bytes of the update; an update of one
// or two tokens is bound by the launch.
#include "device/cuda/attention/kv_cache.cuh"
#include "device/cuda/attention/kv_cache_params.h"
#include "device/cuda/movement/pieces.cuh"

template <class U>
DEVICE void write(const void* indices, const U* update, U* cache,
                  const kv_cache_t& p) {
  int64_t at = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
  if (at >= p.count) return;
  int64_t row = divide(at, p.unit), slice = divide(row, p.rows);
  int64_t i = row - slice * p.rows.divisor, batch = divide(slice, p.outer);
  int64_t first = cache_row(read_index(indices, p.indices, batch), i,
                            p.rows.divisor, p.extent, p.circular);
  if (first < 0) return;
  cache[(slice * p.extent + first) * p.unit.divisor + at -
        row * p.unit.divisor] = update[at];
}

extern "C" __global__ void __launch_bounds__(256)
    kv_cache(const void* indices, const element<UNIT>::type* update,
             element<UNIT>::type* cache, const __grid_constant__ kv_cache_t p) {
  turn_t turn;
  write(indices, update, cache, p);
}

extern "C" __global__ void __launch_bounds__(256)
    kv_cache_wide(const void* indices, const words_t* update, words_t* cache,
                  const __grid_constant__ kv_cache_t p) {
  turn_t turn;
  write(indices, update, cache, p);
}
