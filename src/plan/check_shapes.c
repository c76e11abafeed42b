#include "plan/check_shapes.h"

#include <assert.h>
#include <string.h>

#include "ops/infer.h"

// Compares one output with the rule's result.
static rabbet_shapes_verdict_t compare_shapes(const rabbet_expr_graph_t* graph,
                                              const rabbet_shape_t* found,
                                              const rabbet_shape_t* expected) {
  assert(found->rank >= 0 && expected->rank >= 0);
  rabbet_shapes_verdict_t verdict = RABBET_SHAPES_PROVEN;
  if (found->rank != expected->rank) return RABBET_SHAPES_WRONG;
  for (int32_t axis = 0; axis < found->rank; ++axis) {
    rabbet_expr_t a = found->d[axis], b = expected->d[axis];
    if (a == b || a == RABBET_EXPR_NONE) continue;
    if (b == RABBET_EXPR_NONE) {
      verdict = RABBET_SHAPES_UNPROVEN;
      continue;
    }
    if (rabbet_expr_is_constant(graph, a, NULL) &&
        rabbet_expr_is_constant(graph, b, NULL))
      return RABBET_SHAPES_WRONG;
    verdict = RABBET_SHAPES_UNPROVEN;
  }
  return verdict;
}

static bool check_knows_dims(const rabbet_op_value_t* value) {
  for (int32_t axis = 0; axis < value->shape.rank; ++axis)
    if (value->shape.d[axis] == RABBET_EXPR_NONE) return false;
  return true;
}

// Whether sizes that only the kernel finds belong to the step.
static bool check_makes_sizes(const rabbet_shapes_check_t* check) {
  const rabbet_group_t* group = &check->step->group;
  for (size_t i = 0; i < group->node_count; ++i)
    if (rabbet_op_makes_sizes(group->nodes[i].op)) return true;
  return false;
}

// Collects a node's inputs. *out_askable is false if its rule cannot be called,
// because an earlier node computes extents.
static rabbet_status_t check_inputs(const rabbet_shapes_check_t* check,
                                    const rabbet_group_node_t* node,
                                    rabbet_op_value_t* inputs,
                                    bool* out_askable) {
  *out_askable = true;
  for (size_t i = 0; i < node->input_count; ++i) {
    const rabbet_op_operand_t* operand = rabbet_op_input(node->op, i);
    inputs[i] = (rabbet_op_value_t){.dtype = RABBET_DTYPE_NONE};
    if (node->inputs[i] < 0) continue;
    assert((size_t)node->inputs[i] < check->step->group.value_count);
    inputs[i] = check->values[node->inputs[i]];
    inputs[i].present = true;
    *out_askable &= check_knows_dims(&inputs[i]);
    if (operand && operand->flags & RABBET_OPERAND_SHAPE && !inputs[i].values)
      return RABBET_STATUS(RABBET_STATUS_DATA_LOSS,
                           "layer '%s' (%s): the elements of input '%s', on "
                           "which its output's shape depends, are unknown",
                           node->name, node->op->name, operand->name);
  }
  if (*out_askable || check_makes_sizes(check)) return rabbet_ok();
  return RABBET_STATUS(RABBET_STATUS_DATA_LOSS,
                       "layer '%s' (%s): the shapes of its inputs are unknown",
                       node->name, node->op->name);
}

