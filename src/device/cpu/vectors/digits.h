// Products of one row with INT4 by AVX512-VNNI: the row's numbers become whole
// ones of three digits to the base 256 (24 bits, as FLOAT has them), and
// products of digits with codes are sums of 32-bit integers.
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

// A chunk of the row. Even elements, then odd ones, of each digit, the highest
// first. `middle`: what the codes' offset of 8 adds in each lane.
typedef struct rabbet_digits_t {
  int8_t digits[RABBET_DIGIT_COUNT][2][RABBET_DIGIT_CHUNK / 2];
  int32_t middle[RABBET_DIGIT_CHUNK / 8];
  float unit;
  float padding[15];
} rabbet_digits_t;

// Whether this processor has the instructions.
bool rabbet_digits_available(void);
// Converts `count` numbers; false if some are not finite, or so small that
// their reciprocal is not. *out_digits has a chunk for each 128, and is aligned
// to 64.
bool rabbet_digits_convert(const float* x, int64_t count,
                           rabbet_digits_t* out_digits);
// y[n] for rows `begin` to `end` - 1 of weights of INT4.
void rabbet_digits_dots(const rabbet_packed_t* w, const rabbet_digits_t* x,
                        int64_t begin, int64_t end, float* y);

#endif  // RABBET_SRC_DEVICE_CPU_VECTORS_DIGITS_H_
