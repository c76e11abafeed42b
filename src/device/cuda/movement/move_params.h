// Parameters of the kernels in move.cu. C and CUDA C++.
#pragma once

#include "device/cuda/programs/index.h"

#define MOVE_AXES 16
#define MOVE_AXES_SMALL 4  // the most axes of kernels with 32-bit indices
// Pieces of 16 bytes that a thread writes.
#define MOVE_PIECES 4
#define MOVE_PIECES_LARGE 2
#define MOVE_ELEMENTS 8  // for each thread, without neighbours

// Positions of a row before and behind the contiguous ones of the source:
// elements from anywhere, contiguous elements, or the fill value.
#define MOVE_SIDES_MIXED 0
#define MOVE_SIDES_NEIGHBOURS 1
#define MOVE_SIDES_FILLED 2

// An axis of the output. Element i comes from position start + i * step of the
// source; the mode maps positions outside [0, in) into it, or to -1, the fill
// value.
typedef struct move_axis_t {
  divisor_t extent;
  int64_t source;  // elements from one position to the next
  int64_t start, step, in;
  // Maps positions below 0, and from `in` on, that are at most one period away:
  // position * factor + add.
  int32_t low_factor, low_add, high_factor, high_add;
  int32_t is_whole;  // start is 0, step 1, and all positions are inside
  int32_t reserved;
} move_axis_t;

// A dense output; axes from the innermost outwards.
typedef struct move_t {
  int64_t count;   // elements of the output
  int64_t offset;  // of the source
  int64_t size;    // elements of the source
  divisor_t row;   // elements of the first axis, with their units
  divisor_t unit;  // contiguous elements at each position of the first axis
  int32_t rank;
  int32_t mode;  // as rabbet_sample_mode_t
  // The first axis and its units have no gaps in the source: an element of a
  // row lies `shift` further in the source than in the row. Elements below
  // `low` and from `high` on, the sides, have shifts of their own.
  int32_t is_joined;
  int32_t sides;
  int64_t low, high, shift, low_shift, high_shift;
  move_axis_t axes[MOVE_AXES];
} move_t;

// A transpose: axis a is contiguous in the source, b in the target.
typedef struct tiles_t {
  int64_t a, b;          // extents
  int64_t source_b;      // elements from one b to the next in the source
  int64_t target_a;      // from one a to the next in the target
  int32_t log_a, log_b;  // of a tile
  int32_t pitch;         // elements from one b to the next in shared memory
  divisor_t tiles_a, tiles_b;
  int32_t rank;  // the other axes, from the innermost outwards
  divisor_t extent[MOVE_AXES];
  int64_t source[MOVE_AXES], target[MOVE_AXES];
} tiles_t;

// Transposes whose shorter axis has at most MOVE_FEW_MOST elements: a thread
// moves vectors of 16 bytes. Strides are in vectors.
#define MOVE_FEW_MOST 4
typedef struct few_t {
  int32_t count;      // threads
  int32_t rank;       // the other axes, from the innermost outwards
  divisor_t vectors;  // threads along the long axis
  int64_t source_vector, target_vector;  // from a thread's place to the next's
  int64_t plane;  // along the short axis, on the side where it has a stride
  int64_t start;  // of the source
  int32_t phase;  // of every second element
  int32_t reserved;
  divisor_t extent[MOVE_AXES];
  int64_t source[MOVE_AXES], target[MOVE_AXES];
} few_t;
