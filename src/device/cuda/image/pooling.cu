// Maxima and averages of windows (-DELEMENT; -DKIND: the number of a
// rabbet_pooling_t; -DEXCLUDES: padding does not count; -DWINDOW_D, _H, _W,
// likewise STRIDE and DILATION). Bound by the bytes of input and output if
// overlapping windows find their elements in the caches.
#include "device/cuda/image/pooling_params.h"
#include "device/cuda/programs/number.cuh"
#include "ops/enums.h"

// A typedef, since a macro T would break the templates of NVRTC's own header.
typedef ELEMENT T;

enum { TAPS = WINDOW_D * WINDOW_H * WINDOW_W };
// Windows up to this size are unrolled.
enum {
  UNROLL_W = TAPS <= 64 ? WINDOW_W : 4,
  UNROLL_H = TAPS <= 64 ? WINDOW_H : 1
};

// ---- A window

// Taps [first, last) of an axis lie in the input, taps [0, counted) in the
// input or its padding.
struct taps_t {
  int32_t begin;  // position of tap 0
  int32_t first, last, counted;
};

template <int WINDOW, int DILATION>
DEVICE int32_t taps_below(int32_t begin, int32_t position) {
  int32_t left = position - begin;
  if (left <= 0) return 0;
  int32_t taps = (left - 1) / DILATION + 1;
  return taps < WINDOW ? taps : WINDOW;
}

template <int WINDOW, int STRIDE, int DILATION>
DEVICE taps_t find_taps(const pooling_t& p, int axis, int32_t at) {
  taps_t taps;
  taps.begin = at * STRIDE - p.pre[axis];
  taps.first = taps_below<WINDOW, DILATION>(taps.begin, 0);
  taps.last = taps_below<WINDOW, DILATION>(taps.begin, p.in[axis]);
  taps.counted = taps_below<WINDOW, DILATION>(taps.begin, p.end[axis]);
  return taps;
}

struct window_t {
  taps_t d, h, w;
};

DEVICE window_t find_window(const pooling_t& p, int32_t position) {
  int32_t row = divide(position, p.out_width);
  int32_t x = position - row * p.out[2];
  int32_t z = divide(row, p.out_height);
  int32_t y = row - z * p.out[1];
  window_t window;
  window.d = find_taps<WINDOW_D, STRIDE_D, DILATION_D>(p, 0, z);
  window.h = find_taps<WINDOW_H, STRIDE_H, DILATION_H>(p, 1, y);
  window.w = find_taps<WINDOW_W, STRIDE_W, DILATION_W>(p, 2, x);
  return window;
}

DEVICE bool is_inside(const taps_t& taps, int32_t tap) {
  return tap >= taps.first && tap < taps.last;
}

// The first tap of a row, as a position in the plane.
DEVICE int64_t find_row(const pooling_t& p, const window_t& window, int32_t z,
                        int32_t y) {
  int64_t row = (int64_t)(window.d.begin + z * DILATION_D) * p.in[1] +
                (window.h.begin + y * DILATION_H);
  return row * p.in[2] + window.w.begin;
}

// ---- Pooled results

struct cell_t {
  float highest, sum;
};

DEVICE cell_t empty_cell() {
  cell_t cell = {-INFINITE, 0.0f};
  return cell;
}
// NaN propagates.
DEVICE void add_highest(cell_t& cell, float x) {
#if !defined(RABBET_STAND_IN) && __CUDA_ARCH__ >= 800
  asm("max.NaN.f32 %0, %0, %1;" : "+f"(cell.highest) : "f"(x));
#else
  if (x > cell.highest || x != x) cell.highest = x;
#endif
}
DEVICE void add_tap(cell_t& cell, float x) {
  if (KIND != RABBET_POOLING_AVERAGE) add_highest(cell, x);
  if (KIND != RABBET_POOLING_MAX) cell.sum += x;
}
DEVICE void add_cell(cell_t& cell, const cell_t& other) {
  if (KIND != RABBET_POOLING_AVERAGE) add_highest(cell, other.highest);
  if (KIND != RABBET_POOLING_MAX) cell.sum += other.sum;
}

