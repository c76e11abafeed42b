#include "builder/ir/ir.h"

#include <assert.h>
#include <string.h>

#include "core/attr_set.h"
#include "core/view.h"
#include "ops/enums.h"
#include "ops/infer.h"

void rabbet_ir_deinitialize(rabbet_ir_t* ir) {
  rabbet_vec_free(ir->allocator, &ir->values);
  rabbet_vec_free(ir->allocator, &ir->nodes);
  rabbet_expr_graph_destroy(ir->graph);
  ir->graph = NULL;
}

bool rabbet_ir_is_shape_operand(const rabbet_ir_node_t* node, size_t index) {
  if (node->bodies) return rabbet_bodies_read(node->bodies, index);
  if (node->plugin)
    return index < 64 &&
           (rabbet_plugin_shape_inputs(node->plugin) >> index & 1) != 0;
  const rabbet_op_operand_t* operand = rabbet_op_input(node->op, index);
  return operand && (operand->flags & RABBET_OPERAND_SHAPE) != 0;
}

rabbet_dims_t rabbet_ir_dims(const rabbet_ir_t* ir,
                             const rabbet_ir_value_t* value) {
  return rabbet_shape_dims(ir->graph, &value->shape);
}

bool rabbet_ir_has_few_rows(const rabbet_ir_t* ir,
                            const rabbet_ir_value_t* value, int64_t most) {
  rabbet_dims_t dims = rabbet_ir_dims(ir, value);
  int64_t rows = 1;
  for (int32_t i = 0; i < dims.rank - 1; ++i) {
    if (dims.d[i] < 0) return true;
    if (dims.d[i] > most) return false;
    rows *= dims.d[i];
  }
  return rows <= most;
}

bool rabbet_ir_shape_equal(const rabbet_shape_t* a, const rabbet_shape_t* b) {
  return a->rank == b->rank && a->rank >= 0 &&
         memcmp(a->d, b->d, (size_t)a->rank * sizeof(a->d[0])) == 0;
}

// Number `at` of a slice's list; `number` is kept if there is no list. False if
// it is not known.
static bool ir_slice_number(const rabbet_ir_t* ir,
                            const rabbet_ir_node_t* slice, size_t input,
                            const char* name, size_t at, int64_t* number) {
  size_t count = 0;
  const int64_t* numbers =
      rabbet_attr_ints(slice->attrs, slice->op->attr_count, name, &count);
  const rabbet_ir_value_t* list = rabbet_ir_input(ir, slice, input);
  if (!list) {
    if (at < count) *number = numbers[at];
    return at < count || count == 0;
  }
  rabbet_dims_t dims = rabbet_ir_dims(ir, list);
  if (dims.rank != 1 || dims.d[0] <= (int64_t)at) return false;
  if (list->values)
    return rabbet_expr_is_constant(ir->graph, list->values[at], number);
  if (!list->constant) return false;
  *number = rabbet_load_int64(list->dtype, list->constant, (int64_t)at);
  return true;
}

bool rabbet_ir_window(const rabbet_ir_t* ir, const rabbet_ir_node_t* node,
                      rabbet_ir_window_t* out_window) {
  enum { START = 1, STRIDE = 3, AXES = 5 };
  if (!rabbet_op_is(node->op, RABBET_OP_SLICE) ||
      rabbet_ir_input(ir, node, AXES) ||
      rabbet_attr_int(node->attrs, node->op->attr_count, "mode", 0) !=
          RABBET_SAMPLE_STRICT_BOUNDS)
    return false;
  size_t count = 0;
  const int64_t* axes =
      rabbet_attr_ints(node->attrs, node->op->attr_count, "axes", &count);
  int32_t rank = rabbet_ir_input(ir, node, 0)->shape.rank;
  for (int32_t i = 0; i < rank; ++i) {
    out_window->start[i] = 0;
    out_window->stride[i] = 1;
  }
  size_t listed = count > 0 ? count : (size_t)rank;
  for (size_t i = 0; i < listed; ++i) {
    int64_t axis = count > 0 ? axes[i] : (int64_t)i;
    if (axis < 0) axis += rank;
    assert(axis >= 0 && axis < rank);
    if (!ir_slice_number(ir, node, START, "start", i,
                         &out_window->start[axis]) ||
        !ir_slice_number(ir, node, STRIDE, "stride", i,
                         &out_window->stride[axis]))
      return false;
  }
  return true;
}

