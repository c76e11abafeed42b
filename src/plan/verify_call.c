// Whether steps call other sequences as these expect it.
#include <assert.h>

#include "base/math.h"
#include "ops/loop_wiring.h"
#include "plan/analysis.h"
#include "plan/verify.h"
#include "rabbet/network.h"

typedef struct verify_call_t {
  const rabbet_plan_t* plan;
  const rabbet_plan_sequence_t* caller;
  const rabbet_plan_step_t* step;
  int32_t* depths;  // [sequence]: how deep it is called; 0: not yet
  bool is_loop;
  rabbet_loop_wiring_t loop;
} verify_call_t;

// A tensor on both sides of a call; `dropped` axes in front are only outside.
// Extents that are not constant are compared in the run, and so are those of
// axes in `varying`.
static rabbet_status_t verify_part(const rabbet_plan_sequence_t* outer,
                                   const rabbet_plan_value_t* a,
                                   int32_t dropped,
                                   const rabbet_plan_sequence_t* inner,
                                   const rabbet_plan_value_t* b,
                                   int64_t varying) {
  bool fits = a->dtype == b->dtype && a->format == b->format &&
              a->shape.rank == b->shape.rank + dropped;
  if (dropped > 0)
    fits = fits && a->format == RABBET_FORMAT_LINEAR &&
           rabbet_dtype_bits(a->dtype) % 8 == 0;
  for (int32_t i = 0; fits && i < b->shape.rank; ++i) {
    int64_t x = 0, y = 0;
    if (varying >> i & 1) continue;
    if (rabbet_expr_is_constant(outer->graph, a->shape.d[i + dropped], &x) &&
        rabbet_expr_is_constant(inner->graph, b->shape.d[i], &y))
      fits = x == y;
  }
  return fits ? rabbet_ok()
              : RABBET_DAMAGED("'%s' and '%s' differ in type, format or shape",
                               a->name, b->name);
}

static rabbet_status_t verify_passed(const rabbet_plan_sequence_t* outer,
                                     const rabbet_plan_value_t* a,
                                     const rabbet_plan_sequence_t* inner,
                                     const rabbet_plan_value_t* b) {
  return verify_part(outer, a, 0, inner, b, 0);
}

static const rabbet_plan_value_t* outer_value(const verify_call_t* check,
                                              const int32_t* list,
                                              size_t index) {
  // rabbet_verify_step has checked that a group's inputs and outputs are values
  // of the plan.
  assert(check->step->values[list[index]] >= 0);
  return &check->caller->values[check->step->values[list[index]]];
}

// Of a loop: inputs that the loop carries, then those that it slices.
static rabbet_status_t verify_call_input(const verify_call_t* check,
                                         const rabbet_plan_call_t* call,
                                         const rabbet_plan_sequence_t* callee,
                                         size_t index) {
  const rabbet_loop_wiring_t* loop = &check->loop;
  bool is_carried = index < loop->carried_count;
  bool is_slice =
      !is_carried && index < loop->carried_count + loop->slice_count;
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
  if (io->is_shape_input && !known && !is_carried && !is_slice)
    return RABBET_DAMAGED(
        "the host does not know the elements of '%s', which shapes depend on",
        outer->name);
  return verify_part(check->caller, outer, is_slice, callee, inner,
                     is_carried ? loop->varying[index] : 0);
}

static size_t output_count(const rabbet_plan_sequence_t* callee) {
  return callee->io_count - callee->input_count - callee->hidden_count;
}

static const rabbet_plan_value_t* callee_value(
    const rabbet_plan_sequence_t* callee, size_t io) {
  return &callee->values[callee->ios[io].value];
}

// ---- Loops

static bool is_number(const rabbet_plan_value_t* value, uint32_t dtypes) {
  return (dtypes >> value->dtype & 1) && value->shape.rank == 0 &&
         value->format == RABBET_FORMAT_LINEAR;
}

// An output of the body: a next value, or an element of one stack.
static rabbet_status_t verify_body_output(const verify_call_t* check,
                                          const rabbet_plan_sequence_t* callee,
                                          size_t at) {
  const rabbet_loop_wiring_t* loop = &check->loop;
  const rabbet_plan_value_t* value =
      callee_value(callee, callee->input_count + at);
  size_t stacks = 0;
  if (at < loop->carried_count)
    return verify_part(callee, callee_value(callee, at), 0, callee, value,
                       loop->varying[at]);
  for (size_t i = 0; i < loop->output_count; ++i)
    stacks += loop->sources[i] == (int64_t)at;
  return stacks == 1
             ? rabbet_ok()
             : RABBET_DAMAGED("output %zu is stacked %zu times", at, stacks);
}

