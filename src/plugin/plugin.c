#include "plugin/instance.h"

#include <string.h>

#include "base/strbuf.h"
#include "base/struct.h"
#include "base/suggest.h"
#include "base/thread.h"
#include "core/attr_set.h"
#include "plugin/registry.h"

// "ACTIONplugin 'NAMESPACE::NAME' (ORIGIN): CALLBACK"
static rabbet_status_t creator_annotate(const rabbet_plugin_creator_t* creator,
                                        const char* action,
                                        const char* callback,
                                        rabbet_status_t status) {
  bool known = *creator->origin;
  return rabbet_status_annotate(
      status, "%splugin '%s%s%s'%s%s%s%s%s", action, creator->plugin_namespace,
      *creator->plugin_namespace ? "::" : "", creator->name, known ? " (" : "",
      creator->origin, known ? ")" : "", *callback ? ": " : "", callback);
}

rabbet_status_t rabbet_plugin_annotate(const rabbet_plugin_t* plugin,
                                       const char* callback,
                                       rabbet_status_t status) {
  if (rabbet_is_ok(status)) return status;
  return creator_annotate(plugin->creator, "", callback, status);
}

// ---- Creation --------------------------------------------------------------

static const char* field_name_at(const void* list, size_t index) {
  return ((const rabbet_plugin_field_t*)list)[index].name;
}

static void fields_print(const rabbet_plugin_creator_t* creator,
                         rabbet_strbuf_t* text) {
  for (size_t i = 0; i < creator->field_count; ++i) {
    const rabbet_plugin_field_t* field = &creator->fields[i];
    rabbet_strbuf_printf(text, "%s%s: %s%s", i ? ", " : "", field->name,
                         rabbet_attr_type_name(field->type),
                         field->required ? "" : " (optional)");
  }
  if (creator->field_count == 0) rabbet_strbuf_printf(text, "none");
}

static rabbet_status_t attr_unknown(const rabbet_plugin_creator_t* creator,
                                    const char* name) {
  rabbet_strbuf_t fields;
  rabbet_strbuf_initialize(rabbet_allocator_system(), &fields);
  fields_print(creator, &fields);
  char near_names[256];
  rabbet_status_t status =
      RABBET_STATUS(RABBET_STATUS_INVALID_ARGUMENT,
                    "plugin '%s' has no attribute '%s'%s; its attributes: %s",
                    creator->name, name,
                    rabbet_suggest_print(name, field_name_at, creator->fields,
                                         creator->field_count, near_names,
                                         sizeof(near_names)),
                    rabbet_strbuf_text(&fields));
  rabbet_strbuf_deinitialize(&fields);
  return status;
}

static rabbet_status_t attr_check(const rabbet_plugin_creator_t* creator,
                                  const rabbet_attr_t* attr) {
  RABBET_RETURN_IF_ERROR(RABBET_ANNOTATE(rabbet_attr_check_reserved(attr),
                                         "plugin '%s'", creator->name));
  for (size_t i = 0; i < creator->field_count; ++i) {
    const rabbet_plugin_field_t* field = &creator->fields[i];
    if (strcmp(field->name, attr->name) != 0) continue;
    if (field->type == RABBET_ATTR_ANY) return rabbet_ok();
    if (field->type != attr->type) {
      return RABBET_STATUS(RABBET_STATUS_INVALID_ARGUMENT,
                           "plugin '%s': attribute '%s' must be %s, not %s",
                           creator->name, attr->name,
                           rabbet_attr_type_name(field->type),
                           rabbet_attr_type_name(attr->type));
    }
    if (field->type == RABBET_ATTR_TENSOR && field->dtype != attr->dtype) {
      return RABBET_STATUS(RABBET_STATUS_INVALID_ARGUMENT,
                           "plugin '%s': attribute '%s' must be an array of "
                           "%s, not of %s",
                           creator->name, attr->name,
                           rabbet_dtype_name(field->dtype),
                           rabbet_dtype_name(attr->dtype));
    }
    return rabbet_ok();
  }
  return attr_unknown(creator, attr->name);
}

// At run time a plugin gets its serialized data, which may have fewer fields;
// in a build every required field must be there.
static rabbet_status_t attrs_check(const rabbet_plugin_creator_t* creator,
                                   const rabbet_plugin_create_t* args) {
  if (args->phase == RABBET_PLUGIN_PHASE_RUNTIME) return rabbet_ok();
  for (size_t i = 0; i < args->attr_count; ++i) {
    RABBET_RETURN_IF_ERROR(attr_check(creator, &args->attrs[i]));
    if (rabbet_attr_find(args->attrs, i, args->attrs[i].name)) {
      return RABBET_STATUS(RABBET_STATUS_INVALID_ARGUMENT,
                           "plugin '%s': attribute '%s' is given twice",
                           creator->name, args->attrs[i].name);
    }
  }
  for (size_t i = 0; i < creator->field_count; ++i) {
    const rabbet_plugin_field_t* field = &creator->fields[i];
    if (field->required &&
        !rabbet_attr_find(args->attrs, args->attr_count, field->name)) {
      return RABBET_STATUS(RABBET_STATUS_INVALID_ARGUMENT,
                           "plugin '%s': required attribute '%s' (%s) is "
                           "missing",
                           creator->name, field->name,
                           rabbet_attr_type_name(field->type));
    }
  }
  return rabbet_ok();
}