// The upper bound of a data-dependent output must fit into its memory.
static rabbet_status_t check_room(const rabbet_shapes_check_t* check,
                                  const rabbet_group_node_t* node,
                                  const rabbet_op_value_t* outputs) {
  size_t symbols = rabbet_expr_symbol_count(check->graph);
  size_t count = rabbet_expr_node_count(check->graph);
  int64_t *zeros = NULL, *uppers = NULL, *bounds = NULL;
  RABBET_RETURN_IF_ERROR(rabbet_arena_allocate_array(
      check->arena, symbols, sizeof(*zeros), (void**)&zeros));
  RABBET_RETURN_IF_ERROR(rabbet_arena_allocate_array(
      check->arena, symbols, sizeof(*uppers), (void**)&uppers));
  RABBET_RETURN_IF_ERROR(rabbet_arena_allocate_array(
      check->arena, 2 * count, sizeof(*bounds), (void**)&bounds));
  for (size_t i = 0; i < symbols; ++i) {
    rabbet_expr_t upper = rabbet_expr_symbol(check->graph, i)->upper;
    if (upper == RABBET_EXPR_NONE ||
        !rabbet_expr_is_constant(check->graph, upper, &uppers[i]))
      uppers[i] = INT64_MAX;
  }
  RABBET_RETURN_IF_ERROR(
      rabbet_expr_bounds(check->graph, zeros, uppers, bounds, bounds + count));
  for (size_t i = 0; i < node->output_count; ++i) {
    size_t needed = 0, room = check->bytes[node->outputs[i]];
    rabbet_dims_t dims = {.rank = outputs[i].shape.rank};
    for (int32_t axis = 0; axis < dims.rank; ++axis) {
      // An operator with data-dependent sizes gives each of them a symbol.
      assert(outputs[i].shape.d[axis] != RABBET_EXPR_NONE);
      dims.d[axis] = bounds[count + (size_t)outputs[i].shape.d[axis]];
    }
    RABBET_RETURN_IF_ERROR(rabbet_tensor_bytes(
        outputs[i].dtype, RABBET_FORMAT_LINEAR, &dims, &needed));
    if (needed <= room) continue;
    return RABBET_STATUS(RABBET_STATUS_DATA_LOSS,
                         "layer '%s' (%s) can make %zu bytes of output '%s', "
                         "for which there is memory of %zu",
                         node->name, node->op->name, needed,
                         node->op->outputs[i].name, room);
  }
  return rabbet_ok();
}

static rabbet_status_t check_node(const rabbet_shapes_check_t* check,
                                  const rabbet_group_node_t* node,
                                  rabbet_shapes_verdict_t* verdict,
                                  int32_t* out_value) {
  rabbet_op_value_t* inputs = NULL;
  if (!node->op->infer_shapes) return rabbet_ok();
  bool askable = false, differs = false;
  rabbet_op_infer_t infer = {.op = node->op,
                             .graph = check->graph,
                             .arena = check->arena,
                             .attrs = node->attrs,
                             .input_count = node->input_count,
                             .output_count = node->output_count,
                             .out_bound_differs = &differs};
  RABBET_RETURN_IF_ERROR(rabbet_op_infer_allocate(&infer, &inputs));
  RABBET_RETURN_IF_ERROR(check_inputs(check, node, inputs, &askable));
  if (!askable) return rabbet_ok();
  rabbet_op_value_t* outputs = infer.outputs;
  int32_t* numbers = NULL;
  RABBET_RETURN_IF_ERROR(rabbet_arena_allocate_array(
      check->arena, node->output_count, sizeof(*numbers), (void**)&numbers));
  infer.output_tensors = numbers;
  for (size_t i = 0; i < node->output_count; ++i) {
    outputs[i].dtype = check->values[node->outputs[i]].dtype;
    numbers[i] = check->numbers[node->outputs[i]];
  }
  RABBET_RETURN_IF_ERROR(RABBET_ANNOTATE(node->op->infer_shapes(&infer),
                                         "layer '%s' (%s)", node->name,
                                         node->op->name));
  if (rabbet_op_makes_sizes(node->op) && check->bytes)
    RABBET_RETURN_IF_ERROR(check_room(check, node, outputs));
  if (differs && *verdict == RABBET_SHAPES_PROVEN)
    *verdict = RABBET_SHAPES_UNPROVEN;
  for (size_t i = 0; i < node->output_count; ++i) {
    rabbet_shapes_verdict_t one =
        compare_shapes(check->graph, &check->values[node->outputs[i]].shape,
                       &outputs[i].shape);
    if (one <= *verdict) continue;
    *verdict = one;
    *out_value = node->outputs[i];
  }
  return rabbet_ok();
}

