// A gather with one constant index is a slice, which kernels can read where it
// lies, or which is a part of its input's memory. One by positions in a single
// axis (GatherND, as exporters write x[i]) is a gather along this axis.

#include <assert.h>

#include "builder/ir/passes.h"
#include "core/view.h"
#include "ops/enums.h"

// The index, counted from the beginning; -1: it is not one constant number
// within the axis.
static int64_t gather_index(const rabbet_ir_t* ir, const rabbet_ir_node_t* node,
                            int32_t axis) {
  const rabbet_ir_value_t* indices = rabbet_ir_input(ir, node, 1);
  int64_t extent = 0, index = 0;
  if (!indices->constant || indices->shape.rank > 1 ||
      rabbet_ir_count(ir, indices) != 1 ||
      !rabbet_expr_is_constant(
          ir->graph, rabbet_ir_input(ir, node, 0)->shape.d[axis], &extent))
    return -1;
  index = rabbet_load_int64(indices->dtype, indices->constant, 0);
  if (index < 0) index += extent;
  return index >= 0 && index < extent ? index : -1;
}

// Takes the axis, which has extent 1, out of the value's shape.
static rabbet_status_t gather_squeeze(rabbet_build_t* build,
                                      const rabbet_ir_node_t* before,
                                      const rabbet_ir_value_t* value,
                                      int32_t axis, rabbet_ir_node_t** out) {
  int64_t order[RABBET_MAX_RANK], copied[RABBET_MAX_RANK] = {0};
  int32_t rank = value->shape.rank;
  for (int32_t i = 0; i < rank; ++i)
    order[i] = i < axis ? i : i + 1 < rank ? i + 1 : axis;
  const rabbet_attr_t attrs[] = {
      {.name = "first_transpose",
       .type = RABBET_ATTR_INTS,
       .data = order,
       .count = (size_t)rank},
      {.name = "reshape_dims",
       .type = RABBET_ATTR_INTS,
       .data = copied,
       .count = (size_t)rank - 1},
  };
  return rabbet_ir_add_node(&build->ir, RABBET_OP_SHUFFLE, before->name, attrs,
                            2, &value->id, 1, before, out);
}

rabbet_status_t rabbet_rule_gathered_part(rabbet_build_t* build,
                                          rabbet_ir_node_t* node,
                                          bool* changed) {
  rabbet_ir_t* ir = &build->ir;
  const rabbet_ir_value_t* data = rabbet_ir_input(ir, node, 0);
  int32_t rank = data->shape.rank;
  int64_t axis = rabbet_ir_int(node, "axis");
  if (axis < 0) axis += rank;
  // Scalars of small integer tensors are sizes: they stay as they are.
  if (rank < 2 || rabbet_ir_int(node, "mode") != RABBET_GATHER_DEFAULT ||
      rabbet_ir_int(node, "num_elementwise_dims") != 0 ||
      rabbet_dtype_bits(data->dtype) < 8 || rabbet_ir_has_wishes(ir, node))
    return rabbet_ok();
  assert(axis >= 0 && axis < rank);
  int64_t index = gather_index(ir, node, (int32_t)axis);
  if (index < 0) return rabbet_ok();
  rabbet_ir_node_t *slice = NULL, *made = NULL;
  RABBET_RETURN_IF_ERROR(rabbet_ir_add_slice(build, node, node->name, data->id,
                                             axis, index, 1, &slice));
  made = slice;
  if (rabbet_ir_input(ir, node, 1)->shape.rank == 0)
    RABBET_RETURN_IF_ERROR(gather_squeeze(
        build, node, rabbet_ir_output(ir, slice, 0), (int32_t)axis, &made));
  if (rabbet_ir_bypass(ir, node, rabbet_ir_output(ir, made, 0))) {
    *changed = true;
    return rabbet_ok();
  }
  if (made != slice) rabbet_ir_kill(ir, made);
  rabbet_ir_kill(ir, slice);
  return rabbet_ok();
}

rabbet_status_t rabbet_rule_gathered_rows(rabbet_build_t* build,
                                          rabbet_ir_node_t* node,
                                          bool* changed) {
  rabbet_ir_t* ir = &build->ir;
  const rabbet_ir_value_t* indices = rabbet_ir_input(ir, node, 1);
  int64_t axis = rabbet_ir_int(node, "num_elementwise_dims"), positions = 0;
  rabbet_shape_t shape = indices->shape;
  rabbet_dims_t dims = rabbet_ir_dims(ir, indices);
  int32_t inputs[2] = {node->inputs[0], -1};
  rabbet_ir_node_t* made = NULL;
  for (int32_t i = 0; i < dims.rank; ++i)
    if (dims.d[i] == 0) return rabbet_ok();
  if (rabbet_ir_int(node, "mode") != RABBET_GATHER_ND || shape.rank < 2 ||
      axis >= shape.rank || rabbet_ir_has_wishes(ir, node) ||
      !rabbet_expr_is_constant(ir->graph, shape.d[shape.rank - 1],
                               &positions) ||
      positions != 1)
    return rabbet_ok();
  --shape.rank;
  const rabbet_attr_t attrs[] = {
      {.name = "axis", .type = RABBET_ATTR_INT, .data = &axis, .count = 1},
      {.name = "num_elementwise_dims",
       .type = RABBET_ATTR_INT,
       .data = &axis,
       .count = 1},
  };
  RABBET_RETURN_IF_ERROR(
      rabbet_ir_add_reshape(build, node, shape.d, shape.rank, &indices));
  inputs[1] = indices->id;
  RABBET_RETURN_IF_ERROR(rabbet_ir_add_node(ir, RABBET_OP_GATHER, node->name,
                                            attrs, 2, inputs, 2, node, &made));
  if (rabbet_ir_bypass(ir, node, rabbet_ir_output(ir, made, 0)))
    *changed = true;
  else
    rabbet_ir_kill(ir, made);
  return rabbet_ok();
}
