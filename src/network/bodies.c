// Networks that a layer of another network runs.
#include "network/inside.h"
#include "ops/rules.h"

// Bounds of a body's expression, in expressions of the layer's network;
// RABBET_EXPR_NONE: unknown.
typedef struct body_range_t {
  rabbet_expr_t least, most;
} body_range_t;

typedef struct body_map_t {
  rabbet_layer_t* layer;
  const rabbet_body_t* body;
  // [expression of the body]: its equal in the layer's network, or
  // RABBET_EXPR_NONE, and its range there.
  rabbet_expr_t* same;
  body_range_t* ranges;
} body_map_t;

static rabbet_expr_t body_symbol(const body_map_t* map,
                                 const rabbet_symbol_t* symbol) {
  const rabbet_network_t* inner = map->body->network;
  const rabbet_loop_wiring_t* loop = map->layer->bodies->loop;
  size_t at = 0;
  while (at < inner->inputs.count &&
         inner->inputs.data[at]->id != symbol->tensor)
    ++at;
  if (at == inner->inputs.count) return RABBET_EXPR_NONE;
  const rabbet_tensor_t* outer = map->layer->inputs[map->body->inputs[at]];
  bool is_carried = loop && at < loop->carried_count;
  bool is_slice =
      loop && !is_carried && at < loop->carried_count + loop->slice_count;
  if (symbol->kind == RABBET_SYMBOL_DIM) {
    bool varies = is_carried && (loop->varying[at] >> symbol->index & 1);
    return varies ? RABBET_EXPR_NONE : outer->shape.d[symbol->index + is_slice];
  }
  return outer->values && !is_carried && !is_slice
             ? outer->values[symbol->index]
             : RABBET_EXPR_NONE;
}

// RABBET_EXPR_NONE if there is no result, as for a division by 0.
static rabbet_expr_t body_binary(rabbet_expr_graph_t* graph,
                                 rabbet_expr_op_t op, rabbet_expr_t a,
                                 rabbet_expr_t b) {
  rabbet_expr_t result = RABBET_EXPR_NONE;
  if (a == RABBET_EXPR_NONE || b == RABBET_EXPR_NONE) return result;
  rabbet_status_t status = rabbet_expr_binary(graph, op, a, b, &result);
  if (!rabbet_is_ok(status)) result = RABBET_EXPR_NONE;
  rabbet_status_ignore(status);
  return result;
}

// The least (MIN) or greatest (MAX) result of an operation whose extremes are
// at extremes of its operands.
static rabbet_expr_t body_corner(rabbet_expr_graph_t* graph,
                                 rabbet_expr_op_t op, rabbet_expr_op_t pick,
                                 const body_range_t* a, const body_range_t* b) {
  rabbet_expr_t low =
      body_binary(graph, pick, body_binary(graph, op, a->least, b->least),
                  body_binary(graph, op, a->least, b->most));
  rabbet_expr_t high =
      body_binary(graph, pick, body_binary(graph, op, a->most, b->least),
                  body_binary(graph, op, a->most, b->most));
  return body_binary(graph, pick, low, high);
}

// A divisor that is not negative is above 0: a division by 0 has no result.
static body_range_t body_divisor(rabbet_expr_graph_t* graph,
                                 const body_range_t* range) {
  body_range_t divisor = {RABBET_EXPR_NONE, RABBET_EXPR_NONE};
  rabbet_expr_t one = RABBET_EXPR_NONE;
  int64_t least = -1;
  if (range->least == RABBET_EXPR_NONE ||
      !rabbet_expr_is_constant(graph, range->least, &least) || least < 0)
    return divisor;
  rabbet_status_ignore(rabbet_expr_constant(graph, 1, &one));
  divisor.least = body_binary(graph, RABBET_EXPR_MAX, range->least, one);
  divisor.most = body_binary(graph, RABBET_EXPR_MAX, range->most, one);
  return divisor;
}

// One operand of MIN or MAX alone bounds the result to one side.
static rabbet_expr_t body_either(rabbet_expr_graph_t* graph,
                                 rabbet_expr_op_t op, rabbet_expr_t a,
                                 rabbet_expr_t b) {
  if (a == RABBET_EXPR_NONE) return b;
  return b == RABBET_EXPR_NONE ? a : body_binary(graph, op, a, b);
}

