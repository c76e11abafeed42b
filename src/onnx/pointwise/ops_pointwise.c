// Functions of each element: unary, binary, comparisons, casts.
#include <string.h>

#include "onnx/held.h"
#include "onnx/operators.h"

static void onnx_import_unary(rabbet_onnx_node_t* node) {
  rabbet_tensor_t* x = rabbet_onnx_required(node, 0);
  node->outputs[0] = rabbet_onnx_unary(node, node->variant, x);
}

// One sign alone: infinite and of that sign.
static void onnx_import_is_inf(rabbet_onnx_node_t* node) {
  rabbet_tensor_t* x = rabbet_onnx_required(node, 0);
  bool negative = rabbet_onnx_attr_int(node, "detect_negative", 1) != 0;
  bool positive = rabbet_onnx_attr_int(node, "detect_positive", 1) != 0;
  rabbet_tensor_t* infinite = rabbet_onnx_unary(node, "ISINF", x);
  if (!negative || !positive) {
    rabbet_tensor_t* sign = positive
                                ? rabbet_onnx_with_number(node, "GREATER", x, 0)
                                : rabbet_onnx_with_number(node, "LESS", x, 0);
    infinite = rabbet_onnx_binary(node, "AND", infinite, sign);
  }
  if (!negative && !positive) {
    infinite = rabbet_onnx_binary(node, "XOR", infinite, infinite);
  }
  node->outputs[0] = infinite;
}

// The second operand. Before opset 7 an attribute names the axis of the first
// operand where its axes begin. By default, and since then, they are the last
// ones.
static rabbet_tensor_t* onnx_operand(rabbet_onnx_node_t* node,
                                     rabbet_tensor_t* a) {
  rabbet_tensor_t* b = rabbet_onnx_required(node, 1);
  int64_t axis = rabbet_onnx_attr_int(node, "axis", -1);
  if (node->opset >= 7 || axis == -1) return b;
  int rank_a = rabbet_onnx_rank(node, a), rank_b = rabbet_onnx_rank(node, b);
  int first = rabbet_onnx_axis(node, axis, rank_a);
  if (!rabbet_onnx_ok(node) || rank_b == 0) return b;
  if (first + rank_b > rank_a)
    RABBET_ONNX_FAIL(node, RABBET_STATUS_INVALID_ARGUMENT,
                     "the second operand has rank %d; from axis %d of the "
                     "first on there are %d axes",
                     rank_b, first, rank_a - first);
  uint32_t own = ((1u << rank_b) - 1) << first;
  uint32_t behind = ((1u << rank_a) - 1) & ~(own | ((1u << first) - 1));
  return rabbet_onnx_unsqueeze(node, b, behind >> first, rank_a - first);
}

static void onnx_import_binary(rabbet_onnx_node_t* node) {
  rabbet_tensor_t* a = rabbet_onnx_required(node, 0);
  rabbet_tensor_t* b = onnx_operand(node, a);
  node->outputs[0] = rabbet_onnx_binary(node, node->variant, a, b);
}

// The operator EQUAL compares numbers; for BOOL, equality is the negated XOR.
static void onnx_import_equal(rabbet_onnx_node_t* node) {
  rabbet_tensor_t* a = rabbet_onnx_required(node, 0);
  rabbet_tensor_t* b = onnx_operand(node, a);
  bool truth = rabbet_onnx_dtype_of(node, a) == RABBET_DTYPE_BOOL;
  rabbet_tensor_t* y = rabbet_onnx_binary(node, truth ? "XOR" : "EQUAL", a, b);
  node->outputs[0] = truth ? rabbet_onnx_unary(node, "NOT", y) : y;
}

