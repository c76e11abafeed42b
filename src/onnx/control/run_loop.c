// Loops of the network for Loop and Scan.
//
// The condition that a body gets is true, since it would not run otherwise. A
// state whose next value has other extents makes those a matter of the run; the
// body is then imported once more, as what was inferred of it was wrong.
#include "onnx/control/loop.h"
#include "onnx/held.h"

typedef struct run_loop_t {
  onnx_loop_t* loop;
  rabbet_onnx_node_t* node;
  const rabbet_onnx_run_loop_t* run;
  rabbet_loop_t* made;
  const char* name;  // of the loop; that of the node, but for a later import
  rabbet_layer_t *number, **states;  // recurrences
  rabbet_tensor_t** initial;
  int64_t* varying;  // [state]: axes whose extents change
  bool has_condition;
} run_loop_t;

static void fail(const run_loop_t* work, rabbet_status_t status) {
  rabbet_onnx_fail(work->node, status);
}

static rabbet_layer_t* add_state(const run_loop_t* work, rabbet_tensor_t* x,
                                 int64_t varying) {
  rabbet_layer_t* layer = NULL;
  if (rabbet_onnx_ok(work->node))
    fail(work,
         rabbet_loop_add_varying_recurrence(work->made, x, varying, &layer));
  return layer;
}

static rabbet_tensor_t* result_of(const run_loop_t* work,
                                  const rabbet_layer_t* layer) {
  return rabbet_onnx_ok(work->node) ? rabbet_layer_output(layer, 0) : NULL;
}

// ---- The body --------------------------------------------------------------

static void refuse_lists(const run_loop_t* work, rabbet_tensor_t* const* list,
                         size_t count, const char* what) {
  for (size_t i = 0; i < count; ++i)
    if (rabbet_onnx_list(list[i]))
      RABBET_ONNX_FAIL(work->node, RABBET_STATUS_UNSUPPORTED,
                       "%s %zu is a sequence or an optional value; for those "
                       "the number of iterations must be constant, and at "
                       "most %d",
                       what, i, RABBET_ONNX_MAX_TRIPS);
}

static void begin(run_loop_t* work, int round) {
  rabbet_onnx_node_t* node = work->node;
  const onnx_loop_t* loop = work->loop;
  rabbet_layer_t* limit = NULL;
  work->name = node->name;
  if (round > 0)
    fail(work, rabbet_arena_printf(&node->importer->arena, &work->name, "%s:%d",
                                   node->name, round));
  if (rabbet_onnx_ok(node))
    fail(work, rabbet_network_add_loop(node->importer->network, work->name,
                                       &work->made));
  if (rabbet_onnx_ok(node) && work->run->count)
    fail(work, rabbet_loop_add_trip_limit(work->made, work->run->count,
                                          RABBET_TRIP_LIMIT_COUNT, &limit));
  for (size_t i = 0; i < loop->state_count && rabbet_onnx_ok(node); ++i) {
    work->states[i] = add_state(work, work->initial[i], work->varying[i]);
    loop->inputs[loop->first_input + i] = result_of(work, work->states[i]);
    rabbet_onnx_hold_like(node, loop->inputs[loop->first_input + i],
                          work->initial[i]);
  }
  for (size_t i = 0; i < work->run->slice_count && rabbet_onnx_ok(node); ++i) {
    rabbet_layer_t* layer = NULL;
    fail(work, rabbet_loop_add_iterator(work->made, work->run->slices[i],
                                        work->run->slice_axes[i],
                                        work->run->slice_reversals[i], &layer));
    rabbet_tensor_t* slice = result_of(work, layer);
    loop->inputs[loop->first_input + loop->state_count + i] = slice;
    rabbet_onnx_hold_like(node, slice, work->run->slices[i]);
  }
}

static void number_iterations(run_loop_t* work) {
  rabbet_onnx_node_t* node = work->node;
  if (work->run->number_rank < 0) return;
  rabbet_tensor_t* zero =
      rabbet_onnx_number(node, RABBET_DTYPE_INT64, work->run->number_rank, 0);
  work->number = add_state(work, zero, 0);
  rabbet_tensor_t* number = result_of(work, work->number);
  work->loop->inputs[0] = number;
  work->loop->inputs[1] = rabbet_onnx_number(node, RABBET_DTYPE_BOOL, 0, 1);
  rabbet_tensor_t* next = rabbet_onnx_with_number(node, "SUM", number, 1);
  if (rabbet_onnx_ok(node))
    fail(work, rabbet_layer_set_input(work->number, 1, next));
}

static void import_body(run_loop_t* work) {
  rabbet_onnx_node_t* node = work->node;
  rabbet_onnx_scope_t scope;
  const char* prefix = NULL;
  fail(work, rabbet_onnx_spend(node->importer, 1));
  if (!rabbet_onnx_ok(node)) return;
  rabbet_onnx_scope_initialize(node->importer, &work->loop->shared, &scope);
  rabbet_status_t status =
      rabbet_arena_printf(&node->importer->arena, &prefix, "%s/", work->name);
  if (rabbet_is_ok(status))
    status = rabbet_onnx_loop_run(work->loop, &scope, prefix);
  rabbet_onnx_scope_deinitialize(&scope);
  fail(work, status);
  if (rabbet_onnx_ok(node))
    refuse_lists(work, work->loop->outputs, work->loop->body->n_output,
                 "output of the body");
}

