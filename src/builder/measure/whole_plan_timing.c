#include "builder/measure/whole_plan_timing.h"

#include <assert.h>
#include <limits.h>
#include <string.h>

#include "base/map.h"
#include "base/math.h"
#include "base/strbuf.h"
#include "builder/measure/bench.h"
#include "builder/measure/replay.h"
#include "builder/propose/propose.h"
#include "core/view.h"

#define TIMER_ROUNDS 12
// Rounds stop after this time, but not before the third round. If samples were
// disturbed, rounds go on for twice this time, but at most TIMER_MOST_ROUNDS.
#define TIMER_BUDGET_NS ((int64_t)3000000000)
#define TIMER_MOST_ROUNDS 48
// Undisturbed samples of each step, or of a plan timed in one piece.
#define TIMER_WANTED 3

// ---- Memory -----------------------------------------------------------------

static size_t memory_boundary(const rabbet_layout_step_t* step) {
  return step->pick.unit->group.input_count +
         step->pick.unit->group.output_count;
}

static rabbet_status_t memory_slot_bytes(const rabbet_build_t* build,
                                         const rabbet_slot_t* slot,
                                         size_t* out_bytes) {
  rabbet_dims_t opt, min, max;
  RABBET_RETURN_IF_ERROR(rabbet_ranges_dims(
      build, NULL, rabbet_ir_value(&build->ir, slot->value), &opt, &min, &max));
  return rabbet_tensor_bytes(slot->type.dtype, slot->type.format, &opt,
                             out_bytes);
}

static bool memory_in_arena(const rabbet_slot_t* slot) {
  return slot->alias < 0 && slot->input < 0 && slot->output < 0 &&
         !slot->is_constant;
}

static void memory_lifetimes(const rabbet_layout_t* layout,
                             rabbet_memory_request_t* requests) {
  for (size_t i = 0; i < layout->slots.count; ++i)
    requests[i].first = requests[i].last = -1;
  for (size_t s = 0; s < layout->steps.count; ++s)
    for (size_t i = 0; i < memory_boundary(&layout->steps.data[s]); ++i) {
      int32_t root = rabbet_layout_root(layout, layout->steps.data[s].slots[i]);
      if (requests[root].first < 0) requests[root].first = (int32_t)s;
      requests[root].last = (int32_t)s;
      assert(requests[root].first <= requests[root].last);
    }
}

rabbet_status_t rabbet_whole_plan_memory(
    rabbet_build_t* build, const rabbet_layout_t* layout,
    rabbet_whole_plan_memory_t* out_memory) {
  size_t count = layout->slots.count;
  rabbet_arena_t* arena = &build->arena;
  rabbet_memory_request_t* requests = NULL;
  *out_memory = (rabbet_whole_plan_memory_t){0};
  RABBET_RETURN_IF_ERROR(rabbet_arena_allocate_array(
      arena, count, sizeof(*requests), (void**)&requests));
  RABBET_RETURN_IF_ERROR(rabbet_arena_allocate_array(
      arena, count, sizeof(size_t), (void**)&out_memory->offsets));
  RABBET_RETURN_IF_ERROR(rabbet_arena_allocate_array(
      arena, count, sizeof(size_t), (void**)&out_memory->sizes));
  memory_lifetimes(layout, requests);
  for (size_t i = 0; i < count; ++i) {
    const rabbet_slot_t* slot = &layout->slots.data[i];
    RABBET_RETURN_IF_ERROR(
        memory_slot_bytes(build, slot, &out_memory->sizes[i]));
    bool used = requests[i].first >= 0;
    requests[i].size = used && memory_in_arena(slot) ? out_memory->sizes[i] : 0;
    if (!used) requests[i].first = requests[i].last = 0;
  }
  RABBET_RETURN_IF_ERROR(rabbet_plan_memory(requests, count, build->allocator,
                                            &out_memory->total));
  for (size_t i = 0; i < count; ++i)
    out_memory->offsets[i] = requests[i].offset;
  return rabbet_ok();
}

