// Removes unneeded values and nodes. Values are needed if outputs depend on
// them, if the host must read them to know a shape, if assertions or debug
// tensors are in networks that they run, or if other ranks take part in making
// them: these wait for this one, also where its own network reads nothing.

#include <assert.h>

#include "builder/ir/ir.h"
#include "ops/collective/dist_collective.h"

typedef struct sweep_t {
  rabbet_ir_t* ir;
  bool* values;  // needed values
  bool* exprs;   // needed expressions
  RABBET_VEC(int32_t) pending;
} sweep_t;

static rabbet_status_t sweep_value(sweep_t* sweep, int32_t value) {
  assert(value < (int32_t)sweep->ir->values.count);
  if (value < 0 || sweep->values[value]) return rabbet_ok();
  sweep->values[value] = true;
  return RABBET_VEC_PUSH(sweep->ir->allocator, &sweep->pending, value);
}

static void sweep_exprs(sweep_t* sweep, const rabbet_ir_value_t* value) {
  for (int32_t i = 0; i < value->shape.rank; ++i)
    sweep->exprs[value->shape.d[i]] = true;
  for (size_t i = 0; value->values && i < value->value_count; ++i)
    sweep->exprs[value->values[i]] = true;
}

// Adds the values that needed symbols refer to.
static rabbet_status_t sweep_symbols(sweep_t* sweep) {
  const rabbet_expr_graph_t* graph = sweep->ir->graph;
  rabbet_ir_close_exprs(graph, sweep->exprs);
  for (size_t i = 0; i < rabbet_expr_node_count(graph); ++i) {
    const rabbet_expr_node_t* node = rabbet_expr_node(graph, (rabbet_expr_t)i);
    if (!sweep->exprs[i] || node->op != RABBET_EXPR_SYMBOL) continue;
    const rabbet_symbol_t* symbol = rabbet_expr_symbol(graph, (size_t)node->a);
    // A condition reports the extents of its outputs when it runs.
    if (symbol->kind == RABBET_SYMBOL_VALUE ||
        rabbet_ir_value(sweep->ir, symbol->tensor)->producer)
      RABBET_RETURN_IF_ERROR(sweep_value(sweep, symbol->tensor));
  }
  return rabbet_ok();
}

static rabbet_status_t sweep_values(sweep_t* sweep) {
  while (sweep->pending.count > 0) {
    int32_t id = sweep->pending.data[--sweep->pending.count];
    const rabbet_ir_value_t* value = rabbet_ir_value(sweep->ir, id);
    sweep_exprs(sweep, value);
    const rabbet_ir_node_t* node = value->producer;
    if (!node) continue;
    for (size_t i = 0; i < node->input_count; ++i)
      RABBET_RETURN_IF_ERROR(sweep_value(sweep, node->inputs[i]));
    for (size_t i = 0; i < node->output_count; ++i)
      RABBET_RETURN_IF_ERROR(sweep_value(sweep, node->outputs[i]));
  }
  return rabbet_ok();
}

static rabbet_status_t sweep_follow(sweep_t* sweep) {
  while (sweep->pending.count > 0) {
    RABBET_RETURN_IF_ERROR(sweep_values(sweep));
    RABBET_RETURN_IF_ERROR(sweep_symbols(sweep));
  }
  return rabbet_ok();
}

static void sweep_nodes(sweep_t* sweep) {
  rabbet_ir_t* ir = sweep->ir;
  size_t kept = 0;
  for (size_t i = 0; i < ir->nodes.count; ++i) {
    rabbet_ir_node_t* node = ir->nodes.data[i];
    assert(node->output_count > 0);
    // If a node is needed, all its outputs are: sweep_values adds them.
    bool needed = !node->dead && sweep->values[node->outputs[0]];
    for (size_t k = 1; needed && k < node->output_count; ++k)
      assert(sweep->values[node->outputs[k]]);
    if (!needed) {
      rabbet_ir_kill(ir, node);
      continue;
    }
    node->index = (int32_t)kept;
    ir->nodes.data[kept++] = node;
  }
  ir->nodes.count = kept;
}

// Whether a node does more than to make its outputs.
static bool sweep_has_effects(const rabbet_ir_node_t* node) {
  if (node->dead) return false;
  if (node->bodies && rabbet_bodies_are_watched(node->bodies)) return true;
  return rabbet_collective_exchanges(node->op, node->attrs);
}

rabbet_status_t rabbet_ir_sweep(rabbet_ir_t* ir) {
  sweep_t sweep = {.ir = ir};
  rabbet_status_t status = rabbet_allocate(
      ir->allocator, ir->values.count * sizeof(bool), (void**)&sweep.values);
  if (rabbet_is_ok(status))
    status = rabbet_allocate(ir->allocator,
                             rabbet_expr_node_count(ir->graph) * sizeof(bool),
                             (void**)&sweep.exprs);
  for (size_t i = 0; rabbet_is_ok(status) && i < ir->output_count; ++i)
    status = sweep_value(&sweep, ir->outputs[i]);
  for (size_t i = 0; rabbet_is_ok(status) && i < ir->input_count; ++i)
    status = sweep_value(&sweep, ir->inputs[i]);
  for (size_t i = 0; rabbet_is_ok(status) && i < ir->nodes.count; ++i)
    if (sweep_has_effects(ir->nodes.data[i]))
      status = sweep_value(&sweep, ir->nodes.data[i]->outputs[0]);
  if (rabbet_is_ok(status)) status = sweep_follow(&sweep);
  if (rabbet_is_ok(status)) sweep_nodes(&sweep);
  rabbet_free(ir->allocator, sweep.values);
  rabbet_free(ir->allocator, sweep.exprs);
  rabbet_vec_free(ir->allocator, &sweep.pending);
  assert(!rabbet_is_ok(status) || rabbet_ir_is_consistent(ir));
  return status;
}
