#include "core/expr.h"

#include <assert.h>
#include <string.h>

#include "base/hash.h"
#include "base/math.h"
#include "core/expr_graph.h"

#define RABBET_EXPR_FIRST_SLOTS ((size_t)64)

rabbet_status_t rabbet_expr_graph_create(rabbet_allocator_t allocator,
                                         rabbet_expr_graph_t** out_graph) {
  *out_graph = NULL;
  rabbet_expr_graph_t* graph = NULL;
  RABBET_RETURN_IF_ERROR(
      rabbet_allocate(allocator, sizeof(*graph), (void**)&graph));
  graph->allocator = allocator;
  rabbet_arena_initialize(allocator, &graph->arena);
  rabbet_map_initialize(allocator, &graph->symbols_by_key);
  rabbet_map_initialize(allocator, &graph->symbols_by_name);
  *out_graph = graph;
  return rabbet_ok();
}

void rabbet_expr_graph_destroy(rabbet_expr_graph_t* graph) {
  if (!graph) return;
  rabbet_allocator_t allocator = graph->allocator;
  rabbet_map_deinitialize(&graph->symbols_by_key);
  rabbet_map_deinitialize(&graph->symbols_by_name);
  rabbet_vec_free(allocator, &graph->nodes);
  rabbet_vec_free(allocator, &graph->ranges);
  rabbet_vec_free(allocator, &graph->symbols);
  rabbet_vec_free(allocator, &graph->symbol_nodes);
  rabbet_free(allocator, graph->slots);
  rabbet_arena_deinitialize(&graph->arena);
  rabbet_free(allocator, graph);
}

static bool expr_exists(const rabbet_expr_graph_t* graph, rabbet_expr_t expr) {
  return expr >= 0 && (size_t)expr < graph->nodes.count;
}

size_t rabbet_expr_node_count(const rabbet_expr_graph_t* graph) {
  return graph->nodes.count;
}

const rabbet_expr_node_t* rabbet_expr_node(const rabbet_expr_graph_t* graph,
                                           rabbet_expr_t expr) {
  assert(expr_exists(graph, expr));
  return &graph->nodes.data[expr];
}

size_t rabbet_expr_symbol_count(const rabbet_expr_graph_t* graph) {
  return graph->symbols.count;
}

const rabbet_symbol_t* rabbet_expr_symbol(const rabbet_expr_graph_t* graph,
                                          size_t symbol) {
  assert(symbol < graph->symbols.count);
  return &graph->symbols.data[symbol];
}

bool rabbet_expr_is_constant(const rabbet_expr_graph_t* graph,
                             rabbet_expr_t expr, int64_t* out_value) {
  assert(expr_exists(graph, expr));
  const rabbet_expr_node_t* node = &graph->nodes.data[expr];
  if (node->op != RABBET_EXPR_CONSTANT) return false;
  if (out_value) *out_value = node->value;
  return true;
}

bool rabbet_shape_is_constant(const rabbet_expr_graph_t* graph,
                              const rabbet_shape_t* shape) {
  for (int32_t i = 0; i < shape->rank; ++i)
    if (!rabbet_expr_is_constant(graph, shape->d[i], NULL)) return false;
  return true;
}

// ---- Interning

static uint64_t expr_hash(const rabbet_expr_node_t* node) {
  uint64_t key[3] = {(uint64_t)node->op,
                     (uint64_t)(uint32_t)node->a << 32 | (uint32_t)node->b,
                     (uint64_t)node->value};
  return rabbet_hash64(key, sizeof(key));
}

static bool expr_same(const rabbet_expr_node_t* a,
                      const rabbet_expr_node_t* b) {
  return a->op == b->op && a->a == b->a && a->b == b->b && a->value == b->value;
}

// The slot that holds the node, or the empty one where it belongs.
static uint32_t* expr_slot(const rabbet_expr_graph_t* graph,
                           const rabbet_expr_node_t* node) {
  size_t mask = graph->slot_count - 1;
  assert(graph->slot_count > 0 && (graph->slot_count & mask) == 0);
  size_t slot = (size_t)expr_hash(node) & mask;
  while (graph->slots[slot] &&
         !expr_same(node, &graph->nodes.data[graph->slots[slot] - 1]))
    slot = (slot + 1) & mask;
  return &graph->slots[slot];
}

