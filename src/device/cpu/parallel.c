#include "device/cpu/parallel.h"

#include <assert.h>
#include <pthread.h>

#include "base/math.h"
#include "base/thread.h"
#include "device/cpu/dnnl/headroom.h"
#include "device/cpu/team.h"

// libgomp's; oneDNN may have been opened with it (openmp.c).
void omp_set_num_threads(int threads);

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

static _Thread_local int run_depth;
static _Thread_local int loop_threads;  // 0: not set yet

static void cpu_after_fork(void) {
  rabbet_team_forget();
  if (run_depth > 0) rabbet_team_count_owner(1);
}

static void cpu_watch_forks(void) {
  pthread_atfork(NULL, NULL, cpu_after_fork);
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
  if (loop_threads == 0) loop_threads = rabbet_cpu_count();
  return loop_threads;
}

int rabbet_cpu_set_threads(int threads) {
  int before = rabbet_cpu_threads();
  loop_threads = threads > 0 ? threads : 1;
  omp_set_num_threads(loop_threads);
  return before;
}

rabbet_status_t rabbet_cpu_begin_threads(int threads, int* out_before) {
  RABBET_RETURN_IF_ERROR(cpu_claim_threads(threads));
  if (run_depth++ == 0) rabbet_team_count_owner(1);
  *out_before = rabbet_cpu_set_threads(threads);
  return rabbet_ok();
}

void rabbet_cpu_end_threads(int before) {
  assert(run_depth > 0 && before > 0);
  rabbet_cpu_set_threads(before);
  if (--run_depth == 0) rabbet_team_count_owner(-1);
}

void rabbet_cpu_release_threads(void) {
  if (run_depth == 0 && !rabbet_team_is_inside()) rabbet_team_end();
}
