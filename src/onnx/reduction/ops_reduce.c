// Reductions.
#include <string.h>

#include "onnx/dynamic_axes.h"
#include "onnx/operators.h"

typedef struct onnx_reduction_t {
  rabbet_tensor_t* x;
  uint32_t axes;
  rabbet_onnx_dynamic_axes_t dynamic_axes;  // axes that only a run knows
  bool keep_dims;
} onnx_reduction_t;

static onnx_reduction_t onnx_reduction(rabbet_onnx_node_t* node) {
  onnx_reduction_t r = {.x = rabbet_onnx_required(node, 0)};
  int rank = rabbet_onnx_rank(node, r.x);
  r.keep_dims = rabbet_onnx_attr_int(node, "keepdims", 1) != 0;
  if (rabbet_onnx_read_dynamic_axes(node, rabbet_onnx_input(node, 1), rank,
                                    &r.dynamic_axes))
    return r;
  rabbet_onnx_ints_t axes = rabbet_onnx_axes(node, 1);
  bool none = rabbet_onnx_attr_int(node, "noop_with_empty_axes", 0) != 0;
  r.axes = rabbet_onnx_axes_mask(node, axes, rank);
  if (axes.count == 0 && !none) r.axes = (1u << rank) - 1;
  return r;
}

static rabbet_tensor_t* onnx_reduce_with(rabbet_onnx_node_t* node,
                                         const char* op, onnx_reduction_t r,
                                         rabbet_tensor_t* x) {
  return r.dynamic_axes.count
             ? rabbet_onnx_dynamic_reduce(node, op, x, &r.dynamic_axes,
                                          r.keep_dims)
             : rabbet_onnx_reduce(node, op, x, r.axes, r.keep_dims);
}

// Roots and logarithms of integers are taken in FLOAT.
static rabbet_tensor_t* onnx_in_float(rabbet_onnx_node_t* node, const char* op,
                                      rabbet_tensor_t* x) {
  rabbet_dtype_t dtype = rabbet_onnx_dtype_of(node, x);
  if (rabbet_dtype_is_float(dtype)) return rabbet_onnx_unary(node, op, x);
  x = rabbet_onnx_cast(node, x, RABBET_DTYPE_FLOAT);
  return rabbet_onnx_cast(node, rabbet_onnx_unary(node, op, x), dtype);
}

// BOOL is reduced as 0 and 1. Narrow integers, which the catalogue does not
// reduce, are reduced as INT32: extremes, and results that fit the type, are
// exact.
static void onnx_import_reduce(rabbet_onnx_node_t* node) {
  onnx_reduction_t r = onnx_reduction(node);
  rabbet_dtype_t dtype = rabbet_onnx_dtype_of(node, r.x);
  bool narrow = dtype == RABBET_DTYPE_BOOL || dtype == RABBET_DTYPE_INT8 ||
                dtype == RABBET_DTYPE_UINT8;
  rabbet_tensor_t* x =
      narrow ? rabbet_onnx_cast(node, r.x, RABBET_DTYPE_INT32) : r.x;
  rabbet_tensor_t* y = onnx_reduce_with(node, node->variant, r, x);
  // The maximum of no elements is the least INT32, which is not false.
  node->outputs[0] = dtype == RABBET_DTYPE_BOOL && !strcmp(node->variant, "MAX")
                         ? rabbet_onnx_with_number(node, "GREATER", y, 0)
                         : rabbet_onnx_cast(node, y, dtype);
}

// A norm, as layers of their own: narrow floats are added up as FLOAT, since a
// sum of squares is infinite in HALF from 256 on.
static void onnx_norm(rabbet_onnx_node_t* node, bool squares, bool root) {
  onnx_reduction_t r = onnx_reduction(node);
  rabbet_dtype_t dtype = rabbet_onnx_dtype_of(node, r.x);
  bool narrow = dtype == RABBET_DTYPE_HALF || dtype == RABBET_DTYPE_BF16;
  rabbet_tensor_t* x =
      narrow ? rabbet_onnx_cast(node, r.x, RABBET_DTYPE_FLOAT) : r.x;
  x = squares ? rabbet_onnx_binary(node, "PROD", x, x)
              : rabbet_onnx_unary(node, "ABS", x);
  x = onnx_reduce_with(node, "SUM", r, x);
  if (root) x = onnx_in_float(node, "SQRT", x);
  node->outputs[0] = rabbet_onnx_cast(node, x, dtype);
}

