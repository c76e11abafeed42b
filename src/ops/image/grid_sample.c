// Elements of an image (or a volume) at the points of a grid, whose coordinates
// run from -1 to 1.
//
// As in torch and ONNX Runtime, points outside are first clamped to the border
// or mirrored, and then each neighbour that is outside. Cubic interpolation
// clamps only the neighbours, as its weights depend on the point.
#include "ops/image/grid_sample.h"

#include <math.h>

#include "ops/cost.h"
#include "ops/rules.h"
#include "ops/walk.h"

enum { INPUT = 0, GRID = 1 };

static const rabbet_op_enumerator_t grid_modes[] = {
    RABBET_INTERPOLATIONS(RABBET_ENUMERATOR){NULL, 0}};
static const rabbet_op_enumerator_t grid_outside[] = {
    {"CLAMP", RABBET_SAMPLE_CLAMP},
    {"FILL", RABBET_SAMPLE_FILL},
    {"REFLECT", RABBET_SAMPLE_REFLECT},
    {NULL, 0}};

static rabbet_status_t grid_infer_types(const rabbet_op_infer_t* infer) {
  infer->outputs[0].dtype = infer->inputs[INPUT].dtype;
  return rabbet_ok();
}

static rabbet_status_t grid_infer_shapes(const rabbet_op_infer_t* infer) {
  const rabbet_shape_t* x = &infer->inputs[INPUT].shape;
  const rabbet_shape_t* grid = &infer->inputs[GRID].shape;
  char a[RABBET_OP_TEXT], b[RABBET_OP_TEXT];
  rabbet_shape_t* y = &infer->outputs[0].shape;
  bool fits = (x->rank == 4 || x->rank == 5) && grid->rank == x->rank;
  int64_t coordinates = x->rank - 2;
  *y = *x;
  fits =
      fits && rabbet_op_same_dim(infer, x->d[0], grid->d[0], &y->d[0]) &&
      (!rabbet_op_is_constant(infer, grid->d[grid->rank - 1], &coordinates) ||
       coordinates == x->rank - 2);
  if (!fits)
    return RABBET_OP_INVALID(
        "input 0 ('input') has shape %s and input 1 ('grid') %s; expected "
        "(batch, channels, height, width) and (batch, height, width, 2), or "
        "both with a depth, and 3 coordinates",
        rabbet_op_shape_text(infer, x, a),
        rabbet_op_shape_text(infer, grid, b));
  if (x->rank == 5 &&
      RABBET_OP_INT(infer, "interpolation_mode") == RABBET_INTERPOLATION_CUBIC)
    return RABBET_OP_INVALID(
        "interpolation_mode CUBIC is for images; input 0 has shape %s",
        rabbet_op_shape_text(infer, x, a));
  for (int32_t i = 2; i < x->rank; ++i)
    y->d[i] = grid->d[i - 1];
  return rabbet_ok();
}

// ---- Points ----------------------------------------------------------------

void rabbet_grid_sample_read(const rabbet_attr_t* attrs, size_t attr_count,
                             const rabbet_dims_t* in,
                             rabbet_grid_sample_t* out_sample) {
  rabbet_grid_sample_t* s = out_sample;
  int64_t stride = 1;
  *s = (rabbet_grid_sample_t){.spatial = in->rank - 2};
  s->mode = (rabbet_interpolation_t)rabbet_attr_int(attrs, attr_count,
                                                    "interpolation_mode", 0);
  s->outside = (rabbet_sample_mode_t)rabbet_attr_int(attrs, attr_count,
                                                     "sample_mode", 0);
  s->align_corners =
      rabbet_attr_int(attrs, attr_count, "align_corners", 0) != 0;
  for (int32_t i = s->spatial - 1; i >= 0; --i) {
    s->extent[i] = in->d[i + 2];
    s->strides[i] = stride;
    stride *= in->d[i + 2];
  }
}

static bool grid_is_empty(const rabbet_dims_t* dims, int32_t last) {
  for (int32_t i = 0; i < last; ++i)
    if (dims->d[i] == 0) return true;
  return false;
}

