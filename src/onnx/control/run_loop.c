// Loops of the network for Loop and Scan.
//
// The condition that a body gets is true, since it would not run otherwise. A
// state whose next value has other extents makes those a matter of the run; the
// body is then imported once more, as what was inferred of it was wrong.
#include "onnx/control/run_loop.h"

#include "onnx/held.h"

static void fail(const rabbet_onnx_loop_work_t* work, rabbet_status_t status) {
  rabbet_onnx_fail(work->node, status);
}

static rabbet_layer_t* add_state(const rabbet_onnx_loop_work_t* work,
                                 rabbet_tensor_t* x, int64_t varying) {
  rabbet_layer_t* layer = NULL;
  if (rabbet_onnx_ok(work->node))
    fail(work,
         rabbet_loop_add_varying_recurrence(work->made, x, varying, &layer));
  if (layer)
    rabbet_onnx_hold_like(work->node, rabbet_layer_output(layer, 0), x);
  return layer;
}

// ---- The body --------------------------------------------------------------

static void begin(rabbet_onnx_loop_work_t* work, int round) {
  rabbet_onnx_node_t* node = work->node;
  const onnx_loop_t* loop = work->loop;
  rabbet_layer_t* limit = NULL;
  work->name = node->name;
  // Layers of iterations that were written out before have names that begin
  // with the node's, as those of a loop of that name in the build.
  if (round > 0 || loop->trips > 0)
    fail(work, rabbet_arena_printf(&node->importer->arena, &work->name, "%s:%d",
                                   node->name, round));
  if (rabbet_onnx_ok(node))
    fail(work, rabbet_network_add_loop(node->importer->network, work->name,
                                       &work->made));
  if (rabbet_onnx_ok(node)) work->made->outer = node->scope->loop;
  if (rabbet_onnx_ok(node) && work->run->count)
    fail(work, rabbet_loop_add_trip_limit(work->made, work->run->count,
                                          RABBET_TRIP_LIMIT_COUNT, &limit));
  work->first_tensor = (int32_t)node->importer->network->tensors.count;
  work->inside.count = 0;
  for (size_t i = 0; i < loop->state_count && rabbet_onnx_ok(node); ++i) {
    rabbet_onnx_state_t* state = &work->states[i];
    for (size_t k = 0; k < state->count; ++k)
      state->carried[k].layer =
          add_state(work, state->carried[k].initial, state->carried[k].varying);
    state->rest = (rabbet_onnx_rest_t){.sample = state->rest.sample};
    loop->inputs[loop->first_input + i] =
        rabbet_onnx_state_binding(work, state);
  }
  for (size_t i = 0; i < work->run->slice_count && rabbet_onnx_ok(node); ++i) {
    rabbet_layer_t* layer = NULL;
    fail(work, rabbet_loop_add_iterator(work->made, work->run->slices[i],
                                        work->run->slice_axes[i],
                                        work->run->slice_reversals[i], &layer));
    rabbet_tensor_t* slice = rabbet_onnx_loop_result(work, layer);
    loop->inputs[loop->first_input + loop->state_count + i] = slice;
    rabbet_onnx_hold_like(node, slice, work->run->slices[i]);
  }
}

static void number_iterations(rabbet_onnx_loop_work_t* work) {
  rabbet_onnx_node_t* node = work->node;
  if (work->run->number_rank < 0) return;
  rabbet_tensor_t* zero =
      rabbet_onnx_number(node, RABBET_DTYPE_INT64, work->run->number_rank, 0);
  work->number = add_state(work, zero, 0);
  rabbet_tensor_t* number = rabbet_onnx_loop_result(work, work->number);
  work->loop->inputs[0] = number;
  for (size_t i = 0; i < work->loop->state_count; ++i)
    work->states[i].rest.number = number;
  work->loop->inputs[1] = rabbet_onnx_number(node, RABBET_DTYPE_BOOL, 0, 1);
  rabbet_tensor_t* next = rabbet_onnx_with_number(node, "SUM", number, 1);
  if (rabbet_onnx_ok(node))
    fail(work, rabbet_layer_set_input(work->number, 1, next));
}

static void import_body(rabbet_onnx_loop_work_t* work) {
  rabbet_onnx_node_t* node = work->node;
  rabbet_onnx_scope_t scope;
  const char* prefix = NULL;
  fail(work, rabbet_onnx_spend(node->importer, 1));
  if (!rabbet_onnx_ok(node)) return;
  rabbet_onnx_scope_initialize(node->importer, &work->loop->shared, &scope);
  scope.loop = work->made;
  rabbet_status_t status =
      rabbet_arena_printf(&node->importer->arena, &prefix, "%s/", work->name);
  if (rabbet_is_ok(status))
    status = rabbet_onnx_loop_run(work->loop, &scope, prefix);
  rabbet_onnx_scope_deinitialize(&scope);
  fail(work, status);
}

