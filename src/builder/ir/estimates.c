// Kernels are timed at estimates of data-dependent sizes. Estimates can
// contradict each other: an inner extent of a product must be that of its
// constant, a slice must lie within its input. So the shape rules are called
// with the estimates; if a rule fails, other numbers are tried for its symbols.
// This is done first for the whole network; a unit whose rules still fail gets
// estimates of its own.

#include "builder/ir/estimates.h"

#include <assert.h>
#include <string.h>

#include "base/math.h"
#include "ops/infer.h"

// All numbers up to this distance from the estimate are tried.
#define ESTIMATES_NEAR 32
// The most numbers to try for a symbol.
#define ESTIMATES_TRIES 400
// The most calls of shape rules, for the whole network and for one unit.
#define ESTIMATES_NETWORK_BUDGET 200000
#define ESTIMATES_UNIT_BUDGET 4000
// The most numbers to try for all symbols of a unit at once.
#define ESTIMATES_COMMON 16

// A node; exprs[first, first + count) are the expressions of its inputs' and
// outputs' shapes, and of its inputs' elements.
typedef struct estimates_node_t {
  const rabbet_ir_node_t* node;
  bool is_asked;  // it has a shape rule that can be called
  bool fits;      // the settled estimates satisfy the rule
  size_t first, count;
} estimates_node_t;

typedef struct estimates_t {
  rabbet_build_t* build;
  const int64_t *low, *high;
  int64_t* opt;            // of symbols
  int64_t *values, *next;  // of expressions: settled, and of the last try
  bool *valid, *next_valid;
  estimates_node_t* nodes;
  size_t count, misfits;
  RABBET_VEC(rabbet_expr_t) exprs;
  bool* seen;  // expressions, while symbols are collected
  RABBET_VEC(size_t) symbols;
  int64_t budget;
  rabbet_arena_t scratch;  // for one call of a rule
  rabbet_expr_graph_t* graph;
} estimates_t;

// ---- Nodes ------------------------------------------------------------------

static rabbet_status_t estimates_list(estimates_t* e,
                                      const rabbet_ir_value_t* value,
                                      bool with_values, bool* data_dependent) {
  rabbet_allocator_t allocator = e->build->allocator;
  for (int32_t i = 0; i < value->shape.rank; ++i) {
    *data_dependent |= e->build->ranges.data_dependent[value->shape.d[i]];
    RABBET_RETURN_IF_ERROR(
        RABBET_VEC_PUSH(allocator, &e->exprs, value->shape.d[i]));
  }
  for (size_t i = 0; with_values && i < value->value_count && value->values;
       ++i) {
    *data_dependent |= e->build->ranges.data_dependent[value->values[i]];
    RABBET_RETURN_IF_ERROR(
        RABBET_VEC_PUSH(allocator, &e->exprs, value->values[i]));
  }
  return rabbet_ok();
}

// Adds a node if it depends on data-dependent sizes. For nodes that compute
// sizes and for plugins no rule can be called; only their extents are checked.
static rabbet_status_t estimates_add(estimates_t* e,
                                     const rabbet_ir_node_t* node) {
  const rabbet_ir_t* ir = &e->build->ir;
  bool data_dependent = false;
  estimates_node_t added = {.node = node, .first = e->exprs.count};
  for (size_t i = 0; i < node->input_count; ++i) {
    const rabbet_ir_value_t* input = rabbet_ir_input(ir, node, i);
    if (input)
      RABBET_RETURN_IF_ERROR(estimates_list(e, input, true, &data_dependent));
  }
  for (size_t i = 0; i < node->output_count; ++i)
    RABBET_RETURN_IF_ERROR(estimates_list(e, rabbet_ir_output(ir, node, i),
                                          false, &data_dependent));
  assert(e->exprs.count >= added.first);
  added.count = e->exprs.count - added.first;
  added.is_asked = !node->plugin && node->op->infer_shapes &&
                   !rabbet_op_makes_sizes(node->op);
  if (data_dependent)
    e->nodes[e->count++] = added;
  else
    e->exprs.count = added.first;
  return rabbet_ok();
}

// ---- Asking -----------------------------------------------------------------

static rabbet_status_t estimates_number(estimates_t* e, rabbet_expr_t from,
                                        rabbet_expr_t* out_expr) {
  return rabbet_expr_constant(
      e->graph, e->next_valid[from] ? e->next[from] : -1, out_expr);
}

