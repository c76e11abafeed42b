#include "ops/fraction.h"
#include "ops/movement/convert.h"
#include "ops/rules.h"
#include "ops/walk.h"

#define CAST_FROM (CAST_TYPES | RABBET_T(E8M0))
#define CAST_TYPES (RABBET_T_NUMBERS | RABBET_T(BOOL) | RABBET_T(FP8))

static const rabbet_op_enumerator_t cast_types[] = {
    {"FLOAT", RABBET_DTYPE_FLOAT},
    {"HALF", RABBET_DTYPE_HALF},
    {"INT8", RABBET_DTYPE_INT8},
    {"INT32", RABBET_DTYPE_INT32},
    {"BOOL", RABBET_DTYPE_BOOL},
    {"UINT8", RABBET_DTYPE_UINT8},
    {"FP8", RABBET_DTYPE_FP8},
    {"BF16", RABBET_DTYPE_BF16},
    {"INT64", RABBET_DTYPE_INT64},
    {"DOUBLE", RABBET_DTYPE_DOUBLE},
    {NULL, 0},
};

static rabbet_status_t cast_infer_types(const rabbet_op_infer_t* infer) {
  infer->outputs[0].dtype = (rabbet_dtype_t)RABBET_OP_INT(infer, "to_type");
  return rabbet_ok();
}

// 1 - (x == 0)
static rabbet_status_t cast_to_bool(const rabbet_op_infer_t* infer,
                                    rabbet_expr_t value,
                                    rabbet_expr_t* out_value) {
  rabbet_expr_t one = RABBET_EXPR_NONE, is_zero = RABBET_EXPR_NONE;
  RABBET_RETURN_IF_ERROR(rabbet_expr_constant(infer->graph, 1, &one));
  RABBET_RETURN_IF_ERROR(
      rabbet_op_with_constant(infer, RABBET_EXPR_EQUAL, value, 0, &is_zero));
  return rabbet_expr_binary(infer->graph, RABBET_EXPR_SUB, one, is_zero,
                            out_value);
}

// Casts an element that inference follows: to an integer type a fraction is
// truncated, to BOOL it is compared with 0.
static rabbet_status_t cast_value(const rabbet_op_infer_t* infer,
                                  rabbet_fraction_t x,
                                  rabbet_fraction_t* out_y) {
  rabbet_dtype_t to = infer->outputs[0].dtype;
  *out_y = x;
  if (rabbet_op_follows_reals(to) ||
      infer->inputs[0].dtype == RABBET_DTYPE_BOOL)
    return rabbet_ok();
  return to == RABBET_DTYPE_BOOL
             ? cast_to_bool(infer, x.top, &out_y->top)
             : rabbet_op_truncated(infer, x.top, x.bottom, &out_y->top);
}

// 8-bit results wrap around, which expressions cannot state. Constants are
// folded in any case.
static rabbet_status_t cast_infer_values(const rabbet_op_infer_t* infer) {
  const rabbet_op_value_t* input = &infer->inputs[0];
  rabbet_dtype_t to = infer->outputs[0].dtype;
  if (!input->values || !(rabbet_op_follows(to) || rabbet_op_follows_reals(to)))
    return rabbet_ok();
  rabbet_fractions_t made;
  RABBET_RETURN_IF_ERROR(
      rabbet_fractions_new(infer, input->value_count, &made));
  for (size_t i = 0; i < input->value_count; ++i) {
    rabbet_fraction_t x, y;
    RABBET_RETURN_IF_ERROR(rabbet_fraction_at(infer, input, (int64_t)i, &x));
    RABBET_RETURN_IF_ERROR(cast_value(infer, x, &y));
    made.tops[i] = y.top;
    made.bottoms[i] = y.bottom;
  }
  rabbet_fractions_store(&made, input->value_count, &infer->outputs[0]);
  return rabbet_ok();
}

static rabbet_status_t cast_reference(const rabbet_op_eval_t* eval) {
  const rabbet_view_t* x = &eval->inputs[0];
  const rabbet_view_t* y = &eval->outputs[0];
  rabbet_convert(x->dtype, x->data, y->dtype, y->data,
                 rabbet_count_of(&y->dims));
  return rabbet_ok();
}

static const rabbet_op_operand_t cast_inputs[] = {{"input", 0, CAST_FROM}};
static const rabbet_op_operand_t cast_outputs[] = {{"output", 0, CAST_TYPES}};
static const rabbet_op_attr_t cast_attrs[] = {
    {"to_type", RABBET_ATTR_INT, true, 0, 0, cast_types},
};

const rabbet_op_t rabbet_op_cast = {
    .name = "cast",
    .layer_type = "CAST",
    .flags = RABBET_OP_POINTWISE,
    .inputs = cast_inputs,
    .input_count = RABBET_OP_COUNT_OF(cast_inputs),
    .outputs = cast_outputs,
    .output_count = RABBET_OP_COUNT_OF(cast_outputs),
    .attrs = cast_attrs,
    .attr_count = RABBET_OP_COUNT_OF(cast_attrs),
    .infer_types = cast_infer_types,
    .infer_shapes = rabbet_op_same_shape,
    .infer_values = cast_infer_values,
    .reference = cast_reference,
};
