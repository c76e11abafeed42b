#include <math.h>

#include "ops/rules.h"
#include "ops/walk.h"

static int64_t softmax_mask(int64_t axes, int32_t rank) {
  if (axes != 0) return axes;
  return INT64_C(1) << (rank > 3 ? rank - 3 : 0);
}

static rabbet_status_t softmax_infer_shapes(const rabbet_op_infer_t* infer) {
  const rabbet_shape_t* shape = &infer->inputs[0].shape;
  int64_t mask = softmax_mask(RABBET_OP_INT(infer, "axes"), shape->rank);
  RABBET_RETURN_IF_ERROR(rabbet_op_axes_mask(infer, mask, shape->rank));
  if ((mask & (mask - 1)) != 0) {
    return RABBET_OP_INVALID(
        "attribute 'axes' is 0x%llx; softmax is over one axis, so that one bit "
        "must be set",
        (unsigned long long)mask);
  }
  return rabbet_op_same_shape(infer);
}

// One row of `count` elements, `stride` apart.
static void softmax_row(const rabbet_view_t* x, const rabbet_view_t* y,
                        int64_t start, int64_t stride, int64_t count) {
  double highest = -INFINITY, total = 0;
  for (int64_t i = 0; i < count; ++i) {
    double v = rabbet_load_double(x->dtype, x->data, start + i * stride);
    if (v > highest || isnan(v)) highest = v;
  }
  for (int64_t i = 0; i < count; ++i) {
    double v = rabbet_load_double(x->dtype, x->data, start + i * stride);
    total += exp(v - highest);
  }
  for (int64_t i = 0; i < count; ++i) {
    int64_t at = start + i * stride;
    double v = rabbet_load_double(x->dtype, x->data, at);
    rabbet_store_double(y->dtype, y->data, at, exp(v - highest) / total);
  }
}

static rabbet_status_t softmax_reference(const rabbet_op_eval_t* eval) {
  const rabbet_view_t* x = &eval->inputs[0];
  const rabbet_view_t* y = &eval->outputs[0];
  int64_t mask = softmax_mask(RABBET_OP_INT(eval, "axes"), x->dims.rank);
  int32_t axis = __builtin_ctzll((unsigned long long)mask);
  int64_t strides[RABBET_MAX_RANK];
  rabbet_row_major(&x->dims, strides);
  rabbet_dims_t rows = x->dims;
  rows.d[axis] = x->dims.d[axis] > 0;
  rabbet_walk_t walk;
  rabbet_walk_initialize(&rows, &walk);
  rabbet_walk_add(&walk, strides, 0);
  for (; !walk.done; rabbet_walk_next(&walk)) {
    softmax_row(x, y, walk.offsets[0], strides[axis], x->dims.d[axis]);
  }
  return rabbet_ok();
}

static const rabbet_op_operand_t softmax_inputs[] = {
    {"input", 0, RABBET_T_FLOATS}};
static const rabbet_op_operand_t softmax_outputs[] = {
    {"output", 0, RABBET_T_FLOATS}};
static const rabbet_op_attr_t softmax_attrs[] = {
    {"axes", RABBET_ATTR_INT, false, 0, 0, NULL},
};

const rabbet_op_t rabbet_op_softmax = {
    .name = "softmax",
    .layer_type = "SOFTMAX",
    .inputs = softmax_inputs,
    .input_count = RABBET_OP_COUNT_OF(softmax_inputs),
    .outputs = softmax_outputs,
    .output_count = RABBET_OP_COUNT_OF(softmax_outputs),
    .attrs = softmax_attrs,
    .attr_count = RABBET_OP_COUNT_OF(softmax_attrs),
    .infer_shapes = softmax_infer_shapes,
    .reference = softmax_reference,
};
