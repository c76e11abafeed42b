// A chunk's products with codes of FP8, by products of floats.
#ifndef RABBET_SRC_DEVICE_CPU_VECTORS_DIGITS_AVX2_FLOATS_H_
#define RABBET_SRC_DEVICE_CPU_VECTORS_DIGITS_AVX2_FLOATS_H_

#include "device/cpu/vectors/digits_avx2.h"

// 32 codes as HALF: 0 to 7, 16 to 23, 8 to 15 and 24 to 31.
typedef struct digit_halves_t {
  __m256i part[2];
} digit_halves_t;

// The upper byte of a word, moved down, has the exponent and mantissa of HALF,
// and the sign twice.
DIGIT_INLINE digit_halves_t digits_halves(__m256i codes) {
  const __m256i zero = _mm256_setzero_si256();
  const __m256i once = _mm256_set1_epi16(~0x4000);
  __m256i low = _mm256_unpacklo_epi8(zero, codes);
  __m256i high = _mm256_unpackhi_epi8(zero, codes);
  return (digit_halves_t){{_mm256_and_si256(_mm256_srai_epi16(low, 1), once),
                           _mm256_and_si256(_mm256_srai_epi16(high, 1), once)}};
}

// Adds eight numbers, which come from memory: this takes half of the time of a
// conversion from a register, which shuffles.
DIGIT_INLINE void digits_add_halves(const digit_halves_t* halves, int eight,
                                    __m256 x, __m256* sum) {
  const __m128i* from = (const __m128i*)halves->part;
  *sum =
      _mm256_fmadd_ps(_mm256_cvtph_ps(_mm_loadu_si128(from + eight)), x, *sum);
}

// Adds the sums of the first and the last 16 of 32 elements, whose scales are
// from `scales` on.
DIGIT_INLINE __m256 digits_scale_floats(int per, const __m256 sums[2],
                                        const float* scales, __m256 total) {
  const __m256 unit = _mm256_set1_ps(FP8_UNIT);
  if (per < 8)
    return _mm256_fmadd_ps(_mm256_add_ps(sums[0], sums[1]),
                           _mm256_mul_ps(_mm256_broadcast_ss(scales), unit),
                           total);
  for (int i = 0; i < 2; ++i)
    total = _mm256_fmadd_ps(
        sums[i], _mm256_mul_ps(_mm256_broadcast_ss(scales + i), unit), total);
  return total;
}

DIGIT_INLINE void digits_floats(const digit_loop_t* loop, digit_rows_t* rows,
                                const digit_place_t* at,
                                const rabbet_digits_t* x) {
  // Parts of 32 elements that a block has.
  const int each = loop->per < 4 ? 4 / loop->per : 1;
  __m256 sums[ROWS][2];
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    digit_halves_t halves[ROWS];
    __m256 numbers[4];
#pragma GCC unroll 4
    for (int r = 0; r < at->count; ++r) {
      const int row = at->first + r;
      __m256i codes = load(rows->codes[row] + at->code + i * BYTES);
      rows->largest = _mm256_max_epu8(
          rows->largest, _mm256_or_si256(codes, _mm256_set1_epi8(INT8_MIN)));
      DIGIT_KEEP(rows->largest);
      halves[r] = digits_halves(codes);
      if (i % each == 0) sums[r][0] = sums[r][1] = _mm256_setzero_ps();
    }
    // The compiler would take them from registers again.
    __asm__ volatile("" : "+m"(halves));
    for (int j = 0; j < 4; ++j) {
      numbers[j] = _mm256_loadu_ps(x->numbers + i * 32 + j * LANES);
      DIGIT_KEEP(numbers[j]);
    }
#pragma GCC unroll 4
    for (int r = 0; r < at->count; ++r) {
      digits_add_halves(&halves[r], 0, numbers[0], &sums[r][0]);
      digits_add_halves(&halves[r], 1, numbers[2], &sums[r][1]);
      digits_add_halves(&halves[r], 2, numbers[1], &sums[r][0]);
      digits_add_halves(&halves[r], 3, numbers[3], &sums[r][1]);
      DIGIT_KEEP(sums[r][0]);
      DIGIT_KEEP(sums[r][1]);
    }
    if ((i + 1) % each != 0) continue;
#pragma GCC unroll 4
    for (int r = 0; r < at->count; ++r) {
      const int row = at->first + r;
      rows->sums[row] = digits_scale_floats(
          loop->per, sums[r], rows->scales[row] + at->scale + i * loop->per / 4,
          rows->sums[row]);
    }
  }
}

DIGIT_INLINE bool digits_found_nan(__m256i largest) {
  const __m256i nan = _mm256_set1_epi8(-1);
  return _mm256_movemask_epi8(_mm256_cmpeq_epi8(largest, nan)) != 0;
}

// NaN where a row has a NaN, which each of its sums is then; else 0.
static float digits_nan(const uint8_t* codes, int64_t depth) {
  for (int64_t k = 0; k < depth; ++k)
    if ((codes[k] & INT8_MAX) == INT8_MAX) return __builtin_nanf("");
  return 0;
}

#endif  // RABBET_SRC_DEVICE_CPU_VECTORS_DIGITS_AVX2_FLOATS_H_
