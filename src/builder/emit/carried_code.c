#include "builder/emit/carried_code.h"

#include <assert.h>
#include <string.h>

#include "base/file.h"
#include "base/text.h"
#include "network/network.h"
#include "plugin/library.h"
#include "plugin/source_host.h"

// ---- Copies of carried code in the build's arena

static rabbet_status_t carried_names(rabbet_build_t* build,
                                     const char* const* names, size_t count,
                                     const char* const** out_names) {
  const char** copies = NULL;
  RABBET_RETURN_IF_ERROR(rabbet_arena_allocate_array(
      &build->arena, count, sizeof(*copies), (void**)&copies));
  for (size_t i = 0; i < count; ++i)
    RABBET_RETURN_IF_ERROR(
        rabbet_arena_strdup(&build->arena, names[i], &copies[i]));
  *out_names = copies;
  return rabbet_ok();
}

static rabbet_status_t carried_add(void* context,
                                   const rabbet_carried_t* carried) {
  rabbet_build_t* build = context;
  rabbet_carried_t copy = *carried;
  for (size_t i = 0; i < build->carried.count; ++i) {
    const rabbet_carried_t* other = &build->carried.data[i];
    if (other->kind == copy.kind && strcmp(other->name, copy.name) == 0)
      return RABBET_STATUS(RABBET_STATUS_INVALID_ARGUMENT,
                           "the plan is to carry two that are called '%s'; "
                           "give one of them another name",
                           copy.name);
  }
  RABBET_RETURN_IF_ERROR(rabbet_text_check(
      "the name of a carried module or library", carried->name));
  RABBET_RETURN_IF_ERROR(
      rabbet_arena_strdup(&build->arena, carried->name, &copy.name));
  RABBET_RETURN_IF_ERROR(rabbet_arena_copy(&build->arena, carried->data,
                                           carried->size, (void**)&copy.data));
  RABBET_RETURN_IF_ERROR(carried_names(build, carried->requirements,
                                       carried->requirement_count,
                                       &copy.requirements));
  return RABBET_VEC_PUSH(build->allocator, &build->carried, copy);
}

// ---- Libraries

static rabbet_status_t carried_library(rabbet_build_t* build,
                                       const char* path) {
  rabbet_file_map_t* map = NULL;
  const char* slash = strrchr(path, '/');
  RABBET_RETURN_IF_ERROR(rabbet_file_map_create(path, build->allocator, &map));
  rabbet_carried_t carried = {.kind = RABBET_CARRIED_LIBRARY,
                              .name = slash ? slash + 1 : path,
                              .data = rabbet_file_map_data(map),
                              .size = rabbet_file_map_size(map)};
  rabbet_status_t status =
      rabbet_plugin_library_check(path, carried.data, carried.size);
  if (rabbet_is_ok(status)) status = carried_add(build, &carried);
  rabbet_file_map_release(map);
  return status;
}

// ---- Source

static rabbet_status_t carried_source(rabbet_build_t* build,
                                      const rabbet_network_t* network) {
  rabbet_plugin_key_t* keys = NULL;
  size_t count = 0;
  RABBET_RETURN_IF_ERROR(rabbet_arena_allocate_array(
      &build->arena, network->layers.count, sizeof(*keys), (void**)&keys));
  for (size_t i = 0; i < network->layers.count; ++i) {
    const rabbet_layer_t* layer = network->layers.data[i];
    if (!layer->plugin) continue;
    const rabbet_plugin_creator_t* creator =
        rabbet_plugin_creator(layer->plugin);
    assert(count < network->layers.count);
    keys[count++] =
        (rabbet_plugin_key_t){.name = creator->name,
                              .version = creator->version,
                              .plugin_namespace = creator->plugin_namespace};
  }
  const rabbet_builder_names_t* modules = &build->config->source_modules;
  return RABBET_ANNOTATE(
      rabbet_source_host_collect(
          keys, count, (const char* const*)modules->data, modules->count,
          (rabbet_carried_sink_t){.context = build, .add = carried_add}),
      "source of plugins");
}

rabbet_status_t rabbet_collect_carried_code(rabbet_build_t* build,
                                            const rabbet_network_t* network) {
  const rabbet_builder_config_t* config = build->config;
  for (size_t i = 0; i < config->plugin_libraries.count; ++i)
    RABBET_RETURN_IF_ERROR(RABBET_ANNOTATE(
        carried_library(build, config->plugin_libraries.data[i]),
        "to be carried by the plan"));
  return config->options[RABBET_BUILDER_OPTION_KEEP_PLUGIN_SOURCE]
             ? carried_source(build, network)
             : rabbet_ok();
}
