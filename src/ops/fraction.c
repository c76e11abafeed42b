#include "ops/fraction.h"

#include <assert.h>
#include <math.h>

#include "ops/enums.h"
#include "ops/rules.h"

// ---- Constants -------------------------------------------------------------

// The simplest fraction in [low, high], both positive (by continued fractions).
static void fraction_between(double low, double high, int depth, int64_t* out_p,
                             int64_t* out_q) {
  assert(0 < low && low <= high);
  double whole = floor(low);
  *out_q = 1;
  if (whole == low || whole + 1 <= high || depth == 0) {
    *out_p = (int64_t)(whole == low ? whole : whole + 1);
    return;
  }
  int64_t p = 0, q = 0;
  fraction_between(1 / (high - whole), 1 / (low - whole), depth - 1, &p, &q);
  *out_p = (int64_t)whole * p + q;
  *out_q = p;
}

bool rabbet_simplest_fraction(double x, int64_t* out_p, int64_t* out_q) {
  const double half = 0x1p-25;
  double rounded = fabs((double)(float)x);
  *out_p = 0;
  *out_q = 1;
  if (rounded == 0) return true;
  if (rounded == floor(rounded) && rounded < 0x1p53) {
    *out_p = (int64_t)rounded;
  } else {
    if (!(rounded > 0x1p-24 && rounded < 0x1p24)) return false;
    fraction_between(rounded * (1 - half), rounded * (1 + half), 48, out_p,
                     out_q);
  }
  assert(*out_p > 0 && *out_q > 0);
  if (x < 0) *out_p = -*out_p;
  return true;
}

static rabbet_status_t fraction_of(const rabbet_op_infer_t* infer, int64_t p,
                                   int64_t q, rabbet_fraction_t* out_x) {
  RABBET_RETURN_IF_ERROR(rabbet_expr_constant(infer->graph, p, &out_x->top));
  return rabbet_expr_constant(infer->graph, q, &out_x->bottom);
}

rabbet_status_t rabbet_fractions_new(const rabbet_op_infer_t* infer,
                                     size_t count, rabbet_fractions_t* out) {
  RABBET_RETURN_IF_ERROR(rabbet_op_new_values(infer, count, &out->tops));
  return rabbet_op_new_values(infer, count, &out->bottoms);
}

void rabbet_fractions_store(const rabbet_fractions_t* from, size_t count,
                            rabbet_op_value_t* output) {
  output->values = from->tops;
  output->value_count = count;
  output->denominators =
      rabbet_op_follows_reals(output->dtype) ? from->bottoms : NULL;
}

rabbet_status_t rabbet_fractions_of_constant(const rabbet_op_infer_t* infer,
                                             rabbet_op_value_t* value) {
  int64_t count = rabbet_op_constant_count(infer, &value->shape);
  if (!value->constant || value->values ||
      !rabbet_op_follows_reals(value->dtype) || count < 0 ||
      count > RABBET_OP_MAX_VALUES)
    return rabbet_ok();
  rabbet_fractions_t made;
  RABBET_RETURN_IF_ERROR(rabbet_fractions_new(infer, (size_t)count, &made));
  for (int64_t i = 0; i < count; ++i) {
    int64_t p = 0, q = 1;
    rabbet_fraction_t x;
    double number = rabbet_load_double(value->dtype, value->constant, i);
    if (!rabbet_simplest_fraction(number, &p, &q) ||
        (value->dtype == RABBET_DTYPE_DOUBLE &&
         (double)p / (double)q != number))
      return rabbet_ok();
    RABBET_RETURN_IF_ERROR(fraction_of(infer, p, q, &x));
    made.tops[i] = x.top;
    made.bottoms[i] = x.bottom;
  }
  rabbet_fractions_store(&made, (size_t)count, value);
  return rabbet_ok();
}

rabbet_status_t rabbet_fraction_at(const rabbet_op_infer_t* infer,
                                   const rabbet_op_value_t* value, int64_t i,
                                   rabbet_fraction_t* out_x) {
  assert(i >= 0 && (size_t)i < value->value_count);
  out_x->top = value->values[i];
  if (!value->denominators)
    return rabbet_expr_constant(infer->graph, 1, &out_x->bottom);
  out_x->bottom = value->denominators[i];
  return rabbet_ok();
}

