// Products of several rows with packed weights (weight_only.cuh): PIECES groups
// of the tensor cores' 8 columns, which are the parts of rows of x. Sums of a
// block are multiplied by its scale where the block ends.
#pragma once

#include "device/cuda/weight_only/stages.cuh"

enum {
  COLUMNS = 8 * PIECES,
  ROW_COLUMNS = PARTS,  // whose sums are one of the result
  ROWS = COLUMNS / ROW_COLUMNS,
  SCALED_LOG = weights_t::SCALE_BY_LOG
};

// ---- Zero points -----------------------------------------------------------

// Those of a line in a stage.
enum {
  ZERO_WORDS = (BLOCKS * weights_t::BITS + 31) / 32,
  ZERO_BYTES = BLOCKS * weights_t::BITS % 8 ? 1 : BLOCKS * weights_t::BITS / 8,
};
struct zeros_t {
  uint32_t words[ZERO_WORDS];
};

// With the sign bit flipped.
DEVICE uint32_t zero_of(const zeros_t& zeros, int block) {
  if (!SHIFTED) return weights_t::SIGN;
  int bit = block * weights_t::BITS;
  return (zeros.words[bit / 32] >> bit % 32 & ((1u << weights_t::BITS) - 1)) ^
         weights_t::SIGN;
}

// `line`: the number of the line's first.
DEVICE zeros_t load_zeros(const weight_only_t& p, int side, int64_t line,
                          int32_t stage) {
  zeros_t y = {};
  int32_t block = first_block(stage);
  const uint8_t* from = (const uint8_t*)p.zeros[side];
  if (!SHIFTED) return y;
  if (WIDE_ZEROS && ZERO_BYTES < 4) {
    from += (line + block) * weights_t::BITS / 8;
    y.words[0] = ZERO_BYTES == 2 ? *(const uint16_t*)from : *from;
  } else if (WIDE_ZEROS) {
    from += (line + block) * weights_t::BITS / 8;
#pragma unroll
    for (int i = 0; i < ZERO_WORDS; ++i)
      y.words[i] = ((const uint32_t*)from)[i];
  } else {
#pragma unroll
    for (int i = 0; i < BLOCKS; ++i)
      y.words[i * weights_t::BITS / 32] |=
          (zero_at(p, side, line, block + i) ^ weights_t::SIGN)
          << i * weights_t::BITS % 32;
  }
  return y;
}

// ---- Numbers ---------------------------------------------------------------

// The lane's, of a stage.
struct numbers_t {
  SCALE scales[TILES][2][BLOCKS];
  zeros_t zeros[TILES][2];
};
DEVICE void load_numbers(numbers_t& y, const weight_only_t& p,
                         const lines_t& lines, int32_t stage) {
#pragma unroll
  for (int t = 0; t < TILES; ++t)
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      y.zeros[t][h] = load_zeros(p, side_of(t), lines.zeros[t][h], stage);
      if (BLOCK)
        load_scales<BLOCKS>(y.scales[t][h], p, lines.scales[t][h],
                            first_block(stage));
    }
}

// ---- Rows of x -------------------------------------------------------------

// The lane's columns: parts of rows of x, from group 0 of stage 0 on.
struct rows_t {
  column_t columns[PIECES];
};
DEVICE rows_t find_rows(const weight_only_t& p, const float* factors) {
  rows_t y;
#pragma unroll
  for (int n = 0; n < PIECES; ++n) {
    int32_t number = n * 8 + (int32_t)threadIdx.x % 32 / 4;
    int32_t row = row_block(p) * ROWS + number / PARTS;
    bool exists = number / PARTS < ROWS && row < p.rows;
    y.columns[n] = find_column(p, row, (int32_t)threadIdx.x % 4 * WORD, exists,
                               factors, number / PARTS);
    y.columns[n].part = number % PARTS;
  }
  return y;
}

// ---- Products --------------------------------------------------------------

struct sums_t {
  float v[TILES][PIECES][4];
};

