// Changes to existing layers: their inputs, and removal.
#include <string.h>

#include "base/strbuf.h"
#include "network/inside.h"

// ---- Inputs ----------------------------------------------------------------

// Marks, among layers after `first`, those that `tensor` is computed by.
// False if `first` is one of them: a cycle.
static bool network_find_makers(const rabbet_network_t* network,
                                const rabbet_layer_t* first,
                                const rabbet_tensor_t* tensor, bool* makers) {
  makers[tensor->producer->index] = true;
  for (int32_t i = tensor->producer->index; i > first->index; --i) {
    if (!makers[i]) continue;
    const rabbet_layer_t* layer = network->layers.data[i];
    for (size_t k = 0; k < layer->input_count; ++k) {
      if (layer->inputs[k] && layer->inputs[k]->producer) {
        makers[layer->inputs[k]->producer->index] = true;
      }
    }
  }
  return !makers[first->index];
}

// Moves `first` and the unmarked layers behind the marked ones in [first,
// last]; order is kept otherwise.
static void network_move_makers(rabbet_network_t* network, int32_t first,
                                int32_t last, const bool* makers,
                                rabbet_layer_t** scratch) {
  int32_t at = first;
  for (int pass = 0; pass < 2; ++pass) {
    for (int32_t i = first; i <= last; ++i) {
      if (makers[i] == (pass == 0)) scratch[at++] = network->layers.data[i];
    }
  }
  for (int32_t i = first; i <= last; ++i) {
    network->layers.data[i] = scratch[i];
    scratch[i]->index = i;
  }
}

// Orders layers so that the tensor is made before `layer` runs.
static rabbet_status_t network_order(rabbet_layer_t* layer,
                                     const rabbet_tensor_t* tensor) {
  rabbet_network_t* network = layer->network;
  if (!tensor || !tensor->producer || tensor->producer->index < layer->index) {
    return rabbet_ok();
  }
  size_t count = network->layers.count;
  bool* makers = NULL;
  rabbet_layer_t** scratch = NULL;
  rabbet_status_t status =
      rabbet_allocate(network->allocator, count, (void**)&makers);
  if (rabbet_is_ok(status)) {
    status = rabbet_allocate(network->allocator, count * sizeof(*scratch),
                             (void**)&scratch);
  }
  if (rabbet_is_ok(status)) {
    if (network_find_makers(network, layer, tensor, makers)) {
      rabbet_network_changed(network);
      network_move_makers(network, layer->index, tensor->producer->index,
                          makers, scratch);
    } else {
      status = RABBET_STATUS(RABBET_STATUS_INVALID_ARGUMENT,
                             "tensor '%s' is computed from this layer's own "
                             "output; that would be a cycle",
                             tensor->name);
    }
  }
  rabbet_free(network->allocator, scratch);
  rabbet_free(network->allocator, makers);
  return status;
}

static rabbet_status_t layer_check_index(const rabbet_layer_t* layer,
                                         size_t index,
                                         const rabbet_tensor_t* tensor) {
  const rabbet_op_operand_t* operand = rabbet_op_input(layer->op, index);
  bool variadic = operand && operand->flags & RABBET_OPERAND_VARIADIC;
  bool recurs = rabbet_op_is(layer->op, RABBET_OP_RECURRENCE);
  size_t has = rabbet_layer_input_count(layer);
  size_t most = operand ? has + 1 : rabbet_op_max_inputs(layer->op) + recurs;
  if (!operand || (variadic && index > layer->input_count)) {
    return RABBET_STATUS(
        RABBET_STATUS_OUT_OF_RANGE,
        "there is no input %zu; it has %zu input%s and can have %zu%s", index,
        has, rabbet_plural(has), most,
        recurs ? ": 0, the first value, and 1, the next one" : "");
  }
  if (!tensor && !(operand->flags & RABBET_OPERAND_OPTIONAL)) {
    return RABBET_STATUS(RABBET_STATUS_INVALID_ARGUMENT,
                         "input %zu ('%s') cannot be omitted", index,
                         operand->name);
  }
  return tensor ? rabbet_network_check_tensor(layer->network, tensor)
                : rabbet_ok();
}

static rabbet_status_t layer_place_input(rabbet_layer_t* layer, size_t index,
                                         rabbet_tensor_t* tensor) {
  RABBET_RETURN_IF_ERROR(layer_check_index(layer, index, tensor));
  rabbet_tensor_t** inputs = layer->inputs;
  size_t count = layer->input_count;
  if (index >= count) {
    RABBET_RETURN_IF_ERROR(rabbet_arena_allocate_array(
        &layer->network->arena, index + 1, sizeof(*inputs), (void**)&inputs));
    if (count > 0) memcpy(inputs, layer->inputs, count * sizeof(*inputs));
    count = index + 1;
  }
  RABBET_RETURN_IF_ERROR(network_order(layer, tensor));
  inputs[index] = tensor;
  layer->inputs = inputs;
  layer->input_count = count;
  rabbet_network_layer_changed(layer);
  return rabbet_ok();
}

