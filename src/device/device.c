#define _GNU_SOURCE
#include "device/device.h"

#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/store.h"
#include "base/symbol.h"
#include "base/thread.h"

// "cuda:1" -> "cuda", 1. Ordinals of devices that have one are 0 if not given.
static rabbet_status_t device_parse(const char* name, char out_kind[8],
                                    int* out_ordinal) {
  *out_ordinal = 0;
  const char* colon = strchr(name, ':');
  size_t size = colon ? (size_t)(colon - name) : strlen(name);
  bool valid = size > 0 && size < 8;
  for (size_t i = 0; valid && i < size; ++i) {
    valid = (name[i] >= 'a' && name[i] <= 'z') ||
            (name[i] >= '0' && name[i] <= '9' && i > 0);
  }
  if (valid && colon) {
    char* end = NULL;
    errno = 0;
    long ordinal = strtol(colon + 1, &end, 10);
    valid = end != colon + 1 && *end == 0 && errno == 0 && ordinal >= 0 &&
            ordinal < 1024;
    *out_ordinal = (int)ordinal;
  }
  if (!valid) {
    return RABBET_STATUS(RABBET_STATUS_INVALID_ARGUMENT,
                         "'%.64s' is no device name; expected \"cpu\", "
                         "\"cuda\" or \"cuda:N\"",
                         name);
  }
  memcpy(out_kind, name, size);
  out_kind[size] = 0;
  return rabbet_ok();
}

// Folder of the library that holds this code; "" if the loader cannot tell.
static void library_folder(char folder[PATH_MAX]) {
  Dl_info info;
  folder[0] = 0;
  if (!dladdr((const void*)(uintptr_t)&rabbet_device_create, &info) ||
      !info.dli_fname) {
    return;
  }
  const char* slash = strrchr(info.dli_fname, '/');
  if (!slash || (size_t)(slash - info.dli_fname) >= PATH_MAX) return;
  memcpy(folder, info.dli_fname, (size_t)(slash - info.dli_fname));
  folder[slash - info.dli_fname] = 0;
}

