// Functions that kernels of kv_cache_update share.
#ifndef RABBET_SRC_DEVICE_COMMON_KV_CACHE_H_
#define RABBET_SRC_DEVICE_COMMON_KV_CACHE_H_

#include "device/common/node_kernel.h"
#include "ops/movement/kv_cache.h"

// Offers the layer, LINEAR and in the network's types, with its output in the
// cache's memory.
rabbet_status_t rabbet_kv_cache_propose(const rabbet_propose_t* propose,
                                        rabbet_candidate_sink_t sink,
                                        const rabbet_kernel_class_t* kernel);
// Checks the types of the boundary, as those in a plan may be invalid.
rabbet_status_t rabbet_kv_cache_check_types(const rabbet_group_t* group,
                                            const rabbet_group_node_t* node);
// For known shapes; errors name the layer.
rabbet_status_t rabbet_kv_cache_resolve_node(const rabbet_group_node_t* node,
                                             const rabbet_dims_t* dims,
                                             rabbet_kv_cache_rows_t* out_rows);

#endif  // RABBET_SRC_DEVICE_COMMON_KV_CACHE_H_
