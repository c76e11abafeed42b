// Normalization of groups of channels, channels last, in one pass over memory.
// The text that includes this file is generated with the layers that follow
// (group_normalization.c). It defines
//
//   ELEMENT  type of all tensors
//   CENTRED  0: RMS normalization, whose mean is taken as 0
//
// and the macros of layers_params.h.
//
// A cluster of blocks has some groups of an image: each block keeps a part of
// the positions in shared memory, and gets the moments of the other parts from
// their blocks. Bound by the bytes of input and output, for small images by a
// launch and the wait for memory.
#pragma once

#include "device/cuda/products/cluster.cuh"
#include "device/cuda/reduction/group_normalization_params.h"
#include "device/cuda/reduction/rows.cuh"

enum { VECTOR = 16 / sizeof(ELEMENT), WARPS = GROUPS_THREADS / 32 };

// squares: sum of the squared distances from the mean. They are joined by the
// method of Chan, Golub and LeVeque.
struct moments_t {
  float count, mean, squares;
};
DEVICE moments_t join(const moments_t& a, const moments_t& b) {
  float count = a.count + b.count, between = b.mean - a.mean;
  float share = count > 0 ? b.count / count : 0;
  moments_t m = {count, a.mean + between * share,
                 a.squares + b.squares + between * between * a.count * share};
  return m;
}

// The arrays in shared memory behind the kept positions, in order.
struct shared_sums_t {
  float* sums;         // [row][channel], of distances from the first position
  float* squares;      // likewise
  moments_t* columns;  // [channel]
  moments_t* parts;    // [block][group]
  float *means, *factors;  // [group]
};

DEVICE shared_sums_t find_sums(const group_normalization_t& p, char* memory) {
  int32_t groups = p.tile / p.each;
  shared_sums_t s;
  s.sums = (float*)(memory + p.scratch);
  s.squares = s.sums + p.rows * p.tile;
  s.columns = (moments_t*)(s.squares + p.rows * p.tile);
  s.parts = s.columns + p.tile;
  s.means = (float*)(s.parts + GROUPS_BLOCKS * groups);
  s.factors = s.means + groups;
  return s;
}

// The block's part of an image, and the thread's channels and first position.
struct part_t {
  int32_t rank, image, channel;  // channel: the cluster's first
  int32_t begin, count;          // positions
  int32_t lane, row;
};

DEVICE part_t find_part(const group_normalization_t& p) {
  int32_t cluster = (int32_t)(blockIdx.x / GROUPS_BLOCKS);
  int32_t lanes = p.tile / VECTOR;
  part_t t;
  t.rank = (int32_t)(blockIdx.x % GROUPS_BLOCKS);
  t.image = cluster / p.tiles;
  t.channel = cluster % p.tiles * p.tile;
  t.begin = (int32_t)((int64_t)p.positions * t.rank / GROUPS_BLOCKS);
  t.count =
      (int32_t)((int64_t)p.positions * (t.rank + 1) / GROUPS_BLOCKS) - t.begin;
  t.row = (int32_t)threadIdx.x / lanes;
  t.lane = (int32_t)threadIdx.x % lanes * VECTOR;
  return t;
}

typedef pack_t<ELEMENT, VECTOR> vector_t;

// Copies the part into shared memory, and adds up the distances of each channel
// from its first number, so that the variance loses no digits if the mean is
// far from 0.
DEVICE void read_part(const group_normalization_t& p, const part_t& t,
                      char* memory, const shared_sums_t& s) {
  const ELEMENT* x = (const ELEMENT*)p.x +
                     ((int64_t)t.image * p.positions + t.begin) * p.channels +
                     t.channel + t.lane;
  vector_t* kept = (vector_t*)memory;
  float first[VECTOR], sums[VECTOR] = {}, squares[VECTOR] = {};
  vector_t v = {};
  if (CENTRED && t.count > 0) v = load_pack<ELEMENT, VECTOR>(x);
#pragma unroll
  for (int e = 0; e < VECTOR; ++e) first[e] = load(v.v[e]);
#pragma unroll 4
  for (int32_t at = t.row; at < t.count; at += p.rows) {
    v = load_pack<ELEMENT, VECTOR>(x + (int64_t)at * p.channels);
    kept[(at * p.tile + t.lane) / VECTOR] = v;
#pragma unroll
    for (int e = 0; e < VECTOR; ++e) {
      float distance = load(v.v[e]) - first[e];
      sums[e] += distance;
      squares[e] += distance * distance;
    }
  }
#pragma unroll
  for (int e = 0; e < VECTOR; ++e) {
    s.sums[t.row * p.tile + t.lane + e] = sums[e];
    s.squares[t.row * p.tile + t.lane + e] = squares[e];
    if (t.row == 0) s.columns[t.lane + e].mean = first[e];
  }
}

