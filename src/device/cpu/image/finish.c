#include "device/cpu/image/finish.h"

#include <math.h>

#include "device/common/swish.h"
#include "ops/enums.h"

static bool finish_add(const rabbet_group_t* group,
                       const rabbet_group_node_t* node, int32_t result,
                       rabbet_cpu_finish_t* finish) {
  bool second = node->inputs[1] == result;
  int32_t operand = node->inputs[second ? 0 : 1];
  const rabbet_group_value_t* value = &group->values[operand];
  if (rabbet_node_int(node, "op") != RABBET_ELEMENTWISE_SUM ||
      finish->added >= 0 || operand == result || value->constant ||
      rabbet_group_input_of(group, operand) < 0 ||
      !rabbet_dims_equal(&value->dims, &group->values[result].dims))
    return false;
  finish->added = operand;
  return true;
}

static bool finish_bound(const rabbet_group_node_t* node,
                         rabbet_cpu_finish_t* finish) {
  switch (rabbet_node_int(node, "type")) {
    case RABBET_ACTIVATION_RELU:
      finish->of_sums.low = 0;
      return true;
    case RABBET_ACTIVATION_CLIP:
      finish->of_sums.low = (float)rabbet_attr_float(
          node->attrs, node->op->attr_count, "alpha", 0);
      finish->of_sums.high = (float)rabbet_attr_float(
          node->attrs, node->op->attr_count, "beta", 0);
      return finish->of_sums.low <= finish->of_sums.high;
    default:
      return false;
  }
}

bool rabbet_cpu_finish_parse(const rabbet_group_t* group,
                             rabbet_cpu_finish_t* out_finish) {
  rabbet_cpu_finish_t* f = out_finish;
  *f = (rabbet_cpu_finish_t){.added = -1,
                             .of_sums = {.low = -INFINITY, .high = INFINITY}};
  if (group->node_count == 0 || group->output_count != 1) return false;
  for (size_t i = 0; i < group->input_count + group->output_count; ++i)
    if (group->values[rabbet_group_boundary(group, i)].dtype !=
        RABBET_DTYPE_FLOAT)
      return false;
  int32_t result = group->nodes[0].outputs[0];
  size_t next = 1;
  if (rabbet_group_swish(group, next, result) == RABBET_SWISH_SIGMOID) {
    f->of_sums.gates = true;
    result = group->nodes[next + 1].outputs[0];
    next += 2;
  }
  for (bool bounded = false; next < group->node_count; ++next) {
    const rabbet_group_node_t* node = &group->nodes[next];
    bool reads = false;
    for (size_t k = 0; k < node->input_count; ++k)
      reads |= node->inputs[k] == result;
    if (!reads || bounded || node->output_count != 1) return false;
    if (rabbet_op_is(node->op, RABBET_OP_ACTIVATION))
      bounded = finish_bound(node, f);
    if (!bounded && (!rabbet_op_is(node->op, RABBET_OP_ELEMENTWISE) ||
                     !finish_add(group, node, result, f)))
      return false;
    result = node->outputs[0];
  }
  return group->outputs[0] == result;
}

static rabbet_format_t finish_format(const rabbet_group_t* group,
                                     const rabbet_cpu_finish_t* finish,
                                     int32_t value, rabbet_format_t format) {
  return value == group->nodes[0].inputs[0] || value == group->outputs[0] ||
                 value == finish->added
             ? format
             : RABBET_FORMAT_LINEAR;
}

bool rabbet_cpu_finish_formats(const rabbet_group_t* group,
                               const rabbet_cpu_finish_t* finish,
                               rabbet_format_t format) {
  for (size_t i = 0; i < group->input_count + group->output_count; ++i) {
    int32_t value = rabbet_group_boundary(group, i);
    if (group->values[value].format !=
        finish_format(group, finish, value, format))
      return false;
  }
  return true;
}

rabbet_status_t rabbet_cpu_finish_offer(rabbet_proposal_t* proposal,
                                        const rabbet_cpu_finish_t* finish,
                                        rabbet_format_t format,
                                        const char* tactic_name) {
  const rabbet_group_t* group = proposal->propose->group;
  for (size_t i = 0; i < group->input_count + group->output_count; ++i)
    proposal->tensors[i].format =
        finish_format(group, finish, rabbet_group_boundary(group, i), format);
  return rabbet_proposal_offer(proposal, tactic_name, -1);
}

const float* rabbet_cpu_finish_added(const rabbet_group_t* group,
                                     const rabbet_cpu_finish_t* finish,
                                     const rabbet_kernel_call_t* call) {
  return finish->added < 0
             ? NULL
             : call->inputs[rabbet_group_input_of(group, finish->added)];
}

rabbet_status_t rabbet_cpu_finish_check(const rabbet_group_t* group,
                                        const rabbet_cpu_finish_t* finish,
                                        const rabbet_dims_t* dims) {
  if (finish->added < 0 ||
      rabbet_dims_equal(&dims[finish->added], &dims[group->outputs[0]]))
    return rabbet_ok();
  return RABBET_STATUS(RABBET_STATUS_UNSUPPORTED,
                       "the operators after convolution '%s' cannot be fused "
                       "at these shapes",
                       group->nodes[0].name);
}