static void set_next(run_loop_t* work) {
  const onnx_loop_t* loop = work->loop;
  for (size_t i = 0; i < loop->state_count && rabbet_onnx_ok(work->node); ++i)
    fail(work, rabbet_layer_set_input(work->states[i], 1,
                                      loop->outputs[loop->first_output + i]));
}

// Adds the axes whose extents differ; whether there are new ones.
static bool widen(run_loop_t* work) {
  rabbet_onnx_node_t* node = work->node;
  bool changed = false;
  if (!rabbet_onnx_ok(node)) return false;
  fail(work, rabbet_network_infer(node->importer->network));
  for (size_t i = 0; i < work->loop->state_count && rabbet_onnx_ok(node); ++i) {
    const rabbet_tensor_t* state = work->states[i]->outputs[0];
    const rabbet_tensor_t* next =
        work->loop->outputs[work->loop->first_output + i];
    if (state->shape.rank != next->shape.rank || state->dtype != next->dtype) {
      RABBET_ONNX_FAIL(node, RABBET_STATUS_UNSUPPORTED,
                       "state %zu is %s of rank %d, and its next value, '%s', "
                       "%s of rank %d; in a run these must be equal",
                       i, rabbet_dtype_name(state->dtype), state->shape.rank,
                       rabbet_tensor_name(next), rabbet_dtype_name(next->dtype),
                       next->shape.rank);
      return false;
    }
    for (int32_t axis = 0; axis < state->shape.rank; ++axis) {
      int64_t bit = INT64_C(1) << axis;
      if (state->shape.d[axis] == next->shape.d[axis] ||
          (work->varying[i] & bit))
        continue;
      work->varying[i] |= bit;
      changed = true;
    }
  }
  return changed;
}

// ---- The condition ---------------------------------------------------------

static rabbet_tensor_t* scalar(const run_loop_t* work, rabbet_tensor_t* x) {
  int rank = rabbet_onnx_rank(work->node, x);
  return rank > 0 ? rabbet_onnx_squeeze(work->node, x, (1u << rank) - 1) : x;
}

static bool is_true(const run_loop_t* work, rabbet_tensor_t* x) {
  rabbet_onnx_ints_t known = rabbet_onnx_try_ints(work->node, x);
  return known.present && known.count == 1 && known.data[0] != 0;
}

static void add_condition(run_loop_t* work) {
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
  rabbet_tensor_t* present = result_of(work, state);
  if (rabbet_onnx_ok(node)) fail(work, rabbet_layer_set_input(state, 1, next));
  if (rabbet_onnx_ok(node))
    fail(work, rabbet_loop_add_trip_limit(work->made, present,
                                          RABBET_TRIP_LIMIT_WHILE, &limit));
}

// ---- Results ---------------------------------------------------------------

static void add_results(run_loop_t* work) {
  const onnx_loop_t* loop = work->loop;
  const rabbet_onnx_run_loop_t* run = work->run;
  rabbet_onnx_node_t* node = work->node;
  for (size_t i = 0; i < node->output_count && rabbet_onnx_ok(node); ++i) {
    rabbet_layer_t* layer = NULL;
    if (!rabbet_onnx_wants(node, i)) continue;
    if (i < loop->state_count) {
      fail(work,
           rabbet_loop_add_output(work->made, result_of(work, work->states[i]),
                                  RABBET_LOOP_OUTPUT_LAST_VALUE, 0, &layer));
      node->outputs[i] = result_of(work, layer);
      rabbet_onnx_hold_like(node, node->outputs[i], work->initial[i]);
      continue;
    }
    size_t at = i - loop->state_count;
    rabbet_tensor_t* x = loop->outputs[loop->first_output + i];
    int64_t axis = at < run->axes.count ? run->axes.data[at] : 0;
    bool reverse = at < run->reversals.count && run->reversals.data[at] != 0;
    int place = rabbet_onnx_axis(node, axis, rabbet_onnx_rank(node, x) + 1);
    if (!rabbet_onnx_ok(node)) return;
    fail(work,
         work->has_condition || !run->count
             ? rabbet_loop_add_told_output(work->made, x, place, &layer)
             : rabbet_loop_add_output(work->made, x,
                                      reverse ? RABBET_LOOP_OUTPUT_REVERSE
                                              : RABBET_LOOP_OUTPUT_CONCATENATE,
                                      place, &layer));
    node->outputs[i] = result_of(work, layer);
    rabbet_onnx_hold_like(node, node->outputs[i], x);
  }
}

static void allocate(run_loop_t* work) {
  rabbet_arena_t* arena = &work->node->importer->arena;
  size_t count = work->loop->state_count;
  fail(work, rabbet_arena_allocate_array(arena, count, sizeof(*work->states),
                                         (void**)&work->states));
  fail(work, rabbet_arena_allocate_array(arena, count, sizeof(*work->varying),
                                         (void**)&work->varying));
  fail(work, rabbet_arena_copy(
                 arena, work->loop->inputs + work->loop->first_input,
                 count * sizeof(*work->initial), (void**)&work->initial));
}

void rabbet_onnx_run_loop(onnx_loop_t* loop,
                          const rabbet_onnx_run_loop_t* run) {
  run_loop_t work = {.loop = loop, .node = loop->node, .run = run};
  refuse_lists(&work, loop->inputs + loop->first_input, loop->state_count,
               "state");
  if (rabbet_onnx_ok(work.node)) allocate(&work);
  bool again = true;
  for (int round = 0; again && rabbet_onnx_ok(work.node); ++round) {
    begin(&work, round);
    number_iterations(&work);
    import_body(&work);
    set_next(&work);
    add_condition(&work);
    again = widen(&work);
  }
  add_results(&work);
}
