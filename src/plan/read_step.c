// Steps of a plan: groups of layers, their attributes, plugins and calls.
#include <string.h>

#include "plan/read.h"
#include "plan/verify.h"

// ---- Attributes, with all that rabbet_attr_t promises checked

static rabbet_status_t read_ints(rabbet_plan_t* plan,
                                 const Rabbet__Plan__Attr* from,
                                 rabbet_attr_t* attr) {
  bool single = attr->type == RABBET_ATTR_INT || attr->type == RABBET_ATTR_BOOL;
  bool logical =
      attr->type == RABBET_ATTR_BOOL || attr->type == RABBET_ATTR_BOOLS;
  if (single && from->n_ints != 1)
    return RABBET_DAMAGED("%zu integers; expected one", from->n_ints);
  for (size_t i = 0; logical && i < from->n_ints; ++i) {
    if (from->ints[i] != 0 && from->ints[i] != 1)
      return RABBET_DAMAGED("%lld is neither true nor false",
                            (long long)from->ints[i]);
  }
  attr->count = from->n_ints;
  return rabbet_arena_copy(&plan->arena, from->ints,
                           from->n_ints * sizeof(int64_t),
                           (void**)(uintptr_t)&attr->data);
}

static rabbet_status_t read_floats(rabbet_plan_t* plan,
                                   const Rabbet__Plan__Attr* from,
                                   rabbet_attr_t* attr) {
  if (attr->type == RABBET_ATTR_FLOAT && from->n_floats != 1)
    return RABBET_DAMAGED("%zu numbers; expected one", from->n_floats);
  attr->count = from->n_floats;
  return rabbet_arena_copy(&plan->arena, from->floats,
                           from->n_floats * sizeof(double),
                           (void**)(uintptr_t)&attr->data);
}

// Bytes with a NUL after them.
static rabbet_status_t read_bytes(rabbet_plan_t* plan,
                                  const Rabbet__Plan__Attr* from,
                                  rabbet_attr_t* attr) {
  char* copy = NULL;
  RABBET_RETURN_IF_ERROR(
      rabbet_arena_allocate(&plan->arena, from->data.len + 1, (void**)&copy));
  if (from->data.len > 0) memcpy(copy, from->data.data, from->data.len);
  attr->data = copy;
  attr->count = from->data.len;
  return rabbet_ok();
}

static rabbet_status_t read_strings(rabbet_plan_t* plan,
                                    const Rabbet__Plan__Attr* from,
                                    rabbet_attr_t* attr) {
  size_t ends = 0;
  for (size_t i = 0; i < from->data.len; ++i)
    ends += from->data.data[i] == 0;
  if (ends != from->count ||
      (from->data.len > 0 && from->data.data[from->data.len - 1] != 0))
    return RABBET_DAMAGED("%zu bytes hold %zu strings; expected %llu",
                          from->data.len, ends,
                          (unsigned long long)from->count);
  RABBET_RETURN_IF_ERROR(read_bytes(plan, from, attr));
  attr->count = ends;
  return rabbet_ok();
}

static rabbet_status_t read_tensor(rabbet_plan_t* plan,
                                   const Rabbet__Plan__Attr* from,
                                   rabbet_attr_t* attr) {
  int64_t count = 0;
  size_t bytes = 0;
  if (from->n_dims > RABBET_MAX_RANK)
    return RABBET_DAMAGED("a tensor of rank %zu", from->n_dims);
  if (from->dtype < 0 || from->dtype >= RABBET_DTYPE_COUNT)
    return RABBET_DAMAGED("%d is not a data type", from->dtype);
  attr->dtype = (rabbet_dtype_t)from->dtype;
  attr->dims.rank = (int32_t)from->n_dims;
  for (size_t i = 0; i < from->n_dims; ++i)
    attr->dims.d[i] = from->dims[i];
  RABBET_RETURN_IF_ERROR(rabbet_dims_count(&attr->dims, &count));
  RABBET_RETURN_IF_ERROR(rabbet_tensor_bytes(attr->dtype, RABBET_FORMAT_LINEAR,
                                             &attr->dims, &bytes));
  if ((uint64_t)count != from->count || bytes != from->data.len)
    return RABBET_DAMAGED(
        "a tensor of %lld elements has %llu of them in %zu "
        "bytes",
        (long long)count, (unsigned long long)from->count, from->data.len);
  RABBET_RETURN_IF_ERROR(read_bytes(plan, from, attr));
  attr->count = (size_t)count;
  return rabbet_ok();
}

