// Operators with data-dependent sizes.
#include <float.h>
#include <string.h>

#include "core/attr_set.h"
#include "onnx/index.h"
#include "onnx/operators.h"

// ---- Parts -----------------------------------------------------------------

rabbet_tensor_t* rabbet_onnx_non_zero(rabbet_onnx_node_t* node,
                                      rabbet_tensor_t* x) {
  rabbet_attr_t attrs[] = {RABBET_ONNX_INT("indices_type", RABBET_DTYPE_INT64)};
  return rabbet_onnx_layer(node, "non_zero", &x, 1, attrs, 1);
}

rabbet_tensor_t* rabbet_onnx_take(rabbet_onnx_node_t* node, rabbet_tensor_t* x,
                                  rabbet_tensor_t* indices, int axis) {
  rabbet_tensor_t* inputs[] = {x, indices};
  rabbet_attr_t attrs[] = {RABBET_ONNX_INT("axis", axis)};
  return rabbet_onnx_layer(node, "gather", inputs, 2, attrs, 1);
}

static rabbet_onnx_index_t onnx_count(rabbet_onnx_node_t* node,
                                      rabbet_tensor_t* x, int first) {
  int rank = rabbet_onnx_rank(node, x);
  rabbet_onnx_index_t count = rabbet_onnx_index(1);
  for (int i = first; i < rank && rabbet_onnx_ok(node); ++i)
    count = rabbet_onnx_index_op(node, "PROD", count,
                                 rabbet_onnx_extent(node, x, i));
  return count;
}

rabbet_tensor_t* rabbet_onnx_flat(rabbet_onnx_node_t* node,
                                  rabbet_tensor_t* x) {
  if (rabbet_onnx_rank(node, x) == 1) return x;
  rabbet_onnx_index_t count = onnx_count(node, x, 0);
  return rabbet_onnx_reshape(node, x, &count, 1);
}

// The axis that an attribute names; x in one row, and axis 0, if it does not.
static int onnx_axis_or_flat(rabbet_onnx_node_t* node, rabbet_tensor_t** x) {
  if (!rabbet_onnx_has_attr(node, "axis")) {
    *x = rabbet_onnx_flat(node, *x);
    return 0;
  }
  return rabbet_onnx_axis(node, rabbet_onnx_attr_int(node, "axis", 0),
                          rabbet_onnx_rank(node, *x));
}

// ---- NonZero, Compress -----------------------------------------------------

// Whether x is a vector that repeats one constant other than zero: torch
// exports arange in this form. Its length is known, while the size of NonZero's
// result would be data-dependent.
static bool onnx_is_row_of_ones(rabbet_onnx_node_t* node, rabbet_tensor_t* x) {
  if (rabbet_onnx_rank(node, x) != 1) return false;
  const rabbet_layer_t* producer = rabbet_tensor_producer(x);
  double number = 0;
  int64_t strict =
      rabbet_onnx_enumerator(node, "slice", "mode", "STRICT_BOUNDS");
  return producer && !strcmp(producer->op->name, "slice") &&
         rabbet_attr_int(producer->attrs, producer->op->attr_count, "mode",
                         -1) == strict &&
         rabbet_onnx_constant_number(node, producer->inputs[0], &number) &&
         number != 0;
}

static void onnx_import_non_zero(rabbet_onnx_node_t* node) {
  rabbet_tensor_t* x = rabbet_onnx_required(node, 0);
  node->outputs[0] =
      onnx_is_row_of_ones(node, x)
          ? rabbet_onnx_indices(node, rabbet_onnx_extent(node, x, 0), 1, 2)
          : rabbet_onnx_non_zero(node, x);
}

