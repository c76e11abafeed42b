// Tensors on whose values shapes depend.
//
// Where expressions give a shape operand's values nothing is to be done. Where
// they do not, the values come from tensors further back: network inputs,
// which then are shape inputs, or results that only a run tells (the largest
// element of a mask, say), which the host then reads. The elements of both
// become symbols, and inference starts again, so that everything that is
// computed from them is an expression: one read serves all, and equal sizes are
// known to be equal. Else the host reads the operand itself.
#include <string.h>

#include "network/inside.h"
#include "ops/rules.h"

// Larger tensors are not followed for the values of a later tensor.
#define RABBET_FOLLOW_MAX_ROOT 64

static int64_t tensor_static_count(const rabbet_network_t* network,
                                   const rabbet_tensor_t* tensor) {
  rabbet_dims_t dims = rabbet_shape_dims(network->graph, &tensor->shape);
  int64_t count = 1;
  for (int32_t i = 0; i < dims.rank; ++i) {
    if (dims.d[i] < 0) return -1;
    if (__builtin_mul_overflow(count, dims.d[i], &count)) return INT64_MAX;
  }
  return count;
}

rabbet_status_t rabbet_network_read_on_host(rabbet_network_t* network,
                                            rabbet_tensor_t* tensor) {
  int64_t count = tensor_static_count(network, tensor);
  if (count < 0 || count > RABBET_OP_MAX_VALUES) {
    rabbet_dims_t dims = rabbet_shape_dims(network->graph, &tensor->shape);
    char text[128];
    return RABBET_STATUS(
        RABBET_STATUS_UNSUPPORTED,
        "a shape depends on the values of tensor '%s', whose shape is %s; it "
        "must have a known number of elements, at most %d",
        tensor->name, rabbet_dims_print(&dims, text, sizeof text),
        RABBET_OP_MAX_VALUES);
  }
  rabbet_expr_t* values = NULL;
  RABBET_RETURN_IF_ERROR(rabbet_arena_allocate_array(
      &network->infer_arena, (size_t)count, sizeof(*values), (void**)&values));
  for (int64_t i = 0; i < count; ++i) {
    const rabbet_symbol_t symbol = {
        .kind = RABBET_SYMBOL_VALUE,
        .tensor = tensor->id,
        .index = (int32_t)i,
        .opt = RABBET_EXPR_NONE,
        .upper = RABBET_EXPR_NONE,
    };
    RABBET_RETURN_IF_ERROR(
        rabbet_expr_of_symbol(network->graph, &symbol, &values[i]));
  }
  tensor->values = values;
  tensor->value_count = (size_t)count;
  tensor->is_host_read = true;
  tensor->is_shape_tensor = true;
  return rabbet_ok();
}

// Whether the tensor's elements may become symbols. Shape inputs are INT32 or
// INT64, so that a mask stays in the memory that its other readers need.
static bool tensor_can_be_root(const rabbet_network_t* network,
                               const rabbet_tensor_t* tensor) {
  bool readable = tensor->dtype == RABBET_DTYPE_INT32 ||
                  tensor->dtype == RABBET_DTYPE_INT64;
  if (tensor->is_followed || !readable) return false;
  int64_t count = tensor_static_count(network, tensor);
  return count >= 0 && count <= RABBET_FOLLOW_MAX_ROOT;
}

static bool tensor_has_values(const rabbet_tensor_t* tensor) {
  return !tensor || tensor->values || tensor->constant;
}

static bool layer_passes_values(const rabbet_layer_t* layer) {
  return layer->input_count > 0 && layer->inputs[0] &&
         rabbet_op_passes_values(layer->op, layer->attrs,
                                 layer->inputs[0]->dtype);
}

// Sources of the values of a tensor that has none yet.
typedef enum follow_t {
  RABBET_FOLLOW_UNSEEN = 0,
  RABBET_FOLLOW_WANTED,   // not decided yet
  RABBET_FOLLOW_DERIVED,  // from its layer's inputs
  RABBET_FOLLOW_ROOT,     // its elements may become symbols
  RABBET_FOLLOW_LOST,
} follow_t;

// Marks the tensors from which `tensor`'s values may be computed.
static void follow_collect(const rabbet_network_t* network,
                           const rabbet_tensor_t* tensor, uint8_t* states) {
  states[tensor->id] = RABBET_FOLLOW_WANTED;
  for (int32_t i = tensor->producer->index; i >= 0; --i) {
    const rabbet_layer_t* layer = network->layers.data[i];
    bool wanted = false;
    for (size_t k = 0; k < layer->output_count; ++k)
      wanted |= states[layer->outputs[k]->id] == RABBET_FOLLOW_WANTED;
    if (!wanted || !layer_passes_values(layer)) continue;
    for (size_t k = 0; k < layer->input_count; ++k)
      if (!tensor_has_values(layer->inputs[k]))
        states[layer->inputs[k]->id] = RABBET_FOLLOW_WANTED;
  }
}

