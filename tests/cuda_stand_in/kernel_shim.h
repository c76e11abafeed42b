// CUDA C++ as the stand-in compiler (nvrtc.c) gives it to g++: put before every
// source. No header of the system can be included beside it, as with NVRTC.
//
// The compiler rewrites three markers after the preprocessor ran:
// __stand_in_global__, __stand_in_shared__, __stand_in_bounds__.
#pragma once
#include "kernel_abi.h"

#define RABBET_STAND_IN 1
#define __CUDACC__ 1
#define __CUDACC_RTC__ 1

#define __global__ __stand_in_global__
#define __shared__ __stand_in_shared__
#define __launch_bounds__ __stand_in_bounds__
#define __device__
#define __host__
#define __constant__
#define __grid_constant__
#define __forceinline__ inline  // copies cost more than calls without -O
#define __noinline__ __attribute__((noinline))
#define __align__(n) __attribute__((aligned(n)))
#define __builtin_align__(n) __attribute__((aligned(n)))

// ---- Where a thread is -----------------------------------------------------

extern "C" __attribute__((visibility("default")))
stand_in_module stand_in_module;

typedef __SIZE_TYPE__ size_t;  // as NVRTC has it
struct uint3 {
  unsigned x, y, z;
};
struct dim3 {
  unsigned x, y, z;
  constexpr dim3(unsigned x = 1, unsigned y = 1, unsigned z = 1)
      : x(x), y(y), z(z) {
  }
};
#define threadIdx (stand_in_module.thread)
#define blockIdx (stand_in_module.block)
#define blockDim (stand_in_module.block_extent)
#define gridDim (stand_in_module.grid_extent)
#define warpSize 32

