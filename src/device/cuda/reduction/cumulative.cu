// Cumulative sums (-DELEMENT, -DSUM: float, int64_t). A block computes a
// contiguous row, piece by piece. A row with a stride is computed by one
// thread; neighbouring threads have neighbouring rows. Bound by the bytes of
// input and output, or by latency if rows are few.
#include "device/cuda/programs/number.cuh"

#include "device/cuda/reduction/cumulative_params.h"

typedef ELEMENT T;
typedef SUM sum_t;

template <class E>
DEVICE E store_as(float x) {
  return from_float<E>(x);
}
template <class E>
DEVICE E store_as(int64_t x) {
  return (E)x;
}

// The offset of element i in the order of summation.
DEVICE int64_t find(const cumulative_t& p, int64_t row, int64_t i) {
  int64_t outer = divide(row, p.inner);
  int64_t at = row - outer * p.inner.divisor;
  int64_t k = p.reverse ? p.count - 1 - i : i;
  return (outer * p.count + k) * p.inner.divisor + at;
}

extern "C" __global__ void __launch_bounds__(256)
    cumulative_columns(const T* x, T* y,
                       const __grid_constant__ cumulative_t p) {
  turn_t turn;
  int64_t row = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
  if (row >= p.rows) return;
  int64_t at = find(p, row, 0);
  int64_t step = p.reverse ? -p.inner.divisor : p.inner.divisor;
  sum_t sum = 0;
#pragma unroll 4
  for (int64_t i = 0; i < p.count; ++i, at += step) {
    sum_t before = sum;
    sum += (sum_t)load(x[at]);
    y[at] = store_as<T>(p.exclusive ? before : sum);
  }
}

template <class S>
DEVICE S shuffle_up(S x, int by) {
  union {
    S value;
    uint32_t words[sizeof(S) / 4];
  } from, to;
  from.value = x;
#pragma unroll
  for (unsigned i = 0; i < sizeof(S) / 4; ++i)
    to.words[i] = __shfl_up_sync(0xffffffffu, from.words[i], (unsigned)by);
  return to.value;
}

extern "C" __global__ void __launch_bounds__(256)
    cumulative_rows(const T* x, T* y, const __grid_constant__ cumulative_t p) {
  turn_t turn;
  __shared__ sum_t warps[8];
  int lane = (int)(threadIdx.x & 31), warp = (int)(threadIdx.x >> 5);
  for (int64_t row = blockIdx.x; row < p.rows; row += gridDim.x) {
    sum_t carried = 0;
    for (int64_t first = 0; first < p.count; first += blockDim.x) {
      int64_t i = first + threadIdx.x;
      int64_t at = i < p.count ? find(p, row, i) : 0;
      sum_t own = i < p.count ? (sum_t)load(x[at]) : (sum_t)0, sum = own;
      for (int by = 1; by < 32; by *= 2) {
        sum_t other = shuffle_up(sum, by);
        if (lane >= by) sum += other;
      }
      if (lane == 31) warps[warp] = sum;
      __syncthreads();
      sum_t before = carried, total = 0;
      for (int w = 0; w < 8; ++w) {
        if (w < warp) before += warps[w];
        total += warps[w];
      }
      sum += before;
      // sum - own would round.
      sum_t shifted = shuffle_up(sum, 1);
      sum_t exclusive = lane > 0 ? shifted : before;
      if (i < p.count) y[at] = store_as<T>(p.exclusive ? exclusive : sum);
      carried += total;
      __syncthreads();
    }
  }
}
