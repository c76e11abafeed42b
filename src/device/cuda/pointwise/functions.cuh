// The catalogue's element-wise functions, named after their enumerators:
// elementwise_SUM, unary_EXP, activation_RELU. There is an overload for each
// kind of lane (number.cuh) that the operator allows. NaN, infinities and
// division by zero give what the reference kernels give.
#pragma once

#include "device/cuda/programs/number.cuh"

// ---- Two operands ----------------------------------------------------------

DEVICE float elementwise_SUM(float a, float b) { return a + b; }
DEVICE float elementwise_PROD(float a, float b) { return a * b; }
DEVICE float elementwise_SUB(float a, float b) { return a - b; }
DEVICE float elementwise_DIV(float a, float b) { return a / b; }
DEVICE float elementwise_POW(float a, float b) { return powf(a, b); }
DEVICE float elementwise_FLOOR_DIV(float a, float b) { return floorf(a / b); }
// NaN in either operand gives NaN; one instruction from sm_80 on.
DEVICE float elementwise_MAX(float a, float b) {
#if !defined(RABBET_STAND_IN) && __CUDA_ARCH__ >= 800
  float y;
  asm("max.NaN.f32 %0, %1, %2;" : "=f"(y) : "f"(a), "f"(b));
  return y;
#else
  return a != a || a > b ? a : b;
#endif
}
DEVICE float elementwise_MIN(float a, float b) {
#if !defined(RABBET_STAND_IN) && __CUDA_ARCH__ >= 800
  float y;
  asm("min.NaN.f32 %0, %1, %2;" : "=f"(y) : "f"(a), "f"(b));
  return y;
#else
  return a != a || a < b ? a : b;
#endif
}

#define INTEGER_FUNCTIONS(T, U)                                           \
  DEVICE T elementwise_SUM(T a, T b) { return (T)((U)a + (U)b); }         \
  DEVICE T elementwise_PROD(T a, T b) { return (T)((U)a * (U)b); }        \
  DEVICE T elementwise_SUB(T a, T b) { return (T)((U)a - (U)b); }         \
  DEVICE T elementwise_MAX(T a, T b) { return a > b ? a : b; }            \
  DEVICE T elementwise_MIN(T a, T b) { return a < b ? a : b; }            \
  DEVICE T elementwise_DIV(T a, T b) {                                    \
    return b == 0 ? 0 : b == -1 ? (T)(0 - (U)a) : a / b;                  \
  }                                                                       \
  DEVICE T elementwise_FLOOR_DIV(T a, T b) {                              \
    T quotient = elementwise_DIV(a, b);                                   \
    bool inexact = b != 0 && b != -1 && a % b != 0;                       \
    return quotient - (T)(inexact && (a < 0) != (b < 0));                 \
  }                                                                       \
  DEVICE T elementwise_AND(T a, T b) { return a & b; }                    \
  DEVICE T elementwise_OR(T a, T b) { return a | b; }                     \
  DEVICE T elementwise_XOR(T a, T b) { return a ^ b; }                    \
  DEVICE T elementwise_POW(T a, T b) {                                    \
    if (b < 0) return a == 1 ? 1 : a == -1 ? (b % 2 ? -1 : 1) : 0;        \
    U result = 1, factor = (U)a;                                          \
    for (; b > 0; b >>= 1) {                                              \
      if (b & 1) result *= factor;                                        \
      factor *= factor;                                                   \
    }                                                                     \
    return (T)result;                                                     \
  }                                                                       \
  DEVICE T unary_ABS(T x) { return x < 0 ? (T)(0 - (U)x) : x; }           \
  DEVICE T unary_NEG(T x) { return (T)(0 - (U)x); }                       \
  DEVICE T unary_SIGN(T x) { return (T)(x > 0) - (T)(x < 0); }            \
  DEVICE T activation_RELU(T x, double, double) { return x < 0 ? 0 : x; } \
  DEVICE T activation_CLIP(T x, double low, double high) {                \
    return nearest_##T(clip_wide((double)x, low, high));                  \
  }                                                                       \
  DEVICE T activation_THRESHOLDED_RELU(T x, double bound, double) {       \
    return (double)x > bound ? x : 0;                                     \
  }

DEVICE double clip_wide(double x, double low, double high) {
  return x < low ? (low < high ? low : high) : x > high ? high : x;
}
DEVICE int32_t nearest_int32_t(double x) {
  x = rint(x);
  return x <= -0x1p31 ? -0x7fffffff - 1 : x >= 0x1p31 ? 0x7fffffff : (int32_t)x;
}
DEVICE int64_t nearest_int64_t(double x) {
  const int64_t most = 0x7fffffffffffffffll;
  x = rint(x);
  return x <= -0x1p63 ? -most - 1 : x >= 0x1p63 ? most : (int64_t)x;
}
INTEGER_FUNCTIONS(int32_t, uint32_t)
INTEGER_FUNCTIONS(int64_t, uint64_t)
#undef INTEGER_FUNCTIONS

DEVICE bool elementwise_AND(bool a, bool b) { return a && b; }
DEVICE bool elementwise_OR(bool a, bool b) { return a || b; }
DEVICE bool elementwise_XOR(bool a, bool b) { return a != b; }
template <class L>
DEVICE bool elementwise_EQUAL(L a, L b) {
  return a == b;
}
template <class L>
DEVICE bool elementwise_GREATER(L a, L b) {
  return a > b;
}
template <class L>
DEVICE bool elementwise_LESS(L a, L b) {
  return a < b;
}

// ---- Quantization ----------------------------------------------------------

