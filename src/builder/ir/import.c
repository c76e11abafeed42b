// Network -> IR.

#include <assert.h>
#include <math.h>
#include <string.h>

#include "builder/ir/ir.h"
#include "core/view.h"
#include "ops/rules.h"
#include "rabbet/builder.h"

static rabbet_status_t import_symbol(void* context, rabbet_expr_graph_t* target,
                                     const rabbet_symbol_t* symbol,
                                     rabbet_expr_t* out_expr) {
  (void)context;  // value i is tensor i
  return rabbet_expr_of_symbol(target, symbol, out_expr);
}

static rabbet_status_t import_graph(const rabbet_network_t* network,
                                    rabbet_ir_t* ir, rabbet_expr_t** out_map) {
  RABBET_RETURN_IF_ERROR(rabbet_arena_allocate_array(
      ir->arena, rabbet_expr_node_count(network->graph), sizeof(rabbet_expr_t),
      (void**)out_map));
  return rabbet_ir_copy_exprs(network->graph, NULL, import_symbol, NULL,
                              ir->graph, *out_map);
}

static rabbet_status_t import_tensor(const rabbet_tensor_t* tensor,
                                     const rabbet_expr_t* map,
                                     rabbet_ir_t* ir) {
  rabbet_ir_value_t like = {.dtype = tensor->dtype, .shape = tensor->shape};
  assert(tensor->shape.rank >= 0);  // inference comes before the import
  for (int32_t i = 0; i < tensor->shape.rank; ++i)
    like.shape.d[i] = map[tensor->shape.d[i]];
  rabbet_ir_value_t* value = NULL;
  RABBET_RETURN_IF_ERROR(rabbet_ir_add_value(ir, &like, tensor->name, &value));
  assert(value->id == tensor->id);
  value->constant = tensor->constant;
  value->is_read_by_host = tensor->is_host_read;
  value->formats = tensor->allowed_formats;
  value->dim_names = tensor->dim_names;
  if (!ir->strongly_typed) value->wished = tensor->wished_dtype;
  if (tensor->has_range) {
    value->range = fmaxf(fabsf(tensor->range[0]), fabsf(tensor->range[1]));
    value->ranged = tensor->name;
  }
  // Elements of FLOAT tensors are needed only for inference.
  if (!tensor->values || !rabbet_op_follows(tensor->dtype)) return rabbet_ok();
  rabbet_expr_t* values = NULL;
  RABBET_RETURN_IF_ERROR(rabbet_arena_allocate_array(
      ir->arena, tensor->value_count, sizeof(*values), (void**)&values));
  for (size_t i = 0; i < tensor->value_count; ++i)
    values[i] = map[tensor->values[i]];
  value->values = values;
  value->value_count = tensor->value_count;
  return rabbet_ok();
}

static rabbet_status_t import_ids(rabbet_ir_t* ir,
                                  rabbet_tensor_t* const* tensors, size_t count,
                                  int32_t** out_ids) {
  RABBET_RETURN_IF_ERROR(rabbet_arena_allocate_array(
      ir->arena, count, sizeof(int32_t), (void**)out_ids));
  for (size_t i = 0; i < count; ++i)
    (*out_ids)[i] = tensors[i] ? tensors[i]->id : -1;
  return rabbet_ok();
}

static rabbet_status_t import_layer(const rabbet_layer_t* layer,
                                    rabbet_ir_t* ir) {
  rabbet_ir_node_t* node = NULL;
  RABBET_RETURN_IF_ERROR(
      rabbet_arena_allocate(ir->arena, sizeof(*node), (void**)&node));
  *node = (rabbet_ir_node_t){
      .op = layer->op,
      .name = layer->name,
      .attrs = layer->attrs,
      .input_count = layer->input_count,
      .output_count = layer->output_count,
      .precision = ir->strongly_typed ? RABBET_DTYPE_NONE : layer->precision,
      .plugin = layer->plugin,
      .bodies = layer->bodies,
      .aliased = layer->plugin ? layer->aliased : NULL,
  };
  RABBET_RETURN_IF_ERROR(
      import_ids(ir, layer->inputs, layer->input_count, &node->inputs));
  RABBET_RETURN_IF_ERROR(
      import_ids(ir, layer->outputs, layer->output_count, &node->outputs));
  RABBET_RETURN_IF_ERROR(RABBET_VEC_PUSH(ir->allocator, &ir->nodes, node));
  for (size_t i = 0; i < node->input_count; ++i)
    if (node->inputs[i] >= 0) rabbet_ir_value(ir, node->inputs[i])->uses++;
  for (size_t i = 0; i < node->output_count; ++i) {
    assert(!rabbet_ir_output(ir, node, i)->producer);
    rabbet_ir_output(ir, node, i)->producer = node;
  }
  return rabbet_ok();
}

