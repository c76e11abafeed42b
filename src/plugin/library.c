#define _GNU_SOURCE
#include "plugin/library.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/symbol.h"
#include "plugin/elf.h"
#include "plugin/registry.h"

#define RABBET_REGISTER_SYMBOL "rabbet_plugin_library_register"

struct rabbet_plugin_library_t {
  rabbet_allocator_t allocator;
  void* handle;
  // The loader takes a path that it knows for the library that it has under
  // it: that of a file in memory must not be given to another one.
  int file;
  rabbet_creator_list_t creators;
};

// ---- Checks of a file

rabbet_status_t rabbet_plugin_library_check(const char* name, const void* data,
                                            size_t size) {
  rabbet_status_t status = rabbet_elf_check(data, size);
  if (rabbet_is_ok(status) && !memmem(data, size, RABBET_REGISTER_SYMBOL,
                                      sizeof(RABBET_REGISTER_SYMBOL)))
    status = RABBET_STATUS(RABBET_STATUS_INVALID_ARGUMENT,
                           "it does not export " RABBET_REGISTER_SYMBOL
                           " (RABBET_PLUGIN_LIBRARY of rabbet/plugin.h)");
  return RABBET_ANNOTATE(status, "plugin library '%s'", name);
}

// Of a file that is there and has a folder in its name; others dlopen looks
// for.
static rabbet_status_t library_check_file(const char* path) {
  rabbet_file_map_t* map = NULL;
  if (!strchr(path, '/') || access(path, R_OK) != 0) return rabbet_ok();
  RABBET_RETURN_IF_ERROR(RABBET_ANNOTATE(
      rabbet_file_map_create(path, rabbet_allocator_system(), &map),
      "plugin library '%s'", path));
  rabbet_status_t status = rabbet_plugin_library_check(
      path, rabbet_file_map_data(map), rabbet_file_map_size(map));
  rabbet_file_map_release(map);
  return status;
}

// ---- Opening

// A library of plugins need not be linked against this one: where this one was
// opened for a single module (as Python's are), its functions become visible to
// all that is opened later.
static void show_functions(void) {
  Dl_info info;
  if (!dladdr((const void*)(uintptr_t)&rabbet_plugin_register, &info) ||
      !info.dli_fname)
    return;
  void* self = dlopen(info.dli_fname, RTLD_NOW | RTLD_NOLOAD | RTLD_GLOBAL);
  if (self) dlclose(self);  // gives back the reference, not the visibility
}

static rabbet_status_t library_dlopen(const char* path, void** out_handle) {
  show_functions();
  *out_handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  return *out_handle ? rabbet_ok()
                     : RABBET_STATUS(RABBET_STATUS_UNAVAILABLE,
                                     "it cannot be opened: %s", dlerror());
}

// Libraries that do not say are older than the question.
static rabbet_status_t library_check_abi(void* handle) {
  uint32_t (*abi)(void) = NULL;
  RABBET_RETURN_IF_ERROR(rabbet_symbol_function(
      handle, "rabbet_plugin_library_abi", (void**)&abi));
  uint32_t found = abi ? abi() : 1;
  if (found == RABBET_PLUGIN_ABI) return rabbet_ok();
  return RABBET_STATUS(
      RABBET_STATUS_INCOMPATIBLE,
      "it is made for version %u of the plugin interface; rabbet %s has "
      "version %u: compile it against this rabbet's headers",
      found, rabbet_version(), RABBET_PLUGIN_ABI);
}

// Creators that it registers go to `creators`; if this fails the list is empty.
static rabbet_status_t library_register(void* handle, const char* name,
                                        rabbet_creator_list_t* creators) {
  rabbet_status_t (*entry)(void) = NULL;
  RABBET_RETURN_IF_ERROR(
      rabbet_symbol_function(handle, RABBET_REGISTER_SYMBOL, (void**)&entry));
  if (!entry)
    return RABBET_STATUS(RABBET_STATUS_INVALID_ARGUMENT,
                         "it does not export " RABBET_REGISTER_SYMBOL
                         " (RABBET_PLUGIN_LIBRARY of rabbet/plugin.h)");
  RABBET_RETURN_IF_ERROR(library_check_abi(handle));
  rabbet_creator_list_t* previous = rabbet_creators_collect(creators);
  rabbet_status_t status = entry();
  rabbet_creators_collect(previous);
  if (rabbet_is_ok(status)) status = rabbet_creators_set_origin(creators, name);
  if (!rabbet_is_ok(status)) rabbet_creators_free(creators);
  return status;
}

rabbet_status_t rabbet_plugin_load_library(const char* path) {
  void* handle = NULL;
  rabbet_creator_list_t creators = {0};
  char full[PATH_MAX];
  if (!path)
    return RABBET_STATUS(RABBET_STATUS_INVALID_ARGUMENT,
                         "plugin library: path is NULL");
  RABBET_RETURN_IF_ERROR(library_check_file(path));
  rabbet_status_t status = library_dlopen(path, &handle);
  // dlopen looks for a bare name elsewhere than here.
  bool known = strchr(path, '/') && realpath(path, full);
  if (rabbet_is_ok(status))
    status = library_register(handle, known ? full : path, &creators);
  if (rabbet_is_ok(status)) status = rabbet_creators_publish(&creators);
  rabbet_creators_free(&creators);
  // The library stays open: the registry has its creators.
  if (!rabbet_is_ok(status) && handle) dlclose(handle);
  return RABBET_ANNOTATE(status, "plugin library '%s'", path);
}