// Sets the value that an iteration leaves to the next one. It is made by a
// later layer, so that the order of layers and inference know nothing of it.
static rabbet_status_t layer_place_next(rabbet_layer_t* layer,
                                        rabbet_tensor_t* tensor) {
  if (!tensor) {
    return RABBET_STATUS(RABBET_STATUS_INVALID_ARGUMENT,
                         "input 1, the next value, cannot be omitted");
  }
  RABBET_RETURN_IF_ERROR(rabbet_network_check_tensor(layer->network, tensor));
  layer->next = tensor;
  return rabbet_ok();
}

rabbet_status_t rabbet_layer_set_input(rabbet_layer_t* layer, size_t index,
                                       rabbet_tensor_t* tensor) {
  bool is_next = index == 1 && rabbet_op_is(layer->op, RABBET_OP_RECURRENCE);
  rabbet_status_t status = is_next ? layer_place_next(layer, tensor)
                                   : layer_place_input(layer, index, tensor);
  if (rabbet_is_ok(status)) {
    if (index == 1) layer->has_default_length = false;
    return status;
  }
  return rabbet_status_annotate(status, "layer '%s' (%s)", layer->name,
                                layer->op->name);
}

// ---- Removal ---------------------------------------------------------------

static rabbet_status_t network_check_unread(const rabbet_network_t* network,
                                            const rabbet_tensor_t* tensor) {
  if (tensor->is_output) {
    return RABBET_STATUS(RABBET_STATUS_FAILED_PRECONDITION,
                         "tensor '%s' is a network output; unmark it first",
                         tensor->name);
  }
  for (size_t i = 0; i < network->layers.count; ++i) {
    const rabbet_layer_t* layer = network->layers.data[i];
    for (size_t k = 0; k <= layer->input_count; ++k) {
      const rabbet_tensor_t* read =
          k < layer->input_count ? layer->inputs[k] : layer->next;
      if (read != tensor) continue;
      return RABBET_STATUS(RABBET_STATUS_FAILED_PRECONDITION,
                           "tensor '%s' is read by layer '%s'; give that "
                           "layer another input first",
                           tensor->name, layer->name);
    }
  }
  return rabbet_ok();
}

static void network_drop_tensor(rabbet_network_t* network,
                                rabbet_tensor_t* tensor) {
  rabbet_map_remove(&network->tensor_names, tensor->name, strlen(tensor->name));
  size_t at = (size_t)tensor->id;
  for (size_t i = at + 1; i < network->tensors.count; ++i) {
    network->tensors.data[i - 1] = network->tensors.data[i];
    network->tensors.data[i - 1]->id = (int32_t)(i - 1);
  }
  --network->tensors.count;
  tensor->id = -1;
  for (size_t i = 0; i < network->inputs.count; ++i) {
    if (network->inputs.data[i] != tensor) continue;
    memmove(network->inputs.data + i, network->inputs.data + i + 1,
            (--network->inputs.count - i) * sizeof(tensor));
    break;
  }
}

static void loop_drop_layer(rabbet_loop_t* loop, const rabbet_layer_t* layer) {
  for (size_t i = 0; loop && i < loop->layers.count; ++i) {
    if (loop->layers.data[i] != layer) continue;
    memmove(loop->layers.data + i, loop->layers.data + i + 1,
            (--loop->layers.count - i) * sizeof(layer));
  }
}

static void network_drop_layer(rabbet_network_t* network,
                               rabbet_layer_t* layer) {
  loop_drop_layer(layer->loop, layer);
  layer->loop = NULL;
  rabbet_map_remove(&network->layer_names, layer->name, strlen(layer->name));
  for (size_t i = (size_t)layer->index + 1; i < network->layers.count; ++i) {
    network->layers.data[i - 1] = network->layers.data[i];
    network->layers.data[i - 1]->index = (int32_t)(i - 1);
  }
  --network->layers.count;
  layer->index = -1;
  rabbet_plugin_release(layer->plugin);
  layer->plugin = NULL;
}

rabbet_status_t rabbet_network_remove_tensor(rabbet_network_t* network,
                                             rabbet_tensor_t* tensor) {
  RABBET_RETURN_IF_ERROR(rabbet_network_check_tensor(network, tensor));
  rabbet_layer_t* layer = tensor->producer;
  rabbet_tensor_t* const* tensors = layer ? layer->outputs : &tensor;
  size_t count = layer ? layer->output_count : 1;
  for (size_t i = 0; i < count; ++i) {
    RABBET_RETURN_IF_ERROR(network_check_unread(network, tensors[i]));
  }
  rabbet_network_changed(network);
  for (size_t i = 0; i < count; ++i) {
    network_drop_tensor(network, tensors[i]);
  }
  if (layer) network_drop_layer(network, layer);
  return rabbet_ok();
}
