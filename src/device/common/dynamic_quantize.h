// Functions that kernels of dynamic_quantize share.
#ifndef RABBET_SRC_DEVICE_COMMON_DYNAMIC_QUANTIZE_H_
#define RABBET_SRC_DEVICE_COMMON_DYNAMIC_QUANTIZE_H_

#include "device/common/node_kernel.h"

// A tensor divided into blocks, with axes merged as far as the blocks allow.
// Blocks are numbered in row-major order, like their scales.
typedef struct rabbet_quantize_boxes_t {
  int32_t rank;                     // at least 1
  int64_t dims[RABBET_MAX_RANK];    // elements
  int64_t blocks[RABBET_MAX_RANK];  // of a block
  int64_t counts[RABBET_MAX_RANK];  // blocks
  int64_t strides[RABBET_MAX_RANK];
  int64_t count;  // of all blocks
  // Elements of a full block. 0: the tensor is empty, and only `count` is
  // valid; scales of empty blocks are written, too.
  int64_t elements;
} rabbet_quantize_boxes_t;

// Offers the layer, LINEAR and in the network's types.
rabbet_status_t rabbet_dynamic_quantize_propose(
    const rabbet_propose_t* propose, rabbet_candidate_sink_t sink,
    const rabbet_kernel_class_t* kernel);
// Checks the types of the boundary, as those in a plan may be invalid.
rabbet_status_t rabbet_dynamic_quantize_check_types(
    const rabbet_group_t* group, const rabbet_group_node_t* node);
// For known dims of input 0; errors name the layer.
rabbet_status_t rabbet_dynamic_quantize_boxes(
    const rabbet_group_node_t* node, const rabbet_dims_t* x,
    rabbet_quantize_boxes_t* out_boxes);

#endif  // RABBET_SRC_DEVICE_COMMON_DYNAMIC_QUANTIZE_H_
