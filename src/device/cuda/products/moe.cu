// A mixture of experts. Pairs of a token and an expert are sorted by expert. A
// tile has rows (pairs) of one expert, whose weights are read once for each
// tile. The number of tiles is known only after sorting; blocks beyond it
// return at once.
//
//   ELEMENT  type of all real tensors: half_t, bf16_t (tensor cores), or float
//   ROUND    int8_t or fp8_t: the type to which the last product's input is
//            quantized; undefined: it is not. SCALE: type of computed scales,
//            FACTOR: type of a given scale
//
// Few tokens are bound by the bytes of the weights, many by products.
#include "device/cuda/products/mma.cuh"
#include "device/cuda/products/moe_shared.cuh"
#include "device/cuda/programs/scales.cuh"

enum {
  PIECE = 16 / sizeof(T),   // elements
  STEP = 64 / sizeof(T),    // elements of the inner index in shared memory
  PIECES = STEP / PIECE,    // of a row
  A_STRIDE = STEP + PIECE,  // padded: rows begin in different banks
  B_STRIDE = MOE_COLUMNS + PIECE,
  B_PIECES = STEP * (MOE_COLUMNS / PIECE) / MOE_THREADS,  // of a thread
};

// ---- Sorting: one block

DEVICE int32_t seen(const int32_t* at) { return *(const volatile int32_t*)at; }

// The exclusive prefix sum over the 32 threads of a warp; *total: the sum.
DEVICE int32_t scan_warp(int32_t x, int32_t* total) {
  int32_t sum = x;
  for (int by = 1; by < 32; by *= 2) {
    int32_t other =
        (int32_t)__shfl_up_sync(0xffffffffu, (uint32_t)sum, (unsigned)by);
    if ((int)(threadIdx.x & 31) >= by) sum += other;
  }
  *total = (int32_t)__shfl_sync(0xffffffffu, (uint32_t)sum, 31);
  return sum - x;
}

// starts[e] first counts the pairs of expert e, and tiles[e] is first the next
// free place of expert e.
extern "C" __global__ void __launch_bounds__(MOE_SORT_THREADS)
    moe_sort(const void* experts, moe_order_t out,
             const __grid_constant__ moe_t p) {
  turn_t turn;
  for (int i = threadIdx.x; i <= p.experts; i += MOE_SORT_THREADS)
    out.starts[i] = 0;
  __syncthreads();
  for (int64_t i = threadIdx.x; i < p.pairs; i += MOE_SORT_THREADS) {
    int32_t e = expert_of(experts, i, p);
    if (e >= 0) atomicAdd((uint32_t*)out.starts + e, 1u);
  }
  __syncthreads();
  if (threadIdx.x < 32) {
    int32_t before = 0;
    for (int e = 0; e < p.experts; e += 32) {
      int at = e + (int)threadIdx.x, total = 0;
      int32_t count = at < p.experts ? seen(out.starts + at) : 0;
      int32_t start = before + scan_warp(count, &total);
      if (at < p.experts) out.starts[at] = out.tiles[at] = start;
      before += total;
    }
    if (threadIdx.x == 0) out.starts[p.experts] = before;
  }
  __syncthreads();
  for (int64_t i = threadIdx.x; i < p.pairs; i += MOE_SORT_THREADS) {
    int32_t e = expert_of(experts, i, p), place = -1;
    if (e >= 0) {
      place = (int32_t)atomicAdd((uint32_t*)out.tiles + e, 1u);
      out.order[place] = (int32_t)i;
    }
    out.place[i] = place;
  }
  __syncthreads();
  if (threadIdx.x < 32) {
    int32_t before = 0;
    for (int e = 0; e < p.experts; e += 32) {
      int at = e + (int)threadIdx.x, total = 0;
      int32_t rows = at < p.experts
                         ? seen(out.starts + at + 1) - seen(out.starts + at)
                         : 0;
      int32_t first = before + scan_warp((rows + p.rows - 1) / p.rows, &total);
      if (at < p.experts) out.tiles[at] = first;
      before += total;
    }
    if (threadIdx.x == 0) out.tiles[p.experts] = before;
  }
}

