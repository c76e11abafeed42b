// A choice between two networks as a layer of another network.
#include "network/inside.h"
#include "ops/rules.h"

typedef struct branch_map_t {
  rabbet_layer_t* layer;
  const rabbet_branch_t* branch;
  // [expression of the branch]: its equal in the layer's network, and an upper
  // bound there; RABBET_EXPR_NONE: unknown.
  rabbet_expr_t *same, *most;
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

// Operations that do not decrease in any operand, since extents are not
// negative.
static bool expr_grows(rabbet_expr_op_t op) {
  return op == RABBET_EXPR_SUM || op == RABBET_EXPR_PROD ||
         op == RABBET_EXPR_MAX || op == RABBET_EXPR_MIN;
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

static rabbet_status_t branch_translate(const branch_map_t* map) {
  const rabbet_expr_graph_t* from = map->branch->network->graph;
  rabbet_expr_graph_t* to = map->layer->network->graph;
  for (size_t i = 0; i < rabbet_expr_node_count(from); ++i) {
    const rabbet_expr_node_t* node = rabbet_expr_node(from, (rabbet_expr_t)i);
    map->same[i] = map->most[i] = RABBET_EXPR_NONE;
    if (node->op == RABBET_EXPR_CONSTANT) {
      RABBET_RETURN_IF_ERROR(
          rabbet_expr_constant(to, node->value, &map->same[i]));
    } else if (node->op == RABBET_EXPR_SYMBOL) {
      const rabbet_symbol_t* symbol = rabbet_expr_symbol(from, (size_t)node->a);
      map->same[i] = branch_symbol(map, symbol);
      if (symbol->upper != RABBET_EXPR_NONE)
        map->most[i] = map->most[symbol->upper];
    } else {
      map->same[i] =
          branch_binary(to, node->op, map->same[node->a], map->same[node->b]);
      if (expr_grows(node->op))
        map->most[i] =
            branch_binary(to, node->op, map->most[node->a], map->most[node->b]);
    }
    if (map->same[i] != RABBET_EXPR_NONE) map->most[i] = map->same[i];
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
      arena, count, sizeof(*map.most), (void**)&map.most));
  RABBET_RETURN_IF_ERROR(branch_translate(&map));
  for (size_t i = 0; i < layer->output_count; ++i) {
    const rabbet_shape_t* shape = &branch->network->outputs.data[i]->shape;
    out_shapes[i].rank = out_bounds[i].rank = shape->rank;
    for (int32_t axis = 0; axis < shape->rank; ++axis) {
      out_shapes[i].d[axis] = map.same[shape->d[axis]];
      out_bounds[i].d[axis] = map.most[shape->d[axis]];
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
