// A loop as one layer, which runs its body as often as the run says.
//
// The layers that the condition needs are a network of their own, run before
// each iteration: what the body does once too often might fail.
#include <string.h>

#include "builder/unroll/internal.h"

typedef struct kept_t {
  rabbet_unroll_t* unroll;
  const rabbet_loop_t* loop;
  size_t index;
  const char* prefix;
  const rabbet_layer_t* condition;  // a limit, or NULL
  const bool* before;               // layers that it needs
  rabbet_unroll_body_t bodies[2];   // body, condition
  size_t body_count;
  rabbet_tensor_t** inputs;  // of the layer
  size_t input_count;
  rabbet_tensor_t** slices;  // by layer of the boundary: iterators
  int64_t *varying, *reverse, *sources, *kinds, *lengths;
  rabbet_loop_wiring_t wiring;
} kept_t;

static bool kept_is(const rabbet_layer_t* layer, rabbet_op_id_t op) {
  return rabbet_op_is(layer->op, op);
}

static rabbet_tensor_t* kept_outside(const kept_t* kept,
                                     const rabbet_layer_t* layer,
                                     size_t input) {
  return kept->unroll->map[layer->inputs[input]->id];
}

// ---- Inputs ----------------------------------------------------------------

// Tensors that iterators walk along, with that axis in front.
static rabbet_status_t kept_slices(kept_t* kept) {
  for (size_t i = 0; i < kept->loop->layers.count; ++i) {
    const rabbet_layer_t* layer = kept->loop->layers.data[i];
    const char* name = NULL;
    if (!kept_is(layer, RABBET_OP_ITERATOR)) continue;
    rabbet_tensor_t* tensor = kept_outside(kept, layer, 0);
    int32_t axis = (int32_t)rabbet_layer_int(layer, "axis");
    RABBET_RETURN_IF_ERROR(rabbet_network_infer(kept->unroll->to));
    if (axis < 0) axis += tensor->shape.rank;
    kept->slices[i] = tensor;
    kept->reverse[kept->wiring.slice_count++] =
        rabbet_layer_int(layer, "reverse") != 0;
    if (axis == 0) continue;
    RABBET_RETURN_IF_ERROR(rabbet_arena_printf(
        &kept->unroll->arena, &name, "%s%s:axis", kept->prefix, layer->name));
    RABBET_RETURN_IF_ERROR(rabbet_unroll_axis_first(kept->unroll, name, tensor,
                                                    axis, &kept->slices[i]));
  }
  return rabbet_network_infer(kept->unroll->to);
}

static rabbet_status_t kept_add_inputs(const kept_t* kept,
                                       rabbet_unroll_body_t* body) {
  size_t carried = 0;
  for (size_t i = 0; i < kept->loop->layers.count; ++i) {
    const rabbet_layer_t* layer = kept->loop->layers.data[i];
    if (!kept_is(layer, RABBET_OP_RECURRENCE)) continue;
    RABBET_RETURN_IF_ERROR(rabbet_unroll_body_input(
        body, layer->outputs[0], kept_outside(kept, layer, 0), false,
        kept->varying[carried++]));
    body->map[layer->outputs[0]->id]->is_debug = layer->outputs[0]->is_debug;
  }
  for (size_t i = 0; i < kept->loop->layers.count; ++i) {
    const rabbet_layer_t* layer = kept->loop->layers.data[i];
    if (!kept_is(layer, RABBET_OP_ITERATOR)) continue;
    RABBET_RETURN_IF_ERROR(rabbet_unroll_body_input(body, layer->outputs[0],
                                                    kept->slices[i], true, 0));
    body->map[layer->outputs[0]->id]->is_debug = layer->outputs[0]->is_debug;
  }
  return rabbet_ok();
}

// ---- Networks --------------------------------------------------------------

