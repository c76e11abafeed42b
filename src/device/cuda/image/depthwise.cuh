// Convolutions with a filter for each channel, channels last. The text that
// includes this file is generated with the convolution's epilogue
// (depthwise.c). It defines
//
//   ELEMENT            type of all tensors
//   VECTOR             channels of a thread
//   STRIP, ROWS        columns and rows that it computes at a time
//   SHARES             threads that share a strip, each with some of the
//                      window's rows; a power of two, with ROWS 1 if above 1
//   WINDOW_H, WINDOW_W likewise STRIDE and DILATION
//
// and the macros of layers_params.h.
//
// Bound by the bytes of input and output, with large windows by arithmetic in
// FLOAT. A block has some channels, whose filters lie in shared memory as
// [tap][channel], and goes on from strip to strip. Its strips lie below each
// other, so that windows which overlap find their rows in the L1 cache; those
// of a strip share columns in registers. Small images with large windows are
// bound by the time that a thread takes for its window, so several share one.
#pragma once

#include "device/cuda/image/depthwise_params.h"

enum {
  TAPS = WINDOW_H * WINDOW_W,
  SPAN_H = (ROWS - 1) * STRIDE_H + (WINDOW_H - 1) * DILATION_H + 1,
  SPAN_W = (STRIP - 1) * STRIDE_W + (WINDOW_W - 1) * DILATION_W + 1,
  UNROLL_H = TAPS <= 49 ? SPAN_H : 1,
  // A vector more than there are lanes: neighbouring taps lie in other banks.
  PITCH = (DEPTHWISE_LANES + 1) * VECTOR,
};

struct filters_t {
  alignas(16) float v[TAPS][PITCH];
};

// Lines of the filters are contiguous: all threads copy a piece.
DEVICE void copy_filters(const depthwise_t& p, int32_t first,
                         filters_t& filters) {
  int32_t channels = p.channels - first;
  if (channels > p.lanes * VECTOR) channels = p.lanes * VECTOR;
  const ELEMENT* from = (const ELEMENT*)p.w + (int64_t)first * TAPS;
  for (int32_t i = (int32_t)threadIdx.x; i < channels * TAPS;
       i += DEPTHWISE_THREADS)
    filters.v[i % TAPS][i / TAPS] = load(from[i]);
}

// The tap of a window that begins `begin` before; -1: there is none.
template <int WINDOW, int DILATION>
DEVICE int32_t tap_at(int32_t at, int32_t begin) {
  int32_t from = at - begin;
  return from >= 0 && from % DILATION == 0 && from / DILATION < WINDOW
             ? from / DILATION
             : -1;
}

// Whether some window of the strip has this column.
DEVICE bool has_column(int32_t column) {
  bool found = false;
#pragma unroll
  for (int s = 0; s < STRIP; ++s)
    found = found || tap_at<WINDOW_W, DILATION_W>(column, s * STRIDE_W) >= 0;
  return found;
}

struct sums_t {
  float v[ROWS][STRIP][VECTOR];
};

// Adds the products of an input element's channels by row `down` of the window.
DEVICE void add_row(float (*sums)[VECTOR], const pack_t<ELEMENT, VECTOR>& x,
                    const filters_t& filters, int32_t lane, int32_t down,
                    int32_t column) {
#pragma unroll
  for (int s = 0; s < STRIP; ++s) {
    int32_t along = tap_at<WINDOW_W, DILATION_W>(column, s * STRIDE_W);
    if (along < 0) continue;
    const float* w = &filters.v[down * WINDOW_W + along][lane * VECTOR];
    pack_t<float, VECTOR> filter = load_pack<float, VECTOR>(w);
#pragma unroll
    for (int e = 0; e < VECTOR; ++e) sums[s][e] += load(x.v[e]) * filter.v[e];
  }
}

// The same for all rows of the strip.
DEVICE void add_element(sums_t& sums, const pack_t<ELEMENT, VECTOR>& x,
                        const filters_t& filters, int32_t lane, int32_t row,
                        int32_t column) {
#pragma unroll
  for (int r = 0; r < ROWS; ++r) {
    int32_t down = tap_at<WINDOW_H, DILATION_H>(row, r * STRIDE_H);
    if (down >= 0) add_row(sums.v[r], x, filters, lane, down, column);
  }
}

struct place_t {
  int32_t image, y, x;  // of the strip's first element
};

// Strips of an image below each other come first.
DEVICE place_t find_strip(const depthwise_t& p, int32_t strip) {
  uint32_t down, along;
  uint32_t rest = divide((uint32_t)strip, p.down, &down);
  place_t at;
  at.image = (int32_t)divide(rest, p.along, &along);
  at.y = (int32_t)down * ROWS;
  at.x = (int32_t)along * STRIP;
  return at;
}

