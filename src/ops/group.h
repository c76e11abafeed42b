// A connected group of layers that one kernel computes.
//
// Made by the builder, stored in plans, given to kernels: a small dataflow
// graph in which values are numbered and nodes come in order of execution.
#ifndef RABBET_SRC_OPS_GROUP_H_
#define RABBET_SRC_OPS_GROUP_H_

#include "base/strbuf.h"
#include "ops/op.h"
#include "plugin/plugin.h"

typedef struct rabbet_group_value_t {
  rabbet_dtype_t dtype;
  rabbet_format_t format;  // boundary values; LINEAR in meaning inside
  // Build: shapes of the profile, `dims` = opt. In a loaded plan only dims that
  // are constant are known (others -1), in min and max as well.
  rabbet_dims_t dims, min, max;
  // Host data of a constant in LINEAR, or NULL (also for one that is laid out
  // in another format). In a plan it points into the mapped file.
  const void* constant;
} rabbet_group_value_t;

typedef struct rabbet_group_node_t {
  const rabbet_op_t* op;
  const char* name;            // layer name
  const rabbet_attr_t* attrs;  // op->attr_count, in the descriptor's order
  const int32_t* inputs;       // value numbers; -1: omitted
  size_t input_count;
  const int32_t* outputs;
  size_t output_count;
  rabbet_plugin_t* plugin;  // plugin layers; retained by the group's owner
  // Plugin layers: the input (of this node) in whose place output i lies, or
  // -1. NULL: none.
  const int32_t* aliased;
} rabbet_group_node_t;

typedef struct rabbet_group_t {
  rabbet_group_value_t* values;
  size_t value_count;
  const int32_t* inputs;  // boundary: constants included, each value once
  size_t input_count;
  const int32_t* outputs;
  size_t output_count;
  rabbet_group_node_t* nodes;
  size_t node_count;
} rabbet_group_t;

// Value number of boundary tensor i: inputs, then outputs.
static inline int32_t rabbet_group_boundary(const rabbet_group_t* group,
                                            size_t i) {
  return i < group->input_count ? group->inputs[i]
                                : group->outputs[i - group->input_count];
}

// Whether all outputs are empty at `max`, so that no run computes an element.
// False for groups with plugins, which may have side effects.
RABBET_PRIVATE_API bool rabbet_group_makes_nothing(const rabbet_group_t* group);

// Whether the group only copies a tensor: one identity whose input and output
// have the same type and format.
RABBET_PRIVATE_API bool rabbet_group_is_copy(const rabbet_group_t* group);

// Whether the types of a node's tensors follow its operator's rule, as in a
// strongly typed network. The node is not a plugin layer.
RABBET_PRIVATE_API bool rabbet_group_types_fit(const rabbet_group_t* group,
                                               const rabbet_group_node_t* node);

// Appends the timing cache's key to the buffer: everything that determines the
// computation (operators, attributes, types, formats, shapes, wiring, which
// values are constant), without names and constants' data.
RABBET_PRIVATE_API rabbet_status_t rabbet_group_signature(
    const rabbet_group_t* group, bool* out_cacheable, rabbet_strbuf_t* buffer);

#endif  // RABBET_SRC_OPS_GROUP_H_
