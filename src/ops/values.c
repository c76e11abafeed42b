// Follows the elements of small tensors through a network: constants are
// computed, integers become expressions of the network's dimensions, and FLOAT
// numbers fractions of such.
#include <assert.h>
#include <string.h>

#include "ops/enums.h"
#include "ops/fraction.h"
#include "ops/rules.h"
#include "ops/walk.h"

// If all inputs are constants of together at most this many elements, inference
// computes the outputs; the builder folds larger constants.
#define RABBET_OP_MAX_FOLD 4096

rabbet_status_t rabbet_op_values_of_constant(rabbet_expr_graph_t* graph,
                                             rabbet_arena_t* arena,
                                             rabbet_op_value_t* value) {
  if (!value->constant || value->values || !rabbet_op_follows(value->dtype)) {
    return rabbet_ok();
  }
  rabbet_dims_t dims = rabbet_shape_dims(graph, &value->shape);
  int64_t count = rabbet_count_of(&dims);
  assert(count >= 0);  // constants have constant shapes
  if (count > RABBET_OP_MAX_VALUES) return rabbet_ok();
  rabbet_expr_t* values = NULL;
  RABBET_RETURN_IF_ERROR(rabbet_arena_allocate_array(
      arena, (size_t)count, sizeof(*values), (void**)&values));
  for (int64_t i = 0; i < count; ++i) {
    RABBET_RETURN_IF_ERROR(rabbet_expr_constant(
        graph, rabbet_load_int64(value->dtype, value->constant, i),
        &values[i]));
  }
  value->values = values;
  value->value_count = (size_t)count;
  return rabbet_ok();
}

static rabbet_status_t op_new_data(const rabbet_op_infer_t* infer,
                                   rabbet_dtype_t dtype, int64_t count,
                                   void** out_data) {
  return rabbet_arena_allocate_array(infer->arena, (size_t)count,
                                     rabbet_element_size(dtype), out_data);
}

// ---- Constants -------------------------------------------------------------

static bool op_all_constant(const rabbet_op_infer_t* infer) {
  if (!infer->op->reference ||
      infer->op->flags & (RABBET_OP_NO_FOLD | RABBET_OP_FOLD_LATE) ||
      infer->input_count == 0) {
    return false;
  }
  int64_t total = 0;
  for (size_t i = 0; i < infer->input_count; ++i) {
    const rabbet_op_value_t* input = &infer->inputs[i];
    if (!input->present) continue;
    if (!input->constant) return false;
    int64_t count = rabbet_op_constant_count(infer, &input->shape);
    if (count < 0 || count > RABBET_OP_MAX_FOLD) return false;
    total += count;
  }
  for (size_t i = 0; i < infer->output_count; ++i) {
    int64_t count = rabbet_op_constant_count(infer, &infer->outputs[i].shape);
    if (count < 0 || count > RABBET_OP_MAX_VALUES) return false;
  }
  return total <= RABBET_OP_MAX_FOLD;
}

static rabbet_view_t op_view(const rabbet_op_infer_t* infer,
                             const rabbet_op_value_t* value, const void* data) {
  rabbet_view_t view = {.dtype = RABBET_DTYPE_NONE};
  if (!value->present) return view;
  view.data = (void*)(uintptr_t)data;
  view.dtype = value->dtype;
  view.format = RABBET_FORMAT_LINEAR;
  view.dims = rabbet_shape_dims(infer->graph, &value->shape);
  return view;
}

// Runs the reference kernel on views laid out as inputs, then outputs.
static rabbet_status_t op_run(const rabbet_op_infer_t* infer,
                              const rabbet_view_t* views) {
  const rabbet_op_eval_t eval = {
      .op = infer->op,
      .allocator = infer->arena->allocator,
      .attrs = infer->attrs,
      .attr_count = infer->attr_count,
      .inputs = views,
      .input_count = infer->input_count,
      .outputs = views + infer->input_count,
      .output_count = infer->output_count,
  };
  return infer->op->reference(&eval);
}

static rabbet_status_t op_new_views(const rabbet_op_infer_t* infer,
                                    rabbet_view_t** out_views) {
  return rabbet_arena_allocate_array(infer->arena,
                                     infer->input_count + infer->output_count,
                                     sizeof(rabbet_view_t), (void**)out_views);
}

static rabbet_status_t op_fold(const rabbet_op_infer_t* infer) {
  rabbet_view_t* views = NULL;
  RABBET_RETURN_IF_ERROR(op_new_views(infer, &views));
  for (size_t i = 0; i < infer->input_count; ++i) {
    views[i] = op_view(infer, &infer->inputs[i], infer->inputs[i].constant);
  }
  for (size_t i = 0; i < infer->output_count; ++i) {
    rabbet_op_value_t* output = &infer->outputs[i];
    void* data = NULL;
    RABBET_RETURN_IF_ERROR(
        op_new_data(infer, output->dtype,
                    rabbet_op_constant_count(infer, &output->shape), &data));
    views[infer->input_count + i] = op_view(infer, output, data);
  }
  RABBET_RETURN_IF_ERROR(op_run(infer, views));
  for (size_t i = 0; i < infer->output_count; ++i) {
    rabbet_op_value_t* output = &infer->outputs[i];
    assert(views[infer->input_count + i].data);
    output->constant = views[infer->input_count + i].data;
    RABBET_RETURN_IF_ERROR(
        rabbet_op_values_of_constant(infer->graph, infer->arena, output));
  }
  return rabbet_ok();
}

