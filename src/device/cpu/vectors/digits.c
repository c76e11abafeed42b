#include "device/cpu/vectors/digits.h"

#include <assert.h>
#include <string.h>

#include "device/cpu/cpu.h"

#if defined(__AVX512VNNI__)
#include <immintrin.h>

#include "device/cpu/vectors/ahead.h"

// Each kind of weights has loops of its own, with all constants known.
#define DIGIT_INLINE static inline __attribute__((always_inline))

enum {
  FLOATS = 16,
  CHUNK = RABBET_DIGIT_CHUNK,
  HALF = CHUNK / 2,
  COUNT = RABBET_DIGIT_COUNT,
};

bool rabbet_digits_available(void) {
  return rabbet_cpu_has_vnni();
}

bool rabbet_digits_fit(rabbet_packed_type_t type, int count) {
  bool has_nibbles = type == RABBET_PACKED_INT4 || type == RABBET_PACKED_FP4;
  bool has_bytes = type == RABBET_PACKED_INT8 || type == RABBET_PACKED_UINT8;
  return rabbet_digits_available() &&
         (has_nibbles || (has_bytes && count == COUNT));
}

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

// Numbers to multiply with digits [0] and [1] of a chunk.
typedef struct digit_codes_t {
  __m512i half[2];
} digit_codes_t;

// `high`: for codes of 8 bits, those behind the first 64.
DIGIT_INLINE digit_codes_t digits_codes(digit_form_t form, __m512i low,
                                        __m512i high) {
  const __m512i most = _mm512_set1_epi8(15);
  digit_codes_t codes = {{low, high}};
  if (form == DIGITS_INT4) {
    // (code ^ 8) & 15 is the number and 8.
    const __m512i middle = _mm512_set1_epi8(8);
    codes.half[0] = _mm512_ternarylogic_epi32(low, middle, most, 0x28);
    codes.half[1] = _mm512_ternarylogic_epi32(_mm512_srli_epi16(low, 4), middle,
                                              most, 0x28);
  } else if (form == DIGITS_FP4) {
    const __m512i table = _mm512_broadcast_i32x4(_mm_setr_epi8(
        12, 13, 14, 15, 16, 18, 20, 24, 12, 11, 10, 9, 8, 6, 4, 0));
    codes.half[0] = _mm512_shuffle_epi8(table, _mm512_and_si512(low, most));
    codes.half[1] = _mm512_shuffle_epi8(
        table, _mm512_and_si512(_mm512_srli_epi16(low, 4), most));
  } else if (digits_is_signed(form)) {
    const __m512i middle = _mm512_set1_epi8(INT8_MIN);
    for (int i = 0; i < 2; ++i)
      codes.half[i] = _mm512_xor_si512(codes.half[i], middle);
  }
  return codes;
}

// A chunk's digits in registers.
typedef struct digit_factors_t {
  __m512i digits[COUNT][2], offset[4];
} digit_factors_t;

DIGIT_INLINE digit_factors_t digits_load(digit_form_t form, int count,
                                         const rabbet_digits_t* x) {
  digit_factors_t to;
  int offsets = digits_has_nibbles(form)       ? 1
                : digits_has_byte_blocks(form) ? 4
                                               : 2;
  for (int d = 0; d < count; ++d)
    for (int i = 0; i < 2; ++i)
      to.digits[d][i] = _mm512_load_si512(x->digits[d][i]);
  for (int i = 0; i < offsets; ++i)
    to.offset[i] = _mm512_load_si512(x->offset[i]);
  return to;
}

DIGIT_INLINE __m512i digits_add(__m512i sum, const digit_codes_t* codes,
                                const digit_factors_t* x, int d) {
  sum = _mm512_dpbusd_epi32(sum, codes->half[0], x->digits[d][0]);
  return _mm512_dpbusd_epi32(sum, codes->half[1], x->digits[d][1]);
}

