// Memory that several values share: views, and operators that work in place.
//
// A plugin may demand that its output is in its input's memory. Other readers
// must not see the change: the input is copied first if it is a constant or is
// read later. A network input is copied into the memory of the network output
// computed from it; if a caller passes the same address for both, the copy does
// nothing.

#include <assert.h>
#include <string.h>

#include "builder/emit/concatenations.h"
#include "builder/emit/layout.h"

// ---- Sharing ----------------------------------------------------------------

static bool alias_reads(const rabbet_layout_t* layout,
                        const rabbet_layout_step_t* step, int32_t root,
                        int32_t except) {
  for (size_t i = 0; i < rabbet_layout_step_inputs(step); ++i)
    if ((int32_t)i != except &&
        rabbet_layout_root(layout, step->slots[i]) == root)
      return true;
  return false;
}

void rabbet_layout_alias_slot(rabbet_layout_t* layout, int32_t slot,
                              int32_t whole) {
  assert(layout->slots.data[slot].alias < 0);
  int32_t root = rabbet_layout_root(layout, whole);
  assert(root != slot);
  // An alias of the root itself keeps chains of aliases short.
  layout->slots.data[slot].alias =
      rabbet_layout_is_part(layout, whole) ? whole : root;
  rabbet_memory_use_t* use = &layout->uses.data[root];
  const rabbet_memory_use_t* joined = &layout->uses.data[slot];
  use->is_fixed |= joined->is_fixed;
  if (joined->last_read > use->last_read) use->last_read = joined->last_read;
}

// A step's index now, and its index before copies were inserted.
typedef struct alias_position_t {
  size_t now;
  int32_t counted;
} alias_position_t;

// Whether the step may overwrite its input: no other step reads that memory in
// this or a later step. Inserted copies are before the step.
static bool alias_may_write(const rabbet_layout_t* layout,
                            alias_position_t step, int32_t input) {
  const rabbet_layout_step_t* s = &layout->steps.data[step.now];
  int32_t root = rabbet_layout_root(layout, s->slots[input]);
  const rabbet_memory_use_t* use = &layout->uses.data[root];
  return !use->is_fixed && use->last_read <= step.counted &&
         !alias_reads(layout, s, root, input);
}

static bool alias_fits(const rabbet_build_t* build,
                       const rabbet_layout_t* layout, int32_t a, int32_t b) {
  const rabbet_slot_t* x = &layout->slots.data[a];
  const rabbet_slot_t* y = &layout->slots.data[b];
  return x->type.dtype == y->type.dtype && x->type.format == y->type.format &&
         rabbet_ir_shape_equal(&rabbet_ir_value(&build->ir, x->value)->shape,
                               &rabbet_ir_value(&build->ir, y->value)->shape);
}

static rabbet_status_t alias_check_demand(const rabbet_build_t* build,
                                          const rabbet_layout_t* layout,
                                          const rabbet_layout_step_t* step,
                                          int32_t in, int32_t out) {
  if (alias_fits(build, layout, in, out)) return rabbet_ok();
  const rabbet_slot_t* x = &layout->slots.data[in];
  const rabbet_slot_t* y = &layout->slots.data[out];
  return RABBET_STATUS(
      RABBET_STATUS_INVALID_ARGUMENT,
      "layer '%s' works in place on '%s' to give '%s', which must then have "
      "the same type, format and shape; they have %s %s and %s %s",
      step->pick.unit->name, rabbet_ir_value(&build->ir, x->value)->name,
      rabbet_ir_value(&build->ir, y->value)->name,
      rabbet_dtype_name(x->type.dtype), rabbet_format_name(x->type.format),
      rabbet_dtype_name(y->type.dtype), rabbet_format_name(y->type.format));
}

// Puts output `output` into its input's memory, as the candidate demands. If a
// copy is inserted before the step, *step is updated.
static rabbet_status_t alias_demand(rabbet_build_t* build,
                                    rabbet_layout_t* layout,
                                    alias_position_t* step, size_t output) {
  const rabbet_layout_step_t* s = &layout->steps.data[step->now];
  int32_t input = s->pick.choice->candidate.aliased[output];
  assert(input >= 0 && (size_t)input < rabbet_layout_step_inputs(s));
  int32_t* slots = s->slots;
  int32_t out = slots[rabbet_layout_step_inputs(s) + output];
  RABBET_RETURN_IF_ERROR(
      alias_check_demand(build, layout, s, slots[input], out));
  if (!alias_may_write(layout, *step, input)) {
    int32_t copy = -1;
    RABBET_RETURN_IF_ERROR(rabbet_layout_insert_copy(build, layout, step->now,
                                                     slots[input], &copy));
    slots[input] = copy;
    ++step->now;
  }
  rabbet_layout_alias_slot(layout, out, slots[input]);
  return rabbet_ok();
}

