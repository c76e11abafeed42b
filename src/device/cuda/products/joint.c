#include "device/cuda/products/joint.h"

#include <string.h>

#include "device/common/normalization.h"
#include "device/cuda/products/epilogue.h"
#include "ops/enums.h"

enum { PRODUCTS = 2 };

// ---- The normalization -----------------------------------------------------

static bool joint_is(const rabbet_group_node_t* node, rabbet_op_id_t op) {
  return rabbet_op_is(node->op, op);
}

// A number for each element of the last axis, whose extent a loaded plan may
// not tell. It is not 1, so that the operator's rule says that both agree.
static bool joint_is_line(const rabbet_group_value_t* value,
                          const rabbet_group_value_t* x) {
  int32_t last = x->dims.rank - 1;
  if (value->dims.rank != last + 1) return false;
  for (int32_t i = 0; i < last; ++i)
    if (value->dims.d[i] != 1) return false;
  int64_t own = value->dims.d[last], extent = x->dims.d[last];
  return own > 1 && (own == extent || extent < 0);
}

// An RMS normalization over the last axis of a boundary input.
static bool joint_normalization(const rabbet_group_t* group,
                                const rabbet_group_node_t* node,
                                rabbet_cuda_normalized_t* out) {
  int32_t x = node->inputs[RABBET_NORMALIZE_INPUT];
  const rabbet_group_value_t* value = &group->values[x];
  out->scale = rabbet_node_input(node, RABBET_NORMALIZE_SCALE);
  out->epsilon =
      (float)rabbet_attr_float(node->attrs, node->op->attr_count, "epsilon", 0);
  return rabbet_node_int(node, "is_rms") != 0 &&
         rabbet_node_int(node, "num_groups") == 1 && value->dims.rank > 0 &&
         rabbet_node_int(node, "axes") == INT64_C(1)
                                              << (value->dims.rank - 1) &&
         rabbet_node_input(node, RABBET_NORMALIZE_BIAS) < 0 &&
         rabbet_group_input_of(group, x) >= 0 && out->scale != x &&
         (out->scale < 0 || (rabbet_group_input_of(group, out->scale) >= 0 &&
                             joint_is_line(&group->values[out->scale], value)));
}

// Copies the node, which reads `from` as the rows of a product or not at all.
// No node reads the scale, whose type may be another, and no product the rows
// before they are normalized.
static bool joint_take(const rabbet_group_node_t* node, int32_t from,
                       int32_t to, size_t* products,
                       rabbet_cuda_normalized_t* out) {
  rabbet_group_node_t* own = &out->nodes[out->plain.node_count++];
  *own = *node;
  for (size_t i = 0; i < node->input_count; ++i)
    if ((i > 0 && node->inputs[i] == from) ||
        (out->scale >= 0 && node->inputs[i] == out->scale))
      return false;
  bool is_product = joint_is(node, RABBET_OP_MATRIX_MULTIPLY);
  if (node->input_count == 0 || node->inputs[0] != from)
    return !is_product || node->inputs[0] != to;
  if (!is_product || *products == PRODUCTS ||
      rabbet_node_int(node, "op0") != RABBET_MATRIX_NONE)
    return false;
  int32_t* inputs = out->inputs[(*products)++];
  inputs[0] = to;
  inputs[1] = node->inputs[1];
  own->inputs = inputs;
  return true;
}

bool rabbet_cuda_normalized_parse(const rabbet_group_t* group,
                                  rabbet_cuda_normalized_t* out) {
  const rabbet_group_node_t* found = NULL;
  size_t products = 0;
  memset(out, 0, sizeof(*out));
  out->scale = -1;
  out->plain = *group;
  for (size_t i = 0; i < group->node_count && !found; ++i)
    if (joint_is(&group->nodes[i], RABBET_OP_NORMALIZATION))
      found = &group->nodes[i];
  if (!found) return true;
  if (group->node_count > RABBET_CUDA_JOINT_NODES ||
      !joint_normalization(group, found, out) ||
      group->outputs[0] == found->outputs[0])
    return false;
  out->is_normalized = true;
  out->plain.nodes = out->nodes;
  out->plain.node_count = 0;
  for (size_t i = 0; i < group->node_count; ++i)
    if (&group->nodes[i] != found &&
        !joint_take(&group->nodes[i], found->outputs[0],
                    found->inputs[RABBET_NORMALIZE_INPUT], &products, out))
      return false;
  return products > 0;
}

