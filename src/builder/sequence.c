// One sequence of a plan: opened, simplified, tuned.
#include "builder/sequence.h"

#include "base/store.h"
#include "builder/ir/passes.h"
#include "builder/measure/bench.h"
#include "builder/propose/trial.h"

// ---- Opening and closing ----------------------------------------------------

uint32_t rabbet_build_refit_flags(const rabbet_build_t* build) {
  const uint32_t all =
      1u << RABBET_BUILDER_REFIT | 1u << RABBET_BUILDER_REFIT_IDENTICAL |
      1u << RABBET_BUILDER_REFIT_INDIVIDUAL | 1u << RABBET_BUILDER_STRIP_PLAN;
  uint32_t flags =
      (uint32_t)build->config->options[RABBET_BUILDER_OPTION_FLAGS] & all;
  // STRIP_PLAN of individually marked weights strips only these.
  if (flags >> RABBET_BUILDER_REFIT_INDIVIDUAL & 1)
    flags &= ~(1u << RABBET_BUILDER_STRIP_PLAN);
  return flags;
}

rabbet_status_t rabbet_build_open(rabbet_build_t* build) {
  const rabbet_builder_config_t* config = build->config;
  rabbet_phase_t before =
      rabbet_phases_enter(build->phases, RABBET_PHASE_DEVICE);
  if (!build->device) {
    RABBET_RETURN_IF_ERROR(
        rabbet_device_create(config->device, build->allocator, &build->device));
    RABBET_RETURN_IF_ERROR(rabbet_store_create(build->allocator, build->logger,
                                               &build->device->store));
  }
  rabbet_phases_enter(build->phases, before);
  build->ir.reads_packed =
      (build->device->traits & RABBET_DEVICE_WEIGHT_ONLY) != 0;
  build->threads = (int)config->options[RABBET_BUILDER_OPTION_THREADS];
  if (build->threads == 0)
    RABBET_RETURN_IF_ERROR(rabbet_device_default_threads(&build->threads));
  build->level = (int)config->options[RABBET_BUILDER_OPTION_OPTIMIZATION_LEVEL];
  build->cache = config->cache;
  rabbet_timing_cache_retain(build->cache);
  if (!build->cache)
    RABBET_RETURN_IF_ERROR(
        rabbet_timing_cache_create(NULL, 0, build->allocator, &build->cache));
  RABBET_RETURN_IF_ERROR(rabbet_bench_create(build, &build->bench));
  RABBET_RETURN_IF_ERROR(rabbet_trials_create(build));
  return rabbet_tuner_create(build);
}

void rabbet_build_close_tuning(rabbet_build_t* build) {
  rabbet_tuner_destroy(build->tuner);
  rabbet_trials_destroy(build->trials);
  rabbet_bench_destroy(build->bench);
  rabbet_timing_cache_release(build->cache);
}

void rabbet_build_close(rabbet_build_t* build) {
  rabbet_build_close_tuning(build);
  rabbet_ir_deinitialize(&build->ir);
  rabbet_vec_free(build->allocator, &build->carried);
  rabbet_constants_deinitialize(build);
  rabbet_fold_deinitialize(build);
  rabbet_arena_deinitialize(&build->arena);
}

rabbet_status_t rabbet_built_add(rabbet_build_t* outer, const char* name,
                                 rabbet_built_list_t* sequences,
                                 rabbet_built_t** out_built) {
  rabbet_built_t* built = NULL;
  *out_built = NULL;
  RABBET_RETURN_IF_ERROR(
      rabbet_arena_allocate(&outer->arena, sizeof(*built), (void**)&built));
  RABBET_RETURN_IF_ERROR(rabbet_arena_allocate(
      &outer->arena, sizeof(*built->result), (void**)&built->result));
  built->name = name;
  built->build = &built->own;
  built->own = (rabbet_build_t){.allocator = outer->allocator,
                                .config = &built->config,
                                .logger = outer->logger,
                                .device = outer->device,
                                .phases = outer->phases};
  RABBET_RETURN_IF_ERROR(RABBET_VEC_PUSH(outer->allocator, sequences, built));
  rabbet_arena_initialize(outer->allocator, &built->own.arena);
  *out_built = built;
  return rabbet_ok();
}

// ---- Simplifying ------------------------------------------------------------

typedef rabbet_status_t (*pass_fn_t)(rabbet_build_t* build);

static const struct {
  const char* name;
  pass_fn_t run;
} build_passes[] = {
    {"wishes", rabbet_pass_wishes},
    {"shapes", rabbet_pass_shapes},
    {"fold", rabbet_pass_fold},
    {"shapes", rabbet_pass_shapes},
    {"simplify", rabbet_pass_simplify},
    {"common subexpressions", rabbet_pass_common_subexpressions},
    {"attention shapes", rabbet_pass_attention_shapes},
    {"simplify", rabbet_pass_simplify},
    {"fold", rabbet_pass_fold},
    {"packed rotations", rabbet_pass_packed_rotations},
    {"quantize", rabbet_pass_quantize},
    {"cached rotation", rabbet_pass_cached_rotation},
    {"channel attention", rabbet_pass_channel_attention},
    {"attention parts", rabbet_pass_attention_parts},
    {"parallel", rabbet_pass_parallel},
    {"masks", rabbet_pass_masks},
    {"weights along k", rabbet_pass_weights_along_k},
    {"odd columns", rabbet_pass_odd_columns},
    {"order of collectives", rabbet_pass_collective_order},
};

