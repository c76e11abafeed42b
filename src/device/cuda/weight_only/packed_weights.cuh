// Weights of 4 and 8 bits as factors of tensor cores: pairs of half_t or
// bf16_t, which hold each of them exactly.
//
// A word has 8 or 4 neighbouring weights. unpack() makes pairs of them: of 4
// bits, weights i and i + 4; of 8 bits, weights 2 i and 2 i + 1. Integers come
// without their zero point, which is passed with its sign bit flipped. Floating
// weights come divided by 2^SCALE_BY_LOG, by which their scale is to be
// multiplied. `mask` is 0x000f000f: were it a constant, the compiler would load
// it for each use.
//
// spread() leaves the zero point to the caller and so takes fewer instructions.
// Pair i is w + BASE of the integers w with the sign bit flipped, times
// 2^ODD_LOG if i is odd, divided by 2^SPREAD_LOG. As subnormal numbers, small
// integers are halves without any operation. Floating weights are those of
// unpack().
#pragma once

#include "device/cuda/programs/number.cuh"

// ---- Pairs -----------------------------------------------------------------

// a b + c
template <class F>
DEVICE uint32_t multiply_add(uint32_t a, uint32_t b, uint32_t c);
#ifdef RABBET_STAND_IN
template <class F>
DEVICE uint32_t multiply_add(uint32_t a, uint32_t b, uint32_t c) {
  uint32_t y = 0;
  for (int i = 0; i < 32; i += 16) {
    F p, q, r;
    p.bits = (uint16_t)(a >> i);
    q.bits = (uint16_t)(b >> i);
    r.bits = (uint16_t)(c >> i);
    F sum = from_float<F>(to_float(p) * to_float(q) + to_float(r));
    y |= (uint32_t)sum.bits << i;
  }
  return y;
}
#else
template <>
__device__ __forceinline__ uint32_t multiply_add<half_t>(uint32_t a, uint32_t b,
                                                         uint32_t c) {
  uint32_t y;
  asm("fma.rn.f16x2 %0, %1, %2, %3;" : "=r"(y) : "r"(a), "r"(b), "r"(c));
  return y;
}
template <>
__device__ __forceinline__ uint32_t multiply_add<bf16_t>(uint32_t a, uint32_t b,
                                                         uint32_t c) {
  uint32_t y;
  asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(y) : "r"(a), "r"(b), "r"(c));
  return y;
}
#endif

// Bits of 16 in both halves.
DEVICE uint32_t twice(uint32_t bits) { return bits << 16 | bits; }

// ---- Kinds -----------------------------------------------------------------

// Of weights W and factors F: BITS of a weight; SIGN, the bit that is flipped;
// SCALE_BY_LOG.
template <class W, class F>
struct packed_t;

struct int4_t;
struct fp4_t;  // E2M1

// The bits of 1024 + w: w is below the exponent of 2^10.
template <>
struct packed_t<int4_t, half_t> {
  enum { BITS = 4, SIGN = 8, SCALE_BY_LOG = 0 };
  enum { IS_INTEGER = 1, BASE = 0, ODD_LOG = 4, SPREAD_LOG = 24 };
  static __device__ __forceinline__ void unpack(uint32_t word, uint32_t zero,
                                                uint32_t mask,
                                                uint32_t* pairs) {
    uint32_t low = twice(0xe400u | zero), high = twice(0xd400u | zero << 4);
#pragma unroll
    for (int i = 0; i < 4; i += 2, word >>= 8) {
      uint32_t a = (word & mask) ^ 0x64086408u;
      uint32_t b = (word & mask << 4) ^ 0x64806480u;  // 1024 + 16 w
      pairs[i] = multiply_add<half_t>(a, 0x3c003c00u, low);
      pairs[i + 1] = multiply_add<half_t>(b, 0x2c002c00u, high);
    }
  }
  static __device__ __forceinline__ void spread(uint32_t word, uint32_t mask,
                                                uint32_t* pairs) {
#pragma unroll
    for (int i = 0; i < 4; i += 2, word >>= 8) {
      pairs[i] = (word & mask) ^ 0x00080008u;
      pairs[i + 1] = (word & mask << 4) ^ 0x00800080u;
    }
  }
};

