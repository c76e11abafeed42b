// A transpose of the last two axes before a matrix product: an attribute of
// the product.

#include <assert.h>

#include "builder/ir/passes.h"
#include "ops/enums.h"

// Whether the node only swaps the last two axes.
static bool matrix_is_transpose(const rabbet_ir_t* ir,
                                const rabbet_ir_node_t* node) {
  size_t reshape = 0, first_count = 0, second_count = 0;
  rabbet_ir_ints(node, "reshape_dims", &reshape);
  const int64_t* first = rabbet_ir_ints(node, "first_transpose", &first_count);
  rabbet_ir_ints(node, "second_transpose", &second_count);
  int32_t rank = rabbet_ir_input(ir, node, 0)->shape.rank;
  if (reshape > 0 || second_count > 0 || rabbet_ir_input(ir, node, 1) ||
      rabbet_ir_int(node, "reshape_to_scalar") || rank < 2 ||
      first_count != (size_t)rank)
    return false;
  for (int32_t i = 0; i < rank - 2; ++i)
    if (first[i] != i) return false;
  return first[rank - 2] == rank - 1 && first[rank - 1] == rank - 2;
}

rabbet_status_t rabbet_rule_matrix(rabbet_build_t* build,
                                   rabbet_ir_node_t* node, bool* changed) {
  static const char* const names[2] = {"op0", "op1"};
  rabbet_ir_t* ir = &build->ir;
  assert(rabbet_op_is(node->op, RABBET_OP_MATRIX_MULTIPLY));
  for (size_t i = 0; i < 2; ++i) {
    int64_t op = rabbet_ir_int(node, names[i]);
    rabbet_ir_node_t* before = rabbet_ir_input(ir, node, i)->producer;
    if (!before || before->dead ||
        !rabbet_op_is(before->op, RABBET_OP_SHUFFLE) ||
        (op != RABBET_MATRIX_NONE && op != RABBET_MATRIX_TRANSPOSE) ||
        rabbet_ir_has_wishes(ir, before) || !matrix_is_transpose(ir, before))
      continue;
    RABBET_RETURN_IF_ERROR(rabbet_ir_set_int(build, node, names[i],
                                             op == RABBET_MATRIX_NONE
                                                 ? RABBET_MATRIX_TRANSPOSE
                                                 : RABBET_MATRIX_NONE));
    rabbet_ir_set_input(ir, node, i, before->inputs[0]);
    *changed = true;
  }
  return rabbet_ok();
}
