#include <string.h>

#include "base/suggest.h"
#include "base/text.h"
#include "network/inside.h"
#include "plugin/registry.h"

// ---- Making ----------------------------------------------------------------

static const char* layer_op_at(const void* list, size_t index) {
  (void)list;
  return rabbet_op_get((rabbet_op_id_t)index)->name;
}

static rabbet_status_t layer_find_op(const char* name,
                                     const rabbet_op_t** out_op) {
  *out_op = rabbet_op_find(name ? name : "");
  if (!*out_op) {
    char text[128];
    return RABBET_STATUS(
        RABBET_STATUS_NOT_FOUND, "there is no operator '%s'%s",
        name ? name : "",
        rabbet_suggest_print(name ? name : "", layer_op_at, NULL,
                             RABBET_OP_COUNT, text, sizeof text));
  }
  if (rabbet_op_is(*out_op, RABBET_OP_PLUGIN)) {
    return RABBET_STATUS(RABBET_STATUS_INVALID_ARGUMENT,
                         "layers of plugins are made by "
                         "rabbet_network_add_plugin");
  }
  return rabbet_ok();
}

static rabbet_status_t layer_check_inputs(const rabbet_network_t* network,
                                          const rabbet_op_t* op,
                                          rabbet_tensor_t* const* inputs,
                                          size_t count) {
  size_t max = rabbet_op_max_inputs(op);
  if (count > max) {
    return RABBET_STATUS(RABBET_STATUS_INVALID_ARGUMENT,
                         "%zu inputs are given; '%s' takes at most %zu%s",
                         count, op->name, max,
                         rabbet_op_is(op, RABBET_OP_RECURRENCE)
                             ? " (the next value is given to the layer, with "
                               "rabbet_layer_set_input(layer, 1, tensor))"
                             : "");
  }
  for (size_t i = 0; i < count; ++i) {
    if (!inputs[i]) continue;
    RABBET_RETURN_IF_ERROR(
        RABBET_ANNOTATE(rabbet_network_check_tensor(network, inputs[i]),
                        "input %zu ('%s')", i, rabbet_op_input(op, i)->name));
  }
  return rabbet_ok();
}

static rabbet_status_t layer_pick_name(rabbet_network_t* network,
                                       const rabbet_op_t* op, const char* name,
                                       const char** out_name) {
  if (name && *name) {
    return rabbet_network_claim_layer_name(network, name, out_name);
  }
  const char* base = NULL;
  RABBET_RETURN_IF_ERROR(rabbet_arena_printf(&network->arena, &base, "%s_%zu",
                                             op->name, network->layers.count));
  return rabbet_network_free_name(network, &network->layer_names, base,
                                  out_name);
}

static rabbet_status_t layer_new_outputs(rabbet_layer_t* layer) {
  rabbet_network_t* network = layer->network;
  bool alone = rabbet_layer_output_count(layer) == 1;
  for (size_t i = 0; i < layer->output_count; ++i) {
    const char *base = NULL, *name = NULL;
    rabbet_tensor_t* tensor = NULL;
    RABBET_RETURN_IF_ERROR(
        alone && i == 0 ? rabbet_arena_printf(&network->arena, &base,
                                              "%s_output", layer->name)
                        : rabbet_arena_printf(&network->arena, &base,
                                              "%s_output_%zu", layer->name, i));
    RABBET_RETURN_IF_ERROR(
        rabbet_network_free_name(network, &network->tensor_names, base, &name));
    RABBET_RETURN_IF_ERROR(
        rabbet_network_new_tensor(network, RABBET_TENSOR_LAYER, name, &tensor));
    tensor->producer = layer;
    tensor->output_index = (int32_t)i;
    layer->outputs[i] = tensor;
  }
  return rabbet_ok();
}

