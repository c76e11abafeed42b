// Functions that kernels of mixtures of experts share.
#ifndef RABBET_SRC_DEVICE_COMMON_MOE_H_
#define RABBET_SRC_DEVICE_COMMON_MOE_H_

#include "device/common/node_kernel.h"
#include "ops/products/moe.h"

// Offers the layer, LINEAR, in the network's types and those it allows besides.
rabbet_status_t rabbet_moe_propose(const rabbet_propose_t* propose,
                                   rabbet_candidate_sink_t sink,
                                   const rabbet_kernel_class_t* kernel);
// For known dims of the group's values; errors name the layer.
rabbet_status_t rabbet_moe_resolve_node(const rabbet_group_node_t* node,
                                        const rabbet_dims_t* dims,
                                        rabbet_moe_sizes_t* out_sizes);
// Checks the types of all operands, as those in a plan may be invalid.
rabbet_status_t rabbet_moe_check_types(const rabbet_group_t* group,
                                       const rabbet_group_node_t* node);
// Reserves room for a x b elements of `size` bytes in a workspace of *total
// bytes so far, aligned to `alignment`. False if the size overflows.
bool rabbet_moe_reserve(size_t alignment, int64_t a, int64_t b, size_t size,
                        size_t* total, size_t* out_place);

#endif  // RABBET_SRC_DEVICE_COMMON_MOE_H_
