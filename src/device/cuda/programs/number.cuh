// Element types of kernels: loading, arithmetic and storing.
//
// Options such as -DELEMENT=half_t give a program its types; their names are
// below. (None is called T, a name in NVRTC's own header.) An element is loaded
// into a lane: float for floating types, int32_t for INT8, UINT8 and INT32,
// int64_t for INT64, bool for BOOL. Stores round once, as the reference kernels
// do (core/view.h): to floating types to nearest even (FP8 saturates), from
// floats to integers towards zero with saturation (NaN gives 0), between
// integers by taking the low bits. No header of a toolkit is needed. Tests
// compile kernels for the host with RABBET_STAND_IN, for which each use of PTX
// has an alternative in plain C++.
#pragma once

typedef unsigned char uint8_t;
typedef signed char int8_t;
typedef unsigned short uint16_t;
typedef short int16_t;
typedef unsigned int uint32_t;
typedef int int32_t;
typedef long long int64_t;
typedef unsigned long long uint64_t;

#include "device/cuda/programs/divider.h"
#include "device/cuda/programs/order.cuh"

#define DEVICE static __device__ __forceinline__

struct half_t {
  uint16_t bits;
};
struct bf16_t {
  uint16_t bits;
};
struct fp8_t {  // E4M3
  uint8_t bits;
};
struct e8m0_t {  // 2^(bits - 127); 255 is NaN
  uint8_t bits;
};
struct bool_t {
  uint8_t value;
};

// ---- Bits ------------------------------------------------------------------

DEVICE uint32_t bits_of(float x) { return __float_as_uint(x); }
DEVICE float float_of_bits(uint32_t bits) { return __uint_as_float(bits); }
#define INFINITE float_of_bits(0x7f800000u)
#define NOT_A_NUMBER float_of_bits(0x7fc00000u)

// ---- From storage to float -------------------------------------------------

DEVICE float to_float(float x) { return x; }
DEVICE float to_float(half_t x) {
#ifdef RABBET_STAND_IN
  uint32_t sign = (uint32_t)(x.bits & 0x8000u) << 16, rest = x.bits & 0x7fffu;
  if (rest >= 0x7c00u)
    return float_of_bits(sign | 0x7f800000u | (rest & 0x3ffu) << 13);
  // The exponent's bias is 112 less. Multiplying by 2^112 also normalizes
  // subnormals.
  return float_of_bits(sign | bits_of(float_of_bits(rest << 13) * 0x1p112f));
#else
  float y;
  asm("cvt.f32.f16 %0, %1;" : "=f"(y) : "h"(x.bits));
  return y;
#endif
}
DEVICE float to_float(bf16_t x) {
  return float_of_bits((uint32_t)x.bits << 16);
}
DEVICE float to_float(fp8_t x) {
  uint32_t sign = (uint32_t)(x.bits & 0x80u) << 24, rest = x.bits & 0x7fu;
  if (rest == 0x7fu) return float_of_bits(sign | 0x7fc00000u);
  return float_of_bits(sign | bits_of(float_of_bits(rest << 20) * 0x1p120f));
}
DEVICE float to_float(e8m0_t x) {
  if (x.bits == 255) return float_of_bits(0x7fc00000u);
  return float_of_bits(x.bits == 0 ? 0x400000u : (uint32_t)x.bits << 23);
}
DEVICE float to_float(int8_t x) { return (float)x; }
DEVICE float to_float(uint8_t x) { return (float)x; }
DEVICE float to_float(int32_t x) { return (float)x; }
DEVICE float to_float(int64_t x) { return (float)x; }
DEVICE float to_float(bool_t x) { return x.value != 0 ? 1.0f : 0.0f; }

// ---- From float to storage -------------------------------------------------

DEVICE int32_t truncate_to(float x, float low, float high, int32_t most) {
  return x != x ? 0 : x <= low ? (int32_t)low : x >= high ? most : (int32_t)x;
}
DEVICE int32_t to_int32(float x) {
  return __float2int_rz(x);  // saturates; NaN gives 0
}
DEVICE int64_t to_int64(float x) {
  const int64_t most = 0x7fffffffffffffffll;
  return x != x          ? 0
         : x <= -0x1p63f ? -most - 1
         : x >= 0x1p63f  ? most
                         : (int64_t)x;
}

