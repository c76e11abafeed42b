#include "builder/config.h"

#include <string.h>

#include "base/thread.h"

typedef struct option_info_t {
  const char* name;
  int64_t fallback, low, high;
} option_info_t;

static const option_info_t option_infos[RABBET_BUILDER_OPTION_COUNT] = {
    [RABBET_BUILDER_OPTION_FLAGS] = {"flags", 1 << RABBET_BUILDER_TF32, 0,
                                     UINT32_MAX},
    [RABBET_BUILDER_OPTION_OPTIMIZATION_LEVEL] = {"optimization_level", 3, 0,
                                                  5},
    [RABBET_BUILDER_OPTION_WORKSPACE_LIMIT] = {"workspace_limit", INT64_MAX, 0,
                                               INT64_MAX},
    [RABBET_BUILDER_OPTION_AVG_TIMING] = {"avg_timing", 8, 1, 1000},
    [RABBET_BUILDER_OPTION_MAX_TACTICS] = {"max_tactics", -1, -1, INT32_MAX},
    [RABBET_BUILDER_OPTION_PROFILING_VERBOSITY] =
        {"profiling_verbosity", RABBET_PROFILING_LAYER_NAMES_ONLY, 0, 2},
    [RABBET_BUILDER_OPTION_THREADS] = {"threads", 0, 0, RABBET_MAX_THREADS},
    [RABBET_BUILDER_OPTION_ERROR_ON_TIMING_CACHE_MISS] =
        {"error_on_timing_cache_miss", 0, 0, 1},
    [RABBET_BUILDER_OPTION_TACTIC_SOURCES] = {"tactic_sources", UINT32_MAX, 0,
                                              UINT32_MAX},
    [RABBET_BUILDER_OPTION_KEEP_PLUGIN_SOURCE] = {"keep_plugin_source", 0, 0,
                                                  1},
    [RABBET_BUILDER_OPTION_TRY_PLUGINS] = {"try_plugins", 0, 0, 1},
    [RABBET_BUILDER_OPTION_TACTIC_MEMORY] = {"tactic_memory", INT64_MAX, 0,
                                             INT64_MAX},
};

rabbet_status_t rabbet_builder_config_create(
    rabbet_allocator_t allocator, rabbet_builder_config_t** out_config) {
  *out_config = NULL;
  rabbet_builder_config_t* config = NULL;
  RABBET_RETURN_IF_ERROR(
      rabbet_allocate(allocator, sizeof(*config), (void**)&config));
  config->allocator = allocator;
  rabbet_refcount_initialize(&config->references);
  for (int i = 0; i < RABBET_BUILDER_OPTION_COUNT; ++i)
    config->options[i] = option_infos[i].fallback;
  *out_config = config;
  return rabbet_ok();
}

void rabbet_builder_config_retain(rabbet_builder_config_t* config) {
  if (config) rabbet_refcount_retain(&config->references);
}

static void names_free(rabbet_allocator_t allocator,
                       rabbet_builder_names_t* names) {
  for (size_t i = 0; i < names->count; ++i)
    rabbet_free(allocator, names->data[i]);
  rabbet_vec_free(allocator, names);
}

void rabbet_builder_config_release(rabbet_builder_config_t* config) {
  if (!config || !rabbet_refcount_release(&config->references)) return;
  for (size_t i = 0; i < config->profiles.count; ++i)
    rabbet_profile_release(config->profiles.data[i]);
  rabbet_vec_free(config->allocator, &config->profiles);
  names_free(config->allocator, &config->plugin_libraries);
  names_free(config->allocator, &config->source_modules);
  rabbet_timing_cache_release(config->cache);
  rabbet_free(config->allocator, config->device);
  rabbet_free(config->allocator, config);
}

rabbet_status_t rabbet_builder_config_set(rabbet_builder_config_t* config,
                                          rabbet_builder_option_t option,
                                          int64_t value) {
  if ((unsigned)option >= RABBET_BUILDER_OPTION_COUNT)
    return RABBET_STATUS(RABBET_STATUS_INVALID_ARGUMENT,
                         "builder option %d does not exist; there are 0 to %d",
                         (int)option, RABBET_BUILDER_OPTION_COUNT - 1);
  const option_info_t* info = &option_infos[option];
  if (value < info->low || value > info->high)
    return RABBET_STATUS(
        RABBET_STATUS_OUT_OF_RANGE,
        "builder option '%s' must be from %lld to %lld, not %lld", info->name,
        (long long)info->low, (long long)info->high, (long long)value);
  config->options[option] = value;
  return rabbet_ok();
}

