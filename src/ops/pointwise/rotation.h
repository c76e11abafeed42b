// Geometry of `rotation`, for its reference and the devices' kernels.
#ifndef RABBET_SRC_OPS_POINTWISE_ROTATION_H_
#define RABBET_SRC_OPS_POINTWISE_ROTATION_H_

#include "core/view.h"
#include "rabbet/attr.h"

enum {
  RABBET_ROTATION_INPUT = 0,
  RABBET_ROTATION_COSINES = 1,
  RABBET_ROTATION_SINES = 2,
  RABBET_ROTATION_OPERANDS = 3,
};

typedef struct rabbet_rotation_t {
  int64_t width;  // of the last axis
  int64_t size;   // elements of it that are rotated, an even number
  bool interleaved;
  bool is_whole;  // tables have a number for each element, else for each pair
  // Of the axes before the last one; strides in elements, 0 where a table is
  // broadcast.
  rabbet_dims_t outer;
  int64_t strides[RABBET_ROTATION_OPERANDS][RABBET_MAX_RANK];
} rabbet_rotation_t;

// OUT_OF_RANGE where shapes do not fit.
RABBET_PRIVATE_API rabbet_status_t rabbet_rotation_read(
    const rabbet_attr_t* attrs, size_t attr_count, const rabbet_dims_t* x,
    const rabbet_dims_t* cosines, const rabbet_dims_t* sines,
    rabbet_rotation_t* out_rotation);

// The places of pair `i` in a row.
static inline int64_t rabbet_rotation_first(const rabbet_rotation_t* r,
                                            int64_t i) {
  return r->interleaved ? 2 * i : i;
}
static inline int64_t rabbet_rotation_second(const rabbet_rotation_t* r,
                                             int64_t i) {
  return r->interleaved ? 2 * i + 1 : i + r->size / 2;
}

#endif  // RABBET_SRC_OPS_POINTWISE_ROTATION_H_