static rabbet_status_t read_attr(rabbet_plan_t* plan,
                                 const Rabbet__Plan__Attr* from,
                                 rabbet_attr_t* attr) {
  *attr = (rabbet_attr_t){.type = (rabbet_attr_type_t)from->type,
                          .dtype = RABBET_DTYPE_NONE};
  RABBET_RETURN_IF_ERROR(rabbet_read_text(plan, from->name, &attr->name));
  switch (from->type) {
    case RABBET_ATTR_INT:
    case RABBET_ATTR_BOOL:
    case RABBET_ATTR_INTS:
    case RABBET_ATTR_BOOLS:
      return read_ints(plan, from, attr);
    case RABBET_ATTR_FLOAT:
    case RABBET_ATTR_FLOATS:
      return read_floats(plan, from, attr);
    case RABBET_ATTR_STRING:
    case RABBET_ATTR_BYTES:
      return read_bytes(plan, from, attr);
    case RABBET_ATTR_STRINGS:
      return read_strings(plan, from, attr);
    case RABBET_ATTR_TENSOR:
      return read_tensor(plan, from, attr);
    default:
      return RABBET_DAMAGED("%d is not a type of attribute", from->type);
  }
}

// ---- Steps

static rabbet_status_t read_group_values(rabbet_plan_sequence_t* sequence,
                                         const Rabbet__Plan__Step* from,
                                         rabbet_plan_step_t* step) {
  rabbet_group_t* group = &step->group;
  int32_t* values = NULL;
  rabbet_shape_t* shapes = NULL;
  group->value_count = from->n_values;
  RABBET_RETURN_IF_ERROR(rabbet_arena_allocate_array(
      &sequence->plan->arena, from->n_values, sizeof(*group->values),
      (void**)&group->values));
  RABBET_RETURN_IF_ERROR(
      rabbet_arena_allocate_array(&sequence->plan->arena, from->n_values,
                                  sizeof(*values), (void**)&values));
  RABBET_RETURN_IF_ERROR(
      rabbet_arena_allocate_array(&sequence->plan->arena, from->n_values,
                                  sizeof(*shapes), (void**)&shapes));
  step->values = values;
  step->inner_shapes = shapes;
  for (size_t i = 0; i < from->n_values; ++i) {
    const Rabbet__Plan__GroupValue* value = from->values[i];
    values[i] = value->value;
    if (value->value < -1 || value->value >= (int64_t)sequence->value_count)
      return RABBET_DAMAGED("value %zu of the step is value %d of %zu", i,
                            value->value, sequence->value_count);
    if (value->value >= 0) {
      shapes[i].rank = -1;
      group->values[i].dtype = sequence->values[value->value].dtype;
      group->values[i].format = sequence->values[value->value].format;
      continue;
    }
    group->values[i].dtype = (rabbet_dtype_t)value->dtype;
    group->values[i].format = (rabbet_format_t)value->format;
    RABBET_RETURN_IF_ERROR(
        rabbet_read_shape(value->shape, value->n_shape, &shapes[i]));
  }
  return rabbet_ok();
}