static rabbet_status_t expr_grow_slots(rabbet_expr_graph_t* graph) {
  if ((graph->nodes.count + 1) * 2 <= graph->slot_count) return rabbet_ok();
  size_t slot_count =
      graph->slot_count ? graph->slot_count * 2 : RABBET_EXPR_FIRST_SLOTS;
  uint32_t* slots = NULL;
  RABBET_RETURN_IF_ERROR(rabbet_allocate(
      graph->allocator, slot_count * sizeof(*slots), (void**)&slots));
  rabbet_free(graph->allocator, graph->slots);
  graph->slots = slots;
  graph->slot_count = slot_count;
  for (size_t i = 0; i < graph->nodes.count; ++i)
    *expr_slot(graph, &graph->nodes.data[i]) = (uint32_t)(i + 1);
  return rabbet_ok();
}

static rabbet_interval_t expr_range(const rabbet_expr_graph_t* graph,
                                    const rabbet_expr_node_t* node) {
  if (node->op == RABBET_EXPR_CONSTANT)
    return (rabbet_interval_t){node->value, node->value};
  if (node->op == RABBET_EXPR_SYMBOL) {
    bool dim = graph->symbols.data[node->a].kind == RABBET_SYMBOL_DIM;
    return (rabbet_interval_t){dim ? 0 : INT64_MIN, INT64_MAX};
  }
  assert(expr_exists(graph, node->a));
  assert(expr_exists(graph, node->b));
  return rabbet_interval_apply(node->op, graph->ranges.data[node->a],
                               graph->ranges.data[node->b]);
}

rabbet_status_t rabbet_expr_intern(rabbet_expr_graph_t* graph,
                                   rabbet_expr_node_t node,
                                   rabbet_expr_t* out_expr) {
  *out_expr = RABBET_EXPR_NONE;
  RABBET_RETURN_IF_ERROR(expr_grow_slots(graph));
  // An empty slot ends each search.
  assert(graph->nodes.count * 2 < graph->slot_count);
  uint32_t* slot = expr_slot(graph, &node);
  if (*slot) {
    *out_expr = (rabbet_expr_t)(*slot - 1);
    return rabbet_ok();
  }
  if (graph->nodes.count >= INT32_MAX)
    return RABBET_STATUS(RABBET_STATUS_OUT_OF_RANGE,
                         "more than %d dimension expressions", INT32_MAX);
  RABBET_RETURN_IF_ERROR(
      RABBET_VEC_RESERVE(graph->allocator, &graph->nodes, 1));
  RABBET_RETURN_IF_ERROR(
      RABBET_VEC_RESERVE(graph->allocator, &graph->ranges, 1));
  assert(graph->ranges.count == graph->nodes.count);
  graph->ranges.data[graph->ranges.count++] = expr_range(graph, &node);
  graph->nodes.data[graph->nodes.count++] = node;
  *slot = (uint32_t)graph->nodes.count;
  *out_expr = (rabbet_expr_t)(graph->nodes.count - 1);
  return rabbet_ok();
}

rabbet_status_t rabbet_expr_constant(rabbet_expr_graph_t* graph, int64_t value,
                                     rabbet_expr_t* out_expr) {
  return rabbet_expr_intern(graph,
                            (rabbet_expr_node_t){.op = RABBET_EXPR_CONSTANT,
                                                 .a = RABBET_EXPR_NONE,
                                                 .b = RABBET_EXPR_NONE,
                                                 .value = value},
                            out_expr);
}

// ---- Symbols

