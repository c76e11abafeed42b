// The gate of squeeze and excitation (arXiv 1709.01507): the mean of each
// channel of an image, and one or two products of the means, each with bias and
// a chain of element-wise layers. The text that includes this file is generated
// with these chains (squeeze.c). It defines
//
//   ELEMENT     type of all tensors
//   HWC         1: channels last; 0: LINEAR
//   PRODUCTS    1 or 2
//   OPERANDS_1  tensors that the chain of the second product reads
//   finish_1    that chain, as `finish`
//
// and, for the first product, the macros of layers_params.h.
//
// A cluster of blocks has an image: alone, each of these layers is so small
// that a launch and a wait for memory are all of its time. Each block adds up a
// part of the image and computes a part of each product's outputs; they go to
// all blocks' shared memory. Bound by the bytes of large images, else by the
// waits.
#pragma once

#include "device/cuda/image/squeeze_params.h"
#include "device/cuda/products/cluster.cuh"
#include "device/cuda/reduction/rows.cuh"

enum {
  VECTOR = 16 / sizeof(ELEMENT),
  WARPS = SQUEEZE_THREADS / 32,
  FLIGHT = 4,  // vectors of a thread
};

DEVICE float finish_1(float x, const layers_t& p, const float* o);

// Where the part of `count` things that block `rank` has begins.
DEVICE int32_t part_at(int32_t count, int32_t rank) {
  return (int32_t)((int64_t)count * rank / SQUEEZE_BLOCKS);
}

// Stores a number at the same place in all blocks; the `lanes` threads that
// have it take turns.
DEVICE void store_everywhere(float* place, float x, int32_t lane,
                             int32_t lanes) {
  for (int32_t block = lane; block < SQUEEZE_BLOCKS; block += lanes)
    store_remote(remote_address(place, (uint32_t)block), 0, x);
}

// Moves the block's weights to the L2 cache.
DEVICE void prefetch_weights(const squeeze_t& p, int32_t rank) {
#ifndef RABBET_STAND_IN
  enum { LINE = 128 };
#pragma unroll
  for (int i = 0; i < PRODUCTS; ++i) {
    int64_t width = p.channels[i];
    const char* from = (const char*)((const ELEMENT*)p.products[i].w +
                                     part_at(p.channels[i + 1], rank) * width);
    const char* end =
        (const char*)((const ELEMENT*)p.products[i].w +
                      part_at(p.channels[i + 1], rank + 1) * width);
    for (from += threadIdx.x * LINE; from < end; from += SQUEEZE_THREADS * LINE)
      asm volatile("prefetch.global.L2 [%0];" ::"l"(from));
  }
#endif
}

// ---- Means -----------------------------------------------------------------

DEVICE void add_vector(float* sums, const pack_t<ELEMENT, VECTOR>& x) {
#pragma unroll
  for (int e = 0; e < VECTOR; ++e) sums[e] += load(x.v[e]);
}

#if HWC
// A block adds up some positions of all channels: a thread has a vector of
// channels, and every `shares`-th position.
DEVICE void add_positions(const squeeze_t& p, int32_t image, int32_t rank,
                          float* scratch) {
  int32_t channels = p.channels[0], vectors = channels / VECTOR;
  int32_t share = (int32_t)threadIdx.x / vectors;
  int32_t lane = (int32_t)threadIdx.x % vectors;
  if (share >= p.shares) return;
  int32_t at = part_at(p.positions, rank) + share;
  int32_t end = part_at(p.positions, rank + 1);
  const ELEMENT* x = (const ELEMENT*)p.x +
                     (int64_t)image * p.positions * channels + lane * VECTOR;
  float sums[VECTOR] = {};
  for (; at + (FLIGHT - 1) * p.shares < end; at += FLIGHT * p.shares) {
    pack_t<ELEMENT, VECTOR> v[FLIGHT];
#pragma unroll
    for (int i = 0; i < FLIGHT; ++i)
      v[i] = load_pack<ELEMENT, VECTOR>(x + (int64_t)(at + i * p.shares) *
                                                channels);
#pragma unroll
    for (int i = 0; i < FLIGHT; ++i) add_vector(sums, v[i]);
  }
  for (; at < end; at += p.shares)
    add_vector(sums, load_pack<ELEMENT, VECTOR>(x + (int64_t)at * channels));
#pragma unroll
  for (int e = 0; e < VECTOR; ++e)
    scratch[share * channels + lane * VECTOR + e] = sums[e];
}

