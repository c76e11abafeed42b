// Reductions over the threads of a block of BLOCK threads, or of a row of up to
// 1024 (join_threads). 2^across_log
// neighbouring threads share a row, or they are the columns of the block.
#pragma once

#include "device/cuda/programs/number.cuh"

enum { BLOCK_LOG = 8, BLOCK = 1 << BLOCK_LOG, WARPS = BLOCK / 32 };

struct sum_of {
  static __device__ __forceinline__ float join(float a, float b) {
    return a + b;
  }
};

template <class A>
DEVICE A shuffle_xor(const A& x, int flip) {
  union words_t {
    A value;
    uint32_t words[sizeof(A) / 4];
    __device__ words_t() {}
  } from, to;
  from.value = x;
#pragma unroll
  for (unsigned i = 0; i < sizeof(A) / 4; ++i)
    to.words[i] = __shfl_xor_sync(0xffffffffu, from.words[i], flip);
  return to.value;
}

// Joins the values of the 2^across_log threads that share a row; all of them
// get the result. All threads of the block must call it.
template <class F, class A>
DEVICE A join_threads(A x, uint32_t across_log) {
  __shared__ A warps[32];
  uint32_t across = 1u << across_log, lanes = across < 32 ? across : 32;
  for (uint32_t flip = lanes / 2; flip > 0; flip /= 2)
    x = F::join(x, shuffle_xor(x, (int)flip));
  if (across <= 32) return x;
  __syncthreads();  // until all threads have read the previous values
  if (threadIdx.x % 32 == 0) warps[threadIdx.x / 32] = x;
  __syncthreads();
  uint32_t first = threadIdx.x >> across_log << (across_log - 5);
  x = warps[first];
  for (uint32_t i = 1; i < across / 32; ++i) x = F::join(x, warps[first + i]);
  return x;
}

// Joins the values of a column's threads, which are 2^across_log apart; all of
// them get the result. All threads of the block must call it.
template <class F, class A>
DEVICE A join_columns(A x, uint32_t across_log) {
  __shared__ A cells[BLOCK];
  uint32_t across = 1u << across_log;
  if (across >= BLOCK) return x;
  __syncthreads();
  cells[threadIdx.x] = x;
  for (uint32_t half = BLOCK / 2; half >= across; half /= 2) {
    __syncthreads();
    if (threadIdx.x >= half) continue;
    x = F::join(x, cells[threadIdx.x + half]);
    cells[threadIdx.x] = x;
  }
  __syncthreads();
  return cells[threadIdx.x & (across - 1)];
}
