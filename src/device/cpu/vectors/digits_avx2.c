// Products of a row's digits with packed weights on processors that have no
// products of bytes with sums of 32 bits.
//
// Codes of INT4 and FP4 are so small that sums of eight products with digits of
// 8 bits fit into 16 bits. Codes of 8 bits and the numbers of NF4 have 16 bits,
// and digits 12. Sums of a chunk stay whole numbers.
#include <stddef.h>

#if defined(__AVX2__)
#include <assert.h>
#include <immintrin.h>
#include <string.h>

#include "device/cpu/vectors/ahead.h"
#include "device/cpu/vectors/digits.h"
#include "device/cpu/vectors/digits_numbers.h"

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
} digit_form_t;

static digit_form_t digits_form(rabbet_packed_type_t type) {
  static const digit_form_t forms[RABBET_PACKED_COUNT] = {
      [RABBET_PACKED_INT4] = DIGITS_INT4,   [RABBET_PACKED_FP4] = DIGITS_FP4,
      [RABBET_PACKED_NF4] = DIGITS_NF4,     [RABBET_PACKED_INT8] = DIGITS_INT8,
      [RABBET_PACKED_UINT8] = DIGITS_UINT8,
  };
  assert(type != RABBET_PACKED_FP8);
  return forms[type];
}
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

// Where a byte of these registers comes from.
static int digits_place(int blocks, int reg, int byte) {
  const int half = byte / 16, in_half = byte % 16;
  switch (blocks) {
    case 1:
      return reg * BYTES + byte;
    case 2:
      return half * BYTES + reg * 16 + in_half;
    case 4:
      return in_half / 8 * BYTES + half * 16 + reg * 8 + in_half % 8;
    default:
      return in_half / 8 * BYTES + half * 16 + in_half % 8 / 4 * 8 + reg * 4 +
             in_half % 4;
  }
}