static void onnx_import_reduce_l1(rabbet_onnx_node_t* node) {
  onnx_norm(node, false, false);
}

static void onnx_import_reduce_sum_square(rabbet_onnx_node_t* node) {
  onnx_norm(node, true, false);
}

static void onnx_import_reduce_l2(rabbet_onnx_node_t* node) {
  onnx_norm(node, true, true);
}

static void onnx_import_reduce_log_sum(rabbet_onnx_node_t* node) {
  onnx_reduction_t r = onnx_reduction(node);
  rabbet_tensor_t* sum = onnx_reduce_with(node, "SUM", r, r.x);
  node->outputs[0] = onnx_in_float(node, "LOG", sum);
}

// log(sum(exp(x - most))) + most, where `most` is the largest, or 0 if that is
// infinite (nothing to reduce, or infinities within).
static void onnx_import_reduce_log_sum_exp(rabbet_onnx_node_t* node) {
  onnx_reduction_t r = onnx_reduction(node);
  rabbet_dtype_t dtype = rabbet_onnx_dtype_of(node, r.x);
  bool is_float = rabbet_dtype_is_float(dtype);
  bool squeezes = !r.keep_dims;
  r.keep_dims = true;
  rabbet_tensor_t* x =
      is_float ? r.x : rabbet_onnx_cast(node, r.x, RABBET_DTYPE_FLOAT);
  rabbet_tensor_t* most = onnx_reduce_with(node, "MAX", r, x);
  rabbet_tensor_t* zero = rabbet_onnx_number(
      node, rabbet_onnx_dtype_of(node, x), rabbet_onnx_rank(node, x), 0);
  most = rabbet_onnx_select(node, rabbet_onnx_unary(node, "ISINF", most), zero,
                            most);
  rabbet_tensor_t* y = rabbet_onnx_binary(node, "SUB", x, most);
  y = rabbet_onnx_unary(node, "EXP", y);
  y = onnx_reduce_with(node, "SUM", r, y);
  y = rabbet_onnx_unary(node, "LOG", y);
  y = rabbet_onnx_binary(node, "SUM", y, most);
  if (squeezes)
    y = r.dynamic_axes.count
            ? rabbet_onnx_dynamic_squeeze(node, y, &r.dynamic_axes)
            : rabbet_onnx_squeeze(node, y, r.axes);
  node->outputs[0] = rabbet_onnx_cast(node, y, dtype);
}

RABBET_ONNX_OPERATORS(reduce) = {
    RABBET_ONNX_OP(ReduceL1, reduce_l1, "", 1, 11, 13, 18),
    RABBET_ONNX_OP(ReduceL2, reduce_l2, "", 1, 11, 13, 18),
    RABBET_ONNX_OP(ReduceLogSum, reduce_log_sum, "", 1, 11, 13, 18, 28),
    RABBET_ONNX_OP(ReduceLogSumExp, reduce_log_sum_exp, "", 1, 11, 13, 18, 28),
    RABBET_ONNX_OP(ReduceMax, reduce, "MAX", 1, 11, 12, 13, 18, 20),
    RABBET_ONNX_OP(ReduceMean, reduce, "AVG", 1, 11, 13, 18),
    RABBET_ONNX_OP(ReduceMin, reduce, "MIN", 1, 11, 12, 13, 18, 20),
    RABBET_ONNX_OP(ReduceProd, reduce, "PROD", 1, 11, 13, 18),
    RABBET_ONNX_OP(ReduceSum, reduce, "SUM", 1, 11, 13),
    RABBET_ONNX_OP(ReduceSumSquare, reduce_sum_square, "", 1, 11, 13, 18),
    {0},
};
