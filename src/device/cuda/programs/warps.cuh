// Sums over the lanes of a warp, and over the warps of a block with 32 WARPS
// threads.
#pragma once

#include "device/cuda/programs/number.cuh"

DEVICE float warp_sum(float x) {
#pragma unroll
  for (int flip = 16; flip > 0; flip /= 2)
    x += __shfl_xor_sync(0xffffffffu, x, flip);
  return x;
}

// All lanes of a warp pass its number. Returns the sum of the numbers of the
// warps before; *all: the sum of all. All threads of the block must call it.
template <int WARPS, class N>
DEVICE N add_up(N own, N* all) {
  __shared__ N sums[WARPS];
  int warp = (int)(threadIdx.x >> 5);
  __syncthreads();
  if ((threadIdx.x & 31) == 0) sums[warp] = own;
  __syncthreads();
  N before = 0, total = 0;
#pragma unroll
  for (int w = 0; w < WARPS; ++w) {
    if (w < warp) before += sums[w];
    total += sums[w];
  }
  *all = total;
  return before;
}
