// Chains and trees of element-wise functions in one pass over memory. The text
// that includes this file is generated for a group of layers
// (pointwise_text.c). It defines
//
//   VECTOR, UNROLL          elements of a vector, vectors of a thread
//   SINGLE                  elements of a thread in kernels without vectors
//   INPUTS, TABLES, OUTPUTS operands in memory
//   SCALARS                 inputs of one element, which come with the launch
//   WAYS, AXES              sets of strides, which operands share; axes
//                           outside the row
//   FOR_INPUTS(X), FOR_OUTPUTS(X)   X(number, type, way) for each; inputs that
//                           `apply` loads itself are not among them
//   ACROSS                  1: with the kernel `across`
//   apply                   computes a vector of each output from one of each
//                           input
//
// Threads take vectors along rows. Axes that are contiguous in all operands are
// merged into one. Along a row an operand is contiguous or broadcast. Broadcast
// constants are columns of a table, of which a thread reads one row.
#pragma once

#include "device/cuda/pointwise/functions.cuh"

enum { BLOCK = 256, ADDRESSES = INPUTS + TABLES + OUTPUTS };

// The host fills it (pointwise.c has the same structure).
struct space_t {
  uint32_t count;       // vectors
  uint32_t tail;        // elements after the last vector (kernel `flat`)
  uint32_t axes;        // number of axes outside the row
  divider_t row;        // vectors of a row
  uint32_t streams[2];  // bit w: way w is contiguous along the row
  uint32_t dense[2];    // way w has no gaps between rows
  void* data[ADDRESSES];
  int64_t stride[WAYS][AXES];  // elements, of the axes outside the row
  divider_t axis[AXES];        // extents, from the innermost
  uint32_t scalars[SCALARS + 1];
};

template <int V>
struct inputs_t {
#define X(k, T, W) pack_t<T, V> x##k;
  FOR_INPUTS(X)
#undef X
};
template <int V>
struct outputs_t {
#define X(k, T, W) pack_t<T, V> y##k;
  FOR_OUTPUTS(X)
#undef X
};

template <int V>
DEVICE void apply(const inputs_t<V>& in, const space_t& space,
                  const int64_t* place, outputs_t<V>& out);

DEVICE bool streams(const space_t& space, int way) {
  return space.streams[way / 32] >> (way % 32) & 1u;
}

DEVICE bool is_dense(const space_t& space, int way) {
  return space.dense[way / 32] >> (way % 32) & 1u;
}

// ---- For the generated text ------------------------------------------------

#define LANES _Pragma("unroll") for (int e = 0; e < V; ++e)

template <class L>
DEVICE L scalar_as(uint32_t bits);
template <>
__device__ __forceinline__ float scalar_as<float>(uint32_t bits) {
  return float_of_bits(bits);
}
template <>
__device__ __forceinline__ int32_t scalar_as<int32_t>(uint32_t bits) {
  return (int32_t)bits;
}
template <>
__device__ __forceinline__ bool scalar_as<bool>(uint32_t bits) {
  return bits != 0;
}

DEVICE const float* table(const space_t& space, int k, int64_t at) {
  return (const float*)space.data[INPUTS + k] + at;
}

// Loads memory that no kernel writes, so the compiler may load it early or
// once.
DEVICE pack_t<float, 4> load_fixed(const float* from) {
#ifdef RABBET_STAND_IN
  return load_pack<float, 4>(from);
#else
  pack_t<float, 4> pack;
  asm("ld.global.nc.v4.f32 {%0, %1, %2, %3}, [%4];"
      : "=f"(pack.v[0]), "=f"(pack.v[1]), "=f"(pack.v[2]), "=f"(pack.v[3])
      : "l"(from));
  return pack;
#endif
}

template <class T, int V>
DEVICE pack_t<T, V> fetch(const space_t& space, int k, int way, int64_t at) {
  const T* from = (const T*)space.data[k] + at;
  if (V == 1 || streams(space, way)) return load_pack<T, V>(from);
  pack_t<T, V> pack;
  T one = *from;
#pragma unroll
  for (int e = 0; e < V; ++e) pack.v[e] = one;
  return pack;
}

// ---- The walk --------------------------------------------------------------

// place[w]: the offset of vector i for the operands of way w.
template <int V, bool FLAT>
DEVICE void locate(const space_t& space, uint32_t i, int64_t* place) {
  uint32_t column = i, rest = 0;
  if (!FLAT) rest = divide(i, space.row, &column);
#pragma unroll
  for (int w = 0; w < WAYS; ++w)
    place[w] = streams(space, w) ? (int64_t)column * V : 0;
  for (uint32_t axis = 0; !FLAT && axis < space.axes; ++axis) {
    uint32_t at;
    rest = divide(rest, space.axis[axis], &at);
#pragma unroll
    for (int w = 0; w < WAYS; ++w)
      place[w] += (int64_t)at * space.stride[w][axis];
  }
}

