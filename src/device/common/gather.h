#ifndef RABBET_SRC_DEVICE_COMMON_GATHER_H_
#define RABBET_SRC_DEVICE_COMMON_GATHER_H_

#include "device/common/node_kernel.h"

// Checks extents that are dynamic during inference: those of data and indices
// must be equal or, for ELEMENT, those of the data at least those of the
// indices.
rabbet_status_t rabbet_gather_check(const rabbet_group_node_t* node,
                                    const rabbet_dims_t* data,
                                    const rabbet_dims_t* indices);

#endif  // RABBET_SRC_DEVICE_COMMON_GATHER_H_
