// Parts of tensors: slices, splits, joins, pads, gathers.
#include <assert.h>
#include <string.h>

#include "base/math.h"
#include "onnx/dynamic_axes.h"
#include "onnx/operators.h"

// ---- Slice -----------------------------------------------------------------

// Beyond any extent: "to the end".
static const int64_t onnx_slice_to_end = INT32_MAX;

// Counts from the end where negative, then clamps to [low, high].
static rabbet_onnx_index_t onnx_bound_index(rabbet_onnx_node_t* node,
                                            rabbet_onnx_index_t at,
                                            rabbet_onnx_index_t extent,
                                            rabbet_onnx_index_t low,
                                            rabbet_onnx_index_t high) {
  if (rabbet_onnx_is_static(at)) {
    if (at.value >= onnx_slice_to_end) return high;
    if (at.value <= -onnx_slice_to_end) return low;
    if (at.value >= 0) return rabbet_onnx_index_op(node, "MIN", at, high);
    at = rabbet_onnx_index_op(node, "SUM", extent, at);
    return rabbet_onnx_index_op(node, "MAX", at, low);
  }
  rabbet_onnx_index_t negative =
      rabbet_onnx_index_op(node, "LESS", at, rabbet_onnx_index(0));
  at = rabbet_onnx_index_op(
      node, "SUM", at, rabbet_onnx_index_op(node, "PROD", negative, extent));
  at = rabbet_onnx_index_op(node, "MIN", at, high);
  return rabbet_onnx_index_op(node, "MAX", at, low);
}

// One axis: start, size and stride from ONNX's start, end and step. With a
// negative step, bounds are one lower: the start is at most the last element,
// the end at least -1.
static void onnx_slice_axis(rabbet_onnx_node_t* node,
                            rabbet_onnx_slice_t* slice, int axis,
                            rabbet_onnx_index_t start, rabbet_onnx_index_t end,
                            rabbet_onnx_index_t step) {
  assert(axis >= 0 && axis < RABBET_MAX_RANK);
  rabbet_onnx_index_t extent = slice->size[axis], zero = rabbet_onnx_index(0);
  rabbet_onnx_index_t back = rabbet_onnx_index_op(node, "LESS", step, zero);
  rabbet_onnx_index_t high = rabbet_onnx_index_op(node, "SUB", extent, back);
  rabbet_onnx_index_t low = rabbet_onnx_index_op(node, "SUB", zero, back);
  start = onnx_bound_index(node, start, extent, zero, high);
  end = onnx_bound_index(node, end, extent, low, high);
  rabbet_onnx_index_t size = rabbet_onnx_ceil_div(
      node, rabbet_onnx_index_op(node, "SUB", end, start), step);
  // With a negative step, the size of an empty axis would be 1.
  if (!rabbet_onnx_is_static(step) || step.value < 0)
    size = rabbet_onnx_index_op(node, "MIN", size, extent);
  slice->start[axis] = start;
  slice->size[axis] = rabbet_onnx_index_op(node, "MAX", size, zero);
  slice->stride[axis] = step;
}

typedef struct onnx_slicing_t {
  rabbet_onnx_ints_t starts, ends;     // attributes
  rabbet_tensor_t *start_at, *end_at;  // or inputs
  rabbet_tensor_t* step_at;            // NULL: 1
  rabbet_onnx_ints_t axes;
  rabbet_onnx_dynamic_axes_t dynamic_axes;  // or these
  int64_t count;
} onnx_slicing_t;

// Whether an input is a vector of `count` elements.
static bool onnx_has_length(rabbet_onnx_node_t* node, rabbet_tensor_t* x,
                            int64_t count) {
  rabbet_dims_t dims = rabbet_onnx_dims(node, x);
  return dims.rank == 1 && dims.d[0] == count;
}