template <class T>
DEVICE T from_float(float x);
template <>
__device__ __forceinline__ float from_float<float>(float x) {
  return x;
}
template <>
__device__ __forceinline__ half_t from_float<half_t>(float x) {
  half_t y;
#ifdef RABBET_STAND_IN
  uint32_t bits = bits_of(x), sign = bits >> 16 & 0x8000u;
  bits &= 0x7fffffffu;
  if (bits > 0x7f800000u) {
    y.bits = (uint16_t)(sign | 0x7e00u | (bits >> 13 & 0x3ffu));
  } else if (bits >= 0x477ff000u) {  // 65520 rounds up to infinity
    y.bits = (uint16_t)(sign | 0x7c00u);
  } else if (bits < 0x38800000u) {  // subnormal: the adder rounds to 2^-24
    y.bits =
        (uint16_t)(sign | (bits_of(float_of_bits(bits) + 0.5f) - 0x3f000000u));
  } else {
    y.bits =
        (uint16_t)(sign |
                   (bits - 0x38000000u + 0xfffu + (bits >> 13 & 1u)) >> 13);
  }
#else
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(y.bits) : "f"(x));
#endif
  return y;
}
template <>
__device__ __forceinline__ bf16_t from_float<bf16_t>(float x) {
  bf16_t y;
#if !defined(RABBET_STAND_IN) && __CUDA_ARCH__ >= 800
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(y.bits) : "f"(x));
#else
  uint32_t bits = bits_of(x);
  if ((bits & 0x7fffffffu) > 0x7f800000u) {
    y.bits = (uint16_t)(bits >> 16 | 0x40u);  // a NaN stays one
  } else {
    y.bits = (uint16_t)((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
  }
#endif
  return y;
}
template <>
__device__ __forceinline__ fp8_t from_float<fp8_t>(float x) {
  fp8_t y;
#if !defined(RABBET_STAND_IN) && __CUDA_ARCH__ >= 890
  uint16_t pair;
  asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;"
      : "=h"(pair)
      : "f"(0.0f), "f"(x));
  y.bits = (uint8_t)pair;
#else
  uint32_t bits = bits_of(x), sign = bits >> 24 & 0x80u, code;
  bits &= 0x7fffffffu;
  if (bits > 0x7f800000u) {
    code = 0x7fu;
  } else if (bits > 0x43e00000u) {  // more than 448, the largest
    code = 0x7eu;
  } else if (bits < 0x3c800000u) {  // below 2^-6: multiples of 2^-9
    code = (uint32_t)(int32_t)rintf(float_of_bits(bits) * 512.0f);
  } else {
    code = (bits - 0x3c000000u + 0x7ffffu + (bits >> 20 & 1u)) >> 20;
  }
  y.bits = (uint8_t)(sign | code);
#endif
  return y;
}
// Negative numbers give NaN, and 0 gives the smallest power.
template <>
__device__ __forceinline__ e8m0_t from_float<e8m0_t>(float x) {
  uint32_t bits = bits_of(x), code;
  if (!(x >= 0)) {
    code = 255;
  } else if (x < 0x1p-126f) {  // 2^-127, or nearer to 2^-126
    code = (bits & 0x7fffffu) > 0x600000u;
  } else {
    uint32_t rest = bits & 0x7fffffu;
    code = bits >> 23;
    code += rest > 0x400000u || (rest == 0x400000u && (code & 1u));
    code = code > 254 ? 254 : code;
  }
  e8m0_t y;
  y.bits = (uint8_t)code;
  return y;
}
template <>
__device__ __forceinline__ int8_t from_float<int8_t>(float x) {
  return (int8_t)truncate_to(x, -128.0f, 127.0f, 127);
}
template <>
__device__ __forceinline__ uint8_t from_float<uint8_t>(float x) {
  return (uint8_t)truncate_to(x, 0.0f, 255.0f, 255);
}
template <>
__device__ __forceinline__ int32_t from_float<int32_t>(float x) {
  return to_int32(x);
}
template <>
__device__ __forceinline__ int64_t from_float<int64_t>(float x) {
  return to_int64(x);
}
template <>
__device__ __forceinline__ bool_t from_float<bool_t>(float x) {
  bool_t y;
  y.value = x != 0;
  return y;
}

// ---- Lanes -----------------------------------------------------------------

template <class T>
struct lane_of {
  typedef float type;
};
template <>
struct lane_of<int8_t> {
  typedef int32_t type;
};
template <>
struct lane_of<uint8_t> {
  typedef int32_t type;
};
template <>
struct lane_of<int32_t> {
  typedef int32_t type;
};
template <>
struct lane_of<int64_t> {
  typedef int64_t type;
};
template <>
struct lane_of<bool_t> {
  typedef bool type;
};