static rabbet_status_t read_attrs(rabbet_plan_t* plan,
                                  Rabbet__Plan__Attr* const* messages,
                                  size_t count, rabbet_attr_t** out_attrs) {
  RABBET_RETURN_IF_ERROR(rabbet_arena_allocate_array(
      &plan->arena, count, sizeof(**out_attrs), (void**)out_attrs));
  for (size_t i = 0; i < count; ++i)
    RABBET_RETURN_IF_ERROR(
        RABBET_ANNOTATE(read_attr(plan, messages[i], &(*out_attrs)[i]),
                        "attribute %zu ('%s')", i, messages[i]->name));
  return rabbet_ok();
}

static rabbet_status_t read_node(rabbet_plan_sequence_t* sequence,
                                 const Rabbet__Plan__Node* from,
                                 rabbet_group_node_t* node) {
  node->op = rabbet_op_find(from->op);
  if (!node->op)
    return RABBET_STATUS(
        RABBET_STATUS_INCOMPATIBLE,
        "operator '%s' is not known to rabbet %s; the plan was "
        "written by '%s'",
        from->op, rabbet_version(), sequence->plan->producer);
  RABBET_RETURN_IF_ERROR(
      rabbet_read_text(sequence->plan, from->name, &node->name));
  rabbet_attr_t *given = NULL, *attrs = NULL;
  RABBET_RETURN_IF_ERROR(
      read_attrs(sequence->plan, from->attrs, from->n_attrs, &given));
  RABBET_RETURN_IF_ERROR(
      rabbet_arena_allocate_array(&sequence->plan->arena, node->op->attr_count,
                                  sizeof(*attrs), (void**)&attrs));
  RABBET_RETURN_IF_ERROR(rabbet_op_complete_attrs(
      node->op, given, from->n_attrs, &sequence->plan->arena, attrs));
  node->attrs = attrs;
  node->input_count = from->n_inputs;
  node->output_count = from->n_outputs;
  RABBET_RETURN_IF_ERROR(
      RABBET_READ_LIST(sequence->plan, from, inputs, &node->inputs));
  RABBET_RETURN_IF_ERROR(
      RABBET_READ_LIST(sequence->plan, from, outputs, &node->outputs));
  if (from->n_aliased == 0) return rabbet_ok();
  if (from->n_aliased != from->n_outputs)
    return RABBET_DAMAGED(
        "it says of %zu of %zu outputs in whose place they "
        "lie",
        from->n_aliased, from->n_outputs);
  return RABBET_READ_LIST(sequence->plan, from, aliased, &node->aliased);
}

static rabbet_status_t read_nodes(rabbet_plan_sequence_t* sequence,
                                  const Rabbet__Plan__Step* from,
                                  rabbet_group_t* group) {
  RABBET_RETURN_IF_ERROR(rabbet_arena_allocate_array(
      &sequence->plan->arena, from->n_nodes, sizeof(*group->nodes),
      (void**)&group->nodes));
  group->node_count = from->n_nodes;
  for (size_t i = 0; i < from->n_nodes; ++i)
    RABBET_RETURN_IF_ERROR(RABBET_ANNOTATE(
        read_node(sequence, from->nodes[i], &group->nodes[i]),
        "layer '%s' (%s)", from->nodes[i]->name, from->nodes[i]->op));
  return rabbet_ok();
}

static rabbet_status_t read_plugin(rabbet_plan_sequence_t* sequence,
                                   const Rabbet__Plan__Step* from,
                                   rabbet_plan_step_t* step) {
  if (!*from->plugin_name) {
    if (*from->plugin_version || *from->plugin_namespace ||
        *from->plugin_origin || from->n_plugin_attrs > 0)
      return RABBET_DAMAGED("it describes a plugin without a name");
    return rabbet_ok();
  }
  rabbet_attr_t* attrs = NULL;
  RABBET_RETURN_IF_ERROR(
      rabbet_read_text(sequence->plan, from->plugin_name, &step->plugin_name));
  RABBET_RETURN_IF_ERROR(rabbet_read_text(sequence->plan, from->plugin_version,
                                          &step->plugin_version));
  RABBET_RETURN_IF_ERROR(rabbet_read_text(
      sequence->plan, from->plugin_namespace, &step->plugin_namespace));
  RABBET_RETURN_IF_ERROR(rabbet_read_optional_text(
      sequence->plan, from->plugin_origin, &step->plugin_origin));
  RABBET_RETURN_IF_ERROR(read_attrs(sequence->plan, from->plugin_attrs,
                                    from->n_plugin_attrs, &attrs));
  step->plugin_attrs = attrs;
  step->plugin_attr_count = from->n_plugin_attrs;
  return rabbet_ok();
}

