#include "builder/choose/unit.h"

#include <assert.h>
#include <string.h>

#include "base/math.h"
#include "base/strbuf.h"
#include "builder/ir/estimates.h"
#include "builder/ir/passes.h"
#include "core/view.h"
#include "ops/collective/dist_collective.h"

// The group's values found so far.
typedef struct unit_maker_t {
  rabbet_build_t* build;
  RABBET_VEC(int32_t) values;  // IR values
  RABBET_VEC(int32_t) uses;    // of each value by nodes of the unit
  RABBET_VEC(int32_t) inputs;
  RABBET_VEC(int32_t) outputs;
} unit_maker_t;

static void unit_maker_deinitialize(unit_maker_t* maker) {
  rabbet_allocator_t allocator = maker->build->allocator;
  // Clears the build's table for the next unit.
  for (size_t i = 0; i < maker->values.count; ++i)
    maker->build->numbers[maker->values.data[i]] = 0;
  rabbet_vec_free(allocator, &maker->values);
  rabbet_vec_free(allocator, &maker->uses);
  rabbet_vec_free(allocator, &maker->inputs);
  rabbet_vec_free(allocator, &maker->outputs);
}

static rabbet_status_t unit_number(unit_maker_t* maker, int32_t value,
                                   int32_t* out_number, bool* out_is_new) {
  rabbet_build_t* build = maker->build;
  assert(value >= 0 && (size_t)value < build->ir.values.count);
  *out_is_new = build->numbers[value] == 0;
  *out_number = build->numbers[value] - 1;
  if (!*out_is_new) return rabbet_ok();
  *out_number = (int32_t)maker->values.count;
  RABBET_RETURN_IF_ERROR(RABBET_VEC_PUSH(build->allocator, &maker->uses, 0));
  RABBET_RETURN_IF_ERROR(
      RABBET_VEC_PUSH(build->allocator, &maker->values, value));
  build->numbers[value] = *out_number + 1;
  return rabbet_ok();
}

static rabbet_status_t unit_add_inputs(unit_maker_t* maker,
                                       const rabbet_ir_node_t* node,
                                       int32_t* numbers) {
  for (size_t i = 0; i < node->input_count; ++i) {
    numbers[i] = -1;
    if (node->inputs[i] < 0) continue;
    bool is_new = false;
    RABBET_RETURN_IF_ERROR(
        unit_number(maker, node->inputs[i], &numbers[i], &is_new));
    maker->uses.data[numbers[i]]++;
    if (is_new)
      RABBET_RETURN_IF_ERROR(
          RABBET_VEC_PUSH(maker->build->allocator, &maker->inputs, numbers[i]));
  }
  return rabbet_ok();
}

static rabbet_status_t unit_add_outputs(unit_maker_t* maker,
                                        const rabbet_ir_node_t* node,
                                        int32_t* numbers) {
  for (size_t i = 0; i < node->output_count; ++i) {
    bool is_new = false;
    RABBET_RETURN_IF_ERROR(
        unit_number(maker, node->outputs[i], &numbers[i], &is_new));
    assert(is_new);  // one node computes a value, before others read it
  }
  return rabbet_ok();
}

static rabbet_status_t unit_add_node(unit_maker_t* maker, rabbet_unit_t* unit,
                                     size_t index) {
  rabbet_arena_t* arena = &maker->build->arena;
  const rabbet_ir_node_t* node = unit->nodes[index];
  int32_t *inputs = NULL, *outputs = NULL;
  RABBET_RETURN_IF_ERROR(rabbet_arena_allocate_array(
      arena, node->input_count, sizeof(int32_t), (void**)&inputs));
  RABBET_RETURN_IF_ERROR(rabbet_arena_allocate_array(
      arena, node->output_count, sizeof(int32_t), (void**)&outputs));
  RABBET_RETURN_IF_ERROR(unit_add_inputs(maker, node, inputs));
  RABBET_RETURN_IF_ERROR(unit_add_outputs(maker, node, outputs));
  unit->group.nodes[index] = (rabbet_group_node_t){
      .op = node->op,
      .name = node->name,
      .attrs = node->attrs,
      .inputs = inputs,
      .input_count = node->input_count,
      .outputs = outputs,
      .output_count = node->output_count,
      .plugin = node->plugin,
      .aliased = node->aliased,
  };
  return rabbet_ok();
}

