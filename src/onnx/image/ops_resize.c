// Resize, its forerunner Upsample, and GridSample.
#include <string.h>

#include "core/view.h"
#include "onnx/image/resize.h"
#include "onnx/operators.h"
#include "ops/image/resize.h"

// An input that is neither omitted nor empty.
static rabbet_tensor_t* onnx_resize_input(rabbet_onnx_node_t* node,
                                          size_t index) {
  rabbet_tensor_t* x = rabbet_onnx_input(node, index);
  if (!x) return NULL;
  rabbet_dims_t dims = rabbet_onnx_dims(node, x);
  return dims.rank == 1 && dims.d[0] == 0 ? NULL : x;
}

static void onnx_resize_axes(rabbet_onnx_node_t* node,
                             rabbet_onnx_resize_t* r) {
  rabbet_onnx_ints_t axes = rabbet_onnx_attr_ints(node, "axes");
  (void)rabbet_onnx_axes_mask(node, axes, r->rank);  // none twice
  r->count = axes.present ? (int)axes.count : r->rank;
  for (int i = 0; i < r->count && rabbet_onnx_ok(node); ++i)
    r->axes[i] =
        axes.present ? rabbet_onnx_axis(node, axes.data[i], r->rank) : i;
  for (int i = 0; i < r->rank; ++i) {
    r->scales[i] = 1;
    r->part[i] = 0;
    r->part[i + r->rank] = 1;
  }
}

// `count` constant numbers; NULL, failing, if they are not.
static const void* onnx_resize_numbers(rabbet_onnx_node_t* node,
                                       const char* operand, rabbet_tensor_t* x,
                                       int count, rabbet_dtype_t* out_dtype) {
  rabbet_onnx_constant_t constant;
  if (!rabbet_onnx_ok(node)) return NULL;
  bool known = rabbet_onnx_is_constant(node, x, &constant);
  if (known && constant.weights.count == count) {
    *out_dtype = constant.weights.dtype;
    return constant.weights.data;
  }
  RABBET_ONNX_FAIL(
      node, known ? RABBET_STATUS_INVALID_ARGUMENT : RABBET_STATUS_UNSUPPORTED,
      known ? "input '%s' has another length than the %d that are expected"
            : "input '%s' must be constant (%d numbers are expected)",
      operand, count);
  return NULL;
}

// Extents of the axes that are resized, as FLOAT.
static rabbet_tensor_t* onnx_resize_extents(rabbet_onnx_node_t* node,
                                            rabbet_tensor_t* x,
                                            const rabbet_onnx_resize_t* r) {
  rabbet_onnx_index_t extents[RABBET_MAX_RANK];
  for (int i = 0; i < r->count; ++i)
    extents[i] = rabbet_onnx_extent(node, x, r->axes[i]);
  return rabbet_onnx_cast(
      node, rabbet_onnx_index_vector(node, extents, (size_t)r->count),
      RABBET_DTYPE_FLOAT);
}

// Scales that are not known now, a FLOAT vector of an element for each axis
// that is resized: sizes are floor(extent * scale), or, where half is set, the
// nearest integers.
static void onnx_resize_by(rabbet_onnx_node_t* node, rabbet_tensor_t* x,
                           rabbet_tensor_t* scales, bool half,
                           rabbet_onnx_resize_t* r) {
  rabbet_tensor_t* units = rabbet_onnx_with_number(
      node, "PROD", scales, 1 / RABBET_RESIZE_SCALE_UNIT);
  units = rabbet_onnx_cast(node, units, RABBET_DTYPE_INT64);
  rabbet_tensor_t* sizes =
      rabbet_onnx_binary(node, "PROD", onnx_resize_extents(node, x, r), scales);
  if (half) sizes = rabbet_onnx_with_number(node, "SUM", sizes, 0.5);
  sizes = rabbet_onnx_unary(node, "FLOOR", sizes);
  sizes = rabbet_onnx_cast(node, sizes, RABBET_DTYPE_INT64);
  for (int i = 0; i < r->rank; ++i) {
    r->units[i] = rabbet_onnx_index((int64_t)(1 / RABBET_RESIZE_SCALE_UNIT));
    r->sizes[i] = rabbet_onnx_extent(node, x, i);
  }
  for (int i = 0; i < r->count; ++i) {
    r->units[r->axes[i]] = rabbet_onnx_element(node, units, i);
    r->sizes[r->axes[i]] = rabbet_onnx_element(node, sizes, i);
  }
  r->has_units = r->has_sizes = true;
}

