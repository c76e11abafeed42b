#include "builder/choose/tune.h"

#include <assert.h>
#include <math.h>
#include <string.h>

#include "builder/choose/tuner.h"
#include "builder/ir/passes.h"
#include "builder/measure/bench.h"
#include "builder/propose/propose.h"
#include "builder/propose/trial.h"

rabbet_status_t rabbet_tuner_create(rabbet_build_t* build) {
  rabbet_tuner_t* tuner = NULL;
  RABBET_RETURN_IF_ERROR(
      rabbet_allocate(build->allocator, sizeof(*tuner), (void**)&tuner));
  tuner->allocator = build->allocator;
  rabbet_map_initialize(build->allocator, &tuner->units);
  rabbet_map_initialize(build->allocator, &tuner->conversions);
  rabbet_map_initialize(build->allocator, &tuner->compiled);
  build->tuner = tuner;
  return rabbet_ok();
}

void rabbet_tuner_destroy(rabbet_tuner_t* tuner) {
  if (!tuner) return;
  rabbet_vec_free(tuner->allocator, &tuner->clusters);
  rabbet_map_deinitialize(&tuner->units);
  rabbet_map_deinitialize(&tuner->conversions);
  rabbet_map_deinitialize(&tuner->compiled);
  rabbet_free(tuner->allocator, tuner);
}

rabbet_status_t rabbet_tune_state(rabbet_tuner_t* tuner,
                                  rabbet_type_format_t type,
                                  rabbet_tune_state_t* out_state) {
  for (size_t i = 0; i < tuner->state_count; ++i)
    if (tuner->states[i].dtype == type.dtype &&
        tuner->states[i].format == type.format) {
      *out_state = (rabbet_tune_state_t)i;
      return rabbet_ok();
    }
  if (tuner->state_count == RABBET_TUNE_MAX_STATES)
    return RABBET_STATUS(RABBET_STATUS_UNSUPPORTED,
                         "candidates use more than %d pairs of type and format",
                         RABBET_TUNE_MAX_STATES);
  assert(tuner->state_count < RABBET_TUNE_NO_STATE);
  *out_state = (rabbet_tune_state_t)tuner->state_count;
  tuner->states[tuner->state_count++] = type;
  return rabbet_ok();
}

// ---- Units ------------------------------------------------------------------

rabbet_status_t rabbet_tuner_unit(rabbet_build_t* build,
                                  rabbet_ir_node_t* const* nodes,
                                  size_t node_count, rabbet_unit_t** out_unit) {
  rabbet_tuner_t* tuner = build->tuner;
  size_t bytes = node_count * sizeof(*nodes);
  assert(node_count > 0);
  *out_unit = rabbet_map_get(&tuner->units, (const char*)nodes, bytes);
  if (*out_unit &&
      (!(*out_unit)->is_guess || rabbet_trials_is_collecting(build->trials)))
    return rabbet_ok();
  if (*out_unit) {
    (*out_unit)->proposed = false;
    return rabbet_unit_propose(build, *out_unit, NULL);
  }
  rabbet_unit_t* unit = NULL;
  RABBET_RETURN_IF_ERROR(rabbet_unit_create(build, nodes, node_count, &unit));
  RABBET_RETURN_IF_ERROR(rabbet_unit_propose(build, unit, NULL));
  RABBET_RETURN_IF_ERROR(
      rabbet_map_set(&tuner->units, (const char*)unit->nodes, bytes, unit));
  *out_unit = unit;
  return rabbet_ok();
}

static bool tune_uses_cache(const rabbet_build_t* build,
                            const rabbet_choice_t* choice) {
  int64_t flags = build->config->options[RABBET_BUILDER_OPTION_FLAGS];
  return choice->cacheable &&
         (flags >> RABBET_BUILDER_DISABLE_TIMING_CACHE & 1) == 0;
}