static rabbet_status_t estimates_value(estimates_t* e,
                                       const rabbet_ir_value_t* from,
                                       rabbet_op_value_t* out_value) {
  rabbet_expr_t* values = NULL;
  *out_value = (rabbet_op_value_t){.present = true,
                                   .dtype = from->dtype,
                                   .shape = {.rank = from->shape.rank},
                                   .constant = from->constant};
  for (int32_t i = 0; i < from->shape.rank; ++i)
    RABBET_RETURN_IF_ERROR(
        estimates_number(e, from->shape.d[i], &out_value->shape.d[i]));
  if (!from->values)
    return rabbet_op_values_of_constant(e->graph, &e->scratch, out_value);
  RABBET_RETURN_IF_ERROR(rabbet_arena_allocate_array(
      &e->scratch, from->value_count + 1, sizeof(*values), (void**)&values));
  for (size_t i = 0; i < from->value_count; ++i)
    RABBET_RETURN_IF_ERROR(estimates_number(e, from->values[i], &values[i]));
  out_value->values = values;
  out_value->value_count = from->value_count;
  return rabbet_ok();
}

// Calls the layer's shape rule, which returns an error if the shapes do not
// fit.
static rabbet_status_t estimates_infer(estimates_t* e,
                                       const rabbet_ir_node_t* node) {
  const rabbet_ir_t* ir = &e->build->ir;
  rabbet_op_value_t* inputs = NULL;
  rabbet_op_infer_t infer = {.op = node->op,
                             .graph = e->graph,
                             .arena = &e->scratch,
                             .attrs = node->attrs,
                             .input_count = node->input_count,
                             .output_count = node->output_count,
                             .strongly_typed = ir->strongly_typed};
  RABBET_RETURN_IF_ERROR(rabbet_op_infer_allocate(&infer, &inputs));
  for (size_t i = 0; i < node->input_count; ++i) {
    const rabbet_ir_value_t* value = rabbet_ir_input(ir, node, i);
    if (value) RABBET_RETURN_IF_ERROR(estimates_value(e, value, &inputs[i]));
  }
  for (size_t i = 0; i < node->output_count; ++i)
    infer.outputs[i].dtype = rabbet_ir_output(ir, node, i)->dtype;
  return node->op->infer_shapes(&infer);
}

static rabbet_status_t estimates_ask(estimates_t* e,
                                     const rabbet_ir_node_t* node,
                                     bool* out_fits) {
  rabbet_allocator_t allocator = e->build->allocator;
  *out_fits = false;
  RABBET_RETURN_IF_ERROR(rabbet_expr_graph_create(allocator, &e->graph));
  rabbet_arena_initialize(allocator, &e->scratch);
  rabbet_status_t status = estimates_infer(e, node);
  rabbet_arena_deinitialize(&e->scratch);
  rabbet_expr_graph_destroy(e->graph);
  *out_fits = rabbet_is_ok(status);
  if (rabbet_status_code(status) == RABBET_STATUS_OUT_OF_MEMORY) return status;
  rabbet_status_free(status);
  return rabbet_ok();
}

static bool estimates_sizes_exist(const estimates_t* e,
                                  const rabbet_ir_node_t* node) {
  for (size_t i = 0; i < node->input_count + node->output_count; ++i) {
    const rabbet_ir_value_t* value =
        i < node->input_count
            ? rabbet_ir_input(&e->build->ir, node, i)
            : rabbet_ir_output(&e->build->ir, node, i - node->input_count);
    for (int32_t k = 0; value && k < value->shape.rank; ++k)
      if (!e->next_valid[value->shape.d[k]] || e->next[value->shape.d[k]] < 0)
        return false;
  }
  return true;
}

static bool estimates_changed(const estimates_t* e,
                              const estimates_node_t* node) {
  assert(node->first + node->count <= e->exprs.count);
  for (size_t i = node->first; i < node->first + node->count; ++i) {
    rabbet_expr_t expr = e->exprs.data[i];
    if (e->valid[expr] != e->next_valid[expr] ||
        e->values[expr] != e->next[expr])
      return true;
  }
  return false;
}

static rabbet_status_t estimates_node_fits(estimates_t* e,
                                           const estimates_node_t* node,
                                           bool* out_fits) {
  *out_fits = estimates_sizes_exist(e, node->node);
  if (!*out_fits || !node->is_asked) return rabbet_ok();
  assert(node->node->op->infer_shapes);
  e->budget--;
  return estimates_ask(e, node->node, out_fits);
}

