// Binary operators with broadcasting of dimensions of 1.
//
// Integer arithmetic wraps around. DIV of integers truncates towards zero,
// FLOOR_DIV rounds down; division by zero gives 0. AND, OR and XOR of INT32 and
// INT64 take bits.
#include <math.h>

#include "ops/enums.h"
#include "ops/fraction.h"
#include "ops/rules.h"
#include "ops/walk.h"

static const rabbet_op_enumerator_t elementwise_ops[] = {
    RABBET_ELEMENTWISES(RABBET_ENUMERATOR){NULL, 0}};

// ---- Types and shapes ------------------------------------------------------

static bool elementwise_is_logical(int64_t op) {
  return op == RABBET_ELEMENTWISE_AND || op == RABBET_ELEMENTWISE_OR ||
         op == RABBET_ELEMENTWISE_XOR;
}

static bool elementwise_takes(int64_t op, rabbet_dtype_t dtype) {
  bool is_bool = dtype == RABBET_DTYPE_BOOL;
  bool has_bits = dtype == RABBET_DTYPE_INT32 || dtype == RABBET_DTYPE_INT64;
  if (op == RABBET_ELEMENTWISE_EQUAL) return true;
  return elementwise_is_logical(op) ? is_bool || has_bits : !is_bool;
}

static rabbet_status_t elementwise_infer_types(const rabbet_op_infer_t* infer) {
  RABBET_RETURN_IF_ERROR(rabbet_op_same_types(infer, 0));
  int64_t op = RABBET_OP_INT(infer, "op");
  rabbet_dtype_t dtype = infer->inputs[0].dtype;
  if (!elementwise_takes(op, dtype)) {
    return RABBET_OP_INVALID(
        "%s takes %s, and the inputs have type %s (insert a cast)",
        rabbet_op_enumerator_name(&infer->op->attrs[0], op),
        elementwise_is_logical(op) ? "BOOL, INT32 and INT64" : "numbers",
        rabbet_dtype_name(dtype));
  }
  bool compares = op == RABBET_ELEMENTWISE_EQUAL ||
                  op == RABBET_ELEMENTWISE_GREATER ||
                  op == RABBET_ELEMENTWISE_LESS;
  infer->outputs[0].dtype = compares ? RABBET_DTYPE_BOOL : dtype;
  return rabbet_ok();
}

static rabbet_status_t elementwise_infer_shapes(
    const rabbet_op_infer_t* infer) {
  return rabbet_op_broadcast(infer, 0, 2, &infer->outputs[0].shape);
}

static rabbet_status_t elementwise_start(const rabbet_op_eval_t* eval,
                                         const rabbet_dims_t* dims,
                                         rabbet_walk_t* walk) {
  rabbet_walk_initialize(dims, walk);
  for (size_t i = 0; i < 2; ++i) {
    int64_t strides[RABBET_MAX_RANK];
    RABBET_RETURN_IF_ERROR(rabbet_broadcast_strides(
        eval->op->inputs[i].name, &eval->inputs[i].dims, dims, strides));
    rabbet_walk_add(walk, strides, 0);
  }
  return rabbet_ok();
}

// ---- Values as expressions -------------------------------------------------

// 1 - (a == b)
static rabbet_status_t elementwise_unequal(const rabbet_op_infer_t* infer,
                                           rabbet_expr_t a, rabbet_expr_t b,
                                           rabbet_expr_t* out_value) {
  rabbet_expr_t one = RABBET_EXPR_NONE;
  RABBET_RETURN_IF_ERROR(rabbet_expr_constant(infer->graph, 1, &one));
  RABBET_RETURN_IF_ERROR(
      rabbet_expr_binary(infer->graph, RABBET_EXPR_EQUAL, a, b, out_value));
  return rabbet_expr_binary(infer->graph, RABBET_EXPR_SUB, one, *out_value,
                            out_value);
}

static const rabbet_expr_op_t elementwise_exprs[] = {
    [RABBET_ELEMENTWISE_SUM] = RABBET_EXPR_SUM,
    [RABBET_ELEMENTWISE_PROD] = RABBET_EXPR_PROD,
    [RABBET_ELEMENTWISE_MAX] = RABBET_EXPR_MAX,
    [RABBET_ELEMENTWISE_MIN] = RABBET_EXPR_MIN,
    [RABBET_ELEMENTWISE_SUB] = RABBET_EXPR_SUB,
    [RABBET_ELEMENTWISE_FLOOR_DIV] = RABBET_EXPR_FLOOR_DIV,
    [RABBET_ELEMENTWISE_AND] = RABBET_EXPR_MIN,
    [RABBET_ELEMENTWISE_OR] = RABBET_EXPR_MAX,
    [RABBET_ELEMENTWISE_EQUAL] = RABBET_EXPR_EQUAL,
    [RABBET_ELEMENTWISE_LESS] = RABBET_EXPR_LESS,
};

