#include "onnx/index.h"

#include <assert.h>
#include <string.h>

#include "base/math.h"

// ---- Numbers that are known ------------------------------------------------

static bool onnx_fold(const char* op, int64_t a, int64_t b, int64_t* out) {
  if (!strcmp(op, "SUM")) return rabbet_checked_add(a, b, out);
  if (!strcmp(op, "SUB")) return rabbet_checked_sub(a, b, out);
  if (!strcmp(op, "PROD")) return rabbet_checked_mul(a, b, out);
  if (!strcmp(op, "MIN")) *out = rabbet_min_i64(a, b);
  if (!strcmp(op, "MAX")) *out = rabbet_max_i64(a, b);
  if (!strcmp(op, "LESS")) *out = a < b;
  if (!strcmp(op, "EQUAL")) *out = a == b;
  if (!strcmp(op, "FLOOR_DIV")) {
    if (b == 0 || (b == -1 && a == INT64_MIN)) return false;
    *out = rabbet_floordiv(a, b);
  }
  return true;
}

// x + 0, x - 0, x * 1, x / 1: no layer. Extents are never negative.
static bool onnx_is_neutral(const char* op, rabbet_onnx_index_t b) {
  if (!rabbet_onnx_is_static(b)) return false;
  bool one = !strcmp(op, "PROD") || !strcmp(op, "FLOOR_DIV");
  bool zero = !strcmp(op, "SUM") || !strcmp(op, "SUB");
  return (one && b.value == 1) || (zero && b.value == 0);
}

// ---- Elements --------------------------------------------------------------

static rabbet_onnx_index_t onnx_index_of(rabbet_onnx_node_t* node,
                                         rabbet_tensor_t* x) {
  rabbet_onnx_ints_t ints = rabbet_onnx_try_ints(node, x);
  if (!rabbet_onnx_ok(node)) return rabbet_onnx_index(0);
  if (ints.present && ints.count == 1) return rabbet_onnx_index(ints.data[0]);
  return (rabbet_onnx_index_t){.tensor = x};
}

static rabbet_tensor_t* onnx_pick(rabbet_onnx_node_t* node, rabbet_tensor_t* x,
                                  int position) {
  int64_t start = position, one = 1;
  rabbet_attr_t attrs[] = {
      RABBET_ONNX_INTS("start", &start, 1),
      RABBET_ONNX_INTS("shape", &one, 1),
      RABBET_ONNX_INTS("stride", &one, 1),
  };
  return rabbet_onnx_layer(node, "slice", &x, 1, attrs, 3);
}

rabbet_onnx_index_t rabbet_onnx_extent(rabbet_onnx_node_t* node,
                                       rabbet_tensor_t* x, int axis) {
  rabbet_dims_t dims = rabbet_onnx_dims(node, x);
  if (!rabbet_onnx_ok(node)) return rabbet_onnx_index(0);
  if (dims.d[axis] >= 0) return rabbet_onnx_index(dims.d[axis]);
  return onnx_index_of(node, onnx_pick(node, rabbet_onnx_shape(node, x), axis));
}

int rabbet_onnx_shape_length(rabbet_onnx_node_t* node, rabbet_tensor_t* shape) {
  rabbet_dims_t length = rabbet_onnx_dims(node, shape);
  if (rabbet_onnx_ok(node) &&
      (length.rank != 1 || length.d[0] < 0 || length.d[0] > RABBET_MAX_RANK)) {
    RABBET_ONNX_FAIL(node, RABBET_STATUS_UNSUPPORTED,
                     "the shape must be a vector of a known length up to %d",
                     RABBET_MAX_RANK);
  }
  return rabbet_onnx_ok(node) ? (int)length.d[0] : 0;
}

rabbet_onnx_index_t rabbet_onnx_element(rabbet_onnx_node_t* node,
                                        rabbet_tensor_t* x, int position) {
  rabbet_onnx_ints_t ints = rabbet_onnx_try_ints(node, x);
  rabbet_dims_t dims = rabbet_onnx_dims(node, x);
  if (!rabbet_onnx_ok(node)) return rabbet_onnx_index(0);
  if (ints.present && (size_t)position < ints.count) {
    return rabbet_onnx_index(ints.data[position]);
  }
  x = rabbet_onnx_cast(node, x, RABBET_DTYPE_INT64);
  if (dims.rank == 0) {
    x = rabbet_onnx_unsqueeze(node, x, 1, 1);
  } else if (dims.d[0] != 1) {
    x = onnx_pick(node, x, position);
  }
  return onnx_index_of(node, x);
}

