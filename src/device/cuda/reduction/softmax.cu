// Softmax along an axis; with LOG, its logarithm.
//
//   ELEMENT   type of both tensors     VECTOR   elements to 16 bytes
//
// The memory is [outer, count, inner]. Rows (inner is 1) are held in registers
// of the threads that share a row, in shared memory if they are no whole
// vectors, or read twice if they are too long. Columns are read twice;
// neighbouring threads have neighbouring columns.
#include "device/cuda/programs/number.cuh"
#include "device/cuda/programs/threads.cuh"

enum { COLUMNS = VECTOR < 4 ? VECTOR : 4, LONG_BLOCK = 1024 };

DEVICE float highest(float a, float b) { return b != b || b > a ? b : a; }
struct highest_of {
  static __device__ __forceinline__ float join(float a, float b) {
    return highest(a, b);
  }
};
// e^x; its error is far below that of the sum to which it is added.
DEVICE float power(float x) { return exp2f(x * 1.4426950408889634f); }

// The maximum, and the sum of exp(x - maximum). If all x are -infinity, 0 takes
// the place of the maximum.
struct sums_t {
  float most, sum;
};
DEVICE float finite_base(float most) { return most == -INFINITE ? 0 : most; }
DEVICE void add(sums_t& s, float x) {
  float most = highest(s.most, x), base = finite_base(most);
  s.sum = s.sum * power(s.most - base) + power(x - base);
  s.most = most;
}
struct sums_join {
  static __device__ __forceinline__ sums_t join(sums_t a, sums_t b) {
    float most = highest(a.most, b.most), base = finite_base(most);
    sums_t s = {most,
                a.sum * power(a.most - base) + b.sum * power(b.most - base)};
    return s;
  }
};

DEVICE ELEMENT result(float x, const sums_t& s, float factor) {
#ifdef LOG
  return from_float<ELEMENT>(x - s.most - factor);
#else
  return from_float<ELEMENT>(power(x - s.most) * factor);
#endif
}
DEVICE float factor_of(const sums_t& s) {
#ifdef LOG
  return logf(s.sum);
#else
  return 1.0f / s.sum;
#endif
}

// ---- Rows in registers -----------------------------------------------------

// A thread holds at most N vectors.
template <int V, int N>
DEVICE void hold_rows(const ELEMENT* source, ELEMENT* target, uint32_t rows,
                      uint32_t vectors, uint32_t across_log) {
  uint32_t across = 1u << across_log, lane = threadIdx.x & (across - 1);
  uint32_t row =
      blockIdx.x * (BLOCK >> across_log) + (threadIdx.x >> across_log);
  pack_t<ELEMENT, V> packs[N];  // all loads are issued before the first use
  float x[N][V], most = -INFINITE, sum = 0;
  bool inside = row < rows;
  source += (int64_t)row * vectors * V;
  target += (int64_t)row * vectors * V;
#pragma unroll
  for (int k = 0; k < N; ++k) {
    uint32_t at = lane + k * across;
    if (inside && at < vectors)
      packs[k] = load_pack<ELEMENT, V>(source + at * V);
  }
#pragma unroll
  for (int k = 0; k < N; ++k) {
    if (!inside || lane + k * across >= vectors) continue;
#pragma unroll
    for (int e = 0; e < V; ++e) {
      x[k][e] = to_float(packs[k].v[e]);
      most = highest(most, x[k][e]);
    }
  }
  most = join_threads<highest_of>(most, across_log);
#pragma unroll
  for (int k = 0; k < N; ++k) {
    if (!inside || lane + k * across >= vectors) continue;
#pragma unroll
    for (int e = 0; e < V; ++e) {
      x[k][e] -= most;
#ifdef LOG
      sum += power(x[k][e]);
#else
      x[k][e] = power(x[k][e]);
      sum += x[k][e];
#endif
    }
  }
  sum = join_threads<sum_of>(sum, across_log);
#ifdef LOG
  float offset = logf(sum), factor = 1;
#else
  float offset = 0, factor = 1.0f / sum;
#endif
#pragma unroll
  for (int k = 0; k < N; ++k) {
    uint32_t at = lane + k * across;
    if (!inside || at >= vectors) continue;
    pack_t<ELEMENT, V> pack;
#pragma unroll
    for (int e = 0; e < V; ++e)
      pack.v[e] = from_float<ELEMENT>((x[k][e] - offset) * factor);
    store_pack<ELEMENT, V>(target + at * V, pack);
  }
}

