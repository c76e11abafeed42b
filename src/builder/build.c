// A build from end to end.

#include "builder/build.h"

#include <string.h>

#include "base/thread.h"
#include "builder/bench.h"
#include "builder/emit.h"
#include "builder/passes.h"
#include "builder/place.h"
#include "builder/report.h"
#include "builder/tune.h"

typedef struct result_t {
  rabbet_solution_t solution;
  rabbet_layout_t layout;
  rabbet_emitted_t emitted;
  rabbet_report_totals_t totals;
} result_t;

static uint32_t build_extra_dtypes(const rabbet_build_t* build) {
  int64_t flags = build->config->options[RABBET_BUILDER_OPTION_FLAGS];
  uint32_t dtypes = 0;
  if (build->ir.strongly_typed) return 0;
  if (flags >> RABBET_BUILDER_FP16 & 1) dtypes |= 1u << RABBET_DTYPE_HALF;
  if (flags >> RABBET_BUILDER_BF16 & 1) dtypes |= 1u << RABBET_DTYPE_BF16;
  return dtypes;
}

static rabbet_status_t build_open(rabbet_build_t* build) {
  const rabbet_builder_config_t* config = build->config;
  RABBET_RETURN_IF_ERROR(
      rabbet_device_create(config->device, build->allocator, &build->device));
  build->threads = (int)config->options[RABBET_BUILDER_OPTION_THREADS];
  if (build->threads == 0) build->threads = rabbet_device_default_threads();
  build->level = (int)config->options[RABBET_BUILDER_OPTION_OPTIMIZATION_LEVEL];
  build->cache = config->cache;
  rabbet_timing_cache_retain(build->cache);
  if (!build->cache)
    RABBET_RETURN_IF_ERROR(
        rabbet_timing_cache_create(NULL, 0, build->allocator, &build->cache));
  RABBET_RETURN_IF_ERROR(rabbet_bench_create(build, &build->bench));
  return rabbet_tuner_create(build);
}

static void build_close(rabbet_build_t* build) {
  rabbet_tuner_destroy(build->tuner);
  rabbet_bench_destroy(build->bench);
  rabbet_timing_cache_release(build->cache);
  rabbet_ir_deinitialize(&build->ir);
  rabbet_device_release(build->device);
  rabbet_arena_deinitialize(&build->arena);
}

// ---- Phases -----------------------------------------------------------------

typedef rabbet_status_t (*pass_fn_t)(rabbet_build_t* build);

static const struct {
  const char* name;
  pass_fn_t run;
} build_passes[] = {
    {"shapes", rabbet_pass_shapes}, {"fold", rabbet_pass_fold},
    {"shapes", rabbet_pass_shapes}, {"simplify", rabbet_pass_simplify},
    {"share", rabbet_pass_share},   {"simplify", rabbet_pass_simplify},
    {"fold", rabbet_pass_fold},
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
               "after pass '%s': %zu layers", build_passes[i].name,
               build->ir.nodes.count);
  }
  rabbet_progress_end(build, phase);
  return status;
}

static rabbet_status_t build_choose(rabbet_build_t* build, result_t* result) {
  size_t values = build->ir.values.count;
  RABBET_RETURN_IF_ERROR(rabbet_arena_allocate_array(
      &build->arena, values, sizeof(*build->constants),
      (void**)&build->constants));
  RABBET_RETURN_IF_ERROR(rabbet_ranges_compute(build));
  RABBET_RETURN_IF_ERROR(rabbet_tuner_explore(build));
  RABBET_RETURN_IF_ERROR(rabbet_tuner_solve(build, 1.0, &result->solution));
  return rabbet_place(build, &result->solution, &result->layout);
}

static rabbet_status_t build_write(rabbet_build_t* build,
                                   const rabbet_network_t* network,
                                   result_t* result,
                                   rabbet_allocator_t allocator,
                                   void** out_plan, size_t* out_size) {
  RABBET_RETURN_IF_ERROR(
      rabbet_emit(build, network, &result->layout, &result->emitted));
  for (size_t i = 0; i < result->emitted.blobs.count; ++i)
    result->totals.weights += (size_t)result->emitted.blobs.data[i].size;
  return rabbet_plan_write(result->emitted.plan, result->emitted.blobs.data,
                           result->emitted.blobs.count, allocator, out_plan,
                           out_size);
}

static rabbet_status_t build_run(rabbet_build_t* build,
                                 rabbet_network_t* network, result_t* result,
                                 rabbet_allocator_t allocator, void** out_plan,
                                 size_t* out_size) {
  RABBET_RETURN_IF_ERROR(
      rabbet_ir_import(network, &build->arena, build->allocator, &build->ir));
  result->totals.layer_count = network->layers.count;
  RABBET_RETURN_IF_ERROR(build_open(build));
  build->extra_dtypes = build_extra_dtypes(build);
  static const char phase[] = "Building";
  rabbet_progress_start(build, phase, NULL, 3);
  rabbet_status_t status = build_simplify(build);
  if (rabbet_is_ok(status)) status = rabbet_progress_step(build, phase, 0);
  if (rabbet_is_ok(status)) status = build_choose(build, result);
  if (rabbet_is_ok(status)) status = rabbet_progress_step(build, phase, 1);
  if (rabbet_is_ok(status))
    status = build_write(build, network, result, allocator, out_plan, out_size);
  if (rabbet_is_ok(status)) status = rabbet_progress_step(build, phase, 2);
  rabbet_progress_end(build, phase);
  return status;
}

static rabbet_status_t build_report(rabbet_build_t* build, result_t* result,
                                    rabbet_allocator_t allocator,
                                    rabbet_build_report_t** out_report) {
  return rabbet_report_create(build, &result->solution, &result->layout,
                              &result->totals, allocator, out_report);
}

rabbet_status_t rabbet_build_plan(rabbet_network_t* network,
                                  rabbet_builder_config_t* config,
                                  rabbet_allocator_t allocator, void** out_plan,
                                  size_t* out_size,
                                  rabbet_build_report_t** out_report) {
  *out_plan = NULL;
  *out_size = 0;
  if (out_report) *out_report = NULL;
  int64_t start = rabbet_time_ns();
  rabbet_build_t build = {
      .allocator = allocator, .config = config, .logger = config->logger};
  rabbet_arena_initialize(allocator, &build.arena);
  result_t result = {.totals = {.whole_us = -1}};
  rabbet_status_t status =
      build_run(&build, network, &result, allocator, out_plan, out_size);
  result.totals.plan = *out_size;
  result.totals.seconds = (double)(rabbet_time_ns() - start) * 1e-9;
  if (rabbet_is_ok(status) && out_report)
    status = build_report(&build, &result, allocator, out_report);
  if (!rabbet_is_ok(status)) {
    rabbet_free_aligned(allocator, *out_plan, RABBET_PLAN_ALIGNMENT);
    *out_plan = NULL;
    *out_size = 0;
  }
  rabbet_emitted_deinitialize(&build, &result.emitted);
  rabbet_layout_deinitialize(&build, &result.layout);
  build_close(&build);
  return status;
}