rabbet_status_t rabbet_plan_check_shapes(const rabbet_shapes_check_t* check,
                                         rabbet_shapes_verdict_t* out_verdict,
                                         int32_t* out_value) {
  *out_verdict = RABBET_SHAPES_PROVEN;
  *out_value = -1;
  for (size_t i = 0; i < check->step->group.node_count; ++i)
    RABBET_RETURN_IF_ERROR(check_node(check, &check->step->group.nodes[i],
                                      out_verdict, out_value));
  return rabbet_ok();
}

// ---- A plan that is read

// The rules add expressions: to a copy, in which the plan's have their numbers.
static rabbet_status_t copy_graph(const rabbet_expr_graph_t* from,
                                  rabbet_expr_graph_t* to) {
  for (size_t i = 0; i < rabbet_expr_node_count(from); ++i) {
    const rabbet_expr_node_t* node = rabbet_expr_node(from, (rabbet_expr_t)i);
    rabbet_expr_t expr = RABBET_EXPR_NONE;
    if (node->op == RABBET_EXPR_SYMBOL)
      RABBET_RETURN_IF_ERROR(rabbet_expr_of_symbol(
          to, rabbet_expr_symbol(from, (size_t)node->a), &expr));
    else
      RABBET_RETURN_IF_ERROR(rabbet_expr_append(to, node, &expr));
    assert(expr == (rabbet_expr_t)i);
  }
  return rabbet_ok();
}

static rabbet_status_t prove_values(const rabbet_plan_sequence_t* sequence,
                                    const rabbet_plan_step_t* step,
                                    rabbet_expr_graph_t* graph,
                                    rabbet_arena_t* arena,
                                    rabbet_op_value_t* values) {
  for (size_t i = 0; i < step->group.value_count; ++i) {
    const rabbet_group_value_t* from = &step->group.values[i];
    const rabbet_plan_value_t* outer =
        step->values[i] < 0 ? NULL : &sequence->values[step->values[i]];
    assert(!outer || from->dtype == outer->dtype);
    values[i] = (rabbet_op_value_t){
        .dtype = from->dtype,
        .shape = outer ? outer->shape : step->inner_shapes[i],
        .constant = from->constant};
    if (outer && outer->host_values) {
      values[i].values = outer->host_values;
      values[i].value_count = outer->host_value_count;
    }
    RABBET_RETURN_IF_ERROR(
        rabbet_op_values_of_constant(graph, arena, &values[i]));
  }
  return rabbet_ok();
}

// Weakly typed networks may compute in other floating types than their own, and
// read and write tensors in them: for rules they all are FLOAT.
static rabbet_dtype_t prove_type(rabbet_dtype_t dtype) {
  return dtype == RABBET_DTYPE_HALF || dtype == RABBET_DTYPE_BF16
             ? RABBET_DTYPE_FLOAT
             : dtype;
}

// The node's attributes, with the same view of the type that to_type names:
// rules (fill's) compare it with the types of inputs.
static rabbet_status_t prove_attrs(const rabbet_group_node_t* node,
                                   rabbet_arena_t* arena,
                                   const rabbet_attr_t** out_attrs) {
  static const int64_t real = RABBET_DTYPE_FLOAT;
  size_t count = node->op->attr_count;
  rabbet_attr_t* attrs = NULL;
  *out_attrs = node->attrs;
  rabbet_dtype_t dtype = (rabbet_dtype_t)rabbet_attr_int(
      node->attrs, count, "to_type", RABBET_DTYPE_FLOAT);
  if (prove_type(dtype) == dtype) return rabbet_ok();
  RABBET_RETURN_IF_ERROR(rabbet_arena_copy(
      arena, node->attrs, count * sizeof(*attrs), (void**)&attrs));
  for (size_t i = 0; i < count; ++i)
    if (attrs[i].name && !strcmp(attrs[i].name, "to_type"))
      attrs[i].data = &real;
  *out_attrs = attrs;
  return rabbet_ok();
}

