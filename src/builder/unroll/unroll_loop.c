// A loop, iteration by iteration. One that cannot be written out so becomes a
// layer (kept_loop.c).

#include <string.h>

#include "builder/unroll/internal.h"
#include "core/view.h"

// Loops with more iterations, or more layers written out, become layers.
#define UNROLL_MAX_TRIPS 64
#define UNROLL_MAX_LAYERS 4000

typedef struct unroll_loop_t {
  rabbet_unroll_t* unroll;
  const rabbet_loop_t* loop;
  size_t index;
  const char* prefix;           // of the loop itself
  rabbet_tensor_t** state;      // by layer of the boundary: recurrences
  rabbet_tensor_vec_t* values;  // by layer of the boundary: stacked values
  bool has_count;
  int64_t count;                    // COUNT
  const rabbet_layer_t* condition;  // WHILE
  bool* before;                     // layers that the condition depends on
  int64_t trips;
  size_t first_layer;  // of `to`
} unroll_loop_t;

static bool unroll_is(const rabbet_layer_t* layer, rabbet_op_id_t op) {
  return rabbet_op_is(layer->op, op);
}

static bool unroll_is_stacked(const rabbet_layer_t* layer) {
  return unroll_is(layer, RABBET_OP_LOOP_OUTPUT) &&
         rabbet_layer_int(layer, "kind") != RABBET_LOOP_OUTPUT_LAST_VALUE;
}

rabbet_status_t rabbet_unroll_number(rabbet_unroll_t* unroll,
                                     rabbet_tensor_t* tensor, bool* out_known,
                                     int64_t* out_number) {
  *out_known = false;
  *out_number = 0;
  RABBET_RETURN_IF_ERROR(rabbet_network_infer(unroll->to));
  *out_known =
      tensor->value_count == 1 &&
      rabbet_expr_is_constant(unroll->to->graph, tensor->values[0], out_number);
  return rabbet_ok();
}

// ---- Beginning -------------------------------------------------------------

// The loop becomes a layer: unrolling starts again.
static rabbet_status_t unroll_give_up(const unroll_loop_t* work) {
  work->unroll->is_kept[work->index] = true;
  work->unroll->restart = true;
  return RABBET_STATUS(RABBET_STATUS_UNSUPPORTED, "it is not unrolled");
}

static rabbet_status_t unroll_find_count(unroll_loop_t* work) {
  const rabbet_layer_t* limit =
      rabbet_loop_limit(work->loop, RABBET_TRIP_LIMIT_COUNT);
  if (!limit) return rabbet_ok();
  RABBET_RETURN_IF_ERROR(rabbet_unroll_number(
      work->unroll, work->unroll->map[limit->inputs[0]->id], &work->has_count,
      &work->count));
  return work->has_count && work->count <= UNROLL_MAX_TRIPS
             ? rabbet_ok()
             : unroll_give_up(work);
}

// Marks the layers of an iteration that the condition needs, backwards. All
// layers of a nested loop are needed, or none.
static bool unroll_mark(const unroll_loop_t* work,
                        const rabbet_layer_t* layer) {
  bool changed = false;
  const rabbet_regions_t* regions = &work->unroll->regions;
  for (size_t i = 0; i < layer->input_count; ++i) {
    const rabbet_tensor_t* input = layer->inputs[i];
    if (!rabbet_regions_makes(regions, work->index, input)) continue;
    bool* before = &work->before[input->producer->index];
    changed |= !*before;
    *before = true;
  }
  if (layer->next && layer->loop != work->loop) {
    bool* before = &work->before[layer->next->producer->index];
    changed |= !*before;
    *before = true;
  }
  return changed;
}

static bool unroll_mark_loop(const unroll_loop_t* work,
                             const rabbet_loop_t* loop) {
  bool changed = false;
  for (size_t i = 0; i < loop->layers.count; ++i) {
    bool* before = &work->before[loop->layers.data[i]->index];
    changed |= !*before;
    *before = true;
  }
  return changed;
}

static rabbet_status_t unroll_find_condition(unroll_loop_t* work) {
  const rabbet_network_t* from = work->unroll->from;
  work->condition = rabbet_loop_limit(work->loop, RABBET_TRIP_LIMIT_WHILE);
  if (!work->condition) return rabbet_ok();
  RABBET_RETURN_IF_ERROR(
      rabbet_arena_allocate_array(&work->unroll->arena, from->layers.count,
                                  sizeof(bool), (void**)&work->before));
  bool changed = unroll_mark(work, work->condition);
  while (changed) {
    changed = false;
    for (size_t i = from->layers.count; i-- > 0;) {
      const rabbet_layer_t* layer = from->layers.data[i];
      if (!work->before[i]) continue;
      changed |= unroll_mark(work, layer);
      if (layer->loop && layer->loop != work->loop)
        changed |= unroll_mark_loop(work, layer->loop);
    }
  }
  return rabbet_ok();
}

