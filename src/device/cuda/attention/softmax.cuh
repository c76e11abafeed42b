// Scores, masks and weights of an attention. The source that includes this file
// defines MASK, BAND, CAP and ZERO_NAN (attention.cu).
#pragma once

#include "device/cuda/attention/attention_params.h"
#include "device/cuda/programs/number.cuh"

#ifdef MASK
typedef MASK mask_t;
#else
typedef float mask_t;
#endif

// The maximum ignores NaN; the sum of the weights becomes NaN instead.
DEVICE float highest(float a, float b) { return fmaxf(a, b); }
DEVICE float finite_base(float most) { return most == -INFINITE ? 0 : most; }

#define LOG2_E 1.4426950408889634f
// 2^x and e^x, precise enough for weights of 16 bits or TF32.
DEVICE float power_of_2(float x) {
#ifdef RABBET_STAND_IN
  return exp2f(x);
#else
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
#endif
}
DEVICE float power(float x) { return power_of_2(x * LOG2_E); }

// Reductions over the four threads that hold a row.
DEVICE float highest_of_row(float x) {
  x = highest(x, __shfl_xor_sync(0xffffffffu, x, 1));
  return highest(x, __shfl_xor_sync(0xffffffffu, x, 2));
}
DEVICE float sum_of_row(float x) {
  x += __shfl_xor_sync(0xffffffffu, x, 1);
  return x + __shfl_xor_sync(0xffffffffu, x, 2);
}

DEVICE float capped(const attend_t& p, float x) {
  return CAP ? p.cap * tanhf(x / p.cap) : x;
}
// A score whose key does not lie in the query's band is hidden.
DEVICE float banded(const attend_t& p, float x, int32_t key, int32_t query) {
  bool kept = !BAND || (key - query >= p.first && key - query <= p.last);
  return kept ? x : BAND == 1 ? x + p.other : p.other;
}

// A result x of a row with this sum of weights. The sum tells of NaN: either
// all results of a row are NaN, or none is.
DEVICE float without_nan(float x, float sum) {
#ifdef ZERO_NAN
  return sum > 0 ? x : 0;
#else
  return x;
#endif
}

// Two elements of 16 bits in a word.
#ifdef RABBET_STAND_IN
template <class E>
DEVICE uint32_t pair_of(float low, float high) {
  return from_float<E>(low).bits | (uint32_t)from_float<E>(high).bits << 16;
}
#else
template <class E>
DEVICE uint32_t pair_of(float low, float high);
#define PAIR_OF(type, name)                                                  \
  template <>                                                                \
  __device__ __forceinline__ uint32_t pair_of<type>(float low, float high) { \
    uint32_t y;                                                              \
    asm("cvt.rn." name ".f32 %0, %1, %2;" : "=r"(y) : "f"(high), "f"(low));  \
    return y;                                                                \
  }
PAIR_OF(half_t, "f16x2")
PAIR_OF(bf16_t, "bf16x2")
#undef PAIR_OF
#endif
