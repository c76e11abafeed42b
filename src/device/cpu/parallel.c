#include "device/cpu/parallel.h"

#include <assert.h>
#include <pthread.h>

#include "base/math.h"
#include "base/thread.h"
#include "device/cpu/dnnl/headroom.h"

// Functions of libgomp, the OpenMP runtime of oneDNN. They are declared here,
// so that code of all compilers shares one runtime and its threads.
int omp_get_max_threads(void);
void omp_set_num_threads(int threads);
int omp_get_num_threads(void);
int omp_get_thread_num(void);
int omp_in_parallel(void);
int omp_pause_resource_all(int kind);
void GOMP_parallel(void (*body)(void* data), void* data, unsigned threads,
                   unsigned flags);

// The thread sanitizer does not see libgomp's barriers and needs annotations.
#if defined(__SANITIZE_THREAD__)
#define RABBET_TSAN 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define RABBET_TSAN 1
#endif
#endif
#ifdef RABBET_TSAN
void __tsan_acquire(void* address);
void __tsan_release(void* address);
#define RABBET_TEAM_ENTER(loop) __tsan_acquire(loop)
#define RABBET_TEAM_LEAVE(loop) __tsan_release(loop)
#else
#define RABBET_TEAM_ENTER(loop) (void)(loop)
#define RABBET_TEAM_LEAVE(loop) (void)(loop)
#endif

// The thread's number in a loop. omp_get_thread_num would be wrong if the
// caller is in a team of its own.
static _Thread_local int slot_in_team;

int rabbet_cpu_slot(void) {
  return slot_in_team;
}

// ---- Loops -----------------------------------------------------------------

typedef struct cpu_loop_t {
  int64_t count, unit;
  void (*body)(void* context, int64_t begin, int64_t end);
  void* context;
} cpu_loop_t;

// Shares differ by at most one unit.
static int64_t cpu_loop_border(const cpu_loop_t* loop, int64_t part,
                               int64_t parts) {
  int64_t units = rabbet_ceildiv(loop->count, loop->unit);
  return rabbet_min_i64(units * part / parts * loop->unit, loop->count);
}

// The share of each thread of a team; a team may be smaller than asked for.
static void cpu_loop_share(void* data) {
  RABBET_TEAM_ENTER(data);
  const cpu_loop_t* loop = data;
  int64_t team = omp_get_num_threads(), me = omp_get_thread_num();
  assert(me < team);
  assert(slot_in_team == 0);
  int64_t begin = cpu_loop_border(loop, me, team);
  int64_t end = cpu_loop_border(loop, me + 1, team);
  slot_in_team = (int)me;
  if (begin < end) loop->body(loop->context, begin, end);
  slot_in_team = 0;
  RABBET_TEAM_LEAVE(data);
}

// Helpers that still spin take a loop over in half a microsecond; waking those
// that sleep takes 25. They spin for about as long as this after a loop.
enum { AWAKE_NS = 20000, AWAKE_SHARE = 8 };

static int64_t cpu_awake_grain(int64_t grain) {
  return rabbet_max_i64(1, grain / AWAKE_SHARE);
}

static _Thread_local int64_t awake_until;
// The work of small loops that were not worth waking the helpers, in grains.
static _Thread_local double kept_from_helpers;

void rabbet_cpu_helpers_ran(void) {
  awake_until = rabbet_time_ns() + AWAKE_NS;
  kept_from_helpers = 0;
}

static int64_t cpu_loop_threads(int64_t count, int64_t grain) {
  int64_t least = cpu_awake_grain(grain);
  if (count <= least || omp_in_parallel()) return 1;
  int64_t threads = rabbet_min_i64(count / least, omp_get_max_threads());
  if (threads <= 1 || count > grain) return threads;
  if (rabbet_time_ns() < awake_until) return threads;
  // Many small loops in a row are worth waking them, too.
  kept_from_helpers += (double)count / (double)grain;
  return kept_from_helpers > 1 ? threads : 1;
}

