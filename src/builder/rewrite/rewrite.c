// The parts that rules are made of.

#include <assert.h>
#include <string.h>

#include "builder/ir/passes.h"
#include "core/attr_set.h"
#include "core/view.h"

int64_t rabbet_ir_int(const rabbet_ir_node_t* node, const char* name) {
  return rabbet_attr_int(node->attrs, node->op->attr_count, name, 0);
}

const int64_t* rabbet_ir_ints(const rabbet_ir_node_t* node, const char* name,
                              size_t* out_count) {
  return rabbet_attr_ints(node->attrs, node->op->attr_count, name, out_count);
}

// The attribute in a copy of the node's attributes, which others may share.
static rabbet_status_t rewrite_attr(rabbet_build_t* build,
                                    rabbet_ir_node_t* node, const char* name,
                                    rabbet_attr_t** out_attr) {
  assert(!node->dead);
  rabbet_attr_t* attrs = NULL;
  size_t count = node->op->attr_count;
  *out_attr = NULL;
  RABBET_RETURN_IF_ERROR(rabbet_arena_copy(
      &build->arena, node->attrs, count * sizeof(*attrs), (void**)&attrs));
  node->attrs = attrs;
  for (size_t i = 0; i < count; ++i)
    if (strcmp(attrs[i].name, name) == 0) *out_attr = &attrs[i];
  if (*out_attr) return rabbet_ok();
  return RABBET_STATUS(RABBET_STATUS_INTERNAL, "'%s' has no attribute '%s'",
                       node->op->name, name);
}

rabbet_status_t rabbet_ir_set_int(rabbet_build_t* build, rabbet_ir_node_t* node,
                                  const char* name, int64_t value) {
  rabbet_attr_t* attr = NULL;
  RABBET_RETURN_IF_ERROR(rewrite_attr(build, node, name, &attr));
  return rabbet_arena_copy(&build->arena, &value, sizeof(value),
                           (void**)&attr->data);
}

rabbet_status_t rabbet_ir_set_ints(rabbet_build_t* build,
                                   rabbet_ir_node_t* node, const char* name,
                                   const int64_t* values, size_t count) {
  rabbet_attr_t* attr = NULL;
  RABBET_RETURN_IF_ERROR(rewrite_attr(build, node, name, &attr));
  attr->count = count;
  return rabbet_arena_copy(&build->arena, values, count * sizeof(*values),
                           (void**)&attr->data);
}

bool rabbet_ir_has_wishes(const rabbet_ir_t* ir, const rabbet_ir_node_t* node) {
  if (node->precision != RABBET_DTYPE_NONE) return true;
  for (size_t i = 0; i < node->output_count; ++i)
    if (rabbet_ir_output(ir, node, i)->wished != RABBET_DTYPE_NONE) return true;
  return false;
}

rabbet_ir_node_t* rabbet_ir_sole_producer(const rabbet_ir_t* ir,
                                          const rabbet_ir_value_t* value,
                                          rabbet_op_id_t op) {
  rabbet_ir_node_t* node = value ? value->producer : NULL;
  if (!node || node->dead || !rabbet_op_is(node->op, op) || value->uses != 1 ||
      value->output >= 0 || value->is_read_by_host ||
      rabbet_ir_has_wishes(ir, node))
    return NULL;
  return node;
}

int64_t rabbet_ir_count(const rabbet_ir_t* ir,
                        const rabbet_ir_value_t* constant) {
  rabbet_dims_t dims = rabbet_ir_dims(ir, constant);
  int64_t count = 1;
  for (int32_t i = 0; i < dims.rank; ++i)
    count *= dims.d[i];
  assert(count >= 0);
  return count;
}

bool rabbet_ir_is_empty(const rabbet_ir_t* ir, const rabbet_ir_value_t* value) {
  rabbet_dims_t dims = rabbet_ir_dims(ir, value);
  for (int32_t i = 0; i < dims.rank; ++i)
    if (dims.d[i] == 0) return true;
  return false;
}