// ---- Arithmetic ------------------------------------------------------------

// *in_out = *in_out OP b.
static rabbet_status_t fraction_step(const rabbet_op_infer_t* infer,
                                     rabbet_expr_op_t op, rabbet_expr_t b,
                                     rabbet_expr_t* in_out) {
  return rabbet_expr_binary(infer->graph, op, *in_out, b, in_out);
}

rabbet_status_t rabbet_op_truncated(const rabbet_op_infer_t* infer,
                                    rabbet_expr_t a, rabbet_expr_t b,
                                    rabbet_expr_t* out_value) {
  rabbet_expr_graph_t* graph = infer->graph;
  if (rabbet_op_non_negative(infer, a))
    return rabbet_expr_binary(graph, RABBET_EXPR_FLOOR_DIV, a, b, out_value);
  // floor(max(a, 0) / b) - floor(max(-a, 0) / b)
  rabbet_expr_t zero = RABBET_EXPR_NONE, down = RABBET_EXPR_NONE;
  RABBET_RETURN_IF_ERROR(rabbet_expr_constant(graph, 0, &zero));
  RABBET_RETURN_IF_ERROR(
      rabbet_expr_binary(graph, RABBET_EXPR_SUB, zero, a, &down));
  RABBET_RETURN_IF_ERROR(fraction_step(infer, RABBET_EXPR_MAX, zero, &down));
  RABBET_RETURN_IF_ERROR(fraction_step(infer, RABBET_EXPR_FLOOR_DIV, b, &down));
  RABBET_RETURN_IF_ERROR(
      rabbet_expr_binary(graph, RABBET_EXPR_MAX, a, zero, out_value));
  RABBET_RETURN_IF_ERROR(
      fraction_step(infer, RABBET_EXPR_FLOOR_DIV, b, out_value));
  return fraction_step(infer, RABBET_EXPR_SUB, down, out_value);
}

// Both over one bottom.
static rabbet_status_t fraction_align(const rabbet_op_infer_t* infer,
                                      rabbet_fraction_t* a,
                                      rabbet_fraction_t* b) {
  if (a->bottom == b->bottom) return rabbet_ok();
  RABBET_RETURN_IF_ERROR(
      fraction_step(infer, RABBET_EXPR_PROD, b->bottom, &a->top));
  RABBET_RETURN_IF_ERROR(
      fraction_step(infer, RABBET_EXPR_PROD, a->bottom, &b->top));
  RABBET_RETURN_IF_ERROR(
      fraction_step(infer, RABBET_EXPR_PROD, b->bottom, &a->bottom));
  b->bottom = a->bottom;
  return rabbet_ok();
}

static rabbet_status_t fraction_multiply(const rabbet_op_infer_t* infer,
                                         rabbet_fraction_t a,
                                         rabbet_fraction_t b,
                                         rabbet_fraction_t* out_y) {
  *out_y = a;
  RABBET_RETURN_IF_ERROR(
      fraction_step(infer, RABBET_EXPR_PROD, b.top, &out_y->top));
  return fraction_step(infer, RABBET_EXPR_PROD, b.bottom, &out_y->bottom);
}

// NONE where the sign of b is not known, or b is 0: reals then have infinities.
static rabbet_status_t fraction_divide(const rabbet_op_infer_t* infer,
                                       rabbet_fraction_t a, rabbet_fraction_t b,
                                       rabbet_fraction_t* out_y) {
  int64_t by = 1;
  bool known = rabbet_op_is_constant(infer, b.top, &by);
  out_y->top = RABBET_EXPR_NONE;
  if (known ? by == 0 || by == INT64_MIN
            : !rabbet_op_non_negative(infer, b.top))
    return rabbet_ok();
  if (by < 0) {
    RABBET_RETURN_IF_ERROR(rabbet_expr_constant(infer->graph, -by, &b.top));
    RABBET_RETURN_IF_ERROR(rabbet_op_with_constant(infer, RABBET_EXPR_PROD,
                                                   b.bottom, -1, &b.bottom));
  }
  const rabbet_fraction_t turned = {.top = b.bottom, .bottom = b.top};
  return fraction_multiply(infer, a, turned, out_y);
}