rabbet_status_t rabbet_grid_sample_check(const rabbet_dims_t* in,
                                         const rabbet_dims_t* grid) {
  int32_t last = grid->rank - 1;
  if (in->d[0] != grid->d[0])
    return RABBET_STATUS(RABBET_STATUS_OUT_OF_RANGE,
                         "the input has a batch of %lld and the grid one of "
                         "%lld",
                         (long long)in->d[0], (long long)grid->d[0]);
  if (grid->d[last] != in->rank - 2)
    return RABBET_STATUS(RABBET_STATUS_OUT_OF_RANGE,
                         "the grid has points of %lld coordinates; expected %d",
                         (long long)grid->d[last], in->rank - 2);
  if (grid_is_empty(grid, last) || in->d[1] == 0) return rabbet_ok();
  for (int32_t i = 2; i < in->rank; ++i)
    if (in->d[i] == 0)
      return RABBET_STATUS(RABBET_STATUS_OUT_OF_RANGE,
                           "axis %d of the input has no elements to be sampled",
                           i);
  return rabbet_ok();
}

// Mirrored at both ends of [low, high].
static float grid_reflect(float x, float low, float high) {
  float range = high - low;
  if (range <= 0) return low;
  float from = x < low ? low - x : x - high;
  if (x >= low && x <= high) return x;
  float whole = floorf(from / range), rest = from - whole * range;
  bool even = fmodf(whole, 2) == 0;
  return (x < low) == even ? low + rest : high - rest;
}

// Where a coordinate lies, in elements.
static float grid_place(const rabbet_grid_sample_t* s, int32_t axis, float g) {
  float extent = (float)s->extent[axis];
  float low = s->align_corners ? 0 : -0.5f;
  float high = s->align_corners ? extent - 1 : extent - 0.5f;
  float x = s->align_corners ? (g + 1) / 2 * (extent - 1)
                             : ((g + 1) * extent - 1) / 2;
  if (!(fabsf(x) < 0x1p30f)) x = x > 0 ? 0x1p30f : -0x1p30f;
  if (s->mode == RABBET_INTERPOLATION_NEAREST) x = rintf(x);
  if (x >= low && x <= high) return x;
  if (s->outside == RABBET_SAMPLE_CLAMP &&
      s->mode != RABBET_INTERPOLATION_CUBIC)
    return x < 0 ? 0 : x > extent - 1 ? extent - 1 : x;
  return s->outside == RABBET_SAMPLE_REFLECT ? grid_reflect(x, low, high) : x;
}

// The element that stands for a position; -1: filled.
static int64_t grid_element(const rabbet_grid_sample_t* s, int32_t axis,
                            float position) {
  int64_t extent = s->extent[axis];
  float last = (float)(extent - 1);
  if (position >= 0 && position <= last) return (int64_t)position;
  if (s->outside == RABBET_SAMPLE_CLAMP) return position < 0 ? 0 : extent - 1;
  if (s->outside != RABBET_SAMPLE_REFLECT) return -1;
  float x = s->align_corners ? grid_reflect(position, 0, last)
                             : grid_reflect(position, -0.5f, last + 0.5f);
  return x < 0 ? 0 : x > last ? extent - 1 : (int64_t)x;
}

static int grid_axis(const rabbet_grid_sample_t* s, int32_t axis, float x,
                     int64_t* elements, float* weights) {
  const float a = -0.75f;
  float base = floorf(x), t = x - base;
  int taps = s->mode == RABBET_INTERPOLATION_NEAREST  ? 1
             : s->mode == RABBET_INTERPOLATION_LINEAR ? 2
                                                      : 4;
  for (int i = 0; i < taps; ++i)
    elements[i] = grid_element(
        s, axis, taps == 1 ? x : base + (float)(taps == 4 ? i - 1 : i));
  weights[0] = 1;
  if (taps == 2) {
    weights[0] = 1 - t;
    weights[1] = t;
  } else if (taps == 4) {
    weights[0] = ((a * (t + 1) - 5 * a) * (t + 1) + 8 * a) * (t + 1) - 4 * a;
    weights[1] = ((a + 2) * t - (a + 3)) * t * t + 1;
    weights[2] = ((a + 2) * (1 - t) - (a + 3)) * (1 - t) * (1 - t) + 1;
    weights[3] = ((a * (2 - t) - 5 * a) * (2 - t) + 8 * a) * (2 - t) - 4 * a;
  }
  return taps;
}