static void onnx_import_compress(rabbet_onnx_node_t* node) {
  rabbet_tensor_t* x = rabbet_onnx_required(node, 0);
  rabbet_tensor_t* condition = rabbet_onnx_required(node, 1);
  rabbet_dims_t dims = rabbet_onnx_dims(node, condition);
  if (rabbet_onnx_ok(node) && dims.rank != 1)
    RABBET_ONNX_FAIL(node, RABBET_STATUS_INVALID_ARGUMENT,
                     "input 1 ('condition') has rank %d; expected 1",
                     dims.rank);
  int axis = rabbet_onnx_ok(node) ? onnx_axis_or_flat(node, &x) : 0;
  int64_t extent = rabbet_onnx_ok(node) ? rabbet_onnx_dims(node, x).d[axis] : 0;
  if (rabbet_onnx_ok(node) && extent >= 0 && dims.d[0] > extent)
    RABBET_ONNX_FAIL(node, RABBET_STATUS_INVALID_ARGUMENT,
                     "input 1 ('condition') has %lld elements; there are %lld "
                     "to choose from",
                     (long long)dims.d[0], (long long)extent);
  rabbet_tensor_t* chosen = rabbet_onnx_non_zero(node, condition);
  chosen = rabbet_onnx_squeeze(node, chosen, 1);
  node->outputs[0] = rabbet_onnx_take(node, x, chosen, axis);
}

// ---- NonMaxSuppression -----------------------------------------------------

static void onnx_import_nms(rabbet_onnx_node_t* node) {
  rabbet_tensor_t* inputs[5] = {rabbet_onnx_required(node, 0),
                                rabbet_onnx_required(node, 1)};
  for (size_t i = 2; i < 5; ++i)
    inputs[i] = rabbet_onnx_input(node, i);
  int64_t center = rabbet_onnx_attr_int(node, "center_point_box", 0);
  if (rabbet_onnx_ok(node) && center != 0 && center != 1)
    RABBET_ONNX_FAIL(node, RABBET_STATUS_INVALID_ARGUMENT,
                     "center_point_box is %lld; expected 0 or 1",
                     (long long)center);
  // Without a number of boxes none is taken; without a threshold all count.
  if (!inputs[2])
    inputs[2] = rabbet_onnx_number(node, RABBET_DTYPE_INT64, 0, 0);
  if (!inputs[4])
    inputs[4] = rabbet_onnx_number(node, RABBET_DTYPE_FLOAT, 0, -FLT_MAX);
  rabbet_attr_t attrs[] = {RABBET_ONNX_INT("bounding_box_format", center),
                           RABBET_ONNX_INT("topk_box_limit", 0),
                           RABBET_ONNX_INT("indices_type", RABBET_DTYPE_INT64),
                           RABBET_ONNX_BOOL("classes_first", true)};
  rabbet_onnx_layer_outputs(node, "nms", inputs, 5, attrs, 4, node->outputs, 1);
}

// ---- Unique ----------------------------------------------------------------

// Rows are sorted column by column, the last one first.
enum { RABBET_ONNX_UNIQUE_COLUMNS = 128 };

static rabbet_tensor_t* onnx_int64(rabbet_onnx_node_t* node, int64_t value) {
  return rabbet_onnx_number(node, RABBET_DTYPE_INT64, 1, (double)value);
}

// The positions of a row's elements in ascending order.
static rabbet_tensor_t* onnx_sorted(rabbet_onnx_node_t* node,
                                    rabbet_tensor_t* row) {
  rabbet_tensor_t* outputs[2] = {NULL, NULL};
  rabbet_onnx_index_t count = onnx_count(node, row, 0);
  rabbet_tensor_t* k = rabbet_onnx_is_static(count)
                           ? NULL
                           : rabbet_onnx_index_vector(node, &count, 1);
  rabbet_onnx_topk(node, row, k, count.value, 0, false, outputs);
  return outputs[1];
}

// 1, 2, 3, ... for a vector of ones.
static rabbet_tensor_t* onnx_running(rabbet_onnx_node_t* node,
                                     rabbet_tensor_t* x) {
  rabbet_attr_t attrs[] = {RABBET_ONNX_INT("axis", 0)};
  return rabbet_onnx_layer(node, "cumulative", &x, 1, attrs, 1);
}

static rabbet_tensor_t* onnx_put(rabbet_onnx_node_t* node,
                                 rabbet_tensor_t* data,
                                 rabbet_tensor_t* indices,
                                 rabbet_tensor_t* updates,
                                 const char* reduction) {
  rabbet_tensor_t* inputs[] = {data, indices, updates};
  rabbet_attr_t attrs[] = {
      RABBET_ONNX_INT(
          "mode", rabbet_onnx_enumerator(node, "scatter", "mode", "ELEMENT")),
      RABBET_ONNX_INT("axis", 0),
      RABBET_ONNX_INT(
          "reduction",
          rabbet_onnx_enumerator(node, "scatter", "reduction", reduction))};
  return rabbet_onnx_layer(node, "scatter", inputs, 3, attrs, 3);
}