// Not the negation of the opposite, which NaN would make true.
static void onnx_import_or_equal(rabbet_onnx_node_t* node) {
  rabbet_tensor_t* a = rabbet_onnx_required(node, 0);
  rabbet_tensor_t* b = rabbet_onnx_required(node, 1);
  rabbet_tensor_t* strict = rabbet_onnx_binary(node, node->variant, a, b);
  rabbet_tensor_t* equal = rabbet_onnx_binary(node, "EQUAL", a, b);
  node->outputs[0] = rabbet_onnx_binary(node, "OR", strict, equal);
}

static rabbet_tensor_t* onnx_truncate(rabbet_onnx_node_t* node,
                                      rabbet_tensor_t* x) {
  rabbet_tensor_t* size =
      rabbet_onnx_unary(node, "FLOOR", rabbet_onnx_unary(node, "ABS", x));
  return rabbet_onnx_binary(node, "PROD", rabbet_onnx_unary(node, "SIGN", x),
                            size);
}

// The remainder for an infinite b, which the general formula does not give: a,
// or b if the result has the sign of b and that is not a's. (a - a) is NaN for
// infinite a.
static rabbet_tensor_t* onnx_mod_infinite(rabbet_onnx_node_t* node,
                                          rabbet_tensor_t* a,
                                          rabbet_tensor_t* b,
                                          bool towards_zero) {
  rabbet_tensor_t* y = a;
  if (!towards_zero) {
    rabbet_tensor_t* product =
        rabbet_onnx_binary(node, "PROD", rabbet_onnx_unary(node, "SIGN", a),
                           rabbet_onnx_unary(node, "SIGN", b));
    rabbet_tensor_t* differ = rabbet_onnx_with_number(node, "LESS", product, 0);
    y = rabbet_onnx_select(node, differ, b, a);
  }
  return rabbet_onnx_binary(node, "SUM", y,
                            rabbet_onnx_binary(node, "SUB", a, a));
}

// A quotient just below an integer may be rounded to it. Then the remainder has
// the other sign than a, and lacks one b. Without a fused product it is zero.
static rabbet_tensor_t* onnx_mod_corrected(rabbet_onnx_node_t* node,
                                           rabbet_tensor_t* a,
                                           rabbet_tensor_t* b,
                                           rabbet_tensor_t* y) {
  rabbet_tensor_t* sign = rabbet_onnx_unary(node, "SIGN", a);
  rabbet_tensor_t* beyond = rabbet_onnx_with_number(
      node, "LESS", rabbet_onnx_binary(node, "PROD", y, sign), 0);
  rabbet_tensor_t* step =
      rabbet_onnx_binary(node, "PROD", sign, rabbet_onnx_unary(node, "ABS", b));
  return rabbet_onnx_select(node, beyond,
                            rabbet_onnx_binary(node, "SUM", y, step), y);
}

// a - b * quotient; fmod says whether the quotient is rounded down or towards
// zero (integers divide towards zero by themselves).
static void onnx_import_mod(rabbet_onnx_node_t* node) {
  rabbet_tensor_t* a = rabbet_onnx_required(node, 0);
  rabbet_tensor_t* b = rabbet_onnx_required(node, 1);
  bool towards_zero = rabbet_onnx_attr_int(node, "fmod", 0) != 0;
  bool is_float = rabbet_onnx_is_float(node, a);
  rabbet_tensor_t* quotient =
      rabbet_onnx_binary(node, towards_zero ? "DIV" : "FLOOR_DIV", a, b);
  if (towards_zero && is_float) quotient = onnx_truncate(node, quotient);
  rabbet_tensor_t* y = rabbet_onnx_binary(
      node, "SUB", a, rabbet_onnx_binary(node, "PROD", b, quotient));
  if (is_float && towards_zero) y = onnx_mod_corrected(node, a, b, y);
  if (is_float) {
    y = rabbet_onnx_select(node, rabbet_onnx_unary(node, "ISINF", b),
                           onnx_mod_infinite(node, a, b, towards_zero), y);
  }
  node->outputs[0] = y;
}

