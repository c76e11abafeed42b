// Positions of the elements that are not zero, in order (-DELEMENT: an unsigned
// integer; -DMASK: its bits without the sign). Three launches: each block
// counts its elements, one block computes prefix sums, each block writes. One
// block does it all for a small input. Bound by the bytes of the input, which
// is read twice, and of the output.
#include "device/cuda/selection/non_zero_params.h"
#include "device/cuda/programs/warps.cuh"

typedef ELEMENT T;

enum { WARPS = NON_ZERO_THREADS / 32, ITEMS = NON_ZERO_ITEMS };

// Reads a warp's part of a tile. Bit k of *word in lane i: element
// first + 32 i + k is not zero. Returns the warp's count, to all lanes.
DEVICE int32_t find(const T* x, const non_zero_t& p, int64_t first,
                    uint32_t* word) {
  int lane = (int)(threadIdx.x & 31);
  T elements[ITEMS];
#pragma unroll
  for (int i = 0; i < ITEMS; ++i) {
    int64_t at = first + 32 * i + lane;
    elements[i] = at < p.count ? x[at] : (T)0;
  }
  int32_t count = 0;
#pragma unroll
  for (int i = 0; i < ITEMS; ++i) {
    uint32_t found = __ballot_sync(0xffffffffu, (elements[i] & (T)(MASK)) != 0);
    if (lane == i) *word = found;
    count += __popc(found);
  }
  return count;
}

DEVICE int64_t first_of(int64_t tile) {
  return tile * NON_ZERO_TILE + (int64_t)(threadIdx.x >> 5) * 32 * ITEMS;
}

// Writes the positions of a warp's elements, from column `place` of `total` on.
DEVICE void store(const non_zero_t& p, int64_t first, uint32_t words,
                  int64_t place, int64_t total, void* y) {
  int lane = (int)(threadIdx.x & 31);
#pragma unroll 1
  for (int i = 0; i < ITEMS; ++i) {
    uint32_t word = __shfl_sync(0xffffffffu, words, i);
    if (word >> lane & 1) {
      int64_t to = place + __popc(word & ((1u << lane) - 1));
      int64_t rest = first + 32 * i + lane;
#pragma unroll 1
      for (int axis = p.rank - 1; axis >= 0; --axis) {
        int64_t outer = axis > 0 ? divide(rest, p.extents[axis]) : 0;
        int64_t at = rest - outer * p.extents[axis].divisor;
        rest = outer;
        if (p.is_long)
          ((int64_t*)y)[axis * total + to] = at;
        else
          ((int32_t*)y)[axis * total + to] = (int32_t)at;
      }
    }
    place += __popc(word);
  }
}

extern "C" __global__ void __launch_bounds__(NON_ZERO_THREADS)
    non_zero_count(const T* x, int64_t* places,
                   const __grid_constant__ non_zero_t p) {
  turn_t turn;
  uint32_t word = 0;
  int64_t all = 0;
  add_up<WARPS, int64_t>(find(x, p, first_of(blockIdx.x), &word), &all);
  if (threadIdx.x == 0) places[blockIdx.x] = all;
}

// places[i]: the count of block i; afterwards the sum of the blocks before it.
// Launched with one block.
extern "C" __global__ void __launch_bounds__(NON_ZERO_THREADS)
    non_zero_add_up(int64_t* places, int64_t* total,
                    const __grid_constant__ non_zero_t p) {
  turn_t turn;
  int lane = (int)(threadIdx.x & 31);
  int64_t before = 0;
  for (int64_t first = 0; first < p.blocks; first += NON_ZERO_THREADS) {
    int64_t i = first + threadIdx.x, all = 0;
    int64_t own = i < p.blocks ? places[i] : 0, sum = own;
    for (int by = 1; by < 32; by *= 2) {
      int64_t other = __shfl_up_sync(0xffffffffu, sum, (unsigned)by);
      if (lane >= by) sum += other;
    }
    int64_t warp = __shfl_sync(0xffffffffu, sum, 31);
    int64_t place = before + add_up<WARPS, int64_t>(warp, &all) + sum - own;
    if (i < p.blocks) places[i] = place;
    before += all;
  }
  if (threadIdx.x == 0) *total = before;
}

extern "C" __global__ void __launch_bounds__(NON_ZERO_THREADS)
    non_zero_write(const T* x, const int64_t* places, const int64_t* total,
                   void* y, const __grid_constant__ non_zero_t p) {
  turn_t turn;
  uint32_t word = 0;
  int64_t all = 0, first = first_of(blockIdx.x);
  int64_t before = add_up<WARPS, int64_t>(find(x, p, first, &word), &all);
  if (all > 0) store(p, first, word, places[blockIdx.x] + before, *total, y);
}

// For small inputs; launched with one block.
extern "C" __global__ void __launch_bounds__(NON_ZERO_THREADS)
    non_zero_few(const T* x, int64_t* total, void* y,
                 const __grid_constant__ non_zero_t p) {
  turn_t turn;
  uint32_t word = 0;
  int64_t found = 0, all = 0;
  for (int64_t tile = 0; tile < p.blocks; ++tile) {
    add_up<WARPS, int64_t>(find(x, p, first_of(tile), &word), &all);
    found += all;
  }
  if (threadIdx.x == 0) *total = found;
  int64_t place = 0;
  for (int64_t tile = 0; tile < p.blocks; ++tile) {
    int64_t before =
        add_up<WARPS, int64_t>(find(x, p, first_of(tile), &word), &all);
    store(p, first_of(tile), word, place + before, found, y);
    place += all;
  }
}