static void alias_offer(const rabbet_build_t* build, rabbet_layout_t* layout,
                        alias_position_t step, size_t output) {
  const rabbet_layout_step_t* s = &layout->steps.data[step.now];
  int32_t input = s->pick.choice->candidate.in_place[output];
  assert(input >= 0 && (size_t)input < rabbet_layout_step_inputs(s));
  int32_t in = s->slots[input],
          out = s->slots[rabbet_layout_step_inputs(s) + output];
  if (alias_fits(build, layout, in, out) &&
      alias_may_write(layout, step, input))
    rabbet_layout_alias_slot(layout, out, in);
}

// Says where in its input's memory the result of a slice is.
static void alias_set_part(const rabbet_build_t* build,
                           const rabbet_layout_t* layout, size_t step,
                           int32_t out) {
  const rabbet_unit_t* unit = layout->steps.data[step].pick.unit;
  rabbet_slot_t* slot = &layout->slots.data[out];
  int64_t first = 0;
  if (!unit->nodes ||  // a conversion
      !rabbet_ir_is_part(&build->ir, unit->nodes[0], &first))
    return;
  slot->is_part = true;
  slot->offset =
      (uint64_t)first * (uint64_t)rabbet_dtype_bits(slot->type.dtype) / 8;
  assert(slot->offset % RABBET_LAYOUT_PART_ALIGNMENT == 0);
}

// Puts a view's output into its input's memory. A constant keeps its shape in
// the plan: if the view's shape is not constant, the constant is copied first,
// and *step is updated.
static rabbet_status_t alias_view(rabbet_build_t* build,
                                  rabbet_layout_t* layout, size_t* step) {
  assert(rabbet_layout_step_is_view(&layout->steps.data[*step]));
  int32_t* slots = layout->steps.data[*step].slots;
  int32_t out = slots[rabbet_layout_step_inputs(&layout->steps.data[*step])];
  int32_t value = layout->slots.data[out].value;
  if (layout->slots.data[rabbet_layout_root(layout, slots[0])].is_constant &&
      !rabbet_shape_is_constant(build->ir.graph,
                                &rabbet_ir_value(&build->ir, value)->shape)) {
    int32_t copy = -1;
    RABBET_RETURN_IF_ERROR(
        rabbet_layout_insert_copy(build, layout, *step, slots[0], &copy));
    slots[0] = copy;
    ++*step;
  }
  alias_set_part(build, layout, *step, out);
  rabbet_layout_alias_slot(layout, out, slots[0]);
  return rabbet_ok();
}

static rabbet_status_t alias_step(rabbet_build_t* build,
                                  rabbet_layout_t* layout,
                                  alias_position_t* step) {
  const rabbet_layout_step_t* layout_step = &layout->steps.data[step->now];
  const rabbet_candidate_t* candidate = &layout_step->pick.choice->candidate;
  size_t outputs = rabbet_layout_step_outputs(layout_step);
  if (rabbet_concatenation_is_view(layout_step))
    return rabbet_layout_alias_parts(build, layout, &step->now);
  if (!candidate->kernel) return alias_view(build, layout, &step->now);
  for (size_t i = 0; i < outputs; ++i) {
    if (candidate->aliased && candidate->aliased[i] >= 0)
      RABBET_RETURN_IF_ERROR(alias_demand(build, layout, step, i));
    else if (candidate->in_place && candidate->in_place[i] >= 0)
      alias_offer(build, layout, *step, i);
  }
  return rabbet_ok();
}

static rabbet_status_t alias_steps(rabbet_build_t* build,
                                   rabbet_layout_t* layout) {
  for (size_t i = 0; i < layout->slots.count; ++i) {
    const rabbet_slot_t* slot = &layout->slots.data[i];
    layout->uses.data[i].is_fixed = slot->is_constant || slot->is_host_only ||
                                    slot->input >= 0 || slot->output >= 0;
  }
  for (size_t s = 0; s < layout->steps.count; ++s) {
    const rabbet_layout_step_t* step = &layout->steps.data[s];
    for (size_t i = 0; i < rabbet_layout_step_inputs(step); ++i)
      layout->uses.data[step->slots[i]].last_read = (int32_t)s;
  }
  alias_position_t step = {0};
  for (; step.now < layout->steps.count; ++step.now, ++step.counted)
    RABBET_RETURN_IF_ERROR(alias_step(build, layout, &step));
  return rabbet_ok();
}