// `count` elements from `start` on of the first axis.
static rabbet_tensor_t* onnx_rows(rabbet_onnx_node_t* node, rabbet_tensor_t* x,
                                  int64_t start, rabbet_onnx_index_t count) {
  rabbet_onnx_slice_t slice = rabbet_onnx_slice_all(node, x);
  slice.start[0] = rabbet_onnx_index(start);
  slice.size[0] = count;
  return rabbet_onnx_slice(node, x, &slice);
}

// Column `index` of a matrix.
static rabbet_tensor_t* onnx_column(rabbet_onnx_node_t* node,
                                    rabbet_tensor_t* x, int64_t index) {
  rabbet_onnx_slice_t slice = rabbet_onnx_slice_all(node, x);
  slice.start[1] = rabbet_onnx_index(index);
  slice.size[1] = rabbet_onnx_index(1);
  return rabbet_onnx_squeeze(node, rabbet_onnx_slice(node, x, &slice), 2);
}

// The slices along the axis as the rows of a matrix.
static rabbet_tensor_t* onnx_as_rows(rabbet_onnx_node_t* node,
                                     rabbet_tensor_t* x, int axis) {
  int rank = rabbet_onnx_rank(node, x);
  int64_t order[RABBET_MAX_RANK];
  for (int i = 0; i < rank; ++i)
    order[i] = i == 0 ? axis : i <= axis ? i - 1 : i;
  if (!rabbet_onnx_ok(node)) return NULL;
  rabbet_attr_t attrs[] = {RABBET_ONNX_INTS("first_transpose", order, rank)};
  if (axis > 0) x = rabbet_onnx_layer(node, "shuffle", &x, 1, attrs, 1);
  rabbet_onnx_index_t dims[2] = {rabbet_onnx_extent(node, x, 0),
                                 onnx_count(node, x, 1)};
  return rabbet_onnx_reshape(node, x, dims, 2);
}

// The order of a matrix's rows: by the first column, then the second, ...
static rabbet_tensor_t* onnx_row_order(rabbet_onnx_node_t* node,
                                       rabbet_tensor_t* rows, int64_t columns) {
  rabbet_tensor_t* order = NULL;
  for (int64_t i = columns - 1; i >= 0 && rabbet_onnx_ok(node); --i) {
    rabbet_tensor_t* keys = onnx_column(node, rows, i);
    if (order) keys = rabbet_onnx_take(node, keys, order, 0);
    rabbet_tensor_t* next = onnx_sorted(node, keys);
    order = order ? rabbet_onnx_take(node, order, next, 0) : next;
  }
  return order;
}

// 1 for each row that differs from the one before it, else 0; the first one
// does.
static rabbet_tensor_t* onnx_differ(rabbet_onnx_node_t* node,
                                    rabbet_tensor_t* rows) {
  rabbet_onnx_index_t count = rabbet_onnx_extent(node, rows, 0);
  rabbet_onnx_index_t first =
      rabbet_onnx_index_op(node, "MIN", count, rabbet_onnx_index(1));
  rabbet_onnx_index_t rest = rabbet_onnx_index_op(node, "SUB", count, first);
  rabbet_tensor_t* equal =
      rabbet_onnx_binary(node, "EQUAL", onnx_rows(node, rows, 0, rest),
                         onnx_rows(node, rows, 1, rest));
  rabbet_tensor_t* same = rabbet_onnx_reduce(
      node, "MIN", rabbet_onnx_cast(node, equal, RABBET_DTYPE_INT32), 2, false);
  same = rabbet_onnx_cast(node, same, RABBET_DTYPE_INT64);
  rabbet_tensor_t* one = onnx_int64(node, 1);
  rabbet_tensor_t* parts[] = {rabbet_onnx_spread(node, one, &first, 1),
                              rabbet_onnx_binary(node, "SUB", one, same)};
  return rabbet_onnx_concat(node, parts, 2, 0);
}

// Results of Unique for the rows.
typedef struct onnx_unique_t {
  rabbet_tensor_t *indices, *inverse, *counts;
} onnx_unique_t;

