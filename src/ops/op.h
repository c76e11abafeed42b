// The operator catalogue: the only description of each operator.
//
// docs/adding_an_operator.md lists the files that an operator needs.
#ifndef RABBET_SRC_OPS_OP_H_
#define RABBET_SRC_OPS_OP_H_

#include "core/attr_set.h"
#include "core/expr.h"
#include "core/view.h"

typedef struct rabbet_op_t rabbet_op_t;

// ---- Descriptors -----------------------------------------------------------

// One value of an enumeration attribute; lists end with {NULL, 0}. Numbers are
// those of TensorRT's enums of the same name.
typedef struct rabbet_op_enumerator_t {
  const char* name;  // "RELU"
  int64_t value;
} rabbet_op_enumerator_t;

typedef struct rabbet_op_attr_t {
  const char* name;         // TensorRT's property name: "stride_nd"
  rabbet_attr_type_t type;  // INT, FLOAT, BOOL, STRING, INTS, FLOATS, TENSOR
  bool required;
  // Default of INT and BOOL. Lists default to empty, which some operators read
  // as this value for each spatial axis.
  int64_t default_int;
  double default_float;
  const rabbet_op_enumerator_t* enumerators;  // NULL: any integer
} rabbet_op_attr_t;

enum {
  RABBET_OPERAND_OPTIONAL = 1 << 0,
  RABBET_OPERAND_VARIADIC = 1 << 1,  // last one only: one or more
  // The operator needs the values, not just the shape, to know its output's
  // shape: they become expressions where possible, else the host reads them.
  RABBET_OPERAND_SHAPE = 1 << 2,
  // Says which elements are moved; is not moved itself (indices, conditions).
  RABBET_OPERAND_INDEX = 1 << 3,
  // Output: a data-dependent size, one INT32 or INT64 number of rank 0 that
  // determines extents of the operator's outputs (rabbet_op_size). The host
  // reads it.
  RABBET_OPERAND_SIZE = 1 << 4,
  // Output: hidden from the layer's users. Hidden outputs come last.
  RABBET_OPERAND_HIDDEN = 1 << 5,
};
typedef struct rabbet_op_operand_t {
  const char* name;
  uint32_t flags;
  uint32_t dtypes;  // bit 1 << dtype for each type that is allowed
} rabbet_op_operand_t;

enum {
  // One output element depends on the same element of each (broadcast) input;
  // the devices may fuse chains of these.
  RABBET_OP_POINTWISE = 1 << 0,
  // Copies elements without interpreting them (except those of SHAPE and INDEX
  // operands). It works for every type, and its reference kernel may be run
  // over expression numbers to propagate shape values. New elements are all
  // zero bits.
  RABBET_OP_MOVES_DATA = 1 << 1,
  RABBET_OP_NO_FOLD = 1 << 2,  // never evaluated at build
  // Constants are folded late, by the builder only, once it knows the readers
  // of the result: they may prefer the unfolded form.
  RABBET_OP_FOLD_LATE = 1 << 3,
  // Describes the structure of other layers. The builder removes it before
  // choosing kernels; it has no reference kernel.
  RABBET_OP_STRUCTURE = 1 << 4,
};

// ---- Inference -------------------------------------------------------------

// A tensor during inference.
typedef struct rabbet_op_value_t {
  bool present;  // false: omitted optional input
  rabbet_dtype_t dtype;
  rabbet_shape_t shape;
  const void* constant;         // row-major host data, or NULL
  const rabbet_expr_t* values;  // elements as expressions, or NULL
  size_t value_count;
  // FLOAT and DOUBLE: element i is values[i] / denominators[i]. NULL: all
  // are 1.
  const rabbet_expr_t* denominators;
} rabbet_op_value_t;

typedef struct rabbet_op_infer_t {
  const rabbet_op_t* op;
  rabbet_expr_graph_t* graph;
  rabbet_arena_t* arena;  // for values; lives as long as the results
  const rabbet_attr_t* attrs;
  size_t attr_count;
  const rabbet_op_value_t* inputs;
  size_t input_count;
  // Zeroed on entry but for dtype: the type that a weakly typed network asks
  // for, or NONE.
  rabbet_op_value_t* outputs;
  size_t output_count;
  // Tensor numbers of the outputs for symbols of `graph`; -1: none. If NULL,
  // operators with SIZE outputs cannot be inferred.
  const int32_t* output_tensors;
  // Set to true if `graph` already has the symbol of a SIZE output with a bound
  // other than the rule's. May be NULL.
  bool* out_bound_differs;
  bool strongly_typed;
} rabbet_op_infer_t;

// ---- Evaluation (the reference kernel) -------------------------------------

// All views are LINEAR in host memory; absent inputs have dtype NONE. Outputs
// are allocated with the inferred shape.
//
// Operators with SIZE outputs: a data-dependent extent may be -1. The memory
// then suffices for the upper bound, and elements are contiguous for the
// computed size. If outputs[0].data is NULL, only sizes are computed.
typedef struct rabbet_op_eval_t {
  const rabbet_op_t* op;
  rabbet_allocator_t allocator;  // for scratch
  const rabbet_attr_t* attrs;
  size_t attr_count;
  const rabbet_view_t* inputs;
  size_t input_count;
  const rabbet_view_t* outputs;
  size_t output_count;
} rabbet_op_eval_t;

