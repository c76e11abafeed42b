// Memory that several values share: views, and operators that work in place.
//
// A plugin may demand that its output lies where its input did. That must never
// be seen by anyone else: a copy is put before it where the input is a constant
// or is read again later. A network input is copied into the memory of the
// network output that came from it; a caller who gives both the same address
// makes that copy an idle one.

#include <string.h>

#include "builder/join.h"
#include "builder/place.h"

static size_t step_inputs(const rabbet_placed_t* step) {
  return step->pick.unit->group.input_count;
}

static size_t step_outputs(const rabbet_placed_t* step) {
  return step->pick.unit->group.output_count;
}

static bool step_is_view(const rabbet_placed_t* step) {
  return !step->pick.choice->candidate.kernel;
}

// Whether the step works in place because it must.
static bool step_is_in_place(const rabbet_placed_t* step) {
  const int32_t* aliased = step->pick.choice->candidate.aliased;
  for (size_t i = 0; aliased && i < step_outputs(step); ++i)
    if (aliased[i] >= 0) return true;
  return false;
}

// ---- Order ------------------------------------------------------------------

typedef struct orderer_t {
  rabbet_build_t* build;
  rabbet_layout_t* layout;
  int32_t* maker;              // step that makes each slot, or -1
  int32_t* memory;             // slot whose memory each slot is, through views
  RABBET_VEC(int32_t) before;  // pairs: step, step that comes after it
  bool* reached;
} orderer_t;

static rabbet_status_t order_edges(orderer_t* order) {
  const rabbet_layout_t* layout = order->layout;
  for (size_t i = 0; i < layout->slots.count; ++i) {
    order->maker[i] = -1;
    order->memory[i] = (int32_t)i;
  }
  for (size_t s = 0; s < layout->steps.count; ++s) {
    const rabbet_placed_t* step = &layout->steps.data[s];
    size_t inputs = step_inputs(step);
    for (size_t i = 0; i < inputs; ++i) {
      int32_t maker = order->maker[step->slots[i]];
      if (maker < 0) continue;
      RABBET_RETURN_IF_ERROR(
          RABBET_VEC_PUSH(order->build->allocator, &order->before, maker));
      RABBET_RETURN_IF_ERROR(
          RABBET_VEC_PUSH(order->build->allocator, &order->before, (int32_t)s));
    }
    for (size_t i = 0; i < step_outputs(step); ++i)
      order->maker[step->slots[inputs + i]] = (int32_t)s;
    if (step_is_view(step) && !rabbet_join_is(step))
      order->memory[step->slots[inputs]] = order->memory[step->slots[0]];
  }
  return rabbet_ok();
}

// Marks what comes after the step, itself included.
static void order_reach(orderer_t* order, int32_t step) {
  memset(order->reached, 0, order->layout->steps.count * sizeof(bool));
  order->reached[step] = true;
  bool changed = true;
  while (changed) {
    changed = false;
    for (size_t i = 0; i < order->before.count; i += 2) {
      if (!order->reached[order->before.data[i]] ||
          order->reached[order->before.data[i + 1]])
        continue;
      order->reached[order->before.data[i + 1]] = true;
      changed = true;
    }
  }
}

static bool order_reads(const orderer_t* order, size_t step, int32_t memory) {
  const rabbet_placed_t* s = &order->layout->steps.data[step];
  for (size_t i = 0; i < step_inputs(s); ++i)
    if (order->memory[s->slots[i]] == memory) return true;
  return false;
}

