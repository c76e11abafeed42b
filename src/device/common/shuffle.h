// Transpose, reshape, transpose as strided moves.
#ifndef RABBET_SRC_DEVICE_COMMON_SHUFFLE_H_
#define RABBET_SRC_DEVICE_COMMON_SHUFFLE_H_

#include "device/common/box.h"
#include "device/common/node_kernel.h"

// Strides in elements.
typedef struct rabbet_shuffle_step_t {
  int32_t rank;
  int64_t extents[RABBET_BOX_AXES];
  int64_t sources[RABBET_BOX_AXES];
  int64_t targets[RABBET_BOX_AXES];
} rabbet_shuffle_step_t;

// One strided move if strides can express it, otherwise two with a tensor in
// the workspace between them. No move if there are no elements.
typedef struct rabbet_shuffle_t {
  int64_t size;  // bytes of an element
  size_t step_count;
  rabbet_shuffle_step_t steps[2];
  size_t workspace;
} rabbet_shuffle_t;

// The moves of the kernel's node with its formats, for known dims. Errors name
// shapes that do not match or are padded.
rabbet_status_t rabbet_shuffle_resolve(const rabbet_node_kernel_t* kernel,
                                       const rabbet_dims_t* dims,
                                       rabbet_shuffle_t* out_shuffle);
// Whether the memory does not change: a LINEAR reshape.
bool rabbet_shuffle_is_reshape(const rabbet_group_node_t* node,
                               rabbet_format_t from, rabbet_format_t to);

#endif  // RABBET_SRC_DEVICE_COMMON_SHUFFLE_H_
