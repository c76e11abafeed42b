// QuantizeLinear and DequantizeLinear: one scale, one for each index of an
// axis, or one for each block along it.
#include "onnx/emit.h"

enum { X = 0, SCALE = 1, ZERO_POINT = 2 };

// Where the scales of a tensor vary.
typedef struct rabbet_onnx_scales_t {
  int axis;
  int64_t block;  // 0: one for each index
} rabbet_onnx_scales_t;

static bool rabbet_onnx_read_scales(rabbet_onnx_node_t* node,
                                    rabbet_onnx_scales_t* out) {
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

static rabbet_tensor_t* rabbet_onnx_scaled(rabbet_onnx_node_t* node,
                                           const char* op,
                                           rabbet_tensor_t* const* inputs,
                                           int axis, rabbet_dtype_t to) {
  const rabbet_attr_t attrs[] = {
      RABBET_ONNX_INT("axis", axis),
      RABBET_ONNX_INT("to_type", to),
  };
  return rabbet_onnx_layer(node, op, inputs, inputs[ZERO_POINT] ? 3 : 2, attrs,
                           2);
}

static rabbet_tensor_t* rabbet_onnx_reshape_constant(rabbet_onnx_node_t* node,
                                                     rabbet_tensor_t* x,
                                                     const int64_t* dims,
                                                     int rank) {
  const rabbet_attr_t attrs[] = {RABBET_ONNX_INTS("reshape_dims", dims, rank)};
  return rabbet_onnx_layer(node, "shuffle", &x, 1, attrs, 1);
}

// The blocks become an axis of their own, along which scales are broadcast.
static rabbet_tensor_t* rabbet_onnx_scaled_blocks(
    rabbet_onnx_node_t* node, const char* op, rabbet_tensor_t* const* inputs,
    const rabbet_onnx_scales_t* scales, rabbet_dtype_t to) {
  rabbet_dims_t x = rabbet_onnx_dims(node, inputs[X]);
  rabbet_dims_t s = rabbet_onnx_dims(node, inputs[SCALE]);
  int axis = scales->axis;
  bool known =
      rabbet_onnx_ok(node) && x.rank == s.rank && x.rank < RABBET_MAX_RANK;
  for (int i = 0; known && i < x.rank; ++i)
    known = x.d[i] >= 0 && s.d[i] >= 0 &&
            (i == axis ? x.d[i] == s.d[i] * scales->block : x.d[i] == s.d[i]);
  if (!known) {
    if (rabbet_onnx_ok(node)) {
      char a[128], b[128];
      RABBET_ONNX_FAIL(node, RABBET_STATUS_UNSUPPORTED,
                       "blocks of %lld along axis %d of shape %s, with scales "
                       "of shape %s; shapes must be constant and blocks whole",
                       (long long)scales->block, axis,
                       rabbet_dims_print(&x, a, sizeof(a)),
                       rabbet_dims_print(&s, b, sizeof(b)));
    }
    return NULL;
  }
  int64_t wide[RABBET_MAX_RANK], narrow[RABBET_MAX_RANK];
  for (int i = 0; i <= x.rank; ++i) {
    int from = i > axis ? i - 1 : i;
    wide[i] = i == axis ? s.d[axis] : i == axis + 1 ? scales->block : x.d[from];
    narrow[i] = i == axis + 1 ? 1 : s.d[from];
  }
  rabbet_tensor_t* split[3] = {NULL, NULL, NULL};
  for (int i = X; i <= ZERO_POINT; ++i)
    if (inputs[i])
      split[i] = rabbet_onnx_reshape_constant(
          node, inputs[i], i == X ? wide : narrow, x.rank + 1);
  rabbet_tensor_t* y = rabbet_onnx_scaled(node, op, split, axis, to);
  return rabbet_onnx_reshape_constant(node, y, x.d, x.rank);
}

static void rabbet_onnx_import_scaled(rabbet_onnx_node_t* node, const char* op,
                                      rabbet_dtype_t to) {
  rabbet_onnx_scales_t scales;
  rabbet_tensor_t* const inputs[] = {node->inputs[X], node->inputs[SCALE],
                                     rabbet_onnx_input(node, ZERO_POINT)};
  if (!rabbet_onnx_read_scales(node, &scales)) return;
  node->outputs[0] =
      scales.block == 0
          ? rabbet_onnx_scaled(node, op, inputs, scales.axis, to)
          : rabbet_onnx_scaled_blocks(node, op, inputs, &scales, to);
}

// The type that an attribute names; `absent` if it does not.
static rabbet_dtype_t rabbet_onnx_output_dtype(rabbet_onnx_node_t* node,
                                               rabbet_dtype_t absent) {
  rabbet_dtype_t dtype = absent;
  int64_t number = rabbet_onnx_attr_int(node, "output_dtype", 0);
  if (number != 0)
    rabbet_onnx_fail(
        node, RABBET_ANNOTATE(rabbet_onnx_dtype((int32_t)number, &dtype, NULL),
                              "attribute 'output_dtype'"));
  return dtype;
}

void rabbet_onnx_import_quantize(rabbet_onnx_node_t* node) {
  rabbet_tensor_t* x = rabbet_onnx_required(node, X);
  rabbet_tensor_t* scale = rabbet_onnx_required(node, SCALE);
  rabbet_tensor_t* zero = rabbet_onnx_input(node, ZERO_POINT);
  if (!x || !scale) return;
  rabbet_dtype_t to = rabbet_onnx_output_dtype(
      node, zero ? rabbet_onnx_dtype_of(node, zero) : RABBET_DTYPE_UINT8);
  if (to == RABBET_DTYPE_FP8 && rabbet_onnx_attr_int(node, "saturate", 1) == 0)
    RABBET_ONNX_FAIL(node, RABBET_STATUS_UNSUPPORTED,
                     "saturate is 0; numbers beyond FLOAT8E4M3FN's largest "
                     "become the largest here (saturate 1)");
  rabbet_onnx_import_scaled(node, "quantize", to);
}

void rabbet_onnx_import_dequantize(rabbet_onnx_node_t* node) {
  rabbet_tensor_t* x = rabbet_onnx_required(node, X);
  rabbet_tensor_t* scale = rabbet_onnx_required(node, SCALE);
  if (!x || !scale) return;
  rabbet_onnx_import_scaled(
      node, "dequantize",
      rabbet_onnx_output_dtype(node, rabbet_onnx_dtype_of(node, scale)));
}