// Other readers of the memory go first, unless they need the result.
static rabbet_status_t order_around(orderer_t* order, size_t step) {
  const rabbet_placed_t* s = &order->layout->steps.data[step];
  const int32_t* aliased = s->pick.choice->candidate.aliased;
  for (size_t i = 0; i < step_outputs(s); ++i) {
    if (aliased[i] < 0) continue;
    int32_t memory = order->memory[s->slots[aliased[i]]];
    for (size_t r = 0; r < order->layout->steps.count; ++r) {
      if (r == step || !order_reads(order, r, memory)) continue;
      order_reach(order, (int32_t)step);
      if (order->reached[r]) continue;
      RABBET_RETURN_IF_ERROR(
          RABBET_VEC_PUSH(order->build->allocator, &order->before, (int32_t)r));
      RABBET_RETURN_IF_ERROR(RABBET_VEC_PUSH(order->build->allocator,
                                             &order->before, (int32_t)step));
    }
  }
  return rabbet_ok();
}

// The steps in an order that keeps all edges, as close to the old as may be.
static rabbet_status_t order_sort(orderer_t* order) {
  size_t count = order->layout->steps.count;
  int32_t* waiting = NULL;
  rabbet_placed_t* sorted = NULL;
  rabbet_arena_t* arena = &order->build->arena;
  RABBET_RETURN_IF_ERROR(rabbet_arena_allocate_array(
      arena, count, sizeof(int32_t), (void**)&waiting));
  RABBET_RETURN_IF_ERROR(rabbet_arena_allocate_array(
      arena, count, sizeof(*sorted), (void**)&sorted));
  for (size_t i = 0; i < order->before.count; i += 2)
    waiting[order->before.data[i + 1]]++;
  for (size_t placed = 0; placed < count; ++placed) {
    size_t next = 0;
    while (waiting[next] != 0)
      ++next;
    waiting[next] = -1;
    sorted[placed] = order->layout->steps.data[next];
    for (size_t i = 0; i < order->before.count; i += 2)
      if (order->before.data[i] == (int32_t)next)
        waiting[order->before.data[i + 1]]--;
  }
  memcpy(order->layout->steps.data, sorted, count * sizeof(*sorted));
  return rabbet_ok();
}

static rabbet_status_t order_all(orderer_t* order) {
  rabbet_arena_t* arena = &order->build->arena;
  size_t slots = order->layout->slots.count;
  RABBET_RETURN_IF_ERROR(rabbet_arena_allocate_array(
      arena, slots, sizeof(int32_t), (void**)&order->maker));
  RABBET_RETURN_IF_ERROR(rabbet_arena_allocate_array(
      arena, slots, sizeof(int32_t), (void**)&order->memory));
  RABBET_RETURN_IF_ERROR(
      rabbet_arena_allocate_array(arena, order->layout->steps.count,
                                  sizeof(bool), (void**)&order->reached));
  RABBET_RETURN_IF_ERROR(order_edges(order));
  for (size_t s = 0; s < order->layout->steps.count; ++s)
    if (step_is_in_place(&order->layout->steps.data[s]))
      RABBET_RETURN_IF_ERROR(order_around(order, s));
  return order_sort(order);
}

rabbet_status_t rabbet_layout_order(rabbet_build_t* build,
                                    rabbet_layout_t* layout) {
  bool any = false;
  for (size_t s = 0; s < layout->steps.count; ++s)
    any |= step_is_in_place(&layout->steps.data[s]);
  if (!any) return rabbet_ok();
  orderer_t order = {.build = build, .layout = layout};
  rabbet_status_t status = order_all(&order);
  rabbet_vec_free(build->allocator, &order.before);
  return status;
}

// ---- Sharing ----------------------------------------------------------------

static bool share_reads(const rabbet_layout_t* layout,
                        const rabbet_placed_t* step, int32_t root,
                        int32_t except) {
  for (size_t i = 0; i < step_inputs(step); ++i)
    if ((int32_t)i != except &&
        rabbet_layout_root(layout, step->slots[i]) == root)
      return true;
  return false;
}