// ---- Running ----------------------------------------------------------------

typedef struct timed_step_t {
  rabbet_bench_kernel_t* kernel;  // NULL: a view
  rabbet_kernel_call_t call;
  // Where steps are timed one by one: the last sample, and all.
  double ns;
  bool is_interrupted;
  rabbet_samples_t samples;
} timed_step_t;

typedef struct timed_plan_t {
  const rabbet_layout_t* layout;
  timed_step_t* steps;
  rabbet_samples_t samples;  // of runs; or the sums of the steps'
  rabbet_replay_t replay;
  rabbet_hash_t key;
  bool cacheable;
  rabbet_timing_t timing;
} timed_plan_t;

// Plans share kernels: most of their choices are the same.
typedef struct plan_timer_t {
  rabbet_build_t* build;
  timed_plan_t* plans;
  size_t count;
  rabbet_map_t kernels;  // by unit and choice
  rabbet_map_t weights;  // memory of constants, by address and size
  size_t workspace;
  void* workspace_memory;
  rabbet_watch_t watch;
} plan_timer_t;

typedef struct kernel_key_t {
  const rabbet_unit_t* unit;
  const rabbet_choice_t* choice;
} kernel_key_t;

typedef struct timed_kernel_t {
  kernel_key_t key;
  rabbet_group_t group;
  rabbet_bench_kernel_t kernel;
} timed_kernel_t;

static rabbet_status_t timer_kernel(plan_timer_t* timer,
                                    const rabbet_pick_t* pick,
                                    rabbet_bench_kernel_t** out_kernel) {
  rabbet_build_t* build = timer->build;
  const kernel_key_t key = {pick->unit, pick->choice};
  timed_kernel_t* found =
      rabbet_map_get(&timer->kernels, (const char*)&key, sizeof(key));
  if (!found) {
    RABBET_RETURN_IF_ERROR(
        rabbet_arena_allocate(&build->arena, sizeof(*found), (void**)&found));
    found->key = key;
    RABBET_RETURN_IF_ERROR(rabbet_unit_instantiate(
        build, pick->unit, pick->choice, &found->group));
    RABBET_RETURN_IF_ERROR(rabbet_bench_prepare(build, pick->unit, pick->choice,
                                                &found->group, &found->kernel));
    rabbet_status_t status = rabbet_map_set(
        &timer->kernels, (const char*)&found->key, sizeof(key), found);
    if (!rabbet_is_ok(status)) {
      rabbet_bench_unprepare(&found->kernel);
      return status;
    }
  }
  if (found->kernel.workspace > timer->workspace)
    timer->workspace = found->kernel.workspace;
  *out_kernel = &found->kernel;
  return rabbet_ok();
}

// Elements that the host knows, as a kernel would find them in memory.
static rabbet_status_t timer_host_slot(rabbet_build_t* build,
                                       const rabbet_slot_t* slot, size_t bytes,
                                       void** out_memory) {
  const rabbet_ir_value_t* value = rabbet_ir_value(&build->ir, slot->value);
  int64_t* numbers = NULL;
  void* data = NULL;
  RABBET_RETURN_IF_ERROR(
      rabbet_ranges_host_values(build, NULL, value, &numbers));
  RABBET_RETURN_IF_ERROR(
      rabbet_arena_allocate(&build->arena, bytes + 1, &data));
  for (size_t i = 0; numbers && i < value->value_count; ++i)
    rabbet_store_int64(slot->type.dtype, data, (int64_t)i, numbers[i]);
  return rabbet_bench_upload(build, data, bytes, out_memory);
}