// Every block gets all blocks' sums and adds them up.
DEVICE void pool(const squeeze_t& p, int32_t image, int32_t rank,
                 float* memory) {
  int32_t channels = p.channels[0];
  float* scratch = memory + p.scratch;
  add_positions(p, image, rank, scratch);
  __syncthreads();
  int32_t parts = row_parts(p.shares, channels, SQUEEZE_THREADS);
  add_rows(scratch, p.shares, channels, parts, SQUEEZE_THREADS);
  __syncthreads();
  cluster_wait();  // until all blocks have started
  for (int32_t c = (int32_t)threadIdx.x; c < channels; c += SQUEEZE_THREADS)
    store_everywhere(memory + rank * channels + c,
                     sum_parts(scratch, c, channels, parts), 0, 1);
  cluster_arrive();
  cluster_wait();
  for (int32_t c = (int32_t)threadIdx.x; c < channels; c += SQUEEZE_THREADS) {
    float sum = 0;
#pragma unroll
    for (int block = 0; block < SQUEEZE_BLOCKS; ++block)
      sum += memory[block * channels + c];
    memory[p.pooled + c] = sum * p.scale;
  }
  __syncthreads();
}
#else
// The sum of a run of a channel's elements, of which the warp's lanes take
// vectors in turn if all runs are whole vectors.
DEVICE float add_run(const ELEMENT* x, int32_t count, bool whole) {
  int32_t lane = (int32_t)threadIdx.x % 32;
  float sums[VECTOR] = {};
  if (whole) {
    count /= VECTOR;
    for (; lane + 32 * (FLIGHT - 1) < count; lane += 32 * FLIGHT) {
      pack_t<ELEMENT, VECTOR> v[FLIGHT];
#pragma unroll
      for (int i = 0; i < FLIGHT; ++i)
        v[i] = load_pack<ELEMENT, VECTOR>(x + (lane + 32 * i) * VECTOR);
#pragma unroll
      for (int i = 0; i < FLIGHT; ++i) add_vector(sums, v[i]);
    }
    for (; lane < count; lane += 32)
      add_vector(sums, load_pack<ELEMENT, VECTOR>(x + lane * VECTOR));
  } else {
#pragma unroll 4
    for (; lane < count; lane += 32) sums[0] += load(x[lane]);
  }
  float sum = 0;
#pragma unroll
  for (int e = 0; e < VECTOR; ++e) sum += sums[e];
#pragma unroll
  for (int step = 16; step > 0; step /= 2)
    sum += __shfl_xor_sync(0xffffffffu, sum, step);
  return sum;
}

// A block adds up some channels; a channel has `shares` warps.
DEVICE void pool(const squeeze_t& p, int32_t image, int32_t rank,
                 float* memory) {
  float* scratch = memory + p.scratch;
  bool whole = p.positions % VECTOR == 0;
  int32_t unit = whole ? VECTOR : 1, units = p.positions / unit;
  int32_t first = part_at(p.channels[0], rank);
  int32_t own = part_at(p.channels[0], rank + 1) - first;
  const ELEMENT* x = (const ELEMENT*)p.x +
                     ((int64_t)image * p.channels[0] + first) * p.positions;
  for (int32_t i = (int32_t)threadIdx.x / 32; i < own * p.shares; i += WARPS) {
    int32_t share = i % p.shares;
    int32_t begin = (int32_t)((int64_t)units * share / p.shares) * unit;
    int32_t end = (int32_t)((int64_t)units * (share + 1) / p.shares) * unit;
    float sum = add_run(x + (int64_t)(i / p.shares) * p.positions + begin,
                        end - begin, whole);
    if (threadIdx.x % 32 == 0) scratch[i] = sum;
  }
  __syncthreads();
  cluster_wait();  // until all blocks have started
  for (int32_t c = (int32_t)threadIdx.x; c < own; c += SQUEEZE_THREADS) {
    float sum = 0;
    for (int32_t i = 0; i < p.shares; ++i) sum += scratch[c * p.shares + i];
    store_everywhere(memory + p.pooled + first + c, sum * p.scale, 0, 1);
  }
  cluster_arrive();
  cluster_wait();
}
#endif

