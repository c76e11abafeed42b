// QuantizeLinear and DequantizeLinear: one scale, one for each index of an
// axis, or one for each block along it. DynamicQuantizeLinear: one scale,
// computed in the run.
#include "onnx/compositions.h"
#include "onnx/file/model.h"
#include "onnx/held.h"
#include "onnx/operators.h"

enum { X = 0, SCALE = 1, ZERO_POINT = 2 };

// The axis or blocks along which a tensor's scales vary.
typedef struct onnx_scales_t {
  int axis;
  int64_t block;  // 0: one for each index
} onnx_scales_t;

static bool onnx_read_scales(rabbet_onnx_node_t* node, onnx_scales_t* out) {
  int rank = rabbet_onnx_rank(node, node->inputs[X]);
  int64_t axis = rabbet_onnx_attr_int(node, "axis", 1);
  bool many = rabbet_onnx_rank(node, node->inputs[SCALE]) > 0 && rank > 1;
  out->block = rabbet_onnx_attr_int(node, "block_size", 0);
  if (!rabbet_onnx_ok(node)) return false;
  // The default is out of range for a vector with one scale, which needs none.
  if ((many || out->block != 0) && (axis < -rank || axis >= rank)) {
    RABBET_ONNX_FAIL(node, RABBET_STATUS_INVALID_ARGUMENT,
                     "axis is %lld, but input 0 has rank %d", (long long)axis,
                     rank);
    return false;
  }
  out->axis =
      many || out->block != 0 ? (int)(axis < 0 ? axis + rank : axis) : rank - 1;
  return true;
}

static void onnx_import_scaled(rabbet_onnx_node_t* node, const char* op,
                               rabbet_dtype_t to) {
  onnx_scales_t scales;
  rabbet_tensor_t* const inputs[] = {node->inputs[X], node->inputs[SCALE],
                                     rabbet_onnx_input(node, ZERO_POINT)};
  int64_t blocks[RABBET_MAX_RANK];
  if (!onnx_read_scales(node, &scales)) return;
  if (scales.block < 0)
    RABBET_ONNX_FAIL(node, RABBET_STATUS_INVALID_ARGUMENT,
                     "block_size is %lld; expected 0 (none) or more",
                     (long long)scales.block);
  int rank = rabbet_onnx_rank(node, inputs[X]);
  for (int i = 0; i < rank; ++i)
    blocks[i] = i == scales.axis ? scales.block : 1;
  const rabbet_attr_t attrs[] = {
      RABBET_ONNX_INT("axis", scales.axis),
      RABBET_ONNX_INT("to_type", to),
      RABBET_ONNX_INTS("block_shape", blocks, scales.block > 0 ? rank : 0),
  };
  node->outputs[0] =
      rabbet_onnx_layer(node, op, inputs, inputs[ZERO_POINT] ? 3 : 2, attrs, 3);
}

// The type that an attribute names; `absent` if it does not.
static rabbet_dtype_t onnx_output_dtype(rabbet_onnx_node_t* node,
                                        rabbet_dtype_t absent) {
  rabbet_dtype_t dtype = absent;
  int32_t number = (int32_t)rabbet_onnx_attr_int(node, "output_dtype", 0);
  const rabbet_onnx_type_t* type = rabbet_onnx_type(number);
  if (type && type->holds != RABBET_ONNX_HOLDS_ITSELF)
    RABBET_ONNX_FAIL(node, RABBET_STATUS_INVALID_ARGUMENT,
                     "attribute 'output_dtype' is %s; expected FLOAT, FLOAT16 "
                     "or BFLOAT16",
                     type->name);
  else if (number != 0)
    rabbet_onnx_fail(node, RABBET_ANNOTATE(rabbet_onnx_node_dtype(node, number,
                                                                  &dtype, NULL),
                                           "attribute 'output_dtype'"));
  return dtype;
}

