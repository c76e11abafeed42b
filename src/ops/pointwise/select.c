#include "ops/fraction.h"
#include "ops/rules.h"
#include "ops/walk.h"

static rabbet_status_t select_infer_types(const rabbet_op_infer_t* infer) {
  infer->outputs[0].dtype = infer->inputs[1].dtype;
  return rabbet_op_same_types(infer, 1);
}

static rabbet_status_t select_infer_shapes(const rabbet_op_infer_t* infer) {
  return rabbet_op_broadcast(infer, 0, 3, &infer->outputs[0].shape);
}

static rabbet_status_t select_start(const rabbet_op_eval_t* eval,
                                    const rabbet_dims_t* dims,
                                    rabbet_walk_t* walk) {
  rabbet_walk_initialize(dims, walk);
  for (size_t i = 0; i < 3; ++i) {
    int64_t strides[RABBET_MAX_RANK];
    RABBET_RETURN_IF_ERROR(rabbet_broadcast_strides(
        eval->op->inputs[i].name, &eval->inputs[i].dims, dims, strides));
    rabbet_walk_add(walk, strides, 0);
  }
  return rabbet_ok();
}

static rabbet_status_t select_infer_values(const rabbet_op_infer_t* infer) {
  const rabbet_op_value_t* in = infer->inputs;
  rabbet_op_value_t* output = &infer->outputs[0];
  int64_t count = rabbet_op_constant_count(infer, &output->shape);
  if (!in[0].values || !in[1].values || !in[2].values || count < 0 ||
      count > RABBET_OP_MAX_VALUES) {
    return rabbet_ok();
  }
  rabbet_view_t views[3];
  for (int i = 0; i < 3; ++i) {
    views[i].dims = rabbet_shape_dims(infer->graph, &in[i].shape);
  }
  const rabbet_op_eval_t eval = {.op = infer->op, .inputs = views};
  rabbet_dims_t dims = rabbet_shape_dims(infer->graph, &output->shape);
  rabbet_fractions_t made;
  RABBET_RETURN_IF_ERROR(rabbet_fractions_new(infer, (size_t)count, &made));
  rabbet_walk_t walk;
  RABBET_RETURN_IF_ERROR(select_start(&eval, &dims, &walk));
  for (; !walk.done; rabbet_walk_next(&walk)) {
    rabbet_expr_t condition = in[0].values[walk.offsets[0]];
    rabbet_fraction_t a, b;
    RABBET_RETURN_IF_ERROR(
        rabbet_fraction_at(infer, &in[1], walk.offsets[1], &a));
    RABBET_RETURN_IF_ERROR(
        rabbet_fraction_at(infer, &in[2], walk.offsets[2], &b));
    RABBET_RETURN_IF_ERROR(rabbet_op_choose(infer, condition, a.top, b.top,
                                            &made.tops[walk.linear]));
    RABBET_RETURN_IF_ERROR(rabbet_op_choose(
        infer, condition, a.bottom, b.bottom, &made.bottoms[walk.linear]));
  }
  rabbet_fractions_store(&made, (size_t)count, output);
  return rabbet_ok();
}

static rabbet_status_t select_reference(const rabbet_op_eval_t* eval) {
  const rabbet_view_t* y = &eval->outputs[0];
  const uint8_t* condition = eval->inputs[0].data;
  size_t size = rabbet_element_size(y->dtype);
  rabbet_walk_t walk;
  RABBET_RETURN_IF_ERROR(select_start(eval, &y->dims, &walk));
  for (; !walk.done; rabbet_walk_next(&walk)) {
    int chosen = condition[walk.offsets[0]] ? 1 : 2;
    rabbet_copy_element(y->data, walk.linear, eval->inputs[chosen].data,
                        walk.offsets[chosen], size);
  }
  return rabbet_ok();
}

static const rabbet_op_operand_t select_inputs[] = {
    {"condition", RABBET_OPERAND_INDEX, RABBET_T(BOOL)},
    {"then_input", 0, RABBET_T_ANY},
    {"else_input", 0, RABBET_T_ANY},
};
static const rabbet_op_operand_t select_outputs[] = {
    {"output", 0, RABBET_T_ANY}};

const rabbet_op_t rabbet_op_select = {
    .name = "select",
    .layer_type = "SELECT",
    .flags = RABBET_OP_POINTWISE | RABBET_OP_MOVES_DATA,
    .inputs = select_inputs,
    .input_count = RABBET_OP_COUNT_OF(select_inputs),
    .outputs = select_outputs,
    .output_count = RABBET_OP_COUNT_OF(select_outputs),
    .infer_types = select_infer_types,
    .infer_shapes = select_infer_shapes,
    .infer_values = select_infer_values,
    .reference = select_reference,
};