// x / scale rounded to nearest even, plus the zero point, saturated to the
// type.
DEVICE int32_t quantize_whole(float x, float scale, float zero, float low,
                              float high) {
  float y = rintf(x / scale) + zero;
  return y != y ? 0 : (int32_t)(y < low ? low : y > high ? high : y);
}
template <class T>
struct quantize_of {
  static __device__ __forceinline__ int32_t from(float x, float scale,
                                                 float zero) {
    return quantize_whole(x, scale, zero, -128.0f, 127.0f);
  }
};
template <>
struct quantize_of<uint8_t> {
  static __device__ __forceinline__ int32_t from(float x, float scale,
                                                 float zero) {
    return quantize_whole(x, scale, zero, 0.0f, 255.0f);
  }
};
template <>
struct quantize_of<fp8_t> {
  static __device__ __forceinline__ float from(float x, float scale,
                                               float zero) {
    return load(from_float<fp8_t>(x / scale + zero));
  }
};
template <class T>
DEVICE typename lane_of<T>::type quantize(float x, float scale, float zero) {
  return quantize_of<T>::from(x, scale, zero);
}

// ---- One operand -----------------------------------------------------------

DEVICE bool unary_NOT(bool x) { return !x; }
DEVICE float unary_EXP(float x) { return expf(x); }
DEVICE float unary_LOG(float x) { return logf(x); }
DEVICE float unary_SQRT(float x) { return sqrtf(x); }
DEVICE float unary_RECIP(float x) { return 1.0f / x; }
DEVICE float unary_ABS(float x) { return fabsf(x); }
DEVICE float unary_NEG(float x) { return -x; }
DEVICE float unary_SIN(float x) { return sinf(x); }
DEVICE float unary_COS(float x) { return cosf(x); }
DEVICE float unary_TAN(float x) { return tanf(x); }
DEVICE float unary_SINH(float x) { return sinhf(x); }
DEVICE float unary_COSH(float x) { return coshf(x); }
DEVICE float unary_ASIN(float x) { return asinf(x); }
DEVICE float unary_ACOS(float x) { return acosf(x); }
DEVICE float unary_ATAN(float x) { return atanf(x); }
DEVICE float unary_ASINH(float x) { return asinhf(x); }
DEVICE float unary_ACOSH(float x) { return acoshf(x); }
DEVICE float unary_ATANH(float x) { return atanhf(x); }
DEVICE float unary_CEIL(float x) { return ceilf(x); }
DEVICE float unary_FLOOR(float x) { return floorf(x); }
DEVICE float unary_ERF(float x) { return erff(x); }
DEVICE float unary_ROUND(float x) { return rintf(x); }
DEVICE float unary_SIGN(float x) { return x > 0 ? 1.0f : x < 0 ? -1.0f : x; }
DEVICE bool unary_ISINF(float x) { return fabsf(x) == INFINITE; }
DEVICE bool unary_ISNAN(float x) { return x != x; }

// ---- Activations -----------------------------------------------------------

// -0 stays -0, as in the reference; fmaxf could return +0.
DEVICE float activation_RELU(float x, float, float) { return x < 0 ? 0 : x; }
DEVICE float activation_SIGMOID(float x, float, float) {
  return divide_fast(1.0f, 1.0f + expf(-x));
}
DEVICE float activation_TANH(float x, float, float) { return tanhf(x); }
DEVICE float activation_LEAKY_RELU(float x, float a, float) {
  return x < 0 ? a * x : x;
}
DEVICE float activation_ELU(float x, float a, float) {
  return x < 0 ? a * expm1f(x) : x;
}
DEVICE float activation_SELU(float x, float a, float b) {
  return b * activation_ELU(x, a, b);
}
DEVICE float activation_SOFTSIGN(float x, float, float) {
  return x / (1.0f + fabsf(x));
}
DEVICE float activation_SOFTPLUS(float x, float a, float b) {
  float y = b * x;
  return a * (elementwise_MAX(y, 0.0f) + log1pf(expf(-fabsf(y))));
}
DEVICE float activation_CLIP(float x, float low, float high) {
  return x < low ? (low < high ? low : high) : x > high ? high : x;
}
DEVICE float activation_HARD_SIGMOID(float x, float a, float b) {
  return activation_CLIP(a * x + b, 0.0f, 1.0f);
}
DEVICE float activation_SCALED_TANH(float x, float a, float b) {
  return a * tanhf(b * x);
}
DEVICE float activation_THRESHOLDED_RELU(float x, float a, float) {
  return x > a ? x : 0;
}
// x times the normal distribution's integral, whose smaller side is a
// polynomial times exp(-x^2 / 2): Abramowitz and Stegun, 7.1.26, off by at most
// 1e-7, as 1 + erff(x) is, at a third of its instructions.
DEVICE float activation_GELU_ERF(float x, float, float) {
  float t = divide_fast(1.0f, 1.0f + 0.23164189f * fabsf(x));
  float series = 0.5307027145f;
  series = series * t - 0.7265760135f;
  series = series * t + 0.7107068705f;
  series = series * t - 0.142248368f;
  series = series * t + 0.127414796f;
  float side = series * t * exp2f(x * x * -0.72134752f);
  return x * (x < 0 ? side : 1.0f - side);
}
DEVICE float activation_GELU_TANH(float x, float, float) {
  // 0.5 (1 + tanh z) = 1 / (1 + exp(-2 z))
  float z = 0.79788456080286536f * (x + 0.044715f * x * x * x);
  return divide_fast(x, 1.0f + expf(-2.0f * z));
}
