// Follows the elements of small tensors through a network: constants are
// computed, integers become expressions of the network's dimensions.
#include <string.h>

#include "ops/rules.h"
#include "ops/walk.h"

// Inputs up to this many elements are computed on the spot when all of an
// operator's inputs are constants; larger ones are left to the builder.
#define RABBET_OP_MAX_FOLD 4096

rabbet_status_t rabbet_op_values_of_constant(rabbet_expr_graph_t* graph,
                                             rabbet_arena_t* arena,
                                             rabbet_op_value_t* value) {
  if (!value->constant || value->values || !rabbet_op_follows(value->dtype)) {
    return rabbet_ok();
  }
  rabbet_dims_t dims = rabbet_shape_dims(graph, &value->shape);
  int64_t count = rabbet_count_of(&dims);
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

static rabbet_status_t rabbet_op_new_data(const rabbet_op_infer_t* infer,
                                          rabbet_dtype_t dtype, int64_t count,
                                          void** out_data) {
  return rabbet_arena_allocate_array(infer->arena, (size_t)count,
                                     rabbet_element_size(dtype), out_data);
}

// ---- Constants -------------------------------------------------------------

static bool rabbet_op_all_constant(const rabbet_op_infer_t* infer) {
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
    int64_t count = rabbet_op_known_count(infer, &input->shape);
    if (count < 0 || count > RABBET_OP_MAX_FOLD) return false;
    total += count;
  }
  for (size_t i = 0; i < infer->output_count; ++i) {
    int64_t count = rabbet_op_known_count(infer, &infer->outputs[i].shape);
    if (count < 0 || count > RABBET_OP_MAX_VALUES) return false;
  }
  return total <= RABBET_OP_MAX_FOLD;
}

static rabbet_view_t rabbet_op_view(const rabbet_op_infer_t* infer,
                                    const rabbet_op_value_t* value,
                                    const void* data) {
  rabbet_view_t view = {.dtype = RABBET_DTYPE_NONE};
  if (!value->present) return view;
  view.data = (void*)(uintptr_t)data;
  view.dtype = value->dtype;
  view.format = RABBET_FORMAT_LINEAR;
  view.dims = rabbet_shape_dims(infer->graph, &value->shape);
  return view;
}

