// Whether one step of a plan makes sense by itself.
#include <assert.h>
#include <string.h>

#include "plan/json_check.h"
#include "plan/verify.h"

typedef struct verify_group_t {
  const rabbet_plan_sequence_t* sequence;
  const rabbet_plan_step_t* step;
  bool* there;  // [group value]: input of the group or written by a node
} verify_group_t;

static rabbet_status_t verify_boundary(const verify_group_t* check,
                                       const int32_t* list, size_t count,
                                       const char* what, bool* seen) {
  const rabbet_group_t* group = &check->step->group;
  for (size_t i = 0; i < count; ++i) {
    int32_t v = list[i];
    if (v < 0 || (size_t)v >= group->value_count)
      return RABBET_DAMAGED("%s %zu is value %d of %zu of the step", what, i, v,
                            group->value_count);
    if (check->step->values[v] < 0)
      return RABBET_DAMAGED("%s %zu is a value inside the step", what, i);
    if (seen[v]) return RABBET_DAMAGED("%s %zu comes twice", what, i);
    seen[v] = true;
  }
  return rabbet_ok();
}

static rabbet_status_t verify_group_values(
    const rabbet_plan_sequence_t* sequence, const rabbet_plan_step_t* step,
    const bool* boundary) {
  for (size_t i = 0; i < step->group.value_count; ++i) {
    const rabbet_group_value_t* value = &step->group.values[i];
    int32_t v = step->values[i];
    if (v < -1 || v >= (int64_t)sequence->value_count)
      return RABBET_DAMAGED("value %zu of the step is value %d of %zu", i, v,
                            sequence->value_count);
    if (v < 0) {
      if (!rabbet_format_info(value->format) || value->dtype < 0 ||
          value->dtype >= RABBET_DTYPE_COUNT)
        return RABBET_DAMAGED("value %zu of the step has type %d and format %d",
                              i, (int)value->dtype, (int)value->format);
      continue;
    }
    if (!boundary[i])
      return RABBET_DAMAGED(
          "value %zu of the step ('%s') is neither its input "
          "nor its output",
          i, sequence->values[v].name);
    assert(rabbet_format_info(sequence->values[v].format));
    if (value->dtype != sequence->values[v].dtype ||
        value->format != sequence->values[v].format)
      return RABBET_DAMAGED(
          "value %zu of the step ('%s') is %s %s outside but "
          "%s %s inside",
          i, sequence->values[v].name,
          rabbet_dtype_name(sequence->values[v].dtype),
          rabbet_format_name(sequence->values[v].format),
          rabbet_dtype_name(value->dtype), rabbet_format_name(value->format));
  }
  return rabbet_ok();
}

static rabbet_status_t verify_inner_shapes(
    const rabbet_plan_sequence_t* sequence, const rabbet_plan_step_t* step) {
  for (size_t i = 0; i < step->group.value_count; ++i) {
    if (step->values[i] >= 0) continue;
    const rabbet_shape_t* shape = &step->inner_shapes[i];
    if (shape->rank < 0 || shape->rank > RABBET_MAX_RANK)
      return RABBET_DAMAGED("value %zu of the step has rank %d", i,
                            shape->rank);
    for (int32_t axis = 0; axis < shape->rank; ++axis) {
      if (shape->d[axis] < 0 ||
          (size_t)shape->d[axis] >= rabbet_expr_node_count(sequence->graph))
        return RABBET_DAMAGED(
            "axis %d of value %zu of the step refers to "
            "expression %d",
            axis, i, shape->d[axis]);
    }
  }
  return rabbet_ok();
}

// ---- Nodes

// The operand's row of the descriptor; the last one stands for all that follow
// where it is variadic.
static const rabbet_op_operand_t* verify_step_operand(
    const rabbet_op_operand_t* operands, size_t count, size_t i) {
  if (i < count) return &operands[i];
  if (count > 0 && operands[count - 1].flags & RABBET_OPERAND_VARIADIC)
    return &operands[count - 1];
  return NULL;
}

static rabbet_status_t verify_operand(const verify_group_t* check,
                                      const rabbet_op_operand_t* operand,
                                      const char* what, size_t i, int32_t v) {
  const rabbet_group_t* group = &check->step->group;
  if (!operand) return RABBET_DAMAGED("%s %zu is one too many", what, i);
  if (v == -1 && operand->flags & RABBET_OPERAND_OPTIONAL) return rabbet_ok();
  if (v < 0 || (size_t)v >= group->value_count)
    return RABBET_DAMAGED("%s '%s' is value %d of %zu of the step", what,
                          operand->name, v, group->value_count);
  if (!(operand->dtypes >> group->values[v].dtype & 1))
    return RABBET_DAMAGED("%s '%s' cannot be %s", what, operand->name,
                          rabbet_dtype_name(group->values[v].dtype));
  return rabbet_ok();
}