// The sums of codes times numbers by lanes of 8 elements, or of 4 for bytes in
// blocks ([1]: behind the first 64). 32 bits hold them for codes of 4 bits; for
// those of 8 they hold that of the highest digit, and that of the others.
DIGIT_INLINE void digits_product(digit_form_t form, int count,
                                 const digit_codes_t* codes,
                                 const digit_factors_t* x, __m512 out_sums[2]) {
  const __m512 base = _mm512_set1_ps(65536);
  if (digits_has_nibbles(form)) {
    __m512i sum = x->offset[0];
    if (count == COUNT) {
      __m512i high = digits_add(_mm512_setzero_si512(), codes, x, 0);
      high = digits_add(_mm512_slli_epi32(high, 8), codes, x, 1);
      sum = _mm512_add_epi32(sum, _mm512_slli_epi32(high, 8));
    }
    out_sums[0] =
        _mm512_cvtepi32_ps(digits_add(sum, codes, x, count == COUNT ? 2 : 0));
    return;
  }
  for (int i = 0; i < (digits_has_byte_blocks(form) ? 2 : 1); ++i) {
    __m512i high = x->offset[2 * i], low = _mm512_setzero_si512();
    __m512i last = x->offset[2 * i + 1];
    if (digits_has_byte_blocks(form)) {
      high = _mm512_dpbusd_epi32(high, codes->half[i], x->digits[0][i]);
      low = _mm512_dpbusd_epi32(low, codes->half[i], x->digits[1][i]);
      last = _mm512_dpbusd_epi32(last, codes->half[i], x->digits[2][i]);
    } else {
      high = digits_add(high, codes, x, 0);
      low = digits_add(low, codes, x, 1);
      last = digits_add(last, codes, x, 2);
    }
    low = _mm512_add_epi32(_mm512_slli_epi32(low, 8), last);
    out_sums[i] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(high), base,
                                  _mm512_cvtepi32_ps(low));
  }
}

// ---- The row ---------------------------------------------------------------

// The lowest digit of each number, which loses it.
DIGIT_INLINE __m128i digits_take(__m512i* numbers) {
  __m512i digit = _mm512_srai_epi32(_mm512_slli_epi32(*numbers, 24), 24);
  *numbers = _mm512_srai_epi32(_mm512_sub_epi32(*numbers, digit), 8);
  return _mm512_cvtepi32_epi8(digit);
}

static void digits_lay_out(digit_form_t form, int count,
                           int8_t all[COUNT][CHUNK], rabbet_digits_t* out) {
  if (!digits_has_nibbles(form)) {
    memcpy(out->digits, all, sizeof(out->digits));
    return;
  }
  for (int d = 0; d < count; ++d)
    for (int half = 0; half < 2; ++half) {
      __m512i pairs = _mm512_loadu_si512(&all[d][half * HALF]);
      _mm256_storeu_si256((__m256i*)(void*)&out->digits[d][0][half * HALF / 2],
                          _mm512_cvtepi16_epi8(pairs));
      _mm256_storeu_si256((__m256i*)(void*)&out->digits[d][1][half * HALF / 2],
                          _mm512_cvtepi16_epi8(_mm512_srli_epi16(pairs, 8)));
    }
}

