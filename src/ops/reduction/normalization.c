// (x - mean) / sqrt(variance + epsilon) * scale + bias.
//
// With is_rms the mean is taken as 0, so that the variance is the mean square:
// RMS normalization. Scale and bias have the input's type, or FLOAT, since
// exporters multiply by weights in FLOAT before they convert the result.
//
// Mean and variance are over `axes`: {2, ...} is instance, the last ones layer
// normalization. With num_groups > 1 the channels (axis 1) of a group count
// too: group normalization. Scale and bias broadcast to the input; with
// num_groups > 1 and is_v2 false their axis 1 has one element for each group.
#include <math.h>

#include "ops/rules.h"
#include "ops/walk.h"

enum { INPUT = 0, SCALE = 1, BIAS = 2 };

static rabbet_status_t normalization_infer_types(
    const rabbet_op_infer_t* infer) {
  infer->outputs[0].dtype = infer->inputs[INPUT].dtype;
  for (size_t i = SCALE; i < infer->input_count; ++i)
    if (infer->inputs[i].present &&
        infer->inputs[i].dtype != RABBET_DTYPE_FLOAT)
      RABBET_RETURN_IF_ERROR(rabbet_op_same_type(infer, INPUT, i));
  return rabbet_ok();
}

// Scale or bias: on each axis the extent of the input, or 1.
static rabbet_status_t normalization_check(const rabbet_op_infer_t* infer,
                                           size_t index, int64_t groups) {
  if (index >= infer->input_count || !infer->inputs[index].present) {
    return rabbet_ok();
  }
  const rabbet_shape_t* x = &infer->inputs[INPUT].shape;
  const rabbet_shape_t* given = &infer->inputs[index].shape;
  bool by_group = groups > 1 && !RABBET_OP_INT(infer, "is_v2");
  bool fits = given->rank == x->rank;
  for (int32_t i = 0; fits && i < x->rank; ++i) {
    rabbet_expr_t ignored = RABBET_EXPR_NONE;
    if (rabbet_op_equals(infer, given->d[i], 1)) continue;
    fits = i == 1 && by_group
               ? rabbet_op_equals(infer, given->d[i], groups)
               : rabbet_op_same_dim(infer, given->d[i], x->d[i], &ignored);
  }
  if (fits) return rabbet_ok();
  char a[RABBET_OP_TEXT], b[RABBET_OP_TEXT];
  return RABBET_OP_INVALID(
      "input %zu ('%s') has shape %s; it must have the rank of input 0, whose "
      "shape is %s, and on each axis 1 or the same extent%s",
      index, infer->op->inputs[index].name,
      rabbet_op_shape_text(infer, given, a), rabbet_op_shape_text(infer, x, b),
      by_group ? " (on axis 1: the number of groups)" : "");
}

static rabbet_status_t normalization_check_groups(
    const rabbet_op_infer_t* infer, int64_t groups, int64_t mask) {
  if (groups == 1) return rabbet_ok();
  const rabbet_shape_t* x = &infer->inputs[INPUT].shape;
  int64_t channels = 0;
  bool known = x->rank > 1 && rabbet_op_is_constant(infer, x->d[1], &channels);
  if (groups < 1 || x->rank < 3 || (known && channels % groups != 0)) {
    char text[RABBET_OP_TEXT];
    return RABBET_OP_INVALID(
        "attribute 'num_groups' is %lld; the channels (axis 1) of input 0, of "
        "shape %s, must divide into that many groups",
        (long long)groups, rabbet_op_shape_text(infer, x, text));
  }
  if (mask & 3) {
    return RABBET_OP_INVALID(
        "attribute 'axes' is 0x%llx; with num_groups > 1 it names axes from 2 "
        "on, as the channels of a group are always included",
        (unsigned long long)mask);
  }
  return rabbet_ok();
}

static rabbet_status_t normalization_infer_shapes(
    const rabbet_op_infer_t* infer) {
  int64_t groups = RABBET_OP_INT(infer, "num_groups");
  int64_t mask = RABBET_OP_INT(infer, "axes");
  RABBET_RETURN_IF_ERROR(
      rabbet_op_axes_mask(infer, mask, infer->inputs[INPUT].shape.rank));
  RABBET_RETURN_IF_ERROR(normalization_check_groups(infer, groups, mask));
  RABBET_RETURN_IF_ERROR(normalization_check(infer, SCALE, groups));
  RABBET_RETURN_IF_ERROR(normalization_check(infer, BIAS, groups));
  return rabbet_op_same_shape(infer);
}

