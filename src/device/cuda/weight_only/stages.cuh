// Stages of packed weights, and the scales and zero points of their blocks
// (weight_only.cuh).
#pragma once

#include "device/cuda/products/copies.cuh"
#include "device/cuda/products/mma.cuh"
#include "device/cuda/weight_only/normalized.cuh"
#include "device/cuda/weight_only/packed_weights.cuh"
#include "device/cuda/weight_only/params.h"

typedef packed_t<WEIGHT, FACTOR> weights_t;

enum {
  THREADS = 32 * WEIGHT_ONLY_WARPS,
  LINE = WEIGHT_ONLY_LINE,
  LINES = TILES * WEIGHT_ONLY_TILE,      // of a warp
  OWN_LINES = PAIR ? LINES / 2 : LINES,  // those that have columns of y
  STAGE = LINES * LINE,                  // bytes
  WORD = 32 / weights_t::BITS,           // weights of a word
  GROUP = 4 * WORD,                      // of four lanes' words
  GROUPS = LINE / 16,
  STEP = GROUPS * GROUP,         // elements of k in a stage
  DEPTH = BLOCK ? BLOCK : STEP,  // of a block
  STAGES_OF_BLOCK = DEPTH >= STEP ? DEPTH / STEP : 1,
  BLOCKS = DEPTH >= STEP ? 1 : STEP / DEPTH,  // of a stage
  HALVES = DEPTH >= GROUP ? 1 : 2,            // blocks of a group
  PITCH = LINES + 4,  // of sums in shared memory: lanes use different banks
};

// The block of a group, or its first one, within the stage.
DEVICE int block_of(int group) {
  return HALVES == 2 ? 2 * group : DEPTH >= STEP ? 0 : group * GROUP / DEPTH;
}
DEVICE int32_t first_block(int32_t stage) {
  return DEPTH >= STEP ? stage / STAGES_OF_BLOCK : stage * BLOCKS;
}

// ---- Blocks of a cluster ---------------------------------------------------

DEVICE int32_t row_block(const weight_only_t& p) {
  return (int32_t)blockIdx.x >> p.cluster_log;
}
DEVICE int32_t cluster_rank(const weight_only_t& p) {
  return (int32_t)blockIdx.x & ((1 << p.cluster_log) - 1);
}

// The second tile of a pair has lines of its second weights.
DEVICE int side_of(int tile) { return PAIR ? tile : 0; }
DEVICE int32_t first_line(int tile) {
  return PAIR ? 0 : tile * WEIGHT_ONLY_TILE;
}

// ---- Weights ---------------------------------------------------------------

// The bytes that a lane copies: 16 of every fourth line.
struct copier_t {
  const char *from, *second;  // in stage 0 of the first line
  uint32_t to;                // in a stage
  int32_t lines, bytes;       // that are left
};
DEVICE copier_t find_copier(const weight_only_t& p, int32_t first) {
  int32_t lane = (int32_t)threadIdx.x % 32, chunk = lane % 8, line = lane / 8;
  copier_t y;
  int64_t at = (first + line) * p.pitch + chunk * 16;
  y.from = (const char*)p.w[0] + at;
  y.second = (const char*)p.w[PAIR] + at;
  y.to = (uint32_t)(line * LINE + (chunk ^ line) * 16);
  y.lines = p.lines - first - line;
  y.bytes = (int32_t)p.pitch - chunk * 16;
  return y;
}

// Copies a stage of the warp's lines; zeros beyond the matrix. Tensor cores
// expect chunks permuted within a line, by the line's index modulo 8.
DEVICE void fetch_stage(shared_t to, const weight_only_t& p, const copier_t& c,
                        int32_t stage) {
  const char* from = c.from + (int64_t)stage * LINE;
  bool wanted = stage * LINE < c.bytes;
#pragma unroll
  for (int32_t i = 0; i < LINES; i += 4) {
    if (PAIR && i == OWN_LINES) from = c.second + (int64_t)stage * LINE;
    copy_chunk(to + (uint32_t)i * LINE + (i % 8 ? c.to ^ 64u : c.to), from,
               wanted && i % OWN_LINES < c.lines);
    from += 4 * p.pitch;
  }
}

// Where a lane finds the rows of matrices that it passes to load_words().
DEVICE uint32_t find_row() {
  uint32_t lane = threadIdx.x % 32, row = lane % 8, matrix = lane / 8;
  return (row + matrix % 2 * 8) * LINE + (matrix / 2 ^ row) * 16;
}
// The lane's words of groups `group` and `group` + 1 of a tile: of lines
// lane / 4 and lane / 4 + 8, then the same of the next group.
DEVICE void load_words(uint32_t* words, shared_t stage, uint32_t row, int tile,
                       int group) {
  load_matrices<false>(words, stage +
                                  (uint32_t)(tile * WEIGHT_ONLY_TILE * LINE) +
                                  (row ^ (uint32_t)group * 16));
}

// ---- Zero points -----------------------------------------------------------

// With the sign bit flipped. `line`: the number of the line's first.
DEVICE uint32_t zero_at(const weight_only_t& p, int side, int64_t line,
                        int32_t block) {
  if (!SHIFTED) return weights_t::SIGN;
  const uint8_t* zeros = (const uint8_t*)p.zeros[side];
  int64_t at =
      line + (block < p.blocks ? block : p.blocks - 1) * p.zero.block_step;
  uint32_t zero =
      weights_t::BITS == 8 ? zeros[at] : zeros[at / 2] >> (at % 2 * 4) & 15u;
  return zero ^ weights_t::SIGN;
}

