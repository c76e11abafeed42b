// Elements chosen by their values: the largest, the smallest.
#include "onnx/index.h"
#include "onnx/operators.h"

void rabbet_onnx_topk(rabbet_onnx_node_t* node, rabbet_tensor_t* x,
                      rabbet_tensor_t* k, int64_t count, int axis, bool largest,
                      rabbet_tensor_t** outputs) {
  if (!rabbet_onnx_ok(node)) return;
  rabbet_tensor_t* inputs[] = {x, k};
  rabbet_attr_t attrs[] = {
      RABBET_ONNX_INT("op", rabbet_onnx_enumerator(node, "topk", "op",
                                                   largest ? "MAX" : "MIN")),
      RABBET_ONNX_INT("axes", INT64_C(1) << axis), RABBET_ONNX_INT("k", count),
      RABBET_ONNX_INT("indices_type", RABBET_DTYPE_INT64)};
  rabbet_onnx_layer_outputs(node, "topk", inputs, k ? 2 : 1, attrs, 4, outputs,
                            2);
}

static void onnx_import_topk(rabbet_onnx_node_t* node) {
  rabbet_tensor_t* x = rabbet_onnx_required(node, 0);
  bool old = node->opset < 10;  // k is an attribute
  rabbet_tensor_t* k = old ? NULL : rabbet_onnx_required(node, 1);
  int64_t count = old ? rabbet_onnx_attr_int(node, "k", -1) : 1;
  int axis = rabbet_onnx_axis(node, rabbet_onnx_attr_int(node, "axis", -1),
                              rabbet_onnx_rank(node, x));
  bool largest = rabbet_onnx_attr_int(node, "largest", 1) != 0;
  rabbet_tensor_t* outputs[2] = {NULL, NULL};
  rabbet_onnx_topk(node, x, k, count, axis, largest, outputs);
  for (size_t i = 0; i < node->output_count && i < 2; ++i)
    node->outputs[i] = outputs[i];
}

// x with the elements of an axis in the opposite order.
static rabbet_tensor_t* onnx_reversed(rabbet_onnx_node_t* node,
                                      rabbet_tensor_t* x, int axis) {
  rabbet_onnx_slice_t slice = rabbet_onnx_slice_all(node, x);
  slice.start[axis] = rabbet_onnx_index_op(
      node, "SUB", rabbet_onnx_extent(node, x, axis), rabbet_onnx_index(1));
  slice.stride[axis] = rabbet_onnx_index(-1);
  return rabbet_onnx_slice(node, x, &slice);
}

static void onnx_import_arg(rabbet_onnx_node_t* node) {
  rabbet_tensor_t* x = rabbet_onnx_required(node, 0);
  int axis = rabbet_onnx_axis(node, rabbet_onnx_attr_int(node, "axis", 0),
                              rabbet_onnx_rank(node, x));
  bool last = rabbet_onnx_attr_int(node, "select_last_index", 0) != 0;
  bool keeps = rabbet_onnx_attr_int(node, "keepdims", 1) != 0;
  bool largest = node->variant[0] == 'M' && node->variant[1] == 'A';
  rabbet_tensor_t* outputs[2] = {NULL, NULL};
  if (!rabbet_onnx_ok(node)) return;
  rabbet_tensor_t* from = last ? onnx_reversed(node, x, axis) : x;
  rabbet_onnx_topk(node, from, NULL, 1, axis, largest, outputs);
  rabbet_tensor_t* y = outputs[1];
  if (last && rabbet_onnx_ok(node)) {
    rabbet_onnx_index_t end = rabbet_onnx_index_op(
        node, "SUB", rabbet_onnx_extent(node, x, axis), rabbet_onnx_index(1));
    rabbet_tensor_t* pair[] = {rabbet_onnx_index_vector(node, &end, 1), y};
    rabbet_onnx_align(node, pair, 2);
    y = rabbet_onnx_binary(node, "SUB", pair[0], pair[1]);
  }
  node->outputs[0] = keeps ? y : rabbet_onnx_squeeze(node, y, 1u << axis);
}

RABBET_ONNX_OPERATORS(choice) = {
    RABBET_ONNX_OP(ArgMax, arg, "MAX", 1, 11, 12, 13),
    RABBET_ONNX_OP(ArgMin, arg, "MIN", 1, 11, 12, 13),
    RABBET_ONNX_OP(TopK, topk, "", 1, 10, 11, 24),
    {0},
};
