#include "device/cuda/cublaslt/matmul_split.h"

#include <assert.h>
#include <math.h>
#include <string.h>

#include "device/common/node_kernel.h"
#include "ops/enums.h"

static rabbet_dims_t split_ones(int32_t rank) {
  rabbet_dims_t dims = {.rank = rank};
  for (int32_t i = 0; i < rank; ++i)
    dims.d[i] = 1;
  return dims;
}

// The node that makes the value.
static const rabbet_group_node_t* split_maker(const rabbet_group_t* group,
                                              int32_t value) {
  const rabbet_group_node_t* node = group->nodes;
  while (node->outputs[0] != value) {
    ++node;
    assert(node < group->nodes + group->node_count);
  }
  return node;
}

// The scales of x and of w, broadcast to the result: columns are the last axis.
static void split_scales(rabbet_matmul_split_t* split,
                         const rabbet_group_t* group,
                         const rabbet_group_node_t* product) {
  const rabbet_quantized_t* q = &split->quantized;
  const rabbet_group_node_t* x = split_maker(group, product->inputs[0]);
  const rabbet_group_node_t* w = split_maker(group, product->inputs[1]);
  int32_t rank = group->values[product->outputs[0]].dims.rank;
  rabbet_group_value_t* scale = &split->values[x->inputs[1]];
  rabbet_group_value_t* factor = &split->values[w->inputs[1]];
  scale->dims = scale->min = scale->max = split_ones(rank);
  factor->dims = split_ones(rank);
  if (rank > 0) factor->dims.d[rank - 1] = q->w_count;
  factor->min = factor->max = factor->dims;
  split->scale_inputs[0] = split->sums;
  split->scale_inputs[1] = x->inputs[1];
  split->factor_inputs[0] = split->scaled;
  split->factor_inputs[1] = w->inputs[1];
  split->nodes[0] = *x;
  split->nodes[0].inputs = split->scale_inputs;
  split->nodes[0].input_count = 2;
  split->nodes[0].outputs = &split->scaled;
  split->product_op = RABBET_ELEMENTWISE_PROD;
  split->elementwise[0] = (rabbet_attr_t){.name = "op",
                                          .type = RABBET_ATTR_INT,
                                          .data = &split->product_op,
                                          .count = 1};
  split->nodes[1] =
      (rabbet_group_node_t){.op = rabbet_op_get(RABBET_OP_ELEMENTWISE),
                            .name = product->name,
                            .attrs = split->elementwise,
                            .inputs = split->factor_inputs,
                            .input_count = 2,
                            .outputs = product->outputs,
                            .output_count = 1};
}

// Copies the group's nodes except for the product and the dequantizations of
// its factors.
static bool split_tail_nodes(rabbet_matmul_split_t* split,
                             const rabbet_group_t* group,
                             const rabbet_group_node_t* product) {
  rabbet_group_t* tail = &split->tail;
  tail->nodes = split->nodes;
  tail->node_count = 2;
  for (size_t i = 0; i < group->node_count; ++i) {
    const rabbet_group_node_t* node = &group->nodes[i];
    if (node == product || node->outputs[0] == product->inputs[0] ||
        node->outputs[0] == product->inputs[1])
      continue;
    if (tail->node_count == RABBET_MATMUL_TAIL_NODES) return false;
    split->nodes[tail->node_count++] = *node;
  }
  return true;
}

static void split_tail_inputs(rabbet_matmul_split_t* split,
                              const rabbet_group_t* group) {
  rabbet_group_t* tail = &split->tail;
  size_t count = 0;
  split->inputs[count] = split->sums;
  split->from[count++] = -1;
  for (size_t i = 0; i < group->input_count; ++i) {
    bool reads = false;
    for (size_t n = 0; n < tail->node_count; ++n)
      for (size_t k = 0; k < split->nodes[n].input_count; ++k)
        reads = reads || split->nodes[n].inputs[k] == group->inputs[i];
    if (!reads) continue;
    split->inputs[count] = group->inputs[i];
    split->from[count++] = (int32_t)i;
  }
  assert(count <= RABBET_MATMUL_TAIL_INPUTS);
  tail->inputs = split->inputs;
  tail->input_count = count;
  tail->outputs = group->outputs;
  tail->output_count = 1;
}

static void split_parts(rabbet_matmul_split_t* split,
                        const rabbet_group_t* group) {
  rabbet_quantized_t* q = &split->quantized;
  q->nodes[0].outputs = &split->sums;
  q->nodes[0].input_count = 2;
  split->product = (rabbet_group_t){.inputs = q->product_inputs,
                                    .input_count = 2,
                                    .outputs = &split->sums,
                                    .output_count = 1,
                                    .nodes = q->nodes,
                                    .node_count = 1};
  split->product.values = split->tail.values = split->values;
  split->product.value_count = split->tail.value_count =
      group->value_count + RABBET_MATMUL_SPLIT_VALUES;
}

// ---- One group -------------------------------------------------------------

