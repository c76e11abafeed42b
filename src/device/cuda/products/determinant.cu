// Determinants (-DELEMENT: the type), by elimination in FLOAT; the product of
// pivots is a double. One thread computes a matrix of order up to 4 in
// registers, bound by bytes. One block computes a larger one in shared memory
// or the workspace, bound by the latency of its columns, one after the other.
#include "device/cuda/programs/number.cuh"
#include "ops/products/determinant.h"

typedef ELEMENT T;

DEVICE void exchange(float& a, float& b) {
  float moved = a;
  a = b;
  b = moved;
}

// ---- A thread's matrix -----------------------------------------------------

template <int N>
DEVICE double determinant_of(const T* x) {
  float a[N][N];
  double product = 1.0;
#pragma unroll
  for (int i = 0; i < N * N; ++i) a[i / N][i % N] = to_float(x[i]);
#pragma unroll
  for (int k = 0; k < N; ++k) {
#pragma unroll
    for (int i = k + 1; i < N; ++i) {
      if (!rabbet_determinant_better(a[i][k], a[k][k])) continue;
      product = -product;
#pragma unroll
      for (int j = k; j < N; ++j) exchange(a[k][j], a[i][j]);
    }
    if (a[k][k] == 0.0f) return 0.0;
    product *= a[k][k];
#pragma unroll
    for (int i = k + 1; i < N; ++i) {
      float factor = a[i][k] / a[k][k];
#pragma unroll
      for (int j = k + 1; j < N; ++j) a[i][j] -= factor * a[k][j];
    }
  }
  return product;
}

extern "C" __global__ void __launch_bounds__(256)
    determinant_threads(const T* x, T* y,
                        const __grid_constant__ rabbet_determinant_t p) {
  turn_t turn;
  int64_t m = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
  if (m >= p.count) return;
  const T* from = x + m * p.order * p.order;
  double found = p.order == 0   ? 1.0
                 : p.order == 1 ? determinant_of<1>(from)
                 : p.order == 2 ? determinant_of<2>(from)
                 : p.order == 3 ? determinant_of<3>(from)
                                : determinant_of<4>(from);
  y[m] = from_float<T>((float)found);
}

// ---- A block's matrix ------------------------------------------------------

struct matrix_t {
  float* a;
  int32_t order;
  int64_t stride;  // from row to row
};

// The row with the largest pivot of column k, the first one of equals. Only the
// first warp calls it.
DEVICE int32_t find_pivot(const matrix_t& m, int32_t k) {
  float best = 0.0f;
  int32_t row = k;
  for (int32_t i = k + (int32_t)threadIdx.x; i < m.order; i += 32) {
    float x = m.a[i * m.stride + k];
    if (!rabbet_determinant_better(x, best)) continue;
    best = x;
    row = i;
  }
#pragma unroll
  for (int flip = 16; flip > 0; flip /= 2) {
    float x = __shfl_xor_sync(0xffffffffu, best, flip);
    int32_t other = __shfl_xor_sync(0xffffffffu, row, flip);
    bool equal = !rabbet_determinant_better(best, x) && other < row;
    if (!rabbet_determinant_better(x, best) && !equal) continue;
    best = x;
    row = other;
  }
  return row;
}

// All threads of the block must call it; all get the result.
DEVICE double eliminate(const matrix_t& m) {
  __shared__ int32_t chosen;
  int32_t warp = (int32_t)threadIdx.x / 32, lane = (int32_t)threadIdx.x % 32;
  int32_t warps = (int32_t)blockDim.x / 32;
  double product = 1.0;
  for (int32_t k = 0; k < m.order; ++k) {
    float* top = m.a + k * m.stride;
    if (warp == 0) {
      int32_t row = find_pivot(m, k);
      if (lane == 0) chosen = row;
    }
    __syncthreads();
    bool turns = chosen != k;
    float* other = m.a + chosen * m.stride;
    for (int32_t j = k + (int32_t)threadIdx.x; turns && j < m.order;
         j += (int32_t)blockDim.x)
      exchange(top[j], other[j]);
    __syncthreads();
    float pivot = top[k];
    if (pivot == 0.0f) return 0.0;
    product *= turns ? -pivot : pivot;
    for (int32_t i = k + 1 + warp; i < m.order; i += warps) {
      float* row = m.a + i * m.stride;
      float factor = row[k] / pivot;
      for (int32_t j = k + 1 + lane; j < m.order; j += 32)
        row[j] -= factor * top[j];
    }
    __syncthreads();
  }
  return product;
}

// `memory`: room for a matrix per block; NULL: shared memory is used.
extern "C" __global__ void __launch_bounds__(256)
    determinant_blocks(const T* x, T* y, float* memory,
                       const __grid_constant__ rabbet_determinant_t p,
                       int64_t stride) {
  turn_t turn;
  extern __shared__ float shared[];
  matrix_t m;
  m.a = memory ? memory + blockIdx.x * (p.order * stride) : shared;
  m.order = p.order;
  m.stride = stride;
  int32_t warp = (int32_t)threadIdx.x / 32, lane = (int32_t)threadIdx.x % 32;
  for (int64_t at = blockIdx.x; at < p.count; at += gridDim.x) {
    const T* from = x + at * p.order * p.order;
    for (int32_t i = warp; i < p.order; i += (int32_t)blockDim.x / 32)
      for (int32_t j = lane; j < p.order; j += 32)
        m.a[i * stride + j] = to_float(from[(int64_t)i * p.order + j]);
    __syncthreads();
    double found = eliminate(m);
    if (threadIdx.x == 0) y[at] = from_float<T>((float)found);
    __syncthreads();  // until all threads have read the pivot
  }
}
