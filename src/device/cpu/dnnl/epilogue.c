#include "device/cpu/dnnl/epilogue.h"

#include <assert.h>
#include <math.h>
#include <string.h>

#include "device/common/swish.h"
#include "ops/enums.h"

static bool epilogue_push(rabbet_epilogue_t* epilogue,
                          rabbet_epilogue_item_t item) {
  assert(epilogue->count <= RABBET_DNNL_MAX_POSTS);
  assert(item.is_binary == (item.operand >= 0));
  if (epilogue->count == RABBET_DNNL_MAX_POSTS) return false;
  epilogue->items[epilogue->count++] = item;
  return true;
}

// Composes two linear functions: c (a x + b) + d.
static void epilogue_join_linear(rabbet_epilogue_item_t* first, double alpha,
                                 double beta) {
  assert(!first->is_binary && first->function == RABBET_DNNL_LINEAR);
  first->beta = (float)(first->beta * alpha + beta);
  first->alpha = (float)(first->alpha * alpha);
}

// Merges consecutive linear functions into one. Refuses a function that occurs
// twice with different alpha and beta, which some implementations of oneDNN 2.6
// confuse.
static bool epilogue_push_function(rabbet_epilogue_t* epilogue,
                                   rabbet_dnnl_function_t function,
                                   double alpha, double beta) {
  const rabbet_epilogue_item_t item = {.function = function,
                                       .alpha = (float)alpha,
                                       .beta = (float)beta,
                                       .operand = -1};
  if (epilogue->count > 0 && function == RABBET_DNNL_LINEAR) {
    rabbet_epilogue_item_t* last = &epilogue->items[epilogue->count - 1];
    if (!last->is_binary && last->function == RABBET_DNNL_LINEAR) {
      epilogue_join_linear(last, alpha, beta);
      return true;
    }
  }
  for (int i = 0; i < epilogue->count; ++i) {
    const rabbet_epilogue_item_t* other = &epilogue->items[i];
    if (!other->is_binary && other->function == function &&
        (other->alpha != item.alpha || other->beta != item.beta)) {
      return false;
    }
  }
  return epilogue_push(epilogue, item);
}

bool rabbet_epilogue_push_linear(rabbet_epilogue_t* epilogue, double alpha,
                                 double beta) {
  return epilogue_push_function(epilogue, RABBET_DNNL_LINEAR, alpha, beta);
}

// ---- Functions of one tensor -----------------------------------------------

// Appends a factor, unless it is 1.
static bool epilogue_push_scale(rabbet_epilogue_t* epilogue, double scale) {
  return scale == 1 ||
         epilogue_push_function(epilogue, RABBET_DNNL_LINEAR, scale, 0);
}

static double node_float(const rabbet_group_node_t* node, const char* name) {
  return rabbet_attr_float(node->attrs, node->op->attr_count, name, 0);
}

static bool epilogue_activation(const rabbet_group_node_t* node,
                                rabbet_epilogue_t* e) {
  double a = node_float(node, "alpha");
  double b = node_float(node, "beta");
  switch (rabbet_node_int(node, "type")) {
    case RABBET_ACTIVATION_RELU:
      return epilogue_push_function(e, RABBET_DNNL_RELU, 0, 0);
    case RABBET_ACTIVATION_SIGMOID:
      return epilogue_push_function(e, RABBET_DNNL_LOGISTIC, 0, 0);
    case RABBET_ACTIVATION_TANH:
      return epilogue_push_function(e, RABBET_DNNL_TANH, 0, 0);
    case RABBET_ACTIVATION_LEAKY_RELU:
      return epilogue_push_function(e, RABBET_DNNL_RELU, a, 0);
    case RABBET_ACTIVATION_ELU:
      return epilogue_push_function(e, RABBET_DNNL_ELU, a, 0);
    case RABBET_ACTIVATION_SELU:
      return epilogue_push_function(e, RABBET_DNNL_ELU, a, 0) &&
             epilogue_push_scale(e, b);
    case RABBET_ACTIVATION_SOFTPLUS:
      return epilogue_push_scale(e, b) &&
             epilogue_push_function(e, RABBET_DNNL_SOFT_RELU, 0, 0) &&
             epilogue_push_scale(e, a);
    case RABBET_ACTIVATION_CLIP:
      return a <= b && epilogue_push_function(e, RABBET_DNNL_CLIP, a, b);
    case RABBET_ACTIVATION_HARD_SIGMOID:
      return epilogue_push_function(e, RABBET_DNNL_LINEAR, a, b) &&
             epilogue_push_function(e, RABBET_DNNL_CLIP, 0, 1);
    case RABBET_ACTIVATION_SCALED_TANH:
      return epilogue_push_scale(e, b) &&
             epilogue_push_function(e, RABBET_DNNL_TANH, 0, 0) &&
             epilogue_push_scale(e, a);
    case RABBET_ACTIVATION_GELU_ERF:
      return epilogue_push_function(e, RABBET_DNNL_GELU_ERF, 0, 0);
    case RABBET_ACTIVATION_GELU_TANH:
      return epilogue_push_function(e, RABBET_DNNL_GELU_TANH, 0, 0);
    default:
      return false;
  }
}