void rabbet_grid_sample_find(const rabbet_grid_sample_t* s, const float* point,
                             rabbet_grid_taps_t* out_taps) {
  out_taps->count = 1;
  out_taps->offset[0] = 0;
  out_taps->weight[0] = 1;
  for (int32_t axis = 0; axis < s->spatial; ++axis) {
    rabbet_grid_taps_t before = *out_taps;
    int64_t elements[4];
    float weights[4];
    float x = grid_place(s, axis, point[s->spatial - 1 - axis]);
    int taps = grid_axis(s, axis, x, elements, weights);
    out_taps->count = 0;
    for (int k = 0; k < before.count; ++k) {
      for (int i = 0; i < taps; ++i) {
        if (elements[i] < 0) continue;
        int at = out_taps->count++;
        out_taps->offset[at] =
            before.offset[k] + elements[i] * s->strides[axis];
        out_taps->weight[at] = before.weight[k] * weights[i];
      }
    }
  }
}

// ---- Reference -------------------------------------------------------------

static rabbet_status_t grid_reference(const rabbet_op_eval_t* eval) {
  const rabbet_view_t *x = &eval->inputs[INPUT], *grid = &eval->inputs[GRID];
  const rabbet_view_t* y = &eval->outputs[0];
  rabbet_grid_sample_t s;
  int64_t in_plane = 1, out_plane = 1;
  RABBET_RETURN_IF_ERROR(rabbet_grid_sample_check(&x->dims, &grid->dims));
  rabbet_grid_sample_read(eval->attrs, eval->attr_count, &x->dims, &s);
  for (int32_t i = 2; i < x->dims.rank; ++i) {
    in_plane *= x->dims.d[i];
    out_plane *= y->dims.d[i];
  }
  for (int64_t p = 0; p < y->dims.d[0] * out_plane; ++p) {
    float point[RABBET_GRID_AXES];
    rabbet_grid_taps_t taps;
    for (int32_t i = 0; i < s.spatial; ++i)
      point[i] =
          (float)rabbet_load_double(grid->dtype, grid->data, p * s.spatial + i);
    rabbet_grid_sample_find(&s, point, &taps);
    for (int64_t c = 0; c < x->dims.d[1]; ++c) {
      int64_t plane = p / out_plane * x->dims.d[1] + c;
      double sum = 0;
      for (int i = 0; i < taps.count; ++i)
        sum += (double)taps.weight[i] *
               rabbet_load_double(x->dtype, x->data,
                                  plane * in_plane + taps.offset[i]);
      rabbet_store_double(y->dtype, y->data, plane * out_plane + p % out_plane,
                          sum);
    }
  }
  return rabbet_ok();
}

static double grid_sample_cost(const rabbet_op_eval_t* eval) {
  double taps = rabbet_cost_taps(RABBET_OP_INT(eval, "interpolation_mode"));
  double steps = rabbet_cost_count(&eval->outputs[0]);
  for (int32_t i = 2; i < eval->inputs[0].dims.rank; ++i)
    steps *= taps;
  return steps + rabbet_cost_elements(eval);
}

static const rabbet_op_operand_t grid_inputs[] = {
    {"input", 0, RABBET_T_NARROW_FLOATS}, {"grid", 0, RABBET_T_NARROW_FLOATS}};
static const rabbet_op_operand_t grid_outputs[] = {
    {"output", 0, RABBET_T_NARROW_FLOATS}};
static const rabbet_op_attr_t grid_attrs[] = {
    {"interpolation_mode", RABBET_ATTR_INT, false, RABBET_INTERPOLATION_LINEAR,
     0, grid_modes},
    {"sample_mode", RABBET_ATTR_INT, false, RABBET_SAMPLE_FILL, 0,
     grid_outside},
    {"align_corners", RABBET_ATTR_BOOL, false, 0, 0, NULL},
};

const rabbet_op_t rabbet_op_grid_sample = {
    .name = "grid_sample",
    .layer_type = "GRID_SAMPLE",
    .inputs = grid_inputs,
    .input_count = RABBET_OP_COUNT_OF(grid_inputs),
    .outputs = grid_outputs,
    .output_count = RABBET_OP_COUNT_OF(grid_outputs),
    .attrs = grid_attrs,
    .attr_count = RABBET_OP_COUNT_OF(grid_attrs),
    .infer_types = grid_infer_types,
    .infer_shapes = grid_infer_shapes,
    .reference = grid_reference,
    .cost = grid_sample_cost,
};
