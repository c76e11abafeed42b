// Several helpers, each with a thread that talks to it.
#include <math.h>
#include <pthread.h>
#include <time.h>

#include "base/thread.h"
#include "builder/propose/trial_internal.h"

#define AHEAD_POLL_NS 20000000
enum { AHEAD_HELPERS = 8, AHEAD_MOST = 16 };

typedef struct ahead_t {
  const rabbet_build_t* build;
  rabbet_trial_ahead_t* items;
  size_t count;
  pthread_mutex_t lock;  // guards the next three
  pthread_cond_t ended;  // a thread
  size_t next;           // item
  size_t running;        // threads
} ahead_t;

size_t rabbet_trial_helpers(const rabbet_logger_t* logger) {
  double half = fmin(fmax(rabbet_cpu_count() / 2, 1), AHEAD_HELPERS);
  double wish = rabbet_trial_setting(logger, "RABBET_TRIAL_HELPERS", half);
  return (size_t)fmin(fmax(wish, 1), AHEAD_MOST);
}

static rabbet_trial_ahead_t* ahead_take(ahead_t* ahead) {
  pthread_mutex_lock(&ahead->lock);
  rabbet_trial_ahead_t* item =
      ahead->next < ahead->count ? &ahead->items[ahead->next++] : NULL;
  pthread_mutex_unlock(&ahead->lock);
  return item;
}

static void* ahead_run(void* context) {
  ahead_t* ahead = context;
  const rabbet_build_t* build = ahead->build;
  rabbet_trial_helper_t helper;
  rabbet_trial_ahead_t* item = NULL;
  rabbet_trial_helper_initialize(build->device, build->allocator, build->logger,
                                 &helper);
  while (helper.may_start && (item = ahead_take(ahead))) {
    rabbet_status_t status =
        rabbet_trial_helper_answer(&helper, &item->request, &item->trial);
    item->is_answered = rabbet_is_ok(status);
    rabbet_status_ignore(status);
  }
  rabbet_trial_helper_deinitialize(&helper);
  pthread_mutex_lock(&ahead->lock);
  --ahead->running;
  pthread_cond_signal(&ahead->ended);
  pthread_mutex_unlock(&ahead->lock);
  return NULL;
}

// Waits for the threads, and has them stop unless the build goes on.
static rabbet_status_t ahead_wait(ahead_t* ahead, bool goes_on) {
  rabbet_status_t status = rabbet_ok();
  pthread_mutex_lock(&ahead->lock);
  if (!goes_on) ahead->next = ahead->count;
  while (ahead->running > 0) {
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_nsec += AHEAD_POLL_NS;
    until.tv_sec += until.tv_nsec / 1000000000;
    until.tv_nsec %= 1000000000;
    pthread_cond_timedwait(&ahead->ended, &ahead->lock, &until);
    if (!rabbet_is_ok(status)) continue;
    pthread_mutex_unlock(&ahead->lock);
    status = rabbet_progress_check(ahead->build);
    pthread_mutex_lock(&ahead->lock);
    if (!rabbet_is_ok(status)) ahead->next = ahead->count;
  }
  pthread_mutex_unlock(&ahead->lock);
  return status;
}

rabbet_status_t rabbet_trial_answer_ahead(const rabbet_build_t* build,
                                          rabbet_trial_ahead_t* items,
                                          size_t count,
                                          rabbet_status_t (*meanwhile)(void*),
                                          void* context) {
  ahead_t ahead = {.build = build, .items = items, .count = count};
  pthread_t threads[AHEAD_MOST];
  size_t wish = rabbet_trial_helpers(NULL), started = 0;
  pthread_mutex_init(&ahead.lock, NULL);
  pthread_cond_init(&ahead.ended, NULL);
  pthread_mutex_lock(&ahead.lock);
  while (started < wish && started < count &&
         pthread_create(&threads[started], NULL, ahead_run, &ahead) == 0)
    ++started;
  ahead.running = started;
  pthread_mutex_unlock(&ahead.lock);
  rabbet_status_t status = started > 0 ? meanwhile(context) : rabbet_ok();
  status = rabbet_status_join(status, ahead_wait(&ahead, rabbet_is_ok(status)));
  for (size_t i = 0; i < started; ++i)
    pthread_join(threads[i], NULL);
  pthread_cond_destroy(&ahead.ended);
  pthread_mutex_destroy(&ahead.lock);
  return status;
}
