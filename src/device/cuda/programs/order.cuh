// A kernel's turn: when it begins, and when the next one may.
//
// From compute capability 9 on the blocks of a kernel may be placed on the GPU
// while the kernel before still runs (rabbet_cuda_launch), so that the time
// between two kernels shrinks. They see the previous kernel's writes only after
// waiting for its end. Hence:
//
//  - Every thread of every kernel declares a turn_t before it returns. A kernel
//    that could end before the one before it would let the next one begin.
//  - It is the first statement, unless the kernel has independent work: it may
//    compute, fill shared memory and read constants first. It must not read
//    memory that a kernel or a copy of the same engine writes, and write
//    nothing.
#pragma once

struct turn_t {
  // All work enqueued before is done, and its writes are visible. Then, if
  // blocks are few, the next kernel's may be placed beside them. Many blocks
  // would be slowed down by that: the next kernel's are placed when they end.
  __device__ __forceinline__ turn_t() {
#ifdef RABBET_STAND_IN
    stand_in_await_previous();
#elif __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
    if (gridDim.x * gridDim.y * gridDim.z <= 512)
      asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
  }
};
