// A row's digits in the order in which the loops of digits_avx2.c read them.
#include <stddef.h>

#if defined(__AVX2__)
#include <string.h>

#include "device/cpu/vectors/digits_avx2_floats.h"
#include "device/cpu/vectors/digits_numbers.h"

static digit_form_t digits_form(rabbet_packed_type_t type) {
  static const digit_form_t forms[RABBET_PACKED_COUNT] = {
      [RABBET_PACKED_INT4] = DIGITS_INT4,   [RABBET_PACKED_FP4] = DIGITS_FP4,
      [RABBET_PACKED_NF4] = DIGITS_NF4,     [RABBET_PACKED_INT8] = DIGITS_INT8,
      [RABBET_PACKED_UINT8] = DIGITS_UINT8, [RABBET_PACKED_FP8] = DIGITS_FP8,
  };
  return forms[type];
}

// Where a byte of the registers of digits_in_order comes from.
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

// Numbers so large that products with FLOAT's smallest are exact, in units of a
// power of two: that of the largest number or, if this is less, of 2^LEAST.
// False if numbers are not finite, or so large or small that products are not
// exact.
static bool digits_lay_out_floats(digit_form_t form, const float* x,
                                  rabbet_digits_t* out) {
  // UNIT: of codes at FLOAT's place.
  enum { LARGE = 110, LEAST = -17, UNIT = 120 };
  float largest = 0;
  for (int i = 0; i < CHUNK; ++i) {
    if (!(fabsf(x[i]) <= 1e35f)) return false;
    largest = fmaxf(largest, fabsf(x[i]));
  }
  if (largest != 0 && largest < 1e-30f) return false;
  int power = largest == 0 ? LEAST : ilogbf(largest);
  if (power < LEAST) power = LEAST;
  const float factor = ldexpf(1, LARGE - power);
  out->unit[0] = ldexpf(1, power + UNIT - LARGE);
  for (int i = 0; i < CHUNK; ++i)
    out->numbers[i / 32 * 32 + digits_float_place(form, i % 32)] =
        x[i] * factor;
  return true;
}

static bool digits_chunk(const digit_row_t* row, const float* x,
                         rabbet_digits_t* out) {
  int32_t numbers[CHUNK];
  if (row->form >= DIGITS_FP8) return digits_lay_out_floats(row->form, x, out);
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

static bool digits_convert(digit_form_t form, const rabbet_packed_t* w,
                           int count, const float* x, rabbet_digits_t* out) {
  const digit_row_t row = digits_row(form, digits_per(w), count);
  int64_t k = 0;
  for (; k + CHUNK <= w->depth; k += CHUNK)
    if (!digits_chunk(&row, x + k, out++)) return false;
  if (k == w->depth) return true;
  float rest[CHUNK] = {0};
  memcpy(rest, x + k, (size_t)(w->depth - k) * sizeof(*x));
  return digits_chunk(&row, rest, out);
}

bool rabbet_digits_avx2_convert(rabbet_packed_type_t type,
                                const rabbet_packed_t* w, int count,
                                const float* x, rabbet_digits_t* out) {
  return digits_convert(digits_form(type), w, count, x, out);
}

bool rabbet_digits_avx2_convert_halves(rabbet_packed_type_t type,
                                       const rabbet_packed_t* w, int count,
                                       const float* x, rabbet_digits_t* out) {
  digit_form_t form = digits_form(type);
  return digits_convert(form == DIGITS_FP8 ? DIGITS_FP8_HALF : form, w, count,
                        x, out);
}
#endif
