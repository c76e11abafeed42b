// A row's numbers as whole ones, for the loops of each instruction set.
#ifndef RABBET_SRC_DEVICE_CPU_VECTORS_DIGITS_NUMBERS_H_
#define RABBET_SRC_DEVICE_CPU_VECTORS_DIGITS_NUMBERS_H_

#include <float.h>
#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "device/cpu/vectors/digits.h"

// numbers[i] is x[i] in units of *out_unit, for at most a chunk that has one
// unit. False if one is not finite, or all are so small that the reciprocal of
// the largest is not.
static inline bool rabbet_digit_numbers(int count, const float* x, int length,
                                        int32_t* numbers, float* out_unit) {
  // Less than the largest number of the digits, which the product below may
  // exceed by rounding.
  const float most = count == RABBET_DIGIT_COUNT ? 127 * 65536 : 127;
  int32_t high = 0;
  float largest = 0;
  // Floats without signs are in the order of their bits.
  memcpy(numbers, x, (size_t)length * sizeof(*x));
  for (int i = 0; i < length; ++i) {
    int32_t bits = numbers[i] & INT32_MAX;
    high = bits > high ? bits : high;
  }
  memcpy(&largest, &high, sizeof(largest));
  if (!(largest <= FLT_MAX) || (largest != 0 && largest < 1e-30f)) return false;
  *out_unit = largest / most;
  float factor = largest == 0 ? 0 : most / largest;
  for (int i = 0; i < length; ++i)
    numbers[i] = (int32_t)rintf(x[i] * factor);
  return true;
}

#endif  // RABBET_SRC_DEVICE_CPU_VECTORS_DIGITS_NUMBERS_H_