// ---- Rounding --------------------------------------------------------------

static rabbet_status_t fraction_whole(const rabbet_op_infer_t* infer,
                                      rabbet_expr_op_t division,
                                      rabbet_fraction_t x,
                                      rabbet_fraction_t* out_y) {
  RABBET_RETURN_IF_ERROR(
      rabbet_expr_binary(infer->graph, division, x.top, x.bottom, &out_y->top));
  return rabbet_expr_constant(infer->graph, 1, &out_y->bottom);
}

// x - 2 * floor(x / 2)
static rabbet_status_t fraction_odd(const rabbet_op_infer_t* infer,
                                    rabbet_expr_t x, rabbet_expr_t* out_odd) {
  rabbet_expr_t even = RABBET_EXPR_NONE;
  RABBET_RETURN_IF_ERROR(
      rabbet_op_with_constant(infer, RABBET_EXPR_FLOOR_DIV, x, 2, &even));
  RABBET_RETURN_IF_ERROR(
      rabbet_op_with_constant(infer, RABBET_EXPR_PROD, even, 2, &even));
  return rabbet_expr_binary(infer->graph, RABBET_EXPR_SUB, x, even, out_odd);
}

// Half to even: f = floor(x + 1/2), less 1 where x + 1/2 is an odd number.
static rabbet_status_t fraction_round(const rabbet_op_infer_t* infer,
                                      rabbet_fraction_t x,
                                      rabbet_fraction_t* out_y) {
  rabbet_expr_graph_t* graph = infer->graph;
  rabbet_fraction_t moved = x;  // (2 * top + bottom) / (2 * bottom)
  rabbet_expr_t back = RABBET_EXPR_NONE, tie = RABBET_EXPR_NONE;
  RABBET_RETURN_IF_ERROR(
      rabbet_op_with_constant(infer, RABBET_EXPR_PROD, x.top, 2, &moved.top));
  RABBET_RETURN_IF_ERROR(
      fraction_step(infer, RABBET_EXPR_SUM, x.bottom, &moved.top));
  RABBET_RETURN_IF_ERROR(rabbet_op_with_constant(infer, RABBET_EXPR_PROD,
                                                 x.bottom, 2, &moved.bottom));
  RABBET_RETURN_IF_ERROR(
      fraction_whole(infer, RABBET_EXPR_FLOOR_DIV, moved, out_y));
  RABBET_RETURN_IF_ERROR(rabbet_expr_binary(graph, RABBET_EXPR_PROD, out_y->top,
                                            moved.bottom, &back));
  RABBET_RETURN_IF_ERROR(
      rabbet_expr_binary(graph, RABBET_EXPR_EQUAL, back, moved.top, &tie));
  RABBET_RETURN_IF_ERROR(fraction_odd(infer, out_y->top, &back));
  RABBET_RETURN_IF_ERROR(fraction_step(infer, RABBET_EXPR_PROD, back, &tie));
  return fraction_step(infer, RABBET_EXPR_SUB, tie, &out_y->top);
}

// ---- Numbers ---------------------------------------------------------------

// Whether x is a number of a real type; *out_number is that of the type.
static bool fraction_number(const rabbet_op_infer_t* infer, rabbet_fraction_t x,
                            double* out_number) {
  int64_t top = 0, bottom = 0;
  if (!rabbet_op_is_constant(infer, x.top, &top) ||
      !rabbet_op_is_constant(infer, x.bottom, &bottom) ||
      !rabbet_op_follows_reals(infer->inputs[0].dtype))
    return false;
  *out_number = (double)top / (double)bottom;
  if (infer->inputs[0].dtype == RABBET_DTYPE_FLOAT)
    *out_number = (double)(float)*out_number;
  return true;
}

// The simplest fraction that rounds to a number of DOUBLE.
static bool fraction_of_double(double x, int64_t* out_p, int64_t* out_q) {
  double least = fabs(x);
  if (rabbet_simplest_fraction(x, out_p, out_q) &&
      (double)*out_p / (double)*out_q == x)
    return true;
  if (!(least > 0x1p-24 && least < 0x1p24)) return false;
  fraction_between(nextafter(least, 0), nextafter(least, INFINITY), 48, out_p,
                   out_q);
  if (x < 0) *out_p = -*out_p;
  return (double)*out_p / (double)*out_q == x;
}