// ---- Scales ----------------------------------------------------------------

// COUNT of a line from `block` on.
template <int COUNT>
DEVICE void load_scales(SCALE* scales, const weight_only_t& p,
                        const SCALE* line, int32_t block) {
  enum {
    PACK = COUNT * sizeof(SCALE) > 16 ? 16 / sizeof(SCALE) : (unsigned)COUNT
  };
#pragma unroll
  for (int i = 0; i < COUNT; ++i) {
    int32_t own = block + i < p.blocks ? block + i : p.blocks - 1;
    if (!WIDE_SCALES) {
      scales[i] = line[own * p.scale.block_step];
    } else if (i % PACK == 0) {
      pack_t<SCALE, PACK> pack = load_pack<SCALE, PACK>(line + block + i);
#pragma unroll
      for (int e = 0; e < PACK; ++e) scales[i + e] = pack.v[e];
    }
  }
}

// Where the numbers of the lane's lines begin.
struct lines_t {
  const SCALE* scales[TILES][2];
  int64_t zeros[TILES][2];
};
DEVICE lines_t find_lines(const weight_only_t& p, int32_t first) {
  lines_t y;
#pragma unroll
  for (int t = 0; t < TILES; ++t)
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      int32_t line =
          first + first_line(t) + h * 8 + (int32_t)threadIdx.x % 32 / 4;
      if (line >= p.lines) line = p.lines - 1;
      y.scales[t][h] = (const SCALE*)p.scales[side_of(t)] +
                       line / (int32_t)p.scale.lines * p.scale.line_step;
      y.zeros[t][h] =
          SHIFTED ? line / (int32_t)p.zero.lines * p.zero.line_step : 0;
    }
  return y;
}

// ---- Rows of x -------------------------------------------------------------

// A lane's column of factors: a part of a row of x.
struct column_t {
  const ELEMENT* x;  // the lane's elements in stage 0
  int32_t left;      // from there to the end; 0: there is no such row
  int part;
  float factor;  // of a row that is normalized
};
// `factors`: of the rows of the block, if they are normalized.
DEVICE column_t find_column(const weight_only_t& p, int32_t row, int32_t k,
                            bool exists, const float* factors, int own) {
  column_t y;
  y.x = (const ELEMENT*)p.x + row * p.x_row + k * p.x_k;
  y.left = exists ? p.k - k : 0;
  y.part = 0;
  y.factor = NORMALIZED && exists ? factors[own] : 1;
  return y;
}

// The bits of a factor. Three parts of 8 bits make a float; one that is not
// finite is the first part.
DEVICE uint32_t part_of(float x, int part) {
  if (!(fabsf(x) < INFINITE))
    return part > 0 ? 0 : x == x ? bits_of(x) >> 16 : 0x7fc0u;
#pragma unroll
  for (int i = 0; i < PARTS - 1; ++i)
    if (i < part) x -= float_of_bits(bits_of(x) & 0xffff0000u);
  return bits_of(x) >> 16;
}

// A lane's elements in a group: two of 16 bits, or a float, in a word.
enum {
  X_WORDS = WORD * sizeof(ELEMENT) / 4,
  X_PACK = X_WORDS < 4 ? (int)X_WORDS : 4
};
struct x_t {
  uint32_t words[X_WORDS];
};

#if NORMALIZED
// Rounded as if the normalization had stored its result.
DEVICE void normalize_x(const weight_only_t& p, const column_t& c, int32_t k,
                        x_t& x) {
  ELEMENT* v = (ELEMENT*)x.words;
  float y[WORD];
#pragma unroll
  for (int i = 0; i < WORD; ++i) y[i] = to_float(v[i]) * c.factor;
  multiply_by_numbers<WORD>(p, p.k - c.left + k, y);
#pragma unroll
  for (int i = 0; i < WORD; ++i) v[i] = from_float<ELEMENT>(y[i]);
}
#endif

// Zeros beyond the end. WIDE: x is contiguous along k, and aligned.
template <bool WIDE>
DEVICE x_t load_x(const weight_only_t& p, const column_t& c, int32_t k) {
  x_t y = {};
  if (!WIDE) {
    ELEMENT* v = (ELEMENT*)y.words;
#pragma unroll
    for (int i = 0; i < WORD; ++i)
      if (k + i < c.left) v[i] = c.x[(k + i) * p.x_k];
  } else if (k < c.left) {
#pragma unroll
    for (int i = 0; i < X_WORDS; i += X_PACK) {
      pack_t<uint32_t, X_PACK> pack =
          load_pack<uint32_t, X_PACK>((const uint32_t*)(c.x + k) + i);
#pragma unroll
      for (int e = 0; e < X_PACK; ++e) y.words[i + e] = pack.v[e];
    }
  }
#if NORMALIZED
  normalize_x(p, c, k, y);
#endif
  return y;
}

// Its factors, in pairs as unpack() makes them.
DEVICE void pair_factors(uint32_t* pairs, x_t x, int part) {
  if (PARTS > 1) {
#pragma unroll
    for (int i = 0; i < WORD / 2; ++i)
      x.words[i] = part_of(float_of_bits(x.words[2 * i]), part) |
                   part_of(float_of_bits(x.words[2 * i + 1]), part) << 16;
  }
#pragma unroll
  for (int i = 0; i < WORD / 2; ++i)
    pairs[i] = WORD == 4 ? x.words[i]
                         : __byte_perm(x.words[i / 2], x.words[(i / 2 + 2) % 4],
                                       i % 2 ? 0x7632u : 0x5410u);
}