// ---- Bytes

static rabbet_status_t file_fill(int file, const uint8_t* data, size_t size) {
  while (size > 0) {
    ssize_t written = write(file, data, size);
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0)
      return RABBET_STATUS(RABBET_STATUS_IO, "cannot write it: %s",
                           strerror(errno));
    data += written;
    size -= (size_t)written;
  }
  return rabbet_ok();
}

static rabbet_status_t library_open_memory(const char* name,
                                           const uint8_t* data, size_t size,
                                           rabbet_plugin_library_t* library) {
  char path[32];
  library->file = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (library->file < 0)
    return RABBET_STATUS(RABBET_STATUS_UNAVAILABLE,
                         "no file can be made in memory: %s", strerror(errno));
  RABBET_RETURN_IF_ERROR(file_fill(library->file, data, size));
  // Nobody changes it any more; it is no loss where that cannot be had.
  (void)fcntl(library->file, F_ADD_SEALS,
              F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE);
  snprintf(path, sizeof(path), "/proc/self/fd/%d", library->file);
  return library_dlopen(path, &library->handle);
}

static rabbet_status_t library_open_temporary(
    const char* directory, const uint8_t* data, size_t size,
    rabbet_plugin_library_t* library) {
  static const char name[] = "/rabbet-XXXXXX";
  if (!directory || !*directory) directory = getenv("TMPDIR");
  if (!directory || !*directory) directory = "/tmp";
  char* path = NULL;
  size_t length = strlen(directory);
  RABBET_RETURN_IF_ERROR(rabbet_allocate(library->allocator,
                                         length + sizeof(name), (void**)&path));
  memcpy(path, directory, length);
  memcpy(path + length, name, sizeof(name));
  rabbet_status_t status = rabbet_ok();
  int file = mkostemp(path, O_CLOEXEC);  // nobody else may read or write it
  if (file < 0) {
    status = RABBET_STATUS(RABBET_STATUS_IO,
                           "no file can be made in folder '%s': %s", directory,
                           strerror(errno));
  } else {
    status = file_fill(file, data, size);
    if (rabbet_is_ok(status))
      status = RABBET_ANNOTATE(library_dlopen(path, &library->handle),
                               "as a file in folder '%s'", directory);
    close(file);
    unlink(path);
  }
  rabbet_free(library->allocator, path);
  return status;
}

// In memory if that can be had, else as a file.
static rabbet_status_t library_open_bytes(const char* name, const void* data,
                                          size_t size,
                                          const rabbet_library_files_t* files,
                                          rabbet_plugin_library_t* library) {
  if (files->no_memory_files && files->no_temporary_files)
    return RABBET_STATUS(RABBET_STATUS_FAILED_PRECONDITION,
                         "it must become a file to be opened, and neither "
                         "files in memory nor temporary files are allowed");
  rabbet_status_t status = rabbet_ok();
  if (!files->no_memory_files) {
    status = library_open_memory(name, data, size, library);
    if (rabbet_is_ok(status) || files->no_temporary_files) return status;
    rabbet_status_free(status);
  }
  return library_open_temporary(files->directory, data, size, library);
}

rabbet_status_t rabbet_plugin_library_open(
    const char* name, const void* data, size_t size,
    const rabbet_library_files_t* files, rabbet_allocator_t allocator,
    rabbet_plugin_library_t** out_library) {
  *out_library = NULL;
  RABBET_RETURN_IF_ERROR(rabbet_plugin_library_check(name, data, size));
  rabbet_plugin_library_t* library = NULL;
  RABBET_RETURN_IF_ERROR(
      rabbet_allocate(allocator, sizeof(*library), (void**)&library));
  library->allocator = allocator;
  library->file = -1;
  rabbet_status_t status = library_open_bytes(name, data, size, files, library);
  if (rabbet_is_ok(status))
    status = library_register(library->handle, name, &library->creators);
  if (rabbet_is_ok(status))
    *out_library = library;
  else
    rabbet_plugin_library_close(library);
  return RABBET_ANNOTATE(status, "plugin library '%s'", name);
}

const rabbet_plugin_creator_t* rabbet_plugin_library_find(
    const rabbet_plugin_library_t* library, const char* name,
    const char* version, const char* plugin_namespace) {
  return rabbet_creators_find(&library->creators, name, version,
                              plugin_namespace);
}

void rabbet_plugin_library_close(rabbet_plugin_library_t* library) {
  if (!library) return;
  rabbet_creators_free(&library->creators);
  if (library->handle) dlclose(library->handle);
  if (library->file >= 0) close(library->file);
  rabbet_free(library->allocator, library);
}