// ---- Moved data ------------------------------------------------------------

bool rabbet_op_steers(const rabbet_op_t* op, size_t index) {
  return !rabbet_op_is(op, RABBET_OP_SELECT) &&
         (rabbet_op_input(op, index)->flags &
          (RABBET_OPERAND_SHAPE | RABBET_OPERAND_INDEX)) != 0;
}

// The numerators (or `bottoms`, denominators) of an input as INT32 handles: 0
// is the number zero, otherwise the expression + 1.
static rabbet_status_t op_handles(const rabbet_op_infer_t* infer,
                                  const rabbet_op_value_t* value, bool bottoms,
                                  rabbet_view_t* out_view) {
  int32_t* handles = NULL;
  RABBET_RETURN_IF_ERROR(rabbet_arena_allocate_array(
      infer->arena, value->value_count, sizeof(*handles), (void**)&handles));
  for (size_t i = 0; i < value->value_count; ++i) {
    rabbet_fraction_t x;
    RABBET_RETURN_IF_ERROR(rabbet_fraction_at(infer, value, (int64_t)i, &x));
    handles[i] = (bottoms ? x.bottom : x.top) + 1;
    assert(handles[i] > 0);
  }
  *out_view = op_view(infer, value, handles);
  out_view->dtype = RABBET_DTYPE_INT32;
  return rabbet_ok();
}

static rabbet_status_t op_from_handles(const rabbet_op_infer_t* infer,
                                       const int32_t* handles, int64_t count,
                                       bool bottoms,
                                       rabbet_expr_t** out_values) {
  RABBET_RETURN_IF_ERROR(
      rabbet_op_new_values(infer, (size_t)count, out_values));
  for (int64_t i = 0; i < count; ++i) {
    assert(handles[i] >= 0 &&
           (size_t)handles[i] <= rabbet_expr_node_count(infer->graph));
    (*out_values)[i] = handles[i] - 1;
    if (handles[i] != 0) continue;
    RABBET_RETURN_IF_ERROR(
        rabbet_expr_constant(infer->graph, bottoms, &(*out_values)[i]));
  }
  return rabbet_ok();
}

// Whether the reference kernel may run on handles: the moved elements have
// values, and the operands that give positions are constant.
static bool op_can_move(const rabbet_op_infer_t* infer) {
  for (size_t i = 0; i < infer->input_count; ++i) {
    const rabbet_op_value_t* input = &infer->inputs[i];
    if (!input->present) continue;
    if (rabbet_op_steers(infer->op, i) ? !input->constant : !input->values) {
      return false;
    }
  }
  int64_t count = rabbet_op_constant_count(infer, &infer->outputs[0].shape);
  rabbet_dtype_t dtype = infer->outputs[0].dtype;
  return count >= 0 && count <= RABBET_OP_MAX_VALUES &&
         (rabbet_op_follows(dtype) || rabbet_op_follows_reals(dtype));
}

static rabbet_status_t op_move(const rabbet_op_infer_t* infer, bool bottoms,
                               rabbet_expr_t** out_values) {
  rabbet_op_value_t* output = &infer->outputs[0];
  rabbet_view_t* views = NULL;
  RABBET_RETURN_IF_ERROR(op_new_views(infer, &views));
  for (size_t i = 0; i < infer->input_count; ++i) {
    const rabbet_op_value_t* input = &infer->inputs[i];
    views[i] = op_view(infer, input, input->constant);
    if (!input->present || rabbet_op_steers(infer->op, i)) continue;
    RABBET_RETURN_IF_ERROR(op_handles(infer, input, bottoms, &views[i]));
  }
  int64_t count = rabbet_op_constant_count(infer, &output->shape);
  void* data = NULL;
  RABBET_RETURN_IF_ERROR(op_new_data(infer, RABBET_DTYPE_INT32, count, &data));
  rabbet_view_t* target = &views[infer->input_count];
  *target = op_view(infer, output, data);
  target->dtype = RABBET_DTYPE_INT32;
  RABBET_RETURN_IF_ERROR(op_run(infer, views));
  return op_from_handles(infer, data, count, bottoms, out_values);
}