static rabbet_status_t unit_find_outputs(unit_maker_t* maker,
                                         const rabbet_unit_t* unit) {
  for (size_t i = 0; i < unit->node_count; ++i) {
    const rabbet_group_node_t* node = &unit->group.nodes[i];
    for (size_t k = 0; k < node->output_count; ++k) {
      const rabbet_ir_value_t* value =
          rabbet_ir_output(&maker->build->ir, unit->nodes[i], k);
      bool is_needed = unit->node_count == 1 || value->output >= 0 ||
                       value->is_read_by_host ||
                       value->uses > maker->uses.data[node->outputs[k]];
      if (is_needed)
        RABBET_RETURN_IF_ERROR(RABBET_VEC_PUSH(
            maker->build->allocator, &maker->outputs, node->outputs[k]));
    }
  }
  // A fused group has one exit (fuse.h).
  assert(unit->node_count == 1 || maker->outputs.count == 1);
  return rabbet_ok();
}

static rabbet_status_t unit_describe(rabbet_build_t* build,
                                     const rabbet_estimates_t* estimates,
                                     const rabbet_ir_value_t* value,
                                     rabbet_group_value_t* out) {
  out->dtype = value->dtype;
  out->format = RABBET_FORMAT_LINEAR;
  out->constant = value->constant;
  return rabbet_ranges_dims(build, estimates, value, &out->dims, &out->min,
                            &out->max);
}

static bool unit_makes(const rabbet_unit_t* unit, int32_t value) {
  for (size_t i = 0; i < unit->node_count; ++i)
    for (size_t k = 0; k < unit->nodes[i]->output_count; ++k)
      if (unit->nodes[i]->outputs[k] == value) return true;
  return false;
}

// Whether the expression depends on elements of a tensor that the unit
// computes.
static bool unit_tells(const rabbet_build_t* build, const rabbet_unit_t* unit,
                       rabbet_expr_t expr) {
  const rabbet_expr_node_t* node = rabbet_expr_node(build->ir.graph, expr);
  if (node->op == RABBET_EXPR_CONSTANT) return false;
  if (node->op != RABBET_EXPR_SYMBOL)
    return unit_tells(build, unit, node->a) || unit_tells(build, unit, node->b);
  const rabbet_symbol_t* symbol =
      rabbet_expr_symbol(build->ir.graph, (size_t)node->a);
  if (symbol->kind != RABBET_SYMBOL_VALUE) return false;
  return unit_makes(unit, symbol->tensor);
}

static bool unit_makes_sizes(const rabbet_unit_t* unit) {
  for (size_t i = 0; i < unit->node_count; ++i)
    if (unit->nodes[i]->plugin || rabbet_op_makes_sizes(unit->nodes[i]->op))
      return true;
  return false;
}

