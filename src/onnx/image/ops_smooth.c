// Resize with `antialias`: a product with a matrix of weights for each axis.
// The matrices are computed from extents, which need not be known; where they
// are, they become constants when the plan is built.
#include <math.h>
#include <string.h>

#include "onnx/image/resize.h"
#include "ops/image/resize.h"

typedef struct onnx_smooth_t {
  rabbet_onnx_index_t in, out;
  rabbet_onnx_index_t pad;  // elements in front of the input and behind it
  rabbet_tensor_t* scale;   // [1]
  const char* coordinate;   // as the node has it
  bool cubic;
  double a;  // of the cubic filter
} onnx_smooth_t;

static rabbet_tensor_t* onnx_smooth_number(rabbet_onnx_node_t* node,
                                           rabbet_onnx_index_t index) {
  return rabbet_onnx_cast(node, rabbet_onnx_index_vector(node, &index, 1),
                          rabbet_onnx_wide(node));
}

static rabbet_tensor_t* onnx_smooth_scale(rabbet_onnx_node_t* node,
                                          const rabbet_onnx_resize_t* r,
                                          int axis, rabbet_onnx_index_t in) {
  if (r->has_units)
    return rabbet_onnx_with_number(node, "PROD",
                                   onnx_smooth_number(node, r->units[axis]),
                                   RABBET_RESIZE_SCALE_UNIT);
  if (r->has_scales)
    return rabbet_onnx_number(node, rabbet_onnx_wide(node), 1, r->scales[axis]);
  return rabbet_onnx_binary(node, "DIV",
                            onnx_smooth_number(node, r->sizes[axis]),
                            onnx_smooth_number(node, in));
}

// ---- Coordinates -----------------------------------------------------------

// (i + 0.5) / scale - 0.5
static rabbet_tensor_t* onnx_smooth_half_pixel(rabbet_onnx_node_t* node,
                                               const onnx_smooth_t* s,
                                               rabbet_tensor_t* i) {
  i = rabbet_onnx_with_number(node, "SUM", i, 0.5);
  i = rabbet_onnx_binary(node, "DIV", i, s->scale);
  return rabbet_onnx_with_number(node, "SUB", i, 0.5);
}

// 0 where the result has one element.
static rabbet_tensor_t* onnx_smooth_torch(rabbet_onnx_node_t* node,
                                          const onnx_smooth_t* s,
                                          rabbet_tensor_t* i) {
  rabbet_tensor_t* many = rabbet_onnx_with_number(
      node, "GREATER", onnx_smooth_number(node, s->out), 1);
  return rabbet_onnx_binary(
      node, "PROD", onnx_smooth_half_pixel(node, s, i),
      rabbet_onnx_cast(node, many, rabbet_onnx_wide(node)));
}

// in * scale, the size of the result before it was rounded.
static rabbet_tensor_t* onnx_smooth_width(rabbet_onnx_node_t* node,
                                          const onnx_smooth_t* s) {
  return rabbet_onnx_binary(node, "PROD", onnx_smooth_number(node, s->in),
                            s->scale);
}

// The centers of input and result are at one place.
static rabbet_tensor_t* onnx_smooth_symmetric(rabbet_onnx_node_t* node,
                                              const onnx_smooth_t* s,
                                              rabbet_tensor_t* i) {
  rabbet_tensor_t* part =
      rabbet_onnx_binary(node, "DIV", onnx_smooth_number(node, s->out),
                         onnx_smooth_width(node, s));
  rabbet_tensor_t* center = rabbet_onnx_with_number(
      node, "PROD", onnx_smooth_number(node, s->in), 0.5);
  rabbet_tensor_t* offset = rabbet_onnx_binary(
      node, "SUB", center, rabbet_onnx_binary(node, "PROD", center, part));
  return rabbet_onnx_binary(node, "SUM", onnx_smooth_half_pixel(node, s, i),
                            offset);
}

