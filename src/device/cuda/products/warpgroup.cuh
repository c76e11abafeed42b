// Products of tiles of 16-bit elements in shared memory, by a warp group: 64
// rows of a by COLUMNS columns of b, over 64 elements of k. A second warp group
// has the next 64 rows. A tile is an array of lines of 128 bytes and begins at
// a multiple of 1024 bytes; chunk c (16 bytes) of line i is stored at c ^ (i %
// 8). The lines of a are rows. The lines of b are columns; if TURNED, they are
// positions of k, and b consists of panels of 64 columns.
//
// sums: for every 8 columns, the lane's results of mma.sync for 16 rows and 8
// columns. Programs compiled for compute capability 9.0 itself use wgmma, all
// others mma.sync.
#pragma once

#include "device/cuda/products/copies.cuh"
#include "device/cuda/products/mma.cuh"

#if !defined(RABBET_STAND_IN) && defined(__CUDA_ARCH_FEAT_SM90_ALL)
// Makes the thread's writes to shared memory visible to wgmma after a barrier.
DEVICE void show_tensor_cores() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}
DEVICE void await_products() {
  asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
}
// Keeps the compiler from moving uses of the sums before the end of the
// products.
template <int COLUMNS_>
DEVICE void take_products(float* sums) {
#pragma unroll
  for (int i = 0; i < COLUMNS_ / 2; ++i)
    asm volatile("" : "+f"(sums[i])::"memory");
  await_products();
#pragma unroll
  for (int i = 0; i < COLUMNS_ / 2; ++i)
    asm volatile("" : "+f"(sums[i])::"memory");
}

// wgmma's matrix descriptor: lines of 128 bytes, groups of 8 lines 1024 bytes
// apart, panels 8192 bytes apart.
DEVICE uint64_t tile_descriptor(uint32_t at) {
  return (uint64_t)(at >> 4 & 0x3fff) | (uint64_t)(8192 >> 4) << 16 |
         (uint64_t)(1024 >> 4) << 32 | (uint64_t)1 << 62;
}

template <class E, int COLUMNS_, int TURNED>
struct product_of;
#define PRODUCT_OF(type, name, columns, registers, a, b, turned, ...)     \
  template <int TURNED>                                                   \
  struct product_of<type, columns, TURNED> {                              \
    static __device__ __forceinline__ void add(float* s, uint64_t x,      \
                                               uint64_t y) {              \
      asm volatile("wgmma.mma_async.sync.aligned.m64n" #columns           \
                   "k16.f32." name "." name " {" registers "}, " a ", " b \
                   ", 1, 1, 1, 0, " turned ";"                            \
                   : __VA_ARGS__                                          \
                   : "l"(x), "l"(y), "n"(TURNED));                        \
    }                                                                     \
  };
#define SUMS_8(i)                                                             \
  "+f"(s[i]), "+f"(s[i + 1]), "+f"(s[i + 2]), "+f"(s[i + 3]), "+f"(s[i + 4]), \
      "+f"(s[i + 5]), "+f"(s[i + 6]), "+f"(s[i + 7])
#define SUMS_16(i) SUMS_8(i), SUMS_8(i + 8)
#define REGISTERS_8 "%0, %1, %2, %3, %4, %5, %6, %7"
#define REGISTERS_16                 \
  "%0, %1, %2, %3, %4, %5, %6, %7, " \
  "%8, %9, %10, %11, %12, %13, %14, %15"
#define REGISTERS_24                       \
  "%0, %1, %2, %3, %4, %5, %6, %7, "       \
  "%8, %9, %10, %11, %12, %13, %14, %15, " \
  "%16, %17, %18, %19, %20, %21, %22, %23"
#define REGISTERS_32                         \
  "%0, %1, %2, %3, %4, %5, %6, %7, "         \
  "%8, %9, %10, %11, %12, %13, %14, %15, "   \
  "%16, %17, %18, %19, %20, %21, %22, %23, " \
  "%24, %25, %26, %27, %28, %29, %30, %31"
#define REGISTERS_48                         \
  "%0, %1, %2, %3, %4, %5, %6, %7, "         \
  "%8, %9, %10, %11, %12, %13, %14, %15, "   \
  "%16, %17, %18, %19, %20, %21, %22, %23, " \
  "%24, %25, %26, %27, %28, %29, %30, %31, " \
  "%32, %33, %34, %35, %36, %37, %38, %39, " \
  "%40, %41, %42, %43, %44, %45, %46, %47"
#define PRODUCTS_OF(type, name)                                             \
  PRODUCT_OF(type, name, 16, REGISTERS_8, "%8", "%9", "%10", SUMS_8(0))     \
  PRODUCT_OF(type, name, 32, REGISTERS_16, "%16", "%17", "%18", SUMS_16(0)) \
  PRODUCT_OF(type, name, 48, REGISTERS_24, "%24", "%25", "%26", SUMS_16(0), \
             SUMS_8(16))                                                    \
  PRODUCT_OF(type, name, 64, REGISTERS_32, "%32", "%33", "%34", SUMS_16(0), \
             SUMS_16(16))                                                   \
  PRODUCT_OF(type, name, 96, REGISTERS_48, "%48", "%49", "%50", SUMS_16(0), \
             SUMS_16(16), SUMS_16(32))
PRODUCTS_OF(half_t, "f16")
PRODUCTS_OF(bf16_t, "bf16")
#undef PRODUCTS_OF
#undef PRODUCT_OF
template <class E, int COLUMNS_, bool TURNED>
DEVICE void multiply_tile(shared_t a, shared_t b, float* sums) {
  a += threadIdx.x / 128 * (64 * 128);
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#pragma unroll
  for (int k = 0; k < 4; ++k)
    product_of<E, COLUMNS_, TURNED>::add(
        sums, tile_descriptor(a + k * 32),
        tile_descriptor(b + k * (TURNED ? 16 * 128 : 32)));
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
#else
DEVICE void show_tensor_cores() {}
DEVICE void await_products() {}
template <int COLUMNS_>
DEVICE void take_products(float*) {}

DEVICE shared_t tile_chunk(shared_t tile, uint32_t line, uint32_t chunk) {
  return tile + line * 128 + (chunk ^ (line & 7)) * 16;
}

template <class E, int COLUMNS_, bool TURNED>
DEVICE void multiply_tile(shared_t a, shared_t b, float* sums) {
  uint32_t lane = threadIdx.x % 32, row = threadIdx.x / 32 * 16;
#pragma unroll
  for (uint32_t k = 0; k < 4; ++k) {
    uint32_t left[4], right[4];
    load_matrices<false>(left,
                         tile_chunk(a, row + lane % 16, 2 * k + lane / 16));
#pragma unroll
    for (uint32_t c = 0; c < COLUMNS_; c += 16) {
      load_matrices<TURNED>(
          right, TURNED ? tile_chunk(b + c / 64 * 8192, 16 * k + lane % 16,
                                     c % 64 / 8 + lane / 16)
                        : tile_chunk(b, c + lane % 8 + lane / 16 * 8,
                                     2 * k + lane / 8 % 2));
      mma<E>(sums + c / 2, left, right);
      mma<E>(sums + c / 2 + 4, left, right + 2);
    }
  }
}
#endif
