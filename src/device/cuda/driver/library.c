#define _GNU_SOURCE
#include "device/cuda/driver/library.h"

#include <dlfcn.h>
#include <glob.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/symbol.h"

// Folders of the `nvidia-*` wheels below site-packages: one per library up to
// CUDA 12, one for all from CUDA 13 on.
static const char* const wheel_patterns[] = {"nvidia/cu[0-9]*/lib",
                                             "nvidia/*/lib"};
static const char* const toolkit_folders[] = {"lib64",
                                              "targets/x86_64-linux/lib"};

static void* library_open_file(const char* folder, const char* name) {
  char path[PATH_MAX];
  int size = snprintf(path, sizeof(path), "%s/%s", folder, name);
  if (size < 0 || size >= PATH_MAX) return NULL;
  return dlopen(path, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
}

static void* library_open_in(const rabbet_cuda_library_t* library,
                             const char* folder) {
  void* handle = NULL;
  for (size_t i = 0; !handle && library->file_names[i]; ++i)
    handle = library_open_file(folder, library->file_names[i]);
  return handle;
}

static void* library_loaded(const rabbet_cuda_library_t* library) {
  void* handle = NULL;
  for (size_t i = 0; !handle && library->file_names[i]; ++i)
    handle = dlopen(library->file_names[i], RTLD_NOW | RTLD_NOLOAD);
  return handle;
}

// Looks in every folder below `folder` that matches `pattern`.
static void* library_glob(const rabbet_cuda_library_t* library,
                          const char* folder, const char* pattern) {
  char path[PATH_MAX];
  int size = snprintf(path, sizeof(path), "%s/%s", folder, pattern);
  if (size < 0 || size >= PATH_MAX) return NULL;
  glob_t found;
  void* handle = NULL;
  if (glob(path, GLOB_ONLYDIR, NULL, &found) != 0) return NULL;
  for (size_t i = 0; !handle && i < found.gl_pathc; ++i)
    handle = library_open_in(library, found.gl_pathv[i]);
  globfree(&found);
  return handle;
}

static void* library_in_site(const rabbet_cuda_library_t* library,
                             const char* site) {
  void* handle = NULL;
  size_t count = sizeof(wheel_patterns) / sizeof(wheel_patterns[0]);
  for (size_t i = 0; !handle && i < count; ++i)
    handle = library_glob(library, site, wheel_patterns[i]);
  return handle;
}

// Looks in each folder of a colon-separated list, both directly and as a
// site-packages folder.
static void* library_in_list(const rabbet_cuda_library_t* library,
                             const char* list) {
  void* handle = NULL;
  while (list && *list && !handle) {
    char folder[PATH_MAX];
    size_t size = strcspn(list, ":");
    if (size > 0 && size < sizeof(folder)) {
      memcpy(folder, list, size);
      folder[size] = 0;
      handle = library_open_in(library, folder);
      if (!handle) handle = library_in_site(library, folder);
    }
    list += size + (list[size] == ':');
  }
  return handle;
}

// Looks in the site-packages folder of this library: a wheel puts it into
// site-packages/rabbet/lib.
static void* library_beside_us(const rabbet_cuda_library_t* library) {
  Dl_info info;
  char folder[PATH_MAX];
  if (!dladdr((const void*)(uintptr_t)&rabbet_cuda_library_open, &info) ||
      !info.dli_fname || !realpath(info.dli_fname, folder))
    return NULL;
  for (int up = 0; up < 3; ++up) {
    char* slash = strrchr(folder, '/');
    if (!slash) return NULL;
    *slash = 0;
  }
  return library_in_site(library, folder);
}

static void* library_by_loader(const rabbet_cuda_library_t* library) {
  void* handle = NULL;
  for (size_t i = 0; !handle && library->file_names[i]; ++i)
    handle =
        dlopen(library->file_names[i], RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  return handle;
}

static void* library_in_toolkit(const rabbet_cuda_library_t* library) {
  const char* roots[] = {getenv("CUDA_HOME"), getenv("CUDA_PATH"),
                         "/usr/local/cuda"};
  void* handle = NULL;
  for (size_t i = 0; i < sizeof(roots) / sizeof(roots[0]); ++i) {
    size_t count = sizeof(toolkit_folders) / sizeof(toolkit_folders[0]);
    for (size_t k = 0; roots[i] && *roots[i] && !handle && k < count; ++k)
      handle = library_glob(library, roots[i], toolkit_folders[k]);
  }
  return handle;
}

rabbet_status_t rabbet_cuda_library_open(const rabbet_cuda_library_t* library,
                                         void** out_handle) {
  const char* file = getenv(library->variable);
  *out_handle = NULL;
  if (file && *file) {
    *out_handle = dlopen(file, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    if (*out_handle) return rabbet_ok();
    return RABBET_STATUS(RABBET_STATUS_UNAVAILABLE,
                         "%s cannot be opened from where %s points: %s",
                         library->title, library->variable, dlerror());
  }
  *out_handle = library_loaded(library);
  if (!*out_handle)
    *out_handle = library_in_list(library, getenv("RABBET_CUDA_PATH"));
  if (!*out_handle) *out_handle = library_beside_us(library);
  if (!*out_handle) *out_handle = library_by_loader(library);
  if (!*out_handle) *out_handle = library_in_toolkit(library);
  if (*out_handle) return rabbet_ok();
  return RABBET_STATUS(RABBET_STATUS_UNAVAILABLE,
                       "%s (%s) is not found: %s; or name the file in %s",
                       library->title, library->file_names[0], library->hint,
                       library->variable);
}

rabbet_status_t rabbet_cuda_library_bind(const rabbet_cuda_library_t* library,
                                         void* handle,
                                         const rabbet_cuda_symbol_t* symbols,
                                         size_t count, void* table) {
  for (size_t i = 0; i < count; ++i) {
    void* symbol = NULL;
    RABBET_RETURN_IF_ERROR(RABBET_ANNOTATE(
        rabbet_symbol_function(handle, symbols[i].name, &symbol), "%s",
        library->title));
    if (!symbol && !symbols[i].optional)
      return RABBET_STATUS(RABBET_STATUS_UNAVAILABLE,
                           "%s has no function %s: it is too old; %s",
                           library->title, symbols[i].name, library->hint);
    memcpy((uint8_t*)table + symbols[i].offset, &symbol, sizeof(symbol));
  }
  return rabbet_ok();
}

void rabbet_cuda_library_setting(const char* variable, const void* symbol,
                                 rabbet_strbuf_t* out_settings) {
  Dl_info info;
  char file[PATH_MAX];
  if (!dladdr(symbol, &info) || !info.dli_fname ||
      !realpath(info.dli_fname, file))
    return;
  rabbet_strbuf_printf(out_settings, "%s=%s", variable, file);
  rabbet_strbuf_append(out_settings, "", 1);
}
