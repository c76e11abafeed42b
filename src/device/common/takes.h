// Common checks of the groups that a class takes (rabbet_kernel_class_t.takes).
#ifndef RABBET_SRC_DEVICE_COMMON_TAKES_H_
#define RABBET_SRC_DEVICE_COMMON_TAKES_H_

#include "device/kernel.h"

// Formats. Without these all tensors are LINEAR.
enum {
  // Of the first input and the first output, which have one.
  RABBET_TAKES_ONE_FORMAT = 1 << 0,
  // Of each of these two.
  RABBET_TAKES_FORMATS = 1 << 1,
  // Types. Without these flags the operator's rule for strongly typed networks
  // holds: some inputs must have equal types, for example. With this one only
  // the first input and the first output must have equal types.
  RABBET_TAKES_OTHER_TYPES = 1 << 2,
  RABBET_TAKES_ANY_TYPES = 1 << 3,
  // Outputs that nobody reads may be missing from the group's.
  RABBET_TAKES_UNREAD = 1 << 4,
};

// Whether the group is one node of the operator, in formats and types as
// `rules` say, and all its outputs leave the group.
bool rabbet_takes_node(const rabbet_group_t* group, rabbet_op_id_t op,
                       uint32_t rules);
// The part of it for groups of several nodes that work as one: of the first
// input of the first node, and of the group's first output.
bool rabbet_takes_tensors(const rabbet_group_t* group, uint32_t rules);
// Whether all tensors of the boundary are LINEAR.
bool rabbet_takes_linear(const rabbet_group_t* group);
// Whether the boundary's tensors are numbers of FLOAT, HALF or BF16.
bool rabbet_takes_reals(const rabbet_group_t* group);

// Defines id_takes.
#define RABBET_TAKES_NODE(id, op, rules)                          \
  static bool id##_takes(const rabbet_kernel_spec_t* spec) {      \
    return rabbet_takes_node(spec->group, RABBET_OP_##op, rules); \
  }

#endif  // RABBET_SRC_DEVICE_COMMON_TAKES_H_
