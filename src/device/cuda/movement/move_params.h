// Parameters of the kernels in move.cu. C and CUDA C++.
#pragma once

#include "device/cuda/programs/index.h"

#define MOVE_AXES 16
#define MOVE_AXES_SMALL 4  // that kernels for small tensors know
// Of 16 bytes, for each thread.
#define MOVE_PIECES 4
#define MOVE_PIECES_LARGE 2
#define MOVE_ELEMENTS 8  // for each thread, without neighbours

// Contents of a row before and behind the positions of the source: elements
// from anywhere, neighbours of which some lie there, filled ones.
#define MOVE_SIDES_MIXED 0
#define MOVE_SIDES_NEIGHBOURS 1
#define MOVE_SIDES_FILLED 2

// An axis of the output: over positions start + i * step of the source, which
// the mode brings into [0, in) where they are not; -1 stands for the fill
// value.
typedef struct move_axis_t {
  divisor_t extent;
  int64_t source;  // elements from one position to the next
  int64_t start, step, in;
  // Maps positions below 0, and from `in` on, that are at most one period away:
  // position * factor + add.
  int32_t low_factor, low_add, high_factor, high_add;
  int32_t is_whole;  // every position is taken, in order
  int32_t reserved;
} move_axis_t;

// A dense output; axes from the innermost outwards.
typedef struct move_t {
  int64_t count;   // elements of the output
  int64_t offset;  // of the source
  int64_t size;    // elements of the source
  divisor_t row;   // elements: the first axis and what lies behind it
  divisor_t unit;  // elements that lie together, behind the first axis
  int32_t rank;
  int32_t mode;  // as rabbet_sample_mode_t
  // The first axis and its units have no gaps in the source: elements of a row
  // lie `shift` further there; those below `low` and from `high` on, the sides,
  // as far as their own shifts say.
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

// Few elements side by side, up to MOVE_FEW_MOST, on one side or both: a thread
// takes vectors of 16 bytes. Strides are in vectors.
#define MOVE_FEW_MOST 4
typedef struct few_t {
  int32_t count;      // threads
  int32_t rank;       // the other axes, from the innermost outwards
  divisor_t vectors;  // threads along the long axis
  int64_t source_vector, target_vector;  // from a thread's place to the next's
  int64_t plane;  // from one of the few to the next where they lie apart
  int64_t start;  // of the source
  int32_t phase;  // of every second element
  int32_t reserved;
  divisor_t extent[MOVE_AXES];
  int64_t source[MOVE_AXES], target[MOVE_AXES];
} few_t;
