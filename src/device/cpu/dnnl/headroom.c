#define _GNU_SOURCE
#include "device/cpu/dnnl/headroom.h"

#include <pthread.h>

#include "base/math.h"
#include "base/thread.h"

// Room for a primitive's code and tables, which take a few MiB.
#define RABBET_CPU_ROOM ((size_t)16 << 20)

static rabbet_status_t cpu_check_bytes(size_t size, const char* use) {
  if (rabbet_memory_fits(size)) return rabbet_ok();
  return RABBET_STATUS(
      RABBET_STATUS_OUT_OF_MEMORY,
      "the limits of this process (ulimit -v, ulimit -d) leave fewer than the "
      "%zu MiB that %s may need",
      size >> 20, use);
}

rabbet_status_t rabbet_cpu_check_room(void) {
  return cpu_check_bytes(RABBET_CPU_ROOM, "oneDNN");
}

static size_t cpu_stack_size(void) {
  pthread_attr_t attributes;
  size_t size = (size_t)8 << 20;
  if (pthread_getattr_default_np(&attributes) != 0) return size;
  pthread_attr_getstacksize(&attributes, &size);
  pthread_attr_destroy(&attributes);
  return size;
}

rabbet_status_t rabbet_cpu_check_thread_room(int threads) {
  size_t size = 0;
  if (threads <= 0) return rabbet_ok();
  if (!rabbet_checked_mul((size_t)threads, cpu_stack_size(), &size) ||
      !rabbet_checked_add(size, RABBET_CPU_ROOM, &size))
    size = SIZE_MAX;
  return cpu_check_bytes(size, "the stacks of its CPU threads");
}