static rabbet_status_t verify_node_inputs(const verify_group_t* check,
                                          const rabbet_group_node_t* node) {
  bool plugin = rabbet_op_is(node->op, RABBET_OP_PLUGIN);
  size_t required = 0;
  while (required < node->op->input_count &&
         !(node->op->inputs[required].flags & RABBET_OPERAND_OPTIONAL))
    ++required;
  if (!plugin && node->input_count < required)
    return RABBET_DAMAGED("it has %zu inputs; expected at least %zu",
                          node->input_count, required);
  for (size_t i = 0; i < node->input_count; ++i) {
    int32_t v = node->inputs[i];
    if (!plugin)
      RABBET_RETURN_IF_ERROR(verify_operand(
          check,
          verify_step_operand(node->op->inputs, node->op->input_count, i),
          "input", i, v));
    if (v < -1 || v >= (int64_t)check->step->group.value_count)
      return RABBET_DAMAGED("input %zu is value %d of %zu of the step", i, v,
                            check->step->group.value_count);
    if (v >= 0 && !check->there[v])
      return RABBET_DAMAGED("input %zu is used before it is computed", i);
  }
  return rabbet_ok();
}

static rabbet_status_t verify_node_outputs(const verify_group_t* check,
                                           const rabbet_group_node_t* node) {
  bool plugin = rabbet_op_is(node->op, RABBET_OP_PLUGIN);
  if (node->output_count == 0) return RABBET_DAMAGED("it has no output");
  const rabbet_op_t* op = node->op;
  bool variadic =
      op->output_count > 0 &&
      op->outputs[op->output_count - 1].flags & RABBET_OPERAND_VARIADIC;
  if (!plugin && !variadic && node->output_count != op->output_count)
    return RABBET_DAMAGED("it has %zu outputs; expected %zu",
                          node->output_count, node->op->output_count);
  for (size_t i = 0; i < node->output_count; ++i) {
    int32_t v = node->outputs[i];
    if (!plugin)
      RABBET_RETURN_IF_ERROR(verify_operand(
          check,
          verify_step_operand(node->op->outputs, node->op->output_count, i),
          "output", i, v));
    if (v < 0 || (size_t)v >= check->step->group.value_count)
      return RABBET_DAMAGED("output %zu is value %d of %zu of the step", i, v,
                            check->step->group.value_count);
    if (check->there[v])
      return RABBET_DAMAGED("output %zu is computed twice", i);
    check->there[v] = true;
    int32_t aliased = node->aliased ? node->aliased[i] : -1;
    if (aliased < -1 || aliased >= (int64_t)node->input_count ||
        (aliased >= 0 && node->inputs[aliased] < 0))
      return RABBET_DAMAGED("output %zu lies in the place of input %d of %zu",
                            i, aliased, node->input_count);
  }
  return rabbet_ok();
}

static rabbet_status_t verify_attrs(const rabbet_group_node_t* node) {
  for (size_t i = 0; i < node->op->attr_count; ++i) {
    const rabbet_op_attr_t* wanted = &node->op->attrs[i];
    if (!node->attrs || !node->attrs[i].name ||
        strcmp(node->attrs[i].name, wanted->name) != 0 ||
        node->attrs[i].type != wanted->type)
      return RABBET_DAMAGED("attribute '%s' is missing or of another type",
                            wanted->name);
    if (!wanted->enumerators || wanted->type != RABBET_ATTR_INT) continue;
    int64_t number = rabbet_attr_int(&node->attrs[i], 1, wanted->name, 0);
    if (!rabbet_op_enumerator_name(wanted, number))
      return RABBET_DAMAGED(
          "attribute '%s' is %lld, which is none of its values", wanted->name,
          (long long)number);
  }
  return rabbet_ok();
}