static rabbet_status_t tune_measure(rabbet_build_t* build,
                                    const rabbet_unit_t* unit,
                                    const rabbet_choice_t* choice,
                                    double best_us,
                                    rabbet_timing_t* out_timing) {
  // It would wait for other ranks, which do not build.
  if (rabbet_unit_exchanges(unit)) {
    *out_timing = (rabbet_timing_t){.us = 0};
    return rabbet_ok();
  }
  bool cached = tune_uses_cache(build, choice);
  if (cached && rabbet_timing_cache_find(build->cache, choice->key, out_timing))
    return rabbet_ok();
  if (cached &&
      build->config->options[RABBET_BUILDER_OPTION_ERROR_ON_TIMING_CACHE_MISS])
    return RABBET_STATUS(
        RABBET_STATUS_NOT_FOUND,
        "the timing cache knows no time for '%s' with %s (%s), and the "
        "configuration makes that an error",
        unit->name, choice->candidate.kernel->name,
        choice->candidate.tactic_name);
  bool harmful = false;
  RABBET_RETURN_IF_ERROR(
      rabbet_trials_try(build->trials, unit, choice, &harmful));
  if (harmful) return rabbet_ok();
  rabbet_phase_t before =
      rabbet_phases_enter(build->phases, RABBET_PHASE_TIMING);
  rabbet_status_t status =
      rabbet_bench_measure(build, unit, choice, best_us, out_timing);
  rabbet_phases_enter(build->phases, before);
  RABBET_RETURN_IF_ERROR(status);
  build->doubtful += out_timing->is_unsure;
  assert(out_timing->us >= 0 || !out_timing->is_unsure);
  if (!cached || out_timing->is_starved) return rabbet_ok();
  return rabbet_timing_cache_put(build->cache, choice->key, *out_timing);
}

bool rabbet_tune_knows(const rabbet_build_t* build,
                       const rabbet_choice_t* choice) {
  rabbet_timing_t timing;
  return choice->us >= 0 ||
         (tune_uses_cache(build, choice) &&
          rabbet_timing_cache_find(build->cache, choice->key, &timing));
}

static bool tune_fits(const rabbet_build_t* build,
                      const rabbet_timing_t* timing) {
  return timing->workspace <=
         (uint64_t)
             build->config->options[RABBET_BUILDER_OPTION_WORKSPACE_LIMIT];
}

// Leaves out a plugin's tactic that raises an exception, which is kept in
// *failures in case there is no other choice.
static rabbet_status_t tune_leave_out(const rabbet_build_t* build,
                                      const rabbet_choice_t* choice,
                                      rabbet_status_t status,
                                      rabbet_status_t* failures) {
  if (rabbet_status_code(status) != RABBET_STATUS_PLUGIN ||
      choice->candidate.tactic == 0)
    return status;
  rabbet_log(build->logger, RABBET_SEVERITY_WARNING, "left out: %s",
             rabbet_status_message(status));
  *failures = rabbet_status_join(*failures, status);
  return rabbet_ok();
}

bool rabbet_tuner_refuses_estimates(const rabbet_unit_t* unit,
                                    rabbet_status_t status) {
  rabbet_status_code_t code = rabbet_status_code(status);
  return unit->data_dependent &&
         (code == RABBET_STATUS_INVALID_ARGUMENT ||
          code == RABBET_STATUS_OUT_OF_RANGE || code == RABBET_STATUS_PLUGIN);
}

// Why kernels of a unit were not timed.
typedef struct tune_refusals_t {
  rabbet_status_t estimates;  // of sizes contradict each other
  size_t starved;             // kernels that memory did not suffice for
} tune_refusals_t;

static void tune_warn_untimed(rabbet_build_t* build, const rabbet_unit_t* unit,
                              const tune_refusals_t* refusals) {
  const rabbet_status_t estimates = refusals->estimates;
  if (refusals->starved > 0)
    rabbet_bench_starve(build, RABBET_STARVED_GROUPS);
  else
    rabbet_log(build->logger, RABBET_SEVERITY_WARNING,
               "kernels of '%s' are not timed: its sizes are data-dependent, "
               "and no estimates of them satisfy its shape rules%s%s",
               unit->name, rabbet_is_ok(estimates) ? "" : ": ",
               rabbet_is_ok(estimates) ? "" : rabbet_status_message(estimates));
}