// ---- Network outputs --------------------------------------------------------

// Whether both always have the same number of elements: their extents other
// than 1 are equal, in any order.
static bool output_same_size(const rabbet_build_t* build,
                             const rabbet_shape_t* a, const rabbet_shape_t* b) {
  const rabbet_expr_graph_t* graph = build->ir.graph;
  rabbet_expr_t rest[RABBET_MAX_RANK];
  int64_t left = 1, right = 1, extent = 0;
  int32_t count = 0;
  for (int32_t i = 0; i < b->rank; ++i) {
    if (!rabbet_expr_is_constant(graph, b->d[i], &extent))
      rest[count++] = b->d[i];
    else if (__builtin_mul_overflow(right, extent, &right))
      return false;
  }
  for (int32_t i = 0; i < a->rank; ++i) {
    int32_t at = 0;
    if (rabbet_expr_is_constant(graph, a->d[i], &extent)) {
      if (__builtin_mul_overflow(left, extent, &left)) return false;
      continue;
    }
    while (at < count && rest[at] != a->d[i])
      ++at;
    if (at == count) return false;
    rest[at] = rest[--count];
  }
  return left == right && count == 0;
}

// The slots in each memory as lists: first[root], then next[slot].
typedef struct members_t {
  int32_t *first, *next;
} members_t;

static rabbet_status_t members_list(rabbet_build_t* build,
                                    const rabbet_layout_t* layout,
                                    members_t* out) {
  size_t count = layout->slots.count;
  RABBET_RETURN_IF_ERROR(rabbet_arena_allocate_array(
      &build->arena, count, sizeof(int32_t), (void**)&out->first));
  RABBET_RETURN_IF_ERROR(rabbet_arena_allocate_array(
      &build->arena, count, sizeof(int32_t), (void**)&out->next));
  for (size_t i = 0; i < count; ++i)
    out->first[i] = -1;
  for (size_t i = count; i-- > 0;) {
    int32_t root = rabbet_layout_root(layout, (int32_t)i);
    out->next[i] = out->first[root];
    out->first[root] = (int32_t)i;
  }
  return rabbet_ok();
}

// Whether the output's memory also holds a value that may be larger than the
// output: a reshaped one with a data-dependent size.
static bool output_is_small(const rabbet_build_t* build,
                            const rabbet_layout_t* layout,
                            const members_t* members, int32_t slot) {
  const rabbet_shape_t* shape =
      &rabbet_ir_value(&build->ir, layout->slots.data[slot].value)->shape;
  for (int32_t i = members->first[rabbet_layout_root(layout, slot)]; i >= 0;
       i = members->next[i]) {
    if (rabbet_layout_is_part(layout, i)) continue;
    const rabbet_shape_t* other =
        &rabbet_ir_value(&build->ir, layout->slots.data[i].value)->shape;
    bool data_dependent = rabbet_ranges_is_data_dependent(build, shape) ||
                          rabbet_ranges_is_data_dependent(build, other);
    if (data_dependent && !output_same_size(build, shape, other)) return true;
  }
  return false;
}

// Whether the output cannot be in its present memory: that is the caller's
// input, a constant, another output's, or a part of another tensor; or it is
// too small.
static bool output_is_taken(const rabbet_build_t* build,
                            const rabbet_layout_t* layout,
                            const members_t* members, int32_t slot) {
  if (rabbet_layout_is_part(layout, slot) ||
      output_is_small(build, layout, members, slot))
    return true;
  for (int32_t i = members->first[rabbet_layout_root(layout, slot)]; i >= 0;
       i = members->next[i]) {
    const rabbet_slot_t* s = &layout->slots.data[i];
    bool owned =
        s->input >= 0 || s->is_constant || s->is_host_only ||
        (s->output >= 0 && s->output < layout->slots.data[slot].output);
    if (owned && i != slot) return true;
  }
  return false;
}