// Whether all outputs are constants, so that the layer is not needed. Values
// computed from refittable weights need their layers.
static bool import_is_constant(const rabbet_ir_t* ir,
                               const rabbet_layer_t* layer) {
  for (size_t i = 0; i < layer->output_count; ++i) {
    const rabbet_ir_value_t* value = rabbet_ir_value(ir, layer->outputs[i]->id);
    if (!value->constant && !value->is_refittable) return false;
  }
  return layer->output_count > 0;
}

// ---- Weights that can be refitted

static bool import_may_refit(const rabbet_ir_t* ir,
                             const rabbet_tensor_t* tensor) {
  bool is_weights = tensor->kind == RABBET_TENSOR_WEIGHTS ||
                    (tensor->kind == RABBET_TENSOR_LAYER &&
                     rabbet_op_is(tensor->producer->op, RABBET_OP_CONSTANT));
  bool all = (ir->refit_flags & ~(1u << RABBET_BUILDER_REFIT_INDIVIDUAL)) != 0;
  bool is_nobodys = tensor->has_role && !tensor->role_layer;
  return is_weights && !is_nobodys && rabbet_dtype_is_float(tensor->dtype) &&
         (all || tensor->is_refittable);
}

static bool import_is_shape_operand(const rabbet_layer_t* layer, size_t input) {
  if (layer->bodies) return rabbet_bodies_read(layer->bodies, input);
  if (layer->plugin)
    return input < 64 &&
           (rabbet_plugin_shape_inputs(layer->plugin) >> input & 1);
  const rabbet_op_operand_t* operand = rabbet_op_input(layer->op, input);
  return operand && operand->flags & RABBET_OPERAND_SHAPE;
}

// Tensors that determine shapes are not refittable, and neither are those that
// they are computed from.
static void import_keep_shapes(const rabbet_network_t* network, rabbet_ir_t* ir,
                               bool* needed) {
  for (bool changed = true; changed;) {
    changed = false;
    for (size_t n = network->layers.count; n-- > 0;) {
      const rabbet_layer_t* layer = network->layers.data[n];
      bool by_result = false;
      for (size_t i = 0; i < layer->output_count; ++i)
        by_result |= needed[layer->outputs[i]->id];
      by_result &= !rabbet_op_is(layer->op, RABBET_OP_SHAPE);
      for (size_t i = 0; i < layer->input_count; ++i) {
        const rabbet_tensor_t* input = layer->inputs[i];
        if (!input || needed[input->id] ||
            !(by_result || import_is_shape_operand(layer, i)))
          continue;
        needed[input->id] = changed = true;
        rabbet_ir_value(ir, input->id)->is_refittable = false;
      }
    }
  }
}

// Small results computed from refittable weights are not known yet. Their
// shapes are.
static void import_forget_results(const rabbet_layer_t* layer, rabbet_ir_t* ir,
                                  bool* depends) {
  bool any = false;
  if (rabbet_op_is(layer->op, RABBET_OP_SHAPE)) return;
  for (size_t i = 0; i < layer->input_count; ++i)
    any |= layer->inputs[i] && depends[layer->inputs[i]->id];
  for (size_t i = 0; any && i < layer->output_count; ++i) {
    int32_t id = layer->outputs[i]->id;
    rabbet_ir_value_t* value = rabbet_ir_value(ir, id);
    depends[id] = true;
    value->constant = NULL;
    value->values = NULL;
    value->value_count = 0;
  }
}

static rabbet_status_t import_refittable(const rabbet_network_t* network,
                                         rabbet_ir_t* ir) {
  bool* depends = NULL;
  if (!ir->refit_flags) return rabbet_ok();
  for (size_t i = 0; i < network->tensors.count; ++i)
    ir->values.data[i]->is_refittable =
        import_may_refit(ir, network->tensors.data[i]);
  RABBET_RETURN_IF_ERROR(rabbet_arena_allocate_array(
      ir->arena, ir->values.count, sizeof(*depends), (void**)&depends));
  import_keep_shapes(network, ir, depends);
  for (size_t i = 0; i < ir->values.count; ++i) {
    rabbet_ir_value_t* value = ir->values.data[i];
    depends[i] = value->is_refittable;
    if (!value->is_refittable) continue;
    assert(rabbet_dtype_is_float(value->dtype));
    value->refit_data = value->constant;
    value->constant = NULL;
  }
  for (size_t i = 0; i < network->layers.count; ++i)
    import_forget_results(network->layers.data[i], ir, depends);
  return rabbet_ok();
}

