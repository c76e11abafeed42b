// RoiAlign (-DELEMENT, -DROI, -DINDEX: the types of the image, of the regions
// and of the batch indices; -DIS_MAX; -DCHANNELS). A thread computes one bin
// for CHANNELS channels, which share the samples' positions and weights. Bound
// by the input sectors that samples touch.
#include "device/cuda/programs/index.h"
#include "ops/image/roi_align.h"

typedef ELEMENT T;

struct bin_t {
  const T* x;      // of the first channel
  int64_t stride;  // elements from a channel to the next
  int32_t width, channels;
  float values[CHANNELS];
};

DEVICE void add_corner(bin_t& bin, int32_t row, int32_t column, float weight) {
  const T* x = bin.x + (int64_t)row * bin.width + column;
#pragma unroll
  for (int c = 0; c < CHANNELS; ++c) {
    if (c >= bin.channels) continue;
    float value = weight * to_float(x[c * bin.stride]);
    bin.values[c] =
        IS_MAX ? rabbet_roi_max(bin.values[c], value) : bin.values[c] + value;
  }
}

DEVICE void add_sample(bin_t& bin, const rabbet_roi_sample_t& y,
                       const rabbet_roi_sample_t& x) {
  add_corner(bin, y.low, x.low, y.low_weight * x.low_weight);
  add_corner(bin, y.low, x.high, y.low_weight * x.high_weight);
  add_corner(bin, y.high, x.low, y.high_weight * x.low_weight);
  add_corner(bin, y.high, x.high, y.high_weight * x.high_weight);
}

// Adds all samples of a bin; returns how many lie inside the image.
DEVICE int64_t add_samples(const rabbet_roi_align_t& p,
                           const rabbet_roi_axis_t& rows, int32_t row,
                           const rabbet_roi_axis_t& columns, int32_t column,
                           bin_t& bin) {
  rabbet_roi_sample_t y, x;
  int64_t inside = 0;
  int32_t last_y = rabbet_roi_last(&rows, row, p.in[0]);
  int32_t first_x = rabbet_roi_first(&columns, column);
  int32_t last_x = rabbet_roi_last(&columns, column, p.in[1]);
  for (int32_t i = rabbet_roi_first(&rows, row); i < last_y; ++i) {
    if (!rabbet_roi_sample(&rows, row, i, p.in[0], &y)) continue;
    for (int32_t k = first_x; k < last_x; ++k) {
      if (!rabbet_roi_sample(&columns, column, k, p.in[1], &x)) continue;
      add_sample(bin, y, x);
      ++inside;
    }
  }
  return inside;
}

DEVICE float finish(float value, int64_t inside, int64_t samples) {
  if (inside == 0) return 0.0f;
  if (!IS_MAX) return value / (float)samples;
  return inside < samples ? rabbet_roi_max(value, 0.0f) : value;
}

extern "C" __global__ void __launch_bounds__(256)
    roi_align(const T* x, const ROI* rois, const INDEX* indices, T* y,
              const __grid_constant__ rabbet_roi_align_t p,
              const __grid_constant__ divisor_t bins,
              const __grid_constant__ divisor_t width) {
  turn_t turn;
  int64_t at = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
  if (at >= p.rois * bins.divisor) return;
  int64_t roi = divide(at, bins), place = at - roi * bins.divisor;
  int64_t image = indices[roi];
  int32_t row = (int32_t)divide(place, width);
  int32_t column = (int32_t)(place - row * width.divisor);
  const ROI* box = rois + 4 * roi;
  rabbet_roi_axis_t rows =
      rabbet_roi_axis(&p, 0, to_float(box[1]), to_float(box[3]));
  rabbet_roi_axis_t columns =
      rabbet_roi_axis(&p, 1, to_float(box[0]), to_float(box[2]));
  int64_t samples = (int64_t)rows.samples * columns.samples;
  bin_t bin;
  bin.stride = (int64_t)p.in[0] * p.in[1];
  bin.width = p.in[1];
  for (int64_t c = (int64_t)blockIdx.y * CHANNELS; c < p.channels;
       c += (int64_t)gridDim.y * CHANNELS) {
    int64_t left = p.channels - c, inside = 0;
    bin.channels = left < CHANNELS ? (int32_t)left : CHANNELS;
    for (int i = 0; i < CHANNELS; ++i)
      bin.values[i] = IS_MAX ? -INFINITE : 0.0f;
    if (image >= 0 && image < p.batch) {
      bin.x = x + (image * p.channels + c) * bin.stride;
      inside = add_samples(p, rows, row, columns, column, bin);
    }
#pragma unroll
    for (int i = 0; i < CHANNELS; ++i)
      if (i < bin.channels)
        y[(roi * p.channels + c + i) * bins.divisor + place] =
            from_float<T>(finish(bin.values[i], inside, samples));
  }
}