static rabbet_status_t output_own(rabbet_build_t* build,
                                  rabbet_layout_t* layout,
                                  const members_t* members, size_t output) {
  int32_t slot = layout->outputs[output];
  assert(layout->slots.data[slot].output == (int32_t)output);
  if (!output_is_taken(build, layout, members, slot)) return rabbet_ok();
  int32_t copy = -1;
  RABBET_RETURN_IF_ERROR(rabbet_layout_insert_copy(
      build, layout, layout->steps.count, slot, &copy));
  layout->slots.data[slot].output = -1;
  layout->slots.data[copy].output = (int32_t)output;
  layout->outputs[output] = copy;
  return rabbet_ok();
}

// Inserted copies have memory of their own, so the lists stay valid.
static rabbet_status_t output_own_all(rabbet_build_t* build,
                                      rabbet_layout_t* layout) {
  members_t members;
  RABBET_RETURN_IF_ERROR(members_list(build, layout, &members));
  for (size_t i = 0; i < build->ir.output_count; ++i)
    RABBET_RETURN_IF_ERROR(output_own(build, layout, &members, i));
  return rabbet_ok();
}

// For each memory: whether a step works in place on it, the first step that
// copies a network input into it, and the last step that reads it; -1: none.
typedef struct worked_t {
  bool* is_worked_on;
  int32_t *copy, *last_read;
} worked_t;

// Whether the step only copies a network input: it is neither a layer nor a
// conversion.
static bool output_is_copy_of_input(const rabbet_layout_t* layout,
                                    const rabbet_layout_step_t* step) {
  if (rabbet_layout_step_is_view(step) ||
      rabbet_layout_step_inputs(step) != 1 || step->pick.unit->nodes)
    return false;
  const rabbet_slot_t* from = &layout->slots.data[step->slots[0]];
  const rabbet_slot_t* to = &layout->slots.data[step->slots[1]];
  int32_t source = rabbet_layout_root(layout, step->slots[0]);
  return !rabbet_layout_is_part(layout, step->slots[1]) &&
         layout->slots.data[source].input >= 0 &&
         from->type.dtype == to->type.dtype &&
         from->type.format == to->type.format;
}

static void worked_add(worked_t* worked, const rabbet_layout_t* layout,
                       size_t s) {
  const rabbet_layout_step_t* step = &layout->steps.data[s];
  size_t inputs = rabbet_layout_step_inputs(step);
  for (size_t i = 0; i < inputs; ++i)
    worked->last_read[rabbet_layout_root(layout, step->slots[i])] = (int32_t)s;
  for (size_t i = 0; rabbet_layout_step_is_in_place(step) &&
                     i < rabbet_layout_step_outputs(step);
       ++i)
    worked->is_worked_on[rabbet_layout_root(layout, step->slots[inputs + i])] =
        true;
  if (!output_is_copy_of_input(layout, step)) return;
  int32_t* copy = &worked->copy[rabbet_layout_root(layout, step->slots[1])];
  if (*copy < 0) *copy = (int32_t)s;
}

static rabbet_status_t worked_list(rabbet_build_t* build,
                                   const rabbet_layout_t* layout,
                                   worked_t* out) {
  size_t count = layout->slots.count;
  rabbet_arena_t* arena = &build->arena;
  RABBET_RETURN_IF_ERROR(rabbet_arena_allocate_array(
      arena, count, sizeof(bool), (void**)&out->is_worked_on));
  RABBET_RETURN_IF_ERROR(rabbet_arena_allocate_array(
      arena, count, sizeof(int32_t), (void**)&out->copy));
  RABBET_RETURN_IF_ERROR(rabbet_arena_allocate_array(
      arena, count, sizeof(int32_t), (void**)&out->last_read));
  for (size_t i = 0; i < count; ++i)
    out->copy[i] = out->last_read[i] = -1;
  for (size_t s = 0; s < layout->steps.count; ++s)
    worked_add(out, layout, s);
  return rabbet_ok();
}