static void onnx_resize_scales(rabbet_onnx_node_t* node, rabbet_tensor_t* x,
                               rabbet_tensor_t* scales,
                               rabbet_onnx_resize_t* r) {
  rabbet_dtype_t dtype = RABBET_DTYPE_NONE;
  rabbet_onnx_constant_t constant;
  rabbet_dims_t dims = rabbet_onnx_dims(node, scales);
  if (rabbet_onnx_ok(node) &&
      !rabbet_onnx_is_constant(node, scales, &constant) && dims.rank == 1 &&
      dims.d[0] == r->count) {
    onnx_resize_by(node, x, scales, false, r);
    return;
  }
  const void* data =
      onnx_resize_numbers(node, "scales", scales, r->count, &dtype);
  for (int i = 0; data && i < r->count; ++i)
    r->scales[r->axes[i]] = rabbet_load_double(dtype, data, i);
  r->has_scales = true;
}

// Scales of Upsample before opset 7: of height and width.
static void onnx_resize_image(rabbet_onnx_node_t* node,
                              rabbet_onnx_resize_t* r) {
  static const char* const names[] = {"height_scale", "width_scale"};
  if (rabbet_onnx_ok(node) && r->count != 4)
    RABBET_ONNX_FAIL(node, RABBET_STATUS_INVALID_ARGUMENT,
                     "the input must have rank 4; found %d", r->count);
  if (!rabbet_onnx_ok(node)) return;
  for (int i = 0; i < 2; ++i) {
    if (!rabbet_onnx_has_attr(node, names[i]))
      RABBET_ONNX_FAIL(node, RABBET_STATUS_INVALID_ARGUMENT,
                       "attribute '%s' is missing", names[i]);
    r->scales[i] = 1;
    r->scales[i + 2] = rabbet_onnx_attr_float(node, names[i], 1);
  }
  r->has_scales = true;
}

// Scales of Upsample before opset 9.
static void onnx_resize_attribute(rabbet_onnx_node_t* node,
                                  rabbet_onnx_resize_t* r) {
  const Onnx__AttributeProto* scales = rabbet_onnx_attr(node, "scales");
  if (!scales || scales->n_floats != (size_t)r->count) {
    RABBET_ONNX_FAIL(node, RABBET_STATUS_INVALID_ARGUMENT,
                     "attribute 'scales' must have %d numbers", r->count);
    return;
  }
  for (int i = 0; i < r->count; ++i)
    r->scales[i] = (double)scales->floats[i];
  r->has_scales = true;
}

static void onnx_resize_part(rabbet_onnx_node_t* node, rabbet_tensor_t* part,
                             rabbet_onnx_resize_t* r) {
  rabbet_dtype_t dtype = RABBET_DTYPE_NONE;
  const void* data =
      onnx_resize_numbers(node, "roi", part, 2 * r->count, &dtype);
  for (int i = 0; data && i < r->count; ++i) {
    r->part[r->axes[i]] = rabbet_load_double(dtype, data, i);
    r->part[r->axes[i] + r->rank] =
        rabbet_load_double(dtype, data, i + r->count);
  }
  r->has_part = true;
}

static void onnx_resize_sizes(rabbet_onnx_node_t* node, rabbet_tensor_t* x,
                              rabbet_tensor_t* sizes, rabbet_onnx_resize_t* r) {
  rabbet_dims_t dims = rabbet_onnx_dims(node, sizes);
  if (!rabbet_onnx_ok(node)) return;
  if (dims.rank != 1 || dims.d[0] != r->count) {
    RABBET_ONNX_FAIL(node, RABBET_STATUS_INVALID_ARGUMENT,
                     "input 'sizes' must have %d elements, one for each axis "
                     "that is resized",
                     r->count);
    return;
  }
  for (int i = 0; i < r->rank; ++i)
    r->sizes[i] = rabbet_onnx_extent(node, x, i);
  for (int i = 0; i < r->count; ++i)
    r->sizes[r->axes[i]] = rabbet_onnx_element(node, sizes, i);
  r->has_sizes = true;
}

