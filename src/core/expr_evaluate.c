// Values and bounds of expressions.
#include <assert.h>

#include "base/math.h"
#include "base/strbuf.h"
#include "core/expr_graph.h"

// The failure of node `n`, whose operands have values.
static rabbet_status_t expr_evaluate_error(const rabbet_expr_graph_t* graph,
                                           rabbet_expr_t n,
                                           const int64_t* values) {
  const rabbet_expr_node_t* node = &graph->nodes.data[n];
  bool by_zero = rabbet_expr_is_division(node->op) && values[node->b] == 0;
  char* text = NULL;
  RABBET_RETURN_IF_ERROR(rabbet_expr_print(graph, n, graph->allocator, &text));
  rabbet_status_t status = RABBET_STATUS(
      by_zero ? RABBET_STATUS_INVALID_ARGUMENT : RABBET_STATUS_OUT_OF_RANGE,
      "%s, with operands %lld and %lld, %s", text, (long long)values[node->a],
      (long long)values[node->b],
      by_zero                             ? "divides by 0"
      : node->op == RABBET_EXPR_BROADCAST ? "does not broadcast"
                                          : "does not fit into 64 bits");
  rabbet_free(graph->allocator, text);
  return status;
}

bool rabbet_expr_evaluate_node(const rabbet_expr_graph_t* graph,
                               rabbet_expr_t expr, const int64_t* symbols,
                               int64_t* values, const bool* valid) {
  assert(expr >= 0 && (size_t)expr < graph->nodes.count);
  const rabbet_expr_node_t* node = &graph->nodes.data[expr];
  values[expr] = 0;
  if (node->op == RABBET_EXPR_CONSTANT) {
    values[expr] = node->value;
    return true;
  }
  if (node->op == RABBET_EXPR_SYMBOL) {
    assert((size_t)node->a < graph->symbols.count);
    values[expr] = symbols[node->a];
    return true;
  }
  assert(node->a >= 0 && node->a < expr && node->b >= 0 && node->b < expr);
  return (!valid || (valid[node->a] && valid[node->b])) &&
         rabbet_expr_fold(node->op, values[node->a], values[node->b],
                          &values[expr]);
}

rabbet_status_t rabbet_expr_evaluate(const rabbet_expr_graph_t* graph,
                                     const int64_t* symbols, int64_t* values,
                                     bool* valid) {
  for (size_t i = 0; i < graph->nodes.count; ++i) {
    rabbet_expr_t expr = (rabbet_expr_t)i;
    bool ok = rabbet_expr_evaluate_node(graph, expr, symbols, values, valid);
    if (valid) {
      valid[i] = ok;
      if (!ok) values[i] = 0;
    } else if (!ok) {
      return expr_evaluate_error(graph, expr, values);
    }
  }
  return rabbet_ok();
}

// ---- Interval arithmetic

__extension__ typedef __int128 rabbet_wide_t;

static int64_t wide_clamp(rabbet_wide_t value) {
  if (value < INT64_MIN) return INT64_MIN;
  if (value > INT64_MAX) return INT64_MAX;
  return (int64_t)value;
}

static void interval_include(rabbet_interval_t* interval, rabbet_wide_t value) {
  int64_t clamped = wide_clamp(value);
  interval->low = rabbet_min_i64(interval->low, clamped);
  interval->high = rabbet_max_i64(interval->high, clamped);
}

static rabbet_wide_t wide_divide(rabbet_expr_op_t op, int64_t a, int64_t b) {
  assert(b != 0);
  rabbet_wide_t quotient = (rabbet_wide_t)a / b;
  if ((rabbet_wide_t)a % b == 0) return quotient;
  bool negative = (a < 0) != (b < 0);
  if (op == RABBET_EXPR_FLOOR_DIV) return negative ? quotient - 1 : quotient;
  return negative ? quotient : quotient + 1;
}