// ---- Tiles

struct tile_t {
  int32_t expert, first, end;  // pairs [first, end); expert -1: no tile
};

// All threads of the block must call it.
DEVICE tile_t find_tile(const moe_order_t& order, int32_t number,
                        const moe_t& p) {
  __shared__ tile_t found;
  if (threadIdx.x == 0) found.expert = -1;
  __syncthreads();
  for (int e = threadIdx.x; e < p.experts; e += MOE_THREADS) {
    int32_t first = order.tiles[e];
    if (number < first || number >= order.tiles[e + 1]) continue;
    found.expert = e;
    found.first = order.starts[e] + (number - first) * p.rows;
    found.end = order.starts[e + 1];
  }
  __syncthreads();
  return found;
}

// Elements [at, at + PIECE) of a row of `count` elements; zeros beyond.
DEVICE pack_t<T, PIECE> load_piece_of(const T* row, int64_t at, int64_t count,
                                      bool exists, bool wide) {
  pack_t<T, PIECE> piece;
  if (wide && exists && at < count) return load_pack<T, PIECE>(row + at);
#pragma unroll
  for (int i = 0; i < PIECE; ++i)
    piece.v[i] = exists && at + i < count ? row[at + i] : from_float<T>(0.0f);
  return piece;
}

// Products of the same ROWS rows with MOE_COLUMNS columns of MATRICES weights.
template <int ROWS, int MATRICES>
struct products_t {
  enum {
    A_PIECES = (ROWS * PIECES + MOE_THREADS - 1) / MOE_THREADS,
    BY_CORES = sizeof(T) == 2,
    ROW_BLOCKS = ROWS / 16,              // with tensor cores
    OWN_ROWS = ROWS * 16 / MOE_THREADS,  // without: a thread's rows
    SUMS = BY_CORES ? ROW_BLOCKS * 8 : OWN_ROWS * 4,
  };
  struct shared_t {
    T a[ROWS * A_STRIDE];
    T b[MATRICES][STEP * B_STRIDE];
  };
  pack_t<T, PIECE> a[A_PIECES], b[MATRICES][B_PIECES];
  float sums[MATRICES][SUMS];

  // Loads into registers. rows[r]: row r of the tile; NULL: it has no such row.
  __device__ __forceinline__ void load(const T* const* rows,
                                       const T* const* weights, int64_t k,
                                       int64_t count, int64_t column,
                                       int64_t width, bool wide) {
#pragma unroll
    for (int i = 0; i < A_PIECES; ++i) {
      int number = (int)threadIdx.x + i * MOE_THREADS;
      int row = number / PIECES, at = number % PIECES * PIECE;
      const T* from = number < ROWS * PIECES ? rows[row] : 0;
      a[i] = load_piece_of(from, k + at, count, from != 0, wide);
    }
#pragma unroll
    for (int m = 0; m < MATRICES; ++m)
#pragma unroll
      for (int i = 0; i < B_PIECES; ++i) {
        int number = (int)threadIdx.x + i * MOE_THREADS;
        int row = number / (MOE_COLUMNS / PIECE);
        int at = number % (MOE_COLUMNS / PIECE) * PIECE;
        b[m][i] = load_piece_of(weights[m] + (k + row) * width, column + at,
                                width, k + row < count, wide);
      }
  }