rabbet_status_t rabbet_network_new_layer(
    rabbet_network_t* network, const rabbet_op_t* op, const char* name,
    rabbet_tensor_t* const* inputs, size_t input_count, size_t output_count,
    rabbet_layer_t** out_layer) {
  rabbet_arena_t* arena = &network->arena;
  rabbet_layer_t* layer = NULL;
  RABBET_RETURN_IF_ERROR(layer_check_inputs(network, op, inputs, input_count));
  RABBET_RETURN_IF_ERROR(
      rabbet_arena_allocate(arena, sizeof(*layer), (void**)&layer));
  layer->network = network;
  layer->index = -1;
  layer->op = op;
  layer->metadata = "";
  layer->precision = RABBET_DTYPE_NONE;
  layer->input_count = input_count;
  layer->output_count = output_count;
  RABBET_RETURN_IF_ERROR(layer_pick_name(network, op, name, &layer->name));
  RABBET_RETURN_IF_ERROR(rabbet_arena_copy(
      arena, inputs, input_count * sizeof(*inputs), (void**)&layer->inputs));
  RABBET_RETURN_IF_ERROR(rabbet_arena_allocate_array(
      arena, output_count, sizeof(*layer->outputs), (void**)&layer->outputs));
  RABBET_RETURN_IF_ERROR(rabbet_arena_allocate_array(
      arena, op->attr_count, sizeof(*layer->attrs), (void**)&layer->attrs));
  RABBET_RETURN_IF_ERROR(rabbet_arena_allocate_array(
      arena, output_count, sizeof(*layer->aliased), (void**)&layer->aliased));
  RABBET_RETURN_IF_ERROR(rabbet_arena_allocate_array(
      arena, output_count, sizeof(*layer->is_size_tensor),
      (void**)&layer->is_size_tensor));
  for (size_t i = 0; i < output_count; ++i) {
    layer->aliased[i] = -1;
  }
  *out_layer = layer;
  return layer_new_outputs(layer);
}

// Takes the last layer's outputs, from `count` tensors on, out of the lists.
static void layer_drop_outputs(rabbet_network_t* network, size_t count) {
  while (network->tensors.count > count) {
    rabbet_tensor_t* tensor = network->tensors.data[--network->tensors.count];
    rabbet_map_remove(&network->tensor_names, tensor->name,
                      strlen(tensor->name));
    tensor->id = -1;
  }
}

rabbet_status_t rabbet_network_enter_layer(rabbet_layer_t* layer) {
  rabbet_network_t* network = layer->network;
  size_t tensors = network->tensors.count;
  rabbet_status_t status =
      RABBET_VEC_RESERVE(network->allocator, &network->layers, 1);
  for (size_t i = 0; rabbet_is_ok(status) && i < layer->output_count; ++i) {
    status = rabbet_network_enter_tensor(network, layer->outputs[i]);
  }
  if (rabbet_is_ok(status)) {
    status = rabbet_map_set(&network->layer_names, layer->name,
                            strlen(layer->name), layer);
  }
  if (!rabbet_is_ok(status)) {
    layer_drop_outputs(network, tensors);
    return status;
  }
  layer->index = (int32_t)network->layers.count;
  network->layers.data[network->layers.count++] = layer;
  return rabbet_ok();
}

// Undoes enter for the layer that was entered last.
static void layer_leave(rabbet_layer_t* layer) {
  rabbet_network_t* network = layer->network;
  --network->layers.count;
  layer->index = -1;
  rabbet_map_remove(&network->layer_names, layer->name, strlen(layer->name));
  layer_drop_outputs(network, network->tensors.count - layer->output_count);
}

rabbet_status_t rabbet_network_add_any_layer(
    rabbet_network_t* network, const char* op_name, const char* name,
    rabbet_tensor_t* const* inputs, size_t input_count,
    const rabbet_attr_t* attrs, size_t attr_count, rabbet_layer_t** out_layer) {
  *out_layer = NULL;
  const rabbet_op_t* op = NULL;
  rabbet_layer_t* layer = NULL;
  rabbet_status_t status = layer_find_op(op_name, &op);
  if (rabbet_is_ok(status)) {
    status = rabbet_network_new_layer(network, op, name, inputs, input_count,
                                      op->output_count, &layer);
  }
  if (rabbet_is_ok(status)) {
    status = rabbet_op_complete_attrs(op, attrs, attr_count, &network->arena,
                                      layer->attrs);
  }
  if (rabbet_is_ok(status)) status = rabbet_network_enter_layer(layer);
  if (!rabbet_is_ok(status)) {
    return rabbet_status_annotate(status, "adding layer '%s'",
                                  name && *name ? name : op_name);
  }
  *out_layer = layer;
  return rabbet_ok();
}

rabbet_status_t rabbet_network_add_layer(
    rabbet_network_t* network, const char* op_name, const char* name,
    rabbet_tensor_t* const* inputs, size_t input_count,
    const rabbet_attr_t* attrs, size_t attr_count, rabbet_layer_t** out_layer) {
  const rabbet_op_t* op = rabbet_op_find(op_name ? op_name : "");
  if (op && op->flags & RABBET_OP_STRUCTURE &&
      !rabbet_op_is(op, RABBET_OP_ASSERTION)) {
    *out_layer = NULL;
    return RABBET_STATUS(RABBET_STATUS_INVALID_ARGUMENT,
                         "adding layer '%s': layers of loops are made by "
                         "rabbet_loop_add_...",
                         name && *name ? name : op_name);
  }
  return rabbet_network_add_any_layer(network, op_name, name, inputs,
                                      input_count, attrs, attr_count,
                                      out_layer);
}

