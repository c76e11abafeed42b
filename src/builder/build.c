// A build from end to end.

#include "builder/build.h"

#include "base/thread.h"
#include "builder/emit/carried_code.h"
#include "builder/emit/emit.h"
#include "builder/measure/bench.h"
#include "builder/output.h"
#include "builder/sequence.h"
#include "builder/unroll/branches.h"
#include "builder/unroll/unroll.h"

static rabbet_status_t build_report_selection(
    const rabbet_built_list_t* sequences) {
  rabbet_build_t* build = sequences->data[0]->build;
  const rabbet_solution_t** solutions = NULL;
  RABBET_RETURN_IF_ERROR(rabbet_arena_allocate_array(
      &build->arena, sequences->count, sizeof(*solutions), (void**)&solutions));
  for (size_t i = 0; i < sequences->count; ++i)
    solutions[i] = &sequences->data[i]->result->solution;
  return rabbet_tuner_report_selection(build, solutions, sequences->count);
}

static rabbet_status_t build_deliver(const rabbet_build_t* build,
                                     rabbet_emitted_t* emitted,
                                     rabbet_report_totals_t* totals,
                                     const rabbet_build_output_t* output) {
  for (size_t i = 0; i < emitted->blobs.count; ++i)
    totals->weights += (size_t)emitted->blobs.data[i].size;
  bool strip = build->config->options[RABBET_BUILDER_OPTION_FLAGS] >>
                   RABBET_BUILDER_STRIP_PLAN &
               1;
  const rabbet_plan_contents_t contents = rabbet_emitted_contents(
      emitted, strip ? emitted->kept_blobs : emitted->blobs.count);
  return output->deliver(output->context, &contents, build->allocator,
                         &totals->plan);
}

static rabbet_status_t build_write(const rabbet_built_list_t* sequences,
                                   rabbet_report_totals_t* totals,
                                   const rabbet_build_output_t* output) {
  rabbet_build_t* build = sequences->data[0]->build;
  rabbet_emit_sequence_t* list = NULL;
  rabbet_emitted_t emitted = {0};
  RABBET_RETURN_IF_ERROR(rabbet_arena_allocate_array(
      &build->arena, sequences->count, sizeof(*list), (void**)&list));
  for (size_t i = 0; i < sequences->count; ++i) {
    const rabbet_built_t* built = sequences->data[i];
    list[i] = (rabbet_emit_sequence_t){.name = built->name,
                                       .number = (int32_t)i,
                                       .profiles = built->profiles,
                                       .build = built->build,
                                       .network = built->network,
                                       .layout = &built->result->layout};
  }
  rabbet_phase_t before = rabbet_phases_enter(build->phases, RABBET_PHASE_PLAN);
  rabbet_status_t status = rabbet_emit(list, sequences->count, &emitted);
  if (rabbet_is_ok(status))
    status = build_deliver(build, &emitted, totals, output);
  rabbet_emitted_deinitialize(build, &emitted);
  rabbet_phases_enter(build->phases, before);
  return status;
}

static rabbet_status_t build_phases(rabbet_built_list_t* sequences,
                                    rabbet_report_totals_t* totals,
                                    const rabbet_build_output_t* output) {
  static const char phase[] = "Building";
  rabbet_build_t* build = sequences->data[0]->build;
  rabbet_progress_start(build, phase, NULL, 3);
  rabbet_status_t status = rabbet_built_entries(sequences->data[0], sequences);
  if (rabbet_is_ok(status)) status = build_report_selection(sequences);
  if (rabbet_is_ok(status)) status = rabbet_progress_step(build, phase, 1);
  if (rabbet_is_ok(status)) status = build_write(sequences, totals, output);
  if (rabbet_is_ok(status)) status = rabbet_progress_step(build, phase, 2);
  rabbet_progress_end(build, phase);
  return status;
}

