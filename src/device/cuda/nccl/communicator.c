#include "device/cuda/nccl/communicator.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/text.h"
#include "device/cuda/driver/stream.h"
#include "device/cuda/nccl/split.h"

enum {
  COMMUNICATOR_SECONDS = 600,  // time limit unless the variable says another
  COMMUNICATOR_MARKS = 64,     // runs on their way at the same time
  COMMUNICATOR_TICK_MS = 20,   // of the watching thread while runs are watched
};
#define COMMUNICATOR_VARIABLE "RABBET_COLLECTIVE_SECONDS"

// The end of a run in its stream: `reached` is written behind the run's work.
typedef struct communicator_mark_t {
  int64_t enqueued_ns;
  const volatile int32_t* reached;
} communicator_mark_t;

typedef struct nccl_communicator_t {
  rabbet_allocator_t allocator;
  rabbet_cuda_device_t* device;
  const rabbet_nccl_t* library;
  rabbet_logger_t logger;
  ncclComm_t given;  // the user's
  int size, rank;
  int64_t limit_ns;  // 0: none
  rabbet_nccl_group_t* groups;
  size_t group_count;
  // Enqueued exchanges of the present run.
  int64_t noted;

  // The watching thread reads and writes these under the lock.
  pthread_mutex_t lock;
  pthread_cond_t changed;
  pthread_t watcher;
  bool has_watcher, watcher_asleep, closing;
  bool broken, aborted;
  bool cancelled;
  char reason[512];
  int64_t begun_ns;  // the host is within a run since then; 0: it is not
  // Runs whose end was not seen: [seen, made), in places of a ring.
  uint64_t seen, made;
  communicator_mark_t marks[COMMUNICATOR_MARKS];
  volatile int32_t* places;  // pinned, [COMMUNICATOR_MARKS], and the one below
  volatile int32_t* given_up;
  void* one;  // INT32 of device memory, not 0
} nccl_communicator_t;

static nccl_communicator_t* communicator_of(rabbet_communicator_t* base) {
  return (nccl_communicator_t*)base;
}

const rabbet_nccl_t* rabbet_nccl_library(const rabbet_communicator_t* base) {
  return ((const nccl_communicator_t*)base)->library;
}

int rabbet_nccl_size(const rabbet_communicator_t* base) {
  return ((const nccl_communicator_t*)base)->size;
}

const int32_t* rabbet_nccl_given_up(const rabbet_communicator_t* base) {
  return (const int32_t*)((const nccl_communicator_t*)base)->given_up;
}

void rabbet_nccl_note(rabbet_communicator_t* base) {
  ++communicator_of(base)->noted;
}

// ---- Breaking
// ----------------------------------------------------------------

// Under the lock. The first reason is kept; the watching thread logs it.
static void communicator_break(nccl_communicator_t* c, const char* reason) {
  if (c->broken) return;
  c->broken = true;
  snprintf(c->reason, sizeof(c->reason), "%s", reason);
  pthread_cond_broadcast(&c->changed);
}

static rabbet_status_t communicator_refuse(const nccl_communicator_t* c) {
  return RABBET_STATUS(
      c->cancelled ? RABBET_STATUS_CANCELLED : RABBET_STATUS_UNAVAILABLE,
      "rank %d of %d gave up its exchanges with other ranks (%s); set another "
      "communicator to go on",
      c->rank, c->size, c->reason);
}

// Takes a communicator from the groups; NULL: there is none any more.
static ncclComm_t communicator_take(nccl_communicator_t* c) {
  ncclComm_t taken = NULL;
  pthread_mutex_lock(&c->lock);
  for (size_t i = 0; !taken && i < c->group_count; ++i)
    taken = atomic_exchange(&c->groups[i].comm, NULL);
  pthread_mutex_unlock(&c->lock);
  return taken;
}

// Not under the lock: an abort waits for graphs that hold the communicator. It
// waits for no other rank.
static void communicator_abort(nccl_communicator_t* c) {
  if (c->given_up) *c->given_up = 1;
  for (ncclComm_t comm = communicator_take(c); comm;
       comm = communicator_take(c))
    c->library->ncclCommAbort(comm);
}

// ---- Watching
// ----------------------------------------------------------------

