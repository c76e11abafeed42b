// Reductions of an update with an element. Shared with the devices.
#ifndef RABBET_SRC_OPS_MOVEMENT_SCATTER_H_
#define RABBET_SRC_OPS_MOVEMENT_SCATTER_H_

#include <stdint.h>

#include "ops/enums.h"

// Any reduction but NONE. Minimum and maximum propagate NaN.
static inline double rabbet_scatter_join(int64_t reduction, double a,
                                         double b) {
  switch (reduction) {
    case RABBET_SCATTER_REDUCTION_ADD:
      return a + b;
    case RABBET_SCATTER_REDUCTION_MUL:
      return a * b;
    case RABBET_SCATTER_REDUCTION_MIN:
      return b < a || b != b ? b : a;
    default:
      return b > a || b != b ? b : a;
  }
}

// Sums and products wrap around.
static inline int64_t rabbet_scatter_join_int64(int64_t reduction, int64_t a,
                                                int64_t b) {
  switch (reduction) {
    case RABBET_SCATTER_REDUCTION_ADD:
      return (int64_t)((uint64_t)a + (uint64_t)b);
    case RABBET_SCATTER_REDUCTION_MUL:
      return (int64_t)((uint64_t)a * (uint64_t)b);
    case RABBET_SCATTER_REDUCTION_MIN:
      return b < a ? b : a;
    default:
      return b > a ? b : a;
  }
}

#endif  // RABBET_SRC_OPS_MOVEMENT_SCATTER_H_
