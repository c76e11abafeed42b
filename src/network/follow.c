// Tensors on whose values shapes depend.
//
// Where expressions give a shape operand's values nothing is to be done. Where
// they do not, the reason mostly is a network input behind it: its elements
// become symbols, it is a shape input, and inference starts again. Else the
// host reads the operand itself when the model runs.
#include <string.h>

#include "network/inside.h"
#include "ops/rules.h"

// A network input of more elements is not taken for a shape input.
#define RABBET_FOLLOW_MAX_INPUT 64

static int64_t rabbet_tensor_known_count(const rabbet_network_t* network,
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
  int64_t count = rabbet_tensor_known_count(network, tensor);
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

static bool rabbet_tensor_can_be_followed(const rabbet_network_t* network,
                                          const rabbet_tensor_t* tensor) {
  if (tensor->kind != RABBET_TENSOR_INPUT || tensor->is_followed ||
      !rabbet_op_follows(tensor->dtype)) {
    return false;
  }
  int64_t count = rabbet_tensor_known_count(network, tensor);
  return count >= 0 && count <= RABBET_FOLLOW_MAX_INPUT;
}

// Whether the layer's output would have values if its inputs had.
static bool rabbet_layer_passes_values(const rabbet_layer_t* layer) {
  return layer->op->infer_values || layer->op->flags & RABBET_OP_MOVES_DATA;
}

// Goes back from the tensors marked in `wanted` through inputs without values.
// False if values cannot come from network inputs alone.
static bool rabbet_network_trace(const rabbet_network_t* network,
                                 int32_t last_layer, bool* wanted) {
  bool traced = true;
  for (int32_t i = last_layer; i >= 0 && traced; --i) {
    const rabbet_layer_t* layer = network->layers.data[i];
    bool reached = false;
    for (size_t k = 0; k < layer->output_count; ++k) {
      reached = reached || wanted[layer->outputs[k]->id];
    }
    if (!reached) continue;
    traced = rabbet_layer_passes_values(layer);
    for (size_t k = 0; k < layer->input_count && traced; ++k) {
      const rabbet_tensor_t* input = layer->inputs[k];
      if (!input || input->values || input->constant) continue;
      wanted[input->id] = true;
      traced = input->kind == RABBET_TENSOR_LAYER ||
               rabbet_tensor_can_be_followed(network, input);
    }
  }
  return traced;
}

// Marks the network inputs behind `tensor` as followed, if they give its
// values; *out_found tells.
static rabbet_status_t rabbet_network_follow_inputs(rabbet_network_t* network,
                                                    rabbet_tensor_t* tensor,
                                                    bool* out_found) {
  bool* wanted = NULL;
  RABBET_RETURN_IF_ERROR(rabbet_allocate(
      network->allocator, network->tensors.count, (void**)&wanted));
  wanted[tensor->id] = true;
  bool traced = rabbet_network_trace(network, tensor->producer->index, wanted);
  for (size_t i = 0; traced && i < network->inputs.count; ++i) {
    rabbet_tensor_t* input = network->inputs.data[i];
    if (!wanted[input->id]) continue;
    input->is_followed = true;
    *out_found = true;
  }
  rabbet_free(network->allocator, wanted);
  return rabbet_ok();
}

rabbet_status_t rabbet_network_need_values(rabbet_network_t* network,
                                           rabbet_tensor_t* tensor,
                                           bool* out_restart) {
  // Other types are the operator's to refuse.
  bool integer = tensor->dtype == RABBET_DTYPE_INT32 ||
                 tensor->dtype == RABBET_DTYPE_INT64;
  if (!tensor->values && integer && !tensor->constant) {
    if (tensor->kind == RABBET_TENSOR_LAYER) {
      RABBET_RETURN_IF_ERROR(
          rabbet_network_follow_inputs(network, tensor, out_restart));
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
