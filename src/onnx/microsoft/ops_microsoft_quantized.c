// Quantized operators of com.microsoft: the operators of ONNX between
// dequantized inputs and a quantized result, so that the builder treats them as
// a model with QuantizeLinear and DequantizeLinear.
#include <string.h>

#include "core/view.h"
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

// ---- DynamicQuantizeLSTM ---------------------------------------------------

// Numbers for directions, or for columns of directions, as [directions, 1,
// columns or 1].
static rabbet_tensor_t* onnx_by_direction(rabbet_onnx_node_t* node,
                                          size_t index) {
  rabbet_tensor_t* x = rabbet_onnx_cast(node, rabbet_onnx_required(node, index),
                                        RABBET_DTYPE_FLOAT);
  int rank = rabbet_onnx_rank(node, x);
  if (!rabbet_onnx_ok(node)) return NULL;
  return rank == 1 ? rabbet_onnx_unsqueeze(node, x, 6, 3)
                   : rabbet_onnx_unsqueeze(node, x, 2, 3);
}

// The weights [directions, inputs, columns] as LSTM has them, [directions,
// columns, inputs]; `scale` and the input behind it are those of the weights.
static rabbet_tensor_t* onnx_lstm_weights(rabbet_onnx_node_t* node,
                                          size_t index, size_t scale) {
  static const int64_t order[] = {0, 2, 1};
  rabbet_tensor_t* x = rabbet_onnx_cast(node, rabbet_onnx_required(node, index),
                                        RABBET_DTYPE_FLOAT);
  rabbet_onnx_check_rank(node, index == 1 ? "W" : "R", x, 3);
  x = rabbet_onnx_binary(node, "SUB", x, onnx_by_direction(node, scale + 1));
  x = rabbet_onnx_binary(node, "PROD", x, onnx_by_direction(node, scale));
  return rabbet_onnx_transpose(node, x, order);
}

