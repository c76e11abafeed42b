// Pairs of elements that are rotated. The text that includes this file defines
//
//   ELEMENT, TABLE  types of input and output, and of cosines and sines
//   INTERLEAVED     1: pairs are neighbours; 0: half of the size apart
//
// Parts of rows go by vectors, or by single elements where addresses or
// extents are no multiples of them.
#pragma once

#include "device/cuda/programs/number.cuh"

#include "device/cuda/pointwise/rotation_params.h"

// N contiguous elements; single loads if the address is not aligned.
template <class E, int N, bool PACKED>
DEVICE void read(const E* from, float* out) {
  if (PACKED) {
    pack_t<E, N> pack = load_pack<E, N>(from);
#pragma unroll
    for (int e = 0; e < N; ++e) out[e] = to_float(pack.v[e]);
    return;
  }
#pragma unroll
  for (int e = 0; e < N; ++e) out[e] = to_float(from[e]);
}

template <int N, bool PACKED>
DEVICE void write(ELEMENT* to, const float* x) {
  pack_t<ELEMENT, N> pack;
#pragma unroll
  for (int e = 0; e < N; ++e) pack.v[e] = from_float<ELEMENT>(x[e]);
  if (PACKED) {
    store_pack<ELEMENT, N>(to, pack);
    return;
  }
#pragma unroll
  for (int e = 0; e < N; ++e) to[e] = pack.v[e];
}

#if INTERLEAVED
// N elements of a table, beginning at element `at` of the row.
template <int N, bool PACKED>
DEVICE void read_table(const TABLE* row, uint32_t at, bool is_whole,
                       float* out) {
  if (is_whole) {
    read<TABLE, N, PACKED>(row + at, out);
    return;
  }
  enum { PAIRS = N / 2 };
  float pairs[PAIRS];
  read<TABLE, PAIRS, PACKED>(row + at / 2, pairs);
#pragma unroll
  for (int e = 0; e < N; ++e) out[e] = pairs[e / 2];
}

// Elements [at, at + N) of a row.
template <int N, bool PACKED>
DEVICE void rotate_pairs(const ELEMENT* x, const TABLE* cosines,
                         const TABLE* sines, ELEMENT* y, uint32_t at,
                         const turns_t& r) {
  float part[N], cosine[N], sine[N], out[N];
  read<ELEMENT, N, PACKED>(x + at, part);
  read_table<N, PACKED>(cosines, at, r.is_whole, cosine);
  read_table<N, PACKED>(sines, at, r.is_whole, sine);
#pragma unroll
  for (int e = 0; e < N; e += 2) {
    out[e] = part[e] * cosine[e] - part[e + 1] * sine[e];
    out[e + 1] = part[e + 1] * cosine[e + 1] + part[e] * sine[e + 1];
  }
  write<N, PACKED>(y + at, out);
}

#else
// Elements [at, at + N) of each half of a row.
template <int N, bool PACKED>
DEVICE void rotate_pairs(const ELEMENT* x, const TABLE* cosines,
                         const TABLE* sines, ELEMENT* y, uint32_t at,
                         const turns_t& r) {
  uint32_t half = r.size / 2;
  float first[N], second[N], cosine[N], sine[N], out[N], other[N];
  read<ELEMENT, N, PACKED>(x + at, first);
  read<ELEMENT, N, PACKED>(x + half + at, second);
  read<TABLE, N, PACKED>(cosines + at, cosine);
  read<TABLE, N, PACKED>(sines + at, sine);
#pragma unroll
  for (int e = 0; e < N; ++e)
    out[e] = first[e] * cosine[e] - second[e] * sine[e];
  if (r.is_whole) {
    read<TABLE, N, PACKED>(cosines + half + at, cosine);
    read<TABLE, N, PACKED>(sines + half + at, sine);
  }
#pragma unroll
  for (int e = 0; e < N; ++e)
    other[e] = second[e] * cosine[e] + first[e] * sine[e];
  write<N, PACKED>(y + at, out);
  write<N, PACKED>(y + half + at, other);
}
#endif
