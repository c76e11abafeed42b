#include "builder/emit/emitter.h"

#include <assert.h>
#include <string.h>

#include "builder/emit/emit_plugin.h"
#include "builder/propose/propose.h"
#include "builder/report.h"
#include "core/attr_set.h"

static rabbet_status_t emit_ids(rabbet_arena_t* arena, const int32_t** ids,
                                size_t count) {
  return rabbet_arena_copy(arena, *ids, count * sizeof(int32_t), (void**)ids);
}

static rabbet_status_t emit_node(rabbet_emitter_t* emitter,
                                 rabbet_plan_step_t* step,
                                 rabbet_group_node_t* node) {
  rabbet_arena_t* arena = &emitter->plan->arena;
  rabbet_attr_t* attrs = NULL;
  RABBET_RETURN_IF_ERROR(rabbet_arena_strdup(arena, node->name, &node->name));
  RABBET_RETURN_IF_ERROR(
      rabbet_attrs_copy(arena, node->attrs, node->op->attr_count, &attrs));
  node->attrs = attrs;
  RABBET_RETURN_IF_ERROR(emit_ids(arena, &node->inputs, node->input_count));
  RABBET_RETURN_IF_ERROR(emit_ids(arena, &node->outputs, node->output_count));
  if (node->aliased)
    RABBET_RETURN_IF_ERROR(emit_ids(arena, &node->aliased, node->output_count));
  if (!node->plugin) return rabbet_ok();
  const rabbet_plugin_layer_t layer = {node->plugin, node,
                                       emitter->build->device->kind};
  node->plugin = NULL;  // a plan names it
  return RABBET_ANNOTATE(
      rabbet_emit_plugin(emitter->plan, emitter->build->allocator, &layer,
                         step),
      "layer '%s'", node->name);
}

static rabbet_status_t emit_group_values(rabbet_emitter_t* emitter,
                                         const rabbet_layout_step_t* from,
                                         rabbet_plan_step_t* step) {
  rabbet_arena_t* arena = &emitter->plan->arena;
  const rabbet_unit_t* unit = from->pick.unit;
  rabbet_group_t* group = &step->group;
  int32_t* values = NULL;
  rabbet_shape_t* shapes = NULL;
  RABBET_RETURN_IF_ERROR(rabbet_arena_allocate_array(
      arena, group->value_count, sizeof(int32_t), (void**)&values));
  RABBET_RETURN_IF_ERROR(rabbet_arena_allocate_array(
      arena, group->value_count, sizeof(*shapes), (void**)&shapes));
  for (size_t i = 0; i < group->value_count; ++i) {
    values[i] = -1;
    group->values[i].constant = NULL;
    shapes[i] = rabbet_emit_shape(
        emitter, &rabbet_ir_value(&emitter->build->ir, unit->values[i])->shape);
  }
  for (size_t i = 0; i < group->input_count + group->output_count; ++i) {
    int32_t number = rabbet_group_boundary(group, i);
    assert(number >= 0 && (size_t)number < group->value_count);
    assert(emitter->values[from->slots[i]] >= 0);
    values[number] = emitter->values[from->slots[i]];
    shapes[number].rank = -1;
  }
  step->values = values;
  step->inner_shapes = shapes;
  return rabbet_ok();
}

static rabbet_status_t emit_group(rabbet_emitter_t* emitter,
                                  const rabbet_layout_step_t* from,
                                  rabbet_plan_step_t* step) {
  rabbet_arena_t* arena = &emitter->plan->arena;
  rabbet_group_t group;
  RABBET_RETURN_IF_ERROR(rabbet_unit_set_types(emitter->build, from->pick.unit,
                                               from->pick.choice, &group));
  // A plan's constants are its values'.
  for (size_t i = 0; i < group.value_count; ++i)
    group.values[i].constant = NULL;
  step->group = group;
  RABBET_RETURN_IF_ERROR(rabbet_arena_copy(
      arena, group.values, group.value_count * sizeof(*group.values),
      (void**)&step->group.values));
  RABBET_RETURN_IF_ERROR(rabbet_arena_copy(
      arena, group.nodes, group.node_count * sizeof(*group.nodes),
      (void**)&step->group.nodes));
  RABBET_RETURN_IF_ERROR(
      emit_ids(arena, &step->group.inputs, group.input_count));
  RABBET_RETURN_IF_ERROR(
      emit_ids(arena, &step->group.outputs, group.output_count));
  RABBET_RETURN_IF_ERROR(emit_group_values(emitter, from, step));
  for (size_t i = 0; i < group.node_count; ++i)
    RABBET_RETURN_IF_ERROR(emit_node(emitter, step, &step->group.nodes[i]));
  return rabbet_ok();
}

// The step's input that is the node's.
static int32_t emit_find_input(const rabbet_group_t* group, int32_t input) {
  int32_t i = 0;
  while (group->inputs[i] != group->nodes[0].inputs[input])
    ++i;
  return i;
}