// ---- Products --------------------------------------------------------------

// The products of a row of weights that a thread of several adds up.
template <int WIDTH>
DEVICE float multiply_row(const ELEMENT* w, const float* x, int32_t count,
                          int32_t lane, int32_t lanes) {
  float sum = 0;
#pragma unroll 4
  for (int32_t k = lane * WIDTH; k < count; k += lanes * WIDTH) {
    pack_t<ELEMENT, WIDTH> v = load_pack<ELEMENT, WIDTH>(w + k);
#pragma unroll
    for (int e = 0; e < WIDTH; ++e) sum += load(v.v[e]) * x[k + e];
  }
  return sum;
}

template <int PRODUCT>
DEVICE float finish_output(const squeeze_t& p, float x, int32_t image,
                           int32_t column) {
  enum { COUNT = PRODUCT == 0 ? OPERANDS : OPERANDS_1 };
  const squeeze_product_t& product = p.products[PRODUCT];
  float o[COUNT + 1];
#pragma unroll
  for (int i = 0; i < COUNT; ++i)
    o[i] = load(*operand_at(product.layers, i, 0, image, column));
  if (product.bias) x += load(((const ELEMENT*)product.bias)[column]);
  return PRODUCT == 0 ? finish(x, product.layers, o)
                      : finish_1(x, product.layers, o);
}

// The block's part of a product's outputs: to `to` in all blocks, or, those of
// the last product, to y.
template <int PRODUCT>
DEVICE void multiply(const squeeze_t& p, int32_t image, int32_t rank,
                     const float* from, float* to) {
  const squeeze_product_t& product = p.products[PRODUCT];
  int32_t count = p.channels[PRODUCT], outputs = p.channels[PRODUCT + 1];
  int32_t lanes = 1 << product.lanes_log;
  int32_t lane = (int32_t)threadIdx.x % lanes;
  int32_t end = part_at(outputs, rank + 1);
  // Whole warps go on together.
  for (int32_t first = part_at(outputs, rank); first < end;
       first += SQUEEZE_THREADS >> product.lanes_log) {
    int32_t column = first + ((int32_t)threadIdx.x >> product.lanes_log);
    const ELEMENT* w = (const ELEMENT*)product.w + (int64_t)column * count;
    float sum = 0;
    if (column >= end)
      sum = 0;
    else if (count % VECTOR == 0)
      sum = multiply_row<VECTOR>(w, from, count, lane, lanes);
    else if (count % 2 == 0)
      sum = multiply_row<2>(w, from, count, lane, lanes);
    else
      sum = multiply_row<1>(w, from, count, lane, lanes);
    for (int32_t step = lanes / 2; step > 0; step /= 2)
      sum += __shfl_xor_sync(0xffffffffu, sum, step);
    if (column >= end) continue;
    float result = finish_output<PRODUCT>(p, sum, image, column);
    if (PRODUCT + 1 < PRODUCTS)
      store_everywhere(to + column, result, lane, lanes);
    else if (lane == 0)
      ((ELEMENT*)p.y)[(int64_t)image * outputs + column] =
          store_as<ELEMENT>(result);
  }
}

extern "C" __global__ void __launch_bounds__(SQUEEZE_THREADS)
    squeeze(const __grid_constant__ squeeze_t p) {
  extern __shared__ __align__(16) float memory[];
  int32_t rank = (int32_t)(blockIdx.x % SQUEEZE_BLOCKS);
  int32_t image = (int32_t)(blockIdx.x / SQUEEZE_BLOCKS);
  cluster_arrive();
  prefetch_weights(p, rank);
  turn_t turn;
  pool(p, image, rank, memory);
  multiply<0>(p, image, rank, memory + p.pooled, memory + p.hidden);
#if PRODUCTS > 1
  cluster_arrive();
  cluster_wait();
  multiply<1>(p, image, rank, memory + p.hidden, nullptr);
#endif
}
