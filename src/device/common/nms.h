// Functions that kernels of non-maximum suppression share.
#ifndef RABBET_SRC_DEVICE_COMMON_NMS_H_
#define RABBET_SRC_DEVICE_COMMON_NMS_H_

#include "device/common/node_kernel.h"
#include "ops/selection/nms.h"

// For known dims of the group's values; errors name the layer.
rabbet_status_t rabbet_nms_resolve_node(const rabbet_node_kernel_t* kernel,
                                        const rabbet_kernel_shapes_t* shapes,
                                        rabbet_nms_t* out_nms);

#endif  // RABBET_SRC_DEVICE_COMMON_NMS_H_