// The moments of each channel in the part.
DEVICE void find_columns(const group_normalization_t& p, const part_t& t,
                         const shared_sums_t& s) {
  int32_t parts = row_parts(p.rows, p.tile, GROUPS_THREADS);
  add_rows(s.sums, p.rows, p.tile, parts, GROUPS_THREADS);
  add_rows(s.squares, p.rows, p.tile, parts, GROUPS_THREADS);
  __syncthreads();
  for (int32_t c = (int32_t)threadIdx.x; c < p.tile; c += GROUPS_THREADS) {
    float sum = sum_parts(s.sums, c, p.tile, parts);
    float squares = sum_parts(s.squares, c, p.tile, parts);
    float count = (float)t.count, rest = t.count > 0 ? sum / count : 0;
    if (CENTRED) squares -= sum * rest;
    moments_t m = {count, CENTRED ? s.columns[c].mean + rest : 0,
                   squares > 0 ? squares : 0};
    s.columns[c] = m;
  }
}

// The moments of each group in the part, to all blocks. A warp has a group.
DEVICE void send_groups(const group_normalization_t& p, const part_t& t,
                        const shared_sums_t& s) {
  int32_t lane = (int32_t)threadIdx.x % 32, groups = p.tile / p.each;
  for (int32_t g = (int32_t)threadIdx.x / 32; g < groups; g += WARPS) {
    moments_t m = {0, 0, 0};
    for (int32_t c = lane; c < p.each; c += 32)
      m = join(m, s.columns[g * p.each + c]);
#pragma unroll
    for (int flip = 1; flip < 32; flip *= 2) {
      // Both lanes join in one order, so that they get one result.
      moments_t other = {__shfl_xor_sync(0xffffffffu, m.count, flip),
                         __shfl_xor_sync(0xffffffffu, m.mean, flip),
                         __shfl_xor_sync(0xffffffffu, m.squares, flip)};
      m = lane & flip ? join(other, m) : join(m, other);
    }
    if (lane >= GROUPS_BLOCKS) continue;
    remote_t to =
        remote_address((float*)&s.parts[t.rank * groups + g], (uint32_t)lane);
    store_remote(to, 0, m.count);
    store_remote(to, 1, m.mean);
    store_remote(to, 2, m.squares);
  }
}

DEVICE void join_parts(const group_normalization_t& p, const shared_sums_t& s) {
  int32_t groups = p.tile / p.each;
  for (int32_t g = (int32_t)threadIdx.x; g < groups; g += GROUPS_THREADS) {
    moments_t m = s.parts[g];
#pragma unroll
    for (int block = 1; block < GROUPS_BLOCKS; ++block)
      m = join(m, s.parts[block * groups + g]);
    s.means[g] = m.mean;
    s.factors[g] = 1.0f / sqrtf(m.squares * p.share + p.epsilon);
  }
}

DEVICE float number_of(const void* from, int32_t at, float absent) {
  return from ? load(((const ELEMENT*)from)[at]) : absent;
}

DEVICE void write_part(const group_normalization_t& p, const part_t& t,
                       const char* memory, const shared_sums_t& s) {
  const vector_t* kept = (const vector_t*)memory;
  float mean[VECTOR], factor[VECTOR], bias[VECTOR];
#pragma unroll
  for (int e = 0; e < VECTOR; ++e) {
    int32_t group = (t.lane + e) / p.each, c = t.channel + t.lane + e;
    mean[e] = s.means[group];
    factor[e] = s.factors[group] * number_of(p.scale, c * p.scale_step, 1);
    bias[e] = number_of(p.bias, c * p.bias_step, 0);
  }
  for (int32_t at = t.row; at < t.count; at += p.rows) {
    int64_t pixel = (int64_t)t.image * p.positions + t.begin + at;
    vector_t v = kept[(at * p.tile + t.lane) / VECTOR];
#pragma unroll
    for (int e = 0; e < VECTOR; ++e)
      v.v[e] = finished((load(v.v[e]) - mean[e]) * factor[e] + bias[e],
                        p.layers, 0, pixel, t.channel + t.lane + e);
    store_pack<ELEMENT, VECTOR>(
        (ELEMENT*)p.y + pixel * p.channels + t.channel + t.lane, v);
  }
}

extern "C" __global__ void __launch_bounds__(GROUPS_THREADS)
    normalize_groups(const __grid_constant__ group_normalization_t p) {
  turn_t turn;
  extern __shared__ __align__(16) char memory[];
  part_t part = find_part(p);
  shared_sums_t sums = find_sums(p, memory);
  bool works = part.row < p.rows;
  cluster_arrive();
  if (works) read_part(p, part, memory, sums);
  __syncthreads();
  find_columns(p, part, sums);
  __syncthreads();
  cluster_wait();  // until all blocks have started
  send_groups(p, part, sums);
  cluster_arrive();
  cluster_wait();
  join_parts(p, sums);
  __syncthreads();
  if (works) write_part(p, part, memory, sums);
}