// The same where extents are not known now.
static void onnx_resize_by_policy(rabbet_onnx_node_t* node, rabbet_tensor_t* x,
                                  bool larger, rabbet_onnx_resize_t* r) {
  rabbet_onnx_index_t wanted[RABBET_MAX_RANK];
  for (int i = 0; i < r->count; ++i)
    wanted[i] = r->sizes[r->axes[i]];
  rabbet_tensor_t* ratios = rabbet_onnx_cast(
      node, rabbet_onnx_index_vector(node, wanted, (size_t)r->count),
      RABBET_DTYPE_FLOAT);
  ratios =
      rabbet_onnx_binary(node, "DIV", ratios, onnx_resize_extents(node, x, r));
  rabbet_tensor_t* one =
      rabbet_onnx_reduce(node, larger ? "MAX" : "MIN", ratios, 1, true);
  const rabbet_onnx_index_t count = rabbet_onnx_index(r->count);
  onnx_resize_by(node, x, rabbet_onnx_spread(node, one, &count, 1), true, r);
}

// Sizes that keep the aspect ratio: one scale for all axes that are named.
static void onnx_resize_policy(rabbet_onnx_node_t* node, rabbet_tensor_t* x,
                               rabbet_onnx_resize_t* r) {
  const char* policy =
      rabbet_onnx_attr_string(node, "keep_aspect_ratio_policy", "stretch");
  rabbet_dims_t in = rabbet_onnx_dims(node, x);
  if (!strcmp(policy, "stretch") || !r->has_sizes || !rabbet_onnx_ok(node))
    return;
  bool larger = !strcmp(policy, "not_smaller");
  if (!larger && strcmp(policy, "not_larger") != 0) {
    RABBET_ONNX_FAIL(
        node, RABBET_STATUS_INVALID_ARGUMENT,
        "keep_aspect_ratio_policy is '%s'; stretch, not_larger and "
        "not_smaller exist",
        policy);
    return;
  }
  float scale = 0;
  for (int i = 0; i < r->count; ++i) {
    int axis = r->axes[i];
    if (!rabbet_onnx_is_static(r->sizes[axis]) || in.d[axis] <= 0) {
      onnx_resize_by_policy(node, x, larger, r);
      return;
    }
    float ratio = (float)r->sizes[axis].value / (float)in.d[axis];
    if (i == 0 || (larger ? ratio > scale : ratio < scale)) scale = ratio;
  }
  for (int i = 0; i < r->count; ++i) {
    int axis = r->axes[i];
    r->scales[axis] = (double)scale;
    r->sizes[axis] =
        rabbet_onnx_index((int64_t)((double)(scale * (float)in.d[axis]) + 0.5));
  }
  r->has_scales = true;
}

// ---- Attributes ------------------------------------------------------------

typedef struct onnx_word_t {
  const char *onnx, *ours;
} onnx_word_t;

// Translates an attribute's value by a list that ends with {NULL}.
static const char* onnx_resize_word(rabbet_onnx_node_t* node, const char* attr,
                                    const char* fallback,
                                    const onnx_word_t* words) {
  const char* given = rabbet_onnx_attr_string(node, attr, fallback);
  for (; words->onnx; ++words)
    if (!strcmp(words->onnx, given)) return words->ours;
  RABBET_ONNX_FAIL(node, RABBET_STATUS_INVALID_ARGUMENT,
                   "attribute '%s' is '%s', which is none of its values", attr,
                   given);
  return NULL;
}