// NONE if no fraction rounds to the number.
static rabbet_status_t fraction_of_number(const rabbet_op_infer_t* infer,
                                          double number,
                                          rabbet_fraction_t* out_x) {
  int64_t p = 0, q = 1;
  bool is_double = infer->inputs[0].dtype == RABBET_DTYPE_DOUBLE;
  out_x->top = RABBET_EXPR_NONE;
  if (!isfinite(number)) return rabbet_ok();
  bool exists = is_double
                    ? fraction_of_double(number, &p, &q)
                    : rabbet_simplest_fraction(number, &p, &q) &&
                          (double)(float)((double)p / (double)q) == number;
  return exists ? fraction_of(infer, p, q, out_x) : rabbet_ok();
}

// Numbers are computed as kernels do it, which round results to the type; false
// if one is not known, or the operation rounds nothing.
static bool fraction_round_binary(const rabbet_op_infer_t* infer, int64_t op,
                                  rabbet_fraction_t a, rabbet_fraction_t b,
                                  double* out_number) {
  double x = 0, y = 0;
  if (!fraction_number(infer, a, &x) || !fraction_number(infer, b, &y))
    return false;
  switch (op) {
    case RABBET_ELEMENTWISE_SUM:
      *out_number = x + y;
      break;
    case RABBET_ELEMENTWISE_SUB:
      *out_number = x - y;
      break;
    case RABBET_ELEMENTWISE_PROD:
      *out_number = x * y;
      break;
    case RABBET_ELEMENTWISE_DIV:
      *out_number = x / y;
      break;
    default:
      return false;
  }
  // DOUBLE has twice the digits of FLOAT and two more, so that rounding the
  // result twice is rounding it once.
  if (infer->inputs[0].dtype == RABBET_DTYPE_FLOAT)
    *out_number = (double)(float)*out_number;
  return true;
}

// ---- Operators -------------------------------------------------------------

// (0 < x) - (x < 0)
static rabbet_status_t fraction_sign(const rabbet_op_infer_t* infer,
                                     rabbet_fraction_t x,
                                     rabbet_fraction_t* out_y) {
  rabbet_expr_t zero = RABBET_EXPR_NONE, below = RABBET_EXPR_NONE;
  RABBET_RETURN_IF_ERROR(fraction_of(infer, 0, 1, out_y));
  zero = out_y->top;
  RABBET_RETURN_IF_ERROR(
      rabbet_expr_binary(infer->graph, RABBET_EXPR_LESS, x.top, zero, &below));
  RABBET_RETURN_IF_ERROR(
      fraction_step(infer, RABBET_EXPR_LESS, x.top, &out_y->top));
  return fraction_step(infer, RABBET_EXPR_SUB, below, &out_y->top);
}

rabbet_status_t rabbet_fraction_unary(const rabbet_op_infer_t* infer,
                                      int64_t op, rabbet_fraction_t x,
                                      rabbet_fraction_t* out_y) {
  rabbet_fraction_t other = x;
  *out_y = x;
  switch (op) {
    case RABBET_UNARY_NEG:
      return rabbet_op_with_constant(infer, RABBET_EXPR_PROD, x.top, -1,
                                     &out_y->top);
    case RABBET_UNARY_ABS:
      RABBET_RETURN_IF_ERROR(rabbet_op_with_constant(infer, RABBET_EXPR_PROD,
                                                     x.top, -1, &other.top));
      return fraction_step(infer, RABBET_EXPR_MAX, other.top, &out_y->top);
    case RABBET_UNARY_SIGN:
      return fraction_sign(infer, x, out_y);
    case RABBET_UNARY_FLOOR:
      return fraction_whole(infer, RABBET_EXPR_FLOOR_DIV, x, out_y);
    case RABBET_UNARY_CEIL:
      return fraction_whole(infer, RABBET_EXPR_CEIL_DIV, x, out_y);
    case RABBET_UNARY_ROUND:
      return fraction_round(infer, x, out_y);
    case RABBET_UNARY_RECIP:
      RABBET_RETURN_IF_ERROR(fraction_of(infer, 1, 1, &other));
      return rabbet_fraction_binary(infer, RABBET_ELEMENTWISE_DIV, other, x,
                                    out_y);
    default:
      out_y->top = RABBET_EXPR_NONE;
      return rabbet_ok();
  }
}

