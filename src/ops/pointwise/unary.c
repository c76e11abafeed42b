// Functions of one element. ABS, NEG and SIGN also of integers, NOT of BOOL.
#include <math.h>

#include "ops/enums.h"
#include "ops/fraction.h"
#include "ops/rules.h"
#include "ops/walk.h"

static const rabbet_op_enumerator_t unary_ops[] = {
    RABBET_UNARIES(RABBET_ENUMERATOR){NULL, 0}};

static double unary_recip(double x) {
  return 1 / x;
}
static double unary_neg(double x) {
  return -x;
}
static double unary_sign(double x) {
  return x > 0 ? 1 : x < 0 ? -1 : x;
}
static double unary_isinf(double x) {
  return isinf(x) != 0;
}
static double unary_isnan(double x) {
  return isnan(x) != 0;
}

static double (*const unary_functions[])(double) = {
    [RABBET_UNARY_EXP] = exp,           [RABBET_UNARY_LOG] = log,
    [RABBET_UNARY_SQRT] = sqrt,         [RABBET_UNARY_RECIP] = unary_recip,
    [RABBET_UNARY_ABS] = fabs,          [RABBET_UNARY_NEG] = unary_neg,
    [RABBET_UNARY_SIN] = sin,           [RABBET_UNARY_COS] = cos,
    [RABBET_UNARY_TAN] = tan,           [RABBET_UNARY_SINH] = sinh,
    [RABBET_UNARY_COSH] = cosh,         [RABBET_UNARY_ASIN] = asin,
    [RABBET_UNARY_ACOS] = acos,         [RABBET_UNARY_ATAN] = atan,
    [RABBET_UNARY_ASINH] = asinh,       [RABBET_UNARY_ACOSH] = acosh,
    [RABBET_UNARY_ATANH] = atanh,       [RABBET_UNARY_CEIL] = ceil,
    [RABBET_UNARY_FLOOR] = floor,       [RABBET_UNARY_ERF] = erf,
    [RABBET_UNARY_NOT] = NULL,          [RABBET_UNARY_SIGN] = unary_sign,
    [RABBET_UNARY_ROUND] = nearbyint,  // half to even
    [RABBET_UNARY_ISINF] = unary_isinf, [RABBET_UNARY_ISNAN] = unary_isnan,
};

static rabbet_status_t unary_infer_types(const rabbet_op_infer_t* infer) {
  int64_t op = RABBET_OP_INT(infer, "op");
  rabbet_dtype_t dtype = infer->inputs[0].dtype;
  bool is_float = rabbet_dtype_is_float(dtype);
  bool is_bool = dtype == RABBET_DTYPE_BOOL;
  bool signed_op = op == RABBET_UNARY_ABS || op == RABBET_UNARY_NEG ||
                   op == RABBET_UNARY_SIGN;
  bool fits =
      op == RABBET_UNARY_NOT ? is_bool : is_float || (signed_op && !is_bool);
  if (!fits) {
    return RABBET_OP_INVALID(
        "%s takes %s; input 0 ('input') has type %s (insert a cast)",
        rabbet_op_enumerator_name(&infer->op->attrs[0], op),
        op == RABBET_UNARY_NOT ? "BOOL"
        : signed_op            ? "numbers"
                               : "FLOAT, HALF, BF16",
        rabbet_dtype_name(dtype));
  }
  bool tests = op == RABBET_UNARY_ISINF || op == RABBET_UNARY_ISNAN;
  infer->outputs[0].dtype = tests ? RABBET_DTYPE_BOOL : dtype;
  return rabbet_ok();
}

// NOT is 1 - x.
static rabbet_status_t unary_value(const rabbet_op_infer_t* infer,
                                   rabbet_fraction_t x,
                                   rabbet_fraction_t* out_y) {
  int64_t op = RABBET_OP_INT(infer, "op");
  if (op != RABBET_UNARY_NOT) return rabbet_fraction_unary(infer, op, x, out_y);
  RABBET_RETURN_IF_ERROR(rabbet_expr_constant(infer->graph, 1, &out_y->top));
  return rabbet_expr_binary(infer->graph, RABBET_EXPR_SUB, out_y->top, x.top,
                            &out_y->top);
}

static rabbet_status_t unary_infer_values(const rabbet_op_infer_t* infer) {
  const rabbet_op_value_t* input = &infer->inputs[0];
  if (!input->values) return rabbet_ok();
  rabbet_fractions_t made;
  RABBET_RETURN_IF_ERROR(
      rabbet_fractions_new(infer, input->value_count, &made));
  for (size_t i = 0; i < input->value_count; ++i) {
    rabbet_fraction_t x, y = {RABBET_EXPR_NONE, RABBET_EXPR_NONE};
    RABBET_RETURN_IF_ERROR(rabbet_fraction_at(infer, input, (int64_t)i, &x));
    RABBET_RETURN_IF_ERROR(unary_value(infer, x, &y));
    if (!rabbet_fraction_exists(y)) return rabbet_ok();
    made.tops[i] = y.top;
    made.bottoms[i] = y.bottom;
  }
  rabbet_fractions_store(&made, input->value_count, &infer->outputs[0]);
  return rabbet_ok();
}

static int64_t unary_int(int64_t op, int64_t x) {
  if (op == RABBET_UNARY_NOT) return !x;
  if (op == RABBET_UNARY_SIGN) return (x > 0) - (x < 0);
  // ABS and NEG of the least integer, whose negative does not exist, return
  // that integer.
  return op == RABBET_UNARY_ABS && x >= 0 ? x : (int64_t)(0 - (uint64_t)x);
}

static rabbet_status_t unary_reference(const rabbet_op_eval_t* eval) {
  const rabbet_view_t* x = &eval->inputs[0];
  const rabbet_view_t* y = &eval->outputs[0];
  int64_t op = RABBET_OP_INT(eval, "op");
  int64_t count = rabbet_count_of(&y->dims);
  bool is_float = rabbet_dtype_is_float(x->dtype);
  for (int64_t i = 0; i < count; ++i) {
    if (is_float) {
      double value = rabbet_load_double(x->dtype, x->data, i);
      rabbet_store_double(y->dtype, y->data, i, unary_functions[op](value));
    } else {
      int64_t value = rabbet_load_int64(x->dtype, x->data, i);
      rabbet_store_int64(y->dtype, y->data, i, unary_int(op, value));
    }
  }
  return rabbet_ok();
}

static const rabbet_op_operand_t unary_inputs[] = {
    {"input", 0, RABBET_T_NUMBERS | RABBET_T(BOOL)}};
static const rabbet_op_operand_t unary_outputs[] = {
    {"output", 0, RABBET_T_NUMBERS | RABBET_T(BOOL)}};
static const rabbet_op_attr_t unary_attrs[] = {
    {"op", RABBET_ATTR_INT, true, 0, 0, unary_ops},
};

const rabbet_op_t rabbet_op_unary = {
    .name = "unary",
    .layer_type = "UNARY",
    .flags = RABBET_OP_POINTWISE,
    .inputs = unary_inputs,
    .input_count = RABBET_OP_COUNT_OF(unary_inputs),
    .outputs = unary_outputs,
    .output_count = RABBET_OP_COUNT_OF(unary_outputs),
    .attrs = unary_attrs,
    .attr_count = RABBET_OP_COUNT_OF(unary_attrs),
    .infer_types = unary_infer_types,
    .infer_shapes = rabbet_op_same_shape,
    .infer_values = unary_infer_values,
    .reference = unary_reference,
};
