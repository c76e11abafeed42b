// Conversions of single elements between types.
#include <assert.h>
#include <math.h>
#include <string.h>

#include "core/view.h"

static uint32_t float_bits(float value) {
  uint32_t bits;
  memcpy(&bits, &value, sizeof(bits));
  return bits;
}

static float float_of_bits(uint32_t bits) {
  float value;
  memcpy(&value, &bits, sizeof(value));
  return value;
}

float rabbet_half_to_float(uint16_t bits) {
  uint32_t sign = (uint32_t)(bits & 0x8000u) << 16;
  uint32_t exponent = (bits >> 10) & 0x1fu;
  uint32_t mantissa = bits & 0x3ffu;
  if (exponent == 0x1f) {
    uint32_t quiet = mantissa ? 0x400000u : 0;
    return float_of_bits(sign | 0x7f800000u | quiet | mantissa << 13);
  }
  if (exponent == 0) {  // zero or subnormal: a multiple of 2^-24
    float magnitude = (float)mantissa * 0x1p-24f;
    return float_of_bits(sign | float_bits(magnitude));
  }
  return float_of_bits(sign | (exponent + 112) << 23 | mantissa << 13);
}

uint16_t rabbet_float_to_half(float value) {
  uint32_t bits = float_bits(value);
  uint16_t sign = (uint16_t)(bits >> 16 & 0x8000u);
  uint32_t magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u)
    return (uint16_t)(sign | 0x7e00u | (magnitude >> 13 & 0x3ffu));
  if (magnitude >= 0x477ff000u) return sign | 0x7c00u;  // 65520 rounds up
  if (magnitude < 0x38800000u) {  // below 2^-14: the adder rounds to 2^-24
    float aligned = float_of_bits(magnitude) + 0.5f;
    return (uint16_t)(sign | (float_bits(aligned) - 0x3f000000u));
  }
  uint32_t odd = magnitude >> 13 & 1;
  return (uint16_t)(sign | (magnitude - 0x38000000u + 0xfffu + odd) >> 13);
}

float rabbet_bf16_to_float(uint16_t bits) {
  bool nan = (bits & 0x7fffu) > 0x7f80u;
  return float_of_bits((uint32_t)(bits | (nan ? 0x40u : 0)) << 16);
}

uint16_t rabbet_float_to_bf16(float value) {
  uint32_t bits = float_bits(value);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return (uint16_t)(bits >> 16 | 0x40u);
  return (uint16_t)((bits + 0x7fffu + (bits >> 16 & 1)) >> 16);
}

// Binary floating-point types of 16 bits or fewer with a sign.
typedef struct minifloat_t {
  int mantissa_bits;
  int bias;
  uint32_t largest;   // code of the largest finite magnitude
  uint32_t overflow;  // code of larger magnitudes, and of infinity
  uint32_t nan;
  uint32_t sign;
} minifloat_t;

// FP8 and FP4 have no infinity: they saturate, as ONNX's Cast does by default.
// FP4 has no NaN either, which becomes its largest value, as in CUDA.
static const minifloat_t half_type = {10, 15, 0x7bff, 0x7c00, 0x7e00, 0x8000};
static const minifloat_t bf16_type = {7, 127, 0x7f7f, 0x7f80, 0x7fc0, 0x8000};
static const minifloat_t fp8_type = {3, 7, 0x7e, 0x7e, 0x7f, 0x80};
static const minifloat_t fp4_type = {1, 1, 7, 7, 7, 8};

// Straight from double, since through float would round twice.
static uint32_t minifloat_of(const minifloat_t* type, double value) {
  uint32_t sign = signbit(value) ? type->sign : 0;
  if (isnan(value)) return sign | type->nan;
  double magnitude = fabs(value);
  if (isinf(magnitude)) return sign | type->overflow;
  if (magnitude == 0) return sign;  // it has no exponent
  int exponent = 0;
  frexp(magnitude, &exponent);  // in [2^(exponent-1), 2^exponent)
  int least = 1 - type->bias;
  int binade = exponent - 1 < least ? least : exponent - 1;
  // In units of the last place; may carry into the next binade, which the
  // code's arithmetic below then does by itself.
  double units = nearbyint(ldexp(magnitude, type->mantissa_bits - binade));
  if (units > 0x1p20) return sign | type->overflow;
  uint32_t code =
      (uint32_t)units + ((uint32_t)(binade - least) << type->mantissa_bits);
  return sign | (code > type->largest ? type->overflow : code);
}