static bool is_sequence(const rabbet_tensor_t* x) {
  const rabbet_onnx_list_t* list = rabbet_onnx_list(x);
  return list && !list->is_optional;
}

// The next value of state `i`, which must be of its kind.
static rabbet_tensor_t* next_of(const rabbet_onnx_loop_work_t* work, size_t i) {
  rabbet_tensor_t* next = work->loop->outputs[work->loop->first_output + i];
  bool wanted = work->states[i].kind != RABBET_ONNX_STATE_TENSOR;
  if (!rabbet_onnx_ok(work->node)) return NULL;
  if (wanted ? is_sequence(next) : !rabbet_onnx_list(next)) return next;
  RABBET_ONNX_FAIL(work->node, RABBET_STATUS_INVALID_ARGUMENT,
                   "state %zu is %s; its next value is not", i,
                   wanted ? "a sequence" : "a tensor");
  return NULL;
}

// Gives recurrences their next values. Whether the body must be imported again,
// since a sequence that it does more with than to add to it is carried.
static bool set_next(rabbet_onnx_loop_work_t* work) {
  bool changed = false;
  rabbet_onnx_node_t* node = work->node;
  if (rabbet_onnx_ok(node))
    fail(work, rabbet_network_infer(node->importer->network));
  for (size_t i = 0; i < work->loop->state_count && rabbet_onnx_ok(node); ++i) {
    rabbet_onnx_state_t* state = &work->states[i];
    rabbet_tensor_t* next = next_of(work, i);
    if (!rabbet_onnx_ok(node)) break;
    const rabbet_onnx_list_t* list = rabbet_onnx_list(next);
    if (state->kind == RABBET_ONNX_STATE_TENSOR) state->carried[0].next = next;
    if (state->kind == RABBET_ONNX_STATE_CARRIED)
      rabbet_onnx_state_follow(work, state, list);
    for (size_t k = 0; k < state->count && rabbet_onnx_ok(node); ++k)
      fail(work, rabbet_layer_set_input(state->carried[k].layer, 1,
                                        state->carried[k].next));
    if (state->kind != RABBET_ONNX_STATE_ADDED_TO ||
        rabbet_onnx_state_only_adds(work, state, list))
      continue;
    rabbet_onnx_state_carry(work, state, list);
    changed = true;
  }
  return changed;
}

static bool widen_one(rabbet_onnx_loop_work_t* work, size_t i,
                      rabbet_onnx_carried_t* carried) {
  const rabbet_tensor_t* state = carried->layer->outputs[0];
  const rabbet_tensor_t* next = carried->next;
  bool changed = false;
  if (state->shape.rank != next->shape.rank || state->dtype != next->dtype) {
    RABBET_ONNX_FAIL(work->node, RABBET_STATUS_UNSUPPORTED,
                     "state %zu is %s of rank %d, and its next value, '%s', "
                     "%s of rank %d; in a run these must be equal",
                     i, rabbet_dtype_name(state->dtype), state->shape.rank,
                     rabbet_tensor_name(next), rabbet_dtype_name(next->dtype),
                     next->shape.rank);
    return false;
  }
  for (int32_t axis = 0; axis < state->shape.rank; ++axis) {
    int64_t bit = INT64_C(1) << axis;
    if (state->shape.d[axis] == next->shape.d[axis] || (carried->varying & bit))
      continue;
    carried->varying |= bit;
    changed = true;
  }
  return changed;
}

// Adds the axes whose extents differ; whether there are new ones.
static bool widen(rabbet_onnx_loop_work_t* work) {
  rabbet_onnx_node_t* node = work->node;
  bool changed = false;
  if (!rabbet_onnx_ok(node)) return false;
  fail(work, rabbet_network_infer(node->importer->network));
  for (size_t i = 0; i < work->loop->state_count; ++i)
    for (size_t k = 0; k < work->states[i].count && rabbet_onnx_ok(node); ++k)
      if (work->states[i].carried[k].layer && work->states[i].carried[k].next &&
          widen_one(work, i, &work->states[i].carried[k]))
        changed = true;
  return changed;
}

// ---- The condition ---------------------------------------------------------

static rabbet_tensor_t* scalar(const rabbet_onnx_loop_work_t* work,
                               rabbet_tensor_t* x) {
  int rank = rabbet_onnx_rank(work->node, x);
  return rank > 0 ? rabbet_onnx_squeeze(work->node, x, (1u << rank) - 1) : x;
}

