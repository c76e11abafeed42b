// Rules that give equal expressions the same form (expr_linear.h). A rule that
// does not apply leaves *out_expr at NONE.
#include <assert.h>

#include "base/math.h"
#include "core/expr_linear.h"

// ---- Products

// A sum as factor * product: its only term, or the whole sum as one atom,
// divided by the common factors of its terms.
static rabbet_status_t term_of(rabbet_expr_graph_t* graph,
                               const rabbet_linear_t* sum,
                               rabbet_term_t* out_term) {
  if (rabbet_linear_is_term(sum)) {
    *out_term = sum->terms[0];
    return rabbet_ok();
  }
  rabbet_linear_t primitive = *sum;
  out_term->factor = rabbet_linear_content(sum);
  assert(out_term->factor != 0);
  rabbet_linear_divide(&primitive, out_term->factor);
  return rabbet_linear_build(graph, &primitive, &out_term->product);
}

static rabbet_status_t simplify_product(rabbet_expr_graph_t* graph,
                                        rabbet_linear_t* a, rabbet_linear_t* b,
                                        rabbet_expr_t* out_expr) {
  if (a->count == 0 || b->count == 0) {
    rabbet_linear_t* sum = a->count == 0 ? b : a;
    int64_t factor = a->count == 0 ? a->constant : b->constant;
    if (!rabbet_linear_scale(sum, factor)) return rabbet_ok();
    return rabbet_linear_build(graph, sum, out_expr);
  }
  rabbet_term_t x, y, product;
  RABBET_RETURN_IF_ERROR(term_of(graph, a, &x));
  RABBET_RETURN_IF_ERROR(term_of(graph, b, &y));
  rabbet_atoms_t atoms = rabbet_atoms_of(graph, x.product);
  if (!rabbet_checked_mul(x.factor, y.factor, &product.factor) ||
      !rabbet_atoms_add(graph, RABBET_EXPR_PROD, y.product, false, &atoms))
    return rabbet_ok();
  RABBET_RETURN_IF_ERROR(
      rabbet_linear_build_atoms(graph, &atoms, &product.product));
  return rabbet_linear_build_term(graph, product.factor, product.product,
                                  out_expr);
}

// ---- Division

// floor((x + rest) / divisor) where x = floor(y / d): floor((y + rest*d) /
// (d * divisor)). False where `sum` is not of this kind.
static bool unnest_division(const rabbet_expr_graph_t* graph,
                            rabbet_linear_t* sum, int64_t* divisor) {
  int64_t inner = 0, shift = 0, product = 0;
  assert(*divisor > 0);
  if (sum->count != 1 || sum->terms[0].factor != 1) return false;
  rabbet_expr_node_t node = *rabbet_expr_node(graph, sum->terms[0].product);
  if (node.op != RABBET_EXPR_FLOOR_DIV ||
      !rabbet_expr_is_constant(graph, node.b, &inner) || inner <= 0 ||
      !rabbet_checked_mul(inner, *divisor, &product) ||
      !rabbet_checked_mul(inner, sum->constant, &shift))
    return false;
  rabbet_linear_t dividend = rabbet_linear_of(graph, node.a);
  if (!rabbet_linear_add_constant(&dividend, shift)) return false;
  *sum = dividend;
  *divisor = product;
  return true;
}

// Moves the multiples of `divisor` > 0 from `sum` to `whole`, divided by it and
// times `sign`.
static bool extract_multiples(rabbet_linear_t* sum, int64_t divisor,
                              int64_t sign, rabbet_linear_t* whole) {
  assert(divisor > 0);
  int64_t quotient = rabbet_floordiv(sum->constant, divisor);
  rabbet_linear_t moved = {.constant = quotient};
  rabbet_linear_t rest = {.constant = sum->constant - quotient * divisor};
  for (int i = 0; i < sum->count; ++i) {
    rabbet_term_t term = sum->terms[i];
    if (term.factor % divisor == 0) {
      term.factor /= divisor;
      moved.terms[moved.count++] = term;
    } else {
      rest.terms[rest.count++] = term;
    }
  }
  assert(rest.constant >= 0 && rest.constant < divisor);
  assert(rest.count + moved.count == sum->count);
  *sum = rest;
  return rabbet_linear_add_scaled(whole, sign, &moved);
}

