// Brings constants of later kernels into the L2 cache, while an exchange waits
// for other ranks. The loads go on when the kernel that asks for them has
// ended.
#pragma once

#include "device/cuda/nccl/ahead_params.h"
#include "device/cuda/programs/number.cuh"

// A chunk of at most AHEAD_CHUNK bytes, a multiple of 16.
DEVICE void fetch_chunk(const char* from, unsigned bytes) {
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

// Chunk number `at` of all of them, one behind the other.
DEVICE void fetch_ahead(const ahead_t& ahead, int64_t at) {
  for (int i = 0; i < ahead.count; ++i) {
    int64_t chunks = (ahead.bytes[i] + AHEAD_CHUNK - 1) / AHEAD_CHUNK;
    if (at < chunks) {
      int64_t left = ahead.bytes[i] - at * AHEAD_CHUNK;
      return fetch_chunk(ahead.addresses[i] + at * AHEAD_CHUNK,
                         (unsigned)(left < AHEAD_CHUNK ? left : AHEAD_CHUNK));
    }
    at -= chunks;
  }
}