// Whether the step may write over its input: nobody else sees that memory now
// or later.
static bool share_may_write(const rabbet_layout_t* layout, size_t step,
                            int32_t input) {
  const rabbet_placed_t* s = &layout->steps.data[step];
  int32_t root = rabbet_layout_root(layout, s->slots[input]);
  for (size_t i = 0; i < layout->slots.count; ++i) {
    const rabbet_slot_t* slot = &layout->slots.data[i];
    if ((slot->is_constant || slot->is_host_only || slot->input >= 0 ||
         slot->output >= 0) &&
        rabbet_layout_root(layout, (int32_t)i) == root)
      return false;
  }
  if (share_reads(layout, s, root, input)) return false;
  for (size_t r = step + 1; r < layout->steps.count; ++r)
    if (share_reads(layout, &layout->steps.data[r], root, -1)) return false;
  return true;
}

static bool share_fits(const rabbet_build_t* build,
                       const rabbet_layout_t* layout, int32_t a, int32_t b) {
  const rabbet_slot_t* x = &layout->slots.data[a];
  const rabbet_slot_t* y = &layout->slots.data[b];
  return x->type.dtype == y->type.dtype && x->type.format == y->type.format &&
         rabbet_ir_shape_equal(&rabbet_ir_value(&build->ir, x->value)->shape,
                               &rabbet_ir_value(&build->ir, y->value)->shape);
}

