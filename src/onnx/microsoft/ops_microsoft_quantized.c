// Quantized operators of com.microsoft: the operators of ONNX between
// dequantized inputs and a quantized result, so that the builder treats them as
// a model with QuantizeLinear and DequantizeLinear.
#include <string.h>

#include "onnx/compositions.h"
#include "onnx/operators.h"

// ---- QLinear... ------------------------------------------------------------

// The tensor at `index` with the scale and zero point behind it.
static rabbet_tensor_t* onnx_dequantized(rabbet_onnx_node_t* node,
                                         size_t index) {
  rabbet_tensor_t* x = rabbet_onnx_required(node, index);
  rabbet_tensor_t* scale = rabbet_onnx_required(node, index + 1);
  if (!rabbet_onnx_ok(node)) return NULL;
  return rabbet_onnx_dequantize(node, x, scale,
                                rabbet_onnx_input(node, index + 2), 0);
}

// The result of the operator `name` for `count` dequantized inputs, quantized
// by the scale at `index` and the zero point behind it.
static void onnx_quantized_as(rabbet_onnx_node_t* node, const char* name,
                              int64_t opset, rabbet_tensor_t* const* inputs,
                              size_t count, size_t index) {
  rabbet_tensor_t* scale = rabbet_onnx_required(node, index);
  rabbet_tensor_t* zero = rabbet_onnx_input(node, index + 1);
  if (!rabbet_onnx_ok(node)) return;
  rabbet_dtype_t dtype =
      rabbet_onnx_dtype_of(node, zero ? zero : node->inputs[0]);
  memcpy(node->inputs, inputs, count * sizeof(*inputs));
  node->input_count = count;
  rabbet_onnx_import_as(node, name, opset);
  node->outputs[0] =
      rabbet_onnx_quantize(node, node->outputs[0], scale, zero, 0, dtype);
}

// The version of the default operator set that the model uses; some models
// have none.
static int64_t onnx_default_opset(const rabbet_onnx_node_t* node) {
  int64_t opset = rabbet_onnx_scope_opset(node->scope, "");
  return opset ? opset : RABBET_ONNX_NEWEST_OPSET;
}

static void onnx_import_quantized_unary(rabbet_onnx_node_t* node) {
  rabbet_tensor_t* x = onnx_dequantized(node, 0);
  onnx_quantized_as(node, node->variant, onnx_default_opset(node), &x, 1, 3);
}

static void onnx_import_quantized_binary(rabbet_onnx_node_t* node) {
  rabbet_tensor_t* const inputs[] = {onnx_dequantized(node, 0),
                                     onnx_dequantized(node, 3)};
  onnx_quantized_as(node, node->variant, onnx_default_opset(node), inputs, 2,
                    6);
}

// The attribute 'opset' is the version of Softmax to import.
static void onnx_import_quantized_softmax(rabbet_onnx_node_t* node) {
  rabbet_tensor_t* x = onnx_dequantized(node, 0);
  int64_t opset = rabbet_onnx_attr_int(node, "opset", 13);
  onnx_quantized_as(node, "Softmax", opset, &x, 1, 3);
}

static void onnx_import_quantized_pool(rabbet_onnx_node_t* node) {
  rabbet_tensor_t* x = onnx_dequantized(node, 0);
  int rank = rabbet_onnx_rank(node, x);
  bool last = rabbet_onnx_attr_int(node, "channels_last", 0) != 0 && rank > 2;
  int64_t to[RABBET_MAX_RANK], back[RABBET_MAX_RANK];
  for (int i = 0; i < rank; ++i) {
    to[i] = i == 0 ? 0 : i == 1 ? rank - 1 : i - 1;
    back[to[i]] = i;
  }
  if (last) x = rabbet_onnx_transpose(node, x, to);
  onnx_quantized_as(node, node->variant, onnx_default_opset(node), &x, 1, 3);
  if (last)
    node->outputs[0] = rabbet_onnx_transpose(node, node->outputs[0], back);
}

