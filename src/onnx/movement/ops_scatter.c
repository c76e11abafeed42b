// Scatters, caches, running sums and products, and sequences in reverse order.
#include <string.h>

#include "onnx/dynamic_axes.h"
#include "onnx/operators.h"

static void onnx_import_scatter(rabbet_onnx_node_t* node) {
  static const char* const reductions[][2] = {{"none", "NONE"},
                                              {"add", "ADD"},
                                              {"mul", "MUL"},
                                              {"min", "MIN"},
                                              {"max", "MAX"}};
  rabbet_tensor_t* inputs[3] = {NULL, NULL, NULL};
  for (size_t i = 0; i < 3; ++i)
    inputs[i] = rabbet_onnx_required(node, i);
  const char* given = rabbet_onnx_attr_string(node, "reduction", "none");
  const char* reduction = NULL;
  for (size_t i = 0; i < sizeof(reductions) / sizeof(reductions[0]); ++i)
    if (!strcmp(reductions[i][0], given)) reduction = reductions[i][1];
  if (!reduction)
    RABBET_ONNX_FAIL(node, RABBET_STATUS_INVALID_ARGUMENT,
                     "reduction is '%s'; none, add, mul, min and max exist",
                     given);
  int64_t axis = rabbet_onnx_attr_int(node, "axis", 0);
  if (!rabbet_onnx_ok(node)) return;
  rabbet_attr_t attrs[] = {
      RABBET_ONNX_INT("mode", rabbet_onnx_enumerator(node, "scatter", "mode",
                                                     node->variant)),
      RABBET_ONNX_INT("axis", axis),
      RABBET_ONNX_INT(
          "reduction",
          rabbet_onnx_enumerator(node, "scatter", "reduction", reduction))};
  node->outputs[0] = rabbet_onnx_layer(node, "scatter", inputs, 3, attrs, 3);
}

static void onnx_import_tensor_scatter(rabbet_onnx_node_t* node) {
  rabbet_tensor_t* indices = rabbet_onnx_input(node, 2);
  rabbet_tensor_t* inputs[] = {rabbet_onnx_required(node, 0),
                               rabbet_onnx_required(node, 1), indices};
  const char* mode = rabbet_onnx_attr_string(node, "mode", "linear");
  bool circular = !strcmp(mode, "circular");
  int64_t axis = rabbet_onnx_attr_int(node, "axis", -2);
  if (!circular && strcmp(mode, "linear"))
    RABBET_ONNX_FAIL(node, RABBET_STATUS_INVALID_ARGUMENT,
                     "mode is '%s'; linear and circular exist", mode);
  if (!rabbet_onnx_ok(node)) return;
  rabbet_attr_t attrs[] = {
      RABBET_ONNX_INT("cache_mode", rabbet_onnx_enumerator(
                                        node, "kv_cache_update", "cache_mode",
                                        circular ? "CIRCULAR" : "LINEAR")),
      RABBET_ONNX_INT("axis", axis)};
  node->outputs[0] = rabbet_onnx_layer(node, "kv_cache_update", inputs,
                                       indices ? 3 : 2, attrs, 2);
}

static rabbet_tensor_t* onnx_cumulate(rabbet_onnx_node_t* node,
                                      rabbet_tensor_t* x, int64_t axis) {
  rabbet_attr_t attrs[] = {
      RABBET_ONNX_INT("axis", axis),
      RABBET_ONNX_BOOL("exclusive", rabbet_onnx_attr_int(node, "exclusive", 0)),
      RABBET_ONNX_BOOL("reverse", rabbet_onnx_attr_int(node, "reverse", 0))};
  return rabbet_onnx_layer(node, "cumulative", &x, 1, attrs, 3);
}

static rabbet_tensor_t* onnx_cumulate_dynamic(
    rabbet_onnx_node_t* node, rabbet_tensor_t* x,
    const rabbet_onnx_dynamic_axes_t* dynamic_axes) {
  rabbet_onnx_index_t dims[RABBET_MAX_RANK];
  int rank = rabbet_onnx_rank(node, x);
  for (int i = 0; i < rank; ++i)
    dims[i] = rabbet_onnx_extent(node, x, i);
  rabbet_tensor_t* y = rabbet_onnx_dynamic_middle(node, x, dynamic_axes->at[0]);
  y = onnx_cumulate(node, y, 1);
  return rabbet_onnx_reshape(node, y, dims, rank);
}

// ---- Running products ------------------------------------------------------

// x moved by some places along an axis, with ones in front or behind.
static rabbet_tensor_t* onnx_shifted(rabbet_onnx_node_t* node,
                                     rabbet_tensor_t* x, int axis, int64_t by) {
  rabbet_onnx_slice_t slice = rabbet_onnx_slice_all(node, x);
  slice.start[axis] = rabbet_onnx_index(-by);
  slice.mode = "FILL";
  slice.fill = rabbet_onnx_number(node, rabbet_onnx_dtype_of(node, x), 0, 1);
  return rabbet_onnx_slice(node, x, &slice);
}

