// Functions that the operators' rules share.
#ifndef RABBET_SRC_OPS_RULES_H_
#define RABBET_SRC_OPS_RULES_H_

#include "ops/op.h"

#define RABBET_T(name) (1u << RABBET_DTYPE_##name)
// Of operators that are not computed in DOUBLE.
#define RABBET_T_NARROW_FLOATS \
  (RABBET_T(FLOAT) | RABBET_T(HALF) | RABBET_T(BF16))
#define RABBET_T_FLOATS (RABBET_T_NARROW_FLOATS | RABBET_T(DOUBLE))
#define RABBET_T_INDICES (RABBET_T(INT32) | RABBET_T(INT64))
#define RABBET_T_INTEGERS (RABBET_T_INDICES | RABBET_T(INT8) | RABBET_T(UINT8))
#define RABBET_T_NUMBERS (RABBET_T_FLOATS | RABBET_T_INTEGERS)
// Every type whose elements are whole bytes.
#define RABBET_T_ANY \
  (RABBET_T_NUMBERS | RABBET_T(BOOL) | RABBET_T(FP8) | RABBET_T(E8M0))

#define RABBET_OP_COUNT_OF(array) (sizeof(array) / sizeof((array)[0]))

// Attributes of a rabbet_op_infer_t or a rabbet_op_eval_t.
#define RABBET_OP_INT(context, name) \
  rabbet_attr_int((context)->attrs, (context)->attr_count, (name), 0)
#define RABBET_OP_FLOAT(context, name) \
  rabbet_attr_float((context)->attrs, (context)->attr_count, (name), 0)
#define RABBET_OP_INTS(context, name, out_count) \
  rabbet_attr_ints((context)->attrs, (context)->attr_count, (name), (out_count))
#define RABBET_OP_FLOATS(context, name, out_count)                    \
  rabbet_attr_floats((context)->attrs, (context)->attr_count, (name), \
                     (out_count))

#define RABBET_OP_INVALID(...) \
  RABBET_STATUS(RABBET_STATUS_INVALID_ARGUMENT, __VA_ARGS__)

// Room for rabbet_op_shape_text.
#define RABBET_OP_TEXT 192
// "(2, 3, -1)", with -1 for dimensions that are not constant.
const char* rabbet_op_shape_text(const rabbet_op_infer_t* infer,
                                 const rabbet_shape_t* shape,
                                 char buffer[RABBET_OP_TEXT]);

// ---- Expressions -----------------------------------------------------------

static inline bool rabbet_op_is_constant(const rabbet_op_infer_t* infer,
                                         rabbet_expr_t expr,
                                         int64_t* out_value) {
  return rabbet_expr_is_constant(infer->graph, expr, out_value);
}
static inline bool rabbet_op_equals(const rabbet_op_infer_t* infer,
                                    rabbet_expr_t expr, int64_t value) {
  int64_t known = 0;
  return rabbet_op_is_constant(infer, expr, &known) && known == value;
}
// a op constant.
rabbet_status_t rabbet_op_with_constant(const rabbet_op_infer_t* infer,
                                        rabbet_expr_op_t op, rabbet_expr_t a,
                                        int64_t b, rabbet_expr_t* out_expr);
// Whether every possible value is >= 0: sums, products and quotients of symbols
// and non-negative constants.
bool rabbet_op_non_negative(const rabbet_op_infer_t* infer, rabbet_expr_t expr);

// condition * a + (1 - condition) * b; condition is 0 or 1.
rabbet_status_t rabbet_op_choose(const rabbet_op_infer_t* infer,
                                 rabbet_expr_t condition, rabbet_expr_t a,
                                 rabbet_expr_t b, rabbet_expr_t* out_value);

// ---- Sizes that a run tells ------------------------------------------------

// The symbol for the value of output `output`, a SIZE operand: between 0 and
// `upper`, estimated as `opt`. Sets the output's shape.
rabbet_status_t rabbet_op_size(const rabbet_op_infer_t* infer, size_t output,
                               rabbet_expr_t opt, rabbet_expr_t upper,
                               rabbet_expr_t* out_size);