struct rabbet_op_t {
  const char* name;        // "convolution"
  const char* layer_type;  // TensorRT's LayerType name: "CONVOLUTION"
  uint32_t flags;
  const rabbet_op_operand_t* inputs;
  size_t input_count;
  const rabbet_op_operand_t* outputs;
  size_t output_count;
  const rabbet_op_attr_t* attrs;
  size_t attr_count;
  // Sets outputs[i].dtype from inputs' presence and types, and attributes; the
  // rest of `infer` may be missing. NULL: that of input 0.
  rabbet_status_t (*infer_types)(const rabbet_op_infer_t* infer);
  // Sets outputs[i].shape; checks attributes and ranks. Types are known.
  rabbet_status_t (*infer_shapes)(const rabbet_op_infer_t* infer);
  // Sets outputs[i].values where inputs' values allow. NULL: for MOVES_DATA the
  // reference kernel is run over expression numbers; for others no values. Not
  // called when all inputs are small constants: then the reference kernel runs.
  rabbet_status_t (*infer_values)(const rabbet_op_infer_t* infer);
  // Simple and exact rather than fast; FP16 and BF16 are computed in FP32 or
  // better and rounded once. NULL for plugin layers and STRUCTURE.
  rabbet_status_t (*reference)(const rabbet_op_eval_t* eval);
  // Number of elements that the reference kernel visits (ops/cost.h). NULL:
  // about one visit for each input and output element.
  double (*cost)(const rabbet_op_eval_t* eval);
};

// ---- The catalogue ---------------------------------------------------------

typedef enum rabbet_op_id_t {
#define RABBET_OP(id, ...) RABBET_OP_##id,
#include "ops/ops.def"
  RABBET_OP_COUNT,
} rabbet_op_id_t;

RABBET_PRIVATE_API const rabbet_op_t* rabbet_op_get(rabbet_op_id_t id);
// NULL if there is none of that name.
RABBET_PRIVATE_API const rabbet_op_t* rabbet_op_find(const char* name);
RABBET_PRIVATE_API rabbet_op_id_t rabbet_op_id(const rabbet_op_t* op);
// Compare descriptors by address: op == rabbet_op_get(RABBET_OP_CONVOLUTION).
static inline bool rabbet_op_is(const rabbet_op_t* op, rabbet_op_id_t id) {
  return op == rabbet_op_get(id);
}

// Whether it has outputs with data-dependent extents.
RABBET_PRIVATE_API bool rabbet_op_makes_sizes(const rabbet_op_t* op);
// Number of outputs that are not hidden.
RABBET_PRIVATE_API size_t rabbet_op_shown_outputs(const rabbet_op_t* op);

// Maximum number of elements of a tensor whose values are expressions.
#define RABBET_OP_MAX_VALUES 256

// Checks inputs (count, presence, types) and attributes against the descriptor,
// then runs type, shape and value rules. Errors name operand and attribute.
RABBET_PRIVATE_API rabbet_status_t
rabbet_op_infer(const rabbet_op_infer_t* infer);
// The first half of it: checks the inputs and sets the outputs' types.
RABBET_PRIVATE_API rabbet_status_t
rabbet_op_infer_types(const rabbet_op_infer_t* infer);
// The input operand that describes input `index` (the last one repeats when it
// is variadic); NULL out of range.
RABBET_PRIVATE_API const rabbet_op_operand_t* rabbet_op_input(
    const rabbet_op_t* op, size_t index);
// Fewest and most inputs; omitted optional ones before a present one count.
RABBET_PRIVATE_API size_t rabbet_op_min_inputs(const rabbet_op_t* op);
RABBET_PRIVATE_API size_t rabbet_op_max_inputs(const rabbet_op_t* op);
// Sets value->values from value->constant for INT32, INT64 and BOOL tensors of
// at most RABBET_OP_MAX_VALUES elements; leaves others alone.
RABBET_PRIVATE_API rabbet_status_t
rabbet_op_values_of_constant(rabbet_expr_graph_t* graph, rabbet_arena_t* arena,
                             rabbet_op_value_t* value);

// Whether the output has values (expressions) if all inputs have them and the
// first one is of type `dtype`. `attrs` are complete.
RABBET_PRIVATE_API bool rabbet_op_passes_values(const rabbet_op_t* op,
                                                const rabbet_attr_t* attrs,
                                                rabbet_dtype_t dtype);

// Whether input `index` selects the elements that the operator moves. Values
// are propagated only if this input is constant.
RABBET_PRIVATE_API bool rabbet_op_steers(const rabbet_op_t* op, size_t index);

// Name of an enumeration attribute's value; NULL if there is none.
RABBET_PRIVATE_API const char* rabbet_op_enumerator_name(
    const rabbet_op_attr_t* attr, int64_t value);
// Converts one attribute to the descriptor's type (an int where a float or a
// list is asked for, a name where an enumerator is) into the arena.
// *out_index is its place in the descriptor's order.
RABBET_PRIVATE_API rabbet_status_t rabbet_op_complete_attr(
    const rabbet_op_t* op, const rabbet_attr_t* given, rabbet_arena_t* arena,
    size_t* out_index, rabbet_attr_t* out_attr);
// Fills `out_attrs` (op->attr_count long) from `given` in the descriptor's
// order, with defaults for the rest; unknown names, wrong types and unknown
// enumerators are errors that list what exists. Copies into the arena.
RABBET_PRIVATE_API rabbet_status_t rabbet_op_complete_attrs(
    const rabbet_op_t* op, const rabbet_attr_t* given, size_t given_count,
    rabbet_arena_t* arena, rabbet_attr_t* out_attrs);

#endif  // RABBET_SRC_OPS_OP_H_
