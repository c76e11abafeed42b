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
  int64_t before;       // from the first patch of an image to its first pixel
  divider_t run, runs;  // elements of a run, runs of a plane
  int64_t plane, step;  // strides from plane to plane, run to run
  int32_t length;       // elements of a patch
  int32_t is_whole;     // chunks are contiguous and aligned
  divider_t tiles;      // of a group's columns
  int32_t columns;      // of a group
  int32_t channels;     // of a group: the stride from group to group
  // Of windows that reach beyond the image, by axis: the image's extents, what
  // is padded before it, and strides.
  int32_t extent[2], pre[2], stride[2], dilation[2];
} patches_t;
