// MaxRoiPool, as maxima of masked images: along rows, then along columns. Each
// bin takes a pass over its region's image, so regions should be few.
#include <float.h>

#include "onnx/index.h"
#include "onnx/operators.h"

typedef struct onnx_roi_pool_t {
  rabbet_tensor_t* rois;  // [regions, 5]: image, x and y of two corners
  double scale;
} onnx_roi_pool_t;

// The maximum of no element, before it becomes 0.
static double onnx_roi_least(rabbet_onnx_node_t* node) {
  return rabbet_onnx_wide(node) == RABBET_DTYPE_DOUBLE ? -DBL_MAX : -FLT_MAX;
}

// Column `at` of the regions: [regions, 1].
static rabbet_tensor_t* onnx_roi_column(rabbet_onnx_node_t* node,
                                        const onnx_roi_pool_t* r, int64_t at) {
  rabbet_onnx_slice_t slice = rabbet_onnx_slice_all(node, r->rois);
  slice.start[1] = rabbet_onnx_index(at);
  slice.size[1] = rabbet_onnx_index(1);
  return rabbet_onnx_slice(node, r->rois, &slice);
}

// A coordinate as a whole number, halves away from zero.
static rabbet_tensor_t* onnx_roi_edge(rabbet_onnx_node_t* node,
                                      const onnx_roi_pool_t* r, int64_t at) {
  rabbet_tensor_t* x = rabbet_onnx_with_number(
      node, "PROD", onnx_roi_column(node, r, at), r->scale);
  rabbet_tensor_t* size = rabbet_onnx_unary(
      node, "FLOOR",
      rabbet_onnx_with_number(node, "SUM", rabbet_onnx_unary(node, "ABS", x),
                              0.5));
  return rabbet_onnx_binary(node, "PROD", rabbet_onnx_unary(node, "SIGN", x),
                            size);
}

// Whether a place along an axis (0: x, 1: y) lies in a bin: [regions, bins,
// extent].
static rabbet_tensor_t* onnx_roi_mask(rabbet_onnx_node_t* node,
                                      const onnx_roi_pool_t* r, int axis,
                                      int64_t bins,
                                      rabbet_onnx_index_t extent) {
  rabbet_tensor_t* start = onnx_roi_edge(node, r, 1 + axis);
  rabbet_tensor_t* size =
      rabbet_onnx_binary(node, "SUB", onnx_roi_edge(node, r, 3 + axis), start);
  size = rabbet_onnx_with_number(
      node, "MAX", rabbet_onnx_with_number(node, "SUM", size, 1), 1);
  size = rabbet_onnx_with_number(node, "DIV", size, (double)bins);
  rabbet_tensor_t* bin = rabbet_onnx_cast(
      node, rabbet_onnx_indices(node, rabbet_onnx_index(bins), 1, 2),
      rabbet_onnx_wide(node));
  rabbet_tensor_t* ends[2];
  for (int i = 0; i < 2; ++i) {
    rabbet_tensor_t* end = rabbet_onnx_binary(
        node, "PROD", rabbet_onnx_with_number(node, "SUM", bin, i), size);
    end = rabbet_onnx_unary(node, i ? "CEIL" : "FLOOR", end);
    ends[i] = rabbet_onnx_unsqueeze(
        node, rabbet_onnx_binary(node, "SUM", end, start), 1u << 2, 3);
  }
  rabbet_tensor_t* place = rabbet_onnx_cast(
      node, rabbet_onnx_indices(node, extent, 2, 3), rabbet_onnx_wide(node));
  rabbet_tensor_t* before = rabbet_onnx_binary(node, "LESS", place, ends[0]);
  return rabbet_onnx_binary(node, "AND", rabbet_onnx_unary(node, "NOT", before),
                            rabbet_onnx_binary(node, "LESS", place, ends[1]));
}