bool rabbet_ir_is_number(const rabbet_ir_t* ir, const rabbet_ir_value_t* value,
                         double number) {
  if (!value || !value->constant) return false;
  int64_t count = rabbet_ir_count(ir, value);
  for (int64_t i = 0; i < count; ++i)
    if (rabbet_load_double(value->dtype, value->constant, i) != number)
      return false;
  return count > 0;
}

bool rabbet_ir_number(const rabbet_ir_t* ir, const rabbet_ir_value_t* value,
                      float* out_number) {
  if (!value || !value->constant || value->dtype != RABBET_DTYPE_FLOAT ||
      rabbet_ir_count(ir, value) == 0)
    return false;
  *out_number = *(const float*)value->constant;
  return rabbet_ir_is_number(ir, value, (double)*out_number);
}

bool rabbet_ir_is_real(rabbet_dtype_t dtype) {
  return dtype == RABBET_DTYPE_FLOAT || dtype == RABBET_DTYPE_HALF ||
         dtype == RABBET_DTYPE_BF16;
}

// Extents that are constant, and can be listed in the attribute.
static bool reshape_is_constant(const rabbet_expr_graph_t* graph,
                                const rabbet_shape_t* shape,
                                int64_t extents[RABBET_MAX_RANK]) {
  for (int32_t i = 0; i < shape->rank; ++i)
    if (!rabbet_expr_is_constant(graph, shape->d[i], &extents[i]) ||
        extents[i] <= 0)  // 0 would be a copy of the input's extent
      return false;
  return true;
}

rabbet_status_t rabbet_ir_add_sizes(rabbet_build_t* build, const char* name,
                                    const rabbet_expr_t* sizes, int32_t count,
                                    int32_t* out_value) {
  rabbet_ir_t* ir = &build->ir;
  rabbet_expr_t* values = NULL;
  rabbet_ir_value_t like = {.dtype = RABBET_DTYPE_INT64, .shape = {.rank = 1}};
  rabbet_ir_value_t* value = NULL;
  RABBET_RETURN_IF_ERROR(
      rabbet_expr_constant(ir->graph, count, &like.shape.d[0]));
  RABBET_RETURN_IF_ERROR(rabbet_arena_copy(
      &build->arena, sizes, (size_t)count * sizeof(*sizes), (void**)&values));
  RABBET_RETURN_IF_ERROR(rabbet_ir_add_value(ir, &like, name, &value));
  value->values = values;
  value->value_count = (size_t)count;
  *out_value = value->id;
  return rabbet_ok();
}

rabbet_status_t rabbet_ir_add_reshape(rabbet_build_t* build,
                                      const rabbet_ir_node_t* before,
                                      const rabbet_expr_t* extents,
                                      int32_t rank,
                                      const rabbet_ir_value_t** value) {
  rabbet_ir_t* ir = &build->ir;
  rabbet_ir_node_t* node = NULL;
  rabbet_shape_t shape = {.rank = rank};
  int64_t numbers[RABBET_MAX_RANK];
  const rabbet_attr_t attr = {.name = "reshape_dims",
                              .type = RABBET_ATTR_INTS,
                              .data = numbers,
                              .count = (size_t)rank};
  int32_t inputs[2] = {(*value)->id, -1};
  memcpy(shape.d, extents, (size_t)rank * sizeof(extents[0]));
  if (rabbet_ir_shape_equal(&shape, &(*value)->shape)) return rabbet_ok();
  bool constant = reshape_is_constant(ir->graph, &shape, numbers);
  if (!constant)
    RABBET_RETURN_IF_ERROR(
        rabbet_ir_add_sizes(build, before->name, extents, rank, &inputs[1]));
  RABBET_RETURN_IF_ERROR(rabbet_ir_add_node(ir, RABBET_OP_SHUFFLE, before->name,
                                            &attr, constant, inputs,
                                            constant ? 1 : 2, before, &node));
  *value = rabbet_ir_output(ir, node, 0);
  return rabbet_ok();
}

// Whether the longer shape is the other one with a last axis of extent 1.
static bool squeeze_leads(const rabbet_ir_t* ir,
                          const rabbet_ir_value_t* longer,
                          const rabbet_ir_value_t* shorter) {
  rabbet_dims_t dims = rabbet_ir_dims(ir, longer);
  rabbet_shape_t lead = longer->shape;
  --lead.rank;
  return dims.rank == shorter->shape.rank + 1 && dims.d[dims.rank - 1] == 1 &&
         rabbet_ir_shape_equal(&lead, &shorter->shape);
}

