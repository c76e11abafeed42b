#include "ops/group.h"

#include <assert.h>
#include <string.h>

// A signature is a readable text. Separators and lengths make the signatures of
// different groups different.

static void signature_int(rabbet_strbuf_t* buffer, int64_t value) {
  rabbet_strbuf_integer(buffer, value);
  rabbet_strbuf_append(buffer, ",", 1);
}

// The length comes first, so that the bytes may be any.
static void signature_bytes(rabbet_strbuf_t* buffer, const void* data,
                            size_t size) {
  rabbet_strbuf_integer(buffer, (int64_t)size);
  rabbet_strbuf_append(buffer, ":", 1);
  if (size > 0) rabbet_strbuf_append(buffer, data, size);
}

static void signature_text(rabbet_strbuf_t* buffer, const char* text) {
  signature_bytes(buffer, text ? text : "", text ? strlen(text) : 0);
}

static void signature_dims(rabbet_strbuf_t* buffer, const rabbet_dims_t* dims) {
  signature_int(buffer, dims->rank);
  for (int32_t i = 0; i < dims->rank; ++i) {
    signature_int(buffer, dims->d[i]);
  }
}

static void signature_list(rabbet_strbuf_t* buffer, const char* label,
                           const int32_t* numbers, size_t count) {
  rabbet_strbuf_printf(buffer, "%s%zu:", label, count);
  for (size_t i = 0; i < count; ++i) {
    signature_int(buffer, numbers[i]);
  }
}

// `with_data`: also the data of tensors, which an operator's speed does not
// depend on, but a plugin's may.
static void signature_attr(rabbet_strbuf_t* buffer, const rabbet_attr_t* attr,
                           bool with_data) {
  signature_text(buffer, attr->name);
  signature_int(buffer, attr->type);
  if (attr->type == RABBET_ATTR_TENSOR) {
    signature_int(buffer, attr->dtype);
    signature_dims(buffer, &attr->dims);
    if (!with_data) return;
  }
  signature_bytes(buffer, attr->data, rabbet_attr_bytes(attr));
}

static void signature_value(rabbet_strbuf_t* buffer,
                            const rabbet_group_value_t* value) {
  rabbet_strbuf_printf(
      buffer, "value(%s,%s,%s,", rabbet_dtype_name(value->dtype),
      rabbet_format_name(value->format), value->constant ? "constant" : "");
  signature_dims(buffer, &value->dims);
  signature_dims(buffer, &value->min);
  signature_dims(buffer, &value->max);
  rabbet_strbuf_printf(buffer, ")");
}

static rabbet_status_t signature_add(void* context, const rabbet_attr_t* attr) {
  signature_attr(context, attr, true);
  return rabbet_ok();
}

static rabbet_status_t signature_plugin(rabbet_strbuf_t* buffer,
                                        rabbet_plugin_t* plugin,
                                        bool* cacheable) {
  const rabbet_plugin_creator_t* creator = rabbet_plugin_creator(plugin);
  signature_text(buffer, creator->plugin_namespace);
  signature_text(buffer, creator->name);
  signature_text(buffer, creator->version ? creator->version : "1");
  bool has_key = false;
  RABBET_RETURN_IF_ERROR(rabbet_plugin_timing_key(
      plugin,
      (rabbet_plugin_attr_sink_t){.context = buffer, .add = signature_add},
      &has_key));
  if (!has_key) *cacheable = false;
  return rabbet_ok();
}

static rabbet_status_t signature_node(rabbet_strbuf_t* buffer,
                                      const rabbet_group_node_t* node,
                                      bool* cacheable) {
  rabbet_strbuf_printf(buffer, "node(%s,", node->op->name);
  for (size_t i = 0; i < node->op->attr_count; ++i) {
    signature_attr(buffer, &node->attrs[i], false);
  }
  signature_list(buffer, "in", node->inputs, node->input_count);
  signature_list(buffer, "out", node->outputs, node->output_count);
  rabbet_status_t status = rabbet_ok();
  if (node->plugin) {
    status = signature_plugin(buffer, node->plugin, cacheable);
  }
  rabbet_strbuf_printf(buffer, ")");
  return RABBET_ANNOTATE(status, "layer '%s'", node->name);
}

