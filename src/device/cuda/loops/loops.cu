// Kernels that steer a loop in a graph: one asks whether it goes on, others
// copy to and from places that the number of iterations tells.
#include "device/cuda/programs/number.cuh"

// The driver links it, from CUDA 12.4 on.
#ifdef RABBET_STAND_IN
DEVICE void cudaGraphSetConditional(unsigned long long handle, unsigned value) {
  *(unsigned*)handle = value;
}
#else
extern "C" __device__ void cudaGraphSetConditional(unsigned long long handle,
                                                   unsigned value);
#endif

struct state_t {
  int64_t done;  // iterations
  int64_t goes_on;
};

// Before the first iteration (`begins`), and behind each that was to run.
extern "C" __global__ void __launch_bounds__(1)
    loop_ask(unsigned long long handle, state_t* state, int64_t limit,
             const uint8_t* condition, int64_t begins) {
  turn_t turn;
  bool ran = !begins && state->goes_on != 0;
  int64_t done = begins ? 0 : state->done + ran;
  bool on = (begins || ran) && done < limit && (!condition || *condition != 0);
  state->done = done;
  state->goes_on = on;
  cudaGraphSetConditional(handle, on);
}

template <class T>
DEVICE void copy(const state_t* state, char* target, const char* source,
                 int64_t count, int64_t target_stride, int64_t source_stride,
                 int64_t parity) {
  int64_t done = state->done;
  if (parity >= 0 && parity != done % 2) return;
  T* to = (T*)(target + done * target_stride);
  const T* from = (const T*)(source + done * source_stride);
  for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < count;
       i += (int64_t)gridDim.x * blockDim.x)
    to[i] = from[i];
}

#define COPY(name, type)                                                     \
  extern "C" __global__ void __launch_bounds__(256) name(                    \
      const state_t* state, char* target, const char* source, int64_t count, \
      int64_t target_stride, int64_t source_stride, int64_t parity) {        \
    turn_t turn;                                                             \
    copy<type>(state, target, source, count, target_stride, source_stride,   \
               parity);                                                      \
  }
COPY(loop_copy_16, uint4)
COPY(loop_copy_4, uint32_t)
COPY(loop_copy_1, uint8_t)
