// Chains and trees of element-wise functions in one pass over memory. The text
// that includes this is made for a group of layers (pointwise_text.c):
//
//   VECTOR, UNROLL          elements of a vector, vectors of a thread
//   INPUTS, OUTPUTS         operands in memory; SCALARS: inputs of one element
//                           whose value comes with the launch
//   FOR_INPUTS(X), FOR_OUTPUTS(X)   X(number, type) for each
//   apply                   a vector of each input to one of each output
//
// The walk is over vectors along rows: axes that lie behind one another are one,
// and an operand streams along the row or stands still.
#pragma once

#include "functions.cuh"

enum { BLOCK = 256, AXES = 8, OPERANDS = INPUTS + OUTPUTS };

struct operand_t {
  void* data;
  int64_t stride[AXES];  // elements, of the axes outside the row
};

// Filled by the host (pointwise.c), which lays it out alike.
struct space_t {
  uint32_t count;  // vectors
  uint32_t tail;   // elements behind the last vector (flat)
  uint32_t axes;   // outside the row
  divider_t row;   // vectors of one
  divider_t axis[AXES];  // extents, from the innermost
  uint32_t streams[2];   // bit k: operand k streams along the row
  operand_t operands[OPERANDS];
  double scalars[SCALARS + 1];
};

template <int V>
struct inputs_t {
#define X(k, T) pack_t<T, V> x##k;
  FOR_INPUTS(X)
#undef X
};
template <int V>
struct outputs_t {
#define X(k, T) pack_t<T, V> y##k;
  FOR_OUTPUTS(X)
#undef X
};

template <int V>
DEVICE void apply(const inputs_t<V>& in, const space_t& space,
                  outputs_t<V>& out);

DEVICE bool streams(const space_t& space, int k) {
  return space.streams[k / 32] >> (k % 32) & 1u;
}

template <class T, int V>
DEVICE pack_t<T, V> fetch(const space_t& space, int k, int64_t at) {
  const T* from = (const T*)space.operands[k].data + at;
  if (V == 1 || streams(space, k)) return load_pack<T, V>(from);
  pack_t<T, V> pack;
  T one = *from;
#pragma unroll
  for (int e = 0; e < V; ++e) pack.v[e] = one;
  return pack;
}

// Where vector number i lies in each operand.
template <int V, bool FLAT>
DEVICE void locate(const space_t& space, uint32_t i, int64_t* place) {
  uint32_t column = i, rest = 0;
  if (!FLAT) rest = divide(i, space.row, &column);
#pragma unroll
  for (int k = 0; k < OPERANDS; ++k)
    place[k] = streams(space, k) ? (int64_t)column * V : 0;
  for (uint32_t axis = 0; !FLAT && axis < space.axes; ++axis) {
    uint32_t at;
    rest = divide(rest, space.axis[axis], &at);
#pragma unroll
    for (int k = 0; k < OPERANDS; ++k)
      place[k] += (int64_t)at * space.operands[k].stride[axis];
  }
}

template <int V>
DEVICE void gather(const space_t& space, const int64_t* place,
                   inputs_t<V>& in) {
#define X(k, T) in.x##k = fetch<T, V>(space, k, place[k]);
  FOR_INPUTS(X)
#undef X
}

template <int V>
DEVICE void scatter(const space_t& space, const int64_t* place,
                    const outputs_t<V>& out) {
#define X(k, T)                                                           \
  store_pack<T, V>((T*)space.operands[INPUTS + k].data + place[INPUTS + k], \
                   out.y##k);
  FOR_OUTPUTS(X)
#undef X
}

// All vectors of a thread are loaded before the first is computed with, so that
// enough bytes are on their way.
template <int V, bool FLAT, int U>
DEVICE void walk(const space_t& space) {
  uint32_t first = blockIdx.x * (BLOCK * U) + threadIdx.x;
  inputs_t<V> in[U];
  int64_t place[U][OPERANDS];
#pragma unroll
  for (int u = 0; u < U; ++u) {
    uint32_t i = first + u * BLOCK;
    if (i >= space.count) continue;
    locate<V, FLAT>(space, i, place[u]);
    gather<V>(space, place[u], in[u]);
  }
#pragma unroll
  for (int u = 0; u < U; ++u) {
    if (first + u * BLOCK >= space.count) continue;
    outputs_t<V> out;
    apply<V>(in[u], space, out);
    scatter<V>(space, place[u], out);
  }
}

extern "C" __global__ void __launch_bounds__(BLOCK) flat(const space_t space) {
  walk<VECTOR, true, UNROLL>(space);
  if (blockIdx.x != 0 || threadIdx.x >= space.tail) return;
  inputs_t<1> in;
  outputs_t<1> out;
  int64_t place[OPERANDS];
  locate<1, true>(space, space.count * VECTOR + threadIdx.x, place);
  gather<1>(space, place, in);
  apply<1>(in, space, out);
  scatter<1>(space, place, out);
}

extern "C" __global__ void __launch_bounds__(BLOCK) rows(const space_t space) {
  walk<VECTOR, false, UNROLL>(space);
}

// Addresses or rows that no vector fits.
extern "C" __global__ void __launch_bounds__(BLOCK)
    single(const space_t space) {
  walk<1, false, 4>(space);
}
