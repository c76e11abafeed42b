// Pointwise activation functions. Of integers only RELU, CLIP and
// THRESHOLDED_RELU are defined.
#include "ops/activation.h"

#include <math.h>

#include "ops/rules.h"
#include "ops/walk.h"

static const rabbet_op_enumerator_t activation_types[] = {
    RABBET_ACTIVATIONS(RABBET_ENUMERATOR){NULL, 0}};

static double activation_softplus(double x) {
  return fmax(x, 0) + log1p(exp(-fabs(x)));
}

static double activation_gelu_tanh(double x) {
  const double scale = 0.79788456080286535588;  // sqrt(2 / pi)
  return 0.5 * x * (1 + tanh(scale * (x + 0.044715 * x * x * x)));
}

// NaN goes through all but the comparisons of THRESHOLDED_RELU.
static double activation_clip(double x, double low, double high) {
  return x < low ? fmin(low, high) : x > high ? high : x;
}

double rabbet_activation_of(int64_t type, double x, double a, double b) {
  switch (type) {
    case RABBET_ACTIVATION_RELU:
      return x < 0 ? 0 : x;
    case RABBET_ACTIVATION_SIGMOID:
      return 1 / (1 + exp(-x));
    case RABBET_ACTIVATION_TANH:
      return tanh(x);
    case RABBET_ACTIVATION_LEAKY_RELU:
      return x < 0 ? a * x : x;
    case RABBET_ACTIVATION_ELU:
      return x < 0 ? a * expm1(x) : x;
    case RABBET_ACTIVATION_SELU:
      return b * (x < 0 ? a * expm1(x) : x);
    case RABBET_ACTIVATION_SOFTSIGN:
      return x / (1 + fabs(x));
    case RABBET_ACTIVATION_SOFTPLUS:
      return a * activation_softplus(b * x);
    case RABBET_ACTIVATION_CLIP:
      return activation_clip(x, a, b);
    case RABBET_ACTIVATION_HARD_SIGMOID:
      return activation_clip(a * x + b, 0, 1);
    case RABBET_ACTIVATION_SCALED_TANH:
      return a * tanh(b * x);
    case RABBET_ACTIVATION_THRESHOLDED_RELU:
      return x > a ? x : 0;
    case RABBET_ACTIVATION_GELU_ERF:
      return 0.5 * x * (1 + erf(x * 0.70710678118654752440));
    default:
      return activation_gelu_tanh(x);
  }
}

static rabbet_status_t activation_infer_types(const rabbet_op_infer_t* infer) {
  int64_t type = RABBET_OP_INT(infer, "type");
  rabbet_dtype_t dtype = infer->inputs[0].dtype;
  if (!rabbet_dtype_is_float(dtype) && type != RABBET_ACTIVATION_RELU &&
      type != RABBET_ACTIVATION_CLIP &&
      type != RABBET_ACTIVATION_THRESHOLDED_RELU) {
    return RABBET_OP_INVALID(
        "activation %s needs floating point; input 0 ('input') has type %s "
        "(insert a cast)",
        rabbet_op_enumerator_name(&infer->op->attrs[0], type),
        rabbet_dtype_name(dtype));
  }
  infer->outputs[0].dtype = dtype;
  return rabbet_ok();
}

static rabbet_status_t activation_reference(const rabbet_op_eval_t* eval) {
  const rabbet_view_t* x = &eval->inputs[0];
  const rabbet_view_t* y = &eval->outputs[0];
  int64_t type = RABBET_OP_INT(eval, "type");
  double alpha = RABBET_OP_FLOAT(eval, "alpha");
  double beta = RABBET_OP_FLOAT(eval, "beta");
  int64_t count = rabbet_count_of(&y->dims);
  for (int64_t i = 0; i < count; ++i) {
    double value = rabbet_load_double(x->dtype, x->data, i);
    rabbet_store_double(y->dtype, y->data, i,
                        rabbet_activation_of(type, value, alpha, beta));
  }
  return rabbet_ok();
}

static const rabbet_op_operand_t activation_inputs[] = {
    {"input", 0, RABBET_T_FLOATS | RABBET_T_INDICES},
};
static const rabbet_op_operand_t activation_outputs[] = {
    {"output", 0, RABBET_T_FLOATS | RABBET_T_INDICES},
};
static const rabbet_op_attr_t activation_attrs[] = {
    {"type", RABBET_ATTR_INT, true, 0, 0, activation_types},
    {"alpha", RABBET_ATTR_FLOAT, false, 0, 0, NULL},
    {"beta", RABBET_ATTR_FLOAT, false, 0, 0, NULL},
};

const rabbet_op_t rabbet_op_activation = {
    .name = "activation",
    .layer_type = "ACTIVATION",
    .flags = RABBET_OP_POINTWISE,
    .inputs = activation_inputs,
    .input_count = RABBET_OP_COUNT_OF(activation_inputs),
    .outputs = activation_outputs,
    .output_count = RABBET_OP_COUNT_OF(activation_outputs),
    .attrs = activation_attrs,
    .attr_count = RABBET_OP_COUNT_OF(activation_attrs),
    .infer_types = activation_infer_types,
    .infer_shapes = rabbet_op_same_shape,
    .reference = activation_reference,
};
