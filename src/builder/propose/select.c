// The user's choice among candidates.

#include <assert.h>
#include <string.h>

#include "base/hash.h"
#include "builder/choose/tuner.h"
#include "core/view.h"

// ---- A selector's view -----------------------------------------------------

static rabbet_dims_t select_strides(const rabbet_format_info_t* info,
                                    const rabbet_dims_t* dims) {
  rabbet_dims_t strides = {.rank = dims->rank};
  int64_t step = 1;
  // Channels first or last; blocks of channels count as one element, except
  // where channels come last and blocks only pad them.
  int64_t extents[RABBET_MAX_RANK];
  int32_t rank = dims->rank;
  for (int32_t i = 0; i < rank; ++i)
    extents[i] = dims->d[i];
  if (rank > 1 && info->block > 1) {
    extents[1] = (dims->d[1] + info->block - 1) / info->block;
    if (info->channels_last) extents[1] *= info->block;
  }
  if (info->channels_last && rank > 1) {
    strides.d[1] = step;
    step *= extents[1];
  }
  for (int32_t i = rank; i-- > 0;) {
    if (info->channels_last && i == 1) continue;
    strides.d[i] = step;
    step *= extents[i];
  }
  return strides;
}

static void select_tensor(rabbet_type_format_t type, const rabbet_dims_t* dims,
                          rabbet_algorithm_tensor_t* out) {
  const rabbet_format_info_t* info = rabbet_format_info(type.format);
  assert(info);
  bool vectorized = info->block > 1 && dims->rank > 1;
  *out = (rabbet_algorithm_tensor_t){
      .dtype = type.dtype,
      .format = type.format,
      .strides = select_strides(info, dims),
      .vectorized_dim = vectorized ? 1 : -1,
      .components = vectorized ? info->block : 1,
  };
}

// The value of boundary tensor i, inputs first; NULL for a constant.
static const rabbet_group_value_t* select_value(const rabbet_unit_t* unit,
                                                size_t i) {
  const rabbet_group_t* group = &unit->group;
  const rabbet_group_value_t* value =
      &group->values[rabbet_group_boundary(group, i)];
  return i < group->input_count && value->constant ? NULL : value;
}

static rabbet_status_t select_context(rabbet_arena_t* arena,
                                      const rabbet_unit_t* unit,
                                      rabbet_algorithm_context_t* out) {
  const rabbet_group_t* group = &unit->group;
  size_t boundary = group->input_count + group->output_count, count = 0;
  rabbet_dims_t(*shapes)[3] = NULL;
  RABBET_RETURN_IF_ERROR(rabbet_arena_allocate_array(
      arena, boundary, sizeof(*shapes), (void**)&shapes));
  *out = (rabbet_algorithm_context_t){.name = unit->name,
                                      .output_count = group->output_count};
  for (size_t i = 0; i < boundary; ++i) {
    const rabbet_group_value_t* value = select_value(unit, i);
    if (!value) continue;
    shapes[count][0] = value->min;
    shapes[count][1] = value->dims;
    shapes[count++][2] = value->max;
  }
  assert(count >= group->output_count && count <= boundary);
  out->input_count = count - group->output_count;
  out->shapes = (const rabbet_dims_t(*)[3])shapes;
  return rabbet_ok();
}

static rabbet_status_t select_algorithm(rabbet_arena_t* arena,
                                        const rabbet_unit_t* unit,
                                        const rabbet_choice_t* choice,
                                        rabbet_algorithm_t* out) {
  const rabbet_candidate_t* candidate = &choice->candidate;
  size_t boundary = unit->group.input_count + unit->group.output_count;
  size_t count = 0;
  rabbet_algorithm_tensor_t* tensors = NULL;
  RABBET_RETURN_IF_ERROR(rabbet_arena_allocate_array(
      arena, boundary, sizeof(*tensors), (void**)&tensors));
  for (size_t i = 0; i < boundary; ++i) {
    const rabbet_group_value_t* value = select_value(unit, i);
    if (value)
      select_tensor(candidate->tensors[i], &value->dims, &tensors[count++]);
  }
  const char* kernel = candidate->kernel ? candidate->kernel->name : "view";
  uint64_t hash = rabbet_hash128(kernel, strlen(kernel)).low;
  *out = (rabbet_algorithm_t){
      .kernel = kernel,
      .tactic_name = candidate->tactic_name,
      .implementation = (int64_t)(hash & INT64_MAX),
      .tactic = candidate->tactic,
      .us = choice->us,
      .workspace = choice->workspace,
      .tensors = tensors,
  };
  return rabbet_ok();
}

// ---- Asking -----------------------------------------------------------------

static rabbet_status_t select_check(const rabbet_unit_t* unit,
                                    const size_t* indices, size_t count,
                                    bool* wanted) {
  if (count > unit->choice_count)
    return RABBET_STATUS(RABBET_STATUS_INVALID_ARGUMENT,
                         "the algorithm selector chose %zu of %zu algorithms",
                         count, unit->choice_count);
  for (size_t i = 0; i < count; ++i) {
    if (indices[i] >= unit->choice_count)
      return RABBET_STATUS(
          RABBET_STATUS_OUT_OF_RANGE,
          "the algorithm selector chose algorithm %zu; there are %zu, from 0",
          indices[i], unit->choice_count);
    if (wanted[indices[i]])
      return RABBET_STATUS(RABBET_STATUS_INVALID_ARGUMENT,
                           "the algorithm selector chose algorithm %zu twice",
                           indices[i]);
    wanted[indices[i]] = true;
  }
  return rabbet_ok();
}

