// A chunk's products with codes of INT4 and FP4, by products of bytes.
#ifndef RABBET_SRC_DEVICE_CPU_VECTORS_DIGITS_AVX2_BYTES_H_
#define RABBET_SRC_DEVICE_CPU_VECTORS_DIGITS_AVX2_BYTES_H_

#include "device/cpu/vectors/digits_avx2.h"

// Numbers from 0 on. `codes` are those of a register.
DIGIT_INLINE __m256i digits_number(digit_form_t form, __m256i codes,
                                   bool upper) {
  const __m256i table = shared_table(
      _mm_setr_epi8(12, 13, 14, 15, 16, 18, 20, 24, 12, 11, 10, 9, 8, 6, 4, 0));
  __m256i half = digits_half(codes, upper);
  return form == DIGITS_FP4 ? _mm256_shuffle_epi8(table, half) : half;
}

// Sums of 16 bits of the products with each digit.
typedef struct digit_pairs_t {
  __m256i digit[COUNT];
} digit_pairs_t;

// Sums of 32 bits, which may exceed them; those with the offset do not.
DIGIT_INLINE __m256i digits_sum(int count, const digit_pairs_t* pairs,
                                const int32_t* offset) {
  const __m256i one = _mm256_set1_epi16(1), base = _mm256_set1_epi16(256);
  __m256i sum = load(offset);
  if (count == COUNT) {
    __m256i high = _mm256_add_epi32(_mm256_madd_epi16(pairs->digit[0], base),
                                    _mm256_madd_epi16(pairs->digit[1], one));
    sum = _mm256_add_epi32(sum, _mm256_slli_epi32(high, 8));
  }
  return _mm256_add_epi32(sum, _mm256_madd_epi16(pairs->digit[count - 1], one));
}

DIGIT_INLINE void digits_small(const digit_loop_t* loop, digit_rows_t* rows,
                               const digit_place_t* at,
                               const rabbet_digits_t* x) {
  digit_pairs_t pairs[ROWS];
  digit_bytes_t codes[ROWS];
#pragma GCC unroll 4
  for (int r = 0; r < at->count; ++r)
    codes[r] = digits_codes(loop->per, rows, at, r, 0);
#pragma GCC unroll 4
  for (int part = 0; part < 2 * REGISTERS; ++part) {
    const int reg = part / 2, upper = part % 2;
    __m256i numbers[ROWS];
#pragma GCC unroll 4
    for (int r = 0; r < at->count; ++r) {
      __m256i* all = &codes[r].reg[reg];
      if (loop->form == DIGITS_INT4 && !upper)
        *all = _mm256_xor_si256(*all, _mm256_set1_epi8((char)0x88));
      numbers[r] = digits_number(loop->form, *all, upper);
    }
#pragma GCC unroll 3
    for (int d = 0; d < loop->count; ++d) {
      __m256i digits = load(x->digits[d][upper] + reg * BYTES);
      DIGIT_KEEP(digits);
#pragma GCC unroll 4
      for (int r = 0; r < at->count; ++r) {
        __m256i* sum = &pairs[r].digit[d];
        __m256i product = _mm256_maddubs_epi16(numbers[r], digits);
        *sum = part == 0 ? product : _mm256_add_epi16(*sum, product);
        DIGIT_KEEP(*sum);
      }
    }
  }
#pragma GCC unroll 4
  for (int r = 0; r < at->count; ++r) {
    const int row = at->first + r;
    rows->sums[row] = digits_fma(
        digits_sum(loop->count, &pairs[r], x->offset[0]),
        digits_scales(loop->per, rows->scales[row] + at->scale, x->unit),
        rows->sums[row]);
  }
}

#endif  // RABBET_SRC_DEVICE_CPU_VECTORS_DIGITS_AVX2_BYTES_H_
