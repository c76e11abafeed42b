// Running sums along an axis.
#include "ops/reduction/cumulative.h"

#include "ops/enums.h"
#include "ops/rules.h"
#include "ops/walk.h"

enum { INPUT = 0, AXIS = 1 };

static const rabbet_op_enumerator_t cumulative_ops[] = {{"SUM", 0}, {NULL, 0}};

static rabbet_status_t cumulative_infer_types(const rabbet_op_infer_t* infer) {
  infer->outputs[0].dtype = infer->inputs[INPUT].dtype;
  return rabbet_ok();
}

static rabbet_status_t cumulative_infer_shapes(const rabbet_op_infer_t* infer) {
  const rabbet_expr_t* values = NULL;
  int64_t axis = RABBET_OP_INT(infer, "axis");
  int32_t found = 0;
  size_t count = 0;
  if (infer->input_count > AXIS && infer->inputs[AXIS].present) {
    RABBET_RETURN_IF_ERROR(
        rabbet_op_operand_values(infer, AXIS, &values, &count));
    if (count != 1 || !rabbet_op_is_constant(infer, values[0], &axis))
      return RABBET_OP_INVALID(
          "input 1 ('axis') must be one constant; it has %zu elements", count);
  }
  RABBET_RETURN_IF_ERROR(
      rabbet_op_axis("axis", axis, infer->inputs[INPUT].shape.rank, &found));
  return rabbet_op_same_shape(infer);
}

int32_t rabbet_cumulative_axis(const rabbet_op_eval_t* eval) {
  int64_t axis = RABBET_OP_INT(eval, "axis");
  if (eval->input_count > AXIS &&
      eval->inputs[AXIS].dtype != RABBET_DTYPE_NONE && eval->inputs[AXIS].data)
    axis =
        rabbet_load_int64(eval->inputs[AXIS].dtype, eval->inputs[AXIS].data, 0);
  return (int32_t)(axis < 0 ? axis + eval->inputs[INPUT].dims.rank : axis);
}

static void cumulative_row(const rabbet_op_eval_t* eval, int64_t from,
                           int64_t stride, int64_t count) {
  const rabbet_view_t *x = &eval->inputs[INPUT], *y = &eval->outputs[0];
  bool exclusive = RABBET_OP_INT(eval, "exclusive") != 0;
  bool reverse = RABBET_OP_INT(eval, "reverse") != 0;
  bool integer = rabbet_dtype_is_integer(x->dtype);
  double sum = 0;
  uint64_t total = 0;
  for (int64_t i = 0; i < count; ++i) {
    int64_t at = from + (reverse ? count - 1 - i : i) * stride;
    double real = rabbet_load_double(x->dtype, x->data, at);
    uint64_t number =
        integer ? (uint64_t)rabbet_load_int64(x->dtype, x->data, at) : 0;
    if (integer)
      rabbet_store_int64(y->dtype, y->data, at,
                         (int64_t)(exclusive ? total : total + number));
    else
      rabbet_store_double(y->dtype, y->data, at, exclusive ? sum : sum + real);
    sum += real;
    total += number;
  }
}

static rabbet_status_t cumulative_reference(const rabbet_op_eval_t* eval) {
  const rabbet_dims_t* dims = &eval->inputs[INPUT].dims;
  int32_t axis = rabbet_cumulative_axis(eval);
  int64_t strides[RABBET_MAX_RANK];
  rabbet_row_major(dims, strides);
  rabbet_dims_t rows = *dims;
  rows.d[axis] = dims->d[axis] > 0;
  rabbet_walk_t walk;
  rabbet_walk_initialize(&rows, &walk);
  rabbet_walk_add(&walk, strides, 0);
  for (; !walk.done; rabbet_walk_next(&walk))
    cumulative_row(eval, walk.offsets[0], strides[axis], dims->d[axis]);
  return rabbet_ok();
}

static const rabbet_op_operand_t cumulative_inputs[] = {
    {"input", 0, RABBET_T_NUMBERS},
    {"axis", RABBET_OPERAND_OPTIONAL | RABBET_OPERAND_SHAPE, RABBET_T_INDICES},
};
static const rabbet_op_operand_t cumulative_outputs[] = {
    {"output", 0, RABBET_T_NUMBERS}};
static const rabbet_op_attr_t cumulative_attrs[] = {
    {"op", RABBET_ATTR_INT, false, 0, 0, cumulative_ops},
    {"axis", RABBET_ATTR_INT, false, 0, 0, NULL},
    {"exclusive", RABBET_ATTR_BOOL, false, 0, 0, NULL},
    {"reverse", RABBET_ATTR_BOOL, false, 0, 0, NULL},
};

const rabbet_op_t rabbet_op_cumulative = {
    .name = "cumulative",
    .layer_type = "CUMULATIVE",
    .inputs = cumulative_inputs,
    .input_count = RABBET_OP_COUNT_OF(cumulative_inputs),
    .outputs = cumulative_outputs,
    .output_count = RABBET_OP_COUNT_OF(cumulative_outputs),
    .attrs = cumulative_attrs,
    .attr_count = RABBET_OP_COUNT_OF(cumulative_attrs),
    .infer_types = cumulative_infer_types,
    .infer_shapes = cumulative_infer_shapes,
    .reference = cumulative_reference,
};
