// Sequences of the bodies of conditionals and loops.
#include <string.h>

#include "builder/sequence.h"

// ---- Profiles ---------------------------------------------------------------

// The extents of a body's input: those of the tensor that it stands for, or of
// a slice of it.
typedef struct body_input_t {
  const rabbet_tensor_t* tensor;
  const rabbet_ir_value_t* value;  // outside
  bool is_carried, is_slice;
  int64_t varying;  // axes of a carried tensor
} body_input_t;

static void body_drop_axis(rabbet_dims_t* dims) {
  --dims->rank;
  memmove(dims->d, dims->d + 1, (size_t)dims->rank * sizeof(dims->d[0]));
}

static rabbet_status_t body_profile_shape(rabbet_build_t* caller,
                                          const body_input_t* input,
                                          rabbet_profile_t* profile) {
  rabbet_dims_t opt, min, max;
  RABBET_RETURN_IF_ERROR(
      rabbet_ranges_dims(caller, NULL, input->value, &opt, &min, &max));
  if (input->is_slice) {
    body_drop_axis(&opt);
    body_drop_axis(&min);
    body_drop_axis(&max);
  }
  for (int32_t i = 0; i < opt.rank; ++i) {
    if (!(input->varying >> i & 1)) continue;
    min.d[i] = 0;
    if (opt.d[i] < 1) opt.d[i] = 1;
    max.d[i] = INT32_MAX;
  }
  return rabbet_profile_set_shape(profile, input->tensor->name, &min, &opt,
                                  &max);
}

// Numbers that a loop makes are in the range of INT32, which runs check.
static void body_loop_values(const rabbet_ir_value_t* value,
                             const rabbet_ranges_t* ranges, int64_t* list,
                             size_t count) {
  for (size_t i = 0; i < count; ++i) {
    rabbet_expr_t expr = i < value->value_count ? value->values[i] : -1;
    list[i] = INT32_MIN;
    list[count + i] = expr >= 0 && ranges->valid[expr] ? ranges->opt[expr] : 1;
    list[2 * count + i] = INT32_MAX;
  }
}

// A shape input also has its elements.
static rabbet_status_t body_profile_values(rabbet_build_t* caller,
                                           const body_input_t* input,
                                           rabbet_profile_t* profile) {
  const rabbet_ranges_t* ranges = &caller->ranges;
  const rabbet_ir_value_t* value = input->value;
  bool in_loop = input->is_carried || input->is_slice;
  size_t count = in_loop ? input->tensor->value_count : value->value_count;
  int64_t* list = NULL;
  if (!input->tensor->is_host_read || (!in_loop && !value->values))
    return rabbet_ok();
  RABBET_RETURN_IF_ERROR(rabbet_arena_allocate_array(
      &caller->arena, count, 3 * sizeof(*list), (void**)&list));
  if (in_loop) body_loop_values(value, ranges, list, count);
  for (size_t i = 0; !in_loop && i < count; ++i) {
    rabbet_expr_t expr = value->values[i];
    list[i] = ranges->low[expr];
    list[2 * count + i] = ranges->high[expr];
    list[count + i] = ranges->valid[expr] ? ranges->opt[expr] : list[i];
  }
  return rabbet_profile_set_values(profile, input->tensor->name, list,
                                   list + count, list + 2 * count, count);
}

// The bits of the input in rabbet_build_t's `told`.
static uint64_t body_told(const rabbet_build_t* caller,
                          const body_input_t* input) {
  const bool* data_dependent = caller->ranges.data_dependent;
  const rabbet_ir_value_t* value = input->value;
  bool in_loop = input->is_carried || input->is_slice;
  uint64_t told = (uint64_t)input->varying;
  for (int32_t i = input->is_slice; i < value->shape.rank; ++i)
    if (data_dependent[value->shape.d[i]])
      told |= UINT64_C(1) << (i - input->is_slice);
  bool values = in_loop && input->tensor->is_host_read;
  for (size_t i = 0; !in_loop && value->values && i < value->value_count; ++i)
    values |= data_dependent[value->values[i]];
  return values ? told | RABBET_BUILD_TOLD_VALUES : told;
}

