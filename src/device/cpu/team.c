#define _GNU_SOURCE
#include "device/cpu/team.h"

#include <assert.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdalign.h>
#include <stdatomic.h>
#include <time.h>

#include "base/math.h"
#include "base/thread.h"
#include "rabbet/base.h"

// Time that a thread spins before it sleeps: it bridges the gaps between
// kernels. Waking one takes about as long.
enum { SPIN_NS = 50000, CLOCK_EVERY = 32 };
// If an owner waited so long for a helper, and twice as long as it computed,
// other programs use the processors. It then computes alone for a while, and
// longer if it is held up again soon after. Without a free processor it does so
// for a moment.
enum {
  HELD_UP_NS = 300000,
  ALONE_NS = 4000000,
  MOST_ALONE_NS = 160000000,
  NO_ROOM_NS = 1000000,
};
// Shares may wait for each other without our knowledge, as oneDNN's do. So
// helpers that leave an owner alone look at it so often, and take a share if it
// has not taken one meanwhile. If it has no more jobs, they cease to look.
enum { LOOK_NS = 1000000, MOST_LOOKS = 20 };

// The ticket has the number of the job, its shares, and the next one to take,
// in 32, 16 and 16 bits. `body` and `data` change only while no share is left
// to take or unfinished. Only the owner begins jobs.
typedef struct cpu_team_t {
  alignas(64) _Atomic uint64_t ticket;
  _Atomic(rabbet_team_body_t) body;
  _Atomic(void*) data;
  atomic_int owner_cpu;  // where the job began
  alignas(64) atomic_int unfinished;
  atomic_int arrived;  // at the barrier
  atomic_uint phase;   // barriers so far
  alignas(64) atomic_int sleepers;
  atomic_bool owner_sleeps;
  atomic_bool ends;
  atomic_bool is_alone;  // helpers leave the shares to the owner
  int processors;
  int64_t alone_until, alone_ns;  // the owner's
  int helper_count;
  pthread_t helpers[RABBET_MAX_THREADS];
  pthread_mutex_t lock;
  pthread_cond_t work, done;
} cpu_team_t;

static_assert(RABBET_MAX_THREADS < 1 << 16, "a ticket has 16 bits for a share");

// Threads that compute or spin, of all teams.
static atomic_int active_threads;

static _Thread_local cpu_team_t* own_team;
static _Thread_local int own_count;  // how often this thread counts as active
static _Thread_local struct {
  cpu_team_t* team;
  int share, shares;
} inside = {NULL, 0, 1};

static void cpu_relax(void) {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  __asm__ volatile("yield");
#endif
}

// Whether there is still time to spin. Each spin counts; *begin is 0 at first.
static bool team_may_spin(const cpu_team_t* team, int64_t* begin, int* spins) {
  cpu_relax();
  if (++*spins % CLOCK_EVERY != 0) return true;
  int64_t now = rabbet_time_ns();
  if (*begin == 0) *begin = now;
  bool crowded = atomic_load_explicit(&active_threads, memory_order_relaxed) >
                 team->processors;
  return now - *begin < (crowded ? SPIN_NS / 16 : SPIN_NS);
}

// ---- Shares ----------------------------------------------------------------

typedef struct team_share_t {
  rabbet_team_body_t body;
  void* data;
  int share, shares;
} team_share_t;

static int ticket_next(uint64_t ticket) {
  return (int)(ticket & 0xffff);
}
static int ticket_shares(uint64_t ticket) {
  return (int)(ticket >> 16 & 0xffff);
}
static bool ticket_has_work(uint64_t ticket) {
  return ticket_next(ticket) < ticket_shares(ticket);
}

// If the ticket has not changed meanwhile, this share was left, so its job has
// not ended: body and data are those of the job.
static bool team_take(cpu_team_t* team, team_share_t* out_share) {
  uint64_t ticket = atomic_load_explicit(&team->ticket, memory_order_acquire);
  while (ticket_has_work(ticket)) {
    *out_share =
        (team_share_t){atomic_load_explicit(&team->body, memory_order_relaxed),
                       atomic_load_explicit(&team->data, memory_order_relaxed),
                       ticket_next(ticket), ticket_shares(ticket)};
    if (atomic_compare_exchange_weak_explicit(&team->ticket, &ticket,
                                              ticket + 1, memory_order_acq_rel,
                                              memory_order_acquire))
      return true;
  }
  return false;
}

static void team_run_share(cpu_team_t* team, const team_share_t* share) {
  assert(share->share < share->shares);
  inside.team = team;
  inside.share = share->share;
  inside.shares = share->shares;
  share->body(share->data);
  inside.team = NULL;
  inside.share = 0;
  inside.shares = 1;
  if (atomic_fetch_sub(&team->unfinished, 1) == 1 &&
      atomic_load(&team->owner_sleeps)) {
    pthread_mutex_lock(&team->lock);
    pthread_cond_signal(&team->done);
    pthread_mutex_unlock(&team->lock);
  }
}

