// Block quantization (ops/pointwise/blocks.h): a block's scale maps its largest
// element to the largest number of the result's type.
#pragma once

#include "device/cuda/programs/number.cuh"

struct max_of {
  static __device__ __forceinline__ float join(float a, float b) {
    return b > a ? b : a;
  }
};

template <class R>
DEVICE float limit();
template <>
__device__ __forceinline__ float limit<int8_t>() {
  return 127.0f;
}
template <>
__device__ __forceinline__ float limit<fp8_t>() {
  return 448.0f;
}

// ---- Scales

template <class S>
DEVICE S store_scale(float x) {
  return from_float<S>(x);
}
// Rounds up to a power of two.
template <>
__device__ __forceinline__ e8m0_t store_scale<e8m0_t>(float x) {
  e8m0_t y;
  uint32_t bits = bits_of(x), code = bits >> 23, rest = bits & 0x7fffffu;
  if (code == 0) {
    code = rest > 0x400000u;
  } else {
    code += rest != 0;
  }
  y.bits = !(x >= 0) ? 255 : code > 254 ? 254 : (uint8_t)code;
  return y;
}

// ---- Elements

template <class R>
DEVICE R quantized(float x, float scale);
template <>
__device__ __forceinline__ int8_t quantized<int8_t>(float x, float scale) {
  return from_float<int8_t>(scale == 0 ? 0.0f : rintf(x / scale));
}
template <>
__device__ __forceinline__ fp8_t quantized<fp8_t>(float x, float scale) {
  return from_float<fp8_t>(scale == 0 ? 0.0f : x / scale);
}