static rabbet_status_t expr_check_symbol(const rabbet_expr_graph_t* graph,
                                         const rabbet_symbol_t* symbol) {
  if (symbol->kind != RABBET_SYMBOL_DIM && symbol->kind != RABBET_SYMBOL_VALUE)
    return RABBET_STATUS(RABBET_STATUS_INVALID_ARGUMENT,
                         "%d is not a kind of symbol", (int)symbol->kind);
  rabbet_expr_t hints[2] = {symbol->opt, symbol->upper};
  for (int i = 0; i < 2; ++i) {
    if (hints[i] != RABBET_EXPR_NONE && !expr_exists(graph, hints[i]))
      return RABBET_STATUS(RABBET_STATUS_INVALID_ARGUMENT,
                           "symbol of tensor %d refers to expression %d of %zu",
                           (int)symbol->tensor, (int)hints[i],
                           graph->nodes.count);
  }
  return rabbet_ok();
}

static rabbet_status_t expr_add_symbol(rabbet_expr_graph_t* graph,
                                       const rabbet_symbol_t* symbol,
                                       rabbet_expr_t* out_expr) {
  RABBET_RETURN_IF_ERROR(
      RABBET_VEC_RESERVE(graph->allocator, &graph->symbols, 1));
  RABBET_RETURN_IF_ERROR(
      RABBET_VEC_RESERVE(graph->allocator, &graph->symbol_nodes, 1));
  rabbet_symbol_t added = *symbol;
  if (symbol->name)
    RABBET_RETURN_IF_ERROR(
        rabbet_arena_strdup(&graph->arena, symbol->name, &added.name));
  // The node's range is read from the symbol, which must stand there first.
  graph->symbols.data[graph->symbols.count] = added;
  rabbet_expr_node_t node = {.op = RABBET_EXPR_SYMBOL,
                             .a = (rabbet_expr_t)graph->symbols.count,
                             .b = RABBET_EXPR_NONE};
  RABBET_RETURN_IF_ERROR(rabbet_expr_intern(graph, node, out_expr));
  ++graph->symbols.count;
  assert(graph->symbol_nodes.count + 1 == graph->symbols.count);
  graph->symbol_nodes.data[graph->symbol_nodes.count++] = *out_expr;
  return rabbet_ok();
}

static rabbet_status_t expr_remember_symbol(rabbet_expr_graph_t* graph,
                                            const int32_t key[3],
                                            rabbet_expr_t expr) {
  assert(expr_exists(graph, expr));
  assert(graph->nodes.data[expr].op == RABBET_EXPR_SYMBOL);
  void* value = (void*)(uintptr_t)(expr + 1);
  void* copy = NULL;
  RABBET_RETURN_IF_ERROR(
      rabbet_arena_copy(&graph->arena, key, 3 * sizeof(*key), &copy));
  RABBET_RETURN_IF_ERROR(
      rabbet_map_set(&graph->symbols_by_key, copy, 3 * sizeof(*key), value));
  const char* name = graph->symbols.data[graph->nodes.data[expr].a].name;
  if (!name || rabbet_map_get_string(&graph->symbols_by_name, name))
    return rabbet_ok();
  return rabbet_map_set(&graph->symbols_by_name, name, strlen(name), value);
}

rabbet_status_t rabbet_expr_of_symbol(rabbet_expr_graph_t* graph,
                                      const rabbet_symbol_t* symbol,
                                      rabbet_expr_t* out_expr) {
  *out_expr = RABBET_EXPR_NONE;
  RABBET_RETURN_IF_ERROR(expr_check_symbol(graph, symbol));
  int32_t key[3] = {(int32_t)symbol->kind, symbol->tensor, symbol->index};
  void* found =
      rabbet_map_get(&graph->symbols_by_key, (const char*)key, sizeof(key));
  if (found) {
    *out_expr = (rabbet_expr_t)(uintptr_t)found - 1;
    return rabbet_ok();
  }
  rabbet_expr_t expr = RABBET_EXPR_NONE;
  if (symbol->name)
    expr = (rabbet_expr_t)(uintptr_t)rabbet_map_get_string(
               &graph->symbols_by_name, symbol->name) -
           1;
  if (expr == RABBET_EXPR_NONE)
    RABBET_RETURN_IF_ERROR(expr_add_symbol(graph, symbol, &expr));
  RABBET_RETURN_IF_ERROR(expr_remember_symbol(graph, key, expr));
  *out_expr = expr;
  return rabbet_ok();
}