static rabbet_status_t fraction_compare(const rabbet_op_infer_t* infer,
                                        rabbet_expr_op_t op,
                                        rabbet_fraction_t a,
                                        rabbet_fraction_t b,
                                        rabbet_fraction_t* out_y) {
  RABBET_RETURN_IF_ERROR(fraction_align(infer, &a, &b));
  RABBET_RETURN_IF_ERROR(
      rabbet_expr_binary(infer->graph, op, a.top, b.top, &out_y->top));
  bool picks = op != RABBET_EXPR_EQUAL && op != RABBET_EXPR_LESS;
  out_y->bottom = a.bottom;
  return picks ? rabbet_ok()
               : rabbet_expr_constant(infer->graph, 1, &out_y->bottom);
}

// Powers of a few small whole exponents.
static rabbet_status_t fraction_power(const rabbet_op_infer_t* infer,
                                      rabbet_fraction_t a, rabbet_fraction_t b,
                                      rabbet_fraction_t* out_y) {
  int64_t exponent = 0, bottom = 0;
  out_y->top = RABBET_EXPR_NONE;
  if (!rabbet_op_is_constant(infer, b.top, &exponent) ||
      !rabbet_op_is_constant(infer, b.bottom, &bottom) || bottom != 1 ||
      exponent < 0 || exponent > 4)
    return rabbet_ok();
  RABBET_RETURN_IF_ERROR(fraction_of(infer, 1, 1, out_y));
  for (int64_t i = 0; i < exponent; ++i)
    RABBET_RETURN_IF_ERROR(fraction_multiply(infer, *out_y, a, out_y));
  return rabbet_ok();
}

rabbet_status_t rabbet_fraction_binary(const rabbet_op_infer_t* infer,
                                       int64_t op, rabbet_fraction_t a,
                                       rabbet_fraction_t b,
                                       rabbet_fraction_t* out_y) {
  rabbet_expr_op_t sum = RABBET_EXPR_SUM;
  double number = 0;
  if (fraction_round_binary(infer, op, a, b, &number))
    return fraction_of_number(infer, number, out_y);
  switch (op) {
    case RABBET_ELEMENTWISE_SUB:
      sum = RABBET_EXPR_SUB;
      __attribute__((fallthrough));
    case RABBET_ELEMENTWISE_SUM:
      return fraction_compare(infer, sum, a, b, out_y);
    case RABBET_ELEMENTWISE_PROD:
      return fraction_multiply(infer, a, b, out_y);
    case RABBET_ELEMENTWISE_DIV:
      return fraction_divide(infer, a, b, out_y);
    case RABBET_ELEMENTWISE_FLOOR_DIV:
      RABBET_RETURN_IF_ERROR(fraction_divide(infer, a, b, out_y));
      if (!rabbet_fraction_exists(*out_y)) return rabbet_ok();
      return fraction_whole(infer, RABBET_EXPR_FLOOR_DIV, *out_y, out_y);
    case RABBET_ELEMENTWISE_POW:
      return fraction_power(infer, a, b, out_y);
    case RABBET_ELEMENTWISE_MAX:
      return fraction_compare(infer, RABBET_EXPR_MAX, a, b, out_y);
    case RABBET_ELEMENTWISE_MIN:
      return fraction_compare(infer, RABBET_EXPR_MIN, a, b, out_y);
    case RABBET_ELEMENTWISE_EQUAL:
      return fraction_compare(infer, RABBET_EXPR_EQUAL, a, b, out_y);
    case RABBET_ELEMENTWISE_LESS:
      return fraction_compare(infer, RABBET_EXPR_LESS, a, b, out_y);
    case RABBET_ELEMENTWISE_GREATER:
      return fraction_compare(infer, RABBET_EXPR_LESS, b, a, out_y);
    default:
      out_y->top = RABBET_EXPR_NONE;
      return rabbet_ok();
  }
}