inline void __trap() {
  stand_in_module.runtime->fail("__trap");
}
#define assert(condition) \
  ((condition) ? (void)0  \
               : stand_in_module.runtime->fail("assert(" #condition ")"))
extern "C" int printf(const char*, ...);
extern "C" void* memcpy(void*, const void*, unsigned long);
extern "C" void* memset(void*, int, unsigned long);

inline void stand_in_await_previous() {
  stand_in_module.runtime->await_previous();
}

// ---- Threads together ------------------------------------------------------

inline void __syncthreads() {
  stand_in_module.runtime->sync_threads();
}
inline void __threadfence() {
}
inline void __threadfence_block() {
}
inline void __threadfence_system() {
}

inline void stand_in_cluster_arrive() {
  stand_in_module.runtime->cluster_arrive();
}
inline void stand_in_cluster_wait() {
  stand_in_module.runtime->cluster_wait();
}
inline void* stand_in_cluster_address(void* own, unsigned rank) {
  return stand_in_module.runtime->cluster_address(own, rank);
}

inline void __syncwarp(unsigned mask = 0xffffffffu) {
  stand_in_module.runtime->warp(mask, STAND_IN_WARP_SYNC, nullptr, 0, 0);
}
template <class T>
inline T stand_in_shuffle(unsigned mask, T value, unsigned from) {
  stand_in_module.runtime->warp(mask, STAND_IN_WARP_SHUFFLE, &value,
                                sizeof(value), from);
  return value;
}
// The lanes of a sub-warp of `width`: values from outside are one's own.
template <class T>
inline T __shfl_sync(unsigned mask, T value, int from, int width = 32) {
  unsigned lane = stand_in_module.lane;
  return stand_in_shuffle(mask, value,
                          (lane & ~(width - 1u)) | (from & (width - 1u)));
}
template <class T>
inline T __shfl_up_sync(unsigned mask, T value, unsigned delta,
                        int width = 32) {
  unsigned lane = stand_in_module.lane;
  bool inside = (lane & (width - 1u)) >= delta;
  return stand_in_shuffle(mask, value, inside ? lane - delta : lane);
}
template <class T>
inline T __shfl_down_sync(unsigned mask, T value, unsigned delta,
                          int width = 32) {
  unsigned lane = stand_in_module.lane;
  bool inside = (lane & (width - 1u)) + delta < (unsigned)width;
  return stand_in_shuffle(mask, value, inside ? lane + delta : lane);
}
template <class T>
inline T __shfl_xor_sync(unsigned mask, T value, int flip, int width = 32) {
  unsigned lane = stand_in_module.lane, other = lane ^ (unsigned)flip;
  // Lanes of later sub-warps cannot be reached, those of earlier ones can.
  bool inside = other < (lane & ~(width - 1u)) + width;
  return stand_in_shuffle(mask, value, inside ? other : lane);
}
inline unsigned __ballot_sync(unsigned mask, int predicate) {
  unsigned char value = predicate != 0;
  return stand_in_module.runtime->warp(mask, STAND_IN_WARP_BALLOT, &value, 1,
                                       stand_in_module.lane);
}
inline int __any_sync(unsigned mask, int predicate) {
  return __ballot_sync(mask, predicate) != 0;
}
inline int __all_sync(unsigned mask, int predicate) {
  return __ballot_sync(mask, !predicate) == 0;
}
inline unsigned __activemask() {
  stand_in_module.runtime->fail("__activemask is not in the stand-in");
  return 0;
}
#define STAND_IN_REDUCE(name, type, expression)                   \
  inline type name(unsigned mask, type value) {                   \
    type sum = value;                                             \
    bool first = true;                                            \
    for (int lane = 0; lane < 32; ++lane) {                       \
      if (!(mask >> lane & 1)) continue;                          \
      type other = stand_in_shuffle(mask, value, (unsigned)lane); \
      sum = first ? other : (type)(expression);                   \
      first = false;                                              \
    }                                                             \
    return sum;                                                   \
  }
STAND_IN_REDUCE(__reduce_add_sync, unsigned, sum + other)
STAND_IN_REDUCE(__reduce_add_sync, int, sum + other)
STAND_IN_REDUCE(__reduce_min_sync, unsigned, sum < other ? sum : other)
STAND_IN_REDUCE(__reduce_min_sync, int, sum < other ? sum : other)
STAND_IN_REDUCE(__reduce_max_sync, unsigned, sum > other ? sum : other)
STAND_IN_REDUCE(__reduce_max_sync, int, sum > other ? sum : other)
STAND_IN_REDUCE(__reduce_or_sync, unsigned, sum | other)
STAND_IN_REDUCE(__reduce_and_sync, unsigned, sum& other)

template <class T>
inline T stand_in_count_threads(T predicate) {
  static __attribute__((used)) T count;
  __syncthreads();
  count = 0;
  __syncthreads();
  count += predicate;
  __syncthreads();
  return count;
}
inline int __syncthreads_count(int predicate) {
  return stand_in_count_threads<int>(predicate != 0);
}
inline int __syncthreads_or(int predicate) {
  return __syncthreads_count(predicate) != 0;
}
inline int __syncthreads_and(int predicate) {
  return __syncthreads_count(!predicate) == 0;
}

// ---- Atomic functions: one thread runs at a time ---------------------------

template <class T>
struct stand_in_same {
  typedef T type;
};
#define STAND_IN_ATOMIC(name, expression)                                    \
  template <class T>                                                         \
  inline T name(T* address, typename stand_in_same<T>::type value) {         \
    T old = *address;                                                        \
    *address = (T)(expression);                                              \
    return old;                                                              \
  }                                                                          \
  template <class T>                                                         \
  inline T name##_block(T* address, typename stand_in_same<T>::type value) { \
    return name(address, value);                                             \
  }
STAND_IN_ATOMIC(atomicAdd, old + value)
STAND_IN_ATOMIC(atomicSub, old - value)
STAND_IN_ATOMIC(atomicExch, value)
STAND_IN_ATOMIC(atomicMin, old < value ? old : value)
STAND_IN_ATOMIC(atomicMax, old > value ? old : value)
STAND_IN_ATOMIC(atomicAnd, old& value)
STAND_IN_ATOMIC(atomicOr, old | value)
STAND_IN_ATOMIC(atomicXor, old ^ value)
STAND_IN_ATOMIC(atomicInc, old >= value ? 0 : old + 1)
STAND_IN_ATOMIC(atomicDec, old == 0 || old > value ? value : old - 1)
template <class T>
inline T atomicCAS(T* address, typename stand_in_same<T>::type compare,
                   typename stand_in_same<T>::type value) {
  T old = *address;
  if (old == compare) *address = value;
  return old;
}

// ---- Memory ----------------------------------------------------------------

#define STAND_IN_LOAD(name)         \
  template <class T>                \
  inline T name(const T* address) { \
    return *address;                \
  }
STAND_IN_LOAD(__ldg)
STAND_IN_LOAD(__ldcg)
STAND_IN_LOAD(__ldca)
STAND_IN_LOAD(__ldcs)
STAND_IN_LOAD(__ldlu)
STAND_IN_LOAD(__ldcv)
#define STAND_IN_STORE(name)                                            \
  template <class T>                                                    \
  inline void name(T* address, typename stand_in_same<T>::type value) { \
    *address = value;                                                   \
  }
STAND_IN_STORE(__stwb)
STAND_IN_STORE(__stcg)
STAND_IN_STORE(__stcs)
STAND_IN_STORE(__stwt)

// ---- Vectors ---------------------------------------------------------------

#define STAND_IN_VECTORS(type, name, align2, align4)              \
  struct name##1 {                                                \
    type x;                                                       \
  };                                                              \
  struct __attribute__((aligned(align2))) name##2 {               \
    type x, y;                                                    \
  };                                                              \
  struct __attribute__((aligned(align4))) name##4 {               \
    type x, y, z, w;                                              \
  };                                                              \
  inline name##1 make_##name##1(type x) {                         \
    return {x};                                                   \
  }                                                               \
  inline name##2 make_##name##2(type x, type y) {                 \
    return {x, y};                                                \
  }                                                               \
  inline name##3 make_##name##3(type x, type y, type z) {         \
    return {x, y, z};                                             \
  }                                                               \
  inline name##4 make_##name##4(type x, type y, type z, type w) { \
    return {x, y, z, w};                                          \
  }