static onnx_slicing_t onnx_slicing(rabbet_onnx_node_t* node) {
  onnx_slicing_t s = {0};
  bool fits = true;
  if (node->opset < 10) {
    s.starts = rabbet_onnx_attr_ints(node, "starts");
    s.ends = rabbet_onnx_attr_ints(node, "ends");
    s.axes = rabbet_onnx_attr_ints(node, "axes");
    s.count = (int64_t)s.starts.count;
    fits = s.ends.count == s.starts.count;
  } else {
    s.start_at = rabbet_onnx_required(node, 1);
    s.end_at = rabbet_onnx_required(node, 2);
    int rank = rabbet_onnx_rank(node, node->inputs[0]);
    rabbet_tensor_t* axes = rabbet_onnx_input(node, 3);
    if (!rabbet_onnx_read_dynamic_axes(node, axes, rank, &s.dynamic_axes))
      s.axes = rabbet_onnx_axes(node, 3);
    s.step_at = rabbet_onnx_input(node, 4);
    rabbet_dims_t dims = rabbet_onnx_dims(node, s.start_at);
    s.count = dims.rank == 1 ? dims.d[0] : -1;
    fits = onnx_has_length(node, s.end_at, s.count) &&
           (!s.step_at || onnx_has_length(node, s.step_at, s.count));
  }
  fits = fits && s.count >= 0 && s.count <= RABBET_MAX_RANK &&
         (!s.axes.present || s.axes.count == (size_t)s.count) &&
         (!s.dynamic_axes.count || s.dynamic_axes.count == s.count);
  if (!fits) {
    RABBET_ONNX_FAIL(node, RABBET_STATUS_INVALID_ARGUMENT,
                     "starts, ends, axes and steps must have one known length");
  }
  return s;
}

static rabbet_onnx_index_t onnx_slice_step(rabbet_onnx_node_t* node,
                                           const onnx_slicing_t* s, int i) {
  if (!s->step_at) return rabbet_onnx_index(1);
  rabbet_onnx_index_t step = rabbet_onnx_element(node, s->step_at, i);
  if (!rabbet_onnx_is_static(step)) return step;
  if (step.value == 0)
    RABBET_ONNX_FAIL(node, RABBET_STATUS_INVALID_ARGUMENT,
                     "element %d of input 4 ('steps') is 0", i);
  int64_t most = onnx_slice_to_end;
  return rabbet_onnx_index(step.value < -most  ? -most
                           : step.value > most ? most
                                               : step.value);
}

// Every axis with its own start, end and step.
static void onnx_slice_dynamic(rabbet_onnx_node_t* node,
                               const onnx_slicing_t* s,
                               rabbet_onnx_slice_t* slice, int rank) {
  for (int i = 0; i < rank && rabbet_onnx_ok(node); ++i) {
    rabbet_onnx_index_t start =
        rabbet_onnx_dynamic_value(node, &s->dynamic_axes, s->start_at, 0, i, 0);
    rabbet_onnx_index_t end = rabbet_onnx_dynamic_value(
        node, &s->dynamic_axes, s->end_at, 0, i, onnx_slice_to_end);
    rabbet_onnx_index_t step =
        s->step_at ? rabbet_onnx_dynamic_value(node, &s->dynamic_axes,
                                               s->step_at, 0, i, 1)
                   : rabbet_onnx_index(1);
    onnx_slice_axis(node, slice, i, start, end, step);
  }
}

static void onnx_import_slice(rabbet_onnx_node_t* node) {
  rabbet_tensor_t* x = rabbet_onnx_required(node, 0);
  onnx_slicing_t s = onnx_slicing(node);
  rabbet_onnx_slice_t slice = rabbet_onnx_slice_all(node, x);
  int rank = rabbet_onnx_rank(node, x);
  uint32_t seen = 0;
  if (s.dynamic_axes.count) onnx_slice_dynamic(node, &s, &slice, rank);
  for (int i = 0; i < s.count && !s.dynamic_axes.count && rabbet_onnx_ok(node);
       ++i) {
    int axis =
        rabbet_onnx_axis(node, s.axes.present ? s.axes.data[i] : i, rank);
    if (rabbet_onnx_ok(node) && seen >> axis & 1)
      RABBET_ONNX_FAIL(node, RABBET_STATUS_INVALID_ARGUMENT,
                       "axis %d is sliced twice", axis);
    if (!rabbet_onnx_ok(node)) return;
    seen |= 1u << axis;
    rabbet_onnx_index_t start = s.start_at
                                    ? rabbet_onnx_element(node, s.start_at, i)
                                    : rabbet_onnx_index(s.starts.data[i]);
    rabbet_onnx_index_t end = s.end_at ? rabbet_onnx_element(node, s.end_at, i)
                                       : rabbet_onnx_index(s.ends.data[i]);
    rabbet_onnx_index_t step = onnx_slice_step(node, &s, i);
    onnx_slice_axis(node, &slice, axis, start, end, step);
  }
  node->outputs[0] = rabbet_onnx_slice(node, x, &slice);
}

