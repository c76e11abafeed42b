#include "ops/movement/convert.h"
#include "ops/rules.h"
#include "ops/walk.h"

// Weakly typed networks use an identity whose output type is set as a cast.
static rabbet_status_t identity_infer_types(const rabbet_op_infer_t* infer) {
  rabbet_op_value_t* output = &infer->outputs[0];
  if (infer->strongly_typed || output->dtype == RABBET_DTYPE_NONE) {
    output->dtype = infer->inputs[0].dtype;
  }
  return rabbet_ok();
}

static rabbet_status_t identity_reference(const rabbet_op_eval_t* eval) {
  const rabbet_view_t* x = &eval->inputs[0];
  const rabbet_view_t* y = &eval->outputs[0];
  rabbet_convert(x->dtype, x->data, y->dtype, y->data,
                 rabbet_count_of(&y->dims));
  return rabbet_ok();
}

static const rabbet_op_operand_t identity_inputs[] = {
    {"input", 0, RABBET_T_ANY}};
static const rabbet_op_operand_t identity_outputs[] = {
    {"output", 0, RABBET_T_ANY}};

const rabbet_op_t rabbet_op_identity = {
    .name = "identity",
    .layer_type = "IDENTITY",
    .flags = RABBET_OP_POINTWISE | RABBET_OP_MOVES_DATA,
    .inputs = identity_inputs,
    .input_count = RABBET_OP_COUNT_OF(identity_inputs),
    .outputs = identity_outputs,
    .output_count = RABBET_OP_COUNT_OF(identity_outputs),
    .infer_types = identity_infer_types,
    .infer_shapes = rabbet_op_same_shape,
    .reference = identity_reference,
};
