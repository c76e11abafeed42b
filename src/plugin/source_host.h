// Source of plugins, run by a host that understands it.
#ifndef RABBET_SRC_PLUGIN_SOURCE_HOST_H_
#define RABBET_SRC_PLUGIN_SOURCE_HOST_H_

#include "rabbet/carried.h"

// FAILED_PRECONDITION if no host is set.
RABBET_PRIVATE_API rabbet_status_t
rabbet_source_host_collect(const rabbet_plugin_key_t* plugins,
                           size_t plugin_count, const char* const* modules,
                           size_t module_count, rabbet_carried_sink_t sink);
RABBET_PRIVATE_API rabbet_status_t
rabbet_source_host_run(const rabbet_carried_t* modules, size_t count);

RABBET_PRIVATE_API rabbet_status_t
rabbet_source_host_load(const char* const* plugins, size_t count);
// Asks the host, if there is one, to take its plugins away, and takes it away.
RABBET_PRIVATE_API void rabbet_source_host_close(void);

#endif  // RABBET_SRC_PLUGIN_SOURCE_HOST_H_