// Counts the nodes that e->opt does not satisfy, up to `enough`. Rules are
// called only for nodes whose numbers differ from the settled ones.
static rabbet_status_t estimates_misfits(estimates_t* e, size_t enough,
                                         size_t* out_count) {
  *out_count = 0;
  RABBET_RETURN_IF_ERROR(
      rabbet_expr_evaluate(e->build->ir.graph, e->opt, e->next, e->next_valid));
  for (size_t i = 0; i < e->count && *out_count < enough; ++i) {
    bool fits = e->nodes[i].fits;
    if (estimates_changed(e, &e->nodes[i]))
      RABBET_RETURN_IF_ERROR(estimates_node_fits(e, &e->nodes[i], &fits));
    *out_count += !fits;
  }
  return rabbet_ok();
}

// Makes e->opt the settled estimates, with which later tries are compared.
static rabbet_status_t estimates_settle(estimates_t* e) {
  size_t exprs = e->build->ranges.count;
  e->misfits = 0;
  RABBET_RETURN_IF_ERROR(
      rabbet_expr_evaluate(e->build->ir.graph, e->opt, e->next, e->next_valid));
  for (size_t i = 0; i < e->count; ++i) {
    RABBET_RETURN_IF_ERROR(
        estimates_node_fits(e, &e->nodes[i], &e->nodes[i].fits));
    e->misfits += !e->nodes[i].fits;
  }
  assert(e->misfits <= e->count);
  memcpy(e->values, e->next, exprs * sizeof(*e->values));
  memcpy(e->valid, e->next_valid, exprs * sizeof(*e->valid));
  return rabbet_ok();
}

// ---- Trying -----------------------------------------------------------------

typedef struct estimates_tries_t {
  int64_t low, high;
  int64_t numbers[ESTIMATES_TRIES];
  size_t count;
} estimates_tries_t;

static void estimates_try(estimates_tries_t* tries, int64_t number) {
  if (number < tries->low || number > tries->high ||
      tries->count == ESTIMATES_TRIES)
    return;
  for (size_t i = 0; i < tries->count; ++i)
    if (tries->numbers[i] == number) return;
  assert(tries->count < ESTIMATES_TRIES);
  tries->numbers[tries->count++] = number;
}

// The number of elements of a tensor at the estimates; 0 if there is none.
static int64_t estimates_elements(const estimates_t* e,
                                  const rabbet_ir_value_t* value) {
  int64_t count = 1;
  for (int32_t i = 0; i < value->shape.rank; ++i) {
    rabbet_expr_t expr = value->shape.d[i];
    if (!e->valid[expr] || e->values[expr] <= 0 ||
        __builtin_mul_overflow(count, e->values[expr], &count))
      return 0;
  }
  return count;
}

// Suggests numbers to try: those that make two of the node's tensors equally
// large; its extents and elements; `now` plus the difference of two of these;
// and neighbours of `now`.
static void estimates_suggest(const estimates_t* e,
                              const estimates_node_t* node, int64_t now,
                              estimates_tries_t* tries) {
  const rabbet_ir_node_t* n = node->node;
  int64_t elements[RABBET_MAX_RANK], part = 0;
  size_t count = 0;
  for (size_t i = 0; i < n->input_count + n->output_count; ++i) {
    const rabbet_ir_value_t* value =
        i < n->input_count
            ? rabbet_ir_input(&e->build->ir, n, i)
            : rabbet_ir_output(&e->build->ir, n, i - n->input_count);
    if (value && count < RABBET_MAX_RANK)
      elements[count++] = estimates_elements(e, value);
  }
  for (size_t i = 0; i < count; ++i)
    for (size_t k = 0; k < count; ++k)
      if (elements[i] > 0 && !__builtin_mul_overflow(now, elements[k], &part))
        estimates_try(tries, part / elements[i]);
  for (size_t i = 0; i < node->count; ++i)
    estimates_try(tries, e->values[e->exprs.data[node->first + i]]);
  for (size_t i = 0; i < node->count; ++i)
    for (size_t k = 0; k < node->count; ++k)
      if (!__builtin_sub_overflow(e->values[e->exprs.data[node->first + i]],
                                  e->values[e->exprs.data[node->first + k]],
                                  &part) &&
          !__builtin_add_overflow(now, part, &part))
        estimates_try(tries, part);
  for (int64_t i = 1; i <= ESTIMATES_NEAR; ++i) {
    if (now <= INT64_MAX - i) estimates_try(tries, now + i);
    if (now >= INT64_MIN + i) estimates_try(tries, now - i);
  }
}

