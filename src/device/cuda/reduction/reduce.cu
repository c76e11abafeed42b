// Reductions over any axes.
//
//   ELEMENT   type of the input        ACC       type of the arithmetic
//   RESULT    type of the output
//   OP        a rabbet_reduce_t        IDENTITY  result for no elements
//   VECTOR    elements to 16 bytes
//   STEPS     defined: element-wise layers of floats, as expressions of x.
//             BEFORE_0, BEFORE_1, ... of an element, AFTER_0, ... of a result
//
// `rows`: the contiguous axis is reduced; several threads of a block share an
// output. `columns`: it is kept; neighbouring threads have neighbouring
// outputs, and the block's rows of threads split the positions. If there are
// few outputs, several blocks compute parts of each (the _part functions).
// Partial results are stored as [part][output], and `finish` combines them.
#include "device/cuda/programs/choice.cuh"
#include "device/cuda/programs/number.cuh"
#include "device/cuda/reduction/reduce_params.h"
#include "ops/enums.h"
#ifdef STEPS
#include "device/cuda/pointwise/functions.cuh"
#endif

enum { BLOCK = 256, WARPS = BLOCK / 32, COLUMNS = VECTOR < 8 ? VECTOR : 8 };

// ---- Elements --------------------------------------------------------------

DEVICE double load(double x) { return x; }
template <class A>
struct stored {
  typedef A type;
};
template <>
struct stored<double> {
  typedef float type;
};

DEVICE ACC combine(ACC a, ACC b) {
  if (OP == RABBET_REDUCE_PROD) return a * b;
  if (OP == RABBET_REDUCE_MAX) return b != b || b > a ? b : a;
  if (OP == RABBET_REDUCE_MIN) return b != b || b < a ? b : a;
  return a + b;
}

#ifdef STEPS
DEVICE float before(const reduce_t& r, float x) {
#ifdef BEFORE_0
  x = BEFORE_0;
#endif
#ifdef BEFORE_1
  x = BEFORE_1;
#endif
#ifdef BEFORE_2
  x = BEFORE_2;
#endif
  return x;
}
DEVICE float after(const reduce_t& r, float x) {
#ifdef AFTER_0
  x = AFTER_0;
#endif
#ifdef AFTER_1
  x = AFTER_1;
#endif
#ifdef AFTER_2
  x = AFTER_2;
#endif
  return x;
}
#else
template <class L>
DEVICE L before(const reduce_t&, L x) {
  return x;
}
template <class L>
DEVICE L after(const reduce_t&, L x) {
  return x;
}
#endif

template <bool FINAL>
struct result {
  typedef ACC type;
  static __device__ __forceinline__ ACC of(ACC x, const reduce_t&) { return x; }
};
template <>
struct result<true> {
  typedef RESULT type;
  static __device__ __forceinline__ RESULT of(ACC x, const reduce_t& r) {
    if (OP == RABBET_REDUCE_AVG) {
      bool whole = (ACC)0.5f == 0;
      x = whole && r.elements == 0 ? (ACC)0 : (ACC)(x / (ACC)r.elements);
    }
    return store_as<RESULT>(after(r, (typename stored<ACC>::type)x));
  }
};

// ---- Positions of one thread -----------------------------------------------

// FIRST: elements of the input, not parts of results.
template <class E, int V, bool FIRST>
DEVICE void take(const reduce_t& r, const E* from, uint32_t at, ACC* out) {
  int64_t place = 0;
  locate<1>(r.reduced, at, &place);
  pack_t<E, V> pack = load_pack<E, V>(from + place);
#pragma unroll
  for (int e = 0; e < V; ++e)
    out[e] = FIRST ? (ACC)before(r, load(pack.v[e])) : (ACC)load(pack.v[e]);
}

// Takes four at a time, the last ones too: their loads are in flight together,
// and sums of four round less than one long sum.
template <class E, int V, bool FIRST>
DEVICE void gather(const reduce_t& r, const E* from, uint32_t begin,
                   uint32_t end, uint32_t step, ACC* total) {
#pragma unroll
  for (int e = 0; e < V; ++e) total[e] = (ACC)IDENTITY;
  for (uint32_t at = begin; at < end; at += 4 * step) {
    ACC x[4][V];
#pragma unroll
    for (int k = 0; k < 4; ++k) {
#pragma unroll
      for (int e = 0; e < V; ++e) x[k][e] = (ACC)IDENTITY;
      if (at + k * step < end) take<E, V, FIRST>(r, from, at + k * step, x[k]);
    }
#pragma unroll
    for (int e = 0; e < V; ++e)
      total[e] = combine(total[e], combine(combine(x[0][e], x[1][e]),
                                           combine(x[2][e], x[3][e])));
  }
}

DEVICE uint32_t part_end(const reduce_t& r, uint32_t begin) {
  return begin + r.part < r.count ? begin + r.part : r.count;
}

// ---- Rows ------------------------------------------------------------------

// Combines the values of a row's threads; all of them get the result.
DEVICE ACC join_row(ACC x, int across_log) {
  __shared__ ACC warps[WARPS];
  int across = 1 << across_log, lanes = across < 32 ? across : 32;
  for (int flip = lanes / 2; flip > 0; flip /= 2)
    x = combine(x, __shfl_xor_sync(0xffffffffu, x, flip));
  if (across <= 32) return x;
  if (threadIdx.x % 32 == 0) warps[threadIdx.x / 32] = x;
  __syncthreads();
  int first = threadIdx.x / across * (across / 32);
  x = warps[first];
  for (int i = 1; i < across / 32; ++i) x = combine(x, warps[first + i]);
  return x;
}