static rabbet_tensor_t* onnx_smooth_asymmetric(rabbet_onnx_node_t* node,
                                               const onnx_smooth_t* s,
                                               rabbet_tensor_t* i) {
  return rabbet_onnx_binary(node, "DIV", i, s->scale);
}

// i * (in - 1) / (width - 1); i is 0 where the divisor is below 1.
static rabbet_tensor_t* onnx_smooth_corners(rabbet_onnx_node_t* node,
                                            const onnx_smooth_t* s,
                                            rabbet_tensor_t* i) {
  rabbet_tensor_t* last =
      rabbet_onnx_with_number(node, "SUB", onnx_smooth_number(node, s->in), 1);
  rabbet_tensor_t* divisor =
      rabbet_onnx_with_number(node, "SUB", onnx_smooth_width(node, s), 1);
  divisor = rabbet_onnx_with_number(node, "MAX", divisor, 1);
  return rabbet_onnx_binary(node, "DIV",
                            rabbet_onnx_binary(node, "PROD", i, last), divisor);
}

// Where the elements of the result lie among those of the input, [out, 1].
static rabbet_tensor_t* onnx_smooth_places(rabbet_onnx_node_t* node,
                                           const onnx_smooth_t* s) {
  static const struct {
    const char* name;
    rabbet_tensor_t* (*place)(rabbet_onnx_node_t*, const onnx_smooth_t*,
                              rabbet_tensor_t*);
  } modes[] = {{"half_pixel", onnx_smooth_half_pixel},
               {"pytorch_half_pixel", onnx_smooth_torch},
               {"half_pixel_symmetric", onnx_smooth_symmetric},
               {"asymmetric", onnx_smooth_asymmetric},
               {"align_corners", onnx_smooth_corners}};
  rabbet_tensor_t* i = rabbet_onnx_cast(
      node, rabbet_onnx_indices(node, s->out, 0, 2), rabbet_onnx_wide(node));
  for (size_t k = 0; k < sizeof(modes) / sizeof(modes[0]); ++k)
    if (!strcmp(s->coordinate, modes[k].name))
      return modes[k].place(node, s, i);
  RABBET_ONNX_FAIL(node, RABBET_STATUS_UNSUPPORTED,
                   "antialias with coordinate_transformation_mode '%s' has no "
                   "meaning; expected half_pixel or another one of the whole "
                   "input",
                   s->coordinate);
  return NULL;
}

// ---- Filters ---------------------------------------------------------------

// c3 x^3 + c2 x^2 + c1 x + c0
static rabbet_tensor_t* onnx_smooth_polynomial(rabbet_onnx_node_t* node,
                                               rabbet_tensor_t* x,
                                               const double c[4]) {
  rabbet_tensor_t* y = rabbet_onnx_with_number(node, "PROD", x, c[3]);
  for (int i = 2; i >= 0; --i) {
    y = rabbet_onnx_with_number(node, "SUM", y, c[i]);
    if (i > 0) y = rabbet_onnx_binary(node, "PROD", y, x);
  }
  return y;
}

// The filter's value at distances x: a triangle or Keys's cubic.
static rabbet_tensor_t* onnx_smooth_filter(rabbet_onnx_node_t* node,
                                           const onnx_smooth_t* s,
                                           rabbet_tensor_t* x) {
  double a = s->a;
  const double triangle[] = {1, -1, 0, 0};
  const double near[] = {1, 0, -(a + 3), a + 2};
  const double far[] = {-4 * a, 8 * a, -5 * a, a};
  rabbet_tensor_t* zero =
      rabbet_onnx_number(node, rabbet_onnx_wide(node), 2, 0);
  if (!s->cubic)
    return rabbet_onnx_binary(node, "MAX",
                              onnx_smooth_polynomial(node, x, triangle), zero);
  rabbet_tensor_t* y =
      rabbet_onnx_select(node, rabbet_onnx_with_number(node, "LESS", x, 2),
                         onnx_smooth_polynomial(node, x, far), zero);
  return rabbet_onnx_select(node, rabbet_onnx_with_number(node, "LESS", x, 1),
                            onnx_smooth_polynomial(node, x, near), y);
}