// The oldest run that has not ended; 0: none.
static int64_t communicator_oldest(nccl_communicator_t* c) {
  while (c->seen < c->made &&
         *c->marks[c->seen % COMMUNICATOR_MARKS].reached != 0)
    ++c->seen;
  if (c->seen < c->made)
    return c->marks[c->seen % COMMUNICATOR_MARKS].enqueued_ns;
  return c->begun_ns;
}

// Errors that NCCL reports of the group's communicators.
static void communicator_ask(nccl_communicator_t* c) {
  for (size_t i = 0; i < c->group_count && !c->broken; ++i) {
    ncclComm_t comm = c->groups[i].comm;
    ncclResult_t error = ncclSuccess;
    if (!comm) continue;
    ncclResult_t result = c->library->ncclCommGetAsyncError(comm, &error);
    if (result == ncclSuccess) result = error;
    if (result == ncclSuccess || result == ncclInProgress) continue;
    rabbet_status_t status =
        rabbet_nccl_status(c->library, comm, result, "NCCL reports an error");
    communicator_break(c, rabbet_status_message(status));
    rabbet_status_free(status);
  }
}

// Whether a run is on its way.
static bool communicator_look(nccl_communicator_t* c) {
  int64_t oldest = communicator_oldest(c);
  char reason[160];
  if (oldest == 0 || c->broken) return false;
  communicator_ask(c);
  if (c->limit_ns == 0 || rabbet_time_ns() - oldest < c->limit_ns) return true;
  snprintf(reason, sizeof(reason),
           "a run did not end within %g seconds (" COMMUNICATOR_VARIABLE
           "): another rank may have failed, or run another plan",
           (double)c->limit_ns * 1e-9);
  communicator_break(c, reason);
  return true;
}

static void communicator_wait(nccl_communicator_t* c, bool busy) {
  struct timespec until;
  if (!busy) {
    c->watcher_asleep = true;
    pthread_cond_wait(&c->changed, &c->lock);
    c->watcher_asleep = false;
    return;
  }
  clock_gettime(CLOCK_MONOTONIC, &until);
  until.tv_nsec += COMMUNICATOR_TICK_MS * 1000000L;
  until.tv_sec += until.tv_nsec / 1000000000L;
  until.tv_nsec %= 1000000000L;
  pthread_cond_timedwait(&c->changed, &c->lock, &until);
}

static void* communicator_watch(void* data) {
  nccl_communicator_t* c = data;
  pthread_mutex_lock(&c->lock);
  while (!c->closing) {
    bool busy = communicator_look(c);
    if (c->broken && !c->aborted) {
      c->aborted = true;
      pthread_mutex_unlock(&c->lock);
      rabbet_log(c->logger, RABBET_SEVERITY_ERROR,
                 "rank %d of %d gives up its exchanges with other ranks: %s",
                 c->rank, c->size, c->reason);
      communicator_abort(c);
      pthread_mutex_lock(&c->lock);
      continue;
    }
    communicator_wait(c, busy && !c->broken);
  }
  pthread_mutex_unlock(&c->lock);
  return NULL;
}

// Under the lock.
static void communicator_wake(nccl_communicator_t* c) {
  if (c->watcher_asleep) pthread_cond_signal(&c->changed);
}

void rabbet_nccl_cancel(rabbet_device_t* device, rabbet_communicator_t* base) {
  nccl_communicator_t* c = communicator_of(base);
  (void)device;
  pthread_mutex_lock(&c->lock);
  c->cancelled |= !c->broken;
  communicator_break(c, "the run was cancelled");
  pthread_mutex_unlock(&c->lock);
}

// ---- Runs
// --------------------------------------------------------------------

rabbet_status_t rabbet_nccl_check_exchanges(rabbet_device_t* device,
                                            rabbet_communicator_t* base) {
  nccl_communicator_t* c = communicator_of(base);
  (void)device;
  pthread_mutex_lock(&c->lock);
  rabbet_status_t status = c->broken ? communicator_refuse(c) : rabbet_ok();
  pthread_mutex_unlock(&c->lock);
  return status;
}