// ---- Dimensions ------------------------------------------------------------

// The extent that a and b broadcast to: one is 1, or they are equal. If that is
// not known yet, the result is the constant one, else a RABBET_EXPR_BROADCAST
// expression, and the kernel checks at run time. *out_agree is false if they
// cannot broadcast.
rabbet_status_t rabbet_op_broadcast_dim(const rabbet_op_infer_t* infer,
                                        rabbet_expr_t a, rabbet_expr_t b,
                                        rabbet_expr_t* out_dim,
                                        bool* out_agree);
// The same for two extents that must be equal; a constant one wins.
bool rabbet_op_same_dim(const rabbet_op_infer_t* infer, rabbet_expr_t a,
                        rabbet_expr_t b, rabbet_expr_t* out_dim);
// Broadcasts inputs [first, first + count), of equal rank, into *out_shape.
rabbet_status_t rabbet_op_broadcast(const rabbet_op_infer_t* infer,
                                    size_t first, size_t count,
                                    rabbet_shape_t* out_shape);
// Output 0 has input 0's shape.
rabbet_status_t rabbet_op_same_shape(const rabbet_op_infer_t* infer);
// Input `i`, if it is present, has input `first`'s type.
rabbet_status_t rabbet_op_same_type(const rabbet_op_infer_t* infer,
                                    size_t first, size_t i);
// All inputs from `first` on that are present have input `first`'s type.
rabbet_status_t rabbet_op_same_types(const rabbet_op_infer_t* infer,
                                     size_t first);

// *axis in [-rank, rank) -> [0, rank).
rabbet_status_t rabbet_op_axis(const char* name, int64_t axis, int32_t rank,
                               int32_t* out_axis);
// A bit mask of axes: not 0, none at or past `rank`.
rabbet_status_t rabbet_op_axes_mask(const rabbet_op_infer_t* infer,
                                    int64_t mask, int32_t rank);

// Elements of a SHAPE operand as expressions; `name` is used in the error if
// they are missing.
rabbet_status_t rabbet_op_operand_values(const rabbet_op_infer_t* infer,
                                         size_t index,
                                         const rabbet_expr_t** out_values,
                                         size_t* out_count);
// Product of the shape's dimensions if it is constant, else -1.
int64_t rabbet_op_constant_count(const rabbet_op_infer_t* infer,
                                 const rabbet_shape_t* shape);
// Room for an output's values.
rabbet_status_t rabbet_op_new_values(const rabbet_op_infer_t* infer,
                                     size_t count, rabbet_expr_t** out_values);
// Whether values of this type are propagated as integer expressions. 8-bit
// types are not: their arithmetic wraps around, which expressions cannot
// represent.
static inline bool rabbet_op_follows(rabbet_dtype_t dtype) {
  return dtype == RABBET_DTYPE_INT32 || dtype == RABBET_DTYPE_INT64 ||
         dtype == RABBET_DTYPE_BOOL;
}
// Whether they are propagated as fractions.
static inline bool rabbet_op_follows_reals(rabbet_dtype_t dtype) {
  return dtype == RABBET_DTYPE_FLOAT || dtype == RABBET_DTYPE_DOUBLE;
}
// The value rule of operators with MOVES_DATA: runs the reference kernel over
// expression numbers. Does nothing if an input has no values, or if an input
// that selects elements is not constant.
rabbet_status_t rabbet_op_move_values(const rabbet_op_infer_t* infer);
// The value rule of inference: evaluates constants, propagates moved data, and
// calls operators' own rules.
rabbet_status_t rabbet_op_infer_values(const rabbet_op_infer_t* infer);

// The shape of a conditional's output: extents that are equal in both branches,
// and symbols of `tensor` for the others, bounded by `bounds`.
// RABBET_EXPR_NONE: unknown.
RABBET_PRIVATE_API rabbet_status_t
rabbet_op_join_dims(rabbet_expr_graph_t* graph, int32_t tensor,
                    const rabbet_shape_t* a, const rabbet_shape_t* b,
                    const rabbet_shape_t* bounds, rabbet_shape_t* out_shape);

#endif  // RABBET_SRC_OPS_RULES_H_