// A plugin is called with the tensors of its step, one after another.
static rabbet_status_t verify_plugin(const rabbet_group_t* group) {
  const rabbet_group_node_t* node = &group->nodes[0];
  assert(group->node_count > 0);
  if (group->node_count > 1)
    return RABBET_DAMAGED("its plugin layer is one of %zu layers; expected one",
                          group->node_count);
  for (size_t i = 0; i < node->input_count; ++i)
    if (node->inputs[i] < 0)
      return RABBET_DAMAGED("input %zu of the plugin layer '%s' is missing", i,
                            node->name);
  for (size_t i = 0; i < node->output_count; ++i)
    if (i >= group->output_count || group->outputs[i] != node->outputs[i])
      return RABBET_DAMAGED(
          "output %zu of the plugin layer '%s' is not output %zu of the step",
          i, node->name, i);
  return rabbet_ok();
}

static rabbet_status_t verify_nodes(const verify_group_t* check) {
  const rabbet_group_t* group = &check->step->group;
  size_t plugins = 0;
  for (size_t i = 0; i < group->node_count; ++i) {
    const rabbet_group_node_t* node = &group->nodes[i];
    rabbet_status_t status = verify_attrs(node);
    if (rabbet_is_ok(status)) status = verify_node_inputs(check, node);
    if (rabbet_is_ok(status)) status = verify_node_outputs(check, node);
    RABBET_RETURN_IF_ERROR(
        RABBET_ANNOTATE(status, "layer '%s' (%s)", node->name, node->op->name));
    plugins += rabbet_op_is(node->op, RABBET_OP_PLUGIN);
    if ((rabbet_op_is(node->op, RABBET_OP_CONDITION) ||
         rabbet_op_is(node->op, RABBET_OP_LOOP)) !=
        (check->step->call_count > 0))
      return RABBET_DAMAGED("layer '%s' (%s) %s", node->name, node->op->name,
                            check->step->call_count > 0
                                ? "calls no sequences"
                                : "has no sequences to call");
  }
  if (plugins > 1 || (plugins == 1) != (check->step->plugin_name != NULL))
    return RABBET_DAMAGED("it has %zu plugin layers but %s plugin", plugins,
                          check->step->plugin_name ? "one" : "no");
  return plugins > 0 ? verify_plugin(group) : rabbet_ok();
}

rabbet_status_t rabbet_verify_step(const rabbet_plan_sequence_t* sequence,
                                   const rabbet_plan_step_t* step,
                                   rabbet_arena_t* arena) {
  const rabbet_group_t* group = &step->group;
  verify_group_t check = {.sequence = sequence, .step = step};
  bool has_kernel = step->kernel && *step->kernel;
  if (has_kernel == (step->call_count > 0))
    return has_kernel ? RABBET_DAMAGED("it names a kernel and calls sequences")
                      : RABBET_DAMAGED("it names no kernel");
  if (step->report_json && !rabbet_json_valid(step->report_json))
    return RABBET_DAMAGED("its report is not JSON");
  if (group->node_count == 0) return RABBET_DAMAGED("it has no layer");
  if (group->output_count == 0) return RABBET_DAMAGED("it has no output");
  bool* boundary = NULL;
  RABBET_RETURN_IF_ERROR(
      rabbet_arena_allocate(arena, group->value_count, (void**)&boundary));
  RABBET_RETURN_IF_ERROR(
      rabbet_arena_allocate(arena, group->value_count, (void**)&check.there));
  RABBET_RETURN_IF_ERROR(verify_boundary(
      &check, group->inputs, group->input_count, "input", boundary));
  for (size_t i = 0; i < group->input_count; ++i)
    check.there[group->inputs[i]] = true;
  RABBET_RETURN_IF_ERROR(verify_boundary(
      &check, group->outputs, group->output_count, "output", boundary));
  RABBET_RETURN_IF_ERROR(verify_group_values(sequence, step, boundary));
  RABBET_RETURN_IF_ERROR(verify_inner_shapes(sequence, step));
  RABBET_RETURN_IF_ERROR(verify_nodes(&check));
  for (size_t i = 0; i < group->output_count; ++i) {
    if (!check.there[group->outputs[i]])
      return RABBET_DAMAGED("output %zu is computed by no layer", i);
  }
  RABBET_RETURN_IF_ERROR(rabbet_verify_step_artifacts(sequence->plan, step));
  for (size_t i = 0; i < step->host_read_count; ++i) {
    if (step->host_reads[i] < 0 ||
        (size_t)step->host_reads[i] >= sequence->value_count)
      return RABBET_DAMAGED("the host reads value %d of %zu",
                            step->host_reads[i], sequence->value_count);
  }
  return rabbet_ok();
}