  __device__ __forceinline__ void store(shared_t& shared) {
#pragma unroll
    for (int i = 0; i < A_PIECES; ++i) {
      int number = (int)threadIdx.x + i * MOE_THREADS;
      int row = number / PIECES, at = number % PIECES * PIECE;
      if (number < ROWS * PIECES)
        store_pack(shared.a + row * A_STRIDE + at, a[i]);
    }
#pragma unroll
    for (int m = 0; m < MATRICES; ++m)
#pragma unroll
      for (int i = 0; i < B_PIECES; ++i) {
        int number = (int)threadIdx.x + i * MOE_THREADS;
        int row = number / (MOE_COLUMNS / PIECE);
        int at = number % (MOE_COLUMNS / PIECE) * PIECE;
        store_pack(shared.b[m] + row * B_STRIDE + at, b[m][i]);
      }
  }

  // Two elements of 16 bits, of a row and of the next.
  static __device__ __forceinline__ uint32_t pair_of(const T* from) {
    pack_t<T, 2> pair;
    pair.v[0] = from[0], pair.v[1] = from[B_STRIDE];
    return *reinterpret_cast<uint32_t*>(&pair);
  }

  // A warp has 16 columns of all rows.
  __device__ __forceinline__ void multiply_by_cores(const shared_t& shared) {
    int lane = (int)(threadIdx.x & 31), group = lane / 4, t = lane % 4;
    int column = (int)(threadIdx.x / 32) * 16 + group;
#pragma unroll
    for (int k = 0; k < STEP; k += 16) {
      uint32_t factors[ROW_BLOCKS + 1][4];
#pragma unroll
      for (int r = 0; r < ROW_BLOCKS; ++r) {
        const T* from = shared.a + (r * 16 + group) * A_STRIDE + k + 2 * t;
        factors[r][0] = *(const uint32_t*)from;
        factors[r][1] = *(const uint32_t*)(from + 8 * A_STRIDE);
        factors[r][2] = *(const uint32_t*)(from + 8);
        factors[r][3] = *(const uint32_t*)(from + 8 * A_STRIDE + 8);
      }
#pragma unroll
      for (int m = 0; m < MATRICES; ++m)
#pragma unroll
        for (int n = 0; n < 2; ++n) {
          const T* from = shared.b[m] + (k + 2 * t) * B_STRIDE + column + n * 8;
          const uint32_t other[2] = {pair_of(from),
                                     pair_of(from + 8 * B_STRIDE)};
#pragma unroll
          for (int r = 0; r < ROW_BLOCKS; ++r)
            mma<T>(sums[m] + (r * 2 + n) * 4, factors[r], other);
        }
    }
  }

  // A thread has 4 columns of every eighth row.
  __device__ __forceinline__ void multiply(const shared_t& shared) {
    int column = (int)(threadIdx.x % 16) * 4, row = (int)(threadIdx.x / 16);
#pragma unroll 4
    for (int k = 0; k < STEP; ++k) {
      float other[MATRICES][4];
#pragma unroll
      for (int m = 0; m < MATRICES; ++m)
#pragma unroll
        for (int n = 0; n < 4; ++n)
          other[m][n] = to_float(shared.b[m][k * B_STRIDE + column + n]);
#pragma unroll
      for (int r = 0; r < OWN_ROWS; ++r) {
        float x = to_float(shared.a[(row + 8 * r) * A_STRIDE + k]);
#pragma unroll
        for (int m = 0; m < MATRICES; ++m)
#pragma unroll
          for (int n = 0; n < 4; ++n) sums[m][r * 4 + n] += x * other[m][n];
      }
    }
  }

  // The row and column, within the tile, of sum number `i`.
  static __device__ __forceinline__ int row_of(int i) {
    int lane = (int)(threadIdx.x & 31);
    return BY_CORES ? i / 8 * 16 + lane / 4 + i % 4 / 2 * 8
                    : (int)(threadIdx.x / 16) + i / 4 * 8;
  }
  static __device__ __forceinline__ int column_of(int i) {
    int lane = (int)(threadIdx.x & 31);
    return BY_CORES ? (int)(threadIdx.x / 32) * 16 + i % 8 / 4 * 8 +
                          lane % 4 * 2 + i % 2
                    : (int)(threadIdx.x % 16) * 4 + i % 4;
  }