template <int V>
DEVICE void gather(const space_t& space, const int64_t* place,
                   inputs_t<V>& in) {
#define X(k, T, W) in.x##k = fetch<T, V>(space, k, W, place[W]);
  FOR_INPUTS(X)
#undef X
}

template <int V>
DEVICE void scatter(const space_t& space, const int64_t* place,
                    const outputs_t<V>& out) {
#define X(k, T, W) \
  store_pack<T, V>((T*)space.data[INPUTS + TABLES + k] + place[W], out.y##k);
  FOR_OUTPUTS(X)
#undef X
}

// A thread loads all its vectors before it computes with the first, so that
// enough loads are in flight. Blocks may be smaller than BLOCK.
template <int V, bool FLAT, int U>
DEVICE void walk(const space_t& space) {
  uint32_t first = blockIdx.x * (blockDim.x * U) + threadIdx.x;
  inputs_t<V> in[U];
  int64_t place[U][WAYS];
#pragma unroll
  for (int u = 0; u < U; ++u) {
    uint32_t i = first + u * blockDim.x;
    if (i >= space.count) continue;
    locate<V, FLAT>(space, i, place[u]);
    gather<V>(space, place[u], in[u]);
  }
#pragma unroll
  for (int u = 0; u < U; ++u) {
    if (first + u * blockDim.x >= space.count) continue;
    outputs_t<V> out;
    apply<V>(in[u], space, place[u], out);
    scatter<V>(space, place[u], out);
  }
}

// ---- Kernels ---------------------------------------------------------------

// Groups with a table always have rows.
#if TABLES == 0
extern "C" __global__ void __launch_bounds__(BLOCK) flat(const space_t space) {
  turn_t turn;
  walk<VECTOR, true, UNROLL>(space);
  // A block has enough threads: at least the elements of a vector.
  if (blockIdx.x != 0 || threadIdx.x >= space.tail) return;
  inputs_t<1> in;
  outputs_t<1> out;
  int64_t place[WAYS];
  locate<1, true>(space, space.count * VECTOR + threadIdx.x, place);
  gather<1>(space, place, in);
  apply<1>(in, space, place, out);
  scatter<1>(space, place, out);
}
#endif

extern "C" __global__ void __launch_bounds__(BLOCK) rows(const space_t space) {
  turn_t turn;
  walk<VECTOR, false, UNROLL>(space);
}

// For addresses or rows that are not aligned to a vector.
extern "C" __global__ void __launch_bounds__(BLOCK)
    single(const space_t space) {
  turn_t turn;
  walk<1, false, SINGLE>(space);
}

// Rows that are no whole vectors: a vector of the outputs may go on in the next
// row. Dense inputs are loaded as vectors, others element by element.
// space.row counts elements here, at least those of a vector.
#if ACROSS
template <class T, int V>
DEVICE pack_t<T, V> fetch_across(const space_t& space, int k, int way,
                                 uint32_t first, uint32_t left, int64_t here,
                                 int64_t next) {
  const T* from = (const T*)space.data[k];
  if (is_dense(space, way)) return load_pack<T, V>(from + first);
  pack_t<T, V> pack;
  int32_t step = streams(space, way);
#pragma unroll
  for (uint32_t e = 0; e < V; ++e)
    pack.v[e] = from[e < left ? here + (int32_t)e * step
                              : next + (int32_t)(e - left) * step];
  return pack;
}

extern "C" __global__ void __launch_bounds__(BLOCK)
    across(const space_t space) {
  turn_t turn;
  enum { V = VECTOR };
  uint32_t i = blockIdx.x * blockDim.x + threadIdx.x, column;
  int64_t here[WAYS], next[WAYS];
  if (i < space.count) {
    uint32_t first = i * V;
    uint32_t row = divide(first, space.row, &column);
    uint32_t left = (row + 1) * space.row.divisor - first;
    locate<1, false>(space, first, here);
    if (left < V) locate<1, false>(space, first + left, next);
    inputs_t<V> in;
    outputs_t<V> out;
#define X(k, T, W) \
  in.x##k = fetch_across<T, V>(space, k, W, first, left, here[W], next[W]);
    FOR_INPUTS(X)
#undef X
    apply<V>(in, space, here, out);
#pragma unroll
    for (int w = 0; w < WAYS; ++w) here[w] = first;
    scatter<V>(space, here, out);
  }
  if (blockIdx.x != 0 || threadIdx.x >= space.tail) return;
  inputs_t<1> in;
  outputs_t<1> out;
  locate<1, false>(space, space.count * V + threadIdx.x, here);
  gather<1>(space, here, in);
  apply<1>(in, space, here, out);
  scatter<1>(space, here, out);
}
#endif
