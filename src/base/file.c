#define _GNU_SOURCE
#include "base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/thread.h"

struct rabbet_file_map_t {
  rabbet_refcount_t references;
  rabbet_allocator_t allocator;
  const uint8_t* data;
  size_t size;
  size_t block_alignment;  // of memory of the allocator; 0: it is mapped
  struct stat info;        // as it was mapped
  char path[];             // "": it has none, and is the process's own
};

rabbet_status_t rabbet_file_error(const char* what, const char* path,
                                  int error) {
  rabbet_status_code_t code = error == ENOENT || error == ENOTDIR
                                  ? RABBET_STATUS_NOT_FOUND
                                  : RABBET_STATUS_IO;
  char scratch[128];
  return RABBET_STATUS(code, "cannot %s '%s': %s", what, path,
                       strerror_r(error, scratch, sizeof(scratch)));
}

static const char* file_kind(mode_t mode) {
  return S_ISDIR(mode)    ? "a folder"
         : S_ISFIFO(mode) ? "a pipe"
         : S_ISSOCK(mode) ? "a socket"
                          : "a device";
}

// Maps the contents of `file`. The mapping outlives the descriptor.
static rabbet_status_t file_map_open(int file, const char* path,
                                     rabbet_file_map_t* map) {
  struct stat info;
  if (fstat(file, &info) != 0) return rabbet_file_error("examine", path, errno);
  if (!S_ISREG(info.st_mode))
    return RABBET_STATUS(RABBET_STATUS_IO,
                         "cannot read '%s': it is %s, not a regular file", path,
                         file_kind(info.st_mode));
  if (info.st_size == 0) return rabbet_ok();
  if ((uintmax_t)info.st_size > SIZE_MAX)
    return rabbet_file_error("map", path, EFBIG);
  void* data =
      mmap(NULL, (size_t)info.st_size, PROT_READ, MAP_PRIVATE, file, 0);
  if (data == MAP_FAILED) return rabbet_file_error("map", path, errno);
  map->data = data;
  map->size = (size_t)info.st_size;
  map->info = info;
  return rabbet_ok();
}

static rabbet_status_t file_map_allocate(const char* path,
                                         rabbet_allocator_t allocator,
                                         rabbet_file_map_t** out_map) {
  size_t path_size = strlen(path) + 1;
  RABBET_RETURN_IF_ERROR(rabbet_allocate(
      allocator, sizeof(**out_map) + path_size, (void**)out_map));
  rabbet_refcount_initialize(&(*out_map)->references);
  (*out_map)->allocator = allocator;
  memcpy((*out_map)->path, path, path_size);
  return rabbet_ok();
}

rabbet_status_t rabbet_file_map_create(const char* path,
                                       rabbet_allocator_t allocator,
                                       rabbet_file_map_t** out_map) {
  *out_map = NULL;
  rabbet_file_map_t* map = NULL;
  RABBET_RETURN_IF_ERROR(file_map_allocate(path, allocator, &map));
  // A pipe that nobody writes to would block.
  int file = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  rabbet_status_t status = file < 0 ? rabbet_file_error("open", path, errno)
                                    : file_map_open(file, path, map);
  if (file >= 0) close(file);
  if (!rabbet_is_ok(status)) {
    rabbet_file_map_release(map);
    return status;
  }
  *out_map = map;
  return rabbet_ok();
}

rabbet_status_t rabbet_file_map_take_block(void* data, size_t size,
                                           size_t alignment,
                                           rabbet_allocator_t allocator,
                                           rabbet_file_map_t** out_map) {
  *out_map = NULL;
  rabbet_file_map_t* map = NULL;
  RABBET_RETURN_IF_ERROR(file_map_allocate("", allocator, &map));
  map->data = data;
  map->size = size;
  map->block_alignment = alignment;
  *out_map = map;
  return rabbet_ok();
}