// An output of the step.
static rabbet_status_t verify_result(const verify_call_t* check,
                                     const rabbet_plan_sequence_t* callee,
                                     size_t at) {
  const rabbet_loop_wiring_t* loop = &check->loop;
  const rabbet_plan_value_t* outer =
      outer_value(check, check->step->group.outputs, at);
  bool is_stack = loop->kinds[at] != RABBET_LOOP_OUTPUT_LAST_VALUE;
  int64_t source = loop->sources[at];
  int64_t first = is_stack ? (int64_t)loop->carried_count : 0;
  int64_t end =
      is_stack ? (int64_t)output_count(callee) : (int64_t)loop->carried_count;
  if (source < first || source >= end ||
      loop->kinds[at] < RABBET_LOOP_OUTPUT_LAST_VALUE ||
      loop->kinds[at] > RABBET_LOOP_OUTPUT_REVERSE)
    return RABBET_DAMAGED(
        "output %zu is of kind %lld and the body's output "
        "%lld",
        at, (long long)loop->kinds[at], (long long)source);
  return verify_part(check->caller, outer, is_stack, callee,
                     callee_value(callee, callee->input_count + (size_t)source),
                     is_stack ? 0 : loop->varying[source]);
}

static rabbet_status_t verify_loop_ios(const verify_call_t* check,
                                       const rabbet_plan_call_t* call,
                                       const rabbet_plan_sequence_t* callee) {
  const rabbet_loop_wiring_t* loop = &check->loop;
  bool is_body = call == check->step->calls;
  size_t outputs = output_count(callee), least = loop->carried_count;
  if (call->input_count != callee->input_count ||
      callee->input_count < loop->carried_count + loop->slice_count ||
      (is_body ? outputs < least : outputs != 1))
    return RABBET_DAMAGED(
        "it has %zu inputs and %zu outputs; the loop passes "
        "%zu, carries %zu and has %zu slices",
        callee->input_count, outputs, call->input_count, loop->carried_count,
        loop->slice_count);
  for (size_t i = 0; i < loop->carried_count + loop->slice_count; ++i)
    if (call->inputs[i] != check->step->calls[0].inputs[i])
      return RABBET_DAMAGED("input %zu differs from that of the body", i);
  for (size_t i = 0; i < call->input_count; ++i)
    RABBET_RETURN_IF_ERROR(verify_call_input(check, call, callee, i));
  if (!is_body)
    return is_number(callee_value(callee, callee->input_count),
                     1u << RABBET_DTYPE_BOOL)
               ? rabbet_ok()
               : RABBET_DAMAGED("the condition is no BOOL without dimensions");
  for (size_t i = 0; i < outputs; ++i)
    RABBET_RETURN_IF_ERROR(verify_body_output(check, callee, i));
  for (size_t i = 0; i < loop->output_count; ++i)
    RABBET_RETURN_IF_ERROR(verify_result(check, callee, i));
  if (loop->condition >= 0 &&
      !is_number(callee_value(callee, (size_t)loop->condition),
                 1u << RABBET_DTYPE_BOOL))
    return RABBET_DAMAGED("the condition is no BOOL without dimensions");
  return rabbet_ok();
}

static rabbet_status_t verify_call_ios(const verify_call_t* check,
                                       const rabbet_plan_call_t* call,
                                       const rabbet_plan_sequence_t* callee) {
  const rabbet_group_t* group = &check->step->group;
  size_t outputs = output_count(callee);
  if (check->is_loop) return verify_loop_ios(check, call, callee);
  if (call->input_count != callee->input_count ||
      group->output_count != outputs)
    return RABBET_DAMAGED(
        "it has %zu inputs and %zu outputs, but is called with %zu and %zu",
        callee->input_count, outputs, call->input_count, group->output_count);
  for (size_t i = 0; i < call->input_count; ++i)
    RABBET_RETURN_IF_ERROR(verify_call_input(check, call, callee, i));
  for (size_t i = 0; i < outputs; ++i)
    RABBET_RETURN_IF_ERROR(
        verify_passed(check->caller, outer_value(check, group->outputs, i),
                      callee, callee_value(callee, callee->input_count + i)));
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
  if (rabbet_plan_is_entry(plan, (size_t)callee))
    return RABBET_DAMAGED("sequence %d is called, and callers run it", callee);
  if (plan->sequences[callee].profile_count != check->caller->profile_count)
    return RABBET_DAMAGED("sequence %d has %zu profiles, its caller %zu",
                          callee, plan->sequences[callee].profile_count,
                          check->caller->profile_count);
  if (check->depths[callee] > 0)
    return RABBET_DAMAGED("sequence %d is called twice", callee);
  assert(rabbet_plan_is_entry(plan, (size_t)caller) ||
         check->depths[caller] > 0);
  check->depths[callee] = check->depths[caller] + 1;
  if (check->depths[callee] > RABBET_PLAN_MAX_DEPTH)
    return RABBET_DAMAGED("sequence %d is called over %d deep", callee,
                          RABBET_PLAN_MAX_DEPTH);
  return RABBET_ANNOTATE(verify_call_ios(check, call, &plan->sequences[callee]),
                         "sequence %d ('%s')", callee,
                         plan->sequences[callee].name);
}

