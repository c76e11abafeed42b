// Products of few rows with constant weights that are contiguous along k: bound
// by reading the weights once. The text that includes this file is generated
// with the product's epilogue (few.c). It defines
//
//   ELEMENT  type of all tensors: half_t or bf16_t
//   ROWS     rows of a block, 8 or 16
//   CHUNKS   16 bytes of weights that a lane has in flight
//   BLOCKS   that a multiprocessor is to have room for
//
// and the macros of layers_params.h.
//
// The rows of x are those of the tensor cores' products, lines of weights the
// columns. A tile is 8 lines; the warps of a block split its k. A block goes on
// from tile to tile, and a warp loads the next chunk as soon as it has
// multiplied with one, so that memory is never idle. Weights go to registers
// directly: the order of k within a product is free, and so each lane takes 16
// contiguous bytes.
#pragma once

#include "device/cuda/products/few_params.h"
#include "device/cuda/products/mma.cuh"

enum {
  THREADS = 32 * FEW_WARPS,
  HALVES = ROWS / 8,
  STAGE = CHUNKS * FEW_CHUNK,
  OWN = FEW_CHUNK / 4,  // elements of a lane
};

struct alignas(16) words_t {
  uint32_t v[4];
};

// Weights are read once, and before the kernel's turn.
DEVICE words_t load_weights(const ELEMENT* from, bool wanted) {
  words_t y = {{0, 0, 0, 0}};
#ifdef RABBET_STAND_IN
  if (wanted) y = *(const words_t*)from;
#else
  if (wanted)
    asm volatile(
        "ld.global.nc.L1::no_allocate.L2::128B.v4.u32 {%0, %1, %2, %3}, [%4];"
        : "=r"(y.v[0]), "=r"(y.v[1]), "=r"(y.v[2]), "=r"(y.v[3])
        : "l"(from));
#endif
  return y;
}

// ---- Weights ---------------------------------------------------------------

// The lane's elements of a stage: from k on.
struct place_t {
  const ELEMENT* from;
  int32_t left;  // elements of the line; 0: there is no such stage
};
DEVICE place_t find_place(const few_t& p, int32_t tile, int32_t stage) {
  int32_t lane = (int32_t)threadIdx.x % 32;
  int32_t line = tile * FEW_LINES + lane / 4,
          k = stage * STAGE + lane % 4 * OWN;
  bool exists = tile < p.tiles && stage < p.stages;
  place_t y;
  if (line >= p.lines) line = p.lines - 1;  // its result is not stored
  y.from = (const ELEMENT*)p.w + line * p.w_line + k;
  y.left = exists ? p.k - k : 0;
  return y;
}
DEVICE words_t fetch_chunk(const place_t& place, int32_t chunk) {
  return load_weights(place.from + chunk * FEW_CHUNK,
                      chunk * FEW_CHUNK < place.left);
}

// ---- Rows of x -------------------------------------------------------------

// WIDE: x is contiguous along k, and aligned.
template <bool WIDE>
DEVICE words_t load_x(const few_t& p, int32_t row, int32_t k) {
  words_t y = {{0, 0, 0, 0}};
  if (row >= p.rows || k >= p.k) return y;
  const ELEMENT* from = (const ELEMENT*)p.x + row * p.x_row + k;
  if (WIDE) {
    y = *(const words_t*)from;
  } else {
#pragma unroll
    for (int i = 0; i < OWN; ++i)
      y.v[i / 2] |= (uint32_t)from[i].bits << i % 2 * 16;
  }
  return y;
}

// Adds the products of a chunk.
template <bool WIDE>
DEVICE void multiply_chunk(float* sums, const few_t& p, int32_t row, int32_t k,
                           const words_t& w) {
  words_t x[2] = {load_x<WIDE>(p, row, k), {{0, 0, 0, 0}}};
  if (HALVES == 2) x[1] = load_x<WIDE>(p, row + 8, k);
#pragma unroll
  for (int step = 0; step < 2; ++step) {
    const uint32_t a[4] = {x[0].v[2 * step], x[1].v[2 * step],
                           x[0].v[2 * step + 1], x[1].v[2 * step + 1]};
    mma<ELEMENT>(sums, a, w.v + 2 * step);
  }
}