// The bits of 128 + w.
template <>
struct packed_t<int4_t, bf16_t> {
  enum { BITS = 4, SIGN = 8, SCALE_BY_LOG = 0 };
  enum { IS_INTEGER = 1, BASE = 128, ODD_LOG = 0, SPREAD_LOG = 0 };
  static __device__ __forceinline__ void unpack(uint32_t word, uint32_t zero,
                                                uint32_t mask,
                                                uint32_t* pairs) {
    uint32_t less = twice(0xc300u | zero);
#pragma unroll
    for (int i = 0; i < 4; ++i, word >>= 4)
      pairs[i] =
          multiply_add<bf16_t>((word & mask) ^ 0x43084308u, 0x3f803f80u, less);
  }
  static __device__ __forceinline__ void spread(uint32_t word, uint32_t mask,
                                                uint32_t* pairs) {
#pragma unroll
    for (int i = 0; i < 4; ++i, word >>= 4)
      pairs[i] = (word & mask) ^ 0x43084308u;
  }
};

template <int FLIPPED, class F>
struct packed_bytes_t;
template <int FLIPPED>
struct packed_bytes_t<FLIPPED, half_t> {
  enum { BITS = 8, SIGN = FLIPPED, SCALE_BY_LOG = 0 };
  enum { IS_INTEGER = 1, BASE = 0, ODD_LOG = 0, SPREAD_LOG = 24 };
  static __device__ __forceinline__ void unpack(uint32_t word, uint32_t zero,
                                                uint32_t, uint32_t* pairs) {
    uint32_t less = twice(0xe400u | zero);
    word ^= FLIPPED * 0x01010101u;
    pairs[0] = multiply_add<half_t>(__byte_perm(word, 0x64646464u, 0x4140u),
                                    0x3c003c00u, less);
    pairs[1] = multiply_add<half_t>(__byte_perm(word, 0x64646464u, 0x4342u),
                                    0x3c003c00u, less);
  }
  static __device__ __forceinline__ void spread(uint32_t word, uint32_t,
                                                uint32_t* pairs) {
    word ^= FLIPPED * 0x01010101u;
    pairs[0] = __byte_perm(word, 0, 0x4140u);
    pairs[1] = __byte_perm(word, 0, 0x4342u);
  }
};

// By way of float: the bits of 2^23 + w. The difference has 8 bits, which the
// upper half of a float holds.
template <int FLIPPED>
struct packed_bytes_t<FLIPPED, bf16_t> {
  enum { BITS = 8, SIGN = FLIPPED, SCALE_BY_LOG = 0 };
  enum { IS_INTEGER = 1, BASE = 0, ODD_LOG = 0, SPREAD_LOG = 0 };
  static __device__ __forceinline__ void unpack(uint32_t word, uint32_t zero,
                                                uint32_t, uint32_t* pairs) {
    float less = float_of_bits(0x4b000000u | zero);
    uint32_t bits[4];
    word ^= FLIPPED * 0x01010101u;
#pragma unroll
    for (uint32_t i = 0; i < 4; ++i)
      bits[i] = bits_of(
          float_of_bits(__byte_perm(word, 0x4b000000u, 0x7440u | i)) - less);
    pairs[0] = __byte_perm(bits[0], bits[1], 0x7632u);
    pairs[1] = __byte_perm(bits[2], bits[3], 0x7632u);
  }
  static __device__ __forceinline__ void spread(uint32_t word, uint32_t mask,
                                                uint32_t* pairs) {
    unpack(word, 0, mask, pairs);
  }
};

