// Parameters of the kernels in resize.cu. C and CUDA C++.
#pragma once

#include "device/cuda/programs/index.h"

#define RESIZE_AXES 9

// A resized axis. Its tables have `taps` positions and weights for each element
// of the output.
typedef struct resize_axis_t {
  divisor_t out;
  int64_t stride;  // elements of the input
  int64_t table;
  int32_t taps, reserved;
} resize_axis_t;

// The output is (outer, axes..., inner).
typedef struct resize_t {
  int64_t items;  // threads with work
  int64_t inner;  // elements
  int64_t in_plane, out_plane;
  divisor_t pieces;  // threads along the last axis, or inside of it
  float outside;
  int32_t rank;
  resize_axis_t axes[RESIZE_AXES];
} resize_t;
