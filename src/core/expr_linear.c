#include "core/expr_linear.h"

#include <assert.h>

#include "base/math.h"

static rabbet_expr_node_t node_of(const rabbet_expr_graph_t* graph,
                                  rabbet_expr_t expr) {
  assert(expr >= 0 && (size_t)expr < graph->nodes.count);
  return graph->nodes.data[expr];
}

int64_t rabbet_gcd(int64_t a, int64_t b) {
  uint64_t x = a < 0 ? 0 - (uint64_t)a : (uint64_t)a;
  uint64_t y = b < 0 ? 0 - (uint64_t)b : (uint64_t)b;
  while (y) {
    uint64_t rest = x % y;
    x = y;
    y = rest;
  }
  return x > INT64_MAX ? 1 : (int64_t)x;
}

// ---- Sums

bool rabbet_linear_add_constant(rabbet_linear_t* sum, int64_t value) {
  return rabbet_checked_add(sum->constant, value, &sum->constant);
}

bool rabbet_linear_add_term(rabbet_linear_t* sum, int64_t factor,
                            rabbet_expr_t product) {
  if (product == RABBET_EXPR_NONE)
    return rabbet_linear_add_constant(sum, factor);
  int at = 0;
  while (at < sum->count && sum->terms[at].product < product)
    ++at;
  if (at < sum->count && sum->terms[at].product == product) {
    rabbet_term_t* term = &sum->terms[at];
    if (!rabbet_checked_add(term->factor, factor, &term->factor)) return false;
    if (term->factor != 0) return true;
    --sum->count;
    for (; at < sum->count; ++at)
      sum->terms[at] = sum->terms[at + 1];
    return true;
  }
  if (factor == 0) return true;
  if (sum->count == RABBET_LINEAR_MAX_TERMS) return false;
  assert(at == 0 || sum->terms[at - 1].product < product);
  for (int i = sum->count++; i > at; --i)
    sum->terms[i] = sum->terms[i - 1];
  sum->terms[at] = (rabbet_term_t){factor, product};
  return true;
}

// Adds scale * expr. `budget` bounds the nodes visited, and so the depth.
static bool linear_add(const rabbet_expr_graph_t* graph, rabbet_expr_t expr,
                       int64_t scale, int* budget, rabbet_linear_t* sum) {
  if (--*budget < 0) return false;
  rabbet_expr_node_t node = node_of(graph, expr);
  int64_t value = 0;
  switch (node.op) {
    case RABBET_EXPR_CONSTANT:
      return rabbet_checked_mul(node.value, scale, &value) &&
             rabbet_linear_add_constant(sum, value);
    case RABBET_EXPR_SUM:
      return linear_add(graph, node.a, scale, budget, sum) &&
             linear_add(graph, node.b, scale, budget, sum);
    case RABBET_EXPR_SUB:
      return rabbet_checked_sub(0, scale, &value) &&
             linear_add(graph, node.a, scale, budget, sum) &&
             linear_add(graph, node.b, value, budget, sum);
    case RABBET_EXPR_PROD:
      if (rabbet_expr_is_constant(graph, node.b, &value))
        return rabbet_checked_mul(value, scale, &value) &&
               linear_add(graph, node.a, value, budget, sum);
      break;
    default:
      break;
  }
  return rabbet_linear_add_term(sum, scale, expr);
}

rabbet_linear_t rabbet_linear_of(const rabbet_expr_graph_t* graph,
                                 rabbet_expr_t expr) {
  rabbet_linear_t sum = {0};
  int budget = RABBET_VISIT_MAX;
  if (linear_add(graph, expr, 1, &budget, &sum)) return sum;
  return (rabbet_linear_t){.count = 1, .terms = {{1, expr}}};
}

bool rabbet_linear_add_scaled(rabbet_linear_t* sum, int64_t scale,
                              const rabbet_linear_t* other) {
  int64_t value = 0;
  if (!rabbet_checked_mul(other->constant, scale, &value) ||
      !rabbet_linear_add_constant(sum, value))
    return false;
  for (int i = 0; i < other->count; ++i) {
    if (!rabbet_checked_mul(other->terms[i].factor, scale, &value) ||
        !rabbet_linear_add_term(sum, value, other->terms[i].product))
      return false;
  }
  return true;
}

