// A chunk's products with numbers of 16 bits: INT8, UINT8 and NF4.
#ifndef RABBET_SRC_DEVICE_CPU_VECTORS_DIGITS_AVX2_WORDS_H_
#define RABBET_SRC_DEVICE_CPU_VECTORS_DIGITS_AVX2_WORDS_H_

#include "device/cpu/vectors/digits_avx2.h"

// Sums of products with both digits.
typedef struct digit_sums_t {
  __m256i high, low;
} digit_sums_t;

DIGIT_INLINE void digits_add(bool is_first, __m256i a, __m256i b,
                             __m256i* sum) {
  __m256i both = _mm256_add_epi32(a, b);
  *sum = is_first ? both : _mm256_add_epi32(*sum, both);
  DIGIT_KEEP(*sum);
}
DIGIT_INLINE __m256 digits_value(const digit_sums_t* sums) {
  return _mm256_fmadd_ps(_mm256_cvtepi32_ps(sums->high),
                         _mm256_set1_ps(1 << WORD_BITS),
                         _mm256_cvtepi32_ps(sums->low));
}

// -- INT8, as 256 times its number, and UINT8 --

DIGIT_INLINE void digits_large(const digit_loop_t* loop, digit_rows_t* rows,
                               const digit_place_t* at,
                               const rabbet_digits_t* x) {
  const int blocks = digits_blocks(loop->form, loop->per);
  const __m256i upper = _mm256_set1_epi16((short)0xff00);
  const __m256i lower = _mm256_set1_epi16(255);
  digit_sums_t sums[ROWS];
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    const bool is_first = loop->per == 1 ? i == 0 : i % 2 == 0;
    __m256i digits[2][2];
    for (int d = 0; d < 2; ++d)
      for (int odd = 0; odd < 2; ++odd) {
        digits[d][odd] = load(x->words[d] + (2 * i + odd) * WORDS);
        DIGIT_KEEP(digits[d][odd]);
      }
#pragma GCC unroll 4
    for (int r = 0; r < at->count; ++r) {
      __m256i codes = digits_codes(blocks, rows, at, r, i / 2 * 64).reg[i % 2];
      __m256i even, odd;
      DIGIT_KEEP(codes);
      if (loop->form == DIGITS_INT8) {
        even = _mm256_slli_epi16(codes, 8);
        odd = _mm256_and_si256(codes, upper);
      } else {
        even = _mm256_and_si256(codes, lower);
        odd = _mm256_srli_epi16(codes, 8);
      }
      digits_add(is_first, _mm256_madd_epi16(even, digits[0][0]),
                 _mm256_madd_epi16(odd, digits[0][1]), &sums[r].high);
      digits_add(is_first, _mm256_madd_epi16(even, digits[1][0]),
                 _mm256_madd_epi16(odd, digits[1][1]), &sums[r].low);
    }
    if (loop->per == 1 ? i < 3 : i % 2 == 0) continue;
    const int behind = loop->per == 1 ? 0 : i / 2 * blocks;
#pragma GCC unroll 4
    for (int r = 0; r < at->count; ++r) {
      const int row = at->first + r;
      rows->sums[row] = _mm256_fmadd_ps(
          digits_value(&sums[r]),
          digits_scales(blocks, rows->scales[row] + at->scale + behind,
                        x->unit + behind),
          rows->sums[row]);
    }
  }
}

// -- NF4 --

// Sums of the numbers' first 16 bits, [0] of the first eight of 16 bytes and
// [1] of the others where these are two blocks, and of the other bits.
typedef struct digit_nf4_sums_t {
  digit_sums_t half[2];
  __m256i parts;
} digit_nf4_sums_t;

