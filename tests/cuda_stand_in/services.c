// Services of the driver for the stand-ins of libraries.
#include "cuda_stand_in/services.h"

#include <stdlib.h>
#include <string.h>

#include "cuda_stand_in/internal.h"

static struct {
  const char* name;
  int alive;
} kinds[32];

int service_count(void) {
  int count = 0;
  for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); ++i)
    count += kinds[i].alive;
  return count;
}

void service_report(void) {
  for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); ++i)
    if (kinds[i].alive)
      fprintf(stderr, "  %d %s\n", kinds[i].alive, kinds[i].name);
}

static void service_track_locked(const char* kind, int by) {
  for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); ++i) {
    if (!kinds[i].name) kinds[i].name = kind;
    if (strcmp(kinds[i].name, kind) != 0) continue;
    kinds[i].alive += by;
    return;
  }
  abort();
}

static void service_track(const char* kind, int by) {
  entry_lock();
  service_track_locked(kind, by);
  entry_unlock();
}

static CUresult service_call(const char* name, const char* arguments) {
  entry_t entry;
  entry_lock();
  entry_begin(&entry, name, 0, "%s", arguments);
  return entry_end(&entry, entry.result);
}

static CUresult service_submit(const char* name, CUstream stream,
                               void (*run)(void* data), const void* data,
                               size_t size) {
  op_t op = {.type = OP_HOST,
             .run = run,
             .is_early = strncmp(name, "cudnn", 5) == 0,
             .snapshot = malloc(size + 1)};
  if (!op.snapshot) return CUDA_ERROR_OUT_OF_MEMORY;
  memcpy(op.snapshot, data, size);
  return stream_submit(stream, &op);
}

static CUresult service_enqueue(const char* name, const char* arguments,
                                CUstream stream, void (*run)(void* data),
                                const void* data, size_t size) {
  entry_t entry;
  entry_lock();
  entry_begin(&entry, name, NEEDS_CONTEXT, "%s, stream %d", arguments,
              stream_number(stream));
  return entry_end(&entry, entry.skipped
                               ? entry.result
                               : service_submit(name, stream, run, data, size));
}

static bool service_reach(const void* address, size_t size, const char* what) {
  return op_may_access(address, size, KIND_DEVICE, what);
}

static void service_misuse(const char* text) {
  entry_lock();
  misuse("%s", text);
  entry_unlock();
}

EXPORT const stand_in_services_t rabbet_stand_in_services = {
    .call = service_call,
    .enqueue = service_enqueue,
    .reach = service_reach,
    .track = service_track,
    .misuse = service_misuse,
};