static bool is_true(const rabbet_onnx_loop_work_t* work, rabbet_tensor_t* x) {
  rabbet_onnx_ints_t known = rabbet_onnx_try_ints(work->node, x);
  return known.present && known.count == 1 && known.data[0] != 0;
}

static void add_condition(rabbet_onnx_loop_work_t* work) {
  rabbet_onnx_node_t* node = work->node;
  if (work->run->number_rank < 0 || !rabbet_onnx_ok(node)) return;
  rabbet_tensor_t* first =
      work->run->condition ? work->run->condition
                           : rabbet_onnx_number(node, RABBET_DTYPE_BOOL, 0, 1);
  rabbet_tensor_t* next = scalar(work, work->loop->outputs[0]);
  work->has_condition = !is_true(work, first) || !is_true(work, next);
  if (!rabbet_onnx_ok(node)) return;
  if (!work->has_condition) {
    if (!work->run->count)
      RABBET_ONNX_FAIL(node, RABBET_STATUS_INVALID_ARGUMENT,
                       "it has no trip count, and its condition is always "
                       "true: it would never end");
    return;
  }
  rabbet_layer_t *state = add_state(work, first, 0), *limit = NULL;
  rabbet_tensor_t* present = rabbet_onnx_loop_result(work, state);
  if (rabbet_onnx_ok(node)) fail(work, rabbet_layer_set_input(state, 1, next));
  if (rabbet_onnx_ok(node))
    fail(work, rabbet_loop_add_trip_limit(work->made, present,
                                          RABBET_TRIP_LIMIT_WHILE, &limit));
}

// ---- Results ---------------------------------------------------------------

static rabbet_tensor_t* last_value(const rabbet_onnx_loop_work_t* work,
                                   const rabbet_onnx_carried_t* carried) {
  rabbet_layer_t* layer = NULL;
  if (rabbet_onnx_ok(work->node))
    fail(work, rabbet_loop_add_output(
                   work->made, rabbet_onnx_loop_result(work, carried->layer),
                   RABBET_LOOP_OUTPUT_LAST_VALUE, 0, &layer));
  rabbet_tensor_t* last = rabbet_onnx_loop_result(work, layer);
  rabbet_onnx_hold_like(work->node, last, carried->initial);
  return last;
}

static rabbet_tensor_t* stack(const rabbet_onnx_loop_work_t* work,
                              rabbet_tensor_t* x, int axis, bool reverse) {
  rabbet_layer_t* layer = NULL;
  if (!rabbet_onnx_ok(work->node)) return NULL;
  fail(work,
       work->has_condition || !work->run->count
           ? rabbet_loop_add_told_output(work->made, x, axis, &layer)
           : rabbet_loop_add_output(work->made, x,
                                    reverse ? RABBET_LOOP_OUTPUT_REVERSE
                                            : RABBET_LOOP_OUTPUT_CONCATENATE,
                                    axis, &layer));
  rabbet_tensor_t* stacked = rabbet_onnx_loop_result(work, layer);
  rabbet_onnx_hold_like(work->node, stacked, x);
  return stacked;
}

// The tensors that iterations added to a sequence, one after another: stacks of
// several for each iteration become one stack.
static rabbet_tensor_t* added(const rabbet_onnx_loop_work_t* work,
                              const rabbet_onnx_list_t* last) {
  rabbet_onnx_node_t* node = work->node;
  rabbet_onnx_index_t dims[RABBET_MAX_RANK];
  const rabbet_onnx_told_t stacked = {0};
  if (last->count == 1) return stack(work, last->items[0], 0, false);
  rabbet_onnx_list_t* items =
      rabbet_onnx_list_make(node, last->dtype, last->count);
  for (size_t i = 0; items && i < last->count; ++i)
    items->items[i] = last->items[i];
  if (!items) return NULL;
  rabbet_tensor_t* x = rabbet_onnx_list_told(node, items, stacked).tensor;
  x = stack(work, x, 0, false);
  int rank = rabbet_onnx_rank(node, x) - 1;
  for (int i = 0; i < rank; ++i)
    dims[i] = rabbet_onnx_extent(node, x, i + 1);
  dims[0] = rabbet_onnx_index_op(node, "PROD", dims[0],
                                 rabbet_onnx_extent(node, x, 0));
  rabbet_tensor_t* flat = rabbet_onnx_reshape(node, x, dims, rank);
  rabbet_onnx_hold_like(node, flat, x);
  return flat;
}