DEVICE float count_taps(const window_t& w) {
  if (EXCLUDES)
    return (float)(w.d.last - w.d.first) * (float)(w.h.last - w.h.first) *
           (float)(w.w.last - w.w.first);
  return (float)w.d.counted * (float)w.h.counted * (float)w.w.counted;
}

DEVICE float finish_cell(const pooling_t& p, const cell_t& cell, float count) {
  if (KIND == RABBET_POOLING_MAX) return cell.highest;
  float average = count > 0 ? cell.sum / count : 0.0f;
  if (KIND == RABBET_POOLING_AVERAGE) return average;
  return (1.0f - p.blend) * cell.highest + p.blend * average;
}

// ---- LINEAR

// One thread per element; threadIdx.y counts planes.
extern "C" __global__ void __launch_bounds__(256)
    pooling_linear(const T* in, T* out, const __grid_constant__ pooling_t p) {
  turn_t turn;
  int32_t size = p.out[0] * p.out[1] * p.out[2];
  int32_t position = (int32_t)(blockIdx.x * blockDim.x + threadIdx.x);
  if (position >= size) return;
  window_t window = find_window(p, position);
  float count = count_taps(window);
  int64_t in_size = (int64_t)p.in[0] * p.in[1] * p.in[2];
  int64_t plane = (int64_t)blockIdx.y * blockDim.y + threadIdx.y;
  for (; plane < p.planes; plane += (int64_t)gridDim.y * blockDim.y) {
    const T* from = in + plane * in_size;
    cell_t cell = empty_cell();
#pragma unroll 1
    for (int z = window.d.first; z < window.d.last; ++z) {
#pragma unroll(UNROLL_H)
      for (int y = 0; y < WINDOW_H; ++y) {
        if (!is_inside(window.h, y)) continue;
        const T* row = from + find_row(p, window, z, y);
#pragma unroll(UNROLL_W)
        for (int x = 0; x < WINDOW_W; ++x) {
          if (is_inside(window.w, x))
            add_tap(cell, to_float(row[x * DILATION_W]));
        }
      }
    }
    out[plane * size + position] = from_float<T>(finish_cell(p, cell, count));
  }
}

// Vectorized rows (-DROWS_PRE: padding before a row): a thread computes
// -DROWS_WIDTH neighbours in each of -DROWS_HEIGHT rows and loads what their
// windows share once. A vector lies in the input or in the padding, never in
// both. Not for blends of maximum and average.
#ifdef ROWS_PRE
enum {
  ROWS_VECTOR = 16 / sizeof(T),
  // Elements before the first tap in its vector; elements of all taps in a row.
  ROWS_SKEW = (ROWS_VECTOR - ROWS_PRE % ROWS_VECTOR) % ROWS_VECTOR,
  ROWS_SPAN = (ROWS_WIDTH - 1) * STRIDE_W + (WINDOW_W - 1) * DILATION_W + 1,
  // Rows of the input that the windows span; vectors of each.
  ROWS_INPUT = (ROWS_HEIGHT - 1) * STRIDE_H + (WINDOW_H - 1) * DILATION_H + 1,
  ROWS_VECTORS = (ROWS_SKEW + ROWS_SPAN + ROWS_VECTOR - 1) / ROWS_VECTOR
};

// Whether row i of the ROWS_INPUT rows belongs to window k of the thread.
DEVICE constexpr bool is_tap_row(int i, int k) {
  return i >= k * STRIDE_H && (i - k * STRIDE_H) % DILATION_H == 0 &&
         (i - k * STRIDE_H) / DILATION_H < WINDOW_H;
}