// Runs the reference kernel on views laid out as inputs, then outputs.
static rabbet_status_t rabbet_op_run(const rabbet_op_infer_t* infer,
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

static rabbet_status_t rabbet_op_new_views(const rabbet_op_infer_t* infer,
                                           rabbet_view_t** out_views) {
  return rabbet_arena_allocate_array(infer->arena,
                                     infer->input_count + infer->output_count,
                                     sizeof(rabbet_view_t), (void**)out_views);
}

static rabbet_status_t rabbet_op_fold(const rabbet_op_infer_t* infer) {
  rabbet_view_t* views = NULL;
  RABBET_RETURN_IF_ERROR(rabbet_op_new_views(infer, &views));
  for (size_t i = 0; i < infer->input_count; ++i) {
    views[i] =
        rabbet_op_view(infer, &infer->inputs[i], infer->inputs[i].constant);
  }
  for (size_t i = 0; i < infer->output_count; ++i) {
    rabbet_op_value_t* output = &infer->outputs[i];
    void* data = NULL;
    RABBET_RETURN_IF_ERROR(rabbet_op_new_data(
        infer, output->dtype, rabbet_op_known_count(infer, &output->shape),
        &data));
    views[infer->input_count + i] = rabbet_op_view(infer, output, data);
  }
  RABBET_RETURN_IF_ERROR(rabbet_op_run(infer, views));
  for (size_t i = 0; i < infer->output_count; ++i) {
    rabbet_op_value_t* output = &infer->outputs[i];
    output->constant = views[infer->input_count + i].data;
    RABBET_RETURN_IF_ERROR(
        rabbet_op_values_of_constant(infer->graph, infer->arena, output));
  }
  return rabbet_ok();
}

// ---- Moved data ------------------------------------------------------------

static bool rabbet_op_steers(const rabbet_op_infer_t* infer, size_t index) {
  return rabbet_op_input(infer->op, index)->flags &
         (RABBET_OPERAND_SHAPE | RABBET_OPERAND_INDEX);
}

// Elements as INT32 handles: 0 for zero, else expression + 1.
static rabbet_status_t rabbet_op_handles(const rabbet_op_infer_t* infer,
                                         const rabbet_op_value_t* value,
                                         rabbet_view_t* out_view) {
  int32_t* handles = NULL;
  RABBET_RETURN_IF_ERROR(rabbet_arena_allocate_array(
      infer->arena, value->value_count, sizeof(*handles), (void**)&handles));
  for (size_t i = 0; i < value->value_count; ++i) {
    handles[i] = value->values[i] + 1;
  }
  *out_view = rabbet_op_view(infer, value, handles);
  out_view->dtype = RABBET_DTYPE_INT32;
  return rabbet_ok();
}

static rabbet_status_t rabbet_op_from_handles(const rabbet_op_infer_t* infer,
                                              const int32_t* handles,
                                              int64_t count,
                                              rabbet_expr_t** out_values) {
  RABBET_RETURN_IF_ERROR(
      rabbet_op_new_values(infer, (size_t)count, out_values));
  for (int64_t i = 0; i < count; ++i) {
    (*out_values)[i] = handles[i] - 1;
    if (handles[i] != 0) continue;
    RABBET_RETURN_IF_ERROR(
        rabbet_expr_constant(infer->graph, 0, &(*out_values)[i]));
  }
  return rabbet_ok();
}

// Whether the reference kernel may run on handles: what is moved has values,
// and what says where it is moved is constant.
static bool rabbet_op_can_move(const rabbet_op_infer_t* infer) {
  if (!(infer->op->flags & RABBET_OP_MOVES_DATA)) return false;
  for (size_t i = 0; i < infer->input_count; ++i) {
    const rabbet_op_value_t* input = &infer->inputs[i];
    if (!input->present) continue;
    if (rabbet_op_steers(infer, i) ? !input->constant : !input->values) {
      return false;
    }
  }
  int64_t count = rabbet_op_known_count(infer, &infer->outputs[0].shape);
  return count >= 0 && count <= RABBET_OP_MAX_VALUES &&
         rabbet_op_follows(infer->outputs[0].dtype);
}

static rabbet_status_t rabbet_op_move_values(const rabbet_op_infer_t* infer) {
  rabbet_op_value_t* output = &infer->outputs[0];
  rabbet_view_t* views = NULL;
  RABBET_RETURN_IF_ERROR(rabbet_op_new_views(infer, &views));
  for (size_t i = 0; i < infer->input_count; ++i) {
    const rabbet_op_value_t* input = &infer->inputs[i];
    views[i] = rabbet_op_view(infer, input, input->constant);
    if (!input->present || rabbet_op_steers(infer, i)) continue;
    RABBET_RETURN_IF_ERROR(rabbet_op_handles(infer, input, &views[i]));
  }
  int64_t count = rabbet_op_known_count(infer, &output->shape);
  void* data = NULL;
  RABBET_RETURN_IF_ERROR(
      rabbet_op_new_data(infer, RABBET_DTYPE_INT32, count, &data));
  rabbet_view_t* target = &views[infer->input_count];
  *target = rabbet_op_view(infer, output, data);
  target->dtype = RABBET_DTYPE_INT32;
  RABBET_RETURN_IF_ERROR(rabbet_op_run(infer, views));
  rabbet_expr_t* values = NULL;
  RABBET_RETURN_IF_ERROR(rabbet_op_from_handles(infer, data, count, &values));
  output->values = values;
  output->value_count = (size_t)count;
  return rabbet_ok();
}

// ---- All -------------------------------------------------------------------

// Data for a tensor whose values all turned out constant.
static rabbet_status_t rabbet_op_materialise(const rabbet_op_infer_t* infer,
                                             rabbet_op_value_t* output) {
  if (!output->values || output->constant) return rabbet_ok();
  int64_t value = 0;
  for (size_t i = 0; i < output->value_count; ++i) {
    if (!rabbet_op_known(infer, output->values[i], &value)) return rabbet_ok();
  }
  void* data = NULL;
  RABBET_RETURN_IF_ERROR(rabbet_op_new_data(
      infer, output->dtype, (int64_t)output->value_count, &data));
  for (size_t i = 0; i < output->value_count; ++i) {
    (void)rabbet_op_known(infer, output->values[i], &value);
    rabbet_store_int64(output->dtype, data, (int64_t)i, value);
  }
  output->constant = data;
  return rabbet_ok();
}

rabbet_status_t rabbet_op_infer_values(const rabbet_op_infer_t* infer) {
  if (rabbet_op_all_constant(infer)) return rabbet_op_fold(infer);
  if (infer->op->infer_values) {
    RABBET_RETURN_IF_ERROR(infer->op->infer_values(infer));
  } else if (rabbet_op_can_move(infer)) {
    RABBET_RETURN_IF_ERROR(rabbet_op_move_values(infer));
  }
  for (size_t i = 0; i < infer->output_count; ++i) {
    RABBET_RETURN_IF_ERROR(rabbet_op_materialise(infer, &infer->outputs[i]));
  }
  return rabbet_ok();
}