static rabbet_status_t prove_types(const rabbet_group_node_t* node,
                                   const rabbet_op_value_t* values,
                                   rabbet_expr_graph_t* graph,
                                   rabbet_arena_t* arena) {
  rabbet_op_value_t* inputs = NULL;
  const rabbet_attr_t* attrs = NULL;
  RABBET_RETURN_IF_ERROR(prove_attrs(node, arena, &attrs));
  rabbet_op_infer_t infer = {.op = node->op,
                             .graph = graph,
                             .arena = arena,
                             .attrs = attrs,
                             .input_count = node->input_count,
                             .output_count = node->output_count};
  RABBET_RETURN_IF_ERROR(rabbet_op_infer_allocate(&infer, &inputs));
  for (size_t i = 0; i < node->input_count; ++i) {
    if (node->inputs[i] < 0) continue;
    inputs[i] = values[node->inputs[i]];
    inputs[i].dtype = prove_type(inputs[i].dtype);
    inputs[i].present = true;
  }
  rabbet_op_value_t* outputs = infer.outputs;
  for (size_t i = 0; i < node->output_count; ++i)
    outputs[i].dtype = prove_type(values[node->outputs[i]].dtype);
  RABBET_RETURN_IF_ERROR(rabbet_op_infer_types(&infer));
  for (size_t i = 0; i < node->output_count; ++i) {
    rabbet_dtype_t found = values[node->outputs[i]].dtype;
    if (prove_type(outputs[i].dtype) != prove_type(found))
      return RABBET_STATUS(RABBET_STATUS_DATA_LOSS,
                           "output '%s' is %s; the layer makes %s",
                           node->op->outputs[i].name, rabbet_dtype_name(found),
                           rabbet_dtype_name(outputs[i].dtype));
  }
  return rabbet_ok();
}

static rabbet_status_t prove_all_types(const rabbet_group_t* group,
                                       const rabbet_op_value_t* values,
                                       rabbet_expr_graph_t* graph,
                                       rabbet_arena_t* arena) {
  for (size_t i = 0; i < group->node_count; ++i) {
    const rabbet_group_node_t* node = &group->nodes[i];
    if (rabbet_op_is(node->op, RABBET_OP_PLUGIN)) continue;
    RABBET_RETURN_IF_ERROR(
        RABBET_ANNOTATE(prove_types(node, values, graph, arena),
                        "layer '%s' (%s)", node->name, node->op->name));
  }
  return rabbet_ok();
}

// Elements that a run computes are symbols, so that the rule can be asked about
// all else.
static rabbet_status_t prove_elements(const rabbet_plan_sequence_t* sequence,
                                      int32_t v, rabbet_expr_graph_t* graph,
                                      rabbet_arena_t* arena,
                                      rabbet_op_value_t* value) {
  rabbet_dims_t dims = rabbet_shape_dims(sequence->graph, &value->shape);
  int64_t count = 0;
  rabbet_expr_t* elements = NULL;
  if (value->values || !rabbet_dtype_is_integer(value->dtype) ||
      !rabbet_shape_is_constant(sequence->graph, &value->shape))
    return rabbet_ok();
  RABBET_RETURN_IF_ERROR(rabbet_dims_count(&dims, &count));
  if (count > RABBET_OP_MAX_VALUES) return rabbet_ok();
  RABBET_RETURN_IF_ERROR(rabbet_arena_allocate_array(
      arena, (size_t)count, sizeof(*elements), (void**)&elements));
  for (int32_t i = 0; i < (int32_t)count; ++i)
    RABBET_RETURN_IF_ERROR(
        rabbet_expr_of_symbol(graph,
                              &(rabbet_symbol_t){.kind = RABBET_SYMBOL_VALUE,
                                                 .tensor = v,
                                                 .index = i,
                                                 .opt = RABBET_EXPR_NONE,
                                                 .upper = RABBET_EXPR_NONE},
                              &elements[i]));
  value->values = elements;
  value->value_count = (size_t)count;
  return rabbet_ok();
}