static rabbet_tensor_t* onnx_index_tensor(rabbet_onnx_node_t* node,
                                          rabbet_onnx_index_t index) {
  return index.tensor ? index.tensor
                      : rabbet_onnx_int64s(node, &index.value, 1);
}

rabbet_onnx_index_t rabbet_onnx_index_op(rabbet_onnx_node_t* node,
                                         const char* op, rabbet_onnx_index_t a,
                                         rabbet_onnx_index_t b) {
  if (!rabbet_onnx_ok(node)) return rabbet_onnx_index(0);
  if (onnx_is_neutral(op, b)) return a;
  if (rabbet_onnx_is_static(a) && rabbet_onnx_is_static(b)) {
    int64_t value = 0;
    if (!onnx_fold(op, a.value, b.value, &value)) {
      RABBET_ONNX_FAIL(node, RABBET_STATUS_OUT_OF_RANGE,
                       "an extent is out of range: %lld %s %lld",
                       (long long)a.value, op, (long long)b.value);
    }
    return rabbet_onnx_index(value);
  }
  rabbet_tensor_t* result = rabbet_onnx_binary(
      node, op, onnx_index_tensor(node, a), onnx_index_tensor(node, b));
  result = rabbet_onnx_cast(node, result, RABBET_DTYPE_INT64);
  return onnx_index_of(node, result);
}

rabbet_onnx_index_t rabbet_onnx_ceil_div(rabbet_onnx_node_t* node,
                                         rabbet_onnx_index_t a,
                                         rabbet_onnx_index_t b) {
  rabbet_onnx_index_t zero = rabbet_onnx_index(0);
  if (rabbet_onnx_is_static(b) && b.value > 0) {
    a = rabbet_onnx_index_op(node, "SUM", a, rabbet_onnx_index(b.value - 1));
    return rabbet_onnx_index_op(node, "FLOOR_DIV", a, b);
  }
  // -floor(-a / b)
  a = rabbet_onnx_index_op(node, "SUB", zero, a);
  a = rabbet_onnx_index_op(node, "FLOOR_DIV", a, b);
  return rabbet_onnx_index_op(node, "SUB", zero, a);
}

bool rabbet_onnx_all_static(const rabbet_onnx_index_t* elements, size_t count,
                            int64_t* out_values) {
  for (size_t i = 0; i < count; ++i) {
    if (!rabbet_onnx_is_static(elements[i])) return false;
    out_values[i] = elements[i].value;
  }
  return true;
}

rabbet_tensor_t* rabbet_onnx_index_vector(rabbet_onnx_node_t* node,
                                          const rabbet_onnx_index_t* elements,
                                          size_t count) {
  assert(count <= RABBET_MAX_RANK);
  int64_t values[RABBET_MAX_RANK];
  if (rabbet_onnx_all_static(elements, count, values)) {
    return rabbet_onnx_int64s(node, values, count);
  }
  rabbet_tensor_t* parts[RABBET_MAX_RANK];
  for (size_t i = 0; i < count; ++i) {
    parts[i] = onnx_index_tensor(node, elements[i]);
  }
  return rabbet_onnx_concat(node, parts, count, 0);
}

// ---- Reshape ---------------------------------------------------------------

// One unknown extent among known ones that are not 0 follows from the others.
static bool onnx_infer_one(const rabbet_onnx_index_t* dims, int rank,
                           int64_t* out_dims) {
  int unknowns = 0;
  for (int i = 0; i < rank; ++i) {
    bool known = rabbet_onnx_is_static(dims[i]);
    if (known && dims[i].value == 0) return false;
    unknowns += !known;
    out_dims[i] = known ? dims[i].value : -1;
  }
  return unknowns == 1;
}