#define STAND_IN_VECTOR(type, name, align2, align4) \
  struct name##3 {                                  \
    type x, y, z;                                   \
  };                                                \
  STAND_IN_VECTORS(type, name, align2, align4)
STAND_IN_VECTORS(unsigned, uint, 8, 16)
STAND_IN_VECTOR(signed char, char, 2, 4)
STAND_IN_VECTOR(unsigned char, uchar, 2, 4)
STAND_IN_VECTOR(short, short, 4, 8)
STAND_IN_VECTOR(unsigned short, ushort, 4, 8)
STAND_IN_VECTOR(int, int, 8, 16)
STAND_IN_VECTOR(long long, longlong, 16, 16)
STAND_IN_VECTOR(unsigned long long, ulonglong, 16, 16)
STAND_IN_VECTOR(float, float, 8, 16)
STAND_IN_VECTOR(double, double, 16, 16)

// ---- Bits ------------------------------------------------------------------

template <class To, class From>
inline To stand_in_bits(From from) {
  static_assert(sizeof(To) == sizeof(From), "");
  To to;
  __builtin_memcpy(&to, &from, sizeof(to));
  return to;
}
inline int __float_as_int(float x) {
  return stand_in_bits<int>(x);
}
inline unsigned __float_as_uint(float x) {
  return stand_in_bits<unsigned>(x);
}
inline float __int_as_float(int x) {
  return stand_in_bits<float>(x);
}
inline float __uint_as_float(unsigned x) {
  return stand_in_bits<float>(x);
}
inline long long __double_as_longlong(double x) {
  return stand_in_bits<long long>(x);
}
inline double __longlong_as_double(long long x) {
  return stand_in_bits<double>(x);
}
inline int __popc(unsigned x) {
  return __builtin_popcount(x);
}
inline int __popcll(unsigned long long x) {
  return __builtin_popcountll(x);
}
inline int __clz(int x) {
  return x ? __builtin_clz((unsigned)x) : 32;
}
inline int __clzll(long long x) {
  return x ? __builtin_clzll((unsigned long long)x) : 64;
}
inline int __ffs(int x) {
  return __builtin_ffs(x);
}
inline int __ffsll(long long x) {
  return __builtin_ffsll(x);
}
inline unsigned __brev(unsigned x) {
  unsigned y = 0;
  for (int i = 0; i < 32; ++i)
    y |= (x >> i & 1) << (31 - i);
  return y;
}
inline unsigned __umulhi(unsigned a, unsigned b) {
  return (unsigned)((unsigned long long)a * b >> 32);
}
inline int __mulhi(int a, int b) {
  return (int)((long long)a * b >> 32);
}
inline unsigned long long __umul64hi(unsigned long long a,
                                     unsigned long long b) {
  return (unsigned long long)((unsigned __int128)a * b >> 64);
}
inline int __mul24(int a, int b) {
  return a * b;
}
inline unsigned __byte_perm(unsigned a, unsigned b, unsigned selector) {
  unsigned long long both = (unsigned long long)b << 32 | a;
  unsigned y = 0;
  for (int i = 0; i < 4; ++i) {
    unsigned s = selector >> (4 * i) & 15;
    unsigned byte = (unsigned)(both >> (8 * (s & 7))) & 255;
    if (s & 8) byte = byte & 128 ? 255 : 0;
    y |= byte << (8 * i);
  }
  return y;
}
inline unsigned __funnelshift_l(unsigned low, unsigned high, unsigned by) {
  by &= 31;
  return by ? high << by | low >> (32 - by) : high;
}
inline unsigned __funnelshift_r(unsigned low, unsigned high, unsigned by) {
  by &= 31;
  return by ? low >> by | high << (32 - by) : low;
}
inline int __dp4a(int a, int b, int c) {
  for (int i = 0; i < 4; ++i)
    c += (int)(signed char)(a >> (8 * i)) * (signed char)(b >> (8 * i));
  return c;
}
inline unsigned __dp4a(unsigned a, unsigned b, unsigned c) {
  for (int i = 0; i < 4; ++i)
    c += (a >> (8 * i) & 255) * (b >> (8 * i) & 255);
  return c;
}