// Numbers of blocks along `axis`, repeated for each of the blocks' elements.
static rabbet_tensor_t* onnx_repeat_blocks(rabbet_onnx_node_t* node,
                                           rabbet_tensor_t* number,
                                           rabbet_tensor_t* x,
                                           const onnx_scales_t* scales) {
  int rank = rabbet_onnx_rank(node, x), axis = scales->axis;
  rabbet_onnx_index_t dims[RABBET_MAX_RANK + 1];
  rabbet_onnx_index_t block = rabbet_onnx_index(scales->block);
  number = rabbet_onnx_unsqueeze(node, number, 1u << (axis + 1), rank + 1);
  if (!rabbet_onnx_ok(node)) return NULL;
  for (int i = 0; i <= rank; ++i)
    dims[i] = i == axis + 1 ? block : rabbet_onnx_extent(node, number, i);
  number = rabbet_onnx_spread(node, number, dims, rank + 1);
  dims[axis] = rabbet_onnx_index_op(node, "PROD", dims[axis], block);
  for (int i = axis + 1; i < rank; ++i)
    dims[i] = dims[i + 1];
  number = rabbet_onnx_reshape(node, number, dims, rank);
  if (!rabbet_onnx_ok(node)) return NULL;
  rabbet_onnx_slice_t slice = rabbet_onnx_slice_all(node, number);
  slice.size[axis] = rabbet_onnx_extent(node, x, axis);
  return rabbet_onnx_slice(node, number, &slice);
}

// Scale or zero point in FLOAT, as an operand beside x.
static rabbet_tensor_t* onnx_beside(rabbet_onnx_node_t* node,
                                    rabbet_tensor_t* number, rabbet_tensor_t* x,
                                    const onnx_scales_t* scales) {
  rabbet_dims_t dims = rabbet_onnx_dims(node, number);
  int rank = rabbet_onnx_rank(node, x);
  number = rabbet_onnx_cast(node, number, RABBET_DTYPE_FLOAT);
  if (!rabbet_onnx_ok(node) || dims.rank == 0) return number;
  if (scales->block > 0 && dims.rank == rank)
    return onnx_repeat_blocks(node, number, x, scales);
  if (dims.rank > 1) {
    RABBET_ONNX_FAIL(node, RABBET_STATUS_INVALID_ARGUMENT,
                     "scale or zero point has rank %d, x has %d; expected one "
                     "number, a vector, or one for each block of block_size",
                     dims.rank, rank);
    return NULL;
  }
  if (dims.d[0] == 1) return rabbet_onnx_squeeze(node, number, 1);
  return rabbet_onnx_unsqueeze(
      node, number, ((1u << rank) - 1) & ~(1u << scales->axis), rank);
}

// Quantization to a type that the operator `quantize` does not have.
static void onnx_quantize_composed(rabbet_onnx_node_t* node, int32_t onnx_type,
                                   bool saturates) {
  onnx_scales_t scales;
  const rabbet_onnx_type_t* type = rabbet_onnx_type(onnx_type);
  bool is_real = rabbet_onnx_real(type) != NULL;
  rabbet_tensor_t *x = node->inputs[X],
                  *zero = rabbet_onnx_input(node, ZERO_POINT);
  if (!onnx_read_scales(node, &scales)) return;
  rabbet_tensor_t* y = rabbet_onnx_cast(node, x, RABBET_DTYPE_FLOAT);
  y = rabbet_onnx_binary(node, "DIV", y,
                         onnx_beside(node, node->inputs[SCALE], x, &scales));
  if (!is_real) y = rabbet_onnx_unary(node, "ROUND", y);
  if (zero)
    y = rabbet_onnx_binary(node, "SUM", y, onnx_beside(node, zero, x, &scales));
  y = is_real ? rabbet_onnx_round(node, y, onnx_type, saturates)
              : rabbet_onnx_saturate(node, y, onnx_type);
  node->outputs[0] = rabbet_onnx_cast(node, y, type->dtype);
  if (rabbet_onnx_ok(node))
    rabbet_onnx_fail(node, rabbet_onnx_hold(node->importer, node->name,
                                            node->outputs[0], onnx_type));
}

// The type of the result: that of the zero point, or as an attribute says.
static int32_t onnx_quantized_type(rabbet_onnx_node_t* node) {
  rabbet_tensor_t* zero = rabbet_onnx_input(node, ZERO_POINT);
  int32_t asked = (int32_t)rabbet_onnx_attr_int(node, "output_dtype", 0);
  rabbet_dtype_t dtype;
  if (asked)
    rabbet_onnx_fail(
        node, RABBET_ANNOTATE(rabbet_onnx_node_dtype(node, asked, &dtype, NULL),
                              "attribute 'output_dtype'"));
  if (!zero) return asked ? asked : rabbet_onnx_type_of(RABBET_DTYPE_UINT8);
  int32_t given = rabbet_onnx_type_in_model(node, zero);
  if (rabbet_onnx_ok(node) && asked && asked != given)
    RABBET_ONNX_FAIL(node, RABBET_STATUS_INVALID_ARGUMENT,
                     "attribute 'output_dtype' is %s and the zero point is %s; "
                     "they must be equal",
                     rabbet_onnx_type_name(asked),
                     rabbet_onnx_type_name(given));
  return given;
}