rabbet_tensor_t* rabbet_onnx_reshape(rabbet_onnx_node_t* node,
                                     rabbet_tensor_t* x,
                                     const rabbet_onnx_index_t* dims,
                                     int rank) {
  if (!rabbet_onnx_ok(node)) return NULL;
  assert(rank >= 0 && rank <= RABBET_MAX_RANK);
  int64_t known[RABBET_MAX_RANK];
  bool is_static = rabbet_onnx_all_static(dims, (size_t)rank, known) ||
                   onnx_infer_one(dims, rank, known);
  rabbet_tensor_t* inputs[] = {x, NULL};
  rabbet_attr_t attrs[] = {
      RABBET_ONNX_BOOL("zero_is_placeholder", false),
      RABBET_ONNX_INTS("reshape_dims", known, rank),
      RABBET_ONNX_BOOL("reshape_to_scalar", rank == 0),
  };
  if (is_static) return rabbet_onnx_layer(node, "shuffle", inputs, 1, attrs, 3);
  inputs[1] = rabbet_onnx_index_vector(node, dims, (size_t)rank);
  return rabbet_onnx_layer(node, "shuffle", inputs, 2, attrs, 1);
}

// ---- Slice -----------------------------------------------------------------

rabbet_onnx_slice_t rabbet_onnx_slice_all(rabbet_onnx_node_t* node,
                                          rabbet_tensor_t* x) {
  rabbet_onnx_slice_t slice = {.mode = "STRICT_BOUNDS"};
  int rank = rabbet_onnx_rank(node, x);
  for (int i = 0; i < rank; ++i) {
    slice.start[i] = rabbet_onnx_index(0);
    slice.size[i] = rabbet_onnx_extent(node, x, i);
    slice.stride[i] = rabbet_onnx_index(1);
  }
  return slice;
}

enum { RABBET_ONNX_SLICE_INPUTS = 5 };  // data, start, size, stride, fill

rabbet_tensor_t* rabbet_onnx_slice(rabbet_onnx_node_t* node, rabbet_tensor_t* x,
                                   const rabbet_onnx_slice_t* slice) {
  int rank = rabbet_onnx_rank(node, x);
  if (!rabbet_onnx_ok(node)) return NULL;
  static const char* const names[] = {"start", "shape", "stride"};
  const rabbet_onnx_index_t* parts[] = {slice->start, slice->size,
                                        slice->stride};
  rabbet_tensor_t* inputs[RABBET_ONNX_SLICE_INPUTS] = {x};
  int64_t known[3][RABBET_MAX_RANK];
  rabbet_attr_t attrs[4] = {RABBET_ONNX_INT(
      "mode", rabbet_onnx_enumerator(node, "slice", "mode", slice->mode))};
  size_t attr_count = 1, input_count = 1;
  for (size_t i = 0; i < 3; ++i) {
    if (rabbet_onnx_all_static(parts[i], (size_t)rank, known[i])) {
      attrs[attr_count++] = RABBET_ONNX_INTS(names[i], known[i], rank);
    } else {
      inputs[i + 1] = rabbet_onnx_index_vector(node, parts[i], (size_t)rank);
      input_count = i + 2;
    }
  }
  inputs[RABBET_ONNX_SLICE_INPUTS - 1] = slice->fill;
  if (slice->fill) input_count = RABBET_ONNX_SLICE_INPUTS;
  return rabbet_onnx_layer(node, "slice", inputs, input_count, attrs,
                           attr_count);
}

rabbet_tensor_t* rabbet_onnx_spread(rabbet_onnx_node_t* node,
                                    rabbet_tensor_t* x,
                                    const rabbet_onnx_index_t* dims, int rank) {
  x = rabbet_onnx_to_rank(node, x, rank);
  rabbet_dims_t from = rabbet_onnx_dims(node, x);
  rabbet_onnx_slice_t slice = {.mode = "STRICT_BOUNDS"};
  bool same = true;
  for (int i = 0; i < rank && rabbet_onnx_ok(node); ++i) {
    slice.size[i] = dims[i];
    // Stride 0 repeats an axis of extent 1; larger extents have stride 1. The
    // formula holds for unknown extents, too.
    rabbet_onnx_index_t less = rabbet_onnx_index_op(
        node, "SUB", rabbet_onnx_extent(node, x, i), rabbet_onnx_index(1));
    less = rabbet_onnx_index_op(node, "MIN", less, rabbet_onnx_index(1));
    slice.stride[i] =
        rabbet_onnx_index_op(node, "MAX", less, rabbet_onnx_index(0));
    same &= rabbet_onnx_is_static(dims[i]) && dims[i].value == from.d[i];
  }
  return same ? x : rabbet_onnx_slice(node, x, &slice);
}