// No rule proves the shapes of its inputs, so that they are checked here.
static rabbet_status_t verify_choice(const verify_call_t* check) {
  const rabbet_plan_step_t* step = check->step;
  if (step->call_count != 2 || step->group.input_count == 0)
    return RABBET_DAMAGED("it calls %zu sequences; expected 2",
                          step->call_count);
  assert(step->group.nodes[0].input_count > 0);
  const rabbet_plan_value_t* condition =
      outer_value(check, step->group.inputs, 0);
  return step->group.nodes[0].inputs[0] == step->group.inputs[0] &&
                 is_number(condition, 1u << RABBET_DTYPE_BOOL)
             ? rabbet_ok()
             : RABBET_DAMAGED("'%s' is no BOOL without dimensions",
                              condition->name);
}

// The layer's input, which must be one of the step's.
static const rabbet_plan_value_t* layer_input(const verify_call_t* check,
                                              int64_t input) {
  const rabbet_group_t* group = &check->step->group;
  const rabbet_group_node_t* node = &group->nodes[0];
  if (input < 0 || (size_t)input >= node->input_count) return NULL;
  for (size_t i = 0; i < group->input_count; ++i)
    if (group->inputs[i] == node->inputs[input])
      return outer_value(check, group->inputs, i);
  return NULL;
}

static rabbet_status_t verify_loop(const verify_call_t* check) {
  const rabbet_plan_step_t* step = check->step;
  const rabbet_loop_wiring_t* loop = &check->loop;
  uint32_t numbers = 1u << RABBET_DTYPE_INT32 | 1u << RABBET_DTYPE_INT64;
  if (step->call_count > 2 || loop->output_count != step->group.output_count)
    return RABBET_DAMAGED(
        "it calls %zu sequences and has %zu outputs; expected at most 2, and "
        "%zu",
        step->call_count, step->group.output_count, loop->output_count);
  if (loop->count != -1) {
    const rabbet_plan_value_t* count = layer_input(check, loop->count);
    if (!count || !is_number(count, numbers))
      return RABBET_DAMAGED(
          "its count, input %lld, is no integer without dimensions",
          (long long)loop->count);
  }
  if (loop->condition < -1 || loop->condition >= (int64_t)loop->carried_count ||
      (loop->condition >= 0 && step->call_count > 1))
    return RABBET_DAMAGED("its condition is carried tensor %lld of %zu",
                          (long long)loop->condition, loop->carried_count);
  if (loop->count < 0 && loop->condition < 0 && step->call_count < 2)
    return RABBET_DAMAGED("nothing ends it");
  return rabbet_ok();
}

static rabbet_status_t verify_step_calls(verify_call_t* check) {
  const rabbet_plan_step_t* step = check->step;
  const rabbet_group_t* group = &step->group;
  if (group->node_count != 1)
    return RABBET_DAMAGED("it has %zu layers; expected 1", group->node_count);
  for (size_t i = 0; i < group->output_count; ++i)
    if (i >= group->nodes[0].output_count ||
        group->nodes[0].outputs[i] != group->outputs[i])
      return RABBET_DAMAGED("its layer has other outputs");
  check->loop = (rabbet_loop_wiring_t){0};
  check->is_loop = rabbet_op_is(group->nodes[0].op, RABBET_OP_LOOP);
  if (check->is_loop) {
    rabbet_status_t status = rabbet_loop_wiring_read(
        group->nodes[0].attrs, group->nodes[0].op->attr_count, &check->loop);
    bool fits = rabbet_is_ok(status);
    rabbet_status_ignore(status);
    if (!fits) return RABBET_DAMAGED("its lists of outputs differ in length");
  }
  RABBET_RETURN_IF_ERROR(check->is_loop ? verify_loop(check)
                                        : verify_choice(check));
  for (size_t i = 0; i < step->call_count; ++i)
    RABBET_RETURN_IF_ERROR(verify_call(check, &step->calls[i]));
  return rabbet_ok();
}

static rabbet_status_t verify_calls_of(verify_call_t* check) {
  const rabbet_plan_t* plan = check->plan;
  for (size_t i = 0; i < plan->sequence_count; ++i) {
    check->caller = &plan->sequences[i];
    if (check->depths[i] == 0 && !rabbet_plan_is_entry(plan, i))
      return RABBET_DAMAGED("sequence %zu ('%s') is never called", i,
                            plan->sequences[i].name);
    for (size_t s = 0; s < check->caller->step_count; ++s) {
      check->step = &check->caller->steps[s];
      if (check->step->call_count > 0)
        RABBET_RETURN_IF_ERROR(RABBET_ANNOTATE(
            verify_step_calls(check), "step %zu ('%s')", s, check->step->name));
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