// Adds the taps of one input row to each neighbour. Without branches, so that
// the compiler can load several rows before it uses the first.
DEVICE void pool_row(const pooling_t& p, const T* row, bool inside,
                     int32_t begin, cell_t* cells) {
  T taps[ROWS_VECTORS * ROWS_VECTOR];
#pragma unroll
  for (int v = 0; v < ROWS_VECTORS; ++v) {
    int32_t at = begin + v * ROWS_VECTOR;
    pack_t<T, ROWS_VECTOR> pack;
#pragma unroll
    for (int i = 0; i < ROWS_VECTOR; ++i)
      pack.v[i] = from_float<T>(KIND == RABBET_POOLING_MAX ? -INFINITE : 0.0f);
    if (inside && at >= 0 && at < p.in[2])
      pack = load_pack<T, ROWS_VECTOR>(row + at);
#pragma unroll
    for (int i = 0; i < ROWS_VECTOR; ++i) taps[v * ROWS_VECTOR + i] = pack.v[i];
  }
#pragma unroll
  for (int i = 0; i < ROWS_WIDTH; ++i) {
    cells[i] = empty_cell();
#pragma unroll
    for (int x = 0; x < WINDOW_W; ++x)
      add_tap(cells[i],
              to_float(taps[ROWS_SKEW + i * STRIDE_W + x * DILATION_W]));
  }
}

DEVICE void store_row(const pooling_t& p, int32_t y, int32_t x,
                      const cell_t* cells, T* row) {
  taps_t d = find_taps<1, 1, 1>(p, 0, 0);
  taps_t h = find_taps<WINDOW_H, STRIDE_H, DILATION_H>(p, 1, y);
  pack_t<T, ROWS_WIDTH> pack;
#pragma unroll
  for (int i = 0; i < ROWS_WIDTH; ++i) {
    float count = 0;
    if (KIND != RABBET_POOLING_MAX) {
      window_t window = {
          d, h, find_taps<WINDOW_W, STRIDE_W, DILATION_W>(p, 2, x + i)};
      count = count_taps(window);
    }
    pack.v[i] = from_float<T>(finish_cell(p, cells[i], count));
  }
  if (p.out[2] % ROWS_WIDTH == 0) {
    store_pack<T, ROWS_WIDTH>(row + x, pack);
    return;
  }
#pragma unroll
  for (int i = 0; i < ROWS_WIDTH; ++i) {
    if (x + i < p.out[2]) row[x + i] = pack.v[i];
  }
}

extern "C" __global__ void __launch_bounds__(256)
    pooling_rows(const T* in, T* out, const __grid_constant__ pooling_t p) {
  turn_t turn;
  int32_t number = (int32_t)(blockIdx.x * blockDim.x + threadIdx.x);
  if (number >= p.threads) return;
  int32_t rest = divide(number, p.out_width);
  int32_t x = (number - rest * (int32_t)p.out_width.divisor) * ROWS_WIDTH;
  int32_t plane = divide(rest, p.out_height);
  int32_t y = (rest - plane * (int32_t)p.out_height.divisor) * ROWS_HEIGHT;
  const T* from = in + (int64_t)plane * p.in[1] * p.in[2];
  int32_t top = y * STRIDE_H - p.pre[1];
  int32_t left = x * STRIDE_W - ROWS_PRE - ROWS_SKEW;
  cell_t cells[ROWS_HEIGHT][ROWS_WIDTH];
#pragma unroll
  for (int i = 0; i < ROWS_HEIGHT * ROWS_WIDTH; ++i)
    cells[i / ROWS_WIDTH][i % ROWS_WIDTH] = empty_cell();
    // Rows in which no window has a tap are skipped.
#pragma unroll
  for (int i = 0; i < ROWS_INPUT; ++i) {
    bool used = false;
#pragma unroll
    for (int k = 0; k < ROWS_HEIGHT; ++k) used = used || is_tap_row(i, k);
    if (!used) continue;
    cell_t row[ROWS_WIDTH];
    pool_row(p, from + (int64_t)(top + i) * p.in[2],
             top + i >= 0 && top + i < p.in[1], left, row);
#pragma unroll
    for (int k = 0; k < ROWS_HEIGHT; ++k) {
      if (!is_tap_row(i, k)) continue;
#pragma unroll
      for (int j = 0; j < ROWS_WIDTH; ++j) add_cell(cells[k][j], row[j]);
    }
  }
#pragma unroll
  for (int k = 0; k < ROWS_HEIGHT; ++k) {
    if (y + k >= p.out[1]) break;
    T* row = out + ((int64_t)plane * p.out[1] + y + k) * p.out[2];
    store_row(p, y + k, x, cells[k], row);
  }
}
#endif