static rabbet_status_t share_check_demand(const rabbet_build_t* build,
                                          const rabbet_layout_t* layout,
                                          const rabbet_placed_t* step,
                                          int32_t in, int32_t out) {
  if (share_fits(build, layout, in, out)) return rabbet_ok();
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

// Output `output` must lie where its input does. *step moves on when a copy is
// put before it.
static rabbet_status_t share_demand(rabbet_build_t* build,
                                    rabbet_layout_t* layout, size_t* step,
                                    size_t output) {
  const rabbet_placed_t* s = &layout->steps.data[*step];
  int32_t input = s->pick.choice->candidate.aliased[output];
  int32_t* slots = s->slots;
  int32_t out = slots[step_inputs(s) + output];
  RABBET_RETURN_IF_ERROR(
      share_check_demand(build, layout, s, slots[input], out));
  if (!share_may_write(layout, *step, input)) {
    int32_t copy = -1;
    RABBET_RETURN_IF_ERROR(
        rabbet_layout_insert_copy(build, layout, *step, slots[input], &copy));
    slots[input] = copy;
    ++*step;
  }
  layout->slots.data[out].alias = slots[input];
  return rabbet_ok();
}

static void share_offer(const rabbet_build_t* build, rabbet_layout_t* layout,
                        size_t step, size_t output) {
  const rabbet_placed_t* s = &layout->steps.data[step];
  int32_t input = s->pick.choice->candidate.in_place[output];
  int32_t in = s->slots[input], out = s->slots[step_inputs(s) + output];
  if (share_fits(build, layout, in, out) &&
      share_may_write(layout, step, input))
    layout->slots.data[out].alias = in;
}

// A constant's shape is in the plan for good, so that one whose new shape is
// not is copied first. *step moves on then.
static rabbet_status_t share_view(rabbet_build_t* build,
                                  rabbet_layout_t* layout, size_t* step) {
  int32_t* slots = layout->steps.data[*step].slots;
  int32_t out = slots[step_inputs(&layout->steps.data[*step])];
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
  layout->slots.data[out].alias = slots[0];
  return rabbet_ok();
}

static rabbet_status_t share_step(rabbet_build_t* build,
                                  rabbet_layout_t* layout, size_t* step) {
  const rabbet_candidate_t* candidate =
      &layout->steps.data[*step].pick.choice->candidate;
  size_t outputs = step_outputs(&layout->steps.data[*step]);
  if (rabbet_join_is(&layout->steps.data[*step]))
    return rabbet_layout_join(build, layout, step);
  if (!candidate->kernel) return share_view(build, layout, step);
  for (size_t i = 0; i < outputs; ++i) {
    if (candidate->aliased && candidate->aliased[i] >= 0)
      RABBET_RETURN_IF_ERROR(share_demand(build, layout, step, i));
    else if (candidate->in_place && candidate->in_place[i] >= 0)
      share_offer(build, layout, *step, i);
  }
  return rabbet_ok();
}

// ---- Network outputs --------------------------------------------------------

// Whether the two always have the same number of elements, by their extents:
// those that are not 1, in any order.
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

// Whether something is made in the output's memory that may turn out larger
// than the output: what has a size that a run alone tells, and is reshaped.
static bool output_is_small(const rabbet_build_t* build,
                            const rabbet_layout_t* layout, int32_t slot) {
  int32_t root = rabbet_layout_root(layout, slot);
  const rabbet_shape_t* shape =
      &rabbet_ir_value(&build->ir, layout->slots.data[slot].value)->shape;
  for (size_t i = 0; i < layout->slots.count; ++i) {
    if (rabbet_layout_root(layout, (int32_t)i) != root ||
        rabbet_layout_is_part(layout, (int32_t)i))
      continue;
    const rabbet_shape_t* other =
        &rabbet_ir_value(&build->ir, layout->slots.data[i].value)->shape;
    bool told = rabbet_ranges_is_told(build, shape) ||
                rabbet_ranges_is_told(build, other);
    if (told && !output_same_size(build, shape, other)) return true;
  }
  return false;
}

// Whether the memory is someone else's: the caller's input, a constant, that of
// another output, or of a tensor that it is a part of; or too small.
static bool output_is_taken(const rabbet_build_t* build,
                            const rabbet_layout_t* layout, int32_t slot) {
  int32_t root = rabbet_layout_root(layout, slot);
  if (rabbet_layout_is_part(layout, slot) ||
      output_is_small(build, layout, slot))
    return true;
  for (size_t i = 0; i < layout->slots.count; ++i) {
    const rabbet_slot_t* s = &layout->slots.data[i];
    bool owned =
        s->input >= 0 || s->is_constant || s->is_host_only ||
        (s->output >= 0 && s->output < layout->slots.data[slot].output);
    if (owned && (int32_t)i != slot &&
        rabbet_layout_root(layout, (int32_t)i) == root)
      return true;
  }
  return false;
}

static rabbet_status_t output_own(rabbet_build_t* build,
                                  rabbet_layout_t* layout, size_t output) {
  int32_t slot = layout->outputs[output];
  if (!output_is_taken(build, layout, slot)) return rabbet_ok();
  int32_t copy = -1;
  RABBET_RETURN_IF_ERROR(rabbet_layout_insert_copy(
      build, layout, layout->steps.count, slot, &copy));
  layout->slots.data[slot].output = -1;
  layout->slots.data[copy].output = (int32_t)output;
  layout->outputs[output] = copy;
  return rabbet_ok();
}

// The step that copies a network input into the memory of `root`, or -1.
static int32_t output_copy_of_input(const rabbet_layout_t* layout,
                                    int32_t root) {
  for (size_t s = 0; s < layout->steps.count; ++s) {
    const rabbet_placed_t* step = &layout->steps.data[s];
    if (step_is_view(step) || step_inputs(step) != 1) continue;
    if (step->pick.unit->nodes) continue;  // neither copy nor conversion
    const rabbet_slot_t* from = &layout->slots.data[step->slots[0]];
    const rabbet_slot_t* to = &layout->slots.data[step->slots[1]];
    int32_t source = rabbet_layout_root(layout, step->slots[0]);
    if (rabbet_layout_root(layout, step->slots[1]) == root &&
        !rabbet_layout_is_part(layout, step->slots[1]) &&
        layout->slots.data[source].input >= 0 &&
        from->type.dtype == to->type.dtype &&
        from->type.format == to->type.format)
      return (int32_t)s;
  }
  return -1;
}

static bool output_is_worked_on(const rabbet_layout_t* layout, int32_t root) {
  for (size_t s = 0; s < layout->steps.count; ++s) {
    const rabbet_placed_t* step = &layout->steps.data[s];
    if (step_is_in_place(step))
      for (size_t i = 0; i < step_outputs(step); ++i)
        if (rabbet_layout_root(layout, step->slots[step_inputs(step) + i]) ==
            root)
          return true;
  }
  return false;
}

// After the caller's input is worked on in place, its other readers get what it
// held before.
static rabbet_status_t output_save_input(rabbet_build_t* build,
                                         rabbet_layout_t* layout, size_t copy,
                                         int32_t root) {
  bool later = false;
  for (size_t s = copy + 1; s < layout->steps.count; ++s)
    later |= share_reads(layout, &layout->steps.data[s], root, -1);
  if (!later) return rabbet_ok();
  int32_t saved = -1;
  RABBET_RETURN_IF_ERROR(
      rabbet_layout_insert_copy(build, layout, copy, root, &saved));
  for (size_t s = copy + 2; s < layout->steps.count; ++s) {
    rabbet_placed_t* step = &layout->steps.data[s];
    for (size_t i = 0; i < step_inputs(step); ++i) {
      if (rabbet_layout_root(layout, step->slots[i]) != root) continue;
      rabbet_slot_t view = layout->slots.data[step->slots[i]];
      view.input = -1;
      view.alias = saved;
      RABBET_RETURN_IF_ERROR(
          rabbet_layout_add_slot(build, layout, view, &step->slots[i]));
    }
    if (step_is_view(step) && !rabbet_join_is(step))
      layout->slots.data[step->slots[step_inputs(step)]].alias = step->slots[0];
  }
  return rabbet_ok();
}

static rabbet_status_t output_alias(rabbet_build_t* build,
                                    rabbet_layout_t* layout, size_t output) {
  int32_t root = rabbet_layout_root(layout, layout->outputs[output]);
  if (!output_is_worked_on(layout, root)) return rabbet_ok();
  int32_t copy = output_copy_of_input(layout, root);
  if (copy < 0) return rabbet_ok();
  int32_t source =
      rabbet_layout_root(layout, layout->steps.data[copy].slots[0]);
  int32_t input = layout->slots.data[source].input;
  // What tells shapes must go on telling them.
  if (rabbet_ir_value(&build->ir, layout->slots.data[source].value)
          ->is_read_by_host)
    return rabbet_ok();
  for (size_t i = 0; i < output; ++i)
    if (layout->aliased_inputs[i] == input) return rabbet_ok();
  layout->aliased_inputs[output] = input;
  return output_save_input(build, layout, (size_t)copy, source);
}

// Every group of slots is led by the network input, output or constant in it.
static void share_lead(rabbet_layout_t* layout) {
  for (size_t i = 0; i < layout->slots.count; ++i) {
    if (layout->slots.data[i].output < 0) continue;
    int32_t root = rabbet_layout_root(layout, (int32_t)i);
    if (root == (int32_t)i) continue;
    layout->slots.data[root].alias = (int32_t)i;
    layout->slots.data[i].alias = -1;
  }
  for (size_t i = 0; i < layout->slots.count; ++i) {
    int32_t root = rabbet_layout_root(layout, (int32_t)i);
    if (root == (int32_t)i) continue;
    layout->slots.data[i].offset = rabbet_layout_offset(layout, (int32_t)i);
    layout->slots.data[i].alias = root;
  }
}

rabbet_status_t rabbet_layout_share(rabbet_build_t* build,
                                    rabbet_layout_t* layout) {
  for (size_t s = 0; s < layout->steps.count; ++s)
    RABBET_RETURN_IF_ERROR(share_step(build, layout, &s));
  for (size_t i = 0; i < build->ir.output_count; ++i)
    RABBET_RETURN_IF_ERROR(output_own(build, layout, i));
  for (size_t i = 0; i < build->ir.output_count; ++i)
    RABBET_RETURN_IF_ERROR(output_alias(build, layout, i));
  share_lead(layout);
  return rabbet_ok();
}
