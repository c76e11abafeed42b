// Products of a row's digits with packed weights on processors that have no
// products of bytes with sums of 32 bits.
//
// Codes of INT4 and FP4 are so small that sums of eight products with digits of
// 8 bits fit into 16 bits. Codes of 8 bits and the numbers of NF4 have 16 bits,
// and digits 12. Sums of a chunk stay whole numbers. Codes of FP8 become FLOAT,
// or HALF where this takes small numbers as quickly as others.
#include <stddef.h>

#if defined(__AVX2__)
#include <string.h>

#include "device/cpu/vectors/ahead.h"
#include "device/cpu/vectors/digits_avx2_bytes.h"
#include "device/cpu/vectors/digits_avx2_floats.h"
#include "device/cpu/vectors/digits_avx2_words.h"

// Adds the products of `count` chunks.
typedef void (*digit_chunks_t)(digit_rows_t* rows, int shift,
                               const rabbet_digits_t* x, int64_t count);

DIGIT_INLINE void digits_chunks(digit_form_t form, int digits, int per,
                                digit_rows_t* to, int shift,
                                const rabbet_digits_t* x, int64_t count) {
  const digit_loop_t loop = {form, digits, per, shift};
  const int64_t bytes = digits_has_nibbles(form) ? CHUNK / 2 : CHUNK;
  digit_rows_t rows;
  for (int r = 0; r < ROWS; ++r) {
    rows.codes[r] = to->codes[r];
    rows.scales[r] = to->scales[r];
    rows.sums[r] = to->sums[r];
    // One by one, as they were stored a moment ago: two at a time would wait.
    __asm__ volatile("" : "+r"(rows.codes[r]), "+r"(rows.scales[r]));
  }
  // Rows that share loads of digits, as far as registers go.
  const int together = digits_has_nibbles(form) ? 2 : ROWS;
  for (int64_t c = 0; c < count; ++c)
#pragma GCC unroll 2
    for (int r = 0; r < ROWS; r += together) {
      const digit_place_t at = {
          r, together, c * bytes,
          per == 1 || form == DIGITS_FP8_HALF ? c * CHUNK >> shift : c * per};
      for (int i = r; i < r + together; ++i) {
        rabbet_fetch_next(rows.codes[i] + at.code);
        if (bytes > 64) rabbet_fetch_next(rows.codes[i] + at.code + 64);
        rabbet_fetch_next_scales(rows.scales[i] + at.scale);
      }
      if (form == DIGITS_INT8 || form == DIGITS_UINT8)
        digits_large(&loop, &rows, &at, &x[c]);
      else if (form == DIGITS_NF4)
        digits_normal(&loop, &rows, &at, &x[c]);
      else if (form >= DIGITS_FP8)
        digits_floats(&loop, &rows, &at, &x[c]);
      else
        digits_small(&loop, &rows, &at, &x[c]);
    }
  memcpy(to->sums, rows.sums, sizeof(rows.sums));
}

// Subtracts what zero points do from the sums of rows of weights, side by side,
// as each addition waits for the one before; the last blocks' part follows.
DIGIT_INLINE void digits_subtract_zeros(const rabbet_packed_zeros_t* zeros,
                                        const int64_t at[ROWS],
                                        const float* const scales[ROWS],
                                        __m256 sums[ROWS]) {
  const __m256 offset = _mm256_set1_ps(zeros->offset);
  const int8_t* codes[ROWS];
  for (int r = 0; r < ROWS; ++r)
    codes[r] = zeros->codes + at[r] * zeros->blocks;
  for (int64_t b = 0; b + LANES <= zeros->blocks; b += LANES) {
    const __m256 x = _mm256_loadu_ps(zeros->sums + b);
#pragma GCC unroll 4
    for (int r = 0; r < ROWS; ++r) {
      __m256i points =
          _mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i*)(codes[r] + b)));
      sums[r] = _mm256_fnmadd_ps(
          _mm256_mul_ps(_mm256_loadu_ps(scales[r] + b), x),
          _mm256_add_ps(_mm256_cvtepi32_ps(points), offset), sums[r]);
    }
  }
}
static float digits_last_zeros(const rabbet_packed_zeros_t* zeros,
                               const int8_t* codes, const float* scales) {
  float total = 0;
  for (int64_t b = zeros->blocks / LANES * LANES; b < zeros->blocks; ++b)
    total += scales[b] * ((float)codes[b] + zeros->offset) * zeros->sums[b];
  return total;
}

