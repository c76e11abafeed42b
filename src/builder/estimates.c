// Kernels are timed at estimates of what runs tell, and a layer that takes one
// size alone (a reshape to a fixed shape, a product with a constant) refuses
// others. So the layers' shape rules are asked at the estimates, and where they
// refuse, sizes are tried that stand in their shapes, or near by.

#include "builder/estimates.h"

#include <string.h>

#include "base/math.h"

// How far from the estimate every number is tried.
#define ESTIMATES_NEAR 32
// Numbers tried for a symbol, and layers whose shapes are asked for them.
#define ESTIMATES_TRIES 160

typedef struct estimates_t {
  rabbet_build_t* build;
  const int64_t *low, *high;
  int64_t* opt;
  bool* told;       // expressions that depend on what runs tell
  int64_t* values;  // of expressions
  bool* valid;
  rabbet_ir_node_t** nodes;  // those that read what runs tell
  size_t count;
  rabbet_arena_t scratch;  // of one question to a rule
  rabbet_expr_graph_t* graph;
} estimates_t;

static bool estimates_is_told(const estimates_t* e, size_t symbol) {
  return rabbet_ranges_symbol_is_told(e->build, symbol);
}

static bool estimates_concerns(const estimates_t* e,
                               const rabbet_ir_value_t* value) {
  bool concerned = rabbet_ranges_is_told(e->build, &value->shape);
  for (size_t i = 0; i < value->value_count && value->values; ++i)
    concerned |= e->build->ranges.told[value->values[i]];
  return concerned;
}

// Layers whose rule can be asked: a layer that makes sizes says nothing of
// them.
static void estimates_collect(estimates_t* e) {
  const rabbet_ir_t* ir = &e->build->ir;
  for (size_t i = 0; i < ir->nodes.count; ++i) {
    rabbet_ir_node_t* node = ir->nodes.data[i];
    bool concerned = false;
    if (node->plugin || !node->op->infer_shapes ||
        rabbet_op_makes_sizes(node->op))
      continue;
    for (size_t k = 0; k < node->input_count; ++k) {
      const rabbet_ir_value_t* input = rabbet_ir_input(ir, node, k);
      concerned |= input && estimates_concerns(e, input);
    }
    if (concerned) e->nodes[e->count++] = node;
  }
}

// ---- Asking -----------------------------------------------------------------