static rabbet_status_t kept_fill(const kept_t* kept, rabbet_unroll_body_t* body,
                                 const bool* only) {
  const rabbet_network_t* from = kept->unroll->from;
  RABBET_RETURN_IF_ERROR(rabbet_unroll_body_begin(body));
  RABBET_RETURN_IF_ERROR(kept_add_inputs(kept, body));
  for (size_t i = 0; i < from->layers.count; ++i) {
    const rabbet_layer_t* layer = from->layers.data[i];
    if (!rabbet_regions_has(&kept->unroll->regions, kept->index, layer) ||
        layer->loop == kept->loop || (only && !only[i]))
      continue;
    RABBET_RETURN_IF_ERROR(rabbet_unroll_body_layer(body, layer));
  }
  return rabbet_ok();
}

// A next value has its recurrence's type and, as far as they are known, its
// extents.
static rabbet_status_t kept_check_next(const kept_t* kept) {
  const rabbet_network_t* made = kept->bodies[0].made;
  size_t carried = 0;
  for (size_t i = 0; i < kept->loop->layers.count; ++i) {
    const rabbet_layer_t* layer = kept->loop->layers.data[i];
    if (!kept_is(layer, RABBET_OP_RECURRENCE)) continue;
    RABBET_RETURN_IF_ERROR(rabbet_unroll_check_state(
        layer, made->inputs.data[carried], made->outputs.data[carried]));
    ++carried;
  }
  return rabbet_ok();
}

static rabbet_status_t kept_make_body(kept_t* kept) {
  rabbet_unroll_body_t* body = &kept->bodies[0];
  RABBET_RETURN_IF_ERROR(kept_fill(kept, body, NULL));
  for (size_t i = 0; i < kept->loop->layers.count; ++i) {
    const rabbet_layer_t* layer = kept->loop->layers.data[i];
    if (kept_is(layer, RABBET_OP_RECURRENCE))
      RABBET_RETURN_IF_ERROR(
          rabbet_unroll_body_output(body, layer->next, layer->name));
  }
  for (size_t i = 0; i < kept->loop->layers.count; ++i) {
    const rabbet_layer_t* layer = kept->loop->layers.data[i];
    if (kept_is(layer, RABBET_OP_LOOP_OUTPUT) &&
        rabbet_layer_int(layer, "kind") != RABBET_LOOP_OUTPUT_LAST_VALUE)
      RABBET_RETURN_IF_ERROR(
          rabbet_unroll_body_output(body, layer->inputs[0], layer->name));
  }
  RABBET_RETURN_IF_ERROR(rabbet_unroll_body_finish(body));
  return kept_check_next(kept);
}

// The number of the recurrence that gives the condition, or -1.
static int64_t kept_carried_condition(const kept_t* kept) {
  int64_t carried = 0;
  for (size_t i = 0; i < kept->loop->layers.count; ++i) {
    const rabbet_layer_t* layer = kept->loop->layers.data[i];
    if (!kept_is(layer, RABBET_OP_RECURRENCE)) continue;
    if (kept->condition && kept->condition->inputs[0] == layer->outputs[0])
      return carried;
    ++carried;
  }
  return -1;
}

// Debug tensors are shown by the body.
static rabbet_status_t kept_make_condition(kept_t* kept) {
  rabbet_unroll_body_t* body = &kept->bodies[1];
  RABBET_RETURN_IF_ERROR(kept_fill(kept, body, kept->before));
  RABBET_RETURN_IF_ERROR(rabbet_unroll_body_output(
      body, kept->condition->inputs[0], kept->condition->name));
  for (size_t i = 0; i < body->made->tensors.count; ++i)
    body->made->tensors.data[i]->is_debug = false;
  return rabbet_unroll_body_finish(body);
}

static rabbet_status_t kept_make(kept_t* kept) {
  kept->body_count = 1;
  RABBET_RETURN_IF_ERROR(kept_make_body(kept));
  kept->wiring.condition = kept_carried_condition(kept);
  if (!kept->condition || kept->wiring.condition >= 0) return rabbet_ok();
  kept->body_count = 2;
  return kept_make_condition(kept);
}

// ---- The layer -------------------------------------------------------------

static int32_t kept_find_input(kept_t* kept, rabbet_tensor_t* tensor) {
  size_t at = 0;
  while (at < kept->input_count && kept->inputs[at] != tensor)
    ++at;
  if (at == kept->input_count) kept->inputs[kept->input_count++] = tensor;
  return (int32_t)at;
}

