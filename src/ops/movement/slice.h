// Source positions of a slice's elements; shared with the devices.
#ifndef RABBET_SRC_OPS_MOVEMENT_SLICE_H_
#define RABBET_SRC_OPS_MOVEMENT_SLICE_H_

#include "ops/enums.h"
#include "ops/op.h"

// Output element at[] is input element start + at * stride on each axis.
typedef struct rabbet_slice_t {
  rabbet_sample_mode_t mode;
  int32_t rank;
  int64_t start[RABBET_MAX_RANK];
  int64_t stride[RABBET_MAX_RANK];
} rabbet_slice_t;

// For known shapes; start, stride and axes come from `eval`'s attributes or
// from its inputs 1, 3 and 5 (host memory). OUT_OF_RANGE if STRICT_BOUNDS reads
// outside, or if a mode that needs elements finds none.
RABBET_PRIVATE_API rabbet_status_t
rabbet_slice_resolve(const rabbet_op_eval_t* eval, rabbet_slice_t* out_slice);

// A position on an axis brought into [0, extent); -1: the fill value.
static inline int64_t rabbet_slice_position(rabbet_sample_mode_t mode,
                                            int64_t position, int64_t extent) {
  if (position >= 0 && position < extent) return position;
  switch (mode) {
    case RABBET_SAMPLE_WRAP:
      position %= extent;
      return position < 0 ? position + extent : position;
    case RABBET_SAMPLE_CLAMP:
      return position < 0 ? 0 : extent - 1;
    case RABBET_SAMPLE_REFLECT: {
      // Mirrored at the centres of the first and last elements.
      if (extent == 1) return 0;
      int64_t period = 2 * (extent - 1);
      position %= period;
      if (position < 0) position += period;
      return position < extent ? position : period - position;
    }
    default:
      return -1;
  }
}

#endif  // RABBET_SRC_OPS_MOVEMENT_SLICE_H_
