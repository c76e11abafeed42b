// Types, shapes and followed values of all tensors, layer by layer.
#include <assert.h>
#include <string.h>

#include "network/inside.h"
#include "ops/infer.h"
#include "ops/rules.h"

// ---- Forgetting ------------------------------------------------------------

void rabbet_network_reset(rabbet_network_t* network) {
  network->inferred = 0;
  network->prepared = 0;
  network->unknown = 0;
  network->marks_due = false;
  rabbet_expr_graph_destroy(network->graph);
  network->graph = NULL;
  rabbet_arena_deinitialize(&network->infer_arena);
  rabbet_arena_initialize(network->allocator, &network->infer_arena);
  for (size_t i = 0; i < network->tensors.count; ++i) {
    rabbet_tensor_t* tensor = network->tensors.data[i];
    tensor->shape = (rabbet_shape_t){0};
    tensor->values = tensor->denominators = NULL;
    tensor->value_count = 0;
    tensor->is_host_read = false;
    tensor->is_shape_tensor = false;
    if (tensor->kind != RABBET_TENSOR_LAYER) continue;
    tensor->dtype = RABBET_DTYPE_NONE;
    tensor->constant = NULL;
  }
  for (size_t i = 0; i < network->layers.count; ++i)
    network->layers.data[i]->is_unknown = false;
}

void rabbet_network_changed(rabbet_network_t* network) {
  if (network->graph) rabbet_network_reset(network);
  for (size_t i = 0; i < network->tensors.count; ++i) {
    network->tensors.data[i]->is_followed = false;
  }
}

void rabbet_network_layer_changed(rabbet_layer_t* layer) {
  if (layer->index >= 0 && (size_t)layer->index < layer->network->inferred) {
    rabbet_network_changed(layer->network);
  }
}

// ---- Inputs and weights ----------------------------------------------------

// Constant dimensions of one name must be equal; dynamic ones share a symbol.
static rabbet_status_t network_check_dim_name(const rabbet_network_t* network,
                                              const rabbet_tensor_t* tensor,
                                              int32_t axis) {
  for (size_t i = 0; i < network->inputs.count; ++i) {
    const rabbet_tensor_t* other = network->inputs.data[i];
    for (int32_t k = 0; k < other->given_dims.rank; ++k) {
      if (!other->dim_names[k] || other->given_dims.d[k] < 0) continue;
      if (strcmp(other->dim_names[k], tensor->dim_names[axis]) != 0) continue;
      if (other->given_dims.d[k] == tensor->given_dims.d[axis]) continue;
      return RABBET_STATUS(
          RABBET_STATUS_INVALID_ARGUMENT,
          "dimension %d of input '%s' and dimension %d of input '%s' are both "
          "named '%s', but are %lld and %lld",
          axis, tensor->name, k, other->name, tensor->dim_names[axis],
          (long long)tensor->given_dims.d[axis],
          (long long)other->given_dims.d[k]);
    }
  }
  return rabbet_ok();
}

static rabbet_status_t network_prepare_dim(rabbet_network_t* network,
                                           rabbet_tensor_t* tensor,
                                           int32_t axis) {
  int64_t extent = tensor->given_dims.d[axis];
  if (extent >= 0) {
    if (tensor->dim_names[axis]) {
      RABBET_RETURN_IF_ERROR(network_check_dim_name(network, tensor, axis));
    }
    return rabbet_expr_constant(network->graph, extent, &tensor->shape.d[axis]);
  }
  const rabbet_symbol_t symbol = {
      .kind = RABBET_SYMBOL_DIM,
      .tensor = tensor->id,
      .index = axis,
      .name = tensor->dim_names[axis],
      .opt = RABBET_EXPR_NONE,
      .upper = RABBET_EXPR_NONE,
  };
  return rabbet_expr_of_symbol(network->graph, &symbol, &tensor->shape.d[axis]);
}