// NONE if expressions cannot state the result.
static rabbet_status_t elementwise_value(const rabbet_op_infer_t* infer,
                                         int64_t op, rabbet_expr_t a,
                                         rabbet_expr_t b,
                                         rabbet_expr_t* out_value) {
  *out_value = RABBET_EXPR_NONE;
  // Expressions have no bits.
  if (elementwise_is_logical(op) && infer->inputs[0].dtype != RABBET_DTYPE_BOOL)
    return rabbet_ok();
  int64_t divisor = 0;
  bool divides =
      op == RABBET_ELEMENTWISE_DIV || op == RABBET_ELEMENTWISE_FLOOR_DIV;
  // For a divisor of 0 the kernel gives 0 and expressions have no value, but
  // such a shape fails in any case.
  if (divides && rabbet_op_is_constant(infer, b, &divisor) && divisor == 0)
    return rabbet_ok();
  if (op == RABBET_ELEMENTWISE_DIV && !rabbet_op_non_negative(infer, b))
    return rabbet_ok();
  if (op == RABBET_ELEMENTWISE_DIV)
    return rabbet_op_truncated(infer, a, b, out_value);
  if (op == RABBET_ELEMENTWISE_XOR)
    return elementwise_unequal(infer, a, b, out_value);
  if (op == RABBET_ELEMENTWISE_GREATER) {
    return rabbet_expr_binary(infer->graph, RABBET_EXPR_LESS, b, a, out_value);
  }
  return rabbet_expr_binary(infer->graph, elementwise_exprs[op], a, b,
                            out_value);
}

// Combines element i of the first operand with element j of the second.
static rabbet_status_t elementwise_element(const rabbet_op_infer_t* infer,
                                           int64_t i, int64_t j,
                                           rabbet_fraction_t* out_y) {
  const rabbet_op_value_t* in = infer->inputs;
  int64_t op = RABBET_OP_INT(infer, "op");
  rabbet_fraction_t a, b;
  if (!rabbet_op_follows_reals(in[0].dtype) && op != RABBET_ELEMENTWISE_POW)
    return elementwise_value(infer, op, in[0].values[i], in[1].values[j],
                             &out_y->top);
  RABBET_RETURN_IF_ERROR(rabbet_fraction_at(infer, &in[0], i, &a));
  RABBET_RETURN_IF_ERROR(rabbet_fraction_at(infer, &in[1], j, &b));
  return rabbet_fraction_binary(infer, op, a, b, out_y);
}

static rabbet_status_t elementwise_infer_values(
    const rabbet_op_infer_t* infer) {
  rabbet_op_value_t* output = &infer->outputs[0];
  int64_t count = rabbet_op_constant_count(infer, &output->shape);
  if (!infer->inputs[0].values || !infer->inputs[1].values || count < 0 ||
      count > RABBET_OP_MAX_VALUES) {
    return rabbet_ok();
  }
  rabbet_view_t views[2];
  for (int i = 0; i < 2; ++i) {
    views[i].dims = rabbet_shape_dims(infer->graph, &infer->inputs[i].shape);
  }
  const rabbet_op_eval_t eval = {.op = infer->op, .inputs = views};
  rabbet_dims_t dims = rabbet_shape_dims(infer->graph, &output->shape);
  rabbet_fractions_t made;
  RABBET_RETURN_IF_ERROR(rabbet_fractions_new(infer, (size_t)count, &made));
  rabbet_walk_t walk;
  RABBET_RETURN_IF_ERROR(elementwise_start(&eval, &dims, &walk));
  for (; !walk.done; rabbet_walk_next(&walk)) {
    rabbet_fraction_t y = {RABBET_EXPR_NONE, RABBET_EXPR_NONE};
    RABBET_RETURN_IF_ERROR(
        elementwise_element(infer, walk.offsets[0], walk.offsets[1], &y));
    if (!rabbet_fraction_exists(y)) return rabbet_ok();
    made.tops[walk.linear] = y.top;
    made.bottoms[walk.linear] = y.bottom;
  }
  rabbet_fractions_store(&made, (size_t)count, output);
  return rabbet_ok();
}

// ---- Reference -------------------------------------------------------------

static int64_t elementwise_int_pow(int64_t base, int64_t exponent) {
  if (exponent < 0) {
    return base == 1 ? 1 : base == -1 ? (exponent % 2 ? -1 : 1) : 0;
  }
  uint64_t result = 1, factor = (uint64_t)base;
  for (; exponent > 0; exponent >>= 1) {
    if (exponent & 1) result *= factor;
    factor *= factor;
  }
  return (int64_t)result;
}

static int64_t elementwise_int_div(int64_t a, int64_t b) {
  if (b == 0) return 0;
  return b == -1 ? (int64_t)(0 - (uint64_t)a) : a / b;
}

static int64_t elementwise_int_floor_div(int64_t a, int64_t b) {
  int64_t quotient = elementwise_int_div(a, b);
  bool inexact = b != 0 && b != -1 && a % b != 0;
  return quotient - (inexact && (a < 0) != (b < 0));
}