// Upper bounds of expressions: sizes that the unit computes may have any value,
// all others have their estimates.
static rabbet_status_t unit_bounds(rabbet_build_t* build,
                                   const rabbet_unit_t* unit,
                                   const rabbet_estimates_t* estimates,
                                   int64_t** out_high) {
  const rabbet_expr_graph_t* graph = build->ir.graph;
  const size_t nodes = rabbet_expr_node_count(graph);
  const size_t symbols = rabbet_expr_symbol_count(graph);
  int64_t *low = NULL, *bounds = NULL;
  *out_high = NULL;
  RABBET_RETURN_IF_ERROR(rabbet_arena_allocate_array(
      &build->arena, symbols, 2 * sizeof(*low), (void**)&low));
  RABBET_RETURN_IF_ERROR(rabbet_arena_allocate_array(
      &build->arena, nodes, 2 * sizeof(*bounds), (void**)&bounds));
  int64_t* high = low + symbols;
  assert(symbols == 0 || estimates->symbols);
  memcpy(low, estimates->symbols, symbols * sizeof(*low));
  memcpy(high, low, symbols * sizeof(*high));
  for (size_t s = 0; s < symbols; ++s) {
    const rabbet_symbol_t* symbol = rabbet_expr_symbol(graph, s);
    if (symbol->upper < 0 || !unit_makes(unit, symbol->tensor)) continue;
    low[s] = 0;
    high[s] = estimates->valid[symbol->upper]
                  ? rabbet_max_i64(estimates->opt[symbol->upper], 0)
                  : build->ranges.symbol_high[s];
  }
  *out_high = bounds + nodes;
  return rabbet_expr_bounds(graph, low, high, bounds, bounds + nodes);
}

// high NULL: the unit computes no sizes.
static void unit_run_dims(const rabbet_build_t* build,
                          const rabbet_unit_t* unit, const int64_t* high,
                          const rabbet_ir_value_t* value, size_t index) {
  assert(index < unit->group.value_count);
  rabbet_dims_t *dims = &unit->dims[index], *room = &unit->room[index];
  *dims = *room = unit->group.values[index].dims;
  for (int32_t i = 0; high && i < dims->rank; ++i) {
    if (!unit_tells(build, unit, value->shape.d[i])) continue;
    dims->d[i] = -1;
    room->d[i] = rabbet_max_i64(high[value->shape.d[i]], 0);
  }
}

static rabbet_status_t unit_fill_values(unit_maker_t* maker,
                                        rabbet_unit_t* unit) {
  rabbet_build_t* build = maker->build;
  rabbet_group_t* group = &unit->group;
  group->value_count = maker->values.count;
  RABBET_RETURN_IF_ERROR(rabbet_arena_allocate_array(
      &build->arena, group->value_count, sizeof(rabbet_group_value_t),
      (void**)&group->values));
  RABBET_RETURN_IF_ERROR(rabbet_arena_allocate_array(
      &build->arena, group->value_count, sizeof(int64_t*),
      (void**)&unit->host_values));
  RABBET_RETURN_IF_ERROR(
      rabbet_arena_allocate_array(&build->arena, group->value_count,
                                  sizeof(rabbet_dims_t), (void**)&unit->dims));
  RABBET_RETURN_IF_ERROR(
      rabbet_arena_allocate_array(&build->arena, group->value_count,
                                  sizeof(rabbet_dims_t), (void**)&unit->room));
  rabbet_estimates_t estimates;
  RABBET_RETURN_IF_ERROR(rabbet_estimates_of_unit(
      build, unit->nodes, unit->node_count, &estimates));
  unit->data_dependent = estimates.data_dependent;
  unit->fits = estimates.fit;
  int64_t* high = NULL;
  if (unit_makes_sizes(unit))
    RABBET_RETURN_IF_ERROR(unit_bounds(build, unit, &estimates, &high));
  for (size_t i = 0; i < group->value_count; ++i) {
    rabbet_ir_value_t* value =
        rabbet_ir_value(&build->ir, maker->values.data[i]);
    if (value->is_deferred && !unit_makes(unit, value->id))
      RABBET_RETURN_IF_ERROR(rabbet_fold_reserve(build, value));
    RABBET_RETURN_IF_ERROR(
        unit_describe(build, &estimates, value, &group->values[i]));
    unit_run_dims(build, unit, high, value, i);
    RABBET_RETURN_IF_ERROR(rabbet_ranges_host_values(
        build, &estimates, value, (int64_t**)&unit->host_values[i]));
  }
  assert(maker->outputs.count > 0);
  group->input_count = maker->inputs.count;
  group->output_count = maker->outputs.count;
  RABBET_RETURN_IF_ERROR(rabbet_arena_copy(&build->arena, maker->values.data,
                                           group->value_count * sizeof(int32_t),
                                           (void**)&unit->values));
  RABBET_RETURN_IF_ERROR(rabbet_arena_copy(&build->arena, maker->inputs.data,
                                           group->input_count * sizeof(int32_t),
                                           (void**)&group->inputs));
  return rabbet_arena_copy(&build->arena, maker->outputs.data,
                           group->output_count * sizeof(int32_t),
                           (void**)&group->outputs);
}

