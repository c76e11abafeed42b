#include "onnx/dynamic_axes.h"

// ---- Arithmetic ------------------------------------------------------------

static rabbet_onnx_index_t onnx_axes_is(rabbet_onnx_node_t* node,
                                        rabbet_onnx_index_t a, int b) {
  return rabbet_onnx_index_op(node, "EQUAL", a, rabbet_onnx_index(b));
}

static rabbet_onnx_index_t onnx_axes_not(rabbet_onnx_node_t* node,
                                         rabbet_onnx_index_t truth) {
  return rabbet_onnx_index_op(node, "SUB", rabbet_onnx_index(1), truth);
}

static bool onnx_axes_is_number(rabbet_onnx_index_t x, int64_t number) {
  return rabbet_onnx_is_static(x) && x.value == number;
}

// x where the condition (0 or 1) holds, else 1.
static rabbet_onnx_index_t onnx_axes_or_one(rabbet_onnx_node_t* node,
                                            rabbet_onnx_index_t condition,
                                            rabbet_onnx_index_t x) {
  if (onnx_axes_is_number(x, 1)) return x;
  x = rabbet_onnx_index_op(node, "SUB", x, rabbet_onnx_index(1));
  x = rabbet_onnx_index_op(node, "PROD", condition, x);
  return rabbet_onnx_index_op(node, "SUM", x, rabbet_onnx_index(1));
}

// sum + condition * x
static rabbet_onnx_index_t onnx_axes_add(rabbet_onnx_node_t* node,
                                         rabbet_onnx_index_t sum,
                                         rabbet_onnx_index_t condition,
                                         rabbet_onnx_index_t x) {
  if (onnx_axes_is_number(condition, 0)) return sum;
  x = rabbet_onnx_index_op(node, "PROD", condition, x);
  return onnx_axes_is_number(sum, 0)
             ? x
             : rabbet_onnx_index_op(node, "SUM", sum, x);
}

// 1 if `axis` is among the axes, else 0. Estimates in a build may name an axis
// twice.
static rabbet_onnx_index_t onnx_axes_has(rabbet_onnx_node_t* node,
                                         const rabbet_onnx_dynamic_axes_t* axes,
                                         int axis) {
  rabbet_onnx_index_t sum = rabbet_onnx_index(0);
  for (int i = 0; i < axes->count; ++i)
    sum = onnx_axes_add(node, sum, onnx_axes_is(node, axes->at[i], axis),
                        rabbet_onnx_index(1));
  return axes->count > 1
             ? rabbet_onnx_index_op(node, "MIN", sum, rabbet_onnx_index(1))
             : sum;
}

static int onnx_axes_extents(rabbet_onnx_node_t* node, rabbet_tensor_t* x,
                             rabbet_onnx_index_t* out_dims) {
  int rank = rabbet_onnx_rank(node, x);
  for (int i = 0; i < rank; ++i)
    out_dims[i] = rabbet_onnx_extent(node, x, i);
  return rank;
}

// ---- The axes --------------------------------------------------------------

bool rabbet_onnx_read_dynamic_axes(rabbet_onnx_node_t* node,
                                   rabbet_tensor_t* axes, int rank,
                                   rabbet_onnx_dynamic_axes_t* out_axes) {
  *out_axes = (rabbet_onnx_dynamic_axes_t){0};
  if (!axes || !rabbet_onnx_ok(node)) return false;
  if (rabbet_onnx_try_ints(node, axes).present) return false;
  bool single = rabbet_onnx_rank(node, axes) == 0;
  int count = single ? 1 : rabbet_onnx_shape_length(node, axes);
  if (rabbet_onnx_ok(node) && count > rank)
    RABBET_ONNX_FAIL(node, RABBET_STATUS_INVALID_ARGUMENT,
                     "%d axes ('%s') of a tensor of rank %d", count,
                     rabbet_tensor_name(axes), rank);
  if (!rabbet_onnx_ok(node)) return false;
  out_axes->count = count;
  for (int i = 0; i < count; ++i) {
    rabbet_onnx_index_t at = rabbet_onnx_element(node, axes, i);
    rabbet_onnx_index_t negative =
        rabbet_onnx_index_op(node, "LESS", at, rabbet_onnx_index(0));
    out_axes->at[i] =
        onnx_axes_add(node, at, negative, rabbet_onnx_index(rank));
  }
  return rabbet_onnx_ok(node);
}

rabbet_onnx_index_t rabbet_onnx_dynamic_value(
    rabbet_onnx_node_t* node, const rabbet_onnx_dynamic_axes_t* axes,
    rabbet_tensor_t* values, int first, int axis, int64_t otherwise) {
  rabbet_onnx_index_t sum = rabbet_onnx_index(0);
  for (int i = 0; i < axes->count; ++i)
    sum = onnx_axes_add(node, sum, onnx_axes_is(node, axes->at[i], axis),
                        rabbet_onnx_element(node, values, first + i));
  rabbet_onnx_index_t none =
      onnx_axes_not(node, onnx_axes_has(node, axes, axis));
  return otherwise == 0
             ? sum
             : onnx_axes_add(node, sum, none, rabbet_onnx_index(otherwise));
}

// ---- Reshapes --------------------------------------------------------------