// Plans share constants: most weights are the same in all of them.
static rabbet_status_t timer_constant(plan_timer_t* timer,
                                      const rabbet_slot_t* slot,
                                      void** out_memory) {
  rabbet_build_t* build = timer->build;
  // Parts of one constant may begin at one address.
  struct {
    const void* data;
    size_t bytes;
  } key = {NULL, 0}, *copy = NULL;
  RABBET_RETURN_IF_ERROR(
      rabbet_constant_convert(build, rabbet_ir_value(&build->ir, slot->value),
                              slot->type, &key.data, &key.bytes));
  *out_memory = rabbet_map_get(&timer->weights, (const char*)&key, sizeof(key));
  if (*out_memory) return rabbet_ok();
  RABBET_RETURN_IF_ERROR(
      rabbet_bench_upload(build, key.data, key.bytes, out_memory));
  RABBET_RETURN_IF_ERROR(
      rabbet_arena_copy(&build->arena, &key, sizeof(key), (void**)&copy));
  return rabbet_map_set(&timer->weights, (const char*)copy, sizeof(key),
                        *out_memory);
}

static rabbet_status_t timer_slot_memory(
    plan_timer_t* timer, const rabbet_layout_t* layout,
    const rabbet_whole_plan_memory_t* memory, uint8_t* arena, size_t i,
    void** out_memory) {
  rabbet_build_t* build = timer->build;
  const rabbet_slot_t* slot = &layout->slots.data[i];
  if (slot->is_constant) return timer_constant(timer, slot, out_memory);
  if (slot->is_host_only && slot->output < 0)
    return timer_host_slot(build, slot, memory->sizes[i], out_memory);
  if (slot->input >= 0 || slot->output >= 0)
    return rabbet_bench_acquire(
        build, slot->input >= 0 ? slot->type.dtype : RABBET_DTYPE_NONE,
        memory->sizes[i], out_memory);
  assert(memory->offsets[i] <= memory->total);
  *out_memory = arena + memory->offsets[i];
  return rabbet_ok();
}

static rabbet_status_t timer_bind(plan_timer_t* timer, timed_plan_t* plan) {
  rabbet_build_t* build = timer->build;
  const rabbet_layout_t* layout = plan->layout;
  rabbet_whole_plan_memory_t memory;
  void* arena = NULL;
  void** addresses = NULL;
  RABBET_RETURN_IF_ERROR(rabbet_whole_plan_memory(build, layout, &memory));
  RABBET_RETURN_IF_ERROR(rabbet_bench_acquire(build, RABBET_DTYPE_INT32,
                                              memory.total + 1, &arena));
  RABBET_RETURN_IF_ERROR(rabbet_arena_allocate_array(
      &build->arena, layout->slots.count, sizeof(void*), (void**)&addresses));
  for (size_t i = 0; i < layout->slots.count; ++i)
    if (layout->slots.data[i].alias < 0)
      RABBET_RETURN_IF_ERROR(
          timer_slot_memory(timer, layout, &memory, arena, i, &addresses[i]));
  for (size_t s = 0; s < layout->steps.count; ++s) {
    const rabbet_layout_step_t* step = &layout->steps.data[s];
    size_t count = memory_boundary(step);
    void** bound = NULL;
    RABBET_RETURN_IF_ERROR(rabbet_arena_allocate_array(
        &build->arena, count, sizeof(void*), (void**)&bound));
    for (size_t i = 0; i < count; ++i)
      bound[i] =
          (uint8_t*)addresses[rabbet_layout_root(layout, step->slots[i])] +
          rabbet_layout_offset(layout, step->slots[i]);
    plan->steps[s].call.inputs = bound;
    plan->steps[s].call.outputs = bound + step->pick.unit->group.input_count;
  }
  return rabbet_ok();
}

// Sequences are timed by themselves.
static bool timer_has_kernel(const rabbet_layout_step_t* step) {
  const rabbet_kernel_class_t* kernel = step->pick.choice->candidate.kernel;
  return kernel && kernel != &rabbet_call_class;
}

static rabbet_status_t timer_prepare(plan_timer_t* timer, timed_plan_t* plan) {
  const rabbet_layout_t* layout = plan->layout;
  RABBET_RETURN_IF_ERROR(
      rabbet_arena_allocate_array(&timer->build->arena, layout->steps.count,
                                  sizeof(timed_step_t), (void**)&plan->steps));
  for (size_t s = 0; s < layout->steps.count; ++s)
    if (timer_has_kernel(&layout->steps.data[s]))
      RABBET_RETURN_IF_ERROR(timer_kernel(timer, &layout->steps.data[s].pick,
                                          &plan->steps[s].kernel));
  return timer_bind(timer, plan);
}

