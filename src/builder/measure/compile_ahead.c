#include "builder/measure/compile_ahead.h"

#include <pthread.h>

#include "base/thread.h"
#include "builder/measure/bench.h"

enum {
  COMPILE_THREADS = 16,
  // Kernels, and bytes of their groups' constants, that live at a time.
  COMPILE_JOBS = 4096,
  COMPILE_CONSTANTS = 1 << 30,
};

typedef struct compile_job_t {
  const rabbet_choice_t* choice;
  rabbet_group_t group;
} compile_job_t;

// This thread adds jobs, others take them.
typedef struct compile_queue_t {
  rabbet_build_t* build;
  bool for_plan;
  pthread_t threads[COMPILE_THREADS];
  size_t thread_count;
  pthread_mutex_t lock;  // guards the rest
  pthread_cond_t added;  // a job, or the end of all
  pthread_cond_t done;   // the last job of those so far
  compile_job_t jobs[COMPILE_JOBS];
  size_t count, next;
  size_t running;
  // Jobs whose programs others were compiling come again, and then wait.
  compile_job_t again[COMPILE_JOBS];
  size_t again_count;
  bool waits, ends;
} compile_queue_t;

// Kernels of plugins are other people's code; those of libraries compile
// nothing when they are created.
static bool compile_serves(const rabbet_build_t* build,
                           const rabbet_choice_t* choice) {
  const rabbet_kernel_class_t* kernel = choice->candidate.kernel;
  return !build->device->host_memory && kernel && kernel->artifacts &&
         !kernel->ask && kernel != &rabbet_plugin_kernel_class;
}

static rabbet_status_t compile_drop(void* context,
                                    const rabbet_artifact_t* artifact) {
  (void)context, (void)artifact;
  return rabbet_ok();
}

// False: a thread is compiling one of the kernel's programs.
static bool compile_one(const compile_queue_t* queue, const compile_job_t* job,
                        bool waits) {
  const rabbet_build_t* build = queue->build;
  const rabbet_candidate_t* candidate = &job->choice->candidate;
  const rabbet_kernel_spec_t spec = {
      .device = build->device,
      .group = &job->group,
      .tactic = candidate->tactic,
      .allocator = build->allocator,
      .artifacts = &candidate->artifact,
      .artifact_count = candidate->artifact.size > 0,
      .exact = true,
      .ahead = !waits};
  rabbet_kernel_t* kernel = NULL;
  rabbet_status_t status =
      rabbet_kernel_create(candidate->kernel, &spec, &kernel);
  bool busy = !waits && rabbet_status_code(status) == RABBET_STATUS_UNAVAILABLE;
  if (rabbet_is_ok(status) && queue->for_plan)
    status = candidate->kernel->artifacts(
        kernel, (rabbet_artifact_sink_t){NULL, compile_drop});
  if (kernel) candidate->kernel->destroy(kernel);
  rabbet_status_ignore(status);
  return !busy;
}

// Takes a job under the lock, which is given up meanwhile.
static void compile_next(compile_queue_t* queue) {
  const compile_job_t job = queue->jobs[queue->next++];
  bool waits = queue->waits;
  ++queue->running;
  pthread_mutex_unlock(&queue->lock);
  bool compiled = compile_one(queue, &job, waits);
  pthread_mutex_lock(&queue->lock);
  if (!compiled) queue->again[queue->again_count++] = job;
  if (--queue->running == 0) pthread_cond_signal(&queue->done);
}

static void* compile_run(void* context) {
  compile_queue_t* queue = context;
  pthread_mutex_lock(&queue->lock);
  while (!queue->ends) {
    if (queue->next < queue->count)
      compile_next(queue);
    else
      pthread_cond_wait(&queue->added, &queue->lock);
  }
  pthread_mutex_unlock(&queue->lock);
  return NULL;
}

// This thread takes jobs, too, and asks between two whether to go on.
static rabbet_status_t compile_drain_once(compile_queue_t* queue) {
  rabbet_status_t status = rabbet_ok();
  pthread_mutex_lock(&queue->lock);
  while (rabbet_is_ok(status) && queue->next < queue->count) {
    compile_next(queue);
    status = rabbet_progress_check(queue->build);
  }
  queue->next = queue->count;
  while (queue->running > 0)
    pthread_cond_wait(&queue->done, &queue->lock);
  queue->count = queue->next = 0;
  pthread_mutex_unlock(&queue->lock);
  return status;
}

