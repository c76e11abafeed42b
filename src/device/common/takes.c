#include "device/common/takes.h"

#include <assert.h>

#include "device/common/node_kernel.h"

bool rabbet_takes_tensors(const rabbet_group_t* group, uint32_t rules) {
  // A group has one rule for formats and one for types.
  assert((rules & RABBET_TAKES_ONE_FORMAT) == 0 ||
         (rules & RABBET_TAKES_FORMATS) == 0);
  assert((rules & RABBET_TAKES_OTHER_TYPES) == 0 ||
         (rules & RABBET_TAKES_ANY_TYPES) == 0);
  int32_t in = rabbet_node_input(&group->nodes[0], 0);
  const rabbet_group_value_t* y = &group->values[group->outputs[0]];
  const rabbet_group_value_t* x = in >= 0 ? &group->values[in] : y;
  bool formats =
      (rules & (RABBET_TAKES_ONE_FORMAT | RABBET_TAKES_FORMATS)) != 0;
  for (size_t i = 0; i < group->input_count + group->output_count; ++i) {
    const rabbet_group_value_t* value =
        &group->values[rabbet_group_boundary(group, i)];
    if (value->format != RABBET_FORMAT_LINEAR &&
        !(formats && (value == x || value == y)))
      return false;
  }
  if (rules & RABBET_TAKES_ONE_FORMAT && x->format != y->format) return false;
  return !(rules & RABBET_TAKES_OTHER_TYPES) || x->dtype == y->dtype;
}

bool rabbet_takes_node(const rabbet_group_t* group, rabbet_op_id_t op,
                       uint32_t rules) {
  if (!rabbet_node_is(group, op)) return false;
  const rabbet_group_node_t* node = &group->nodes[0];
  for (size_t i = 0; i < node->output_count; ++i)
    if (!(rules & RABBET_TAKES_UNREAD) &&
        rabbet_node_output_of(group, node, i) < 0)
      return false;
  if (!rabbet_takes_tensors(group, rules)) return false;
  return rules & (RABBET_TAKES_OTHER_TYPES | RABBET_TAKES_ANY_TYPES) ||
         rabbet_group_types_fit(group, node);
}

bool rabbet_takes_linear(const rabbet_group_t* group) {
  for (size_t i = 0; i < group->input_count + group->output_count; ++i)
    if (group->values[rabbet_group_boundary(group, i)].format !=
        RABBET_FORMAT_LINEAR)
      return false;
  return true;
}

bool rabbet_takes_reals(const rabbet_group_t* group) {
  const uint32_t reals = 1u << RABBET_DTYPE_FLOAT | 1u << RABBET_DTYPE_HALF |
                         1u << RABBET_DTYPE_BF16;
  for (size_t i = 0; i < group->input_count + group->output_count; ++i)
    if (!(reals >> group->values[rabbet_group_boundary(group, i)].dtype & 1))
      return false;
  return true;
}
