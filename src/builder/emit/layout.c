#include "builder/emit/layout.h"

#include <assert.h>
#include <string.h>

typedef struct layout_builder_t {
  rabbet_build_t* build;
  rabbet_layout_t* layout;
  // The slots of each IR value as lists: newest[value], then next[slot].
  int32_t* newest;
  RABBET_VEC(int32_t) next;
  int32_t* made;  // of each IR value: the slot that its step writes
} layout_builder_t;

int32_t rabbet_layout_root(const rabbet_layout_t* layout, int32_t slot) {
  assert(slot >= 0 && (size_t)slot < layout->slots.count);
  while (layout->slots.data[slot].alias >= 0)
    slot = layout->slots.data[slot].alias;
  return slot;
}

bool rabbet_layout_is_part(const rabbet_layout_t* layout, int32_t slot) {
  const rabbet_slot_t* slots = layout->slots.data;
  for (; slots[slot].alias >= 0; slot = slots[slot].alias)
    if (slots[slot].is_part) return true;
  return false;
}

uint64_t rabbet_layout_offset(const rabbet_layout_t* layout, int32_t slot) {
  const rabbet_slot_t* slots = layout->slots.data;
  uint64_t offset = 0;
  for (; slots[slot].alias >= 0; slot = slots[slot].alias) {
    assert(slots[slot].is_part || slots[slot].offset == 0);
    offset += slots[slot].offset;
  }
  return offset;
}

rabbet_status_t rabbet_layout_add_slot(rabbet_build_t* build,
                                       rabbet_layout_t* layout,
                                       rabbet_slot_t slot, int32_t* out_slot) {
  assert(layout->uses.count == layout->slots.count);
  *out_slot = (int32_t)layout->slots.count;
  const rabbet_memory_use_t use = {.last_read = -1};
  RABBET_RETURN_IF_ERROR(RABBET_VEC_PUSH(build->allocator, &layout->uses, use));
  return RABBET_VEC_PUSH(build->allocator, &layout->slots, slot);
}

static rabbet_status_t layout_slot(layout_builder_t* builder,
                                   rabbet_slot_t slot, int32_t* out_slot) {
  RABBET_RETURN_IF_ERROR(
      rabbet_layout_add_slot(builder->build, builder->layout, slot, out_slot));
  // Slots of copies are in no list.
  while (builder->next.count + 1 < builder->layout->slots.count)
    RABBET_RETURN_IF_ERROR(
        RABBET_VEC_PUSH(builder->build->allocator, &builder->next, -1));
  RABBET_RETURN_IF_ERROR(RABBET_VEC_PUSH(
      builder->build->allocator, &builder->next, builder->newest[slot.value]));
  assert(builder->next.count == builder->layout->slots.count);
  builder->newest[slot.value] = *out_slot;
  return rabbet_ok();
}

static int32_t layout_find(const layout_builder_t* builder, int32_t value,
                           rabbet_type_format_t type) {
  int32_t slot = builder->newest[value];
  while (slot >= 0) {
    const rabbet_slot_t* s = &builder->layout->slots.data[slot];
    assert(s->value == value);
    if (s->type.dtype == type.dtype && s->type.format == type.format) break;
    slot = builder->next.data[slot];
  }
  return slot;
}

// ---- Conversions ------------------------------------------------------------

static rabbet_status_t layout_insert_step(rabbet_build_t* build,
                                          rabbet_layout_t* layout, size_t index,
                                          rabbet_pick_t pick, int32_t source,
                                          int32_t target) {
  rabbet_layout_step_t step = {.pick = pick};
  assert(index <= layout->steps.count);
  RABBET_RETURN_IF_ERROR(rabbet_arena_allocate_array(
      &build->arena, 2, sizeof(int32_t), (void**)&step.slots));
  step.slots[0] = source;
  step.slots[1] = target;
  RABBET_RETURN_IF_ERROR(
      RABBET_VEC_PUSH(build->allocator, &layout->steps, step));
  rabbet_layout_step_t* steps = layout->steps.data;
  memmove(steps + index + 1, steps + index,
          (layout->steps.count - 1 - index) * sizeof(step));
  steps[index] = step;
  return rabbet_ok();
}