// Both divisions are monotone in each operand while the divisor keeps its
// sign, so that corners suffice for either sign. Dividing by 0 has no value.
static rabbet_interval_t interval_divide(rabbet_expr_op_t op,
                                         rabbet_interval_t a,
                                         rabbet_interval_t b) {
  rabbet_interval_t result = {INT64_MAX, INT64_MIN};
  rabbet_interval_t parts[2] = {{b.low, rabbet_min_i64(b.high, -1)},
                                {rabbet_max_i64(b.low, 1), b.high}};
  for (int i = 0; i < 2; ++i) {
    if (parts[i].low > parts[i].high) continue;
    int64_t divisors[2] = {parts[i].low, parts[i].high};
    for (int k = 0; k < 2; ++k) {
      interval_include(&result, wide_divide(op, a.low, divisors[k]));
      interval_include(&result, wide_divide(op, a.high, divisors[k]));
    }
  }
  if (result.low > result.high)
    return (rabbet_interval_t){INT64_MIN, INT64_MAX};
  return result;
}

static rabbet_interval_t interval_multiply(rabbet_interval_t a,
                                           rabbet_interval_t b) {
  rabbet_interval_t result = {INT64_MAX, INT64_MIN};
  interval_include(&result, (rabbet_wide_t)a.low * b.low);
  interval_include(&result, (rabbet_wide_t)a.low * b.high);
  interval_include(&result, (rabbet_wide_t)a.high * b.low);
  interval_include(&result, (rabbet_wide_t)a.high * b.high);
  return result;
}

// From the smallest difference and the largest.
static rabbet_interval_t interval_wide(rabbet_wide_t low, rabbet_wide_t high) {
  return (rabbet_interval_t){wide_clamp(low), wide_clamp(high)};
}

rabbet_interval_t rabbet_interval_apply(rabbet_expr_op_t op,
                                        rabbet_interval_t a,
                                        rabbet_interval_t b) {
  assert(a.low <= a.high && b.low <= b.high);
  bool disjoint = a.high < b.low || b.high < a.low;
  bool single = a.low == a.high && b.low == b.high;
  switch (op) {
    case RABBET_EXPR_SUM:
      return interval_wide((rabbet_wide_t)a.low + b.low,
                           (rabbet_wide_t)a.high + b.high);
    case RABBET_EXPR_SUB:
      return interval_wide((rabbet_wide_t)a.low - b.high,
                           (rabbet_wide_t)a.high - b.low);
    case RABBET_EXPR_PROD:
      return interval_multiply(a, b);
    case RABBET_EXPR_MAX:
      return interval_wide(rabbet_max_i64(a.low, b.low),
                           rabbet_max_i64(a.high, b.high));
    case RABBET_EXPR_MIN:
      return interval_wide(rabbet_min_i64(a.low, b.low),
                           rabbet_min_i64(a.high, b.high));
    case RABBET_EXPR_BROADCAST: {
      // From 1 on it is the larger one.
      bool positive = a.low >= 1 && b.low >= 1;
      return interval_wide(positive ? rabbet_max_i64(a.low, b.low)
                                    : rabbet_min_i64(a.low, b.low),
                           rabbet_max_i64(a.high, b.high));
    }
    case RABBET_EXPR_EQUAL:
      return interval_wide(single && !disjoint, !disjoint);
    case RABBET_EXPR_LESS:
      return interval_wide(a.high < b.low, a.low < b.high);
    case RABBET_EXPR_FLOOR_DIV:
    case RABBET_EXPR_CEIL_DIV:
      return interval_divide(op, a, b);
    default:
      return interval_wide(INT64_MIN, INT64_MAX);
  }
}

static rabbet_status_t expr_check_bounds(const rabbet_expr_graph_t* graph,
                                         const int64_t* low,
                                         const int64_t* high) {
  for (size_t i = 0; i < graph->symbols.count; ++i) {
    if (low[i] <= high[i]) continue;
    const rabbet_symbol_t* symbol = &graph->symbols.data[i];
    return RABBET_STATUS(RABBET_STATUS_INVALID_ARGUMENT,
                         "the range of %s (index %d of tensor %d) is empty: "
                         "from %lld to %lld",
                         symbol->name ? symbol->name : "a dimension",
                         (int)symbol->index, (int)symbol->tensor,
                         (long long)low[i], (long long)high[i]);
  }
  return rabbet_ok();
}

