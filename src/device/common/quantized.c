#include "device/common/quantized.h"

#include <assert.h>
#include <math.h>
#include <string.h>

#include "ops/enums.h"

// ---- Scales ----------------------------------------------------------------

// The only axis of the constant with more than one element; -1: none. False if
// there are several, or if an element is not a positive number.
static bool quantized_axis(const rabbet_group_value_t* scale, int* out_axis,
                           int64_t* out_count) {
  *out_axis = -1;
  *out_count = 1;
  if (!scale->constant) return false;
  for (int32_t i = 0; i < scale->dims.rank; ++i) {
    if (scale->dims.d[i] == 1) continue;
    if (*out_axis >= 0) return false;
    *out_axis = i;
    *out_count = scale->dims.d[i];
  }
  for (int64_t i = 0; i < *out_count; ++i) {
    double number = rabbet_load_double(scale->dtype, scale->constant, i);
    if (!(number > 0) || !isfinite(number)) return false;
  }
  return true;
}

bool rabbet_quantized_number(const rabbet_group_t* group, int32_t value,
                             double* out_number) {
  const rabbet_group_value_t* scale = &group->values[value];
  int axis = -1;
  int64_t count = 0;
  if (!quantized_axis(scale, &axis, &count) || count != 1) return false;
  *out_number = rabbet_load_double(scale->dtype, scale->constant, 0);
  return true;
}

static bool quantized_has_zero_point(const rabbet_group_node_t* node) {
  return node->input_count > 2 && node->inputs[2] >= 0;
}

bool rabbet_quantized_zero(const rabbet_group_t* group,
                           const rabbet_group_node_t* node, int32_t* out_zero) {
  *out_zero = 0;
  if (!quantized_has_zero_point(node)) return true;
  const rabbet_group_value_t* zero = &group->values[node->inputs[2]];
  for (int32_t i = 0; i < zero->dims.rank; ++i)
    if (zero->dims.d[i] != 1) return false;
  if (!zero->constant || zero->dtype == RABBET_DTYPE_FP8) return false;
  *out_zero = (int32_t)rabbet_load_int64(zero->dtype, zero->constant, 0);
  return true;
}

// ---- Nodes -----------------------------------------------------------------

static bool quantized_is_dequantize(const rabbet_group_t* group,
                                    const rabbet_group_node_t* node) {
  return rabbet_op_is(node->op, RABBET_OP_DEQUANTIZE) &&
         rabbet_dtype_bits(group->values[node->inputs[0]].dtype) == 8 &&
         rabbet_group_input_of(group, node->inputs[0]) >= 0;
}

const rabbet_group_node_t* rabbet_quantized_maker(const rabbet_group_t* group,
                                                  int32_t value) {
  for (size_t i = 0; i < group->node_count; ++i) {
    const rabbet_group_node_t* node = &group->nodes[i];
    if (node->outputs[0] == value)
      return quantized_is_dequantize(group, node) ? node : NULL;
  }
  return NULL;
}

// The axis of the second factor that is the result's channels.
static int quantized_channel_axis(const rabbet_group_node_t* product,
                                  int32_t rank) {
  if (rabbet_op_is(product->op, RABBET_OP_CONVOLUTION)) return 0;
  int64_t op =
      rabbet_attr_int(product->attrs, product->op->attr_count, "op1", 0);
  return op == RABBET_MATRIX_NONE        ? rank - 1
         : op == RABBET_MATRIX_TRANSPOSE ? rank - 2
                                         : -1;
}

bool rabbet_quantized_factors(const rabbet_group_t* group,
                              const rabbet_group_node_t* product,
                              rabbet_quantized_t* q) {
  const rabbet_group_node_t* x =
      rabbet_quantized_maker(group, product->inputs[0]);
  const rabbet_group_node_t* w =
      rabbet_quantized_maker(group, product->inputs[1]);
  int axis = -1;
  if (!x || !w || x == w || quantized_has_zero_point(w) ||
      !rabbet_quantized_zero(group, x, &q->x_zero) ||
      !rabbet_quantized_number(group, x->inputs[1], &q->x_scale) ||
      !quantized_axis(&group->values[w->inputs[1]], &axis, &q->w_count))
    return false;
  q->x = x->inputs[0];
  q->w = w->inputs[0];
  q->w_scale = &group->values[w->inputs[1]];
  return axis < 0 ||
         axis == quantized_channel_axis(product, group->values[q->w].dims.rank);
}