// ---- Mathematics -----------------------------------------------------------

#define STAND_IN_MATH1(name)       \
  extern "C" double name(double);  \
  extern "C" float name##f(float); \
  inline float name(float x) {     \
    return name##f(x);             \
  }
#define STAND_IN_MATH2(name)              \
  extern "C" double name(double, double); \
  extern "C" float name##f(float, float); \
  inline float name(float x, float y) {   \
    return name##f(x, y);                 \
  }
STAND_IN_MATH1(acos)
STAND_IN_MATH1(acosh)
STAND_IN_MATH1(asin)
STAND_IN_MATH1(asinh)
STAND_IN_MATH1(atan)
STAND_IN_MATH1(atanh)
STAND_IN_MATH1(cbrt)
STAND_IN_MATH1(ceil)
STAND_IN_MATH1(cos)
STAND_IN_MATH1(cosh)
STAND_IN_MATH1(erf)
STAND_IN_MATH1(erfc)
STAND_IN_MATH1(exp)
STAND_IN_MATH1(exp2)
STAND_IN_MATH1(expm1)
STAND_IN_MATH1(fabs)
STAND_IN_MATH1(floor)
STAND_IN_MATH1(lgamma)
STAND_IN_MATH1(log)
STAND_IN_MATH1(log10)
STAND_IN_MATH1(log1p)
STAND_IN_MATH1(log2)
STAND_IN_MATH1(logb)
STAND_IN_MATH1(nearbyint)
STAND_IN_MATH1(rint)
STAND_IN_MATH1(round)
STAND_IN_MATH1(sin)
STAND_IN_MATH1(sinh)
STAND_IN_MATH1(sqrt)
STAND_IN_MATH1(tan)
STAND_IN_MATH1(tanh)
STAND_IN_MATH1(tgamma)
STAND_IN_MATH1(trunc)
STAND_IN_MATH2(atan2)
STAND_IN_MATH2(copysign)
STAND_IN_MATH2(fdim)
STAND_IN_MATH2(fmax)
STAND_IN_MATH2(fmin)
STAND_IN_MATH2(fmod)
STAND_IN_MATH2(hypot)
STAND_IN_MATH2(nextafter)
STAND_IN_MATH2(pow)
STAND_IN_MATH2(remainder)
extern "C" double fma(double, double, double);
extern "C" float fmaf(float, float, float);
inline float fma(float x, float y, float z) {
  return fmaf(x, y, z);
}
extern "C" double ldexp(double, int);
extern "C" float ldexpf(float, int);
extern "C" float scalbnf(float, int);
extern "C" float frexpf(float, int*);
extern "C" float modff(float, float*);
extern "C" long lrintf(float);
extern "C" long long llrintf(float);
extern "C" double exp10(double);
extern "C" float exp10f(float);
inline double rsqrt(double x) {
  return 1 / sqrt(x);
}
inline float rsqrtf(float x) {
  return (float)(1 / sqrt((double)x));
}
inline float rsqrt(float x) {
  return rsqrtf(x);
}
inline float normcdff(float x) {
  return (float)(0.5 * erfc(-(double)x * 0.70710678118654752440));
}
inline void sincosf(float x, float* s, float* c) {
  *s = sinf(x);
  *c = cosf(x);
}
inline bool isnan(float x) {
  return __builtin_isnan(x);
}
inline bool isnan(double x) {
  return __builtin_isnan(x);
}
inline bool isinf(float x) {
  return __builtin_isinf(x);
}
inline bool isinf(double x) {
  return __builtin_isinf(x);
}
inline bool isfinite(float x) {
  return __builtin_isfinite(x);
}
inline bool isfinite(double x) {
  return __builtin_isfinite(x);
}
inline bool signbit(float x) {
  return __builtin_signbit(x);
}
inline bool signbit(double x) {
  return __builtin_signbit(x);
}

