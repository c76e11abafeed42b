// Resizing (-DELEMENT, -DTAPS: 1 for nearest, of any element type; 2 or 4 for
// interpolation). Bound by the bytes of the larger of input and output;
// neighbours find the input that they share in the caches.
#include "device/cuda/programs/number.cuh"

#include "device/cuda/image/resize_params.h"

typedef ELEMENT T;

struct tables_t {
  const int32_t* positions;
  const float* weights;
};

#if TAPS == 1
typedef T sum_t;
DEVICE void add_element(sum_t& sum, T x, float weight) { sum = x; }
DEVICE T finish(const sum_t& sum) { return sum; }
DEVICE sum_t nothing() { return T(); }
#else
typedef float sum_t;
DEVICE void add_element(sum_t& sum, T x, float weight) {
  sum += to_float(x) * weight;
}
DEVICE T finish(const sum_t& sum) { return from_float<T>(sum); }
DEVICE sum_t nothing() { return 0.0f; }
#endif

// Adds V neighbours to the sums for each combination of taps of the axes from A
// on; x: their place so far.
template <int RANK, int V, int A>
struct adder {
  static __device__ __forceinline__ void add(const resize_t& p,
                                             const tables_t& tables,
                                             const int64_t* entries, const T* x,
                                             float weight, sum_t* sums) {
    const resize_axis_t& axis = p.axes[A];
#pragma unroll
    for (int tap = 0; tap < TAPS; ++tap) {
      if (tap > 0 && tap >= axis.taps) break;
      int64_t entry = entries[A] + tap;
      adder<RANK, V, A + 1>::add(
          p, tables, entries, x + tables.positions[entry] * axis.stride,
          TAPS == 1 ? weight : weight * tables.weights[entry], sums);
    }
  }
};
template <int RANK, int V>
struct adder<RANK, V, RANK> {
  static __device__ __forceinline__ void add(const resize_t& p,
                                             const tables_t& tables,
                                             const int64_t* entries, const T* x,
                                             float weight, sum_t* sums) {
    pack_t<T, V> pack = load_pack<T, V>(x);
#pragma unroll
    for (int v = 0; v < V; ++v) add_element(sums[v], pack.v[v], weight);
  }
};

// For any number of axes: a loop counts through all combinations of taps.
template <int V>
DEVICE void add_all(const resize_t& p, const tables_t& tables,
                    const int64_t* entries, const T* x, sum_t* sums) {
  int64_t total = 1;
  for (int i = 0; i < p.rank; ++i) total *= p.axes[i].taps;
  for (int64_t k = 0; k < total; ++k) {
    const T* from = x;
    float weight = 1.0f;
    int64_t rest = k;
    for (int i = 0; i < p.rank; ++i) {
      int64_t entry = entries[i] + rest % p.axes[i].taps;
      rest /= p.axes[i].taps;
      from += tables.positions[entry] * p.axes[i].stride;
      weight *= tables.weights[entry];
    }
    pack_t<T, V> pack = load_pack<T, V>(from);
#pragma unroll
    for (int v = 0; v < V; ++v) add_element(sums[v], pack.v[v], weight);
  }
}

template <int RANK, int V>
DEVICE void make_elements(const resize_t& p, const tables_t& tables,
                          const int64_t* entries, const T* x, T* made) {
  sum_t sums[V];
  bool is_outside = false;
  int rank = RANK > 0 ? RANK : p.rank;
#pragma unroll
  for (int i = 0; i < rank; ++i) {
    float first = tables.weights[entries[i]];
    is_outside = is_outside || first != first;
  }
#pragma unroll
  for (int v = 0; v < V; ++v) sums[v] = nothing();
  if (!is_outside) {
    if (RANK > 0)
      adder<RANK, V, 0>::add(p, tables, entries, x, 1.0f, sums);
    else
      add_all<V>(p, tables, entries, x, sums);
  }
#pragma unroll
  for (int v = 0; v < V; ++v)
    made[v] = is_outside ? from_float<T>(p.outside) : finish(sums[v]);
}

// A thread computes V elements. INSIDE: contiguous ones of the axes inside the
// last resized one. Otherwise that axis is the innermost one, and the elements
// are neighbours along it.
template <int RANK, int V, bool INSIDE>
DEVICE void resize_piece(const T* x, const tables_t& tables, T* y,
                         const resize_t& p) {
  int64_t item = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
  if (item >= p.items) return;
  int64_t rest = divide(item, p.pieces);
  int64_t piece = (item - rest * p.pieces.divisor) * V;
  int64_t entries[RANK > 0 ? RANK : RESIZE_AXES];
  int rank = RANK > 0 ? RANK : p.rank;
#pragma unroll
  for (int i = rank - 1; i >= 0; --i) {
    const resize_axis_t& axis = p.axes[i];
    int64_t at = piece;
    if (INSIDE || i + 1 < rank) {
      int64_t next = divide(rest, axis.out);
      at = rest - next * axis.out.divisor;
      rest = next;
    }
    entries[i] = axis.table + at * axis.taps;
  }
  x += rest * p.in_plane;
  pack_t<T, V> pack;
  if (INSIDE) {
    make_elements<RANK, V>(p, tables, entries, x + piece, pack.v);
  } else {
    int last = rank - 1;
#pragma unroll
    for (int v = 0; v < V; ++v) {
      make_elements<RANK, 1>(p, tables, entries, x, &pack.v[v]);
      entries[last] += p.axes[last].taps;
    }
  }
  store_pack(y + item * V, pack);
}

#define RESIZE(name, rank, vector, inside)                                   \
  extern "C" __global__ void __launch_bounds__(256)                          \
      name(const T* x, const int32_t* positions, const float* weights, T* y, \
           const __grid_constant__ resize_t p) {                             \
    turn_t turn;                                                             \
    tables_t tables = {positions, weights};                                  \
    resize_piece<rank, vector, inside>(x, tables, y, p);                     \
  }

enum { WIDE = 16 / sizeof(T) };

RESIZE(resize_line, 1, 1, true)
RESIZE(resize_line_inside, 1, WIDE, true)
RESIZE(resize_line_along, 1, WIDE, false)
RESIZE(resize_plane, 2, 1, true)
RESIZE(resize_plane_inside, 2, WIDE, true)
RESIZE(resize_plane_along, 2, WIDE, false)
RESIZE(resize_space, 3, 1, true)
RESIZE(resize_space_inside, 3, WIDE, true)
RESIZE(resize_any, 0, 1, true)