static rabbet_status_t body_profiles(rabbet_build_t* caller,
                                     const rabbet_ir_node_t* node,
                                     const rabbet_body_t* body,
                                     rabbet_builder_config_t* config,
                                     uint64_t* told) {
  const rabbet_loop_wiring_t* loop = node->bodies->loop;
  size_t carried = loop ? loop->carried_count : 0;
  size_t sliced = loop ? carried + loop->slice_count : 0;
  for (size_t p = 0; p < caller->ranges.profile_count; ++p) {
    rabbet_profile_t* profile = NULL;
    RABBET_RETURN_IF_ERROR(
        RABBET_VEC_RESERVE(caller->allocator, &config->profiles, 1));
    RABBET_RETURN_IF_ERROR(rabbet_profile_create(caller->allocator, &profile));
    config->profiles.data[config->profiles.count++] = profile;
    for (size_t i = 0; i < body->network->inputs.count; ++i) {
      const body_input_t input = {
          .tensor = body->network->inputs.data[i],
          .value = rabbet_ir_value(&caller->ir, node->inputs[body->inputs[i]]),
          .is_carried = i < carried,
          .is_slice = i >= carried && i < sliced,
          .varying = i < carried ? loop->varying[i] : 0};
      told[i] = body_told(caller, &input);
      RABBET_RETURN_IF_ERROR(body_profile_shape(caller, &input, profile));
      RABBET_RETURN_IF_ERROR(body_profile_values(caller, &input, profile));
    }
  }
  return rabbet_ok();
}

// ---- Building ---------------------------------------------------------------

static rabbet_status_t build_body(const rabbet_built_t* caller,
                                  const rabbet_ir_node_t* node,
                                  const rabbet_body_t* body,
                                  rabbet_built_list_t* sequences) {
  rabbet_build_t* outer = caller->build;
  rabbet_built_t* built = NULL;
  const char* name = NULL;
  if (caller->depth >= RABBET_PLAN_MAX_DEPTH)
    return RABBET_STATUS(RABBET_STATUS_UNSUPPORTED,
                         "layer '%s' (%s) lies in %d conditionals and loops; a "
                         "plan can have them %d deep",
                         node->name, node->op->name, caller->depth,
                         RABBET_PLAN_MAX_DEPTH);
  RABBET_RETURN_IF_ERROR(rabbet_arena_printf(&outer->arena, &name, "%s/%s",
                                             node->bodies->name, body->name));
  RABBET_RETURN_IF_ERROR(rabbet_built_add(outer, name, sequences, &built));
  built->network = body->network;
  built->depth = caller->depth + 1;
  built->own.profiles = outer->profiles;
  built->config = *outer->config;
  memset(&built->config.profiles, 0, sizeof(built->config.profiles));
  built->config.cache = outer->cache;
  uint64_t* told = NULL;
  RABBET_RETURN_IF_ERROR(rabbet_arena_allocate_array(
      &built->own.arena, body->network->inputs.count, sizeof(*told),
      (void**)&told));
  built->own.told = told;
  RABBET_RETURN_IF_ERROR(
      body_profiles(outer, node, body, &built->config, told));
  RABBET_RETURN_IF_ERROR(
      rabbet_ir_import(built->network, rabbet_build_refit_flags(outer),
                       &built->own.arena, outer->allocator, &built->own.ir));
  RABBET_RETURN_IF_ERROR(rabbet_build_open(&built->own));
  rabbet_status_t status = rabbet_built_prepare(built);
  if (rabbet_is_ok(status)) status = rabbet_built_tune(built, sequences);
  return RABBET_ANNOTATE(status, "sequence '%s'", built->name);
}

// Of the networks that a layer runs one runs at a time: their memory is one.
// The slower branch counts, and one iteration of a loop.
rabbet_status_t rabbet_built_bodies(const rabbet_built_t* caller,
                                    rabbet_built_list_t* sequences) {
  rabbet_built_result_t* result = caller->result;
  const rabbet_layout_t* layout = &result->layout;
  size_t memory = 0;
  for (size_t s = 0; s < layout->steps.count; ++s) {
    const rabbet_unit_t* unit = layout->steps.data[s].pick.unit;
    double us = 0;
    if (unit->node_count != 1 || !unit->nodes[0]->bodies) continue;
    const rabbet_bodies_t* bodies = unit->nodes[0]->bodies;
    for (size_t k = 0; k < bodies->count; ++k) {
      size_t at = sequences->count;
      RABBET_RETURN_IF_ERROR(
          build_body(caller, unit->nodes[0], &bodies->list[k], sequences));
      const rabbet_built_result_t* made = sequences->data[at]->result;
      if (made->totals.memory > memory) memory = made->totals.memory;
      if (made->solution.us > us) us = made->solution.us;
    }
    result->solution.us += us;
  }
  result->totals.memory += memory;
  return rabbet_ok();
}

void rabbet_built_close_body(rabbet_built_t* built) {
  rabbet_layout_deinitialize(&built->own, &built->result->layout);
  for (size_t i = 0; i < built->config.profiles.count; ++i)
    rabbet_profile_release(built->config.profiles.data[i]);
  rabbet_vec_free(built->own.allocator, &built->config.profiles);
  rabbet_build_close(&built->own);
}
