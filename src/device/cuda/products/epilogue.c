#include "device/cuda/products/epilogue.h"

#include <assert.h>
#include <string.h>

#include "core/view.h"
#include "device/common/swish.h"
#include "ops/enums.h"

bool rabbet_cuda_is_number(const rabbet_group_t* group, int32_t value,
                           double* out_number) {
  const rabbet_group_value_t* constant = &group->values[value];
  if (!constant->constant) return false;
  for (int32_t i = 0; i < constant->dims.rank; ++i)
    if (constant->dims.d[i] != 1) return false;
  assert(rabbet_dtype_bits(constant->dtype) >= 4);
  *out_number = rabbet_load_double(constant->dtype, constant->constant, 0);
  return true;
}

static float epilogue_float(const rabbet_group_node_t* node, const char* name) {
  return (float)rabbet_attr_float(node->attrs, node->op->attr_count, name, 0);
}

bool rabbet_cuda_epilogue_item(const rabbet_group_t* group,
                               const rabbet_group_node_t* node, int32_t x,
                               rabbet_cuda_item_t* out) {
  *out = (rabbet_cuda_item_t){.operand = -1};
  if (rabbet_op_is(node->op, RABBET_OP_ACTIVATION)) {
    out->kind = RABBET_CUDA_ITEM_ACTIVATION;
    out->op = rabbet_node_int(node, "type");
    out->alpha = epilogue_float(node, "alpha");
    out->beta = epilogue_float(node, "beta");
    return true;
  }
  if (rabbet_op_is(node->op, RABBET_OP_UNARY)) {
    out->kind = RABBET_CUDA_ITEM_UNARY;
    out->op = rabbet_node_int(node, "op");
    return true;
  }
  if (!rabbet_op_is(node->op, RABBET_OP_ELEMENTWISE)) return false;
  out->kind = RABBET_CUDA_ITEM_ELEMENTWISE;
  out->op = rabbet_node_int(node, "op");
  out->reversed = node->inputs[1] == x;
  out->operand = node->inputs[out->reversed ? 0 : 1];
  return out->operand >= 0 && out->operand != x &&
         rabbet_group_input_of(group, out->operand) >= 0;
}

static bool epilogue_push(const rabbet_group_t* group,
                          const rabbet_group_node_t* node, int32_t start,
                          rabbet_cuda_epilogue_t* e) {
  int uses = 0;
  for (size_t i = 0; i < node->input_count; ++i)
    uses += node->inputs[i] == e->result;
  if (uses != 1 || node->output_count != 1 ||
      e->count == RABBET_CUDA_EPILOGUE_MAX ||
      !rabbet_dtype_is_float(group->values[node->outputs[0]].dtype) ||
      !rabbet_dtype_is_float(group->values[start].dtype) ||
      !rabbet_cuda_epilogue_item(group, node, e->result, &e->items[e->count]))
    return false;
  ++e->count;
  e->result = node->outputs[0];
  return true;
}

bool rabbet_cuda_epilogue_parse(const rabbet_group_t* group,
                                const rabbet_dims_t* dims, size_t first_node,
                                int32_t start,
                                rabbet_cuda_epilogue_t* out_epilogue) {
  rabbet_cuda_epilogue_t* e = out_epilogue;
  memset(e, 0, sizeof(*e));
  e->result = start;
  for (size_t i = first_node; i < group->node_count; ++i) {
    if (rabbet_group_swish(group, i, e->result) == RABBET_SWISH_SIGMOID) {
      if (e->count == RABBET_CUDA_EPILOGUE_MAX) return false;
      e->items[e->count++] =
          (rabbet_cuda_item_t){.kind = RABBET_CUDA_ITEM_SWISH, .operand = -1};
      e->result = group->nodes[++i].outputs[0];
    } else if (!epilogue_push(group, &group->nodes[i], start, e)) {
      return false;
    }
  }
  return group->output_count == 1 && group->outputs[0] == e->result &&
         rabbet_dims_equal(&dims[start], &dims[e->result]);
}