rabbet_status_t rabbet_op_move_values(const rabbet_op_infer_t* infer) {
  rabbet_op_value_t* output = &infer->outputs[0];
  if (!op_can_move(infer)) return rabbet_ok();
  rabbet_fractions_t made = {NULL, NULL};
  RABBET_RETURN_IF_ERROR(op_move(infer, false, &made.tops));
  if (rabbet_op_follows_reals(output->dtype))
    RABBET_RETURN_IF_ERROR(op_move(infer, true, &made.bottoms));
  rabbet_fractions_store(
      &made, (size_t)rabbet_op_constant_count(infer, &output->shape), output);
  return rabbet_ok();
}

// ---- All -------------------------------------------------------------------

// An element that is constant; false if it is not.
static bool op_constant_element(const rabbet_op_infer_t* infer,
                                const rabbet_op_value_t* value, size_t i,
                                int64_t* out_top, int64_t* out_bottom) {
  *out_bottom = 1;
  return rabbet_op_is_constant(infer, value->values[i], out_top) &&
         (!value->denominators ||
          rabbet_op_is_constant(infer, value->denominators[i], out_bottom));
}

// Data for a tensor whose values all turned out constant.
static rabbet_status_t op_materialise(const rabbet_op_infer_t* infer,
                                      rabbet_op_value_t* output) {
  if (!output->values || output->constant) return rabbet_ok();
  int64_t top = 0, bottom = 1;
  for (size_t i = 0; i < output->value_count; ++i) {
    if (!op_constant_element(infer, output, i, &top, &bottom) || bottom == 0)
      return rabbet_ok();
  }
  void* data = NULL;
  RABBET_RETURN_IF_ERROR(
      op_new_data(infer, output->dtype, (int64_t)output->value_count, &data));
  for (size_t i = 0; i < output->value_count; ++i) {
    (void)op_constant_element(infer, output, i, &top, &bottom);
    if (rabbet_op_follows_reals(output->dtype))
      rabbet_store_double(output->dtype, data, (int64_t)i,
                          (double)top / (double)bottom);
    else
      rabbet_store_int64(output->dtype, data, (int64_t)i, top);
  }
  output->constant = data;
  return rabbet_ok();
}

// Where other inputs are followed, real constants take part as fractions.
static rabbet_status_t op_follow_floats(rabbet_op_infer_t* infer) {
  bool followed = false, floats = false;
  for (size_t i = 0; i < infer->input_count; ++i) {
    const rabbet_op_value_t* input = &infer->inputs[i];
    followed |= input->present && input->values && !input->constant;
    floats |= input->present && rabbet_op_follows_reals(input->dtype) &&
              input->constant;
  }
  if (!followed || !floats) return rabbet_ok();
  rabbet_op_value_t* inputs = NULL;
  RABBET_RETURN_IF_ERROR(rabbet_arena_copy(infer->arena, infer->inputs,
                                           infer->input_count * sizeof(*inputs),
                                           (void**)&inputs));
  for (size_t i = 0; i < infer->input_count; ++i)
    RABBET_RETURN_IF_ERROR(rabbet_fractions_of_constant(infer, &inputs[i]));
  infer->inputs = inputs;
  return rabbet_ok();
}

bool rabbet_op_passes_values(const rabbet_op_t* op, const rabbet_attr_t* attrs,
                             rabbet_dtype_t dtype) {
  if (op->flags & RABBET_OP_MOVES_DATA) return true;
  if (!op->infer_values) return false;
  if (rabbet_op_is(op, RABBET_OP_SCATTER))
    return rabbet_attr_int(attrs, op->attr_count, "reduction", 0) ==
           RABBET_SCATTER_REDUCTION_NONE;
  if (!rabbet_op_is(op, RABBET_OP_UNARY) || !rabbet_op_follows_reals(dtype))
    return true;
  switch (rabbet_attr_int(attrs, op->attr_count, "op", 0)) {
    case RABBET_UNARY_ABS:
    case RABBET_UNARY_CEIL:
    case RABBET_UNARY_FLOOR:
    case RABBET_UNARY_NEG:
    case RABBET_UNARY_RECIP:
    case RABBET_UNARY_ROUND:
    case RABBET_UNARY_SIGN:
      return true;
    default:
      return false;
  }
}

rabbet_status_t rabbet_op_infer_values(const rabbet_op_infer_t* given) {
  if (given->op->flags & RABBET_OP_NO_FOLD) return rabbet_ok();
  if (op_all_constant(given)) return op_fold(given);
  rabbet_op_infer_t infer = *given;
  RABBET_RETURN_IF_ERROR(op_follow_floats(&infer));
  if (infer.op->infer_values) {
    RABBET_RETURN_IF_ERROR(infer.op->infer_values(&infer));
  } else if (infer.op->flags & RABBET_OP_MOVES_DATA) {
    RABBET_RETURN_IF_ERROR(rabbet_op_move_values(&infer));
  }
  for (size_t i = 0; i < infer.output_count; ++i) {
    RABBET_RETURN_IF_ERROR(op_materialise(&infer, &infer.outputs[i]));
  }
  return rabbet_ok();
}
