// Positions of the elements that are not zero, in row-major order. Column i of
// the result has the position of the i-th such element: one index for each axis
// (none for a tensor of rank 0).
#include "ops/rules.h"
#include "ops/walk.h"

enum { INPUT = 0, INDICES = 0, COUNT = 1 };

static const rabbet_op_enumerator_t non_zero_types[] = {
    {"INT32", RABBET_DTYPE_INT32}, {"INT64", RABBET_DTYPE_INT64}, {NULL, 0}};

static rabbet_status_t non_zero_infer_types(const rabbet_op_infer_t* infer) {
  infer->outputs[INDICES].dtype =
      (rabbet_dtype_t)RABBET_OP_INT(infer, "indices_type");
  infer->outputs[COUNT].dtype = RABBET_DTYPE_INT64;
  return rabbet_ok();
}

static rabbet_status_t non_zero_infer_shapes(const rabbet_op_infer_t* infer) {
  const rabbet_shape_t* x = &infer->inputs[INPUT].shape;
  rabbet_expr_t most = RABBET_EXPR_NONE, half = RABBET_EXPR_NONE;
  RABBET_RETURN_IF_ERROR(rabbet_expr_constant(infer->graph, 1, &most));
  for (int32_t i = 0; i < x->rank; ++i)
    RABBET_RETURN_IF_ERROR(rabbet_expr_binary(infer->graph, RABBET_EXPR_PROD,
                                              most, x->d[i], &most));
  RABBET_RETURN_IF_ERROR(
      rabbet_op_with_constant(infer, RABBET_EXPR_CEIL_DIV, most, 2, &half));
  rabbet_shape_t* shape = &infer->outputs[INDICES].shape;
  shape->rank = 2;
  RABBET_RETURN_IF_ERROR(
      rabbet_expr_constant(infer->graph, x->rank, &shape->d[0]));
  return rabbet_op_size(infer, COUNT, half, most, &shape->d[1]);
}

static rabbet_status_t non_zero_reference(const rabbet_op_eval_t* eval) {
  const rabbet_view_t* x = &eval->inputs[INPUT];
  const rabbet_view_t *y = &eval->outputs[INDICES],
                      *size = &eval->outputs[COUNT];
  int64_t count = 0, all = rabbet_count_of(&x->dims);
  for (int64_t i = 0; i < all; ++i)
    count += rabbet_load_double(x->dtype, x->data, i) != 0;
  rabbet_store_int64(size->dtype, size->data, 0, count);
  if (!y->data) return rabbet_ok();
  int64_t strides[RABBET_MAX_RANK], column = 0;
  rabbet_row_major(&x->dims, strides);
  rabbet_walk_t walk;
  rabbet_walk_initialize(&x->dims, &walk);
  rabbet_walk_add(&walk, strides, 0);
  for (; !walk.done; rabbet_walk_next(&walk)) {
    if (rabbet_load_double(x->dtype, x->data, walk.offsets[0]) == 0) continue;
    for (int32_t axis = 0; axis < x->dims.rank; ++axis)
      rabbet_store_int64(y->dtype, y->data, axis * count + column,
                         walk.at[axis]);
    ++column;
  }
  return rabbet_ok();
}

static const rabbet_op_operand_t non_zero_inputs[] = {
    {"input", 0, RABBET_T_NUMBERS | RABBET_T(BOOL) | RABBET_T(FP8)}};
static const rabbet_op_operand_t non_zero_outputs[] = {
    {"indices", 0, RABBET_T_INDICES},
    {"count", RABBET_OPERAND_SIZE | RABBET_OPERAND_HIDDEN, RABBET_T(INT64)}};
static const rabbet_op_attr_t non_zero_attrs[] = {
    {"indices_type", RABBET_ATTR_INT, false, RABBET_DTYPE_INT32, 0,
     non_zero_types},
};

const rabbet_op_t rabbet_op_non_zero = {
    .name = "non_zero",
    .layer_type = "NON_ZERO",
    .inputs = non_zero_inputs,
    .input_count = RABBET_OP_COUNT_OF(non_zero_inputs),
    .outputs = non_zero_outputs,
    .output_count = RABBET_OP_COUNT_OF(non_zero_outputs),
    .attrs = non_zero_attrs,
    .attr_count = RABBET_OP_COUNT_OF(non_zero_attrs),
    .infer_types = non_zero_infer_types,
    .infer_shapes = non_zero_infer_shapes,
    .reference = non_zero_reference,
};
