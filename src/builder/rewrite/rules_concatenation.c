// Slices and transposes of concatenations.

#include <assert.h>

#include "builder/ir/passes.h"

static int32_t joined_axis(const rabbet_ir_t* ir,
                           const rabbet_ir_node_t* node) {
  int64_t axis = rabbet_ir_int(node, "axis");
  return (int32_t)(axis < 0 ? axis + rabbet_ir_output(ir, node, 0)->shape.rank
                            : axis);
}

static const rabbet_ir_node_t* joined_maker(const rabbet_ir_t* ir,
                                            const rabbet_ir_value_t* value) {
  const rabbet_ir_node_t* node = value->producer;
  return node && !node->dead &&
                 rabbet_op_is(node->op, RABBET_OP_CONCATENATION) &&
                 !rabbet_ir_has_wishes(ir, node)
             ? node
             : NULL;
}

// The input in which the part lies; its start becomes that in the input.
static rabbet_ir_value_t* joined_input(const rabbet_ir_t* ir,
                                       const rabbet_ir_node_t* node,
                                       int32_t axis, rabbet_ir_part_t* part) {
  for (size_t i = 0; i < node->input_count && part->start >= 0; ++i) {
    rabbet_ir_value_t* input = rabbet_ir_input(ir, node, i);
    int64_t extent = rabbet_ir_dims(ir, input).d[axis];
    if (extent < 0) return NULL;
    if (part->start < extent)
      return part->size <= extent - part->start ? input : NULL;
    part->start -= extent;
  }
  return NULL;
}

// A slice of one input of a concatenation is taken of this input.
rabbet_status_t rabbet_rule_slice_of_input(rabbet_build_t* build,
                                           rabbet_ir_node_t* node,
                                           bool* changed) {
  rabbet_ir_t* ir = &build->ir;
  const rabbet_ir_node_t* joined =
      joined_maker(ir, rabbet_ir_input(ir, node, 0));
  rabbet_ir_node_t* made = NULL;
  rabbet_ir_part_t part;
  if (!joined) return rabbet_ok();
  int32_t axis = joined_axis(ir, joined);
  if (!rabbet_ir_part(ir, rabbet_ir_output(ir, node, 0), axis, &part) ||
      part.stride != 1 || part.size < 0)
    return rabbet_ok();
  rabbet_ir_value_t* input = joined_input(ir, joined, axis, &part);
  if (!input) return rabbet_ok();
  if (rabbet_ir_bypass(ir, node, input)) {
    *changed = true;
    return rabbet_ok();
  }
  RABBET_RETURN_IF_ERROR(rabbet_ir_add_slice(
      build, node, node->name, input->id, axis, part.start, part.size, &made));
  // Nodes that nothing reads are swept.
  *changed |= rabbet_ir_bypass(ir, node, rabbet_ir_output(ir, made, 0));
  return rabbet_ok();
}

// What the inverse of the permutation makes the value of: the input of one, or
// a constant that is permuted; else -1.
static rabbet_status_t joined_before(rabbet_build_t* build,
                                     const rabbet_ir_node_t* before,
                                     const rabbet_ir_value_t* value,
                                     const int64_t* perm, int32_t* out_value) {
  rabbet_ir_t* ir = &build->ir;
  const rabbet_ir_node_t* turn = value->producer;
  int32_t rank = value->shape.rank;
  int64_t inner[RABBET_MAX_RANK];
  rabbet_ir_node_t* made = NULL;
  *out_value = -1;
  if (value->constant) {
    RABBET_RETURN_IF_ERROR(rabbet_ir_add_permutation(
        build, before, value->name, value->id, perm, rank, &made));
    *out_value = made->outputs[0];
    return rabbet_ok();
  }
  if (!turn || turn->dead || !rabbet_op_is(turn->op, RABBET_OP_SHUFFLE) ||
      rabbet_ir_has_wishes(ir, turn) || !rabbet_ir_permutation(ir, turn, inner))
    return rabbet_ok();
  for (int32_t i = 0; i < rank; ++i)
    if (inner[perm[i]] != i) return rabbet_ok();
  *out_value = turn->inputs[0];
  return rabbet_ok();
}

// A transpose of a concatenation of transposes undoes them.
rabbet_status_t rabbet_rule_transposed_inputs(rabbet_build_t* build,
                                              rabbet_ir_node_t* node,
                                              bool* changed) {
  rabbet_ir_t* ir = &build->ir;
  int64_t perm[RABBET_MAX_RANK];
  int32_t inputs[3];
  const size_t most = sizeof(inputs) / sizeof(inputs[0]);
  rabbet_ir_node_t* joined = rabbet_ir_sole_producer(
      ir, rabbet_ir_input(ir, node, 0), RABBET_OP_CONCATENATION);
  if (!joined || joined->input_count > most || rabbet_ir_has_wishes(ir, node) ||
      !rabbet_ir_permutation(ir, node, perm))
    return rabbet_ok();
  for (size_t i = 0; i < joined->input_count; ++i) {
    RABBET_RETURN_IF_ERROR(joined_before(
        build, node, rabbet_ir_input(ir, joined, i), perm, &inputs[i]));
    if (inputs[i] < 0) return rabbet_ok();  // unread nodes are swept
  }
  int64_t axis = 0;
  while (perm[axis] != joined_axis(ir, joined))
    ++axis;
  const rabbet_attr_t attr = {
      .name = "axis", .type = RABBET_ATTR_INT, .data = &axis, .count = 1};
  rabbet_ir_node_t* made = NULL;
  RABBET_RETURN_IF_ERROR(rabbet_ir_add_node(ir, RABBET_OP_CONCATENATION,
                                            joined->name, &attr, 1, inputs,
                                            joined->input_count, node, &made));
  // Nodes that nothing reads are swept.
  *changed |= rabbet_ir_bypass(ir, node, rabbet_ir_output(ir, made, 0));
  return rabbet_ok();
}