static onnx_unique_t onnx_find_unique(rabbet_onnx_node_t* node,
                                      rabbet_tensor_t* rows, int64_t columns) {
  onnx_unique_t found = {NULL, NULL, NULL};
  rabbet_tensor_t* one = onnx_int64(node, 1);
  rabbet_tensor_t* order = onnx_row_order(node, rows, columns);
  rabbet_tensor_t* sorted = rabbet_onnx_take(node, rows, order, 0);
  rabbet_tensor_t* differs = onnx_differ(node, sorted);
  rabbet_tensor_t* firsts =
      rabbet_onnx_squeeze(node, rabbet_onnx_non_zero(node, differs), 1);
  // Which of the different rows each sorted row is.
  rabbet_tensor_t* which =
      rabbet_onnx_binary(node, "SUB", onnx_running(node, differs), one);
  found.indices = rabbet_onnx_take(node, order, firsts, 0);
  found.inverse = onnx_put(node, which, order, which, "NONE");
  if (!rabbet_onnx_wants(node, 3)) return found;
  rabbet_onnx_index_t count = rabbet_onnx_extent(node, firsts, 0);
  rabbet_onnx_index_t all = rabbet_onnx_extent(node, rows, 0);
  found.counts =
      onnx_put(node, rabbet_onnx_spread(node, onnx_int64(node, 0), &count, 1),
               which, rabbet_onnx_spread(node, one, &all, 1), "ADD");
  return found;
}

// In the order in which they occur first.
static onnx_unique_t onnx_unsort(rabbet_onnx_node_t* node,
                                 onnx_unique_t found) {
  rabbet_tensor_t* order = onnx_sorted(node, found.indices);
  rabbet_tensor_t* one = onnx_int64(node, 1);
  rabbet_onnx_index_t count = rabbet_onnx_extent(node, order, 0);
  rabbet_tensor_t* numbers = rabbet_onnx_binary(
      node, "SUB", onnx_running(node, rabbet_onnx_spread(node, one, &count, 1)),
      one);
  rabbet_tensor_t* places = onnx_put(node, numbers, order, numbers, "NONE");
  found.indices = rabbet_onnx_take(node, found.indices, order, 0);
  found.inverse = rabbet_onnx_take(node, places, found.inverse, 0);
  if (found.counts)
    found.counts = rabbet_onnx_take(node, found.counts, order, 0);
  return found;
}

static void onnx_import_unique(rabbet_onnx_node_t* node) {
  rabbet_tensor_t* x = rabbet_onnx_required(node, 0);
  bool sorted = rabbet_onnx_attr_int(node, "sorted", 1) != 0;
  int axis = rabbet_onnx_ok(node) ? onnx_axis_or_flat(node, &x) : 0;
  rabbet_tensor_t* rows = onnx_as_rows(node, x, axis);
  int64_t columns =
      rabbet_onnx_ok(node) ? rabbet_onnx_dims(node, rows).d[1] : 0;
  if (rabbet_onnx_ok(node) &&
      (columns < 1 || columns > RABBET_ONNX_UNIQUE_COLUMNS))
    RABBET_ONNX_FAIL(node, RABBET_STATUS_UNSUPPORTED,
                     "slices along axis %d have %lld elements (-1: not known); "
                     "from 1 to %d are compared",
                     axis, (long long)columns, RABBET_ONNX_UNIQUE_COLUMNS);
  if (!rabbet_onnx_ok(node)) return;
  if (rabbet_onnx_dtype_of(node, rows) == RABBET_DTYPE_BOOL)
    rows = rabbet_onnx_cast(node, rows, RABBET_DTYPE_INT32);
  onnx_unique_t found = onnx_find_unique(node, rows, columns);
  if (!sorted) found = onnx_unsort(node, found);
  node->outputs[0] = rabbet_onnx_take(node, x, found.indices, axis);
  if (rabbet_onnx_wants(node, 1)) node->outputs[1] = found.indices;
  if (rabbet_onnx_wants(node, 2)) node->outputs[2] = found.inverse;
  if (rabbet_onnx_wants(node, 3)) node->outputs[3] = found.counts;
}

RABBET_ONNX_OPERATORS(sizes) = {
    RABBET_ONNX_OP(Compress, compress, "", 9, 11, 28),
    RABBET_ONNX_OP(NonMaxSuppression, nms, "", 10, 11),
    RABBET_ONNX_OP(NonZero, non_zero, "", 9, 13),
    RABBET_ONNX_OP(Unique, unique, "", 11, 28),
    {0},
};
