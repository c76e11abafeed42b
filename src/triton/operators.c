#include "triton/operators.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "rabbet/allocator.h"
#include "rabbet/plugin.h"
#include "rabbet/pyhost.h"

// A file that was loaded; never freed, as registered operators are not either.
typedef struct operators_file_t {
  struct operators_file_t* next;
  uint64_t hash, size;
  char path[];
} operators_file_t;

static struct {
  pthread_mutex_t lock;
  operators_file_t* files;
} operators = {.lock = PTHREAD_MUTEX_INITIALIZER};

// FNV-1a of a file's bytes; the name of a module is no file.
static bool operators_read(const char* path, uint64_t* out_hash,
                           uint64_t* out_size) {
  unsigned char bytes[4096];
  size_t count = 0;
  FILE* file = fopen(path, "rb");
  *out_hash = 0xcbf29ce484222325u;
  *out_size = 0;
  if (!file) return false;
  while ((count = fread(bytes, 1, sizeof(bytes), file)) > 0) {
    *out_size += count;
    for (size_t i = 0; i < count; ++i)
      *out_hash = (*out_hash ^ bytes[i]) * 0x100000001b3u;
  }
  bool ok = !ferror(file);
  fclose(file);
  return ok;
}

static bool operators_end_in(const char* path, const char* suffix) {
  size_t size = strlen(path), end = strlen(suffix);
  return size >= end && strcmp(path + size - end, suffix) == 0;
}

static rabbet_status_t operators_load(const char* path) {
  if (operators_end_in(path, ".so")) return rabbet_plugin_load_library(path);
  RABBET_RETURN_IF_ERROR(rabbet_pyhost_start(NULL));
  return rabbet_pyhost_load_plugins(&path, 1);
}

// A file that has changed takes the place of what it was.
static void operators_forget(const char* path) {
  operators_file_t** link = &operators.files;
  while (*link) {
    operators_file_t* file = *link;
    if (strcmp(file->path, path) == 0) {
      *link = file->next;
      rabbet_free(rabbet_allocator_system(), file);
    } else {
      link = &file->next;
    }
  }
}

static rabbet_status_t operators_remember(const char* path, uint64_t hash,
                                          uint64_t size) {
  operators_file_t* file = NULL;
  size_t length = strlen(path) + 1;
  operators_forget(path);
  RABBET_RETURN_IF_ERROR(rabbet_allocate(
      rabbet_allocator_system(), sizeof(*file) + length, (void**)&file));
  file->hash = hash;
  file->size = size;
  memcpy(file->path, path, length);
  file->next = operators.files;
  operators.files = file;
  return rabbet_ok();
}

static bool operators_are_loaded(uint64_t hash, uint64_t size) {
  const operators_file_t* file = operators.files;
  while (file && (file->hash != hash || file->size != size))
    file = file->next;
  return file != NULL;
}

rabbet_status_t rabbet_triton_load_operators(const char* path) {
  uint64_t hash = 0, size = 0;
  rabbet_status_t status = rabbet_ok();
  pthread_mutex_lock(&operators.lock);
  bool file = operators_read(path, &hash, &size);
  if (!file || !operators_are_loaded(hash, size)) {
    status = operators_load(path);
    if (rabbet_is_ok(status) && file)
      status = operators_remember(path, hash, size);
  }
  pthread_mutex_unlock(&operators.lock);
  return status;
}
