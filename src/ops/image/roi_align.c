// RoiAlign: bins of regions of an image, each the mean or the maximum of
// samples that are interpolated between elements.
//
// As in ONNX's reference and ONNX Runtime, the maximum is of the elements
// around the samples, each times its weight, and samples outside are zeros. A
// region that is not finite, or of an image that does not exist, is all zeros.
#include "ops/image/roi_align.h"

#include "ops/cost.h"
#include "ops/enums.h"
#include "ops/rules.h"

enum { INPUT = 0, ROIS = 1, INDICES = 2 };
// Most samples of a bin along an axis, for any region. More would be slow, and
// sums in float lose digits (ONNX Runtime's sums of 1024 are off by a
// hundredth).
enum { MOST_SAMPLES = 256 };
enum { MOST_EXTENT = 1 << 24 };
enum { OUTPUT_HALF_PIXEL = 0, HALF_PIXEL = 1 };

static const rabbet_op_enumerator_t roi_modes[] = {
    {"MAX", RABBET_POOLING_MAX},
    {"AVERAGE", RABBET_POOLING_AVERAGE},
    {NULL, 0}};
static const rabbet_op_enumerator_t roi_coordinates[] = {
    {"OUTPUT_HALF_PIXEL", OUTPUT_HALF_PIXEL},
    {"HALF_PIXEL", HALF_PIXEL},
    {NULL, 0}};

// ---- Rules -----------------------------------------------------------------

static rabbet_status_t roi_infer_types(const rabbet_op_infer_t* infer) {
  infer->outputs[0].dtype = infer->inputs[INPUT].dtype;
  return rabbet_ok();
}

static rabbet_status_t roi_check_attr(const rabbet_op_infer_t* infer,
                                      const char* name, int64_t least,
                                      int64_t most) {
  int64_t value = RABBET_OP_INT(infer, name);
  if (value >= least && value <= most) return rabbet_ok();
  return RABBET_OP_INVALID(
      "attribute '%s' is %lld; expected a number from %lld to %lld", name,
      (long long)value, (long long)least, (long long)most);
}

static rabbet_status_t roi_infer_shapes(const rabbet_op_infer_t* infer) {
  const rabbet_shape_t* x = &infer->inputs[INPUT].shape;
  const rabbet_shape_t* rois = &infer->inputs[ROIS].shape;
  const rabbet_shape_t* indices = &infer->inputs[INDICES].shape;
  rabbet_shape_t* y = &infer->outputs[0].shape;
  char a[RABBET_OP_TEXT], b[RABBET_OP_TEXT], c[RABBET_OP_TEXT];
  int64_t numbers = 4;
  RABBET_RETURN_IF_ERROR(
      roi_check_attr(infer, "output_height", 1, MOST_EXTENT));
  RABBET_RETURN_IF_ERROR(roi_check_attr(infer, "output_width", 1, MOST_EXTENT));
  RABBET_RETURN_IF_ERROR(
      roi_check_attr(infer, "sampling_ratio", 0, MOST_SAMPLES));
  bool fits =
      x->rank == 4 && rois->rank == 2 && indices->rank == 1 &&
      (!rabbet_op_is_constant(infer, rois->d[1], &numbers) || numbers == 4);
  y->rank = 4;
  if (!fits || !rabbet_op_same_dim(infer, rois->d[0], indices->d[0], &y->d[0]))
    return RABBET_OP_INVALID(
        "input 0 ('input') has shape %s, input 1 ('rois') %s and input 2 "
        "('batch_indices') %s; expected (batch, channels, height, width), "
        "(regions, 4) and (regions)",
        rabbet_op_shape_text(infer, x, a), rabbet_op_shape_text(infer, rois, b),
        rabbet_op_shape_text(infer, indices, c));
  y->d[1] = x->d[1];
  RABBET_RETURN_IF_ERROR(rabbet_expr_constant(
      infer->graph, RABBET_OP_INT(infer, "output_height"), &y->d[2]));
  return rabbet_expr_constant(infer->graph,
                              RABBET_OP_INT(infer, "output_width"), &y->d[3]);
}

static rabbet_status_t roi_check_dims(const rabbet_dims_t* in,
                                      const rabbet_dims_t* rois,
                                      const rabbet_dims_t* indices) {
  if (rois->d[1] != 4 || rois->d[0] != indices->d[0])
    return RABBET_STATUS(
        RABBET_STATUS_OUT_OF_RANGE,
        "there are %lld regions of %lld numbers and %lld batch "
        "indices; expected 4 numbers and an index each",
        (long long)rois->d[0], (long long)rois->d[1], (long long)indices->d[0]);
  for (int32_t i = 2; i < 4; ++i)
    if (in->d[i] > MOST_EXTENT || (rois->d[0] > 0 && in->d[i] < 1))
      return RABBET_STATUS(RABBET_STATUS_OUT_OF_RANGE,
                           "axis %d of the input has %lld elements; expected "
                           "from 1 to 2^24",
                           i, (long long)in->d[i]);
  return rabbet_ok();
}

