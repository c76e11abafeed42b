#include "ops/rules.h"

static rabbet_status_t shape_infer_types(const rabbet_op_infer_t* infer) {
  infer->outputs[0].dtype = RABBET_DTYPE_INT64;
  return rabbet_ok();
}

static rabbet_status_t shape_infer_shapes(const rabbet_op_infer_t* infer) {
  infer->outputs[0].shape.rank = 1;
  return rabbet_expr_constant(infer->graph, infer->inputs[0].shape.rank,
                              &infer->outputs[0].shape.d[0]);
}

static rabbet_status_t shape_infer_values(const rabbet_op_infer_t* infer) {
  const rabbet_shape_t* shape = &infer->inputs[0].shape;
  rabbet_expr_t* values = NULL;
  RABBET_RETURN_IF_ERROR(
      rabbet_op_new_values(infer, (size_t)shape->rank, &values));
  for (int32_t i = 0; i < shape->rank; ++i) {
    values[i] = shape->d[i];
  }
  infer->outputs[0].values = values;
  infer->outputs[0].value_count = (size_t)shape->rank;
  return rabbet_ok();
}

static rabbet_status_t shape_reference(const rabbet_op_eval_t* eval) {
  const rabbet_dims_t* dims = &eval->inputs[0].dims;
  for (int32_t i = 0; i < dims->rank; ++i) {
    rabbet_store_int64(eval->outputs[0].dtype, eval->outputs[0].data, i,
                       dims->d[i]);
  }
  return rabbet_ok();
}

static const rabbet_op_operand_t shape_inputs[] = {{"input", 0, RABBET_T_ANY}};
static const rabbet_op_operand_t shape_outputs[] = {
    {"output", 0, RABBET_T(INT64)}};

const rabbet_op_t rabbet_op_shape = {
    .name = "shape",
    .layer_type = "SHAPE",
    .inputs = shape_inputs,
    .input_count = RABBET_OP_COUNT_OF(shape_inputs),
    .outputs = shape_outputs,
    .output_count = RABBET_OP_COUNT_OF(shape_outputs),
    .infer_types = shape_infer_types,
    .infer_shapes = shape_infer_shapes,
    .infer_values = shape_infer_values,
    .reference = shape_reference,
};
