// Tensor cores: one product of 16 rows and 8 columns, over 16 elements of 16
// bits or 8 of TF32. A word of 32 bits has two elements of 16 bits, the one
// with the lower index in the low half, or one float. The PTX manual
// (mma.m16n8k16 and mma.m16n8k8) says which elements a lane has.
#pragma once

#include "device/cuda/programs/number.cuh"

#ifdef RABBET_STAND_IN
DEVICE int mma_of(half_t) { return STAND_IN_WARP_MMA_HALF; }
DEVICE int mma_of(bf16_t) { return STAND_IN_WARP_MMA_BF16; }
DEVICE int mma_of(float) { return STAND_IN_WARP_MMA_TF32; }
template <class E>
DEVICE void mma(float* c, const uint32_t* a, const uint32_t* b) {
  stand_in_mma(mma_of(E()), c, a, b);
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