static void onnx_resize_emit(rabbet_onnx_node_t* node, rabbet_tensor_t* x,
                             const rabbet_onnx_resize_t* r) {
  static const onnx_word_t modes[] = {{"nearest", "NEAREST"},
                                      {"linear", "LINEAR"},
                                      {"bilinear", "LINEAR"},
                                      {"cubic", "CUBIC"},
                                      {0}};
  static const onnx_word_t coordinates[] = {
      {"half_pixel", "HALF_PIXEL"},
      {"pytorch_half_pixel", "HALF_PIXEL"},
      {"half_pixel_symmetric", "HALF_PIXEL_SYMMETRIC"},
      {"tf_half_pixel_for_nn", "HALF_PIXEL_FOR_NEAREST"},
      {"asymmetric", "ASYMMETRIC"},
      {"align_corners", "ALIGN_CORNERS"},
      {"tf_crop_and_resize", "CROP"},
      {0}};
  static const onnx_word_t rounds[] = {{"round_prefer_floor", "HALF_DOWN"},
                                       {"round_prefer_ceil", "HALF_UP"},
                                       {"floor", "FLOOR"},
                                       {"ceil", "CEIL"},
                                       {0}};
  bool modern = node->opset >= 11 && strcmp(node->variant, "upsample") != 0;
  const char* where = "coordinate_transformation_mode";
  const char* fallback = modern ? "half_pixel" : "asymmetric";
  const char* mode = onnx_resize_word(node, "mode", "nearest", modes);
  const char* coordinate = onnx_resize_word(node, where, fallback, coordinates);
  const char* rounding = onnx_resize_word(
      node, "nearest_mode", modern ? "round_prefer_floor" : "floor", rounds);
  bool upper = !strcmp(rabbet_onnx_attr_string(node, where, fallback),
                       "pytorch_half_pixel");
  if (!rabbet_onnx_ok(node)) return;
  rabbet_attr_t attrs[] = {
      RABBET_ONNX_INT("resize_mode", rabbet_onnx_enumerator(
                                         node, "resize", "resize_mode", mode)),
      RABBET_ONNX_INT(
          "coordinate_transformation",
          rabbet_onnx_enumerator(node, "resize", "coordinate_transformation",
                                 coordinate)),
      RABBET_ONNX_INT("selector_for_single_pixel", upper),
      RABBET_ONNX_INT(
          "nearest_rounding",
          rabbet_onnx_enumerator(node, "resize", "nearest_rounding", rounding)),
      RABBET_ONNX_BOOL("exclude_outside",
                       rabbet_onnx_attr_int(node, "exclude_outside", 0)),
      RABBET_ONNX_FLOAT("cubic_coeff",
                        rabbet_onnx_attr_float(node, "cubic_coeff_a", -0.75)),
      RABBET_ONNX_FLOAT("outside_value",
                        rabbet_onnx_attr_float(node, "extrapolation_value", 0)),
      {.name = "scales",
       .type = RABBET_ATTR_FLOATS,
       .data = r->scales,
       .count = r->has_scales ? (size_t)r->rank : 0},
      {.name = "part",
       .type = RABBET_ATTR_FLOATS,
       .data = r->part,
       .count = r->has_part ? 2 * (size_t)r->rank : 0}};
  size_t rank = (size_t)r->rank;
  rabbet_tensor_t* inputs[] = {
      x, r->has_sizes ? rabbet_onnx_index_vector(node, r->sizes, rank) : NULL,
      r->has_units ? rabbet_onnx_index_vector(node, r->units, rank) : NULL};
  node->outputs[0] = rabbet_onnx_layer(node, "resize", inputs,
                                       r->has_units   ? 3
                                       : r->has_sizes ? 2
                                                      : 1,
                                       attrs, sizeof(attrs) / sizeof(attrs[0]));
}

static void onnx_import_resize(rabbet_onnx_node_t* node) {
  rabbet_tensor_t* x = rabbet_onnx_required(node, 0);
  rabbet_onnx_resize_t r = {.rank = rabbet_onnx_rank(node, x)};
  bool modern = node->opset >= 11 && strcmp(node->variant, "upsample") != 0;
  bool smooth = rabbet_onnx_attr_int(node, "antialias", 0) != 0;
  if (!rabbet_onnx_ok(node)) return;
  onnx_resize_axes(node, &r);
  rabbet_tensor_t* scales = onnx_resize_input(node, modern ? 2 : 1);
  rabbet_tensor_t* sizes = modern ? onnx_resize_input(node, 3) : NULL;
  rabbet_tensor_t* part = modern ? onnx_resize_input(node, 1) : NULL;
  bool crops = !strcmp(
      rabbet_onnx_attr_string(node, "coordinate_transformation_mode", ""),
      "tf_crop_and_resize");
  if (node->opset < 7)
    onnx_resize_image(node, &r);
  else if (node->opset < 9)
    onnx_resize_attribute(node, &r);
  else if (sizes)
    onnx_resize_sizes(node, x, sizes, &r);
  else if (scales && smooth)
    onnx_resize_by(node, x, scales, false, &r);
  else if (scales)
    onnx_resize_scales(node, x, scales, &r);
  else
    RABBET_ONNX_FAIL(node, RABBET_STATUS_INVALID_ARGUMENT,
                     "neither scales nor sizes are given");
  if (part && crops) onnx_resize_part(node, part, &r);
  onnx_resize_policy(node, x, &r);
  if (smooth)
    node->outputs[0] = rabbet_onnx_resize_smooth(node, x, &r);
  else
    onnx_resize_emit(node, x, &r);
}