static rabbet_status_t input_count_is_wrong(
    const rabbet_plugin_creator_t* creator, size_t count) {
  return RABBET_STATUS(RABBET_STATUS_INVALID_ARGUMENT,
                       "plugin '%s' takes %d inputs, not %zu", creator->name,
                       creator->input_count, count);
}

// A plugin layer without its plugin yet.
static rabbet_status_t network_enter_plugin(
    rabbet_network_t* network, const rabbet_plugin_creator_t* creator,
    int32_t output_count, const char* name, rabbet_tensor_t* const* inputs,
    size_t input_count, rabbet_layer_t** out_layer) {
  if (output_count < 1) {
    return RABBET_STATUS(RABBET_STATUS_PLUGIN,
                         "plugin '%s' says that it has %d outputs; expected "
                         "one or more",
                         creator->name, output_count);
  }
  rabbet_layer_t* layer = NULL;
  RABBET_RETURN_IF_ERROR(rabbet_network_new_layer(
      network, rabbet_op_get(RABBET_OP_PLUGIN), name, inputs, input_count,
      (size_t)output_count, &layer));
  RABBET_RETURN_IF_ERROR(rabbet_network_enter_layer(layer));
  *out_layer = layer;
  return rabbet_ok();
}

// The inputs that a plugin layer has, and which it lacks: NULLs, and those left
// out at the end.
typedef struct present_inputs_t {
  rabbet_tensor_t** tensors;
  size_t count;
  uint64_t absent;
} present_inputs_t;

static rabbet_status_t input_is_absent(const rabbet_plugin_creator_t* creator,
                                       size_t index, size_t given,
                                       present_inputs_t* inputs) {
  uint64_t bit = index < 64 ? UINT64_C(1) << index : 0;
  if (creator->optional_inputs & bit) {
    inputs->absent |= bit;
    return rabbet_ok();
  }
  if (index >= given) return input_count_is_wrong(creator, given);
  return RABBET_STATUS(RABBET_STATUS_INVALID_ARGUMENT,
                       "input %zu of plugin '%s' is absent, but it is not one "
                       "of those that may be",
                       index, creator->name);
}

static rabbet_status_t network_present_inputs(
    rabbet_network_t* network, const rabbet_plugin_creator_t* creator,
    rabbet_tensor_t* const* given, size_t given_count,
    present_inputs_t* out_inputs) {
  *out_inputs = (present_inputs_t){0};
  RABBET_RETURN_IF_ERROR(
      rabbet_arena_allocate_array(&network->arena, given_count, sizeof(*given),
                                  (void**)&out_inputs->tensors));
  size_t count = given_count;
  if (creator->input_count >= 0 && (size_t)creator->input_count > count)
    count = (size_t)creator->input_count;
  for (size_t i = 0; i < count; ++i) {
    if (i < given_count && given[i])
      out_inputs->tensors[out_inputs->count++] = given[i];
    else
      RABBET_RETURN_IF_ERROR(
          input_is_absent(creator, i, given_count, out_inputs));
  }
  if (creator->input_count >= 0 && count > (size_t)creator->input_count)
    return input_count_is_wrong(creator, given_count);
  return rabbet_ok();
}

rabbet_status_t rabbet_network_add_plugin_of(
    rabbet_network_t* network, const char* plugin_name, const char* version,
    const char* plugin_namespace, const rabbet_plugin_create_t* create,
    rabbet_tensor_t* const* inputs, size_t input_count,
    rabbet_layer_t** out_layer) {
  *out_layer = NULL;
  rabbet_plugin_create_t args = *create;
  const char* name = create->layer_name;
  if (!name || !*name) args.layer_name = plugin_name;
  rabbet_plugin_t* plugin = NULL;
  const rabbet_plugin_creator_t* creator = NULL;
  present_inputs_t present = {0};
  rabbet_status_t status =
      rabbet_plugin_find(plugin_name, version, plugin_namespace, &creator);
  if (rabbet_is_ok(status))
    status =
        network_present_inputs(network, creator, inputs, input_count, &present);
  args.absent_inputs = present.absent;
  if (rabbet_is_ok(status))
    status =
        rabbet_plugin_create_by(creator, &args, network->allocator, &plugin);
  if (rabbet_is_ok(status))
    status = network_enter_plugin(network, creator,
                                  rabbet_plugin_output_count(plugin), name,
                                  present.tensors, present.count, out_layer);
  rabbet_plugin_creator_release(creator);
  if (!rabbet_is_ok(status)) {
    rabbet_plugin_release(plugin);
    return rabbet_status_annotate(status, "adding layer '%s'", args.layer_name);
  }
  (*out_layer)->plugin = plugin;
  rabbet_plugin_set_kinds(plugin, network->plugin_kinds);
  return rabbet_ok();
}