DIGIT_INLINE void digits_nf4_add(const digit_loop_t* loop, __m256i codes,
                                 const rabbet_digits_t* x, int part,
                                 bool is_first, digit_nf4_sums_t* sums) {
  const __m256i lows = shared_table(_mm_setr_epi8(NF4_LOW));
  const __m256i highs = shared_table(_mm_setr_epi8(NF4_HIGH));
  const __m256i parts = shared_table(_mm_setr_epi8(NF4_PART));
  __m256i low = _mm256_shuffle_epi8(lows, codes);
  __m256i high = _mm256_shuffle_epi8(highs, codes);
  __m256i pairs = _mm256_maddubs_epi16(_mm256_shuffle_epi8(parts, codes),
                                       load(x->bytes + part * BYTES));
  __m256i first = _mm256_unpacklo_epi8(low, high);
  __m256i others = _mm256_unpackhi_epi8(low, high);
  for (int d = 0; d < 2; ++d) {
    const int16_t* digits = x->words[d] + 2 * part * WORDS;
    __m256i a = _mm256_madd_epi16(first, load(digits));
    __m256i b = _mm256_madd_epi16(others, load(digits + WORDS));
    __m256i* to = d == 0 ? &sums->half[0].high : &sums->half[0].low;
    __m256i* next = d == 0 ? &sums->half[1].high : &sums->half[1].low;
    if (loop->per < 8) {
      digits_add(is_first, a, b, to);
      continue;
    }
    *to = is_first ? a : _mm256_add_epi32(*to, a);
    *next = is_first ? b : _mm256_add_epi32(*next, b);
  }
  sums->parts = part % 2 == 0 ? pairs : _mm256_add_epi16(sums->parts, pairs);
  DIGIT_KEEP(sums->parts);
}

// Adds the sums of a register, or of all.
DIGIT_INLINE __m256 digits_nf4_value(const digit_loop_t* loop,
                                     const digit_nf4_sums_t* sums,
                                     __m256i parts, const float* scales,
                                     const float* units, int reg,
                                     __m256 total) {
  if (loop->per < 8) {
    const digit_sums_t all = {sums->half[0].high,
                              _mm256_add_epi32(sums->half[0].low, parts)};
    const int behind = loop->per == 4 ? reg * 2 : 0;
    const int blocks = loop->per == 4 ? 2 : loop->per;
    return _mm256_fmadd_ps(
        digits_value(&all),
        digits_scales(blocks, scales + behind, units + behind), total);
  }
  // Words have the even blocks in half[0], and bytes all of them.
  __m256 four =
      _mm256_mul_ps(_mm256_broadcast_ps((const __m128*)(scales + reg * 4)),
                    _mm256_broadcast_ps((const __m128*)(units + reg * 4)));
  for (int half = 0; half < 2; ++half)
    total = _mm256_fmadd_ps(
        digits_value(&sums->half[half]),
        _mm256_permutevar_ps(
            four, _mm256_setr_epi32(half, half, half, half, half + 2, half + 2,
                                    half + 2, half + 2)),
        total);
  return digits_fma(
      parts,
      _mm256_permutevar_ps(four, _mm256_setr_epi32(0, 0, 1, 1, 2, 2, 3, 3)),
      total);
}

DIGIT_INLINE void digits_normal(const digit_loop_t* loop, digit_rows_t* rows,
                                const digit_place_t* at,
                                const rabbet_digits_t* x) {
  // Of a part in units of the lower digit.
  const __m256i unit = _mm256_set1_epi16((1 << 16) / NF4_PARTS);
  const int blocks = digits_blocks(loop->form, loop->per);
  digit_nf4_sums_t sums[ROWS];
  __m256i parts[ROWS];
#pragma GCC unroll 2
  for (int i = 0; i < REGISTERS; ++i) {
    const bool is_first = loop->per > 2 || i == 0;
#pragma GCC unroll 2
    for (int upper = 0; upper < 2; ++upper) {
#pragma GCC unroll 4
      for (int r = 0; r < at->count; ++r)
        digits_nf4_add(
            loop,
            digits_half(digits_codes(blocks, rows, at, r, 0).reg[i], upper), x,
            i * 2 + upper, is_first && !upper, &sums[r]);
    }
#pragma GCC unroll 4
    for (int r = 0; r < at->count; ++r) {
      const int row = at->first + r;
      __m256i more = _mm256_madd_epi16(sums[r].parts, unit);
      parts[r] = is_first ? more : _mm256_add_epi32(parts[r], more);
      if (loop->per <= 2 && i == 0) continue;
      rows->sums[row] = digits_nf4_value(loop, &sums[r], parts[r],
                                         rows->scales[row] + at->scale, x->unit,
                                         i, rows->sums[row]);
    }
  }
}

#endif  // RABBET_SRC_DEVICE_CPU_VECTORS_DIGITS_AVX2_WORDS_H_