// Leaves out choices that could not be timed, unless none could be: then the
// first one is chosen, as without timing.
static void tune_keep_untimed(rabbet_build_t* build, rabbet_unit_t* unit,
                              const tune_refusals_t* refusals) {
  size_t timed = 0, kept = 0;
  for (size_t i = 0; i < unit->choice_count; ++i)
    timed += unit->choices[i].us >= 0;
  if (timed == 0 && unit->choice_count > 0)
    tune_warn_untimed(build, unit, refusals);
  for (size_t i = 0; i < unit->choice_count; ++i)
    if (timed == 0 || unit->choices[i].us >= 0)
      unit->choices[kept++] = unit->choices[i];
  assert(kept > 0 || unit->choice_count == 0);
  unit->choice_count = kept;
}

// Sets the choice's time. *out_keep: the choice is usable; it may have no time,
// and *refusals then says why.
static rabbet_status_t tune_time(rabbet_build_t* build,
                                 const rabbet_unit_t* unit, double best,
                                 rabbet_choice_t* choice, bool* out_keep,
                                 tune_refusals_t* refusals) {
  rabbet_timing_t timing = {.us = -1};
  *out_keep = true;
  if (!choice->candidate.kernel || choice->us >= 0 || !unit->fits)
    return rabbet_ok();
  rabbet_status_t status = tune_measure(build, unit, choice, best, &timing);
  if (rabbet_tuner_refuses_estimates(unit, status)) {
    refusals->estimates = rabbet_status_join(refusals->estimates, status);
    return rabbet_ok();
  }
  refusals->starved += timing.is_starved;
  if (timing.is_starved) return rabbet_ok();
  *out_keep =
      rabbet_is_ok(status) && timing.us >= 0 && tune_fits(build, &timing);
  if (!*out_keep) return status;
  assert(timing.us >= 0);
  choice->us = timing.us;
  choice->workspace = (size_t)timing.workspace;
  choice->is_unsure = timing.is_unsure;
  return rabbet_ok();
}

static rabbet_status_t tune_time_each(rabbet_build_t* build,
                                      rabbet_unit_t* unit,
                                      rabbet_status_t* failures,
                                      tune_refusals_t* refusals) {
  size_t kept = 0;
  double best = 0;
  for (size_t i = 0; i < unit->choice_count; ++i) {
    rabbet_choice_t choice = unit->choices[i];
    bool keep = false, was_timed = choice.us >= 0;
    rabbet_status_t status =
        tune_time(build, unit, best, &choice, &keep, refusals);
    if (!rabbet_is_ok(status))
      RABBET_RETURN_IF_ERROR(tune_leave_out(build, &choice, status, failures));
    if (!keep) continue;  // times measured so far are dropped
    if (!was_timed && choice.us >= 0 && (best == 0 || choice.us < best))
      best = choice.us;
    assert(kept <= i);
    unit->choices[kept++] = choice;
  }
  unit->choice_count = kept;
  rabbet_constant_trim(build);
  return rabbet_ok();
}

rabbet_status_t rabbet_tuner_time(rabbet_build_t* build, rabbet_unit_t* unit) {
  rabbet_status_t failures = rabbet_ok();
  tune_refusals_t refusals = {.estimates = rabbet_ok()};
  rabbet_status_t status = tune_time_each(build, unit, &failures, &refusals);
  if (rabbet_is_ok(status) && (!unit->fits || refusals.starved > 0 ||
                               !rabbet_is_ok(refusals.estimates)))
    tune_keep_untimed(build, unit, &refusals);
  rabbet_status_ignore(refusals.estimates);
  if (rabbet_is_ok(status) && unit->choice_count > 0) {
    rabbet_status_ignore(failures);
    return status;
  }
  return rabbet_status_join(failures, status);
}

// ---- Conversions ------------------------------------------------------------

typedef struct conversion_key_t {
  int32_t value;
  rabbet_type_format_t from, to;
} conversion_key_t;

typedef struct conversion_t {
  conversion_key_t key;
  rabbet_unit_t* unit;  // NULL: nothing converts it
  bool is_ahead;        // its programs were compiled ahead
  bool is_timed;
  rabbet_pick_t pick;  // choice NULL: no kernel converts it
} conversion_t;

static rabbet_status_t conversion_propose(rabbet_build_t* build,
                                          conversion_t* conversion) {
  const conversion_key_t* key = &conversion->key;
  const rabbet_type_format_t types[2] = {key->from, key->to};
  const rabbet_ir_value_t* value = rabbet_ir_value(&build->ir, key->value);

  // A scale, not a cast, converts between a quantized tensor's two types.
  if (rabbet_ir_is_quantize_result(value) &&
      (key->from.dtype == value->dtype) != (key->to.dtype == value->dtype))
    return rabbet_ok();
  RABBET_RETURN_IF_ERROR(
      rabbet_unit_create_conversion(build, value, types, &conversion->unit));
  return rabbet_unit_propose(build, conversion->unit, types);
}

