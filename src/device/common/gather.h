#ifndef RABBET_SRC_DEVICE_COMMON_GATHER_H_
#define RABBET_SRC_DEVICE_COMMON_GATHER_H_

#include "device/common/node_kernel.h"

// Checks the extents of a gather that inference could not: they must be equal
// or, for ELEMENT, at least those of the indices.
rabbet_status_t rabbet_gather_check(const rabbet_group_node_t* node,
                                    const rabbet_dims_t* data,
                                    const rabbet_dims_t* indices);

#endif  // RABBET_SRC_DEVICE_COMMON_GATHER_H_
