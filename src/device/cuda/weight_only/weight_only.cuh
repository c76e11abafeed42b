// Products of few rows with packed weights: bound by reading the weights once.
// The text that includes this file is generated with the product's epilogue
// (weight_only.c). It defines
//
//   ELEMENT  type of x, the result and the epilogue's operands
//   FACTOR   type of the tensor cores' factors: half_t or bf16_t
//   PARTS    factors whose sum is an element of x: 1, or 3 for float
//   WEIGHT   int4_t, int8_t, uint8_t, fp4_t or fp8_t; in any.cuh nf4_t, too
//   SCALE    type of scales
//   SHIFTED  1: weights have zero points
//   BLOCK    elements of k that share a scale; 0: all of a line
//   PIECES   groups of the tensor cores' 8 columns, which are the parts of rows
//            of x; 0: one row
//   PAIR     1: two products, which OTHER of layers_params.h combines
//   NORMALIZED  1: rows of x are normalized by their mean square before, and,
//            if SCALED is 1, multiplied by k numbers of type NUMBER
//   TILES    tiles of a warp; 2 of a pair, one of each of its weights
//   STAGES   stages of a warp in flight
//   WIDE_SCALES, WIDE_ZEROS  1: those of a line in a stage are contiguous and
//            aligned
//
// and the macros of layers_params.h.
//
// The lines of weights are the rows of the tensor cores' products. A warp has
// TILES tiles of 16 lines and every 2^split_log-th stage of k. Its stages lie
// in shared memory as they do in memory, where 16 bytes of a line are a group.
// Four neighbouring lanes get a word of a group each, and the same elements of
// x.
#pragma once

// Only compute capability 9.0 and later have clusters.
#if defined(RABBET_STAND_IN) || __CUDA_ARCH__ >= 900
#define CLUSTERS 1
#include "device/cuda/products/cluster.cuh"
#else
#define CLUSTERS 0
#endif

#if PIECES
#include "device/cuda/weight_only/rows.cuh"
#else
#include "device/cuda/weight_only/row.cuh"
#endif

// ---- The result ------------------------------------------------------------

// Adds up the sums of the warps that share a tile: of one line and row.
DEVICE float add_warps(const float* shared, const weight_only_t& p,
                       int32_t team, int32_t row, int32_t line) {
  int32_t split = 1 << p.split_log;
  const float* from =
      shared + (team * split * COLUMNS + row * ROW_COLUMNS) * PITCH + line;
  float sum = 0;
  for (int32_t s = 0; s < split; ++s)
#pragma unroll
    for (int part = 0; part < ROW_COLUMNS; ++part)
      sum += from[(s * COLUMNS + part) * PITCH];
  return sum;
}

DEVICE int32_t rows_left(const weight_only_t& p) {
  int32_t rows = p.rows - row_block(p) * ROWS;
  return rows < ROWS ? rows : ROWS;
}

DEVICE float scaled_sum(const weight_only_t& p, int side, int32_t line,
                        float sum) {
  if (BLOCK == 0)
    sum *= to_float((
        (const SCALE*)
            p.scales[side])[line / (int32_t)p.scale.lines * p.scale.line_step]);
  return sum * (float)(1 << SCALED_LOG);
}

// `other`: the sum of a pair's second weights.
DEVICE void write_sum(const weight_only_t& p, int32_t row, int32_t line,
                      float sum, float other) {
  if (line >= p.lines) return;
  sum = scaled_sum(p, 0, line, sum);
  if (PAIR) other = scaled_sum(p, PAIR, line, other);
  ((ELEMENT*)p.y)[row * p.y_row + line] =
      finished(sum, p.layers, 0, row, line, other);
}

DEVICE void write_sums(const float* shared, const weight_only_t& p) {
  int32_t row = row_block(p) * ROWS, rows = rows_left(p);
  int32_t teams = WEIGHT_ONLY_WARPS >> p.split_log;
  for (int32_t i = (int32_t)threadIdx.x; i < teams * rows * OWN_LINES;
       i += THREADS) {
    int32_t at = i % OWN_LINES, team = i / OWN_LINES / rows,
            own = i / OWN_LINES % rows;
    int32_t line = ((int32_t)blockIdx.y * teams + team) * OWN_LINES + at;
    write_sum(p, row + own, line, add_warps(shared, p, team, own, at),
              PAIR ? add_warps(shared, p, team, own, at + OWN_LINES) : 0);
  }
}

#if CLUSTERS
// The sum of all blocks of the cluster.
DEVICE float add_blocks(const float* received, const weight_only_t& p,
                        int32_t row, int32_t line) {
  float sum = 0;
  for (int32_t block = 0; block < 1 << p.cluster_log; ++block)
    sum += received[(block * ROWS + row) * LINES + line];
  return sum;
}

