// Resizing by nearest, linear or cubic interpolation, along any axes.
//
// Coordinates are computed in float (of DOUBLE in double), as other
// implementations do: rounding decides which of two equally near elements is
// chosen. Cubic weights: R. Keys, "Cubic convolution interpolation for digital
// image processing", 1981.
#include "ops/image/resize.h"

#include <assert.h>
#include <tgmath.h>

#include "ops/cost.h"
#include "ops/fraction.h"
#include "ops/rules.h"
#include "ops/walk.h"

enum { INPUT = 0, SHAPE = 1, SCALES = 2 };

static const rabbet_op_enumerator_t resize_modes[] = {
    RABBET_INTERPOLATIONS(RABBET_ENUMERATOR){NULL, 0}};
static const rabbet_op_enumerator_t resize_coordinates[] = {
    RABBET_COORDINATES(RABBET_ENUMERATOR){NULL, 0}};
static const rabbet_op_enumerator_t resize_selectors[] = {
    RABBET_SELECTORS(RABBET_ENUMERATOR){NULL, 0}};
static const rabbet_op_enumerator_t resize_rounds[] = {
    RABBET_ROUNDS(RABBET_ENUMERATOR){NULL, 0}};

// ---- Inference -------------------------------------------------------------

static rabbet_status_t resize_infer_types(const rabbet_op_infer_t* infer) {
  rabbet_dtype_t dtype = infer->inputs[INPUT].dtype;
  infer->outputs[0].dtype = dtype;
  if (RABBET_OP_INT(infer, "resize_mode") == RABBET_INTERPOLATION_NEAREST ||
      (RABBET_T_FLOATS & 1u << dtype) != 0)
    return rabbet_ok();
  return RABBET_OP_INVALID(
      "input 0 ('input') has type %s; resize_mode %s needs FLOAT, HALF, BF16 "
      "or DOUBLE",
      rabbet_dtype_name(dtype),
      resize_modes[RABBET_OP_INT(infer, "resize_mode")].name);
}

// floor(extent * scale), in FLOAT as ONNX Runtime has it; of an extent that is
// not known, with the fraction that a scale such as 0.7f stands for: 10
// elements become 7.
static rabbet_status_t resize_extent(const rabbet_op_infer_t* infer,
                                     int32_t axis, rabbet_expr_t in,
                                     double scale, rabbet_expr_t* out) {
  int64_t p = 0, q = 0, known = 0;
  if (!(scale < 0x1p24) || !rabbet_simplest_fraction(scale, &p, &q) || p <= 0)
    return RABBET_OP_INVALID(
        "element %d of attribute 'scales' is %g; expected a number above 0 and "
        "below 2^24",
        axis, scale);
  if (rabbet_op_is_constant(infer, in, &known) && known < 1 << 24)
    return rabbet_expr_constant(infer->graph,
                                (int64_t)((float)known * (float)scale), out);
  RABBET_RETURN_IF_ERROR(
      rabbet_op_with_constant(infer, RABBET_EXPR_PROD, in, p, out));
  return rabbet_op_with_constant(infer, RABBET_EXPR_FLOOR_DIV, *out, q, out);
}

static rabbet_status_t resize_check_length(const char* name, size_t length,
                                           int32_t rank) {
  if (length == (size_t)rank) return rabbet_ok();
  return RABBET_OP_INVALID(
      "'%s' has %zu elements; expected %d, one for each axis of the input",
      name, length, rank);
}

// Scales that are known in a run only do not give the output's extents, which
// must be given as well.
static rabbet_status_t resize_check_operand(const rabbet_op_infer_t* infer) {
  if (!infer->inputs[SHAPE].present)
    return RABBET_OP_INVALID(
        "input 2 ('scales') needs input 1 ('shape') for the extents");
  int64_t count = rabbet_op_constant_count(infer, &infer->inputs[SCALES].shape);
  return resize_check_length("scales", (size_t)count,
                             infer->inputs[INPUT].shape.rank);
}

