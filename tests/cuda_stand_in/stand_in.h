// The tests' interface to the stand-in for the CUDA driver, besides the
// driver's own: the log of calls, failures on demand, live objects. README.md
// tells how it behaves.
#ifndef RABBET_TESTS_CUDA_STAND_IN_STAND_IN_H_
#define RABBET_TESTS_CUDA_STAND_IN_STAND_IN_H_

#include <dlfcn.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

// PTX of the kernel "idle", which does nothing: for launches that may be wrong
// in any way. Its parameters are three addresses, an integer of 4 bytes, 12
// bytes and a tensor map.
#define STAND_IN_IDLE "// stand-in kernel without code"

// Objects that were made and not destroyed yet.
typedef struct stand_in_alive_t {
  // Contexts, primary ones as often as retained; one less of the first GPU's,
  // which whoever leaves it current on a thread keeps to the process's end.
  int contexts;
  int allocations;  // of device memory and of pinned host memory
  size_t bytes;     // of device memory
  int streams, events, modules, graphs, graph_execs;
  int pools;
  int library_objects;  // of cuBLASLt and cuDNN
  int pending;          // operations that are queued and not executed
} stand_in_alive_t;

typedef struct stand_in_t {
  // Calls of `name` ("cuMemAlloc", as driver.def names them; NULL: all), since
  // the log was cleared.
  int (*calls)(const char* name);
  // The calls since then, a line each: name, arguments, what came back. Valid
  // until the next call of anything.
  const char* (*log)(void);
  void (*clear_log)(void);
  // From now on: the n-th call (0: the next one) of `name` (NULL: of all but
  // cuCtx... and cuPointerGetAttribute, without which nothing can be given
  // back) returns `code`. A call that releases something releases it all the
  // same.
  void (*fail_call)(const char* name, int n, int code);
  // The name of the call that `fail_call` made fail, or NULL.
  const char* (*failed)(void);
  void (*stop_failing)(void);
  // Device memory that there is; what is allocated stays.
  void (*limit_memory)(size_t bytes);
  stand_in_alive_t (*alive)(void);
  // Wrong uses since the last call (each was printed): double frees, unknown
  // pointers, accesses out of bounds, deadlocks in kernels, leaks.
  int (*take_misuses)(void);
  // Of the device: 9, 0 at first.
  void (*set_capability)(int major, int minor);
} stand_in_t;

// From the library that RABBET_CUDA_DRIVER names, which also Rabbet opens.
static inline const stand_in_t* stand_in(void) {
  static const stand_in_t* found;
  if (found) return found;
  const char* path = getenv("RABBET_CUDA_DRIVER");
  void* library = path ? dlopen(path, RTLD_NOW | RTLD_LOCAL) : NULL;
  found = library ? dlsym(library, "rabbet_stand_in") : NULL;
  if (found) return found;
  fprintf(stderr, "RABBET_CUDA_DRIVER does not name the stand-in driver\n");
  exit(77);
}

#endif  // RABBET_TESTS_CUDA_STAND_IN_STAND_IN_H_