static rabbet_status_t network_prepare_tensor(rabbet_network_t* network,
                                              rabbet_tensor_t* tensor) {
  if (tensor->kind == RABBET_TENSOR_LAYER) return rabbet_ok();
  tensor->shape.rank = tensor->given_dims.rank;
  for (int32_t i = 0; i < tensor->shape.rank; ++i) {
    RABBET_RETURN_IF_ERROR(network_prepare_dim(network, tensor, i));
  }
  if (tensor->kind == RABBET_TENSOR_INPUT) {
    return tensor->is_followed ? rabbet_network_read_on_host(network, tensor)
                               : rabbet_ok();
  }
  rabbet_op_value_t value = {.present = true,
                             .dtype = tensor->dtype,
                             .shape = tensor->shape,
                             .constant = tensor->constant};
  RABBET_RETURN_IF_ERROR(rabbet_op_values_of_constant(
      network->graph, &network->infer_arena, &value));
  tensor->values = value.values;
  tensor->value_count = value.value_count;
  return rabbet_ok();
}

static rabbet_status_t network_prepare(rabbet_network_t* network) {
  if (!network->graph) {
    RABBET_RETURN_IF_ERROR(
        rabbet_expr_graph_create(network->allocator, &network->graph));
  }
  for (; network->prepared < network->tensors.count; ++network->prepared) {
    RABBET_RETURN_IF_ERROR(network_prepare_tensor(
        network, network->tensors.data[network->prepared]));
  }
  return rabbet_ok();
}

// ---- Layers of the catalogue -----------------------------------------------

static rabbet_op_value_t network_value(const rabbet_tensor_t* tensor) {
  rabbet_op_value_t value = {.dtype = RABBET_DTYPE_NONE};
  if (!tensor) return value;
  value.present = true;
  value.dtype = tensor->dtype;
  value.shape = tensor->shape;
  value.constant = tensor->constant;
  value.values = tensor->values;
  value.denominators = tensor->denominators;
  value.value_count = tensor->value_count;
  return value;
}

static bool layer_reads_values(const rabbet_layer_t* layer, size_t index) {
  if (layer->bodies) return rabbet_bodies_read(layer->bodies, index);
  if (layer->plugin) {
    return index < 64 &&
           (rabbet_plugin_shape_inputs(layer->plugin) >> index & 1);
  }
  const rabbet_op_operand_t* operand = rabbet_op_input(layer->op, index);
  return operand && operand->flags & RABBET_OPERAND_SHAPE;
}

// Shape operands get values, if need be by starting again.
static rabbet_status_t layer_need_values(rabbet_layer_t* layer,
                                         bool* out_restart) {
  for (size_t i = 0; i < layer->input_count && !*out_restart; ++i) {
    if (!layer->inputs[i] || !layer_reads_values(layer, i)) continue;
    RABBET_RETURN_IF_ERROR(RABBET_ANNOTATE(
        rabbet_network_need_values(layer->network, layer->inputs[i],
                                   out_restart),
        "input %zu ('%s')", i, rabbet_op_input(layer->op, i)->name));
  }
  return rabbet_ok();
}

static void layer_store(const rabbet_op_value_t* value,
                        rabbet_tensor_t* tensor) {
  tensor->dtype = value->dtype;
  tensor->shape = value->shape;
  tensor->constant = value->constant;
  tensor->values = value->values;
  tensor->denominators = value->denominators;
  tensor->value_count = value->value_count;
}

// Elements of tensors whose values shapes depend on become symbols.
static rabbet_status_t layer_follow_outputs(rabbet_layer_t* layer) {
  for (size_t i = 0; i < layer->output_count; ++i) {
    rabbet_tensor_t* output = layer->outputs[i];
    if (!output->is_followed || output->values || output->constant) continue;
    RABBET_RETURN_IF_ERROR(rabbet_network_read_on_host(layer->network, output));
  }
  return rabbet_ok();
}

static rabbet_status_t layer_output_ids(const rabbet_layer_t* layer,
                                        int32_t** out_ids) {
  RABBET_RETURN_IF_ERROR(rabbet_arena_allocate_array(
      &layer->network->infer_arena, layer->output_count, sizeof(**out_ids),
      (void**)out_ids));
  for (size_t i = 0; i < layer->output_count; ++i) {
    (*out_ids)[i] = layer->outputs[i]->id;
  }
  return rabbet_ok();
}