void rabbet_cpu_parallel(int64_t count, int64_t grain,
                         void (*body)(void* context, int64_t begin,
                                      int64_t end),
                         void* context) {
  if (count <= 0) return;
  if (grain < 1) grain = 1;
  int64_t threads = cpu_loop_threads(count, grain);
  assert(threads >= 1);
  if (threads == 1) {
    body(context, 0, count);
    return;
  }
  // Grains of bytes are powers of two, so that threads share no cache line.
  int64_t least = cpu_awake_grain(grain);
  cpu_loop_t loop = {count, rabbet_min_i64(least & -least, 64), body, context};
  assert(loop.unit * threads <= count);
  RABBET_TEAM_LEAVE(&loop);
  GOMP_parallel(cpu_loop_share, &loop, (unsigned)threads, 0);
  RABBET_TEAM_ENTER(&loop);
  rabbet_cpu_helpers_ran();
}

// ---- Teams -----------------------------------------------------------------

// OpenMP's helpers belong to the thread that first ran a loop on them. A fork
// does not copy them, so a loop of that thread in the child would wait for them
// for ever. Other threads of the child get helpers of their own.
static _Thread_local bool lost_team;
// The most threads that a run of this thread asked for; 0: it has no team.
static _Thread_local int team_threads;
static _Thread_local int run_depth, runs_on_team;

static void cpu_after_fork(void) {
  if (team_threads > 0) lost_team = true;
}

static void cpu_watch_forks(void) {
  pthread_atfork(NULL, NULL, cpu_after_fork);
}

static rabbet_status_t cpu_claim_threads(int threads) {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  if (threads <= 1) return rabbet_ok();
  if (lost_team)
    return RABBET_STATUS(
        RABBET_STATUS_FAILED_PRECONDITION,
        "%d CPU threads are asked for in a process that was forked by a "
        "thread which had run on several: they did not survive the fork. Start "
        "processes afresh (multiprocessing: 'spawn'), call from a new thread, "
        "or use 1 thread",
        threads);
  if (threads <= team_threads) return rabbet_ok();
  RABBET_RETURN_IF_ERROR(rabbet_cpu_check_thread_room(
      threads - (team_threads > 1 ? team_threads : 1)));
  if (team_threads == 0) pthread_once(&once, cpu_watch_forks);
  team_threads = threads;
  return rabbet_ok();
}

int rabbet_cpu_threads(void) {
  return omp_get_max_threads();
}

int rabbet_cpu_set_threads(int threads) {
  int before = omp_get_max_threads();
  omp_set_num_threads(threads > 0 ? threads : 1);
  return before;
}

static void cpu_end_team(void) {
  enum { PAUSE_SOFT = 1 };
  if (run_depth > 0 || lost_team) return;
  // It fails inside a team of the caller. omp_pause_resource would search for
  // accelerators.
  if (omp_pause_resource_all(PAUSE_SOFT) == 0) team_threads = 0;
  awake_until = 0;
}

rabbet_status_t rabbet_cpu_begin_threads(int threads, int* out_before) {
  RABBET_RETURN_IF_ERROR(cpu_claim_threads(threads));
  if (threads > 1 && run_depth == 0 && runs_on_team < RABBET_CPU_TRIAL_RUNS)
    ++runs_on_team;
  ++run_depth;
  *out_before = rabbet_cpu_set_threads(threads);
  return rabbet_ok();
}

void rabbet_cpu_end_threads(int before) {
  assert(run_depth > 0 && before > 0);
  rabbet_cpu_set_threads(before);
  --run_depth;
  if (team_threads > 0 && runs_on_team < RABBET_CPU_TRIAL_RUNS) cpu_end_team();
}

void rabbet_cpu_release_threads(void) {
  if (run_depth > 0) return;
  cpu_end_team();
  runs_on_team = 0;
}
