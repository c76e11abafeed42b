// MatMulBnb4: products with weights of 4 bits that are numbers of a table, as
// bitsandbytes stores them.
#include "core/view.h"
#include "onnx/compositions.h"
#include "onnx/operators.h"

// Quotients by 192 of the numbers of its FP4: E2M1, but for the least one, and
// with codes of its own. FP8 has all of them.
static const int16_t onnx_fp4_numbers[8] = {0, 1, 128, 192, 64, 96, 32, 48};
enum { ONNX_FP4_UNIT = 192 };

typedef struct onnx_table_t {
  int64_t rows, columns;  // of the weights, N and K
  int64_t block;          // elements of one scale
  bool is_normal;         // NF4, else FP4
  bool is_turned;
} onnx_table_t;

static int64_t onnx_table_attr(rabbet_onnx_node_t* node, const char* name,
                               int64_t most) {
  int64_t value = rabbet_onnx_attr_int(node, name, 0);
  if (rabbet_onnx_ok(node) && (value < 1 || value > most))
    RABBET_ONNX_FAIL(node, RABBET_STATUS_INVALID_ARGUMENT,
                     "attribute '%s' is %lld; expected 1 to %lld", name,
                     (long long)value, (long long)most);
  return value;
}

static onnx_table_t onnx_table(rabbet_onnx_node_t* node) {
  int64_t type = rabbet_onnx_attr_int(node, "quant_type", -1);
  onnx_table_t t = {.rows = onnx_table_attr(node, "N", INT32_MAX),
                    .columns = onnx_table_attr(node, "K", INT32_MAX),
                    .block = onnx_table_attr(node, "block_size", INT32_MAX),
                    .is_normal = type == 1,
                    .is_turned = rabbet_onnx_attr_int(node, "transB", 1) != 0};
  if (rabbet_onnx_ok(node) && type != 0 && type != 1)
    RABBET_ONNX_FAIL(node, RABBET_STATUS_INVALID_ARGUMENT,
                     "attribute 'quant_type' is %lld; expected 0 (FP4) or 1 "
                     "(NF4)",
                     (long long)type);
  return t;
}

// The codes, of which the first one of a byte is in its upper half, as NF4, or
// as FP8.
static void onnx_table_codes(const onnx_table_t* t, const uint8_t* in,
                             int64_t count, uint8_t* out) {
  for (int64_t i = 0; t->is_normal && i < (count + 1) / 2; ++i)
    out[i] = (uint8_t)(in[i] >> 4 | in[i] << 4);
  for (int64_t i = 0; !t->is_normal && i < count; ++i) {
    int code = in[i / 2] >> (i % 2 ? 0 : 4) & 15;
    double number = onnx_fp4_numbers[code & 7];
    rabbet_store_double(RABBET_DTYPE_FP8, out, i, code & 8 ? -number : number);
  }
}

// Input 1 in the shape `dims`.
static rabbet_tensor_t* onnx_table_weights(rabbet_onnx_node_t* node,
                                           const onnx_table_t* t,
                                           const rabbet_dims_t* dims) {
  rabbet_tensor_t* x = rabbet_onnx_required(node, 1);
  rabbet_onnx_constant_t constant;
  int64_t numbers = t->rows * t->columns, count = 0;
  if (!rabbet_onnx_ok(node)) return NULL;
  if (!rabbet_onnx_is_constant(node, x, &constant) ||
      constant.weights.dtype != RABBET_DTYPE_UINT8 ||
      constant.weights.count != (numbers + 1) / 2) {
    RABBET_ONNX_FAIL(node, RABBET_STATUS_INVALID_ARGUMENT,
                     "B ('%s') must be a constant of %lld elements of UINT8, "
                     "half as many as there are weights",
                     rabbet_tensor_name(x), (long long)((numbers + 1) / 2));
    return NULL;
  }
  rabbet_dtype_t dtype = t->is_normal ? RABBET_DTYPE_NF4 : RABBET_DTYPE_FP8;
  uint8_t* out = rabbet_onnx_weights_room(node, dtype, dims, &count);
  if (!rabbet_onnx_ok(node)) return NULL;
  onnx_table_codes(t, constant.weights.data, numbers, out);
  return rabbet_onnx_weights(node, dtype, out, dims);
}

