// Barriers in shared memory at which some threads arrive and others wait: a
// phase ends when as many have arrived as the barrier counts (mbarrier of PTX).
#pragma once

#include "device/cuda/products/copies.cuh"

#ifdef RABBET_STAND_IN
struct arrival_t {
  uint32_t count, missing, phase, unused;
};
DEVICE void count_arrivals(shared_t barrier, uint32_t count) {
  *(arrival_t*)barrier = arrival_t{count, count, 0, 0};
}
DEVICE void arrive(shared_t barrier) {
  arrival_t* at = (arrival_t*)barrier;
  if (--at->missing > 0) return;
  at->missing = at->count;
  at->phase ^= 1;
}
// Arrives once the thread's copies so far are done.
DEVICE void arrive_copied(shared_t barrier) { arrive(barrier); }
// All threads of a warp wait for the end of a phase, of which `parity` is the
// number modulo 2.
DEVICE void await_arrivals(shared_t barrier, uint32_t parity) {
  do {
    __syncwarp();  // others go on
  } while (((volatile arrival_t*)barrier)->phase == parity);
}
#else
DEVICE void count_arrivals(shared_t barrier, uint32_t count) {
  asm volatile("mbarrier.init.shared.b64 [%0], %1;" ::"r"(barrier), "r"(count)
               : "memory");
}
DEVICE void arrive(shared_t barrier) {
  asm volatile(
      "{\n.reg .b64 state;\nmbarrier.arrive.shared.b64 state, [%0];\n}" ::"r"(
          barrier)
      : "memory");
}
DEVICE void arrive_copied(shared_t barrier) {
  asm volatile("cp.async.mbarrier.arrive.noinc.shared.b64 [%0];" ::"r"(barrier)
               : "memory");
}
#if __CUDA_ARCH__ >= 900
#define TEST_ARRIVALS "mbarrier.try_wait.parity.shared.b64"
#else
#define TEST_ARRIVALS "mbarrier.test_wait.parity.shared.b64"
#endif
DEVICE void await_arrivals(shared_t barrier, uint32_t parity) {
  asm volatile("{\n.reg .pred ended;\nagain:\n" TEST_ARRIVALS
               " ended, [%0], %1;\n@!ended bra again;\n}" ::"r"(barrier),
               "r"(parity)
               : "memory");
}
#undef TEST_ARRIVALS
#endif
// Bytes of a barrier.
enum { ARRIVAL_BYTES = 16 };