// An axis out of range leaves 0 elements in the middle, so that the reshape
// fails in the run.
static rabbet_tensor_t* onnx_axes_split(rabbet_onnx_node_t* node,
                                        rabbet_tensor_t* x,
                                        const rabbet_onnx_index_t* dims,
                                        int rank, rabbet_onnx_index_t axis) {
  rabbet_onnx_index_t parts[3] = {rabbet_onnx_index(1), rabbet_onnx_index(0),
                                  rabbet_onnx_index(1)};
  for (int i = 0; i < rank && rabbet_onnx_ok(node); ++i) {
    rabbet_onnx_index_t at = rabbet_onnx_index(i);
    rabbet_onnx_index_t before = rabbet_onnx_index_op(node, "LESS", at, axis);
    rabbet_onnx_index_t behind = rabbet_onnx_index_op(node, "LESS", axis, at);
    parts[0] = rabbet_onnx_index_op(node, "PROD", parts[0],
                                    onnx_axes_or_one(node, before, dims[i]));
    parts[1] =
        onnx_axes_add(node, parts[1], onnx_axes_is(node, axis, i), dims[i]);
    parts[2] = rabbet_onnx_index_op(node, "PROD", parts[2],
                                    onnx_axes_or_one(node, behind, dims[i]));
  }
  return rabbet_onnx_reshape(node, x, parts, 3);
}

rabbet_tensor_t* rabbet_onnx_dynamic_middle(rabbet_onnx_node_t* node,
                                            rabbet_tensor_t* x,
                                            rabbet_onnx_index_t axis) {
  rabbet_onnx_index_t dims[RABBET_MAX_RANK];
  int rank = onnx_axes_extents(node, x, dims);
  return onnx_axes_split(node, x, dims, rank, axis);
}

rabbet_tensor_t* rabbet_onnx_dynamic_reduce(
    rabbet_onnx_node_t* node, const char* op, rabbet_tensor_t* x,
    const rabbet_onnx_dynamic_axes_t* axes, bool keep_dims) {
  rabbet_onnx_index_t dims[RABBET_MAX_RANK];
  int rank = onnx_axes_extents(node, x, dims);
  for (int k = 0; k < axes->count && rabbet_onnx_ok(node); ++k) {
    x = onnx_axes_split(node, x, dims, rank, axes->at[k]);
    x = rabbet_onnx_reduce(node, op, x, 2, false);
    for (int i = 0; i < rank; ++i) {
      rabbet_onnx_index_t stays =
          onnx_axes_not(node, onnx_axes_is(node, axes->at[k], i));
      dims[i] = onnx_axes_or_one(node, stays, dims[i]);
    }
  }
  x = rabbet_onnx_reshape(node, x, dims, rank);
  return keep_dims ? x : rabbet_onnx_dynamic_squeeze(node, x, axes);
}

// A remaining axis moves to position k if k remaining axes are before it.
rabbet_tensor_t* rabbet_onnx_dynamic_squeeze(
    rabbet_onnx_node_t* node, rabbet_tensor_t* x,
    const rabbet_onnx_dynamic_axes_t* axes) {
  rabbet_onnx_index_t dims[RABBET_MAX_RANK], out[RABBET_MAX_RANK];
  int rank = onnx_axes_extents(node, x, dims);
  int out_rank = rank - axes->count;
  for (int i = 0; i < out_rank; ++i)
    out[i] = rabbet_onnx_index(0);
  rabbet_onnx_index_t place = rabbet_onnx_index(0);
  for (int i = 0; i < rank && rabbet_onnx_ok(node); ++i) {
    rabbet_onnx_index_t stays =
        onnx_axes_not(node, onnx_axes_has(node, axes, i));
    for (int to = i - axes->count; to <= i; ++to) {
      if (to < 0 || to >= out_rank) continue;
      rabbet_onnx_index_t here = rabbet_onnx_index_op(
          node, "PROD", stays, onnx_axes_is(node, place, to));
      out[to] = onnx_axes_add(node, out[to], here, dims[i]);
    }
    place = onnx_axes_add(node, place, stays, rabbet_onnx_index(1));
  }
  return rabbet_onnx_reshape(node, x, out, out_rank);
}

rabbet_tensor_t* rabbet_onnx_dynamic_unsqueeze(
    rabbet_onnx_node_t* node, rabbet_tensor_t* x,
    const rabbet_onnx_dynamic_axes_t* axes) {
  rabbet_onnx_index_t dims[RABBET_MAX_RANK], out[RABBET_MAX_RANK];
  int rank = onnx_axes_extents(node, x, dims);
  rabbet_onnx_index_t place = rabbet_onnx_index(0);
  for (int to = 0; to < rank + axes->count && rabbet_onnx_ok(node); ++to) {
    rabbet_onnx_index_t is_new = onnx_axes_has(node, axes, to);
    rabbet_onnx_index_t is_old = onnx_axes_not(node, is_new);
    out[to] = is_new;
    for (int i = to - axes->count; i <= to; ++i) {
      if (i < 0 || i >= rank) continue;
      rabbet_onnx_index_t here = rabbet_onnx_index_op(
          node, "PROD", is_old, onnx_axes_is(node, place, i));
      out[to] = onnx_axes_add(node, out[to], here, dims[i]);
    }
    place = onnx_axes_add(node, place, is_old, rabbet_onnx_index(1));
  }
  return rabbet_onnx_reshape(node, x, out, rank + axes->count);
}