DEVICE float load(float x) { return x; }
DEVICE float load(half_t x) { return to_float(x); }
DEVICE float load(bf16_t x) { return to_float(x); }
DEVICE float load(fp8_t x) { return to_float(x); }
DEVICE float load(e8m0_t x) { return to_float(x); }
DEVICE int32_t load(int8_t x) { return x; }
DEVICE int32_t load(uint8_t x) { return x; }
DEVICE int32_t load(int32_t x) { return x; }
DEVICE int64_t load(int64_t x) { return x; }
DEVICE bool load(bool_t x) { return x.value != 0; }

// Rounding to odd: towards zero, with the last bit set if the result is
// inexact. The float then rounds to any narrower floating type as the integer
// would.
DEVICE float odd_float(int32_t x) {
#ifdef RABBET_STAND_IN
  double wide = x;
  float y = (float)wide;
  if (fabs((double)y) > fabs(wide)) y = float_of_bits(bits_of(y) - 1);
#else
  float y = __int2float_rz(x);
  double wide = (double)x;
#endif
  return (double)y == wide ? y : float_of_bits(bits_of(y) | 1u);
}
// Converts to double first, as the reference does.
DEVICE float odd_float(int64_t x) {
  double wide = (double)x;
#ifdef RABBET_STAND_IN
  float y = (float)wide;
  if (fabs((double)y) > fabs(wide)) y = float_of_bits(bits_of(y) - 1);
#else
  float y = __double2float_rz(wide);
#endif
  return (double)y == wide ? y : float_of_bits(bits_of(y) | 1u);
}

// store_as<half_t>(lane): a lane of any kind as an element.
template <class T>
struct store_of {  // floating types
  static __device__ __forceinline__ T from(float x) { return from_float<T>(x); }
  static __device__ __forceinline__ T from(int32_t x) {
    return from_float<T>(odd_float(x));
  }
  static __device__ __forceinline__ T from(int64_t x) {
    return from_float<T>(odd_float(x));
  }
  static __device__ __forceinline__ T from(bool x) {
    return from_float<T>(x ? 1.0f : 0.0f);
  }
};
template <>
struct store_of<float> {
  static __device__ __forceinline__ float from(float x) { return x; }
  static __device__ __forceinline__ float from(int32_t x) { return (float)x; }
  static __device__ __forceinline__ float from(int64_t x) { return (float)x; }
  static __device__ __forceinline__ float from(bool x) {
    return x ? 1.0f : 0.0f;
  }
};
#define STORE_INTEGER(T)                                                 \
  template <>                                                            \
  struct store_of<T> {                                                   \
    static __device__ __forceinline__ T from(float x) {                  \
      return from_float<T>(x);                                           \
    }                                                                    \
    static __device__ __forceinline__ T from(int32_t x) { return (T)x; } \
    static __device__ __forceinline__ T from(int64_t x) { return (T)x; } \
    static __device__ __forceinline__ T from(bool x) { return (T)x; }    \
  };
STORE_INTEGER(int8_t)
STORE_INTEGER(uint8_t)
STORE_INTEGER(int32_t)
STORE_INTEGER(int64_t)
#undef STORE_INTEGER
template <>
struct store_of<bool_t> {
  template <class L>
  static __device__ __forceinline__ bool_t from(L x) {
    bool_t y;
    y.value = x != 0;
    return y;
  }
};
template <class T, class L>
DEVICE T store_as(L x) {
  return store_of<T>::from(x);
}

// ---- Several elements at once ----------------------------------------------

// N contiguous elements; one instruction loads or stores up to 16 bytes. The
// address must be a multiple of their size in bytes.
template <class T, int N>
struct alignas(sizeof(T) * N) pack_t {
  T v[N];
};
template <class T, int N>
DEVICE pack_t<T, N> load_pack(const T* from) {
  return *reinterpret_cast<const pack_t<T, N>*>(from);
}
template <class T, int N>
DEVICE void store_pack(T* to, const pack_t<T, N>& pack) {
  *reinterpret_cast<pack_t<T, N>*>(to) = pack;
}

// ---- Functions -------------------------------------------------------------

// Within 2 units of the last place; 0 for a divisor beyond 2^126.
DEVICE float divide_fast(float a, float b) { return __fdividef(a, b); }
