// Before an exchange of NCCL.
#include "device/cuda/nccl/ahead.cuh"

extern "C" __global__ void __launch_bounds__(AHEAD_THREADS)
    ahead(ahead_t ahead) {
  fetch_ahead(ahead, (int64_t)blockIdx.x * blockDim.x + threadIdx.x);
  turn_t turn;
}
