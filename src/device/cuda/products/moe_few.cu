// A mixture of experts for few tokens: a block computes some columns of one
// pair of a token and an expert, or of one token, and reads their weights where
// they lie. Nothing is sorted, so that pairs with one expert read its weights
// several times.
//
//   ELEMENT  type of all real tensors
//
// Bound by the bytes of the weights: the threads of a block split the inner
// index, and each has several vectors of 16 bytes in flight.
#include "device/cuda/products/moe_shared.cuh"

enum {
  BLOCK = MOE_FEW_THREADS,
  WARPS = BLOCK / 32,
  VECTOR = 16 / sizeof(T),
};

// The sums of a block for MATRICES matrices: LANES neighbouring threads have V
// columns each, and BLOCK / LANES groups of them split the inner index.
template <int LANES, int V, int MATRICES>
struct columns_t {
  enum { SLICES = BLOCK / LANES, WIDTH = LANES * V };
  float sums[MATRICES][V];

  __device__ __forceinline__ void clear() {
#pragma unroll
    for (int m = 0; m < MATRICES; ++m)
#pragma unroll
      for (int e = 0; e < V; ++e) sums[m][e] = 0;
  }

  // Adds scale * x[k] * weights[k][column ..], k < count. Columns beyond the
  // last repeat the last vector and are not stored.
  __device__ __forceinline__ void add(const T* x, float scale,
                                      const T* const* weights, int64_t count,
                                      int64_t first, int64_t width) {
    int64_t column = first + threadIdx.x % LANES * V;
    if (column > width - V) column = width - V;
#pragma unroll 4
    for (int64_t k = threadIdx.x / LANES; k < count; k += SLICES) {
      float factor = to_float(x[k]) * scale;
#pragma unroll
      for (int m = 0; m < MATRICES; ++m) {
        pack_t<T, V> w = load_pack<T, V>(weights[m] + k * width + column);
#pragma unroll
        for (int e = 0; e < V; ++e) sums[m][e] += factor * to_float(w.v[e]);
      }
    }
  }

  // The sum of column first + threadIdx.x, for threads below WIDTH. All threads
  // of the block must call it.
  __device__ __forceinline__ void join(float found[MATRICES]) {
    __shared__ float shared[MATRICES][WARPS][WIDTH];
#pragma unroll
    for (int m = 0; m < MATRICES; ++m)
#pragma unroll
      for (int e = 0; e < V; ++e) {
#pragma unroll
        for (int flip = 16; flip >= LANES; flip /= 2)
          sums[m][e] += __shfl_xor_sync(0xffffffffu, sums[m][e], flip);
        if (threadIdx.x % 32 < LANES)
          shared[m][threadIdx.x / 32][threadIdx.x % LANES * V + e] = sums[m][e];
      }
    __syncthreads();
#pragma unroll
    for (int m = 0; m < MATRICES; ++m) {
      found[m] = 0;
      for (int w = 0; w < WARPS && threadIdx.x < WIDTH; ++w)
        found[m] += shared[m][w][threadIdx.x];
    }
  }
};

// Block y is a pair: gate and up of its expert, and the activation.
template <int LANES, int V>
DEVICE void few_inner(const moe_inputs_t& in, T* inner, const moe_t& p) {
  typedef columns_t<LANES, V, 2> both_t;
  int64_t pair = blockIdx.y, first = (int64_t)blockIdx.x * both_t::WIDTH;
  int64_t expert = expert_of(in.experts, pair, p);
  if (expert < 0) return;
  int64_t matrix = expert * p.hidden * p.inner;
  const T* const weights[2] = {(const T*)in.gate + matrix,
                               (const T*)in.up + matrix};
  float found[2];
  both_t columns;
  columns.clear();
  columns.add((const T*)in.hidden + divide(pair, p.chosen) * p.hidden, 1.0f,
              weights, p.hidden, first, p.inner);
  columns.join(found);
  int64_t at = first + threadIdx.x;
  if (threadIdx.x >= both_t::WIDTH || at >= p.inner) return;
  if (in.gate_bias) {
    found[0] += to_float(((const T*)in.gate_bias)[expert * p.inner + at]);
    found[1] += to_float(((const T*)in.up_bias)[expert * p.inner + at]);
  }
  inner[pair * p.inner + at] = from_float<T>(activate(found[0], found[1], p));
}

// Block y is a token: the last product of all its experts.
template <int LANES, int V>
DEVICE void few_down(const moe_inputs_t& in, const T* inner, T* y,
                     const moe_t& p) {
  typedef columns_t<LANES, V, 1> one_t;
  int64_t token = blockIdx.y, first = (int64_t)blockIdx.x * one_t::WIDTH;
  int64_t chosen = p.pairs > 0 ? p.chosen.divisor : 0;
  int64_t at = first + threadIdx.x;
  bool stores = threadIdx.x < one_t::WIDTH && at < p.hidden;
  float found[1], bias = 0;
  one_t columns;
  columns.clear();
  for (int64_t c = 0; c < chosen; ++c) {
    int64_t pair = token * chosen + c;
    int64_t expert = expert_of(in.experts, pair, p);
    if (expert < 0) continue;
    float score = in.scores ? to_float(((const T*)in.scores)[pair]) : 1.0f;
    const T* const weights[1] = {(const T*)in.down +
                                 expert * p.inner * p.hidden};
    const T* x = p.is_gated ? inner + pair * p.inner
                            : (const T*)in.hidden + token * p.inner;
    columns.add(x, score, weights, p.inner, first, p.hidden);
    if (in.down_bias && stores)
      bias +=
          score * to_float(((const T*)in.down_bias)[expert * p.hidden + at]);
  }
  columns.join(found);
  if (stores) y[token * p.hidden + at] = from_float<T>(found[0] + bias);
}

#define FEW(name, LANES, V)                                                    \
  extern "C" __global__ void __launch_bounds__(BLOCK)                          \
      few_inner_##name(const __grid_constant__ moe_inputs_t in, T* inner,      \
                       const __grid_constant__ moe_t p) {                      \
    turn_t turn;                                                               \
    few_inner<LANES, V>(in, inner, p);                                         \
  }                                                                            \
  extern "C" __global__ void __launch_bounds__(BLOCK)                          \
      few_down_##name(const __grid_constant__ moe_inputs_t in, const T* inner, \
                      T* y, const __grid_constant__ moe_t p) {                 \
    turn_t turn;                                                               \
    few_down<LANES, V>(in, inner, y, p);                                       \
  }

FEW(narrow, MOE_NARROW_LANES, VECTOR)
FEW(wide, MOE_WIDE_LANES, VECTOR)
FEW(single, MOE_SINGLE_LANES, 1)
