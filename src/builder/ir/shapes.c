// Shape arithmetic: integer tensors whose elements are expressions.

#include <assert.h>
#include <string.h>

#include "builder/ir/passes.h"
#include "core/view.h"

// Whether the host knows the value, so that no node needs to compute it. A
// value to whose own elements symbols refer must be computed.
static bool shapes_is_known(const rabbet_ir_t* ir,
                            const rabbet_ir_value_t* value) {
  if (!value->values || value->constant) return false;
  for (size_t i = 0; i < value->value_count; ++i) {
    const rabbet_expr_node_t* node =
        rabbet_expr_node(ir->graph, value->values[i]);
    if (node->op != RABBET_EXPR_SYMBOL) continue;
    const rabbet_symbol_t* symbol =
        rabbet_expr_symbol(ir->graph, (size_t)node->a);
    if (symbol->kind == RABBET_SYMBOL_VALUE && symbol->tensor == value->id)
      return false;
  }
  return true;
}

static bool shapes_all_constant(const rabbet_ir_t* ir,
                                const rabbet_ir_value_t* value) {
  for (size_t i = 0; i < value->value_count; ++i)
    if (!rabbet_expr_is_constant(ir->graph, value->values[i], NULL))
      return false;
  return true;
}

static rabbet_status_t shapes_make_constant(rabbet_build_t* build,
                                            rabbet_ir_value_t* value) {
  rabbet_dims_t dims = rabbet_ir_dims(&build->ir, value);
  size_t bytes = 0;
  void* data = NULL;
  RABBET_RETURN_IF_ERROR(
      rabbet_tensor_bytes(value->dtype, RABBET_FORMAT_LINEAR, &dims, &bytes));
  RABBET_RETURN_IF_ERROR(
      rabbet_arena_allocate(&build->arena, bytes + 1, &data));
  assert(value->values && !value->constant);
  for (size_t i = 0; i < value->value_count; ++i) {
    int64_t number = 0;
    bool is_constant =
        rabbet_expr_is_constant(build->ir.graph, value->values[i], &number);
    assert(is_constant);
    (void)is_constant;
    rabbet_store_int64(value->dtype, data, (int64_t)i, number);
  }
  value->constant = data;
  value->values = NULL;
  value->value_count = 0;
  return rabbet_ok();
}

// Detaches the value from its producer. A producer with other outputs stays and
// gets a new, unused output.
static rabbet_status_t shapes_detach(rabbet_ir_t* ir,
                                     rabbet_ir_value_t* value) {
  assert(value->values && value->producer);
  rabbet_ir_node_t* node = value->producer;
  if (node->output_count == 1) {
    rabbet_ir_kill(ir, node);
    return rabbet_ok();
  }
  rabbet_ir_value_t* unused = NULL;
  RABBET_RETURN_IF_ERROR(rabbet_ir_add_value(ir, value, value->name, &unused));
  for (size_t i = 0; i < node->output_count; ++i)
    if (node->outputs[i] == value->id) node->outputs[i] = unused->id;
  unused->producer = node;
  value->producer = NULL;
  return rabbet_ok();
}

// Gives the node a shape operand without a producer: it needs only the
// elements, which the host knows.
static rabbet_status_t shapes_split_operand(rabbet_build_t* build,
                                            rabbet_ir_node_t* node,
                                            size_t index) {
  rabbet_ir_t* ir = &build->ir;
  rabbet_ir_value_t* value = rabbet_ir_input(ir, node, index);
  if (!value || !value->values || !rabbet_ir_is_shape_operand(node, index) ||
      (!value->producer && value->input < 0))
    return rabbet_ok();
  rabbet_ir_value_t* copy = NULL;
  RABBET_RETURN_IF_ERROR(rabbet_ir_add_value(ir, value, value->name, &copy));
  copy->values = value->values;
  copy->value_count = value->value_count;
  rabbet_ir_set_input(ir, node, index, copy->id);
  return rabbet_ok();
}

rabbet_status_t rabbet_pass_shapes(rabbet_build_t* build) {
  rabbet_ir_t* ir = &build->ir;
  for (size_t i = 0; i < ir->values.count; ++i) {
    rabbet_ir_value_t* value = ir->values.data[i];
    if (value->input >= 0 || !shapes_is_known(ir, value)) continue;
    bool is_constant = shapes_all_constant(ir, value);
    if (value->producer) RABBET_RETURN_IF_ERROR(shapes_detach(ir, value));
    if (is_constant) RABBET_RETURN_IF_ERROR(shapes_make_constant(build, value));
  }
  for (size_t i = 0; i < ir->nodes.count; ++i) {
    rabbet_ir_node_t* node = ir->nodes.data[i];
    for (size_t k = 0; !node->dead && k < node->input_count; ++k)
      RABBET_RETURN_IF_ERROR(shapes_split_operand(build, node, k));
  }
  return rabbet_ir_sweep(ir);
}