static rabbet_status_t timer_run(void* context) {
  const timed_plan_t* plan = context;
  for (size_t s = 0; s < plan->layout->steps.count; ++s) {
    const timed_step_t* step = &plan->steps[s];
    if (!step->kernel) continue;
    RABBET_RETURN_IF_ERROR(step->kernel->kernel_class->enqueue(
        step->kernel->kernel, step->kernel->state, &step->call));
  }
  return rabbet_ok();
}

static void timer_set_stream(void* context, void* stream) {
  const timed_plan_t* plan = context;
  for (size_t s = 0; s < plan->layout->steps.count; ++s)
    plan->steps[s].call.stream = stream;
}

// Records the plan, which has run once before, unless it has a kernel of a
// plugin.
static void timer_record(plan_timer_t* timer, timed_plan_t* plan) {
  rabbet_bench_body_t body = {
      .run = timer_run, .set_stream = timer_set_stream, .context = plan};
  for (size_t s = 0; s < plan->layout->steps.count; ++s) {
    const rabbet_bench_kernel_t* kernel = plan->steps[s].kernel;
    if (kernel && kernel->kernel_class->recordable) return;
  }
  rabbet_replay_initialize(timer->build, &body, 1, &plan->replay);
}

static rabbet_status_t timer_run_step(void* context) {
  const timed_step_t* step = context;
  return step->kernel->kernel_class->enqueue(step->kernel->kernel,
                                             step->kernel->state, &step->call);
}

// The plan's time is the sum of its steps' times. The step with the fewest
// undisturbed samples gives the plan's number of them.
static void timer_add_up(timed_plan_t* plan) {
  rabbet_samples_t sum = {.undisturbed = INT_MAX};
  for (size_t s = 0; s < plan->layout->steps.count; ++s) {
    const rabbet_samples_t* samples = &plan->steps[s].samples;
    if (!plan->steps[s].kernel) continue;
    sum.least += rabbet_samples_least(samples);
    sum.next += samples->next;
    if (samples->undisturbed < sum.undisturbed)
      sum.undisturbed = samples->undisturbed;
    sum.taken = samples->taken;
  }
  sum.least_of_all = sum.least;
  plan->samples = sum;
}

// Times each step within a run of the plan, so that caches are in the state of
// a run. The least time of each step counts: other work on the machine disturbs
// nearly every whole run.
static rabbet_status_t timer_round_by_steps(plan_timer_t* timer,
                                            timed_plan_t* plan) {
  rabbet_device_t* device = timer->build->device;
  for (size_t s = 0; s < plan->layout->steps.count; ++s) {
    timed_step_t* step = &plan->steps[s];
    int64_t ns = 0;
    if (!step->kernel) continue;
    rabbet_watch_start(&timer->watch);
    RABBET_RETURN_IF_ERROR(
        device->vtable->time(device, NULL, 1, timer_run_step, step, &ns));
    step->ns = (double)ns;
    step->is_interrupted =
        rabbet_watch_is_interrupted(&timer->watch, &step->ns);
  }
  rabbet_watch_start(&timer->watch);
  bool slow = rabbet_watch_was_disturbed(&timer->watch, NULL);
  for (size_t s = 0; s < plan->layout->steps.count; ++s) {
    timed_step_t* step = &plan->steps[s];
    if (step->kernel)
      rabbet_samples_add(&step->samples, step->ns,
                         slow || step->is_interrupted);
  }
  timer_add_up(plan);
  return rabbet_ok();
}