// Adds `part`, times the scales of the lane's lines, and makes it 0.
DEVICE void add_scaled(sums_t& sums, sums_t& part, const numbers_t& numbers,
                       int block) {
#pragma unroll
  for (int t = 0; t < TILES; ++t)
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      float scale = to_float(numbers.scales[t][i / 2][block]);
#pragma unroll
      for (int n = 0; n < PIECES; ++n) {
        sums.v[t][n][i] += scale * part.v[t][n][i];
        part.v[t][n][i] = 0;
      }
    }
}

// The products of a group. HALVES 2: of the half of it that has block `half`.
DEVICE void multiply_group(sums_t& part, const uint32_t words[TILES][2],
                           const uint32_t factors[PIECES][WORD / 2],
                           const uint32_t zeros[TILES][2], uint32_t mask,
                           int half) {
  bool other = HALVES == 2 && (int)threadIdx.x % 4 / 2 != half;
#pragma unroll
  for (int t = 0; t < TILES; ++t) {
    uint32_t pairs[2][WORD / 2];
#pragma unroll
    for (int h = 0; h < 2; ++h)
      weights_t::unpack(words[t][h], zeros[t][h], mask, pairs[h]);
#pragma unroll
    for (int i = 0; i < WORD / 2; i += 2) {
      const uint32_t a[4] = {pairs[0][i], pairs[1][i], pairs[0][i + 1],
                             pairs[1][i + 1]};
#pragma unroll
      for (int n = 0; n < PIECES; ++n) {
        const uint32_t b[2] = {other ? 0 : factors[n][i],
                               other ? 0 : factors[n][i + 1]};
        mma<FACTOR>(part.v[t][n], a, b);
      }
    }
  }
}

DEVICE bool ends_block(int group) {
  return BLOCK != 0 &&
         (DEPTH >= STEP ? group + 1 == GROUPS
                        : HALVES == 2 || (group + 1) * GROUP % DEPTH == 0);
}

template <bool WIDE>
DEVICE void multiply_stage(sums_t& sums, shared_t stage, const weight_only_t& p,
                           const rows_t& rows, const numbers_t& numbers,
                           uint32_t row, int32_t k) {
  sums_t part = {};
#pragma unroll
  for (int pair = 0; pair < GROUPS; pair += 2) {
    uint32_t loaded[TILES][4];
#pragma unroll
    for (int t = 0; t < TILES; ++t) load_words(loaded[t], stage, row, t, pair);
#pragma unroll
    for (int group = pair; group < pair + 2; ++group) {
      uint32_t factors[PIECES][WORD / 2], words[TILES][2], zeros[TILES][2];
#pragma unroll
      for (int n = 0; n < PIECES; ++n)
        pair_factors(factors[n],
                     load_x<WIDE>(p, rows.columns[n], k + group * GROUP),
                     rows.columns[n].part);
#pragma unroll
      for (int half = 0; half < HALVES; ++half) {
#pragma unroll
        for (int t = 0; t < TILES; ++t)
#pragma unroll
          for (int h = 0; h < 2; ++h) {
            words[t][h] = loaded[t][(group - pair) * 2 + h];
            zeros[t][h] = zero_of(numbers.zeros[t][h], block_of(group) + half);
          }
        multiply_group(BLOCK ? part : sums, words, factors, zeros, p.mask,
                       half);
        if (ends_block(group))
          add_scaled(sums, part, numbers, block_of(group) + half);
      }
    }
  }
}

// The sums of all warps, by their columns: [warp][column][line].
DEVICE void share_sums(float* shared, const sums_t& sums) {
  int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32;
#pragma unroll
  for (int t = 0; t < TILES; ++t)
#pragma unroll
    for (int n = 0; n < PIECES; ++n)
#pragma unroll
      for (int i = 0; i < 4; ++i)
        shared[(warp * COLUMNS + n * 8 + lane % 4 * 2 + i % 2) * PITCH +
               t * WEIGHT_ONLY_TILE + lane / 4 + i / 2 * 8] = sums.v[t][n][i];
}
