// Products of quantized tensors, composed of dequantized products, so that the
// builder finds those that kernels compute in 8 bits.
#include "onnx/compositions.h"
#include "onnx/operators.h"

// ---- Matrix products -------------------------------------------------------

static bool onnx_is_single(rabbet_onnx_node_t* node, rabbet_tensor_t* x) {
  if (!x) return true;
  rabbet_dims_t dims = rabbet_onnx_dims(node, x);
  for (int i = 0; i < dims.rank; ++i)
    if (dims.d[i] != 1) return false;
  return true;
}

static bool onnx_is_fixed(rabbet_onnx_node_t* node, rabbet_tensor_t* x) {
  rabbet_onnx_constant_t constant;
  return !x || rabbet_onnx_is_constant(node, x, &constant);
}

// Whether scale and zero point of `a` are applied after the product: only a run
// knows them, and kernels of 8 bits need constants.
static bool onnx_takes_out(rabbet_onnx_node_t* node,
                           const rabbet_onnx_quantized_t* a,
                           const rabbet_onnx_quantized_t* b) {
  bool computed =
      !onnx_is_fixed(node, a->scale) || !onnx_is_fixed(node, a->zero);
  return computed && onnx_is_single(node, a->scale) &&
         onnx_is_single(node, a->zero) && onnx_is_fixed(node, b->x) &&
         rabbet_onnx_rank(node, a->x) >= 2 && rabbet_onnx_rank(node, b->x) >= 2;
}

rabbet_tensor_t* rabbet_onnx_quantized_product(
    rabbet_onnx_node_t* node, const rabbet_onnx_quantized_t* a,
    const rabbet_onnx_quantized_t* b) {
  int rank_a = rabbet_onnx_rank(node, a->x);
  int rank_b = rabbet_onnx_rank(node, b->x);
  if (!rabbet_onnx_ok(node)) return NULL;
  int row = rank_a > 1 ? rank_a - 2 : 0, column = rank_b > 0 ? rank_b - 1 : 0;
  rabbet_tensor_t* factor =
      rabbet_onnx_dequantize(node, b->x, b->scale, b->zero, column);
  if (!onnx_takes_out(node, a, b)) {
    rabbet_tensor_t* x =
        rabbet_onnx_dequantize(node, a->x, a->scale, a->zero, row);
    return rabbet_onnx_product(node, x, false, factor, false);
  }
  // (a - zero) b = a b - zero (sum of b's columns)
  rabbet_tensor_t* x = rabbet_onnx_dequantize(node, a->x, NULL, NULL, row);
  rabbet_tensor_t* y = rabbet_onnx_product(node, x, false, factor, false);
  if (a->zero) {
    rabbet_tensor_t* sums =
        rabbet_onnx_reduce(node, "SUM", factor, 1u << (rank_b - 2), true);
    rabbet_tensor_t* zero =
        rabbet_onnx_dequantize(node, a->zero, NULL, NULL, 0);
    y = rabbet_onnx_binary(node, "SUB", y,
                           rabbet_onnx_binary(node, "PROD", sums, zero));
  }
  return a->scale ? rabbet_onnx_binary(node, "PROD", y, a->scale) : y;
}

// Sums are FLOAT on the way, which is exact below 2^24.
static void onnx_import_matmul_integer(rabbet_onnx_node_t* node) {
  const rabbet_onnx_quantized_t a = {rabbet_onnx_required(node, 0), NULL,
                                     rabbet_onnx_input(node, 2)};
  const rabbet_onnx_quantized_t b = {rabbet_onnx_required(node, 1), NULL,
                                     rabbet_onnx_input(node, 3)};
  node->outputs[0] = rabbet_onnx_cast(
      node, rabbet_onnx_quantized_product(node, &a, &b), RABBET_DTYPE_INT32);
}

static void onnx_import_quantized_matmul(rabbet_onnx_node_t* node) {
  for (size_t i = 0; i < 8; ++i)
    rabbet_onnx_required(node, i);
  if (!rabbet_onnx_ok(node)) return;
  rabbet_tensor_t* const* in = node->inputs;
  const rabbet_onnx_quantized_t a = {in[0], in[1], in[2]};
  const rabbet_onnx_quantized_t b = {in[3], in[4], in[5]};
  rabbet_tensor_t* y = rabbet_onnx_quantized_product(node, &a, &b);
  int rank = rabbet_onnx_rank(node, y);
  node->outputs[0] =
      rabbet_onnx_quantize(node, y, in[6], in[7], rank > 1 ? rank - 2 : 0,
                           rabbet_onnx_dtype_of(node, in[7]));
}

// ---- Convolutions ----------------------------------------------------------

static void onnx_import_convolution_integer(rabbet_onnx_node_t* node) {
  rabbet_tensor_t* x = rabbet_onnx_required(node, 0);
  rabbet_tensor_t* kernel = rabbet_onnx_required(node, 1);
  x = rabbet_onnx_dequantize(node, x, NULL, rabbet_onnx_input(node, 2), 0);
  kernel =
      rabbet_onnx_dequantize(node, kernel, NULL, rabbet_onnx_input(node, 3), 0);
  // Libraries may transform images (Winograd, FFT), which leaves sums a little
  // beside whole numbers.
  rabbet_tensor_t* sums = rabbet_onnx_unary(
      node, "ROUND", rabbet_onnx_convolution(node, x, kernel, NULL));
  node->outputs[0] = rabbet_onnx_cast(node, sums, RABBET_DTYPE_INT32);
}

// The scale of the bias is the product of the two scales.
static void onnx_import_quantized_convolution(rabbet_onnx_node_t* node) {
  for (size_t i = 0; i < 8; ++i)
    rabbet_onnx_required(node, i);
  if (!rabbet_onnx_ok(node)) return;
  rabbet_tensor_t* const* in = node->inputs;
  rabbet_tensor_t* bias = rabbet_onnx_input(node, 8);
  rabbet_tensor_t* x = rabbet_onnx_dequantize(node, in[0], in[1], in[2], 0);
  rabbet_tensor_t* kernel =
      rabbet_onnx_dequantize(node, in[3], in[4], in[5], 0);
  if (bias)
    bias = rabbet_onnx_dequantize(
        node, bias, rabbet_onnx_binary(node, "PROD", in[1], in[4]), NULL, 0);
  rabbet_tensor_t* y = rabbet_onnx_convolution(node, x, kernel, bias);
  node->outputs[0] = rabbet_onnx_quantize(node, y, in[6], in[7], 0,
                                          rabbet_onnx_dtype_of(node, in[7]));
}

RABBET_ONNX_OPERATORS(integer) = {
    RABBET_ONNX_OP(ConvInteger, convolution_integer, "", 10),
    RABBET_ONNX_OP(MatMulInteger, matmul_integer, "", 10),
    RABBET_ONNX_OP(QLinearConv, quantized_convolution, "", 10),
    RABBET_ONNX_OP(QLinearMatMul, quantized_matmul, "", 10, 21),
    {0},
};