// The input of the view that makes the value; NULL: none does.
static const rabbet_ir_value_t* squeeze_viewed(const rabbet_ir_t* ir,
                                               const rabbet_ir_value_t* value) {
  const rabbet_ir_node_t* view = value->producer;
  return view && !view->dead && rabbet_op_is(view->op, RABBET_OP_SHUFFLE) &&
                 !rabbet_ir_has_wishes(ir, view) && rabbet_ir_is_view(ir, view)
             ? rabbet_ir_input(ir, view, 0)
             : NULL;
}

const rabbet_ir_value_t* rabbet_ir_unsqueezed(const rabbet_ir_t* ir,
                                              const rabbet_ir_value_t* value) {
  const rabbet_ir_value_t* from = squeeze_viewed(ir, value);
  return from && squeeze_leads(ir, value, from) ? from : NULL;
}

const rabbet_ir_value_t* rabbet_ir_squeezed(const rabbet_ir_t* ir,
                                            const rabbet_ir_value_t* value) {
  const rabbet_ir_value_t* from = squeeze_viewed(ir, value);
  return from && squeeze_leads(ir, from, value) ? from : NULL;
}

bool rabbet_ir_part(const rabbet_ir_t* ir, const rabbet_ir_value_t* value,
                    int32_t axis, rabbet_ir_part_t* out_part) {
  const rabbet_ir_node_t* slice = value->producer;
  rabbet_ir_window_t window;
  if (axis < 0 || !slice || slice->dead ||
      !rabbet_op_is(slice->op, RABBET_OP_SLICE) ||
      rabbet_ir_has_wishes(ir, slice) || !rabbet_ir_window(ir, slice, &window))
    return false;
  assert(axis < value->shape.rank);
  *out_part = (rabbet_ir_part_t){.x = rabbet_ir_input(ir, slice, 0),
                                 .start = window.start[axis],
                                 .size = rabbet_ir_dims(ir, value).d[axis],
                                 .stride = window.stride[axis]};
  for (int32_t i = 0; i < value->shape.rank; ++i)
    if (i != axis && (window.start[i] != 0 || window.stride[i] != 1 ||
                      value->shape.d[i] != out_part->x->shape.d[i]))
      return false;
  return out_part->size != 0;
}

bool rabbet_ir_can_bypass(const rabbet_ir_t* ir, const rabbet_ir_node_t* node,
                          const rabbet_ir_value_t* value) {
  assert(node->output_count == 1 && !node->dead);
  const rabbet_ir_value_t* output = rabbet_ir_output(ir, node, 0);
  // A constant that a rule takes for a number may widen the result.
  return node->precision == RABBET_DTYPE_NONE &&
         rabbet_ir_shape_equal(&output->shape, &value->shape) &&
         rabbet_ir_can_replace(output, value);
}

bool rabbet_ir_bypass(rabbet_ir_t* ir, rabbet_ir_node_t* node,
                      rabbet_ir_value_t* value) {
  if (!rabbet_ir_can_bypass(ir, node, value)) return false;
  rabbet_ir_value_t* output = rabbet_ir_output(ir, node, 0);
  rabbet_ir_replace_uses(ir, output, value);
  rabbet_ir_kill(ir, node);
  return true;
}

rabbet_status_t rabbet_ir_new_floats(rabbet_build_t* build, const char* name,
                                     const rabbet_dims_t* dims,
                                     rabbet_ir_value_t** out_value,
                                     float** out_data) {
  size_t bytes = 0;
  void* data = NULL;
  RABBET_RETURN_IF_ERROR(rabbet_tensor_bytes(
      RABBET_DTYPE_FLOAT, RABBET_FORMAT_LINEAR, dims, &bytes));
  RABBET_RETURN_IF_ERROR(
      rabbet_arena_allocate(&build->arena, bytes + 1, &data));
  *out_data = data;
  return rabbet_ir_add_constant(&build->ir, name, RABBET_DTYPE_FLOAT, dims,
                                data, out_value);
}