static double minifloat_to(const minifloat_t* type, uint32_t bits) {
  uint32_t code = bits & (type->sign - 1);
  uint32_t exponent = code >> type->mantissa_bits;
  uint32_t mantissa = code & ((1u << type->mantissa_bits) - 1);
  double magnitude = NAN;
  if (code <= type->largest) {
    if (exponent > 0) mantissa += 1u << type->mantissa_bits;
    int binade = (int)(exponent > 0 ? exponent : 1) - type->bias;
    magnitude = ldexp((double)mantissa, binade - type->mantissa_bits);
  }
  return bits & type->sign ? -magnitude : magnitude;
}

// E8M0: 2^(code - 127); 255 is NaN. There is no sign and no zero: a negative
// number is NaN, zero the smallest power.
static uint8_t e8m0_of(double value) {
  if (isnan(value) || value < 0) return 255;
  if (value < 0x1p-127) return 0;
  if (value >= 0x1p127) return 254;
  int exponent = 0;
  double fraction = frexp(value, &exponent);  // in [0.5, 1)
  int code = exponent - 1 + 127;
  bool up = fraction > 0.75 || (fraction == 0.75 && code % 2 != 0);
  return (uint8_t)(code + up);
}

// The number of each code of NF4: quantiles of a normal distribution, in order.
static const float nf4_numbers[16] = {
    -1.0f,
    -0.6961928009986877f,
    -0.5250730514526367f,
    -0.39491748809814453f,
    -0.28444138169288635f,
    -0.18477343022823334f,
    -0.09105003625154495f,
    0.0f,
    0.07958029955625534f,
    0.16093020141124725f,
    0.24611230194568634f,
    0.33791524171829224f,
    0.44070982933044434f,
    0.5626170039176941f,
    0.7229568362236023f,
    1.0f,
};

// The nearest number; there is no NaN, which becomes zero.
static uint8_t nf4_of(double value) {
  enum { ZERO = 7, LAST = 15 };
  uint8_t code = 0;
  if (isnan(value)) return ZERO;
  while (code < LAST &&
         value >
             ((double)nf4_numbers[code] + (double)nf4_numbers[code + 1]) / 2)
    ++code;
  return code;
}

static int64_t saturate(double value, int64_t low, int64_t high) {
  if (isnan(value)) return 0;
  if (value <= (double)low) return low;
  if (value >= (double)high) return high;
  return (int64_t)value;
}

static uint8_t nibble(const void* data, int64_t index) {
  uint8_t byte = ((const uint8_t*)data)[index / 2];
  return index % 2 ? byte >> 4 : byte & 15;
}

// The even element lies in the low half of the byte.
static void set_nibble(void* data, int64_t index, uint8_t value) {
  uint8_t* byte = (uint8_t*)data + index / 2;
  *byte = (uint8_t)(index % 2 ? (*byte & 0x0f) | (value & 15) << 4
                              : (*byte & 0xf0) | (value & 15));
}

static int64_t load_integer(rabbet_dtype_t dtype, const void* data,
                            int64_t index) {
  switch (dtype) {
    case RABBET_DTYPE_INT8:
      return ((const int8_t*)data)[index];
    case RABBET_DTYPE_INT32:
      return ((const int32_t*)data)[index];
    case RABBET_DTYPE_BOOL:
      return ((const uint8_t*)data)[index] != 0;
    case RABBET_DTYPE_UINT8:
      return ((const uint8_t*)data)[index];
    case RABBET_DTYPE_INT64:
      return ((const int64_t*)data)[index];
    case RABBET_DTYPE_INT4:
      return (int64_t)(nibble(data, index) ^ 8) - 8;
    default:
      return 0;
  }
}