static rabbet_status_t build_simplify(rabbet_build_t* build) {
  static const char phase[] = "Simplifying";
  size_t count = sizeof(build_passes) / sizeof(build_passes[0]);
  rabbet_progress_start(build, phase, "Building", count);
  rabbet_status_t status = rabbet_ok();
  for (size_t i = 0; rabbet_is_ok(status) && i < count; ++i) {
    status = build_passes[i].run(build);
    if (rabbet_is_ok(status)) status = rabbet_progress_step(build, phase, i);
    rabbet_log(build->logger, RABBET_SEVERITY_VERBOSE,
               "after pass '%s': %zu layer%s", build_passes[i].name,
               build->ir.nodes.count, rabbet_plural(build->ir.nodes.count));
  }
  rabbet_progress_end(build, phase);
  return status;
}

static uint32_t build_extra_dtypes(const rabbet_build_t* build) {
  int64_t flags = build->config->options[RABBET_BUILDER_OPTION_FLAGS];
  uint32_t dtypes = 0;
  if (build->ir.strongly_typed) return 0;
  if (flags >> RABBET_BUILDER_FP16 & 1) dtypes |= 1u << RABBET_DTYPE_HALF;
  if (flags >> RABBET_BUILDER_BF16 & 1) dtypes |= 1u << RABBET_DTYPE_BF16;
  return dtypes;
}

// The network as simple as it gets; the IR does not change any more.
rabbet_status_t rabbet_built_prepare(const rabbet_built_t* built) {
  rabbet_build_t* build = built->build;
  build->extra_dtypes = build_extra_dtypes(build);
  RABBET_RETURN_IF_ERROR(build_simplify(build));
  if (!*built->name)
    RABBET_RETURN_IF_ERROR(rabbet_progress_step(build, "Building", 0));
  rabbet_ir_show_refittable(&build->ir);
  RABBET_RETURN_IF_ERROR(rabbet_pass_implicit(build));
  RABBET_RETURN_IF_ERROR(rabbet_pass_operands(build));
  size_t values = build->ir.values.count;
  RABBET_RETURN_IF_ERROR(rabbet_constants_create(build, values));
  return rabbet_arena_allocate_array(
      &build->arena, values, sizeof(*build->numbers), (void**)&build->numbers);
}

// ---- Tuning -----------------------------------------------------------------

// A plugin that asks for isolation first runs in a helper. A timed choice has
// done so; a choice without a time is the only one.
static rabbet_status_t build_isolate_plugin(rabbet_build_t* build,
                                            const rabbet_pick_t* pick) {
  bool harmful = false;
  size_t count = 0;
  RABBET_RETURN_IF_ERROR(
      rabbet_trials_try(build->trials, pick->unit, pick->choice, &harmful));
  if (!harmful) return rabbet_ok();
  const rabbet_culprit_t* culprits =
      rabbet_trials_culprits(build->trials, &count);
  return RABBET_STATUS(RABBET_STATUS_PLUGIN,
                       "layer '%s': its plugin failed when it was tried in the "
                       "helper program: %s",
                       pick->unit->name, culprits[count - 1].reason);
}

// Runs each operator of the user once: compilers that start at the first call,
// and mistakes in its body, belong to the build. Timed operators have run
// before; those with one way to run, or with times in a cache, have not.
static rabbet_status_t build_try_plugins(rabbet_build_t* build,
                                         const rabbet_layout_t* layout) {
  if (!build->config->options[RABBET_BUILDER_OPTION_TRY_PLUGINS])
    return rabbet_ok();
  for (size_t i = 0; i < layout->steps.count; ++i) {
    const rabbet_pick_t* pick = &layout->steps.data[i].pick;
    if (!pick->choice->candidate.kernel || pick->unit->node_count == 0 ||
        !pick->unit->nodes[0]->plugin)
      continue;
    if (pick->choice->us < 0)
      RABBET_RETURN_IF_ERROR(build_isolate_plugin(build, pick));
    rabbet_status_t status =
        rabbet_bench_run_once(build, pick->unit, pick->choice);
    if (rabbet_tuner_refuses_estimates(pick->unit, status)) {
      rabbet_log(build->logger, RABBET_SEVERITY_WARNING,
                 "at estimates of data-dependent sizes: %s",
                 rabbet_status_message(status));
      rabbet_status_ignore(status);
      status = rabbet_ok();
    }
    RABBET_RETURN_IF_ERROR(status);
  }
  return rabbet_ok();
}

rabbet_status_t rabbet_built_tune(const rabbet_built_t* built,
                                  rabbet_built_list_t* sequences) {
  RABBET_RETURN_IF_ERROR(rabbet_build_choose(built->build, built->result));
  RABBET_RETURN_IF_ERROR(
      build_try_plugins(built->build, &built->result->layout));
  built->result->totals.tactics = rabbet_bench_peak(built->build->bench);
  return rabbet_built_bodies(built, sequences);
}
