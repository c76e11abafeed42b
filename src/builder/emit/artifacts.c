#include "builder/emit/artifacts.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/map.h"
#include "builder/measure/bench.h"
#include "builder/measure/compile_ahead.h"

typedef struct collector_t {
  rabbet_build_t* build;
  rabbet_plan_t* plan;
  RABBET_VEC(rabbet_artifact_t) artifacts;  // in the plan's arena
  rabbet_map_t numbers;                     // by key, from 1
  RABBET_VEC(int32_t) uses;                 // of the current step
  // Kept until the last one: kernels share compiled programs.
  RABBET_VEC(rabbet_bench_kernel_t) kernels;
} collector_t;

static rabbet_status_t collect_keep(collector_t* collector,
                                    const rabbet_artifact_t* artifact,
                                    size_t* out_number) {
  rabbet_arena_t* arena = &collector->plan->arena;
  rabbet_artifact_t copy = *artifact;
  rabbet_hash_t* key = NULL;
  RABBET_RETURN_IF_ERROR(
      rabbet_arena_strdup(arena, artifact->name, &copy.name));
  RABBET_RETURN_IF_ERROR(rabbet_arena_copy(arena, artifact->data,
                                           artifact->size, (void**)&copy.data));
  RABBET_RETURN_IF_ERROR(
      rabbet_arena_copy(arena, &copy.key, sizeof(copy.key), (void**)&key));
  RABBET_RETURN_IF_ERROR(RABBET_VEC_PUSH(collector->build->allocator,
                                         &collector->artifacts, copy));
  *out_number = collector->artifacts.count;
  return rabbet_map_set(&collector->numbers, (const char*)key, sizeof(*key),
                        (void*)(uintptr_t)*out_number);
}

static rabbet_status_t collect_add(void* context,
                                   const rabbet_artifact_t* artifact) {
  collector_t* collector = context;
  size_t number = (size_t)(uintptr_t)rabbet_map_get(
      &collector->numbers, (const char*)&artifact->key, sizeof(artifact->key));
  if (number == 0)
    RABBET_RETURN_IF_ERROR(collect_keep(collector, artifact, &number));
  assert(number > 0 && number <= collector->artifacts.count);
  int32_t use = (int32_t)number - 1;
  for (size_t i = 0; i < collector->uses.count; ++i)
    if (collector->uses.data[i] == use) return rabbet_ok();
  return RABBET_VEC_PUSH(collector->build->allocator, &collector->uses, use);
}

static rabbet_status_t collect_kernel(collector_t* collector,
                                      const rabbet_pick_t* pick) {
  rabbet_build_t* build = collector->build;
  const rabbet_kernel_class_t* class = pick->choice->candidate.kernel;
  if (!class->artifacts) return rabbet_ok();
  rabbet_group_t* group = NULL;  // outlives its kernel
  RABBET_RETURN_IF_ERROR(
      rabbet_arena_allocate(&build->arena, sizeof(*group), (void**)&group));
  RABBET_RETURN_IF_ERROR(
      rabbet_unit_instantiate(build, pick->unit, pick->choice, group));
  RABBET_RETURN_IF_ERROR(
      RABBET_VEC_RESERVE(build->allocator, &collector->kernels, 1));
  rabbet_bench_kernel_t* kernel =
      &collector->kernels.data[collector->kernels.count];
  RABBET_RETURN_IF_ERROR(
      rabbet_bench_prepare(build, pick->unit, pick->choice, group, kernel));
  ++collector->kernels.count;
  return class->artifacts(kernel->kernel,
                          (rabbet_artifact_sink_t){collector, collect_add});
}

static rabbet_status_t collect_calls(collector_t* collector,
                                     const rabbet_plan_step_t* step) {
  rabbet_device_t* device = collector->build->device;
  return device->vtable->loop_artifacts &&
                 rabbet_op_is(step->group.nodes[0].op, RABBET_OP_LOOP)
             ? device->vtable->loop_artifacts(
                   device, (rabbet_artifact_sink_t){collector, collect_add})
             : rabbet_ok();
}

static rabbet_status_t collect_step(collector_t* collector,
                                    const rabbet_pick_t* pick,
                                    rabbet_plan_step_t* step) {
  collector->uses.count = 0;
  RABBET_RETURN_IF_ERROR(step->call_count > 0
                             ? collect_calls(collector, step)
                             : collect_kernel(collector, pick));
  step->artifact_count = collector->uses.count;
  return rabbet_arena_copy(&collector->plan->arena, collector->uses.data,
                           collector->uses.count * sizeof(int32_t),
                           (void**)&step->artifacts);
}

