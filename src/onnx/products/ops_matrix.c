// Matrix products, determinants and softmax.
#include <string.h>

#include "onnx/compositions.h"
#include "onnx/index.h"
#include "onnx/operators.h"

// A vector on one side is a row or a column that the result does not show.
rabbet_tensor_t* rabbet_onnx_product(rabbet_onnx_node_t* node,
                                     rabbet_tensor_t* a, bool flip_a,
                                     rabbet_tensor_t* b, bool flip_b) {
  int rank_a = rabbet_onnx_rank(node, a), rank_b = rabbet_onnx_rank(node, b);
  if (rabbet_onnx_ok(node) && (rank_a == 0 || rank_b == 0)) {
    RABBET_ONNX_FAIL(node, RABBET_STATUS_INVALID_ARGUMENT,
                     "a scalar is not an operand of a matrix product");
  }
  // Both operands get the same number of batch axes.
  int batch_a = rank_a > 2 ? rank_a - 2 : 0;
  int batch_b = rank_b > 2 ? rank_b - 2 : 0;
  int batch = batch_a > batch_b ? batch_a : batch_b;
  a = rabbet_onnx_to_rank(node, a, batch + (rank_a == 1 ? 1 : 2));
  b = rabbet_onnx_to_rank(node, b, batch + (rank_b == 1 ? 1 : 2));
  const char* op_a = rank_a == 1 ? "VECTOR" : flip_a ? "TRANSPOSE" : "NONE";
  const char* op_b = rank_b == 1 ? "VECTOR" : flip_b ? "TRANSPOSE" : "NONE";
  return rabbet_onnx_matmul(node, a, op_a, b, op_b);
}

static void onnx_import_matmul(rabbet_onnx_node_t* node) {
  rabbet_tensor_t* a = rabbet_onnx_required(node, 0);
  rabbet_tensor_t* b = rabbet_onnx_required(node, 1);
  node->outputs[0] = rabbet_onnx_product(node, a, false, b, false);
}

rabbet_tensor_t* rabbet_onnx_gemm(rabbet_onnx_node_t* node) {
  rabbet_tensor_t* a = rabbet_onnx_required(node, 0);
  rabbet_tensor_t* b = rabbet_onnx_required(node, 1);
  rabbet_tensor_t* c = rabbet_onnx_input(node, 2);
  double alpha = rabbet_onnx_attr_float(node, "alpha", 1);
  double beta = rabbet_onnx_attr_float(node, "beta", 1);
  bool flip_a = rabbet_onnx_attr_int(node, "transA", 0) != 0;
  bool flip_b = rabbet_onnx_attr_int(node, "transB", 0) != 0;
  if (rabbet_onnx_ok(node) &&
      (rabbet_onnx_rank(node, a) != 2 || rabbet_onnx_rank(node, b) != 2)) {
    RABBET_ONNX_FAIL(node, RABBET_STATUS_INVALID_ARGUMENT,
                     "A and B must be matrices; their ranks are %d and %d",
                     rabbet_onnx_rank(node, a), rabbet_onnx_rank(node, b));
  }
  rabbet_tensor_t* y = rabbet_onnx_matmul(
      node, a, flip_a ? "TRANSPOSE" : "NONE", b, flip_b ? "TRANSPOSE" : "NONE");
  if (alpha != 1) y = rabbet_onnx_with_number(node, "PROD", y, alpha);
  if (c && beta != 0) {
    if (beta != 1) c = rabbet_onnx_with_number(node, "PROD", c, beta);
    y = rabbet_onnx_binary(node, "SUM", y, c);
  }
  return y;
}

static void onnx_import_gemm(rabbet_onnx_node_t* node) {
  node->outputs[0] = rabbet_onnx_gemm(node);
}

static void onnx_import_det(rabbet_onnx_node_t* node) {
  rabbet_tensor_t* x = rabbet_onnx_required(node, 0);
  node->outputs[0] = rabbet_onnx_layer(node, "determinant", &x, 1, NULL, 0);
}

// ---- Softmax ---------------------------------------------------------------

rabbet_tensor_t* rabbet_onnx_log_softmax(rabbet_onnx_node_t* node,
                                         rabbet_tensor_t* x, int axis) {
  uint32_t mask = 1u << axis;
  rabbet_tensor_t* most = rabbet_onnx_reduce(node, "MAX", x, mask, true);
  rabbet_tensor_t* less = rabbet_onnx_binary(node, "SUB", x, most);
  rabbet_tensor_t* sum = rabbet_onnx_reduce(
      node, "SUM", rabbet_onnx_unary(node, "EXP", less), mask, true);
  return rabbet_onnx_binary(node, "SUB", less,
                            rabbet_onnx_unary(node, "LOG", sum));
}