// Changes the symbol's estimate if another one satisfies more nodes.
static rabbet_status_t estimates_improve(estimates_t* e, size_t symbol,
                                         const estimates_node_t* node) {
  estimates_tries_t tries = {.low = e->low[symbol], .high = e->high[symbol]};
  int64_t best = e->opt[symbol];
  size_t least = e->misfits;
  estimates_suggest(e, node, best, &tries);
  for (size_t i = 0; i < tries.count && least > 0 && e->budget > 0; ++i) {
    size_t misfits = 0;
    e->opt[symbol] = tries.numbers[i];
    RABBET_RETURN_IF_ERROR(estimates_misfits(e, least, &misfits));
    if (misfits >= least) continue;
    least = misfits;
    best = tries.numbers[i];
  }
  e->opt[symbol] = best;
  assert(best >= e->low[symbol] || least == e->misfits);
  assert(best <= e->high[symbol] || least == e->misfits);
  return least < e->misfits ? estimates_settle(e) : rabbet_ok();
}

// Collects the data-dependent symbols of the expression.
static rabbet_status_t estimates_symbols(estimates_t* e, rabbet_expr_t expr) {
  const rabbet_expr_node_t* node = rabbet_expr_node(e->build->ir.graph, expr);
  assert((size_t)expr < e->build->ranges.count);
  if (e->seen[expr] || !e->build->ranges.data_dependent[expr])
    return rabbet_ok();
  e->seen[expr] = true;
  if (node->op == RABBET_EXPR_SYMBOL)
    return RABBET_VEC_PUSH(e->build->allocator, &e->symbols, (size_t)node->a);
  RABBET_RETURN_IF_ERROR(estimates_symbols(e, node->a));
  return estimates_symbols(e, node->b);
}

static rabbet_status_t estimates_symbols_of(estimates_t* e, size_t first,
                                            size_t count) {
  e->symbols.count = 0;
  memset(e->seen, 0, e->build->ranges.count * sizeof(*e->seen));
  for (size_t i = first; i < first + count; ++i)
    RABBET_RETURN_IF_ERROR(estimates_symbols(e, e->exprs.data[i]));
  return rabbet_ok();
}

// Goes over the nodes that the estimates do not satisfy, and again while that
// helps.
static rabbet_status_t estimates_round(estimates_t* e) {
  size_t before = e->misfits;
  for (size_t i = 0; i < e->count && e->budget > 0; ++i) {
    const estimates_node_t* node = &e->nodes[i];
    if (node->fits) continue;
    RABBET_RETURN_IF_ERROR(estimates_symbols_of(e, node->first, node->count));
    for (size_t s = 0; s < e->symbols.count && !node->fits; ++s)
      RABBET_RETURN_IF_ERROR(estimates_improve(e, e->symbols.data[s], node));
    RABBET_RETURN_IF_ERROR(rabbet_progress_check(e->build));
  }
  return e->misfits < before && e->misfits > 0 && e->budget > 0
             ? estimates_round(e)
             : rabbet_ok();
}

static rabbet_status_t estimates_search(estimates_t* e) {
  RABBET_RETURN_IF_ERROR(estimates_settle(e));
  return e->misfits > 0 ? estimates_round(e) : rabbet_ok();
}

// ---- The whole network, one unit --------------------------------------------

// Allocates memory for one search at a time, which the build keeps.
static rabbet_status_t estimates_allocate(estimates_t* e, size_t nodes) {
  rabbet_build_t* build = e->build;
  size_t exprs = build->ranges.count;
  if (!build->ranges.search) {
    const size_t symbols = rabbet_expr_symbol_count(build->ir.graph);
    RABBET_RETURN_IF_ERROR(rabbet_arena_allocate_array(
        &build->arena, 2 * exprs + symbols + 1, sizeof(int64_t),
        (void**)&build->ranges.search));
    RABBET_RETURN_IF_ERROR(
        rabbet_arena_allocate_array(&build->arena, 3 * exprs, sizeof(bool),
                                    (void**)&build->ranges.search_flags));
  }
  assert(exprs == rabbet_expr_node_count(build->ir.graph));
  e->values = build->ranges.search;
  e->next = e->values + exprs;
  if (!e->opt) e->opt = e->next + exprs;
  e->valid = build->ranges.search_flags;
  e->next_valid = e->valid + exprs;
  e->seen = e->next_valid + exprs;
  return rabbet_arena_allocate_array(&build->arena, nodes, sizeof(*e->nodes),
                                     (void**)&e->nodes);
}

static void estimates_deinitialize(estimates_t* e) {
  rabbet_vec_free(e->build->allocator, &e->exprs);
  rabbet_vec_free(e->build->allocator, &e->symbols);
}