static rabbet_status_t emit_calls(rabbet_emitter_t* emitter,
                                  const rabbet_layout_step_t* from,
                                  rabbet_plan_step_t* step) {
  rabbet_arena_t* arena = &emitter->plan->arena;
  const rabbet_bodies_t* bodies = from->pick.unit->nodes[0]->bodies;
  rabbet_plan_call_t* calls = NULL;
  RABBET_RETURN_IF_ERROR(rabbet_arena_allocate_array(
      arena, bodies->count, sizeof(*calls), (void**)&calls));
  for (size_t k = 0; k < bodies->count; ++k) {
    const rabbet_body_t* body = &bodies->list[k];
    size_t count = body->network->inputs.count;
    int32_t* inputs = NULL;
    RABBET_RETURN_IF_ERROR(rabbet_arena_allocate_array(
        arena, count, sizeof(*inputs), (void**)&inputs));
    for (size_t i = 0; i < count; ++i)
      inputs[i] = emit_find_input(&step->group, body->inputs[i]);
    calls[k] = (rabbet_plan_call_t){
        .sequence = rabbet_emit_find(emitter->from, body->network),
        .inputs = inputs,
        .input_count = count};
  }
  step->calls = calls;
  step->call_count = bodies->count;
  return rabbet_ok();
}

static rabbet_status_t emit_step(rabbet_emitter_t* emitter,
                                 const rabbet_layout_step_t* from,
                                 rabbet_plan_step_t* step) {
  rabbet_arena_t* arena = &emitter->plan->arena;
  const rabbet_choice_t* choice = from->pick.choice;
  const rabbet_candidate_t* candidate = &choice->candidate;
  bool calls = candidate->kernel == &rabbet_call_class;
  assert(candidate->kernel);
  step->tactic = candidate->tactic;
  step->time_us = calls ? -1.0f : (float)choice->us;
  RABBET_RETURN_IF_ERROR(
      rabbet_arena_strdup(arena, from->pick.unit->name, &step->name));
  RABBET_RETURN_IF_ERROR(rabbet_arena_strdup(
      arena, calls ? "" : candidate->kernel->name, &step->kernel));
  RABBET_RETURN_IF_ERROR(
      rabbet_arena_strdup(arena, candidate->tactic_name, &step->tactic_name));
  RABBET_RETURN_IF_ERROR(emit_group(emitter, from, step));
  if (calls) return emit_calls(emitter, from, step);
  int64_t verbosity = emitter->build->config
                          ->options[RABBET_BUILDER_OPTION_PROFILING_VERBOSITY];
  if (verbosity != RABBET_PROFILING_DETAILED) return rabbet_ok();
  return rabbet_report_alternatives(emitter->build, &from->pick, arena,
                                    &step->report_json);
}

// Lists the values that the host reads after a step. Those of a view are read
// after the step before it.
static rabbet_status_t emit_host_reads(rabbet_emitter_t* emitter,
                                       const rabbet_layout_step_t* from,
                                       rabbet_plan_step_t* step) {
  size_t inputs = from->pick.unit->group.input_count;
  size_t outputs = from->pick.unit->group.output_count;
  int32_t* reads = NULL;
  size_t count = step->host_read_count;
  RABBET_RETURN_IF_ERROR(rabbet_arena_allocate_array(
      &emitter->plan->arena, count + outputs, sizeof(int32_t), (void**)&reads));
  if (count > 0) memcpy(reads, step->host_reads, count * sizeof(int32_t));
  for (size_t i = 0; i < outputs; ++i) {
    const rabbet_slot_t* slot =
        &emitter->layout->slots.data[from->slots[inputs + i]];
    int32_t value = emitter->values[from->slots[inputs + i]];
    if (emitter->made[slot->value] == value &&
        rabbet_emit_is_read(emitter, value))
      reads[count++] = value;
  }
  assert(count <= step->host_read_count + outputs);
  step->host_reads = reads;
  step->host_read_count = count;
  return rabbet_ok();
}

static bool emit_is_view(const rabbet_layout_step_t* step) {
  return !step->pick.choice->candidate.kernel;
}

rabbet_status_t rabbet_emit_steps(rabbet_emitter_t* emitter) {
  const rabbet_layout_t* layout = emitter->layout;
  rabbet_plan_sequence_t* sequence = emitter->sequence;
  RABBET_RETURN_IF_ERROR(rabbet_arena_allocate_array(
      &sequence->plan->arena, layout->steps.count, sizeof(rabbet_plan_step_t),
      (void**)&sequence->steps));
  for (size_t s = 0; s < layout->steps.count; ++s) {
    const rabbet_layout_step_t* from = &layout->steps.data[s];
    if (!emit_is_view(from)) {
      rabbet_plan_step_t* step = &sequence->steps[sequence->step_count++];
      RABBET_RETURN_IF_ERROR(emit_step(emitter, from, step));
    }
    if (sequence->step_count > 0)
      RABBET_RETURN_IF_ERROR(emit_host_reads(
          emitter, from, &sequence->steps[sequence->step_count - 1]));
  }
  return rabbet_ok();
}