static rabbet_status_t read_calls(rabbet_plan_t* plan,
                                  const Rabbet__Plan__Step* from,
                                  rabbet_plan_step_t* step) {
  rabbet_plan_call_t* calls = NULL;
  RABBET_RETURN_IF_ERROR(rabbet_arena_allocate_array(
      &plan->arena, from->n_calls, sizeof(*calls), (void**)&calls));
  for (size_t i = 0; i < from->n_calls; ++i) {
    calls[i].sequence = from->calls[i]->sequence;
    calls[i].input_count = from->calls[i]->n_inputs;
    RABBET_RETURN_IF_ERROR(
        RABBET_READ_LIST(plan, from->calls[i], inputs, &calls[i].inputs));
  }
  step->calls = calls;
  step->call_count = from->n_calls;
  return rabbet_ok();
}

static rabbet_status_t read_step(rabbet_plan_sequence_t* sequence,
                                 const Rabbet__Plan__Step* from,
                                 rabbet_plan_step_t* step) {
  step->tactic = from->tactic;
  step->time_us = from->time_us;
  step->group.input_count = from->n_inputs;
  step->group.output_count = from->n_outputs;
  step->host_read_count = from->n_host_reads;
  rabbet_status_t status =
      rabbet_read_text(sequence->plan, from->name, &step->name);
  if (rabbet_is_ok(status))
    status = rabbet_read_text(sequence->plan, from->kernel, &step->kernel);
  if (rabbet_is_ok(status))
    status =
        rabbet_read_text(sequence->plan, from->tactic_name, &step->tactic_name);
  if (rabbet_is_ok(status))
    status = rabbet_read_optional_text(sequence->plan, from->report_json,
                                       &step->report_json);
  if (rabbet_is_ok(status))
    status =
        RABBET_READ_LIST(sequence->plan, from, inputs, &step->group.inputs);
  if (rabbet_is_ok(status))
    status =
        RABBET_READ_LIST(sequence->plan, from, outputs, &step->group.outputs);
  if (rabbet_is_ok(status))
    status =
        RABBET_READ_LIST(sequence->plan, from, host_reads, &step->host_reads);
  step->artifact_count = from->n_artifacts;
  if (rabbet_is_ok(status))
    status =
        RABBET_READ_LIST(sequence->plan, from, artifacts, &step->artifacts);
  if (rabbet_is_ok(status)) status = read_group_values(sequence, from, step);
  if (rabbet_is_ok(status)) status = read_nodes(sequence, from, &step->group);
  if (rabbet_is_ok(status)) status = read_plugin(sequence, from, step);
  if (rabbet_is_ok(status)) status = read_calls(sequence->plan, from, step);
  return status;
}

rabbet_status_t rabbet_read_steps(rabbet_plan_sequence_t* sequence,
                                  const Rabbet__Plan__Sequence* message) {
  RABBET_RETURN_IF_ERROR(rabbet_arena_allocate_array(
      &sequence->plan->arena, message->n_steps, sizeof(*sequence->steps),
      (void**)&sequence->steps));
  sequence->step_count = message->n_steps;
  for (size_t i = 0; i < message->n_steps; ++i)
    RABBET_RETURN_IF_ERROR(RABBET_ANNOTATE(
        read_step(sequence, message->steps[i], &sequence->steps[i]),
        "step %zu ('%s')", i, message->steps[i]->name));
  return rabbet_ok();
}
