// Checks of operands against the descriptor, then the operator's rules.
#include "ops/infer.h"

#include <assert.h>

#include "ops/rules.h"

// "FLOAT, HALF, BF16" of a mask.
static const char* op_dtypes_text(uint32_t dtypes, char* buffer,
                                  size_t capacity) {
  size_t used = 0;
  buffer[0] = '\0';
  for (int i = 0; i < RABBET_DTYPE_COUNT; ++i) {
    if (!(dtypes & 1u << i)) continue;
    const char* name = rabbet_dtype_name((rabbet_dtype_t)i);
    for (const char* c = used ? ", " : ""; *c && used + 1 < capacity; ++c) {
      buffer[used++] = *c;
    }
    for (; *name && used + 1 < capacity; ++name) {
      buffer[used++] = *name;
    }
    buffer[used] = '\0';
  }
  return buffer;
}

static rabbet_status_t op_check_count(const rabbet_op_infer_t* infer) {
  size_t min = rabbet_op_min_inputs(infer->op);
  size_t max = rabbet_op_max_inputs(infer->op);
  size_t count = infer->input_count;
  if (count < min) {
    return RABBET_OP_INVALID("input %zu ('%s') is missing", count,
                             rabbet_op_input(infer->op, count)->name);
  }
  if (count > max) {
    return RABBET_OP_INVALID("%zu inputs are given; '%s' takes at most %zu",
                             count, infer->op->name, max);
  }
  return rabbet_ok();
}

static rabbet_status_t op_check_input(const rabbet_op_infer_t* infer,
                                      size_t index) {
  const rabbet_op_operand_t* operand = rabbet_op_input(infer->op, index);
  const rabbet_op_value_t* input = &infer->inputs[index];
  if (!input->present) {
    if (operand->flags & RABBET_OPERAND_OPTIONAL) return rabbet_ok();
    return RABBET_OP_INVALID("input %zu ('%s') is missing", index,
                             operand->name);
  }
  if (input->dtype >= 0 && input->dtype < RABBET_DTYPE_COUNT &&
      operand->dtypes & 1u << input->dtype) {
    return rabbet_ok();
  }
  char text[128];
  return RABBET_OP_INVALID(
      "input %zu ('%s') has type %s; '%s' takes %s (insert a cast)", index,
      operand->name, rabbet_dtype_name(input->dtype), infer->op->name,
      op_dtypes_text(operand->dtypes, text, sizeof text));
}

// Inputs that are integer constants get their elements as values.
static rabbet_status_t op_follow_constants(rabbet_op_infer_t* infer) {
  rabbet_op_value_t* inputs = NULL;
  RABBET_RETURN_IF_ERROR(rabbet_arena_copy(infer->arena, infer->inputs,
                                           infer->input_count * sizeof(*inputs),
                                           (void**)&inputs));
  for (size_t i = 0; i < infer->input_count; ++i) {
    if (!inputs[i].present) continue;
    RABBET_RETURN_IF_ERROR(
        rabbet_op_values_of_constant(infer->graph, infer->arena, &inputs[i]));
  }
  infer->inputs = inputs;
  return rabbet_ok();
}

static bool op_needs_values(const rabbet_op_infer_t* infer) {
  for (size_t i = 0; i < infer->input_count; ++i) {
    if (infer->inputs[i].present && infer->inputs[i].constant &&
        !infer->inputs[i].values && rabbet_op_follows(infer->inputs[i].dtype)) {
      return true;
    }
  }
  return false;
}

rabbet_status_t rabbet_op_infer_types(const rabbet_op_infer_t* infer) {
  RABBET_RETURN_IF_ERROR(op_check_count(infer));
  for (size_t i = 0; i < infer->input_count; ++i)
    RABBET_RETURN_IF_ERROR(op_check_input(infer, i));
  if (infer->op->infer_types) return infer->op->infer_types(infer);
  for (size_t i = 0; i < infer->output_count; ++i) {
    infer->outputs[i].dtype = infer->inputs[0].dtype;
  }
  return rabbet_ok();
}

// Postcondition of shape rules: a type, a rank, and expressions that exist.
static bool op_is_inferred(const rabbet_op_infer_t* infer,
                           const rabbet_op_value_t* output) {
  bool is_inferred = output->dtype != RABBET_DTYPE_NONE &&
                     output->shape.rank >= 0 &&
                     output->shape.rank <= RABBET_MAX_RANK;
  for (int32_t i = 0; is_inferred && i < output->shape.rank; ++i)
    is_inferred =
        output->shape.d[i] >= 0 &&
        (size_t)output->shape.d[i] < rabbet_expr_node_count(infer->graph);
  return is_inferred;
}

static rabbet_status_t op_check_outputs(const rabbet_op_infer_t* infer) {
  for (size_t i = 0; i < infer->output_count; ++i) {
    rabbet_op_value_t* output = &infer->outputs[i];
    output->present = true;
    assert(op_is_inferred(infer, output));
    (void)op_is_inferred;
    for (int32_t axis = 0; axis < output->shape.rank; ++axis) {
      int64_t extent = 0;
      if (!rabbet_op_is_constant(infer, output->shape.d[axis], &extent))
        continue;
      if (extent >= 0) continue;
      return RABBET_OP_INVALID("dimension %d of the output would be %lld", axis,
                               (long long)extent);
    }
  }
  return rabbet_ok();
}

rabbet_status_t rabbet_op_infer_allocate(rabbet_op_infer_t* infer,
                                         rabbet_op_value_t** out_inputs) {
  *out_inputs = NULL;
  infer->attr_count = infer->op->attr_count;
  RABBET_RETURN_IF_ERROR(
      rabbet_arena_allocate_array(infer->arena, infer->input_count,
                                  sizeof(**out_inputs), (void**)out_inputs));
  infer->inputs = *out_inputs;
  RABBET_RETURN_IF_ERROR(rabbet_arena_allocate_array(
      infer->arena, infer->output_count, sizeof(*infer->outputs),
      (void**)&infer->outputs));
  for (size_t i = 0; i < infer->output_count; ++i)
    infer->outputs[i].dtype = RABBET_DTYPE_NONE;
  return rabbet_ok();
}

rabbet_status_t rabbet_op_infer(const rabbet_op_infer_t* given) {
  rabbet_op_infer_t infer = *given;
  const rabbet_op_t* op = infer.op;
  if (!op->infer_shapes) {
    return RABBET_STATUS(RABBET_STATUS_INTERNAL,
                         "operator '%s' has no shape rule", op->name);
  }
  RABBET_RETURN_IF_ERROR(rabbet_op_infer_types(&infer));
  if (op_needs_values(&infer)) {
    RABBET_RETURN_IF_ERROR(op_follow_constants(&infer));
  }
  RABBET_RETURN_IF_ERROR(op->infer_shapes(&infer));
  RABBET_RETURN_IF_ERROR(op_check_outputs(&infer));
  return rabbet_op_infer_values(&infer);
}
