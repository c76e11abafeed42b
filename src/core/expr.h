// Symbolic dimensions: interned nodes over a few symbols.
//
// A graph belongs to one network (or plan). Nodes are numbered from 0 in an
// order in which operands come before their users; equal expressions have
// equal numbers, so that `a == b` means provably equal. Not thread-safe while
// nodes are added.
#ifndef RABBET_SRC_CORE_EXPR_H_
#define RABBET_SRC_CORE_EXPR_H_

#include "rabbet/allocator.h"
#include "rabbet/types.h"

typedef int32_t rabbet_expr_t;
#define RABBET_EXPR_NONE ((rabbet_expr_t)-1)

// Numbers are stable (plan files); the first nine are those of TensorRT's
// DimensionOperation.
typedef enum rabbet_expr_op_t {
  RABBET_EXPR_SUM = 0,
  RABBET_EXPR_PROD = 1,
  RABBET_EXPR_MAX = 2,
  RABBET_EXPR_MIN = 3,
  RABBET_EXPR_SUB = 4,
  RABBET_EXPR_EQUAL = 5,  // 1 or 0
  RABBET_EXPR_LESS = 6,   // 1 or 0
  RABBET_EXPR_FLOOR_DIV = 7,
  RABBET_EXPR_CEIL_DIV = 8,
  RABBET_EXPR_CONSTANT = 9,
  RABBET_EXPR_SYMBOL = 10,
  // The extent that two extents broadcast to: they are equal, or one is 1 and
  // the other is the result. Otherwise there is no value.
  RABBET_EXPR_BROADCAST = 11,
} rabbet_expr_op_t;

// The number that a symbol stands for. `tensor` is a tensor number of the
// network, later of the plan.
typedef enum rabbet_symbol_kind_t {
  RABBET_SYMBOL_DIM = 0,    // dimension `index` of a network input
  RABBET_SYMBOL_VALUE = 1,  // element `index` of an integer tensor that the
                            // host reads: a shape input, a size tensor, or any
                            // value that no expression describes
} rabbet_symbol_kind_t;

typedef struct rabbet_symbol_t {
  rabbet_symbol_kind_t kind;
  int32_t tensor;
  int32_t index;
  const char* name;  // dimension name or NULL; inputs that share one share the
                     // symbol
  // For data-dependent values (size tensors): estimate and upper bound. NONE
  // for dimensions and shape inputs, whose range a profile gives.
  rabbet_expr_t opt;
  rabbet_expr_t upper;
} rabbet_symbol_t;

typedef struct rabbet_expr_node_t {
  rabbet_expr_op_t op;
  rabbet_expr_t a, b;  // operands; for SYMBOL a is the symbol's number
  int64_t value;       // CONSTANT
} rabbet_expr_node_t;

typedef struct rabbet_expr_graph_t rabbet_expr_graph_t;

RABBET_PRIVATE_API rabbet_status_t rabbet_expr_graph_create(
    rabbet_allocator_t allocator, rabbet_expr_graph_t** out_graph);
RABBET_PRIVATE_API void rabbet_expr_graph_destroy(rabbet_expr_graph_t* graph);

RABBET_PRIVATE_API size_t
rabbet_expr_node_count(const rabbet_expr_graph_t* graph);
RABBET_PRIVATE_API const rabbet_expr_node_t* rabbet_expr_node(
    const rabbet_expr_graph_t* graph, rabbet_expr_t expr);
RABBET_PRIVATE_API size_t
rabbet_expr_symbol_count(const rabbet_expr_graph_t* graph);
RABBET_PRIVATE_API const rabbet_symbol_t* rabbet_expr_symbol(
    const rabbet_expr_graph_t* graph, size_t symbol);

RABBET_PRIVATE_API rabbet_status_t rabbet_expr_constant(
    rabbet_expr_graph_t* graph, int64_t value, rabbet_expr_t* out_expr);
