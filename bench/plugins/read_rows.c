// Reads memory as fast as it comes: the bound of products with weights that are
// read once. bench/rows.py opens it.
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <stddef.h>
#include <stdint.h>

#define EXPORT __attribute__((visibility("default")))

enum { MOST_THREADS = 64, LINE = 64, AHEAD = 2048 };

typedef uint64_t line_t __attribute__((vector_size(LINE), aligned(LINE)));

typedef struct part_t {
  const char* begin;
  size_t bytes;
  int streams;
  uint64_t found;
} part_t;

#if defined(__x86_64__)
#define WIDEST \
  __attribute__((target_clones("arch=x86-64-v4", "avx2", "default")))
#else
#define WIDEST
#endif

// Streams are parts of the memory that are read side by side.
WIDEST static void* read_part(void* argument) {
  part_t* part = argument;
  size_t each = part->bytes / (size_t)part->streams / LINE * LINE;
  line_t all = {0};
  for (size_t i = 0; i < each; i += LINE)
    for (int s = 0; s < part->streams; ++s) {
      const char* at = part->begin + (size_t)s * each + i;
      __builtin_prefetch((const void*)((uintptr_t)at + AHEAD), 0, 2);
      all |= *(const line_t*)(const void*)at;
    }
  for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); ++i)
    part->found |= all[i];
  return NULL;
}

// A new thread often begins on its maker's processor, and is moved after
// milliseconds: each thread gets one of the `allowed`, if there are enough.
static void keep_to_one(pthread_t thread, const cpu_set_t* allowed, int index) {
  cpu_set_t one;
  CPU_ZERO(&one);
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu)
    if (CPU_ISSET(cpu, allowed) && index-- == 0) CPU_SET(cpu, &one);
  if (CPU_COUNT(&one) == 1) pthread_setaffinity_np(thread, sizeof(one), &one);
}

// `bytes` and `data` are multiples of 64 bytes.
EXPORT uint64_t bench_read(const void* data, size_t bytes, int streams,
                           int threads) {
  part_t parts[MOST_THREADS];
  pthread_t others[MOST_THREADS];
  uint64_t found = 0;
  int started = 1;
  if (threads > MOST_THREADS) threads = MOST_THREADS;
  size_t each = bytes / (size_t)threads / LINE * LINE;
  for (int i = 0; i < threads; ++i)
    parts[i] = (part_t){(const char*)data + (size_t)i * each, each, streams, 0};
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  sched_getaffinity(0, sizeof(allowed), &allowed);
  keep_to_one(pthread_self(), &allowed, 0);
  for (; started < threads; ++started) {
    if (pthread_create(&others[started], NULL, read_part, &parts[started]) != 0)
      break;
    keep_to_one(others[started], &allowed, started);
  }
  for (int i = started; i < threads; ++i)
    read_part(&parts[i]);
  read_part(&parts[0]);
  for (int i = 0; i < threads; ++i) {
    if (i > 0 && i < started) pthread_join(others[i], NULL);
    found |= parts[i].found;
  }
  sched_setaffinity(0, sizeof(allowed), &allowed);
  return found;
}