void rabbet_ir_show_refittable(rabbet_ir_t* ir) {
  for (size_t i = 0; i < ir->values.count; ++i) {
    rabbet_ir_value_t* value = ir->values.data[i];
    if (value->is_refittable) value->constant = value->refit_data;
  }
}

static bool import_is_hidden(const rabbet_tensor_t* tensor) {
  return tensor->is_debug && tensor->kind == RABBET_TENSOR_LAYER &&
         !tensor->is_output;
}

// Whether the check has an output of its own: checks of elements of one tensor
// share it.
static bool import_is_own(const rabbet_network_check_t* check) {
  return check->index <= 0;
}

static rabbet_status_t import_outputs(const rabbet_network_t* network,
                                      rabbet_ir_t* ir) {
  size_t count = network->outputs.count;
  for (size_t i = 0; i < network->tensors.count; ++i)
    ir->debug_count += import_is_hidden(network->tensors.data[i]);
  for (size_t i = 0; i < network->checks.count; ++i)
    ir->check_count += import_is_own(&network->checks.data[i]);
  ir->output_count = count + ir->debug_count + ir->check_count;
  RABBET_RETURN_IF_ERROR(rabbet_arena_allocate_array(
      ir->arena, ir->output_count, sizeof(int32_t), (void**)&ir->outputs));
  for (size_t i = 0; i < count; ++i)
    ir->outputs[i] = network->outputs.data[i]->id;
  for (size_t i = 0; i < network->tensors.count; ++i)
    if (import_is_hidden(network->tensors.data[i]))
      ir->outputs[count++] = (int32_t)i;
  for (size_t i = 0; i < network->checks.count; ++i)
    if (import_is_own(&network->checks.data[i]))
      ir->outputs[count++] = network->checks.data[i].tensor->id;
  assert(count == ir->output_count);
  return rabbet_ok();
}

static rabbet_status_t import_boundary(rabbet_network_t* network,
                                       rabbet_ir_t* ir) {
  ir->input_count = network->inputs.count;
  RABBET_RETURN_IF_ERROR(
      import_ids(ir, network->inputs.data, ir->input_count, &ir->inputs));
  RABBET_RETURN_IF_ERROR(import_outputs(network, ir));
  for (size_t i = 0; i < ir->input_count; ++i)
    assert(!rabbet_ir_value(ir, ir->inputs[i])->producer);
  for (size_t i = 0; i < ir->input_count; ++i)
    rabbet_ir_value(ir, ir->inputs[i])->input = (int32_t)i;
  for (size_t i = 0; i < ir->output_count; ++i)
    rabbet_ir_value(ir, ir->outputs[i])->output = (int32_t)i;
  return rabbet_ok();
}

static rabbet_status_t import_all(rabbet_network_t* network, rabbet_ir_t* ir) {
  rabbet_expr_t* map = NULL;
  RABBET_RETURN_IF_ERROR(rabbet_expr_graph_create(ir->allocator, &ir->graph));
  RABBET_RETURN_IF_ERROR(import_graph(network, ir, &map));
  for (size_t i = 0; i < network->tensors.count; ++i)
    RABBET_RETURN_IF_ERROR(import_tensor(network->tensors.data[i], map, ir));
  RABBET_RETURN_IF_ERROR(import_refittable(network, ir));
  for (size_t i = 0; i < network->layers.count; ++i)
    if (!import_is_constant(ir, network->layers.data[i]))
      RABBET_RETURN_IF_ERROR(import_layer(network->layers.data[i], ir));
  RABBET_RETURN_IF_ERROR(import_boundary(network, ir));
  return rabbet_ir_sweep(ir);
}

rabbet_status_t rabbet_ir_import(rabbet_network_t* network,
                                 uint32_t refit_flags, rabbet_arena_t* arena,
                                 rabbet_allocator_t allocator,
                                 rabbet_ir_t* out_ir) {
  *out_ir = (rabbet_ir_t){
      .allocator = allocator, .arena = arena, .refit_flags = refit_flags};
  out_ir->strongly_typed =
      (network->flags & RABBET_NETWORK_STRONGLY_TYPED) != 0;
  rabbet_status_t status = rabbet_network_infer(network);
  if (rabbet_is_ok(status) && !rabbet_network_has_results(network))
    status = RABBET_STATUS(RABBET_STATUS_INVALID_ARGUMENT,
                           "the network has no outputs; mark the tensors that "
                           "are wanted as outputs");
  if (rabbet_is_ok(status)) status = import_all(network, out_ir);
  if (!rabbet_is_ok(status)) rabbet_ir_deinitialize(out_ir);
  return status;
}