static rabbet_status_t collect_steps(collector_t* collector,
                                     const rabbet_emit_sequence_t* sequence) {
  const rabbet_layout_t* layout = sequence->layout;
  const rabbet_plan_sequence_t* made =
      &collector->plan->sequences[sequence->number];
  rabbet_plan_step_t* step = made->steps;
  collector->build = sequence->build;
  for (size_t s = 0; s < layout->steps.count; ++s) {
    const rabbet_pick_t* pick = &layout->steps.data[s].pick;
    if (!pick->choice->candidate.kernel) continue;
    RABBET_RETURN_IF_ERROR(RABBET_ANNOTATE(collect_step(collector, pick, step),
                                           "artifacts of '%s' (kernel '%s')",
                                           step->name, step->kernel));
    ++step;
  }
  assert(step == made->steps + made->step_count);
  return rabbet_ok();
}

// Compiles what no kernel was timed with (times came from a cache, or there was
// one way only) and what timing does not need.
static rabbet_status_t collect_compile(const rabbet_emit_sequence_t* sequence) {
  const rabbet_layout_t* layout = sequence->layout;
  rabbet_build_t* build = sequence->build;
  rabbet_picks_t picks = {0};
  rabbet_map_t known;
  rabbet_status_t status = rabbet_ok();
  rabbet_map_initialize(build->allocator, &known);
  for (size_t s = 0; rabbet_is_ok(status) && s < layout->steps.count; ++s)
    status =
        RABBET_VEC_PUSH(build->allocator, &picks, layout->steps.data[s].pick);
  if (rabbet_is_ok(status))
    status = rabbet_compile_ahead(build, picks.data, picks.count, &known, true);
  rabbet_map_deinitialize(&known);
  rabbet_vec_free(build->allocator, &picks);
  return status;
}

// ---- In order of key, so that equal builds give equal bytes -----------------

typedef struct ranked_t {
  rabbet_artifact_t artifact;
  int32_t number;
} ranked_t;

static int collect_compare(const void* a, const void* b) {
  return rabbet_hash_compare(((const ranked_t*)a)->artifact.key,
                             ((const ranked_t*)b)->artifact.key);
}

static int collect_compare_numbers(const void* a, const void* b) {
  int32_t left = *(const int32_t*)a, right = *(const int32_t*)b;
  return (left > right) - (left < right);
}

static rabbet_status_t collect_sort(collector_t* collector) {
  rabbet_plan_t* plan = collector->plan;
  size_t count = collector->artifacts.count;
  ranked_t* ranked = NULL;
  int32_t* places = NULL;
  RABBET_RETURN_IF_ERROR(rabbet_arena_allocate_array(
      &collector->build->arena, count, sizeof(*ranked), (void**)&ranked));
  RABBET_RETURN_IF_ERROR(rabbet_arena_allocate_array(
      &collector->build->arena, count, sizeof(*places), (void**)&places));
  RABBET_RETURN_IF_ERROR(rabbet_arena_allocate_array(
      &plan->arena, count, sizeof(*plan->artifacts), (void**)&plan->artifacts));
  for (size_t i = 0; i < count; ++i)
    ranked[i] = (ranked_t){collector->artifacts.data[i], (int32_t)i};
  if (count > 0) qsort(ranked, count, sizeof(*ranked), collect_compare);
  for (size_t i = 0; i < count; ++i) {
    assert(i == 0 || rabbet_hash_compare(ranked[i - 1].artifact.key,
                                         ranked[i].artifact.key) < 0);
    plan->artifacts[i] = ranked[i].artifact;
    places[ranked[i].number] = (int32_t)i;
  }
  plan->artifact_count = count;
  for (size_t s = 0; s < rabbet_plan_step_count(plan); ++s) {
    // The copy that collect_step made.
    int32_t* uses = (int32_t*)(uintptr_t)rabbet_plan_step(plan, s)->artifacts;
    for (size_t i = 0; i < rabbet_plan_step(plan, s)->artifact_count; ++i) {
      assert(uses[i] >= 0 && (size_t)uses[i] < count);
      uses[i] = places[uses[i]];
    }
    if (uses)
      qsort(uses, rabbet_plan_step(plan, s)->artifact_count, sizeof(*uses),
            collect_compare_numbers);
  }
  return rabbet_ok();
}

rabbet_status_t rabbet_artifacts_collect(
    const rabbet_emit_sequence_t* sequences, size_t count,
    rabbet_plan_t* plan) {
  rabbet_build_t* build = sequences[0].build;
  collector_t collector = {.build = build, .plan = plan};
  rabbet_map_initialize(build->allocator, &collector.numbers);
  rabbet_status_t status = rabbet_ok();
  for (size_t i = 0; i < count && rabbet_is_ok(status); ++i) {
    status = collect_compile(&sequences[i]);
    if (rabbet_is_ok(status)) status = collect_steps(&collector, &sequences[i]);
  }
  collector.build = build;
  if (rabbet_is_ok(status)) status = collect_sort(&collector);
  while (collector.kernels.count > 0)
    rabbet_bench_unprepare(&collector.kernels.data[--collector.kernels.count]);
  rabbet_vec_free(build->allocator, &collector.kernels);
  rabbet_vec_free(build->allocator, &collector.uses);
  rabbet_vec_free(build->allocator, &collector.artifacts);
  rabbet_map_deinitialize(&collector.numbers);
  return status;
}