static void onnx_import_quantized_where(rabbet_onnx_node_t* node) {
  rabbet_tensor_t* const inputs[] = {rabbet_onnx_required(node, 0),
                                     onnx_dequantized(node, 1),
                                     onnx_dequantized(node, 4)};
  rabbet_tensor_t* scale = rabbet_onnx_required(node, 7);
  rabbet_tensor_t* zero = rabbet_onnx_required(node, 8);
  rabbet_tensor_t* y =
      rabbet_onnx_select(node, inputs[0], inputs[1], inputs[2]);
  node->outputs[0] = rabbet_onnx_quantize(node, y, scale, zero, 0,
                                          rabbet_onnx_dtype_of(node, zero));
}

// Scale and zero point of the result, then tensors with theirs.
static void onnx_import_quantized_concat(rabbet_onnx_node_t* node) {
  enum { OPERANDS = 2, EACH = 3 };
  size_t count = (node->input_count - OPERANDS + EACH - 1) / EACH;
  rabbet_tensor_t *scale = rabbet_onnx_required(node, 0), **parts = NULL;
  rabbet_tensor_t* zero = rabbet_onnx_required(node, 1);
  if (node->input_count <= OPERANDS)
    RABBET_ONNX_FAIL(node, RABBET_STATUS_INVALID_ARGUMENT,
                     "the node has no tensors to concatenate");
  if (!rabbet_onnx_ok(node)) return;
  rabbet_onnx_fail(node,
                   rabbet_arena_allocate_array(&node->importer->arena, count,
                                               sizeof(*parts), (void**)&parts));
  for (size_t i = 0; i < count && rabbet_onnx_ok(node); ++i)
    parts[i] = onnx_dequantized(node, OPERANDS + i * EACH);
  if (!rabbet_onnx_ok(node)) return;
  int axis = rabbet_onnx_axis(node, rabbet_onnx_attr_int(node, "axis", 0),
                              rabbet_onnx_rank(node, parts[0]));
  rabbet_tensor_t* y = rabbet_onnx_concat(node, parts, count, axis);
  node->outputs[0] = rabbet_onnx_quantize(node, y, scale, zero, 0,
                                          rabbet_onnx_dtype_of(node, zero));
}

// ---- Matrix products -------------------------------------------------------

// Casts y to the scales' type and adds the bias.
static rabbet_tensor_t* onnx_product_end(rabbet_onnx_node_t* node,
                                         rabbet_tensor_t* y,
                                         rabbet_tensor_t* scale,
                                         rabbet_tensor_t* bias) {
  y = rabbet_onnx_cast(node, y, rabbet_onnx_dtype_of(node, scale));
  return bias ? rabbet_onnx_binary(node, "SUM", y, bias) : y;
}

static rabbet_tensor_t* onnx_float_scale(rabbet_onnx_node_t* node,
                                         size_t index) {
  return rabbet_onnx_cast(node, rabbet_onnx_required(node, index),
                          RABBET_DTYPE_FLOAT);
}

static void onnx_import_dynamic_matmul(rabbet_onnx_node_t* node) {
  rabbet_tensor_t *x = rabbet_onnx_required(node, 0), *found[3];
  rabbet_onnx_dynamic_quantize(
      node, rabbet_onnx_cast(node, x, RABBET_DTYPE_FLOAT), found);
  const rabbet_onnx_quantized_t a = {found[0], found[1], found[2]};
  const rabbet_onnx_quantized_t b = {rabbet_onnx_required(node, 1),
                                     onnx_float_scale(node, 2),
                                     rabbet_onnx_input(node, 3)};
  rabbet_tensor_t* y = rabbet_onnx_quantized_product(node, &a, &b);
  node->outputs[0] = onnx_product_end(node, y, x, rabbet_onnx_input(node, 4));
}

static void onnx_import_matmul_to_float(rabbet_onnx_node_t* node) {
  const rabbet_onnx_quantized_t a = {rabbet_onnx_required(node, 0),
                                     onnx_float_scale(node, 2),
                                     rabbet_onnx_input(node, 4)};
  const rabbet_onnx_quantized_t b = {rabbet_onnx_required(node, 1),
                                     onnx_float_scale(node, 3),
                                     rabbet_onnx_input(node, 5)};
  rabbet_tensor_t* y = rabbet_onnx_quantized_product(node, &a, &b);
  node->outputs[0] = onnx_product_end(node, y, rabbet_onnx_required(node, 2),
                                      rabbet_onnx_input(node, 6));
}