bool rabbet_linear_scale(rabbet_linear_t* sum, int64_t scale) {
  rabbet_linear_t scaled = {0};
  if (!rabbet_linear_add_scaled(&scaled, scale, sum)) return false;
  *sum = scaled;
  return true;
}

int64_t rabbet_linear_content(const rabbet_linear_t* sum) {
  int64_t content = rabbet_gcd(sum->constant, 0);
  for (int i = 0; i < sum->count; ++i)
    content = rabbet_gcd(content, sum->terms[i].factor);
  return content;
}

void rabbet_linear_divide(rabbet_linear_t* sum, int64_t divisor) {
  assert(divisor != 0 && (divisor != -1 || sum->constant != INT64_MIN));
  sum->constant /= divisor;
  for (int i = 0; i < sum->count; ++i) {
    assert(sum->terms[i].factor % divisor == 0);
    sum->terms[i].factor /= divisor;
  }
}

bool rabbet_linear_same(const rabbet_linear_t* a, const rabbet_linear_t* b) {
  if (a->count != b->count || a->constant != b->constant) return false;
  for (int i = 0; i < a->count; ++i) {
    if (a->terms[i].factor != b->terms[i].factor ||
        a->terms[i].product != b->terms[i].product)
      return false;
  }
  return true;
}

bool rabbet_linear_is_term(const rabbet_linear_t* sum) {
  return sum->count == 1 && sum->constant == 0;
}

__extension__ typedef __int128 rabbet_wide_t;

static int64_t wide_sign(rabbet_wide_t value) {
  return (value > 0) - (value < 0);
}

// The signs (-1, 0 or 1) of the least and the greatest value of a sum. Computed
// in 128 bits, as a saturated sum could have the wrong sign.
rabbet_interval_t rabbet_linear_sign(const rabbet_expr_graph_t* graph,
                                     const rabbet_linear_t* sum) {
  const int64_t largest_factor = (int64_t)1 << 32;
  rabbet_wide_t low = sum->constant, high = sum->constant;
  for (int i = 0; i < sum->count; ++i) {
    int64_t factor = sum->terms[i].factor;
    if (factor > largest_factor || factor < -largest_factor)
      return (rabbet_interval_t){-1, 1};
    rabbet_interval_t range = graph->ranges.data[sum->terms[i].product];
    low += (rabbet_wide_t)factor * (factor > 0 ? range.low : range.high);
    high += (rabbet_wide_t)factor * (factor > 0 ? range.high : range.low);
  }
  assert(low <= high);
  return (rabbet_interval_t){wide_sign(low), wide_sign(high)};
}

// ---- From sums to nodes

rabbet_status_t rabbet_linear_build_node(rabbet_expr_graph_t* graph,
                                         rabbet_expr_op_t op, rabbet_expr_t a,
                                         rabbet_expr_t b,
                                         rabbet_expr_t* out_expr) {
  return rabbet_expr_intern(
      graph, (rabbet_expr_node_t){.op = op, .a = a, .b = b}, out_expr);
}

rabbet_status_t rabbet_linear_build_term(rabbet_expr_graph_t* graph,
                                         int64_t factor, rabbet_expr_t product,
                                         rabbet_expr_t* out_expr) {
  *out_expr = product;
  if (product != RABBET_EXPR_NONE && factor == 1) return rabbet_ok();
  rabbet_expr_t constant = RABBET_EXPR_NONE;
  RABBET_RETURN_IF_ERROR(rabbet_expr_constant(graph, factor, &constant));
  *out_expr = constant;
  if (product == RABBET_EXPR_NONE) return rabbet_ok();
  return rabbet_linear_build_node(graph, RABBET_EXPR_PROD, product, constant,
                                  out_expr);
}

// *sum += factor * product, where *sum may be NONE for nothing yet.
static rabbet_status_t build_add(rabbet_expr_graph_t* graph, int64_t factor,
                                 rabbet_expr_t product, rabbet_expr_t* sum) {
  bool subtract = *sum != RABBET_EXPR_NONE && factor < 0 && factor != INT64_MIN;
  rabbet_expr_t term = RABBET_EXPR_NONE;
  RABBET_RETURN_IF_ERROR(rabbet_linear_build_term(
      graph, subtract ? -factor : factor, product, &term));
  if (*sum == RABBET_EXPR_NONE) {
    *sum = term;
    return rabbet_ok();
  }
  return rabbet_linear_build_node(
      graph, subtract ? RABBET_EXPR_SUB : RABBET_EXPR_SUM, *sum, term, sum);
}

