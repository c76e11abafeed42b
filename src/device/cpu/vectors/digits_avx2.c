// Products of a row's digits with packed weights on processors that have no
// products of bytes with sums of 32 bits.
//
// Codes of INT4 and FP4 are so small that sums of eight products with digits of
// 8 bits fit into 16 bits. Codes of 8 bits and the numbers of NF4 have 16 bits,
// and digits 12. Sums of a chunk stay whole numbers.
#include <stddef.h>

#if defined(__AVX2__)
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
  DIGITS_FP8,  // none: products with the row's floats
} digit_form_t;

static digit_form_t digits_form(rabbet_packed_type_t type) {
  static const digit_form_t forms[RABBET_PACKED_COUNT] = {
      [RABBET_PACKED_INT4] = DIGITS_INT4,   [RABBET_PACKED_FP4] = DIGITS_FP4,
      [RABBET_PACKED_NF4] = DIGITS_NF4,     [RABBET_PACKED_INT8] = DIGITS_INT8,
      [RABBET_PACKED_UINT8] = DIGITS_UINT8, [RABBET_PACKED_FP8] = DIGITS_FP8,
  };
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

// The numbers of FP8 are those of HALF that are so many times smaller.
enum { FP8_UNIT = 256 };

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

// ---- The row ---------------------------------------------------------------

// How a row is converted.
typedef struct digit_row_t {
  digit_form_t form;
  int per, count;
  float units;  // that codes count
  // The elements of a chunk in the order of its digits of 8 bits and of words.
  uint8_t bytes[CHUNK], words[CHUNK];
} digit_row_t;

static digit_row_t digits_row(digit_form_t form, int per, int count) {
  const int blocks = digits_blocks(form, per);
  digit_row_t row = {.form = form, .per = per, .count = count, .units = 1};
  if (form == DIGITS_FP4) row.units = 0.5f;
  if (form == DIGITS_NF4) row.units = 1.0f / NF4_UNIT;
  if (form == DIGITS_INT8) row.units = 1.0f / 256;
  if (form == DIGITS_FP8) row.units = FP8_UNIT;
  for (int i = 0; i < CHUNK; ++i) {
    const int reg = i / BYTES % 2, upper = i / 64, byte = i % BYTES;
    row.bytes[i] = (uint8_t)(digits_place(blocks, reg, byte) * 2 + upper);
  }
  for (int i = 0; i < CHUNK; ++i) {
    const int part = i / WORDS, word = i % WORDS;
    // Numbers of NF4 are interleaved from bytes, within 16 of them.
    const int byte = word % 8 + word / 8 * 16 + part % 2 * 8;
    row.words[i] =
        (uint8_t)(form == DIGITS_NF4
                      ? digits_place(blocks, part / 4, byte) * 2 + part / 2 % 2
                      : part / 4 * 64 + digits_place(blocks, part / 2 % 2,
                                                     word * 2 + part % 2));
  }
  return row;
}

static void digits_order(const uint8_t* order, const int32_t* numbers,
                         int32_t* out) {
  for (int i = 0; i < CHUNK; ++i)
    out[i] = numbers[order[i]];
}

static void digits_lay_out_words(const digit_row_t* row, const int32_t* numbers,
                                 rabbet_digits_t* out) {
  enum { MIDDLE = 1 << (WORD_BITS - 1) };
  int32_t ordered[CHUNK];
  digits_order(row->words, numbers, ordered);
  for (int i = 0; i < CHUNK; ++i) {
    int32_t high = (ordered[i] + MIDDLE) >> WORD_BITS;
    out->words[0][i] = (int16_t)high;
    out->words[1][i] = (int16_t)(ordered[i] - high * (1 << WORD_BITS));
  }
  if (row->form != DIGITS_NF4) return;
  digits_order(row->bytes, numbers, ordered);
  // As the loop reads them: register, then half of a byte.
  for (int i = 0; i < CHUNK; ++i) {
    int to = i / BYTES % 2 * 64 + i / 64 * BYTES + i % BYTES;
    out->bytes[to] = (int8_t)((ordered[i] + (1 << 15)) >> 16);
  }
}

static void digits_lay_out_bytes(const digit_row_t* row, const int32_t* numbers,
                                 rabbet_digits_t* out) {
  const int32_t middle = row->form == DIGITS_FP4 ? 12 : 8;
  int32_t ordered[CHUNK];
  digits_order(row->bytes, numbers, ordered);
  for (int lane = 0; lane < LANES; ++lane) {
    int32_t sum = 0;
    for (int i = 0; i < CHUNK; i += BYTES)
      for (int j = 0; j < 4; ++j)
        sum += ordered[i + lane * 4 + j];
    out->offset[0][lane] = -middle * sum;
  }
  for (int d = row->count; d-- > 0;) {
    int8_t* digits = out->digits[d][0];
    for (int i = 0; i < CHUNK; ++i) {
      int8_t digit = (int8_t)(uint8_t)ordered[i];
      digits[i] = digit;
      ordered[i] = (ordered[i] - digit) >> 8;
    }
  }
}

static bool digits_chunk(const digit_row_t* row, const float* x,
                         rabbet_digits_t* out) {
  int32_t numbers[CHUNK];
  if (row->form == DIGITS_FP8) {
    memcpy(out->numbers, x, sizeof(out->numbers));
    for (int i = 0; i < row->per; ++i)
      out->unit[i] = row->units;
    return true;
  }
  int parts = row->count == COUNT ? 1 : row->per;
  for (int p = 0; p < parts; ++p) {
    const int length = CHUNK / parts, each = row->per / parts;
    float unit = 0;
    if (!rabbet_digit_numbers(row->count, x + p * length, length,
                              numbers + p * length, &unit))
      return false;
    for (int i = p * each; i < (p + 1) * each; ++i)
      out->unit[i] = unit * row->units;
  }
  if (row->form == DIGITS_INT4 || row->form == DIGITS_FP4)
    digits_lay_out_bytes(row, numbers, out);
  else
    digits_lay_out_words(row, numbers, out);
  return true;
}

static bool digits_convert(rabbet_packed_type_t type, const rabbet_packed_t* w,
                           int count, const float* x, rabbet_digits_t* out) {
  const digit_row_t row = digits_row(digits_form(type), digits_per(w), count);
  int64_t k = 0;
  for (; k + CHUNK <= w->depth; k += CHUNK)
    if (!digits_chunk(&row, x + k, out++)) return false;
  if (k == w->depth) return true;
  float rest[CHUNK] = {0};
  memcpy(rest, x + k, (size_t)(w->depth - k) * sizeof(*x));
  return digits_chunk(&row, rest, out);
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
  // FP8: the largest codes of all rows, with all signs set.
  __m256i largest;
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

// -- FP8 --

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
  const int together =
      digits_has_nibbles(form) || form == DIGITS_FP8 ? 2 : ROWS;
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
      else if (form == DIGITS_FP8)
        digits_floats(&loop, &rows, &at, &x[c]);
      else
        digits_small(&loop, &rows, &at, &x[c]);
    }
  memcpy(to->sums, rows.sums, sizeof(rows.sums));
  to->largest = rows.largest;
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
// Those of a row, which are read when it ends.
static void digits_fetch_zeros(const rabbet_packed_zeros_t* zeros, int64_t n) {
  enum { LINE = 64 };
  const int8_t* codes = zeros->codes + n * zeros->blocks;
  for (int64_t b = 0; b < zeros->blocks; b += LINE)
    __builtin_prefetch(codes + b);
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
  digit_rows_t rows = {.largest = _mm256_setzero_si256()};
  for (int r = 0; r < ROWS; ++r) {
    at[r] = n + (r < count ? r : count - 1) * apart;
    rows.codes[r] = w->codes + at[r] * w->stride;
    rows.scales[r] = scales[r] = w->scales + at[r] / w->rows * w->scale_stride;
    rows.sums[r] = _mm256_setzero_ps();
    if (zeros) digits_fetch_zeros(zeros, at[r]);
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
    if (digits_found_nan(rows.largest))
      y[at[r]] += digits_nan(w->codes + at[r] * w->stride, w->depth);
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
             [RABBET_PACKED_UINT8] = {BOTH(digits_uint8)},
             [RABBET_PACKED_FP8] = {BOTH(digits_fp8)}},
    .takes_zeros = true};
#endif