bool rabbet_ir_is_part(const rabbet_ir_t* ir, const rabbet_ir_node_t* node,
                       int64_t* out_first) {
  rabbet_ir_window_t window;
  if (!rabbet_ir_window(ir, node, &window)) return false;
  rabbet_dims_t from = rabbet_ir_dims(ir, rabbet_ir_input(ir, node, 0));
  rabbet_dims_t to = rabbet_ir_dims(ir, rabbet_ir_output(ir, node, 0));
  int64_t step = 1;
  bool is_inner = true;  // axes behind are whole
  *out_first = 0;
  for (int32_t i = to.rank - 1; i >= 0; --i) {
    if (from.d[i] < 1 || to.d[i] < 1 || (!is_inner && to.d[i] != 1) ||
        (to.d[i] > 1 && window.stride[i] != 1))
      return false;
    *out_first += window.start[i] * step;
    step *= from.d[i];
    is_inner = is_inner && to.d[i] == from.d[i];
  }
  return true;
}

// ---- Invariants -------------------------------------------------------------

static bool ir_value_is_consistent(const rabbet_ir_t* ir, size_t id) {
  const rabbet_ir_value_t* value = ir->values.data[id];
  const rabbet_ir_node_t* node = value->producer;
  if (value->id != (int32_t)id || value->uses < 0) return false;
  for (size_t i = 0; node && i < node->output_count; ++i)
    if (node->outputs[i] == value->id) return !node->dead;
  return !node;
}

static bool ir_node_is_consistent(const rabbet_ir_t* ir, size_t index) {
  const rabbet_ir_node_t* node = ir->nodes.data[index];
  bool consistent = !node->dead && node->index == (int32_t)index;
  for (size_t i = 0; i < node->input_count; ++i) {
    const rabbet_ir_value_t* input = rabbet_ir_input(ir, node, i);
    consistent &=
        !input || !input->producer || input->producer->index < node->index;
  }
  for (size_t i = 0; i < node->output_count; ++i)
    consistent &= rabbet_ir_output(ir, node, i)->producer == node;
  return consistent;
}

static void ir_count_uses(rabbet_ir_t* ir, int32_t step) {
  for (size_t i = 0; i < ir->nodes.count; ++i) {
    const rabbet_ir_node_t* node = ir->nodes.data[i];
    for (size_t k = 0; k < node->input_count; ++k)
      if (node->inputs[k] >= 0) ir->values.data[node->inputs[k]]->uses += step;
  }
}

bool rabbet_ir_is_consistent(rabbet_ir_t* ir) {
  bool consistent = true;
  for (size_t i = 0; i < ir->values.count; ++i)
    consistent &= ir_value_is_consistent(ir, i);
  for (size_t i = 0; i < ir->nodes.count; ++i)
    consistent &= ir_node_is_consistent(ir, i);
  for (size_t i = 0; i < ir->output_count; ++i)
    consistent &= rabbet_ir_value(ir, ir->outputs[i])->output == (int32_t)i;
  // Needs no memory: counts the uses down to 0, and up again.
  ir_count_uses(ir, -1);
  for (size_t i = 0; i < ir->values.count; ++i)
    consistent &= ir->values.data[i]->uses == 0;
  ir_count_uses(ir, 1);
  return consistent;
}

// ---- Changing ---------------------------------------------------------------

rabbet_status_t rabbet_ir_add_value(rabbet_ir_t* ir,
                                    const rabbet_ir_value_t* like,
                                    const char* name,
                                    rabbet_ir_value_t** out_value) {
  *out_value = NULL;
  rabbet_ir_value_t* value = NULL;
  RABBET_RETURN_IF_ERROR(
      rabbet_arena_allocate(ir->arena, sizeof(*value), (void**)&value));
  *value = (rabbet_ir_value_t){
      .id = (int32_t)ir->values.count,
      .name = name,
      .dtype = like->dtype,
      .shape = like->shape,
      .input = -1,
      .output = -1,
      .formats = (uint64_t)1 << RABBET_FORMAT_LINEAR,
      .wished = RABBET_DTYPE_NONE,
      .copy_of = -1,
      .bytes_of = -1,
      .bytes_scale = -1,
  };
  RABBET_RETURN_IF_ERROR(RABBET_VEC_PUSH(ir->allocator, &ir->values, value));
  assert(ir->values.data[value->id] == value);
  *out_value = value;
  return rabbet_ok();
}