// Interval arithmetic.
static body_range_t body_range(rabbet_expr_graph_t* graph, rabbet_expr_op_t op,
                               body_range_t a, body_range_t b) {
  body_range_t r = {RABBET_EXPR_NONE, RABBET_EXPR_NONE};
  switch (op) {
    case RABBET_EXPR_SUM:
      r.least = body_binary(graph, op, a.least, b.least);
      r.most = body_binary(graph, op, a.most, b.most);
      break;
    case RABBET_EXPR_SUB:
      r.least = body_binary(graph, op, a.least, b.most);
      r.most = body_binary(graph, op, a.most, b.least);
      break;
    case RABBET_EXPR_MIN:
      r.least = body_binary(graph, op, a.least, b.least);
      r.most = body_either(graph, op, a.most, b.most);
      break;
    case RABBET_EXPR_MAX:
      r.least = body_either(graph, op, a.least, b.least);
      r.most = body_binary(graph, op, a.most, b.most);
      break;
    case RABBET_EXPR_BROADCAST:
      r.least = body_binary(graph, RABBET_EXPR_MIN, a.least, b.least);
      r.most = body_binary(graph, RABBET_EXPR_MAX, a.most, b.most);
      break;
    case RABBET_EXPR_FLOOR_DIV:
    case RABBET_EXPR_CEIL_DIV:
      b = body_divisor(graph, &b);
      r.least = body_corner(graph, op, RABBET_EXPR_MIN, &a, &b);
      r.most = body_corner(graph, op, RABBET_EXPR_MAX, &a, &b);
      break;
    case RABBET_EXPR_PROD:
      r.least = body_corner(graph, op, RABBET_EXPR_MIN, &a, &b);
      r.most = body_corner(graph, op, RABBET_EXPR_MAX, &a, &b);
      break;
    case RABBET_EXPR_EQUAL:
    case RABBET_EXPR_LESS:
      rabbet_status_ignore(rabbet_expr_constant(graph, 0, &r.least));
      rabbet_status_ignore(rabbet_expr_constant(graph, 1, &r.most));
      break;
    case RABBET_EXPR_CONSTANT:
    case RABBET_EXPR_SYMBOL:
      break;
  }
  return r;
}

// A number that only a run tells is from 0 to its upper bound.
static rabbet_status_t body_symbol_range(const body_map_t* map,
                                         const rabbet_symbol_t* symbol,
                                         body_range_t* out_range) {
  if (symbol->upper == RABBET_EXPR_NONE) return rabbet_ok();
  out_range->most = map->ranges[symbol->upper].most;
  return rabbet_expr_constant(map->layer->network->graph, 0, &out_range->least);
}

static rabbet_status_t body_translate(const body_map_t* map) {
  const rabbet_expr_graph_t* from = map->body->network->graph;
  rabbet_expr_graph_t* to = map->layer->network->graph;
  for (size_t i = 0; i < rabbet_expr_node_count(from); ++i) {
    const rabbet_expr_node_t* node = rabbet_expr_node(from, (rabbet_expr_t)i);
    body_range_t range = {RABBET_EXPR_NONE, RABBET_EXPR_NONE};
    map->same[i] = RABBET_EXPR_NONE;
    if (node->op == RABBET_EXPR_CONSTANT) {
      RABBET_RETURN_IF_ERROR(
          rabbet_expr_constant(to, node->value, &map->same[i]));
    } else if (node->op == RABBET_EXPR_SYMBOL) {
      const rabbet_symbol_t* symbol = rabbet_expr_symbol(from, (size_t)node->a);
      map->same[i] = body_symbol(map, symbol);
      RABBET_RETURN_IF_ERROR(body_symbol_range(map, symbol, &range));
    } else {
      map->same[i] =
          body_binary(to, node->op, map->same[node->a], map->same[node->b]);
      if (map->same[i] == RABBET_EXPR_NONE)
        range = body_range(to, node->op, map->ranges[node->a],
                           map->ranges[node->b]);
    }
    if (map->same[i] != RABBET_EXPR_NONE)
      range.least = range.most = map->same[i];
    map->ranges[i] = range;
  }
  return rabbet_ok();
}