// ---- Helpers ---------------------------------------------------------------

static void team_wait_briefly(cpu_team_t* team) {
  struct timespec end;
  clock_gettime(CLOCK_MONOTONIC, &end);
  end.tv_nsec += LOOK_NS;
  if (end.tv_nsec >= 1000000000) ++end.tv_sec, end.tv_nsec -= 1000000000;
  pthread_cond_timedwait(&team->work, &team->lock, &end);
}

// A helper counts as a sleeper before it looks for work for the last time, and
// the owner offers work before it looks for sleepers.
static void team_sleep(cpu_team_t* team) {
  uint64_t seen = 0;
  int looks = 0;
  pthread_mutex_lock(&team->lock);
  atomic_fetch_add(&team->sleepers, 1);
  atomic_fetch_sub(&active_threads, 1);
  while (!atomic_load(&team->ends)) {
    uint64_t ticket = atomic_load(&team->ticket);
    bool is_alone = atomic_load(&team->is_alone);
    if (ticket_has_work(ticket) && (!is_alone || ticket == seen)) break;
    looks = ticket == seen ? looks + 1 : 0;
    seen = ticket;
    if (!is_alone)
      pthread_cond_wait(&team->work, &team->lock);
    else if (looks < MOST_LOOKS)
      team_wait_briefly(team);
    else
      atomic_store(&team->is_alone, false);
  }
  atomic_fetch_add(&active_threads, 1);
  atomic_fetch_sub(&team->sleepers, 1);
  pthread_mutex_unlock(&team->lock);
}

// Wakes as many helpers as there are sleepers, or up to `count`.
static void team_wake(cpu_team_t* team, int count) {
  pthread_mutex_lock(&team->lock);
  if (count >= team->helper_count)
    pthread_cond_broadcast(&team->work);
  else
    while (count-- > 0)
      pthread_cond_signal(&team->work);
  pthread_mutex_unlock(&team->lock);
}

// A helper that was woken on the owner's processor keeps the owner from
// running, until the system moves one of them, some milliseconds later.
static void team_leave_owner(const cpu_team_t* team) {
  int cpu = sched_getcpu();
  cpu_set_t allowed, others;
  if (cpu < 0 || cpu >= CPU_SETSIZE ||
      cpu != atomic_load_explicit(&team->owner_cpu, memory_order_relaxed) ||
      sched_getaffinity(0, sizeof(allowed), &allowed) != 0)
    return;
  others = allowed;
  CPU_CLR(cpu, &others);
  if (CPU_COUNT(&others) == 0) return;
  if (sched_setaffinity(0, sizeof(others), &others) == 0)
    sched_setaffinity(0, sizeof(allowed), &allowed);
}

static void* team_help(void* argument) {
  cpu_team_t* team = argument;
  team_share_t share;
  int64_t begin = 0;
  int spins = 0;
  atomic_fetch_add(&active_threads, 1);
  while (!atomic_load_explicit(&team->ends, memory_order_relaxed)) {
    bool is_alone = atomic_load_explicit(&team->is_alone, memory_order_relaxed);
    if (!is_alone && team_take(team, &share)) {
      team_run_share(team, &share);
    } else if (!is_alone && team_may_spin(team, &begin, &spins)) {
      continue;
    } else {
      team_sleep(team);
      team_leave_owner(team);
      // Also of an owner that is alone, but stuck.
      if (team_take(team, &share)) team_run_share(team, &share);
    }
    begin = 0, spins = 0;
  }
  atomic_fetch_sub(&active_threads, 1);
  return NULL;
}

// Signals go to threads that the program knows, except for faults: these are a
// thread's own, and blocked they end the process without asking its handlers.
static int team_start_helper(cpu_team_t* team, pthread_t* out_thread) {
  static const int faults[] = {SIGBUS,  SIGFPE, SIGILL,
                               SIGSEGV, SIGSYS, SIGTRAP};
  sigset_t mask, before;
  sigfillset(&mask);
  for (size_t i = 0; i < sizeof(faults) / sizeof(faults[0]); ++i)
    sigdelset(&mask, faults[i]);
  pthread_sigmask(SIG_SETMASK, &mask, &before);
  int error = pthread_create(out_thread, NULL, team_help, team);
  pthread_sigmask(SIG_SETMASK, &before, NULL);
  return error;
}

// ---- Teams -----------------------------------------------------------------

