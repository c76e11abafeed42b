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

#ifndef __cplusplus
// OUT_OF_RANGE unless the shapes of the operands (images, regions, and each
// region's image index) match: dynamic ones are checked at run time.
RABBET_PRIVATE_API rabbet_status_t rabbet_roi_align_read(
    const rabbet_attr_t* attrs, size_t attr_count, const rabbet_dims_t* in,
    const rabbet_dims_t* rois, const rabbet_dims_t* indices,
    rabbet_roi_align_t* out_align);
#endif

// Names of FLOAT; roi_align.c compiles the same once more, in DOUBLE.
#define RABBET_ROI_REAL float
#define RABBET_ROI(name) rabbet_roi_##name
#endif  // RABBET_SRC_OPS_IMAGE_ROI_ALIGN_H_

#ifdef RABBET_ROI_REAL

// A region along one axis, in elements of the input.
typedef struct RABBET_ROI(axis_t) {
  RABBET_ROI_REAL start, bin;  // where the first bin begins; the extent of each
  int32_t samples;             // of each bin
} RABBET_ROI(axis_t);

// The two elements that a sample lies between, and their weights.
typedef struct RABBET_ROI(sample_t) {
  int32_t low, high;
  RABBET_ROI_REAL low_weight, high_weight;
} RABBET_ROI(sample_t);

RABBET_ROI_INLINE int32_t RABBET_ROI(ceil)(RABBET_ROI_REAL x) {
  int32_t whole = (int32_t)x;
  return whole + ((RABBET_ROI_REAL)whole < x);
}

// Non-finite numbers give no samples, or samples outside. Bins of more than
// 2^24 elements have no samples: FLOAT cannot distinguish their positions.
RABBET_ROI_INLINE RABBET_ROI(axis_t)
    RABBET_ROI(axis)(const rabbet_roi_align_t* r, int axis,
                     RABBET_ROI_REAL from, RABBET_ROI_REAL to) {
  RABBET_ROI(axis_t) made;
  RABBET_ROI_REAL shift =
      r->half_pixel ? (RABBET_ROI_REAL)0.5 : (RABBET_ROI_REAL)0.0;
  made.start = RABBET_ROI_MUL(from, r->scale) - shift;
  RABBET_ROI_REAL extent = RABBET_ROI_MUL(to, r->scale) - shift - made.start;
  if (!r->half_pixel && extent < (RABBET_ROI_REAL)1.0)
    extent = (RABBET_ROI_REAL)1.0;
  made.bin = extent / (RABBET_ROI_REAL)r->out[axis];
  made.samples = r->ratio;
  if (r->ratio == 0)
    made.samples = made.bin > (RABBET_ROI_REAL)0.0 &&
                           made.bin <= (RABBET_ROI_REAL)16777216.0
                       ? RABBET_ROI(ceil)(made.bin)
                       : 0;
  return made;
}

RABBET_ROI_INLINE RABBET_ROI_REAL RABBET_ROI(position)(
    const RABBET_ROI(axis_t) * axis, int32_t bin, int32_t sample) {
  return axis->start + RABBET_ROI_MUL((RABBET_ROI_REAL)bin, axis->bin) +
         RABBET_ROI_MUL((RABBET_ROI_REAL)sample + (RABBET_ROI_REAL)0.5,
                        axis->bin) /
             (RABBET_ROI_REAL)axis->samples;
}

// Samples [first, last) of a bin are those that can be inside an axis of
// `extent` elements. Of a region far larger than the image they are few:
// adaptive samples lie more than half an element apart.
RABBET_ROI_INLINE int32_t RABBET_ROI(below)(const RABBET_ROI(axis_t) * axis,
                                            int32_t bin,
                                            RABBET_ROI_REAL position) {
  int32_t low = 0, high = axis->samples;
  while (low < high) {  // positions do not fall
    int32_t middle = low + (high - low) / 2;
    if (RABBET_ROI(position)(axis, bin, middle) < position)
      low = middle + 1;
    else
      high = middle;
  }
  return low;
}
RABBET_ROI_INLINE int32_t RABBET_ROI(first)(const RABBET_ROI(axis_t) * axis,
                                            int32_t bin) {
  if (axis->samples <= 8 || axis->bin <= (RABBET_ROI_REAL)0.0) return 0;
  return RABBET_ROI(below)(axis, bin, -(RABBET_ROI_REAL)1.0);
}
RABBET_ROI_INLINE int32_t RABBET_ROI(last)(const RABBET_ROI(axis_t) * axis,
                                           int32_t bin, int32_t extent) {
  if (axis->samples <= 8 || axis->bin <= (RABBET_ROI_REAL)0.0)
    return axis->samples;
  return RABBET_ROI(below)(axis, bin,
                           (RABBET_ROI_REAL)extent + (RABBET_ROI_REAL)1.0);
}

// False: outside of an axis of `extent` elements, at least one.
RABBET_ROI_INLINE int RABBET_ROI(sample)(const RABBET_ROI(axis_t) * axis,
                                         int32_t bin, int32_t sample,
                                         int32_t extent,
                                         RABBET_ROI(sample_t) * out_sample) {
  RABBET_ROI_REAL at = RABBET_ROI(position)(axis, bin, sample);
  if (!(at >= -(RABBET_ROI_REAL)1.0 && at <= (RABBET_ROI_REAL)extent)) return 0;
  if (at < (RABBET_ROI_REAL)0.0) at = (RABBET_ROI_REAL)0.0;
  int32_t low = (int32_t)at;
  if (low > extent - 1) low = extent - 1;
  if (low == extent - 1) at = (RABBET_ROI_REAL)low;
  out_sample->low = low;
  out_sample->high = low == extent - 1 ? low : low + 1;
  out_sample->high_weight = at - (RABBET_ROI_REAL)low;
  out_sample->low_weight = (RABBET_ROI_REAL)1.0 - out_sample->high_weight;
  return 1;
}

// The greater one; NaN if one is.
RABBET_ROI_INLINE RABBET_ROI_REAL RABBET_ROI(max)(RABBET_ROI_REAL a,
                                                  RABBET_ROI_REAL b) {
  return b > a || b != b ? b : a;
}

#undef RABBET_ROI_REAL
#undef RABBET_ROI
#endif