static bool epilogue_unary(const rabbet_group_node_t* node,
                           rabbet_epilogue_t* e) {
  switch (rabbet_node_int(node, "op")) {
    case RABBET_UNARY_EXP:
      return epilogue_push_function(e, RABBET_DNNL_EXP, 0, 0);
    case RABBET_UNARY_LOG:
      return epilogue_push_function(e, RABBET_DNNL_LOG, 0, 0);
    case RABBET_UNARY_SQRT:
      return epilogue_push_function(e, RABBET_DNNL_SQRT, 0, 0);
    case RABBET_UNARY_ABS:
      return epilogue_push_function(e, RABBET_DNNL_ABS, 0, 0);
    case RABBET_UNARY_NEG:
      return epilogue_push_function(e, RABBET_DNNL_LINEAR, -1, 0);
    default:
      return false;
  }
}

// Whether a value of one type can stand for one of the other: boundary values
// have the chosen type, values inside the group the network's, and conversion
// happens when they are read or written.
static bool epilogue_types_fit(rabbet_dtype_t a, rabbet_dtype_t b) {
  const uint32_t real = 1u << RABBET_DTYPE_FLOAT | 1u << RABBET_DTYPE_HALF |
                        1u << RABBET_DTYPE_BF16;
  return a == b || ((real >> a & 1) != 0 && (real >> b & 1) != 0);
}

// ---- Functions of two tensors ----------------------------------------------

// result (op) c for a constant of one element; `reversed`: c (op) result.
static bool epilogue_scalar(int64_t op, double c, bool reversed,
                            rabbet_epilogue_t* e) {
  switch (op) {
    case RABBET_ELEMENTWISE_SUM:
      return epilogue_push_function(e, RABBET_DNNL_LINEAR, 1, c);
    case RABBET_ELEMENTWISE_PROD:
      return epilogue_push_function(e, RABBET_DNNL_LINEAR, c, 0);
    case RABBET_ELEMENTWISE_SUB:
      return reversed ? epilogue_push_function(e, RABBET_DNNL_LINEAR, -1, c)
                      : epilogue_push_function(e, RABBET_DNNL_LINEAR, 1, -c);
    case RABBET_ELEMENTWISE_DIV:
      return !reversed && c != 0 && isfinite(1 / c) &&
             epilogue_push_function(e, RABBET_DNNL_LINEAR, 1 / c, 0);
    case RABBET_ELEMENTWISE_POW:
      return !reversed && c == 2 &&
             epilogue_push_function(e, RABBET_DNNL_SQUARE, 0, 0);
    default:
      return false;
  }
}

