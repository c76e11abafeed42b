#include "ops/rules.h"

#include <assert.h>

const char* rabbet_op_shape_text(const rabbet_op_infer_t* infer,
                                 const rabbet_shape_t* shape,
                                 char buffer[RABBET_OP_TEXT]) {
  rabbet_dims_t dims = rabbet_shape_dims(infer->graph, shape);
  return rabbet_dims_print(&dims, buffer, RABBET_OP_TEXT);
}

rabbet_status_t rabbet_op_with_constant(const rabbet_op_infer_t* infer,
                                        rabbet_expr_op_t op, rabbet_expr_t a,
                                        int64_t b, rabbet_expr_t* out_expr) {
  rabbet_expr_t constant = RABBET_EXPR_NONE;
  *out_expr = RABBET_EXPR_NONE;
  RABBET_RETURN_IF_ERROR(rabbet_expr_constant(infer->graph, b, &constant));
  return rabbet_expr_binary(infer->graph, op, a, constant, out_expr);
}

// `budget` bounds the visited nodes, as shared nodes are visited repeatedly.
static bool op_non_negative_at(const rabbet_expr_graph_t* graph,
                               rabbet_expr_t expr, int* budget) {
  if (--*budget < 0) return false;
  const rabbet_expr_node_t* node = rabbet_expr_node(graph, expr);
  switch (node->op) {
    case RABBET_EXPR_CONSTANT:
      return node->value >= 0;
    case RABBET_EXPR_SYMBOL: {
      // Values that the host reads may be negative; size outputs, which have a
      // bound, are not.
      const rabbet_symbol_t* symbol =
          rabbet_expr_symbol(graph, (size_t)node->a);
      return symbol->kind == RABBET_SYMBOL_DIM ||
             symbol->upper != RABBET_EXPR_NONE;
    }
    case RABBET_EXPR_EQUAL:
    case RABBET_EXPR_LESS:
      return true;
    case RABBET_EXPR_MAX:
      return op_non_negative_at(graph, node->a, budget) ||
             op_non_negative_at(graph, node->b, budget);
    case RABBET_EXPR_SUB:
      return false;
    default:
      return op_non_negative_at(graph, node->a, budget) &&
             op_non_negative_at(graph, node->b, budget);
  }
}

bool rabbet_op_non_negative(const rabbet_op_infer_t* infer,
                            rabbet_expr_t expr) {
  int budget = 256;
  return op_non_negative_at(infer->graph, expr, &budget);
}

rabbet_status_t rabbet_op_choose(const rabbet_op_infer_t* infer,
                                 rabbet_expr_t condition, rabbet_expr_t a,
                                 rabbet_expr_t b, rabbet_expr_t* out_value) {
  rabbet_expr_graph_t* graph = infer->graph;
  *out_value = a;
  if (a == b || rabbet_op_equals(infer, condition, 1)) return rabbet_ok();
  *out_value = b;
  if (rabbet_op_equals(infer, condition, 0)) return rabbet_ok();
  rabbet_expr_t one = RABBET_EXPR_NONE;
  RABBET_RETURN_IF_ERROR(rabbet_expr_constant(graph, 1, &one));
  RABBET_RETURN_IF_ERROR(
      rabbet_expr_binary(graph, RABBET_EXPR_SUB, one, condition, &one));
  RABBET_RETURN_IF_ERROR(
      rabbet_expr_binary(graph, RABBET_EXPR_PROD, condition, a, &a));
  RABBET_RETURN_IF_ERROR(
      rabbet_expr_binary(graph, RABBET_EXPR_PROD, one, b, &b));
  return rabbet_expr_binary(graph, RABBET_EXPR_SUM, a, b, out_value);
}

