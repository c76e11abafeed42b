// Locks, counters and time.
#ifndef RABBET_SRC_BASE_THREAD_H_
#define RABBET_SRC_BASE_THREAD_H_

#include <pthread.h>
#include <stdatomic.h>

#include "rabbet/base.h"

typedef atomic_int_fast32_t rabbet_refcount_t;

static inline void rabbet_refcount_initialize(rabbet_refcount_t* count) {
  atomic_init(count, 1);
}
static inline void rabbet_refcount_retain(rabbet_refcount_t* count) {
  atomic_fetch_add_explicit(count, 1, memory_order_relaxed);
}
// True when that was the last reference.
static inline bool rabbet_refcount_release(rabbet_refcount_t* count) {
  return atomic_fetch_sub_explicit(count, 1, memory_order_acq_rel) == 1;
}

// Monotonic clock in nanoseconds.
RABBET_PRIVATE_API int64_t rabbet_time_ns(void);
// Number of involuntary context switches so far, of the calling thread or of
// all threads of this process.
RABBET_PRIVATE_API uint64_t rabbet_interruptions(bool of_process);

// Bytes of memory that the process had at most, mapped files included, since it
// began; 0 if the system does not tell.
RABBET_PRIVATE_API uint64_t rabbet_peak_resident(void);
// Maximum bytes that this process can have, of memory and of address space.
RABBET_PRIVATE_API uint64_t rabbet_memory_limit(void);
// False if this process has a limit (ulimit -v, -d) and an allocation of `size`
// bytes more fails. Other threads may take them at any time.
RABBET_PRIVATE_API bool rabbet_memory_fits(size_t size);
// Maximum number of threads of a build or a context.
#define RABBET_MAX_THREADS 4096
// Processors that this process may use (affinity and cgroup quota), >= 1.
RABBET_PRIVATE_API int rabbet_cpu_count(void);

#endif  // RABBET_SRC_BASE_THREAD_H_
