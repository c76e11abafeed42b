// Products of a row's digits with packed weights by AVX512-VNNI.
#include <stddef.h>

#if defined(__AVX512VNNI__)
#include <assert.h>
#include <immintrin.h>
#include <string.h>

#include "device/cpu/vectors/ahead.h"
#include "device/cpu/vectors/digits.h"
#include "device/cpu/vectors/digits_numbers.h"

// Each kind of weights has loops of its own, with all constants known.
#define DIGIT_INLINE static inline __attribute__((always_inline))

typedef __m512i wi;
typedef __m512 wf;
typedef __mmask8 wi_some;

DIGIT_INLINE wi wi_load(const void* p) {
  return _mm512_loadu_si512(p);
}
DIGIT_INLINE wi wi_load_some(const uint8_t* p, int64_t count) {
  __mmask64 some = count >= 64  ? UINT64_MAX
                   : count <= 0 ? 0
                                : (UINT64_C(1) << count) - 1;
  return some ? _mm512_maskz_loadu_epi8(some, p) : _mm512_setzero_si512();
}
DIGIT_INLINE void wi_store(void* p, wi a) {
  _mm512_storeu_si512(p, a);
}
DIGIT_INLINE wi wi_all(uint32_t a) {
  return _mm512_set1_epi32((int)a);
}
DIGIT_INLINE wi wi_add(wi a, wi b) {
  return _mm512_add_epi32(a, b);
}
DIGIT_INLINE wi wi_negate(wi a) {
  return _mm512_sub_epi32(_mm512_setzero_si512(), a);
}
DIGIT_INLINE wi wi_shift(wi a, int bits) {
  return _mm512_slli_epi32(a, (unsigned)bits);
}
DIGIT_INLINE wi wi_flip_signs(wi bytes) {
  return _mm512_xor_si512(bytes, _mm512_set1_epi8(INT8_MIN));
}
// The lower or the upper codes of bytes as numbers: INT4 and 8, or doubled FP4
// and 12.
DIGIT_INLINE wi wi_nibbles(wi codes, bool upper, bool is_fp4) {
  const __m512i most = _mm512_set1_epi8(15), middle = _mm512_set1_epi8(8);
  const __m512i table = _mm512_broadcast_i32x4(
      _mm_setr_epi8(12, 13, 14, 15, 16, 18, 20, 24, 12, 11, 10, 9, 8, 6, 4, 0));
  if (upper) codes = _mm512_srli_epi16(codes, 4);
  if (is_fp4) return _mm512_shuffle_epi8(table, _mm512_and_si512(codes, most));
  return _mm512_ternarylogic_epi32(codes, middle, most, 0x28);
}
DIGIT_INLINE wi wi_dot(wi sum, wi codes, wi digits) {
  return _mm512_dpbusd_epi32(sum, codes, digits);
}
DIGIT_INLINE wi wi_dot_both(wi sum, const wi codes[2], const wi digits[2]) {
  return wi_dot(wi_dot(sum, codes[0], digits[0]), codes[1], digits[1]);
}

DIGIT_INLINE wf wf_of(wi a) {
  return _mm512_cvtepi32_ps(a);
}
DIGIT_INLINE wf wf_all(float a) {
  return _mm512_set1_ps(a);
}
DIGIT_INLINE wf wf_mul(wf a, wf b) {
  return _mm512_mul_ps(a, b);
}
DIGIT_INLINE wf wf_fma(wf a, wf b, wf c) {
  return _mm512_fmadd_ps(a, b, c);
}
DIGIT_INLINE float wf_sum(wf a) {
  return _mm512_reduce_add_ps(a);
}

DIGIT_INLINE wi_some wi_first(int count) {
  return (wi_some)((1u << count) - 1);
}
// Scales by units, of which each lane has one.
DIGIT_INLINE wf wf_scales(const float* scales, const float* units, wi_some some,
                          wi lane) {
  __m256 scaled = _mm256_mul_ps(_mm256_maskz_loadu_ps(some, scales),
                                _mm256_loadu_ps(units));
  return _mm512_permutexvar_ps(lane, _mm512_castps256_ps512(scaled));
}

enum {
  FLOATS = 16,
  CHUNK = RABBET_DIGIT_CHUNK,
  HALF = CHUNK / 2,
  COUNT = RABBET_DIGIT_COUNT,
};

// ---- Codes ------------------------------------------------------------------

// How codes become unsigned numbers of 8 bits, and how the sums are made of
// them.
typedef enum digit_form_t {
  DIGITS_INT4,
  DIGITS_FP4,    // halves, from a table
  DIGITS_INT8,   // a chunk has one scale
  DIGITS_UINT8,  // so here
  DIGITS_INT8_BLOCKS,
  DIGITS_UINT8_BLOCKS,
} digit_form_t;

