// Shared by the loops of digits_avx2.c and the rows that they multiply: kinds
// of codes, and their order in registers. For files that are
// compiled for AVX2.
#ifndef RABBET_SRC_DEVICE_CPU_VECTORS_DIGITS_AVX2_H_
#define RABBET_SRC_DEVICE_CPU_VECTORS_DIGITS_AVX2_H_

#include <immintrin.h>

#include "device/cpu/vectors/digits.h"

// Each kind of weights has a loop of its own, with all constants known.
#define DIGIT_INLINE static inline __attribute__((always_inline))

enum {
  CHUNK = RABBET_DIGIT_CHUNK,
  COUNT = RABBET_DIGIT_COUNT,
  ROWS = 4,       // of weights at the same time
  LANES = 8,      // of 32 bits
  BYTES = 32,     // of a register
  WORDS = 16,     // of a register
  REGISTERS = 2,  // with a chunk's codes of 4 bits
  // A word's lower digit of numbers of 24 bits.
  WORD_BITS = 12,
};

typedef enum digit_form_t {
  DIGITS_INT4,
  DIGITS_FP4,  // doubled, so that they are whole
  DIGITS_NF4,
  DIGITS_INT8,
  DIGITS_UINT8,
  DIGITS_FP8,  // none: products with the row's floats
  // The same for processors that take longer for FLOAT's small numbers: codes
  // are converted as HALF.
  DIGITS_FP8_HALF,
} digit_form_t;

DIGIT_INLINE bool digits_has_nibbles(digit_form_t form) {
  return form <= DIGITS_NF4;
}
// Scales that begin in a chunk; 1: or before it.
DIGIT_INLINE int digits_per(const rabbet_packed_t* w) {
  return w->block < CHUNK && w->block < w->depth ? (int)(CHUNK / w->block) : 1;
}

DIGIT_INLINE __m256i load(const void* p) {
  return _mm256_loadu_si256(p);
}
DIGIT_INLINE __m256i shared_table(__m128i table) {
  return _mm256_broadcastsi128_si256(table);
}

// ---- Numbers of NF4 ---------------------------------------------------------

// A number is (whole + part / 64) / NF4_UNIT, with an error of at most 1.3e-7:
// of the units below 2^15 this one has the smallest. `part` is multiplied by
// the first 8 bits of the row's numbers.
enum { NF4_UNIT = 29513, NF4_PARTS = 64 };
// The bytes of `whole`.
#define NF4_LOW \
  -73, -67, 119, 120, 53, -78, -128, 0, 44, -115, 95, -12, -50, -36, 88, 73
#define NF4_HIGH \
  -116, -81, -61, -46, -33, -22, -11, 0, 9, 18, 28, 38, 50, 64, 83, 115
#define NF4_PART 0, 17, 33, 51, 18, 50, 54, 0, 42, 34, 33, 57, 43, 33, 40, 0

// ---- Order -----------------------------------------------------------------

// Two registers take 64 bytes of codes so that each lane of 32 bits, of both,
// has codes of one block: their sums are added before they are scaled.
// `blocks`: 1, 2, 4 or 8 that the bytes have.
typedef struct digit_bytes_t {
  __m256i reg[REGISTERS];
} digit_bytes_t;

DIGIT_INLINE digit_bytes_t digits_in_order(int blocks, const uint8_t* at) {
  enum { UPPER_HALF = 0xf0, EVEN = 0x88, ODD = 0xdd };
  __m256i low = load(at), high = load(at + BYTES);
  if (blocks == 1) return (digit_bytes_t){{low, high}};
  if (blocks == 2) {
    __m256i middle = load(at + BYTES / 2);
    return (digit_bytes_t){{_mm256_blend_epi32(low, middle, UPPER_HALF),
                            _mm256_blend_epi32(middle, high, UPPER_HALF)}};
  }
  if (blocks == 4)
    return (digit_bytes_t){
        {_mm256_unpacklo_epi64(low, high), _mm256_unpackhi_epi64(low, high)}};
  __m256 a = _mm256_castsi256_ps(low), b = _mm256_castsi256_ps(high);
  return (digit_bytes_t){{_mm256_castps_si256(_mm256_shuffle_ps(a, b, EVEN)),
                          _mm256_castps_si256(_mm256_shuffle_ps(a, b, ODD))}};
}