DIGIT_INLINE __m128 digits_sums(const __m256 sums[ROWS]) {
  __m256 pairs[2];
  for (int i = 0; i < 2; ++i)
    pairs[i] = _mm256_hadd_ps(sums[2 * i], sums[2 * i + 1]);
  __m256 all = _mm256_hadd_ps(pairs[0], pairs[1]);
  return _mm_add_ps(_mm256_castps256_ps128(all), _mm256_extractf128_ps(all, 1));
}

// A loop for each number of scales in a chunk: 1, 2, 4 and 8.
typedef struct digit_kind_t {
  bool has_nibbles;
  digit_chunks_t chunks[4];
} digit_kind_t;

// The rest of rows behind whole chunks.
typedef struct digit_last_t {
  uint8_t codes[ROWS][CHUNK];
  float scales[ROWS][CHUNK / RABBET_PACKED_BLOCK];
} digit_last_t;

// Nothing behind a row's codes and scales is read, and its digits are 0 there.
static void digits_copy_last(const digit_kind_t* kind, const rabbet_packed_t* w,
                             digit_last_t* last, digit_rows_t* rows) {
  const int shift = rabbet_packed_shift(w);
  const int64_t whole = w->depth / CHUNK * CHUNK, rest = w->depth - whole;
  const int64_t first = whole >> shift;
  const int64_t blocks = ((w->depth - 1) >> shift) + 1 - first;
  memset(last, 0, sizeof(*last));
  for (int r = 0; r < ROWS; ++r) {
    memcpy(last->codes[r],
           rows->codes[r] + (kind->has_nibbles ? whole / 2 : whole),
           (size_t)(kind->has_nibbles ? (rest + 1) / 2 : rest));
    memcpy(last->scales[r], rows->scales[r] + first,
           (size_t)blocks * sizeof(float));
    rows->codes[r] = last->codes[r];
    rows->scales[r] = last->scales[r];
  }
}

// Rows n, n + apart and so on; `count` of them, at most ROWS.
static void digits_rows(const digit_kind_t* kind, const rabbet_packed_t* w,
                        const rabbet_packed_zeros_t* zeros,
                        const rabbet_digits_t* x, int64_t n, int64_t apart,
                        int count, float* y) {
  const int64_t whole = w->depth / CHUNK;
  const int shift = rabbet_packed_shift(w);
  digit_chunks_t chunks = kind->chunks[__builtin_ctz((unsigned)digits_per(w))];
  const float* scales[ROWS];
  int64_t at[ROWS];
  float found[ROWS];
  digit_last_t last;
  digit_rows_t rows;
  for (int r = 0; r < ROWS; ++r) {
    at[r] = n + (r < count ? r : count - 1) * apart;
    rows.codes[r] = w->codes + at[r] * w->stride;
    // Four divisions take as long as some chunks.
    const int64_t row = w->rows == 1 ? at[r] : at[r] / w->rows;
    rows.scales[r] = scales[r] = w->scales + row * w->scale_stride;
    rows.sums[r] = _mm256_setzero_ps();
    if (zeros) rabbet_fetch_zeros(zeros, at[r]);
  }
  chunks(&rows, shift, x, whole);
  if (w->depth % CHUNK != 0) {
    digits_copy_last(kind, w, &last, &rows);
    chunks(&rows, shift, x + whole, 1);
  }
  if (zeros) digits_subtract_zeros(zeros, at, scales, rows.sums);
  _mm_storeu_ps(found, digits_sums(rows.sums));
  for (int r = 0; r < count; ++r) {
    y[at[r]] = found[r];
    if (zeros)
      y[at[r]] -= digits_last_zeros(zeros, zeros->codes + at[r] * zeros->blocks,
                                    scales[r]);
  }
}

static void digits_dots(const digit_kind_t* kind, const rabbet_packed_t* w,
                        const rabbet_packed_zeros_t* zeros,
                        const rabbet_digits_t* x, int64_t begin, int64_t end,
                        float* y) {
  const int64_t apart = (end - begin) / ROWS;
  const int64_t behind = begin + apart * ROWS;
  for (int64_t n = begin; n < begin + apart; ++n)
    digits_rows(kind, w, zeros, x, n, apart, ROWS, y);
  if (behind < end)
    digits_rows(kind, w, zeros, x, behind, 1, (int)(end - behind), y);
}