DIGIT_INLINE bool digits_has_nibbles(digit_form_t form) {
  return form <= DIGITS_FP4;
}
DIGIT_INLINE bool digits_is_signed(digit_form_t form) {
  return form == DIGITS_INT8 || form == DIGITS_INT8_BLOCKS;
}
DIGIT_INLINE bool digits_has_byte_blocks(digit_form_t form) {
  return form >= DIGITS_INT8_BLOCKS;
}
DIGIT_INLINE bool digits_has_blocks(const rabbet_packed_t* w) {
  return w->block < CHUNK && w->block < w->depth;
}

static digit_form_t digits_form(rabbet_packed_type_t type,
                                const rabbet_packed_t* w) {
  if (type == RABBET_PACKED_INT4) return DIGITS_INT4;
  if (type == RABBET_PACKED_FP4) return DIGITS_FP4;
  bool is_signed = type == RABBET_PACKED_INT8;
  if (digits_has_blocks(w))
    return is_signed ? DIGITS_INT8_BLOCKS : DIGITS_UINT8_BLOCKS;
  return is_signed ? DIGITS_INT8 : DIGITS_UINT8;
}

// The number for a code that means zero.
DIGIT_INLINE int digits_middle(digit_form_t form) {
  return form == DIGITS_INT4      ? 8
         : form == DIGITS_FP4     ? 12
         : digits_is_signed(form) ? 128
                                  : 0;
}

// Numbers to multiply with digits [0] and [1] of a chunk. `high`: for codes of
// 8 bits, those behind the first 64.
typedef struct digit_codes_t {
  wi half[2];
} digit_codes_t;

DIGIT_INLINE digit_codes_t digits_codes(digit_form_t form, wi low, wi high) {
  digit_codes_t codes = {{low, high}};
  if (digits_has_nibbles(form)) {
    codes.half[0] = wi_nibbles(low, false, form == DIGITS_FP4);
    codes.half[1] = wi_nibbles(low, true, form == DIGITS_FP4);
  }
  for (int i = 0; i < 2 && digits_is_signed(form); ++i)
    codes.half[i] = wi_flip_signs(codes.half[i]);
  return codes;
}

// A chunk's digits in registers.
typedef struct digit_factors_t {
  wi digits[COUNT][2], offset[4];
} digit_factors_t;

DIGIT_INLINE digit_factors_t digits_load(digit_form_t form, int count,
                                         const rabbet_digits_t* x) {
  digit_factors_t to;
  int offsets = digits_has_nibbles(form)       ? 1
                : digits_has_byte_blocks(form) ? 4
                                               : 2;
  for (int d = 0; d < count; ++d)
    for (int i = 0; i < 2; ++i)
      to.digits[d][i] = wi_load(x->digits[d][i]);
  for (int i = 0; i < offsets; ++i)
    to.offset[i] = wi_load(x->offset[i]);
  return to;
}

DIGIT_INLINE wi digits_add(wi sum, const digit_codes_t* codes,
                           const digit_factors_t* x, int d) {
  return wi_dot_both(sum, codes->half, x->digits[d]);
}

// The sums of codes of 4 bits times numbers, by lanes of 8 elements: 32 bits
// hold them.
DIGIT_INLINE wi digits_sum(int count, const digit_codes_t* codes,
                           const digit_factors_t* x) {
  wi sum = x->offset[0];
  if (count == COUNT) {
    wi high = digits_add(wi_all(0), codes, x, 0);
    high = digits_add(wi_shift(high, 8), codes, x, 1);
    sum = wi_add(sum, wi_shift(high, 8));
  }
  return digits_add(sum, codes, x, count == COUNT ? 2 : 0);
}

// The sums as floats. Those of 8 bits in blocks have lanes of 4 elements ([1]:
// behind the first 64); 32 bits hold the sum of the highest digit, and that of
// the others.
DIGIT_INLINE void digits_product(digit_form_t form, int count,
                                 const digit_codes_t* codes,
                                 const digit_factors_t* x, wf out_sums[2]) {
  if (digits_has_nibbles(form))
    out_sums[0] = wf_of(digits_sum(count, codes, x));
  if (digits_has_nibbles(form)) return;
  const wf base = wf_all(65536);
  for (int i = 0; i < (digits_has_byte_blocks(form) ? 2 : 1); ++i) {
    wi high = x->offset[2 * i], low = wi_all(0);
    wi last = x->offset[2 * i + 1];
    if (digits_has_byte_blocks(form)) {
      high = wi_dot(high, codes->half[i], x->digits[0][i]);
      low = wi_dot(low, codes->half[i], x->digits[1][i]);
      last = wi_dot(last, codes->half[i], x->digits[2][i]);
    } else {
      high = digits_add(high, codes, x, 0);
      low = digits_add(low, codes, x, 1);
      last = digits_add(last, codes, x, 2);
    }
    low = wi_add(wi_shift(low, 8), last);
    out_sums[i] = wf_fma(wf_of(high), base, wf_of(low));
  }
}

