// Whether a plugin fits the layer that a plan describes.
//
// The plugin may differ from the one at the build, and the plan may be foreign.
// A plugin relies on being run only with types, formats and shapes that it has
// offered and described, so that it is asked again.
#include <assert.h>
#include <string.h>

#include "base/math.h"
#include "device/plugin_kernel.h"
#include "runtime/runtime.h"

const rabbet_group_node_t* rabbet_step_plugin_node(
    const rabbet_plan_step_t* step) {
  const rabbet_group_node_t* node = step->group.nodes;
  while (!rabbet_op_is(node->op, RABBET_OP_PLUGIN)) {
    ++node;
    assert(node < step->group.nodes + step->group.node_count);
  }
  return node;
}

// ---- At load

static rabbet_status_t step_check_counts(const rabbet_group_node_t* node,
                                         const rabbet_plugin_creator_t* creator,
                                         rabbet_plugin_t* plugin) {
  int32_t outputs = rabbet_plugin_output_count(plugin);
  size_t most = (size_t)creator->input_count;
  size_t optional = (size_t)__builtin_popcountll(creator->optional_inputs);
  // Instances made for the runtime may not know their outputs, as in TensorRT's
  // third interface.
  if (outputs > 0 && (size_t)outputs != node->output_count)
    return RABBET_STATUS(RABBET_STATUS_INCOMPATIBLE,
                         "plugin '%s' makes %d outputs; layer '%s' of the plan "
                         "has %zu",
                         creator->name, outputs, node->name,
                         node->output_count);
  if (creator->input_count >= 0 &&
      (node->input_count > most || node->input_count + optional < most))
    return RABBET_STATUS(RABBET_STATUS_INCOMPATIBLE,
                         "plugin '%s' takes %zu inputs; layer '%s' of the plan "
                         "has %zu",
                         creator->name, most, node->name, node->input_count);
  return rabbet_ok();
}

// For each expression: its minimum and maximum over the sequence's profiles,
// and its value at the first one's optimum (the maximum there if only a run
// tells it).
static rabbet_status_t sequence_find_extents(rabbet_sequence_t* sequence) {
  size_t symbols = rabbet_expr_symbol_count(sequence->plan->graph);
  size_t count = rabbet_expr_node_count(sequence->plan->graph);
  int64_t *bounds = NULL, *extents = NULL;
  if (sequence->extents) return rabbet_ok();
  RABBET_RETURN_IF_ERROR(rabbet_arena_allocate_array(
      &sequence->engine->arena, 2 * symbols + 2 * count, sizeof(*bounds),
      (void**)&bounds));
  RABBET_RETURN_IF_ERROR(
      rabbet_arena_allocate_array(&sequence->engine->arena, 3 * count + 1,
                                  sizeof(*extents), (void**)&extents));
  int64_t *least = bounds + 2 * symbols, *most = least + count;
  for (size_t p = 0; p < sequence->plan->profile_count; ++p) {
    rabbet_profile_symbols(sequence, p, bounds, bounds + symbols);
    RABBET_RETURN_IF_ERROR(rabbet_settle_bounds(sequence, 0, bounds,
                                                bounds + symbols, least, most));
    for (size_t i = 0; i < count; ++i) {
      bool less = p == 0 || least[i] < extents[i];
      bool more = p == 0 || most[i] > extents[2 * count + i];
      if (less) extents[i] = least[i];
      if (more) extents[2 * count + i] = most[i];
    }
  }
  rabbet_profile_optimum(sequence, 0, bounds);
  memcpy(bounds + symbols, bounds, symbols * sizeof(*bounds));
  RABBET_RETURN_IF_ERROR(
      rabbet_settle_bounds(sequence, 0, bounds, bounds + symbols, least, most));
  memcpy(extents + count, most, count * sizeof(*extents));
  sequence->extents = extents;
  return rabbet_ok();
}

// A plan's tensors have no ranges of their own.
static rabbet_status_t step_set_ranges(rabbet_sequence_t* sequence,
                                       const rabbet_plan_step_t* step,
                                       int32_t value,
                                       rabbet_plugin_tensor_t* tensor) {
  size_t count = rabbet_expr_node_count(sequence->plan->graph);
  if (value < 0) return rabbet_ok();
  const rabbet_shape_t* shape =
      step->values[value] < 0
          ? &step->inner_shapes[value]
          : &sequence->plan->values[step->values[value]].shape;
  for (int32_t axis = 0; axis < shape->rank; ++axis) {
    if (tensor->dims.d[axis] >= 0) continue;
    RABBET_RETURN_IF_ERROR(sequence_find_extents(sequence));
    assert(shape->d[axis] >= 0 && (size_t)shape->d[axis] < count);
    const int64_t* extents = sequence->extents + shape->d[axis];
    tensor->min.d[axis] = rabbet_max_i64(extents[0], 0);
    tensor->opt.d[axis] = rabbet_max_i64(extents[count], 0);
    tensor->max.d[axis] = rabbet_max_i64(extents[2 * count], 0);
  }
  return rabbet_ok();
}

