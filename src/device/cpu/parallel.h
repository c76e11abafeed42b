// Loops over the calling thread's OpenMP team: the only place that knows
// OpenMP.
#ifndef RABBET_SRC_DEVICE_CPU_PARALLEL_H_
#define RABBET_SRC_DEVICE_CPU_PARALLEL_H_

#include <stdint.h>

#include "base/status.h"

// Bytes of work below which another thread is not worth waking.
#define RABBET_CPU_GRAIN_BYTES (256 * 1024)

// Calls body for disjoint ranges that cover [0, count), at most one for each
// thread, none shorter than `grain` (but the last). In the calling thread alone
// when one range is enough.
void rabbet_cpu_parallel(int64_t count, int64_t grain,
                         void (*body)(void* context, int64_t begin,
                                      int64_t end),
                         void* context);

// Which of the loop's threads calls, in its body: 0 to threads - 1, for memory
// that each has of its own.
int rabbet_cpu_slot(void);
// How many such there can be for a context with `threads`.
static inline int rabbet_cpu_slots(int threads) {
  return threads > 1 ? threads : 1;
}

// Runs after which a thread keeps its helpers; before, they end with each run.
// A thread that only warms up often does not serve: idle helpers still count in
// OpenMP, which lets threads spin only if each has a processor.
#define RABBET_CPU_TRIAL_RUNS 16

// Around a run on the calling thread, with `threads` threads; runs may be
// nested. Fails where it cannot have them: in the child of a fork.
rabbet_status_t rabbet_cpu_begin_threads(int threads, int* out_before);
void rabbet_cpu_end_threads(int before);
// The calling thread's helpers go, if it has any and is in no run.
void rabbet_cpu_release_threads(void);
// Sets the number of threads for the calling thread's loops; returns the
// previous one.
int rabbet_cpu_set_threads(int threads);
int rabbet_cpu_threads(void);

#endif  // RABBET_SRC_DEVICE_CPU_PARALLEL_H_
