// Element types of kernels: how they are loaded, computed with and stored.
//
// A program is compiled for types given by -DT0=..., as one of the names below.
// All arithmetic is in float (in int64_t for integers); what is stored is
// rounded once. No header of a toolkit is needed.
#pragma once

typedef unsigned char uint8_t;
typedef signed char int8_t;
typedef unsigned short uint16_t;
typedef int int32_t;
typedef unsigned int uint32_t;
typedef long long int64_t;
typedef unsigned long long uint64_t;

struct half_t {
  uint16_t bits;
};
struct bf16_t {
  uint16_t bits;
};
struct fp8_t {  // E4M3
  uint8_t bits;
};
struct bool_t {
  uint8_t value;
};

// ---- To and from float

__device__ __forceinline__ float to_float(float x) { return x; }
__device__ __forceinline__ float to_float(half_t x) {
  float y;
  asm("cvt.f32.f16 %0, %1;" : "=f"(y) : "h"(x.bits));
  return y;
}
__device__ __forceinline__ float to_float(bf16_t x) {
  return __uint_as_float((uint32_t)x.bits << 16);
}

template <class T>
__device__ __forceinline__ T from_float(float x);
template <>
__device__ __forceinline__ float from_float<float>(float x) {
  return x;
}
template <>
__device__ __forceinline__ half_t from_float<half_t>(float x) {
  half_t y;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(y.bits) : "f"(x));
  return y;
}
template <>
__device__ __forceinline__ bf16_t from_float<bf16_t>(float x) {
  uint32_t bits = __float_as_uint(x);
  bf16_t y;
  if ((bits & 0x7fffffffu) > 0x7f800000u) {
    y.bits = (uint16_t)(bits >> 16 | 0x40);  // a NaN stays one
  } else {
    y.bits = (uint16_t)((bits + 0x7fffu + (bits >> 16 & 1)) >> 16);
  }
  return y;
}