static void onnx_import_quantize(rabbet_onnx_node_t* node) {
  rabbet_tensor_t* x = rabbet_onnx_required(node, X);
  rabbet_tensor_t* scale = rabbet_onnx_required(node, SCALE);
  if (!x || !scale) return;
  int32_t number = onnx_quantized_type(node);
  bool saturates = rabbet_onnx_attr_int(node, "saturate", 1) != 0;
  if (!rabbet_onnx_ok(node)) return;
  const rabbet_onnx_type_t* type = rabbet_onnx_type(number);
  bool is_held = type->holds != RABBET_ONNX_HOLDS_ITSELF;
  if (is_held || (rabbet_onnx_real(type) && !saturates))
    onnx_quantize_composed(node, number, saturates);
  else
    onnx_import_scaled(node, "quantize", type->dtype);
}

// x of a type that the operator `dequantize` does not have: HALF, which holds
// another one.
static void onnx_dequantize_composed(rabbet_onnx_node_t* node,
                                     rabbet_dtype_t to) {
  onnx_scales_t scales;
  rabbet_tensor_t *x = node->inputs[X],
                  *zero = rabbet_onnx_input(node, ZERO_POINT);
  if (!onnx_read_scales(node, &scales)) return;
  rabbet_tensor_t* y = rabbet_onnx_cast(node, x, RABBET_DTYPE_FLOAT);
  if (zero)
    y = rabbet_onnx_binary(node, "SUB", y, onnx_beside(node, zero, x, &scales));
  y = rabbet_onnx_binary(node, "PROD", y,
                         onnx_beside(node, node->inputs[SCALE], x, &scales));
  node->outputs[0] = rabbet_onnx_cast(node, y, to);
}

static void onnx_import_dequantize(rabbet_onnx_node_t* node) {
  rabbet_tensor_t* x = rabbet_onnx_required(node, X);
  rabbet_tensor_t* scale = rabbet_onnx_required(node, SCALE);
  if (!x || !scale) return;
  rabbet_dtype_t to =
      onnx_output_dtype(node, rabbet_onnx_dtype_of(node, scale));
  if (rabbet_onnx_dtype_of(node, x) == RABBET_DTYPE_HALF)
    onnx_dequantize_composed(node, to);
  else
    onnx_import_scaled(node, "dequantize", to);
}

// ---- Layers of it ----------------------------------------------------------

// Scale and zero point with one element become scalars, as both must have one
// shape.
static rabbet_tensor_t* onnx_plain_scale(rabbet_onnx_node_t* node,
                                         rabbet_tensor_t* x) {
  rabbet_dims_t dims = rabbet_onnx_dims(node, x);
  bool one = dims.rank > 0;
  for (int i = 0; i < dims.rank; ++i)
    one = one && dims.d[i] == 1;
  return one ? rabbet_onnx_squeeze(node, x, (1u << dims.rank) - 1) : x;
}

// x, scale and, if it is given, zero point through one of the two operators.
static rabbet_tensor_t* onnx_scaled(rabbet_onnx_node_t* node, const char* op,
                                    rabbet_tensor_t* x, rabbet_tensor_t* scale,
                                    rabbet_tensor_t* zero, int axis,
                                    rabbet_dtype_t to) {
  if (!rabbet_onnx_ok(node)) return NULL;
  scale = onnx_plain_scale(node, scale);
  if (zero) zero = onnx_plain_scale(node, zero);
  rabbet_dims_t dims = rabbet_onnx_dims(node, scale);
  // Scales by index with a single zero point: it is repeated.
  if (zero && rabbet_onnx_rank(node, zero) == 0 && dims.rank > 0) {
    rabbet_onnx_index_t spread[RABBET_MAX_RANK];
    for (int i = 0; i < dims.rank; ++i)
      spread[i] = rabbet_onnx_extent(node, scale, i);
    zero = rabbet_onnx_spread(node, rabbet_onnx_to_rank(node, zero, dims.rank),
                              spread, dims.rank);
  }
  rabbet_tensor_t* const inputs[] = {x, scale, zero};
  const rabbet_attr_t attrs[] = {RABBET_ONNX_INT("axis", axis),
                                 RABBET_ONNX_INT("to_type", to)};
  return rabbet_onnx_layer(node, op, inputs, zero ? 3 : 2, attrs, 2);
}

