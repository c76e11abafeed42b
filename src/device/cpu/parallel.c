#include "device/cpu/parallel.h"

#include <omp.h>

#include "base/math.h"

// Not omp_get_thread_num: the caller may itself be in a team of its own.
static _Thread_local int slot_in_team;

int rabbet_cpu_slot(void) {
  return slot_in_team;
}

void rabbet_cpu_parallel(int64_t count, int64_t grain,
                         void (*body)(void* context, int64_t begin,
                                      int64_t end),
                         void* context) {
  if (count <= 0) return;
  if (grain < 1) grain = 1;
  int64_t ranges =
      rabbet_min_i64(rabbet_ceildiv(count, grain),
                     omp_in_parallel() ? 1 : omp_get_max_threads());
  if (ranges <= 1) {
    body(context, 0, count);
    return;
  }
  int64_t grains = rabbet_ceildiv(count, grain);
#pragma omp parallel num_threads((int)ranges)
  {
    // A team may be smaller than asked for.
    int64_t team = omp_get_num_threads(), me = omp_get_thread_num();
    int64_t begin = grains * me / team * grain;
    int64_t end = rabbet_min_i64(grains * (me + 1) / team * grain, count);
    slot_in_team = (int)me;
    if (begin < end) body(context, begin, end);
    slot_in_team = 0;
  }
}

int rabbet_cpu_set_threads(int threads) {
  int before = omp_get_max_threads();
  omp_set_num_threads(threads > 0 ? threads : 1);
  return before;
}