// ---- Reference -------------------------------------------------------------

// The input with its channels split into (groups, channels in a group), so that
// a group's channels are an axis like others.
typedef struct normalization_t {
  const rabbet_op_eval_t* eval;
  rabbet_dims_t outer, inner;  // walked outside and inside of a mean
  int64_t outer_strides[3][RABBET_MAX_RANK + 1];
  int64_t inner_strides[3][RABBET_MAX_RANK + 1];
  bool present[3];
  double epsilon;
  bool is_rms;
} normalization_t;

// Strides of scale or bias over the split input.
static rabbet_status_t normalization_strides(const rabbet_view_t* view,
                                             const char* name,
                                             const rabbet_dims_t* x,
                                             int64_t groups, bool by_group,
                                             int64_t strides[]) {
  rabbet_dims_t to = *x;
  if (by_group && view->dims.d[1] != 1) to.d[1] = groups;
  int64_t plain[RABBET_MAX_RANK];
  RABBET_RETURN_IF_ERROR(
      rabbet_broadcast_strides(name, &view->dims, &to, plain));
  int64_t per_group = groups > 1 ? x->d[1] / groups : 1;
  int32_t n = 0;
  for (int32_t i = 0; i < x->rank; ++i) {
    if (i == 1 && groups > 1) {
      strides[n++] = by_group ? plain[i] : plain[i] * per_group;
      strides[n++] = by_group ? 0 : plain[i];
    } else {
      strides[n++] = plain[i];
    }
  }
  return rabbet_ok();
}

static rabbet_status_t normalization_start(const rabbet_op_eval_t* eval,
                                           normalization_t* out) {
  *out = (normalization_t){.eval = eval};
  const rabbet_dims_t* x = &eval->inputs[INPUT].dims;
  int64_t groups = RABBET_OP_INT(eval, "num_groups");
  int64_t mask = RABBET_OP_INT(eval, "axes");
  bool by_group = groups > 1 && !RABBET_OP_INT(eval, "is_v2");
  out->epsilon = RABBET_OP_FLOAT(eval, "epsilon");
  out->is_rms = RABBET_OP_INT(eval, "is_rms") != 0;
  if (groups > 1 && x->d[1] % groups != 0) {
    return RABBET_STATUS(RABBET_STATUS_OUT_OF_RANGE,
                         "%lld channels do not divide into %lld groups",
                         (long long)x->d[1], (long long)groups);
  }
  int64_t strides[3][RABBET_MAX_RANK + 1] = {{0}};
  for (size_t i = 0; i < 3; ++i) {
    out->present[i] =
        i < eval->input_count && eval->inputs[i].dtype != RABBET_DTYPE_NONE;
    if (!out->present[i]) continue;
    RABBET_RETURN_IF_ERROR(
        normalization_strides(&eval->inputs[i], eval->op->inputs[i].name, x,
                              groups, by_group && i != INPUT, strides[i]));
  }
  int32_t n = 0;
  for (int32_t i = 0; i < x->rank; ++i) {
    int parts = i == 1 && groups > 1 ? 2 : 1;
    for (int part = 0; part < parts; ++part, ++n) {
      bool inside = parts == 2 ? part == 1 : (mask >> i & 1) != 0;
      int64_t extent = parts == 1  ? x->d[i]
                       : part == 0 ? groups
                                   : x->d[i] / groups;
      rabbet_dims_t* dims = inside ? &out->inner : &out->outer;
      for (int k = 0; k < 3; ++k) {
        int64_t(*target)[RABBET_MAX_RANK + 1] =
            inside ? out->inner_strides : out->outer_strides;
        target[k][dims->rank] = strides[k][n];
      }
      dims->d[dims->rank++] = extent;
    }
  }
  return rabbet_ok();
}