// One warp per element, for few and large windows. The lanes share the taps.
enum {
  ROW_LANES = WINDOW_W <= 2    ? 2
              : WINDOW_W <= 4  ? 4
              : WINDOW_W <= 8  ? 8
              : WINDOW_W <= 16 ? 16
                               : 32
};

extern "C" __global__ void __launch_bounds__(256)
    pooling_linear_warps(const T* in, T* out,
                         const __grid_constant__ pooling_t p) {
  turn_t turn;
  int32_t size = p.out[0] * p.out[1] * p.out[2];
  int64_t number = (int64_t)blockIdx.x * 8 + (threadIdx.x >> 5);
  if (number >= p.planes * size) return;
  int64_t plane = number / size;
  int32_t lane = (int32_t)(threadIdx.x & 31);
  window_t window = find_window(p, (int32_t)(number - plane * size));
  const T* from = in + plane * ((int64_t)p.in[0] * p.in[1] * p.in[2]);
  int32_t height = window.h.last - window.h.first;
  int32_t rows = (window.d.last - window.d.first) * height;
  cell_t cell = empty_cell();
  for (int32_t i = lane / ROW_LANES; i < rows; i += 32 / ROW_LANES) {
    int32_t z = i / height, y = i - z * height;
    const T* row =
        from + find_row(p, window, z + window.d.first, y + window.h.first);
#pragma unroll 4
    for (int32_t x = window.w.first + lane % ROW_LANES; x < window.w.last;
         x += ROW_LANES)
      add_tap(cell, to_float(row[x * DILATION_W]));
  }
#pragma unroll
  for (int flip = 16; flip > 0; flip >>= 1) {
    cell_t other = {__shfl_xor_sync(0xffffffffu, cell.highest, flip),
                    __shfl_xor_sync(0xffffffffu, cell.sum, flip)};
    add_cell(cell, other);
  }
  if (lane == 0)
    out[number] = from_float<T>(finish_cell(p, cell, count_taps(window)));
}

// ---- Channels last

// N channels of one position.
template <int N>
struct cells_t {
  cell_t cells[N];
};

template <int N>
DEVICE void add_pack(cells_t<N>& cells, const T* from) {
  pack_t<T, N> pack = load_pack<T, N>(from);
#pragma unroll
  for (int i = 0; i < N; ++i) add_tap(cells.cells[i], to_float(pack.v[i]));
}

// Stores zeros into the channels of padding.
template <int N>
DEVICE void store_cells(const pooling_t& p, const cells_t<N>& cells,
                        const window_t& window, int32_t channel, T* to) {
  float count = count_taps(window);
  pack_t<T, N> pack;
#pragma unroll
  for (int i = 0; i < N; ++i) {
    float value = finish_cell(p, cells.cells[i], count);
    pack.v[i] = from_float<T>(channel + i < p.channels ? value : 0.0f);
  }
  store_pack<T, N>(to, pack);
}