  __device__ __forceinline__ void run(const T* const* rows,
                                      const T* const* weights, int64_t count,
                                      int64_t column, int64_t width,
                                      bool wide) {
    __shared__ shared_t shared;
#pragma unroll
    for (int m = 0; m < MATRICES; ++m)
#pragma unroll
      for (int i = 0; i < SUMS; ++i) sums[m][i] = 0;
    load(rows, weights, 0, count, column, width, wide);
    for (int64_t k = 0; k < count; k += STEP) {
      __syncthreads();
      store(shared);
      __syncthreads();
      if (k + STEP < count)
        load(rows, weights, k + STEP, count, column, width, wide);
      if (BY_CORES) {
        multiply_by_cores(shared);
      } else {
        multiply(shared);
      }
    }
  }
};

// ---- The first products

template <int ROWS>
DEVICE void inner_products(const moe_inputs_t& in, const moe_order_t& order,
                           T* inner, const moe_t& p) {
  __shared__ const T* rows[ROWS];
  tile_t tile = find_tile(order, (int32_t)blockIdx.y, p);
  if (tile.expert < 0) return;
  for (int r = threadIdx.x; r < ROWS; r += MOE_THREADS) {
    int32_t place = tile.first + r;
    rows[r] = place < tile.end
                  ? (const T*)in.hidden +
                        divide((int64_t)order.order[place], p.chosen) * p.hidden
                  : (const T*)0;
  }
  __syncthreads();
  int64_t column = (int64_t)blockIdx.x * MOE_COLUMNS;
  int64_t matrix = (int64_t)tile.expert * p.hidden * p.inner;
  const T* const weights[2] = {(const T*)in.gate + matrix,
                               (const T*)in.up + matrix};
  typedef products_t<ROWS, 2> both_t;
  both_t products;
  products.run(rows, weights, p.hidden, column, p.inner, p.wide != 0);
#pragma unroll
  for (int i = 0; i < both_t::SUMS; ++i) {
    int32_t place = tile.first + both_t::row_of(i);
    int64_t at = column + both_t::column_of(i);
    if (place >= tile.end || at >= p.inner) continue;
    int64_t bias = (int64_t)tile.expert * p.inner + at;
    float gate = products.sums[0][i], up = products.sums[1][i];
    if (in.gate_bias) {
      gate += to_float(((const T*)in.gate_bias)[bias]);
      up += to_float(((const T*)in.up_bias)[bias]);
    }
    inner[place * p.inner + at] = from_float<T>(activate(gate, up, p));
  }
}

extern "C" __global__ void __launch_bounds__(MOE_THREADS)
    moe_inner_few(const __grid_constant__ moe_inputs_t in, moe_order_t order,
                  T* inner, const __grid_constant__ moe_t p) {
  turn_t turn;
  inner_products<16>(in, order, inner, p);
}
extern "C" __global__ void __launch_bounds__(MOE_THREADS)
    moe_inner_many(const __grid_constant__ moe_inputs_t in, moe_order_t order,
                   T* inner, const __grid_constant__ moe_t p) {
  turn_t turn;
  inner_products<64>(in, order, inner, p);
}

// ---- Rounding: a warp for each block of a row