// ---- The row ---------------------------------------------------------------

static void digits_lay_out(digit_form_t form, int count,
                           int8_t all[COUNT][CHUNK], rabbet_digits_t* out) {
  if (!digits_has_nibbles(form)) {
    memcpy(out->digits, all, sizeof(out->digits));
    return;
  }
  for (int d = 0; d < count; ++d)
    for (int i = 0; i < HALF; ++i) {
      out->digits[d][0][i] = all[d][2 * i];
      out->digits[d][1][i] = all[d][2 * i + 1];
    }
}

// The sum that the offset of the codes adds, negated.
static void digits_find_offset(digit_form_t form, int count,
                               rabbet_digits_t* out) {
  const wi middle = wi_all((uint32_t)digits_middle(form) * 0x01010101u);
  memset(out->offset, 0, sizeof(out->offset));
  if (digits_has_nibbles(form)) {
    const digit_codes_t codes = {{middle, middle}};
    const digit_factors_t x = digits_load(form, count, out);
    wi_store(out->offset[0], wi_negate(digits_sum(count, &codes, &x)));
  }
  const bool by_halves = digits_has_byte_blocks(form);
  for (int i = 0; i < 2 && !digits_has_nibbles(form); ++i) {
    wi sums[COUNT];
    for (int d = 0; d < COUNT; ++d)
      sums[d] = wi_dot(wi_all(0), middle, wi_load(out->digits[d][i]));
    wi low = wi_add(wi_shift(sums[1], 8), sums[2]);
    int32_t(*to)[FLOATS] = &out->offset[by_halves ? 2 * i : 0];
    wi_store(to[0], wi_add(wi_load(to[0]), wi_negate(sums[0])));
    wi_store(to[1], wi_add(wi_load(to[1]), wi_negate(low)));
  }
}

// Elements from `begin` on have one unit.
static bool digits_convert_part(int count, const float* x, int begin,
                                int length, int8_t all[COUNT][CHUNK],
                                float* out_unit) {
  int32_t numbers[CHUNK];
  if (!rabbet_digit_numbers(count, x + begin, length, numbers, out_unit))
    return false;
  for (int d = count; d-- > 0;)
    for (int i = 0; i < length; ++i) {
      int8_t digit = (int8_t)(uint8_t)numbers[i];
      all[d][begin + i] = digit;
      numbers[i] = (numbers[i] - digit) >> 8;
    }
  return true;
}

static bool digits_chunk(digit_form_t form, int block, int count,
                         const float* x, rabbet_digits_t* out) {
  int8_t all[COUNT][CHUNK];
  int each = count == COUNT ? CHUNK : block;
  for (int begin = 0; begin < CHUNK; begin += each) {
    float unit = 0;
    if (!digits_convert_part(count, x, begin, each, all, &unit)) return false;
    if (form == DIGITS_FP4) unit /= 2;
    for (int i = begin / block; i * block < begin + each; ++i)
      out->unit[i] = unit;
  }
  digits_lay_out(form, count, all, out);
  digits_find_offset(form, count, out);
  return true;
}

static bool digits_convert(rabbet_packed_type_t type, const rabbet_packed_t* w,
                           int count, const float* x, rabbet_digits_t* out) {
  digit_form_t form = digits_form(type, w);
  int block = digits_has_blocks(w) ? (int)w->block : CHUNK;
  int64_t k = 0;
  for (; k + CHUNK <= w->depth; k += CHUNK)
    if (!digits_chunk(form, block, count, x + k, out++)) return false;
  if (k == w->depth) return true;
  float rest[CHUNK] = {0};
  memcpy(rest, x + k, (size_t)(w->depth - k) * sizeof(*x));
  return digits_chunk(form, block, count, rest, out);
}

// ---- Rows of weights -------------------------------------------------------

enum { ROWS = 4 };

// The scales of the blocks in a chunk, and the one of each lane.
typedef struct digit_scales_t {
  wi lane[2];  // [1]: bytes in blocks behind the first 64
  wi_some some;
} digit_scales_t;