// [out, in with both pads]; the sum of each row is 1.
static rabbet_tensor_t* onnx_smooth_weights(rabbet_onnx_node_t* node,
                                            const onnx_smooth_t* s) {
  rabbet_onnx_index_t count = rabbet_onnx_index_op(
      node, "SUM", s->in,
      rabbet_onnx_index_op(node, "PROD", s->pad, rabbet_onnx_index(2)));
  rabbet_tensor_t* place = rabbet_onnx_cast(
      node, rabbet_onnx_indices(node, count, 1, 2), rabbet_onnx_wide(node));
  place =
      rabbet_onnx_binary(node, "SUB", place, onnx_smooth_number(node, s->pad));
  rabbet_tensor_t* apart =
      rabbet_onnx_binary(node, "SUB", place, onnx_smooth_places(node, s));
  // The filter is as wide as an element of the result, and at least as one of
  // the input.
  rabbet_tensor_t* narrow = rabbet_onnx_with_number(node, "MIN", s->scale, 1);
  apart = rabbet_onnx_binary(node, "PROD", apart, narrow);
  rabbet_tensor_t* weights =
      onnx_smooth_filter(node, s, rabbet_onnx_unary(node, "ABS", apart));
  rabbet_tensor_t* sum =
      rabbet_onnx_reduce(node, "SUM", weights, 1u << 1, true);
  return rabbet_onnx_binary(node, "DIV", weights, sum);
}

// ---- Axes ------------------------------------------------------------------

// x with its edges repeated.
static rabbet_tensor_t* onnx_smooth_padded(rabbet_onnx_node_t* node,
                                           rabbet_tensor_t* x, int axis,
                                           rabbet_onnx_index_t pad) {
  if (rabbet_onnx_is_static(pad) && pad.value == 0) return x;
  rabbet_onnx_slice_t slice = rabbet_onnx_slice_all(node, x);
  slice.start[axis] =
      rabbet_onnx_index_op(node, "SUB", rabbet_onnx_index(0), pad);
  slice.size[axis] = rabbet_onnx_index_op(
      node, "SUM", slice.size[axis],
      rabbet_onnx_index_op(node, "PROD", pad, rabbet_onnx_index(2)));
  slice.mode = "CLAMP";
  return rabbet_onnx_slice(node, x, &slice);
}

// weights [out, in] times x along an axis.
static rabbet_tensor_t* onnx_smooth_product(rabbet_onnx_node_t* node,
                                            rabbet_tensor_t* x, int axis,
                                            rabbet_tensor_t* weights) {
  int rank = rabbet_onnx_rank(node, x);
  weights = rabbet_onnx_to_rank(node, weights, rank);
  if (axis == rank - 1)
    return rabbet_onnx_matmul(node, x, "NONE", weights, "TRANSPOSE");
  int64_t swap[RABBET_MAX_RANK];
  for (int i = 0; i < rank; ++i)
    swap[i] = i;
  swap[axis] = rank - 2;
  swap[rank - 2] = axis;
  if (axis != rank - 2) x = rabbet_onnx_transpose(node, x, swap);
  x = rabbet_onnx_matmul(node, weights, "NONE", x, "NONE");
  return axis != rank - 2 ? rabbet_onnx_transpose(node, x, swap) : x;
}

// Whether an axis stays as it is, as batches and channels do.
static bool onnx_smooth_is_same(rabbet_onnx_node_t* node,
                                const rabbet_onnx_resize_t* r, int axis,
                                rabbet_onnx_index_t in) {
  const int64_t one = (int64_t)(1 / RABBET_RESIZE_SCALE_UNIT);
  rabbet_onnx_index_t units = r->units[axis];
  rabbet_onnx_index_t rest =
      rabbet_onnx_index_op(node, "SUB", in, r->sizes[axis]);
  if (!rabbet_onnx_is_static(rest) || rest.value != 0) return false;
  if (r->has_units) return rabbet_onnx_is_static(units) && units.value == one;
  return !r->has_scales || r->scales[axis] == 1;
}