static rabbet_status_t unroll_begin(unroll_loop_t* work) {
  rabbet_unroll_t* unroll = work->unroll;
  size_t count = work->loop->layers.count;
  RABBET_RETURN_IF_ERROR(rabbet_arena_allocate_array(
      &unroll->arena, count, sizeof(*work->state), (void**)&work->state));
  RABBET_RETURN_IF_ERROR(rabbet_arena_allocate_array(
      &unroll->arena, count, sizeof(*work->values), (void**)&work->values));
  for (size_t i = 0; i < count; ++i) {
    const rabbet_layer_t* layer = work->loop->layers.data[i];
    if (unroll_is(layer, RABBET_OP_RECURRENCE))
      work->state[i] = unroll->map[layer->inputs[0]->id];
  }
  RABBET_RETURN_IF_ERROR(unroll_find_count(work));
  return unroll_find_condition(work);
}

// ---- An iteration ----------------------------------------------------------

// Forgets the tensors of the last iteration.
static void unroll_forget(const unroll_loop_t* work) {
  rabbet_unroll_t* unroll = work->unroll;
  for (size_t i = 0; i < unroll->from->layers.count; ++i) {
    const rabbet_layer_t* layer = unroll->from->layers.data[i];
    if (!rabbet_regions_has(&unroll->regions, work->index, layer)) continue;
    unroll->done[i] = false;
    for (size_t k = 0; k < layer->output_count; ++k)
      unroll->map[layer->outputs[k]->id] = NULL;
  }
  for (size_t i = 0; i < work->loop->layers.count; ++i) {
    const rabbet_layer_t* layer = work->loop->layers.data[i];
    if (!unroll_is(layer, RABBET_OP_RECURRENCE)) continue;
    unroll->map[layer->outputs[0]->id] = work->state[i];
    unroll->done[layer->index] = true;
  }
}

static rabbet_status_t unroll_slices(const unroll_loop_t* work,
                                     const char* prefix, const bool* only) {
  rabbet_unroll_t* unroll = work->unroll;
  for (size_t i = 0; i < work->loop->layers.count; ++i) {
    const rabbet_layer_t* layer = work->loop->layers.data[i];
    if (!unroll_is(layer, RABBET_OP_ITERATOR) || unroll->done[layer->index] ||
        (only && !only[layer->index]))
      continue;
    const char* name = NULL;
    rabbet_tensor_t* slice = NULL;
    RABBET_RETURN_IF_ERROR(rabbet_arena_printf(&unroll->arena, &name, "%s%s",
                                               prefix, layer->name));
    RABBET_RETURN_IF_ERROR(RABBET_ANNOTATE(
        rabbet_unroll_slice(unroll, name, unroll->map[layer->inputs[0]->id],
                            (int32_t)rabbet_layer_int(layer, "axis"),
                            rabbet_layer_int(layer, "reverse") != 0,
                            work->trips, &slice),
        "layer '%s' (iterator)", name));
    RABBET_RETURN_IF_ERROR(
        rabbet_tensor_copy_wishes(slice, layer->outputs[0], prefix));
    slice->producer->metadata = layer->metadata;
    unroll->map[layer->outputs[0]->id] = slice;
    unroll->done[layer->index] = true;
  }
  return rabbet_ok();
}

// Whether the loop goes on.
static rabbet_status_t unroll_ask(const unroll_loop_t* work, const char* prefix,
                                  bool* out_goes_on) {
  rabbet_unroll_t* unroll = work->unroll;
  *out_goes_on = !work->has_count || work->trips < work->count;
  if (!*out_goes_on || !work->condition) return rabbet_ok();
  RABBET_RETURN_IF_ERROR(unroll_slices(work, prefix, work->before));
  RABBET_RETURN_IF_ERROR(
      rabbet_unroll_region(unroll, (int32_t)work->index, prefix, work->before));
  bool is_known = false;
  int64_t value = 0;
  RABBET_RETURN_IF_ERROR(rabbet_unroll_number(
      unroll, unroll->map[work->condition->inputs[0]->id], &is_known, &value));
  if (!is_known) return unroll_give_up(work);
  *out_goes_on = value != 0;
  return rabbet_ok();
}