// Builds positive terms, then negative ones, then the constant. Without
// positive terms the constant comes first.
rabbet_status_t rabbet_linear_build(rabbet_expr_graph_t* graph,
                                    const rabbet_linear_t* sum,
                                    rabbet_expr_t* out_expr) {
  rabbet_expr_t built = RABBET_EXPR_NONE;
  int64_t constant = sum->constant;
  for (int i = 0; i < sum->count; ++i) {
    assert(sum->terms[i].factor != 0);
    assert(i == 0 || sum->terms[i - 1].product < sum->terms[i].product);
    if (sum->terms[i].factor > 0)
      RABBET_RETURN_IF_ERROR(build_add(graph, sum->terms[i].factor,
                                       sum->terms[i].product, &built));
  }
  if (built == RABBET_EXPR_NONE && (constant != 0 || sum->count == 0)) {
    RABBET_RETURN_IF_ERROR(rabbet_expr_constant(graph, constant, &built));
    constant = 0;
  }
  for (int i = 0; i < sum->count; ++i) {
    if (sum->terms[i].factor < 0)
      RABBET_RETURN_IF_ERROR(build_add(graph, sum->terms[i].factor,
                                       sum->terms[i].product, &built));
  }
  if (constant != 0)
    RABBET_RETURN_IF_ERROR(
        build_add(graph, constant, RABBET_EXPR_NONE, &built));
  *out_expr = built;
  return rabbet_ok();
}

rabbet_status_t rabbet_linear_build_atoms(rabbet_expr_graph_t* graph,
                                          const rabbet_atoms_t* atoms,
                                          rabbet_expr_t* out_product) {
  *out_product = RABBET_EXPR_NONE;
  for (int i = 0; i < atoms->count; ++i) {
    assert(i == 0 || atoms->data[i - 1] <= atoms->data[i]);
    if (i == 0) {
      *out_product = atoms->data[0];
    } else {
      RABBET_RETURN_IF_ERROR(rabbet_linear_build_node(
          graph, RABBET_EXPR_PROD, *out_product, atoms->data[i], out_product));
    }
  }
  return rabbet_ok();
}

// ---- Atoms

bool rabbet_atoms_add(const rabbet_expr_graph_t* graph, rabbet_expr_op_t op,
                      rabbet_expr_t expr, bool unique, rabbet_atoms_t* atoms) {
  rabbet_expr_node_t node = node_of(graph, expr);
  if (atoms->visited++ == RABBET_VISIT_MAX) return false;
  if (node.op == op)
    return rabbet_atoms_add(graph, op, node.b, unique, atoms) &&
           rabbet_atoms_add(graph, op, node.a, unique, atoms);
  int at = 0;
  while (at < atoms->count && atoms->data[at] < expr)
    ++at;
  if (unique && at < atoms->count && atoms->data[at] == expr) return true;
  if (atoms->count == RABBET_PRODUCT_MAX_ATOMS) return false;
  assert(at == 0 || atoms->data[at - 1] <= expr);
  for (int i = atoms->count++; i > at; --i)
    atoms->data[i] = atoms->data[i - 1];
  atoms->data[at] = expr;
  return true;
}

bool rabbet_atoms_remove(rabbet_atoms_t* atoms, rabbet_expr_t atom) {
  for (int i = 0; i < atoms->count; ++i) {
    if (atoms->data[i] != atom) continue;
    --atoms->count;
    for (; i < atoms->count; ++i)
      atoms->data[i] = atoms->data[i + 1];
    return true;
  }
  return false;
}

rabbet_atoms_t rabbet_atoms_of(const rabbet_expr_graph_t* graph,
                               rabbet_expr_t product) {
  rabbet_atoms_t atoms = {0};
  if (!rabbet_atoms_add(graph, RABBET_EXPR_PROD, product, false, &atoms))
    atoms = (rabbet_atoms_t){.count = 1, .data = {product}};
  return atoms;
}