// The greatest divisor of the terms' factors and `divisor`, taken out of both.
// The constant, which is in [0, divisor), may be rounded down: it cannot lift
// the sum over a multiple.
static void reduce_fraction(rabbet_linear_t* sum, int64_t* divisor) {
  assert(sum->constant >= 0 && sum->constant < *divisor);
  int64_t common = *divisor;
  for (int i = 0; i < sum->count; ++i)
    common = rabbet_gcd(common, sum->terms[i].factor);
  assert(common > 0 && *divisor % common == 0);
  rabbet_linear_divide(sum, common);
  *divisor /= common;
}

// floor((r - a) / c) as -floor((a + c - 1 - r) / c), so that the first factor
// is positive: -(-x // c) is the usual way to write ceil(x / c).
static bool flip_fraction(rabbet_linear_t* sum, int64_t divisor,
                          int64_t* sign) {
  assert(sum->count > 0);
  if (sum->terms[0].factor > 0) return true;
  *sign = -*sign;
  return rabbet_linear_scale(sum, -1) &&
         rabbet_linear_add_constant(sum, divisor - 1);
}

// whole + sign * floor(sum / divisor) is the quotient throughout.
static rabbet_status_t floor_by_constant(rabbet_expr_graph_t* graph,
                                         rabbet_linear_t sum, int64_t divisor,
                                         rabbet_expr_t* out_expr) {
  rabbet_linear_t whole = {0};
  int64_t sign = 1;
  if (divisor < 0 && (divisor == INT64_MIN || !rabbet_linear_scale(&sum, -1)))
    return rabbet_ok();
  divisor = divisor < 0 ? -divisor : divisor;
  do {
    if (!extract_multiples(&sum, divisor, sign, &whole)) return rabbet_ok();
    if (sum.count == 0) return rabbet_linear_build(graph, &whole, out_expr);
    reduce_fraction(&sum, &divisor);
    if (!flip_fraction(&sum, divisor, &sign)) return rabbet_ok();
  } while (unnest_division(graph, &sum, &divisor));
  rabbet_expr_t dividend, by, quotient;
  RABBET_RETURN_IF_ERROR(rabbet_linear_build(graph, &sum, &dividend));
  RABBET_RETURN_IF_ERROR(rabbet_expr_constant(graph, divisor, &by));
  RABBET_RETURN_IF_ERROR(rabbet_linear_build_node(graph, RABBET_EXPR_FLOOR_DIV,
                                                  dividend, by, &quotient));
  if (!rabbet_linear_add_term(&whole, sign, quotient)) return rabbet_ok();
  return rabbet_linear_build(graph, &whole, out_expr);
}

static rabbet_status_t divide_by_constant(rabbet_expr_graph_t* graph,
                                          rabbet_expr_op_t op,
                                          rabbet_linear_t sum, int64_t divisor,
                                          rabbet_expr_t* out_expr) {
  if (op == RABBET_EXPR_FLOOR_DIV)
    return floor_by_constant(graph, sum, divisor, out_expr);
  // ceil(a/c) is floor((a + c - 1)/c) for c > 0, and ceil(-a/-c) for c < 0.
  if (divisor < 0 && (divisor == INT64_MIN || !rabbet_linear_scale(&sum, -1)))
    return rabbet_ok();
  divisor = divisor < 0 ? -divisor : divisor;
  if (!rabbet_linear_add_constant(&sum, divisor - 1)) return rabbet_ok();
  return floor_by_constant(graph, sum, divisor, out_expr);
}

// Takes `atom` out of every term, if it is in all of them.
static rabbet_status_t linear_cancel(rabbet_expr_graph_t* graph,
                                     rabbet_linear_t* sum, rabbet_expr_t atom,
                                     bool* out_cancelled) {
  *out_cancelled = false;
  if (sum->constant != 0) return rabbet_ok();
  rabbet_atoms_t rest[RABBET_LINEAR_MAX_TERMS];
  for (int i = 0; i < sum->count; ++i) {
    rest[i] = rabbet_atoms_of(graph, sum->terms[i].product);
    if (!rabbet_atoms_remove(&rest[i], atom)) return rabbet_ok();
  }
  rabbet_linear_t cancelled = {0};
  for (int i = 0; i < sum->count; ++i) {
    rabbet_expr_t product = RABBET_EXPR_NONE;
    RABBET_RETURN_IF_ERROR(
        rabbet_linear_build_atoms(graph, &rest[i], &product));
    if (!rabbet_linear_add_term(&cancelled, sum->terms[i].factor, product))
      return rabbet_ok();
  }
  *sum = cancelled;
  *out_cancelled = true;
  return rabbet_ok();
}