static int64_t elementwise_int(int64_t op, int64_t a, int64_t b) {
  switch (op) {
    case RABBET_ELEMENTWISE_SUM:
      return (int64_t)((uint64_t)a + (uint64_t)b);
    case RABBET_ELEMENTWISE_PROD:
      return (int64_t)((uint64_t)a * (uint64_t)b);
    case RABBET_ELEMENTWISE_MAX:
      return a > b ? a : b;
    case RABBET_ELEMENTWISE_MIN:
      return a < b ? a : b;
    case RABBET_ELEMENTWISE_SUB:
      return (int64_t)((uint64_t)a - (uint64_t)b);
    case RABBET_ELEMENTWISE_DIV:
      return elementwise_int_div(a, b);
    case RABBET_ELEMENTWISE_POW:
      return elementwise_int_pow(a, b);
    case RABBET_ELEMENTWISE_FLOOR_DIV:
      return elementwise_int_floor_div(a, b);
    case RABBET_ELEMENTWISE_AND:
      return a & b;
    case RABBET_ELEMENTWISE_OR:
      return a | b;
    case RABBET_ELEMENTWISE_XOR:
      return a ^ b;
    case RABBET_ELEMENTWISE_EQUAL:
      return a == b;
    case RABBET_ELEMENTWISE_GREATER:
      return a > b;
    default:
      return a < b;
  }
}

// MAX and MIN pass NaN on from either side.
static double elementwise_float(int64_t op, double a, double b) {
  switch (op) {
    case RABBET_ELEMENTWISE_SUM:
      return a + b;
    case RABBET_ELEMENTWISE_PROD:
      return a * b;
    case RABBET_ELEMENTWISE_MAX:
      return isnan(a) || a > b ? a : b;
    case RABBET_ELEMENTWISE_MIN:
      return isnan(a) || a < b ? a : b;
    case RABBET_ELEMENTWISE_SUB:
      return a - b;
    case RABBET_ELEMENTWISE_DIV:
      return a / b;
    case RABBET_ELEMENTWISE_POW:
      return pow(a, b);
    case RABBET_ELEMENTWISE_FLOOR_DIV:
      return floor(a / b);
    case RABBET_ELEMENTWISE_EQUAL:
      return a == b;
    case RABBET_ELEMENTWISE_GREATER:
      return a > b;
    default:
      return a < b;
  }
}

static rabbet_status_t elementwise_reference(const rabbet_op_eval_t* eval) {
  const rabbet_view_t* a = &eval->inputs[0];
  const rabbet_view_t* b = &eval->inputs[1];
  const rabbet_view_t* y = &eval->outputs[0];
  int64_t op = RABBET_OP_INT(eval, "op");
  bool is_float = rabbet_dtype_is_float(a->dtype);
  rabbet_walk_t walk;
  RABBET_RETURN_IF_ERROR(elementwise_start(eval, &y->dims, &walk));
  for (; !walk.done; rabbet_walk_next(&walk)) {
    int64_t i = walk.offsets[0], j = walk.offsets[1];
    if (is_float) {
      rabbet_store_double(
          y->dtype, y->data, walk.linear,
          elementwise_float(op, rabbet_load_double(a->dtype, a->data, i),
                            rabbet_load_double(b->dtype, b->data, j)));
    } else {
      rabbet_store_int64(
          y->dtype, y->data, walk.linear,
          elementwise_int(op, rabbet_load_int64(a->dtype, a->data, i),
                          rabbet_load_int64(b->dtype, b->data, j)));
    }
  }
  return rabbet_ok();
}

static const rabbet_op_operand_t elementwise_inputs[] = {
    {"input1", 0, RABBET_T_NUMBERS | RABBET_T(BOOL)},
    {"input2", 0, RABBET_T_NUMBERS | RABBET_T(BOOL)},
};
static const rabbet_op_operand_t elementwise_outputs[] = {
    {"output", 0, RABBET_T_NUMBERS | RABBET_T(BOOL)}};
static const rabbet_op_attr_t elementwise_attrs[] = {
    {"op", RABBET_ATTR_INT, true, 0, 0, elementwise_ops},
};

const rabbet_op_t rabbet_op_elementwise = {
    .name = "elementwise",
    .layer_type = "ELEMENTWISE",
    .flags = RABBET_OP_POINTWISE,
    .inputs = elementwise_inputs,
    .input_count = RABBET_OP_COUNT_OF(elementwise_inputs),
    .outputs = elementwise_outputs,
    .output_count = RABBET_OP_COUNT_OF(elementwise_outputs),
    .attrs = elementwise_attrs,
    .attr_count = RABBET_OP_COUNT_OF(elementwise_attrs),
    .infer_types = elementwise_infer_types,
    .infer_shapes = elementwise_infer_shapes,
    .infer_values = elementwise_infer_values,
    .reference = elementwise_reference,
};