static rabbet_status_t estimates_number(estimates_t* e, rabbet_expr_t from,
                                        rabbet_expr_t* out_expr) {
  return rabbet_expr_constant(e->graph, e->valid[from] ? e->values[from] : -1,
                              out_expr);
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

// An error if the layer's rule refuses its shapes.
static rabbet_status_t estimates_infer(estimates_t* e,
                                       const rabbet_ir_node_t* node) {
  const rabbet_ir_t* ir = &e->build->ir;
  rabbet_op_value_t *inputs = NULL, *outputs = NULL;
  RABBET_RETURN_IF_ERROR(rabbet_arena_allocate_array(
      &e->scratch, node->input_count + 1, sizeof(*inputs), (void**)&inputs));
  RABBET_RETURN_IF_ERROR(rabbet_arena_allocate_array(
      &e->scratch, node->output_count + 1, sizeof(*outputs), (void**)&outputs));
  for (size_t i = 0; i < node->input_count; ++i) {
    const rabbet_ir_value_t* value = rabbet_ir_input(ir, node, i);
    if (value) RABBET_RETURN_IF_ERROR(estimates_value(e, value, &inputs[i]));
  }
  for (size_t i = 0; i < node->output_count; ++i)
    outputs[i].dtype = rabbet_ir_output(ir, node, i)->dtype;
  const rabbet_op_infer_t infer = {.op = node->op,
                                   .graph = e->graph,
                                   .arena = &e->scratch,
                                   .attrs = node->attrs,
                                   .attr_count = node->op->attr_count,
                                   .inputs = inputs,
                                   .input_count = node->input_count,
                                   .outputs = outputs,
                                   .output_count = node->output_count,
                                   .strongly_typed = ir->strongly_typed};
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

// How many layers refuse; the first of them. Stops at `enough`.
static rabbet_status_t estimates_misfits(estimates_t* e, size_t enough,
                                         size_t* out_count,
                                         const rabbet_ir_node_t** out_first) {
  *out_count = 0;
  RABBET_RETURN_IF_ERROR(
      rabbet_expr_evaluate(e->build->ir.graph, e->opt, e->values, e->valid));
  for (size_t i = 0; i < e->count && *out_count < enough; ++i) {
    bool fits = false;
    RABBET_RETURN_IF_ERROR(estimates_ask(e, e->nodes[i], &fits));
    if (!fits && ++*out_count == 1 && out_first) *out_first = e->nodes[i];
  }
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
  tries->numbers[tries->count++] = number;
}

// Elements of a tensor at the estimates; 0 where there are none.
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

// Numbers near by, extents, and what makes two tensors equally large.
static void estimates_suggest(const estimates_t* e,
                              const rabbet_ir_node_t* node, int64_t now,
                              estimates_tries_t* tries) {
  const rabbet_ir_value_t* values[RABBET_MAX_RANK];
  int64_t part = 0;
  size_t count = 0;
  for (size_t i = 0; i < node->input_count + node->output_count; ++i) {
    const rabbet_ir_value_t* value =
        i < node->input_count
            ? rabbet_ir_input(&e->build->ir, node, i)
            : rabbet_ir_output(&e->build->ir, node, i - node->input_count);
    if (value && count < RABBET_MAX_RANK) values[count++] = value;
  }
  for (size_t i = 0; i < count; ++i) {
    for (size_t k = 0; k < count; ++k) {
      int64_t from = estimates_elements(e, values[i]);
      int64_t to = estimates_elements(e, values[k]);
      if (from > 0 && to > 0 && !__builtin_mul_overflow(now, to, &part))
        estimates_try(tries, part / from);
    }
    for (int32_t k = 0; k < values[i]->shape.rank; ++k)
      estimates_try(tries, e->values[values[i]->shape.d[k]]);
  }
  for (int64_t i = 1; i <= ESTIMATES_NEAR; ++i) {
    if (now <= INT64_MAX - i) estimates_try(tries, now + i);
    if (now >= INT64_MIN + i) estimates_try(tries, now - i);
  }
}

// Another estimate for the symbol, if it makes fewer layers refuse.
static rabbet_status_t estimates_improve(estimates_t* e, size_t symbol,
                                         const rabbet_ir_node_t* node,
                                         size_t* in_out_misfits) {
  estimates_tries_t tries = {.low = e->low[symbol], .high = e->high[symbol]};
  int64_t best = e->opt[symbol];
  estimates_suggest(e, node, best, &tries);
  for (size_t i = 0; i < tries.count; ++i) {
    size_t misfits = 0;
    if (*in_out_misfits == 0) break;
    e->opt[symbol] = tries.numbers[i];
    RABBET_RETURN_IF_ERROR(
        estimates_misfits(e, *in_out_misfits, &misfits, NULL));
    if (misfits >= *in_out_misfits) continue;
    *in_out_misfits = misfits;
    best = tries.numbers[i];
  }
  e->opt[symbol] = best;
  return rabbet_ok();
}

static rabbet_status_t estimates_search(estimates_t* e) {
  const rabbet_expr_graph_t* graph = e->build->ir.graph;
  for (size_t left = SIZE_MAX;;) {
    const rabbet_ir_node_t* node = NULL;
    size_t misfits = 0;
    RABBET_RETURN_IF_ERROR(estimates_misfits(e, SIZE_MAX, &misfits, &node));
    if (misfits == 0 || misfits >= left) return rabbet_ok();
    left = misfits;
    for (size_t s = 0; s < rabbet_expr_symbol_count(graph); ++s) {
      if (misfits < left || !estimates_is_told(e, s)) continue;
      RABBET_RETURN_IF_ERROR(
          rabbet_expr_evaluate(graph, e->opt, e->values, e->valid));
      RABBET_RETURN_IF_ERROR(estimates_improve(e, s, node, &misfits));
    }
  }
}

rabbet_status_t rabbet_estimates_fit(rabbet_build_t* build, const int64_t* low,
                                     const int64_t* high, int64_t* opt) {
  rabbet_arena_t* arena = &build->arena;
  size_t exprs = build->ranges.count;
  estimates_t e = {.build = build, .low = low, .high = high, .opt = opt};
  if (!memchr(build->ranges.told, true, exprs)) return rabbet_ok();
  RABBET_RETURN_IF_ERROR(rabbet_arena_allocate_array(
      arena, exprs, sizeof(*e.values), (void**)&e.values));
  RABBET_RETURN_IF_ERROR(rabbet_arena_allocate_array(
      arena, exprs, sizeof(*e.valid), (void**)&e.valid));
  RABBET_RETURN_IF_ERROR(rabbet_arena_allocate_array(
      arena, build->ir.nodes.count, sizeof(*e.nodes), (void**)&e.nodes));
  estimates_collect(&e);
  return estimates_search(&e);
}
