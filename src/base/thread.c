#define _GNU_SOURCE
#include "base/thread.h"

#include <errno.h>
#include <limits.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "base/math.h"

int64_t rabbet_time_ns(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

uint64_t rabbet_interruptions(bool of_process) {
  struct rusage usage;
#if defined(RUSAGE_THREAD)
  int who = of_process ? RUSAGE_SELF : RUSAGE_THREAD;
#else
  int who = RUSAGE_SELF;
  (void)of_process;
#endif
  return getrusage(who, &usage) == 0 ? (uint64_t)usage.ru_nivcsw : 0;
}

uint64_t rabbet_peak_resident(void) {
  struct rusage usage;
  return getrusage(RUSAGE_SELF, &usage) == 0 ? (uint64_t)usage.ru_maxrss << 10
                                             : 0;
}

// Processors in the affinity mask; a machine may have more than a cpu_set_t
// holds.
static int cpu_count_affinity(void) {
  for (int capacity = CPU_SETSIZE; capacity <= 1 << 16; capacity *= 2) {
    cpu_set_t* set = CPU_ALLOC((size_t)capacity);
    if (!set) break;
    size_t size = CPU_ALLOC_SIZE((size_t)capacity);
    int error = sched_getaffinity(0, size, set) == 0 ? 0 : errno;
    int count = error ? 0 : CPU_COUNT_S(size, set);
    CPU_FREE(set);
    if (!error) return count;
    if (error != EINVAL) break;
  }
  return (int)sysconf(_SC_NPROCESSORS_ONLN);
}

static bool read_line(const char* path, char line[256]) {
  FILE* file = fopen(path, "re");
  if (!file) return false;
  bool ok = fgets(line, 256, file) != NULL;
  fclose(file);
  return ok;
}

static int quota_cpus(int64_t quota, int64_t period) {
  if (quota <= 0 || period <= 0) return INT_MAX;
  return (int)rabbet_min_i64(rabbet_ceildiv(quota, period), INT_MAX);
}

// The quota of one control group, version 2 ("max 100000" or "200000 100000")
// or 1 (two files); INT_MAX when there is none.
static int cgroup_quota(bool v2, const char* folder) {
  char path[PATH_MAX + 64], line[256];
  long long quota = -1, period = -1;
  if (v2) {
    snprintf(path, sizeof(path), "%s/cpu.max", folder);
    if (!read_line(path, line) ||
        sscanf(line, "%lld %lld", &quota, &period) != 2)
      return INT_MAX;
    return quota_cpus(quota, period);
  }
  snprintf(path, sizeof(path), "%s/cpu.cfs_quota_us", folder);
  if (!read_line(path, line) || sscanf(line, "%lld", &quota) != 1)
    return INT_MAX;
  snprintf(path, sizeof(path), "%s/cpu.cfs_period_us", folder);
  if (!read_line(path, line) || sscanf(line, "%lld", &period) != 1)
    return INT_MAX;
  return quota_cpus(quota, period);
}

// The smallest quota of a group and the groups that hold it.
static int cgroup_chain(bool v2, const char* root, const char* group) {
  char folder[PATH_MAX];
  int size = snprintf(folder, sizeof(folder), "%s%s", root, group);
  if (size < 0 || size >= (int)sizeof(folder)) return INT_MAX;
  int least = INT_MAX;
  for (;;) {
    int quota = cgroup_quota(v2, folder);
    if (quota < least) least = quota;
    char* slash = strrchr(folder, '/');
    if (!slash || (size_t)(slash - folder) < strlen(root)) return least;
    *slash = '\0';
  }
}

// One line of /proc/self/cgroup: "0::/a/b" (version 2), "4:cpu,cpuacct:/a/b".
static int cgroup_line(char* line) {
  line[strcspn(line, "\n")] = '\0';
  char* controllers = strchr(line, ':');
  if (!controllers) return INT_MAX;
  char* group = strchr(++controllers, ':');
  if (!group) return INT_MAX;
  *group++ = '\0';
  if (*controllers == '\0') return cgroup_chain(true, "/sys/fs/cgroup", group);
  char* rest = NULL;
  for (char* name = strtok_r(controllers, ",", &rest); name;
       name = strtok_r(NULL, ",", &rest)) {
    if (strcmp(name, "cpu") == 0)
      return cgroup_chain(false, "/sys/fs/cgroup/cpu", group);
  }
  return INT_MAX;
}

static int cpu_count_cgroup(void) {
  FILE* file = fopen("/proc/self/cgroup", "re");
  if (!file) return INT_MAX;
  char line[PATH_MAX];
  int least = INT_MAX;
  while (fgets(line, sizeof(line), file)) {
    int quota = cgroup_line(line);
    if (quota < least) least = quota;
  }
  fclose(file);
  return least;
}

int rabbet_cpu_count(void) {
  int affinity = cpu_count_affinity();
  int quota = cpu_count_cgroup();
  int count = affinity < quota ? affinity : quota;
  return count > 1 ? count : 1;
}

uint64_t rabbet_memory_limit(void) {
  struct rlimit space;
  long pages = sysconf(_SC_PHYS_PAGES), page = sysconf(_SC_PAGESIZE);
  uint64_t limit =
      pages > 0 && page > 0 ? (uint64_t)pages * (uint64_t)page : UINT64_MAX;
  bool limited = getrlimit(RLIMIT_AS, &space) == 0 &&
                 space.rlim_cur != RLIM_INFINITY && space.rlim_cur < limit;
  return limited ? space.rlim_cur : limit;
}

static bool is_limited(int resource) {
  struct rlimit limit;
  return getrlimit(resource, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY;
}

bool rabbet_memory_fits(size_t size) {
  if (!is_limited(RLIMIT_AS) && !is_limited(RLIMIT_DATA)) return true;
  void* memory = mmap(NULL, size, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return false;
  munmap(memory, size);
  return true;
}
