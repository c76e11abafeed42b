// Products of few rows: b is read once, a by all blocks. The text that includes
// this file is generated with the product's epilogue (gemv.c). It defines
//
//   ELEMENT    type of all tensors
//   ROWS       rows of a block
//   COLUMNS    columns of a warp, if b is contiguous along k
//   SPLIT      warps that share them, which split k
//   LANES      threads along columns, if b is contiguous along columns
//
// and the macros of layers_params.h.
#pragma once

#include "device/cuda/products/gemv_params.h"

enum { WARPS = GEMV_BLOCK / 32, VECTOR = 16 / sizeof(ELEMENT) };

DEVICE void put(const gemv_t& p, int64_t row, int64_t column, float sum) {
  int64_t batch = blockIdx.y;
  if (row >= p.rows || column >= p.columns) return;
  ((ELEMENT*)p.y)[batch * p.y_batch + row * p.y_row + column * p.y_column] =
      finished(sum, p.layers, batch, row, column);
}

DEVICE int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

// ---- b along k -------------------------------------------------------------

// SHARED warps compute COLUMNS columns of R rows; all their lanes split k. Rows
// and columns beyond the last repeat the last one and are not stored. Blocks
// may be smaller than GEMV_BLOCK.
template <int R, int V, int SHARED>
DEVICE void dot_product(const gemv_t& p) {
  uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  int64_t row = (int64_t)blockIdx.z * R;
  int64_t team =
      (int64_t)blockIdx.x * (blockDim.x / 32 / SHARED) + warp / SHARED;
  int64_t column = team * COLUMNS;
  const ELEMENT *a[R], *b[COLUMNS];
  float sum[R][COLUMNS];
  if (SHARED == 1 && column >= p.columns) return;
#pragma unroll
  for (int r = 0; r < R; ++r)
    a[r] = (const ELEMENT*)p.a + blockIdx.y * p.a_batch +
           least(row + r, p.rows - 1) * p.a_row;
#pragma unroll
  for (int c = 0; c < COLUMNS; ++c) {
    b[c] = (const ELEMENT*)p.b + blockIdx.y * p.b_batch +
           least(column + c, p.columns - 1) * p.b_column;
#pragma unroll
    for (int r = 0; r < R; ++r) sum[r][c] = 0;
  }
#pragma unroll(R* COLUMNS > 4 ? 2 : 4)
  for (int64_t k = (warp % SHARED * 32 + lane) * V; k < p.k;
       k += SHARED * 32 * V) {
    pack_t<ELEMENT, V> w[COLUMNS];
#pragma unroll
    for (int c = 0; c < COLUMNS; ++c)
      w[c] = load_pack<ELEMENT, V>(b[c] + (V > 1 ? k : k * p.b_k));
#pragma unroll
    for (int r = 0; r < R; ++r) {
      pack_t<ELEMENT, V> x =
          load_pack<ELEMENT, V>(a[r] + (V > 1 ? k : k * p.a_k));
#pragma unroll
      for (int c = 0; c < COLUMNS; ++c)
#pragma unroll
        for (int e = 0; e < V; ++e) sum[r][c] += load(x.v[e]) * load(w[c].v[e]);
    }
  }
  float mine = 0;  // the sum of row lane / COLUMNS, column lane % COLUMNS
#pragma unroll
  for (int i = 0; i < R * COLUMNS; ++i) {
    float x = sum[i / COLUMNS][i % COLUMNS];
#pragma unroll
    for (int flip = 16; flip > 0; flip /= 2)
      x += __shfl_xor_sync(0xffffffffu, x, flip);
    if (lane == (uint32_t)i) mine = x;
  }
  if (SHARED > 1) {
    __shared__ float sums[WARPS][R * COLUMNS];
    if (lane < R * COLUMNS) sums[warp][lane] = mine;
    __syncthreads();
    if (warp % SHARED > 0 || lane >= R * COLUMNS) return;
#pragma unroll
    for (int i = 1; i < SHARED; ++i) mine += sums[warp + i][lane];
  }
  if (lane < R * COLUMNS)
    put(p, row + lane / COLUMNS, column + lane % COLUMNS, mine);
}

// ---- b along columns -------------------------------------------------------

// LANES neighbouring threads have V columns each; the block's SLICES groups of
// LANES threads split k.
template <int R, int V>
DEVICE void spread_product(const gemv_t& p) {
  enum { SLICES = GEMV_BLOCK / LANES, WIDTH = LANES * V };
  __shared__ float sums[WARPS][R][WIDTH];
  uint32_t beside = threadIdx.x % LANES;
  int64_t row = (int64_t)blockIdx.z * R, first = (int64_t)blockIdx.x * WIDTH;
  const ELEMENT* a = (const ELEMENT*)p.a + blockIdx.y * p.a_batch;
  // Columns beyond the last repeat the last vector and are not stored.
  const ELEMENT* b = (const ELEMENT*)p.b + blockIdx.y * p.b_batch +
                     least(first + beside * V, p.columns - V);
  int64_t at[R];
  float sum[R][V];
#pragma unroll
  for (int r = 0; r < R; ++r) {
    at[r] = least(row + r, p.rows - 1) * p.a_row;
#pragma unroll
    for (int e = 0; e < V; ++e) sum[r][e] = 0;
  }
#pragma unroll(R > 4 ? 2 : 4)
  for (int64_t k = threadIdx.x / LANES; k < p.k; k += SLICES) {
    pack_t<ELEMENT, V> w = load_pack<ELEMENT, V>(b + k * p.b_k);
#pragma unroll
    for (int r = 0; r < R; ++r) {
      float x = load(a[at[r] + k * p.a_k]);
#pragma unroll
      for (int e = 0; e < V; ++e) sum[r][e] += x * load(w.v[e]);
    }
  }
#pragma unroll
  for (int r = 0; r < R; ++r)
#pragma unroll
    for (int e = 0; e < V; ++e) {
#pragma unroll
      for (int flip = 16; flip >= LANES; flip /= 2)
        sum[r][e] += __shfl_xor_sync(0xffffffffu, sum[r][e], flip);
      if (threadIdx.x % 32 < LANES)
        sums[threadIdx.x / 32][r][beside * V + e] = sum[r][e];
    }
  __syncthreads();
  for (int i = threadIdx.x; i < R * WIDTH; i += GEMV_BLOCK) {
    float x = 0;
#pragma unroll
    for (int w = 0; w < WARPS; ++w) x += sums[w][i / WIDTH][i % WIDTH];
    put(p, row + i / WIDTH, first + i % WIDTH, x);
  }
}

// ---- Kernels ---------------------------------------------------------------

extern "C" __global__ void __launch_bounds__(GEMV_BLOCK) dot(const gemv_t p) {
  turn_t turn;
  dot_product<ROWS, VECTOR, SPLIT>(p);
}
extern "C" __global__ void __launch_bounds__(GEMV_BLOCK)
    spread(const gemv_t p) {
  turn_t turn;
  spread_product<ROWS, VECTOR>(p);
}
// For any strides and alignment: a row at a time.
extern "C" __global__ void __launch_bounds__(GEMV_BLOCK)
    single(const gemv_t p) {
  turn_t turn;
  dot_product<1, 1, SPLIT>(p);
}