// ---- The result ------------------------------------------------------------

struct parts_t {
  float v[FEW_WARPS][ROWS][FEW_LINES];
};

DEVICE void share_sums(parts_t& parts, const float* sums) {
  int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32;
#pragma unroll
  for (int i = 0; i < 2 * HALVES; ++i)
    parts.v[warp][lane / 4 + i / 2 * 8][lane % 4 * 2 + i % 2] = sums[i];
}

// Other threads for each tile, as reading the epilogue's operands takes time.
DEVICE void write_sums(const parts_t& parts, const few_t& p, int32_t row,
                       int32_t tile, int32_t turn) {
  int32_t i = ((int32_t)threadIdx.x + turn * 32) % THREADS;
  int32_t own = i / FEW_LINES, at = i % FEW_LINES;
  int32_t line = tile * FEW_LINES + at;
  if (own >= ROWS || row + own >= p.rows || line >= p.lines) return;
  float sum = 0;
#pragma unroll
  for (int warp = 0; warp < FEW_WARPS; ++warp) sum += parts.v[warp][own][at];
  ((ELEMENT*)p.y)[(row + own) * p.y_row + line] =
      finished(sum, p.layers, 0, row + own, line);
}

// ---- Kernels ---------------------------------------------------------------

// The weights that a warp multiplies next.
struct ahead_t {
  words_t w[CHUNKS];
};

// Loads of weights begin before the turn.
DEVICE ahead_t begin_product(const few_t& p) {
  ahead_t ahead;
  place_t place = find_place(p, (int32_t)blockIdx.x, (int32_t)threadIdx.x / 32);
#pragma unroll
  for (int32_t c = 0; c < CHUNKS; ++c) ahead.w[c] = fetch_chunk(place, c);
  return ahead;
}

template <bool WIDE>
DEVICE void end_product(const few_t& p, ahead_t& ahead) {
  __shared__ parts_t parts[2];
  int32_t warp = (int32_t)threadIdx.x / 32, lane = (int32_t)threadIdx.x % 32;
  int32_t first = (int32_t)blockIdx.y * ROWS, step = (int32_t)gridDim.x;
  int32_t turn = 0;
  for (int32_t tile = (int32_t)blockIdx.x; tile < p.tiles; tile += step) {
    float sums[4] = {0, 0, 0, 0};
    for (int32_t stage = warp; stage < p.stages; stage += FEW_WARPS) {
      bool more = stage + FEW_WARPS < p.stages;
      int32_t k = stage * STAGE + lane % 4 * OWN;
      place_t place = find_place(p, more ? tile : tile + step,
                                 more ? stage + FEW_WARPS : warp);
#pragma unroll
      for (int32_t c = 0; c < CHUNKS; ++c) {
        multiply_chunk<WIDE>(sums, p, first + lane / 4, k + c * FEW_CHUNK,
                             ahead.w[c]);
        ahead.w[c] = fetch_chunk(place, c);
      }
    }
    // A warp is at most one tile ahead of another.
    share_sums(parts[turn % 2], sums);
    __syncthreads();
    write_sums(parts[turn % 2], p, first, tile, turn);
    ++turn;
  }
}

extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS)
    few(const __grid_constant__ few_t p) {
  ahead_t ahead = begin_product(p);
  { turn_t turn; }
  end_product<true>(p, ahead);
}
// For any alignment of x.
extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS)
    few_single(const __grid_constant__ few_t p) {
  ahead_t ahead = begin_product(p);
  { turn_t turn; }
  end_product<false>(p, ahead);
}