static rabbet_status_t resize_infer_shapes(const rabbet_op_infer_t* infer) {
  const rabbet_shape_t* x = &infer->inputs[INPUT].shape;
  rabbet_shape_t* y = &infer->outputs[0].shape;
  size_t scale_count = 0, shape_count = 0, part_count = 0;
  const double* scales = RABBET_OP_FLOATS(infer, "scales", &scale_count);
  const int64_t* shape = RABBET_OP_INTS(infer, "shape", &shape_count);
  (void)RABBET_OP_FLOATS(infer, "part", &part_count);
  const rabbet_expr_t* values = NULL;
  *y = *x;
  if (scale_count > 0)
    RABBET_RETURN_IF_ERROR(resize_check_length("scales", scale_count, x->rank));
  if (part_count > 0)
    RABBET_RETURN_IF_ERROR(
        resize_check_length("part", part_count, 2 * x->rank));
  if (infer->input_count > SCALES && infer->inputs[SCALES].present)
    RABBET_RETURN_IF_ERROR(resize_check_operand(infer));
  if (infer->input_count > SHAPE && infer->inputs[SHAPE].present) {
    RABBET_RETURN_IF_ERROR(
        rabbet_op_operand_values(infer, SHAPE, &values, &shape_count));
    RABBET_RETURN_IF_ERROR(resize_check_length("shape", shape_count, x->rank));
    for (int32_t i = 0; i < x->rank; ++i)
      y->d[i] = values[i];
    return rabbet_ok();
  }
  if (shape_count > 0)
    RABBET_RETURN_IF_ERROR(resize_check_length("shape", shape_count, x->rank));
  for (int32_t i = 0; i < x->rank; ++i) {
    if (shape_count > 0 && shape[i] < 0)
      return RABBET_OP_INVALID(
          "element %d of attribute 'shape' is %lld; expected 0 or more", i,
          (long long)shape[i]);
    if (shape_count > 0)
      RABBET_RETURN_IF_ERROR(
          rabbet_expr_constant(infer->graph, shape[i], &y->d[i]));
    else if (scale_count > 0)
      RABBET_RETURN_IF_ERROR(
          resize_extent(infer, i, x->d[i], scales[i], &y->d[i]));
  }
  return rabbet_ok();
}

// ---- Tables ----------------------------------------------------------------

static bool resize_is_double(const rabbet_op_eval_t* eval) {
  return eval->outputs[0].dtype == RABBET_DTYPE_DOUBLE &&
         RABBET_OP_INT(eval, "resize_mode") != RABBET_INTERPOLATION_NEAREST;
}

// The scale of an axis: given, or that of the extents.
static double resize_scale(const rabbet_op_eval_t* eval, int32_t axis,
                           const rabbet_resize_axis_t* extents) {
  size_t count = 0;
  const double* scales = RABBET_OP_FLOATS(eval, "scales", &count);
  const rabbet_view_t* given =
      eval->input_count > SCALES ? &eval->inputs[SCALES] : NULL;
  if (given && given->dtype != RABBET_DTYPE_NONE)
    return (double)rabbet_load_int64(given->dtype, given->data, axis) *
           RABBET_RESIZE_SCALE_UNIT;
  if (count > (size_t)axis) return scales[axis];
  return resize_is_double(eval) ? (double)extents->out / (double)extents->in
                                : (float)extents->out / (float)extents->in;
}

static double resize_number(const rabbet_op_eval_t* eval, double x) {
  return resize_is_double(eval) ? x : (double)(float)x;
}

rabbet_status_t rabbet_resize_read(const rabbet_op_eval_t* eval,
                                   rabbet_resize_t* r) {
  static const int taps[] = {1, 2, 4};
  const rabbet_attr_t* attrs = eval->attrs;
  size_t attr_count = eval->attr_count, part_count = 0;
  const rabbet_dims_t* in = &eval->inputs[INPUT].dims;
  const rabbet_dims_t* out = &eval->outputs[0].dims;
  const double* part = RABBET_OP_FLOATS(eval, "part", &part_count);
  int32_t rank = in->rank;
  *r = (rabbet_resize_t){.rank = rank};
  r->mode = (rabbet_interpolation_t)rabbet_attr_int(attrs, attr_count,
                                                    "resize_mode", 0);
  r->coordinate = (rabbet_coordinate_t)rabbet_attr_int(
      attrs, attr_count, "coordinate_transformation", 0);
  r->selector = (rabbet_selector_t)rabbet_attr_int(
      attrs, attr_count, "selector_for_single_pixel", 0);
  r->rounding =
      (rabbet_round_t)rabbet_attr_int(attrs, attr_count, "nearest_rounding", 0);
  r->exclude_outside =
      rabbet_attr_int(attrs, attr_count, "exclude_outside", 0) != 0;
  r->cubic = resize_number(
      eval, rabbet_attr_float(attrs, attr_count, "cubic_coeff", -0.75));
  r->outside = rabbet_attr_float(attrs, attr_count, "outside_value", 0);
  for (int32_t i = 0; i < rank; ++i) {
    rabbet_resize_axis_t* axis = &r->axes[i];
    *axis = (rabbet_resize_axis_t){
        .in = in->d[i], .out = out->d[i], .taps = taps[r->mode], .end = 1};
    axis->scale = resize_number(eval, resize_scale(eval, i, axis));
    if (part_count == 2 * (size_t)rank) {
      axis->start = resize_number(eval, part[i]);
      axis->end = resize_number(eval, part[i + rank]);
    }
    bool whole = r->coordinate != RABBET_COORDINATE_CROP ||
                 (axis->start == 0 && axis->end == 1);
    axis->is_same = axis->in == axis->out && axis->scale == 1 && whole;
    if (axis->is_same) axis->taps = 1;
    if (axis->in > 0 || axis->out == 0) continue;
    return RABBET_STATUS(RABBET_STATUS_OUT_OF_RANGE,
                         "axis %d has no elements and cannot be resized to "
                         "%lld",
                         i, (long long)axis->out);
  }
  return rabbet_ok();
}