// If a step works in place on the caller's input, the input's later readers get
// a copy of its old contents.
static rabbet_status_t output_save_input(rabbet_build_t* build,
                                         rabbet_layout_t* layout, size_t copy,
                                         int32_t root, worked_t* worked) {
  if (worked->last_read[root] <= (int32_t)copy) return rabbet_ok();
  assert(layout->slots.data[root].input >= 0);
  int32_t saved = -1;
  RABBET_RETURN_IF_ERROR(
      rabbet_layout_insert_copy(build, layout, copy, root, &saved));
  for (size_t s = copy + 2; s < layout->steps.count; ++s) {
    rabbet_layout_step_t* step = &layout->steps.data[s];
    for (size_t i = 0; i < rabbet_layout_step_inputs(step); ++i) {
      if (rabbet_layout_root(layout, step->slots[i]) != root) continue;
      rabbet_slot_t view = layout->slots.data[step->slots[i]];
      view.input = -1;
      view.alias = saved;
      RABBET_RETURN_IF_ERROR(
          rabbet_layout_add_slot(build, layout, view, &step->slots[i]));
    }
    if (rabbet_layout_step_is_view(step) && !rabbet_concatenation_is_view(step))
      layout->slots.data[step->slots[rabbet_layout_step_inputs(step)]].alias =
          step->slots[0];
  }
  return worked_list(build, layout, worked);
}

// Lets a network output share the memory of the input that is copied into it.
// `is_taken`: network inputs that share memory with another output already.
static rabbet_status_t output_alias(rabbet_build_t* build,
                                    rabbet_layout_t* layout, worked_t* worked,
                                    bool* is_taken, size_t output) {
  int32_t root = rabbet_layout_root(layout, layout->outputs[output]);
  int32_t copy = worked->copy[root];
  if (!worked->is_worked_on[root] || copy < 0) return rabbet_ok();
  int32_t source =
      rabbet_layout_root(layout, layout->steps.data[copy].slots[0]);
  int32_t input = layout->slots.data[source].input;
  assert(input >= 0 && (size_t)input < build->ir.input_count);
  // A tensor that determines shapes must not change.
  if (rabbet_ir_value(&build->ir, layout->slots.data[source].value)
          ->is_read_by_host ||
      is_taken[input])
    return rabbet_ok();
  is_taken[input] = true;
  layout->aliased_inputs[output] = input;
  return output_save_input(build, layout, (size_t)copy, source, worked);
}

static bool output_any_worked_on(const rabbet_layout_t* layout) {
  for (size_t s = 0; s < layout->steps.count; ++s)
    if (rabbet_layout_step_is_in_place(&layout->steps.data[s])) return true;
  return false;
}

static rabbet_status_t output_alias_all(rabbet_build_t* build,
                                        rabbet_layout_t* layout) {
  worked_t worked;
  bool* is_taken = NULL;
  if (!output_any_worked_on(layout)) return rabbet_ok();
  RABBET_RETURN_IF_ERROR(rabbet_arena_allocate_array(
      &build->arena, build->ir.input_count, sizeof(bool), (void**)&is_taken));
  RABBET_RETURN_IF_ERROR(worked_list(build, layout, &worked));
  for (size_t i = 0; i < build->ir.output_count; ++i)
    RABBET_RETURN_IF_ERROR(output_alias(build, layout, &worked, is_taken, i));
  return rabbet_ok();
}

// Makes the network input, output or constant the root of its memory, and all
// other slots direct aliases of their root.
static void alias_lead(rabbet_layout_t* layout) {
  for (size_t i = 0; i < layout->slots.count; ++i) {
    if (layout->slots.data[i].output < 0) continue;
    int32_t root = rabbet_layout_root(layout, (int32_t)i);
    if (root == (int32_t)i) continue;
    // output_own_all gave each other output, input and constant its own memory.
    assert(layout->slots.data[root].input < 0 &&
           layout->slots.data[root].output < 0 &&
           !layout->slots.data[root].is_constant);
    layout->slots.data[root].alias = (int32_t)i;
    layout->slots.data[i].alias = -1;
  }
  for (size_t i = 0; i < layout->slots.count; ++i) {
    int32_t root = rabbet_layout_root(layout, (int32_t)i);
    if (root == (int32_t)i) continue;
    layout->slots.data[i].offset = rabbet_layout_offset(layout, (int32_t)i);
    layout->slots.data[i].is_part = rabbet_layout_is_part(layout, (int32_t)i);
    layout->slots.data[i].alias = root;
    assert(layout->slots.data[i].input < 0 && layout->slots.data[i].output < 0);
  }
}

rabbet_status_t rabbet_layout_alias(rabbet_build_t* build,
                                    rabbet_layout_t* layout) {
  RABBET_RETURN_IF_ERROR(alias_steps(build, layout));
  RABBET_RETURN_IF_ERROR(output_own_all(build, layout));
  RABBET_RETURN_IF_ERROR(output_alias_all(build, layout));
  alias_lead(layout);
  return rabbet_ok();
}
