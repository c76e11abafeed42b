// A choice between two networks as a layer of another network.
#include "network/inside.h"
#include "ops/rules.h"

// Bounds of a branch's expression, in expressions of the layer's network;
// RABBET_EXPR_NONE: unknown.
typedef struct branch_range_t {
  rabbet_expr_t least, most;
} branch_range_t;

typedef struct branch_map_t {
  rabbet_layer_t* layer;
  const rabbet_branch_t* branch;
  // [expression of the branch]: its equal in the layer's network, or
  // RABBET_EXPR_NONE, and its range there.
  rabbet_expr_t* same;
  branch_range_t* ranges;
} branch_map_t;

static rabbet_expr_t branch_symbol(const branch_map_t* map,
                                   const rabbet_symbol_t* symbol) {
  const rabbet_network_t* inner = map->branch->network;
  for (size_t i = 0; i < inner->inputs.count; ++i) {
    if (inner->inputs.data[i]->id != symbol->tensor) continue;
    const rabbet_tensor_t* outer = map->layer->inputs[map->branch->inputs[i]];
    if (symbol->kind == RABBET_SYMBOL_DIM) return outer->shape.d[symbol->index];
    return outer->values ? outer->values[symbol->index] : RABBET_EXPR_NONE;
  }
  return RABBET_EXPR_NONE;
}