static digit_scales_t digits_scales(digit_form_t form, const rabbet_packed_t* w,
                                    int64_t left) {
  int per = digits_has_blocks(w) ? (int)(CHUNK / w->block) : 1;
  digit_scales_t to;
  for (int half = 0; half < 2; ++half) {
    int32_t lane[FLOATS];
    for (int i = 0; i < FLOATS; ++i)
      lane[i] = digits_has_byte_blocks(form) ? (half * FLOATS + i) * per / 32
                                             : i * per / FLOATS;
    to.lane[half] = wi_load(lane);
  }
  to.some = wi_first((int)(left < per ? left : per));
  return to;
}

// Rows of weights that are multiplied at the same time.
typedef struct digit_rows_t {
  const uint8_t* codes[ROWS];
  const float* scales[ROWS];
  wf sums[ROWS];
} digit_rows_t;

// Where a walk is.
typedef struct digit_walk_t {
  digit_form_t form;
  int count;
  bool one_scale;  // for a whole chunk
  int shift;       // of blocks
  const rabbet_packed_t* w;
  const rabbet_packed_zeros_t* zeros;
  const rabbet_digits_t* x;
  digit_scales_t scales, rest_scales;
} digit_walk_t;

DIGIT_INLINE void digits_step(const digit_walk_t* walk,
                              const digit_scales_t* to,
                              const rabbet_digits_t* x,
                              const digit_factors_t* factors, wi low, wi high,
                              const float* scales, wf* sum) {
  const digit_codes_t codes = digits_codes(walk->form, low, high);
  wf products[2];
  digits_product(walk->form, walk->count, &codes, factors, products);
  if (walk->one_scale) {
    *sum =
        wf_fma(products[0], wf_mul(wf_all(*scales), wf_all(x->unit[0])), *sum);
    return;
  }
  for (int i = 0; i < (digits_has_byte_blocks(walk->form) ? 2 : 1); ++i)
    *sum = wf_fma(products[i],
                  wf_scales(scales, x->unit, to->some, to->lane[i]), *sum);
}

// Of the rows n, n + apart and so on; the zero points were fetched when the
// rows began, their scales are in the cache.
DIGIT_INLINE void digits_subtract_zeros(const rabbet_packed_zeros_t* zeros,
                                        int64_t n, int rows, int64_t apart,
                                        digit_rows_t* row) {
  const wf offset = wf_all(zeros->offset);
  for (int64_t b = 0; b < zeros->blocks; b += FLOATS) {
    const int64_t left = zeros->blocks - b;
    const __mmask16 some =
        left < FLOATS ? (__mmask16)((1u << left) - 1) : UINT16_MAX;
    const wf x = _mm512_maskz_loadu_ps(some, zeros->sums + b);
#pragma GCC unroll 4
    for (int r = 0; r < rows; ++r) {
      const int8_t* codes = zeros->codes + (n + r * apart) * zeros->blocks + b;
      const wf points =
          wf_of(_mm512_cvtepi8_epi32(_mm_maskz_loadu_epi8(some, codes)));
      const wf scales = _mm512_maskz_loadu_ps(some, row->scales[r] + b);
      row->sums[r] = _mm512_fnmadd_ps(
          wf_mul(scales, x), _mm512_add_ps(points, offset), row->sums[r]);
    }
  }
}