rabbet_status_t rabbet_roi_align_read(const rabbet_attr_t* attrs,
                                      size_t attr_count,
                                      const rabbet_dims_t* in,
                                      const rabbet_dims_t* rois,
                                      const rabbet_dims_t* indices,
                                      rabbet_roi_align_t* out_align) {
  rabbet_roi_align_t* r = out_align;
  *r = (rabbet_roi_align_t){0};
  RABBET_RETURN_IF_ERROR(roi_check_dims(in, rois, indices));
  r->rois = rois->d[0];
  r->batch = in->d[0];
  r->channels = in->d[1];
  for (int i = 0; i < 2; ++i)
    r->in[i] = (int32_t)in->d[2 + i];
  r->out[0] = (int32_t)rabbet_attr_int(attrs, attr_count, "output_height", 1);
  r->out[1] = (int32_t)rabbet_attr_int(attrs, attr_count, "output_width", 1);
  r->ratio = (int32_t)rabbet_attr_int(attrs, attr_count, "sampling_ratio", 0);
  r->half_pixel =
      rabbet_attr_int(attrs, attr_count, "coordinate_transformation_mode",
                      HALF_PIXEL) == HALF_PIXEL;
  r->is_max = rabbet_attr_int(attrs, attr_count, "mode",
                              RABBET_POOLING_AVERAGE) == RABBET_POOLING_MAX;
  r->scale = (float)rabbet_attr_float(attrs, attr_count, "spatial_scale", 1);
  return rabbet_ok();
}

// ---- Reference -------------------------------------------------------------

#define REAL float
#define NAME(name) name
#define RABBET_ROI(name) rabbet_roi_##name
#include "ops/image/roi_align_real.inc"
#undef REAL
#undef NAME
#undef RABBET_ROI

#define REAL double
#define NAME(name) name##_of_double
#define RABBET_ROI_REAL double
#define RABBET_ROI(name) rabbet_roi_##name##_of_double
#include "ops/image/roi_align.h"
#define RABBET_ROI(name) rabbet_roi_##name##_of_double
#include "ops/image/roi_align_real.inc"

static rabbet_status_t roi_reference_of_any(const rabbet_op_eval_t* eval) {
  return eval->outputs[0].dtype == RABBET_DTYPE_DOUBLE
             ? roi_reference_of_double(eval)
             : roi_reference(eval);
}

// An adaptive region has at most about four samples for each element that it
// covers, plus one for each bin. A sample reads four elements.
static double roi_cost(const rabbet_op_eval_t* eval) {
  double bins = rabbet_cost_count(eval->outputs);
  double ratio = (double)RABBET_OP_INT(eval, "sampling_ratio");
  double planes = bins / (double)RABBET_OP_INT(eval, "output_height") /
                  (double)RABBET_OP_INT(eval, "output_width");
  const int64_t* in = eval->inputs[INPUT].dims.d;
  double samples = ratio > 0
                       ? bins * ratio * ratio
                       : bins + planes * 4 * (double)in[2] * (double)in[3];
  return 4 * samples + rabbet_cost_elements(eval);
}

static const rabbet_op_operand_t roi_inputs[] = {
    {"input", 0, RABBET_T_FLOATS},
    {"rois", 0, RABBET_T_FLOATS},
    {"batch_indices", 0, RABBET_T_INDICES}};
static const rabbet_op_operand_t roi_outputs[] = {
    {"output", 0, RABBET_T_FLOATS}};
static const rabbet_op_attr_t roi_attrs[] = {
    {"coordinate_transformation_mode", RABBET_ATTR_INT, false, HALF_PIXEL, 0,
     roi_coordinates},
    {"mode", RABBET_ATTR_INT, false, RABBET_POOLING_AVERAGE, 0, roi_modes},
    {"output_height", RABBET_ATTR_INT, false, 1, 0, NULL},
    {"output_width", RABBET_ATTR_INT, false, 1, 0, NULL},
    {"sampling_ratio", RABBET_ATTR_INT, false, 0, 0, NULL},
    {"spatial_scale", RABBET_ATTR_FLOAT, false, 0, 1, NULL},
};

const rabbet_op_t rabbet_op_roi_align = {
    .name = "roi_align",
    .layer_type = "ROI_ALIGN",
    .inputs = roi_inputs,
    .input_count = RABBET_OP_COUNT_OF(roi_inputs),
    .outputs = roi_outputs,
    .output_count = RABBET_OP_COUNT_OF(roi_outputs),
    .attrs = roi_attrs,
    .attr_count = RABBET_OP_COUNT_OF(roi_attrs),
    .infer_types = roi_infer_types,
    .infer_shapes = roi_infer_shapes,
    .reference = roi_reference_of_any,
    .cost = roi_cost,
};
