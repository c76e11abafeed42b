// Counted creators, registered or not.
#ifndef RABBET_SRC_PLUGIN_REGISTRY_H_
#define RABBET_SRC_PLUGIN_REGISTRY_H_

#include "base/arena.h"
#include "base/vec.h"
#include "rabbet/plugin.h"

// A deep copy with one reference, checked but not registered. user_data passes
// to the copy on success.
rabbet_status_t rabbet_creator_create(const rabbet_plugin_creator_t* creator,
                                      const rabbet_plugin_creator_t** out);
// `creator` must come from rabbet_creator_create or the registry. The other
// half is rabbet_plugin_creator_release.
void rabbet_creator_retain(const rabbet_plugin_creator_t* creator);

// A copy of our size; only struct_size of `given` is checked, and `fields` are
// still the caller's.
RABBET_PRIVATE_API rabbet_status_t rabbet_creator_read(
    const rabbet_plugin_creator_t* given, rabbet_plugin_creator_t* out_creator);

// Creators outside of the registry, each with one reference of the list's.
// Zeroed: none. Not locked.
typedef RABBET_VEC(const rabbet_plugin_creator_t*) rabbet_creator_list_t;
// From now on this thread's registrations go to the list (NULL: to the
// registry). Returns the previous list, to be set again.
rabbet_creator_list_t* rabbet_creators_collect(rabbet_creator_list_t* list);
// Registers all, or none: ALREADY_EXISTS. The list is not changed.
rabbet_status_t rabbet_creators_publish(const rabbet_creator_list_t* list);
// Borrowed, or NULL.
const rabbet_plugin_creator_t* rabbet_creators_find(
    const rabbet_creator_list_t* list, const char* name, const char* version,
    const char* plugin_namespace);
// Creators that do not say where they come from come from there: `origin` is
// copied.
rabbet_status_t rabbet_creators_set_origin(const rabbet_creator_list_t* list,
                                           const char* origin);
void rabbet_creators_free(rabbet_creator_list_t* list);

#endif  // RABBET_SRC_PLUGIN_REGISTRY_H_
