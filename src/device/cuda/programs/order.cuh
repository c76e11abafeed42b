// Programmatic dependent launch: a kernel's turn says when it may begin and
// when the next kernel may.
//
// From compute capability 9 on, blocks of a kernel may start while the previous
// kernel still runs (rabbet_cuda_launch), which shortens the gap between two
// kernels. They see the previous kernel's writes only after waiting for its
// end. Hence:
//
//  - Every thread of every kernel declares a turn_t before it returns. A kernel
//    that ended before the previous one would let the next kernel begin too
//    early.
//  - The turn_t is the first statement, unless the kernel has independent work.
//    Before it, a kernel may compute, fill shared memory and read constants. It
//    must neither read memory that a kernel or a copy of the same engine
//    writes nor write to global memory.
#pragma once

struct turn_t {
  // Waits until all earlier work is done and its writes are visible. Then, if
  // this kernel has few blocks, the next kernel's blocks may start beside them.
  // Many blocks would be slowed down by that; then the next kernel's blocks
  // start when these end.
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
