// The inside of a plugin layer's instance.
#ifndef RABBET_SRC_PLUGIN_INSTANCE_H_
#define RABBET_SRC_PLUGIN_INSTANCE_H_

#include "base/thread.h"
#include "plugin/plugin.h"

struct rabbet_plugin_t {
  rabbet_allocator_t allocator;
  rabbet_refcount_t references;
  const rabbet_plugin_creator_t* creator;   // retained
  rabbet_plugin_vtable_t vtable;            // absent functions are NULL
  const rabbet_plugin_vtable_t* made_with;  // borrowed, to recognize it
  void* self;
  uint32_t allowed;  // bits RABBET_PLUGIN_..., 0: any
  uint64_t absent_inputs;
};

// Rabbet's own attribute among a plugin's in a plan and in timing keys: the
// mask of absent inputs, last, where there are any.
#define RABBET_PLUGIN_ABSENT_ATTR "rabbet.absent_inputs"

// Adds the plugin's name to a failure of a callback. The callers know the
// layer, or the step, and name it.
rabbet_status_t rabbet_plugin_annotate(const rabbet_plugin_t* plugin,
                                       const char* callback,
                                       rabbet_status_t status);

#endif  // RABBET_SRC_PLUGIN_INSTANCE_H_