// Never unloaded: a device library may own threads that outlive its devices.
static void* library_open(const char* folder, const char* kind,
                          char path[PATH_MAX]) {
  int size = snprintf(path, PATH_MAX, "%s%slibrabbet_%s.so", folder,
                      *folder ? "/" : "", kind);
  if (size < 0 || size >= PATH_MAX) return NULL;
  (void)dlerror();  // of a call before this one
  return dlopen(path, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
}

// A change of one of these raises RABBET_DEVICE_ABI.
_Static_assert(RABBET_DEVICE_ABI == 10, "the sizes below are of version 10");
_Static_assert(sizeof(rabbet_device_vtable_t) == 384, "another table");
_Static_assert(sizeof(rabbet_kernel_class_t) == 152, "another table");
_Static_assert(sizeof(rabbet_device_t) == 88, "another device");

// Libraries that do not say are of version 0.
static rabbet_status_t library_check_abi(void* library, const char* path) {
  uint32_t (*abi)(void) = NULL;
  RABBET_RETURN_IF_ERROR(RABBET_ANNOTATE(
      rabbet_symbol_function(library, "rabbet_device_abi", (void**)&abi),
      "device library '%s'", path));
  uint32_t found = abi ? abi() : 0;
  if (found == RABBET_DEVICE_ABI) return rabbet_ok();
  return RABBET_STATUS(
      RABBET_STATUS_INCOMPATIBLE,
      "device library '%s' is made for version %u of the interface of devices; "
      "rabbet %s has version %u: take the one that comes with this rabbet, or "
      "compile it against its sources",
      path, found, rabbet_version(), RABBET_DEVICE_ABI);
}

// Checks the tables of a library whose ABI number is right but whose headers
// were not.
static rabbet_status_t device_check_tables(rabbet_device_t* device) {
  size_t count = 0;
  if (device->vtable->struct_size != sizeof(*device->vtable))
    return RABBET_STATUS(RABBET_STATUS_INCOMPATIBLE,
                         "its table of functions has %u bytes, that of rabbet "
                         "%s %zu",
                         device->vtable->struct_size, rabbet_version(),
                         sizeof(*device->vtable));
  const rabbet_kernel_class_t* const* classes =
      device->vtable->kernel_classes(device, &count);
  for (size_t i = 0; i < count; ++i) {
    if (classes[i]->struct_size != sizeof(**classes))
      return RABBET_STATUS(RABBET_STATUS_INCOMPATIBLE,
                           "its kernel class %zu has %u bytes, those of rabbet "
                           "%s have %zu",
                           i, classes[i]->struct_size, rabbet_version(),
                           sizeof(**classes));
  }
  return rabbet_ok();
}

// The release in the name of the version node that libraries of Rabbet share
// (cmake/exports.cmake). It is read from the file: the loader refuses a library
// of another release before a function of it can be called.
static void library_release(const char* path, char out_release[32]) {
  static const char node[] = "RABBET_PRIVATE_";
  const size_t length = sizeof(node) - 1;
  rabbet_file_map_t* map = NULL;
  snprintf(out_release, 32, "an unknown release");
  rabbet_status_t status =
      rabbet_file_map_create(path, rabbet_allocator_system(), &map);
  if (!rabbet_is_ok(status)) {
    rabbet_status_ignore(status);
    return;
  }
  const char* at = (const char*)rabbet_file_map_data(map);
  const char* end = at + rabbet_file_map_size(map);
  while (at && (at = memmem(at, (size_t)(end - at), node, length))) {
    at += length;
    size_t size = 0;
    while (at + size < end && strchr("0123456789.", at[size]) && at[size])
      ++size;
    if (size == 0 || size > 16) continue;
    snprintf(out_release, 32, "rabbet %.*s", (int)size, at);
    break;
  }
  rabbet_file_map_release(map);
}

// Of the library at `path` that the loader did not open. NULL if there is no
// file: all other failures are errors, or the CPU would silently take the place
// of a GPU.
static rabbet_status_t library_failure(const char* path) {
  const char* reason = dlerror();
  char release[32];
  if (!strchr(path, '/') || access(path, F_OK) != 0) return rabbet_ok();
  library_release(path, release);
  return RABBET_STATUS(
      RABBET_STATUS_INCOMPATIBLE,
      "device library '%s' cannot be loaded: %s. It is made for %s, and this "
      "is rabbet %s: take the one that comes with this rabbet, compile it "
      "against its sources, or remove it",
      path, reason ? reason : "the loader gives no reason", release,
      rabbet_version());
}

// NULL in `out_library` if neither folder has it.
static rabbet_status_t library_look(const char* kind, char path[PATH_MAX],
                                    void** out_library) {
  char folder[PATH_MAX];
  const char* asked = getenv("RABBET_LIBRARY_PATH");
  *out_library = NULL;
  if (asked && *asked) {
    *out_library = library_open(asked, kind, path);
    if (*out_library) return rabbet_ok();
    RABBET_RETURN_IF_ERROR(library_failure(path));
  }
  library_folder(folder);
  *out_library = library_open(folder, kind, path);
  return *out_library ? rabbet_ok() : library_failure(path);
}

static rabbet_status_t library_find(const char* kind,
                                    rabbet_device_open_fn_t* out_open) {
  char path[PATH_MAX];
  void* library = NULL;
  RABBET_RETURN_IF_ERROR(library_look(kind, path, &library));
  if (!library) {
    return RABBET_STATUS(
        RABBET_STATUS_UNAVAILABLE,
        "device '%s' is not available (\"cpu\" and \"cuda\" are what comes "
        "with Rabbet): there is no '%s'. It is looked for beside "
        "librabbet_runtime.so and in RABBET_LIBRARY_PATH",
        kind, path);
  }
  RABBET_RETURN_IF_ERROR(RABBET_ANNOTATE(
      rabbet_symbol_function(library, "rabbet_device_open", (void**)out_open),
      "device library '%s'", path));
  if (*out_open) return library_check_abi(library, path);
  return RABBET_STATUS(RABBET_STATUS_INCOMPATIBLE,
                       "'%s' does not export rabbet_device_open: it is no "
                       "device library of this version",
                       path);
}

static rabbet_status_t device_open_kind(const char* kind, int ordinal,
                                        rabbet_allocator_t allocator,
                                        rabbet_device_t** out_device) {
  rabbet_device_open_fn_t open = NULL;
  RABBET_RETURN_IF_ERROR(library_find(kind, &open));
  rabbet_status_t status = open(ordinal, allocator, out_device);
  if (rabbet_is_ok(status)) {
    status = device_check_tables(*out_device);
    if (!rabbet_is_ok(status)) {
      rabbet_device_release(*out_device);
      *out_device = NULL;
    }
  }
  return RABBET_ANNOTATE(status, "device '%s:%d'", kind, ordinal);
}

rabbet_status_t rabbet_device_create(const char* name,
                                     rabbet_allocator_t allocator,
                                     rabbet_device_t** out_device) {
  *out_device = NULL;
  if (!name || !*name) name = getenv("RABBET_DEVICE");
  if (name && *name) {
    char kind[8];
    int ordinal = 0;
    RABBET_RETURN_IF_ERROR(device_parse(name, kind, &ordinal));
    return device_open_kind(kind, ordinal, allocator, out_device);
  }
  rabbet_status_t gpu = device_open_kind("cuda", 0, allocator, out_device);
  if (rabbet_status_code(gpu) != RABBET_STATUS_UNAVAILABLE)
    return RABBET_ANNOTATE(gpu,
                           "the default device (\"cpu\" does without a GPU)");
  rabbet_status_ignore(gpu);
  return device_open_kind("cpu", 0, allocator, out_device);
}

void rabbet_device_release(rabbet_device_t* device) {
  if (!device || !rabbet_refcount_release(&device->references)) return;
  struct rabbet_store_t* store = device->store;
  device->vtable->destroy(device);
  rabbet_store_destroy(store);
}

const rabbet_kernel_class_t* rabbet_device_find_kernel(rabbet_device_t* device,
                                                       const char* name) {
  size_t count = 0;
  const rabbet_kernel_class_t* const* classes =
      device->vtable->kernel_classes(device, &count);
  for (size_t i = 0; i < count; ++i) {
    if (strcmp(classes[i]->name, name) == 0) return classes[i];
  }
  return NULL;
}

rabbet_status_t rabbet_device_default_threads(int* out_threads) {
  const char* text = getenv("RABBET_THREADS");
  char* end = NULL;
  *out_threads = rabbet_cpu_count();
  if (!text || !*text) return rabbet_ok();
  long threads = strtol(text, &end, 10);
  if (*end || threads < 0 || threads > RABBET_MAX_THREADS)
    return RABBET_STATUS(RABBET_STATUS_INVALID_ARGUMENT,
                         "RABBET_THREADS is '%s'; expected a number of "
                         "threads, 1 to %d",
                         text, RABBET_MAX_THREADS);
  if (threads > 0) *out_threads = (int)threads;
  return rabbet_ok();
}
