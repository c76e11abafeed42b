// Samples of an image at the points of a grid (-DELEMENT, -DPOINT: the grid's
// type; -DTAPS=1, 2, 4 for nearest, linear, cubic; -DOUTSIDE: the number of a
// rabbet_sample_mode_t; -DALIGN; -DAXES=2, 3). A thread computes the neighbours
// and weights of one point, and with them the samples of several channels.
// Bound by the bytes of the output and of the input sectors that are touched.
#include "device/cuda/image/grid_sample_params.h"
#include "device/cuda/programs/number.cuh"
#include "ops/enums.h"

typedef ELEMENT T;
typedef POINT G;

DEVICE float reflect(float x, float low, float high) {
  float range = high - low;
  if (range <= 0.0f) return low;
  if (x >= low && x <= high) return x;
  float from = x < low ? low - x : x - high;
  float whole = floorf(from / range), rest = from - whole * range;
  bool even = whole - 2.0f * floorf(whole * 0.5f) == 0.0f;
  return (x < low) == even ? low + rest : high - rest;
}

DEVICE float find_place(float g, int32_t elements) {
  float extent = (float)elements;
  float low = ALIGN ? 0.0f : -0.5f;
  float high = ALIGN ? extent - 1.0f : extent - 0.5f;
  float x = ALIGN ? (g + 1.0f) / 2.0f * (extent - 1.0f)
                  : ((g + 1.0f) * extent - 1.0f) / 2.0f;
  if (!(fabsf(x) < 0x1p30f)) x = x > 0.0f ? 0x1p30f : -0x1p30f;
  if (TAPS == 1) x = rintf(x);
  if (x >= low && x <= high) return x;
  if (OUTSIDE == RABBET_SAMPLE_CLAMP && TAPS != 4)
    return x < 0.0f ? 0.0f : x > extent - 1.0f ? extent - 1.0f : x;
  return OUTSIDE == RABBET_SAMPLE_REFLECT ? reflect(x, low, high) : x;
}

// The element at a rounded position; -1: outside, the sample is the fill value.
DEVICE int32_t find_element(float position, int32_t extent) {
  float last = (float)(extent - 1);
  if (position >= 0.0f && position <= last) return (int32_t)position;
  if (OUTSIDE == RABBET_SAMPLE_CLAMP) return position < 0.0f ? 0 : extent - 1;
  if (OUTSIDE != RABBET_SAMPLE_REFLECT) return -1;
  float x = ALIGN ? reflect(position, 0.0f, last)
                  : reflect(position, -0.5f, last + 0.5f);
  return x < 0.0f ? 0 : x > last ? extent - 1 : (int32_t)x;
}

DEVICE float weight_of(int tap, float t) {
  const float a = -0.75f;
  if (TAPS == 1) return 1.0f;
  if (TAPS == 2) return tap == 0 ? 1.0f - t : t;
  float d = tap == 0 ? t + 1.0f : tap == 1 ? t : tap == 2 ? 1.0f - t : 2.0f - t;
  return tap == 1 || tap == 2
             ? ((a + 2.0f) * d - (a + 3.0f)) * d * d + 1.0f
             : ((a * d - 5.0f * a) * d + 8.0f * a) * d - 4.0f * a;
}

// The taps of a sample along one axis; offsets in elements, -1: outside.
struct axis_t {
  int64_t offset[TAPS];
  float weight[TAPS];
};

DEVICE axis_t find_axis(const grid_sample_t& p, int axis, float g) {
  axis_t found;
  float x = find_place(g, p.extent[axis]), base = floorf(x);
#pragma unroll
  for (int i = 0; i < TAPS; ++i) {
    float position = TAPS == 1 ? x : base + (float)(TAPS == 4 ? i - 1 : i);
    int32_t element = find_element(position, p.extent[axis]);
    found.offset[i] = element < 0 ? -1 : element * p.strides[axis];
    found.weight[i] = weight_of(i, x - base);
  }
  return found;
}

DEVICE float add_row(const T* x, const axis_t& row) {
  float sum = 0.0f;
#pragma unroll
  for (int i = 0; i < TAPS; ++i)
    if (row.offset[i] >= 0) sum += to_float(x[row.offset[i]]) * row.weight[i];
  return sum;
}

extern "C" __global__ void __launch_bounds__(256)
    grid_sample(const T* x, const G* grid, T* y,
                const __grid_constant__ grid_sample_t p) {
  turn_t turn;
  int64_t at = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
  if (at >= p.points) return;
  int64_t batch = divide(at, p.out_plane);
  int64_t in_plane = at - batch * p.out_plane.divisor;
  axis_t axes[AXES];
#pragma unroll
  for (int i = 0; i < AXES; ++i)
    axes[i] =
        find_axis(p, i + 3 - AXES, to_float(grid[at * AXES + AXES - 1 - i]));
  for (int64_t c = blockIdx.y; c < p.channels; c += gridDim.y) {
    int64_t plane = batch * p.channels + c;
    const T* from = x + plane * p.in_plane;
    float sum = 0.0f;
#pragma unroll
    for (int i = 0; i < TAPS; ++i) {
      if (axes[AXES - 2].offset[i] < 0) continue;
      const T* row = from + axes[AXES - 2].offset[i];
      float weight = axes[AXES - 2].weight[i];
      if (AXES == 2) {
        sum += weight * add_row(row, axes[AXES - 1]);
        continue;
      }
#pragma unroll
      for (int k = 0; k < TAPS; ++k)
        if (axes[0].offset[k] >= 0)
          sum += weight * axes[0].weight[k] *
                 add_row(row + axes[0].offset[k], axes[AXES - 1]);
    }
    y[plane * p.out_plane.divisor + in_plane] = from_float<T>(sum);
  }
}