// Evaluates operands on which shapes depend. *out_all_constant is false if a
// rule may have to be called again once their elements are numbers.
static rabbet_status_t prove_operands(const rabbet_plan_sequence_t* sequence,
                                      const rabbet_plan_step_t* step,
                                      rabbet_expr_graph_t* graph,
                                      rabbet_arena_t* arena,
                                      rabbet_op_value_t* values,
                                      bool* out_all_constant) {
  *out_all_constant = true;
  for (size_t n = 0; n < step->group.node_count; ++n) {
    const rabbet_group_node_t* node = &step->group.nodes[n];
    for (size_t i = 0; i < node->input_count; ++i) {
      const rabbet_op_operand_t* operand = rabbet_op_input(node->op, i);
      int32_t v = node->inputs[i];
      if (v < 0 || step->values[v] < 0 || !operand ||
          !(operand->flags & RABBET_OPERAND_SHAPE))
        continue;
      rabbet_op_value_t* value = &values[v];
      RABBET_RETURN_IF_ERROR(
          prove_elements(sequence, step->values[v], graph, arena, value));
      for (size_t k = 0; k < value->value_count; ++k)
        *out_all_constant &=
            rabbet_expr_is_constant(graph, value->values[k], NULL);
    }
  }
  return rabbet_ok();
}

static rabbet_status_t prove_step(const rabbet_plan_sequence_t* sequence,
                                  rabbet_plan_step_t* step,
                                  rabbet_expr_graph_t* graph,
                                  rabbet_arena_t* arena) {
  rabbet_op_value_t* values = NULL;
  rabbet_shapes_verdict_t verdict = RABBET_SHAPES_PROVEN;
  int32_t value = -1;
  // Called sequences are checked by themselves, and their results in the run.
  step->shapes_proven = step->call_count > 0;
  if (step->shapes_proven) return rabbet_ok();
  RABBET_RETURN_IF_ERROR(rabbet_arena_allocate_array(
      arena, step->group.value_count, sizeof(*values), (void**)&values));
  RABBET_RETURN_IF_ERROR(prove_values(sequence, step, graph, arena, values));
  RABBET_RETURN_IF_ERROR(prove_all_types(&step->group, values, graph, arena));
  bool all_constant = true;
  RABBET_RETURN_IF_ERROR(
      prove_operands(sequence, step, graph, arena, values, &all_constant));
  rabbet_shapes_check_t check = {.graph = graph,
                                 .arena = arena,
                                 .step = step,
                                 .values = values,
                                 .numbers = step->values};
  RABBET_RETURN_IF_ERROR(rabbet_plan_check_shapes(&check, &verdict, &value));
  step->shapes_proven = verdict == RABBET_SHAPES_PROVEN && all_constant;
  if (verdict != RABBET_SHAPES_WRONG) return rabbet_ok();
  assert(value >= 0 && (size_t)value < step->group.value_count);
  char text[192];
  rabbet_dims_t dims = rabbet_shape_dims(sequence->graph, &values[value].shape);
  return RABBET_STATUS(
      RABBET_STATUS_DATA_LOSS,
      "value %d of the step has shape %s, which its layer does "
      "not make",
      value, rabbet_dims_print(&dims, text, sizeof(text)));
}

rabbet_status_t rabbet_plan_prove_shapes(rabbet_plan_sequence_t* sequence) {
  rabbet_expr_graph_t* graph = NULL;
  RABBET_RETURN_IF_ERROR(
      rabbet_expr_graph_create(sequence->plan->allocator, &graph));
  rabbet_status_t status = copy_graph(sequence->graph, graph);
  for (size_t s = 0; s < sequence->step_count && rabbet_is_ok(status); ++s) {
    rabbet_arena_t arena;
    rabbet_arena_initialize(sequence->plan->allocator, &arena);
    status = RABBET_ANNOTATE(
        prove_step(sequence, &sequence->steps[s], graph, &arena),
        "step %zu ('%s')", s, sequence->steps[s].name);
    rabbet_arena_deinitialize(&arena);
  }
  rabbet_expr_graph_destroy(graph);
  return status;
}