// alpha (A B + C), quantized if a scale of the result is given.
static void onnx_import_quantized_gemm(rabbet_onnx_node_t* node) {
  for (size_t i = 0; i < 5; ++i)
    rabbet_onnx_required(node, i);
  if (!rabbet_onnx_ok(node)) return;
  rabbet_tensor_t* const* in = node->inputs;
  rabbet_tensor_t* c = rabbet_onnx_input(node, 6);
  rabbet_tensor_t* scale = rabbet_onnx_input(node, 7);
  rabbet_tensor_t* zero = rabbet_onnx_input(node, 8);
  bool flip_a = rabbet_onnx_attr_int(node, "transA", 0) != 0;
  bool flip_b = rabbet_onnx_attr_int(node, "transB", 0) != 0;
  double alpha = rabbet_onnx_attr_float(node, "alpha", 1);
  rabbet_tensor_t* a = rabbet_onnx_dequantize(node, in[0], in[1], in[2], 0);
  rabbet_tensor_t* b = rabbet_onnx_dequantize(
      node, in[3], in[4], rabbet_onnx_input(node, 5), flip_b ? 0 : 1);
  rabbet_tensor_t* y = rabbet_onnx_product(node, a, flip_a, b, flip_b);
  if (c) {
    rabbet_tensor_t* unit = rabbet_onnx_binary(node, "PROD", in[1], in[4]);
    c = rabbet_onnx_cast(node, c, RABBET_DTYPE_FLOAT);
    y = rabbet_onnx_binary(node, "SUM", y,
                           rabbet_onnx_binary(node, "PROD", c, unit));
  }
  if (alpha != 1) y = rabbet_onnx_with_number(node, "PROD", y, alpha);
  if (scale)
    y = rabbet_onnx_quantize(
        node, y, scale, zero, 0,
        rabbet_onnx_dtype_of(node, zero ? zero : node->inputs[0]));
  node->outputs[0] = y;
}

// ---- MatMulNBits -----------------------------------------------------------

typedef struct onnx_packed_t {
  int64_t rows, columns;  // N and K
  int64_t block, blocks;  // elements of a row with one scale; how many of them
  int64_t bits;
} onnx_packed_t;

static int64_t onnx_attr_between(rabbet_onnx_node_t* node, const char* name,
                                 int64_t fallback, int64_t least,
                                 int64_t most) {
  int64_t value = rabbet_onnx_attr_int(node, name, fallback);
  if (rabbet_onnx_ok(node) && (value < least || value > most))
    RABBET_ONNX_FAIL(node, RABBET_STATUS_INVALID_ARGUMENT,
                     "attribute '%s' is %lld; expected %lld to %lld", name,
                     (long long)value, (long long)least, (long long)most);
  return value;
}

static onnx_packed_t onnx_packed(rabbet_onnx_node_t* node) {
  onnx_packed_t p = {
      .rows = onnx_attr_between(node, "N", 0, 1, INT32_MAX),
      .columns = onnx_attr_between(node, "K", 0, 1, INT32_MAX),
      .block = onnx_attr_between(node, "block_size", 0, 16, 65536),
      .bits = onnx_attr_between(node, "bits", 4, 2, 8)};
  if (rabbet_onnx_ok(node) && p.bits != 2 && p.bits != 4 && p.bits != 8)
    RABBET_ONNX_FAIL(node, RABBET_STATUS_UNSUPPORTED,
                     "attribute 'bits' is %lld; expected 2, 4 or 8",
                     (long long)p.bits);
  if (rabbet_onnx_ok(node) && (p.block & (p.block - 1)) != 0)
    RABBET_ONNX_FAIL(node, RABBET_STATUS_INVALID_ARGUMENT,
                     "attribute 'block_size' is %lld; expected a power of two",
                     (long long)p.block);
  if (rabbet_onnx_attr_int(node, "weight_prepacked", 0) != 0)
    RABBET_ONNX_FAIL(
        node, RABBET_STATUS_UNSUPPORTED,
        "attribute 'weight_prepacked' is %lld: weights in the "
        "order of a kernel of ONNX Runtime; expected 0",
        (long long)rabbet_onnx_attr_int(node, "weight_prepacked", 0));
  if (rabbet_onnx_ok(node)) p.blocks = (p.columns + p.block - 1) / p.block;
  return p;
}