// The scales of the lanes, by their units.
DIGIT_INLINE __m256 digits_scales(int blocks, const float* scales,
                                  const float* units) {
  if (blocks == 1)
    return _mm256_mul_ps(_mm256_broadcast_ss(scales),
                         _mm256_broadcast_ss(units));
  if (blocks == 2)
    return _mm256_permutevar_ps(
        _mm256_mul_ps(
            _mm256_castpd_ps(_mm256_broadcast_sd((const double*)scales)),
            _mm256_castpd_ps(_mm256_broadcast_sd((const double*)units))),
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

// ---- The row ---------------------------------------------------------------

// The element of a chunk that a word is for.
static int digits_word_element(digit_form_t form, int blocks, int part,
                               int word) {
  if (form != DIGITS_NF4)
    return part / 4 * 64 +
           digits_place(blocks, part / 2 % 2, word * 2 + part % 2);
  // Bytes of a register are interleaved within 16 of them.
  int byte = word % 8 + word / 8 * 16 + part % 2 * 8;
  return digits_place(blocks, part / 4, byte) * 2 + part / 2 % 2;
}

static void digits_lay_out_words(digit_form_t form, int per,
                                 const int32_t* numbers, rabbet_digits_t* out) {
  enum { MIDDLE = 1 << (WORD_BITS - 1) };
  const int blocks = digits_blocks(form, per);
  for (int i = 0; i < CHUNK; ++i) {
    int32_t number =
        numbers[digits_word_element(form, blocks, i / WORDS, i % WORDS)];
    int32_t high = (number + MIDDLE) >> WORD_BITS;
    out->words[0][i] = (int16_t)high;
    out->words[1][i] = (int16_t)(number - (high << WORD_BITS));
  }
  for (int i = 0; i < CHUNK && form == DIGITS_NF4; ++i) {
    int place = digits_place(blocks, i / BYTES / 2, i % BYTES);
    int32_t number = numbers[place * 2 + i / BYTES % 2];
    out->bytes[i] = (int8_t)((number + (1 << 15)) >> 16);
  }
}

static void digits_lay_out_bytes(digit_form_t form, int count, int per,
                                 const int32_t* numbers, rabbet_digits_t* out) {
  memset(out->offset[0], 0, sizeof(out->offset[0]));
  for (int i = 0; i < CHUNK; ++i) {
    int reg = i / 2 / BYTES, byte = i / 2 % BYTES, upper = i % 2;
    int32_t number = numbers[digits_place(per, reg, byte) * 2 + upper];
    out->offset[0][byte / 4] -= number * (form == DIGITS_FP4 ? 12 : 8);
    for (int d = count; d-- > 0;) {
      int8_t digit = (int8_t)(uint8_t)number;
      out->digits[d][upper][reg * BYTES + byte] = digit;
      number = (number - digit) >> 8;
    }
  }
}

static bool digits_chunk(digit_form_t form, int per, int count, const float* x,
                         rabbet_digits_t* out) {
  const float units = form == DIGITS_FP4    ? 0.5f
                      : form == DIGITS_NF4  ? 1.0f / NF4_UNIT
                      : form == DIGITS_INT8 ? 1.0f / 256
                                            : 1;
  int32_t numbers[CHUNK];
  int parts = count == COUNT ? 1 : per;
  for (int p = 0; p < parts; ++p) {
    int length = CHUNK / parts;
    float unit = 0;
    if (!rabbet_digit_numbers(count, x + p * length, length,
                              numbers + p * length, &unit))
      return false;
    for (int i = p * per / parts; i < (p + 1) * per / parts; ++i)
      out->unit[i] = unit * units;
  }
  if (form == DIGITS_INT4 || form == DIGITS_FP4)
    digits_lay_out_bytes(form, count, per, numbers, out);
  else
    digits_lay_out_words(form, per, numbers, out);
  return true;
}

static bool digits_convert(rabbet_packed_type_t type, const rabbet_packed_t* w,
                           int count, const float* x, rabbet_digits_t* out) {
  digit_form_t form = digits_form(type);
  int per = digits_per(w);
  int64_t k = 0;
  for (; k + CHUNK <= w->depth; k += CHUNK)
    if (!digits_chunk(form, per, count, x + k, out++)) return false;
  if (k == w->depth) return true;
  float rest[CHUNK] = {0};
  memcpy(rest, x + k, (size_t)(w->depth - k) * sizeof(*x));
  return digits_chunk(form, per, count, rest, out);
}

// ---- Chunks ----------------------------------------------------------------

// What a loop does with a chunk. `per`: scales that begin in it.
typedef struct digit_loop_t {
  digit_form_t form;
  int count, per;
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

// -- INT4 and FP4 --

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

// -- Numbers of 16 bits --

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

// ---- Rows of weights -------------------------------------------------------

// Adds the products of `count` chunks.
typedef void (*digit_chunks_t)(digit_rows_t* rows, int shift,
                               const rabbet_digits_t* x, int64_t count);

DIGIT_INLINE void digits_chunks(digit_form_t form, int digits, int per,
                                digit_rows_t* to, int shift,
                                const rabbet_digits_t* x, int64_t count) {
  const digit_loop_t loop = {form, digits, per};
  const int64_t bytes = digits_has_nibbles(form) ? CHUNK / 2 : CHUNK;
  digit_rows_t rows = *to;
  // Rows that share loads of digits, as far as registers go.
  const int together = digits_has_nibbles(form) ? 2 : ROWS;
  for (int64_t c = 0; c < count; ++c)
#pragma GCC unroll 2
    for (int r = 0; r < ROWS; r += together) {
      const digit_place_t at = {r, together, c * bytes,
                                per == 1 ? c * CHUNK >> shift : c * per};
      for (int i = r; i < r + together; ++i) {
        rabbet_fetch_ahead(rows.codes[i] + at.code);
        if (bytes > 64) rabbet_fetch_ahead(rows.codes[i] + at.code + 64);
        rabbet_fetch_scales_ahead(rows.scales[i] + at.scale);
      }
      if (form == DIGITS_INT8 || form == DIGITS_UINT8)
        digits_large(&loop, &rows, &at, &x[c]);
      else if (form == DIGITS_NF4)
        digits_normal(&loop, &rows, &at, &x[c]);
      else
        digits_small(&loop, &rows, &at, &x[c]);
    }
  memcpy(to->sums, rows.sums, sizeof(rows.sums));
}

// The part of zero points in the sums of a row of weights; the last blocks'
// follows.
DIGIT_INLINE __m256 digits_zeros(const rabbet_packed_zeros_t* zeros,
                                 const int8_t* codes, const float* scales) {
  __m256 total = _mm256_setzero_ps();
  for (int64_t b = 0; b + LANES <= zeros->blocks; b += LANES) {
    __m256i points =
        _mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i*)(codes + b)));
    total = _mm256_fmadd_ps(_mm256_mul_ps(_mm256_loadu_ps(scales + b),
                                          _mm256_loadu_ps(zeros->sums + b)),
                            _mm256_add_ps(_mm256_cvtepi32_ps(points),
                                          _mm256_set1_ps(zeros->offset)),
                            total);
  }
  return total;
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

// What is left of rows behind whole chunks.
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
    rows.scales[r] = scales[r] = w->scales + at[r] / w->rows * w->scale_stride;
    rows.sums[r] = _mm256_setzero_ps();
  }
  chunks(&rows, shift, x, whole);
  if (w->depth % CHUNK != 0) {
    digits_copy_last(kind, w, &last, &rows);
    chunks(&rows, shift, x + whole, 1);
  }
  for (int r = 0; r < ROWS && zeros; ++r)
    rows.sums[r] = _mm256_sub_ps(
        rows.sums[r],
        digits_zeros(zeros, zeros->codes + at[r] * zeros->blocks, scales[r]));
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

// One function for blocks of all lengths.
#define BOTH(name) \
  { name, name }
const rabbet_digit_loops_t rabbet_digits_avx2 = {
    .convert = digits_convert,
    .dots = {[RABBET_PACKED_INT4] = {BOTH(digits_int4),
                                     BOTH(digits_int4_rounded)},
             [RABBET_PACKED_FP4] = {BOTH(digits_fp4), BOTH(digits_fp4_rounded)},
             [RABBET_PACKED_NF4] = {BOTH(digits_nf4)},
             [RABBET_PACKED_INT8] = {BOTH(digits_int8)},
             [RABBET_PACKED_UINT8] = {BOTH(digits_uint8)}},
    .takes_zeros = true};
#endif
