// Sample positions of grid_sample, for its reference and the CPU's kernels.
#ifndef RABBET_SRC_OPS_IMAGE_GRID_SAMPLE_H_
#define RABBET_SRC_OPS_IMAGE_GRID_SAMPLE_H_

#include "ops/enums.h"
#include "ops/op.h"

enum { RABBET_GRID_AXES = 3, RABBET_GRID_TAPS = 16 };

typedef struct rabbet_grid_sample_t {
  rabbet_interpolation_t mode;
  rabbet_sample_mode_t outside;  // FILL, CLAMP, REFLECT
  bool align_corners;
  int32_t spatial;                    // axes: 2 or 3
  int64_t extent[RABBET_GRID_AXES];   // of the input: depth, height, width
  int64_t strides[RABBET_GRID_AXES];  // elements of one channel
} rabbet_grid_sample_t;

// A sample: a weighted sum of elements of a channel. Elements outside of the
// input that count as 0 are omitted.
typedef struct rabbet_grid_taps_t {
  int count;
  int64_t offset[RABBET_GRID_TAPS];
  float weight[RABBET_GRID_TAPS];
} rabbet_grid_taps_t;

RABBET_PRIVATE_API void rabbet_grid_sample_read(
    const rabbet_attr_t* attrs, size_t attr_count, const rabbet_dims_t* in,
    rabbet_grid_sample_t* out_sample);
// OUT_OF_RANGE unless the shapes of input and grid match: dynamic dimensions
// are checked at run time.
RABBET_PRIVATE_API rabbet_status_t
rabbet_grid_sample_check(const rabbet_dims_t* in, const rabbet_dims_t* grid);
// `point`: coordinates of the grid, width first, then height.
RABBET_PRIVATE_API void rabbet_grid_sample_find(
    const rabbet_grid_sample_t* sample, const float* point,
    rabbet_grid_taps_t* out_taps);

#endif  // RABBET_SRC_OPS_IMAGE_GRID_SAMPLE_H_
