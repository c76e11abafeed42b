// Counted creators, registered or not.
#ifndef RABBET_SRC_PLUGIN_REGISTRY_H_
#define RABBET_SRC_PLUGIN_REGISTRY_H_

#include "base/arena.h"
#include "rabbet/plugin.h"

// A deep copy with one reference, checked but not registered. user_data passes
// to the copy on success.
rabbet_status_t rabbet_creator_create(const rabbet_plugin_creator_t* creator,
                                      const rabbet_plugin_creator_t** out);
// `creator` must come from rabbet_creator_create or the registry. The other
// half is rabbet_plugin_creator_release.
void rabbet_creator_retain(const rabbet_plugin_creator_t* creator);

#endif  // RABBET_SRC_PLUGIN_REGISTRY_H_