// The node of a symbol; the same (kind, tensor, index) or the same name gives
// the same node. Copies the name.
RABBET_PRIVATE_API rabbet_status_t
rabbet_expr_of_symbol(rabbet_expr_graph_t* graph, const rabbet_symbol_t* symbol,
                      rabbet_expr_t* out_expr);
// Simplified, so that equal expressions get one number: sums of products with
// constants gathered, common factors of a division cancelled, floor((x+5)/4)
// as floor((x+1)/4)+1, ceildiv by a constant as floordiv, comparisons decided
// where dimensions being >= 0 decides them. Equal means equal wherever both
// have a value: x/x is 1. INVALID_ARGUMENT for division by a constant 0,
// OUT_OF_RANGE when constants overflow.
RABBET_PRIVATE_API rabbet_status_t
rabbet_expr_binary(rabbet_expr_graph_t* graph, rabbet_expr_op_t op,
                   rabbet_expr_t a, rabbet_expr_t b, rabbet_expr_t* out_expr);

// Adds a node (no SYMBOL) as it is, for a plan's reader, whose numbers must
// stay: *out_expr is the next number. INVALID_ARGUMENT for an operation or
// operands that do not exist, or when an equal node is there already.
RABBET_PRIVATE_API rabbet_status_t
rabbet_expr_append(rabbet_expr_graph_t* graph, const rabbet_expr_node_t* node,
                   rabbet_expr_t* out_expr);

RABBET_PRIVATE_API bool rabbet_expr_is_constant(
    const rabbet_expr_graph_t* graph, rabbet_expr_t expr, int64_t* out_value);

// Evaluates every node, in order, into values[0 .. node_count). symbols[i] is
// the value of symbol i. A node that divides by 0, overflows or does not
// broadcast gets no value: valid[n] (may be NULL if the caller wants an error
// instead) is set to false for it and for its users.
RABBET_PRIVATE_API rabbet_status_t
rabbet_expr_evaluate(const rabbet_expr_graph_t* graph, const int64_t* symbols,
                     int64_t* values, bool* valid);
// One node, whose operands have been evaluated; false if it has no value.
RABBET_PRIVATE_API bool rabbet_expr_evaluate_node(
    const rabbet_expr_graph_t* graph, rabbet_expr_t expr,
    const int64_t* symbols, int64_t* values, const bool* valid);
// Like evaluate, for each symbol in an interval: interval arithmetic, so that
// the result contains every value that can occur. Saturates.
RABBET_PRIVATE_API rabbet_status_t
rabbet_expr_bounds(const rabbet_expr_graph_t* graph, const int64_t* symbol_low,
                   const int64_t* symbol_high, int64_t* low, int64_t* high);

// "floordiv((batch + 2), 4)"; symbols by name, "tensor3.dim1", "tensor3[0]".
// A very long text ends in "...".
RABBET_PRIVATE_API rabbet_status_t
rabbet_expr_print(const rabbet_expr_graph_t* graph, rabbet_expr_t expr,
                  rabbet_allocator_t allocator, char** out_text);

// A tensor's shape as expressions.
typedef struct rabbet_shape_t {
  int32_t rank;
  rabbet_expr_t d[RABBET_MAX_RANK];
} rabbet_shape_t;

// Whether all dimensions are constants.
RABBET_PRIVATE_API bool rabbet_shape_is_constant(
    const rabbet_expr_graph_t* graph, const rabbet_shape_t* shape);
// Dims, with -1 for dimensions that are not constant.
RABBET_PRIVATE_API rabbet_dims_t rabbet_shape_dims(
    const rabbet_expr_graph_t* graph, const rabbet_shape_t* shape);
RABBET_PRIVATE_API rabbet_status_t
rabbet_shape_from_dims(rabbet_expr_graph_t* graph, const rabbet_dims_t* dims,
                       rabbet_shape_t* out_shape);

#endif  // RABBET_SRC_CORE_EXPR_H_
