#include "device/cpu/parallel.h"

#include <assert.h>
#include <pthread.h>

#include "base/math.h"
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

typedef struct cpu_loop_t {
  int64_t count, grain, grains;
  void (*body)(void* context, int64_t begin, int64_t end);
  void* context;
} cpu_loop_t;

// The share of each thread of a team; a team may be smaller than asked for.
static void cpu_loop_share(void* data) {
  RABBET_TEAM_ENTER(data);
  const cpu_loop_t* loop = data;
  int64_t team = omp_get_num_threads(), me = omp_get_thread_num();
  assert(me < team);
  assert(slot_in_team == 0);
  int64_t begin = loop->grains * me / team * loop->grain;
  int64_t end =
      rabbet_min_i64(loop->grains * (me + 1) / team * loop->grain, loop->count);
  slot_in_team = (int)me;
  if (begin < end) loop->body(loop->context, begin, end);
  slot_in_team = 0;
  RABBET_TEAM_LEAVE(data);
}

void rabbet_cpu_parallel(int64_t count, int64_t grain,
                         void (*body)(void* context, int64_t begin,
                                      int64_t end),
                         void* context) {
  if (count <= 0) return;
  if (grain < 1) grain = 1;
  cpu_loop_t loop = {count, grain, rabbet_ceildiv(count, grain), body, context};
  assert(loop.grains >= 1);
  int64_t threads = rabbet_min_i64(
      loop.grains, omp_in_parallel() ? 1 : omp_get_max_threads());
  if (threads <= 1) {
    body(context, 0, count);
    return;
  }
  RABBET_TEAM_LEAVE(&loop);
  GOMP_parallel(cpu_loop_share, &loop, (unsigned)threads, 0);
  RABBET_TEAM_ENTER(&loop);
}

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
