// Layers at the boundary of a conditional: its condition, the inputs of its
// branches, and its outputs. They delimit the layers of each branch. The
// builder makes a sequence of each branch, and a step that chooses one.
#include "ops/rules.h"

static const rabbet_op_operand_t conditional_any_output[] = {
    {"output", 0, RABBET_T_ANY}};

// ---- Condition -------------------------------------------------------------

static rabbet_status_t condition_infer_shapes(const rabbet_op_infer_t* infer) {
  const rabbet_op_value_t* x = &infer->inputs[0];
  if (x->shape.rank == 0) return rabbet_ok();
  char text[RABBET_OP_TEXT];
  return RABBET_OP_INVALID(
      "input 0 ('condition') has shape %s; a condition has no dimensions",
      rabbet_op_shape_text(infer, &x->shape, text));
}

// In a network: the condition alone. In a plan: also the inputs and outputs of
// the sequences that its branches have become.
static const rabbet_op_operand_t condition_inputs[] = {
    {"condition", 0, RABBET_T(BOOL)},
    {"captures", RABBET_OPERAND_OPTIONAL | RABBET_OPERAND_VARIADIC,
     RABBET_T_ANY},
};
static const rabbet_op_operand_t condition_outputs[] = {
    {"outputs", RABBET_OPERAND_VARIADIC, RABBET_T_ANY}};

const rabbet_op_t rabbet_op_condition = {
    .name = "condition",
    .layer_type = "CONDITION",
    .flags = RABBET_OP_NO_FOLD | RABBET_OP_STRUCTURE,
    .inputs = condition_inputs,
    .input_count = RABBET_OP_COUNT_OF(condition_inputs),
    .outputs = condition_outputs,
    .output_count = RABBET_OP_COUNT_OF(condition_outputs),
    .infer_shapes = condition_infer_shapes,
};

// ---- Inputs ----------------------------------------------------------------

static rabbet_status_t conditional_input_infer_values(
    const rabbet_op_infer_t* infer) {
  infer->outputs[0].values = infer->inputs[0].values;
  infer->outputs[0].denominators = infer->inputs[0].denominators;
  infer->outputs[0].value_count = infer->inputs[0].value_count;
  return rabbet_ok();
}

static const rabbet_op_operand_t conditional_input_inputs[] = {
    {"tensor", 0, RABBET_T_ANY}};

const rabbet_op_t rabbet_op_conditional_input = {
    .name = "conditional_input",
    .layer_type = "CONDITIONAL_INPUT",
    .flags = RABBET_OP_NO_FOLD | RABBET_OP_STRUCTURE,
    .inputs = conditional_input_inputs,
    .input_count = RABBET_OP_COUNT_OF(conditional_input_inputs),
    .outputs = conditional_any_output,
    .output_count = RABBET_OP_COUNT_OF(conditional_any_output),
    .infer_shapes = rabbet_op_same_shape,
    .infer_values = conditional_input_infer_values,
};

// ---- Outputs ---------------------------------------------------------------

rabbet_status_t rabbet_op_join_dims(rabbet_expr_graph_t* graph, int32_t tensor,
                                    const rabbet_shape_t* a,
                                    const rabbet_shape_t* b,
                                    const rabbet_shape_t* bounds,
                                    rabbet_shape_t* out_shape) {
  out_shape->rank = a->rank;
  for (int32_t i = 0; i < a->rank; ++i) {
    out_shape->d[i] = a->d[i];
    if (a->d[i] == b->d[i] && a->d[i] != RABBET_EXPR_NONE) continue;
    rabbet_symbol_t symbol = {.kind = RABBET_SYMBOL_DIM,
                              .tensor = tensor,
                              .index = i,
                              .opt = bounds->d[i],
                              .upper = bounds->d[i]};
    RABBET_RETURN_IF_ERROR(
        rabbet_expr_of_symbol(graph, &symbol, &out_shape->d[i]));
  }
  return rabbet_ok();
}

static rabbet_status_t conditional_output_infer_types(
    const rabbet_op_infer_t* infer) {
  const rabbet_op_value_t *a = &infer->inputs[0], *b = &infer->inputs[1];
  infer->outputs[0].dtype = a->dtype;
  if (a->dtype == b->dtype) return rabbet_ok();
  return RABBET_OP_INVALID(
      "one branch gives %s and the other %s; results of both must have one "
      "type",
      rabbet_dtype_name(a->dtype), rabbet_dtype_name(b->dtype));
}

static rabbet_status_t conditional_output_infer_shapes(
    const rabbet_op_infer_t* infer) {
  const rabbet_shape_t *a = &infer->inputs[0].shape,
                       *b = &infer->inputs[1].shape;
  rabbet_shape_t bounds = {.rank = a->rank};
  char text[2][RABBET_OP_TEXT];
  if (a->rank != b->rank)
    return RABBET_OP_INVALID(
        "one branch gives %s and the other %s; extents may differ, the numbers "
        "of dimensions must not",
        rabbet_op_shape_text(infer, a, text[0]),
        rabbet_op_shape_text(infer, b, text[1]));
  for (int32_t i = 0; i < a->rank; ++i)
    RABBET_RETURN_IF_ERROR(rabbet_expr_binary(infer->graph, RABBET_EXPR_MAX,
                                              a->d[i], b->d[i], &bounds.d[i]));
  if (!infer->output_tensors)
    return RABBET_OP_INVALID("a network alone knows its shape");
  return rabbet_op_join_dims(infer->graph, infer->output_tensors[0], a, b,
                             &bounds, &infer->outputs[0].shape);
}

static const rabbet_op_operand_t conditional_output_inputs[] = {
    {"true", 0, RABBET_T_ANY}, {"false", 0, RABBET_T_ANY}};

const rabbet_op_t rabbet_op_conditional_output = {
    .name = "conditional_output",
    .layer_type = "CONDITIONAL_OUTPUT",
    .flags = RABBET_OP_NO_FOLD | RABBET_OP_STRUCTURE,
    .inputs = conditional_output_inputs,
    .input_count = RABBET_OP_COUNT_OF(conditional_output_inputs),
    .outputs = conditional_any_output,
    .output_count = RABBET_OP_COUNT_OF(conditional_any_output),
    .infer_types = conditional_output_infer_types,
    .infer_shapes = conditional_output_infer_shapes,
};
