// An image whose patches are the rows of a product (image/patches.cuh). C and
// CUDA C++.
#pragma once

#include "device/cuda/programs/index.h"

// Strides in elements. A patch consists of runs of contiguous elements; some
// runs make a plane.
typedef struct patches_t {
  const void* bias;            // of each column; NULL: none
  divider_t across, down;      // patches of a row of patches, rows of an image
  int64_t image, line, pixel;  // strides from patch to patch
  divider_t run, runs;         // elements of a run, runs of a plane
  int64_t plane, step;         // strides from plane to plane, run to run
  int32_t length;              // elements of a patch
  int32_t is_whole;            // chunks are contiguous and aligned
} patches_t;
