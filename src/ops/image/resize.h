// Source positions and weights of a resized axis; shared with the devices.
#ifndef RABBET_SRC_OPS_IMAGE_RESIZE_H_
#define RABBET_SRC_OPS_IMAGE_RESIZE_H_

#include "ops/enums.h"
#include "ops/op.h"

enum { RABBET_RESIZE_TAPS = 4 };
// Operand 2 holds scales in units of 2^-40, since shape values are integers.
#define RABBET_RESIZE_SCALE_UNIT 0x1p-40

// An element of the output is the sum, over all axes, of `taps` elements of the
// input for each axis, weighted.
typedef struct rabbet_resize_axis_t {
  int64_t in, out;
  int taps;      // 1: an element is chosen; 2; 4
  bool is_same;  // the axis is left as it is
  // FLOAT numbers, but for a tensor of DOUBLE.
  double scale;
  double start, end;  // of the input's part that is taken, as fractions (CROP)
} rabbet_resize_axis_t;

typedef struct rabbet_resize_t {
  rabbet_interpolation_t mode;
  rabbet_coordinate_t coordinate;
  rabbet_selector_t selector;
  rabbet_round_t rounding;
  bool exclude_outside;
  double cubic;
  double outside;  // CROP: value at positions outside the input
  int32_t rank;
  rabbet_resize_axis_t axes[RABBET_MAX_RANK];
} rabbet_resize_t;

// From attributes and operands (host data), for known shapes. OUT_OF_RANGE if
// the input is empty and the output is not.
RABBET_PRIVATE_API rabbet_status_t
rabbet_resize_read(const rabbet_op_eval_t* eval, rabbet_resize_t* out_resize);
// For each of the axis's `out` elements, `taps` positions in the input, in [0,
// in), and their weights. NaN in place of the first weight: the element is
// outside.
RABBET_PRIVATE_API void rabbet_resize_table(const rabbet_resize_t* resize,
                                            int32_t axis, int32_t* positions,
                                            float* weights);

#endif  // RABBET_SRC_OPS_IMAGE_RESIZE_H_