#ifdef ROUND
extern "C" __global__ void __launch_bounds__(256)
    moe_round(moe_order_t order, T* inner, const FACTOR* scale,
              const __grid_constant__ moe_t p) {
  turn_t turn;
  int64_t blocks = (p.inner + p.block - 1) / p.block;
  int64_t number = ((int64_t)blockIdx.x * blockDim.x + threadIdx.x) / 32;
  int64_t row = number / blocks, first = number % blocks * p.block;
  if (row >= order.starts[p.experts]) return;
  int64_t end = first + p.block < p.inner ? first + p.block : p.inner;
  T* x = inner + row * p.inner;
  float by = to_float(scale[0]), most = 0;
  if (p.finds) {
    for (int64_t i = first + (threadIdx.x & 31); i < end; i += 32)
      most = max_of::join(most, fabsf(to_float(x[i])));
    for (int flip = 16; flip > 0; flip /= 2)
      most = max_of::join(most, float_of_bits(__shfl_xor_sync(
                                    0xffffffffu, bits_of(most), flip)));
    by = to_float(store_scale<SCALE>(most / limit<ROUND>() / by)) * by;
  }
  for (int64_t i = first + (threadIdx.x & 31); i < end; i += 32)
    x[i] = from_float<T>(to_float(quantized<ROUND>(to_float(x[i]), by)) * by);
}
#endif

// ---- The last product

template <int ROWS>
DEVICE void down_products(const moe_inputs_t& in, const moe_order_t& order,
                          const T* inner, float* results, const moe_t& p) {
  __shared__ const T* rows[ROWS];
  tile_t tile = find_tile(order, (int32_t)blockIdx.y, p);
  if (tile.expert < 0) return;
  for (int r = threadIdx.x; r < ROWS; r += MOE_THREADS) {
    int32_t place = tile.first + r;
    const T* from = inner + place * p.inner;
    if (!p.is_gated && place < tile.end)
      from = (const T*)in.hidden +
             divide((int64_t)order.order[place], p.chosen) * p.inner;
    rows[r] = place < tile.end ? from : (const T*)0;
  }
  __syncthreads();
  int64_t column = (int64_t)blockIdx.x * MOE_COLUMNS;
  const T* const weights[1] = {(const T*)in.down +
                               (int64_t)tile.expert * p.hidden * p.inner};
  typedef products_t<ROWS, 1> one_t;
  one_t products;
  products.run(rows, weights, p.inner, column, p.hidden, p.wide != 0);
#pragma unroll
  for (int i = 0; i < one_t::SUMS; ++i) {
    int32_t place = tile.first + one_t::row_of(i);
    int64_t at = column + one_t::column_of(i);
    if (place >= tile.end || at >= p.hidden) continue;
    float sum = products.sums[0][i];
    if (in.down_bias)
      sum += to_float(
          ((const T*)in.down_bias)[(int64_t)tile.expert * p.hidden + at]);
    results[place * p.hidden + at] = sum;
  }
}

extern "C" __global__ void __launch_bounds__(MOE_THREADS)
    moe_down_few(const __grid_constant__ moe_inputs_t in, moe_order_t order,
                 const T* inner, float* results,
                 const __grid_constant__ moe_t p) {
  turn_t turn;
  down_products<16>(in, order, inner, results, p);
}
extern "C" __global__ void __launch_bounds__(MOE_THREADS)
    moe_down_many(const __grid_constant__ moe_inputs_t in, moe_order_t order,
                  const T* inner, float* results,
                  const __grid_constant__ moe_t p) {
  turn_t turn;
  down_products<64>(in, order, inner, results, p);
}

// One thread per element of the output.
extern "C" __global__ void __launch_bounds__(256)
    moe_sum(const T* scores, moe_order_t order, const float* results, T* y,
            int64_t count, divisor_t hidden, const __grid_constant__ moe_t p) {
  turn_t turn;
  int64_t at = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
  if (at >= count) return;
  int64_t token = divide(at, hidden), k = at - token * hidden.divisor;
  float sum = 0;
  int64_t chosen = p.pairs > 0 ? p.chosen.divisor : 0;
  for (int64_t c = 0; c < chosen; ++c) {
    int64_t pair = token * chosen + c;
    int32_t place = order.place[pair];
    if (place >= 0)
      sum += (scores ? to_float(scores[pair]) : 1.0f) *
             results[place * p.hidden + k];
  }
  y[at] = from_float<T>(sum);
}