// The sum that the offset of the codes adds, negated.
static void digits_find_offset(digit_form_t form, int count,
                               rabbet_digits_t* out) {
  const __m512i zero = _mm512_setzero_si512();
  const __m512i middle = _mm512_set1_epi8((int8_t)digits_middle(form));
  const bool by_halves = digits_has_byte_blocks(form);
  for (int half = 0; half < (by_halves ? 2 : 1); ++half) {
    __m512i sums[COUNT] = {zero, zero, zero};
    for (int d = 0; d < count; ++d)
      for (int i = 0; i < 2; ++i)
        if (!by_halves || i == half)
          sums[d] = _mm512_dpbusd_epi32(sums[d], middle,
                                        _mm512_load_si512(out->digits[d][i]));
    // One digit: it is the lowest.
    __m512i low =
        count == 1 ? sums[0]
                   : _mm512_add_epi32(_mm512_slli_epi32(sums[1], 8), sums[2]);
    int32_t(*to)[FLOATS] = &out->offset[2 * half];
    if (digits_has_nibbles(form)) {
      if (count == COUNT)
        low = _mm512_add_epi32(low, _mm512_slli_epi32(sums[0], 16));
      _mm512_store_si512(to[0], _mm512_sub_epi32(zero, low));
    } else {
      _mm512_store_si512(to[0], _mm512_sub_epi32(zero, sums[0]));
      _mm512_store_si512(to[1], _mm512_sub_epi32(zero, low));
    }
  }
}

// The largest absolute number; NaN if one is not finite, or so small that its
// reciprocal is not.
static float digits_largest(const __m512* x, int vectors) {
  __m512 high = _mm512_setzero_ps();
  __mmask16 odd = 0;
  for (int v = 0; v < vectors; ++v) {
    high = _mm512_max_ps(high, _mm512_abs_ps(x[v]));
    odd |= _mm512_fpclass_ps_mask(x[v], 0x99);  // NaN and infinities
  }
  float largest = _mm512_reduce_max_ps(high);
  return odd != 0 || (largest != 0 && largest < 1e-30f) ? __builtin_nanf("")
                                                        : largest;
}

// Elements from `begin` on, `vectors` times 16, have one unit.
static bool digits_convert_part(int count, const __m512* x, int begin,
                                int vectors, int8_t all[COUNT][CHUNK],
                                float* out_unit) {
  // Less than the largest number of the digits, which the product below may
  // exceed by rounding.
  const float most = count == COUNT ? 127 * 65536 : 127;
  float largest = digits_largest(x, vectors);
  if (!(largest >= 0)) return false;
  *out_unit = largest / most;
  __m512 factor = _mm512_set1_ps(largest == 0 ? 0 : most / largest);
  for (int v = 0; v < vectors; ++v) {
    __m512i number = _mm512_cvtps_epi32(_mm512_mul_ps(x[v], factor));
    for (int d = count; d-- > 0;)
      _mm_storeu_si128((__m128i*)(void*)&all[d][begin + v * FLOATS],
                       digits_take(&number));
  }
  return true;
}

static bool digits_chunk(digit_form_t form, int block, int count,
                         const __m512 x[CHUNK / FLOATS], rabbet_digits_t* out) {
  int8_t all[COUNT][CHUNK];
  int each = count == COUNT ? CHUNK : block;
  for (int begin = 0; begin < CHUNK; begin += each) {
    float unit = 0;
    if (!digits_convert_part(count, x + begin / FLOATS, begin, each / FLOATS,
                             all, &unit))
      return false;
    if (form == DIGITS_FP4) unit /= 2;
    for (int i = begin / block; i * block < begin + each; ++i)
      out->unit[i] = unit;
  }
  digits_lay_out(form, count, all, out);
  digits_find_offset(form, count, out);
  return true;
}

bool rabbet_digits_convert(rabbet_packed_type_t type, const rabbet_packed_t* w,
                           int count, const float* x,
                           rabbet_digits_t* out_digits) {
  digit_form_t form = digits_form(type, w);
  int block = digits_has_blocks(w) ? (int)w->block : CHUNK;
  for (int64_t k = 0; k < w->depth; k += CHUNK, ++out_digits) {
    __m512 chunk[CHUNK / FLOATS];
    for (int v = 0; v < CHUNK / FLOATS; ++v) {
      int64_t left = w->depth - k - v * FLOATS;
      __mmask16 some = left >= FLOATS ? 0xffff
                       : left <= 0    ? 0
                                      : (__mmask16)((1u << left) - 1);
      chunk[v] = _mm512_maskz_loadu_ps(some, x + (some ? k + v * FLOATS : 0));
    }
    if (!digits_chunk(form, block, count, chunk, out_digits)) return false;
  }
  return true;
}

