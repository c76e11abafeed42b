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
//
// Products run beside what follows. Between begin_products and commit_products,
// which make them one group, nothing but products may use their sums; behind,
// nothing may until await_products, and hold_sums tells the compiler so.
#pragma once

#include "device/cuda/products/copies.cuh"
#include "device/cuda/products/mma.cuh"

#if !defined(RABBET_STAND_IN) && defined(__CUDA_ARCH_FEAT_SM90_ALL)
// Makes the thread's writes to shared memory visible to wgmma after a barrier.
DEVICE void show_tensor_cores() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}
// All threads of a warp group take registers that another has given, up to so
// many each, or give all above.
template <int COUNT>
DEVICE void take_registers() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(COUNT));
}
template <int COUNT>
DEVICE void give_registers() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(COUNT));
}
DEVICE void begin_products() {
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}
DEVICE void commit_products() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
// Waits until at most PENDING groups of products are unfinished.
template <int PENDING = 0>
DEVICE void await_products() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(PENDING) : "memory");
}
template <int COLUMNS_>
DEVICE void hold_sums(float* sums) {
#pragma unroll
  for (int i = 0; i < COLUMNS_ / 2; ++i)
    asm volatile("" : "+f"(sums[i])::"memory");
}

// wgmma's matrix descriptor: lines of 128 bytes, groups of 8 lines 1024 bytes
// apart, panels 8192 bytes apart. `at`: the address, in units of 16 bytes.
// Other units are a sum away, since no carry leaves the 14 bits of an address.
DEVICE uint64_t tile_descriptor(uint32_t at) {
  return (uint64_t)(at + ((uint32_t)(8192 >> 4) << 16)) |
         (uint64_t)(1024 >> 4) << 32 | (uint64_t)1 << 62;
}