// Before opset 13 the axes from `axis` on are treated as one.
static void onnx_softmax_of(rabbet_onnx_node_t* node,
                            rabbet_tensor_t* (*apply)(rabbet_onnx_node_t*,
                                                      rabbet_tensor_t*, int)) {
  rabbet_tensor_t* x = rabbet_onnx_required(node, 0);
  rabbet_dims_t dims = rabbet_onnx_dims(node, x);
  bool flat = node->opset < 13;
  int axis = rabbet_onnx_axis(
      node, rabbet_onnx_attr_int(node, "axis", flat ? 1 : -1), dims.rank);
  bool single = true;
  for (int i = axis + 1; i < dims.rank; ++i) {
    single &= dims.d[i] == 1;
  }
  if (!rabbet_onnx_ok(node)) return;
  if (!flat || single) {
    node->outputs[0] = apply(node, x, axis);
    return;
  }
  rabbet_onnx_index_t all[RABBET_MAX_RANK], rows[RABBET_MAX_RANK];
  rabbet_onnx_index_t rest = rabbet_onnx_index(1);
  for (int i = 0; i < dims.rank; ++i) {
    all[i] = rabbet_onnx_extent(node, x, i);
    if (i < axis) rows[i] = all[i];
    if (i >= axis) rest = rabbet_onnx_index_op(node, "PROD", rest, all[i]);
  }
  rows[axis] = rest;
  rabbet_tensor_t* y = rabbet_onnx_reshape(node, x, rows, axis + 1);
  y = apply(node, y, axis);
  node->outputs[0] = rabbet_onnx_reshape(node, y, all, dims.rank);
}

static void onnx_import_softmax(rabbet_onnx_node_t* node) {
  onnx_softmax_of(node, rabbet_onnx_softmax);
}

static void onnx_import_log_softmax(rabbet_onnx_node_t* node) {
  onnx_softmax_of(node, rabbet_onnx_log_softmax);
}

// 1 at the first of the largest elements of an axis, else 0.
static rabbet_tensor_t* onnx_hardmax(rabbet_onnx_node_t* node,
                                     rabbet_tensor_t* x, int axis) {
  rabbet_dims_t dims = rabbet_onnx_dims(node, x);
  rabbet_tensor_t* best[2] = {NULL, NULL};
  if (rabbet_onnx_ok(node) && dims.d[axis] < 0)
    RABBET_ONNX_FAIL(node, RABBET_STATUS_UNSUPPORTED,
                     "the extent of axis %d must be constant", axis);
  if (!rabbet_onnx_ok(node)) return NULL;
  rabbet_attr_t attrs[] = {
      RABBET_ONNX_INT("op", rabbet_onnx_enumerator(node, "topk", "op", "MAX")),
      RABBET_ONNX_INT("axes", INT64_C(1) << axis),
      RABBET_ONNX_INT("indices_type", RABBET_DTYPE_INT64)};
  rabbet_onnx_layer_outputs(node, "topk", &x, 1, attrs, 3, best, 2);
  rabbet_dims_t along = {.rank = dims.rank};
  for (int i = 0; i < dims.rank; ++i)
    along.d[i] = i == axis ? dims.d[i] : 1;
  int64_t count = 0;
  int64_t* data =
      rabbet_onnx_weights_room(node, RABBET_DTYPE_INT64, &along, &count);
  for (int64_t i = 0; data && i < count; ++i)
    data[i] = i;
  rabbet_tensor_t* places =
      rabbet_onnx_weights(node, RABBET_DTYPE_INT64, data, &along);
  rabbet_tensor_t* y = rabbet_onnx_binary(node, "EQUAL", places, best[1]);
  return rabbet_onnx_cast(node, y, rabbet_onnx_dtype_of(node, x));
}

static void onnx_import_hardmax(rabbet_onnx_node_t* node) {
  onnx_softmax_of(node, onnx_hardmax);
}

RABBET_ONNX_OPERATORS(matrix) = {
    RABBET_ONNX_OP(Det, det, "", 11, 22),
    RABBET_ONNX_OP(Gemm, gemm, "", 1, 6, 7, 9, 11, 13),
    RABBET_ONNX_OP(Hardmax, hardmax, "", 1, 11, 13),
    RABBET_ONNX_OP(LogSoftmax, log_softmax, "", 1, 11, 13),
    RABBET_ONNX_OP(MatMul, matmul, "", 1, 9, 13),
    RABBET_ONNX_OP(Softmax, softmax, "", 1, 11, 13),
    {0},
};