int64_t rabbet_builder_config_get(const rabbet_builder_config_t* config,
                                  rabbet_builder_option_t option) {
  if ((unsigned)option >= RABBET_BUILDER_OPTION_COUNT) return 0;
  return config->options[option];
}

rabbet_status_t rabbet_builder_config_set_device(
    rabbet_builder_config_t* config, const char* device) {
  char* copy = NULL;
  if (device && *device) {
    size_t size = strlen(device) + 1;
    RABBET_RETURN_IF_ERROR(
        rabbet_allocate(config->allocator, size, (void**)&copy));
    memcpy(copy, device, size);
  }
  rabbet_free(config->allocator, config->device);
  config->device = copy;
  return rabbet_ok();
}

const char* rabbet_builder_config_device(
    const rabbet_builder_config_t* config) {
  return config->device;
}

// Replaces `names` if all is well.
static rabbet_status_t names_set(const char* what, rabbet_allocator_t allocator,
                                 const char* const* from, size_t count,
                                 rabbet_builder_names_t* names) {
  rabbet_builder_names_t copies = {0};
  rabbet_status_t status = RABBET_VEC_RESERVE(allocator, &copies, count);
  for (size_t i = 0; rabbet_is_ok(status) && i < count; ++i) {
    char* copy = NULL;
    if (!from[i] || !*from[i]) {
      status = RABBET_STATUS(RABBET_STATUS_INVALID_ARGUMENT,
                             "%s: number %zu is empty", what, i);
      continue;
    }
    status = rabbet_allocate(allocator, strlen(from[i]) + 1, (void**)&copy);
    if (rabbet_is_ok(status))
      copies.data[copies.count++] = strcpy(copy, from[i]);
  }
  if (!rabbet_is_ok(status)) {
    names_free(allocator, &copies);
    return status;
  }
  names_free(allocator, names);
  *names = copies;
  return status;
}

static const char* names_get(const rabbet_builder_names_t* names,
                             size_t index) {
  return index < names->count ? names->data[index] : NULL;
}

rabbet_status_t rabbet_builder_config_set_plugin_libraries(
    rabbet_builder_config_t* config, const char* const* paths, size_t count) {
  return names_set("plugin libraries", config->allocator, paths, count,
                   &config->plugin_libraries);
}

const char* rabbet_builder_config_plugin_library(
    const rabbet_builder_config_t* config, size_t index) {
  return names_get(&config->plugin_libraries, index);
}

rabbet_status_t rabbet_builder_config_set_source_modules(
    rabbet_builder_config_t* config, const char* const* names, size_t count) {
  return names_set("source modules", config->allocator, names, count,
                   &config->source_modules);
}

const char* rabbet_builder_config_source_module(
    const rabbet_builder_config_t* config, size_t index) {
  return names_get(&config->source_modules, index);
}

rabbet_status_t rabbet_builder_config_add_profile(
    rabbet_builder_config_t* config, rabbet_profile_t* profile) {
  RABBET_RETURN_IF_ERROR(
      RABBET_VEC_PUSH(config->allocator, &config->profiles, profile));
  rabbet_profile_retain(profile);
  return rabbet_ok();
}

size_t rabbet_builder_config_profile_count(
    const rabbet_builder_config_t* config) {
  return config->profiles.count;
}

rabbet_profile_t* rabbet_builder_config_profile(
    const rabbet_builder_config_t* config, size_t index) {
  return index < config->profiles.count ? config->profiles.data[index] : NULL;
}

void rabbet_builder_config_set_timing_cache(rabbet_builder_config_t* config,
                                            rabbet_timing_cache_t* cache) {
  rabbet_timing_cache_retain(cache);
  rabbet_timing_cache_release(config->cache);
  config->cache = cache;
}

rabbet_timing_cache_t* rabbet_builder_config_timing_cache(
    const rabbet_builder_config_t* config) {
  return config->cache;
}

void rabbet_builder_config_set_progress(rabbet_builder_config_t* config,
                                        rabbet_progress_t progress) {
  config->progress = progress;
}

void rabbet_builder_config_set_logger(rabbet_builder_config_t* config,
                                      rabbet_logger_t logger) {
  config->logger = logger;
}

void rabbet_builder_config_set_selector(rabbet_builder_config_t* config,
                                        rabbet_algorithm_selector_t selector) {
  config->selector = selector;
}
