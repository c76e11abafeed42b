#include "device/cpu/parallel.h"

#include <assert.h>
#include <pthread.h>

#include "base/math.h"
#include "base/thread.h"
#include "device/cpu/dnnl/headroom.h"
#include "device/cpu/team.h"

// libgomp's: oneDNN uses it, not openmp.c, where the program has opened either
// before. The second is Fortran's name; that of C is one of openmp.c's.
void omp_set_num_threads(int threads);
int32_t omp_get_max_threads_(void);
int omp_pause_resource_all(int kind);

int rabbet_cpu_slot(void) {
  return rabbet_team_share();
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

static void cpu_loop_share(void* data) {
  const cpu_loop_t* loop = data;
  int64_t shares = rabbet_team_shares(), me = rabbet_team_share();
  int64_t begin = cpu_loop_border(loop, me, shares);
  int64_t end = cpu_loop_border(loop, me + 1, shares);
  if (begin < end) loop->body(loop->context, begin, end);
}

// Helpers that still spin take a share in a tenth of a microsecond; waking
// those that sleep takes 25.
enum { AWAKE_SHARE = 8 };

static int64_t cpu_awake_grain(int64_t grain) {
  return rabbet_max_i64(1, grain / AWAKE_SHARE);
}

// The work of small loops that were not worth waking the helpers, in grains.
static _Thread_local double kept_from_helpers;

static int64_t cpu_loop_threads(int64_t count, int64_t grain) {
  int64_t least = cpu_awake_grain(grain);
  if (count <= least || rabbet_team_is_inside()) return 1;
  int64_t threads = rabbet_min_i64(count / least, rabbet_cpu_threads());
  if (threads <= 1 || count > grain || rabbet_team_is_awake()) return threads;
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
  kept_from_helpers = 0;
  rabbet_team_run(cpu_loop_share, &loop, (int)threads);
}

// ---- Teams -----------------------------------------------------------------

enum { NONE_SET = -1 };

static _Thread_local int run_depth;
static _Thread_local int loop_threads = NONE_SET;
static _Thread_local int program_threads;  // libgomp's before one was set

// libgomp's helpers are the thread's own, too. It would wait for those that a
// fork's child lacks, so the thread parts with them before; it gets new ones.
static void cpu_before_fork(void) {
  enum { PAUSE_SOFT = 1 };
  // Within a parallel region of the program it fails.
  if (rabbet_team_size() > 1) omp_pause_resource_all(PAUSE_SOFT);
}

static void cpu_watch_forks(void) {
  pthread_atfork(cpu_before_fork, NULL, NULL);
}

static rabbet_status_t cpu_claim_threads(int threads) {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  int team = rabbet_team_size();
  if (threads <= team || rabbet_team_is_inside()) return rabbet_ok();
  RABBET_RETURN_IF_ERROR(rabbet_cpu_check_thread_room(threads - team));
  pthread_once(&once, cpu_watch_forks);
  return rabbet_team_begin(threads);
}

int rabbet_cpu_threads(void) {
  static _Thread_local int processors;
  if (loop_threads != NONE_SET) return loop_threads;
  if (processors == 0) processors = rabbet_cpu_count();
  return processors;
}

// libgomp's number is the program's again afterwards.
static void cpu_exchange_threads(int threads) {
  if (loop_threads == NONE_SET) program_threads = omp_get_max_threads_();
  loop_threads = threads;
  omp_set_num_threads(threads == NONE_SET ? program_threads : threads);
}

int rabbet_cpu_set_threads(int threads) {
  int before = loop_threads;
  cpu_exchange_threads(threads > 0 ? threads : 1);
  return before;
}

void rabbet_cpu_restore_threads(int before) {
  cpu_exchange_threads(before);
}

rabbet_status_t rabbet_cpu_begin_threads(int threads, int* out_before) {
  RABBET_RETURN_IF_ERROR(cpu_claim_threads(threads));
  if (run_depth++ == 0) rabbet_team_count_owner(1);
  *out_before = rabbet_cpu_set_threads(threads);
  return rabbet_ok();
}

void rabbet_cpu_end_threads(int before) {
  assert(run_depth > 0 && (before > 0 || before == NONE_SET));
  rabbet_cpu_restore_threads(before);
  if (--run_depth == 0) rabbet_team_count_owner(-1);
}

void rabbet_cpu_release_threads(void) {
  if (run_depth == 0 && !rabbet_team_is_inside()) rabbet_team_end();
}