extern "C" int abs(int);
inline long abs(long x) {
  return x < 0 ? -x : x;
}
inline long long abs(long long x) {
  return x < 0 ? -x : x;
}
inline long long llabs(long long x) {
  return x < 0 ? -x : x;
}
inline float abs(float x) {
  return fabsf(x);
}
inline double abs(double x) {
  return fabs(x);
}

#define STAND_IN_MIN_MAX(a, b, type)              \
  inline type min(a x, b y) {                     \
    return (type)x < (type)y ? (type)x : (type)y; \
  }                                               \
  inline type max(a x, b y) {                     \
    return (type)x > (type)y ? (type)x : (type)y; \
  }
STAND_IN_MIN_MAX(int, int, int)
STAND_IN_MIN_MAX(unsigned, unsigned, unsigned)
STAND_IN_MIN_MAX(int, unsigned, unsigned)
STAND_IN_MIN_MAX(unsigned, int, unsigned)
STAND_IN_MIN_MAX(long, long, long)
STAND_IN_MIN_MAX(unsigned long, unsigned long, unsigned long)
STAND_IN_MIN_MAX(long long, long long, long long)
STAND_IN_MIN_MAX(unsigned long long, unsigned long long, unsigned long long)
STAND_IN_MIN_MAX(long long, unsigned long long, unsigned long long)
STAND_IN_MIN_MAX(unsigned long long, long long, unsigned long long)
inline float min(float x, float y) {
  return fminf(x, y);
}
inline float max(float x, float y) {
  return fmaxf(x, y);
}
inline double min(double x, double y) {
  return fmin(x, y);
}
inline double max(double x, double y) {
  return fmax(x, y);
}

// Quick ones: as exact as the host makes them.
inline float __expf(float x) {
  return expf(x);
}
inline float __exp10f(float x) {
  return exp10f(x);
}
inline float __logf(float x) {
  return logf(x);
}
inline float __log2f(float x) {
  return log2f(x);
}
inline float __log10f(float x) {
  return log10f(x);
}
inline float __powf(float x, float y) {
  return powf(x, y);
}
inline float __sinf(float x) {
  return sinf(x);
}
inline float __cosf(float x) {
  return cosf(x);
}
inline float __tanf(float x) {
  return tanf(x);
}
inline float __tanhf(float x) {
  return tanhf(x);
}
inline float __fdividef(float x, float y) {
  return x / y;
}
inline float __saturatef(float x) {
  return x > 0 ? (x < 1 ? x : 1) : 0;
}
inline float __fadd_rn(float x, float y) {
  return x + y;
}
inline float __fsub_rn(float x, float y) {
  return x - y;
}
inline float __fmul_rn(float x, float y) {
  return x * y;
}
inline float __fdiv_rn(float x, float y) {
  return x / y;
}
inline float __fmaf_rn(float x, float y, float z) {
  return fmaf(x, y, z);
}
inline float __frcp_rn(float x) {
  return 1 / x;
}
inline float __fsqrt_rn(float x) {
  return sqrtf(x);
}
inline float __frsqrt_rn(float x) {
  return rsqrtf(x);
}
inline double __dadd_rn(double x, double y) {
  return x + y;
}
inline double __dmul_rn(double x, double y) {
  return x * y;
}

// ---- Conversions: they saturate, and NaN becomes 0 -------------------------