// Running products by doubling: of up to 1, 2, 4, ... elements.
static rabbet_tensor_t* onnx_products(rabbet_onnx_node_t* node,
                                      rabbet_tensor_t* x, int axis,
                                      int64_t extent, bool exclusive,
                                      bool reverse) {
  if (exclusive) x = onnx_shifted(node, x, axis, reverse ? -1 : 1);
  for (int64_t by = 1; by < extent && rabbet_onnx_ok(node); by *= 2)
    x = rabbet_onnx_binary(node, "PROD", x,
                           onnx_shifted(node, x, axis, reverse ? -by : by));
  return x;
}

// The same for an extent that is not known: the products of the rows of a
// matrix, in which ones replace the elements that do not take part.
static rabbet_tensor_t* onnx_products_dynamic(rabbet_onnx_node_t* node,
                                              rabbet_tensor_t* x, int axis,
                                              rabbet_onnx_index_t extent,
                                              bool exclusive, bool reverse) {
  int rank = rabbet_onnx_rank(node, x) + 1;
  rabbet_tensor_t* to = rabbet_onnx_indices(node, extent, axis, rank);
  rabbet_tensor_t* from = rabbet_onnx_indices(node, extent, axis + 1, rank);
  rabbet_tensor_t* out = rabbet_onnx_binary(node, "LESS", reverse ? from : to,
                                            reverse ? to : from);
  if (exclusive)
    out = rabbet_onnx_binary(node, "OR", out,
                             rabbet_onnx_binary(node, "EQUAL", from, to));
  rabbet_tensor_t* one =
      rabbet_onnx_number(node, rabbet_onnx_dtype_of(node, x), rank, 1);
  x = rabbet_onnx_select(node, out, one,
                         rabbet_onnx_unsqueeze(node, x, 1u << axis, rank));
  return rabbet_onnx_reduce(node, "PROD", x, 1u << (axis + 1), false);
}

static void onnx_import_cumulative_product(rabbet_onnx_node_t* node) {
  rabbet_tensor_t* x = rabbet_onnx_required(node, 0);
  rabbet_onnx_ints_t given = rabbet_onnx_constant_ints(
      node, "input 1 ('axis')", rabbet_onnx_required(node, 1));
  bool exclusive = rabbet_onnx_attr_int(node, "exclusive", 0) != 0;
  bool reverse = rabbet_onnx_attr_int(node, "reverse", 0) != 0;
  int axis =
      rabbet_onnx_axis(node, given.count == 1 ? given.data[0] : INT32_MAX,
                       rabbet_onnx_rank(node, x));
  if (!rabbet_onnx_ok(node)) return;
  rabbet_onnx_index_t extent = rabbet_onnx_extent(node, x, axis);
  node->outputs[0] =
      rabbet_onnx_is_static(extent)
          ? onnx_products(node, x, axis, extent.value, exclusive, reverse)
          : onnx_products_dynamic(node, x, axis, extent, exclusive, reverse);
}

// ---- Running sums ----------------------------------------------------------

static void onnx_import_cumulative(rabbet_onnx_node_t* node) {
  rabbet_tensor_t* inputs[] = {rabbet_onnx_required(node, 0),
                               rabbet_onnx_required(node, 1)};
  rabbet_onnx_dynamic_axes_t dynamic_axes;
  if (rabbet_onnx_read_dynamic_axes(
          node, inputs[1], rabbet_onnx_rank(node, inputs[0]), &dynamic_axes)) {
    node->outputs[0] = onnx_cumulate_dynamic(node, inputs[0], &dynamic_axes);
    return;
  }
  rabbet_onnx_ints_t axis =
      rabbet_onnx_ok(node) ? rabbet_onnx_constant_ints(node, "axis", inputs[1])
                           : (rabbet_onnx_ints_t){0};
  if (!rabbet_onnx_ok(node) || axis.count != 1) {
    RABBET_ONNX_FAIL(node, RABBET_STATUS_INVALID_ARGUMENT,
                     "input 'axis' must be one constant number");
    return;
  }
  node->outputs[0] = onnx_cumulate(node, inputs[0], axis.data[0]);
}

static void onnx_import_reverse_sequence(rabbet_onnx_node_t* node) {
  rabbet_tensor_t* inputs[] = {rabbet_onnx_required(node, 0),
                               rabbet_onnx_required(node, 1)};
  rabbet_attr_t attrs[] = {
      RABBET_ONNX_INT("batch_axis",
                      rabbet_onnx_attr_int(node, "batch_axis", 1)),
      RABBET_ONNX_INT("sequence_axis",
                      rabbet_onnx_attr_int(node, "time_axis", 0))};
  node->outputs[0] =
      rabbet_onnx_layer(node, "reverse_sequence", inputs, 2, attrs, 2);
}

RABBET_ONNX_OPERATORS(scatter) = {
    RABBET_ONNX_OP(CumProd, cumulative_product, "", 26),
    RABBET_ONNX_OP(CumSum, cumulative, "", 11, 14),
    RABBET_ONNX_OP(ReverseSequence, reverse_sequence, "", 10, 28),
    RABBET_ONNX_OP(Scatter, scatter, "ELEMENT", 9, 11),
    RABBET_ONNX_OP(ScatterElements, scatter, "ELEMENT", 11, 13, 16, 18),
    RABBET_ONNX_OP(ScatterND, scatter, "ND", 11, 13, 16, 18),
    RABBET_ONNX_OP(TensorScatter, tensor_scatter, "", 24),
    {0},
};
