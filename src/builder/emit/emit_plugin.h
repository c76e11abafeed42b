// The fields of a plan's step that name a plugin.
#ifndef RABBET_SRC_BUILDER_EMIT_EMIT_PLUGIN_H_
#define RABBET_SRC_BUILDER_EMIT_EMIT_PLUGIN_H_

#include "device/device.h"
#include "plan/plan.h"

typedef struct rabbet_plugin_layer_t {
  rabbet_plugin_t* plugin;
  const rabbet_group_node_t* node;  // of the step's group
  const char* device;               // its kind
} rabbet_plugin_layer_t;

// Sets the step's plugin's name and attributes, in the plan's arena. The step's
// group, with the types and formats that were chosen, and tactic are set.
rabbet_status_t rabbet_emit_plugin(rabbet_plan_t* plan,
                                   rabbet_allocator_t allocator,
                                   const rabbet_plugin_layer_t* layer,
                                   rabbet_plan_step_t* step);

#endif  // RABBET_SRC_BUILDER_EMIT_EMIT_PLUGIN_H_
