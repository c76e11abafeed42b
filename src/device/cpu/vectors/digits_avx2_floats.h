// A chunk's products with codes of FP8, by products of floats. There is no NaN
// among the codes.
#ifndef RABBET_SRC_DEVICE_CPU_VECTORS_DIGITS_AVX2_FLOATS_H_
#define RABBET_SRC_DEVICE_CPU_VECTORS_DIGITS_AVX2_FLOATS_H_

#include "device/cpu/vectors/digits_avx2.h"

// A code's exponent and mantissa, at the place of those of FLOAT, are its
// number times 2^-120, also where the exponent is 0; at that of HALF, 2^-8.
#define FP8_IN_FLOAT ((int)0x87f00000)
#define FP8_IN_HALF ((short)0xbfff)
#define FP8_HALF_UNIT 0x1p-112f  // of that in FLOAT

// Codes 2 i + odd of 32 as words, moved up by so many bits, with copies of the
// sign above them.
DIGIT_INLINE __m256i digits_words(const uint8_t* codes, int odd, int bits) {
  const __m256i up = _mm256_set1_epi16((short)(1 << bits << (odd ? 8 : 0)));
  return _mm256_maddubs_epi16(up, load(codes));
}

// Adds products, by an operation that takes FLOAT's small numbers as quickly as
// others: a multiplication alone takes longer on Zen 3.
DIGIT_INLINE void digits_add_float(__m256i bits, __m256 x, __m256* sum) {
  __m256 number = _mm256_castsi256_ps(
      _mm256_and_si256(bits, _mm256_set1_epi32(FP8_IN_FLOAT)));
  *sum = _mm256_fmadd_ps(number, x, *sum);
  DIGIT_KEEP(*sum);
}

// Adds eight numbers, which come from memory: this takes half of the time of a
// conversion from a register, which shuffles.
DIGIT_INLINE void digits_add_half(const __m128i* from, __m256 x, __m256* sum) {
  *sum = _mm256_fmadd_ps(_mm256_cvtph_ps(_mm_loadu_si128(from)), x, *sum);
  DIGIT_KEEP(*sum);
}

// Adds the products with codes 2 i + odd of 32 to sums[0] or, those with x[1]
// for conversions of HALF, to *second.
DIGIT_INLINE void digits_add_floats(digit_form_t form, const uint8_t* codes,
                                    int odd, const __m256 x[2], __m256* sum,
                                    __m256* second) {
  if (form == DIGITS_FP8) {
    __m256i words = digits_words(codes, odd, 4);
    digits_add_float(_mm256_slli_epi32(words, 16), x[0], sum);
    digits_add_float(words, x[1], sum);
    return;
  }
  __m256i halves = _mm256_and_si256(digits_words(codes, odd, 7),
                                    _mm256_set1_epi16(FP8_IN_HALF));
  // The compiler would take them from the register again.
  __asm__ volatile("" : "+m"(halves));
  digits_add_half((const __m128i*)&halves, x[0], sum);
  digits_add_half((const __m128i*)&halves + 1, x[1], second);
}

// Where the loops have element i of 32.
DIGIT_INLINE int digits_float_place(digit_form_t form, int i) {
  const int pair = i / 2;
  return i % 2 * 2 * LANES +
         (form == DIGITS_FP8 ? pair % 2 * LANES + pair / 2 : pair);
}

// The sums of 32 elements, or of a longer block, by their scales.
DIGIT_INLINE __m256 digits_scale_floats(const digit_loop_t* loop,
                                        const __m256 sums[2],
                                        const float* scales, __m256 unit,
                                        __m256 total) {
  __m256 first = _mm256_broadcast_ss(scales);
  if (loop->per == 8 && loop->form == DIGITS_FP8)
    first = _mm256_permutevar_ps(digits_pair(scales),
                                 _mm256_setr_epi32(0, 0, 0, 0, 1, 1, 1, 1));
  total = _mm256_fmadd_ps(sums[0], _mm256_mul_ps(first, unit), total);
  if (loop->form == DIGITS_FP8) return total;
  __m256 second = _mm256_broadcast_ss(scales + (loop->per == 8));
  return _mm256_fmadd_ps(sums[1], _mm256_mul_ps(second, unit), total);
}

DIGIT_INLINE void digits_floats(const digit_loop_t* loop, digit_rows_t* rows,
                                const digit_place_t* at,
                                const rabbet_digits_t* x) {
  const int per = loop->per;
  // Parts of 32 elements that a block has.
  const int each = per < 4 ? 4 / per : 1;
  __m256 sums[ROWS][2], unit = _mm256_broadcast_ss(x->unit);
  if (loop->form == DIGITS_FP8_HALF)
    unit = _mm256_mul_ps(unit, _mm256_set1_ps(FP8_HALF_UNIT));
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
#pragma GCC unroll 4
    for (int r = 0; r < at->count; ++r)
      if (i % each == 0) sums[r][0] = sums[r][1] = _mm256_setzero_ps();
#pragma GCC unroll 2
    for (int odd = 0; odd < 2; ++odd) {
      const float* from = x->numbers + i * 32 + odd * 2 * LANES;
      __m256 numbers[2] = {_mm256_loadu_ps(from),
                           _mm256_loadu_ps(from + LANES)};
      DIGIT_KEEP(numbers[0]);
      DIGIT_KEEP(numbers[1]);
#pragma GCC unroll 4
      for (int r = 0; r < at->count; ++r)
        digits_add_floats(loop->form,
                          rows->codes[at->first + r] + at->code + i * BYTES,
                          odd, numbers, &sums[r][0], &sums[r][1]);
    }
#pragma GCC unroll 4
    for (int r = 0; r < at->count; ++r) {
      const int row = at->first + r;
      const int64_t behind =
          loop->form == DIGITS_FP8 ? i * per / 4 : i * 32 >> loop->shift;
      if ((i + 1) % each != 0) continue;
      rows->sums[row] = digits_scale_floats(
          loop, sums[r], rows->scales[row] + at->scale + behind, unit,
          rows->sums[row]);
    }
  }
}

#endif  // RABBET_SRC_DEVICE_CPU_VECTORS_DIGITS_AVX2_FLOATS_H_