// Of each output of a body, in expressions of the layer's network.
typedef struct body_shapes_t {
  rabbet_shape_t *same, *bounds;
} body_shapes_t;

static rabbet_status_t body_shapes(rabbet_layer_t* layer, size_t at,
                                   const body_shapes_t* out_shapes) {
  const rabbet_body_t* body = &layer->bodies->list[at];
  body_map_t map = {.layer = layer, .body = body};
  size_t count = rabbet_expr_node_count(body->network->graph);
  rabbet_arena_t* arena = &layer->network->infer_arena;
  RABBET_RETURN_IF_ERROR(rabbet_arena_allocate_array(
      arena, count, sizeof(*map.same), (void**)&map.same));
  RABBET_RETURN_IF_ERROR(rabbet_arena_allocate_array(
      arena, count, sizeof(*map.ranges), (void**)&map.ranges));
  RABBET_RETURN_IF_ERROR(body_translate(&map));
  for (size_t i = 0; i < body->network->outputs.count; ++i) {
    const rabbet_shape_t* shape = &body->network->outputs.data[i]->shape;
    out_shapes->same[i].rank = out_shapes->bounds[i].rank = shape->rank;
    for (int32_t axis = 0; axis < shape->rank; ++axis) {
      out_shapes->same[i].d[axis] = map.same[shape->d[axis]];
      out_shapes->bounds[i].d[axis] = map.ranges[shape->d[axis]].most;
    }
  }
  return rabbet_ok();
}

static rabbet_status_t bodies_allocate(rabbet_layer_t* layer,
                                       body_shapes_t* out_shapes) {
  rabbet_arena_t* arena = &layer->network->infer_arena;
  size_t count = layer->bodies->list[0].network->outputs.count;
  RABBET_RETURN_IF_ERROR(rabbet_arena_allocate_array(
      arena, count, sizeof(*out_shapes->same), (void**)&out_shapes->same));
  return rabbet_arena_allocate_array(arena, count, sizeof(*out_shapes->bounds),
                                     (void**)&out_shapes->bounds);
}

// ---- Branches

static rabbet_status_t infer_branches(rabbet_layer_t* layer) {
  rabbet_network_t* network = layer->network;
  body_shapes_t shapes[2] = {{NULL, NULL}, {NULL, NULL}};
  for (size_t k = 0; k < 2; ++k) {
    RABBET_RETURN_IF_ERROR(bodies_allocate(layer, &shapes[k]));
    RABBET_RETURN_IF_ERROR(body_shapes(layer, k, &shapes[k]));
  }
  for (size_t i = 0; i < layer->output_count; ++i) {
    rabbet_tensor_t* output = layer->outputs[i];
    rabbet_shape_t* bound = &shapes[0].bounds[i];
    for (int32_t axis = 0; axis < bound->rank; ++axis)
      bound->d[axis] = body_binary(network->graph, RABBET_EXPR_MAX,
                                   bound->d[axis], shapes[1].bounds[i].d[axis]);
    output->dtype = layer->bodies->list[0].network->outputs.data[i]->dtype;
    RABBET_RETURN_IF_ERROR(
        rabbet_op_join_dims(network->graph, output->id, &shapes[0].same[i],
                            &shapes[1].same[i], bound, &output->shape));
  }
  return rabbet_ok();
}

// ---- Loops

// The bound of the number of iterations, if the host knows their count.
static rabbet_status_t loop_most_trips(const rabbet_layer_t* layer,
                                       rabbet_expr_t* out_trips) {
  int64_t count = layer->bodies->loop->count;
  const rabbet_tensor_t* tensor = count < 0 ? NULL : layer->inputs[count];
  *out_trips = RABBET_EXPR_NONE;
  return tensor && tensor->value_count == 1
             ? rabbet_loop_trips(layer->network->graph, tensor->values[0],
                                 out_trips)
             : rabbet_ok();
}