static rabbet_status_t build_report(const rabbet_built_list_t* sequences,
                                    rabbet_report_totals_t* totals,
                                    int64_t start,
                                    const rabbet_build_output_t* output) {
  rabbet_report_sequence_t* list = NULL;
  if (!output->report) return rabbet_ok();
  RABBET_RETURN_IF_ERROR(rabbet_arena_allocate_array(
      &sequences->data[0]->build->arena, sequences->count, sizeof(*list),
      (void**)&list));
  for (size_t i = 0; i < sequences->count; ++i) {
    const rabbet_built_t* built = sequences->data[i];
    totals->layer_count += built->network->layers.count;
    if (built->result->totals.tactics > totals->tactics)
      totals->tactics = built->result->totals.tactics;
    list[i] = (rabbet_report_sequence_t){.name = built->name,
                                         .build = built->build,
                                         .solution = &built->result->solution,
                                         .layout = &built->result->layout};
  }
  totals->seconds = (double)(rabbet_time_ns() - start) * 1e-9;
  const rabbet_report_t report = {
      .sequences = list, .count = sequences->count, .totals = totals};
  return rabbet_report_create(&report, output->allocator, output->report);
}

// The first is the caller's to close.
static void build_close_sequences(rabbet_built_list_t* sequences) {
  for (size_t i = sequences->count; i-- > 1;) {
    rabbet_built_t* built = sequences->data[i];
    if (built->depth > 0)
      rabbet_built_close_body(built);
    else
      rabbet_built_close_entry(built);
  }
}

// `flat` is the network without loops and conditionals.
static rabbet_status_t build_run(rabbet_build_t* build,
                                 rabbet_network_t* network,
                                 rabbet_network_t* flat,
                                 rabbet_built_result_t* result, int64_t start,
                                 const rabbet_build_output_t* output) {
  rabbet_built_t main = {
      .name = "", .build = build, .network = flat, .result = result};
  rabbet_built_list_t sequences = {0};
  const rabbet_builder_config_t* config = build->config;
  RABBET_RETURN_IF_ERROR(rabbet_ir_import(flat, rabbet_build_refit_flags(build),
                                          &build->arena, build->allocator,
                                          &build->ir));
  RABBET_RETURN_IF_ERROR(rabbet_collect_carried_code(build, network));
  RABBET_RETURN_IF_ERROR(rabbet_build_open(build));
  RABBET_RETURN_IF_ERROR(RABBET_VEC_PUSH(build->allocator, &sequences, &main));
  rabbet_status_t status = build_phases(&sequences, &result->totals, output);
  for (size_t i = 0; rabbet_is_ok(status) && i < sequences.count; ++i)
    rabbet_bench_join_starved(build->bench, sequences.data[i]->build->bench);
  if (rabbet_is_ok(status)) rabbet_bench_warn_starved(build);
  if (rabbet_is_ok(status))
    status = build_report(&sequences, &result->totals, start, output);
  build_close_sequences(&sequences);
  build->config = config;
  rabbet_vec_free(build->allocator, &sequences);
  return status;
}

rabbet_status_t rabbet_build_deliver(rabbet_network_t* network,
                                     rabbet_builder_config_t* config,
                                     const rabbet_build_output_t* output) {
  int64_t start = rabbet_time_ns();
  rabbet_allocator_t allocator = output->allocator;
  rabbet_phases_t phases;
  rabbet_build_t build = {.allocator = allocator,
                          .config = config,
                          .logger = config->logger,
                          .phases = &phases};
  rabbet_phases_start(&phases);
  rabbet_arena_initialize(allocator, &build.arena);
  rabbet_built_result_t result = {.totals = {.whole = {.us = -1}}};
  rabbet_network_t *unrolled = NULL, *flat = NULL;
  rabbet_status_t status = rabbet_network_check_owners(network);
  if (rabbet_is_ok(status))
    status = rabbet_network_unroll(network, allocator, &unrolled);
  if (rabbet_is_ok(status))
    status = rabbet_network_split_branches(unrolled, allocator, &flat);
  if (rabbet_is_ok(status))
    status = build_run(&build, network, flat, &result, start, output);
  rabbet_layout_deinitialize(&build, &result.layout);
  rabbet_build_close(&build);
  if (build.device && build.device->vtable->release_threads)
    build.device->vtable->release_threads(build.device);
  rabbet_device_release(build.device);
  rabbet_network_release(flat);
  rabbet_network_release(unrolled);
  return status;
}
