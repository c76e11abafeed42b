// A normalization layer, decoded for kernels.
#ifndef RABBET_SRC_DEVICE_COMMON_NORMALIZATION_H_
#define RABBET_SRC_DEVICE_COMMON_NORMALIZATION_H_

#include "device/common/axes.h"
#include "device/common/node_kernel.h"

// The layer's operands, and those of its axes.
enum {
  RABBET_NORMALIZE_INPUT = 0,
  RABBET_NORMALIZE_SCALE = 1,
  RABBET_NORMALIZE_BIAS = 2,
};

typedef struct rabbet_normalization_t {
  const rabbet_group_node_t* node;
  const rabbet_dims_t* x;
  int64_t groups;  // of channels
  int64_t mask;    // bits of the logical axes that a mean is over
  bool by_group;   // scale and bias have one number per group
  bool is_rms;     // the mean is taken as 0
  // Strides of scale and bias along the logical axes of the input; broadcast
  // axes have 0.
  int64_t strides[RABBET_AXES_OPERANDS][RABBET_MAX_RANK];
} rabbet_normalization_t;

// Reads the group's first node; `dims` are those of the group's values, by
// their numbers, and are borrowed. OUT_OF_RANGE where channels do not divide
// into groups or an operand does not broadcast.
rabbet_status_t rabbet_normalization_read(const rabbet_group_t* group,
                                          const rabbet_dims_t* dims,
                                          rabbet_normalization_t* out);

// Splits the channel axis of a group normalization in two: groups outside, the
// channels of a group inside. A step along the axis, with `strides`, is `step`
// channels (the channels of a block).
void rabbet_normalization_split(const rabbet_normalization_t* layer,
                                int64_t step,
                                const int64_t strides[RABBET_AXES_OPERANDS],
                                int64_t out_outside[RABBET_AXES_OPERANDS],
                                int64_t out_inside[RABBET_AXES_OPERANDS]);

#endif  // RABBET_SRC_DEVICE_COMMON_NORMALIZATION_H_