// The product times the scales, then the other nodes without the quantization
// of the result. Its scale is multiplied into the others, since the functions
// in between commute with a positive factor.
static bool split_direct_nodes(rabbet_matmul_split_t* split) {
  const rabbet_quantized_t* q = &split->quantized;
  rabbet_group_t* direct = &split->direct;
  rabbet_group_node_t* nodes = split->direct_nodes;
  double alpha = q->x_scale * rabbet_quantized_w_scale(q, 0);
  if (q->scale != 0) alpha /= q->scale;
  split->alpha_number = (float)alpha;
  nodes[0] = q->nodes[0];
  nodes[1] = split->nodes[1];
  nodes[1].inputs = split->alpha_inputs;
  direct->nodes = nodes;
  direct->node_count = 2;
  for (size_t i = 1; i < q->plain.node_count; ++i) {
    const rabbet_group_node_t* node = &q->nodes[i];
    bool is_relu = rabbet_op_is(node->op, RABBET_OP_ACTIVATION) &&
                   rabbet_node_int(node, "type") == RABBET_ACTIVATION_RELU;
    if (q->scale != 0 && !is_relu) return false;
    nodes[direct->node_count++] = *node;
  }
  assert(direct->node_count <= RABBET_MATMUL_TAIL_NODES);
  rabbet_group_node_t* last = &nodes[direct->node_count - 1];
  if (q->scale != 0) {
    if (last->outputs[0] != q->output) return false;
    last->outputs = &split->quantized.result;
  }
  return isfinite(split->alpha_number) && split->alpha_number > 0;
}

static void split_direct_inputs(rabbet_matmul_split_t* split,
                                const rabbet_group_t* group) {
  const rabbet_quantized_t* q = &split->quantized;
  rabbet_group_t* direct = &split->direct;
  size_t count = 0;
  split->direct_inputs[count] = q->x;
  split->direct_from[count++] = rabbet_group_input_of(group, q->x);
  split->direct_inputs[count] = q->w;
  split->direct_from[count++] = rabbet_group_input_of(group, q->w);
  split->direct_inputs[count] = split->alpha;
  split->direct_from[count++] = -1;
  for (size_t i = 0; i < group->input_count; ++i) {
    bool reads = false;
    for (size_t n = 2; n < direct->node_count; ++n)
      for (size_t k = 0; k < split->direct_nodes[n].input_count; ++k)
        reads = reads || split->direct_nodes[n].inputs[k] == group->inputs[i];
    if (!reads || group->inputs[i] == q->x || group->inputs[i] == q->w)
      continue;
    split->direct_inputs[count] = group->inputs[i];
    split->direct_from[count++] = (int32_t)i;
  }
  assert(count <= RABBET_MATMUL_TAIL_INPUTS + 2);
  direct->inputs = split->direct_inputs;
  direct->input_count = count;
  direct->outputs = group->outputs;
  direct->output_count = 1;
}

// For products of FP8 with one scale per factor and no dequantized residual.
static void split_direct(rabbet_matmul_split_t* split,
                         const rabbet_group_t* group) {
  const rabbet_quantized_t* q = &split->quantized;
  rabbet_group_value_t* alpha = &split->values[split->alpha];
  if (group->values[q->x].dtype != RABBET_DTYPE_FP8 || q->w_count != 1 ||
      q->operand.value >= 0 || q->zero != 0 || !split_direct_nodes(split)) {
    split->direct.node_count = 0;
    return;
  }
  *alpha = split->values[split->scale_inputs[1]];
  alpha->dtype = RABBET_DTYPE_FLOAT;
  alpha->constant = &split->alpha_number;
  split->alpha_inputs[0] = split->sums;
  split->alpha_inputs[1] = split->alpha;
  split_direct_inputs(split, group);
  split->direct.values = split->values;
  split->direct.value_count = split->tail.value_count;
}

bool rabbet_matmul_split(const rabbet_group_t* group,
                         rabbet_group_value_t* values,
                         rabbet_matmul_split_t* split) {
  memset(split, 0, sizeof(*split));
  split->values = values;
  rabbet_quantized_t* q = &split->quantized;
  if (!rabbet_quantized_parse(group, RABBET_OP_MATRIX_MULTIPLY, q) ||
      q->x_zero != 0)
    return false;
  rabbet_dtype_t dtype = group->values[q->x].dtype;
  if (dtype != group->values[q->w].dtype ||
      (dtype != RABBET_DTYPE_INT8 && dtype != RABBET_DTYPE_FP8))
    return false;
  const rabbet_group_node_t* product =
      split_maker(group, q->nodes[0].outputs[0]);
  memcpy(values, group->values, group->value_count * sizeof(*values));
  split->sums = (int32_t)group->value_count;
  split->scaled = split->sums + 1;
  values[split->sums] = values[split->scaled] = values[product->outputs[0]];
  values[split->scaled].dtype = RABBET_DTYPE_FLOAT;
  values[split->sums].dtype =
      dtype == RABBET_DTYPE_INT8 ? RABBET_DTYPE_INT32 : RABBET_DTYPE_FLOAT;
  split_scales(split, group, product);
  bool fits = split_tail_nodes(split, group, product);
  split_tail_inputs(split, group);
  split_parts(split, group);
  split->alpha = split->scaled + 1;
  values[split->alpha] = values[split->scale_inputs[1]];
  split_direct(split, group);
  return fits;
}

rabbet_status_t rabbet_matmul_split_dims(const rabbet_matmul_split_t* split,
                                         const rabbet_group_t* group,
                                         const rabbet_dims_t* dims,
                                         rabbet_allocator_t allocator,
                                         rabbet_dims_t** out_dims) {
  RABBET_RETURN_IF_ERROR(rabbet_allocate(
      allocator,
      (group->value_count + RABBET_MATMUL_SPLIT_VALUES) * sizeof(rabbet_dims_t),
      (void**)out_dims));
  rabbet_dims_t* all = *out_dims;
  memcpy(all, dims, group->value_count * sizeof(*all));
  all[split->sums] = all[split->scaled] = dims[split->nodes[1].outputs[0]];
  all[split->scale_inputs[1]] = split->values[split->scale_inputs[1]].dims;
  all[split->factor_inputs[1]] = split->values[split->factor_inputs[1]].dims;
  all[split->alpha] = split->values[split->alpha].dims;
  return rabbet_ok();
}