// ---- Split, Concat, Tile ---------------------------------------------------

// The extent of part i when `parts` divide an axis: equal but for the last.
static rabbet_onnx_index_t onnx_equal_part(rabbet_onnx_node_t* node,
                                           rabbet_onnx_index_t extent,
                                           size_t parts) {
  rabbet_onnx_index_t n = rabbet_onnx_index((int64_t)parts);
  rabbet_onnx_index_t up = rabbet_onnx_index_op(
      node, "SUM", extent, rabbet_onnx_index((int64_t)parts - 1));
  return rabbet_onnx_index_op(node, "FLOOR_DIV", up, n);
}

// Extents of the parts of an axis: given as an attribute or an input, else
// equal.
static void onnx_split_sizes(rabbet_onnx_node_t* node,
                             rabbet_onnx_index_t extent,
                             rabbet_onnx_index_t* sizes) {
  rabbet_onnx_ints_t attr = rabbet_onnx_attr_ints(node, "split");
  rabbet_tensor_t* given = rabbet_onnx_input(node, 1);
  size_t count = node->output_count;
  if (!rabbet_onnx_ok(node)) return;
  if (given ? !onnx_has_length(node, given, (int64_t)count)
            : attr.present && attr.count != count) {
    RABBET_ONNX_FAIL(node, RABBET_STATUS_INVALID_ARGUMENT,
                     "'split' must be a vector of %zu sizes, one for each "
                     "output",
                     count);
    return;
  }
  rabbet_onnx_index_t part = onnx_equal_part(node, extent, count);
  rabbet_onnx_index_t left = extent;
  for (size_t i = 0; i < count && rabbet_onnx_ok(node); ++i) {
    // The rest of the axis bounds a part: the last may be smaller, or empty.
    sizes[i] = given          ? rabbet_onnx_element(node, given, (int)i)
               : attr.present ? rabbet_onnx_index(attr.data[i])
                              : rabbet_onnx_index_op(node, "MIN", part, left);
    if (!given && !attr.present)
      left = rabbet_onnx_index_op(node, "SUB", left, sizes[i]);
  }
}

static void onnx_check_parts(rabbet_onnx_node_t* node,
                             const rabbet_onnx_index_t* sizes,
                             rabbet_onnx_index_t extent) {
  int64_t sum = 0;
  bool known = rabbet_onnx_is_static(extent), good = true;
  for (size_t i = 0; i < node->output_count && good; ++i) {
    known = known && rabbet_onnx_is_static(sizes[i]);
    good = sizes[i].value >= 0 && rabbet_checked_add(sum, sizes[i].value, &sum);
  }
  if (known) good = good && sum == extent.value;
  if (good || !rabbet_onnx_ok(node)) return;
  RABBET_ONNX_FAIL(node, RABBET_STATUS_INVALID_ARGUMENT,
                   "the %zu sizes of 'split' must not be negative and must add "
                   "up to the axis",
                   node->output_count);
}

// Fails runs in which the parts end before or behind the end of the axis: sizes
// that an exporter wrote for its example cut off the rest of a larger one.
static void onnx_split_demand(rabbet_onnx_node_t* node, rabbet_tensor_t* x,
                              int axis, rabbet_onnx_index_t end) {
  rabbet_onnx_index_t extent = rabbet_onnx_extent(node, x, axis);
  const char* message = NULL;
  if (!rabbet_onnx_ok(node) || end.tensor == extent.tensor) return;
  if (!end.tensor) {
    rabbet_onnx_index_t swapped = end;
    end = extent;
    extent = swapped;
  }
  rabbet_onnx_fail(
      node, rabbet_arena_printf(
                &node->importer->arena, &message,
                "the sizes of 'split' of node '%s' do not add up to axis %d of "
                "'%s'",
                node->name, axis, rabbet_tensor_name(x)));
  if (!rabbet_onnx_ok(node)) return;
  rabbet_tensor_t* same =
      extent.tensor
          ? rabbet_onnx_binary(node, "EQUAL", end.tensor, extent.tensor)
          : rabbet_onnx_with_number(node, "EQUAL", end.tensor,
                                    (double)extent.value);
  rabbet_onnx_assert(node, same, message);
}

