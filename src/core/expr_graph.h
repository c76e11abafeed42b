// The inside of an expression graph, for the files expr*.c alone.
#ifndef RABBET_SRC_CORE_EXPR_GRAPH_H_
#define RABBET_SRC_CORE_EXPR_GRAPH_H_

#include "base/arena.h"
#include "base/map.h"
#include "base/vec.h"
#include "core/expr.h"

typedef struct rabbet_interval_t {
  int64_t low, high;
} rabbet_interval_t;

// nodes, ranges: same count. symbols, symbol_nodes: same count.
struct rabbet_expr_graph_t {
  rabbet_allocator_t allocator;
  rabbet_arena_t arena;  // names and keys of symbols
  RABBET_VEC(rabbet_expr_node_t) nodes;
  // The interval of each node's value for any values of the symbols: dimensions
  // are not negative.
  RABBET_VEC(rabbet_interval_t) ranges;
  RABBET_VEC(rabbet_symbol_t) symbols;
  RABBET_VEC(rabbet_expr_t) symbol_nodes;
  rabbet_map_t symbols_by_key;  // to a node's number + 1, as a pointer
  rabbet_map_t symbols_by_name;
  uint32_t* slots;  // 0, or 1 + the number of a node; at most half are taken
  size_t slot_count;
};

// The node with these contents, added unless it is there.
rabbet_status_t rabbet_expr_intern(rabbet_expr_graph_t* graph,
                                   rabbet_expr_node_t node,
                                   rabbet_expr_t* out_expr);

static inline bool rabbet_expr_is_division(rabbet_expr_op_t op) {
  return op == RABBET_EXPR_FLOOR_DIV || op == RABBET_EXPR_CEIL_DIV;
}

// False when the operation divides by 0 or overflows.
bool rabbet_expr_fold(rabbet_expr_op_t op, int64_t a, int64_t b, int64_t* out);

// Every value that the operation can have on values of two intervals.
rabbet_interval_t rabbet_interval_apply(rabbet_expr_op_t op,
                                        rabbet_interval_t a,
                                        rabbet_interval_t b);

// A simpler expression equal to `a op b`, or NONE if none is found. a and b are
// not both constants.
rabbet_status_t rabbet_expr_simplify(rabbet_expr_graph_t* graph,
                                     rabbet_expr_op_t op, rabbet_expr_t a,
                                     rabbet_expr_t b, rabbet_expr_t* out_expr);

#endif  // RABBET_SRC_CORE_EXPR_GRAPH_H_