// ---- Rows of weights -------------------------------------------------------

enum { ROWS = 4 };

// The scales of the blocks in a chunk, and the one of each lane.
typedef struct digit_scales_t {
  __m512i lane[2];  // [1]: bytes in blocks behind the first 64
  __mmask8 some;
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
    to.lane[half] = _mm512_loadu_si512(lane);
  }
  to.some = (__mmask8)((1u << (left < per ? left : per)) - 1);
  return to;
}

// Rows of weights that are multiplied at the same time.
typedef struct digit_rows_t {
  const uint8_t* codes[ROWS];
  const float* scales[ROWS];
  __m512 sums[ROWS];
} digit_rows_t;

// Where a walk is.
typedef struct digit_walk_t {
  digit_form_t form;
  int count;
  bool one_scale;  // for a whole chunk
  const rabbet_packed_t* w;
  const rabbet_digits_t* x;
  digit_scales_t scales, rest_scales;
} digit_walk_t;

DIGIT_INLINE void digits_step(const digit_walk_t* walk,
                              const digit_scales_t* to,
                              const rabbet_digits_t* x,
                              const digit_factors_t* factors, __m512i low,
                              __m512i high, const float* scales, __m512* sum) {
  const digit_codes_t codes = digits_codes(walk->form, low, high);
  __m512 products[2];
  digits_product(walk->form, walk->count, &codes, factors, products);
  if (walk->one_scale) {
    *sum = _mm512_fmadd_ps(
        products[0],
        _mm512_mul_ps(_mm512_set1_ps(*scales), _mm512_set1_ps(x->unit[0])),
        *sum);
    return;
  }
  __m512 scale = _mm512_castps256_ps512(_mm256_mul_ps(
      _mm256_maskz_loadu_ps(to->some, scales), _mm256_load_ps(x->unit)));
  for (int i = 0; i < (digits_has_byte_blocks(walk->form) ? 2 : 1); ++i)
    *sum = _mm512_fmadd_ps(products[i],
                           _mm512_permutexvar_ps(to->lane[i], scale), *sum);
}

DIGIT_INLINE __m512i digits_read_some(const uint8_t* codes, int64_t count) {
  __mmask64 some = count >= HALF ? UINT64_MAX
                   : count <= 0  ? 0
                                 : (UINT64_C(1) << count) - 1;
  return some ? _mm512_maskz_loadu_epi8(some, codes) : _mm512_setzero_si512();
}

DIGIT_INLINE void digits_rows(const digit_walk_t* walk, int64_t n, int rows,
                              float* y) {
  const rabbet_packed_t* w = walk->w;
  bool nibbles = digits_has_nibbles(walk->form);
  int64_t bytes = nibbles ? HALF : CHUNK;
  int64_t whole = w->depth / CHUNK, rest = w->depth % CHUNK;
  const rabbet_ahead_t ahead = rabbet_ahead(w->stride, rows);
  digit_rows_t row;
  for (int r = 0; r < rows; ++r) {
    row.codes[r] = w->codes + (n + r) * w->stride;
    row.scales[r] = w->scales + (n + r) / w->rows * w->scale_stride;
    row.sums[r] = _mm512_setzero_ps();
  }
  for (int64_t c = 0; c < whole; ++c) {
    const digit_factors_t x = digits_load(walk->form, walk->count, &walk->x[c]);
    int64_t next = rabbet_ahead_at(&ahead, c * bytes);
    int64_t scale = c * CHUNK / w->block;
#pragma GCC unroll 4
    for (int r = 0; r < rows; ++r) {
      const uint8_t* at = row.codes[r] + c * bytes;
      rabbet_fetch_ahead(at + next);
      if (!nibbles) rabbet_fetch_ahead(at + next + HALF);
      digits_step(
          walk, &walk->scales, &walk->x[c], &x, _mm512_loadu_si512(at),
          nibbles ? _mm512_setzero_si512() : _mm512_loadu_si512(at + HALF),
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
                  digits_read_some(at, left),
                  digits_read_some(at + HALF, nibbles ? 0 : left - HALF),
                  row.scales[r] + whole * CHUNK / w->block, &row.sums[r]);
    }
  }
  for (int r = 0; r < rows; ++r)
    y[r] = _mm512_reduce_add_ps(row.sums[r]);
}