static void kept_wire_output(kept_t* kept, const rabbet_layer_t* layer,
                             size_t* stacks) {
  size_t at = kept->wiring.output_count++;
  kept->kinds[at] = rabbet_layer_int(layer, "kind");
  kept->lengths[at] = RABBET_LOOP_LENGTH_TRIPS;
  if (kept->kinds[at] != RABBET_LOOP_OUTPUT_LAST_VALUE) {
    kept->sources[at] = (int64_t)(kept->wiring.carried_count + (*stacks)++);
    if (layer->input_count > 1)
      kept->lengths[at] = kept_find_input(kept, kept_outside(kept, layer, 1));
    return;
  }
  for (size_t i = 0; kept->loop->layers.data[i] != layer->inputs[0]->producer;
       ++i)
    kept->sources[at] +=
        kept_is(kept->loop->layers.data[i], RABBET_OP_RECURRENCE);
}

static rabbet_status_t kept_wire(kept_t* kept, rabbet_bodies_t* bodies) {
  static const char* const names[] = {"body", "condition"};
  rabbet_unroll_t* unroll = kept->unroll;
  size_t most = kept->loop->layers.count + 1, stacks = 0;
  for (size_t k = 0; k < kept->body_count; ++k)
    most += kept->bodies[k].captured_count;
  RABBET_RETURN_IF_ERROR(rabbet_arena_allocate_array(
      &unroll->arena, most, sizeof(*kept->inputs), (void**)&kept->inputs));
  for (size_t k = 0; k < kept->body_count; ++k)
    RABBET_RETURN_IF_ERROR(rabbet_unroll_body_list_inputs(
        &kept->bodies[k], names[k], &unroll->to->arena, 0, kept->inputs,
        &kept->input_count, &bodies->list[k]));
  const rabbet_layer_t* count =
      rabbet_loop_limit(kept->loop, RABBET_TRIP_LIMIT_COUNT);
  kept->wiring.count =
      count ? kept_find_input(kept, kept_outside(kept, count, 0)) : -1;
  for (size_t i = 0; i < kept->loop->layers.count; ++i)
    if (kept_is(kept->loop->layers.data[i], RABBET_OP_LOOP_OUTPUT))
      kept_wire_output(kept, kept->loop->layers.data[i], &stacks);
  bodies->count = kept->body_count;
  bodies->loop = &kept->wiring;
  return rabbet_ok();
}

// Gives a result the settings of the loop's output, behind a layer that puts
// the axis of iterations in its place.
static rabbet_status_t kept_result(kept_t* kept, const rabbet_layer_t* layer,
                                   rabbet_tensor_t* tensor) {
  rabbet_unroll_t* unroll = kept->unroll;
  const char* name = NULL;
  int32_t axis = (int32_t)rabbet_layer_int(layer, "axis");
  RABBET_RETURN_IF_ERROR(rabbet_network_infer(unroll->to));
  if (axis < 0) axis += tensor->shape.rank;
  if (rabbet_layer_int(layer, "kind") == RABBET_LOOP_OUTPUT_LAST_VALUE)
    axis = 0;
  RABBET_RETURN_IF_ERROR(rabbet_arena_printf(&unroll->arena, &name, "%s%s",
                                             kept->prefix, layer->name));
  if (axis != 0)
    RABBET_RETURN_IF_ERROR(
        rabbet_unroll_axis_back(unroll, name, tensor, axis, &tensor));
  RABBET_RETURN_IF_ERROR(
      rabbet_tensor_copy_wishes(tensor, layer->outputs[0], kept->prefix));
  tensor->wished_dtype = RABBET_DTYPE_NONE;
  unroll->map[layer->outputs[0]->id] = tensor;
  unroll->done[layer->index] = true;
  return rabbet_ok();
}

