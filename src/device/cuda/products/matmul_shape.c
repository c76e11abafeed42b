#include <assert.h>
#include <math.h>
#include <string.h>

#include "core/view.h"
#include "device/common/propose.h"
#include "device/cuda/products/matmul.h"
#include "ops/enums.h"
#include "ops/image/window.h"
#include "ops/products/matrix_multiply.h"

static rabbet_matrix_op_t matmul_op(const rabbet_group_node_t* node,
                                    const char* name) {
  return (rabbet_matrix_op_t)rabbet_node_int(node, name);
}

bool rabbet_matmul_matches(const rabbet_group_t* group) {
  if (group->node_count == 0 ||
      !rabbet_op_is(group->nodes[0].op, RABBET_OP_MATRIX_MULTIPLY))
    return false;
  const rabbet_group_node_t* node = &group->nodes[0];
  return rabbet_dtype_is_float(group->values[node->inputs[0]].dtype) &&
         rabbet_group_input_of(group, node->inputs[0]) >= 0 &&
         rabbet_group_input_of(group, node->inputs[1]) >= 0;
}

bool rabbet_matmul_is_convolution(const rabbet_group_t* group,
                                  const rabbet_dims_t* dims) {
  if (group->node_count == 0 ||
      !rabbet_op_is(group->nodes[0].op, RABBET_OP_CONVOLUTION))
    return false;
  const rabbet_group_node_t* node = &group->nodes[0];
  int32_t x = node->inputs[0], y = node->outputs[0];
  const rabbet_group_value_t* w = &group->values[node->inputs[1]];
  rabbet_window_t window;
  rabbet_status_t status =
      rabbet_window_read(node->attrs, node->op->attr_count, w->dims.rank - 2,
                         w->dims.d + 2, &window);
  bool fits = rabbet_is_ok(status) && rabbet_dtype_is_float(w->dtype) &&
              rabbet_node_int(node, "num_groups") == 1 &&
              rabbet_group_feeds(group, node);
  rabbet_status_ignore(status);
  for (int32_t i = 0; fits && i < window.spatial; ++i)
    fits = window.size[i] == 1 && window.stride[i] == 1 &&
           (!dims || dims[x].d[i + 2] == dims[y].d[i + 2]);
  return fits;
}

// ---- Shapes ----------------------------------------------------------------

// The product of a 1x1 convolution: pixels are rows, channels are contiguous.
static void matmul_convolution_shape(const rabbet_group_node_t* node,
                                     const rabbet_dims_t* dims,
                                     rabbet_matmul_shape_t* s) {
  const rabbet_dims_t* x = &dims[node->inputs[0]];
  int64_t k = x->d[1], n = dims[node->outputs[0]].d[1], m = x->d[0];
  for (int32_t i = 2; i < x->rank; ++i)
    m *= x->d[i];
  *s = (rabbet_matmul_shape_t){.m = m,
                               .n = n,
                               .k = k,
                               .a_row = k,
                               .a_column = 1,
                               .b_row = 1,
                               .b_column = k,
                               .y_row = n,
                               .batch = {.size = 1}};
}

static bool matmul_follows(int64_t outer, int64_t inner, int64_t size) {
  return outer == inner * size;
}

// Merges axis i with axis i + 1 if their strides allow it. The last axis is the
// rows, along which b has stride 0.
static bool matmul_join(rabbet_matmul_axis_t* axes, int i, int count) {
  assert(i >= 0 && i + 1 < count);
  rabbet_matmul_axis_t *outer = &axes[i], *inner = &axes[i + 1];
  bool inner_is_rows = i + 2 == count;
  if (outer->size == 1) {
    *outer = *inner;
  } else if (inner->size == 1 && (!inner_is_rows || outer->b == 0)) {
    // The outer axis stays, with its stride in y.
  } else if (matmul_follows(outer->a, inner->a, inner->size) &&
             matmul_follows(outer->b, inner->b, inner->size) &&
             matmul_follows(outer->y, inner->y, inner->size)) {
    int64_t size = outer->size;
    *outer = *inner;
    outer->size *= size;
  } else {
    return false;
  }
  memmove(inner, inner + 1, sizeof(*inner) * (size_t)(count - i - 2));
  return true;
}