rabbet_status_t rabbet_op_size(const rabbet_op_infer_t* infer, size_t output,
                               rabbet_expr_t opt, rabbet_expr_t upper,
                               rabbet_expr_t* out_size) {
  *out_size = RABBET_EXPR_NONE;
  if (!infer->output_tensors || infer->output_tensors[output] < 0)
    return RABBET_STATUS(RABBET_STATUS_UNSUPPORTED,
                         "a run alone tells how many elements '%s' makes",
                         infer->op->name);
  assert(output < infer->output_count);
  infer->outputs[output].shape = (rabbet_shape_t){.rank = 0};
  const rabbet_symbol_t symbol = {.kind = RABBET_SYMBOL_VALUE,
                                  .tensor = infer->output_tensors[output],
                                  .opt = opt,
                                  .upper = upper};
  RABBET_RETURN_IF_ERROR(
      rabbet_expr_of_symbol(infer->graph, &symbol, out_size));
  const rabbet_expr_node_t* node = rabbet_expr_node(infer->graph, *out_size);
  assert(node->op == RABBET_EXPR_SYMBOL);
  if (infer->out_bound_differs &&
      rabbet_expr_symbol(infer->graph, (size_t)node->a)->upper != upper)
    *infer->out_bound_differs = true;
  return rabbet_ok();
}

rabbet_status_t rabbet_op_broadcast_dim(const rabbet_op_infer_t* infer,
                                        rabbet_expr_t a, rabbet_expr_t b,
                                        rabbet_expr_t* out_dim,
                                        bool* out_agree) {
  int64_t x = 0, y = 0;
  bool a_known = rabbet_op_is_constant(infer, a, &x);
  bool b_known = rabbet_op_is_constant(infer, b, &y);
  *out_agree = true;
  *out_dim = a;
  if (a == b || (b_known && y == 1)) return rabbet_ok();
  *out_dim = b;
  if (a_known && x == 1) return rabbet_ok();
  *out_agree = !(a_known && b_known);
  if (b_known) return rabbet_ok();
  *out_dim = a;
  if (a_known) return rabbet_ok();
  return rabbet_expr_binary(infer->graph, RABBET_EXPR_BROADCAST, a, b, out_dim);
}

bool rabbet_op_same_dim(const rabbet_op_infer_t* infer, rabbet_expr_t a,
                        rabbet_expr_t b, rabbet_expr_t* out_dim) {
  int64_t x = 0, y = 0;
  bool a_known = rabbet_op_is_constant(infer, a, &x);
  bool b_known = rabbet_op_is_constant(infer, b, &y);
  *out_dim = b_known && !a_known ? b : a;
  return !(a_known && b_known) || x == y;
}

static rabbet_status_t op_broadcast_into(const rabbet_op_infer_t* infer,
                                         size_t first, size_t index,
                                         rabbet_shape_t* shape) {
  const rabbet_shape_t* other = &infer->inputs[index].shape;
  const char* name = rabbet_op_input(infer->op, index)->name;
  char a[RABBET_OP_TEXT], b[RABBET_OP_TEXT];
  if (other->rank != shape->rank) {
    return RABBET_OP_INVALID(
        "input '%s' has shape %s and input '%s' has shape %s; their ranks must "
        "be equal (insert dimensions of 1 with a shuffle)",
        rabbet_op_input(infer->op, first)->name,
        rabbet_op_shape_text(infer, &infer->inputs[first].shape, a), name,
        rabbet_op_shape_text(infer, other, b));
  }
  for (int32_t axis = 0; axis < shape->rank; ++axis) {
    bool agree = false;
    rabbet_expr_t dim = RABBET_EXPR_NONE;
    RABBET_RETURN_IF_ERROR(rabbet_op_broadcast_dim(
        infer, shape->d[axis], other->d[axis], &dim, &agree));
    if (!agree) {
      return RABBET_OP_INVALID(
          "shapes %s and %s (input '%s') do not broadcast: dimension %d must "
          "be equal or 1",
          rabbet_op_shape_text(infer, shape, a),
          rabbet_op_shape_text(infer, other, b), name, axis);
    }
    shape->d[axis] = dim;
  }
  return rabbet_ok();
}

rabbet_status_t rabbet_op_broadcast(const rabbet_op_infer_t* infer,
                                    size_t first, size_t count,
                                    rabbet_shape_t* out_shape) {
  assert(count > 0 && first + count <= infer->input_count);
  rabbet_shape_t shape = infer->inputs[first].shape;
  for (size_t i = first + 1; i < first + count; ++i) {
    RABBET_RETURN_IF_ERROR(op_broadcast_into(infer, first, i, &shape));
  }
  *out_shape = shape;
  return rabbet_ok();
}