rabbet_status_t rabbet_layout_insert_copy(rabbet_build_t* build,
                                          rabbet_layout_t* layout, size_t index,
                                          int32_t source, int32_t* out_copy) {
  rabbet_slot_t slot = layout->slots.data[source];
  slot.is_constant = slot.is_host_only = false;
  slot.input = slot.output = slot.alias = -1;
  slot.is_part = false;
  slot.offset = 0;
  rabbet_pick_t pick;
  RABBET_RETURN_IF_ERROR(
      rabbet_tuner_conversion(build, rabbet_ir_value(&build->ir, slot.value),
                              slot.type, slot.type, &pick));
  RABBET_RETURN_IF_ERROR(rabbet_layout_add_slot(build, layout, slot, out_copy));
  return layout_insert_step(build, layout, index, pick, source, *out_copy);
}

static rabbet_slot_t layout_describe(int32_t value, rabbet_type_format_t type) {
  return (rabbet_slot_t){
      .value = value, .type = type, .input = -1, .output = -1, .alias = -1};
}

// The slot of a value that no step computes: a constant in the requested
// format, or a value known to the host, in LINEAR.
static rabbet_status_t layout_unmade(layout_builder_t* builder, int32_t value,
                                     rabbet_type_format_t type,
                                     int32_t* out_slot) {
  const rabbet_ir_value_t* v = rabbet_ir_value(&builder->build->ir, value);
  assert(v->constant || v->values);
  if (!v->constant) type.format = RABBET_FORMAT_LINEAR;
  *out_slot = layout_find(builder, value, type);
  if (*out_slot >= 0) return rabbet_ok();
  rabbet_slot_t slot = layout_describe(value, type);
  slot.is_constant = v->constant != NULL;
  slot.is_host_only = !slot.is_constant;
  return layout_slot(builder, slot, out_slot);
}

// The slot of the value in this type; adds a conversion if there is none yet.
static rabbet_status_t layout_get(layout_builder_t* builder, int32_t value,
                                  rabbet_type_format_t type,
                                  int32_t* out_slot) {
  rabbet_build_t* build = builder->build;
  *out_slot = layout_find(builder, value, type);
  if (*out_slot >= 0) return rabbet_ok();
  int32_t source = builder->made[value];
  if (source < 0)
    RABBET_RETURN_IF_ERROR(layout_unmade(builder, value, type, &source));
  rabbet_type_format_t from = builder->layout->slots.data[source].type;
  if (from.dtype == type.dtype && from.format == type.format) {
    *out_slot = source;
    return rabbet_ok();
  }
  rabbet_pick_t pick;
  RABBET_RETURN_IF_ERROR(rabbet_tuner_conversion(
      build, rabbet_ir_value(&build->ir, value), from, type, &pick));
  RABBET_RETURN_IF_ERROR(
      layout_slot(builder, layout_describe(value, type), out_slot));
  return layout_insert_step(build, builder->layout,
                            builder->layout->steps.count, pick, source,
                            *out_slot);
}

// ---- Steps ------------------------------------------------------------------

static rabbet_status_t layout_pick(layout_builder_t* builder,
                                   const rabbet_pick_t* pick) {
  rabbet_build_t* build = builder->build;
  const rabbet_unit_t* unit = pick->unit;
  const rabbet_group_t* group = &unit->group;
  const rabbet_type_format_t* types = pick->choice->candidate.tensors;
  rabbet_layout_step_t step = {.pick = *pick};
  RABBET_RETURN_IF_ERROR(rabbet_arena_allocate_array(
      &build->arena, group->input_count + group->output_count, sizeof(int32_t),
      (void**)&step.slots));
  for (size_t i = 0; i < group->input_count; ++i)
    RABBET_RETURN_IF_ERROR(layout_get(builder, unit->values[group->inputs[i]],
                                      types[i], &step.slots[i]));
  for (size_t i = 0; i < group->output_count; ++i) {
    int32_t value = unit->values[group->outputs[i]];
    size_t at = group->input_count + i;
    assert(builder->made[value] < 0);  // one step computes it
    RABBET_RETURN_IF_ERROR(layout_slot(
        builder, layout_describe(value, types[at]), &step.slots[at]));
    builder->made[value] = step.slots[at];
  }
  return RABBET_VEC_PUSH(build->allocator, &builder->layout->steps, step);
}

static rabbet_status_t layout_inputs(layout_builder_t* builder,
                                     const rabbet_solution_t* solution) {
  const rabbet_ir_t* ir = &builder->build->ir;
  for (size_t i = 0; i < ir->input_count; ++i) {
    rabbet_slot_t slot = layout_describe(ir->inputs[i], solution->inputs[i]);
    slot.input = (int32_t)i;
    RABBET_RETURN_IF_ERROR(
        layout_slot(builder, slot, &builder->made[ir->inputs[i]]));
    assert(builder->made[ir->inputs[i]] == (int32_t)i);
  }
  return rabbet_ok();
}