rabbet_status_t rabbet_nccl_begin(rabbet_device_t* device,
                                  rabbet_communicator_t* base) {
  nccl_communicator_t* c = communicator_of(base);
  RABBET_RETURN_IF_ERROR(rabbet_nccl_check_exchanges(device, base));
  pthread_mutex_lock(&c->lock);
  c->begun_ns = rabbet_time_ns();
  c->noted = 0;
  communicator_wake(c);
  pthread_mutex_unlock(&c->lock);
  return rabbet_ok();
}

// Marks the end of the run in the stream, behind all that it enqueued. A stream
// that the caller records has no end to wait for.
static rabbet_status_t communicator_mark(nccl_communicator_t* c, void* stream) {
  rabbet_device_t* device = &c->device->base;
  bool recording = false;
  RABBET_RETURN_IF_ERROR(rabbet_cuda_is_recording(device, stream, &recording));
  if (recording) return rabbet_ok();
  pthread_mutex_lock(&c->lock);
  communicator_oldest(c);
  bool full = c->made - c->seen == COMMUNICATOR_MARKS;
  pthread_mutex_unlock(&c->lock);
  // The run's end comes after the older ones': these are still watched.
  if (full) return rabbet_ok();
  size_t place = c->made % COMMUNICATOR_MARKS;
  c->places[place] = 0;
  RABBET_RETURN_IF_ERROR(
      device->vtable->copy_to_host(device, (void*)(uintptr_t)&c->places[place],
                                   c->one, sizeof(int32_t), stream));
  pthread_mutex_lock(&c->lock);
  c->marks[place] = (communicator_mark_t){.enqueued_ns = rabbet_time_ns(),
                                          .reached = &c->places[place]};
  ++c->made;
  pthread_mutex_unlock(&c->lock);
  return rabbet_ok();
}

rabbet_status_t rabbet_nccl_end(rabbet_device_t* device,
                                rabbet_communicator_t* base, void* stream,
                                bool replayed, rabbet_status_t status) {
  nccl_communicator_t* c = communicator_of(base);
  bool exchanged = replayed || c->noted > 0;
  (void)device;
  if (exchanged && rabbet_is_ok(status)) status = communicator_mark(c, stream);
  pthread_mutex_lock(&c->lock);
  bool failed = !rabbet_is_ok(status), broken = c->broken;
  c->begun_ns = 0;
  if (failed && exchanged)
    communicator_break(c,
                       "a run failed between exchanges, so that this rank is "
                       "out of step with the others");
  pthread_mutex_unlock(&c->lock);
  if (broken) return rabbet_status_join(communicator_refuse(c), status);
  if (failed)
    rabbet_log(c->logger, RABBET_SEVERITY_ERROR,
               "rank %d of %d: the run failed: %s", c->rank, c->size,
               rabbet_status_message(status));
  return status;
}

// ---- Groups
// ------------------------------------------------------------------

const rabbet_nccl_group_t* rabbet_nccl_find(const rabbet_communicator_t* base,
                                            const int64_t* ranks,
                                            size_t count) {
  const nccl_communicator_t* c = (const nccl_communicator_t*)base;
  for (size_t i = 0; i < c->group_count; ++i) {
    const rabbet_nccl_group_t* group = &c->groups[i];
    if (group->count == count &&
        (count == 0 ||
         memcmp(group->ranks, ranks, count * sizeof(*ranks)) == 0))
      return group;
  }
  return NULL;
}

// The group is in the list before its communicator is there.
static rabbet_status_t communicator_add(nccl_communicator_t* c,
                                        const int64_t* ranks, size_t count,
                                        rabbet_nccl_group_t** out_group) {
  rabbet_nccl_group_t* groups = NULL;
  int64_t* kept = NULL;
  RABBET_RETURN_IF_ERROR(rabbet_allocate(
      c->allocator, (c->group_count + 1) * sizeof(*groups), (void**)&groups));
  rabbet_status_t status =
      rabbet_allocate(c->allocator, (count + 1) * sizeof(*kept), (void**)&kept);
  if (!rabbet_is_ok(status)) {
    rabbet_free(c->allocator, groups);
    return status;
  }
  if (count > 0) memcpy(kept, ranks, count * sizeof(*kept));
  pthread_mutex_lock(&c->lock);
  if (c->group_count > 0)
    memcpy(groups, c->groups, c->group_count * sizeof(*groups));
  rabbet_free(c->allocator, c->groups);
  c->groups = groups;
  *out_group = &groups[c->group_count++];
  **out_group = (rabbet_nccl_group_t){
      .rank = count ? -1 : c->rank, .count = count, .ranks = kept};
  for (size_t i = 0; i < count; ++i)
    if (kept[i] == c->rank) (*out_group)->rank = (int)i;
  pthread_mutex_unlock(&c->lock);
  return rabbet_ok();
}

