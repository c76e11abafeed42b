// Conditionals: their boundary layers, and the tensors that these may read.
#include <string.h>

#include "base/text.h"
#include "network/inside.h"

static const rabbet_conditional_t* conditional_named(
    const rabbet_network_t* network, const char* name) {
  for (size_t i = 0; i < network->conditionals.count; ++i)
    if (strcmp(network->conditionals.data[i]->name, name) == 0)
      return network->conditionals.data[i];
  return NULL;
}

static rabbet_status_t conditional_claim_name(rabbet_network_t* network,
                                              const char* name,
                                              const char** out_name) {
  RABBET_RETURN_IF_ERROR(rabbet_text_check("the name of a conditional", name));
  if (name && conditional_named(network, name))
    return RABBET_STATUS(RABBET_STATUS_ALREADY_EXISTS,
                         "there is a conditional named '%s' already", name);
  if (name) return rabbet_arena_strdup(&network->arena, name, out_name);
  for (size_t i = network->conditionals.count;; ++i) {
    RABBET_RETURN_IF_ERROR(
        rabbet_arena_printf(&network->arena, out_name, "conditional_%zu", i));
    if (!conditional_named(network, *out_name)) return rabbet_ok();
  }
}

rabbet_status_t rabbet_network_add_conditional(
    rabbet_network_t* network, const char* name,
    rabbet_conditional_t** out_conditional) {
  *out_conditional = NULL;
  rabbet_conditional_t* conditional = NULL;
  RABBET_RETURN_IF_ERROR(rabbet_arena_allocate(
      &network->arena, sizeof(*conditional), (void**)&conditional));
  conditional->network = network;
  RABBET_RETURN_IF_ERROR(conditional_claim_name(
      network, name && *name ? name : NULL, &conditional->name));
  RABBET_RETURN_IF_ERROR(
      RABBET_VEC_PUSH(network->allocator, &network->conditionals, conditional));
  *out_conditional = conditional;
  return rabbet_ok();
}

size_t rabbet_network_conditional_count(const rabbet_network_t* network) {
  return network->conditionals.count;
}

rabbet_conditional_t* rabbet_network_conditional(
    const rabbet_network_t* network, size_t index) {
  return index < network->conditionals.count ? network->conditionals.data[index]
                                             : NULL;
}

const char* rabbet_conditional_name(const rabbet_conditional_t* conditional) {
  return conditional->name;
}

rabbet_status_t rabbet_conditional_set_name(rabbet_conditional_t* conditional,
                                            const char* name) {
  if (!name || !*name)
    return RABBET_STATUS(RABBET_STATUS_INVALID_ARGUMENT,
                         "a conditional's name must not be empty");
  if (strcmp(name, conditional->name) == 0) return rabbet_ok();
  return conditional_claim_name(conditional->network, name, &conditional->name);
}

rabbet_conditional_t* rabbet_layer_conditional(const rabbet_layer_t* layer) {
  return layer->conditional;
}

// ---- Their layers ----------------------------------------------------------

static rabbet_status_t conditional_add(rabbet_conditional_t* conditional,
                                       rabbet_op_id_t op,
                                       rabbet_tensor_t* const* inputs,
                                       size_t input_count,
                                       rabbet_layer_t** out_layer) {
  *out_layer = NULL;
  rabbet_network_t* network = conditional->network;
  rabbet_layer_t* layer = NULL;
  rabbet_status_t status =
      op == RABBET_OP_CONDITION
          ? rabbet_network_new_layer(network, rabbet_op_get(op), NULL, inputs,
                                     input_count, 0, &layer)
          : rabbet_network_add_any_layer(network, rabbet_op_get(op)->name, NULL,
                                         inputs, input_count, NULL, 0, &layer);
  if (rabbet_is_ok(status) && op == RABBET_OP_CONDITION)
    status = rabbet_network_enter_layer(layer);
  if (!rabbet_is_ok(status))
    return rabbet_status_annotate(status, "conditional '%s'",
                                  conditional->name);
  layer->conditional = conditional;
  *out_layer = layer;
  return rabbet_ok();
}

rabbet_layer_t* rabbet_conditional_condition(
    const rabbet_conditional_t* conditional) {
  const rabbet_network_t* network = conditional->network;
  for (size_t i = 0; i < network->layers.count; ++i) {
    rabbet_layer_t* layer = network->layers.data[i];
    if (layer->conditional == conditional &&
        rabbet_op_is(layer->op, RABBET_OP_CONDITION))
      return layer;
  }
  return NULL;
}

rabbet_status_t rabbet_conditional_set_condition(
    rabbet_conditional_t* conditional, rabbet_tensor_t* condition,
    rabbet_layer_t** out_layer) {
  *out_layer = NULL;
  const rabbet_layer_t* other = rabbet_conditional_condition(conditional);
  if (other)
    return RABBET_STATUS(RABBET_STATUS_ALREADY_EXISTS,
                         "conditional '%s' has a condition already, layer '%s'",
                         conditional->name, other->name);
  return conditional_add(conditional, RABBET_OP_CONDITION, &condition, 1,
                         out_layer);
}

rabbet_status_t rabbet_conditional_add_input(rabbet_conditional_t* conditional,
                                             rabbet_tensor_t* tensor,
                                             rabbet_layer_t** out_layer) {
  return conditional_add(conditional, RABBET_OP_CONDITIONAL_INPUT, &tensor, 1,
                         out_layer);
}

rabbet_status_t rabbet_conditional_add_output(rabbet_conditional_t* conditional,
                                              rabbet_tensor_t* yes,
                                              rabbet_tensor_t* no,
                                              rabbet_layer_t** out_layer) {
  rabbet_tensor_t* const inputs[] = {yes, no};
  *out_layer = NULL;
  if (!rabbet_conditional_condition(conditional))
    return RABBET_STATUS(
        RABBET_STATUS_INVALID_ARGUMENT,
        "conditional '%s' has no condition: set it before outputs",
        conditional->name);
  return conditional_add(conditional, RABBET_OP_CONDITIONAL_OUTPUT, inputs, 2,
                         out_layer);
}