rabbet_status_t rabbet_op_same_shape(const rabbet_op_infer_t* infer) {
  infer->outputs[0].shape = infer->inputs[0].shape;
  return rabbet_ok();
}

rabbet_status_t rabbet_op_same_type(const rabbet_op_infer_t* infer,
                                    size_t first, size_t i) {
  const rabbet_op_value_t* reference = &infer->inputs[first];
  if (!infer->inputs[i].present || infer->inputs[i].dtype == reference->dtype)
    return rabbet_ok();
  return RABBET_OP_INVALID(
      "input %zu ('%s') has type %s, but input %zu ('%s') has type %s; they "
      "must be equal (insert a cast)",
      i, rabbet_op_input(infer->op, i)->name,
      rabbet_dtype_name(infer->inputs[i].dtype), first,
      rabbet_op_input(infer->op, first)->name,
      rabbet_dtype_name(reference->dtype));
}

rabbet_status_t rabbet_op_same_types(const rabbet_op_infer_t* infer,
                                     size_t first) {
  for (size_t i = first + 1; i < infer->input_count; ++i)
    RABBET_RETURN_IF_ERROR(rabbet_op_same_type(infer, first, i));
  return rabbet_ok();
}

rabbet_status_t rabbet_op_axis(const char* name, int64_t axis, int32_t rank,
                               int32_t* out_axis) {
  *out_axis = 0;
  if (axis < -(int64_t)rank || axis >= rank) {
    return RABBET_OP_INVALID(
        "attribute '%s' is %lld; a tensor of rank %d has axes 0 to %d", name,
        (long long)axis, rank, rank - 1);
  }
  *out_axis = (int32_t)(axis < 0 ? axis + rank : axis);
  assert(*out_axis >= 0 && *out_axis < rank);
  return rabbet_ok();
}

rabbet_status_t rabbet_op_axes_mask(const rabbet_op_infer_t* infer,
                                    int64_t mask, int32_t rank) {
  if (mask > 0 && mask < (INT64_C(1) << rank)) return rabbet_ok();
  char text[RABBET_OP_TEXT];
  return RABBET_OP_INVALID(
      "attribute 'axes' is 0x%llx; it must be a mask (bit i for axis i) of one "
      "or more of the %d axes of input '%s' %s",
      (unsigned long long)mask, rank, infer->op->inputs[0].name,
      rabbet_op_shape_text(infer, &infer->inputs[0].shape, text));
}

rabbet_status_t rabbet_op_operand_values(const rabbet_op_infer_t* infer,
                                         size_t index,
                                         const rabbet_expr_t** out_values,
                                         size_t* out_count) {
  assert(index < infer->input_count);
  const rabbet_op_value_t* input = &infer->inputs[index];
  *out_values = input->values;
  *out_count = input->value_count;
  if (input->values) return rabbet_ok();
  char text[RABBET_OP_TEXT];
  return RABBET_OP_INVALID(
      "the values of input %zu ('%s'), of shape %s, are needed to know the "
      "output's shape, but nothing tells them; at most %d elements of a tensor "
      "of known shape are followed",
      index, rabbet_op_input(infer->op, index)->name,
      rabbet_op_shape_text(infer, &input->shape, text), RABBET_OP_MAX_VALUES);
}

int64_t rabbet_op_constant_count(const rabbet_op_infer_t* infer,
                                 const rabbet_shape_t* shape) {
  rabbet_dims_t dims = rabbet_shape_dims(infer->graph, shape);
  for (int32_t i = 0; i < dims.rank; ++i) {
    if (dims.d[i] < 0) return -1;
  }
  int64_t count = 1;
  for (int32_t i = 0; i < dims.rank; ++i) {
    if (__builtin_mul_overflow(count, dims.d[i], &count)) return INT64_MAX;
  }
  return count;
}

rabbet_status_t rabbet_op_new_values(const rabbet_op_infer_t* infer,
                                     size_t count, rabbet_expr_t** out_values) {
  return rabbet_arena_allocate_array(infer->arena, count, sizeof(rabbet_expr_t),
                                     (void**)out_values);
}