template <class To>
inline To stand_in_to_integer(double x, double low, double above) {
  if (!(x == x)) return 0;
  if (x < low) return (To)low;
  if (x >= above)
    return (To)(~(To)0 < 0 ? (To)(((To)1 << (sizeof(To) * 8 - 2)) - 1 +
                                  ((To)1 << (sizeof(To) * 8 - 2)))
                           : ~(To)0);
  return (To)x;
}
#define STAND_IN_TO_INTEGERS(suffix, round)                                   \
  inline int __float2int_##suffix(float x) {                                  \
    return stand_in_to_integer<int>(round((double)x), -0x1p31, 0x1p31);       \
  }                                                                           \
  inline unsigned __float2uint_##suffix(float x) {                            \
    return stand_in_to_integer<unsigned>(round((double)x), 0, 0x1p32);        \
  }                                                                           \
  inline long long __float2ll_##suffix(float x) {                             \
    return stand_in_to_integer<long long>(round((double)x), -0x1p63, 0x1p63); \
  }                                                                           \
  inline unsigned long long __float2ull_##suffix(float x) {                   \
    return stand_in_to_integer<unsigned long long>(round((double)x), 0,       \
                                                   0x1p64);                   \
  }                                                                           \
  inline int __double2int_##suffix(double x) {                                \
    return stand_in_to_integer<int>(round(x), -0x1p31, 0x1p31);               \
  }                                                                           \
  inline long long __double2ll_##suffix(double x) {                           \
    return stand_in_to_integer<long long>(round(x), -0x1p63, 0x1p63);         \
  }
STAND_IN_TO_INTEGERS(rn, rint)
STAND_IN_TO_INTEGERS(rz, trunc)
STAND_IN_TO_INTEGERS(rd, floor)
STAND_IN_TO_INTEGERS(ru, ceil)
// Towards zero: back by one where the nearest is further out.
inline float __double2float_rz(double x) {
  float y = (float)x;
  return fabs((double)y) > fabs(x)
             ? stand_in_bits<float>(stand_in_bits<unsigned>(y) - 1)
             : y;
}
inline float __int2float_rz(int x) {
  return __double2float_rz(x);
}
inline float __uint2float_rz(unsigned x) {
  return __double2float_rz(x);
}
inline float __int2float_rn(int x) {
  return (float)x;
}
inline float __uint2float_rn(unsigned x) {
  return (float)x;
}
inline float __ll2float_rn(long long x) {
  return (float)x;
}
inline float __ull2float_rn(unsigned long long x) {
  return (float)x;
}
inline float __double2float_rn(double x) {
  return (float)x;
}

// For the alternatives to PTX that kernels have under RABBET_STAND_IN.
inline void stand_in_load_matrices(unsigned* words, const void* row,
                                   bool turned) {
  union {
    const void* row;
    unsigned words[4];
  } value = {row};
  stand_in_module.runtime->warp(
      ~0u, turned ? STAND_IN_WARP_MATRICES_TURNED : STAND_IN_WARP_MATRICES,
      &value, sizeof(value), 0);
  memcpy(words, value.words, sizeof(value));
}
inline void stand_in_mma(int op, float* sums, const unsigned* a,
                         const unsigned* b) {
  stand_in_product value;
  memcpy(value.sums, sums, sizeof(value.sums));
  memcpy(value.a, a, sizeof(value.a));
  memcpy(value.b, b, sizeof(value.b));
  stand_in_module.runtime->warp(~0u, op, &value, sizeof(value), 0);
  memcpy(sums, value.sums, sizeof(value.sums));
}
inline float stand_in_half_to_float(unsigned short bits) {
  return (float)stand_in_bits<_Float16>(bits);
}
inline unsigned short stand_in_float_to_half(float x) {
  return stand_in_bits<unsigned short>((_Float16)x);
}

// ---- The table of kernels --------------------------------------------------

extern "C" {
__attribute__((
    visibility("default"))) struct stand_in_module stand_in_module = {
    STAND_IN_ABI, {}, {}, {}, {}, 0, nullptr, 0, nullptr};
extern unsigned char __bss_start[] __attribute__((visibility("hidden")));
extern unsigned char _end[] __attribute__((visibility("hidden")));
// Static shared variables, and nothing else, lie between these.
__attribute__((visibility("default"))) unsigned char* stand_in_bss_begin =
    __bss_start;
__attribute__((visibility("default"))) unsigned char* stand_in_bss_end = _end;
}

template <unsigned... I>
struct stand_in_sequence {};
template <class T>
struct stand_in_caller;
template <class... A>
struct stand_in_caller<void (*)(A...)> {
  static constexpr unsigned count = sizeof...(A);
  static constexpr unsigned sizes[sizeof...(A) + 1] = {(unsigned)sizeof(A)...,
                                                       0};
  template <void (*F)(A...), unsigned... I>
  static void run(void** p, stand_in_sequence<I...>) {
    F(*(A*)p[I]...);
  }
  template <void (*F)(A...)>
  static void call(void** p) {
    run<F>(p, stand_in_sequence<__integer_pack(sizeof...(A))...>());
  }
};
constexpr unsigned stand_in_first(unsigned first, ...) {
  return first;
}