static void onnx_import_split(rabbet_onnx_node_t* node) {
  rabbet_tensor_t* x = rabbet_onnx_required(node, 0);
  int axis = rabbet_onnx_axis(node, rabbet_onnx_attr_int(node, "axis", 0),
                              rabbet_onnx_rank(node, x));
  rabbet_onnx_slice_t slice = rabbet_onnx_slice_all(node, x);
  rabbet_onnx_index_t* sizes = NULL;
  if (!rabbet_onnx_ok(node)) return;
  rabbet_onnx_index_t extent = slice.size[axis];
  rabbet_onnx_fail(node, rabbet_arena_allocate_array(
                             &node->importer->arena, node->output_count,
                             sizeof(*sizes), (void**)&sizes));
  onnx_split_sizes(node, extent, sizes);
  if (rabbet_onnx_ok(node)) onnx_check_parts(node, sizes, extent);
  rabbet_onnx_index_t at = rabbet_onnx_index(0);
  for (size_t i = 0; i < node->output_count && rabbet_onnx_ok(node); ++i) {
    slice.start[axis] = at;
    slice.size[axis] = sizes[i];
    at = rabbet_onnx_index_op(node, "SUM", at, sizes[i]);
    if (!rabbet_onnx_wants(node, i)) continue;
    node->outputs[i] = rabbet_onnx_slice(node, x, &slice);
  }
  if (rabbet_onnx_input(node, 1) ||
      rabbet_onnx_attr_ints(node, "split").present)
    onnx_split_demand(node, x, axis, at);
}

static void onnx_import_concat(rabbet_onnx_node_t* node) {
  rabbet_tensor_t* x = rabbet_onnx_required(node, 0);
  int axis = rabbet_onnx_axis(node, rabbet_onnx_attr_int(node, "axis", 1),
                              rabbet_onnx_rank(node, x));
  for (size_t i = 0; i < node->input_count; ++i) {
    rabbet_onnx_required(node, i);
  }
  if (!rabbet_onnx_ok(node)) return;
  node->outputs[0] =
      rabbet_onnx_concat(node, node->inputs, node->input_count, axis);
}

// Before opset 6: how often, and along which axis.
static void onnx_tile_axis(rabbet_onnx_node_t* node, rabbet_tensor_t* x,
                           rabbet_onnx_slice_t* slice) {
  rabbet_tensor_t* tiles = rabbet_onnx_required(node, 1);
  double axis = 0;
  if (!rabbet_onnx_constant_number(node, rabbet_onnx_required(node, 2), &axis))
    RABBET_ONNX_FAIL(node, RABBET_STATUS_UNSUPPORTED,
                     "input 2 ('axis') must be constant");
  int at = rabbet_onnx_axis(node, (int64_t)axis, rabbet_onnx_rank(node, x));
  if (!rabbet_onnx_ok(node)) return;
  slice->size[at] = rabbet_onnx_index_op(node, "PROD", slice->size[at],
                                         rabbet_onnx_element(node, tiles, 0));
  node->outputs[0] = rabbet_onnx_slice(node, x, slice);
}

// Reading on past the end wraps around. Axes of extent 1 alone are repeated as
// Expand does it, which other layers can take.
static void onnx_import_tile(rabbet_onnx_node_t* node) {
  rabbet_tensor_t* x = rabbet_onnx_required(node, 0);
  rabbet_tensor_t* repeats = rabbet_onnx_required(node, 1);
  rabbet_onnx_slice_t slice = rabbet_onnx_slice_all(node, x);
  int rank = rabbet_onnx_rank(node, x);
  slice.mode = "WRAP";
  if (node->opset < 6) {
    onnx_tile_axis(node, x, &slice);
    return;
  }
  rabbet_dims_t dims = rabbet_onnx_dims(node, repeats);
  if (rabbet_onnx_ok(node) && (dims.rank != 1 || dims.d[0] != rank)) {
    RABBET_ONNX_FAIL(node, RABBET_STATUS_INVALID_ARGUMENT,
                     "repeats must have a number for each of %d axes", rank);
  }
  rabbet_dims_t extents = rabbet_onnx_dims(node, x);
  bool spreads = true;
  for (int i = 0; i < rank && rabbet_onnx_ok(node); ++i) {
    rabbet_onnx_index_t times = rabbet_onnx_element(node, repeats, i);
    slice.size[i] = rabbet_onnx_index_op(node, "PROD", slice.size[i], times);
    if (extents.d[i] == 1)
      slice.stride[i] = rabbet_onnx_index(0);
    else
      spreads = spreads && rabbet_onnx_is_static(times) && times.value == 1;
  }
  if (spreads) slice.mode = "STRICT_BOUNDS";
  node->outputs[0] = rank == 0 ? x : rabbet_onnx_slice(node, x, &slice);
}

