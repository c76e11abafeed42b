// Plugin libraries: files, and bytes that a plan carries.
#ifndef RABBET_SRC_PLUGIN_LIBRARY_H_
#define RABBET_SRC_PLUGIN_LIBRARY_H_

#include "rabbet/plugin.h"

// A library whose plugins are in a list of its own, not in the registry.
typedef struct rabbet_plugin_library_t rabbet_plugin_library_t;

// How bytes become a file that the loader can open.
typedef struct rabbet_library_files_t {
  const char* directory;  // of temporary files; NULL: $TMPDIR, or else /tmp
  bool no_memory_files, no_temporary_files;
} rabbet_library_files_t;

// Whether the bytes are a complete shared library for this kind of machine that
// can have plugins. Other faults show only when it is opened.
RABBET_PRIVATE_API rabbet_status_t rabbet_plugin_library_check(const char* name,
                                                               const void* data,
                                                               size_t size);
// Checks and opens it; the bytes are not needed afterwards. `name` is for
// messages.
RABBET_PRIVATE_API rabbet_status_t rabbet_plugin_library_open(
    const char* name, const void* data, size_t size,
    const rabbet_library_files_t* files, rabbet_allocator_t allocator,
    rabbet_plugin_library_t** out_library);
// A creator that it registered: borrowed from it, or NULL.
RABBET_PRIVATE_API const rabbet_plugin_creator_t* rabbet_plugin_library_find(
    const rabbet_plugin_library_t* library, const char* name,
    const char* version, const char* plugin_namespace);
// Its code goes: all that was made by its creators must be gone. NULL is fine.
RABBET_PRIVATE_API void rabbet_plugin_library_close(
    rabbet_plugin_library_t* library);

#endif  // RABBET_SRC_PLUGIN_LIBRARY_H_
