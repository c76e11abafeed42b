#include "plugin/plugin.h"

#include <stdio.h>
#include <string.h>

#include "base/strbuf.h"
#include "base/struct.h"
#include "base/suggest.h"
#include "base/thread.h"
#include "core/attr_set.h"
#include "plugin/registry.h"

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
static const char absent_attr[] = "rabbet.absent_inputs";

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

// The callers know the layer, or the step, and name it.
static rabbet_status_t plugin_annotate(const rabbet_plugin_t* plugin,
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
  if (strcmp(last->name, absent_attr) != 0) return rabbet_ok();
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
  rabbet_status_t status = plugin_annotate(
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

// ---- Build -----------------------------------------------------------------

static bool dtype_is_valid(rabbet_dtype_t dtype) {
  return dtype >= 0 && dtype < RABBET_DTYPE_COUNT;
}

static rabbet_status_t output_check(const rabbet_dim_builder_t* builder,
                                    const rabbet_plugin_output_t* output,
                                    size_t index, size_t input_count) {
  if (!dtype_is_valid(output->dtype)) {
    return RABBET_STATUS(RABBET_STATUS_PLUGIN,
                         "output %zu: %d is not a data type", index,
                         (int)output->dtype);
  }
  if (output->rank < 0 || output->rank > RABBET_MAX_RANK) {
    return RABBET_STATUS(RABBET_STATUS_PLUGIN,
                         "output %zu: rank %d, expected 0 to %d", index,
                         output->rank, RABBET_MAX_RANK);
  }
  for (int32_t axis = 0; axis < output->rank; ++axis) {
    int64_t value = 0;
    if (output->dims[axis] < 0 ||
        (size_t)output->dims[axis] >= rabbet_expr_node_count(builder->graph)) {
      return RABBET_STATUS(RABBET_STATUS_PLUGIN,
                           "output %zu: dimension %d was not set", index, axis);
    }
    if (rabbet_expr_is_constant(builder->graph, output->dims[axis], &value) &&
        value < 0) {
      return RABBET_STATUS(RABBET_STATUS_PLUGIN,
                           "output %zu: dimension %d is negative (%lld)", index,
                           axis, (long long)value);
    }
  }
  if (output->aliased_input >= (int64_t)input_count ||
      output->aliased_input < -1) {
    return RABBET_STATUS(
        RABBET_STATUS_PLUGIN,
        "output %zu is aliased to input %d, but there are %zu inputs", index,
        output->aliased_input, input_count);
  }
  if (output->is_size_tensor &&
      (output->rank != 0 || (output->dtype != RABBET_DTYPE_INT32 &&
                             output->dtype != RABBET_DTYPE_INT64))) {
    return RABBET_STATUS(RABBET_STATUS_PLUGIN,
                         "output %zu is a size tensor: it must be 0-D INT32 or "
                         "INT64, not rank %d %s",
                         index, output->rank, rabbet_dtype_name(output->dtype));
  }
  return rabbet_ok();
}

static rabbet_status_t alias_check(const rabbet_plugin_input_t* inputs,
                                   const rabbet_plugin_output_t* outputs,
                                   size_t count) {
  for (size_t i = 0; i < count; ++i) {
    int32_t input = outputs[i].aliased_input;
    if (input < 0) continue;
    if (outputs[i].dtype != inputs[input].dtype ||
        outputs[i].rank != inputs[input].rank ||
        memcmp(outputs[i].dims, inputs[input].dims,
               (size_t)outputs[i].rank * sizeof(rabbet_dim_t)) != 0) {
      return RABBET_STATUS(RABBET_STATUS_PLUGIN,
                           "output %zu is aliased to input %d: both must have "
                           "the same type and shape",
                           i, input);
    }
    for (size_t j = 0; j < i; ++j) {
      if (outputs[j].aliased_input == input) {
        return RABBET_STATUS(RABBET_STATUS_PLUGIN,
                             "outputs %zu and %zu are both aliased to input "
                             "%d: an input can hold one output",
                             j, i, input);
      }
    }
  }
  return rabbet_ok();
}

rabbet_status_t rabbet_plugin_describe(rabbet_plugin_t* plugin,
                                       rabbet_dim_builder_t* builder,
                                       const rabbet_plugin_input_t* inputs,
                                       size_t input_count,
                                       rabbet_plugin_output_t* outputs) {
  size_t count = builder->output_count;
  for (size_t i = 0; i < count; ++i) {
    outputs[i] = (rabbet_plugin_output_t){.dtype = RABBET_DTYPE_NONE,
                                          .aliased_input = -1};
    for (int axis = 0; axis < RABBET_MAX_RANK; ++axis) {
      outputs[i].dims[axis] = RABBET_EXPR_NONE;
    }
  }
  rabbet_status_t status = plugin->vtable.describe(
      plugin->self, builder, inputs, input_count, outputs);
  for (size_t i = 0; rabbet_is_ok(status) && i < count; ++i) {
    status = output_check(builder, &outputs[i], i, input_count);
  }
  if (rabbet_is_ok(status)) {
    status = alias_check(inputs, outputs, count);
  }
  return plugin_annotate(plugin, "describing its outputs", status);
}

// Stands between the plugin and the caller's sink: checks and counts.
typedef struct combination_check_t {
  const rabbet_plugin_query_t* query;
  rabbet_plugin_combination_sink_t sink;
  size_t count;
} combination_check_t;

static rabbet_status_t combination_add(
    void* context, const rabbet_plugin_type_format_t* tensors) {
  combination_check_t* check = context;
  const rabbet_plugin_query_t* query = check->query;
  size_t count = query->input_count + query->output_count;
  for (size_t i = 0; i < count; ++i) {
    size_t bytes = 0;
    if (!dtype_is_valid(tensors[i].dtype)) {
      return RABBET_STATUS(
          RABBET_STATUS_PLUGIN,
          "combination %zu: %d is not a data type (tensor %zu)", check->count,
          (int)tensors[i].dtype, i);
    }
    rabbet_status_t fits = rabbet_tensor_bytes(
        tensors[i].dtype, tensors[i].format, &query->tensors[i].opt, &bytes);
    if (!rabbet_is_ok(fits)) {
      return rabbet_status_annotate(fits, "combination %zu: tensor %zu as %s",
                                    check->count, i,
                                    rabbet_format_name(tensors[i].format));
    }
  }
  ++check->count;
  return check->sink.add(check->sink.context, tensors);
}

// A plugin without `combinations` takes the network's own types in LINEAR.
static rabbet_status_t combination_add_own(combination_check_t* check) {
  const rabbet_plugin_query_t* query = check->query;
  size_t count = query->input_count + query->output_count;
  rabbet_plugin_type_format_t* own = NULL;
  rabbet_allocator_t allocator = rabbet_allocator_system();
  RABBET_RETURN_IF_ERROR(
      rabbet_allocate(allocator, (count + 1) * sizeof(*own), (void**)&own));
  for (size_t i = 0; i < count; ++i) {
    own[i].dtype = query->tensors[i].dtype;
    own[i].format = RABBET_FORMAT_LINEAR;
  }
  rabbet_status_t status = combination_add(check, own);
  rabbet_free(allocator, own);
  return status;
}

rabbet_status_t rabbet_plugin_combinations(
    rabbet_plugin_t* plugin, const rabbet_plugin_query_t* query,
    rabbet_plugin_combination_sink_t sink) {
  combination_check_t check = {.query = query, .sink = sink};
  rabbet_plugin_combination_sink_t checked = {&check, combination_add};
  rabbet_status_t status =
      plugin->vtable.combinations
          ? plugin->vtable.combinations(plugin->self, query, checked)
          : combination_add_own(&check);
  if (rabbet_is_ok(status) && check.count == 0) {
    status = RABBET_STATUS(RABBET_STATUS_PLUGIN,
                           "no combination of types and formats is supported "
                           "on device '%s'",
                           query->device);
  }
  return plugin_annotate(plugin, "listing types and formats", status);
}

typedef struct tactic_check_t {
  rabbet_plugin_tactic_sink_t sink;
  size_t count;
} tactic_check_t;

static rabbet_status_t tactic_add(void* context, int32_t tactic) {
  tactic_check_t* check = context;
  if (tactic <= 0) {
    return RABBET_STATUS(RABBET_STATUS_PLUGIN,
                         "tactic %d: tactics are positive; 0 stands for the "
                         "default when there are none",
                         tactic);
  }
  ++check->count;
  return check->sink.add(check->sink.context, tactic);
}

rabbet_status_t rabbet_plugin_tactics(rabbet_plugin_t* plugin,
                                      const rabbet_plugin_query_t* query,
                                      rabbet_plugin_tactic_sink_t sink) {
  tactic_check_t check = {.sink = sink};
  rabbet_status_t status = rabbet_ok();
  if (plugin->vtable.tactics) {
    rabbet_plugin_tactic_sink_t checked = {&check, tactic_add};
    status = plugin->vtable.tactics(plugin->self, query, checked);
  }
  if (rabbet_is_ok(status) && check.count == 0) {
    status = sink.add(sink.context, 0);
  }
  return plugin_annotate(plugin, "listing tactics", status);
}

// ---- Load ------------------------------------------------------------------

typedef struct plugin_take_t {
  const rabbet_plugin_query_t* query;
  int32_t tactic;
  size_t offered;  // combinations, then tactics
  bool found;
} plugin_take_t;

static rabbet_status_t take_combination(
    void* context, const rabbet_plugin_type_format_t* tensors) {
  plugin_take_t* take = context;
  const rabbet_plugin_query_t* query = take->query;
  size_t count = query->input_count + query->output_count;
  bool equal = true;
  for (size_t i = 0; i < count && equal; ++i)
    equal = query->tensors[i].dtype == RABBET_DTYPE_NONE ||
            (tensors[i].dtype == query->tensors[i].dtype &&
             tensors[i].format == query->tensors[i].format);
  ++take->offered;
  take->found = take->found || equal;
  return rabbet_ok();
}

static rabbet_status_t take_tactic(void* context, int32_t tactic) {
  plugin_take_t* take = context;
  ++take->offered;
  take->found = take->found || tactic == take->tactic ||
                tactic == RABBET_PLUGIN_ANY_TACTIC;
  return rabbet_ok();
}

// A build asks with the types of the network, which a plan does not have: where
// the network was weakly typed, they were FLOAT for HALF and BF16.
static rabbet_status_t take_ask(rabbet_plugin_t* plugin, plugin_take_t* take,
                                bool as_float) {
  rabbet_plugin_query_t asked = *take->query;
  size_t count = asked.input_count + asked.output_count;
  rabbet_plugin_tensor_t* tensors = NULL;
  rabbet_allocator_t allocator = rabbet_allocator_system();
  RABBET_RETURN_IF_ERROR(rabbet_allocate(
      allocator, (count + 1) * sizeof(*tensors), (void**)&tensors));
  if (count > 0) memcpy(tensors, asked.tensors, count * sizeof(*tensors));
  for (size_t i = 0; i < count && as_float; ++i)
    if (tensors[i].dtype == RABBET_DTYPE_HALF ||
        tensors[i].dtype == RABBET_DTYPE_BF16)
      tensors[i].dtype = RABBET_DTYPE_FLOAT;
  asked.tensors = tensors;
  rabbet_status_t status = plugin->vtable.combinations(
      plugin->self, &asked,
      (rabbet_plugin_combination_sink_t){take, take_combination});
  rabbet_free(allocator, tensors);
  return status;
}

static rabbet_status_t take_types(rabbet_plugin_t* plugin,
                                  plugin_take_t* take) {
  const rabbet_plugin_query_t* query = take->query;
  size_t count = query->input_count + query->output_count;
  char text[512] = "";
  size_t length = 0;
  if (plugin->vtable.combinations) {
    rabbet_status_t status = take_ask(plugin, take, false);
    if (!take->found) {
      rabbet_status_t second = take_ask(plugin, take, true);
      if (rabbet_is_ok(status))
        status = second;
      else
        rabbet_status_ignore(second);
    }
    if (take->found)
      rabbet_status_ignore(status);
    else
      RABBET_RETURN_IF_ERROR(status);
  } else {
    take->found = true;
    for (size_t i = 0; i < count; ++i)
      take->found =
          take->found && query->tensors[i].format == RABBET_FORMAT_LINEAR;
  }
  if (take->found) return rabbet_ok();
  for (size_t i = 0; i < count && length < sizeof(text); ++i)
    length += (size_t)snprintf(text + length, sizeof(text) - length, "%s%s %s",
                               i ? ", " : "",
                               rabbet_dtype_name(query->tensors[i].dtype),
                               rabbet_format_name(query->tensors[i].format));
  return RABBET_STATUS(RABBET_STATUS_INCOMPATIBLE,
                       "the plan's types and formats (%s) are not among those "
                       "that the plugin offers on device '%s'",
                       text, query->device);
}

static rabbet_status_t take_tactics(rabbet_plugin_t* plugin,
                                    plugin_take_t* take) {
  take->offered = 0;
  take->found = false;
  if (plugin->vtable.tactics)
    RABBET_RETURN_IF_ERROR(plugin->vtable.tactics(
        plugin->self, take->query,
        (rabbet_plugin_tactic_sink_t){take, take_tactic}));
  if (take->found || (take->offered == 0 && take->tactic == 0))
    return rabbet_ok();
  return RABBET_STATUS(RABBET_STATUS_INCOMPATIBLE,
                       "the plan's tactic %d is not among the %zu that the "
                       "plugin offers",
                       take->tactic, take->offered);
}

rabbet_status_t rabbet_plugin_takes(rabbet_plugin_t* plugin,
                                    const rabbet_plugin_query_t* query,
                                    int32_t tactic) {
  plugin_take_t take = {.query = query, .tactic = tactic};
  rabbet_status_t status = take_types(plugin, &take);
  if (rabbet_is_ok(status)) status = take_tactics(plugin, &take);
  return plugin_annotate(plugin, "loading a plan", status);
}

typedef struct attr_count_t {
  rabbet_plugin_attr_sink_t sink;
  size_t count;
} attr_count_t;

static rabbet_status_t attr_count_add(void* context,
                                      const rabbet_attr_t* attr) {
  attr_count_t* counter = context;
  if (!attr->name || !*attr->name) {
    return RABBET_STATUS(RABBET_STATUS_PLUGIN, "attribute %zu has no name",
                         counter->count);
  }
  ++counter->count;
  return counter->sink.add(counter->sink.context, attr);
}

static rabbet_status_t absent_add(const rabbet_plugin_t* plugin,
                                  rabbet_plugin_attr_sink_t sink) {
  if (!plugin->absent_inputs) return rabbet_ok();
  int64_t mask = (int64_t)plugin->absent_inputs;
  rabbet_attr_t attr = {
      .name = absent_attr, .type = RABBET_ATTR_INT, .data = &mask, .count = 1};
  return sink.add(sink.context, &attr);
}

rabbet_status_t rabbet_plugin_timing_key(rabbet_plugin_t* plugin,
                                         rabbet_plugin_attr_sink_t sink,
                                         bool* out_cacheable) {
  *out_cacheable = false;
  if (!plugin->vtable.timing_key) return rabbet_ok();
  attr_count_t counter = {.sink = sink};
  rabbet_status_t status = plugin->vtable.timing_key(
      plugin->self, (rabbet_plugin_attr_sink_t){&counter, attr_count_add});
  *out_cacheable = rabbet_is_ok(status) && counter.count > 0;
  if (*out_cacheable) status = absent_add(plugin, sink);
  return plugin_annotate(plugin, "timing key", status);
}

rabbet_status_t rabbet_plugin_serialize(rabbet_plugin_t* plugin,
                                        const rabbet_plugin_query_t* query,
                                        int32_t tactic,
                                        rabbet_plugin_attr_sink_t sink) {
  attr_count_t counter = {.sink = sink};
  rabbet_plugin_attr_sink_t counted = {&counter, attr_count_add};
  rabbet_status_t status = rabbet_ok();
  if (plugin->vtable.serialize_chosen) {
    status =
        plugin->vtable.serialize_chosen(plugin->self, query, tactic, counted);
  } else if (plugin->vtable.serialize) {
    status = plugin->vtable.serialize(plugin->self, counted);
  }
  if (rabbet_is_ok(status)) status = absent_add(plugin, sink);
  return plugin_annotate(plugin, "serializing", status);
}

// ---- Run -------------------------------------------------------------------

rabbet_status_t rabbet_plugin_prepare(rabbet_plugin_t* plugin,
                                      const rabbet_plugin_call_t* call,
                                      size_t* out_workspace, void** out_state) {
  *out_workspace = 0;
  *out_state = NULL;
  if (!plugin->vtable.prepare) return rabbet_ok();
  return plugin_annotate(
      plugin, "preparing",
      plugin->vtable.prepare(plugin->self, call, out_workspace, out_state));
}

void rabbet_plugin_destroy_state(rabbet_plugin_t* plugin, void* state) {
  if (state && plugin->vtable.destroy_state) {
    plugin->vtable.destroy_state(plugin->self, state);
  }
}

rabbet_status_t rabbet_plugin_enqueue(rabbet_plugin_t* plugin,
                                      const rabbet_plugin_call_t* call) {
  rabbet_status_t status = plugin->vtable.enqueue(plugin->self, call);
  if (rabbet_is_ok(status)) return status;
  return plugin_annotate(plugin, "running", status);
}

// ---- Graphs ----------------------------------------------------------------

rabbet_plugin_capture_t rabbet_plugin_capture(
    rabbet_plugin_t* plugin, const rabbet_plugin_call_t* call) {
  if (!plugin->vtable.capture) return RABBET_PLUGIN_CAPTURE_TRIAL;
  rabbet_plugin_capture_t answer = plugin->vtable.capture(plugin->self, call);
  // An unknown answer promises nothing.
  return answer == RABBET_PLUGIN_CAPTURE_SAFE ||
                 answer == RABBET_PLUGIN_CAPTURE_NEVER
             ? answer
             : RABBET_PLUGIN_CAPTURE_TRIAL;
}

rabbet_status_t rabbet_plugin_enqueue_captured(rabbet_plugin_t* plugin,
                                               const rabbet_plugin_call_t* call,
                                               void** out_kept) {
  *out_kept = NULL;
  if (!plugin->vtable.enqueue_captured)
    return rabbet_plugin_enqueue(plugin, call);
  return plugin_annotate(
      plugin, "being recorded",
      plugin->vtable.enqueue_captured(plugin->self, call, out_kept));
}

void rabbet_plugin_release_captured(rabbet_plugin_t* plugin, void* kept) {
  if (kept && plugin->vtable.release_captured)
    plugin->vtable.release_captured(plugin->self, kept);
}

// ---- Kernels made ahead of time --------------------------------------------

void rabbet_plugin_set_kinds(rabbet_plugin_t* plugin, uint32_t kinds) {
  plugin->allowed = kinds;
}

uint32_t rabbet_plugin_kinds(rabbet_plugin_t* plugin, const char* device) {
  const uint32_t ways = RABBET_PLUGIN_RUNS | RABBET_PLUGIN_READY;
  uint32_t there = (plugin->vtable.enqueue ? RABBET_PLUGIN_RUNS : 0) |
                   (plugin->vtable.launches ? RABBET_PLUGIN_READY : 0);
  if (plugin->vtable.kinds) there &= plugin->vtable.kinds(plugin->self, device);
  if (plugin->allowed & ways) there &= plugin->allowed;
  if (there != ways) return there;
  if (plugin->allowed & RABBET_PLUGIN_PREFER_RUNS) return RABBET_PLUGIN_RUNS;
  if (plugin->allowed & RABBET_PLUGIN_PREFER_READY) return RABBET_PLUGIN_READY;
  return there;
}

rabbet_status_t rabbet_plugin_launches(rabbet_plugin_t* plugin,
                                       rabbet_dim_builder_t* builder,
                                       const rabbet_plugin_query_t* query,
                                       int32_t tactic,
                                       const rabbet_plugin_input_t* inputs,
                                       const rabbet_plugin_output_t* outputs,
                                       rabbet_plugin_launch_sink_t sink) {
  return plugin_annotate(
      plugin, "giving its kernels",
      plugin->vtable.launches(plugin->self, builder, query, tactic, inputs,
                              outputs, sink));
}