// ---- GridSample ------------------------------------------------------------

static void onnx_import_grid_sample(rabbet_onnx_node_t* node) {
  static const onnx_word_t modes[] = {
      {"bilinear", "LINEAR"}, {"linear", "LINEAR"}, {"nearest", "NEAREST"},
      {"bicubic", "CUBIC"},   {"cubic", "CUBIC"},   {0}};
  static const onnx_word_t outside[] = {
      {"zeros", "FILL"}, {"border", "CLAMP"}, {"reflection", "REFLECT"}, {0}};
  rabbet_tensor_t* inputs[] = {rabbet_onnx_required(node, 0),
                               rabbet_onnx_required(node, 1)};
  const char* mode = onnx_resize_word(
      node, "mode", node->opset < 20 ? "bilinear" : "linear", modes);
  const char* padding =
      onnx_resize_word(node, "padding_mode", "zeros", outside);
  if (!rabbet_onnx_ok(node)) return;
  rabbet_attr_t attrs[] = {
      RABBET_ONNX_INT("interpolation_mode",
                      rabbet_onnx_enumerator(node, "grid_sample",
                                             "interpolation_mode", mode)),
      RABBET_ONNX_INT(
          "sample_mode",
          rabbet_onnx_enumerator(node, "grid_sample", "sample_mode", padding)),
      RABBET_ONNX_BOOL("align_corners",
                       rabbet_onnx_attr_int(node, "align_corners", 0))};
  node->outputs[0] =
      rabbet_onnx_layer(node, "grid_sample", inputs, 2, attrs, 3);
}

// ---- RoiAlign --------------------------------------------------------------

static void onnx_import_roi_align(rabbet_onnx_node_t* node) {
  static const onnx_word_t modes[] = {{"avg", "AVERAGE"}, {"max", "MAX"}, {0}};
  static const onnx_word_t coordinates[] = {
      {"half_pixel", "HALF_PIXEL"},
      {"output_half_pixel", "OUTPUT_HALF_PIXEL"},
      {0}};
  const char* where = "coordinate_transformation_mode";
  rabbet_tensor_t* inputs[] = {rabbet_onnx_required(node, 0),
                               rabbet_onnx_required(node, 1),
                               rabbet_onnx_required(node, 2)};
  const char* mode = onnx_resize_word(node, "mode", "avg", modes);
  // Before version 16 there was no such attribute, and no shift.
  const char* coordinate = onnx_resize_word(
      node, where, node->opset < 16 ? "output_half_pixel" : "half_pixel",
      coordinates);
  if (!rabbet_onnx_ok(node)) return;
  rabbet_attr_t attrs[] = {
      RABBET_ONNX_INT("mode",
                      rabbet_onnx_enumerator(node, "roi_align", "mode", mode)),
      RABBET_ONNX_INT(
          where, rabbet_onnx_enumerator(node, "roi_align", where, coordinate)),
      RABBET_ONNX_INT("output_height",
                      rabbet_onnx_attr_int(node, "output_height", 1)),
      RABBET_ONNX_INT("output_width",
                      rabbet_onnx_attr_int(node, "output_width", 1)),
      RABBET_ONNX_INT("sampling_ratio",
                      rabbet_onnx_attr_int(node, "sampling_ratio", 0)),
      RABBET_ONNX_FLOAT("spatial_scale",
                        rabbet_onnx_attr_float(node, "spatial_scale", 1))};
  node->outputs[0] = rabbet_onnx_layer(node, "roi_align", inputs, 3, attrs, 6);
}

RABBET_ONNX_OPERATORS(resize) = {
    RABBET_ONNX_OP(GridSample, grid_sample, "", 16, 20, 22),
    RABBET_ONNX_OP(Resize, resize, "", 10, 11, 13, 18, 19),
    RABBET_ONNX_OP(RoiAlign, roi_align, "", 10, 16, 22),
    RABBET_ONNX_OP(Upsample, resize, "upsample", 1, 7, 9, 10),
    {0},
};
