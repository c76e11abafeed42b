// Code of plugins that a plan carries: plugin libraries, and source of Python
// modules. It is there so that a plan can be run where its plugins are not
// installed; it runs only where the caller of rabbet_engine_load allows it.
#ifndef RABBET_CARRIED_H_
#define RABBET_CARRIED_H_

#include "rabbet/status.h"

RABBET_EXTERN_C_BEGIN

// Numbers are stable (plan files).
typedef enum rabbet_carried_kind_t {
  RABBET_CARRIED_LIBRARY = 1,  // a plugin library for this kind of machine
  RABBET_CARRIED_PYTHON = 2,   // the source of a module
} rabbet_carried_kind_t;

// A view; the function that returns it says how long it lives.
typedef struct rabbet_carried_t {
  rabbet_carried_kind_t kind;
  const char* name;  // a library's file name; a module's dotted name
  const void* data;
  size_t size;
  // Of modules:
  bool is_package;  // data is that of its __init__.py
  // Packages that it imports and the plan does not carry, with versions: "numpy
  // 2.1.0".
  const char* const* requirements;
  size_t requirement_count;
  uint64_t reserved[2];  // 0
} rabbet_carried_t;

typedef struct rabbet_carried_sink_t {
  void* context;
  // Copies its arguments.
  rabbet_status_t (*add)(void* context, const rabbet_carried_t* carried);
} rabbet_carried_sink_t;

// ---- Hosts of source -------------------------------------------------------

// A registered plugin.
typedef struct rabbet_plugin_key_t {
  const char* name;
  const char* version;
  const char* plugin_namespace;
  uint64_t reserved;  // 0
} rabbet_plugin_key_t;

// The interpreter of this process. The package `rabbet` is one when it is
// imported; rabbet/pyhost.h brings one into a C program.
typedef struct rabbet_source_host_t {
  uint32_t struct_size;
  void* user_data;
  // Adds the modules that those of the plugins are made of which it knows, and
  // the further ones that are named.
  rabbet_status_t (*collect)(void* user_data,
                             const rabbet_plugin_key_t* plugins,
                             size_t plugin_count, const char* const* modules,
                             size_t module_count, rabbet_carried_sink_t sink);
  // Runs the modules, so that their plugins are registered. The views live as
  // long as the call.
  rabbet_status_t (*run)(void* user_data, const rabbet_carried_t* modules,
                         size_t count);
  // Loads plugins, as rabbet_pyhost_load_plugins does. optional.
  rabbet_status_t (*load)(void* user_data, const char* const* plugins,
                          size_t count);
  // The interpreter is about to end: takes its plugins out of the registry.
  // optional.
  void (*close)(void* user_data);
} rabbet_source_host_t;

// NULL takes it away. The functions may be called on any thread, as long as the
// host is set.
RABBET_API rabbet_status_t
rabbet_source_host_set(const rabbet_source_host_t* host);

RABBET_EXTERN_C_END
#endif  // RABBET_CARRIED_H_