// At the end of a thread others' destructors may run loops after this one.
static void team_destroy(void* pointer) {
  cpu_team_t* team = pointer;
  int cancel = 0;
  own_team = NULL;
  assert(!ticket_has_work(atomic_load(&team->ticket)));
  pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel);
  atomic_store(&team->ends, true);
  team_wake(team, team->helper_count);
  for (int i = 0; i < team->helper_count; ++i)
    pthread_join(team->helpers[i], NULL);
  pthread_setcancelstate(cancel, NULL);
  pthread_cond_destroy(&team->done);
  pthread_cond_destroy(&team->work);
  pthread_mutex_destroy(&team->lock);
  rabbet_free(rabbet_allocator_system(), team);
}

static pthread_key_t team_key;  // ends a thread's team with the thread
static bool is_ready;

// A fork's child has the thread that called fork, and no helpers.
static void team_after_fork(void) {
  if (own_team) {
    pthread_setspecific(team_key, NULL);
    rabbet_free(rabbet_allocator_system(), own_team);
  }
  own_team = NULL;
  inside.team = NULL;
  atomic_store(&active_threads, own_count);
}

static void team_initialize(void) {
  is_ready = pthread_key_create(&team_key, team_destroy) == 0 &&
             pthread_atfork(NULL, NULL, team_after_fork) == 0;
}

static rabbet_status_t team_create(cpu_team_t** out_team) {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  cpu_team_t* team = NULL;
  *out_team = NULL;
  pthread_once(&once, team_initialize);
  RABBET_RETURN_IF_ERROR(
      rabbet_allocate(rabbet_allocator_system(), sizeof(*team), (void**)&team));
  if (!is_ready || pthread_setspecific(team_key, team) != 0) {
    rabbet_free(rabbet_allocator_system(), team);
    return RABBET_STATUS(RABBET_STATUS_OUT_OF_MEMORY,
                         "the process has no room for a thread's data");
  }
  atomic_init(&team->ticket, 0);
  atomic_init(&team->body, NULL);
  atomic_init(&team->data, NULL);
  atomic_init(&team->owner_cpu, -1);
  atomic_init(&team->unfinished, 0);
  atomic_init(&team->arrived, 0);
  atomic_init(&team->phase, 0);
  atomic_init(&team->sleepers, 0);
  atomic_init(&team->owner_sleeps, false);
  atomic_init(&team->ends, false);
  atomic_init(&team->is_alone, false);
  team->processors = rabbet_cpu_count();
  team->alone_until = 0;
  team->alone_ns = ALONE_NS;
  team->helper_count = 0;
  pthread_mutex_init(&team->lock, NULL);
  pthread_condattr_t monotonic;
  pthread_condattr_init(&monotonic);
  pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
  pthread_cond_init(&team->work, &monotonic);
  pthread_cond_init(&team->done, NULL);
  pthread_condattr_destroy(&monotonic);
  *out_team = team;
  return rabbet_ok();
}

rabbet_status_t rabbet_team_begin(int threads) {
  assert(!rabbet_team_is_inside() && threads <= RABBET_MAX_THREADS);
  if (threads <= 1) return rabbet_ok();
  if (!own_team) RABBET_RETURN_IF_ERROR(team_create(&own_team));
  cpu_team_t* team = own_team;
  while (team->helper_count < threads - 1) {
    int error = team_start_helper(team, &team->helpers[team->helper_count]);
    if (error != 0)
      return RABBET_STATUS(RABBET_STATUS_OUT_OF_MEMORY,
                           "the system started %d of %d CPU threads (error %d)",
                           team->helper_count + 1, threads, error);
    ++team->helper_count;
  }
  return rabbet_ok();
}

void rabbet_team_end(void) {
  assert(!rabbet_team_is_inside());
  if (!own_team) return;
  pthread_setspecific(team_key, NULL);
  team_destroy(own_team);
}

int rabbet_team_size(void) {
  return own_team ? own_team->helper_count + 1 : 1;
}

void rabbet_team_count_owner(int change) {
  own_count += change;
  atomic_fetch_add_explicit(&active_threads, change, memory_order_relaxed);
}

// ---- Running ---------------------------------------------------------------

int rabbet_team_share(void) {
  return inside.share;
}

int rabbet_team_shares(void) {
  return inside.shares;
}

bool rabbet_team_is_inside(void) {
  return inside.team;
}

bool rabbet_team_is_awake(void) {
  return own_team && own_team->helper_count > 0 &&
         atomic_load_explicit(&own_team->sleepers, memory_order_relaxed) == 0;
}

// All shares, one after the other.
static void team_run_here(rabbet_team_body_t body, void* data, int shares) {
  int share = inside.share, before = inside.shares;
  inside.shares = shares;
  for (inside.share = 0; inside.share < shares; ++inside.share)
    body(data);
  inside.share = share;
  inside.shares = before;
}