DIGIT_INLINE void digits_dots(digit_form_t form, int count, bool one_scale,
                              const rabbet_packed_t* w,
                              const rabbet_digits_t* x, int64_t begin,
                              int64_t end, float* y) {
  int64_t whole = w->depth / CHUNK;
  int64_t blocks = (w->depth + w->block - 1) / w->block;
  const digit_walk_t walk = {
      .form = form,
      .count = count,
      .one_scale = one_scale,
      .w = w,
      .x = x,
      .scales = digits_scales(form, w, CHUNK),
      .rest_scales = digits_scales(form, w, blocks - whole * CHUNK / w->block)};
  int64_t n = begin;
  for (; n + ROWS <= end; n += ROWS)
    digits_rows(&walk, n, ROWS, y + n);
  for (; n < end; ++n)
    digits_rows(&walk, n, 1, y + n);
}

typedef void (*digit_dots_fn_t)(const rabbet_packed_t* w,
                                const rabbet_digits_t* x, int64_t begin,
                                int64_t end, float* y);
#define DIGIT_DOTS(name, form, count, one_scale)                       \
  static void name(const rabbet_packed_t* w, const rabbet_digits_t* x, \
                   int64_t begin, int64_t end, float* y) {             \
    digits_dots(form, count, one_scale, w, x, begin, end, y);          \
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

void rabbet_digits_dots(rabbet_packed_type_t type, const rabbet_packed_t* w,
                        int count, const rabbet_digits_t* x, int64_t begin,
                        int64_t end, float* y) {
  // [one digit][blocks within a chunk]
  static const digit_dots_fn_t functions[RABBET_PACKED_COUNT][2][2] = {
      [RABBET_PACKED_INT4] = {{digits_int4, digits_int4_blocks},
                              {digits_int4_rounded,
                               digits_int4_rounded_blocks}},
      [RABBET_PACKED_FP4] = {{digits_fp4, digits_fp4_blocks},
                             {digits_fp4_rounded, digits_fp4_rounded_blocks}},
      [RABBET_PACKED_INT8] = {{digits_int8, digits_int8_blocks}},
      [RABBET_PACKED_UINT8] = {{digits_uint8, digits_uint8_blocks}},
  };
  digit_dots_fn_t dots = functions[type][count == 1][digits_has_blocks(w)];
  assert(dots);  // rabbet_digits_fit has checked it
  dots(w, x, begin, end, y);
}

#else

bool rabbet_digits_available(void) {
  return false;
}
bool rabbet_digits_fit(rabbet_packed_type_t type, int count) {
  (void)type, (void)count;
  return false;
}
bool rabbet_digits_convert(rabbet_packed_type_t type, const rabbet_packed_t* w,
                           int count, const float* x,
                           rabbet_digits_t* out_digits) {
  (void)type, (void)w, (void)count, (void)x, (void)out_digits;
  return false;
}
void rabbet_digits_dots(rabbet_packed_type_t type, const rabbet_packed_t* w,
                        int count, const rabbet_digits_t* x, int64_t begin,
                        int64_t end, float* y) {
  (void)type, (void)w, (void)count, (void)x, (void)begin, (void)end, (void)y;
  assert(false);  // rabbet_digits_available answered false
}

#endif