// ---- Pad -------------------------------------------------------------------

static const char* onnx_pad_mode(rabbet_onnx_node_t* node) {
  static const char* const modes[][2] = {{"constant", "FILL"},
                                         {"reflect", "REFLECT"},
                                         {"edge", "CLAMP"},
                                         {"wrap", "WRAP"}};
  const char* mode = rabbet_onnx_attr_string(node, "mode", "constant");
  for (size_t i = 0; i < sizeof(modes) / sizeof(modes[0]); ++i) {
    if (!strcmp(modes[i][0], mode)) return modes[i][1];
  }
  RABBET_ONNX_FAIL(node, RABBET_STATUS_INVALID_ARGUMENT,
                   "mode is '%s'; constant, reflect, edge and wrap exist",
                   mode);
  return "FILL";
}

// The number to fill with: of x's type, rank 0; NULL for 0.
static rabbet_tensor_t* onnx_pad_value(rabbet_onnx_node_t* node,
                                       rabbet_tensor_t* x) {
  rabbet_tensor_t* value = rabbet_onnx_input(node, 2);
  if (value) {
    bool vector = rabbet_onnx_rank(node, value) == 1;
    value = vector ? rabbet_onnx_squeeze(node, value, 1) : value;
    return rabbet_onnx_cast(node, value, rabbet_onnx_dtype_of(node, x));
  }
  double number = rabbet_onnx_attr_float(node, "value", 0);
  if (number == 0) return NULL;
  return rabbet_onnx_number(node, rabbet_onnx_dtype_of(node, x), 0, number);
}

static rabbet_onnx_index_t onnx_pad_at(rabbet_onnx_node_t* node,
                                       rabbet_onnx_ints_t known,
                                       rabbet_tensor_t* pads, int i) {
  return known.present ? rabbet_onnx_index(known.data[i])
                       : rabbet_onnx_element(node, pads, i);
}

static void onnx_pad_axis(rabbet_onnx_node_t* node, rabbet_onnx_slice_t* slice,
                          int axis, rabbet_onnx_index_t before,
                          rabbet_onnx_index_t after) {
  slice->start[axis] =
      rabbet_onnx_index_op(node, "SUB", rabbet_onnx_index(0), before);
  slice->size[axis] = rabbet_onnx_index_op(
      node, "SUM", rabbet_onnx_index_op(node, "SUM", slice->size[axis], before),
      after);
}

static void onnx_import_pad(rabbet_onnx_node_t* node) {
  rabbet_tensor_t* x = rabbet_onnx_required(node, 0);
  int rank = rabbet_onnx_rank(node, x);
  rabbet_onnx_ints_t pads =
      rabbet_onnx_attr_ints(node, node->opset < 2 ? "paddings" : "pads");
  rabbet_tensor_t* given = NULL;
  if (node->opset >= 11) given = rabbet_onnx_required(node, 1);
  rabbet_onnx_ints_t axes = {0};
  rabbet_onnx_dynamic_axes_t dynamic_axes;
  if (!rabbet_onnx_read_dynamic_axes(node, rabbet_onnx_input(node, 3), rank,
                                     &dynamic_axes) &&
      rabbet_onnx_input(node, 3))
    axes = rabbet_onnx_constant_ints(node, "axes", node->inputs[3]);
  size_t count = dynamic_axes.count ? (size_t)dynamic_axes.count
                 : axes.present     ? axes.count
                                    : (size_t)rank;
  rabbet_onnx_axes_mask(node, axes, rank);
  rabbet_dims_t length = rabbet_onnx_dims(node, given);
  size_t numbers = given ? (size_t)length.d[0] : pads.count;
  if (rabbet_onnx_ok(node) &&
      (numbers != 2 * count || (given && length.rank != 1))) {
    RABBET_ONNX_FAIL(node, RABBET_STATUS_INVALID_ARGUMENT,
                     "pads must be a vector of %zu numbers", 2 * count);
  }
  rabbet_onnx_slice_t slice = rabbet_onnx_slice_all(node, x);
  slice.mode = onnx_pad_mode(node);
  if (!strcmp(slice.mode, "FILL")) slice.fill = onnx_pad_value(node, x);
  for (int i = 0; i < rank && dynamic_axes.count && rabbet_onnx_ok(node); ++i)
    onnx_pad_axis(
        node, &slice, i,
        rabbet_onnx_dynamic_value(node, &dynamic_axes, given, 0, i, 0),
        rabbet_onnx_dynamic_value(node, &dynamic_axes, given,
                                  dynamic_axes.count, i, 0));
  for (size_t i = 0; i < count && !dynamic_axes.count && rabbet_onnx_ok(node);
       ++i) {
    int axis =
        axes.present ? rabbet_onnx_axis(node, axes.data[i], rank) : (int)i;
    onnx_pad_axis(node, &slice, axis, onnx_pad_at(node, pads, given, (int)i),
                  onnx_pad_at(node, pads, given, (int)(i + count)));
  }
  node->outputs[0] = rank == 0 ? x : rabbet_onnx_slice(node, x, &slice);
}

