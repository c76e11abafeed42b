// Geometry of `cached_rotation`, for its reference and the devices' kernels.
#ifndef RABBET_SRC_OPS_POINTWISE_CACHED_ROTATION_H_
#define RABBET_SRC_OPS_POINTWISE_CACHED_ROTATION_H_

#include "core/view.h"
#include "rabbet/attr.h"

enum {
  RABBET_CACHED_INPUT = 0,
  RABBET_CACHED_KEYS = 1,
  RABBET_CACHED_VALUES = 2,
  RABBET_CACHED_COSINES = 3,
  RABBET_CACHED_SINES = 4,
  RABBET_CACHED_INDICES = 5,
  RABBET_CACHED_OPERANDS = 6,
};

typedef struct rabbet_cached_rotation_t {
  int64_t batch, steps;
  int64_t queries, keys;  // heads
  int64_t width;          // elements of a head
  int64_t size;           // elements of it that are rotated, an even number
  int64_t extent;         // of the caches
  bool interleaved;
  bool is_whole;  // tables have a number for each element, else for each pair
  int64_t strides[2][2];  // of cosines and sines: batch, step; 0: broadcast
} rabbet_cached_rotation_t;

// OUT_OF_RANGE where shapes do not fit. `indices` may be NULL.
RABBET_PRIVATE_API rabbet_status_t rabbet_cached_rotation_read(
    const rabbet_attr_t* attrs, size_t attr_count,
    const rabbet_dims_t* const operands[RABBET_CACHED_OPERANDS],
    rabbet_cached_rotation_t* out_rotation);

#endif  // RABBET_SRC_OPS_POINTWISE_CACHED_ROTATION_H_