rabbet_status_t rabbet_plugin_vtable_read(
    const rabbet_plugin_creator_t* creator, const rabbet_plugin_vtable_t* given,
    rabbet_plugin_vtable_t* out_vtable) {
  const char* missing = NULL;
  RABBET_RETURN_IF_ERROR(RABBET_ANNOTATE(
      RABBET_STRUCT_READ(rabbet_plugin_vtable_t, given, describe, out_vtable),
      "plugin '%s': the instance that create gave", creator->name));
  if (!given) {
    missing = "a vtable";
  } else if (!out_vtable->output_count) {
    missing = "output_count";
  } else if (!out_vtable->describe) {
    missing = "describe";
  } else if (!out_vtable->enqueue && !out_vtable->launches) {
    missing = "enqueue";
  }
  if (!missing) return rabbet_ok();
  return RABBET_STATUS(RABBET_STATUS_PLUGIN,
                       "plugin '%s': the instance that create gave lacks %s",
                       creator->name, missing);
}

// Takes the instance and a reference to the creator on success.
static rabbet_status_t plugin_allocate(
    const rabbet_plugin_creator_t* take_creator,
    rabbet_plugin_instance_t take_instance, rabbet_allocator_t allocator,
    rabbet_plugin_t** out_plugin) {
  rabbet_plugin_vtable_t vtable;
  RABBET_RETURN_IF_ERROR(
      rabbet_plugin_vtable_read(take_creator, take_instance.vtable, &vtable));
  rabbet_plugin_t* plugin = NULL;
  RABBET_RETURN_IF_ERROR(
      rabbet_allocate(allocator, sizeof(*plugin), (void**)&plugin));
  plugin->allocator = allocator;
  rabbet_refcount_initialize(&plugin->references);
  plugin->creator = take_creator;
  plugin->vtable = vtable;
  plugin->made_with = take_instance.vtable;
  plugin->self = take_instance.self;
  *out_plugin = plugin;
  return rabbet_ok();
}

static void instance_destroy(rabbet_plugin_instance_t instance) {
  if (instance.vtable && instance.vtable->destroy) {
    instance.vtable->destroy(instance.self);
  }
}

// Takes the mask of absent inputs out of a plan's attributes.
static rabbet_status_t absent_take(const rabbet_plugin_creator_t* creator,
                                   rabbet_plugin_create_t* args) {
  if (args->phase != RABBET_PLUGIN_PHASE_RUNTIME || args->attr_count == 0)
    return rabbet_ok();
  const rabbet_attr_t* last = &args->attrs[args->attr_count - 1];
  if (strcmp(last->name, RABBET_PLUGIN_ABSENT_ATTR) != 0) return rabbet_ok();
  if (last->type != RABBET_ATTR_INT)
    return RABBET_STATUS(RABBET_STATUS_DATA_LOSS,
                         "the mask of absent inputs is not an integer");
  const int64_t* mask = last->data;
  args->absent_inputs = (uint64_t)*mask;
  --args->attr_count;
  if (args->absent_inputs & ~creator->optional_inputs)
    return RABBET_STATUS(
        RABBET_STATUS_DATA_LOSS,
        "plugin '%s': the plan lacks inputs (bits 0x%llx) of which the plugin "
        "says that they are always there",
        creator->name, (unsigned long long)args->absent_inputs);
  return rabbet_ok();
}

rabbet_status_t rabbet_plugin_create_by(const rabbet_plugin_creator_t* creator,
                                        const rabbet_plugin_create_t* args,
                                        rabbet_allocator_t allocator,
                                        rabbet_plugin_t** out_plugin) {
  *out_plugin = NULL;
  rabbet_plugin_instance_t instance = {NULL, NULL};
  rabbet_plugin_create_t own = *args;
  own.struct_size = sizeof(own);
  RABBET_RETURN_IF_ERROR(absent_take(creator, &own));
  RABBET_RETURN_IF_ERROR(attrs_check(creator, &own));
  rabbet_status_t status = creator->create(creator->user_data, &own, &instance);
  if (!rabbet_is_ok(status))
    return creator_annotate(creator, "creating ", "", status);
  status = plugin_allocate(creator, instance, allocator, out_plugin);
  if (rabbet_is_ok(status)) {
    (*out_plugin)->absent_inputs = own.absent_inputs;
    rabbet_creator_retain(creator);
  } else {
    instance_destroy(instance);
  }
  return status;
}

