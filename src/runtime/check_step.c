// Shapes of a step that the plan could not prove, checked for the current
// dimensions.
#include "core/view.h"
#include "plan/check_shapes.h"
#include "runtime/runtime.h"

typedef struct step_check_t {
  const rabbet_prepared_t* prepared;
  const rabbet_plan_step_t* step;
  const rabbet_kernel_shapes_t* shapes;
  rabbet_expr_graph_t* graph;
  rabbet_arena_t arena;
} step_check_t;

rabbet_status_t rabbet_step_constants(rabbet_expr_graph_t* graph,
                                      rabbet_arena_t* arena,
                                      const rabbet_dims_t* dims,
                                      const int64_t* elements,
                                      const rabbet_expr_t** out_values,
                                      size_t* out_count) {
  int64_t count = 0;
  rabbet_expr_t* values = NULL;
  RABBET_RETURN_IF_ERROR(rabbet_dims_count(dims, &count));
  assert(elements || count == 0);
  RABBET_RETURN_IF_ERROR(rabbet_arena_allocate_array(
      arena, (size_t)count, sizeof(*values), (void**)&values));
  for (int64_t k = 0; k < count; ++k)
    RABBET_RETURN_IF_ERROR(
        rabbet_expr_constant(graph, elements[k], &values[k]));
  *out_values = values;
  *out_count = (size_t)count;
  return rabbet_ok();
}

static rabbet_status_t step_check_value(step_check_t* check, size_t i,
                                        rabbet_op_value_t* value) {
  const rabbet_group_value_t* from = &check->step->group.values[i];
  const rabbet_dims_t* dims = &check->shapes->dims[i];
  const int64_t* known = check->shapes->host_values[i];
  *value = (rabbet_op_value_t){.dtype = from->dtype,
                               .shape = {.rank = dims->rank},
                               .constant = from->constant};
  for (int32_t axis = 0; axis < dims->rank; ++axis) {
    value->shape.d[axis] = RABBET_EXPR_NONE;
    if (dims->d[axis] >= 0)
      RABBET_RETURN_IF_ERROR(rabbet_expr_constant(check->graph, dims->d[axis],
                                                  &value->shape.d[axis]));
  }
  if (!known)
    return rabbet_op_values_of_constant(check->graph, &check->arena, value);
  return rabbet_step_constants(check->graph, &check->arena, dims, known,
                               &value->values, &value->value_count);
}

static rabbet_status_t step_check(step_check_t* check) {
  rabbet_op_value_t* values = NULL;
  size_t count = check->step->group.value_count;
  RABBET_RETURN_IF_ERROR(rabbet_arena_allocate_array(
      &check->arena, count, sizeof(*values), (void**)&values));
  for (size_t i = 0; i < count; ++i)
    RABBET_RETURN_IF_ERROR(step_check_value(check, i, &values[i]));
  rabbet_shapes_check_t shapes = {.graph = check->graph,
                                  .arena = &check->arena,
                                  .step = check->step,
                                  .values = values,
                                  .numbers = check->step->values,
                                  .bytes = check->shapes->bytes};
  rabbet_shapes_verdict_t verdict = RABBET_SHAPES_PROVEN;
  int32_t wrong = -1;
  RABBET_RETURN_IF_ERROR(rabbet_plan_check_shapes(&shapes, &verdict, &wrong));
  if (verdict != RABBET_SHAPES_WRONG) return rabbet_ok();
  assert(wrong >= 0 && (size_t)wrong < count);
  char text[192];
  return RABBET_STATUS(
      RABBET_STATUS_DATA_LOSS,
      "value %d of the step would have shape %s, which its "
      "layer does not make",
      wrong,
      rabbet_dims_print(&check->shapes->dims[wrong], text, sizeof(text)));
}

static rabbet_status_t check_with_rules(const rabbet_prepared_t* prepared,
                                        const rabbet_plan_step_t* step,
                                        const rabbet_kernel_shapes_t* shapes) {
  rabbet_allocator_t allocator = prepared->sequence->engine->allocator;
  step_check_t check = {.prepared = prepared, .step = step, .shapes = shapes};
  RABBET_RETURN_IF_ERROR(rabbet_expr_graph_create(allocator, &check.graph));
  rabbet_arena_initialize(allocator, &check.arena);
  rabbet_status_t status = step_check(&check);
  rabbet_arena_deinitialize(&check.arena);
  rabbet_expr_graph_destroy(check.graph);
  return status;
}

rabbet_status_t rabbet_prepared_check_step(
    const rabbet_prepared_t* prepared, const rabbet_plan_step_t* step,
    const rabbet_kernel_shapes_t* shapes) {
  return step->shapes_proven ? rabbet_ok()
                             : check_with_rules(prepared, step, shapes);
}

// A reshaped tensor has a name that the importer gave: the tensor that it is
// made of is named as well.
static void name_input(const rabbet_prepared_t* prepared, int32_t value,
                       const rabbet_dims_t* dims, rabbet_strbuf_t* names) {
  const rabbet_sequence_t* sequence = prepared->sequence;
  const rabbet_plan_value_t* values = sequence->plan->values;
  int32_t root = sequence->analysis.roots[value];
  char text[192];
  rabbet_strbuf_printf(names, "%s'%s' %s", names->size > 0 ? ", " : "",
                       values[value].name,
                       rabbet_dims_print(dims, text, sizeof(text)));
  if (!rabbet_dims_equal(&prepared->dims[root], dims))
    rabbet_strbuf_printf(
        names, " made of '%s' %s", values[root].name,
        rabbet_dims_print(&prepared->dims[root], text, sizeof(text)));
}

static rabbet_status_t name_inputs(const rabbet_prepared_t* prepared,
                                   const rabbet_plan_step_t* step,
                                   const rabbet_kernel_shapes_t* shapes,
                                   rabbet_status_t status) {
  rabbet_strbuf_t names;
  rabbet_strbuf_initialize(prepared->sequence->engine->allocator, &names);
  for (size_t i = 0; i < step->group.input_count; ++i) {
    int32_t input = step->group.inputs[i];
    int32_t value = step->values[input];
    if (value >= 0) name_input(prepared, value, &shapes->dims[input], &names);
  }
  if (names.size > 0)
    status =
        rabbet_status_annotate(status, "for %s", rabbet_strbuf_text(&names));
  rabbet_strbuf_deinitialize(&names);
  return status;
}

rabbet_status_t rabbet_prepared_explain(const rabbet_prepared_t* prepared,
                                        const rabbet_plan_step_t* step,
                                        const rabbet_kernel_shapes_t* shapes,
                                        rabbet_status_t status) {
  rabbet_status_code_t code = rabbet_status_code(status);
  if (code != RABBET_STATUS_OUT_OF_RANGE &&
      code != RABBET_STATUS_INVALID_ARGUMENT &&
      code != RABBET_STATUS_UNSUPPORTED)
    return status;
  rabbet_status_t found = check_with_rules(prepared, step, shapes);
  if (rabbet_status_code(found) == RABBET_STATUS_INVALID_ARGUMENT) {
    rabbet_status_free(status);
    status = RABBET_STATUS(RABBET_STATUS_OUT_OF_RANGE, "%s",
                           rabbet_status_message(found));
  }
  rabbet_status_free(found);
  return name_inputs(prepared, step, shapes, status);
}