static rabbet_status_t conversion_time(rabbet_build_t* build,
                                       conversion_t* conversion) {
  rabbet_unit_t* unit = conversion->unit;
  conversion->is_timed = true;
  if (!unit) return rabbet_ok();
  if (build->level > 0) RABBET_RETURN_IF_ERROR(rabbet_tuner_time(build, unit));
  conversion->pick.unit = unit;
  for (size_t i = 0; i < unit->choice_count; ++i) {
    const rabbet_choice_t* best = conversion->pick.choice;
    if (!best || unit->choices[i].us < best->us)
      conversion->pick.choice = &unit->choices[i];
  }
  return rabbet_ok();
}

static rabbet_status_t conversion_get(rabbet_build_t* build,
                                      const rabbet_ir_value_t* value,
                                      rabbet_type_format_t from,
                                      rabbet_type_format_t to,
                                      conversion_t** out_conversion) {
  rabbet_tuner_t* tuner = build->tuner;
  // Keys are compared as bytes.
  static_assert(sizeof(conversion_key_t) ==
                    sizeof(int32_t) + 2 * sizeof(rabbet_type_format_t),
                "no padding");
  const conversion_key_t key = {value->id, from, to};
  conversion_t* conversion =
      rabbet_map_get(&tuner->conversions, (const char*)&key, sizeof(key));
  if (!conversion) {
    RABBET_RETURN_IF_ERROR(rabbet_arena_allocate(
        &build->arena, sizeof(*conversion), (void**)&conversion));
    conversion->key = key;
    RABBET_RETURN_IF_ERROR(conversion_propose(build, conversion));
    RABBET_RETURN_IF_ERROR(rabbet_map_set(&tuner->conversions,
                                          (const char*)&conversion->key,
                                          sizeof(key), conversion));
  }
  *out_conversion = conversion;
  return rabbet_ok();
}

rabbet_status_t rabbet_tune_conversion_ahead(rabbet_build_t* build,
                                             const rabbet_ir_value_t* value,
                                             rabbet_type_format_t from,
                                             rabbet_type_format_t to,
                                             rabbet_unit_t** out_unit) {
  conversion_t* conversion = NULL;
  *out_unit = NULL;
  RABBET_RETURN_IF_ERROR(conversion_get(build, value, from, to, &conversion));
  if (!conversion->is_ahead) *out_unit = conversion->unit;
  conversion->is_ahead = true;
  return rabbet_ok();
}

static rabbet_status_t conversion_find(rabbet_build_t* build,
                                       const rabbet_ir_value_t* value,
                                       rabbet_type_format_t from,
                                       rabbet_type_format_t to,
                                       const conversion_t** out_conversion) {
  conversion_t* conversion = NULL;
  RABBET_RETURN_IF_ERROR(conversion_get(build, value, from, to, &conversion));
  *out_conversion = conversion;
  return conversion->is_timed ? rabbet_ok()
                              : conversion_time(build, conversion);
}

rabbet_status_t rabbet_tuner_conversion(rabbet_build_t* build,
                                        const rabbet_ir_value_t* value,
                                        rabbet_type_format_t from,
                                        rabbet_type_format_t to,
                                        rabbet_pick_t* out_pick) {
  const conversion_t* conversion = NULL;
  RABBET_RETURN_IF_ERROR(conversion_find(build, value, from, to, &conversion));
  *out_pick = conversion->pick;
  if (out_pick->choice) return rabbet_ok();
  return RABBET_STATUS(
      RABBET_STATUS_NOT_FOUND,
      "device '%s' has no kernel that converts tensor '%s' from %s %s to %s %s",
      build->device->name, value->name, rabbet_dtype_name(from.dtype),
      rabbet_format_name(from.format), rabbet_dtype_name(to.dtype),
      rabbet_format_name(to.format));
}