// A thread's channels of an element; zeros beyond the image.
DEVICE pack_t<ELEMENT, VECTOR> load_element(const depthwise_t& p,
                                            const ELEMENT* image, int32_t y,
                                            int32_t x) {
  pack_t<ELEMENT, VECTOR> element = {};
  if ((uint32_t)y < (uint32_t)p.height && (uint32_t)x < (uint32_t)p.width)
    element = load_pack<ELEMENT, VECTOR>(image + ((int64_t)y * p.width + x) *
                                                     p.channels);
  return element;
}

#if SHARES > 1
// The thread's rows of the window; then all threads of the strip have its sums.
DEVICE void add_windows(const depthwise_t& p, const place_t& at,
                        const filters_t& filters, int32_t channel, int32_t lane,
                        sums_t& sums) {
  int32_t y = at.y * STRIDE_H - p.pre_height;
  int32_t x = at.x * STRIDE_W - p.pre_width;
  const ELEMENT* image = (const ELEMENT*)p.x + channel +
                         (int64_t)at.image * p.height * p.width * p.channels;
#pragma unroll
  for (int32_t turn = 0; turn < WINDOW_H; turn += SHARES) {
    int32_t down = turn + (int32_t)(threadIdx.x % SHARES);
    if (down >= WINDOW_H) break;
#pragma unroll
    for (int32_t column = 0; column < SPAN_W; ++column)
      if (has_column(column))
        add_row(sums.v[0],
                load_element(p, image, y + down * DILATION_H, x + column),
                filters, lane, down, column);
  }
  uint32_t mask = ((1u << SHARES) - 1) << (threadIdx.x % 32 & ~(SHARES - 1u));
#pragma unroll
  for (int flip = 1; flip < SHARES; flip *= 2)
#pragma unroll
    for (int i = 0; i < STRIP * VECTOR; ++i)
      sums.v[0][i / VECTOR][i % VECTOR] +=
          __shfl_xor_sync(mask, sums.v[0][i / VECTOR][i % VECTOR], flip);
}
#else
DEVICE void add_windows(const depthwise_t& p, const place_t& at,
                        const filters_t& filters, int32_t channel, int32_t lane,
                        sums_t& sums) {
  int32_t y = at.y * STRIDE_H - p.pre_height;
  int32_t x = at.x * STRIDE_W - p.pre_width;
  const ELEMENT* image = (const ELEMENT*)p.x + channel +
                         (int64_t)at.image * p.height * p.width * p.channels;
#pragma unroll UNROLL_H
  for (int32_t row = 0; row < SPAN_H; ++row)
#pragma unroll
    for (int32_t column = 0; column < SPAN_W; ++column)
      if (has_column(column))
        add_element(sums, load_element(p, image, y + row, x + column), filters,
                    lane, row, column);
}
#endif

DEVICE void write_strip(const depthwise_t& p, const place_t& at,
                        int32_t channel, const sums_t& sums) {
#pragma unroll
  for (int r = 0; r < ROWS; ++r)
#pragma unroll
    for (int s = 0; s < STRIP; ++s) {
      if (at.y + r >= p.out_height || at.x + s >= p.out_width ||
          threadIdx.x % SHARES != s % SHARES)
        continue;
      int64_t pixel =
          ((int64_t)at.image * p.out_height + at.y + r) * p.out_width + at.x +
          s;
      pack_t<ELEMENT, VECTOR> out;
#pragma unroll
      for (int e = 0; e < VECTOR; ++e)
        out.v[e] = finished(sums.v[r][s][e], p.layers, 0, pixel, channel + e);
      store_pack<ELEMENT, VECTOR>((ELEMENT*)p.y + pixel * p.channels + channel,
                                  out);
    }
}

// Filters are constants, which are copied before the turn.
extern "C" __global__ void __launch_bounds__(DEPTHWISE_THREADS)
    depthwise(const __grid_constant__ depthwise_t p) {
  __shared__ filters_t filters;
  int32_t first = (int32_t)blockIdx.x * p.lanes * VECTOR;
  copy_filters(p, first, filters);
  { turn_t turn; }
  __syncthreads();
  uint32_t lane;
  int32_t own = (int32_t)divide(threadIdx.x / SHARES, p.lane, &lane);
  int32_t channel = first + (int32_t)lane * VECTOR;
  if (own >= p.owners || channel >= p.channels) return;
  float bias[VECTOR];
  bool has_bias = p.bias && threadIdx.x % SHARES == 0;
#pragma unroll
  for (int e = 0; e < VECTOR; ++e)
    bias[e] = has_bias ? load(((const ELEMENT*)p.bias)[channel + e]) : 0.0f;
  for (int32_t strip = (int32_t)blockIdx.y * p.owners + own; strip < p.count;
       strip += (int32_t)gridDim.y * p.owners) {
    place_t at = find_strip(p, strip);
    sums_t sums;
#pragma unroll
    for (int i = 0; i < ROWS * STRIP * VECTOR; ++i)
      sums.v[i / VECTOR / STRIP][i / VECTOR % STRIP][i % VECTOR] =
          bias[i % VECTOR];
    add_windows(p, at, filters, channel, (int32_t)lane, sums);
    write_strip(p, at, channel, sums);
  }
}