// ---- Gather ----------------------------------------------------------------

// Indices below 0 count from the end. Constant ones are settled here, if the
// extent is known; others by layers.
static rabbet_tensor_t* onnx_wrap_constant(
    rabbet_onnx_node_t* node, const rabbet_onnx_constant_t* indices,
    int64_t extent) {
  rabbet_dtype_t dtype = indices->weights.dtype;
  int64_t count;
  void* data = rabbet_onnx_weights_room(node, dtype, &indices->dims, &count);
  for (int64_t i = 0; i < count && rabbet_onnx_ok(node); ++i) {
    int64_t at = rabbet_load_int64(dtype, indices->weights.data, i);
    if (at < -extent || at >= extent) {
      RABBET_ONNX_FAIL(node, RABBET_STATUS_OUT_OF_RANGE,
                       "index %lld is outside [%lld, %lld)", (long long)at,
                       (long long)-extent, (long long)extent);
      return NULL;
    }
    rabbet_store_int64(dtype, data, i, at < 0 ? at + extent : at);
  }
  return rabbet_onnx_weights(node, dtype, data, &indices->dims);
}

static bool onnx_has_negative(const rabbet_onnx_constant_t* indices) {
  for (int64_t i = 0; i < indices->weights.count; ++i) {
    if (rabbet_load_int64(indices->weights.dtype, indices->weights.data, i) <
        0) {
      return true;
    }
  }
  return false;
}

// extents: a number, or (ND) a vector that broadcasts to the indices.
static rabbet_tensor_t* onnx_wrap_computed(rabbet_onnx_node_t* node,
                                           rabbet_tensor_t* indices,
                                           rabbet_tensor_t* extents) {
  extents =
      rabbet_onnx_cast(node, extents, rabbet_onnx_dtype_of(node, indices));
  rabbet_tensor_t* negative = rabbet_onnx_with_number(node, "LESS", indices, 0);
  rabbet_tensor_t* wrapped = rabbet_onnx_binary(node, "SUM", indices, extents);
  return rabbet_onnx_select(node, negative, wrapped, indices);
}

static rabbet_tensor_t* onnx_wrap(rabbet_onnx_node_t* node,
                                  rabbet_tensor_t* indices,
                                  rabbet_onnx_index_t extent) {
  rabbet_onnx_constant_t constant;
  bool is_constant = rabbet_onnx_is_constant(node, indices, &constant);
  if (is_constant && !onnx_has_negative(&constant)) return indices;
  if (is_constant && rabbet_onnx_is_static(extent)) {
    return onnx_wrap_constant(node, &constant, extent.value);
  }
  rabbet_onnx_ints_t followed = rabbet_onnx_try_ints(node, indices);
  bool negative = !followed.present;
  for (size_t i = 0; i < followed.count; ++i) {
    negative |= followed.data[i] < 0;
  }
  if (!negative) return indices;
  rabbet_tensor_t* number = rabbet_onnx_index_vector(node, &extent, 1);
  if (rabbet_onnx_rank(node, indices) == 0) {
    number = rabbet_onnx_squeeze(node, number, 1);
  }
  return onnx_wrap_computed(node, indices, number);
}