static void team_leave_alone(cpu_team_t* team, int64_t now) {
  bool again = now - team->alone_until < team->alone_ns;
  team->alone_ns =
      again ? rabbet_min_i64(2 * team->alone_ns, MOST_ALONE_NS) : ALONE_NS;
  team->alone_until = now + team->alone_ns;
}

static void team_wait(cpu_team_t* team, int64_t job_begin) {
  int64_t begin = 0;
  int spins = 0;
  do {
    if (atomic_load_explicit(&team->unfinished, memory_order_acquire) == 0)
      return;
  } while (team_may_spin(team, &begin, &spins));
  // Helpers use the team, and what the job points to, until they are done.
  int cancel = 0;
  pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel);
  pthread_mutex_lock(&team->lock);
  atomic_store(&team->owner_sleeps, true);
  while (atomic_load(&team->unfinished) > 0)
    pthread_cond_wait(&team->done, &team->lock);
  atomic_store(&team->owner_sleeps, false);
  pthread_mutex_unlock(&team->lock);
  pthread_setcancelstate(cancel, NULL);
  int64_t now = rabbet_time_ns(), waited = now - begin;
  if (waited > HELD_UP_NS && waited / 2 > begin - job_begin)
    team_leave_alone(team, now);
}

// Decides whether helpers take part in the next job. Those that sleep do if
// there are processors for them. Returns whether they must wake: also to sleep
// in another way.
static bool team_invite(cpu_team_t* team, int64_t now) {
  bool asleep = atomic_load(&team->sleepers) > 0;
  bool was_alone = atomic_load_explicit(&team->is_alone, memory_order_relaxed);
  if (asleep && now >= team->alone_until &&
      atomic_load_explicit(&active_threads, memory_order_relaxed) >=
          team->processors)
    team->alone_until = now + NO_ROOM_NS;
  bool is_alone = now < team->alone_until;
  if (is_alone != was_alone) atomic_store(&team->is_alone, is_alone);
  return !was_alone;
}

static void team_run(cpu_team_t* team, rabbet_team_body_t body, void* data,
                     int shares) {
  int64_t now = rabbet_time_ns();
  uint64_t job =
      (atomic_load_explicit(&team->ticket, memory_order_relaxed) >> 32) + 1;
  team_share_t share = {body, data, 0, shares};
  assert(atomic_load(&team->unfinished) == 0);
  atomic_store_explicit(&team->body, body, memory_order_relaxed);
  atomic_store_explicit(&team->data, data, memory_order_relaxed);
  atomic_store_explicit(&team->unfinished, shares, memory_order_relaxed);
  atomic_store_explicit(&team->owner_cpu, sched_getcpu(), memory_order_relaxed);
  bool took_part = team_invite(team, now);
  atomic_store(&team->ticket, job << 32 | (uint64_t)shares << 16 | 1);
  // Those that took part wake also to leave the owner alone, but to look at it.
  bool is_alone = atomic_load(&team->is_alone);
  if ((took_part || !is_alone) && atomic_load(&team->sleepers) > 0)
    team_wake(team, is_alone ? team->helper_count : shares - 1);
  do {
    team_run_share(team, &share);
  } while (team_take(team, &share));
  team_wait(team, now);
}

void rabbet_team_run(rabbet_team_body_t body, void* data, int shares) {
  if (shares <= 1 || rabbet_team_is_inside()) {
    team_run_here(body, data, 1);
    return;
  }
  // If the system does not start all helpers, the work has fewer shares: shares
  // that wait for each other need a thread each.
  if (rabbet_team_size() < shares)
    rabbet_status_ignore(rabbet_team_begin(shares));
  if (rabbet_team_size() < shares) shares = rabbet_team_size();
  if (shares > 1)
    team_run(own_team, body, data, shares);
  else
    team_run_here(body, data, 1);
}

void rabbet_team_barrier(void) {
  cpu_team_t* team = inside.team;
  int shares = inside.shares;
  if (!team || shares <= 1) return;
  // Shares that wait here need the others to run, on threads of their own.
  atomic_store(&team->is_alone, false);
  if (atomic_load(&team->sleepers) > 0) team_wake(team, team->helper_count);
  unsigned phase = atomic_load_explicit(&team->phase, memory_order_relaxed);
  if (atomic_fetch_add(&team->arrived, 1) + 1 == shares) {
    atomic_store_explicit(&team->arrived, 0, memory_order_relaxed);
    atomic_store_explicit(&team->phase, phase + 1, memory_order_release);
    return;
  }
  int64_t begin = 0;
  int spins = 0;
  while (atomic_load_explicit(&team->phase, memory_order_acquire) == phase)
    if (!team_may_spin(team, &begin, &spins)) sched_yield();
}