static rabbet_status_t step_ask(rabbet_sequence_t* sequence,
                                const rabbet_plan_step_t* step,
                                rabbet_plugin_tensor_t* tensors,
                                rabbet_plugin_t* plugin) {
  const rabbet_group_node_t* node = rabbet_step_plugin_node(step);
  rabbet_plugin_query_t query;
  rabbet_plugin_query_node(&step->group, node, sequence->engine->device->kind,
                           tensors, &query);
  for (size_t i = 0; i < node->input_count + node->output_count; ++i)
    RABBET_RETURN_IF_ERROR(step_set_ranges(
        sequence, step,
        i < node->input_count ? node->inputs[i]
                              : node->outputs[i - node->input_count],
        &tensors[i]));
  return rabbet_plugin_takes(plugin, &query, step->tactic);
}

static rabbet_status_t step_check_types(rabbet_sequence_t* sequence,
                                        const rabbet_plan_step_t* step,
                                        rabbet_plugin_t* plugin) {
  const rabbet_group_node_t* node = rabbet_step_plugin_node(step);
  rabbet_plugin_tensor_t* tensors = NULL;
  RABBET_RETURN_IF_ERROR(rabbet_allocate(
      sequence->engine->allocator,
      (node->input_count + node->output_count) * sizeof(*tensors),
      (void**)&tensors));
  rabbet_status_t status = step_ask(sequence, step, tensors, plugin);
  rabbet_free(sequence->engine->allocator, tensors);
  return RABBET_ANNOTATE(status, "layer '%s'", node->name);
}

rabbet_status_t rabbet_step_check_plugin(rabbet_sequence_t* sequence,
                                         const rabbet_plan_step_t* step,
                                         rabbet_plugin_t* plugin) {
  RABBET_RETURN_IF_ERROR(step_check_counts(
      rabbet_step_plugin_node(step), rabbet_plugin_creator(plugin), plugin));
  return step_check_types(sequence, step, plugin);
}

// ---- Before a run

typedef struct plugin_shapes_t {
  const rabbet_plan_step_t* step;
  const rabbet_group_node_t* node;
  const rabbet_kernel_shapes_t* shapes;
  rabbet_expr_graph_t* graph;
  rabbet_arena_t arena;
  bool known;  // all extents of inputs
} plugin_shapes_t;

static rabbet_status_t plugin_shapes_input(plugin_shapes_t* check, size_t index,
                                           rabbet_plugin_input_t* out) {
  int32_t value = check->node->inputs[index];
  *out = (rabbet_plugin_input_t){.dtype = RABBET_DTYPE_NONE};
  if (value < 0) return rabbet_ok();
  const rabbet_dims_t* dims = &check->shapes->dims[value];
  const int64_t* elements = check->shapes->host_values[value];
  out->dtype = check->step->group.values[value].dtype;
  out->rank = dims->rank;
  for (int32_t axis = 0; axis < dims->rank && check->known; ++axis) {
    check->known = dims->d[axis] >= 0;
    if (check->known)
      RABBET_RETURN_IF_ERROR(
          rabbet_expr_constant(check->graph, dims->d[axis], &out->dims[axis]));
  }
  if (!check->known || !elements) return rabbet_ok();
  return rabbet_step_constants(check->graph, &check->arena, dims, elements,
                               &out->values, &out->value_count);
}

// The extent, or the most that it can be where a size tensor tells it.
static rabbet_status_t plugin_shapes_extent(plugin_shapes_t* check,
                                            rabbet_expr_t expr,
                                            int64_t* out_extent,
                                            bool* out_exact) {
  const rabbet_expr_graph_t* graph = check->graph;
  size_t symbols = rabbet_expr_symbol_count(graph);
  size_t count = rabbet_expr_node_count(graph);
  int64_t* bounds = NULL;
  *out_exact = rabbet_expr_is_constant(graph, expr, out_extent);
  if (*out_exact) return rabbet_ok();
  RABBET_RETURN_IF_ERROR(rabbet_arena_allocate_array(
      &check->arena, 2 * (symbols + count), sizeof(*bounds), (void**)&bounds));
  int64_t* upper = bounds + symbols;
  for (size_t i = 0; i < symbols; ++i) {
    rabbet_expr_t most = rabbet_expr_symbol(graph, i)->upper;
    if (most == RABBET_EXPR_NONE ||
        !rabbet_expr_is_constant(graph, most, &upper[i]))
      upper[i] = INT64_MAX;
  }
  assert(expr >= 0 && (size_t)expr < count);
  RABBET_RETURN_IF_ERROR(rabbet_expr_bounds(
      graph, bounds, upper, upper + symbols, upper + symbols + count));
  *out_extent = upper[symbols + count + (size_t)expr];
  return rabbet_ok();
}