rabbet_status_t rabbet_plugin_create(const char* name, const char* version,
                                     const char* plugin_namespace,
                                     const rabbet_plugin_create_t* args,
                                     rabbet_allocator_t allocator,
                                     rabbet_plugin_t** out_plugin) {
  *out_plugin = NULL;
  const rabbet_plugin_creator_t* creator = NULL;
  RABBET_RETURN_IF_ERROR(
      rabbet_plugin_find(name, version, plugin_namespace, &creator));
  rabbet_status_t status =
      rabbet_plugin_create_by(creator, args, allocator, out_plugin);
  rabbet_plugin_creator_release(creator);
  return status;
}

rabbet_status_t rabbet_plugin_wrap(const rabbet_plugin_creator_t* creator,
                                   rabbet_plugin_instance_t take_instance,
                                   rabbet_allocator_t allocator,
                                   rabbet_plugin_t** out_plugin) {
  *out_plugin = NULL;
  // The copy is for the key and the names: it does not own user_data.
  rabbet_plugin_creator_t borrowed;
  RABBET_RETURN_IF_ERROR(rabbet_creator_read(creator, &borrowed));
  borrowed.destroy = NULL;
  const rabbet_plugin_creator_t* copy = NULL;
  RABBET_RETURN_IF_ERROR(rabbet_creator_create(&borrowed, &copy));
  rabbet_status_t status =
      plugin_allocate(copy, take_instance, allocator, out_plugin);
  if (!rabbet_is_ok(status)) rabbet_plugin_creator_release(copy);
  return status;
}

static void plugin_retain(rabbet_plugin_t* plugin) {
  rabbet_refcount_retain(&plugin->references);
}

void rabbet_plugin_release(rabbet_plugin_t* plugin) {
  if (!plugin || !rabbet_refcount_release(&plugin->references)) return;
  if (plugin->vtable.destroy) plugin->vtable.destroy(plugin->self);
  rabbet_plugin_creator_release(plugin->creator);
  rabbet_free(plugin->allocator, plugin);
}

rabbet_status_t rabbet_plugin_clone(rabbet_plugin_t* plugin,
                                    rabbet_plugin_t** out_clone) {
  *out_clone = NULL;
  if (!plugin->vtable.clone) {
    plugin_retain(plugin);
    *out_clone = plugin;
    return rabbet_ok();
  }
  rabbet_plugin_instance_t instance = {&plugin->vtable, NULL};
  rabbet_status_t status = rabbet_plugin_annotate(
      plugin, "clone", plugin->vtable.clone(plugin->self, &instance.self));
  if (!rabbet_is_ok(status)) return status;
  rabbet_creator_retain(plugin->creator);
  status =
      plugin_allocate(plugin->creator, instance, plugin->allocator, out_clone);
  if (rabbet_is_ok(status)) (*out_clone)->absent_inputs = plugin->absent_inputs;
  if (!rabbet_is_ok(status)) {
    instance_destroy(instance);
    rabbet_plugin_creator_release(plugin->creator);
    return status;
  }
  (*out_clone)->made_with = plugin->made_with;
  return status;
}

const rabbet_plugin_creator_t* rabbet_plugin_creator(
    const rabbet_plugin_t* plugin) {
  return plugin->creator;
}

void* rabbet_plugin_self(const rabbet_plugin_t* plugin) {
  return plugin->self;
}

rabbet_plugin_instance_t rabbet_plugin_instance(const rabbet_plugin_t* plugin) {
  return (rabbet_plugin_instance_t){plugin->made_with, plugin->self};
}

const char* rabbet_plugin_metadata(rabbet_plugin_t* plugin) {
  const char* text =
      plugin->vtable.metadata ? plugin->vtable.metadata(plugin->self) : NULL;
  return text ? text : "";
}

// The bits of a mask over all inputs, for the inputs that are there.
static uint64_t mask_of_present(uint64_t mask, uint64_t absent) {
  uint64_t present = 0;
  for (int from = 0, to = 0; from < 64; ++from) {
    if (absent >> from & 1) continue;
    present |= (mask >> from & 1) << to++;
  }
  return present;
}

uint64_t rabbet_plugin_shape_inputs(const rabbet_plugin_t* plugin) {
  uint64_t own = plugin->vtable.shape_inputs
                     ? plugin->vtable.shape_inputs(plugin->self)
                     : 0;
  return mask_of_present(plugin->creator->shape_inputs, plugin->absent_inputs) |
         own;
}

int32_t rabbet_plugin_output_count(rabbet_plugin_t* plugin) {
  return plugin->vtable.output_count(plugin->self);
}