#define HALF (REAL)0.5
#define REAL float
#define NAME(name) name
#include "ops/image/resize_real.inc"
#undef REAL
#undef NAME

#define REAL double
#define NAME(name) name##_of_double
#include "ops/image/resize_real.inc"

void rabbet_resize_table(const rabbet_resize_t* resize, int32_t axis,
                         int32_t* positions, float* weights) {
  resize_table(resize, axis, positions, weights);
}

// Elements are chosen by the same positions in all types.
static rabbet_status_t resize_reference_of_any(const rabbet_op_eval_t* eval) {
  return resize_is_double(eval) ? resize_reference_of_double(eval)
                                : resize_reference(eval);
}

static double resize_cost(const rabbet_op_eval_t* eval) {
  const rabbet_dims_t *x = &eval->inputs[0].dims, *y = &eval->outputs[0].dims;
  double taps = rabbet_cost_taps(RABBET_OP_INT(eval, "resize_mode"));
  double steps = rabbet_cost_count(&eval->outputs[0]);
  for (int32_t i = 0; i < x->rank && i < y->rank; ++i)
    if (x->d[i] != y->d[i]) steps *= taps;
  return steps + rabbet_cost_elements(eval);
}

static const rabbet_op_operand_t resize_inputs[] = {
    {"input", 0, RABBET_T_ANY},
    {"shape", RABBET_OPERAND_OPTIONAL | RABBET_OPERAND_SHAPE, RABBET_T_INDICES},
    {"scales", RABBET_OPERAND_OPTIONAL | RABBET_OPERAND_SHAPE, RABBET_T(INT64)},
};
static const rabbet_op_operand_t resize_outputs[] = {
    {"output", 0, RABBET_T_ANY}};
static const rabbet_op_attr_t resize_attrs[] = {
    {"shape", RABBET_ATTR_INTS, false, 0, 0, NULL},
    {"scales", RABBET_ATTR_FLOATS, false, 0, 0, NULL},
    {"resize_mode", RABBET_ATTR_INT, false, RABBET_INTERPOLATION_NEAREST, 0,
     resize_modes},
    {"coordinate_transformation", RABBET_ATTR_INT, false,
     RABBET_COORDINATE_ASYMMETRIC, 0, resize_coordinates},
    {"selector_for_single_pixel", RABBET_ATTR_INT, false,
     RABBET_SELECTOR_FORMULA, 0, resize_selectors},
    {"nearest_rounding", RABBET_ATTR_INT, false, RABBET_ROUND_FLOOR, 0,
     resize_rounds},
    {"exclude_outside", RABBET_ATTR_BOOL, false, 0, 0, NULL},
    {"cubic_coeff", RABBET_ATTR_FLOAT, false, 0, -0.75, NULL},
    {"part", RABBET_ATTR_FLOATS, false, 0, 0, NULL},
    {"outside_value", RABBET_ATTR_FLOAT, false, 0, 0, NULL},
};

const rabbet_op_t rabbet_op_resize = {
    .name = "resize",
    .layer_type = "RESIZE",
    .inputs = resize_inputs,
    .input_count = RABBET_OP_COUNT_OF(resize_inputs),
    .outputs = resize_outputs,
    .output_count = RABBET_OP_COUNT_OF(resize_outputs),
    .attrs = resize_attrs,
    .attr_count = RABBET_OP_COUNT_OF(resize_attrs),
    .infer_types = resize_infer_types,
    .infer_shapes = resize_infer_shapes,
    .reference = resize_reference_of_any,
    .cost = resize_cost,
};
