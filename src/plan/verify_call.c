// Whether steps call other sequences as these expect it.
#include <assert.h>

#include "base/math.h"
#include "plan/analysis.h"
#include "plan/verify.h"

#define RABBET_DAMAGED(...) RABBET_STATUS(RABBET_STATUS_DATA_LOSS, __VA_ARGS__)
#define RABBET_MAX_CALL_DEPTH 16

typedef struct verify_call_t {
  const rabbet_plan_t* plan;
  const rabbet_plan_sequence_t* caller;
  const rabbet_plan_step_t* step;
  int32_t* depths;  // [sequence]: how deep it is called; 0: not yet
} verify_call_t;

// A tensor on both sides of a call. Extents that are not constant are compared
// in the run.
static rabbet_status_t verify_passed(const rabbet_plan_sequence_t* outer,
                                     const rabbet_plan_value_t* a,
                                     const rabbet_plan_sequence_t* inner,
                                     const rabbet_plan_value_t* b) {
  bool fits = a->dtype == b->dtype && a->format == b->format &&
              a->shape.rank == b->shape.rank;
  for (int32_t i = 0; fits && i < a->shape.rank; ++i) {
    int64_t x = 0, y = 0;
    if (rabbet_expr_is_constant(outer->graph, a->shape.d[i], &x) &&
        rabbet_expr_is_constant(inner->graph, b->shape.d[i], &y))
      fits = x == y;
  }
  return fits ? rabbet_ok()
              : RABBET_DAMAGED("'%s' and '%s' differ in type, format or shape",
                               a->name, b->name);
}

static const rabbet_plan_value_t* outer_value(const verify_call_t* check,
                                              const int32_t* list,
                                              size_t index) {
  // rabbet_verify_step has checked that a group's inputs and outputs are values
  // of the plan.
  assert(check->step->values[list[index]] >= 0);
  return &check->caller->values[check->step->values[list[index]]];
}

static rabbet_status_t verify_call_input(const verify_call_t* check,
                                         const rabbet_plan_call_t* call,
                                         const rabbet_plan_sequence_t* callee,
                                         size_t index) {
  const rabbet_group_t* group = &check->step->group;
  const rabbet_plan_io_t* io = &callee->ios[index];
  const rabbet_plan_value_t* inner = &callee->values[io->value];
  int32_t from = call->inputs[index];
  if (from < 0 || (size_t)from >= group->input_count)
    return RABBET_DAMAGED("input '%s' is input %d of %zu", io->name, from,
                          group->input_count);
  const rabbet_plan_value_t* outer =
      outer_value(check, group->inputs, (size_t)from);
  bool known = outer->host_values ||
               (outer->storage == RABBET_PLAN_STORAGE_IO && outer->alias < 0 &&
                check->caller->ios[outer->io].is_shape_input);
  if (io->is_shape_input && !known)
    return RABBET_DAMAGED(
        "the host does not know the elements of '%s', which shapes depend on",
        outer->name);
  return verify_passed(check->caller, outer, callee, inner);
}

static rabbet_status_t verify_call_ios(const verify_call_t* check,
                                       const rabbet_plan_call_t* call,
                                       const rabbet_plan_sequence_t* callee) {
  const rabbet_group_t* group = &check->step->group;
  size_t outputs =
      callee->io_count - callee->input_count - callee->hidden_count;
  if (call->input_count != callee->input_count ||
      group->output_count != outputs)
    return RABBET_DAMAGED(
        "it has %zu inputs and %zu outputs, but is called with %zu and %zu",
        callee->input_count, outputs, call->input_count, group->output_count);
  for (size_t i = 0; i < call->input_count; ++i)
    RABBET_RETURN_IF_ERROR(verify_call_input(check, call, callee, i));
  for (size_t i = 0; i < outputs; ++i)
    RABBET_RETURN_IF_ERROR(verify_passed(
        check->caller, outer_value(check, group->outputs, i), callee,
        &callee->values[callee->ios[callee->input_count + i].value]));
  return rabbet_ok();
}

static rabbet_status_t verify_call(const verify_call_t* check,
                                   const rabbet_plan_call_t* call) {
  const rabbet_plan_t* plan = check->plan;
  int32_t caller = (int32_t)(check->caller - plan->sequences);
  int32_t callee = call->sequence;
  if (callee <= caller || (size_t)callee >= plan->sequence_count)
    return RABBET_DAMAGED("sequence %d calls sequence %d of %zu", caller,
                          callee, plan->sequence_count);
  if (check->depths[callee] > 0)
    return RABBET_DAMAGED("sequence %d is called twice", callee);
  assert(caller == 0 || check->depths[caller] > 0);
  check->depths[callee] = check->depths[caller] + 1;
  if (check->depths[callee] > RABBET_MAX_CALL_DEPTH)
    return RABBET_DAMAGED("sequence %d is called over %d deep", callee,
                          RABBET_MAX_CALL_DEPTH);
  return RABBET_ANNOTATE(verify_call_ios(check, call, &plan->sequences[callee]),
                         "sequence %d ('%s')", callee,
                         plan->sequences[callee].name);
}

static rabbet_status_t verify_condition(const verify_call_t* check) {
  const rabbet_plan_step_t* step = check->step;
  if (step->group.node_count != 1 || step->call_count != 2)
    return RABBET_DAMAGED(
        "it has %zu layers and calls %zu sequences; expected 1 and 2",
        step->group.node_count, step->call_count);
  assert(step->group.input_count > 0 && step->group.nodes[0].input_count > 0);
  const rabbet_plan_value_t* condition =
      outer_value(check, step->group.inputs, 0);
  // No rule proves the shapes of a condition, so that they are checked here.
  if (step->group.nodes[0].inputs[0] != step->group.inputs[0] ||
      condition->dtype != RABBET_DTYPE_BOOL || condition->shape.rank != 0)
    return RABBET_DAMAGED("'%s' is no BOOL without dimensions",
                          condition->name);
  for (size_t i = 0; i < step->group.output_count; ++i)
    if (i >= step->group.nodes[0].output_count ||
        step->group.nodes[0].outputs[i] != step->group.outputs[i])
      return RABBET_DAMAGED("its layer has other outputs");
  for (size_t i = 0; i < step->call_count; ++i)
    RABBET_RETURN_IF_ERROR(verify_call(check, &step->calls[i]));
  return rabbet_ok();
}

static rabbet_status_t verify_calls_of(verify_call_t* check) {
  const rabbet_plan_t* plan = check->plan;
  for (size_t i = 0; i < plan->sequence_count; ++i) {
    check->caller = &plan->sequences[i];
    if (i > 0 && check->depths[i] == 0)
      return RABBET_DAMAGED("sequence %zu ('%s') is never called", i,
                            plan->sequences[i].name);
    for (size_t s = 0; s < check->caller->step_count; ++s) {
      check->step = &check->caller->steps[s];
      if (check->step->call_count > 0)
        RABBET_RETURN_IF_ERROR(RABBET_ANNOTATE(
            verify_condition(check), "step %zu ('%s')", s, check->step->name));
    }
  }
  return rabbet_ok();
}

rabbet_status_t rabbet_verify_calls(const rabbet_plan_t* plan) {
  verify_call_t check = {.plan = plan};
  RABBET_RETURN_IF_ERROR(rabbet_allocate(
      plan->allocator, plan->sequence_count * sizeof(*check.depths),
      (void**)&check.depths));
  rabbet_status_t status = verify_calls_of(&check);
  rabbet_free(plan->allocator, check.depths);
  return status;
}
