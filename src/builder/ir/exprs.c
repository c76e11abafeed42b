// Copying expressions from one graph to another.

#include <assert.h>

#include "builder/ir/ir.h"

void rabbet_ir_close_exprs(const rabbet_expr_graph_t* graph, bool* needed) {
  for (size_t i = rabbet_expr_node_count(graph); i-- > 0;) {
    if (!needed[i]) continue;
    const rabbet_expr_node_t* node = rabbet_expr_node(graph, (rabbet_expr_t)i);
    if (node->op == RABBET_EXPR_CONSTANT) continue;
    if (node->op != RABBET_EXPR_SYMBOL) {
      // Operands are before their node, so one pass from the end suffices.
      assert((size_t)node->a < i && (size_t)node->b < i);
      needed[node->a] = needed[node->b] = true;
      continue;
    }
    const rabbet_symbol_t* symbol = rabbet_expr_symbol(graph, (size_t)node->a);
    assert(symbol->opt < (rabbet_expr_t)i && symbol->upper < (rabbet_expr_t)i);
    if (symbol->opt >= 0) needed[symbol->opt] = true;
    if (symbol->upper >= 0) needed[symbol->upper] = true;
  }
}

static rabbet_status_t copy_symbol(const rabbet_expr_graph_t* source,
                                   const rabbet_expr_node_t* node,
                                   const rabbet_expr_t* map,
                                   rabbet_ir_symbol_fn_t fn, void* context,
                                   rabbet_expr_graph_t* target,
                                   rabbet_expr_t* out_expr) {
  rabbet_symbol_t symbol = *rabbet_expr_symbol(source, (size_t)node->a);
  if (symbol.opt >= 0) symbol.opt = map[symbol.opt];
  if (symbol.upper >= 0) symbol.upper = map[symbol.upper];
  assert((symbol.opt >= 0) ==
         (rabbet_expr_symbol(source, (size_t)node->a)->opt >= 0));
  return fn(context, target, &symbol, out_expr);
}

rabbet_status_t rabbet_ir_copy_exprs(const rabbet_expr_graph_t* source,
                                     const bool* needed,
                                     rabbet_ir_symbol_fn_t fn, void* context,
                                     rabbet_expr_graph_t* target,
                                     rabbet_expr_t* map) {
  for (size_t i = 0; i < rabbet_expr_node_count(source); ++i) {
    map[i] = RABBET_EXPR_NONE;
    if (needed && !needed[i]) continue;
    const rabbet_expr_node_t* node = rabbet_expr_node(source, (rabbet_expr_t)i);
    if (node->op == RABBET_EXPR_CONSTANT)
      RABBET_RETURN_IF_ERROR(
          rabbet_expr_constant(target, node->value, &map[i]));
    else if (node->op == RABBET_EXPR_SYMBOL)
      RABBET_RETURN_IF_ERROR(
          copy_symbol(source, node, map, fn, context, target, &map[i]));
    else
      RABBET_RETURN_IF_ERROR(rabbet_expr_binary(target, node->op, map[node->a],
                                                map[node->b], &map[i]));
    assert(map[i] >= 0);
  }
  return rabbet_ok();
}