// Axis `axis` of the node is axis `at` of x.
static rabbet_tensor_t* onnx_smooth_axis(rabbet_onnx_node_t* node,
                                         rabbet_tensor_t* x,
                                         const rabbet_onnx_resize_t* r,
                                         int axis, int at) {
  bool cubic = !strcmp(rabbet_onnx_attr_string(node, "mode", ""), "cubic");
  onnx_smooth_t s = {.in = rabbet_onnx_extent(node, x, at),
                     .out = r->sizes[axis],
                     .coordinate = rabbet_onnx_attr_string(
                         node, "coordinate_transformation_mode", "half_pixel"),
                     .cubic = cubic,
                     .a = rabbet_onnx_attr_float(node, "cubic_coeff_a", -0.75)};
  if (onnx_smooth_is_same(node, r, axis, s.in)) return x;
  s.scale = onnx_smooth_scale(node, r, axis, s.in);
  // Edges stand for positions outside, unless these have no weight.
  if (rabbet_onnx_attr_int(node, "exclude_outside", 0) == 0) {
    rabbet_onnx_index_t one = rabbet_onnx_index(1);
    rabbet_onnx_index_t width = rabbet_onnx_ceil_div(
        node, s.in, rabbet_onnx_index_op(node, "MAX", s.out, one));
    width = rabbet_onnx_index_op(node, "MAX", width, one);
    width = rabbet_onnx_index_op(node, "SUM", width, one);
    s.pad = rabbet_onnx_index_op(node, "PROD", width,
                                 rabbet_onnx_index(cubic ? 2 : 1));
  }
  x = onnx_smooth_padded(node, x, at, s.pad);
  return onnx_smooth_product(node, x, at, onnx_smooth_weights(node, &s));
}

// The result as x's type: integers are rounded, and those of 8 bits kept in
// range.
static rabbet_tensor_t* onnx_smooth_cast(rabbet_onnx_node_t* node,
                                         rabbet_tensor_t* x,
                                         rabbet_dtype_t dtype) {
  if (!rabbet_dtype_is_float(dtype)) x = rabbet_onnx_unary(node, "ROUND", x);
  bool bytes = dtype == RABBET_DTYPE_UINT8 || dtype == RABBET_DTYPE_INT8;
  double low = dtype == RABBET_DTYPE_UINT8 ? 0 : -128;
  if (bytes) {
    x = rabbet_onnx_with_number(node, "MAX", x, low);
    x = rabbet_onnx_with_number(node, "MIN", x, low + 255);
  }
  return rabbet_onnx_cast(node, x, dtype);
}

rabbet_tensor_t* rabbet_onnx_resize_smooth(rabbet_onnx_node_t* node,
                                           rabbet_tensor_t* x,
                                           const rabbet_onnx_resize_t* r) {
  const char* mode = rabbet_onnx_attr_string(node, "mode", "nearest");
  rabbet_dtype_t dtype = rabbet_onnx_dtype_of(node, x);
  if (rabbet_onnx_ok(node) && strcmp(mode, "linear") != 0 &&
      strcmp(mode, "cubic") != 0)
    RABBET_ONNX_FAIL(node, RABBET_STATUS_INVALID_ARGUMENT,
                     "antialias with mode '%s'; expected linear or cubic",
                     mode);
  if (!rabbet_onnx_ok(node)) return NULL;
  bool vector = r->rank == 1;
  x = rabbet_onnx_cast(node, x, rabbet_onnx_wide(node));
  if (vector) x = rabbet_onnx_unsqueeze(node, x, 1, 2);
  for (int i = 0; i < r->count && rabbet_onnx_ok(node); ++i)
    x = onnx_smooth_axis(node, x, r, r->axes[i], r->axes[i] + vector);
  if (vector) x = rabbet_onnx_squeeze(node, x, 1);
  return onnx_smooth_cast(node, x, dtype);
}
