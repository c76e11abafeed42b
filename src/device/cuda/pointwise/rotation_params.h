// Parameters of the kernels of rotation.cu. C and CUDA C++.
#pragma once

#include "device/cuda/reduction/axes_params.h"

typedef struct rotation_t {
  axes_t outer;      // input, cosines, sines; a position for each row
  divider_t items;   // vectors of a row: of the rotated part, then of the rest
  uint32_t count;    // items of all rows
  uint32_t rotated;  // items of a row's rotated part
  uint32_t
      is_whole;  // tables have a number for each element, else for each pair
  uint32_t width, size;
} rotation_t;