static rabbet_status_t compile_drain(compile_queue_t* queue) {
  RABBET_RETURN_IF_ERROR(compile_drain_once(queue));
  pthread_mutex_lock(&queue->lock);
  for (size_t i = 0; i < queue->again_count; ++i)
    queue->jobs[i] = queue->again[i];
  queue->count = queue->again_count;
  queue->again_count = 0;
  queue->waits = true;
  pthread_cond_broadcast(&queue->added);
  pthread_mutex_unlock(&queue->lock);
  RABBET_RETURN_IF_ERROR(compile_drain_once(queue));
  queue->waits = false;
  rabbet_constant_trim(queue->build);
  return rabbet_ok();
}

static rabbet_status_t compile_add(compile_queue_t* queue,
                                   const rabbet_pick_t* pick) {
  compile_job_t job = {.choice = pick->choice};
  RABBET_RETURN_IF_ERROR(rabbet_unit_instantiate(queue->build, pick->unit,
                                                 pick->choice, &job.group));
  pthread_mutex_lock(&queue->lock);
  queue->jobs[queue->count++] = job;
  bool full = queue->count == COMPILE_JOBS ||
              rabbet_constant_bytes(queue->build) > COMPILE_CONSTANTS;
  pthread_cond_signal(&queue->added);
  pthread_mutex_unlock(&queue->lock);
  return full ? compile_drain(queue) : rabbet_progress_check(queue->build);
}

static rabbet_status_t compile_all(compile_queue_t* queue, rabbet_map_t* known,
                                   const rabbet_pick_t* picks, size_t count) {
  for (size_t i = 0; i < count; ++i) {
    const rabbet_choice_t* choice = picks[i].choice;
    const char* key = (const char*)&choice->key;
    if (!compile_serves(queue->build, choice) ||
        rabbet_map_get(known, key, sizeof(choice->key)))
      continue;
    RABBET_RETURN_IF_ERROR(
        rabbet_map_set(known, key, sizeof(choice->key), (void*)choice));
    RABBET_RETURN_IF_ERROR(compile_add(queue, &picks[i]));
  }
  return compile_drain(queue);
}

static void compile_open(compile_queue_t* queue) {
  int processors = rabbet_cpu_count();
  size_t wish = processors < COMPILE_THREADS ? (size_t)processors
                                             : (size_t)COMPILE_THREADS;
  pthread_mutex_init(&queue->lock, NULL);
  pthread_cond_init(&queue->added, NULL);
  pthread_cond_init(&queue->done, NULL);
  while (queue->thread_count + 1 < wish &&
         pthread_create(&queue->threads[queue->thread_count], NULL, compile_run,
                        queue) == 0)
    ++queue->thread_count;
}

// No job is left, or those that are left are not begun.
static void compile_close(compile_queue_t* queue) {
  pthread_mutex_lock(&queue->lock);
  queue->ends = true;
  pthread_cond_broadcast(&queue->added);
  pthread_mutex_unlock(&queue->lock);
  for (size_t i = 0; i < queue->thread_count; ++i)
    pthread_join(queue->threads[i], NULL);
  pthread_cond_destroy(&queue->done);
  pthread_cond_destroy(&queue->added);
  pthread_mutex_destroy(&queue->lock);
}

bool rabbet_compiles_ahead(const rabbet_build_t* build) {
  return !build->device->host_memory && rabbet_cpu_count() > 1;
}

rabbet_status_t rabbet_compile_ahead(rabbet_build_t* build,
                                     const rabbet_pick_t* picks, size_t count,
                                     rabbet_map_t* known, bool for_plan) {
  compile_queue_t* queue = NULL;
  if (!rabbet_compiles_ahead(build) || count < 2) return rabbet_ok();
  RABBET_RETURN_IF_ERROR(
      rabbet_allocate(build->allocator, sizeof(*queue), (void**)&queue));
  queue->build = build;
  queue->for_plan = for_plan;
  compile_open(queue);
  rabbet_status_t status = compile_all(queue, known, picks, count);
  compile_close(queue);
  rabbet_free(build->allocator, queue);
  return status;
}