static bool layer_derives(const rabbet_layer_t* layer, const uint8_t* states) {
  if (!layer_passes_values(layer)) return false;
  for (size_t k = 0; k < layer->input_count; ++k) {
    const rabbet_tensor_t* input = layer->inputs[k];
    if (!input || input->constant) continue;
    if (rabbet_op_steers(layer->op, k)) return false;
    uint8_t state = states[input->id];
    if (!input->values && state != RABBET_FOLLOW_DERIVED &&
        state != RABBET_FOLLOW_ROOT)
      return false;
  }
  return true;
}

// Decides for each tensor that is wanted, in the order of execution.
static void follow_decide(const rabbet_network_t* network, int32_t last_layer,
                          uint8_t* states) {
  for (size_t i = 0; i < network->inputs.count; ++i) {
    const rabbet_tensor_t* input = network->inputs.data[i];
    if (states[input->id] != RABBET_FOLLOW_WANTED) continue;
    states[input->id] = tensor_can_be_root(network, input) ? RABBET_FOLLOW_ROOT
                                                           : RABBET_FOLLOW_LOST;
  }
  for (int32_t i = 0; i <= last_layer; ++i) {
    const rabbet_layer_t* layer = network->layers.data[i];
    for (size_t k = 0; k < layer->output_count; ++k) {
      const rabbet_tensor_t* output = layer->outputs[k];
      if (states[output->id] != RABBET_FOLLOW_WANTED) continue;
      states[output->id] = layer_derives(layer, states) ? RABBET_FOLLOW_DERIVED
                           : tensor_can_be_root(network, output)
                               ? RABBET_FOLLOW_ROOT
                               : RABBET_FOLLOW_LOST;
    }
  }
}

// Makes the roots behind `tensor`, whose values are derived, symbols.
static void follow_mark(rabbet_network_t* network,
                        const rabbet_tensor_t* tensor, uint8_t* states,
                        bool* out_found) {
  if (states[tensor->id] != RABBET_FOLLOW_DERIVED) return;
  uint8_t* needed = states + network->tensors.count;
  needed[tensor->id] = 1;
  for (int32_t i = tensor->producer->index; i >= 0; --i) {
    const rabbet_layer_t* layer = network->layers.data[i];
    bool derives = false;
    for (size_t k = 0; k < layer->output_count; ++k) {
      rabbet_tensor_t* output = layer->outputs[k];
      if (!needed[output->id]) continue;
      derives |= states[output->id] == RABBET_FOLLOW_DERIVED;
      if (states[output->id] != RABBET_FOLLOW_ROOT) continue;
      output->is_followed = *out_found = true;
    }
    for (size_t k = 0; derives && k < layer->input_count; ++k)
      if (!tensor_has_values(layer->inputs[k]))
        needed[layer->inputs[k]->id] = 1;
  }
  for (size_t i = 0; i < network->inputs.count; ++i) {
    rabbet_tensor_t* input = network->inputs.data[i];
    if (needed[input->id]) input->is_followed = *out_found = true;
  }
}

// Marks the tensors behind `tensor` that give its values as followed;
// *out_found tells whether there are any.
static rabbet_status_t network_follow_roots(rabbet_network_t* network,
                                            rabbet_tensor_t* tensor,
                                            bool* out_found) {
  uint8_t* states = NULL;
  RABBET_RETURN_IF_ERROR(rabbet_allocate(
      network->allocator, 2 * network->tensors.count, (void**)&states));
  follow_collect(network, tensor, states);
  follow_decide(network, tensor->producer->index, states);
  follow_mark(network, tensor, states, out_found);
  rabbet_free(network->allocator, states);
  return rabbet_ok();
}

rabbet_status_t rabbet_network_need_values(rabbet_network_t* network,
                                           rabbet_tensor_t* tensor,
                                           bool* out_restart) {
  // The operator's rule refuses other types.
  bool integer = tensor->dtype == RABBET_DTYPE_INT32 ||
                 tensor->dtype == RABBET_DTYPE_INT64;
  if (!tensor->values && integer && !tensor->constant) {
    if (tensor->kind == RABBET_TENSOR_LAYER) {
      RABBET_RETURN_IF_ERROR(
          network_follow_roots(network, tensor, out_restart));
      if (*out_restart) return rabbet_ok();
    }
    RABBET_RETURN_IF_ERROR(rabbet_network_read_on_host(network, tensor));
  }
  tensor->is_shape_tensor = true;
  network->marks_due = true;
  return rabbet_ok();
}

void rabbet_network_mark_shape_tensors(rabbet_network_t* network) {
  if (!network->marks_due) return;
  network->marks_due = false;
  for (size_t i = network->inferred; i-- > 0;) {
    const rabbet_layer_t* layer = network->layers.data[i];
    bool reached = false;
    for (size_t k = 0; k < layer->output_count; ++k) {
      const rabbet_tensor_t* output = layer->outputs[k];
      reached = reached || (output->is_shape_tensor && !output->is_host_read);
    }
    for (size_t k = 0; reached && k < layer->input_count; ++k) {
      rabbet_tensor_t* input = layer->inputs[k];
      if (input && input->values) input->is_shape_tensor = true;
    }
  }
}