// The first block of the cluster adds up the sums of all.
DEVICE void write_cluster_sums(float* shared, const weight_only_t& p) {
  int32_t row = row_block(p) * ROWS, rows = rows_left(p);
  int32_t rank = cluster_rank(p);
  cluster_wait();  // all blocks have begun
  const float* received = shared + p.received;
  remote_t to = remote_address(shared + p.received, 0);
  for (int32_t i = 2 * (int32_t)threadIdx.x; i < rows * LINES; i += 2 * THREADS)
    store_remote(to, rank * ROWS * LINES + i,
                 add_warps(shared, p, 0, i / LINES, i % LINES),
                 add_warps(shared, p, 0, i / LINES, i % LINES + 1));
  cluster_arrive();
  cluster_wait();
  if (rank > 0) return;
  for (int32_t i = (int32_t)threadIdx.x; i < rows * OWN_LINES; i += THREADS) {
    int32_t own = i / OWN_LINES, at = i % OWN_LINES;
    write_sum(p, row + own, (int32_t)blockIdx.y * OWN_LINES + at,
              add_blocks(received, p, own, at),
              PAIR ? add_blocks(received, p, own, at + OWN_LINES) : 0);
  }
}
#endif

// ---- Kernels ---------------------------------------------------------------

// The work that a warp begins before its turn: all that it reads is constant.
struct product_t {
  int32_t member, split, count;  // of the tile's warps; own stages
  copier_t copier;
  shared_t ring;
  lines_t lines;
  numbers_t numbers;
};
DEVICE product_t begin_product(const weight_only_t& p, chunk_t* memory) {
  int32_t warp = (int32_t)threadIdx.x / 32, team = warp >> p.split_log;
  int32_t teams = WEIGHT_ONLY_WARPS >> p.split_log;
  int32_t first = ((int32_t)blockIdx.y * teams + team) * OWN_LINES;
  product_t y = {};
  int32_t split = 1 << p.split_log;
#if CLUSTERS
  if (p.cluster_log > 0) cluster_arrive();
#endif
  y.split = split << p.cluster_log;
  y.member = cluster_rank(p) * split + warp % split;
  y.count = first < p.lines ? (p.stages - y.member + y.split - 1) >>
                                  (p.split_log + p.cluster_log)
                            : 0;
  y.copier = find_copier(p, first);
  y.ring = shared_address(memory) + (uint32_t)(warp * STAGES * STAGE);
#pragma unroll
  for (int32_t i = 0; i < STAGES - 1; ++i) {
    if (i < y.count)
      fetch_stage(y.ring + (uint32_t)(i * STAGE), p, y.copier,
                  y.member + i * y.split);
    commit_copies();
  }
  y.lines = find_lines(p, first);
  if (y.count > 0) load_numbers(y.numbers, p, y.lines, y.member);
  return y;
}

template <bool WIDE>
DEVICE void end_product(const weight_only_t& p, product_t& x, chunk_t* memory) {
  const float* factors = nullptr;
#if NORMALIZED
  enum { OWN = WORD < 16 / sizeof(ELEMENT) ? WORD : 16 / sizeof(ELEMENT) };
  factors = row_factors<WIDE, OWN, ROWS>(p, row_block(p) * ROWS, rows_left(p));
#endif
  rows_t rows = find_rows(p, factors);
  sums_t sums = {};
  uint32_t from = 0, to = (STAGES - 1) * STAGE, row = find_row();
  for (int32_t i = 0; i < x.count; ++i) {
    int32_t stage = x.member + i * x.split;
    numbers_t next = x.numbers;
    await_copies<STAGES - 2>();
    __syncwarp();
    if (i + STAGES - 1 < x.count)
      fetch_stage(x.ring + to, p, x.copier, stage + (STAGES - 1) * x.split);
    commit_copies();
    if (BLOCK && i + 1 < x.count)
      load_numbers(next, p, x.lines, stage + x.split);
    multiply_stage<WIDE>(sums, x.ring + from, p, rows, x.numbers, row,
                         stage * STEP);
    x.numbers = next;
    to = from;
    from = from + STAGE == STAGES * STAGE ? 0 : from + STAGE;
  }
  await_copies<0>();
  __syncthreads();
  share_sums((float*)memory, sums);
  __syncthreads();
#if CLUSTERS
  if (p.cluster_log > 0) {
    write_cluster_sums((float*)memory, p);
    return;
  }
#endif
  write_sums((const float*)memory, p);
}

extern "C" __global__ void __launch_bounds__(THREADS)
    weight_only(const __grid_constant__ weight_only_t p) {
  extern __shared__ __align__(128) chunk_t memory[];
  product_t product = begin_product(p, memory);
  { turn_t turn; }
  end_product<true>(p, product, memory);
}
// For any strides and alignment of x.
extern "C" __global__ void __launch_bounds__(THREADS)
    weight_only_single(const __grid_constant__ weight_only_t p) {
  extern __shared__ __align__(128) chunk_t memory[];
  product_t product = begin_product(p, memory);
  { turn_t turn; }
  end_product<false>(p, product, memory);
}