// The result has the base's type, for any type of the exponent. Integers take
// part as FLOAT if the exponent is FLOAT.
static void onnx_import_pow(rabbet_onnx_node_t* node) {
  rabbet_tensor_t* base = rabbet_onnx_required(node, 0);
  rabbet_tensor_t* exponent = onnx_operand(node, base);
  rabbet_dtype_t type = rabbet_onnx_dtype_of(node, base);
  rabbet_dtype_t work = type;
  if (!rabbet_dtype_is_float(type) && rabbet_onnx_is_float(node, exponent)) {
    exponent = rabbet_onnx_in_float(node, exponent);
    work = rabbet_onnx_dtype_of(node, exponent);
  }
  rabbet_tensor_t* y =
      rabbet_onnx_binary(node, "POW", rabbet_onnx_cast(node, base, work),
                         rabbet_onnx_cast(node, exponent, work));
  node->outputs[0] = rabbet_onnx_cast(node, y, type);
}

static rabbet_tensor_t* onnx_chain(rabbet_onnx_node_t* node, const char* op) {
  rabbet_tensor_t* y = rabbet_onnx_required(node, 0);
  for (size_t i = 1; i < node->input_count && rabbet_onnx_ok(node); ++i) {
    y = rabbet_onnx_binary(node, op, y, rabbet_onnx_required(node, i));
  }
  return y;
}

static void onnx_import_variadic(rabbet_onnx_node_t* node) {
  node->outputs[0] = onnx_chain(node, node->variant);
}

static void onnx_import_mean(rabbet_onnx_node_t* node) {
  rabbet_tensor_t* sum = onnx_chain(node, "SUM");
  node->outputs[0] =
      node->input_count > 1
          ? rabbet_onnx_with_number(node, "DIV", sum, (double)node->input_count)
          : sum;
}

static void onnx_import_where(rabbet_onnx_node_t* node) {
  rabbet_tensor_t* condition = rabbet_onnx_required(node, 0);
  rabbet_tensor_t* yes = rabbet_onnx_required(node, 1);
  rabbet_tensor_t* no = rabbet_onnx_required(node, 2);
  node->outputs[0] = rabbet_onnx_select(node, condition, yes, no);
}

static void onnx_import_cast(rabbet_onnx_node_t* node) {
  rabbet_tensor_t* x = rabbet_onnx_required(node, 0);
  int64_t to =
      node->opset < 6
          ? rabbet_onnx_type_number(rabbet_onnx_attr_string(node, "to", ""))
          : rabbet_onnx_attr_int(node, "to", 0);
  rabbet_dtype_t dtype = RABBET_DTYPE_NONE;
  bool narrowed = false;
  rabbet_status_t status =
      rabbet_onnx_node_dtype(node, (int32_t)to, &dtype, &narrowed);
  rabbet_onnx_fail(node, RABBET_ANNOTATE(status, "attribute 'to'"));
  if (narrowed && rabbet_onnx_ok(node)) {
    rabbet_log(node->importer->network->logger, RABBET_SEVERITY_WARNING,
               "node '%s' casts to DOUBLE; it casts to FLOAT here", node->name);
  }
  node->outputs[0] = rabbet_onnx_convert(node, x, (int32_t)to);
}

static void onnx_import_cast_like(rabbet_onnx_node_t* node) {
  rabbet_tensor_t* x = rabbet_onnx_required(node, 0);
  rabbet_tensor_t* like = rabbet_onnx_required(node, 1);
  node->outputs[0] =
      rabbet_onnx_convert(node, x, rabbet_onnx_type_in_model(node, like));
}