static bool quantized_result(const rabbet_group_t* group,
                             const rabbet_group_node_t* node,
                             rabbet_quantized_t* q) {
  if (!rabbet_quantized_zero(group, node, &q->zero) || q->scale != 0 ||
      node->outputs[0] != group->outputs[0] ||
      !rabbet_quantized_number(group, node->inputs[1], &q->scale))
    return false;
  q->output = node->inputs[0];
  return true;
}

static bool quantized_operand(const rabbet_group_t* group,
                              const rabbet_group_node_t* node,
                              rabbet_quantized_t* q) {
  if (q->operand.value >= 0 || !quantized_is_dequantize(group, node) ||
      quantized_has_zero_point(node) ||
      !rabbet_quantized_number(group, node->inputs[1], &q->operand.scale))
    return false;
  q->operand.value = node->inputs[0];
  q->operand.real = node->outputs[0];
  return true;
}

// Checks all nodes but the product and the dequantizations of its factors.
static bool quantized_others(const rabbet_group_t* group,
                             const rabbet_group_node_t* product,
                             rabbet_quantized_t* q) {
  for (size_t i = 0; i < group->node_count; ++i) {
    const rabbet_group_node_t* node = &group->nodes[i];
    if (node == product || node->outputs[0] == product->inputs[0] ||
        node->outputs[0] == product->inputs[1])
      continue;
    if (rabbet_op_is(node->op, RABBET_OP_DEQUANTIZE)) {
      if (!quantized_operand(group, node, q)) return false;
    } else if (rabbet_op_is(node->op, RABBET_OP_QUANTIZE)) {
      if (!quantized_result(group, node, q)) return false;
    } else if (q->plain.node_count == RABBET_QUANTIZED_NODES) {
      return false;
    } else {
      q->nodes[q->plain.node_count++] = *node;
    }
  }
  return true;
}

const rabbet_group_node_t* rabbet_quantized_product(const rabbet_group_t* group,
                                                    rabbet_op_id_t op) {
  const rabbet_group_node_t* product = NULL;
  for (size_t i = 0; i < group->node_count; ++i) {
    if (group->nodes[i].output_count != 1) return NULL;
    if (!rabbet_op_is(group->nodes[i].op, op)) continue;
    if (product) return NULL;
    product = &group->nodes[i];
  }
  return product;
}

static void quantized_plain(const rabbet_group_t* group,
                            rabbet_quantized_t* q) {
  size_t count = 0;
  for (; count < group->input_count; ++count)
    q->inputs[count] = group->inputs[count];
  if (q->operand.value >= 0) q->inputs[count++] = q->operand.real;
  assert(count <= RABBET_QUANTIZED_INPUTS);
  q->plain.values = group->values;
  q->plain.value_count = group->value_count;
  q->plain.inputs = q->inputs;
  q->plain.input_count = count;
  q->plain.outputs = &q->output;
  q->plain.output_count = 1;
  q->plain.nodes = q->nodes;
}

bool rabbet_quantized_parse(const rabbet_group_t* group, rabbet_op_id_t op,
                            rabbet_quantized_t* out_quantized) {
  rabbet_quantized_t* q = out_quantized;
  memset(q, 0, sizeof(*q));
  const rabbet_group_node_t* product = rabbet_quantized_product(group, op);
  if (!product || group->node_count < 3 || group->output_count != 1 ||
      group->input_count >= RABBET_QUANTIZED_INPUTS ||
      product->input_count > 3 || !rabbet_quantized_factors(group, product, q))
    return false;
  q->operand.value = q->operand.real = -1;
  q->result = q->output = group->outputs[0];
  q->nodes[0] = *product;
  memcpy(q->product_inputs, product->inputs,
         product->input_count * sizeof(int32_t));
  q->product_inputs[0] = q->x;
  q->product_inputs[1] = q->w;
  q->nodes[0].inputs = q->product_inputs;
  q->plain.node_count = 1;
  if (!quantized_others(group, product, q)) return false;
  quantized_plain(group, q);
  assert(q->plain.node_count <= RABBET_QUANTIZED_NODES);
  assert(q->x_scale > 0 && q->scale >= 0);
  return true;
}