// The operands behind the sums: a descriptor and another, or four words and a
// descriptor.
template <class E, int COLUMNS_, int TURNED>
struct product_of;
#define PRODUCT_OF(type, name, columns, registers, a, b, c, d, e, f, g, ...) \
  template <int TURNED>                                                      \
  struct product_of<type, columns, TURNED> {                                 \
    template <int ADDED>                                                     \
    static __device__ __forceinline__ void add(float* s, uint64_t x,         \
                                               uint64_t y) {                 \
      asm volatile("wgmma.mma_async.sync.aligned.m64n" #columns              \
                   "k16.f32." name "." name " {" registers "}, " a ", " b    \
                   ", " d ", 1, 1, 0, " c ";"                                \
                   : __VA_ARGS__                                             \
                   : "l"(x), "l"(y), "n"(TURNED), "n"(ADDED));               \
    }                                                                        \
    template <int ADDED>                                                     \
    static __device__ __forceinline__ void add_rows(float* s,                \
                                                    const uint32_t* x,       \
                                                    uint64_t y) {            \
      asm volatile("wgmma.mma_async.sync.aligned.m64n" #columns              \
                   "k16.f32." name "." name " {" registers "}, {" a ", " b   \
                   ", " c ", " d "}, " e ", " g ", 1, 1, " f ";"             \
                   : __VA_ARGS__                                             \
                   : "r"(x[0]), "r"(x[1]), "r"(x[2]), "r"(x[3]), "l"(y),     \
                     "n"(TURNED), "n"(ADDED));                               \
    }                                                                        \
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
#define REGISTERS_64                         \
  "%0, %1, %2, %3, %4, %5, %6, %7, "         \
  "%8, %9, %10, %11, %12, %13, %14, %15, "   \
  "%16, %17, %18, %19, %20, %21, %22, %23, " \
  "%24, %25, %26, %27, %28, %29, %30, %31, " \
  "%32, %33, %34, %35, %36, %37, %38, %39, " \
  "%40, %41, %42, %43, %44, %45, %46, %47, " \
  "%48, %49, %50, %51, %52, %53, %54, %55, " \
  "%56, %57, %58, %59, %60, %61, %62, %63"
#define PRODUCTS_OF(type, name)                                                \
  PRODUCT_OF(type, name, 16, REGISTERS_8, "%8", "%9", "%10", "%11", "%12",     \
             "%13", "%14", SUMS_8(0))                                          \
  PRODUCT_OF(type, name, 32, REGISTERS_16, "%16", "%17", "%18", "%19", "%20",  \
             "%21", "%22", SUMS_16(0))                                         \
  PRODUCT_OF(type, name, 48, REGISTERS_24, "%24", "%25", "%26", "%27", "%28",  \
             "%29", "%30", SUMS_16(0), SUMS_8(16))                             \
  PRODUCT_OF(type, name, 64, REGISTERS_32, "%32", "%33", "%34", "%35", "%36",  \
             "%37", "%38", SUMS_16(0), SUMS_16(16))                            \
  PRODUCT_OF(type, name, 96, REGISTERS_48, "%48", "%49", "%50", "%51", "%52",  \
             "%53", "%54", SUMS_16(0), SUMS_16(16), SUMS_16(32))               \
  PRODUCT_OF(type, name, 128, REGISTERS_64, "%64", "%65", "%66", "%67", "%68", \
             "%69", "%70", SUMS_16(0), SUMS_16(16), SUMS_16(32), SUMS_16(48))
PRODUCTS_OF(half_t, "f16")
PRODUCTS_OF(bf16_t, "bf16")
#undef PRODUCTS_OF
#undef PRODUCT_OF
// Adds 16 STEPS_ elements of k. FRESH: the sums begin at 0, whatever they are;
// clearing them would await earlier products.
template <class E, int COLUMNS_, bool TURNED, int STEPS_ = 4,
          bool FRESH = false>
DEVICE void multiply_tile(shared_t a, shared_t b, float* sums) {
  typedef product_of<E, COLUMNS_, TURNED> product;
  uint32_t left = (a + threadIdx.x / 128 * (64 * 128)) >> 4, right = b >> 4;
#pragma unroll
  for (int k = 0; k < STEPS_; ++k) {
    uint64_t x = tile_descriptor(left + k * 2);
    uint64_t y = tile_descriptor(right + k * (TURNED ? 128 : 2));
    if (FRESH && k == 0)
      product::template add<0>(sums, x, y);
    else
      product::template add<1>(sums, x, y);
  }
}
// The same with rows of a in registers: for every 16 elements of k, the lane's
// operand of mma.sync.
template <class E, int COLUMNS_, bool TURNED, int STEPS_ = 4,
          bool FRESH = false>
DEVICE void multiply_rows(const uint32_t (*a)[4], shared_t b, float* sums) {
  typedef product_of<E, COLUMNS_, TURNED> product;
  uint32_t right = b >> 4;
#pragma unroll
  for (int k = 0; k < STEPS_; ++k) {
    uint64_t y = tile_descriptor(right + k * (TURNED ? 128 : 2));
    if (FRESH && k == 0)
      product::template add_rows<0>(sums, a[k], y);
    else
      product::template add_rows<1>(sums, a[k], y);
  }
}
#else
DEVICE void show_tensor_cores() {}
template <int COUNT>
DEVICE void take_registers() {}
template <int COUNT>
DEVICE void give_registers() {}
DEVICE void begin_products() {}
DEVICE void commit_products() {}
template <int PENDING = 0>
DEVICE void await_products() {}
template <int COLUMNS_>
DEVICE void hold_sums(float*) {}

DEVICE shared_t tile_chunk(shared_t tile, uint32_t line, uint32_t chunk) {
  return tile + line * 128 + (chunk ^ (line & 7)) * 16;
}

// Of 16 elements of k, from 16 k on.
template <class E, int COLUMNS_, bool TURNED>
DEVICE void multiply_step(const uint32_t* a, shared_t b, uint32_t k,
                          float* sums) {
  uint32_t lane = threadIdx.x % 32, right[4];
#pragma unroll
  for (uint32_t c = 0; c < COLUMNS_; c += 16) {
    load_matrices<TURNED>(
        right, TURNED ? tile_chunk(b + c / 64 * 8192, 16 * k + lane % 16,
                                   c % 64 / 8 + lane / 16)
                      : tile_chunk(b, c + lane % 8 + lane / 16 * 8,
                                   2 * k + lane / 8 % 2));
    mma<E>(sums + c / 2, a, right);
    mma<E>(sums + c / 2 + 4, a, right + 2);
  }
}

template <int COLUMNS_>
DEVICE void clear_sums(float* sums) {
#pragma unroll
  for (int i = 0; i < COLUMNS_ / 2; ++i) sums[i] = 0;
}

template <class E, int COLUMNS_, bool TURNED, int STEPS_ = 4,
          bool FRESH = false>
DEVICE void multiply_tile(shared_t a, shared_t b, float* sums) {
  uint32_t lane = threadIdx.x % 32, row = threadIdx.x / 32 * 16;
  if (FRESH) clear_sums<COLUMNS_>(sums);
#pragma unroll
  for (uint32_t k = 0; k < STEPS_; ++k) {
    uint32_t left[4];
    load_matrices<false>(left,
                         tile_chunk(a, row + lane % 16, 2 * k + lane / 16));
    multiply_step<E, COLUMNS_, TURNED>(left, b, k, sums);
  }
}
template <class E, int COLUMNS_, bool TURNED, int STEPS_ = 4,
          bool FRESH = false>
DEVICE void multiply_rows(const uint32_t (*a)[4], shared_t b, float* sums) {
  if (FRESH) clear_sums<COLUMNS_>(sums);
#pragma unroll
  for (uint32_t k = 0; k < STEPS_; ++k)
    multiply_step<E, COLUMNS_, TURNED>(a[k], b, k, sums);
}
#endif
