// Loops over the calling thread's team (team.h).
#ifndef RABBET_SRC_DEVICE_CPU_PARALLEL_H_
#define RABBET_SRC_DEVICE_CPU_PARALLEL_H_

#include <stdint.h>

#include "base/status.h"

// Waking another thread pays only for at least this many bytes of work. While
// the others still spin after an earlier loop, an eighth is enough.
#define RABBET_CPU_GRAIN_BYTES (256 * 1024)

// Calls body for disjoint ranges that cover [0, count): at most one per thread,
// of equal lengths. A single range runs in the calling thread. `grain`: the
// part of `count` that is worth waking a thread. How many ranges there are
// depends on whether other threads are awake, so the result of an item must not
// depend on its range.
void rabbet_cpu_parallel(int64_t count, int64_t grain,
                         void (*body)(void* context, int64_t begin,
                                      int64_t end),
                         void* context);
// In a loop's body: the calling thread's number, from 0 to threads - 1, to
// select memory of its own.
int rabbet_cpu_slot(void);
// The number of slots for a context with `threads` threads.
static inline int rabbet_cpu_slots(int threads) {
  return threads > 1 ? threads : 1;
}

// Begins and ends a run with `threads` threads on the calling thread; runs may
// be nested. Fails if the system does not start the threads.
rabbet_status_t rabbet_cpu_begin_threads(int threads, int* out_before);
void rabbet_cpu_end_threads(int before);
// Ends the calling thread's helpers, unless it is in a run.
void rabbet_cpu_release_threads(void);
// Sets the number of threads for the calling thread's loops; returns what
// restores the previous one.
int rabbet_cpu_set_threads(int threads);
void rabbet_cpu_restore_threads(int before);
int rabbet_cpu_threads(void);

#endif  // RABBET_SRC_DEVICE_CPU_PARALLEL_H_