static rabbet_tensor_t* onnx_gather(rabbet_onnx_node_t* node,
                                    rabbet_tensor_t* data,
                                    rabbet_tensor_t* indices, const char* mode,
                                    int64_t axis, int64_t batch) {
  rabbet_tensor_t* inputs[] = {data, indices};
  rabbet_attr_t attrs[] = {
      RABBET_ONNX_INT("mode",
                      rabbet_onnx_enumerator(node, "gather", "mode", mode)),
      RABBET_ONNX_INT("axis", axis),
      RABBET_ONNX_INT("num_elementwise_dims", batch),
  };
  return rabbet_onnx_layer(node, "gather", inputs, 2, attrs, 3);
}

static void onnx_import_gather(rabbet_onnx_node_t* node) {
  rabbet_tensor_t* data = rabbet_onnx_required(node, 0);
  rabbet_tensor_t* indices = rabbet_onnx_required(node, 1);
  int axis = rabbet_onnx_axis(node, rabbet_onnx_attr_int(node, "axis", 0),
                              rabbet_onnx_rank(node, data));
  if (!rabbet_onnx_ok(node)) return;
  rabbet_onnx_index_t extent = rabbet_onnx_extent(node, data, axis);
  indices = onnx_wrap(node, indices, extent);
  node->outputs[0] = onnx_gather(node, data, indices, node->variant, axis, 0);
}

// Extents of the axes that GatherND's indices refer to, as a vector.
static rabbet_tensor_t* onnx_nd_extents(rabbet_onnx_node_t* node,
                                        rabbet_tensor_t* data, int batch,
                                        int depth) {
  rabbet_onnx_index_t extents[RABBET_MAX_RANK];
  for (int i = 0; i < depth; ++i) {
    extents[i] = rabbet_onnx_extent(node, data, batch + i);
  }
  return rabbet_onnx_index_vector(node, extents, (size_t)depth);
}

static void onnx_import_gather_nd(rabbet_onnx_node_t* node) {
  rabbet_tensor_t* data = rabbet_onnx_required(node, 0);
  rabbet_tensor_t* indices = rabbet_onnx_required(node, 1);
  int64_t batch = rabbet_onnx_attr_int(node, "batch_dims", 0);
  int rank = rabbet_onnx_rank(node, data);
  rabbet_dims_t dims = rabbet_onnx_dims(node, indices);
  int64_t depth = dims.rank > 0 ? dims.d[dims.rank - 1] : -1;
  if (rabbet_onnx_ok(node) &&
      (batch < 0 || depth < 1 || batch >= dims.rank || batch + depth > rank)) {
    RABBET_ONNX_FAIL(node, RABBET_STATUS_INVALID_ARGUMENT,
                     "the last axis of the indices (%lld) and batch_dims "
                     "(%lld) do not fit data of rank %d",
                     (long long)depth, (long long)batch, rank);
  }
  if (!rabbet_onnx_ok(node)) return;
  rabbet_onnx_constant_t constant;
  bool plain = rabbet_onnx_is_constant(node, indices, &constant) &&
               !onnx_has_negative(&constant);
  if (!plain) {
    indices = onnx_wrap_computed(
        node, indices, onnx_nd_extents(node, data, (int)batch, (int)depth));
  }
  node->outputs[0] = onnx_gather(node, data, indices, "ND", 0, batch);
}

RABBET_ONNX_OPERATORS(slice) = {
    RABBET_ONNX_OP(Concat, concat, "", 1, 4, 11, 13),
    RABBET_ONNX_OP(Gather, gather, "DEFAULT", 1, 11, 13),
    RABBET_ONNX_OP(GatherElements, gather, "ELEMENT", 11, 13),
    RABBET_ONNX_OP(GatherND, gather_nd, "", 11, 12, 13),
    RABBET_ONNX_OP(Pad, pad, "", 1, 2, 11, 13, 18, 19, 21, 23, 24, 25),
    RABBET_ONNX_OP(Slice, slice, "", 1, 10, 11, 13),
    RABBET_ONNX_OP(Split, split, "", 1, 2, 11, 13, 18),
    RABBET_ONNX_OP(Tile, tile, "", 1, 6, 13),
    {0},
};