static void matmul_take_axes(rabbet_matmul_axis_t* axes, int count,
                             rabbet_matmul_shape_t* shape) {
  for (int i = count - 2; i >= 0; --i)
    if (matmul_join(axes, i, count)) --count;
  const rabbet_matmul_axis_t* rows = &axes[count - 1];
  shape->m = rows->size;
  shape->a_row = rows->a;
  shape->y_row = rows->y;
  int longest = -1;
  for (int i = 0; i < count - 1; ++i)
    if (longest < 0 || axes[i].size > axes[longest].size) longest = i;
  shape->batch = (rabbet_matmul_axis_t){.size = 1};
  if (longest >= 0) shape->batch = axes[longest];
  for (int i = 0; i < count - 1; ++i)
    if (i != longest) shape->loops[shape->loop_count++] = axes[i];
  assert(shape->loop_count <= RABBET_MAX_RANK);
}

rabbet_status_t rabbet_matmul_shape(const rabbet_group_node_t* node,
                                    const rabbet_dims_t* dims,
                                    rabbet_matmul_shape_t* out_shape) {
  rabbet_matrix_product_t p;
  rabbet_matmul_axis_t axes[RABBET_MAX_RANK + 1];
  memset(out_shape, 0, sizeof(*out_shape));
  if (rabbet_op_is(node->op, RABBET_OP_CONVOLUTION)) {
    matmul_convolution_shape(node, dims, out_shape);
    return rabbet_ok();
  }
  RABBET_RETURN_IF_ERROR(rabbet_matrix_product_resolve(
      matmul_op(node, "op0"), &dims[node->inputs[0]], matmul_op(node, "op1"),
      &dims[node->inputs[1]], &p));
  out_shape->n = p.n;
  out_shape->k = p.k;
  out_shape->a_column = p.a_column;
  out_shape->b_row = p.b_row;
  out_shape->b_column = p.b_column;
  int64_t y = p.n;
  axes[p.batch.rank] =
      (rabbet_matmul_axis_t){.size = p.m, .a = p.a_row, .y = y};
  y *= p.m;
  for (int i = p.batch.rank - 1; i >= 0; --i) {
    axes[i] = (rabbet_matmul_axis_t){
        .size = p.batch.d[i], .a = p.a_batch[i], .b = p.b_batch[i], .y = y};
    y *= p.batch.d[i];
  }
  matmul_take_axes(axes, p.batch.rank + 1, out_shape);
  return rabbet_ok();
}

bool rabbet_matmul_turn_weights(const rabbet_group_node_t* node,
                                const rabbet_dims_t* dims,
                                rabbet_matmul_shape_t* shape) {
  const rabbet_dims_t* b = &dims[node->inputs[1]];
  rabbet_matrix_op_t op = matmul_op(node, "op1");
  if (b->rank != 3 || b->d[0] != 1 || op == RABBET_MATRIX_VECTOR) return false;
  // Axis 1 is the innermost.
  bool by_k = op == RABBET_MATRIX_NONE;
  shape->b_row = by_k ? 1 : b->d[1];
  shape->b_column = by_k ? b->d[1] : 1;
  return true;
}

int64_t rabbet_matmul_turns(const rabbet_matmul_shape_t* shape) {
  int64_t turns = 1;
  for (int i = 0; i < shape->loop_count; ++i)
    turns *= shape->loops[i].size;
  return turns;
}

rabbet_matmul_axis_t rabbet_matmul_turn(const rabbet_matmul_shape_t* shape,
                                        int64_t turn) {
  assert(turn >= 0 && turn < rabbet_matmul_turns(shape));
  rabbet_matmul_axis_t at = {.size = 1};
  for (int i = shape->loop_count - 1; i >= 0; --i) {
    const rabbet_matmul_axis_t* axis = &shape->loops[i];
    int64_t index = turn % axis->size;
    turn /= axis->size;
    at.a += index * axis->a;
    at.b += index * axis->b;
    at.y += index * axis->y;
  }
  assert(turn == 0);
  return at;
}

// ---- Epilogues -------------------------------------------------------------

static bool matmul_is_bias(const rabbet_group_t* group,
                           const rabbet_dims_t* dims, int32_t operand) {
  const rabbet_group_node_t* node = &group->nodes[0];
  rabbet_dims_t expected = dims[node->outputs[0]];
  if (rabbet_op_is(node->op, RABBET_OP_CONVOLUTION)) {
    for (int i = 0; i < expected.rank; ++i)
      if (i != 1) expected.d[i] = 1;
    return rabbet_dims_equal(&dims[operand], &expected);
  }
  if (matmul_op(node, "op1") == RABBET_MATRIX_VECTOR) return false;
  for (int i = 0; i < expected.rank - 1; ++i)
    expected.d[i] = 1;
  return rabbet_dims_equal(&dims[operand], &expected);
}