// Cancels the common factors of `sum` and of the term that divides it.
static rabbet_status_t cancel_fraction(rabbet_expr_graph_t* graph,
                                       rabbet_linear_t* sum,
                                       rabbet_term_t* divisor) {
  rabbet_atoms_t atoms = rabbet_atoms_of(graph, divisor->product);
  rabbet_atoms_t left = {0};
  for (int i = 0; i < atoms.count; ++i) {
    bool cancelled = false;
    RABBET_RETURN_IF_ERROR(
        linear_cancel(graph, sum, atoms.data[i], &cancelled));
    if (!cancelled) left.data[left.count++] = atoms.data[i];
  }
  RABBET_RETURN_IF_ERROR(
      rabbet_linear_build_atoms(graph, &left, &divisor->product));
  int64_t common = rabbet_gcd(rabbet_linear_content(sum), divisor->factor);
  assert(common > 0);
  if (divisor->factor < 0) common = -common;
  // Dividing INT64_MIN by -1 would overflow.
  if (sum->constant == INT64_MIN || divisor->factor == INT64_MIN)
    return rabbet_ok();
  for (int i = 0; i < sum->count; ++i) {
    if (sum->terms[i].factor == INT64_MIN) return rabbet_ok();
  }
  rabbet_linear_divide(sum, common);
  divisor->factor /= common;
  return rabbet_ok();
}

static rabbet_status_t simplify_division(rabbet_expr_graph_t* graph,
                                         rabbet_expr_op_t op,
                                         rabbet_linear_t* a, rabbet_linear_t* b,
                                         rabbet_expr_t* out_expr) {
  if (b->count == 0)
    return divide_by_constant(graph, op, *a, b->constant, out_expr);
  if (a->count == 0 && a->constant == 0)
    return rabbet_expr_constant(graph, 0, out_expr);
  // Multiples of one sum.
  rabbet_linear_t x = *a, y = *b;
  int64_t x_content = rabbet_linear_content(a);
  int64_t y_content = rabbet_linear_content(b);
  rabbet_linear_divide(&x, x_content);
  rabbet_linear_divide(&y, y_content);
  int64_t quotient = 0;
  if (rabbet_linear_same(&x, &y) &&
      rabbet_expr_fold(op, x_content, y_content, &quotient))
    return rabbet_expr_constant(graph, quotient, out_expr);
  rabbet_term_t divisor;
  RABBET_RETURN_IF_ERROR(term_of(graph, b, &divisor));
  RABBET_RETURN_IF_ERROR(cancel_fraction(graph, a, &divisor));
  if (divisor.product == RABBET_EXPR_NONE)
    return divide_by_constant(graph, op, *a, divisor.factor, out_expr);
  rabbet_expr_t dividend, by;
  RABBET_RETURN_IF_ERROR(rabbet_linear_build(graph, a, &dividend));
  RABBET_RETURN_IF_ERROR(
      rabbet_linear_build_term(graph, divisor.factor, divisor.product, &by));
  return rabbet_linear_build_node(graph, op, dividend, by, out_expr);
}

// ---- Comparisons, minimum and maximum

static rabbet_interval_t difference_sign(const rabbet_expr_graph_t* graph,
                                         const rabbet_linear_t* a,
                                         const rabbet_linear_t* b) {
  rabbet_linear_t difference = *a;
  if (!rabbet_linear_add_scaled(&difference, -1, b))
    return (rabbet_interval_t){-1, 1};
  return rabbet_linear_sign(graph, &difference);
}

static rabbet_status_t simplify_comparison(rabbet_expr_graph_t* graph,
                                           rabbet_expr_op_t op,
                                           const rabbet_linear_t* a,
                                           const rabbet_linear_t* b,
                                           rabbet_expr_t* out_expr) {
  rabbet_interval_t sign = difference_sign(graph, a, b);
  rabbet_interval_t zero = {0, 0};
  rabbet_interval_t result = rabbet_interval_apply(op, sign, zero);
  if (result.low != result.high) return rabbet_ok();
  return rabbet_expr_constant(graph, result.low, out_expr);
}