rabbet_status_t rabbet_ir_add_constant(rabbet_ir_t* ir, const char* name,
                                       rabbet_dtype_t dtype,
                                       const rabbet_dims_t* dims,
                                       const void* data,
                                       rabbet_ir_value_t** out_value) {
  *out_value = NULL;
  rabbet_ir_value_t like = {.dtype = dtype};
  RABBET_RETURN_IF_ERROR(rabbet_shape_from_dims(ir->graph, dims, &like.shape));
  RABBET_RETURN_IF_ERROR(rabbet_ir_add_value(ir, &like, name, out_value));
  (*out_value)->constant = data;
  return rabbet_ok();
}

static rabbet_op_value_t ir_op_value(const rabbet_ir_value_t* value) {
  if (!value) return (rabbet_op_value_t){.dtype = RABBET_DTYPE_NONE};
  return (rabbet_op_value_t){
      .present = true,
      .dtype = value->dtype,
      .shape = value->shape,
      .constant = value->constant,
      .values = value->values,
      .value_count = value->value_count,
  };
}

// Types and shapes of a new node's outputs, from those of its inputs.
static rabbet_status_t ir_infer(rabbet_ir_t* ir, rabbet_ir_node_t* node,
                                rabbet_op_value_t** out_outputs) {
  rabbet_op_value_t* inputs = NULL;
  rabbet_op_infer_t infer = {
      .op = node->op,
      .graph = ir->graph,
      .arena = ir->arena,
      .attrs = node->attrs,
      .input_count = node->input_count,
      .output_count = node->output_count,
      .strongly_typed = ir->strongly_typed,
  };
  RABBET_RETURN_IF_ERROR(rabbet_op_infer_allocate(&infer, &inputs));
  for (size_t i = 0; i < node->input_count; ++i)
    inputs[i] = ir_op_value(rabbet_ir_input(ir, node, i));
  *out_outputs = infer.outputs;
  return RABBET_ANNOTATE(rabbet_op_infer(&infer), "layer '%s'", node->name);
}

static rabbet_status_t ir_add_outputs(rabbet_ir_t* ir, rabbet_ir_node_t* node) {
  rabbet_op_value_t* outputs = NULL;
  RABBET_RETURN_IF_ERROR(ir_infer(ir, node, &outputs));
  for (size_t i = 0; i < node->output_count; ++i) {
    rabbet_ir_value_t like = {.dtype = outputs[i].dtype,
                              .shape = outputs[i].shape};
    rabbet_ir_value_t* value = NULL;
    const char* name = node->name;
    if (node->output_count > 1)
      RABBET_RETURN_IF_ERROR(
          rabbet_arena_printf(ir->arena, &name, "%s.%zu", node->name, i));
    RABBET_RETURN_IF_ERROR(rabbet_ir_add_value(ir, &like, name, &value));
    value->producer = node;
    node->outputs[i] = value->id;
  }
  return rabbet_ok();
}

static rabbet_status_t ir_insert(rabbet_ir_t* ir, rabbet_ir_node_t* node,
                                 const rabbet_ir_node_t* before) {
  RABBET_RETURN_IF_ERROR(RABBET_VEC_PUSH(ir->allocator, &ir->nodes, node));
  size_t place = ir->nodes.count - 1;
  while (before && place > 0) {
    ir->nodes.data[place] = ir->nodes.data[place - 1];
    ir->nodes.data[place - 1] = node;
    if (ir->nodes.data[place--] == before) break;
  }
  assert(!before || ir->nodes.data[place + 1] == before);
  return rabbet_ok();
}

