// Tensor cores: one product of 16 rows and 8 columns, over 16 elements of 16
// bits or 8 of TF32. A word of 32 bits has two elements of 16 bits, the one
// with the lower index in the low half, or one float. The PTX manual
// (mma.m16n8k16 and mma.m16n8k8) says which elements a lane has.
#pragma once

#include "device/cuda/programs/number.cuh"

#ifdef RABBET_STAND_IN
DEVICE float word_at(float, uint32_t word, int) { return float_of_bits(word); }
template <class E>
DEVICE float word_at(E, uint32_t word, int place) {
  E x;
  x.bits = (uint16_t)(word >> (16 * place));
  return to_float(x);
}
template <class E>
DEVICE void mma(float* c, const uint32_t* a, const uint32_t* b) {
  enum { WIDE = 4 / sizeof(E) };
  int row = threadIdx.x % 32 / 4, column = threadIdx.x % 4 * 2;
  for (int half = 0; half < 2; ++half)
    for (int t = 0; t < 4; ++t) {
      uint32_t a0 = __shfl_sync(0xffffffffu, a[2 * half], row * 4 + t);
      uint32_t a1 = __shfl_sync(0xffffffffu, a[2 * half + 1], row * 4 + t);
      for (int n = 0; n < 2; ++n) {
        uint32_t other =
            __shfl_sync(0xffffffffu, b[half], (column + n) * 4 + t);
        for (int e = 0; e < WIDE; ++e) {
          float factor = word_at(E(), other, e);
          c[n] += word_at(E(), a0, e) * factor;
          c[2 + n] += word_at(E(), a1, e) * factor;
        }
      }
    }
}
#else
template <class E>
DEVICE void mma(float* c, const uint32_t* a, const uint32_t* b);
#define MMA(type, shape, name)                                                 \
  template <>                                                                  \
  __device__ __forceinline__ void mma<type>(float* c, const uint32_t* a,       \
                                            const uint32_t* b) {               \
    asm("mma.sync.aligned." shape ".row.col.f32." name "." name                \
        ".f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};" \
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])                       \
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));   \
  }
MMA(half_t, "m16n8k16", "f16")
MMA(bf16_t, "m16n8k16", "bf16")
MMA(float, "m16n8k8", "tf32")
#endif