rabbet_status_t rabbet_unroll_check_state(const rabbet_layer_t* layer,
                                          rabbet_tensor_t* old,
                                          rabbet_tensor_t* next) {
  rabbet_dims_t a, b;
  RABBET_RETURN_IF_ERROR(rabbet_tensor_dims(old, &a));
  RABBET_RETURN_IF_ERROR(rabbet_tensor_dims(next, &b));
  bool same = a.rank == b.rank && old->dtype == next->dtype;
  for (int32_t i = 0; same && i < a.rank; ++i)
    same = (layer->varying >> i & 1) || a.d[i] < 0 || b.d[i] < 0 ||
           a.d[i] == b.d[i];
  if (same) return rabbet_ok();
  char first[128], second[128];
  return RABBET_STATUS(
      RABBET_STATUS_INVALID_ARGUMENT,
      "layer '%s' (recurrence): it is %s %s, and its next value is %s %s "
      "(tensor '%s'); a recurrence keeps its type and its shape",
      layer->name, rabbet_dtype_name(old->dtype),
      rabbet_dims_print(&a, first, sizeof first),
      rabbet_dtype_name(next->dtype),
      rabbet_dims_print(&b, second, sizeof second), layer->next->name);
}

// Takes the results of the iteration.
static rabbet_status_t unroll_collect(const unroll_loop_t* work) {
  rabbet_unroll_t* unroll = work->unroll;
  RABBET_RETURN_IF_ERROR(rabbet_network_infer(unroll->to));
  for (size_t i = 0; i < work->loop->layers.count; ++i) {
    const rabbet_layer_t* layer = work->loop->layers.data[i];
    if (unroll_is_stacked(layer))
      RABBET_RETURN_IF_ERROR(
          RABBET_VEC_PUSH(unroll->allocator, &work->values[i],
                          unroll->map[layer->inputs[0]->id]));
    if (!layer->next) continue;
    rabbet_tensor_t* next = unroll->map[layer->next->id];
    RABBET_RETURN_IF_ERROR(
        rabbet_unroll_check_state(layer, work->state[i], next));
    work->state[i] = next;
  }
  return rabbet_ok();
}

static rabbet_status_t unroll_check_size(const unroll_loop_t* work) {
  size_t layers = work->unroll->to->layers.count - work->first_layer;
  return layers <= UNROLL_MAX_LAYERS && work->trips <= UNROLL_MAX_TRIPS
             ? rabbet_ok()
             : unroll_give_up(work);
}

static rabbet_status_t unroll_iterate(unroll_loop_t* work, bool* out_goes_on) {
  rabbet_unroll_t* unroll = work->unroll;
  const char* prefix = NULL;
  RABBET_RETURN_IF_ERROR(unroll_check_size(work));
  RABBET_RETURN_IF_ERROR(
      rabbet_arena_printf(&unroll->arena, &prefix, "%s%s[%lld]/", work->prefix,
                          work->loop->name, (long long)work->trips));
  unroll_forget(work);
  RABBET_RETURN_IF_ERROR(unroll_ask(work, prefix, out_goes_on));
  if (!*out_goes_on) return rabbet_ok();
  RABBET_RETURN_IF_ERROR(unroll_slices(work, prefix, NULL));
  RABBET_RETURN_IF_ERROR(
      rabbet_unroll_region(unroll, (int32_t)work->index, prefix, NULL));
  RABBET_RETURN_IF_ERROR(unroll_collect(work));
  work->trips++;
  return rabbet_ok();
}

// ---- The end ---------------------------------------------------------------

static void unroll_reverse(rabbet_tensor_vec_t* values) {
  for (size_t i = 0; i < values->count / 2; ++i) {
    rabbet_tensor_t** last = &values->data[values->count - 1 - i];
    rabbet_tensor_t* first = values->data[i];
    values->data[i] = *last;
    *last = first;
  }
}

static rabbet_status_t unroll_find_length(const unroll_loop_t* work,
                                          const rabbet_layer_t* layer,
                                          int64_t* out_length) {
  bool is_known = false;
  *out_length = work->trips;
  if (layer->input_count < 2) return rabbet_ok();
  RABBET_RETURN_IF_ERROR(rabbet_unroll_number(
      work->unroll, work->unroll->map[layer->inputs[1]->id], &is_known,
      out_length));
  if (!is_known) return unroll_give_up(work);
  if (*out_length < 0) *out_length = 0;
  if (*out_length >= work->trips) return rabbet_ok();
  return RABBET_STATUS(RABBET_STATUS_INVALID_ARGUMENT,
                       "layer '%s' (loop_output): its length, tensor '%s', is "
                       "%lld, but the loop runs %lld times; give it the number "
                       "of iterations, or more",
                       layer->name, layer->inputs[1]->name,
                       (long long)*out_length, (long long)work->trips);
}