template <int V, bool FINAL>
DEVICE void reduce_rows(const ELEMENT* source,
                        typename result<FINAL>::type* target,
                        const reduce_t& r) {
  uint32_t across = 1u << r.across_log;
  uint32_t output =
      blockIdx.x * (BLOCK >> r.across_log) + (threadIdx.x >> r.across_log);
  uint32_t begin = blockIdx.y * r.part;
  uint32_t lane = threadIdx.x & (across - 1);
  ACC total[V];
#pragma unroll
  for (int e = 0; e < V; ++e) total[e] = (ACC)IDENTITY;
  if (output < r.outputs) {
    int64_t place = 0;
    locate<1>(r.kept, output, &place);
    gather<ELEMENT, V, true>(r, source + place, begin + lane,
                             part_end(r, begin), across, total);
  }
#pragma unroll
  for (int e = 1; e < V; ++e) total[0] = combine(total[0], total[e]);
  ACC all = join_row(total[0], r.across_log);
  if (lane != 0 || output >= r.outputs) return;
  int64_t place = (int64_t)blockIdx.y * r.outputs + output;
  if (FINAL) {
    place = 0;
    locate<1>(r.targets, output, &place);
  }
  target[place] = result<FINAL>::of(all, r);
}

#define REDUCE_ROWS(name, V, FINAL)                                      \
  KERNEL(                                                                \
      name, extern "C" __global__ void __launch_bounds__(BLOCK)          \
                name(const ELEMENT* source, result<FINAL>::type* target, \
                     const reduce_t r) {                                 \
                  turn_t turn;                                           \
                  reduce_rows<V, FINAL>(source, target, r);              \
                })
REDUCE_ROWS(rows, VECTOR, true)
REDUCE_ROWS(rows_part, VECTOR, false)
REDUCE_ROWS(rows_half, (VECTOR > 2 ? VECTOR / 2 : 1), true)
REDUCE_ROWS(rows_half_part, (VECTOR > 2 ? VECTOR / 2 : 1), false)
REDUCE_ROWS(rows_quarter, (VECTOR > 4 ? VECTOR / 4 : 1), true)
REDUCE_ROWS(rows_quarter_part, (VECTOR > 4 ? VECTOR / 4 : 1), false)
REDUCE_ROWS(rows_single, 1, true)
REDUCE_ROWS(rows_single_part, 1, false)

// ---- Columns ---------------------------------------------------------------

// Combines the block's rows of threads into the first row.
template <int V>
DEVICE void join_columns(ACC* total, int across_log) {
  __shared__ ACC cells[V][BLOCK];
  int across = 1 << across_log;
#pragma unroll
  for (int e = 0; e < V; ++e) cells[e][threadIdx.x] = total[e];
  for (int half = BLOCK / 2; half >= across; half /= 2) {
    __syncthreads();
    if ((int)threadIdx.x >= half) continue;
#pragma unroll
    for (int e = 0; e < V; ++e) {
      total[e] = combine(total[e], cells[e][threadIdx.x + half]);
      cells[e][threadIdx.x] = total[e];
    }
  }
}

template <class E, int V, bool FIRST, bool FINAL>
DEVICE void reduce_columns(const E* source,
                           typename result<FINAL>::type* target,
                           const reduce_t& r) {
  typedef typename result<FINAL>::type out_t;
  uint32_t across = 1u << r.across_log;
  uint32_t outer = blockIdx.x / r.tiles, begin = blockIdx.y * r.part;
  uint32_t column =
      (blockIdx.x % r.tiles << r.across_log) + (threadIdx.x & (across - 1));
  bool inside = column < r.column_vectors;
  ACC total[V];
#pragma unroll
  for (int e = 0; e < V; ++e) total[e] = (ACC)IDENTITY;
  if (inside) {
    int64_t place = (int64_t)column * V;
    locate<1>(r.kept, outer, &place);
    gather<E, V, FIRST>(r, source + place,
                        begin + (threadIdx.x >> r.across_log),
                        part_end(r, begin), BLOCK >> r.across_log, total);
  }
  join_columns<V>(total, r.across_log);
  if (!inside || threadIdx.x >= across) return;
  uint32_t output = outer * r.columns + column * V;
  pack_t<out_t, V> pack;
#pragma unroll
  for (int e = 0; e < V; ++e) pack.v[e] = result<FINAL>::of(total[e], r);
  if (!FINAL || r.packed) {
    store_pack<out_t, V>(
        target + (FINAL ? 0 : (int64_t)blockIdx.y * r.outputs) + output, pack);
    return;
  }
#pragma unroll
  for (int e = 0; e < V; ++e) {
    int64_t place = 0;
    locate<1>(r.targets, output + e, &place);
    target[place] = pack.v[e];
  }
}

#define REDUCE_COLUMNS(name, E, V, FIRST, FINAL)                            \
  KERNEL(                                                                   \
      name,                                                                 \
      extern "C" __global__ void __launch_bounds__(BLOCK) name(             \
          const E* source, result<FINAL>::type* target, const reduce_t r) { \
        turn_t turn;                                                        \
        reduce_columns<E, V, FIRST, FINAL>(source, target, r);              \
      })
REDUCE_COLUMNS(columns, ELEMENT, COLUMNS, true, true)
REDUCE_COLUMNS(columns_part, ELEMENT, COLUMNS, true, false)
REDUCE_COLUMNS(columns_half, ELEMENT, COLUMNS / 2, true, true)
REDUCE_COLUMNS(columns_half_part, ELEMENT, COLUMNS / 2, true, false)
REDUCE_COLUMNS(columns_single, ELEMENT, 1, true, true)
REDUCE_COLUMNS(columns_single_part, ELEMENT, 1, true, false)
REDUCE_COLUMNS(finish, ACC, 1, false, true)