static rabbet_status_t unit_name(rabbet_build_t* build, rabbet_unit_t* unit) {
  rabbet_strbuf_t text;
  rabbet_strbuf_initialize(build->allocator, &text);
  // Implicit nodes are left out of the name beside layers of the network.
  bool all = true;
  for (size_t i = 0; i < unit->node_count; ++i)
    all = all && unit->nodes[i]->is_implicit;
  for (size_t i = 0; i < unit->node_count; ++i)
    if (all || !unit->nodes[i]->is_implicit)
      rabbet_strbuf_printf(&text, "%s%s", text.size ? " + " : "",
                           unit->nodes[i]->name);
  rabbet_status_t status = rabbet_strbuf_status(&text);
  if (rabbet_is_ok(status))
    status = rabbet_arena_strdup(&build->arena, rabbet_strbuf_text(&text),
                                 &unit->name);
  rabbet_strbuf_deinitialize(&text);
  return status;
}

static rabbet_status_t unit_make(unit_maker_t* maker,
                                 rabbet_ir_node_t* const* nodes,
                                 rabbet_unit_t* unit) {
  rabbet_arena_t* arena = &maker->build->arena;
  RABBET_RETURN_IF_ERROR(rabbet_arena_copy(
      arena, nodes, unit->node_count * sizeof(*nodes), (void**)&unit->nodes));
  unit->group.node_count = unit->node_count;
  RABBET_RETURN_IF_ERROR(rabbet_arena_allocate_array(
      arena, unit->node_count, sizeof(rabbet_group_node_t),
      (void**)&unit->group.nodes));
  for (size_t i = 0; i < unit->node_count; ++i)
    RABBET_RETURN_IF_ERROR(unit_add_node(maker, unit, i));
  RABBET_RETURN_IF_ERROR(unit_find_outputs(maker, unit));
  RABBET_RETURN_IF_ERROR(unit_fill_values(maker, unit));
  return unit_name(maker->build, unit);
}

rabbet_status_t rabbet_unit_create(rabbet_build_t* build,
                                   rabbet_ir_node_t* const* nodes,
                                   size_t node_count,
                                   rabbet_unit_t** out_unit) {
  *out_unit = NULL;
  rabbet_unit_t* unit = NULL;
  assert(node_count > 0);
  for (size_t i = 1; i < node_count; ++i)
    assert(nodes[i - 1]->index < nodes[i]->index);
  RABBET_RETURN_IF_ERROR(
      rabbet_arena_allocate(&build->arena, sizeof(*unit), (void**)&unit));
  unit->node_count = node_count;
  unit_maker_t maker = {.build = build};
  rabbet_status_t status = unit_make(&maker, nodes, unit);
  unit_maker_deinitialize(&maker);
  if (rabbet_is_ok(status)) *out_unit = unit;
  return status;
}