RABBET_ONNX_OPERATORS(pointwise) = {
    RABBET_ONNX_OP(Abs, unary, "ABS", 1, 6, 13),
    RABBET_ONNX_OP(Acos, unary, "ACOS", 7, 22),
    RABBET_ONNX_OP(Acosh, unary, "ACOSH", 9, 22),
    RABBET_ONNX_OP(Asin, unary, "ASIN", 7, 22),
    RABBET_ONNX_OP(Asinh, unary, "ASINH", 9, 22),
    RABBET_ONNX_OP(Atan, unary, "ATAN", 7, 22),
    RABBET_ONNX_OP(Atanh, unary, "ATANH", 9, 22),
    RABBET_ONNX_OP(Ceil, unary, "CEIL", 1, 6, 13),
    RABBET_ONNX_OP(Cos, unary, "COS", 7, 22),
    RABBET_ONNX_OP(Cosh, unary, "COSH", 9, 22),
    RABBET_ONNX_OP(Erf, unary, "ERF", 9, 13),
    RABBET_ONNX_OP(Exp, unary, "EXP", 1, 6, 13),
    RABBET_ONNX_OP(Floor, unary, "FLOOR", 1, 6, 13),
    RABBET_ONNX_OP(IsInf, is_inf, "", 10, 20),
    RABBET_ONNX_OP(IsNaN, unary, "ISNAN", 9, 13, 20),
    RABBET_ONNX_OP(Log, unary, "LOG", 1, 6, 13),
    RABBET_ONNX_OP(Neg, unary, "NEG", 1, 6, 13),
    RABBET_ONNX_OP(Not, unary, "NOT", 1),
    RABBET_ONNX_OP(Reciprocal, unary, "RECIP", 1, 6, 13),
    RABBET_ONNX_OP(Round, unary, "ROUND", 11, 22),
    RABBET_ONNX_OP(Sign, unary, "SIGN", 9, 13),
    RABBET_ONNX_OP(Sin, unary, "SIN", 7, 22),
    RABBET_ONNX_OP(Sinh, unary, "SINH", 9, 22),
    RABBET_ONNX_OP(Sqrt, unary, "SQRT", 1, 6, 13),
    RABBET_ONNX_OP(Tan, unary, "TAN", 7, 22),
    RABBET_ONNX_OP(Add, binary, "SUM", 1, 6, 7, 13, 14),
    RABBET_ONNX_OP(And, binary, "AND", 1, 7),
    RABBET_ONNX_OP(Div, binary, "DIV", 1, 6, 7, 13, 14),
    RABBET_ONNX_OP(Equal, equal, "", 1, 7, 11, 13, 19),
    RABBET_ONNX_OP(Greater, binary, "GREATER", 1, 7, 9, 13),
    RABBET_ONNX_OP(GreaterOrEqual, or_equal, "GREATER", 12, 16),
    RABBET_ONNX_OP(Less, binary, "LESS", 1, 7, 9, 13),
    RABBET_ONNX_OP(LessOrEqual, or_equal, "LESS", 12, 16),
    RABBET_ONNX_OP(Mod, mod, "", 10, 13, 28),
    RABBET_ONNX_OP(Mul, binary, "PROD", 1, 6, 7, 13, 14),
    RABBET_ONNX_OP(Or, binary, "OR", 1, 7),
    RABBET_ONNX_OP(Pow, pow, "", 1, 7, 12, 13, 15),
    RABBET_ONNX_OP(Sub, binary, "SUB", 1, 6, 7, 13, 14),
    RABBET_ONNX_OP(Xor, binary, "XOR", 1, 7),
    RABBET_ONNX_OP(Max, variadic, "MAX", 1, 6, 8, 12, 13),
    RABBET_ONNX_OP(Mean, mean, "", 1, 6, 8, 13),
    RABBET_ONNX_OP(Min, variadic, "MIN", 1, 6, 8, 12, 13),
    RABBET_ONNX_OP(Sum, variadic, "SUM", 1, 6, 8, 13),
    RABBET_ONNX_OP(Where, where, "", 9, 16),
    RABBET_ONNX_OP(Cast, cast, "", 1, 6, 9, 13, 19, 21, 23, 24, 25, 28),
    RABBET_ONNX_OP(CastLike, cast_like, "", 15, 19, 21, 23, 24, 25),
    {0},
};