#define SOFTMAX_ROWS(name, V, N)                                  \
  extern "C" __global__ void __launch_bounds__(BLOCK)             \
      name(const ELEMENT* source, ELEMENT* target, uint32_t rows, \
           uint32_t vectors, uint32_t across_log) {               \
    turn_t turn;                                                  \
    hold_rows<V, N>(source, target, rows, vectors, across_log);   \
  }
SOFTMAX_ROWS(rows, VECTOR, 1)
SOFTMAX_ROWS(rows_held, VECTOR, 4)
SOFTMAX_ROWS(rows_single, 1, 8)

// ---- Rows in shared memory --------------------------------------------------

// Rows of any length by vectors: a block's rows, one for each warp, begin and
// end on whole vectors, though each of them may not.
extern "C" __global__ void __launch_bounds__(BLOCK)
    rows_staged(const ELEMENT* source, ELEMENT* target, uint32_t rows,
                uint32_t count) {
  turn_t turn;
  extern __shared__ __align__(16) unsigned char memory[];
  ELEMENT* cells = (ELEMENT*)memory;
  uint32_t first = blockIdx.x * WARPS, lane = threadIdx.x & 31;
  uint32_t here = rows - first < WARPS ? rows - first : WARPS;
  uint32_t total = here * count, whole = total / VECTOR * VECTOR;
  source += (int64_t)first * count;
  target += (int64_t)first * count;
#pragma unroll 4
  for (uint32_t at = threadIdx.x * VECTOR; at < whole; at += BLOCK * VECTOR)
    store_pack<ELEMENT, VECTOR>(cells + at,
                                load_pack<ELEMENT, VECTOR>(source + at));
  if (threadIdx.x < total - whole)
    cells[whole + threadIdx.x] = source[whole + threadIdx.x];
  __syncthreads();
  ELEMENT* row = cells + (threadIdx.x >> 5) * count;
  uint32_t size = (threadIdx.x >> 5) < here ? count : 0;
  float most = -INFINITE, sum = 0;
  for (uint32_t at = lane; at < size; at += 32)
    most = highest(most, to_float(row[at]));
  most = join_threads<highest_of>(most, 5);
  for (uint32_t at = lane; at < size; at += 32)
    sum += power(to_float(row[at]) - most);
  sums_t s = {most, join_threads<sum_of>(sum, 5)};
  float factor = factor_of(s);
  for (uint32_t at = lane; at < size; at += 32)
    row[at] = result(to_float(row[at]), s, factor);
  __syncthreads();
#pragma unroll 4
  for (uint32_t at = threadIdx.x * VECTOR; at < whole; at += BLOCK * VECTOR)
    store_pack<ELEMENT, VECTOR>(target + at,
                                load_pack<ELEMENT, VECTOR>(cells + at));
  if (threadIdx.x < total - whole)
    target[whole + threadIdx.x] = cells[whole + threadIdx.x];
}

// ---- Long rows -------------------------------------------------------------