#define DIGIT_CHUNKS(name, form, digits, per)                         \
  static void name##_##per(digit_rows_t* rows, int shift,             \
                           const rabbet_digits_t* x, int64_t count) { \
    digits_chunks(form, digits, per, rows, shift, x, count);          \
  }
#define DIGIT_DOTS(name, form, digits)                                   \
  DIGIT_CHUNKS(name, form, digits, 1)                                    \
  DIGIT_CHUNKS(name, form, digits, 2)                                    \
  DIGIT_CHUNKS(name, form, digits, 4)                                    \
  DIGIT_CHUNKS(name, form, digits, 8)                                    \
  static void name(                                                      \
      const rabbet_packed_t* w, const rabbet_packed_zeros_t* zeros,      \
      const rabbet_digits_t* x, int64_t begin, int64_t end, float* y) {  \
    static const digit_kind_t kind = {                                   \
        (form) <= DIGITS_NF4, {name##_1, name##_2, name##_4, name##_8}}; \
    digits_dots(&kind, w, zeros, x, begin, end, y);                      \
  }
DIGIT_DOTS(digits_int4, DIGITS_INT4, COUNT)
DIGIT_DOTS(digits_int4_rounded, DIGITS_INT4, 1)
DIGIT_DOTS(digits_fp4, DIGITS_FP4, COUNT)
DIGIT_DOTS(digits_fp4_rounded, DIGITS_FP4, 1)
DIGIT_DOTS(digits_nf4, DIGITS_NF4, COUNT)
DIGIT_DOTS(digits_int8, DIGITS_INT8, COUNT)
DIGIT_DOTS(digits_uint8, DIGITS_UINT8, COUNT)
DIGIT_DOTS(digits_fp8, DIGITS_FP8, COUNT)
DIGIT_CHUNKS(digits_fp8_half, DIGITS_FP8_HALF, COUNT, 4)
DIGIT_CHUNKS(digits_fp8_half, DIGITS_FP8_HALF, COUNT, 8)
static void digits_fp8_half(const rabbet_packed_t* w,
                            const rabbet_packed_zeros_t* zeros,
                            const rabbet_digits_t* x, int64_t begin,
                            int64_t end, float* y) {
  static const digit_kind_t kind = {false,
                                    {digits_fp8_half_4, digits_fp8_half_4,
                                     digits_fp8_half_4, digits_fp8_half_8}};
  digits_dots(&kind, w, zeros, x, begin, end, y);
}

// A program may have asked for small numbers to be 0 in this thread, which
// -ffast-math does, too.
static void digits_fp8_small(const rabbet_packed_t* w,
                             const rabbet_packed_zeros_t* zeros,
                             const rabbet_digits_t* x, int64_t begin,
                             int64_t end, float* y) {
  enum { SMALL_ARE_ZEROS = 0x40 };
  const unsigned mode = _mm_getcsr();
  _mm_setcsr(mode & ~(unsigned)SMALL_ARE_ZEROS);
  digits_fp8(w, zeros, x, begin, end, y);
  _mm_setcsr(mode);
}

// One function for blocks of all lengths.
#define BOTH(name) \
  { name, name }
#define LOOPS(convert_function, fp8)                                           \
  {                                                                            \
    .convert = (convert_function),                                             \
    .dots = {                                                                  \
        [RABBET_PACKED_INT4] = {BOTH(digits_int4), BOTH(digits_int4_rounded)}, \
        [RABBET_PACKED_FP4] = {BOTH(digits_fp4), BOTH(digits_fp4_rounded)},    \
        [RABBET_PACKED_NF4] = {BOTH(digits_nf4)},                              \
        [RABBET_PACKED_INT8] = {BOTH(digits_int8)},                            \
        [RABBET_PACKED_UINT8] = {BOTH(digits_uint8)},                          \
        [RABBET_PACKED_FP8] = {BOTH(fp8)}},                                    \
  }
const rabbet_digit_loops_t rabbet_digits_avx2 =
    LOOPS(rabbet_digits_avx2_convert, digits_fp8_small);
const rabbet_digit_loops_t rabbet_digits_avx2_halves =
    LOOPS(rabbet_digits_avx2_convert_halves, digits_fp8_half);
#endif
