#include <assert.h>
#include <string.h>

#include "device/common/node_kernel.h"
#include "device/common/pointwise.h"

static bool parts_is_slice(const rabbet_group_node_t* node) {
  return rabbet_op_is(node->op, RABBET_OP_SLICE);
}

static size_t parts_count(const rabbet_group_t* group) {
  size_t count = 0;
  for (size_t i = 0; i < group->node_count; ++i)
    count += parts_is_slice(&group->nodes[i]);
  return count;
}

static bool parts_reads(const rabbet_group_t* group, int32_t value) {
  for (size_t i = 0; i < group->node_count; ++i)
    for (size_t k = 0; k < group->nodes[i].input_count; ++k)
      if (!parts_is_slice(&group->nodes[i]) &&
          group->nodes[i].inputs[k] == value)
        return true;
  return false;
}

static bool parts_add(rabbet_pw_parts_t* parts, int32_t* inputs, int32_t value,
                      int32_t from, const rabbet_group_node_t* slice) {
  size_t at = parts->plain.input_count;
  if (from < 0 || at == RABBET_PW_MAX_OPERANDS) return false;
  inputs[at] = value;
  parts->from[at] = from;
  parts->slices[at] = slice;
  ++parts->plain.input_count;
  return true;
}

// A slice's result has its input's type and format.
static bool parts_fill(const rabbet_group_t* group,
                       rabbet_group_value_t* values, rabbet_group_node_t* nodes,
                       int32_t* inputs, rabbet_pw_parts_t* parts) {
  bool fits = true;
  for (size_t i = 0; fits && i < group->input_count; ++i)
    if (parts_reads(group, group->inputs[i]))
      fits = parts_add(parts, inputs, group->inputs[i], (int32_t)i, NULL);
  for (size_t i = 0; fits && i < group->node_count; ++i) {
    const rabbet_group_node_t* node = &group->nodes[i];
    if (!parts_is_slice(node)) {
      nodes[parts->plain.node_count++] = *node;
      continue;
    }
    rabbet_group_value_t* result = &values[node->outputs[0]];
    result->dtype = values[node->inputs[0]].dtype;
    result->format = values[node->inputs[0]].format;
    fits = parts_add(parts, inputs, node->outputs[0],
                     rabbet_group_input_of(group, node->inputs[0]), node);
  }
  for (size_t i = 0; fits && i < group->output_count; ++i)
    for (size_t k = 0; k < parts->plain.input_count; ++k)
      fits = fits && inputs[k] != group->outputs[i];
  return fits && parts->plain.node_count > 0;
}

rabbet_status_t rabbet_pw_parts_make(const rabbet_group_t* group,
                                     rabbet_allocator_t allocator,
                                     rabbet_pw_parts_t* out_parts,
                                     bool* out_fits) {
  rabbet_pw_parts_t* parts = out_parts;
  memset(parts, 0, sizeof(*parts));
  parts->plain = *group;
  parts->slice_count = parts_count(group);
  *out_fits =
      parts->slice_count > 0 || group->input_count <= RABBET_PW_MAX_OPERANDS;
  if (parts->slice_count == 0) {
    for (size_t i = 0; *out_fits && i < group->input_count; ++i)
      parts->from[i] = (int32_t)i;
    return rabbet_ok();
  }
  size_t values = group->value_count * sizeof(rabbet_group_value_t);
  size_t nodes = group->node_count * sizeof(rabbet_group_node_t);
  RABBET_RETURN_IF_ERROR(rabbet_allocate(
      allocator, values + nodes + RABBET_PW_MAX_OPERANDS * sizeof(int32_t),
      &parts->memory));
  memcpy(parts->memory, group->values, values);
  rabbet_group_node_t* own = (void*)((char*)parts->memory + values);
  int32_t* inputs = (void*)((char*)own + nodes);
  parts->plain.values = parts->memory;
  parts->plain.nodes = own;
  parts->plain.inputs = inputs;
  parts->plain.node_count = parts->plain.input_count = 0;
  *out_fits = parts_fill(group, parts->memory, own, inputs, parts);
  return rabbet_ok();
}

void rabbet_pw_parts_end(rabbet_allocator_t allocator,
                         rabbet_pw_parts_t* parts) {
  rabbet_free(allocator, parts->memory);
  parts->memory = NULL;
}
