// Common checks for rabbet_kernel_class_t.takes.
#ifndef RABBET_SRC_DEVICE_COMMON_TAKES_H_
#define RABBET_SRC_DEVICE_COMMON_TAKES_H_

#include "device/kernel.h"

// Formats. Without these flags all tensors must be LINEAR.
enum {
  // The first input and the first output may have any one format.
  RABBET_TAKES_ONE_FORMAT = 1 << 0,
  // These two may have different formats.
  RABBET_TAKES_FORMATS = 1 << 1,
  // Types. Without these flags the operator's rule for strongly typed networks
  // holds: some inputs must have equal types, for example. With this one only
  // the first input and the first output must have equal types.
  RABBET_TAKES_OTHER_TYPES = 1 << 2,
  RABBET_TAKES_ANY_TYPES = 1 << 3,
  // Unused outputs may be missing from the group's outputs.
  RABBET_TAKES_UNREAD = 1 << 4,
};

// Whether the group is one node of the operator with all its outputs, in
// formats and types that `rules` allow.
bool rabbet_takes_node(const rabbet_group_t* group, rabbet_op_id_t op,
                       uint32_t rules);
// The checks of types and formats alone, for groups of several nodes: of the
// first node's first input and of the group's first output.
bool rabbet_takes_tensors(const rabbet_group_t* group, uint32_t rules);
// Whether all tensors of the boundary are LINEAR.
bool rabbet_takes_linear(const rabbet_group_t* group);
// Whether all tensors of the boundary are FLOAT, HALF or BF16.
bool rabbet_takes_reals(const rabbet_group_t* group);

// Defines id_takes.
#define RABBET_TAKES_NODE(id, op, rules)                          \
  static bool id##_takes(const rabbet_kernel_spec_t* spec) {      \
    return rabbet_takes_node(spec->group, RABBET_OP_##op, rules); \
  }

#endif  // RABBET_SRC_DEVICE_COMMON_TAKES_H_