// RABBET_EXPR_NONE if there is no result, as for a division by 0.
static rabbet_expr_t branch_binary(rabbet_expr_graph_t* graph,
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
static rabbet_expr_t branch_corner(rabbet_expr_graph_t* graph,
                                   rabbet_expr_op_t op, rabbet_expr_op_t pick,
                                   const branch_range_t* a,
                                   const branch_range_t* b) {
  rabbet_expr_t low =
      branch_binary(graph, pick, branch_binary(graph, op, a->least, b->least),
                    branch_binary(graph, op, a->least, b->most));
  rabbet_expr_t high =
      branch_binary(graph, pick, branch_binary(graph, op, a->most, b->least),
                    branch_binary(graph, op, a->most, b->most));
  return branch_binary(graph, pick, low, high);
}

// A divisor that is not negative is above 0: a division by 0 has no result.
static branch_range_t branch_divisor(rabbet_expr_graph_t* graph,
                                     const branch_range_t* range) {
  branch_range_t divisor = {RABBET_EXPR_NONE, RABBET_EXPR_NONE};
  rabbet_expr_t one = RABBET_EXPR_NONE;
  int64_t least = -1;
  if (range->least == RABBET_EXPR_NONE ||
      !rabbet_expr_is_constant(graph, range->least, &least) || least < 0)
    return divisor;
  rabbet_status_ignore(rabbet_expr_constant(graph, 1, &one));
  divisor.least = branch_binary(graph, RABBET_EXPR_MAX, range->least, one);
  divisor.most = branch_binary(graph, RABBET_EXPR_MAX, range->most, one);
  return divisor;
}

// One operand of MIN or MAX alone bounds the result to one side.
static rabbet_expr_t branch_either(rabbet_expr_graph_t* graph,
                                   rabbet_expr_op_t op, rabbet_expr_t a,
                                   rabbet_expr_t b) {
  if (a == RABBET_EXPR_NONE) return b;
  return b == RABBET_EXPR_NONE ? a : branch_binary(graph, op, a, b);
}

// Interval arithmetic.
static branch_range_t branch_range(rabbet_expr_graph_t* graph,
                                   rabbet_expr_op_t op, branch_range_t a,
                                   branch_range_t b) {
  branch_range_t r = {RABBET_EXPR_NONE, RABBET_EXPR_NONE};
  switch (op) {
    case RABBET_EXPR_SUM:
      r.least = branch_binary(graph, op, a.least, b.least);
      r.most = branch_binary(graph, op, a.most, b.most);
      break;
    case RABBET_EXPR_SUB:
      r.least = branch_binary(graph, op, a.least, b.most);
      r.most = branch_binary(graph, op, a.most, b.least);
      break;
    case RABBET_EXPR_MIN:
      r.least = branch_binary(graph, op, a.least, b.least);
      r.most = branch_either(graph, op, a.most, b.most);
      break;
    case RABBET_EXPR_MAX:
      r.least = branch_either(graph, op, a.least, b.least);
      r.most = branch_binary(graph, op, a.most, b.most);
      break;
    case RABBET_EXPR_BROADCAST:
      r.least = branch_binary(graph, RABBET_EXPR_MIN, a.least, b.least);
      r.most = branch_binary(graph, RABBET_EXPR_MAX, a.most, b.most);
      break;
    case RABBET_EXPR_FLOOR_DIV:
    case RABBET_EXPR_CEIL_DIV:
      b = branch_divisor(graph, &b);
      r.least = branch_corner(graph, op, RABBET_EXPR_MIN, &a, &b);
      r.most = branch_corner(graph, op, RABBET_EXPR_MAX, &a, &b);
      break;
    case RABBET_EXPR_PROD:
      r.least = branch_corner(graph, op, RABBET_EXPR_MIN, &a, &b);
      r.most = branch_corner(graph, op, RABBET_EXPR_MAX, &a, &b);
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
static rabbet_status_t branch_symbol_range(const branch_map_t* map,
                                           const rabbet_symbol_t* symbol,
                                           branch_range_t* out_range) {
  if (symbol->upper == RABBET_EXPR_NONE) return rabbet_ok();
  out_range->most = map->ranges[symbol->upper].most;
  return rabbet_expr_constant(map->layer->network->graph, 0, &out_range->least);
}

static rabbet_status_t branch_translate(const branch_map_t* map) {
  const rabbet_expr_graph_t* from = map->branch->network->graph;
  rabbet_expr_graph_t* to = map->layer->network->graph;
  for (size_t i = 0; i < rabbet_expr_node_count(from); ++i) {
    const rabbet_expr_node_t* node = rabbet_expr_node(from, (rabbet_expr_t)i);
    branch_range_t range = {RABBET_EXPR_NONE, RABBET_EXPR_NONE};
    map->same[i] = RABBET_EXPR_NONE;
    if (node->op == RABBET_EXPR_CONSTANT) {
      RABBET_RETURN_IF_ERROR(
          rabbet_expr_constant(to, node->value, &map->same[i]));
    } else if (node->op == RABBET_EXPR_SYMBOL) {
      const rabbet_symbol_t* symbol = rabbet_expr_symbol(from, (size_t)node->a);
      map->same[i] = branch_symbol(map, symbol);
      RABBET_RETURN_IF_ERROR(branch_symbol_range(map, symbol, &range));
    } else {
      map->same[i] =
          branch_binary(to, node->op, map->same[node->a], map->same[node->b]);
      if (map->same[i] == RABBET_EXPR_NONE)
        range = branch_range(to, node->op, map->ranges[node->a],
                             map->ranges[node->b]);
    }
    if (map->same[i] != RABBET_EXPR_NONE)
      range.least = range.most = map->same[i];
    map->ranges[i] = range;
  }
  return rabbet_ok();
}

// Shapes of a branch's outputs, in expressions of the layer's network.
static rabbet_status_t branch_shapes(rabbet_layer_t* layer, size_t at,
                                     rabbet_shape_t* out_shapes,
                                     rabbet_shape_t* out_bounds) {
  const rabbet_branch_t* branch = &layer->branches->list[at];
  branch_map_t map = {.layer = layer, .branch = branch};
  size_t count = rabbet_expr_node_count(branch->network->graph);
  rabbet_arena_t* arena = &layer->network->infer_arena;
  RABBET_RETURN_IF_ERROR(rabbet_arena_allocate_array(
      arena, count, sizeof(*map.same), (void**)&map.same));
  RABBET_RETURN_IF_ERROR(rabbet_arena_allocate_array(
      arena, count, sizeof(*map.ranges), (void**)&map.ranges));
  RABBET_RETURN_IF_ERROR(branch_translate(&map));
  for (size_t i = 0; i < layer->output_count; ++i) {
    const rabbet_shape_t* shape = &branch->network->outputs.data[i]->shape;
    out_shapes[i].rank = out_bounds[i].rank = shape->rank;
    for (int32_t axis = 0; axis < shape->rank; ++axis) {
      out_shapes[i].d[axis] = map.same[shape->d[axis]];
      out_bounds[i].d[axis] = map.ranges[shape->d[axis]].most;
    }
  }
  return rabbet_ok();
}

rabbet_status_t rabbet_layer_infer_branches(rabbet_layer_t* layer) {
  rabbet_network_t* network = layer->network;
  rabbet_shape_t *shapes[2] = {NULL, NULL}, *bounds[2] = {NULL, NULL};
  for (size_t k = 0; k < 2; ++k) {
    RABBET_RETURN_IF_ERROR(
        rabbet_arena_allocate_array(&network->infer_arena, layer->output_count,
                                    sizeof(**shapes), (void**)&shapes[k]));
    RABBET_RETURN_IF_ERROR(
        rabbet_arena_allocate_array(&network->infer_arena, layer->output_count,
                                    sizeof(**bounds), (void**)&bounds[k]));
    RABBET_RETURN_IF_ERROR(branch_shapes(layer, k, shapes[k], bounds[k]));
  }
  for (size_t i = 0; i < layer->output_count; ++i) {
    rabbet_tensor_t* output = layer->outputs[i];
    rabbet_shape_t* bound = &bounds[0][i];
    for (int32_t axis = 0; axis < bound->rank; ++axis)
      bound->d[axis] = branch_binary(network->graph, RABBET_EXPR_MAX,
                                     bound->d[axis], bounds[1][i].d[axis]);
    output->dtype = layer->branches->list[0].network->outputs.data[i]->dtype;
    RABBET_RETURN_IF_ERROR(rabbet_op_join_dims(network->graph, output->id,
                                               &shapes[0][i], &shapes[1][i],
                                               bound, &output->shape));
  }
  return rabbet_ok();
}

static void branches_release(void* owner) {
  rabbet_network_release(owner);
}

rabbet_status_t rabbet_network_add_branches(
    rabbet_network_t* network, const char* name, rabbet_tensor_t* const* inputs,
    size_t input_count, size_t output_count, const rabbet_branches_t* branches,
    rabbet_layer_t** out_layer) {
  rabbet_layer_t* layer = NULL;
  void* copy = NULL;
  *out_layer = NULL;
  RABBET_RETURN_IF_ERROR(
      rabbet_arena_copy(&network->arena, branches, sizeof(*branches), &copy));
  RABBET_RETURN_IF_ERROR(rabbet_network_new_layer(
      network, rabbet_op_get(RABBET_OP_CONDITION), name, inputs, input_count,
      output_count, &layer));
  layer->branches = copy;
  RABBET_RETURN_IF_ERROR(rabbet_network_enter_layer(layer));
  for (size_t k = 0; k < 2; ++k) {
    rabbet_network_retain(branches->list[k].network);
    rabbet_status_t status = rabbet_network_take_owner(
        network, branches->list[k].network, branches_release);
    if (!rabbet_is_ok(status)) {
      rabbet_network_release(branches->list[k].network);
      return status;
    }
  }
  *out_layer = layer;
  return rabbet_ok();
}

bool rabbet_branches_read(const rabbet_branches_t* branches, size_t input) {
  for (size_t k = 0; k < 2; ++k) {
    const rabbet_branch_t* branch = &branches->list[k];
    for (size_t i = 0; i < branch->network->inputs.count; ++i)
      if (branch->inputs[i] == (int32_t)input &&
          branch->network->inputs.data[i]->is_host_read)
        return true;
  }
  return false;
}

static bool branch_is_watched(const rabbet_network_t* network) {
  if (network->checks.count > 0) return true;
  for (size_t i = 0; i < network->tensors.count; ++i)
    if (network->tensors.data[i]->is_debug) return true;
  for (size_t i = 0; i < network->layers.count; ++i) {
    const rabbet_layer_t* layer = network->layers.data[i];
    if (layer->branches && rabbet_branches_are_watched(layer->branches))
      return true;
  }
  return false;
}

bool rabbet_branches_are_watched(const rabbet_branches_t* branches) {
  return branch_is_watched(branches->list[0].network) ||
         branch_is_watched(branches->list[1].network);
}