static void onnx_table_check_scale(rabbet_onnx_node_t* node,
                                   const onnx_table_t* t,
                                   rabbet_tensor_t* scale, int64_t blocks) {
  rabbet_dims_t dims = rabbet_onnx_dims(node, scale);
  int64_t count = 1;
  bool is_known = rabbet_onnx_ok(node);
  for (int32_t i = 0; is_known && i < dims.rank; ++i) {
    is_known = dims.d[i] >= 0;
    count *= dims.d[i];
  }
  if (is_known && count != blocks)
    RABBET_ONNX_FAIL(node, RABBET_STATUS_INVALID_ARGUMENT,
                     "absmax ('%s') has %lld elements; attribute 'block_size' "
                     "is %lld, so that the %lld x %lld weights, row after row, "
                     "have %lld blocks with a scale each",
                     rabbet_tensor_name(scale), (long long)count,
                     (long long)t->block, (long long)t->rows,
                     (long long)t->columns, (long long)blocks);
}

// The weights [N, K]. Blocks go on in the next row where they do not end with
// one: such weights are a list until they are numbers.
static rabbet_tensor_t* onnx_table_matrix(rabbet_onnx_node_t* node,
                                          const onnx_table_t* t,
                                          rabbet_dtype_t dtype) {
  int64_t numbers = t->rows * t->columns;
  int64_t blocks = (numbers + t->block - 1) / t->block;
  bool is_list = t->columns % t->block != 0;
  rabbet_tensor_t* scale = rabbet_onnx_required(node, 2);
  const rabbet_dims_t dims = {
      .rank = 2, .d = {is_list ? 1 : t->rows, is_list ? numbers : t->columns}};
  const rabbet_onnx_index_t of_blocks[] = {
      rabbet_onnx_index(dims.d[0]), rabbet_onnx_index(blocks / dims.d[0])};
  const rabbet_onnx_index_t matrix[] = {rabbet_onnx_index(t->rows),
                                        rabbet_onnx_index(t->columns)};
  const int64_t block[] = {1, t->block};
  onnx_table_check_scale(node, t, scale, blocks);
  scale = rabbet_onnx_reshape(node, scale, of_blocks, 2);
  if (!t->is_normal)
    scale = rabbet_onnx_with_number(
        node, "DIV", rabbet_onnx_in_float(node, scale), ONNX_FP4_UNIT);
  rabbet_tensor_t* inputs[] = {onnx_table_weights(node, t, &dims), scale};
  const rabbet_attr_t attrs[] = {RABBET_ONNX_INT("to_type", dtype),
                                 RABBET_ONNX_INTS("block_shape", block, 2)};
  rabbet_tensor_t* y =
      rabbet_onnx_layer(node, "dequantize", inputs, 2, attrs, 2);
  return is_list ? rabbet_onnx_reshape(node, y, matrix, 2) : y;
}

static void onnx_import_matmul_table(rabbet_onnx_node_t* node) {
  rabbet_tensor_t* x = rabbet_onnx_required(node, 0);
  onnx_table_t t = onnx_table(node);
  if (!rabbet_onnx_ok(node)) return;
  rabbet_tensor_t* weights =
      onnx_table_matrix(node, &t, rabbet_onnx_dtype_of(node, x));
  node->outputs[0] = rabbet_onnx_product(node, x, false, weights, t.is_turned);
}

RABBET_ONNX_OPERATORS(microsoft_tables) = {
    RABBET_ONNX_RUNTIME_OP("com.microsoft", MatMulBnb4, matmul_table, ""),
    {0},
};