// Two floats, again and again.
DIGIT_INLINE __m256 digits_pair(const float* two) {
  return _mm256_castsi256_ps(
      _mm256_broadcastq_epi64(_mm_loadl_epi64((const __m128i*)two)));
}

// The scales of the lanes, by their units.
DIGIT_INLINE __m256 digits_scales(int blocks, const float* scales,
                                  const float* units) {
  if (blocks == 1)
    return _mm256_mul_ps(_mm256_broadcast_ss(scales),
                         _mm256_broadcast_ss(units));
  if (blocks == 2)
    return _mm256_permutevar_ps(
        _mm256_mul_ps(digits_pair(scales), digits_pair(units)),
        _mm256_setr_epi32(0, 0, 0, 0, 1, 1, 1, 1));
  if (blocks == 4)
    return _mm256_permutevar_ps(
        _mm256_mul_ps(_mm256_broadcast_ps((const __m128*)scales),
                      _mm256_broadcast_ps((const __m128*)units)),
        _mm256_setr_epi32(0, 0, 2, 2, 1, 1, 3, 3));
  __m256 all = _mm256_mul_ps(_mm256_loadu_ps(scales), _mm256_loadu_ps(units));
  return _mm256_castpd_ps(
      _mm256_permute4x64_pd(_mm256_castps_pd(all), 0xd8 /* 0, 2, 1, 3 */));
}

// Blocks in the 64 bytes of one sum: NF4 has a sum for each register from 4 on,
// which are two blocks of its own order then.
DIGIT_INLINE int digits_blocks(digit_form_t form, int per) {
  if (form == DIGITS_NF4) return per <= 2 ? per : 1;
  return digits_has_nibbles(form) || per == 1 ? per : per / 2;
}

// ---- Chunks ----------------------------------------------------------------

// The work of a loop on a chunk. `per`: scales that begin in it; for
// DIGITS_FP8_HALF at most so many, and `shift` tells.
typedef struct digit_loop_t {
  digit_form_t form;
  int count, per, shift;
} digit_loop_t;

DIGIT_INLINE __m256 digits_fma(__m256i sums, __m256 scales, __m256 total) {
  return _mm256_fmadd_ps(_mm256_cvtepi32_ps(sums), scales, total);
}
DIGIT_INLINE __m256i digits_half(__m256i codes, bool upper) {
  return _mm256_and_si256(upper ? _mm256_srli_epi16(codes, 4) : codes,
                          _mm256_set1_epi8(15));
}

// Compilers hoist loads and products until registers are short, and then keep
// them in memory: this fixes the place of a value.
#define DIGIT_KEEP(value) __asm__ volatile("" : "+x"(value))

// Rows of weights that are multiplied at the same time.
typedef struct digit_rows_t {
  const uint8_t* codes[ROWS];
  const float* scales[ROWS];
  __m256 sums[ROWS];
} digit_rows_t;

// Of these, `count` from the first on, at a chunk.
typedef struct digit_place_t {
  int first, count;
  int64_t code, scale;
} digit_place_t;

DIGIT_INLINE digit_bytes_t digits_codes(int blocks, const digit_rows_t* rows,
                                        const digit_place_t* at, int row,
                                        int64_t behind) {
  return digits_in_order(blocks,
                         rows->codes[at->first + row] + at->code + behind);
}

// ---- The row ---------------------------------------------------------------

// `convert` of rabbet_digits_avx2 and of rabbet_digits_avx2_halves.
bool rabbet_digits_avx2_convert(rabbet_packed_type_t type,
                                const rabbet_packed_t* w, int count,
                                const float* x, rabbet_digits_t* out_digits);
bool rabbet_digits_avx2_convert_halves(rabbet_packed_type_t type,
                                       const rabbet_packed_t* w, int count,
                                       const float* x,
                                       rabbet_digits_t* out_digits);

#endif  // RABBET_SRC_DEVICE_CPU_VECTORS_DIGITS_AVX2_H_