static rabbet_status_t timer_round(plan_timer_t* timer) {
  rabbet_device_t* device = timer->build->device;
  for (size_t i = 0; i < timer->count; ++i) {
    timed_plan_t* plan = &timer->plans[i];
    int64_t ns = 0;
    RABBET_RETURN_IF_ERROR(rabbet_progress_check(timer->build));
    if (device->host_memory) {
      RABBET_RETURN_IF_ERROR(timer_round_by_steps(timer, plan));
      continue;
    }
    rabbet_watch_start(&timer->watch);
    RABBET_RETURN_IF_ERROR(
        plan->replay.graph
            ? device->vtable->time(device, NULL, 1, rabbet_replay_run,
                                   &plan->replay, &ns)
            : device->vtable->time(device, NULL, 1, timer_run, plan, &ns));
    rabbet_samples_add(&plan->samples, (double)ns,
                       rabbet_watch_was_disturbed(&timer->watch, NULL));
  }
  return rabbet_ok();
}

// The first round warms up; the next ones are timed.
static rabbet_status_t timer_first_round(plan_timer_t* timer) {
  RABBET_RETURN_IF_ERROR(timer_round(timer));
  if (timer->build->device->host_memory) return rabbet_ok();
  for (size_t i = 0; i < timer->count; ++i) {
    timer_record(timer, &timer->plans[i]);
    timer->plans[i].samples = (rabbet_samples_t){0};
  }
  return rabbet_ok();
}

static bool timer_is_settled(const plan_timer_t* timer) {
  for (size_t i = 0; i < timer->count; ++i)
    if (!rabbet_samples_settled(&timer->plans[i].samples, TIMER_WANTED))
      return false;
  return true;
}

static bool timer_goes_on(const plan_timer_t* timer, int rounds, int64_t ns) {
  bool settled = timer_is_settled(timer);
  if (rounds < 3) return true;
  return rounds < (settled ? TIMER_ROUNDS : TIMER_MOST_ROUNDS) &&
         ns < (settled ? 1 : 2) * TIMER_BUDGET_NS;
}

static rabbet_status_t timer_rounds(plan_timer_t* timer) {
  rabbet_build_t* build = timer->build;
  rabbet_device_t* device = build->device;
  if (timer->workspace > 0)
    RABBET_RETURN_IF_ERROR(rabbet_bench_acquire(
        build, RABBET_DTYPE_NONE, timer->workspace, &timer->workspace_memory));
  for (size_t i = 0; i < timer->count; ++i)
    for (size_t s = 0; s < timer->plans[i].layout->steps.count; ++s)
      timer->plans[i].steps[s].call.workspace = timer->workspace_memory;
  void* token = NULL;
  if (device->vtable->begin_run)
    RABBET_RETURN_IF_ERROR(
        device->vtable->begin_run(device, build->threads, &token));
  int64_t start = rabbet_time_ns();
  rabbet_bench_watch(build, &timer->watch);
  rabbet_status_t status = timer_first_round(timer);
  for (int round = 1; rabbet_is_ok(status) &&
                      timer_goes_on(timer, round, rabbet_time_ns() - start);
       ++round)
    status = timer_round(timer);
  rabbet_bench_unwatch(build, &timer->watch, timer_is_settled(timer));
  for (size_t i = 0; i < timer->count; ++i) {
    timed_plan_t* plan = &timer->plans[i];
    plan->timing.us = rabbet_samples_least(&plan->samples) / 1000;
    plan->timing.is_unsure =
        rabbet_samples_are_unsure(&plan->samples, TIMER_WANTED);
    build->doubtful += plan->timing.is_unsure;
    rabbet_replay_deinitialize(&plan->replay);
  }
  if (device->vtable->end_run) device->vtable->end_run(device, token);
  build->timings += timer->count;
  return status;
}

// ---- Known times -----------------------------------------------------------

static void timer_key(const rabbet_build_t* build, timed_plan_t* plan) {
  rabbet_hash_t parts[2] = {{0, 0}, {0, 0}};
  plan->cacheable = true;
  for (size_t s = 0; s < plan->layout->steps.count; ++s) {
    const rabbet_choice_t* choice = plan->layout->steps.data[s].pick.choice;
    parts[1] = choice->key;
    plan->cacheable &=
        choice->cacheable || !timer_has_kernel(&plan->layout->steps.data[s]);
    parts[0] = rabbet_hash128(parts, sizeof(parts));
  }
  plan->key = parts[0];
  int64_t flags = build->config->options[RABBET_BUILDER_OPTION_FLAGS];
  if (flags >> RABBET_BUILDER_DISABLE_TIMING_CACHE & 1) plan->cacheable = false;
}