// The sequence after the loop.
static rabbet_tensor_t* sequence_of(const rabbet_onnx_loop_work_t* work,
                                    const rabbet_onnx_state_t* state,
                                    const rabbet_onnx_list_t* last) {
  rabbet_onnx_node_t* node = work->node;
  const rabbet_onnx_list_t* list = state->list;
  rabbet_onnx_told_t told = {.axis = state->axis};
  if (state->kind == RABBET_ONNX_STATE_CARRIED) {
    told.tensor = last_value(work, &state->carried[0]);
    if (state->count > 1) told.ends = last_value(work, &state->carried[1]);
  } else if (last->count == 0) {
    return rabbet_onnx_list_handle(rabbet_onnx_list_longer(node, list, 0));
  } else {
    told = (rabbet_onnx_told_t){.tensor = added(work, last)};
    if (list->told.tensor || list->count > 0)
      told = rabbet_onnx_told_append(
          node, rabbet_onnx_list_told_alone(node, list), told);
  }
  rabbet_onnx_list_t* result = rabbet_onnx_list_of(node, list->dtype, told);
  if (result) result->rest = list->rest;
  if (list->rest && !list->rest->sample)
    list->rest->sample = state->rest.sample;
  return rabbet_onnx_list_handle(result);
}

static rabbet_tensor_t* state_result(const rabbet_onnx_loop_work_t* work,
                                     size_t i) {
  const rabbet_onnx_state_t* state = &work->states[i];
  const rabbet_tensor_t* last =
      work->loop->outputs[work->loop->first_output + i];
  return state->kind == RABBET_ONNX_STATE_TENSOR
             ? last_value(work, &state->carried[0])
             : sequence_of(work, state, rabbet_onnx_list(last));
}

static void add_results(rabbet_onnx_loop_work_t* work) {
  const onnx_loop_t* loop = work->loop;
  const rabbet_onnx_run_loop_t* run = work->run;
  rabbet_onnx_node_t* node = work->node;
  for (size_t i = 0; i < node->output_count && rabbet_onnx_ok(node); ++i) {
    if (!rabbet_onnx_wants(node, i)) continue;
    if (i < loop->state_count) {
      node->outputs[i] = state_result(work, i);
      continue;
    }
    size_t at = i - loop->state_count;
    rabbet_tensor_t* x = loop->outputs[loop->first_output + i];
    int64_t axis = at < run->axes.count ? run->axes.data[at] : 0;
    bool reverse = at < run->reversals.count && run->reversals.data[at] != 0;
    int place = rabbet_onnx_axis(node, axis, rabbet_onnx_rank(node, x) + 1);
    node->outputs[i] = stack(work, x, place, reverse);
  }
}

static void begin_states(rabbet_onnx_loop_work_t* work) {
  rabbet_onnx_node_t* node = work->node;
  const onnx_loop_t* loop = work->loop;
  fail(work, rabbet_arena_allocate_array(
                 &node->importer->arena, loop->state_count,
                 sizeof(*work->states), (void**)&work->states));
  for (size_t i = 0; i < loop->state_count && rabbet_onnx_ok(node); ++i) {
    rabbet_tensor_t* initial = loop->inputs[loop->first_input + i];
    const rabbet_onnx_list_t* list = rabbet_onnx_list(initial);
    rabbet_onnx_state_t* state = &work->states[i];
    *state = (rabbet_onnx_state_t){.list = list};
    if (!list) {
      state->carried[0].initial = initial;
      state->count = 1;
      continue;
    }
    state->kind = RABBET_ONNX_STATE_ADDED_TO;
    if (list->count > 0)
      state->rest.sample = list->items[0];
    else if (list->told.tensor)
      state->rest.sample =
          rabbet_onnx_list_at(node, list, rabbet_onnx_index(0));
    if (list->is_optional)
      RABBET_ONNX_FAIL(node, RABBET_STATUS_UNSUPPORTED,
                       "state %zu is an optional value; for those the number "
                       "of iterations must be constant, and at most %d",
                       i, RABBET_ONNX_MAX_TRIPS);
  }
}

void rabbet_onnx_run_loop(onnx_loop_t* loop,
                          const rabbet_onnx_run_loop_t* run) {
  rabbet_onnx_loop_work_t work = {.loop = loop, .node = loop->node, .run = run};
  if (rabbet_onnx_ok(work.node)) begin_states(&work);
  bool again = true;
  for (int round = 0; again && rabbet_onnx_ok(work.node); ++round) {
    begin(&work, round);
    number_iterations(&work);
    import_body(&work);
    again = set_next(&work);
    add_condition(&work);
    again = widen(&work) || again;
  }
  add_results(&work);
  rabbet_vec_free(work.node->importer->network->allocator, &work.inside);
}