static bool layout_is_read(const rabbet_layout_t* layout, int32_t slot) {
  for (size_t s = 0; s < layout->steps.count; ++s) {
    const rabbet_layout_step_t* step = &layout->steps.data[s];
    for (size_t i = 0; i < step->pick.unit->group.input_count; ++i)
      if (step->slots[i] == slot) return true;
  }
  return false;
}

// A value known to the host is written to an output at the end of the run, so
// steps that read it need other memory.
static rabbet_status_t layout_host_output(layout_builder_t* builder,
                                          int32_t* slot) {
  rabbet_slot_t own = builder->layout->slots.data[*slot];
  if (!own.is_host_only || !layout_is_read(builder->layout, *slot))
    return rabbet_ok();
  return rabbet_layout_add_slot(builder->build, builder->layout, own, slot);
}

// Gives outputs memory of their own: a value in an input's or a constant's
// memory is copied.
static rabbet_status_t layout_outputs(layout_builder_t* builder,
                                      const rabbet_solution_t* solution) {
  rabbet_build_t* build = builder->build;
  const rabbet_ir_t* ir = &build->ir;
  for (size_t i = 0; i < ir->output_count; ++i) {
    int32_t slot = -1;
    RABBET_RETURN_IF_ERROR(
        layout_get(builder, ir->outputs[i], solution->outputs[i], &slot));
    const rabbet_slot_t* s = &builder->layout->slots.data[slot];
    if (s->input >= 0 || s->is_constant)
      RABBET_RETURN_IF_ERROR(rabbet_layout_insert_copy(
          build, builder->layout, builder->layout->steps.count, slot, &slot));
    RABBET_RETURN_IF_ERROR(layout_host_output(builder, &slot));
    assert(builder->layout->slots.data[slot].output < 0);
    builder->layout->slots.data[slot].output = (int32_t)i;
    builder->layout->outputs[i] = slot;
  }
  return rabbet_ok();
}

static rabbet_status_t layout_all(layout_builder_t* builder,
                                  const rabbet_solution_t* solution) {
  rabbet_build_t* build = builder->build;
  size_t values = build->ir.values.count;
  int32_t** tables[] = {&builder->newest, &builder->made};
  for (size_t t = 0; t < 2; ++t) {
    RABBET_RETURN_IF_ERROR(rabbet_arena_allocate_array(
        &build->arena, values, sizeof(int32_t), (void**)tables[t]));
    for (size_t i = 0; i < values; ++i)
      (*tables[t])[i] = -1;
  }
  rabbet_layout_t* layout = builder->layout;
  int32_t** results[] = {&layout->outputs, &layout->aliased_inputs};
  for (size_t t = 0; t < 2; ++t) {
    RABBET_RETURN_IF_ERROR(
        rabbet_arena_allocate_array(&build->arena, build->ir.output_count,
                                    sizeof(int32_t), (void**)results[t]));
    for (size_t i = 0; i < build->ir.output_count; ++i)
      (*results[t])[i] = -1;
  }
  RABBET_RETURN_IF_ERROR(layout_inputs(builder, solution));
  for (size_t i = 0; i < solution->pick_count; ++i)
    RABBET_RETURN_IF_ERROR(layout_pick(builder, &solution->picks[i]));
  RABBET_RETURN_IF_ERROR(layout_outputs(builder, solution));
  RABBET_RETURN_IF_ERROR(rabbet_layout_order(build, layout));
  return rabbet_layout_alias(build, layout);
}

rabbet_status_t rabbet_layout_initialize(rabbet_build_t* build,
                                         const rabbet_solution_t* solution,
                                         rabbet_layout_t* out_layout) {
  memset(out_layout, 0, sizeof(*out_layout));
  layout_builder_t builder = {.build = build, .layout = out_layout};
  rabbet_status_t status = layout_all(&builder, solution);
  rabbet_vec_free(build->allocator, &builder.next);
  if (!rabbet_is_ok(status)) rabbet_layout_deinitialize(build, out_layout);
  return status;
}

void rabbet_layout_deinitialize(rabbet_build_t* build,
                                rabbet_layout_t* layout) {
  rabbet_vec_free(build->allocator, &layout->slots);
  rabbet_vec_free(build->allocator, &layout->uses);
  rabbet_vec_free(build->allocator, &layout->steps);
}
