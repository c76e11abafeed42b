// Brings constants of later kernels into the L2 cache, while the exchange that
// follows waits for other ranks. The memory is read after this kernel has
// ended.
#include "device/cuda/programs/number.cuh"

#include "device/cuda/nccl/ahead_params.h"

// A chunk of at most AHEAD_CHUNK bytes, a multiple of 16.
DEVICE void fetch(const char* from, unsigned bytes) {
#ifdef RABBET_STAND_IN
  // Reads, so that addresses are checked.
  volatile char last = from[bytes - 1];
  (void)last;
#elif __CUDA_ARCH__ >= 900
  asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(
                   __cvta_generic_to_global(from)),
               "r"(bytes)
               : "memory");
#else
  for (unsigned at = 0; at < bytes; at += 128)
    asm volatile(
        "prefetch.global.L2 [%0];" ::"l"(__cvta_generic_to_global(from + at)));
#endif
}

extern "C" __global__ void __launch_bounds__(AHEAD_THREADS)
    ahead(ahead_t ahead) {
  int64_t at = ((int64_t)blockIdx.x * blockDim.x + threadIdx.x) * AHEAD_CHUNK;
  for (int i = 0; i < ahead.count; ++i) {
    int64_t left = ahead.bytes[i] - at;
    if (at >= 0 && left > 0)
      fetch(ahead.addresses[i] + at,
            (unsigned)(left < AHEAD_CHUNK ? left : AHEAD_CHUNK));
    // Chunks of a constant follow those of the one before.
    at -= (ahead.bytes[i] + AHEAD_CHUNK - 1) / AHEAD_CHUNK * AHEAD_CHUNK;
  }
  turn_t turn;
}