// A constant of packed numbers as UINT8 [rows, numbers]; the numbers of each
// row begin at a byte.
static rabbet_tensor_t* onnx_unpack(rabbet_onnx_node_t* node,
                                    const char* operand, rabbet_tensor_t* x,
                                    int64_t rows, int64_t numbers,
                                    int64_t bits) {
  rabbet_onnx_constant_t constant;
  int64_t stride = (numbers * bits + 7) / 8, count = 0;
  if (!rabbet_onnx_is_constant(node, x, &constant)) {
    RABBET_ONNX_FAIL(node, RABBET_STATUS_UNSUPPORTED,
                     "%s ('%s') must be a constant", operand,
                     rabbet_tensor_name(x));
    return NULL;
  }
  if (constant.weights.dtype != RABBET_DTYPE_UINT8 ||
      constant.weights.count != rows * stride) {
    RABBET_ONNX_FAIL(
        node, RABBET_STATUS_INVALID_ARGUMENT,
        "%s ('%s') has %lld elements of %s; expected %lld of "
        "UINT8, %lld for each of %lld rows",
        operand, rabbet_tensor_name(x), (long long)constant.weights.count,
        rabbet_dtype_name(constant.weights.dtype), (long long)(rows * stride),
        (long long)stride, (long long)rows);
    return NULL;
  }
  const rabbet_dims_t dims = {.rank = 2, .d = {rows, numbers}};
  uint8_t* out =
      rabbet_onnx_weights_room(node, RABBET_DTYPE_UINT8, &dims, &count);
  const uint8_t* in = constant.weights.data;
  int mask = (1 << bits) - 1;
  for (int64_t row = 0; out && row < rows; ++row)
    for (int64_t i = 0; i < numbers; ++i)
      *out++ =
          (uint8_t)(in[row * stride + i * bits / 8] >> i * bits % 8 & mask);
  if (!rabbet_onnx_ok(node)) return NULL;
  return rabbet_onnx_weights(node, RABBET_DTYPE_UINT8, out - count, &dims);
}

// x [rows, numbers] as [rows, blocks, numbers / blocks].
static rabbet_tensor_t* onnx_in_blocks(rabbet_onnx_node_t* node,
                                       rabbet_tensor_t* x,
                                       const onnx_packed_t* p, int64_t each) {
  const rabbet_onnx_index_t dims[] = {rabbet_onnx_index(p->rows),
                                      rabbet_onnx_index(p->blocks),
                                      rabbet_onnx_index(each)};
  return rabbet_onnx_reshape(node, x, dims, 3);
}