// A block of 2^log threads has a row. The elements before the first whole
// vector of memory, and those behind the last one, have a thread each.
template <int V>
DEVICE void long_row(const ELEMENT* source, ELEMENT* target, uint32_t count,
                     uint32_t log) {
  enum { FLYING = 4 };  // vectors that a thread loads before it uses the first
  uint32_t threads = 1u << log, step = threads * V;
  int64_t start = (int64_t)blockIdx.x * count;
  uint32_t head = (uint32_t)((V - start % V) % V);
  if (head > count) head = count;
  uint32_t end = head + (count - head) / V * V;
  uint32_t single =
      threadIdx.x < head ? threadIdx.x : end + (threadIdx.x - head);
  sums_t s = {-INFINITE, 0};
  source += start;
  target += start;
  if (single < count) add(s, to_float(source[single]));
  for (uint32_t at = head + threadIdx.x * V; at < end; at += FLYING * step) {
    pack_t<ELEMENT, V> packs[FLYING];
    float most = s.most;
#pragma unroll
    for (int k = 0; k < FLYING; ++k)
      if (at + k * step < end)
        packs[k] = load_pack<ELEMENT, V>(source + at + k * step);
#pragma unroll
    for (int k = 0; k < FLYING; ++k) {
      if (at + k * step >= end) continue;
#pragma unroll
      for (int e = 0; e < V; ++e) most = highest(most, to_float(packs[k].v[e]));
    }
    float base = finite_base(most);
    s.sum *= power(s.most - base);
#pragma unroll
    for (int k = 0; k < FLYING; ++k) {
      if (at + k * step >= end) continue;
#pragma unroll
      for (int e = 0; e < V; ++e)
        s.sum += power(to_float(packs[k].v[e]) - base);
    }
    s.most = most;
  }
  s = join_threads<sums_join>(s, log);
  float factor = factor_of(s);
  if (single < count)
    target[single] = result(to_float(source[single]), s, factor);
#pragma unroll 4
  for (uint32_t at = head + threadIdx.x * V; at < end; at += step) {
    pack_t<ELEMENT, V> pack = load_pack<ELEMENT, V>(source + at);
#pragma unroll
    for (int e = 0; e < V; ++e)
      pack.v[e] = result(to_float(pack.v[e]), s, factor);
    store_pack<ELEMENT, V>(target + at, pack);
  }
}

extern "C" __global__ void __launch_bounds__(LONG_BLOCK)
    rows_long(const ELEMENT* source, ELEMENT* target, uint32_t count,
              uint32_t log) {
  turn_t turn;
  long_row<VECTOR>(source, target, count, log);
}
extern "C" __global__ void __launch_bounds__(LONG_BLOCK)
    rows_long_single(const ELEMENT* source, ELEMENT* target, uint32_t count,
                     uint32_t log) {
  turn_t turn;
  long_row<1>(source, target, count, log);
}

// ---- Columns ---------------------------------------------------------------

template <int V>
DEVICE void softmax_columns(const ELEMENT* source, ELEMENT* target,
                            uint32_t count, uint32_t vectors, uint32_t tiles,
                            uint32_t across_log) {
  uint32_t across = 1u << across_log, down = BLOCK >> across_log;
  uint32_t column =
      (blockIdx.x % tiles << across_log) + (threadIdx.x & (across - 1));
  uint32_t first = threadIdx.x >> across_log;
  int64_t step = (int64_t)vectors * V;  // from one element to the next
  int64_t at = blockIdx.x / tiles * count * step + (int64_t)column * V;
  sums_t s[V];
#pragma unroll
  for (int e = 0; e < V; ++e) s[e].most = -INFINITE, s[e].sum = 0;
  bool inside = column < vectors;
#pragma unroll 4
  for (uint32_t p = first; inside && p < count; p += down) {
    pack_t<ELEMENT, V> pack = load_pack<ELEMENT, V>(source + at + p * step);
#pragma unroll
    for (int e = 0; e < V; ++e) add(s[e], to_float(pack.v[e]));
  }
  float factor[V];
#pragma unroll
  for (int e = 0; e < V; ++e) {
    s[e] = join_columns<sums_join>(s[e], across_log);
    factor[e] = factor_of(s[e]);
  }
#pragma unroll 4
  for (uint32_t p = first; inside && p < count; p += down) {
    pack_t<ELEMENT, V> pack = load_pack<ELEMENT, V>(source + at + p * step);
#pragma unroll
    for (int e = 0; e < V; ++e)
      pack.v[e] = result(to_float(pack.v[e]), s[e], factor[e]);
    store_pack<ELEMENT, V>(target + at + p * step, pack);
  }
}

#define SOFTMAX_COLUMNS(name, V)                                           \
  extern "C" __global__ void __launch_bounds__(BLOCK)                      \
      name(const ELEMENT* source, ELEMENT* target, uint32_t count,         \
           uint32_t vectors, uint32_t tiles, uint32_t across_log) {        \
    turn_t turn;                                                           \
    softmax_columns<V>(source, target, count, vectors, tiles, across_log); \
  }
SOFTMAX_COLUMNS(columns, COLUMNS)
SOFTMAX_COLUMNS(columns_single, 1)
