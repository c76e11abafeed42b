// A build's configuration, as the builder reads it.
#ifndef RABBET_SRC_BUILDER_CONFIG_H_
#define RABBET_SRC_BUILDER_CONFIG_H_

#include "base/thread.h"
#include "base/vec.h"
#include "rabbet/builder.h"

typedef RABBET_VEC(char*) rabbet_builder_names_t;

struct rabbet_builder_config_t {
  rabbet_allocator_t allocator;
  rabbet_refcount_t references;
  int64_t options[RABBET_BUILDER_OPTION_COUNT];
  char* device;  // NULL: the default
  RABBET_VEC(rabbet_profile_t*) profiles;
  rabbet_builder_names_t plugin_libraries, source_modules;
  rabbet_timing_cache_t* cache;  // NULL: the build makes its own
  rabbet_progress_t progress;
  rabbet_logger_t logger;
  rabbet_algorithm_selector_t selector;
};

#endif  // RABBET_SRC_BUILDER_CONFIG_H_