static rabbet_status_t estimates_fit_network(estimates_t* e) {
  const rabbet_ir_t* ir = &e->build->ir;
  RABBET_RETURN_IF_ERROR(estimates_allocate(e, ir->nodes.count));
  for (size_t i = 0; i < ir->nodes.count; ++i)
    RABBET_RETURN_IF_ERROR(estimates_add(e, ir->nodes.data[i]));
  return estimates_search(e);
}

rabbet_status_t rabbet_estimates_fit(rabbet_build_t* build, const int64_t* low,
                                     const int64_t* high, int64_t* opt) {
  estimates_t e = {.build = build,
                   .low = low,
                   .high = high,
                   .opt = opt,
                   .budget = ESTIMATES_NETWORK_BUDGET};
  if (!memchr(build->ranges.data_dependent, true, build->ranges.count))
    return rabbet_ok();
  rabbet_status_t status = estimates_fit_network(&e);
  estimates_deinitialize(&e);
  return status;
}

// Two wrong sizes may not be corrected one after the other. So searches also
// start with the same number for all symbols.
static rabbet_status_t estimates_fit_unit(estimates_t* e,
                                          rabbet_ir_node_t* const* nodes,
                                          size_t count) {
  const rabbet_ranges_t* ranges = &e->build->ranges;
  const size_t symbols = rabbet_expr_symbol_count(e->build->ir.graph);
  estimates_tries_t common = {.low = 1, .high = INT32_MAX};
  RABBET_RETURN_IF_ERROR(estimates_allocate(e, count));
  memcpy(e->opt, ranges->symbol_opt, symbols * sizeof(*e->opt));
  for (size_t i = 0; i < count; ++i)
    RABBET_RETURN_IF_ERROR(estimates_add(e, nodes[i]));
  if (e->count == 0) return rabbet_ok();
  RABBET_RETURN_IF_ERROR(estimates_search(e));
  for (size_t i = 0; i < e->exprs.count; ++i)
    estimates_try(&common, ranges->opt[e->exprs.data[i]]);
  estimates_try(&common, 1);
  for (size_t i = 0; i < common.count && i < ESTIMATES_COMMON && e->misfits > 0;
       ++i) {
    memcpy(e->opt, ranges->symbol_opt, symbols * sizeof(*e->opt));
    RABBET_RETURN_IF_ERROR(estimates_symbols_of(e, 0, e->exprs.count));
    for (size_t s = 0; s < e->symbols.count; ++s) {
      size_t symbol = e->symbols.data[s];
      e->opt[symbol] = rabbet_min_i64(
          rabbet_max_i64(common.numbers[i], e->low[symbol]), e->high[symbol]);
    }
    e->budget = ESTIMATES_UNIT_BUDGET;
    RABBET_RETURN_IF_ERROR(estimates_search(e));
  }
  return rabbet_ok();
}

static bool estimates_concern(const rabbet_build_t* build,
                              rabbet_ir_node_t* const* nodes, size_t count) {
  for (size_t n = 0; n < count; ++n) {
    const rabbet_ir_node_t* node = nodes[n];
    for (size_t i = 0; i < node->input_count + node->output_count; ++i) {
      const rabbet_ir_value_t* value =
          i < node->input_count
              ? rabbet_ir_input(&build->ir, node, i)
              : rabbet_ir_output(&build->ir, node, i - node->input_count);
      if (!value) continue;
      if (rabbet_ranges_is_data_dependent(build, &value->shape)) return true;
      for (size_t k = 0; k < value->value_count && value->values; ++k)
        if (build->ranges.data_dependent[value->values[k]]) return true;
    }
  }
  return false;
}

rabbet_status_t rabbet_estimates_of_unit(rabbet_build_t* build,
                                         rabbet_ir_node_t* const* nodes,
                                         size_t count,
                                         rabbet_estimates_t* out_estimates) {
  const rabbet_ranges_t* ranges = &build->ranges;
  *out_estimates = (rabbet_estimates_t){.opt = ranges->opt,
                                        .valid = ranges->valid,
                                        .symbols = ranges->symbol_opt,
                                        .fit = true};
  if (!estimates_concern(build, nodes, count)) return rabbet_ok();
  estimates_t e = {.build = build,
                   .low = ranges->symbol_low,
                   .high = ranges->symbol_high,
                   .budget = ESTIMATES_UNIT_BUDGET};
  rabbet_status_t status = estimates_fit_unit(&e, nodes, count);
  out_estimates->data_dependent = true;
  out_estimates->fit = e.misfits == 0;
  if (e.misfits == 0 && e.count > 0) {
    out_estimates->opt = e.values;
    out_estimates->valid = e.valid;
    out_estimates->symbols = e.opt;
  }
  estimates_deinitialize(&e);
  return status;
}
