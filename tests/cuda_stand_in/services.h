// Services of the stand-in driver for the stand-ins of libraries (cuBLASLt,
// cuDNN): one log, failures on demand, work in streams.
#ifndef RABBET_TESTS_CUDA_STAND_IN_SERVICES_H_
#define RABBET_TESTS_CUDA_STAND_IN_SERVICES_H_

#include <dlfcn.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "device/cuda/driver/driver_api.h"

typedef struct stand_in_services_t {
  // A call of the library, for the log. Not 0: it is to fail; one that releases
  // something releases it all the same.
  CUresult (*call)(const char* name, const char* arguments);
  // The same for a call that enqueues work: `run` gets a copy of `data` when
  // the stream comes to it.
  CUresult (*enqueue)(const char* name, const char* arguments, CUstream stream,
                      void (*run)(void* data), const void* data, size_t size);
  // For `run`: whether all of that memory is the device's. If not, the context
  // is broken.
  bool (*reach)(const void* address, size_t size, const char* what);
  // Objects of the library that are alive: by +1, -1.
  void (*track)(const char* kind, int by);
  // A wrong use, told and counted.
  void (*misuse)(const char* text);
} stand_in_services_t;

static inline const stand_in_services_t* stand_in_services(void) {
  static const stand_in_services_t* found;
  if (found) return found;
  const char* path = getenv("RABBET_CUDA_DRIVER");
  void* library = path ? dlopen(path, RTLD_NOW | RTLD_LOCAL) : NULL;
  found = library ? dlsym(library, "rabbet_stand_in_services") : NULL;
  if (found) return found;
  fprintf(stderr, "RABBET_CUDA_DRIVER does not name the stand-in driver\n");
  abort();
}

// Makes a library fail as a test demands: the variable holds "STAGE NUMBER
// KIND", as "run 6 hang". Crashes and hangs happen here; true: the caller is to
// break the context ("poison").
static inline bool stand_in_fault(const char* variable, const char* stage,
                                  int64_t number) {
  char where[16] = "", kind[16] = "";
  long long wanted = -1;
  const char* text = getenv(variable);
  if (!text || sscanf(text, "%15s %lld %15s", where, &wanted, kind) != 3 ||
      strcmp(where, stage) != 0 || wanted != number)
    return false;
  if (strcmp(kind, "crash") == 0) abort();
  while (strcmp(kind, "hang") == 0)
    pause();
  return true;
}

#endif  // RABBET_TESTS_CUDA_STAND_IN_SERVICES_H_
