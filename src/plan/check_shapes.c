#include "plan/check_shapes.h"

// Compares one output with what the rule made of it.
static rabbet_shapes_verdict_t rabbet_compare_shapes(
    const rabbet_expr_graph_t* graph, const rabbet_shape_t* found,
    const rabbet_shape_t* expected) {
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

// Collects a node's inputs; false where its rule cannot be asked.
static bool rabbet_check_inputs(const rabbet_shapes_check_t* check,
                                const rabbet_group_node_t* node,
                                rabbet_op_value_t* inputs) {
  for (size_t i = 0; i < node->input_count; ++i) {
    const rabbet_op_operand_t* operand = rabbet_op_input(node->op, i);
    inputs[i] = (rabbet_op_value_t){.dtype = RABBET_DTYPE_NONE};
    if (node->inputs[i] < 0) continue;
    inputs[i] = check->values[node->inputs[i]];
    inputs[i].present = true;
    for (int32_t axis = 0; axis < inputs[i].shape.rank; ++axis) {
      if (inputs[i].shape.d[axis] == RABBET_EXPR_NONE) return false;
    }
    if (operand && operand->flags & RABBET_OPERAND_SHAPE && !inputs[i].values)
      return false;
  }
  return true;
}

// The most that a layer can make must fit: it alone tells how much it makes.
static rabbet_status_t rabbet_check_room(const rabbet_shapes_check_t* check,
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
    for (int32_t axis = 0; axis < dims.rank; ++axis)
      dims.d[axis] = bounds[count + (size_t)outputs[i].shape.d[axis]];
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

static rabbet_status_t rabbet_check_node(const rabbet_shapes_check_t* check,
                                         const rabbet_group_node_t* node,
                                         rabbet_shapes_verdict_t* verdict,
                                         int32_t* out_value) {
  rabbet_op_value_t *inputs = NULL, *outputs = NULL;
  if (!node->op->infer_shapes) return rabbet_ok();
  RABBET_RETURN_IF_ERROR(rabbet_arena_allocate_array(
      check->arena, node->input_count, sizeof(*inputs), (void**)&inputs));
  RABBET_RETURN_IF_ERROR(rabbet_arena_allocate_array(
      check->arena, node->output_count, sizeof(*outputs), (void**)&outputs));
  if (!rabbet_check_inputs(check, node, inputs)) return rabbet_ok();
  int32_t* numbers = NULL;
  bool sized = rabbet_op_makes_sizes(node->op), differs = false;
  RABBET_RETURN_IF_ERROR(rabbet_arena_allocate_array(
      check->arena, node->output_count, sizeof(*numbers), (void**)&numbers));
  for (size_t i = 0; i < node->output_count; ++i) {
    outputs[i].dtype = check->values[node->outputs[i]].dtype;
    numbers[i] = check->numbers[node->outputs[i]];
  }
  rabbet_op_infer_t infer = {.op = node->op,
                             .graph = check->graph,
                             .arena = check->arena,
                             .attrs = node->attrs,
                             .attr_count = node->op->attr_count,
                             .inputs = inputs,
                             .input_count = node->input_count,
                             .outputs = outputs,
                             .output_count = node->output_count,
                             .output_tensors = numbers,
                             .out_bound_differs = &differs};
  RABBET_RETURN_IF_ERROR(RABBET_ANNOTATE(node->op->infer_shapes(&infer),
                                         "layer '%s' (%s)", node->name,
                                         node->op->name));
  if (sized && check->bytes)
    RABBET_RETURN_IF_ERROR(rabbet_check_room(check, node, outputs));
  if (differs && *verdict == RABBET_SHAPES_PROVEN)
    *verdict = RABBET_SHAPES_UNPROVEN;
  for (size_t i = 0; i < node->output_count; ++i) {
    rabbet_shapes_verdict_t one = rabbet_compare_shapes(
        check->graph, &check->values[node->outputs[i]].shape,
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
    RABBET_RETURN_IF_ERROR(rabbet_check_node(
        check, &check->step->group.nodes[i], out_verdict, out_value));
  return rabbet_ok();
}

// ---- A plan that is read

// The rules add expressions: to a copy, in which the plan's have their numbers.
static rabbet_status_t rabbet_copy_graph(const rabbet_expr_graph_t* from,
                                         rabbet_expr_graph_t* to) {
  for (size_t i = 0; i < rabbet_expr_node_count(from); ++i) {
    const rabbet_expr_node_t* node = rabbet_expr_node(from, (rabbet_expr_t)i);
    rabbet_expr_t expr = RABBET_EXPR_NONE;
    if (node->op == RABBET_EXPR_SYMBOL)
      RABBET_RETURN_IF_ERROR(rabbet_expr_of_symbol(
          to, rabbet_expr_symbol(from, (size_t)node->a), &expr));
    else
      RABBET_RETURN_IF_ERROR(rabbet_expr_append(to, node, &expr));
  }
  return rabbet_ok();
}

static rabbet_status_t rabbet_prove_values(const rabbet_plan_t* plan,
                                           const rabbet_plan_step_t* step,
                                           rabbet_expr_graph_t* graph,
                                           rabbet_arena_t* arena,
                                           rabbet_op_value_t* values) {
  for (size_t i = 0; i < step->group.value_count; ++i) {
    const rabbet_group_value_t* from = &step->group.values[i];
    const rabbet_plan_value_t* outer =
        step->values[i] < 0 ? NULL : &plan->values[step->values[i]];
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

static rabbet_status_t rabbet_prove_step(const rabbet_plan_t* plan,
                                         rabbet_plan_step_t* step,
                                         rabbet_expr_graph_t* graph,
                                         rabbet_arena_t* arena) {
  rabbet_op_value_t* values = NULL;
  rabbet_shapes_verdict_t verdict = RABBET_SHAPES_PROVEN;
  int32_t value = -1;
  RABBET_RETURN_IF_ERROR(rabbet_arena_allocate_array(
      arena, step->group.value_count, sizeof(*values), (void**)&values));
  RABBET_RETURN_IF_ERROR(rabbet_prove_values(plan, step, graph, arena, values));
  rabbet_shapes_check_t check = {.graph = graph,
                                 .arena = arena,
                                 .step = step,
                                 .values = values,
                                 .numbers = step->values};
  RABBET_RETURN_IF_ERROR(rabbet_plan_check_shapes(&check, &verdict, &value));
  step->shapes_proven = verdict == RABBET_SHAPES_PROVEN;
  if (verdict != RABBET_SHAPES_WRONG) return rabbet_ok();
  char text[192];
  rabbet_dims_t dims = rabbet_shape_dims(plan->graph, &values[value].shape);
  return RABBET_STATUS(
      RABBET_STATUS_DATA_LOSS,
      "value %d of the step has shape %s, which its layer does "
      "not make",
      value, rabbet_dims_print(&dims, text, sizeof(text)));
}

rabbet_status_t rabbet_plan_prove_shapes(rabbet_plan_t* plan) {
  rabbet_expr_graph_t* graph = NULL;
  RABBET_RETURN_IF_ERROR(rabbet_expr_graph_create(plan->allocator, &graph));
  rabbet_status_t status = rabbet_copy_graph(plan->graph, graph);
  for (size_t s = 0; s < plan->step_count && rabbet_is_ok(status); ++s) {
    rabbet_arena_t arena;
    rabbet_arena_initialize(plan->allocator, &arena);
    status =
        RABBET_ANNOTATE(rabbet_prove_step(plan, &plan->steps[s], graph, &arena),
                        "step %zu ('%s')", s, plan->steps[s].name);
    rabbet_arena_deinitialize(&arena);
  }
  rabbet_expr_graph_destroy(graph);
  return status;
}
