// Plugins that read one tensor several times. Each input of a plugin has a
// type, a format and, where the plugin works in place, memory of its own, which
// one tensor cannot have twice: the second and later inputs become views of it.
// They cost nothing where one memory will do, are converted where formats
// differ, and are copied where the plugin writes.

#include "builder/ir/passes.h"

static bool operands_repeats(const rabbet_ir_node_t* node, size_t input) {
  if (node->inputs[input] < 0 || rabbet_ir_is_shape_operand(node, input))
    return false;
  for (size_t i = 0; i < input; ++i)
    if (node->inputs[i] == node->inputs[input] &&
        !rabbet_ir_is_shape_operand(node, i))
      return true;
  return false;
}

static rabbet_status_t operands_part(rabbet_build_t* build,
                                     rabbet_ir_node_t* node, size_t input) {
  rabbet_ir_t* ir = &build->ir;
  const rabbet_ir_value_t* value = rabbet_ir_input(ir, node, input);
  // A value that the host knows has no memory that a view could show.
  bool is_host_only = value->values && !value->producer && !value->constant;
  rabbet_op_id_t op = is_host_only ? RABBET_OP_IDENTITY : RABBET_OP_SHUFFLE;
  const char* name = NULL;
  rabbet_ir_node_t* view = NULL;
  RABBET_RETURN_IF_ERROR(rabbet_arena_printf(
      &build->arena, &name, "%s, input %zu", node->name, input));
  RABBET_RETURN_IF_ERROR(rabbet_ir_add_node(
      ir, op, name, NULL, 0, &node->inputs[input], 1, node, &view));
  rabbet_ir_set_input(ir, node, input, view->outputs[0]);
  return rabbet_ok();
}

rabbet_status_t rabbet_pass_operands(rabbet_build_t* build) {
  for (size_t n = 0; n < build->ir.nodes.count; ++n) {
    rabbet_ir_node_t* node = build->ir.nodes.data[n];
    for (size_t i = 1; node->plugin && i < node->input_count; ++i)
      if (operands_repeats(node, i))
        RABBET_RETURN_IF_ERROR(operands_part(build, node, i));
  }
  return rabbet_ir_sweep(&build->ir);
}
