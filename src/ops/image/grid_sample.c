// Elements of an image (or a volume) at the points of a grid, whose coordinates
// run from -1 to 1.
//
// As in torch and ONNX Runtime, points outside are first clamped to the border
// or mirrored, and then each neighbour that is outside. Cubic interpolation
// clamps only the neighbours, as its weights depend on the point.
#include "ops/image/grid_sample.h"

#include <tgmath.h>

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

#define FAR 0x1p30f  // elements; beyond it all positions are outside
#define REAL float
#define NAME(name) name
typedef rabbet_grid_taps_t grid_taps_t;
#include "ops/image/grid_sample_real.inc"
#undef REAL
#undef NAME

#define REAL double
#define NAME(name) name##_of_double
typedef struct grid_taps_t_of_double {
  int count;
  int64_t offset[RABBET_GRID_TAPS];
  double weight[RABBET_GRID_TAPS];
} grid_taps_t_of_double;
#include "ops/image/grid_sample_real.inc"

void rabbet_grid_sample_find(const rabbet_grid_sample_t* sample,
                             const float* point, rabbet_grid_taps_t* out_taps) {
  grid_find(sample, point, out_taps);
}

static rabbet_status_t grid_reference_of_any(const rabbet_op_eval_t* eval) {
  return eval->outputs[0].dtype == RABBET_DTYPE_DOUBLE
             ? grid_reference_of_double(eval)
             : grid_reference(eval);
}

static double grid_sample_cost(const rabbet_op_eval_t* eval) {
  double taps = rabbet_cost_taps(RABBET_OP_INT(eval, "interpolation_mode"));
  double steps = rabbet_cost_count(&eval->outputs[0]);
  for (int32_t i = 2; i < eval->inputs[0].dims.rank; ++i)
    steps *= taps;
  return steps + rabbet_cost_elements(eval);
}

static const rabbet_op_operand_t grid_inputs[] = {{"input", 0, RABBET_T_FLOATS},
                                                  {"grid", 0, RABBET_T_FLOATS}};
static const rabbet_op_operand_t grid_outputs[] = {
    {"output", 0, RABBET_T_FLOATS}};
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
    .reference = grid_reference_of_any,
    .cost = grid_sample_cost,
};