template <>
struct packed_t<int8_t, half_t> : packed_bytes_t<128, half_t> {};
template <>
struct packed_t<uint8_t, half_t> : packed_bytes_t<0, half_t> {};
template <>
struct packed_t<int8_t, bf16_t> : packed_bytes_t<128, bf16_t> {};
template <>
struct packed_t<uint8_t, bf16_t> : packed_bytes_t<0, bf16_t> {};

// Exponent and fraction moved to their places; the bias of the exponent is 8
// more.
template <>
struct packed_t<fp8_t, half_t> {
  enum { BITS = 8, SIGN = 128, SCALE_BY_LOG = 8 };
  enum { IS_INTEGER = 0, BASE = 0, ODD_LOG = 0, SPREAD_LOG = 8 };
  static __device__ __forceinline__ void unpack(uint32_t word, uint32_t,
                                                uint32_t, uint32_t* pairs) {
    uint32_t v[2] = {__byte_perm(word, 0, 0x1404u),
                     __byte_perm(word, 0, 0x3424u)};
#pragma unroll
    for (int i = 0; i < 2; ++i)
      pairs[i] = (v[i] & 0x80008000u) | (v[i] >> 1 & 0x3f803f80u);
  }
  static __device__ __forceinline__ void spread(uint32_t word, uint32_t mask,
                                                uint32_t* pairs) {
    unpack(word, 0, mask, pairs);
  }
};

// So far from 1, sums would be subnormal: multiplied by 2^120.
template <>
struct packed_t<fp8_t, bf16_t> {
  enum { BITS = 8, SIGN = 128, SCALE_BY_LOG = 0 };
  enum { IS_INTEGER = 0, BASE = 0, ODD_LOG = 0, SPREAD_LOG = 0 };
  static __device__ __forceinline__ void unpack(uint32_t word, uint32_t,
                                                uint32_t, uint32_t* pairs) {
    uint32_t v[2] = {__byte_perm(word, 0, 0x1404u),
                     __byte_perm(word, 0, 0x3424u)};
#pragma unroll
    for (int i = 0; i < 2; ++i)
      pairs[i] = multiply_add<bf16_t>(
          (v[i] & 0x80008000u) | (v[i] >> 4 & 0x07f007f0u), 0x7b807b80u, 0);
  }
  static __device__ __forceinline__ void spread(uint32_t word, uint32_t mask,
                                                uint32_t* pairs) {
    unpack(word, 0, mask, pairs);
  }
};

template <>
struct packed_t<fp4_t, half_t> {
  enum { BITS = 4, SIGN = 8, SCALE_BY_LOG = 14 };
  enum { IS_INTEGER = 0, BASE = 0, ODD_LOG = 0, SPREAD_LOG = 14 };
  static __device__ __forceinline__ void unpack(uint32_t word, uint32_t,
                                                uint32_t, uint32_t* pairs) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      uint32_t v = word << (12 - 4 * i);
      pairs[i] = (v & 0x80008000u) | (v >> 3 & 0x0e000e00u);
    }
  }
  static __device__ __forceinline__ void spread(uint32_t word, uint32_t mask,
                                                uint32_t* pairs) {
    unpack(word, 0, mask, pairs);
  }
};

template <>
struct packed_t<fp4_t, bf16_t> {
  enum { BITS = 4, SIGN = 8, SCALE_BY_LOG = 0 };
  enum { IS_INTEGER = 0, BASE = 0, ODD_LOG = 0, SPREAD_LOG = 0 };
  static __device__ __forceinline__ void unpack(uint32_t word, uint32_t,
                                                uint32_t, uint32_t* pairs) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      uint32_t v = word << (12 - 4 * i);
      pairs[i] = multiply_add<bf16_t>(
          (v & 0x80008000u) | (v >> 6 & 0x01c001c0u), 0x7e807e80u, 0);
    }
  }
  static __device__ __forceinline__ void spread(uint32_t word, uint32_t mask,
                                                uint32_t* pairs) {
    unpack(word, 0, mask, pairs);
  }
};
