// Products with packed weights whose blocks no stage of weight_only.cuh fits,
// element by element. The text that includes this file is generated with the
// product's epilogue (weight_only.c). It defines ELEMENT, WEIGHT, SCALE,
// SHIFTED, PAIR and those of a normalization as weight_only.cuh says, and the
// macros of layers_params.h.
#pragma once

#include "device/cuda/weight_only/normalized.cuh"
#include "device/cuda/weight_only/params.h"

struct int4_t;
struct fp4_t;  // E2M1
struct nf4_t;

DEVICE uint32_t nibble_at(const void* from, int64_t at) {
  return ((const uint8_t*)from)[at / 2] >> (at % 2 * 4) & 15u;
}
template <class W>
struct packed_t {
  static __device__ __forceinline__ float at(const void* from, int64_t i) {
    return to_float(((const W*)from)[i]);
  }
};
template <>
struct packed_t<int4_t> {
  static __device__ __forceinline__ float at(const void* from, int64_t i) {
    return (float)((int32_t)(nibble_at(from, i) ^ 8u) - 8);
  }
};
template <>
struct packed_t<fp4_t> {
  static __device__ __forceinline__ float at(const void* from, int64_t i) {
    uint32_t bits = nibble_at(from, i);
    half_t y;
    y.bits = (uint16_t)((bits & 8u) << 12 | (bits & 7u) << 9);
    return to_float(y) * 0x1p14f;
  }
};

// Products with a line of weights differ in their codes, for which constant
// memory would be read one after the other.
template <>
struct packed_t<nf4_t> {
  static __device__ __forceinline__ float at(const void* from, int64_t i) {
    uint32_t code = nibble_at(from, i);
    float a, b, c, d;
    a = code & 1 ? -0.6961928009986877f : -1.0f;
    b = code & 1 ? -0.39491748809814453f : -0.5250730514526367f;
    c = code & 1 ? -0.18477343022823334f : -0.28444138169288635f;
    d = code & 1 ? 0.0f : -0.09105003625154495f;
    if (code & 8) {
      a = code & 1 ? 0.16093020141124725f : 0.07958029955625534f;
      b = code & 1 ? 0.33791524171829224f : 0.24611230194568634f;
      c = code & 1 ? 0.5626170039176941f : 0.44070982933044434f;
      d = code & 1 ? 1.0f : 0.7229568362236023f;
    }
    return code & 4 ? (code & 2 ? d : c) : (code & 2 ? b : a);
  }
};

DEVICE int64_t place_of(const weight_only_places_t& places, int32_t line,
                        int32_t k) {
  return line / places.lines * places.line_step +
         k / places.depth * places.block_step;
}

// The product of a row of x and a line of a side's weights. `factor`: of a row
// that is normalized.
DEVICE float line_product(const weight_only_t& p, int side, int32_t row,
                          int32_t line, float factor) {
  const ELEMENT* x = (const ELEMENT*)p.x + row * p.x_row;
  const char* w = (const char*)p.w[side] + line * p.pitch;
  const SCALE* scales = (const SCALE*)p.scales[side];
  float sum = 0;
  for (int32_t k = (int32_t)threadIdx.x % 32; k < p.k; k += 32) {
    float weight = packed_t<WEIGHT>::at(w, k);
    if (SHIFTED)
      weight -= packed_t<WEIGHT>::at(p.zeros[side], place_of(p.zero, line, k));
    float own = to_float(x[k * p.x_k]);
#if NORMALIZED
    own *= factor;
    multiply_by_numbers<1>(p, k, &own);
#endif
    sum += weight * to_float(scales[place_of(p.scale, line, k)]) * own;
  }
  return warp_sum(sum);
}

// A warp has a line of weights, or one of each of a pair's, and a row of x.
extern "C" __global__ void __launch_bounds__(32 * WEIGHT_ONLY_WARPS)
    weight_only(const __grid_constant__ weight_only_t p) {
  turn_t turn;
  int32_t lane = (int32_t)threadIdx.x % 32, row = (int32_t)blockIdx.x;
  int32_t line =
      (int32_t)blockIdx.y * WEIGHT_ONLY_WARPS + (int32_t)threadIdx.x / 32;
  if (line >= p.lines) return;
  float factor = 1;
#if NORMALIZED
  factor = factor_of(p, warp_sum(squares_of<false, 1>(p, row, lane, 32)));
#endif
  float sum = line_product(p, 0, row, line, factor);
  float other = PAIR ? line_product(p, PAIR, row, line, factor) : 0;
  if (lane == 0)
    ((ELEMENT*)p.y)[row * p.y_row + line] =
        finished(sum, p.layers, 0, row, line, other);
}