// Not at estimates, which need not be the same in all units.
static bool timer_is_possible(const rabbet_build_t* build) {
  size_t count = rabbet_expr_symbol_count(build->ir.graph);
  for (size_t i = 0; i < count; ++i)
    if (rabbet_ranges_symbol_is_data_dependent(build, i)) return false;
  return true;
}

static rabbet_status_t timer_measure(plan_timer_t* timer) {
  rabbet_status_t status = rabbet_ok();
  for (size_t i = 0; rabbet_is_ok(status) && i < timer->count; ++i)
    status = timer_prepare(timer, &timer->plans[i]);
  if (rabbet_is_ok(status)) status = timer_rounds(timer);
  for (size_t i = 0; i < timer->kernels.count; ++i) {
    timed_kernel_t* kernel = timer->kernels.entries[i].value;
    if (kernel) rabbet_bench_unprepare(&kernel->kernel);
  }
  if (rabbet_bench_forgives(timer->build, &status, RABBET_STARVED_PLANS,
                            "whole plans"))
    for (size_t i = 0; i < timer->count; ++i)
      timer->plans[i].timing = (rabbet_timing_t){.us = -1, .is_starved = true};
  rabbet_bench_reset(timer->build->bench);
  rabbet_constant_trim(timer->build);
  for (size_t i = 0; rabbet_is_ok(status) && i < timer->count; ++i)
    if (timer->plans[i].cacheable && !timer->plans[i].timing.is_starved)
      status = rabbet_timing_cache_put(timer->build->cache, timer->plans[i].key,
                                       timer->plans[i].timing);
  return status;
}

// All of them or none: only times that were taken in turns can be compared.
static bool timer_lookup(plan_timer_t* timer) {
  bool known = true;
  for (size_t i = 0; i < timer->count; ++i) {
    timed_plan_t* plan = &timer->plans[i];
    timer_key(timer->build, plan);
    known &=
        plan->cacheable &&
        rabbet_timing_cache_find(timer->build->cache, plan->key, &plan->timing);
  }
  return known;
}

rabbet_status_t rabbet_whole_plan_time(rabbet_build_t* build,
                                       const rabbet_layout_t* layouts,
                                       size_t count,
                                       rabbet_timing_t* out_timings) {
  for (size_t i = 0; i < count; ++i)
    out_timings[i] = (rabbet_timing_t){.us = -1};
  if (!timer_is_possible(build)) return rabbet_ok();
  plan_timer_t timer = {.build = build, .count = count};
  RABBET_RETURN_IF_ERROR(rabbet_arena_allocate_array(
      &build->arena, count, sizeof(*timer.plans), (void**)&timer.plans));
  for (size_t i = 0; i < count; ++i)
    timer.plans[i].layout = &layouts[i];
  if (!timer_lookup(&timer)) {
    if (build->config
            ->options[RABBET_BUILDER_OPTION_ERROR_ON_TIMING_CACHE_MISS])
      return rabbet_ok();
    rabbet_phase_t before =
        rabbet_phases_enter(build->phases, RABBET_PHASE_WHOLE);
    rabbet_map_initialize(build->allocator, &timer.kernels);
    rabbet_map_initialize(build->allocator, &timer.weights);
    rabbet_status_t status = timer_measure(&timer);
    rabbet_map_deinitialize(&timer.weights);
    rabbet_map_deinitialize(&timer.kernels);
    rabbet_phases_enter(build->phases, before);
    RABBET_RETURN_IF_ERROR(RABBET_ANNOTATE(status, "timing whole plans"));
  }
  for (size_t i = 0; i < count; ++i)
    out_timings[i] = timer.plans[i].timing;
  return rabbet_ok();
}