static rabbet_status_t kept_add(kept_t* kept) {
  rabbet_unroll_t* unroll = kept->unroll;
  rabbet_bodies_t bodies = {0};
  rabbet_layer_t* made = NULL;
  size_t at = 0;
  RABBET_RETURN_IF_ERROR(kept_wire(kept, &bodies));
  RABBET_RETURN_IF_ERROR(rabbet_arena_printf(&unroll->to->arena, &bodies.name,
                                             "%s%s", kept->prefix,
                                             kept->loop->name));
  RABBET_RETURN_IF_ERROR(rabbet_network_add_bodies(
      unroll->to, bodies.name, kept->inputs, kept->input_count,
      kept->wiring.output_count, &bodies, &made));
  for (size_t i = 0; i < kept->loop->layers.count; ++i)
    if (kept_is(kept->loop->layers.data[i], RABBET_OP_LOOP_OUTPUT))
      RABBET_RETURN_IF_ERROR(
          kept_result(kept, kept->loop->layers.data[i], made->outputs[at++]));
  return rabbet_ok();
}

static rabbet_status_t kept_allocate(kept_t* kept) {
  rabbet_arena_t* arena = &kept->unroll->arena;
  size_t count = kept->loop->layers.count;
  RABBET_RETURN_IF_ERROR(rabbet_arena_allocate_array(
      arena, count, sizeof(*kept->slices), (void**)&kept->slices));
  int64_t** const lists[] = {&kept->varying, &kept->reverse, &kept->sources,
                             &kept->kinds, &kept->lengths};
  for (size_t i = 0; i < sizeof(lists) / sizeof(lists[0]); ++i)
    RABBET_RETURN_IF_ERROR(rabbet_arena_allocate_array(
        arena, count, sizeof(**lists[i]), (void**)lists[i]));
  kept->wiring = (rabbet_loop_wiring_t){.varying = kept->varying,
                                        .reverse = kept->reverse,
                                        .sources = kept->sources,
                                        .kinds = kept->kinds,
                                        .lengths = kept->lengths,
                                        .condition = -1};
  for (size_t i = 0; i < count; ++i)
    if (kept_is(kept->loop->layers.data[i], RABBET_OP_RECURRENCE))
      kept->varying[kept->wiring.carried_count++] =
          kept->loop->layers.data[i]->varying;
  return rabbet_ok();
}

static rabbet_status_t kept_check_end(const kept_t* kept) {
  const rabbet_tensor_t* condition =
      kept->condition ? kept->unroll->map[kept->condition->inputs[0]->id]
                      : NULL;
  if (rabbet_loop_limit(kept->loop, RABBET_TRIP_LIMIT_COUNT) || !condition ||
      !condition->constant ||
      rabbet_regions_makes(&kept->unroll->regions, kept->index,
                           kept->condition->inputs[0]))
    return rabbet_ok();
  return RABBET_STATUS(RABBET_STATUS_INVALID_ARGUMENT,
                       "layer '%s' (trip_limit): its condition, tensor '%s', "
                       "is always true, so that the loop would never end",
                       kept->condition->name, condition->name);
}

rabbet_status_t rabbet_unroll_keep(rabbet_unroll_t* unroll, size_t loop,
                                   const char* prefix, const bool* before) {
  kept_t kept = {.unroll = unroll,
                 .loop = unroll->from->loops.data[loop],
                 .index = loop,
                 .prefix = prefix,
                 .before = before};
  kept.condition = rabbet_loop_limit(kept.loop, RABBET_TRIP_LIMIT_WHILE);
  for (size_t k = 0; k < 2; ++k)
    kept.bodies[k] = (rabbet_unroll_body_t){.arena = &unroll->arena,
                                            .allocator = unroll->allocator,
                                            .from = unroll->from,
                                            .outside = unroll->map};
  rabbet_status_t status = kept_allocate(&kept);
  if (rabbet_is_ok(status)) status = rabbet_network_infer(unroll->to);
  if (rabbet_is_ok(status)) status = kept_check_end(&kept);
  if (rabbet_is_ok(status)) status = kept_slices(&kept);
  if (rabbet_is_ok(status)) status = kept_make(&kept);
  if (rabbet_is_ok(status)) status = kept_add(&kept);
  for (size_t k = 0; k < 2; ++k)
    rabbet_network_release(kept.bodies[k].made);
  return status;
}