// ---- The pair --------------------------------------------------------------

bool rabbet_cuda_epilogue_operand(const rabbet_group_t* group,
                                  const rabbet_dims_t* dims, int32_t value,
                                  int* out_operand) {
  rabbet_cuda_epilogue_t e;
  int operands = 0, uses = 0;
  *out_operand = -1;
  if (!rabbet_cuda_epilogue_parse(group, dims, 1, group->nodes[0].outputs[0],
                                  &e))
    return false;
  for (int i = 0; i < e.count; ++i) {
    if (e.items[i].operand == value) {
      *out_operand = operands;
      ++uses;
    }
    operands += e.items[i].operand >= 0;
  }
  return uses == 1;
}

// The places of the group's products, first the one with which the epilogue
// begins: the one that the first other node reads. Returns their number.
static size_t joint_products(const rabbet_group_t* group,
                             size_t places[PRODUCTS]) {
  size_t count = 0;
  for (size_t i = 0; i < group->node_count; ++i)
    if (joint_is(&group->nodes[i], RABBET_OP_MATRIX_MULTIPLY)) {
      if (count == PRODUCTS) return PRODUCTS + 1;
      places[count++] = i;
    }
  if (count < PRODUCTS) return count;
  if (rabbet_group_reads_first(group, group->nodes[places[0]].outputs[0],
                               group->nodes[places[1]].outputs[0]))
    return count;
  size_t first = places[1];
  places[1] = places[0];
  places[0] = first;
  return count;
}

static bool joint_agree(const rabbet_group_t* group,
                        const rabbet_group_node_t* a,
                        const rabbet_group_node_t* b) {
  const rabbet_group_value_t *v = &group->values[a->inputs[1]],
                             *w = &group->values[b->inputs[1]];
  return a->inputs[0] == b->inputs[0] && a->inputs[1] != b->inputs[1] &&
         a->inputs[0] != a->inputs[1] && b->inputs[0] != b->inputs[1] &&
         rabbet_node_int(a, "op0") == rabbet_node_int(b, "op0") &&
         rabbet_node_int(a, "op1") == rabbet_node_int(b, "op1") &&
         rabbet_dims_equal(&v->dims, &w->dims) &&
         rabbet_dims_equal(&v->max, &w->max) &&
         rabbet_group_input_of(group, b->inputs[1]) >= 0;
}

bool rabbet_cuda_pair_parse(const rabbet_group_t* group,
                            const rabbet_dims_t* dims,
                            rabbet_cuda_pair_t* out) {
  size_t places[PRODUCTS];
  memset(out, 0, sizeof(*out));
  out->weights = out->result = out->other = -1;
  out->plain = *group;
  size_t count = joint_products(group, places);
  if (count < PRODUCTS) return true;
  const rabbet_group_node_t *first = &group->nodes[places[0]],
                            *second = &group->nodes[places[1]];
  if (count > PRODUCTS || group->node_count > RABBET_CUDA_JOINT_NODES ||
      group->input_count >= RABBET_CUDA_JOINT_INPUTS ||
      !joint_agree(group, first, second))
    return false;
  out->weights = second->inputs[1];
  out->result = second->outputs[0];
  memcpy(out->inputs, group->inputs, group->input_count * sizeof(*out->inputs));
  out->inputs[group->input_count] = out->result;
  out->plain.nodes = out->nodes;
  out->plain.node_count = 0;
  out->nodes[out->plain.node_count++] = *first;
  for (size_t i = 0; i < group->node_count; ++i)
    if (i != places[0] && i != places[1])
      out->nodes[out->plain.node_count++] = group->nodes[i];
  out->plain.inputs = out->inputs;
  ++out->plain.input_count;
  return rabbet_cuda_epilogue_operand(&out->plain, dims, out->result,
                                      &out->other);
}
