// The common part of all entries of the driver: the lock, the log, failures on
// demand, and calls that are not allowed now.
#define _GNU_SOURCE
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cuda_stand_in/internal.h"
#include "cuda_stand_in/stand_in.h"

// ---- The log ---------------------------------------------------------------

static struct {
  pthread_mutex_t lock;
  bool initialized;
  char* text;
  size_t size, room;
  FILE* file;  // of RABBET_STAND_IN_LOG
  bool file_looked_for;
  int misuses, misuses_ever;
  const char* fail_name;
  char fail_storage[64];
  int fail_in;  // calls from now; -1: none
  CUresult fail_code;
  const char* failed;
} entries = {
    // Work of streams, which runs under the lock, may report a wrong use.
    .lock = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP,
    .fail_in = -1};

static FILE* log_file(void) {
  if (entries.file_looked_for) return entries.file;
  entries.file_looked_for = true;
  const char* path = getenv("RABBET_STAND_IN_LOG");
  if (path && *path)
    entries.file = strcmp(path, "stderr") == 0 ? stderr : fopen(path, "a");
  return entries.file;
}

static void log_write(const char* format, va_list arguments) {
  char line[2048];
  int size = vsnprintf(line, sizeof(line), format, arguments);
  if (size < 0) return;
  if ((size_t)size >= sizeof(line)) size = sizeof(line) - 1;
  if (log_file()) fputs(line, log_file());
  if (entries.size + (size_t)size + 1 > entries.room) {
    size_t room = 2 * entries.room + (size_t)size + 4096;
    char* text = realloc(entries.text, room);
    if (!text) return;
    entries.text = text;
    entries.room = room;
  }
  memcpy(entries.text + entries.size, line, (size_t)size + 1);
  entries.size += (size_t)size;
}

void log_add(const char* format, ...) {
  va_list arguments;
  va_start(arguments, format);
  log_write(format, arguments);
  va_end(arguments);
}

// A long run keeps the newest part.
static void log_cut(void) {
  size_t most = 4 << 20;
  if (entries.size <= most) return;
  char* from = strchr(entries.text + entries.size - most / 2, '\n');
  if (!from) return;
  entries.size -= (size_t)(from + 1 - entries.text);
  memmove(entries.text, from + 1, entries.size + 1);
}

void misuse(const char* format, ...) {
  va_list arguments;
  va_start(arguments, format);
  fprintf(stderr, "CUDA stand-in: ");
  vfprintf(stderr, format, arguments);
  fprintf(stderr, "\n");
  va_end(arguments);
  ++entries.misuses;
  ++entries.misuses_ever;
}

// ---- Entries ---------------------------------------------------------------

// How often each was called; names are string constants of the entries.
static struct {
  const char* name;
  int calls;
} entry_counts[256];

static void entry_count(const char* name) {
  for (size_t i = 0; i < sizeof(entry_counts) / sizeof(entry_counts[0]); ++i) {
    if (!entry_counts[i].name) entry_counts[i].name = name;
    if (strcmp(entry_counts[i].name, name) != 0) continue;
    ++entry_counts[i].calls;
    return;
  }
  abort();
}

static CUresult entry_injected(const char* name) {
  if (entries.fail_in < 0) return CUDA_SUCCESS;
  if (entries.fail_name && strcmp(entries.fail_name, name) != 0)
    return CUDA_SUCCESS;
  if (!entries.fail_name && (strncmp(name, "cuCtx", 5) == 0 ||
                             strcmp(name, "cuPointerGetAttribute") == 0))
    return CUDA_SUCCESS;
  if (entries.fail_in-- > 0) return CUDA_SUCCESS;
  entries.failed = name;
  return entries.fail_code;
}

static CUresult entry_check(const char* name, unsigned flags) {
  if (!entries.initialized && !(flags & WITHOUT_DRIVER))
    return CUDA_ERROR_NOT_INITIALIZED;
  if (strcmp(name, "cuInit") == 0) entries.initialized = true;
  CUresult result = context_check(flags);
  if (result == CUDA_SUCCESS && flags & UNSAFE_IN_CAPTURE)
    result = capture_forbid();
  return result;
}

void entry_lock(void) {
  pthread_mutex_lock(&entries.lock);
}

void entry_unlock(void) {
  pthread_mutex_unlock(&entries.lock);
}

void entry_begin(entry_t* entry, const char* name, unsigned flags,
                 const char* format, ...) {
  *entry = (entry_t){.name = name};
  entry_count(name);
  log_cut();
  va_list arguments;
  va_start(arguments, format);
  log_add("%s ", name);
  log_write(format, arguments);
  va_end(arguments);
  entry->injected = entry_injected(name);
  entry->result = entry_check(name, flags);
  bool forced = entry->injected != CUDA_SUCCESS && !(flags & RELEASES);
  entry->skipped = forced || entry->result != CUDA_SUCCESS;
  if (forced) entry->result = entry->injected;
}