DIGIT_INLINE void digits_rows(const digit_walk_t* walk, int64_t n, int rows,
                              int64_t apart, float* y) {
  const rabbet_packed_t* w = walk->w;
  bool nibbles = digits_has_nibbles(walk->form);
  int64_t bytes = nibbles ? HALF : CHUNK;
  int64_t whole = w->depth / CHUNK, rest = w->depth % CHUNK;
  digit_rows_t row;
  for (int r = 0; r < rows; ++r) {
    const int64_t at = n + r * apart;
    row.codes[r] = w->codes + at * w->stride;
    // Four divisions take as long as some chunks.
    row.scales[r] =
        w->scales + (w->rows == 1 ? at : at / w->rows) * w->scale_stride;
    row.sums[r] = wf_all(0);
    if (walk->zeros) rabbet_fetch_zeros(walk->zeros, at);
  }
  for (int64_t c = 0; c < whole; ++c) {
    const digit_factors_t x = digits_load(walk->form, walk->count, &walk->x[c]);
    int64_t scale = c * CHUNK >> walk->shift;
#pragma GCC unroll 4
    for (int r = 0; r < rows; ++r) {
      const uint8_t* at = row.codes[r] + c * bytes;
      rabbet_fetch_ahead(at);
      if (!nibbles) rabbet_fetch_ahead(at + HALF);
      rabbet_fetch_scales_ahead(row.scales[r] + scale);
      digits_step(walk, &walk->scales, &walk->x[c], &x, wi_load(at),
                  nibbles ? wi_all(0) : wi_load(at + HALF),
                  row.scales[r] + scale, &row.sums[r]);
    }
  }
  // Digits behind the row are 0. The last byte may have one code.
  if (rest > 0) {
    const digit_factors_t x =
        digits_load(walk->form, walk->count, &walk->x[whole]);
    int64_t left = nibbles ? (rest + 1) / 2 : rest;
#pragma GCC unroll 4
    for (int r = 0; r < rows; ++r) {
      const uint8_t* at = row.codes[r] + whole * bytes;
      digits_step(walk, &walk->rest_scales, &walk->x[whole], &x,
                  wi_load_some(at, left),
                  wi_load_some(at + HALF, nibbles ? 0 : left - HALF),
                  row.scales[r] + (whole * CHUNK >> walk->shift), &row.sums[r]);
    }
  }
  if (walk->zeros) digits_subtract_zeros(walk->zeros, n, rows, apart, &row);
  for (int r = 0; r < rows; ++r)
    y[n + r * apart] = wf_sum(row.sums[r]);
}

DIGIT_INLINE void digits_dots(digit_form_t form, int count, bool one_scale,
                              const rabbet_packed_t* w,
                              const rabbet_packed_zeros_t* zeros,
                              const rabbet_digits_t* x, int64_t begin,
                              int64_t end, float* y) {
  int64_t whole = w->depth / CHUNK;
  int64_t blocks = (w->depth + w->block - 1) / w->block;
  const digit_walk_t walk = {
      .form = form,
      .count = count,
      .one_scale = one_scale,
      .shift = rabbet_packed_shift(w),
      .w = w,
      .zeros = zeros,
      .x = x,
      .scales = digits_scales(form, w, CHUNK),
      .rest_scales = digits_scales(form, w, blocks - whole * CHUNK / w->block)};
  int64_t n = begin;
  int64_t apart = (end - begin) / ROWS;
  for (; n < begin + apart; ++n)
    digits_rows(&walk, n, ROWS, apart, y);
  for (n = begin + apart * ROWS; n < end; ++n)
    digits_rows(&walk, n, 1, 1, y);
}

#define DIGIT_DOTS(name, form, count, one_scale)                        \
  static void name(                                                     \
      const rabbet_packed_t* w, const rabbet_packed_zeros_t* zeros,     \
      const rabbet_digits_t* x, int64_t begin, int64_t end, float* y) { \
    digits_dots(form, count, one_scale, w, zeros, x, begin, end, y);    \
  }
DIGIT_DOTS(digits_int4, DIGITS_INT4, COUNT, true)
DIGIT_DOTS(digits_int4_blocks, DIGITS_INT4, COUNT, false)
DIGIT_DOTS(digits_int4_rounded, DIGITS_INT4, 1, true)
DIGIT_DOTS(digits_int4_rounded_blocks, DIGITS_INT4, 1, false)
DIGIT_DOTS(digits_fp4, DIGITS_FP4, COUNT, true)
DIGIT_DOTS(digits_fp4_blocks, DIGITS_FP4, COUNT, false)
DIGIT_DOTS(digits_fp4_rounded, DIGITS_FP4, 1, true)
DIGIT_DOTS(digits_fp4_rounded_blocks, DIGITS_FP4, 1, false)
DIGIT_DOTS(digits_int8, DIGITS_INT8, COUNT, true)
DIGIT_DOTS(digits_int8_blocks, DIGITS_INT8_BLOCKS, COUNT, false)
DIGIT_DOTS(digits_uint8, DIGITS_UINT8, COUNT, true)
DIGIT_DOTS(digits_uint8_blocks, DIGITS_UINT8_BLOCKS, COUNT, false)

const rabbet_digit_loops_t rabbet_digits_vnni = {
    .convert = digits_convert,
    .dots = {
        [RABBET_PACKED_INT4] = {{digits_int4, digits_int4_blocks},
                                {digits_int4_rounded,
                                 digits_int4_rounded_blocks}},
        [RABBET_PACKED_FP4] = {{digits_fp4, digits_fp4_blocks},
                               {digits_fp4_rounded, digits_fp4_rounded_blocks}},
        [RABBET_PACKED_INT8] = {{digits_int8, digits_int8_blocks}},
        [RABBET_PACKED_UINT8] = {{digits_uint8, digits_uint8_blocks}},
    }};
#endif
