// Functions that kernel classes for plugin layers share.
#ifndef RABBET_SRC_DEVICE_PLUGIN_KERNEL_H_
#define RABBET_SRC_DEVICE_PLUGIN_KERNEL_H_

#include "device/device.h"

// Offers `kernel` in each combination and tactic of the group's plugin, if the
// group is one plugin layer that can run in that way (one bit
// RABBET_PLUGIN_...) on the device.
RABBET_PRIVATE_API rabbet_status_t rabbet_plugin_propose_kind(
    const rabbet_propose_t* propose, rabbet_candidate_sink_t sink,
    const rabbet_kernel_class_t* kernel, uint32_t kind);
// Describes a plugin layer's inputs, then outputs, to its plugin, in `tensors`,
// which has room for all of them. Dynamic dimensions are -1; an omitted input
// has no type.
RABBET_PRIVATE_API void rabbet_plugin_query_node(
    const rabbet_group_t* group, const rabbet_group_node_t* node,
    const char* device, rabbet_plugin_tensor_t* tensors,
    rabbet_plugin_query_t* out_query);

#endif  // RABBET_SRC_DEVICE_PLUGIN_KERNEL_H_