static bool epilogue_operand(int64_t op, int32_t operand, bool reversed,
                             rabbet_epilogue_t* e) {
  static const rabbet_dnnl_binary_t binaries[] = {
      [RABBET_ELEMENTWISE_SUM] = RABBET_DNNL_ADD,
      [RABBET_ELEMENTWISE_PROD] = RABBET_DNNL_MUL,
      [RABBET_ELEMENTWISE_MAX] = RABBET_DNNL_MAX,
      [RABBET_ELEMENTWISE_MIN] = RABBET_DNNL_MIN,
      [RABBET_ELEMENTWISE_SUB] = RABBET_DNNL_SUB,
      [RABBET_ELEMENTWISE_DIV] = RABBET_DNNL_DIV,
  };
  if (op < 0 || op > RABBET_ELEMENTWISE_DIV) return false;
  rabbet_dnnl_binary_t binary = binaries[op];
  if (reversed && op == RABBET_ELEMENTWISE_DIV) return false;
  if (reversed && op == RABBET_ELEMENTWISE_SUB) {
    // c - x = -x + c
    if (!epilogue_push_function(e, RABBET_DNNL_LINEAR, -1, 0)) return false;
    binary = RABBET_DNNL_ADD;
  }
  return epilogue_push(
      e, (rabbet_epilogue_item_t){
             .is_binary = true, .binary = binary, .operand = operand});
}

static bool epilogue_elementwise(const rabbet_group_t* group,
                                 const rabbet_dims_t* dims,
                                 const rabbet_group_node_t* node,
                                 rabbet_epilogue_t* e) {
  bool reversed = node->inputs[1] == e->result;
  assert(reversed || node->inputs[0] == e->result);
  int32_t operand = node->inputs[reversed ? 0 : 1];
  const rabbet_group_value_t* value = &group->values[operand];
  if (rabbet_group_input_of(group, operand) < 0 ||
      !epilogue_types_fit(value->dtype, group->values[e->start].dtype)) {
    return false;
  }
  int64_t op = rabbet_node_int(node, "op"), count = 1;
  for (int i = 0; i < dims[operand].rank; ++i)
    count = dims[operand].d[i] == 1 ? count : 0;
  if (count == 1 && value->constant &&
      epilogue_scalar(op, rabbet_load_double(value->dtype, value->constant, 0),
                      reversed, e)) {
    return true;
  }
  return epilogue_operand(op, operand, reversed, e);
}

// ---- The chain -------------------------------------------------------------

static bool epilogue_node(const rabbet_group_t* group,
                          const rabbet_dims_t* dims,
                          const rabbet_group_node_t* node,
                          rabbet_epilogue_t* e) {
  bool uses = false;
  for (size_t i = 0; i < node->input_count; ++i) {
    if (node->inputs[i] != e->result) continue;
    if (uses) return false;  // twice
    uses = true;
  }
  if (!uses || node->output_count != 1 ||
      !epilogue_types_fit(group->values[node->outputs[0]].dtype,
                          group->values[e->start].dtype)) {
    return false;
  }
  bool known = rabbet_op_is(node->op, RABBET_OP_ACTIVATION)
                   ? epilogue_activation(node, e)
               : rabbet_op_is(node->op, RABBET_OP_UNARY)
                   ? epilogue_unary(node, e)
               : rabbet_op_is(node->op, RABBET_OP_ELEMENTWISE)
                   ? epilogue_elementwise(group, dims, node, e)
                   : false;
  e->result = node->outputs[0];
  return known;
}

bool rabbet_epilogue_parse(const rabbet_group_t* group,
                           const rabbet_dims_t* dims, size_t first_node,
                           int32_t start, rabbet_epilogue_t* out_epilogue) {
  rabbet_epilogue_t* e = out_epilogue;
  memset(e, 0, sizeof(*e));
  e->start = e->result = start;
  for (size_t i = first_node; i < group->node_count; ++i) {
    rabbet_swish_t swish = rabbet_group_swish(group, i, e->result);
    if (swish != RABBET_SWISH_NONE) {
      rabbet_dnnl_function_t function = swish == RABBET_SWISH_SIGMOID
                                            ? RABBET_DNNL_SWISH
                                            : RABBET_DNNL_HARDSWISH;
      if (!epilogue_push_function(e, function, 1, 0)) return false;
      e->result = group->nodes[++i].outputs[0];
    } else if (!epilogue_node(group, dims, &group->nodes[i], e)) {
      return false;
    }
  }
  return group->output_count == 1 && group->outputs[0] == e->result &&
         rabbet_dims_equal(&dims[start], &dims[e->result]);
}