rabbet_status_t rabbet_network_add_plugin(
    rabbet_network_t* network, const char* plugin_name, const char* version,
    const char* plugin_namespace, const char* name,
    rabbet_tensor_t* const* inputs, size_t input_count,
    const rabbet_attr_t* attrs, size_t attr_count, rabbet_layer_t** out_layer) {
  const rabbet_plugin_create_t args = {
      .layer_name = name,
      .phase = RABBET_PLUGIN_PHASE_BUILD,
      .attrs = attrs,
      .attr_count = attr_count,
  };
  return rabbet_network_add_plugin_of(network, plugin_name, version,
                                      plugin_namespace, &args, inputs,
                                      input_count, out_layer);
}

rabbet_status_t rabbet_network_add_plugin_instance(
    rabbet_network_t* network, const rabbet_plugin_creator_t* creator,
    rabbet_plugin_instance_t take_instance, const char* name,
    rabbet_tensor_t* const* inputs, size_t input_count,
    rabbet_layer_t** out_layer) {
  *out_layer = NULL;
  rabbet_layer_t* layer = NULL;
  rabbet_plugin_creator_t own;
  rabbet_plugin_vtable_t vtable;
  RABBET_RETURN_IF_ERROR(rabbet_creator_read(creator, &own));
  rabbet_status_t status =
      rabbet_plugin_vtable_read(&own, take_instance.vtable, &vtable);
  // Wrapped last, since a wrapped instance cannot be handed back.
  if (rabbet_is_ok(status) && own.input_count >= 0 &&
      (size_t)own.input_count != input_count)
    status = input_count_is_wrong(&own, input_count);
  if (rabbet_is_ok(status)) {
    status = network_enter_plugin(network, &own,
                                  vtable.output_count(take_instance.self), name,
                                  inputs, input_count, &layer);
  }
  if (rabbet_is_ok(status)) {
    status = rabbet_plugin_wrap(&own, take_instance, network->allocator,
                                &layer->plugin);
    if (!rabbet_is_ok(status)) layer_leave(layer);
  }
  if (!rabbet_is_ok(status)) {
    return rabbet_status_annotate(status, "adding layer '%s'",
                                  name && *name ? name : own.name);
  }
  rabbet_plugin_set_kinds(layer->plugin, network->plugin_kinds);
  *out_layer = layer;
  return rabbet_ok();
}

// ---- Looking and changing --------------------------------------------------

const char* rabbet_layer_name(const rabbet_layer_t* layer) {
  return layer->name;
}

rabbet_status_t rabbet_layer_set_name(rabbet_layer_t* layer, const char* name) {
  rabbet_network_t* network = layer->network;
  if (!name || !*name) {
    return RABBET_STATUS(RABBET_STATUS_INVALID_ARGUMENT,
                         "a layer's name must not be empty");
  }
  if (strcmp(name, layer->name) == 0) return rabbet_ok();
  const char* copy = NULL;
  RABBET_RETURN_IF_ERROR(rabbet_network_claim_layer_name(network, name, &copy));
  RABBET_RETURN_IF_ERROR(
      rabbet_map_set(&network->layer_names, copy, strlen(copy), layer));
  rabbet_map_remove(&network->layer_names, layer->name, strlen(layer->name));
  layer->name = copy;
  return rabbet_ok();
}

const char* rabbet_layer_op(const rabbet_layer_t* layer) {
  return layer->op->name;
}

const char* rabbet_layer_metadata(const rabbet_layer_t* layer) {
  return layer->metadata;
}

static rabbet_status_t plugin_kinds_check(uint32_t kinds) {
  const uint32_t known = RABBET_PLUGIN_RUNS | RABBET_PLUGIN_READY |
                         RABBET_PLUGIN_PREFER_RUNS | RABBET_PLUGIN_PREFER_READY;
  if ((kinds & ~known) == 0) return rabbet_ok();
  return RABBET_STATUS(RABBET_STATUS_INVALID_ARGUMENT,
                       "%#x is not a way to run a plugin", kinds);
}

rabbet_status_t rabbet_network_set_plugin_kinds(rabbet_network_t* network,
                                                uint32_t kinds) {
  RABBET_RETURN_IF_ERROR(plugin_kinds_check(kinds));
  network->plugin_kinds = kinds;
  return rabbet_ok();
}