// One thread per N channels of a position.
template <int N>
DEVICE void pool_channels(const T* in, T* out, const pooling_t& p) {
  int64_t size = (int64_t)p.out[0] * p.out[1] * p.out[2];
  int64_t groups = p.groups.divisor;
  int64_t number = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
  if (number >= size * groups) return;
  int64_t position = divide(number, p.groups);
  int32_t channel = (int32_t)(number - position * groups) * N;
  window_t window = find_window(p, (int32_t)position);
  int64_t in_size = (int64_t)p.in[0] * p.in[1] * p.in[2];
  for (int64_t n = blockIdx.y; n < p.planes; n += gridDim.y) {
    const T* from = in + n * in_size * p.pitch + channel;
    cells_t<N> cells;
#pragma unroll
    for (int i = 0; i < N; ++i) cells.cells[i] = empty_cell();
#pragma unroll 1
    for (int z = window.d.first; z < window.d.last; ++z) {
#pragma unroll(UNROLL_H)
      for (int y = 0; y < WINDOW_H; ++y) {
        if (!is_inside(window.h, y)) continue;
        const T* row = from + find_row(p, window, z, y) * p.pitch;
#pragma unroll(UNROLL_W)
        for (int x = 0; x < WINDOW_W; ++x) {
          if (is_inside(window.w, x))
            add_pack<N>(cells, row + (int64_t)(x * DILATION_W) * p.pitch);
        }
      }
    }
    store_cells<N>(p, cells, window, channel,
                   out + (n * size + position) * p.pitch + channel);
  }
}

// For few and large windows: COLUMN threads share the taps of a result.
enum { COLUMN = 8 };

template <int N>
DEVICE void pool_columns(const T* in, T* out, const pooling_t& p) {
  __shared__ cells_t<N> columns[COLUMN][32];
  int64_t size = (int64_t)p.out[0] * p.out[1] * p.out[2];
  int64_t groups = p.groups.divisor;
  int64_t number = (int64_t)blockIdx.x * 32 + threadIdx.x;
  bool used = number < size * groups;
  int64_t position = used ? divide(number, p.groups) : 0;
  int32_t channel = used ? (int32_t)(number - position * groups) * N : 0;
  window_t window = find_window(p, (int32_t)position);
  int64_t in_size = (int64_t)p.in[0] * p.in[1] * p.in[2];
  int32_t height = window.h.last - window.h.first;
  int32_t width = window.w.last - window.w.first;
  int32_t taps = (window.d.last - window.d.first) * height * width;
  for (int64_t n = blockIdx.y; n < p.planes; n += gridDim.y) {
    const T* from = in + n * in_size * p.pitch + channel;
    cells_t<N> cells;
#pragma unroll
    for (int i = 0; i < N; ++i) cells.cells[i] = empty_cell();
#pragma unroll 2
    for (int32_t i = (int32_t)threadIdx.y; i < taps; i += COLUMN) {
      int32_t row = i / width, x = i - row * width;
      int32_t z = row / height, y = row - z * height;
      int64_t at = find_row(p, window, z + window.d.first, y + window.h.first) +
                   (x + window.w.first) * DILATION_W;
      add_pack<N>(cells, from + at * p.pitch);
    }
    columns[threadIdx.y][threadIdx.x] = cells;
    __syncthreads();
    if (threadIdx.y == 0 && used) {
      for (int k = 1; k < COLUMN; ++k) {
#pragma unroll
        for (int i = 0; i < N; ++i)
          add_cell(cells.cells[i], columns[k][threadIdx.x].cells[i]);
      }
      store_cells<N>(p, cells, window, channel,
                     out + (n * size + position) * p.pitch + channel);
    }
    __syncthreads();
  }
}

enum { PACK = 16 / sizeof(T) };
#define POOLING_KERNEL(name, body)                                     \
  extern "C" __global__ void __launch_bounds__(256)                    \
      name(const T* in, T* out, const __grid_constant__ pooling_t p) { \
    turn_t turn;                                                       \
    body(in, out, p);                                                  \
  }
POOLING_KERNEL(pooling_packs, pool_channels<PACK>)
POOLING_KERNEL(pooling_channels, pool_channels<1>)
POOLING_KERNEL(pooling_pack_columns, pool_columns<PACK>)
POOLING_KERNEL(pooling_channel_columns, pool_columns<1>)
