// Products of few rows: b is read once, a by all blocks. The text that includes
// this file is generated with the product's epilogue (gemv.c). It defines
//
//   ELEMENT    type of all tensors
//   ROWS       rows of a block
//   COLUMNS    columns of a warp, if b is contiguous along k
//   SPLIT      warps that share them, which split k
//   LANES      threads along columns, if b is contiguous along columns
//   NORMALIZED rows of a are normalized by their mean square first, and, if
//              SCALED, multiplied by numbers of type SCALE
//   PAIR       there is a second b, whose product is an operand of the epilogue
//
// and the macros of layers_params.h.
#pragma once

#include "device/cuda/programs/warps.cuh"

#include "device/cuda/products/gemv_params.h"

enum { WARPS = GEMV_BLOCK / 32, VECTOR = 16 / sizeof(ELEMENT) };

DEVICE void put(const gemv_t& p, int64_t row, int64_t column, float sum,
                float other = 0) {
  int64_t batch = blockIdx.y;
  if (row >= p.rows || column >= p.columns) return;
  ((ELEMENT*)p.y)[batch * p.y_batch + row * p.y_row + column * p.y_column] =
      finished(sum, p.layers, batch, row, column, other);
}

DEVICE int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

// ---- b along k -------------------------------------------------------------

// V elements of a row, and their part of the row's sum of squares.
template <int V>
struct row_pack_t {
  float v[V];
};
template <int V>
DEVICE row_pack_t<V> load_row(const gemv_t& p, const ELEMENT* a, int64_t k,
                              float* squares) {
  pack_t<ELEMENT, V> x = load_pack<ELEMENT, V>(a + (V > 1 ? k : k * p.a_k));
  row_pack_t<V> y;
#pragma unroll
  for (int e = 0; e < V; ++e) y.v[e] = load(x.v[e]);
#if NORMALIZED
#pragma unroll
  for (int e = 0; e < V; ++e) *squares += y.v[e] * y.v[e];
#if SCALED
  pack_t<SCALE, V> scale = load_pack<SCALE, V>((const SCALE*)p.scale + k);
#pragma unroll
  for (int e = 0; e < V; ++e) y.v[e] *= load(scale.v[e]);
#endif
#endif
  return y;
}

// SHARED warps compute COLUMNS columns of R rows, of a pair those of both
// results; all their lanes split k. Rows and columns beyond the last repeat the
// last one and are not stored. Blocks may be smaller than GEMV_BLOCK.
template <int R, int V, int SHARED>
DEVICE void dot_product(const gemv_t& p) {
  // Sums of a row; all of a warp's, a lane has one of them at the end.
  enum { EACH = (PAIR ? 2 : 1) * COLUMNS, ALL = R * EACH };
  uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  int64_t row = (int64_t)blockIdx.z * R;
  int64_t team =
      (int64_t)blockIdx.x * (blockDim.x / 32 / SHARED) + warp / SHARED;
  int64_t column = team * COLUMNS;
  const ELEMENT *a[R], *b[EACH];
  float sum[R][EACH], squares[R];
  if (SHARED == 1 && column >= p.columns) return;
#pragma unroll
  for (int r = 0; r < R; ++r)
    a[r] = (const ELEMENT*)p.a + blockIdx.y * p.a_batch +
           least(row + r, p.rows - 1) * p.a_row;
#pragma unroll
  for (int c = 0; c < EACH; ++c)
    b[c] = (const ELEMENT*)(c < COLUMNS ? p.b : p.second) +
           blockIdx.y * p.b_batch +
           least(column + c % COLUMNS, p.columns - 1) * p.b_column;
#pragma unroll
  for (int r = 0; r < R; ++r) {
    squares[r] = 0;
#pragma unroll
    for (int c = 0; c < EACH; ++c) sum[r][c] = 0;
  }
#pragma unroll(ALL > 4 ? 2 : 4)
  for (int64_t k = (warp % SHARED * 32 + lane) * V; k < p.k;
       k += SHARED * 32 * V) {
    pack_t<ELEMENT, V> w[EACH];
#pragma unroll
    for (int c = 0; c < EACH; ++c)
      w[c] = load_pack<ELEMENT, V>(b[c] + (V > 1 ? k : k * p.b_k));
#pragma unroll
    for (int r = 0; r < R; ++r) {
      row_pack_t<V> x = load_row<V>(p, a[r], k, &squares[r]);
#pragma unroll
      for (int c = 0; c < EACH; ++c)
#pragma unroll
        for (int e = 0; e < V; ++e) sum[r][c] += x.v[e] * load(w[c].v[e]);
    }
  }
  // Of row lane / EACH, column lane % EACH.
  float mine = 0, square = 0;
#pragma unroll
  for (int i = 0; i < ALL; ++i) {
    float x = warp_sum(sum[i / EACH][i % EACH]);
    if (lane == (uint32_t)i) mine = x;
  }
#if NORMALIZED
#pragma unroll
  for (int r = 0; r < R; ++r) {
    float x = warp_sum(squares[r]);
    if (lane / EACH == (uint32_t)r) square = x;
  }
#endif
  if (SHARED > 1) {
    __shared__ float sums[WARPS][2][ALL];
    if (lane < ALL) {
      sums[warp][0][lane] = mine;
      sums[warp][1][lane] = square;
    }
    __syncthreads();
    if (warp % SHARED > 0) return;
#pragma unroll
    for (int i = 1; i < SHARED; ++i)
      if (lane < ALL) {
        mine += sums[warp + i][0][lane];
        square += sums[warp + i][1][lane];
      }
  }
#if NORMALIZED
  mine *= 1.0f / sqrtf(square / (float)p.k + p.epsilon);
#endif
  float other =
      PAIR ? __shfl_sync(0xffffffffu, mine, (lane + COLUMNS) % 32) : 0;
  if (lane < ALL && lane % EACH < COLUMNS)
    put(p, row + lane / EACH, column + lane % EACH, mine, other);
}

#if !NORMALIZED && !PAIR
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

extern "C" __global__ void __launch_bounds__(GEMV_BLOCK)
    spread(const gemv_t p) {
  turn_t turn;
  spread_product<ROWS, VECTOR>(p);
}
#endif

// ---- b along k -------------------------------------------------------------

extern "C" __global__ void __launch_bounds__(GEMV_BLOCK) dot(const gemv_t p) {
  turn_t turn;
  dot_product<ROWS, VECTOR, SPLIT>(p);
}
// For any strides and alignment: a row at a time.
extern "C" __global__ void __launch_bounds__(GEMV_BLOCK)
    single(const gemv_t p) {
  turn_t turn;
  dot_product<1, 1, SPLIT>(p);
}
