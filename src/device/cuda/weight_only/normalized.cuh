// The RMS normalization of rows of x before a product (weight_only.cuh).
#pragma once

#include "device/cuda/programs/warps.cuh"

#include "device/cuda/weight_only/params.h"

// By which the row's elements are multiplied, for the sum of their squares.
DEVICE float factor_of(const weight_only_t& p, float squares) {
  return 1.0f / sqrtf(squares / (float)p.k + p.epsilon);
}

// The thread's part of the squares of a row: elements from `first` on, N at a
// time. WIDE: N are contiguous and aligned, and there are no others.
template <bool WIDE, int N>
DEVICE float squares_of(const weight_only_t& p, int32_t row, int32_t first,
                        int32_t step) {
  const ELEMENT* x = (const ELEMENT*)p.x + row * p.x_row;
  float sum = 0;
  for (int32_t k = first * N; k < p.k; k += step * N) {
    if (WIDE) {
      pack_t<ELEMENT, N> pack = load_pack<ELEMENT, N>(x + k);
#pragma unroll
      for (int e = 0; e < N; ++e) sum += load(pack.v[e]) * load(pack.v[e]);
    } else {
      for (int32_t e = k; e < k + N && e < p.k; ++e)
        sum += load(x[e * p.x_k]) * load(x[e * p.x_k]);
    }
  }
  return sum;
}

// The factor of each of a block's rows, of which there are `rows`: of one row
// all threads share the work, of several each warp has its own. All threads
// must call it.
template <bool WIDE, int N, int ROWS_OF_BLOCK>
DEVICE const float* row_factors(const weight_only_t& p, int32_t row,
                                int32_t rows) {
  enum { WARPS = WEIGHT_ONLY_WARPS };
  __shared__ float factors[ROWS_OF_BLOCK];
  int32_t thread = (int32_t)threadIdx.x, warp = thread / 32;
  if (ROWS_OF_BLOCK == 1) {
    float all, own = squares_of<WIDE, N>(p, row, thread, 32 * WARPS);
    add_up<WARPS>(warp_sum(own), &all);
    if (thread == 0) factors[0] = factor_of(p, all);
  } else {
    for (int32_t i = warp; i < rows; i += WARPS) {
      float sum = warp_sum(squares_of<WIDE, N>(p, row + i, thread % 32, 32));
      if (thread % 32 == 0) factors[i] = factor_of(p, sum);
    }
  }
  __syncthreads();
  return factors;
}

// Multiplies the N elements from k on by the normalization's scale.
template <int N>
DEVICE void multiply_by_numbers(const weight_only_t& p, int32_t k, float* x) {
#if SCALED
  const NUMBER* numbers = (const NUMBER*)p.numbers;
#pragma unroll
  for (int e = 0; e < N; ++e)
    if (k + e < p.k) x[e] *= load(numbers[k + e]);
#endif
}
