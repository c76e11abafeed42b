// Products of one row with INT4 or INT8 by AVX512-VNNI: the row's numbers
// become whole ones of three digits to the base 256 (24 bits, as FLOAT has
// them), and products of digits with codes are sums of 32-bit integers.
//
// 24 bits count from the largest element of a chunk of 128: elements are
// rounded by at most 2^-23 of it.
#ifndef RABBET_SRC_DEVICE_CPU_VECTORS_DIGITS_H_
#define RABBET_SRC_DEVICE_CPU_VECTORS_DIGITS_H_

#include "device/cpu/vectors/vectors.h"

enum {
  RABBET_DIGIT_COUNT = 3,
  RABBET_DIGIT_CHUNK = 128,  // elements
};

// A chunk of the row: of each digit, the highest first, even elements and then
// odd ones for INT4, which has pairs in a byte; as they are for INT8.
// `middle`: what the codes' offset of 8 or 128 adds in each lane; for INT8 of
// the highest digit, and of the others.
typedef struct rabbet_digits_t {
  int8_t digits[RABBET_DIGIT_COUNT][2][RABBET_DIGIT_CHUNK / 2];
  int32_t middle[2][RABBET_DIGIT_CHUNK / 8];
  float unit;
  float padding[15];
} rabbet_digits_t;

// Whether this processor has the instructions.
bool rabbet_digits_available(void);
// Whether there is a loop for these weights.
bool rabbet_digits_fit(rabbet_packed_type_t type, const rabbet_packed_t* w);
// Converts `count` numbers; false if some are not finite, or so small that
// their reciprocal is not. *out_digits has a chunk for each 128, and is aligned
// to 64.
bool rabbet_digits_convert(rabbet_packed_type_t type, const float* x,
                           int64_t count, rabbet_digits_t* out_digits);
// y[n] for rows `begin` to `end` - 1 of the weights.
void rabbet_digits_dots(rabbet_packed_type_t type, const rabbet_packed_t* w,
                        const rabbet_digits_t* x, int64_t begin, int64_t end,
                        float* y);

#endif  // RABBET_SRC_DEVICE_CPU_VECTORS_DIGITS_H_