rabbet_tensor_t* rabbet_onnx_dequantize(rabbet_onnx_node_t* node,
                                        rabbet_tensor_t* x,
                                        rabbet_tensor_t* scale,
                                        rabbet_tensor_t* zero, int axis) {
  // A missing scale is 1 for each zero point.
  if (!scale) scale = rabbet_onnx_number(node, RABBET_DTYPE_FLOAT, 0, 1);
  bool many = zero && rabbet_onnx_rank(node, zero) > 0;
  if (many && rabbet_onnx_rank(node, scale) == 0) {
    int rank = rabbet_onnx_rank(node, zero);
    rabbet_onnx_index_t spread[RABBET_MAX_RANK];
    for (int i = 0; i < rank; ++i)
      spread[i] = rabbet_onnx_extent(node, zero, i);
    scale = rabbet_onnx_spread(node, rabbet_onnx_to_rank(node, scale, rank),
                               spread, rank);
  }
  return onnx_scaled(node, "dequantize", x, scale, zero, axis,
                     RABBET_DTYPE_FLOAT);
}

rabbet_tensor_t* rabbet_onnx_quantize(rabbet_onnx_node_t* node,
                                      rabbet_tensor_t* x,
                                      rabbet_tensor_t* scale,
                                      rabbet_tensor_t* zero, int axis,
                                      rabbet_dtype_t to) {
  return onnx_scaled(node, "quantize", x, scale, zero, axis, to);
}

// Maps the range of x, extended to contain 0, to the 256 numbers of UINT8. A
// tensor of zeros has scale 1.
void rabbet_onnx_dynamic_quantize(rabbet_onnx_node_t* node, rabbet_tensor_t* x,
                                  rabbet_tensor_t** outputs) {
  uint32_t axes = (1u << rabbet_onnx_rank(node, x)) - 1;
  rabbet_tensor_t* high = rabbet_onnx_with_number(
      node, "MAX", rabbet_onnx_reduce(node, "MAX", x, axes, false), 0);
  rabbet_tensor_t* low = rabbet_onnx_with_number(
      node, "MIN", rabbet_onnx_reduce(node, "MIN", x, axes, false), 0);
  rabbet_tensor_t* range = rabbet_onnx_binary(node, "SUB", high, low);
  rabbet_tensor_t* one = rabbet_onnx_number(node, RABBET_DTYPE_FLOAT, 0, 1);
  rabbet_tensor_t* scale =
      rabbet_onnx_select(node, rabbet_onnx_with_number(node, "EQUAL", range, 0),
                         one, rabbet_onnx_with_number(node, "DIV", range, 255));
  rabbet_tensor_t* zero = rabbet_onnx_unary(
      node, "NEG", rabbet_onnx_binary(node, "DIV", low, scale));
  zero = rabbet_onnx_activation(node, "CLIP", zero, 0, 255);
  zero = rabbet_onnx_cast(node, rabbet_onnx_unary(node, "ROUND", zero),
                          RABBET_DTYPE_UINT8);
  rabbet_tensor_t* const inputs[] = {x, scale, zero};
  const rabbet_attr_t attrs[] = {
      RABBET_ONNX_INT("to_type", RABBET_DTYPE_UINT8)};
  outputs[0] = rabbet_onnx_layer(node, "quantize", inputs, 3, attrs, 1);
  outputs[1] = scale;
  outputs[2] = zero;
}

static void onnx_import_dynamic_quantize(rabbet_onnx_node_t* node) {
  rabbet_tensor_t* outputs[3];
  rabbet_onnx_dynamic_quantize(node, rabbet_onnx_required(node, X), outputs);
  for (size_t i = 0; i < 3 && i < node->output_count; ++i)
    node->outputs[i] = outputs[i];
}

RABBET_ONNX_OPERATORS(quantize) = {
    RABBET_ONNX_OP(DequantizeLinear, dequantize, "", 10, 13, 19, 21, 23, 24, 25,
                   28),
    RABBET_ONNX_OP(DynamicQuantizeLinear, dynamic_quantize, "", 11),
    RABBET_ONNX_OP(QuantizeLinear, quantize, "", 10, 13, 19, 21, 23, 24, 25,
                   28),
    // ONNX Runtime's quantizer writes these for types that ONNX had later.
    RABBET_ONNX_RUNTIME_OP("com.microsoft", DequantizeLinear, dequantize, ""),
    RABBET_ONNX_RUNTIME_OP("com.microsoft", QuantizeLinear, quantize, ""),
    {0},
};