static rabbet_status_t layer_infer_op(rabbet_layer_t* layer) {
  rabbet_network_t* network = layer->network;
  rabbet_op_value_t* inputs = NULL;
  int32_t* ids = NULL;
  RABBET_RETURN_IF_ERROR(layer_output_ids(layer, &ids));
  rabbet_op_infer_t infer = {
      .op = layer->op,
      .graph = network->graph,
      .arena = &network->infer_arena,
      .attrs = layer->attrs,
      .input_count = layer->input_count,
      .output_count = layer->output_count,
      .output_tensors = ids,
      .strongly_typed = network->flags & RABBET_NETWORK_STRONGLY_TYPED,
  };
  RABBET_RETURN_IF_ERROR(rabbet_op_infer_allocate(&infer, &inputs));
  for (size_t i = 0; i < layer->input_count; ++i) {
    inputs[i] = network_value(layer->inputs[i]);
  }
  rabbet_op_value_t* outputs = infer.outputs;
  for (size_t i = 0; i < layer->output_count; ++i) {
    outputs[i].dtype = layer->outputs[i]->wished_dtype;
  }
  RABBET_RETURN_IF_ERROR(rabbet_op_infer(&infer));
  for (size_t i = 0; i < layer->output_count; ++i) {
    layer_store(&outputs[i], layer->outputs[i]);
    if (!(layer->op->outputs[i].flags & RABBET_OPERAND_SIZE)) continue;
    RABBET_RETURN_IF_ERROR(
        rabbet_network_read_on_host(network, layer->outputs[i]));
  }
  return rabbet_ok();
}

// ---- Plugin layers ---------------------------------------------------------

static rabbet_status_t layer_plugin_input(const rabbet_layer_t* layer,
                                          size_t index,
                                          rabbet_plugin_input_t* out) {
  const rabbet_tensor_t* tensor = layer->inputs[index];
  if (!tensor) {
    return RABBET_STATUS(RABBET_STATUS_INVALID_ARGUMENT,
                         "input %zu of the plugin is missing", index);
  }
  out->dtype = tensor->dtype;
  out->rank = tensor->shape.rank;
  memcpy(out->dims, tensor->shape.d, sizeof out->dims);
  if (!layer_reads_values(layer, index)) return rabbet_ok();
  if (!tensor->values) {
    return RABBET_STATUS(RABBET_STATUS_INVALID_ARGUMENT,
                         "input %zu ('%s') of the plugin is a shape input; it "
                         "must be INT32 or INT64, not %s",
                         index, tensor->name, rabbet_dtype_name(tensor->dtype));
  }
  out->values = tensor->values;
  out->value_count = tensor->value_count;
  return rabbet_ok();
}

static rabbet_status_t layer_store_plugin(
    rabbet_layer_t* layer, const rabbet_plugin_output_t* outputs) {
  for (size_t i = 0; i < layer->output_count; ++i) {
    rabbet_tensor_t* tensor = layer->outputs[i];
    tensor->dtype = outputs[i].dtype;
    tensor->shape.rank = outputs[i].rank;
    memcpy(tensor->shape.d, outputs[i].dims, sizeof tensor->shape.d);
    layer->aliased[i] = outputs[i].aliased_input;
    layer->is_size_tensor[i] = outputs[i].is_size_tensor;
    if (!outputs[i].is_size_tensor) continue;
    RABBET_RETURN_IF_ERROR(rabbet_network_read_on_host(layer->network, tensor));
  }
  return rabbet_ok();
}

static rabbet_status_t layer_infer_plugin(rabbet_layer_t* layer) {
  rabbet_network_t* network = layer->network;
  rabbet_arena_t* arena = &network->infer_arena;
  rabbet_plugin_input_t* inputs = NULL;
  rabbet_plugin_output_t* outputs = NULL;
  int32_t* ids = NULL;
  RABBET_RETURN_IF_ERROR(rabbet_arena_allocate_array(
      arena, layer->input_count, sizeof(*inputs), (void**)&inputs));
  RABBET_RETURN_IF_ERROR(rabbet_arena_allocate_array(
      arena, layer->output_count, sizeof(*outputs), (void**)&outputs));
  RABBET_RETURN_IF_ERROR(layer_output_ids(layer, &ids));
  for (size_t i = 0; i < layer->input_count; ++i) {
    RABBET_RETURN_IF_ERROR(layer_plugin_input(layer, i, &inputs[i]));
  }
  rabbet_dim_builder_t builder = {.graph = network->graph,
                                  .output_tensors = ids,
                                  .output_count = layer->output_count};
  RABBET_RETURN_IF_ERROR(rabbet_plugin_describe(layer->plugin, &builder, inputs,
                                                layer->input_count, outputs));
  return layer_store_plugin(layer, outputs);
}