static rabbet_status_t infer_stack(rabbet_layer_t* layer, size_t at,
                                   const body_shapes_t* shapes) {
  const rabbet_loop_wiring_t* loop = layer->bodies->loop;
  rabbet_tensor_t* output = layer->outputs[at];
  int64_t source = loop->sources[at], length = loop->lengths[at];
  rabbet_shape_t same = {.rank = shapes->same[source].rank + 1};
  rabbet_shape_t bound = same;
  same.d[0] = RABBET_EXPR_NONE;
  RABBET_RETURN_IF_ERROR(loop_most_trips(layer, &bound.d[0]));
  if (length != RABBET_LOOP_LENGTH_TRIPS) {
    const rabbet_tensor_t* tensor = layer->inputs[length];
    if (tensor->value_count != 1)
      return RABBET_STATUS(RABBET_STATUS_INVALID_ARGUMENT,
                           "the length of an output, tensor '%s', has no value",
                           tensor->name);
    RABBET_RETURN_IF_ERROR(rabbet_loop_trips(layer->network->graph,
                                             tensor->values[0], &same.d[0]));
  }
  for (int32_t i = 1; i < same.rank; ++i) {
    same.d[i] = shapes->same[source].d[i - 1];
    bound.d[i] = shapes->bounds[source].d[i - 1];
  }
  return rabbet_op_join_dims(layer->network->graph, output->id, &same, &same,
                             &bound, &output->shape);
}

// A carried tensor keeps the extents of its initial value, but for those that
// iterations change.
static rabbet_status_t infer_last(rabbet_layer_t* layer, size_t at) {
  const rabbet_bodies_t* bodies = layer->bodies;
  rabbet_tensor_t* output = layer->outputs[at];
  int64_t source = bodies->loop->sources[at];
  const rabbet_tensor_t* initial =
      layer->inputs[bodies->list[0].inputs[source]];
  rabbet_shape_t same = initial->shape, bound = initial->shape;
  for (int32_t i = 0; i < same.rank; ++i)
    if (bodies->loop->varying[source] >> i & 1)
      same.d[i] = bound.d[i] = RABBET_EXPR_NONE;
  return rabbet_op_join_dims(layer->network->graph, output->id, &same, &same,
                             &bound, &output->shape);
}

static rabbet_status_t infer_loop(rabbet_layer_t* layer) {
  const rabbet_bodies_t* bodies = layer->bodies;
  body_shapes_t shapes = {NULL, NULL};
  RABBET_RETURN_IF_ERROR(bodies_allocate(layer, &shapes));
  RABBET_RETURN_IF_ERROR(body_shapes(layer, 0, &shapes));
  for (size_t i = 0; i < layer->output_count; ++i) {
    layer->outputs[i]->dtype =
        bodies->list[0].network->outputs.data[bodies->loop->sources[i]]->dtype;
    RABBET_RETURN_IF_ERROR(bodies->loop->kinds[i] ==
                                   RABBET_LOOP_OUTPUT_LAST_VALUE
                               ? infer_last(layer, i)
                               : infer_stack(layer, i, &shapes));
  }
  return rabbet_ok();
}

rabbet_status_t rabbet_layer_infer_bodies(rabbet_layer_t* layer) {
  return layer->bodies->loop ? infer_loop(layer) : infer_branches(layer);
}

// ---- The layer

static void bodies_release(void* owner) {
  rabbet_network_release(owner);
}

static rabbet_status_t wiring_attrs(const rabbet_loop_wiring_t* loop,
                                    rabbet_arena_t* arena,
                                    rabbet_attr_t* out_attrs) {
#define WIRING_INTS(attr_name, list, number)                       \
  {                                                                \
    .name = (attr_name), .type = RABBET_ATTR_INTS, .data = (list), \
    .count = (number)                                              \
  }
#define WIRING_INT(attr_name, value) \
  { .name = (attr_name), .type = RABBET_ATTR_INT, .data = &(value), .count = 1 }
  const rabbet_attr_t attrs[] = {
      WIRING_INTS("varying", loop->varying, loop->carried_count),
      WIRING_INTS("reverse", loop->reverse, loop->slice_count),
      WIRING_INTS("sources", loop->sources, loop->output_count),
      WIRING_INTS("kinds", loop->kinds, loop->output_count),
      WIRING_INTS("lengths", loop->lengths, loop->output_count),
      WIRING_INT("count", loop->count),
      WIRING_INT("condition", loop->condition),
  };
#undef WIRING_INT
#undef WIRING_INTS
  return rabbet_op_complete_attrs(rabbet_op_get(RABBET_OP_LOOP), attrs,
                                  RABBET_OP_COUNT_OF(attrs), arena, out_attrs);
}

