// Tensors as boxes of elements in memory, and moves between two of them.
#ifndef RABBET_SRC_DEVICE_COMMON_BOX_H_
#define RABBET_SRC_DEVICE_COMMON_BOX_H_

#include "core/view.h"

// The most axes of a box. A blocked format splits one axis of the tensor in
// two.
enum { RABBET_BOX_AXES = 2 * RABBET_MAX_RANK };

// The logical axes of a tensor in its memory, outermost logical axis first;
// the channels of a blocked format are two axes, blocks and within a block.
typedef struct rabbet_box_t {
  int32_t rank;
  int32_t axis[RABBET_BOX_AXES];  // logical
  int64_t extent[RABBET_BOX_AXES];
  int64_t stride[RABBET_BOX_AXES];  // elements
} rabbet_box_t;
// False where the format pads these dims, or they have too few axes for it.
bool rabbet_box(const rabbet_dims_t* dims, rabbet_format_t format,
                rabbet_box_t* out_box);

// A move of elements between two strided layouts. A unit is contiguous in both.
// Axes are sorted from the outermost to the innermost one of the target.
typedef struct rabbet_strided_t {
  int64_t unit;  // bytes; 0: the boxes are empty
  int32_t rank;
  int64_t extent[RABBET_BOX_AXES];  // more than 1
  int64_t source[RABBET_BOX_AXES];  // strides in bytes
  int64_t target[RABBET_BOX_AXES];
} rabbet_strided_t;

// Merges axes where strides allow it. Strides are in elements of `size` bytes.
// Strides of the source may be 0 or negative; elements of the target are
// distinct.
void rabbet_strided_plan(int32_t rank, const int64_t* extents,
                         const int64_t* sources, const int64_t* targets,
                         int64_t size, rabbet_strided_t* out_move);

#endif  // RABBET_SRC_DEVICE_COMMON_BOX_H_