static void communicator_take_back(nccl_communicator_t* c) {
  pthread_mutex_lock(&c->lock);
  rabbet_nccl_group_t group = c->groups[--c->group_count];
  pthread_mutex_unlock(&c->lock);
  if (group.comm) c->library->ncclCommAbort(group.comm);
  rabbet_free(c->allocator, group.ranks);
}

static bool communicator_is_broken(void* context) {
  nccl_communicator_t* c = context;
  pthread_mutex_lock(&c->lock);
  bool broken = c->broken;
  pthread_mutex_unlock(&c->lock);
  return broken;
}

// Members of a group have the color of its least rank, so that groups that
// different ranks join at the same time stay apart.
static int communicator_color(const rabbet_nccl_group_t* group) {
  int64_t least = group->count ? group->ranks[0] : 0;
  for (size_t i = 0; i < group->count; ++i)
    if (group->ranks[i] < least) least = group->ranks[i];
  return group->rank < 0 ? NCCL_SPLIT_NOCOLOR : (int)least;
}

rabbet_status_t rabbet_nccl_join(rabbet_communicator_t* base,
                                 const int64_t* ranks, size_t count) {
  nccl_communicator_t* c = communicator_of(base);
  rabbet_nccl_group_t* group = NULL;
  ncclComm_t made = NULL;
  if (rabbet_nccl_find(base, ranks, count)) return rabbet_ok();
  RABBET_RETURN_IF_ERROR(communicator_add(c, ranks, count, &group));
  const rabbet_nccl_split_t split = {.library = c->library,
                                     .driver = c->device->driver,
                                     .context = c->device->context,
                                     .given = c->given,
                                     .color = communicator_color(group),
                                     .key = group->rank < 0 ? 0 : group->rank};
  rabbet_status_t status =
      rabbet_nccl_split(&split, communicator_is_broken, c, &made);
  pthread_mutex_lock(&c->lock);
  group->comm = made;
  // The watching thread may have aborted the others already.
  bool late = c->broken && made;
  if (late) group->comm = NULL;
  pthread_mutex_unlock(&c->lock);
  if (late) c->library->ncclCommAbort(made);
  if (rabbet_is_ok(status) && made && !late)
    status = rabbet_nccl_peers_create(c->device, c->library, &group->comm,
                                      group->rank, count ? (int)count : c->size,
                                      &group->peers);
  if (!rabbet_is_ok(status)) communicator_take_back(c);
  return RABBET_ANNOTATE(status, "rank %d of %d, joining the other ranks",
                         c->rank, c->size);
}

// ---- Opening and closing
// -----------------------------------------------------

static rabbet_status_t communicator_read_limit(nccl_communicator_t* c) {
  const char* text = getenv(COMMUNICATOR_VARIABLE);
  char* end = NULL;
  double seconds = COMMUNICATOR_SECONDS;
  if (text && *text) {
    seconds = strtod(text, &end);
    if (*end || !(seconds >= 0 && seconds <= 1e9))
      return RABBET_STATUS(RABBET_STATUS_INVALID_ARGUMENT,
                           COMMUNICATOR_VARIABLE
                           " is '%s'; expected seconds, or 0 for no limit",
                           text);
  }
  c->limit_ns = (int64_t)(seconds * 1e9);
  return rabbet_ok();
}

// NCCL itself would say "invalid resource handle", after other ranks have begun
// to wait.
static rabbet_status_t communicator_check_device(nccl_communicator_t* c) {
  int ordinal = -1;
  RABBET_RETURN_IF_ERROR(RABBET_NCCL(c->library, c->given, ncclCommCuDevice,
                                     (c->given, &ordinal)));
  if (ordinal == c->device->ordinal) return rabbet_ok();
  return RABBET_STATUS(RABBET_STATUS_INVALID_ARGUMENT,
                       "the communicator is one of GPU %d; the engine is on "
                       "GPU %d",
                       ordinal, c->device->ordinal);
}

