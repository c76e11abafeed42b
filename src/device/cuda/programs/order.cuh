// A kernel's turn: when it begins, and when the next one may.
//
// From compute capability 9 on the blocks of a kernel may be placed on the GPU
// while the kernel before still runs (rabbet_cuda_launch), so that the time
// between two kernels shrinks. They find memory as the kernel before leaves it
// only after they waited for its end. Hence:
//  - Every thread of every kernel declares a turn_t before it returns. A kernel
//    that could end before the one before it would let the next one begin.
//  - It is the first statement, unless there is something to do before:
//  compute,
//    fill shared memory, read constants. What a kernel or a copy of the same
//    engine writes must not be read before, and nothing be written.
#pragma once

struct turn_t {
  // All that was enqueued before is done, and what it wrote is seen. Then,
  // where blocks are few, the next kernel's may be placed beside them; the many
  // are slowed down by that, and their next is placed when they end.
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