static rabbet_status_t plugin_shapes_output(
    plugin_shapes_t* check, size_t index, const rabbet_plugin_output_t* made) {
  int32_t value = check->node->outputs[index];
  const rabbet_group_value_t* planned = &check->step->group.values[value];
  const rabbet_dims_t* dims = &check->shapes->dims[value];
  rabbet_dims_t most = {.rank = made->rank};
  size_t bytes = 0;
  bool equal = made->rank == dims->rank, all_exact = true, exact = false;
  for (int32_t axis = 0; axis < made->rank; ++axis) {
    RABBET_RETURN_IF_ERROR(
        plugin_shapes_extent(check, made->dims[axis], &most.d[axis], &exact));
    all_exact = all_exact && exact;
    equal =
        equal && (!exact || dims->d[axis] < 0 || dims->d[axis] == most.d[axis]);
  }
  if (equal && !all_exact) {
    RABBET_RETURN_IF_ERROR(
        rabbet_tensor_bytes(planned->dtype, planned->format, &most, &bytes));
    equal = !check->shapes->bytes || bytes <= check->shapes->bytes[value];
  }
  if (equal) return rabbet_ok();
  char text[192], wanted[192];
  return RABBET_STATUS(
      RABBET_STATUS_INCOMPATIBLE,
      "plugin '%s' makes output %zu of layer '%s' of shape %s%s; the plan has "
      "%s",
      rabbet_plugin_creator(check->node->plugin)->name, index,
      check->node->name, all_exact ? "" : "at most ",
      rabbet_dims_print(&most, text, sizeof(text)),
      rabbet_dims_print(dims, wanted, sizeof(wanted)));
}

// Replaces types that a build of a weakly typed network may choose by FLOAT: a
// plugin may describe its outputs for FLOAT alone.
static bool plugin_shapes_as_float(rabbet_plugin_input_t* inputs,
                                   size_t count) {
  bool changed = false;
  for (size_t i = 0; i < count; ++i) {
    if (inputs[i].dtype != RABBET_DTYPE_HALF &&
        inputs[i].dtype != RABBET_DTYPE_BF16)
      continue;
    inputs[i].dtype = RABBET_DTYPE_FLOAT;
    changed = true;
  }
  return changed;
}

static rabbet_status_t plugin_shapes_check(plugin_shapes_t* check,
                                           rabbet_plugin_t* plugin) {
  const rabbet_group_node_t* node = check->node;
  rabbet_plugin_input_t* inputs = NULL;
  rabbet_plugin_output_t* outputs = NULL;
  int32_t* numbers = NULL;
  RABBET_RETURN_IF_ERROR(rabbet_arena_allocate_array(
      &check->arena, node->input_count, sizeof(*inputs), (void**)&inputs));
  RABBET_RETURN_IF_ERROR(rabbet_arena_allocate_array(
      &check->arena, node->output_count, sizeof(*outputs), (void**)&outputs));
  RABBET_RETURN_IF_ERROR(rabbet_arena_allocate_array(
      &check->arena, node->output_count, sizeof(*numbers), (void**)&numbers));
  for (size_t i = 0; i < node->output_count; ++i)
    numbers[i] = node->outputs[i];
  for (size_t i = 0; i < node->input_count; ++i)
    RABBET_RETURN_IF_ERROR(plugin_shapes_input(check, i, &inputs[i]));
  if (!check->known) return rabbet_ok();
  rabbet_dim_builder_t builder = {.graph = check->graph,
                                  .output_tensors = numbers,
                                  .output_count = node->output_count};
  rabbet_status_t status = rabbet_plugin_describe(plugin, &builder, inputs,
                                                  node->input_count, outputs);
  if (!rabbet_is_ok(status) &&
      plugin_shapes_as_float(inputs, node->input_count)) {
    rabbet_status_ignore(status);
    status = rabbet_plugin_describe(plugin, &builder, inputs, node->input_count,
                                    outputs);
  }
  RABBET_RETURN_IF_ERROR(status);
  for (size_t i = 0; i < node->output_count; ++i)
    RABBET_RETURN_IF_ERROR(plugin_shapes_output(check, i, &outputs[i]));
  return rabbet_ok();
}

rabbet_status_t rabbet_step_check_plugin_shapes(
    rabbet_allocator_t allocator, const rabbet_plan_step_t* step,
    rabbet_plugin_t* plugin, const rabbet_kernel_shapes_t* shapes) {
  // Instances that do not know their outputs cannot be asked.
  if (rabbet_plugin_output_count(plugin) <= 0) return rabbet_ok();
  plugin_shapes_t check = {.step = step,
                           .node = rabbet_step_plugin_node(step),
                           .shapes = shapes,
                           .known = true};
  RABBET_RETURN_IF_ERROR(rabbet_expr_graph_create(allocator, &check.graph));
  rabbet_arena_initialize(allocator, &check.arena);
  rabbet_status_t status = plugin_shapes_check(&check, plugin);
  rabbet_arena_deinitialize(&check.arena);
  rabbet_expr_graph_destroy(check.graph);
  return status;
}