// ---- Operations

bool rabbet_expr_fold(rabbet_expr_op_t op, int64_t a, int64_t b, int64_t* out) {
  switch (op) {
    case RABBET_EXPR_SUM:
      return rabbet_checked_add(a, b, out);
    case RABBET_EXPR_SUB:
      return rabbet_checked_sub(a, b, out);
    case RABBET_EXPR_PROD:
      return rabbet_checked_mul(a, b, out);
    case RABBET_EXPR_MAX:
      *out = rabbet_max_i64(a, b);
      return true;
    case RABBET_EXPR_MIN:
      *out = rabbet_min_i64(a, b);
      return true;
    case RABBET_EXPR_BROADCAST:
      *out = a == 1 ? b : a;
      return a == b || a == 1 || b == 1;
    case RABBET_EXPR_EQUAL:
      *out = a == b;
      return true;
    case RABBET_EXPR_LESS:
      *out = a < b;
      return true;
    case RABBET_EXPR_FLOOR_DIV:
    case RABBET_EXPR_CEIL_DIV:
      if (b == 0 || (a == INT64_MIN && b == -1)) return false;
      *out = op == RABBET_EXPR_FLOOR_DIV ? rabbet_floordiv(a, b)
                                         : rabbet_ceildiv(a, b);
      return true;
    default:
      return false;
  }
}

static const char* expr_op_text(rabbet_expr_op_t op) {
  static const char* const names[] = {"+",  "*", "max",      "min",    "-",
                                      "==", "<", "floordiv", "ceildiv"};
  assert(op == RABBET_EXPR_BROADCAST ||
         (size_t)op < sizeof(names) / sizeof(names[0]));
  return op == RABBET_EXPR_BROADCAST ? "broadcast" : names[op];
}

static rabbet_status_t expr_fold_error(rabbet_expr_op_t op, int64_t a,
                                       int64_t b) {
  if (rabbet_expr_is_division(op) && b == 0)
    return RABBET_STATUS(RABBET_STATUS_INVALID_ARGUMENT,
                         "dimension %lld is divided by 0", (long long)a);
  if (op == RABBET_EXPR_BROADCAST)
    return RABBET_STATUS(RABBET_STATUS_INVALID_ARGUMENT,
                         "extents %lld and %lld do not broadcast: they must be "
                         "equal, or one of them 1",
                         (long long)a, (long long)b);
  return RABBET_STATUS(RABBET_STATUS_OUT_OF_RANGE,
                       "dimension arithmetic overflows: %lld %s %lld",
                       (long long)a, expr_op_text(op), (long long)b);
}

static rabbet_status_t expr_check_operands(const rabbet_expr_graph_t* graph,
                                           rabbet_expr_op_t op, rabbet_expr_t a,
                                           rabbet_expr_t b) {
  if ((int)op < 0 || (op > RABBET_EXPR_CEIL_DIV && op != RABBET_EXPR_BROADCAST))
    return RABBET_STATUS(RABBET_STATUS_INVALID_ARGUMENT,
                         "%d is not an operation on dimensions", (int)op);
  if (!expr_exists(graph, a) || !expr_exists(graph, b))
    return RABBET_STATUS(RABBET_STATUS_INVALID_ARGUMENT,
                         "operation %s on dimension expressions %d and %d, of "
                         "which there are %zu",
                         expr_op_text(op), (int)a, (int)b, graph->nodes.count);
  return rabbet_ok();
}

static bool expr_commutes(rabbet_expr_op_t op) {
  return op == RABBET_EXPR_SUM || op == RABBET_EXPR_PROD ||
         op == RABBET_EXPR_MAX || op == RABBET_EXPR_MIN ||
         op == RABBET_EXPR_EQUAL || op == RABBET_EXPR_BROADCAST;
}

