// Where RoiAlign samples an image. C and CUDA C++ (which has the fixed-width
// types and no math.h): all devices round coordinates alike, so that they agree
// on which samples lie outside.
#ifndef RABBET_SRC_OPS_IMAGE_ROI_ALIGN_H_
#define RABBET_SRC_OPS_IMAGE_ROI_ALIGN_H_

#ifdef __cplusplus
#define RABBET_ROI_INLINE static __device__ __forceinline__
// Never contracted to a fused multiply-add, which rounds differently from other
// devices.
#define RABBET_ROI_MUL(a, b) __fmul_rn(a, b)
#else
#include <math.h>

#include "ops/op.h"
#define RABBET_ROI_INLINE static inline
#define RABBET_ROI_MUL(a, b) ((a) * (b))
#endif

// Extents are those of height and width. The kernel on CUDA has it as
// parameter.
typedef struct rabbet_roi_align_t {
  int64_t rois, batch, channels;
  int32_t in[2], out[2];
  int32_t ratio;  // samples of a bin along an axis; 0: one for each element
  int32_t half_pixel;  // whether element 0 has its centre at 0.5
  int32_t is_max;
  float scale;
} rabbet_roi_align_t;

// A region along one axis, in elements of the input.
typedef struct rabbet_roi_axis_t {
  float start, bin;  // where the first bin begins; the extent of each
  int32_t samples;   // of each bin
} rabbet_roi_axis_t;

// The two elements that a sample lies between, and their weights.
typedef struct rabbet_roi_sample_t {
  int32_t low, high;
  float low_weight, high_weight;
} rabbet_roi_sample_t;

// Non-finite numbers give no samples, or samples outside. Bins of more than
// 2^24 elements have no samples: FLOAT cannot distinguish their positions.
RABBET_ROI_INLINE rabbet_roi_axis_t rabbet_roi_axis(const rabbet_roi_align_t* r,
                                                    int axis, float from,
                                                    float to) {
  rabbet_roi_axis_t made;
  float shift = r->half_pixel ? 0.5f : 0.0f;
  made.start = RABBET_ROI_MUL(from, r->scale) - shift;
  float extent = RABBET_ROI_MUL(to, r->scale) - shift - made.start;
  if (!r->half_pixel && extent < 1.0f) extent = 1.0f;
  made.bin = extent / (float)r->out[axis];
  made.samples = r->ratio;
  if (r->ratio == 0)
    made.samples = made.bin > 0.0f && made.bin <= 16777216.0f
                       ? (int32_t)ceilf(made.bin)
                       : 0;
  return made;
}

RABBET_ROI_INLINE float rabbet_roi_position(const rabbet_roi_axis_t* axis,
                                            int32_t bin, int32_t sample) {
  return axis->start + RABBET_ROI_MUL((float)bin, axis->bin) +
         RABBET_ROI_MUL((float)sample + 0.5f, axis->bin) / (float)axis->samples;
}

// Samples [first, last) of a bin are those that can be inside an axis of
// `extent` elements. Of a region far larger than the image they are few:
// adaptive samples lie more than half an element apart.
RABBET_ROI_INLINE int32_t rabbet_roi_below(const rabbet_roi_axis_t* axis,
                                           int32_t bin, float position) {
  int32_t low = 0, high = axis->samples;
  while (low < high) {  // positions do not fall
    int32_t middle = low + (high - low) / 2;
    if (rabbet_roi_position(axis, bin, middle) < position)
      low = middle + 1;
    else
      high = middle;
  }
  return low;
}
RABBET_ROI_INLINE int32_t rabbet_roi_first(const rabbet_roi_axis_t* axis,
                                           int32_t bin) {
  if (axis->samples <= 8 || axis->bin <= 0.0f) return 0;
  return rabbet_roi_below(axis, bin, -1.0f);
}
RABBET_ROI_INLINE int32_t rabbet_roi_last(const rabbet_roi_axis_t* axis,
                                          int32_t bin, int32_t extent) {
  if (axis->samples <= 8 || axis->bin <= 0.0f) return axis->samples;
  return rabbet_roi_below(axis, bin, (float)extent + 1.0f);
}

// False: outside of an axis of `extent` elements, at least one.
RABBET_ROI_INLINE int rabbet_roi_sample(const rabbet_roi_axis_t* axis,
                                        int32_t bin, int32_t sample,
                                        int32_t extent,
                                        rabbet_roi_sample_t* out_sample) {
  float at = rabbet_roi_position(axis, bin, sample);
  if (!(at >= -1.0f && at <= (float)extent)) return 0;
  if (at < 0.0f) at = 0.0f;
  int32_t low = (int32_t)at;
  if (low > extent - 1) low = extent - 1;
  if (low == extent - 1) at = (float)low;
  out_sample->low = low;
  out_sample->high = low == extent - 1 ? low : low + 1;
  out_sample->high_weight = at - (float)low;
  out_sample->low_weight = 1.0f - out_sample->high_weight;
  return 1;
}

// The greater one; NaN if one is.
RABBET_ROI_INLINE float rabbet_roi_max(float a, float b) {
  return b > a || b != b ? b : a;
}

#ifndef __cplusplus
// OUT_OF_RANGE unless the shapes of the operands (images, regions, and each
// region's image index) match: dynamic ones are checked at run time.
RABBET_PRIVATE_API rabbet_status_t rabbet_roi_align_read(
    const rabbet_attr_t* attrs, size_t attr_count, const rabbet_dims_t* in,
    const rabbet_dims_t* rois, const rabbet_dims_t* indices,
    rabbet_roi_align_t* out_align);
#endif

#endif  // RABBET_SRC_OPS_IMAGE_ROI_ALIGN_H_