rabbet_status_t rabbet_file_map_descriptor(int file, const char* path,
                                           rabbet_allocator_t allocator,
                                           rabbet_file_map_t** out_map) {
  *out_map = NULL;
  rabbet_file_map_t* map = NULL;
  RABBET_RETURN_IF_ERROR(file_map_allocate("", allocator, &map));
  rabbet_status_t status = file_map_open(file, path, map);
  if (rabbet_is_ok(status))
    *out_map = map;
  else
    rabbet_file_map_release(map);
  return status;
}

bool rabbet_file_map_is_own(const rabbet_file_map_t* map) {
  return !map->path[0];
}

rabbet_status_t rabbet_file_map_check(const rabbet_file_map_t* map) {
  struct stat now;
  const struct stat* then = &map->info;
  if (!map->path[0] || stat(map->path, &now) != 0 ||
      now.st_dev != then->st_dev || now.st_ino != then->st_ino)
    return rabbet_ok();
  if (now.st_size == then->st_size &&
      now.st_mtim.tv_sec == then->st_mtim.tv_sec &&
      now.st_mtim.tv_nsec == then->st_mtim.tv_nsec)
    return rabbet_ok();
  return RABBET_STATUS(RABBET_STATUS_DATA_LOSS,
                       "file '%s' was changed while it was in use: it had %lld "
                       "bytes and has %lld",
                       map->path, (long long)then->st_size,
                       (long long)now.st_size);
}

void rabbet_file_map_retain(rabbet_file_map_t* map) {
  if (map) rabbet_refcount_retain(&map->references);
}

void rabbet_file_map_release(rabbet_file_map_t* map) {
  if (!map || !rabbet_refcount_release(&map->references)) return;
  if (map->block_alignment > 0)
    rabbet_free_aligned(map->allocator, (void*)map->data, map->block_alignment);
  else if (map->data)
    munmap((void*)map->data, map->size);
  rabbet_free(map->allocator, map);
}

const uint8_t* rabbet_file_map_data(const rabbet_file_map_t* map) {
  return map->data;
}

size_t rabbet_file_map_size(const rabbet_file_map_t* map) {
  return map->size;
}

void rabbet_file_map_drop(const rabbet_file_map_t* map, const void* data,
                          size_t size) {
  if (!map || map->block_alignment > 0 || size == 0) return;
  const uintptr_t first = (uintptr_t)map->data, from = (uintptr_t)data;
  if (from < first || from - first > map->size ||
      size > map->size - (from - first))
    return;
  const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
  const uintptr_t begin = (from + page - 1) & ~(page - 1);
  const uintptr_t end = (from + size) & ~(page - 1);
  // Only advice to the kernel: a failure changes nothing.
  if (begin < end) madvise((void*)begin, end - begin, MADV_DONTNEED);
}

rabbet_status_t rabbet_path_join_beside(const char* path, const char* name,
                                        rabbet_allocator_t allocator,
                                        char** out_path) {
  *out_path = NULL;
  const char* slash = strrchr(path, '/');
  const char* folder = slash ? path : ".";
  size_t folder_size = slash ? (size_t)(slash - path) : 1;
  if (name[0] == '/') folder_size = 0;
  // The separator is the name's own slash where the name is absolute.
  size_t size = folder_size + 1 + strlen(name) + 1;
  char* joined = NULL;
  RABBET_RETURN_IF_ERROR(rabbet_allocate(allocator, size, (void**)&joined));
  snprintf(joined, size, "%.*s%s%s", (int)folder_size, folder,
           name[0] == '/' ? "" : "/", name);
  *out_path = joined;
  return rabbet_ok();
}

rabbet_status_t rabbet_path_resolve(const char* path,
                                    rabbet_allocator_t allocator,
                                    char** out_path) {
  *out_path = NULL;
  char resolved[PATH_MAX];
  if (!realpath(path, resolved)) return rabbet_file_error("open", path, errno);
  size_t size = strlen(resolved) + 1;
  RABBET_RETURN_IF_ERROR(rabbet_allocate(allocator, size, (void**)out_path));
  memcpy(*out_path, resolved, size);
  return rabbet_ok();
}

bool rabbet_path_is_below(const char* path, const char* folder) {
  size_t size = strlen(folder);
  if (size == 1) return folder[0] == '/';
  return strncmp(path, folder, size) == 0 && path[size] == '/';
}
