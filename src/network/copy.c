// Parts of a network made again in another, which keeps the first alive.
#include <string.h>

#include "network/inside.h"

static void network_release_owner(void* network) {
  rabbet_network_release(network);
}

rabbet_status_t rabbet_network_copy_empty(rabbet_network_t* like,
                                          rabbet_allocator_t allocator,
                                          rabbet_network_t** out_network) {
  *out_network = NULL;
  rabbet_network_t* network = NULL;
  RABBET_RETURN_IF_ERROR(
      rabbet_network_create(like->flags, allocator, like->logger, &network));
  rabbet_status_t status =
      rabbet_network_take_owner(network, like, network_release_owner);
  if (!rabbet_is_ok(status)) {
    rabbet_network_release(network);
    return status;
  }
  rabbet_network_retain(like);
  network->name = like->name;
  network->unfused_debug = like->unfused_debug;
  network->plugin_kinds = like->plugin_kinds;
  *out_network = network;
  return rabbet_ok();
}

rabbet_status_t rabbet_tensor_copy_wishes(rabbet_tensor_t* tensor,
                                          const rabbet_tensor_t* like,
                                          const char* prefix) {
  const char* name = NULL;
  RABBET_RETURN_IF_ERROR(rabbet_arena_printf(&tensor->network->arena, &name,
                                             "%s%s", prefix, like->name));
  RABBET_RETURN_IF_ERROR(rabbet_tensor_set_name(tensor, name));
  tensor->has_own_name = like->has_own_name;
  tensor->wished_dtype = like->wished_dtype;
  tensor->is_debug = like->is_debug;
  tensor->is_refittable = like->is_refittable;
  // One of several copies of weights has a layer and role of its own.
  tensor->has_role = like->has_role && (!*prefix || !like->role_layer);
  tensor->role_layer = like->role_layer;
  tensor->role = like->role;
  tensor->has_range = like->has_range;
  memcpy(tensor->range, like->range, sizeof(tensor->range));
  tensor->allowed_formats = like->allowed_formats;
  return rabbet_ok();
}

rabbet_status_t rabbet_network_copy_source(rabbet_network_t* network,
                                           const rabbet_tensor_t* like,
                                           rabbet_tensor_t** out_tensor) {
  *out_tensor = NULL;
  rabbet_tensor_t* tensor = NULL;
  if (like->kind == RABBET_TENSOR_INPUT) {
    RABBET_RETURN_IF_ERROR(rabbet_network_add_input(
        network, like->name, like->dtype, &like->given_dims, &tensor));
    memcpy(tensor->dim_names, like->dim_names, sizeof tensor->dim_names);
  } else {
    rabbet_weights_t weights = {.dtype = like->dtype, .data = like->constant};
    RABBET_RETURN_IF_ERROR(
        rabbet_dims_count(&like->given_dims, &weights.count));
    RABBET_RETURN_IF_ERROR(rabbet_network_add_weights(
        network, like->name, weights, &like->given_dims, false, &tensor));
  }
  RABBET_RETURN_IF_ERROR(rabbet_tensor_copy_wishes(tensor, like, ""));
  *out_tensor = tensor;
  return rabbet_ok();
}

rabbet_status_t rabbet_network_copy_layer(rabbet_network_t* network,
                                          const rabbet_layer_t* like,
                                          const char* prefix,
                                          rabbet_tensor_t* const* inputs,
                                          rabbet_layer_t** out_layer) {
  *out_layer = NULL;
  const char* name = NULL;
  rabbet_layer_t* layer = NULL;
  RABBET_RETURN_IF_ERROR(
      rabbet_arena_printf(&network->arena, &name, "%s%s", prefix, like->name));
  RABBET_RETURN_IF_ERROR(rabbet_network_new_layer(network, like->op, name,
                                                  inputs, like->input_count,
                                                  like->output_count, &layer));
  memcpy(layer->attrs, like->attrs,
         like->op->attr_count * sizeof(*layer->attrs));
  layer->metadata = like->metadata;
  layer->precision = like->precision;
  layer->bodies = like->bodies;
  rabbet_plugin_t* plugin = NULL;
  if (like->plugin) {
    RABBET_RETURN_IF_ERROR(rabbet_plugin_clone(like->plugin, &plugin));
  }
  rabbet_status_t status = rabbet_network_enter_layer(layer);
  if (!rabbet_is_ok(status)) {
    rabbet_plugin_release(plugin);
    return status;
  }
  layer->plugin = plugin;
  for (size_t i = 0; i < layer->output_count; ++i) {
    RABBET_RETURN_IF_ERROR(
        rabbet_tensor_copy_wishes(layer->outputs[i], like->outputs[i], prefix));
  }
  *out_layer = layer;
  return rabbet_ok();
}

// ---- Boundaries of loops and conditionals ----------------------------------

static rabbet_status_t copy_loop(rabbet_network_t* network,
                                 const rabbet_loop_t* like, const char* prefix,
                                 rabbet_loop_t** out_loop) {
  const char* name = NULL;
  RABBET_RETURN_IF_ERROR(
      rabbet_arena_printf(&network->arena, &name, "%s%s", prefix, like->name));
  for (size_t i = 0; i < network->loops.count; ++i) {
    *out_loop = network->loops.data[i];
    if (strcmp((*out_loop)->name, name) == 0) return rabbet_ok();
  }
  RABBET_RETURN_IF_ERROR(rabbet_network_add_loop(network, name, out_loop));
  if (!like->outer) return rabbet_ok();
  rabbet_loop_t* outer = NULL;
  rabbet_status_t status = copy_loop(network, like->outer, prefix, &outer);
  (*out_loop)->outer = outer;
  return status;
}

static rabbet_status_t copy_conditional(rabbet_network_t* network,
                                        const rabbet_conditional_t* like,
                                        const char* prefix,
                                        rabbet_conditional_t** out) {
  const char* name = NULL;
  RABBET_RETURN_IF_ERROR(
      rabbet_arena_printf(&network->arena, &name, "%s%s", prefix, like->name));
  for (size_t i = 0; i < network->conditionals.count; ++i) {
    *out = network->conditionals.data[i];
    if (strcmp((*out)->name, name) == 0) return rabbet_ok();
  }
  return rabbet_network_add_conditional(network, name, out);
}

rabbet_status_t rabbet_network_copy_boundary(rabbet_layer_t* copy,
                                             const rabbet_layer_t* like,
                                             const char* prefix) {
  rabbet_network_t* network = copy->network;
  copy->has_default_length = like->has_default_length;
  copy->is_told = like->is_told;
  copy->varying = like->varying;
  if (like->conditional) {
    RABBET_RETURN_IF_ERROR(copy_conditional(network, like->conditional, prefix,
                                            &copy->conditional));
  }
  if (!like->loop) return rabbet_ok();
  rabbet_loop_t* loop = NULL;
  RABBET_RETURN_IF_ERROR(copy_loop(network, like->loop, prefix, &loop));
  RABBET_RETURN_IF_ERROR(
      RABBET_VEC_PUSH(network->allocator, &loop->layers, copy));
  copy->loop = loop;
  return rabbet_ok();
}