rabbet_status_t rabbet_layer_set_plugin_kinds(rabbet_layer_t* layer,
                                              uint32_t kinds) {
  if (!layer->plugin)
    return RABBET_STATUS(RABBET_STATUS_INVALID_ARGUMENT,
                         "layer '%s' is not a plugin layer but a %s layer",
                         layer->name, layer->op->name);
  RABBET_RETURN_IF_ERROR(plugin_kinds_check(kinds));
  rabbet_plugin_set_kinds(layer->plugin, kinds);
  return rabbet_ok();
}

rabbet_status_t rabbet_layer_set_metadata(rabbet_layer_t* layer,
                                          const char* metadata) {
  RABBET_RETURN_IF_ERROR(rabbet_text_check("metadata of a layer", metadata));
  return rabbet_arena_strdup(&layer->network->arena, metadata ? metadata : "",
                             &layer->metadata);
}

size_t rabbet_layer_input_count(const rabbet_layer_t* layer) {
  return layer->input_count + (layer->next != NULL) - layer->has_default_length;
}

rabbet_tensor_t* rabbet_layer_input(const rabbet_layer_t* layer, size_t index) {
  if (layer->next && index == 1) return layer->next;
  return index < rabbet_layer_input_count(layer) ? layer->inputs[index] : NULL;
}

size_t rabbet_layer_output_count(const rabbet_layer_t* layer) {
  size_t hidden = layer->op->output_count - rabbet_op_shown_outputs(layer->op);
  return layer->output_count - hidden;
}

rabbet_tensor_t* rabbet_layer_output(const rabbet_layer_t* layer,
                                     size_t index) {
  return index < rabbet_layer_output_count(layer) ? layer->outputs[index]
                                                  : NULL;
}

static const char* layer_attr_at(const void* list, size_t index) {
  return ((const rabbet_op_attr_t*)list)[index].name;
}

rabbet_status_t rabbet_layer_attr(const rabbet_layer_t* layer, const char* name,
                                  const rabbet_attr_t** out_attr) {
  const rabbet_op_t* op = layer->op;
  *out_attr = rabbet_attr_find(layer->attrs, op->attr_count, name);
  if (*out_attr) return rabbet_ok();
  char text[128];
  rabbet_status_t status = RABBET_STATUS(
      RABBET_STATUS_NOT_FOUND, "layer '%s' (%s) has no attribute '%s'%s",
      layer->name, op->name, name,
      rabbet_suggest_print(name, layer_attr_at, op->attrs, op->attr_count, text,
                           sizeof text));
  return status;
}

rabbet_status_t rabbet_layer_set_attr(rabbet_layer_t* layer,
                                      const rabbet_attr_t* attr) {
  size_t index = 0;
  rabbet_attr_t complete = {0};
  rabbet_status_t status = rabbet_op_complete_attr(
      layer->op, attr, &layer->network->arena, &index, &complete);
  if (!rabbet_is_ok(status)) {
    return rabbet_status_annotate(status, "layer '%s'", layer->name);
  }
  layer->attrs[index] = complete;
  rabbet_network_layer_changed(layer);
  return rabbet_ok();
}

rabbet_dtype_t rabbet_layer_precision(const rabbet_layer_t* layer) {
  return layer->precision;
}

rabbet_status_t rabbet_layer_set_precision(rabbet_layer_t* layer,
                                           rabbet_dtype_t dtype) {
  if (dtype < RABBET_DTYPE_NONE || dtype >= RABBET_DTYPE_COUNT) {
    return RABBET_STATUS(RABBET_STATUS_INVALID_ARGUMENT,
                         "layer '%s': %d is not a data type", layer->name,
                         (int)dtype);
  }
  if (layer->network->flags & RABBET_NETWORK_STRONGLY_TYPED) {
    return RABBET_STATUS(
        RABBET_STATUS_FAILED_PRECONDITION,
        "layer '%s': its precision follows from its inputs, as the network is "
        "strongly typed; add cast layers",
        layer->name);
  }
  layer->precision = dtype;
  return rabbet_ok();
}

rabbet_plugin_instance_t rabbet_layer_plugin_instance(
    const rabbet_layer_t* layer) {
  return layer->plugin ? rabbet_plugin_instance(layer->plugin)
                       : (rabbet_plugin_instance_t){NULL, NULL};
}

void* rabbet_layer_plugin_self(const rabbet_layer_t* layer) {
  return layer->plugin ? rabbet_plugin_self(layer->plugin) : NULL;
}