static bool matmul_take_sum(const rabbet_group_t* group,
                            const rabbet_dims_t* dims,
                            const rabbet_cuda_item_t* item,
                            rabbet_matmul_epilogue_t* out) {
  if (out->bias < 0 && matmul_is_bias(group, dims, item->operand)) {
    out->bias = item->operand;
    return true;
  }
  if (out->residual >= 0 ||
      !rabbet_dims_equal(&dims[item->operand], &dims[out->result]))
    return false;
  out->residual = item->operand;
  return true;
}

// Matches a factor, which must come before bias and residual.
static bool matmul_take_factor(const rabbet_group_t* group,
                               const rabbet_cuda_item_t* item,
                               rabbet_matmul_epilogue_t* out) {
  double number = 0;
  if (out->bias >= 0 || out->residual >= 0 ||
      !rabbet_cuda_is_number(group, item->operand, &number))
    return false;
  if (item->op == RABBET_ELEMENTWISE_DIV) {
    if (item->reversed || number == 0) return false;
    number = 1 / number;
  }
  out->alpha = (float)(out->alpha * number);
  return isfinite(out->alpha);
}

static bool matmul_take(const rabbet_group_t* group, const rabbet_dims_t* dims,
                        const rabbet_cuda_item_t* item,
                        rabbet_matmul_epilogue_t* out) {
  if (out->function != RABBET_MATMUL_NO_FUNCTION) return false;
  if (item->kind == RABBET_CUDA_ITEM_ACTIVATION) {
    if (item->op == RABBET_ACTIVATION_RELU)
      out->function = RABBET_MATMUL_RELU;
    else if (item->op == RABBET_ACTIVATION_GELU_TANH)
      out->function = RABBET_MATMUL_GELU;
    return out->function != RABBET_MATMUL_NO_FUNCTION;
  }
  if (item->kind != RABBET_CUDA_ITEM_ELEMENTWISE) return false;
  if (item->op == RABBET_ELEMENTWISE_SUM)
    return matmul_take_sum(group, dims, item, out);
  return (item->op == RABBET_ELEMENTWISE_PROD ||
          item->op == RABBET_ELEMENTWISE_DIV) &&
         matmul_take_factor(group, item, out);
}

bool rabbet_matmul_epilogue(const rabbet_group_t* group,
                            const rabbet_dims_t* dims,
                            rabbet_matmul_epilogue_t* out_epilogue) {
  rabbet_cuda_epilogue_t chain;
  *out_epilogue =
      (rabbet_matmul_epilogue_t){.alpha = 1, .bias = -1, .residual = -1};
  if (!rabbet_cuda_epilogue_parse(group, dims, 1, group->nodes[0].outputs[0],
                                  &chain))
    return false;
  assert(chain.count <= RABBET_CUDA_EPILOGUE_MAX);
  out_epilogue->result = chain.result;
  if (rabbet_op_is(group->nodes[0].op, RABBET_OP_CONVOLUTION))
    out_epilogue->bias = rabbet_node_input(&group->nodes[0], 2);
  for (int i = 0; i < chain.count; ++i)
    if (!matmul_take(group, dims, &chain.items[i], out_epilogue)) return false;
  return true;
}

rabbet_status_t rabbet_matmul_has_epilogue(const rabbet_propose_t* propose,
                                           bool* out_has) {
  const rabbet_group_t* group = propose->group;
  rabbet_matmul_epilogue_t epilogue;
  rabbet_dims_t *usual = NULL, *largest = NULL;
  *out_has = false;
  rabbet_status_t status =
      rabbet_group_opt_dims(group, propose->allocator, &usual);
  if (rabbet_is_ok(status))
    status = rabbet_group_max_dims(group, propose->allocator, &largest);
  if (rabbet_is_ok(status))
    *out_has = rabbet_matmul_epilogue(group, usual, &epilogue) &&
               rabbet_matmul_epilogue(group, largest, &epilogue);
  rabbet_free(propose->allocator, largest);
  rabbet_free(propose->allocator, usual);
  return status;
}