// ONNX Runtime quantizes the inputs and the hidden state of each step, too.
static void onnx_import_dynamic_lstm(rabbet_onnx_node_t* node) {
  rabbet_tensor_t* w = onnx_lstm_weights(node, 1, 8);
  rabbet_tensor_t* r = onnx_lstm_weights(node, 2, 10);
  if (!rabbet_onnx_ok(node)) return;
  node->inputs[1] = w;
  node->inputs[2] = r;
  node->input_count = 8;
  rabbet_onnx_import_as(node, "LSTM", 7);
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

// `count` numbers of a row as INT4 or INT8, less the middle of their range.
static void onnx_unpack_row(const uint8_t* in, int64_t count, int64_t bits,
                            rabbet_dtype_t dtype, uint8_t* out, int64_t at) {
  int mask = (1 << bits) - 1, middle = 1 << (bits - 1);
  if (bits == 4 && at % 2 == 0 && count % 2 == 0) {
    for (int64_t i = 0; i < count / 2; ++i)
      out[at / 2 + i] = in[i] ^ 0x88;
    return;
  }
  for (int64_t i = 0; i < count; ++i)
    rabbet_store_int64(dtype, out, at + i,
                       (in[i * bits / 8] >> i * bits % 8 & mask) - middle);
}

// The first `kept` of `numbers` numbers in each row of a constant, as [rows,
// kept] of INT4, or of INT8 for 8 bits; rows begin at a byte.
static rabbet_tensor_t* onnx_unpack(rabbet_onnx_node_t* node,
                                    const char* operand, rabbet_tensor_t* x,
                                    const onnx_packed_t* p, int64_t numbers,
                                    int64_t kept) {
  rabbet_onnx_constant_t constant;
  int64_t stride = (numbers * p->bits + 7) / 8, count = 0;
  if (!rabbet_onnx_is_constant(node, x, &constant)) {
    RABBET_ONNX_FAIL(node, RABBET_STATUS_UNSUPPORTED,
                     "%s ('%s') must be a constant", operand,
                     rabbet_tensor_name(x));
    return NULL;
  }
  if (constant.weights.dtype != RABBET_DTYPE_UINT8 ||
      constant.weights.count != p->rows * stride) {
    RABBET_ONNX_FAIL(
        node, RABBET_STATUS_INVALID_ARGUMENT,
        "%s ('%s') has %lld elements of %s; expected %lld of "
        "UINT8, %lld for each of %lld rows",
        operand, rabbet_tensor_name(x), (long long)constant.weights.count,
        rabbet_dtype_name(constant.weights.dtype),
        (long long)(p->rows * stride), (long long)stride, (long long)p->rows);
    return NULL;
  }
  const rabbet_dims_t dims = {.rank = 2, .d = {p->rows, kept}};
  rabbet_dtype_t dtype = p->bits == 8 ? RABBET_DTYPE_INT8 : RABBET_DTYPE_INT4;
  uint8_t* out = rabbet_onnx_weights_room(node, dtype, &dims, &count);
  const uint8_t* in = constant.weights.data;
  for (int64_t row = 0; out && row < p->rows; ++row)
    onnx_unpack_row(in + row * stride, kept, p->bits, dtype, out, row * kept);
  if (!rabbet_onnx_ok(node)) return NULL;
  return rabbet_onnx_weights(node, dtype, out, &dims);
}

// x as [rows, blocks, each].
static rabbet_tensor_t* onnx_in_blocks(rabbet_onnx_node_t* node,
                                       rabbet_tensor_t* x,
                                       const onnx_packed_t* p, int64_t each) {
  const rabbet_onnx_index_t dims[] = {rabbet_onnx_index(p->rows),
                                      rabbet_onnx_index(p->blocks),
                                      rabbet_onnx_index(each)};
  return rabbet_onnx_reshape(node, x, dims, 3);
}

// Numbers for blocks as [rows, blocks].
static rabbet_tensor_t* onnx_of_blocks(rabbet_onnx_node_t* node,
                                       rabbet_tensor_t* x,
                                       const onnx_packed_t* p) {
  rabbet_dims_t dims = rabbet_onnx_dims(node, x);
  const rabbet_onnx_index_t to[] = {rabbet_onnx_index(p->rows),
                                    rabbet_onnx_index(p->blocks)};
  bool fits = dims.rank == 2 && dims.d[0] == p->rows && dims.d[1] == p->blocks;
  return fits ? x : rabbet_onnx_reshape(node, x, to, 2);
}

// x, [rows, blocks of p->block elements], less the numbers of its blocks times
// their scales.
static rabbet_tensor_t* onnx_shifted(rabbet_onnx_node_t* node,
                                     rabbet_tensor_t* x, rabbet_tensor_t* zero,
                                     rabbet_tensor_t* scale,
                                     const onnx_packed_t* p) {
  const rabbet_onnx_index_t rows[] = {rabbet_onnx_index(p->rows),
                                      rabbet_onnx_index(p->blocks * p->block)};
  zero = rabbet_onnx_cast(node, zero, RABBET_DTYPE_FLOAT);
  zero = rabbet_onnx_with_number(node, "SUB", zero, 1 << (p->bits - 1));
  scale = rabbet_onnx_cast(node, scale, RABBET_DTYPE_FLOAT);
  zero = rabbet_onnx_binary(node, "PROD", onnx_of_blocks(node, zero, p), scale);
  x = rabbet_onnx_binary(node, "SUB", onnx_in_blocks(node, x, p, p->block),
                         onnx_in_blocks(node, zero, p, 1));
  x = rabbet_onnx_reshape(node, x, rows, 2);
  rabbet_onnx_slice_t slice = rabbet_onnx_slice_all(node, x);
  slice.size[1] = rabbet_onnx_index(p->columns);
  return p->columns == p->blocks * p->block
             ? x
             : rabbet_onnx_slice(node, x, &slice);
}

// The weights [N, K]. Zero points are packed as they are, or numbers of the
// scales' type.
static rabbet_tensor_t* onnx_unpacked_weights(rabbet_onnx_node_t* node,
                                              const onnx_packed_t* p,
                                              rabbet_dtype_t to) {
  rabbet_tensor_t* w = rabbet_onnx_required(node, 1);
  rabbet_tensor_t* scale = rabbet_onnx_required(node, 2);
  rabbet_tensor_t* zero = rabbet_onnx_input(node, 3);
  if (!rabbet_onnx_ok(node)) return NULL;
  bool real = zero && rabbet_onnx_is_float(node, zero);
  int64_t all = p->blocks * p->block;
  scale = onnx_of_blocks(node, scale, p);
  rabbet_tensor_t* inputs[] = {
      onnx_unpack(node, "B", w, p, all, real ? all : p->columns), scale, NULL};
  if (zero && !real)
    inputs[2] = onnx_unpack(node, "zero_points", zero, p, p->blocks, p->blocks);
  const int64_t blocks[] = {1, p->block};
  const rabbet_attr_t attrs[] = {
      RABBET_ONNX_INT("to_type", real ? RABBET_DTYPE_FLOAT : to),
      RABBET_ONNX_INTS("block_shape", blocks, 2)};
  rabbet_tensor_t* x = rabbet_onnx_layer(node, "dequantize", inputs,
                                         inputs[2] ? 3 : 2, attrs, 2);
  if (!real) return x;
  return rabbet_onnx_cast(node, onnx_shifted(node, x, zero, scale, p), to);
}

// ONNX Runtime computes such a product in INT8 from accuracy level 4 on.
static void onnx_allow_rounding(rabbet_onnx_node_t* node, rabbet_tensor_t* y) {
  enum { INT8_LEVEL = 4 };
  int64_t level = rabbet_onnx_attr_int(node, "accuracy_level", 0);
  if (!rabbet_onnx_ok(node) || level < INT8_LEVEL) return;
  const rabbet_attr_t attr = RABBET_ONNX_BOOL("round_input0", true);
  node->status = rabbet_layer_set_attr(rabbet_tensor_producer(y), &attr);
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
  rabbet_tensor_t* weights =
      onnx_unpacked_weights(node, &p, rabbet_onnx_dtype_of(node, x));
  rabbet_tensor_t* y = rabbet_onnx_product(node, x, false, weights, true);
  onnx_allow_rounding(node, y);
  node->outputs[0] = bias ? rabbet_onnx_binary(node, "SUM", y, bias) : y;
}

RABBET_ONNX_OPERATORS(microsoft_quantized) = {
    RABBET_ONNX_RUNTIME_OP("com.microsoft", DynamicQuantizeLSTM, dynamic_lstm,
                           ""),
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
