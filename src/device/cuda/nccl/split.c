#include "device/cuda/nccl/split.h"

#include <stdlib.h>
#include <time.h>

enum { SPLIT_TICK_MS = 5 };

// Shared by the thread and who waits for it; the last one frees it.
typedef struct split_job_t {
  rabbet_nccl_split_t split;
  rabbet_nccl_t library;  // a copy: the device may be gone when a split is made
  pthread_mutex_t lock;
  pthread_cond_t done_changed;
  bool done, left;
  ncclResult_t result;
  ncclComm_t made;
} split_job_t;

static void split_free(split_job_t* job) {
  pthread_cond_destroy(&job->done_changed);
  pthread_mutex_destroy(&job->lock);
  rabbet_free(rabbet_allocator_system(), job);
}

static void split_pause(void) {
  const struct timespec tick = {.tv_nsec = SPLIT_TICK_MS * 1000000L};
  nanosleep(&tick, NULL);
}

// Waits until no call on the communicator is under way. One that does not block
// is asked in any case: ncclCommSplit on it returns ncclSuccess at once.
static ncclResult_t split_settle(const rabbet_nccl_t* library, ncclComm_t comm,
                                 ncclResult_t result) {
  if (result != ncclSuccess && result != ncclInProgress) return result;
  for (;;) {
    ncclResult_t asked = library->ncclCommGetAsyncError(comm, &result);
    if (asked != ncclSuccess) return asked;
    if (result != ncclInProgress) return result;
    split_pause();
  }
}

// NCCL writes job->made while ncclCommGetAsyncError of the given communicator
// still tells ncclInProgress.
static ncclResult_t split_make(split_job_t* job) {
  const rabbet_nccl_t* library = &job->library;
  ncclConfig_t config = NCCL_CONFIG_2_19;
  config.blocking = 1;
  ncclResult_t result = library->ncclCommSplit(
      job->split.given, job->split.color, job->split.key, &job->made, &config);
  result = split_settle(library, job->split.given, result);
  if (result != ncclSuccess) return result;
  if (job->made) return split_settle(library, job->made, ncclSuccess);
  return job->split.color == NCCL_SPLIT_NOCOLOR ? ncclSuccess
                                                : ncclInternalError;
}

static void* split_work(void* data) {
  split_job_t* job = data;
  job->split.driver->cuCtxSetCurrent(job->split.context);
  ncclResult_t result = split_make(job);
  if (result != ncclSuccess && job->made) {
    job->library.ncclCommAbort(job->made);
    job->made = NULL;
  }
  pthread_mutex_lock(&job->lock);
  job->result = result;
  job->done = true;
  bool left = job->left;
  pthread_cond_signal(&job->done_changed);
  pthread_mutex_unlock(&job->lock);
  if (left) {
    if (job->made) job->library.ncclCommAbort(job->made);
    split_free(job);
  }
  return NULL;
}

static void split_wait(split_job_t* job, bool (*is_over)(void* context),
                       void* context) {
  struct timespec until;
  while (!job->done && !job->left) {
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_nsec += SPLIT_TICK_MS * 1000000L;
    until.tv_sec += until.tv_nsec / 1000000000L;
    until.tv_nsec %= 1000000000L;
    pthread_cond_timedwait(&job->done_changed, &job->lock, &until);
    if (job->done) return;
    pthread_mutex_unlock(&job->lock);
    bool over = is_over(context);
    pthread_mutex_lock(&job->lock);
    if (over && !job->done) job->left = true;
  }
}

rabbet_status_t rabbet_nccl_split(const rabbet_nccl_split_t* split,
                                  bool (*is_over)(void* context), void* context,
                                  ncclComm_t* out_comm) {
  split_job_t* job = NULL;
  pthread_t thread;
  *out_comm = NULL;
  RABBET_RETURN_IF_ERROR(
      rabbet_allocate(rabbet_allocator_system(), sizeof(*job), (void**)&job));
  job->split = *split;
  job->library = *split->library;
  pthread_mutex_init(&job->lock, NULL);
  pthread_cond_init(&job->done_changed, NULL);
  if (pthread_create(&thread, NULL, split_work, job) != 0) {
    split_free(job);
    return RABBET_STATUS(RABBET_STATUS_UNAVAILABLE,
                         "no thread can be started to split a communicator");
  }
  pthread_detach(thread);
  pthread_mutex_lock(&job->lock);
  split_wait(job, is_over, context);
  bool left = job->left;
  ncclResult_t result = job->result;
  *out_comm = left ? NULL : job->made;
  pthread_mutex_unlock(&job->lock);
  if (left)
    return RABBET_STATUS(RABBET_STATUS_UNAVAILABLE,
                         "the other ranks did not join");
  split_free(job);
  return rabbet_nccl_check(split->library, split->given, result,
                           "ncclCommSplit");
}
