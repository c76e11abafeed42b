// The functions of OpenMP's runtime that oneDNN calls, run by our teams: the
// dynamic linker finds these before libgomp's, as oneDNN is opened as a part of
// this library. Where a program has opened oneDNN before, it keeps libgomp's,
// which is told the number of threads, too (parallel.c).
#include <stdbool.h>

#include "device/cpu/parallel.h"
#include "device/cpu/team.h"

#define RABBET_OPENMP __attribute__((visibility("default")))

RABBET_OPENMP void GOMP_parallel(void (*body)(void* data), void* data,
                                 unsigned threads, unsigned flags);
RABBET_OPENMP void GOMP_barrier(void);
RABBET_OPENMP int omp_get_max_threads(void);
RABBET_OPENMP int omp_get_num_threads(void);
RABBET_OPENMP int omp_get_thread_num(void);
RABBET_OPENMP int omp_in_parallel(void);

void GOMP_parallel(void (*body)(void* data), void* data, unsigned threads,
                   unsigned flags) {
  (void)flags;
  rabbet_team_run(body, data,
                  threads > 0 ? (int)threads : rabbet_cpu_threads());
}

void GOMP_barrier(void) {
  rabbet_team_barrier();
}

int omp_get_max_threads(void) {
  return rabbet_cpu_threads();
}

int omp_get_num_threads(void) {
  return rabbet_team_shares();
}

int omp_get_thread_num(void) {
  return rabbet_team_share();
}

int omp_in_parallel(void) {
  return rabbet_team_is_inside();
}
