// The layer and role of a weights tensor, and its name for refitters.
#include <string.h>

#include "base/strbuf.h"
#include "network/inside.h"

// Numbers of TensorRT's WeightsRole, and the suffixes that it appends to
// layers' names.
enum { ROLE_KERNEL = 0, ROLE_BIAS = 1, ROLE_CONSTANT = 4, ROLE_ANY = 5 };
static const char* const role_names[] = {"KERNEL", "BIAS",     "SHIFT",
                                         "SCALE",  "CONSTANT", "ANY"};
enum { ROLE_COUNT = sizeof(role_names) / sizeof(*role_names) };

static bool weights_is_constant(const rabbet_tensor_t* tensor) {
  return tensor->kind == RABBET_TENSOR_WEIGHTS ||
         (tensor->producer &&
          rabbet_op_is(tensor->producer->op, RABBET_OP_CONSTANT));
}

rabbet_status_t rabbet_tensor_set_role(rabbet_tensor_t* tensor,
                                       const rabbet_layer_t* layer,
                                       int32_t role) {
  RABBET_RETURN_IF_ERROR(rabbet_network_check_tensor(tensor->network, tensor));
  if (!weights_is_constant(tensor) ||
      (layer && layer->network != tensor->network) || role < 0 ||
      role >= ROLE_COUNT)
    return RABBET_STATUS(RABBET_STATUS_INVALID_ARGUMENT,
                         "tensor '%s' cannot be weights of role %d; expected "
                         "weights or a constant, a layer of the same network, "
                         "and a role of 0 to %d",
                         tensor->name, role, ROLE_COUNT - 1);
  tensor->has_role = true;
  tensor->role_layer = layer;
  tensor->role = role;
  return rabbet_ok();
}

// The first layer that reads weights.
static const rabbet_layer_t* weights_reader(const rabbet_tensor_t* tensor,
                                            size_t* out_input) {
  const rabbet_network_t* network = tensor->network;
  for (size_t i = 0; i < network->layers.count; ++i) {
    const rabbet_layer_t* layer = network->layers.data[i];
    for (size_t k = 0; k < layer->input_count; ++k) {
      if (layer->inputs[k] != tensor) continue;
      *out_input = k;
      return layer;
    }
  }
  return NULL;
}

const rabbet_layer_t* rabbet_tensor_role(const rabbet_tensor_t* tensor,
                                         int32_t* out_role) {
  *out_role = tensor->role;
  if (tensor->has_role) return tensor->role_layer;
  *out_role = ROLE_CONSTANT;
  if (tensor->kind == RABBET_TENSOR_LAYER) return tensor->producer;
  size_t input = 0;
  const rabbet_layer_t* layer = weights_reader(tensor, &input);
  bool convolves = layer && (rabbet_op_is(layer->op, RABBET_OP_CONVOLUTION) ||
                             rabbet_op_is(layer->op, RABBET_OP_DECONVOLUTION));
  *out_role = !convolves || input > 2 ? ROLE_ANY
              : input == 1            ? ROLE_KERNEL
                                      : ROLE_BIAS;
  return layer;
}

void rabbet_tensor_print_weights_name(const rabbet_tensor_t* tensor,
                                      rabbet_strbuf_t* out) {
  int32_t role = 0;
  const rabbet_layer_t* layer = rabbet_tensor_role(tensor, &role);
  // A layer may read several weights of no special role.
  if (tensor->has_own_name || !layer || role == ROLE_ANY)
    rabbet_strbuf_printf(out, "%s", tensor->name);
  else
    rabbet_strbuf_printf(out, "%s %s", layer->name, role_names[role]);
}

rabbet_status_t rabbet_network_find_weights(const rabbet_network_t* network,
                                            const char* name,
                                            rabbet_tensor_t** out_tensor) {
  rabbet_strbuf_t buffer;
  rabbet_strbuf_initialize(network->allocator, &buffer);
  *out_tensor = rabbet_network_find_tensor(network, name);
  rabbet_status_t status = rabbet_ok();
  for (size_t i = 0;
       !*out_tensor && i < network->tensors.count && rabbet_is_ok(status);
       ++i) {
    rabbet_tensor_t* tensor = network->tensors.data[i];
    if (!weights_is_constant(tensor)) continue;
    buffer.size = 0;
    rabbet_tensor_print_weights_name(tensor, &buffer);
    status = rabbet_strbuf_status(&buffer);
    if (rabbet_is_ok(status) && strcmp(rabbet_strbuf_text(&buffer), name) == 0)
      *out_tensor = tensor;
  }
  rabbet_strbuf_deinitialize(&buffer);
  return status;
}