static rabbet_status_t bodies_keep(rabbet_layer_t* layer,
                                   const rabbet_bodies_t* bodies) {
  rabbet_arena_t* arena = &layer->network->arena;
  rabbet_bodies_t* copy = NULL;
  RABBET_RETURN_IF_ERROR(
      rabbet_arena_copy(arena, bodies, sizeof(*bodies), (void**)&copy));
  layer->bodies = copy;
  if (!bodies->loop) return rabbet_ok();
  // The wiring's lists are those of the attributes.
  rabbet_loop_wiring_t* wiring = NULL;
  RABBET_RETURN_IF_ERROR(wiring_attrs(bodies->loop, arena, layer->attrs));
  RABBET_RETURN_IF_ERROR(
      rabbet_arena_allocate(arena, sizeof(*wiring), (void**)&wiring));
  copy->loop = wiring;
  return rabbet_loop_wiring_read(layer->attrs, layer->op->attr_count, wiring);
}

rabbet_status_t rabbet_network_add_bodies(
    rabbet_network_t* network, const char* name, rabbet_tensor_t* const* inputs,
    size_t input_count, size_t output_count, const rabbet_bodies_t* bodies,
    rabbet_layer_t** out_layer) {
  rabbet_layer_t* layer = NULL;
  *out_layer = NULL;
  RABBET_RETURN_IF_ERROR(
      rabbet_network_free_name(network, &network->layer_names, name, &name));
  RABBET_RETURN_IF_ERROR(rabbet_network_new_layer(
      network,
      rabbet_op_get(bodies->loop ? RABBET_OP_LOOP : RABBET_OP_CONDITION), name,
      inputs, input_count, output_count, &layer));
  RABBET_RETURN_IF_ERROR(bodies_keep(layer, bodies));
  RABBET_RETURN_IF_ERROR(rabbet_network_enter_layer(layer));
  for (size_t k = 0; k < bodies->count; ++k) {
    rabbet_network_retain(bodies->list[k].network);
    rabbet_status_t status = rabbet_network_take_owner(
        network, bodies->list[k].network, bodies_release);
    if (!rabbet_is_ok(status)) {
      rabbet_network_release(bodies->list[k].network);
      return status;
    }
  }
  *out_layer = layer;
  return rabbet_ok();
}

// The lengths of its stacks, and the number of iterations where that bounds
// them.
static bool loop_reads(const rabbet_loop_wiring_t* loop, size_t input) {
  for (size_t i = 0; i < loop->output_count; ++i) {
    if (loop->kinds[i] == RABBET_LOOP_OUTPUT_LAST_VALUE) continue;
    int64_t read = loop->lengths[i] == RABBET_LOOP_LENGTH_TRIPS
                       ? loop->count
                       : loop->lengths[i];
    if (read == (int64_t)input) return true;
  }
  return false;
}

bool rabbet_bodies_read(const rabbet_bodies_t* bodies, size_t input) {
  // The host reads what a loop carries, and slices, in the loop.
  size_t first = bodies->loop
                     ? bodies->loop->carried_count + bodies->loop->slice_count
                     : 0;
  for (size_t k = 0; k < bodies->count; ++k) {
    const rabbet_body_t* body = &bodies->list[k];
    for (size_t i = first; i < body->network->inputs.count; ++i)
      if (body->inputs[i] == (int32_t)input &&
          body->network->inputs.data[i]->is_host_read)
        return true;
  }
  return bodies->loop && loop_reads(bodies->loop, input);
}

static bool body_is_watched(const rabbet_network_t* network) {
  if (network->checks.count > 0) return true;
  for (size_t i = 0; i < network->tensors.count; ++i)
    if (network->tensors.data[i]->is_debug) return true;
  for (size_t i = 0; i < network->layers.count; ++i) {
    const rabbet_layer_t* layer = network->layers.data[i];
    if (layer->bodies && rabbet_bodies_are_watched(layer->bodies)) return true;
  }
  return false;
}

bool rabbet_bodies_are_watched(const rabbet_bodies_t* bodies) {
  for (size_t k = 0; k < bodies->count; ++k)
    if (body_is_watched(bodies->list[k].network)) return true;
  return false;
}