rabbet_status_t rabbet_tune_conversion_cost(rabbet_build_t* build,
                                            const rabbet_ir_value_t* value,
                                            rabbet_tune_state_t from,
                                            rabbet_tune_state_t to,
                                            double* out_us) {
  *out_us = 0;
  assert(from < build->tuner->state_count && to < build->tuner->state_count);
  if (from == to) return rabbet_ok();
  const conversion_t* conversion = NULL;
  RABBET_RETURN_IF_ERROR(
      conversion_find(build, value, build->tuner->states[from],
                      build->tuner->states[to], &conversion));
  const rabbet_choice_t* choice = conversion->pick.choice;
  *out_us = !choice ? INFINITY : choice->us >= 0 ? choice->us : 0.5;
  return rabbet_ok();
}

// ---- The whole --------------------------------------------------------------

// Collects the formats that network inputs and outputs, and the user's
// operators, may ask for, so that kernels of other layers are offered in them,
// too.
static rabbet_status_t tune_find_formats(rabbet_build_t* build) {
  build->formats = 0;
  for (size_t i = 0; i < build->ir.values.count; ++i) {
    const rabbet_ir_value_t* value = build->ir.values.data[i];
    if (value->input >= 0 || value->output >= 0)
      build->formats |= value->formats;
  }
  for (size_t i = 0; i < build->ir.nodes.count; ++i) {
    rabbet_ir_node_t* node = build->ir.nodes.data[i];
    if (!node->plugin) continue;
    rabbet_unit_t* unit = NULL;
    RABBET_RETURN_IF_ERROR(rabbet_tuner_unit(build, &node, 1, &unit));
    size_t boundary = unit->group.input_count + unit->group.output_count;
    assert(boundary > 0);
    for (size_t k = 0; k < unit->choice_count * boundary; ++k) {
      const rabbet_candidate_t* candidate =
          &unit->choices[k / boundary].candidate;
      build->formats |= (uint64_t)1 << candidate->tensors[k % boundary].format;
    }
  }
  return rabbet_ok();
}

static rabbet_status_t tune_cover_all(rabbet_build_t* build) {
  const rabbet_tuner_t* tuner = build->tuner;
  for (size_t i = 0; i < tuner->clusters.count; ++i)
    if (tuner->clusters.data[i]->kind == RABBET_CLUSTER_NODES)
      RABBET_RETURN_IF_ERROR(rabbet_tune_cover(build, tuner->clusters.data[i]));
  return rabbet_ok();
}

static rabbet_status_t tune_meanwhile(void* context) {
  return rabbet_tune_compile_ahead(context);
}

// Finds the questions to libraries by forming all covers as if libraries had a
// kernel for each group, and has helpers answer them. Programs are compiled
// meanwhile.
static rabbet_status_t tune_ask_ahead(rabbet_build_t* build) {
  if (!rabbet_trials_collect(build->trials)) return rabbet_ok();
  rabbet_status_t status = tune_cover_all(build);
  rabbet_phase_t before =
      rabbet_phases_enter(build->phases, RABBET_PHASE_LIBRARIES);
  status = rabbet_status_join(
      status,
      rabbet_trials_ask_collected(build->trials, tune_meanwhile, build));
  rabbet_phases_enter(build->phases, before);
  return status;
}

rabbet_status_t rabbet_tuner_explore(rabbet_build_t* build) {
  static const char phase[] = "Timing candidates";
  RABBET_RETURN_IF_ERROR(tune_find_formats(build));
  RABBET_RETURN_IF_ERROR(rabbet_tune_cluster(build));
  rabbet_tuner_t* tuner = build->tuner;
  rabbet_phase_t before =
      rabbet_phases_enter(build->phases, RABBET_PHASE_COVERS);
  rabbet_progress_start(build, phase, "Building", tuner->clusters.count);
  rabbet_status_t status = tune_ask_ahead(build);
  if (rabbet_is_ok(status)) status = tune_cover_all(build);
  if (rabbet_is_ok(status)) status = rabbet_tune_compile_ahead(build);
  for (size_t i = 0; rabbet_is_ok(status) && i < tuner->clusters.count; ++i) {
    status = rabbet_tune_alternatives(build, tuner->clusters.data[i]);
    if (rabbet_is_ok(status)) status = rabbet_progress_step(build, phase, i);
  }
  rabbet_progress_end(build, phase);
  rabbet_phases_enter(build->phases, before);
  return status;
}