rabbet_status_t rabbet_unit_create_conversion(
    rabbet_build_t* build, const rabbet_ir_value_t* value,
    const rabbet_type_format_t types[2], rabbet_unit_t** out_unit) {
  *out_unit = NULL;
  // All attributes of identity have their defaults.
  static const int32_t numbers[2] = {0, 1};
  struct {
    rabbet_unit_t unit;
    rabbet_group_node_t node;
    rabbet_group_value_t values[2];
    const int64_t* host_values[2];
    rabbet_dims_t dims[2];
    int32_t ids[2];
  }* block = NULL;
  RABBET_RETURN_IF_ERROR(
      rabbet_arena_allocate(&build->arena, sizeof(*block), (void**)&block));
  rabbet_unit_t* unit = &block->unit;
  const rabbet_op_t* identity = rabbet_op_get(RABBET_OP_IDENTITY);
  rabbet_attr_t* attrs = NULL;
  RABBET_RETURN_IF_ERROR(rabbet_arena_allocate_array(
      &build->arena, identity->attr_count, sizeof(*attrs), (void**)&attrs));
  RABBET_RETURN_IF_ERROR(
      rabbet_op_complete_attrs(identity, NULL, 0, &build->arena, attrs));
  RABBET_RETURN_IF_ERROR(rabbet_arena_printf(&build->arena, &unit->name,
                                             "convert %s", value->name));
  block->node = (rabbet_group_node_t){
      .op = identity,
      .name = unit->name,
      .attrs = attrs,
      .inputs = &numbers[0],
      .input_count = 1,
      .outputs = &numbers[1],
      .output_count = 1,
  };
  for (size_t i = 0; i < 2; ++i) {
    RABBET_RETURN_IF_ERROR(
        unit_describe(build, NULL, value, &block->values[i]));
    block->values[i].dtype = types[i].dtype;
    block->values[i].constant = NULL;
    block->ids[i] = value->id;
    block->dims[i] = block->values[i].dims;
  }
  unit->fits = true;
  unit->values = block->ids;
  unit->host_values = block->host_values;
  unit->dims = unit->room = block->dims;
  unit->group = (rabbet_group_t){
      .values = block->values,
      .value_count = 2,
      .inputs = &numbers[0],
      .input_count = 1,
      .outputs = &numbers[1],
      .output_count = 1,
      .nodes = &block->node,
      .node_count = 1,
  };
  *out_unit = unit;
  return rabbet_ok();
}

rabbet_status_t rabbet_unit_set_types(rabbet_build_t* build,
                                      const rabbet_unit_t* unit,
                                      const rabbet_choice_t* choice,
                                      rabbet_group_t* out_group) {
  *out_group = unit->group;
  RABBET_RETURN_IF_ERROR(
      rabbet_arena_copy(&build->arena, unit->group.values,
                        unit->group.value_count * sizeof(rabbet_group_value_t),
                        (void**)&out_group->values));
  size_t boundary = unit->group.input_count + unit->group.output_count;
  for (size_t i = 0; i < boundary; ++i) {
    int32_t number = rabbet_group_boundary(&unit->group, i);
    assert(number >= 0 && (size_t)number < unit->group.value_count);
    rabbet_group_value_t* value = &out_group->values[number];
    value->dtype = choice->candidate.tensors[i].dtype;
    value->format = choice->candidate.tensors[i].format;
    assert(rabbet_format_info(value->format));
    // Kernels read only LINEAR constants.
    if (value->format != RABBET_FORMAT_LINEAR) value->constant = NULL;
  }
  return rabbet_ok();
}

rabbet_status_t rabbet_unit_instantiate(rabbet_build_t* build,
                                        const rabbet_unit_t* unit,
                                        const rabbet_choice_t* choice,
                                        rabbet_group_t* out_group) {
  RABBET_RETURN_IF_ERROR(rabbet_unit_set_types(build, unit, choice, out_group));
  size_t boundary = unit->group.input_count + unit->group.output_count;
  for (size_t i = 0; i < boundary; ++i) {
    int32_t number = rabbet_group_boundary(&unit->group, i);
    rabbet_group_value_t* value = &out_group->values[number];
    size_t bytes = 0;
    if (!value->constant) continue;
    RABBET_RETURN_IF_ERROR(rabbet_constant_convert(
        build, rabbet_ir_value(&build->ir, unit->values[number]),
        choice->candidate.tensors[i], &value->constant, &bytes));
  }
  return rabbet_ok();
}

bool rabbet_unit_exchanges(const rabbet_unit_t* unit) {
  for (size_t i = 0; i < unit->node_count; ++i)
    if (rabbet_collective_exchanges(unit->nodes[i]->op, unit->nodes[i]->attrs))
      return true;
  return false;
}