// Maxima of x [regions, channels, rows, columns] in each bin along an axis (0:
// columns).
static rabbet_tensor_t* onnx_roi_maxima(rabbet_onnx_node_t* node,
                                        rabbet_tensor_t* x,
                                        rabbet_tensor_t* mask, int axis,
                                        int64_t bins) {
  rabbet_tensor_t** parts = NULL;
  rabbet_onnx_fail(
      node, rabbet_arena_allocate_array(&node->importer->arena, (size_t)bins,
                                        sizeof(*parts), (void**)&parts));
  if (!rabbet_onnx_ok(node)) return NULL;
  uint32_t ones = axis == 0 ? 1u << 1 | 1u << 2 : 1u << 1 | 1u << 3;
  rabbet_onnx_slice_t slice = rabbet_onnx_slice_all(node, mask);
  for (int64_t i = 0; i < bins && rabbet_onnx_ok(node); ++i) {
    slice.start[1] = rabbet_onnx_index(i);
    slice.size[1] = rabbet_onnx_index(1);
    rabbet_tensor_t* inside = rabbet_onnx_unsqueeze(
        node,
        rabbet_onnx_squeeze(node, rabbet_onnx_slice(node, mask, &slice),
                            1u << 1),
        ones, 4);
    parts[i] = rabbet_onnx_reduce(
        node, "MAX",
        rabbet_onnx_select(node, inside, x,
                           rabbet_onnx_number(node, rabbet_onnx_wide(node), 4,
                                              onnx_roi_least(node))),
        1u << (3 - axis), true);
  }
  return rabbet_onnx_concat(node, parts, (size_t)bins, 3 - axis);
}

static void onnx_import_max_roi_pool(rabbet_onnx_node_t* node) {
  rabbet_tensor_t* x = rabbet_onnx_required(node, 0);
  rabbet_onnx_ints_t bins = rabbet_onnx_attr_ints(node, "pooled_shape");
  onnx_roi_pool_t r = {
      .rois = rabbet_onnx_cast(node, rabbet_onnx_required(node, 1),
                               rabbet_onnx_wide(node)),
      .scale = rabbet_onnx_attr_float(node, "spatial_scale", 1)};
  rabbet_dtype_t dtype = rabbet_onnx_dtype_of(node, x);
  rabbet_onnx_check_rank(node, "input 0 ('X')", x, 4);
  rabbet_onnx_check_rank(node, "input 1 ('rois')", r.rois, 2);
  if (rabbet_onnx_ok(node) &&
      (bins.count != 2 || bins.data[0] < 1 || bins.data[1] < 1))
    RABBET_ONNX_FAIL(node, RABBET_STATUS_INVALID_ARGUMENT,
                     "attribute 'pooled_shape' must hold 2 positive numbers");
  if (!rabbet_onnx_ok(node)) return;
  rabbet_tensor_t* image = rabbet_onnx_cast(
      node, rabbet_onnx_flat(node, onnx_roi_column(node, &r, 0)),
      RABBET_DTYPE_INT64);
  rabbet_tensor_t* y = rabbet_onnx_take(
      node, rabbet_onnx_cast(node, x, rabbet_onnx_wide(node)), image, 0);
  for (int axis = 0; axis < 2; ++axis) {
    int64_t count = bins.data[1 - axis];
    rabbet_tensor_t* mask = onnx_roi_mask(
        node, &r, axis, count, rabbet_onnx_extent(node, x, 3 - axis));
    y = onnx_roi_maxima(node, y, mask, axis, count);
  }
  rabbet_tensor_t* is_empty =
      rabbet_onnx_with_number(node, "EQUAL", y, onnx_roi_least(node));
  y = rabbet_onnx_select(node, is_empty,
                         rabbet_onnx_number(node, rabbet_onnx_wide(node), 4, 0),
                         y);
  node->outputs[0] = rabbet_onnx_cast(node, y, dtype);
}

RABBET_ONNX_OPERATORS(roi_pool) = {
    RABBET_ONNX_OP(MaxRoiPool, max_roi_pool, "", 1, 22),
    {0},
};