// A tensor of `to` of the type and shape of the stacked values: in a loop that
// does not run, inference of the original network gives them.
static rabbet_status_t unroll_like(const unroll_loop_t* work, size_t at,
                                   rabbet_tensor_t* out_like) {
  const rabbet_tensor_t* from = work->loop->layers.data[at]->inputs[0];
  if (work->values[at].count > 0) {
    *out_like = *work->values[at].data[0];
    return rabbet_ok();
  }
  rabbet_network_t* network = work->unroll->from;
  RABBET_RETURN_IF_ERROR(rabbet_network_infer(network));
  rabbet_dims_t dims = rabbet_shape_dims(network->graph, &from->shape);
  *out_like = (rabbet_tensor_t){.dtype = from->dtype};
  out_like->shape.rank = dims.rank;
  for (int32_t i = 0; i < dims.rank; ++i) {
    // A layer finds the extents in the run.
    if (dims.d[i] < 0) return unroll_give_up(work);
    RABBET_RETURN_IF_ERROR(rabbet_expr_constant(
        work->unroll->to->graph, dims.d[i], &out_like->shape.d[i]));
  }
  return rabbet_ok();
}

static rabbet_status_t unroll_stack(const unroll_loop_t* work, size_t at,
                                    const char* name,
                                    rabbet_tensor_t** out_tensor) {
  const rabbet_layer_t* layer = work->loop->layers.data[at];
  rabbet_tensor_vec_t* values = &work->values[at];
  rabbet_tensor_t like;
  int64_t length = 0;
  RABBET_RETURN_IF_ERROR(unroll_find_length(work, layer, &length));
  RABBET_RETURN_IF_ERROR(unroll_like(work, at, &like));
  if (length > (int64_t)values->count &&
      !rabbet_shape_is_constant(work->unroll->to->graph, &like.shape))
    return unroll_give_up(work);
  int32_t axis = (int32_t)rabbet_layer_int(layer, "axis");
  if (axis < 0) axis += like.shape.rank + 1;
  if (rabbet_layer_int(layer, "kind") == RABBET_LOOP_OUTPUT_REVERSE)
    unroll_reverse(values);
  return RABBET_ANNOTATE(
      rabbet_unroll_stack(work->unroll, name, values->data, values->count,
                          length, &like, axis, out_tensor),
      "layer '%s' (loop_output)", layer->name);
}

static rabbet_status_t unroll_output(const unroll_loop_t* work, size_t at) {
  rabbet_unroll_t* unroll = work->unroll;
  const rabbet_layer_t* layer = work->loop->layers.data[at];
  const char* name = NULL;
  rabbet_tensor_t* tensor = NULL;
  RABBET_RETURN_IF_ERROR(rabbet_arena_printf(&unroll->arena, &name, "%s%s",
                                             work->prefix, layer->name));
  if (unroll_is_stacked(layer)) {
    RABBET_RETURN_IF_ERROR(unroll_stack(work, at, name, &tensor));
  } else {
    // A copy, since it may be a network input and have a name of its own.
    const rabbet_layer_t* recurrence = layer->inputs[0]->producer;
    size_t of = 0;
    while (work->loop->layers.data[of] != recurrence)
      ++of;
    RABBET_RETURN_IF_ERROR(
        rabbet_unroll_copy(unroll, name, work->state[of], &tensor));
  }
  RABBET_RETURN_IF_ERROR(
      rabbet_tensor_copy_wishes(tensor, layer->outputs[0], work->prefix));
  tensor->producer->metadata = layer->metadata;
  unroll->map[layer->outputs[0]->id] = tensor;
  unroll->done[layer->index] = true;
  return rabbet_ok();
}

rabbet_status_t rabbet_unroll_run(rabbet_unroll_t* unroll, size_t loop,
                                  const char* prefix) {
  unroll_loop_t work = {.unroll = unroll,
                        .loop = unroll->from->loops.data[loop],
                        .index = loop,
                        .prefix = prefix,
                        .first_layer = unroll->to->layers.count};
  if (unroll->is_kept[loop]) {
    RABBET_RETURN_IF_ERROR(unroll_find_condition(&work));
    return RABBET_ANNOTATE(
        rabbet_unroll_keep(unroll, loop, prefix, work.before), "loop '%s%s'",
        prefix, work.loop->name);
  }
  rabbet_status_t status = unroll_begin(&work);
  bool goes_on = true;
  while (rabbet_is_ok(status) && goes_on)
    status = unroll_iterate(&work, &goes_on);
  if (!rabbet_is_ok(status))
    status =
        rabbet_status_annotate(status, "iteration %lld", (long long)work.trips);
  for (size_t i = 0; i < work.loop->layers.count; ++i) {
    if (rabbet_is_ok(status) &&
        unroll_is(work.loop->layers.data[i], RABBET_OP_LOOP_OUTPUT))
      status = unroll_output(&work, i);
    if (work.values) rabbet_vec_free(unroll->allocator, &work.values[i]);
  }
  return RABBET_ANNOTATE(status, "loop '%s%s'", prefix, work.loop->name);
}