static const rabbet_ir_value_t* rewrite_find_filled(const rabbet_ir_t* ir,
                                                    rabbet_dtype_t dtype,
                                                    const rabbet_dims_t* dims,
                                                    double number) {
  for (size_t i = 0; i < ir->values.count; ++i) {
    const rabbet_ir_value_t* value = ir->values.data[i];
    if (!value->constant || value->is_deferred || value->dtype != dtype ||
        value->uses == 0)
      continue;
    rabbet_dims_t other = rabbet_ir_dims(ir, value);
    if (rabbet_dims_equal(&other, dims) &&
        rabbet_ir_is_number(ir, value, number))
      return value;
  }
  return NULL;
}

rabbet_status_t rabbet_ir_filled(rabbet_build_t* build, const char* name,
                                 rabbet_dtype_t dtype,
                                 const rabbet_dims_t* dims, double number,
                                 int32_t* out_value) {
  rabbet_ir_t* ir = &build->ir;
  const rabbet_ir_value_t* known = rewrite_find_filled(ir, dtype, dims, number);
  rabbet_ir_value_t* value = NULL;
  size_t bytes = 0;
  void* data = NULL;
  *out_value = known ? known->id : -1;
  if (known) return rabbet_ok();
  assert(rabbet_ir_is_real(dtype));
  RABBET_RETURN_IF_ERROR(
      rabbet_tensor_bytes(dtype, RABBET_FORMAT_LINEAR, dims, &bytes));
  RABBET_RETURN_IF_ERROR(
      rabbet_arena_allocate(&build->arena, bytes + 1, &data));
  RABBET_RETURN_IF_ERROR(
      rabbet_ir_add_constant(ir, name, dtype, dims, data, &value));
  for (int64_t i = 0; i < rabbet_ir_count(ir, value); ++i)
    rabbet_store_double(dtype, data, i, number);
  *out_value = value->id;
  return rabbet_ok();
}

rabbet_status_t rabbet_ir_add_rotation(rabbet_build_t* build,
                                       const rabbet_ir_node_t* before,
                                       const char* name,
                                       const int32_t inputs[3], int64_t size,
                                       bool interleaved,
                                       rabbet_ir_node_t** out_node) {
  const int64_t turns = interleaved;
  const rabbet_attr_t attrs[] = {
      {.name = "size", .type = RABBET_ATTR_INT, .data = &size, .count = 1},
      {.name = "interleaved",
       .type = RABBET_ATTR_BOOL,
       .data = &turns,
       .count = 1},
  };
  return rabbet_ir_add_node(&build->ir, RABBET_OP_ROTATION, name, attrs, 2,
                            inputs, 3, before, out_node);
}

rabbet_status_t rabbet_ir_add_scale(rabbet_build_t* build,
                                    const rabbet_ir_node_t* before,
                                    const rabbet_ir_node_t* scale,
                                    const rabbet_ir_value_t** value) {
  rabbet_ir_t* ir = &build->ir;
  size_t input = rabbet_ir_input(ir, scale, 0)->constant ? 1 : 0;
  const rabbet_ir_value_t* number = rabbet_ir_input(ir, scale, 1 - input);
  rabbet_expr_t ones[RABBET_MAX_RANK];
  rabbet_ir_node_t* node = NULL;
  int32_t rank = (*value)->shape.rank, inputs[2];
  assert(number->constant && rabbet_ir_count(ir, number) == 1);
  for (int32_t i = 0; i < rank; ++i)
    RABBET_RETURN_IF_ERROR(rabbet_expr_constant(ir->graph, 1, &ones[i]));
  RABBET_RETURN_IF_ERROR(
      rabbet_ir_add_reshape(build, before, ones, rank, &number));
  inputs[input] = (*value)->id;
  inputs[1 - input] = number->id;
  RABBET_RETURN_IF_ERROR(
      rabbet_ir_add_node(ir, rabbet_op_id(scale->op), scale->name, scale->attrs,
                         scale->op->attr_count, inputs, 2, before, &node));
  *value = rabbet_ir_output(ir, node, 0);
  return rabbet_ok();
}