rabbet_status_t rabbet_group_signature(const rabbet_group_t* group,
                                       bool* out_cacheable,
                                       rabbet_strbuf_t* buffer) {
  *out_cacheable = true;
  for (size_t i = 0; i < group->value_count; ++i) {
    signature_value(buffer, &group->values[i]);
  }
  signature_list(buffer, "inputs", group->inputs, group->input_count);
  signature_list(buffer, "outputs", group->outputs, group->output_count);
  for (size_t i = 0; i < group->node_count; ++i) {
    RABBET_RETURN_IF_ERROR(
        signature_node(buffer, &group->nodes[i], out_cacheable));
  }
  return rabbet_strbuf_status(buffer);
}

bool rabbet_group_is_copy(const rabbet_group_t* group) {
  if (group->node_count != 1 || group->input_count != 1 ||
      group->output_count != 1 ||
      !rabbet_op_is(group->nodes[0].op, RABBET_OP_IDENTITY))
    return false;
  const rabbet_group_value_t* from = &group->values[group->inputs[0]];
  const rabbet_group_value_t* to = &group->values[group->outputs[0]];
  return from->dtype == to->dtype && from->format == to->format;
}

bool rabbet_group_makes_nothing(const rabbet_group_t* group) {
  for (size_t i = 0; i < group->node_count; ++i)
    if (group->nodes[i].plugin) return false;
  for (size_t i = 0; i < group->output_count; ++i) {
    const rabbet_dims_t* max = &group->values[group->outputs[i]].max;
    bool empty = false;
    for (int32_t axis = 0; axis < max->rank; ++axis)
      empty |= max->d[axis] == 0;
    if (!empty) return false;
  }
  return group->output_count > 0;
}

// ---- Types

// Operators without variadic inputs have fewer.
#define RABBET_GROUP_TYPES_INPUTS 16
#define RABBET_GROUP_TYPES_OUTPUTS 4

static rabbet_op_value_t group_typed(const rabbet_group_t* group,
                                     int32_t value) {
  if (value < 0) return (rabbet_op_value_t){.dtype = RABBET_DTYPE_NONE};
  return (rabbet_op_value_t){.present = true,
                             .dtype = group->values[value].dtype};
}

// Calls the type rule with input 0 and `count` inputs from `first` on.
static bool group_some_types_fit(const rabbet_group_t* group,
                                 const rabbet_group_node_t* node, size_t first,
                                 size_t count) {
  rabbet_op_value_t inputs[RABBET_GROUP_TYPES_INPUTS] = {0};
  rabbet_op_value_t outputs[RABBET_GROUP_TYPES_OUTPUTS] = {0};
  assert(1 + count <= RABBET_GROUP_TYPES_INPUTS);
  assert(first + count <= node->input_count || count == 0);
  if (node->input_count > 0) inputs[0] = group_typed(group, node->inputs[0]);
  for (size_t i = 0; i < count; ++i)
    inputs[1 + i] = group_typed(group, node->inputs[first + i]);
  for (size_t i = 0; i < node->output_count; ++i)
    outputs[i].dtype = group->values[node->outputs[i]].dtype;
  const rabbet_op_infer_t infer = {
      .op = node->op,
      .attrs = node->attrs,
      .attr_count = node->op->attr_count,
      .inputs = inputs,
      .input_count = node->input_count > 0 ? 1 + count : 0,
      .outputs = outputs,
      .output_count = node->output_count};
  rabbet_status_t status = rabbet_op_infer_types(&infer);
  bool fits = rabbet_is_ok(status);
  rabbet_status_ignore(status);
  for (size_t i = 0; fits && i < node->output_count; ++i)
    fits = outputs[i].dtype == group->values[node->outputs[i]].dtype;
  return fits;
}

bool rabbet_group_types_fit(const rabbet_group_t* group,
                            const rabbet_group_node_t* node) {
  const size_t most = RABBET_GROUP_TYPES_INPUTS - 1;
  size_t first = 1;
  if (node->output_count > RABBET_GROUP_TYPES_OUTPUTS) return false;
  // Variadic inputs follow one rule, so the others are checked with input 0,
  // some at a time.
  do {
    size_t left = node->input_count > first ? node->input_count - first : 0;
    size_t count = left < most ? left : most;
    if (!group_some_types_fit(group, node, first, count)) return false;
    first += count;
  } while (first < node->input_count);
  return true;
}
