#include "builder/measure/compile_ahead.h"

#include <stdatomic.h>
#include <stdlib.h>

#include "base/map.h"
#include "base/thread.h"
#include "builder/measure/bench.h"

enum {
  COMPILE_THREADS = 16,
  // Kernels at a time: their groups' constants live meanwhile.
  COMPILE_ROUND = 128,
};

typedef struct compile_job_t {
  const rabbet_choice_t* choice;
  rabbet_group_t group;
} compile_job_t;

typedef struct compile_round_t {
  rabbet_build_t* build;
  compile_job_t jobs[COMPILE_ROUND];
  size_t count;
  atomic_size_t next;
  atomic_bool stops;
} compile_round_t;

// Kernels of plugins are other people's code; those of libraries compile
// nothing when they are created.
static bool compile_serves(const rabbet_build_t* build,
                           const rabbet_choice_t* choice) {
  const rabbet_kernel_class_t* kernel = choice->candidate.kernel;
  return !build->device->host_memory && kernel && kernel->artifacts &&
         !kernel->ask && kernel != &rabbet_plugin_kernel_class;
}

static void compile_one(const rabbet_build_t* build, const compile_job_t* job) {
  const rabbet_candidate_t* candidate = &job->choice->candidate;
  const rabbet_kernel_spec_t spec = {
      .device = build->device,
      .group = &job->group,
      .tactic = candidate->tactic,
      .allocator = build->allocator,
      .artifacts = &candidate->artifact,
      .artifact_count = candidate->artifact.size > 0,
      .exact = true};
  rabbet_kernel_t* kernel = NULL;
  rabbet_status_t status =
      rabbet_kernel_create(candidate->kernel, &spec, &kernel);
  if (rabbet_is_ok(status)) candidate->kernel->destroy(kernel);
  rabbet_status_ignore(status);
}

static void* compile_run(void* context) {
  compile_round_t* round = context;
  size_t i = 0;
  while (!atomic_load(&round->stops) &&
         (i = atomic_fetch_add(&round->next, 1)) < round->count)
    compile_one(round->build, &round->jobs[i]);
  return NULL;
}

// This thread compiles, too, and asks between two kernels whether to go on.
static rabbet_status_t compile_round(compile_round_t* round, size_t threads) {
  pthread_t others[COMPILE_THREADS];
  size_t started = 0, i = 0;
  atomic_store(&round->next, 0);
  atomic_store(&round->stops, false);
  while (started + 1 < threads && started + 1 < round->count &&
         pthread_create(&others[started], NULL, compile_run, round) == 0)
    ++started;
  rabbet_status_t status = rabbet_progress_check(round->build);
  while (rabbet_is_ok(status) &&
         (i = atomic_fetch_add(&round->next, 1)) < round->count) {
    compile_one(round->build, &round->jobs[i]);
    status = rabbet_progress_check(round->build);
  }
  if (!rabbet_is_ok(status)) atomic_store(&round->stops, true);
  for (i = 0; i < started; ++i)
    pthread_join(others[i], NULL);
  round->count = 0;
  return status;
}

static rabbet_status_t compile_all(compile_round_t* round, rabbet_map_t* known,
                                   const rabbet_pick_t* picks, size_t count,
                                   size_t threads) {
  rabbet_build_t* build = round->build;
  for (size_t i = 0; i < count; ++i) {
    const rabbet_choice_t* choice = picks[i].choice;
    const char* key = (const char*)&choice->key;
    if (!compile_serves(build, choice) ||
        rabbet_map_get(known, key, sizeof(choice->key)))
      continue;
    RABBET_RETURN_IF_ERROR(
        rabbet_map_set(known, key, sizeof(choice->key), round));
    compile_job_t* job = &round->jobs[round->count];
    job->choice = choice;
    RABBET_RETURN_IF_ERROR(
        rabbet_unit_instantiate(build, picks[i].unit, choice, &job->group));
    if (++round->count < COMPILE_ROUND) continue;
    RABBET_RETURN_IF_ERROR(compile_round(round, threads));
    rabbet_constant_trim(build);
  }
  return compile_round(round, threads);
}

bool rabbet_compiles_ahead(const rabbet_build_t* build) {
  return !build->device->host_memory && rabbet_cpu_count() > 1;
}

rabbet_status_t rabbet_compile_ahead(rabbet_build_t* build,
                                     const rabbet_pick_t* picks, size_t count) {
  int processors = rabbet_cpu_count();
  size_t threads = processors < COMPILE_THREADS ? (size_t)processors
                                                : (size_t)COMPILE_THREADS;
  compile_round_t* round = NULL;
  rabbet_map_t known;
  if (!rabbet_compiles_ahead(build) || count < 2) return rabbet_ok();
  RABBET_RETURN_IF_ERROR(
      rabbet_allocate(build->allocator, sizeof(*round), (void**)&round));
  round->build = build;
  rabbet_map_initialize(build->allocator, &known);
  rabbet_status_t status = compile_all(round, &known, picks, count, threads);
  rabbet_map_deinitialize(&known);
  rabbet_free(build->allocator, round);
  return status;
}