static rabbet_status_t communicator_start(nccl_communicator_t* c) {
  rabbet_device_t* device = &c->device->base;
  pthread_condattr_t clock;
  RABBET_RETURN_IF_ERROR(communicator_read_limit(c));
  RABBET_RETURN_IF_ERROR(communicator_check_device(c));
  RABBET_RETURN_IF_ERROR(
      RABBET_NCCL(c->library, c->given, ncclCommCount, (c->given, &c->size)));
  RABBET_RETURN_IF_ERROR(RABBET_NCCL(c->library, c->given, ncclCommUserRank,
                                     (c->given, &c->rank)));
  RABBET_RETURN_IF_ERROR(device->vtable->allocate_host(
      device, (COMMUNICATOR_MARKS + 1) * sizeof(int32_t), (void**)&c->places));
  c->given_up = c->places + COMMUNICATOR_MARKS;
  *c->given_up = 0;
  RABBET_RETURN_IF_ERROR(
      device->vtable->allocate(device, sizeof(int32_t), &c->one));
  RABBET_RETURN_IF_ERROR(
      device->vtable->fill(device, c->one, 1, sizeof(int32_t), NULL));
  RABBET_RETURN_IF_ERROR(device->vtable->synchronize(device, NULL));
  pthread_condattr_init(&clock);
  pthread_condattr_setclock(&clock, CLOCK_MONOTONIC);
  pthread_cond_destroy(&c->changed);
  pthread_cond_init(&c->changed, &clock);
  pthread_condattr_destroy(&clock);
  if (pthread_create(&c->watcher, NULL, communicator_watch, c) != 0)
    return RABBET_STATUS(RABBET_STATUS_UNAVAILABLE,
                         "no thread can be started to watch the communicator");
  c->has_watcher = true;
  return rabbet_ok();
}

rabbet_status_t rabbet_nccl_communicator_open(rabbet_device_t* device,
                                              void* handle,
                                              rabbet_logger_t logger,
                                              rabbet_communicator_t** out) {
  const rabbet_nccl_t* library = NULL;
  nccl_communicator_t* c = NULL;
  *out = NULL;
  RABBET_RETURN_IF_ERROR(rabbet_nccl_get(rabbet_cuda(device), &library));
  RABBET_RETURN_IF_ERROR(
      rabbet_allocate(device->allocator, sizeof(*c), (void**)&c));
  c->allocator = device->allocator;
  c->device = rabbet_cuda(device);
  c->library = library;
  c->logger = logger;
  c->given = handle;
  pthread_mutex_init(&c->lock, NULL);
  pthread_cond_init(&c->changed, NULL);
  rabbet_status_t status = communicator_start(c);
  if (!rabbet_is_ok(status)) {
    rabbet_nccl_communicator_close(device, (rabbet_communicator_t*)c);
    return status;
  }
  *out = (rabbet_communicator_t*)c;
  return rabbet_ok();
}

void rabbet_nccl_communicator_close(rabbet_device_t* device,
                                    rabbet_communicator_t* base) {
  nccl_communicator_t* c = communicator_of(base);
  CUcontext before = NULL;
  if (c->has_watcher) {
    pthread_mutex_lock(&c->lock);
    c->closing = true;
    pthread_cond_broadcast(&c->changed);
    pthread_mutex_unlock(&c->lock);
    pthread_join(c->watcher, NULL);
  }
  rabbet_status_t inside = rabbet_cuda_enter(c->device, &before);
  // Nothing is on its way any more.
  communicator_abort(c);
  for (size_t i = 0; i < c->group_count; ++i) {
    rabbet_nccl_peers_destroy(c->groups[i].peers);
    rabbet_free(c->allocator, c->groups[i].ranks);
  }
  if (rabbet_is_ok(inside)) rabbet_cuda_leave(c->device, before);
  rabbet_status_ignore(inside);
  rabbet_free(c->allocator, c->groups);
  if (c->places) device->vtable->free_host(device, (void*)(uintptr_t)c->places);
  if (c->one) device->vtable->free(device, c->one);
  pthread_cond_destroy(&c->changed);
  pthread_mutex_destroy(&c->lock);
  rabbet_free(c->allocator, c);
}