static rabbet_status_t select_keep(rabbet_build_t* build, rabbet_unit_t* unit,
                                   const bool* wanted, size_t count) {
  int64_t flags = build->config->options[RABBET_BUILDER_OPTION_FLAGS];
  size_t offered = unit->choice_count, kept = 0;
  for (size_t i = 0; i < offered; ++i)
    if (wanted[i]) unit->choices[kept++] = unit->choices[i];
  assert(kept == count);
  unit->choice_count = kept;
  if (count > 0) return rabbet_ok();
  unit->refused = offered;
  if ((flags >> RABBET_BUILDER_REJECT_EMPTY_ALGORITHMS & 1) == 0)
    return rabbet_ok();
  return RABBET_STATUS(
      RABBET_STATUS_FAILED_PRECONDITION,
      "the algorithm selector chose none of %zu algorithms, which the flag "
      "REJECT_EMPTY_ALGORITHMS makes an error",
      offered);
}

static rabbet_status_t select_ask(rabbet_build_t* build, rabbet_unit_t* unit,
                                  rabbet_arena_t* arena) {
  const rabbet_algorithm_selector_t* selector = &build->config->selector;
  size_t count = unit->choice_count, chosen = 0;
  rabbet_algorithm_context_t context;
  rabbet_algorithm_t* algorithms = NULL;
  size_t* indices = NULL;
  bool* wanted = NULL;
  RABBET_RETURN_IF_ERROR(select_context(arena, unit, &context));
  RABBET_RETURN_IF_ERROR(rabbet_arena_allocate_array(
      arena, count, sizeof(*algorithms), (void**)&algorithms));
  RABBET_RETURN_IF_ERROR(rabbet_arena_allocate_array(
      arena, count, sizeof(*indices), (void**)&indices));
  RABBET_RETURN_IF_ERROR(rabbet_arena_allocate_array(
      arena, count, sizeof(*wanted), (void**)&wanted));
  for (size_t i = 0; i < count; ++i)
    RABBET_RETURN_IF_ERROR(
        select_algorithm(arena, unit, &unit->choices[i], &algorithms[i]));
  RABBET_RETURN_IF_ERROR(selector->select(selector->user_data, &context,
                                          algorithms, count, indices, &chosen));
  RABBET_RETURN_IF_ERROR(select_check(unit, indices, chosen, wanted));
  return select_keep(build, unit, wanted, chosen);
}

rabbet_status_t rabbet_tune_select(rabbet_build_t* build, rabbet_unit_t* unit) {
  if (!build->config->selector.select || unit->selected ||
      unit->choice_count == 0)
    return rabbet_ok();
  rabbet_arena_t arena;
  unit->selected = true;
  rabbet_arena_initialize(build->allocator, &arena);
  rabbet_status_t status = select_ask(build, unit, &arena);
  rabbet_arena_deinitialize(&arena);
  return RABBET_ANNOTATE(status, "choosing algorithms for '%s'", unit->name);
}

// ---- Telling ----------------------------------------------------------------

static rabbet_status_t select_tell(rabbet_build_t* build,
                                   const rabbet_solution_t* const* solutions,
                                   size_t count, rabbet_arena_t* arena) {
  const rabbet_algorithm_selector_t* selector = &build->config->selector;
  rabbet_algorithm_context_t* contexts = NULL;
  rabbet_algorithm_t* algorithms = NULL;
  size_t picks = 0, at = 0;
  for (size_t i = 0; i < count; ++i)
    picks += solutions[i]->pick_count;
  RABBET_RETURN_IF_ERROR(rabbet_arena_allocate_array(
      arena, picks, sizeof(*contexts), (void**)&contexts));
  RABBET_RETURN_IF_ERROR(rabbet_arena_allocate_array(
      arena, picks, sizeof(*algorithms), (void**)&algorithms));
  for (size_t i = 0; i < count; ++i) {
    for (size_t k = 0; k < solutions[i]->pick_count; ++k, ++at) {
      const rabbet_pick_t* pick = &solutions[i]->picks[k];
      RABBET_RETURN_IF_ERROR(select_context(arena, pick->unit, &contexts[at]));
      RABBET_RETURN_IF_ERROR(
          select_algorithm(arena, pick->unit, pick->choice, &algorithms[at]));
    }
  }
  return selector->report(selector->user_data, contexts, algorithms, picks);
}

rabbet_status_t rabbet_tuner_report_selection(
    rabbet_build_t* build, const rabbet_solution_t* const* solutions,
    size_t count) {
  if (!build->config->selector.report) return rabbet_ok();
  rabbet_arena_t arena;
  rabbet_arena_initialize(build->allocator, &arena);
  rabbet_status_t status = select_tell(build, solutions, count, &arena);
  rabbet_arena_deinitialize(&arena);
  return RABBET_ANNOTATE(status, "reporting the algorithms");
}
