#include "ops/rules.h"
#include "ops/walk.h"

static rabbet_status_t concatenation_infer_types(
    const rabbet_op_infer_t* infer) {
  infer->outputs[0].dtype = infer->inputs[0].dtype;
  return rabbet_op_same_types(infer, 0);
}

static rabbet_status_t concatenation_mismatch(const rabbet_op_infer_t* infer,
                                              size_t index, int32_t axis) {
  char a[RABBET_OP_TEXT], b[RABBET_OP_TEXT];
  return RABBET_OP_INVALID(
      "input 0 has shape %s and input %zu has shape %s; they must have one "
      "rank and be equal but for axis %d",
      rabbet_op_shape_text(infer, &infer->inputs[0].shape, a), index,
      rabbet_op_shape_text(infer, &infer->inputs[index].shape, b), axis);
}

static rabbet_status_t concatenation_add(const rabbet_op_infer_t* infer,
                                         size_t index, int32_t axis,
                                         rabbet_shape_t* shape) {
  const rabbet_shape_t* input = &infer->inputs[index].shape;
  if (input->rank != shape->rank) {
    return concatenation_mismatch(infer, index, axis);
  }
  for (int32_t i = 0; i < shape->rank; ++i) {
    if (i == axis) continue;
    if (!rabbet_op_same_dim(infer, shape->d[i], input->d[i], &shape->d[i])) {
      return concatenation_mismatch(infer, index, axis);
    }
  }
  return rabbet_expr_binary(infer->graph, RABBET_EXPR_SUM, shape->d[axis],
                            input->d[axis], &shape->d[axis]);
}

static rabbet_status_t concatenation_infer_shapes(
    const rabbet_op_infer_t* infer) {
  rabbet_shape_t shape = infer->inputs[0].shape;
  int32_t axis = 0;
  if (shape.rank == 0) {
    return RABBET_OP_INVALID(
        "input 0 is a scalar; concatenation needs at least one axis (reshape "
        "it to (1) with a shuffle)");
  }
  RABBET_RETURN_IF_ERROR(
      rabbet_op_axis("axis", RABBET_OP_INT(infer, "axis"), shape.rank, &axis));
  for (size_t i = 1; i < infer->input_count; ++i) {
    RABBET_RETURN_IF_ERROR(concatenation_add(infer, i, axis, &shape));
  }
  infer->outputs[0].shape = shape;
  return rabbet_ok();
}

static rabbet_status_t concatenation_reference(const rabbet_op_eval_t* eval) {
  const rabbet_view_t* y = &eval->outputs[0];
  int64_t strides[RABBET_MAX_RANK];
  rabbet_row_major(&y->dims, strides);
  size_t size = rabbet_element_size(y->dtype);
  int32_t axis = 0;
  RABBET_RETURN_IF_ERROR(
      rabbet_op_axis("axis", RABBET_OP_INT(eval, "axis"), y->dims.rank, &axis));
  int64_t position = 0;
  for (size_t i = 0; i < eval->input_count; ++i) {
    const rabbet_view_t* x = &eval->inputs[i];
    rabbet_dims_t expected = y->dims;
    expected.d[axis] = x->dims.d[axis];
    RABBET_RETURN_IF_ERROR(rabbet_check_dims("an input", &x->dims, &expected));
    rabbet_walk_t walk;
    rabbet_walk_initialize(&x->dims, &walk);
    rabbet_walk_add(&walk, strides, position * strides[axis]);
    for (; !walk.done; rabbet_walk_next(&walk)) {
      rabbet_copy_element(y->data, walk.offsets[0], x->data, walk.linear, size);
    }
    position += x->dims.d[axis];
  }
  return rabbet_ok();
}

static const rabbet_op_operand_t concatenation_inputs[] = {
    {"inputs", RABBET_OPERAND_VARIADIC, RABBET_T_ANY}};
static const rabbet_op_operand_t concatenation_outputs[] = {
    {"output", 0, RABBET_T_ANY}};
static const rabbet_op_attr_t concatenation_attrs[] = {
    {"axis", RABBET_ATTR_INT, true, 0, 0, NULL},
};

const rabbet_op_t rabbet_op_concatenation = {
    .name = "concatenation",
    .layer_type = "CONCATENATION",
    .flags = RABBET_OP_MOVES_DATA,
    .inputs = concatenation_inputs,
    .input_count = RABBET_OP_COUNT_OF(concatenation_inputs),
    .outputs = concatenation_outputs,
    .output_count = RABBET_OP_COUNT_OF(concatenation_outputs),
    .attrs = concatenation_attrs,
    .attr_count = RABBET_OP_COUNT_OF(concatenation_attrs),
    .infer_types = concatenation_infer_types,
    .infer_shapes = concatenation_infer_shapes,
    .reference = concatenation_reference,
};
