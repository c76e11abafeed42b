// The product of one row with packed weights (weight_only.cuh). Column i of the
// tensor cores' 8 has group i of a stage alone, so that its sums are those of a
// block or of a part of one: they are multiplied by scales once a stage, and a
// lane loads elements of one group only.
#pragma once

#include "device/cuda/weight_only/stages.cuh"

// A lane ends with columns 2 i and 2 i + 1, which may be of different blocks.
enum {
  COLUMNS = 1,
  ROWS = 1,
  ROW_COLUMNS = 1,
  SCALED_LOG = weights_t::SPREAD_LOG,
  OWN_BLOCKS = DEPTH > GROUP ? 1 : 2
};

// The lane's numbers of a stage.
struct numbers_t {
  SCALE scales[TILES][2][OWN_BLOCKS];
  uint32_t zeros[TILES][2][OWN_BLOCKS];
};
DEVICE void load_numbers(numbers_t& y, const weight_only_t& p,
                         const lines_t& lines, int32_t stage) {
  int32_t block = first_block(stage) + block_of((int)threadIdx.x % 4 * 2);
#pragma unroll
  for (int t = 0; t < TILES; ++t)
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      if (BLOCK)
        load_scales<OWN_BLOCKS>(y.scales[t][h], p, lines.scales[t][h], block);
#pragma unroll
      for (int i = 0; i < OWN_BLOCKS; ++i)
        y.zeros[t][h][i] = zero_at(p, side_of(t), lines.zeros[t][h], block + i);
    }
}

// ---- The row ---------------------------------------------------------------

struct rows_t {
  column_t column;  // from the lane's group of stage 0 on
  int group;
};
DEVICE rows_t find_rows(const weight_only_t& p, const float* factors) {
  int32_t lane = (int32_t)threadIdx.x % 32;
  rows_t y;
  y.group = lane / 4;
  y.column = find_column(p, row_block(p), y.group * GROUP + lane % 4 * WORD,
                         true, factors, 0);
  return y;
}

// The sum of the elements of each of the lane's two columns.
struct x_sums_t {
  float v[2];
};
DEVICE x_sums_t add_elements(const x_t& x) {
  float sum = 0;
#pragma unroll
  for (int i = 0; i < X_WORDS; ++i) {
    FACTOR low, high;
    low.bits = (uint16_t)x.words[i];
    high.bits = (uint16_t)(x.words[i] >> 16);
    sum +=
        PARTS > 1 ? float_of_bits(x.words[i]) : to_float(low) + to_float(high);
  }
  sum += __shfl_xor_sync(0xffffffffu, sum, 1);
  sum += __shfl_xor_sync(0xffffffffu, sum, 2);
  sum *= 1.0f / (float)(1 << SCALED_LOG);
  x_sums_t y;
#pragma unroll
  for (int i = 0; i < 2; ++i)
    y.v[i] = __shfl_sync(0xffffffffu, sum, (int)threadIdx.x % 4 * 8 + i * 4);
  return y;
}

// ---- Products --------------------------------------------------------------

// Kinds of pairs, with sums of their own; products of the tensor cores in a
// group. Sums of floats are exact enough only of integers with their sign.
enum {
  SIGNED = PARTS > 1,
  KINDS = weights_t::ODD_LOG ? 2 : 1,
  PRODUCTS = WORD / 4,
  ADDED = SIGNED ? -(int)weights_t::SIGN : (int)weights_t::BASE,
};
struct sums_t {
  float v[TILES][4];
};
struct parts_t {
  float v[TILES][KINDS][4];
};

DEVICE void multiply_group(parts_t& parts, const uint32_t loaded[TILES][4],
                           int side, const uint32_t factors[PARTS][WORD / 2],
                           uint32_t mask) {
#pragma unroll
  for (int t = 0; t < TILES; ++t) {
    uint32_t pairs[2][WORD / 2];
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      if (SIGNED)
        weights_t::unpack(loaded[t][side * 2 + h], weights_t::SIGN, mask,
                          pairs[h]);
      else
        weights_t::spread(loaded[t][side * 2 + h], mask, pairs[h]);
    }
#pragma unroll
    for (int i = 0; i < PRODUCTS; ++i) {
      const uint32_t a[4] = {pairs[0][i], pairs[1][i], pairs[0][i + PRODUCTS],
                             pairs[1][i + PRODUCTS]};
#pragma unroll
      for (int part = 0; part < PARTS; ++part) {
        const uint32_t b[2] = {factors[part][i], factors[part][i + PRODUCTS]};
        mma<FACTOR>(parts.v[t][i % KINDS], a, b);
      }
    }
  }
}

// Takes the zero points off the sums of a stage, and adds them, times their
// scales.
DEVICE void add_parts(sums_t& sums, const parts_t& parts, const x_sums_t& x,
                      const numbers_t& numbers) {
#pragma unroll
  for (int t = 0; t < TILES; ++t)
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      int block = i % 2 % OWN_BLOCKS;
      float part = parts.v[t][0][i];
      if (KINDS == 2)
        part += parts.v[t][KINDS - 1][i] *
                (1.0f / (float)(1 << weights_t::ODD_LOG));
      if (weights_t::IS_INTEGER) {
        int zero = SHIFTED ? (int)numbers.zeros[t][i / 2][block]
                           : (int)weights_t::SIGN;
        part -= (float)(zero + ADDED) * x.v[i % 2];
      }
      if (BLOCK) part *= to_float(numbers.scales[t][i / 2][block]);
      sums.v[t][i] += part;
    }
}

template <bool WIDE>
DEVICE void multiply_stage(sums_t& sums, shared_t stage, const weight_only_t& p,
                           const rows_t& rows, const numbers_t& numbers,
                           uint32_t row, int32_t k) {
  uint32_t own[PARTS][WORD / 2];
  parts_t parts = {};
  x_t x = load_x<WIDE>(p, rows.column, k);
  x_sums_t x_sums = {};
  if (weights_t::IS_INTEGER) x_sums = add_elements(x);
#pragma unroll
  for (int part = 0; part < PARTS; ++part) pair_factors(own[part], x, part);
#pragma unroll
  for (int group = 0; group < GROUPS; group += 2) {
    uint32_t loaded[TILES][4];
#pragma unroll
    for (int t = 0; t < TILES; ++t) load_words(loaded[t], stage, row, t, group);
#pragma unroll
    for (int side = 0; side < 2; ++side) {
      uint32_t factors[PARTS][WORD / 2];
#pragma unroll
      for (int i = 0; i < PARTS * WORD / 2; ++i)
        factors[i / (WORD / 2)][i % (WORD / 2)] =
            rows.group == group + side ? own[i / (WORD / 2)][i % (WORD / 2)]
                                       : 0;
      multiply_group(parts, loaded, side, factors, p.mask);
    }
  }
  add_parts(sums, parts, x_sums, numbers);
}

// The sums of all warps: [warp][0][line].
DEVICE void share_sums(float* shared, const sums_t& sums) {
  int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32;
#pragma unroll
  for (int t = 0; t < TILES; ++t)
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      float sum = sums.v[t][2 * h] + sums.v[t][2 * h + 1];
      sum += __shfl_xor_sync(0xffffffffu, sum, 1);
      sum += __shfl_xor_sync(0xffffffffu, sum, 2);
      if (lane % 4 == 0)
        shared[warp * PITCH + t * WEIGHT_ONLY_TILE + lane / 4 + h * 8] = sum;
    }
}