double rabbet_load_double(rabbet_dtype_t dtype, const void* data,
                          int64_t index) {
  assert(index >= 0);
  switch (dtype) {
    case RABBET_DTYPE_FLOAT:
      return ((const float*)data)[index];
    case RABBET_DTYPE_HALF:
      return rabbet_half_to_float(((const uint16_t*)data)[index]);
    case RABBET_DTYPE_BF16:
      return rabbet_bf16_to_float(((const uint16_t*)data)[index]);
    case RABBET_DTYPE_FP8:
      return minifloat_to(&fp8_type, ((const uint8_t*)data)[index]);
    case RABBET_DTYPE_FP4:
      return minifloat_to(&fp4_type, nibble(data, index));
    case RABBET_DTYPE_DOUBLE:
      return ((const double*)data)[index];
    case RABBET_DTYPE_NF4:
      return (double)nf4_numbers[nibble(data, index)];
    case RABBET_DTYPE_E8M0: {
      uint8_t code = ((const uint8_t*)data)[index];
      return code == 255 ? NAN : ldexp(1.0, code - 127);
    }
    default:
      return (double)load_integer(dtype, data, index);
  }
}

int64_t rabbet_load_int64(rabbet_dtype_t dtype, const void* data,
                          int64_t index) {
  assert(index >= 0);
  if (!rabbet_dtype_is_float(dtype)) return load_integer(dtype, data, index);
  return saturate(rabbet_load_double(dtype, data, index), INT64_MIN, INT64_MAX);
}

void rabbet_store_double(rabbet_dtype_t dtype, void* data, int64_t index,
                         double value) {
  assert(index >= 0);
  switch (dtype) {
    case RABBET_DTYPE_FLOAT:
      ((float*)data)[index] = (float)value;
      return;
    case RABBET_DTYPE_HALF:
      ((uint16_t*)data)[index] = (uint16_t)minifloat_of(&half_type, value);
      return;
    case RABBET_DTYPE_BF16:
      ((uint16_t*)data)[index] = (uint16_t)minifloat_of(&bf16_type, value);
      return;
    case RABBET_DTYPE_FP8:
      ((uint8_t*)data)[index] = (uint8_t)minifloat_of(&fp8_type, value);
      return;
    case RABBET_DTYPE_FP4:
      set_nibble(data, index, (uint8_t)minifloat_of(&fp4_type, value));
      return;
    case RABBET_DTYPE_DOUBLE:
      ((double*)data)[index] = value;
      return;
    case RABBET_DTYPE_NF4:
      set_nibble(data, index, nf4_of(value));
      return;
    case RABBET_DTYPE_E8M0:
      ((uint8_t*)data)[index] = e8m0_of(value);
      return;
    case RABBET_DTYPE_BOOL:
      ((uint8_t*)data)[index] = value != 0;
      return;
    case RABBET_DTYPE_UINT8:
      ((uint8_t*)data)[index] =
          (uint8_t)saturate(nearbyint(value), 0, UINT8_MAX);
      return;
    default: {
      int bits = rabbet_dtype_bits(dtype);
      if (bits == 0) return;
      int64_t high = (int64_t)(UINT64_MAX >> (65 - bits));
      rabbet_store_int64(dtype, data, index,
                         saturate(nearbyint(value), -high - 1, high));
    }
  }
}

// To 53 bits, with the lost bits kept in the last of them: a further rounding
// to fewer bits then equals a single rounding.
static double int64_to_odd(int64_t value) {
  uint64_t magnitude = value < 0 ? 0 - (uint64_t)value : (uint64_t)value;
  uint64_t lost = magnitude & 0x7ff;
  if (magnitude >> 53) magnitude = (magnitude - lost) | (lost ? 0x800 : 0);
  return value < 0 ? -(double)magnitude : (double)magnitude;
}

void rabbet_store_int64(rabbet_dtype_t dtype, void* data, int64_t index,
                        int64_t value) {
  assert(index >= 0);
  switch (dtype) {
    case RABBET_DTYPE_FLOAT:
      ((float*)data)[index] = (float)value;
      return;
    case RABBET_DTYPE_DOUBLE:
      ((double*)data)[index] = (double)value;
      return;
    case RABBET_DTYPE_INT8:
    case RABBET_DTYPE_UINT8:
      ((uint8_t*)data)[index] = (uint8_t)value;
      return;
    case RABBET_DTYPE_INT32:
      ((uint32_t*)data)[index] = (uint32_t)value;
      return;
    case RABBET_DTYPE_BOOL:
      ((uint8_t*)data)[index] = value != 0;
      return;
    case RABBET_DTYPE_INT64:
      ((int64_t*)data)[index] = value;
      return;
    case RABBET_DTYPE_INT4:
      set_nibble(data, index, (uint8_t)(value & 15));
      return;
    default:
      rabbet_store_double(dtype, data, index, int64_to_odd(value));
  }
}