rabbet_status_t rabbet_expr_binary(rabbet_expr_graph_t* graph,
                                   rabbet_expr_op_t op, rabbet_expr_t a,
                                   rabbet_expr_t b, rabbet_expr_t* out_expr) {
  *out_expr = RABBET_EXPR_NONE;
  RABBET_RETURN_IF_ERROR(expr_check_operands(graph, op, a, b));
  int64_t x = 0, y = 0, folded = 0;
  bool a_constant = rabbet_expr_is_constant(graph, a, &x);
  bool b_constant = rabbet_expr_is_constant(graph, b, &y);
  if (a_constant && b_constant) {
    if (!rabbet_expr_fold(op, x, y, &folded)) return expr_fold_error(op, x, y);
    return rabbet_expr_constant(graph, folded, out_expr);
  }
  if (b_constant && y == 0 && rabbet_expr_is_division(op))
    return RABBET_STATUS(RABBET_STATUS_INVALID_ARGUMENT,
                         "a dimension expression is divided by 0");
  RABBET_RETURN_IF_ERROR(rabbet_expr_simplify(graph, op, a, b, out_expr));
  if (*out_expr != RABBET_EXPR_NONE) return rabbet_ok();
  bool swap = expr_commutes(op) && (a_constant || (!b_constant && a > b));
  rabbet_expr_node_t node = {
      .op = op, .a = swap ? b : a, .b = swap ? a : b, .value = 0};
  return rabbet_expr_intern(graph, node, out_expr);
}

rabbet_status_t rabbet_expr_append(rabbet_expr_graph_t* graph,
                                   const rabbet_expr_node_t* node,
                                   rabbet_expr_t* out_expr) {
  *out_expr = RABBET_EXPR_NONE;
  rabbet_expr_node_t added = *node;
  if (node->op == RABBET_EXPR_CONSTANT) {
    added.a = added.b = RABBET_EXPR_NONE;
  } else {
    RABBET_RETURN_IF_ERROR(
        expr_check_operands(graph, node->op, node->a, node->b));
    added.value = 0;
  }
  rabbet_expr_t next = (rabbet_expr_t)graph->nodes.count;
  rabbet_expr_t expr = RABBET_EXPR_NONE;
  RABBET_RETURN_IF_ERROR(rabbet_expr_intern(graph, added, &expr));
  if (expr != next)
    return RABBET_STATUS(RABBET_STATUS_INVALID_ARGUMENT,
                         "dimension expression %d repeats expression %d",
                         (int)next, (int)expr);
  *out_expr = expr;
  return rabbet_ok();
}

// ---- Shapes

rabbet_dims_t rabbet_shape_dims(const rabbet_expr_graph_t* graph,
                                const rabbet_shape_t* shape) {
  rabbet_dims_t dims = {.rank = shape->rank};
  assert(shape->rank >= 0 && shape->rank <= RABBET_MAX_RANK);
  for (int i = 0; i < shape->rank; ++i) {
    if (!rabbet_expr_is_constant(graph, shape->d[i], &dims.d[i]))
      dims.d[i] = -1;
  }
  return dims;
}

rabbet_status_t rabbet_shape_from_dims(rabbet_expr_graph_t* graph,
                                       const rabbet_dims_t* dims,
                                       rabbet_shape_t* out_shape) {
  *out_shape = (rabbet_shape_t){0};
  rabbet_shape_t shape = {.rank = dims->rank};
  if (dims->rank < 0 || dims->rank > RABBET_MAX_RANK)
    return RABBET_STATUS(RABBET_STATUS_INVALID_ARGUMENT,
                         "rank %d; expected 0 to %d", (int)dims->rank,
                         RABBET_MAX_RANK);
  for (int i = 0; i < dims->rank; ++i) {
    char text[192];
    if (dims->d[i] < 0)
      return RABBET_STATUS(RABBET_STATUS_INVALID_ARGUMENT,
                           "dimension %d of shape %s is not known", i,
                           rabbet_dims_print(dims, text, sizeof(text)));
    RABBET_RETURN_IF_ERROR(
        rabbet_expr_constant(graph, dims->d[i], &shape.d[i]));
  }
  *out_shape = shape;
  return rabbet_ok();
}