// The weights [N, K] in FLOAT. Zero points are packed as they are, or
// numbers of the scales' type.
static rabbet_tensor_t* onnx_unpacked_weights(rabbet_onnx_node_t* node,
                                              const onnx_packed_t* p) {
  rabbet_tensor_t* x = onnx_unpack(node, "B", rabbet_onnx_required(node, 1),
                                   p->rows, p->blocks * p->block, p->bits);
  rabbet_tensor_t* scale = onnx_float_scale(node, 2);
  rabbet_tensor_t* zero = rabbet_onnx_input(node, 3);
  if (!rabbet_onnx_ok(node)) return NULL;
  x = onnx_in_blocks(node, x, p, p->block);
  scale = onnx_in_blocks(node, scale, p, 1);
  bool real = zero && rabbet_onnx_is_float(node, zero);
  if (zero && !real)
    zero = onnx_unpack(node, "zero_points", zero, p->rows, p->blocks, p->bits);
  if (zero) zero = onnx_in_blocks(node, zero, p, 1);
  const rabbet_onnx_index_t blocks[] = {rabbet_onnx_index(p->rows),
                                        rabbet_onnx_index(p->blocks),
                                        rabbet_onnx_index(1)};
  if (!zero)
    zero = rabbet_onnx_spread(
        node,
        rabbet_onnx_number(node, RABBET_DTYPE_UINT8, 3, 1 << (p->bits - 1)),
        blocks, 3);
  x = rabbet_onnx_dequantize(node, x, scale, real ? NULL : zero, 0);
  if (real) {
    zero = rabbet_onnx_cast(node, zero, RABBET_DTYPE_FLOAT);
    x = rabbet_onnx_binary(node, "SUB", x,
                           rabbet_onnx_binary(node, "PROD", zero, scale));
  }
  const rabbet_onnx_index_t rows[] = {rabbet_onnx_index(p->rows),
                                      rabbet_onnx_index(p->blocks * p->block)};
  x = rabbet_onnx_reshape(node, x, rows, 2);
  rabbet_onnx_slice_t slice = rabbet_onnx_slice_all(node, x);
  slice.size[1] = rabbet_onnx_index(p->columns);
  return p->columns == p->blocks * p->block
             ? x
             : rabbet_onnx_slice(node, x, &slice);
}

static void onnx_import_matmul_bits(rabbet_onnx_node_t* node) {
  rabbet_tensor_t* x = rabbet_onnx_required(node, 0);
  rabbet_tensor_t* bias = rabbet_onnx_input(node, 5);
  onnx_packed_t p = onnx_packed(node);
  if (rabbet_onnx_input(node, 4))
    RABBET_ONNX_FAIL(node, RABBET_STATUS_UNSUPPORTED,
                     "input 4 (g_idx) is given; expected rows in the order of "
                     "their blocks, without it");
  if (!rabbet_onnx_ok(node)) return;
  rabbet_tensor_t* weights = onnx_unpacked_weights(node, &p);
  weights = rabbet_onnx_cast(node, weights, rabbet_onnx_dtype_of(node, x));
  rabbet_tensor_t* y = rabbet_onnx_product(node, x, false, weights, true);
  node->outputs[0] = bias ? rabbet_onnx_binary(node, "SUM", y, bias) : y;
}

RABBET_ONNX_OPERATORS(microsoft_quantized) = {
    RABBET_ONNX_RUNTIME_OP("com.microsoft", DynamicQuantizeMatMul,
                           dynamic_matmul, ""),
    RABBET_ONNX_RUNTIME_OP("com.microsoft", MatMulIntegerToFloat,
                           matmul_to_float, ""),
    RABBET_ONNX_RUNTIME_OP("com.microsoft", MatMulNBits, matmul_bits, ""),
    RABBET_ONNX_RUNTIME_OP("com.microsoft", QGemm, quantized_gemm, ""),
    RABBET_ONNX_RUNTIME_OP("com.microsoft", QLinearAdd, quantized_binary,
                           "Add"),
    RABBET_ONNX_RUNTIME_OP("com.microsoft", QLinearAveragePool, quantized_pool,
                           "AveragePool"),
    RABBET_ONNX_RUNTIME_OP("com.microsoft", QLinearConcat, quantized_concat,
                           ""),
    RABBET_ONNX_RUNTIME_OP("com.microsoft", QLinearGlobalAveragePool,
                           quantized_pool, "GlobalAveragePool"),
    RABBET_ONNX_RUNTIME_OP("com.microsoft", QLinearLeakyRelu, quantized_unary,
                           "LeakyRelu"),
    RABBET_ONNX_RUNTIME_OP("com.microsoft", QLinearMul, quantized_binary,
                           "Mul"),
    RABBET_ONNX_RUNTIME_OP("com.microsoft", QLinearSigmoid, quantized_unary,
                           "Sigmoid"),
    RABBET_ONNX_RUNTIME_OP("com.microsoft", QLinearSoftmax, quantized_softmax,
                           ""),
    RABBET_ONNX_RUNTIME_OP("com.microsoft", QLinearWhere, quantized_where, ""),
    {0},
};