CUresult entry_end(entry_t* entry, CUresult result) {
  if (entry->injected != CUDA_SUCCESS) result = entry->injected;
  if (result == CUDA_SUCCESS) {
    log_add("\n");
  } else {
    log_add(" -> %d%s\n", result, entry->injected ? " (on demand)" : "");
  }
  pthread_mutex_unlock(&entries.lock);
  return result;
}

// ---- What tests ask --------------------------------------------------------

static int control_calls(const char* name) {
  int sum = 0;
  for (size_t i = 0; i < sizeof(entry_counts) / sizeof(entry_counts[0]); ++i) {
    if (!entry_counts[i].name) break;
    if (!name || strcmp(name, entry_counts[i].name) == 0)
      sum += entry_counts[i].calls;
  }
  return sum;
}

static const char* control_log(void) {
  return entries.text ? entries.text : "";
}

static void control_clear_log(void) {
  entries.size = 0;
  if (entries.text) entries.text[0] = 0;
  for (size_t i = 0; i < sizeof(entry_counts) / sizeof(entry_counts[0]); ++i)
    entry_counts[i].calls = 0;
}

static void control_fail_call(const char* name, int n, int code) {
  entries.fail_name = NULL;
  if (name) {
    snprintf(entries.fail_storage, sizeof(entries.fail_storage), "%s", name);
    entries.fail_name = entries.fail_storage;
  }
  entries.fail_in = n;
  entries.fail_code = code;
  entries.failed = NULL;
}

static const char* control_failed(void) {
  return entries.failed;
}

static void control_stop_failing(void) {
  entries.fail_in = -1;
  entries.failed = NULL;
}

static void control_limit_memory(size_t bytes) {
  context_memory_limit = bytes;
}

static stand_in_alive_t control_alive(void) {
  return (stand_in_alive_t){.contexts = context_count_but_kept(),
                            .allocations = memory_count(),
                            .bytes = memory_bytes(),
                            .streams = stream_count(),
                            .events = event_count(),
                            .modules = module_count(),
                            .graphs = graph_count(),
                            .graph_execs = graph_exec_count(),
                            .pools = pool_count(),
                            .library_objects = service_count(),
                            .pending = stream_pending()};
}

static int control_take_misuses(void) {
  memory_check("a question of the test");
  int count = entries.misuses;
  entries.misuses = 0;
  entries.misuses_ever -= count;
  return count;
}

static void control_set_capability(int major, int minor) {
  context_major = major;
  context_minor = minor;
}

// Each under the lock.
#define LOCKED(type, name, parameters, arguments) \
  static type locked_##name parameters {          \
    pthread_mutex_lock(&entries.lock);            \
    type result = control_##name arguments;       \
    pthread_mutex_unlock(&entries.lock);          \
    return result;                                \
  }
#define LOCKED_VOID(name, parameters, arguments) \
  static void locked_##name parameters {         \
    pthread_mutex_lock(&entries.lock);           \
    control_##name arguments;                    \
    pthread_mutex_unlock(&entries.lock);         \
  }
LOCKED(int, calls, (const char* name), (name))
LOCKED(const char*, log, (void), ())
LOCKED_VOID(clear_log, (void), ())
LOCKED_VOID(fail_call, (const char* name, int n, int code), (name, n, code))
LOCKED(const char*, failed, (void), ())
LOCKED_VOID(stop_failing, (void), ())
LOCKED_VOID(limit_memory, (size_t bytes), (bytes))
LOCKED(stand_in_alive_t, alive, (void), ())
LOCKED(int, take_misuses, (void), ())
LOCKED_VOID(set_capability, (int major, int minor), (major, minor))

EXPORT const stand_in_t rabbet_stand_in = {
    .calls = locked_calls,
    .log = locked_log,
    .clear_log = locked_clear_log,
    .fail_call = locked_fail_call,
    .failed = locked_failed,
    .stop_failing = locked_stop_failing,
    .limit_memory = locked_limit_memory,
    .alive = locked_alive,
    .take_misuses = locked_take_misuses,
    .set_capability = locked_set_capability,
};

// ---- The end of the process ------------------------------------------------

// A process that used the driver wrongly, or kept its objects, fails.
__attribute__((destructor)) static void stand_in_end(void) {
  memory_check("the end of the process");
  stand_in_alive_t alive = control_alive();
  if (alive.contexts || alive.allocations || alive.streams || alive.events ||
      alive.modules || alive.graphs || alive.graph_execs || alive.pools ||
      alive.library_objects) {
    misuse(
        "left at the end of the process: %d contexts, %d allocations (%zu "
        "bytes of the device), %d streams, %d events, %d modules, %d "
        "graphs, %d executable graphs, %d pools, %d objects of libraries",
        alive.contexts, alive.allocations, alive.bytes, alive.streams,
        alive.events, alive.modules, alive.graphs, alive.graph_execs,
        alive.pools, alive.library_objects);
    memory_report();
    service_report();
  }
  free(entries.text);
  if (entries.misuses_ever == 0) return;
  fprintf(stderr, "CUDA stand-in: %d wrong uses of the driver\n",
          entries.misuses_ever);
  const char* allowed = getenv("RABBET_STAND_IN_ALLOW");
  fflush(NULL);
  if (!allowed || !*allowed) _exit(86);
}