// ---- All -------------------------------------------------------------------

static rabbet_status_t layer_infer(rabbet_layer_t* layer, bool* out_restart) {
  rabbet_status_t status = layer_need_values(layer, out_restart);
  if (rabbet_is_ok(status) && !*out_restart) {
    status = layer->plugin   ? layer_infer_plugin(layer)
             : layer->bodies ? rabbet_layer_infer_bodies(layer)
             : layer->is_told || layer->varying ? rabbet_layer_infer_told(layer)
                                                : layer_infer_op(layer);
    if (rabbet_is_ok(status)) status = layer_follow_outputs(layer);
  }
  // A plugin's wrapper names the operator.
  if (layer->plugin) return RABBET_ANNOTATE(status, "layer '%s'", layer->name);
  return RABBET_ANNOTATE(status, "layer '%s' (%s)", layer->name,
                         layer->op->name);
}

// The layer of the first input that is not known, or NULL.
static rabbet_layer_t* layer_unknown_input(const rabbet_layer_t* layer) {
  for (size_t i = 0; i < layer->input_count; ++i) {
    const rabbet_tensor_t* input = layer->inputs[i];
    if (input && input->producer && input->producer->is_unknown)
      return input->producer;
  }
  return NULL;
}

// A layer that fails, and all that depend on it, are unknown from here on: a
// network under construction has layers that are not complete yet. Fails itself
// where the memory does not suffice.
static rabbet_status_t layer_try(rabbet_layer_t* layer, bool* out_restart) {
  bool fails = layer_unknown_input(layer) != NULL;
  if (!fails) {
    rabbet_status_t status = layer_infer(layer, out_restart);
    if (rabbet_status_code(status) == RABBET_STATUS_OUT_OF_MEMORY)
      return status;
    fails = !rabbet_is_ok(status);
    rabbet_status_ignore(status);
  }
  if (fails) {
    layer->is_unknown = true;
    ++layer->network->unknown;
  }
  return rabbet_ok();
}

rabbet_status_t rabbet_network_infer_until(rabbet_network_t* network,
                                           size_t count) {
  RABBET_RETURN_IF_ERROR(network_prepare(network));
  while (network->inferred < count) {
    bool restart = false;
    RABBET_RETURN_IF_ERROR(
        layer_try(network->layers.data[network->inferred], &restart));
    if (!restart) {
      ++network->inferred;
      continue;
    }
    // At most one restart for each tensor that becomes followed.
    rabbet_network_reset(network);
    RABBET_RETURN_IF_ERROR(network_prepare(network));
  }
  rabbet_network_mark_shape_tensors(network);
  return rabbet_ok();
}

// By inferring again: a plugin's exception comes from the plugin itself.
rabbet_status_t rabbet_layer_explain(rabbet_layer_t* layer) {
  rabbet_layer_t* before = layer;
  assert(layer->is_unknown);
  while ((before = layer_unknown_input(layer)))
    layer = before;
  bool restart = false;
  rabbet_status_t status = layer_infer(layer, &restart);
  if (!rabbet_is_ok(status)) return status;
  rabbet_network_reset(layer->network);
  return RABBET_STATUS(
      RABBET_STATUS_FAILED_PRECONDITION,
      "layer '%s' failed when it was asked for its outputs' "
      "types and shapes, and did not when asked again: it must "
      "give the same answer each time",
      layer->name);
}

rabbet_status_t rabbet_network_infer(rabbet_network_t* network) {
  RABBET_RETURN_IF_ERROR(
      rabbet_network_infer_until(network, network->layers.count));
  for (size_t i = 0; network->unknown > 0 && i < network->layers.count; ++i) {
    if (network->layers.data[i]->is_unknown)
      return rabbet_layer_explain(network->layers.data[i]);
  }
  return rabbet_ok();
}