static void normalization_moments(const normalization_t* norm, int64_t at,
                                  double* out_mean, double* out_variance) {
  const rabbet_view_t* x = &norm->eval->inputs[INPUT];
  double count = (double)rabbet_count_of(&norm->inner);
  double sum = 0, squares = 0;
  rabbet_walk_t walk;
  rabbet_walk_initialize(&norm->inner, &walk);
  rabbet_walk_add(&walk, norm->inner_strides[INPUT], at);
  for (; !walk.done; rabbet_walk_next(&walk)) {
    sum += rabbet_load_double(x->dtype, x->data, walk.offsets[0]);
  }
  double mean = norm->is_rms ? 0 : sum / count;
  rabbet_walk_initialize(&norm->inner, &walk);
  rabbet_walk_add(&walk, norm->inner_strides[INPUT], at);
  for (; !walk.done; rabbet_walk_next(&walk)) {
    double d = rabbet_load_double(x->dtype, x->data, walk.offsets[0]) - mean;
    squares += d * d;
  }
  *out_mean = mean;
  *out_variance = squares / count;
}

static void normalization_group(const normalization_t* norm,
                                const int64_t at[3]) {
  const rabbet_view_t* views = norm->eval->inputs;
  const rabbet_view_t* y = &norm->eval->outputs[0];
  double mean = 0, variance = 0;
  normalization_moments(norm, at[INPUT], &mean, &variance);
  double factor = 1 / sqrt(variance + norm->epsilon);
  rabbet_walk_t walk;
  rabbet_walk_initialize(&norm->inner, &walk);
  for (int i = 0; i < 3; ++i) {
    rabbet_walk_add(&walk, norm->inner_strides[i], at[i]);
  }
  for (; !walk.done; rabbet_walk_next(&walk)) {
    double value = rabbet_load_double(views[INPUT].dtype, views[INPUT].data,
                                      walk.offsets[INPUT]);
    value = (value - mean) * factor;
    if (norm->present[SCALE]) {
      value *= rabbet_load_double(views[SCALE].dtype, views[SCALE].data,
                                  walk.offsets[SCALE]);
    }
    if (norm->present[BIAS]) {
      value += rabbet_load_double(views[BIAS].dtype, views[BIAS].data,
                                  walk.offsets[BIAS]);
    }
    rabbet_store_double(y->dtype, y->data, walk.offsets[INPUT], value);
  }
}

static rabbet_status_t normalization_reference(const rabbet_op_eval_t* eval) {
  normalization_t norm;
  RABBET_RETURN_IF_ERROR(normalization_start(eval, &norm));
  rabbet_walk_t walk;
  rabbet_walk_initialize(&norm.outer, &walk);
  for (int i = 0; i < 3; ++i) {
    rabbet_walk_add(&walk, norm.outer_strides[i], 0);
  }
  for (; !walk.done; rabbet_walk_next(&walk)) {
    normalization_group(&norm, walk.offsets);
  }
  return rabbet_ok();
}

static const rabbet_op_operand_t normalization_inputs[] = {
    {"input", 0, RABBET_T_FLOATS},
    {"scale", RABBET_OPERAND_OPTIONAL, RABBET_T_FLOATS},
    {"bias", RABBET_OPERAND_OPTIONAL, RABBET_T_FLOATS},
};
static const rabbet_op_operand_t normalization_outputs[] = {
    {"output", 0, RABBET_T_FLOATS}};
static const rabbet_op_attr_t normalization_attrs[] = {
    {"axes", RABBET_ATTR_INT, true, 0, 0, NULL},
    {"epsilon", RABBET_ATTR_FLOAT, false, 0, 1e-5, NULL},
    {"num_groups", RABBET_ATTR_INT, false, 1, 0, NULL},
    {"is_v2", RABBET_ATTR_BOOL, false, 1, 0, NULL},
    {"is_rms", RABBET_ATTR_BOOL, false, 0, 0, NULL},
};

const rabbet_op_t rabbet_op_normalization = {
    .name = "normalization",
    .layer_type = "NORMALIZATION",
    .inputs = normalization_inputs,
    .input_count = RABBET_OP_COUNT_OF(normalization_inputs),
    .outputs = normalization_outputs,
    .output_count = RABBET_OP_COUNT_OF(normalization_outputs),
    .attrs = normalization_attrs,
    .attr_count = RABBET_OP_COUNT_OF(normalization_attrs),
    .infer_types = normalization_infer_types,
    .infer_shapes = normalization_infer_shapes,
    .reference = normalization_reference,
};
