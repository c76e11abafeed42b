// Products of one row with weights of 4 or 8 bits by instructions for bytes:
// the row's numbers become whole ones of digits to the base 256, and products
// of digits with codes are sums of 32-bit integers.
//
// Three digits are 24 bits, as FLOAT has them, that count from the largest of
// 128 neighbours: elements are rounded by at most 2^-23 of it. One digit is a
// row that is rounded to INT8, with a scale of its own for each block of the
// weights, or for 128 elements of a longer one.
#ifndef RABBET_SRC_DEVICE_CPU_VECTORS_DIGITS_H_
#define RABBET_SRC_DEVICE_CPU_VECTORS_DIGITS_H_

#include "device/cpu/vectors/vectors.h"

enum {
  RABBET_DIGIT_COUNT = 3,
  RABBET_DIGIT_CHUNK = 128,  // elements
};

// A chunk of the row: of each digit, the highest first, even elements and then
// odd ones for codes of 4 bits, which has pairs in a byte; as they are for
// those of 8. `offset`: less what the offset of the codes adds in each lane.
// AVX2 has two digits of 12 bits for NF4, INT8 and UINT8, in the order of its
// loops, and for NF4 also the numbers' first 8 bits. For FP8 it has the numbers
// themselves, times a power of two.
typedef struct rabbet_digits_t {
  union {
    struct {
      int8_t digits[RABBET_DIGIT_COUNT][2][RABBET_DIGIT_CHUNK / 2];
      int32_t offset[4][RABBET_DIGIT_CHUNK / 8];
    };
    struct {
      int16_t words[2][RABBET_DIGIT_CHUNK];
      int8_t bytes[RABBET_DIGIT_CHUNK];
    };
    float numbers[RABBET_DIGIT_CHUNK];
  };
  // Of the blocks that begin in the chunk; all alike for three digits.
  float unit[RABBET_DIGIT_CHUNK / RABBET_PACKED_BLOCK];
  float padding[8];
} rabbet_digits_t;

// Loops for an instruction set.
typedef void (*rabbet_digit_dots_t)(const rabbet_packed_t* w,
                                    const rabbet_packed_zeros_t* zeros,
                                    const rabbet_digits_t* x, int64_t begin,
                                    int64_t end, float* y);
typedef struct rabbet_digit_loops_t {
  bool (*convert)(rabbet_packed_type_t type, const rabbet_packed_t* w,
                  int count, const float* x, rabbet_digits_t* out_digits);
  // [type][a single digit][blocks shorter than a chunk]; NULL: there is none.
  rabbet_digit_dots_t dots[RABBET_PACKED_COUNT][2][2];
} rabbet_digit_loops_t;

#if defined(__x86_64__)
extern const rabbet_digit_loops_t rabbet_digits_avx2;
// The same where FLOAT's small numbers take longer than others.
extern const rabbet_digit_loops_t rabbet_digits_avx2_halves;
extern const rabbet_digit_loops_t rabbet_digits_vnni;
#endif
// The best for this processor, or NULL.
const rabbet_digit_loops_t* rabbet_digits(void);

// Whether there is a loop for weights of this type; `count` digits, 1 or 3.
bool rabbet_digits_fit(const rabbet_digit_loops_t* loops,
                       rabbet_packed_type_t type, int count);
// Converts a row for products with `w`; false if numbers are not finite, or so
// small or, for FP8, large that products are not exact. *out_digits has a chunk
// for each 128, and is aligned to 64.
bool rabbet_digits_convert(const rabbet_digit_loops_t* loops,
                           rabbet_packed_type_t type, const rabbet_packed_t* w,
                           int count, const float* x,
                           rabbet_digits_t* out_digits);
// y[n] for rows `begin` to `end` - 1 of the weights, less what `zeros`, if
// there are any, subtract. No code of FP8 is NaN.
void rabbet_digits_dots(const rabbet_digit_loops_t* loops,
                        rabbet_packed_type_t type, const rabbet_packed_t* w,
                        const rabbet_packed_zeros_t* zeros, int count,
                        const rabbet_digits_t* x, int64_t begin, int64_t end,
                        float* y);

#endif  // RABBET_SRC_DEVICE_CPU_VECTORS_DIGITS_H_
