// A transpose of the last two axes before a matrix product: an attribute of
// the product. One behind it: the product of the transposed factors in the
// other order, as in layers that mix tokens.

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

// ---- Transposes behind products ---------------------------------------------

static int64_t matrix_turned(const rabbet_ir_node_t* product,
                             const char* name) {
  return rabbet_ir_int(product, name) == RABBET_MATRIX_NONE
             ? RABBET_MATRIX_TRANSPOSE
             : RABBET_MATRIX_NONE;
}

// Whether the product is one of matrices by a constant: those of two other
// tensors are parts of attentions.
static bool matrix_turns(const rabbet_ir_t* ir,
                         const rabbet_ir_node_t* product) {
  int64_t op0 = rabbet_ir_int(product, "op0"),
          op1 = rabbet_ir_int(product, "op1");
  return (op0 == RABBET_MATRIX_NONE || op0 == RABBET_MATRIX_TRANSPOSE) &&
         (op1 == RABBET_MATRIX_NONE || op1 == RABBET_MATRIX_TRANSPOSE) &&
         (rabbet_ir_input(ir, product, 0)->constant ||
          rabbet_ir_input(ir, product, 1)->constant);
}

// The transposed result: that of the transposed factors in the other order.
static rabbet_status_t matrix_turn(rabbet_build_t* build,
                                   const rabbet_ir_node_t* product,
                                   const rabbet_ir_node_t* before,
                                   rabbet_ir_node_t** out_node) {
  const int64_t ops[2] = {matrix_turned(product, "op1"),
                          matrix_turned(product, "op0")};
  const rabbet_attr_t attrs[2] = {
      {.name = "op0", .type = RABBET_ATTR_INT, .data = &ops[0], .count = 1},
      {.name = "op1", .type = RABBET_ATTR_INT, .data = &ops[1], .count = 1}};
  const int32_t factors[2] = {product->inputs[1], product->inputs[0]};
  return rabbet_ir_add_node(&build->ir, RABBET_OP_MATRIX_MULTIPLY,
                            product->name, attrs, 2, factors, 2, before,
                            out_node);
}

// The sum with the transposed bias.
static rabbet_status_t matrix_turn_sum(rabbet_build_t* build,
                                       const rabbet_ir_node_t* sum, size_t bias,
                                       const int64_t* perm,
                                       const rabbet_ir_node_t* before,
                                       rabbet_ir_node_t** inout_node) {
  rabbet_ir_t* ir = &build->ir;
  rabbet_ir_node_t* turned = NULL;
  int32_t inputs[2];
  RABBET_RETURN_IF_ERROR(rabbet_ir_add_permutation(
      build, before, sum->name, sum->inputs[bias], perm,
      rabbet_ir_input(ir, sum, bias)->shape.rank, &turned));
  inputs[bias] = turned->outputs[0];
  inputs[1 - bias] = (*inout_node)->outputs[0];
  return rabbet_ir_add_node(ir, RABBET_OP_ELEMENTWISE, sum->name, sum->attrs,
                            sum->op->attr_count, inputs, 2, before, inout_node);
}

rabbet_status_t rabbet_rule_turned_product(rabbet_build_t* build,
                                           rabbet_ir_node_t* node,
                                           bool* changed) {
  rabbet_ir_t* ir = &build->ir;
  rabbet_ir_value_t* value = rabbet_ir_input(ir, node, 0);
  int64_t perm[RABBET_MAX_RANK];
  size_t bias = 2;
  if (!(build->device->traits & RABBET_DEVICE_TURNED_PRODUCTS) ||
      rabbet_ir_has_wishes(ir, node) || !matrix_is_transpose(ir, node) ||
      !rabbet_ir_permutation(ir, node, perm))
    return rabbet_ok();
  rabbet_ir_node_t* sum =
      rabbet_ir_sole_producer(ir, value, RABBET_OP_ELEMENTWISE);
  for (size_t i = 0; sum && i < 2; ++i)
    if (rabbet_ir_input(ir, sum, i)->constant) bias = i;
  if (sum && bias < 2) value = rabbet_ir_input(ir, sum, 1 - bias);
  rabbet_ir_node_t* product =
      rabbet_ir_sole_producer(ir, value, RABBET_OP_MATRIX_MULTIPLY);
  if (!product || !matrix_turns(ir, product)) return rabbet_ok();
  rabbet_ir_node_t* made = NULL;
  RABBET_RETURN_IF_ERROR(matrix_turn(build, product, node, &made));
  if (bias < 2)
    RABBET_RETURN_IF_ERROR(
        matrix_turn_sum(build, sum, bias, perm, node, &made));
  // What was added and not taken is swept.
  *changed |= rabbet_ir_bypass(ir, node, rabbet_ir_output(ir, made, 0));
  return rabbet_ok();
}