rabbet_status_t rabbet_expr_bounds(const rabbet_expr_graph_t* graph,
                                   const int64_t* symbol_low,
                                   const int64_t* symbol_high, int64_t* low,
                                   int64_t* high) {
  RABBET_RETURN_IF_ERROR(expr_check_bounds(graph, symbol_low, symbol_high));
  for (size_t i = 0; i < graph->nodes.count; ++i) {
    const rabbet_expr_node_t* node = &graph->nodes.data[i];
    rabbet_interval_t result;
    if (node->op == RABBET_EXPR_CONSTANT) {
      result = (rabbet_interval_t){node->value, node->value};
    } else if (node->op == RABBET_EXPR_SYMBOL) {
      result = (rabbet_interval_t){symbol_low[node->a], symbol_high[node->a]};
    } else {
      result = rabbet_interval_apply(
          node->op, (rabbet_interval_t){low[node->a], high[node->a]},
          (rabbet_interval_t){low[node->b], high[node->b]});
    }
    assert(result.low <= result.high);
    low[i] = result.low;
    high[i] = result.high;
  }
  return rabbet_ok();
}

// ---- Text

#define RABBET_EXPR_PRINT_MOST 2000

static void expr_print_symbol(const rabbet_symbol_t* symbol,
                              rabbet_strbuf_t* text) {
  if (symbol->name) {
    rabbet_strbuf_printf(text, "%s", symbol->name);
  } else {
    rabbet_strbuf_printf(
        text,
        symbol->kind == RABBET_SYMBOL_DIM ? "tensor%d.dim%d" : "tensor%d[%d]",
        (int)symbol->tensor, (int)symbol->index);
  }
}

// Every level writes before it goes deeper, so that the limit on the text
// bounds the depth too, and a graph with much sharing stays printable.
static void expr_print_node(const rabbet_expr_graph_t* graph,
                            rabbet_expr_t expr, rabbet_strbuf_t* text) {
  static const struct {
    const char *before, *between;
  } forms[] = {
      [RABBET_EXPR_SUM] = {"(", " + "},
      [RABBET_EXPR_PROD] = {"(", " * "},
      [RABBET_EXPR_MAX] = {"max(", ", "},
      [RABBET_EXPR_MIN] = {"min(", ", "},
      [RABBET_EXPR_SUB] = {"(", " - "},
      [RABBET_EXPR_EQUAL] = {"(", " == "},
      [RABBET_EXPR_LESS] = {"(", " < "},
      [RABBET_EXPR_FLOOR_DIV] = {"floordiv(", ", "},
      [RABBET_EXPR_CEIL_DIV] = {"ceildiv(", ", "},
      [RABBET_EXPR_BROADCAST] = {"broadcast(", ", "},
  };
  const rabbet_expr_node_t* node = &graph->nodes.data[expr];
  if (text->failed) return;
  if (text->size > RABBET_EXPR_PRINT_MOST) {
    rabbet_strbuf_append(text, "...", 3);
  } else if (node->op == RABBET_EXPR_CONSTANT) {
    rabbet_strbuf_printf(text, "%lld", (long long)node->value);
  } else if (node->op == RABBET_EXPR_SYMBOL) {
    expr_print_symbol(&graph->symbols.data[node->a], text);
  } else {
    rabbet_strbuf_printf(text, "%s", forms[node->op].before);
    expr_print_node(graph, node->a, text);
    rabbet_strbuf_printf(text, "%s", forms[node->op].between);
    expr_print_node(graph, node->b, text);
    rabbet_strbuf_append(text, ")", 1);
  }
}

rabbet_status_t rabbet_expr_print(const rabbet_expr_graph_t* graph,
                                  rabbet_expr_t expr,
                                  rabbet_allocator_t allocator,
                                  char** out_text) {
  *out_text = NULL;
  rabbet_strbuf_t text;
  rabbet_strbuf_initialize(allocator, &text);
  expr_print_node(graph, expr, &text);
  rabbet_status_t status = rabbet_strbuf_status(&text);
  if (rabbet_is_ok(status)) {
    *out_text = text.data;  // freed like any block of the allocator
  } else {
    rabbet_strbuf_deinitialize(&text);
  }
  return status;
}
