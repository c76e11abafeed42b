// Parameters of the kernels of rotation.cu and cached_rotation.cu. C and CUDA
// C++.
#pragma once

#include "device/cuda/reduction/axes_params.h"

typedef struct turns_t {
  uint32_t size;  // elements of a row that are rotated
  uint32_t
      is_whole;  // tables have a number for each element, else for each pair
} turns_t;

typedef struct rotation_t {
  axes_t outer;      // input, cosines, sines; a position for each row
  divider_t items;   // vectors of a row: of the rotated part, then of the rest
  uint32_t count;    // items of all rows
  uint32_t rotated;  // items of a row's rotated part
  uint32_t width;
  turns_t turns;
} rotation_t;

// Rows are heads: of queries, keys and values of one token after the other.
typedef struct cached_rotation_t {
  divider_t items;   // vectors of a head: of its rotated part, then the rest
  divider_t heads;   // of queries, keys and values
  divider_t steps;   // tokens of an element of the batch
  uint32_t count;    // items of all heads
  uint32_t rotated;  // items of a head's rotated part
  uint32_t queries, keys;  // heads
  uint32_t width;
  turns_t turns;
  int64_t extent;         // rows of a cache for each head
  int64_t strides[2][2];  // of cosines and sines: batch, step
  int32_t indices;        // bytes of an index; 0: without indices
  int32_t circular;
} cached_rotation_t;
