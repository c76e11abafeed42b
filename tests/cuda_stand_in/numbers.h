// FP16, BF16, FP8, TF32 for the stand-ins, by bits: rounding to nearest even.
#ifndef RABBET_TESTS_CUDA_STAND_IN_NUMBERS_H_
#define RABBET_TESTS_CUDA_STAND_IN_NUMBERS_H_

#include <math.h>
#include <stdint.h>
#include <string.h>

static inline uint32_t number_bits(float x) {
  uint32_t bits;
  memcpy(&bits, &x, sizeof(bits));
  return bits;
}
static inline float number_of_bits(uint32_t bits) {
  float x;
  memcpy(&x, &bits, sizeof(x));
  return x;
}

static inline float number_from_bf16(uint16_t bits) {
  return number_of_bits((uint32_t)bits << 16);
}
static inline float number_from_half(uint16_t bits) {
  uint32_t sign = (uint32_t)(bits & 0x8000u) << 16;
  uint32_t exponent = bits >> 10 & 31, fraction = bits & 1023u;
  if (exponent == 31)
    return number_of_bits(sign | 0x7f800000u | fraction << 13);
  float value = exponent == 0
                    ? (float)fraction * 0x1p-24f
                    : number_of_bits((exponent + 112) << 23 | fraction << 13);
  return sign ? -value : value;
}

static inline float number_from_fp8(uint8_t bits) {  // E4M3
  int exponent = bits >> 3 & 15, fraction = bits & 7;
  float value = exponent == 0 ? ldexpf((float)fraction, -9)
                              : ldexpf((float)(fraction | 8), exponent - 10);
  if ((bits & 0x7f) == 0x7f) value = NAN;
  return bits & 0x80 ? -value : value;
}

// Drops `count` low bits.
static inline uint32_t number_round_bits(uint32_t bits, int count) {
  return bits + ((1u << (count - 1)) - 1) + (bits >> count & 1);
}
static inline float number_to_tf32(float x) {
  uint32_t bits = number_bits(x);
  if ((bits & 0x7f800000u) == 0x7f800000u) return x;
  return number_of_bits(number_round_bits(bits, 13) & ~0x1fffu);
}
static inline uint16_t number_to_bf16(float x) {
  uint32_t bits = number_bits(x);
  if (x != x) return (uint16_t)(bits >> 16 | 0x40u);
  return (uint16_t)(number_round_bits(bits, 16) >> 16);
}
static inline uint16_t number_to_half(float x) {
  uint32_t bits = number_bits(x);
  uint16_t sign = (uint16_t)(bits >> 16 & 0x8000u);
  float size = fabsf(x);
  if (x != x) return (uint16_t)(sign | 0x7e00u);
  if (size >= 65520.0f) return (uint16_t)(sign | 0x7c00u);
  if (size < 0x1p-14f)  // subnormal: whole multiples of 2^-24
    return (uint16_t)(sign | (uint16_t)rintf(size * 0x1p24f));
  uint32_t rounded = number_round_bits(bits & 0x7fffffffu, 13) >> 13;
  return (uint16_t)(sign | (rounded - (112u << 10)));
}

static inline uint8_t number_to_fp8(float x) {  // E4M3, saturating
  uint8_t sign = (uint8_t)(number_bits(x) >> 24 & 0x80u);
  float size = fabsf(x);
  if (x != x) return (uint8_t)(sign | 0x7fu);
  if (size >= 448.0f) return (uint8_t)(sign | 0x7eu);
  if (size < 0x1p-6f)  // subnormal: whole multiples of 2^-9
    return (uint8_t)(sign | (uint8_t)rintf(size * 0x1p9f));
  uint32_t rounded = number_round_bits(number_bits(size), 20) >> 20;
  return (uint8_t)(sign | (rounded - (120u << 3)));
}

#endif  // RABBET_TESTS_CUDA_STAND_IN_NUMBERS_H_