rabbet_status_t rabbet_ir_add_node(rabbet_ir_t* ir, rabbet_op_id_t op,
                                   const char* name, const rabbet_attr_t* attrs,
                                   size_t attr_count, const int32_t* inputs,
                                   size_t input_count,
                                   const rabbet_ir_node_t* before,
                                   rabbet_ir_node_t** out_node) {
  *out_node = NULL;
  assert(!before || !before->dead);
  const rabbet_op_t* info = rabbet_op_get(op);
  rabbet_ir_node_t* node = NULL;
  rabbet_attr_t* complete = NULL;
  RABBET_RETURN_IF_ERROR(
      rabbet_arena_allocate(ir->arena, sizeof(*node), (void**)&node));
  RABBET_RETURN_IF_ERROR(rabbet_arena_allocate_array(
      ir->arena, info->attr_count, sizeof(*complete), (void**)&complete));
  RABBET_RETURN_IF_ERROR(
      rabbet_op_complete_attrs(info, attrs, attr_count, ir->arena, complete));
  *node = (rabbet_ir_node_t){
      .op = info,
      .name = name,
      .attrs = complete,
      .input_count = input_count,
      .output_count = info->output_count,
      .precision = RABBET_DTYPE_NONE,
  };
  RABBET_RETURN_IF_ERROR(rabbet_arena_copy(
      ir->arena, inputs, input_count * sizeof(*inputs), (void**)&node->inputs));
  RABBET_RETURN_IF_ERROR(rabbet_arena_allocate_array(
      ir->arena, node->output_count, sizeof(int32_t), (void**)&node->outputs));
  RABBET_RETURN_IF_ERROR(ir_add_outputs(ir, node));
  RABBET_RETURN_IF_ERROR(ir_insert(ir, node, before));
  for (size_t i = 0; i < input_count; ++i)
    if (inputs[i] >= 0) ir->values.data[inputs[i]]->uses++;
  *out_node = node;
  return rabbet_ok();
}

void rabbet_ir_set_input(rabbet_ir_t* ir, rabbet_ir_node_t* node, size_t index,
                         int32_t value) {
  assert(index < node->input_count && !node->dead);
  assert(value < (int32_t)ir->values.count);
  if (node->inputs[index] >= 0) {
    assert(ir->values.data[node->inputs[index]]->uses > 0);
    ir->values.data[node->inputs[index]]->uses--;
  }
  node->inputs[index] = value;
  if (value >= 0) ir->values.data[value]->uses++;
}

bool rabbet_ir_can_replace(const rabbet_ir_value_t* old,
                           const rabbet_ir_value_t* value) {
  if (old->dtype != value->dtype || old->is_read_by_host) return false;
  // The type set for a network output is kept by its new producer.
  if (value->wished != RABBET_DTYPE_NONE ||
      (old->wished != RABBET_DTYPE_NONE && old->output < 0))
    return false;
  // A network output needs a producer of its own.
  return old->output < 0 || (value->output < 0 && value->input < 0 &&
                             value->producer && !value->is_read_by_host);
}

void rabbet_ir_replace_uses(rabbet_ir_t* ir, rabbet_ir_value_t* old,
                            rabbet_ir_value_t* value) {
  assert(old != value && (old->output < 0 || value->output < 0));
  for (size_t i = 0; i < ir->nodes.count && old->uses > 0; ++i) {
    rabbet_ir_node_t* node = ir->nodes.data[i];
    if (node->dead) continue;
    for (size_t k = 0; k < node->input_count; ++k)
      if (node->inputs[k] == old->id)
        rabbet_ir_set_input(ir, node, k, value->id);
  }
  assert(old->uses == 0);
  if (old->ranged && !value->ranged) {
    value->range = old->range;
    value->ranged = old->ranged;
  }
  if (old->output < 0) return;
  ir->outputs[old->output] = value->id;
  value->output = old->output;
  value->wished = old->wished;
  value->name = old->name;
  value->formats = old->formats;
  value->dim_names = old->dim_names;
  old->output = -1;
}

void rabbet_ir_kill(rabbet_ir_t* ir, rabbet_ir_node_t* node) {
  if (node->dead) return;
  node->dead = true;
  for (size_t i = 0; i < node->input_count; ++i) {
    if (node->inputs[i] < 0) continue;
    assert(ir->values.data[node->inputs[i]]->uses > 0);
    ir->values.data[node->inputs[i]]->uses--;
  }
  for (size_t i = 0; i < node->output_count; ++i) {
    assert(ir->values.data[node->outputs[i]]->producer == node);
    ir->values.data[node->outputs[i]]->producer = NULL;
  }
}