// Whether operand i never is the only result: j is always at least as extreme.
static bool extreme_dominated(const rabbet_expr_graph_t* graph,
                              rabbet_expr_op_t op, rabbet_expr_t i,
                              rabbet_expr_t j) {
  rabbet_linear_t a = rabbet_linear_of(graph, i);
  rabbet_linear_t b = rabbet_linear_of(graph, j);
  rabbet_interval_t sign = difference_sign(graph, &a, &b);
  return op == RABBET_EXPR_MAX ? sign.high <= 0 : sign.low >= 0;
}

static rabbet_status_t simplify_extreme(rabbet_expr_graph_t* graph,
                                        rabbet_expr_op_t op, rabbet_expr_t a,
                                        rabbet_expr_t b,
                                        rabbet_expr_t* out_expr) {
  rabbet_atoms_t all = {0};
  if (!rabbet_atoms_add(graph, op, a, true, &all) ||
      !rabbet_atoms_add(graph, op, b, true, &all))
    return rabbet_ok();
  rabbet_atoms_t kept = all;
  for (int i = 0; i < all.count; ++i) {
    bool dominated = false;
    for (int j = 0; j < kept.count && !dominated; ++j)
      dominated = kept.data[j] != all.data[i] &&
                  extreme_dominated(graph, op, all.data[i], kept.data[j]);
    if (dominated) rabbet_atoms_remove(&kept, all.data[i]);
  }
  assert(kept.count > 0);  // of two operands that dominate each other one stays
  *out_expr = kept.data[0];
  for (int i = 1; i < kept.count; ++i)
    RABBET_RETURN_IF_ERROR(
        rabbet_linear_build_node(graph, op, *out_expr, kept.data[i], out_expr));
  return rabbet_ok();
}

// An operand 1 has no effect. If there is another constant, it is the result,
// as all other operands must be equal to it or 1.
static rabbet_status_t simplify_broadcast(rabbet_expr_graph_t* graph,
                                          rabbet_expr_t a, rabbet_expr_t b,
                                          rabbet_expr_t* out_expr) {
  const rabbet_expr_op_t op = RABBET_EXPR_BROADCAST;
  rabbet_atoms_t all = {0};
  rabbet_expr_t result = RABBET_EXPR_NONE;
  if (!rabbet_atoms_add(graph, op, a, true, &all) ||
      !rabbet_atoms_add(graph, op, b, true, &all))
    return rabbet_ok();
  for (int i = 0; i < all.count; ++i) {
    int64_t value = 0;
    if (!rabbet_expr_is_constant(graph, all.data[i], &value)) {
      if (result == RABBET_EXPR_NONE)
        result = all.data[i];
      else
        RABBET_RETURN_IF_ERROR(
            rabbet_linear_build_node(graph, op, result, all.data[i], &result));
    } else if (value != 1) {
      *out_expr = all.data[i];
      return rabbet_ok();
    }
  }
  *out_expr = result;
  return rabbet_ok();
}

rabbet_status_t rabbet_expr_simplify(rabbet_expr_graph_t* graph,
                                     rabbet_expr_op_t op, rabbet_expr_t a,
                                     rabbet_expr_t b, rabbet_expr_t* out_expr) {
  *out_expr = RABBET_EXPR_NONE;
  if (op == RABBET_EXPR_MAX || op == RABBET_EXPR_MIN)
    return simplify_extreme(graph, op, a, b, out_expr);
  if (op == RABBET_EXPR_BROADCAST)
    return simplify_broadcast(graph, a, b, out_expr);
  rabbet_linear_t x = rabbet_linear_of(graph, a);
  rabbet_linear_t y = rabbet_linear_of(graph, b);
  switch (op) {
    case RABBET_EXPR_SUM:
    case RABBET_EXPR_SUB:
      if (!rabbet_linear_add_scaled(&x, op == RABBET_EXPR_SUM ? 1 : -1, &y))
        return rabbet_ok();
      return rabbet_linear_build(graph, &x, out_expr);
    case RABBET_EXPR_PROD:
      return simplify_product(graph, &x, &y, out_expr);
    case RABBET_EXPR_FLOOR_DIV:
    case RABBET_EXPR_CEIL_DIV:
      return simplify_division(graph, op, &x, &y, out_expr);
    default:
      return simplify_comparison(graph, op, &x, &y, out_expr);
  }
}
