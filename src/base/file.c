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
};

// The failure of a system call on `path`; `error` is its errno.
static rabbet_status_t rabbet_file_error(const char* what, const char* path,
                                         int error) {
  rabbet_status_code_t code = error == ENOENT || error == ENOTDIR
                                  ? RABBET_STATUS_NOT_FOUND
                                  : RABBET_STATUS_IO;
  char scratch[128];
  return RABBET_STATUS(code, "cannot %s '%s': %s", what, path,
                       strerror_r(error, scratch, sizeof(scratch)));
}

// Maps what `file` holds. The mapping outlives the descriptor.
static rabbet_status_t rabbet_file_map_open(int file, const char* path,
                                            rabbet_file_map_t* map) {
  struct stat info;
  if (fstat(file, &info) != 0) return rabbet_file_error("examine", path, errno);
  if (!S_ISREG(info.st_mode))
    return RABBET_STATUS(
        RABBET_STATUS_IO, "cannot read '%s': it is %s, not a regular file",
        path, S_ISDIR(info.st_mode) ? "a folder" : "a device or pipe");
  if (info.st_size == 0) return rabbet_ok();
  if ((uintmax_t)info.st_size > SIZE_MAX)
    return rabbet_file_error("map", path, EFBIG);
  void* data =
      mmap(NULL, (size_t)info.st_size, PROT_READ, MAP_PRIVATE, file, 0);
  if (data == MAP_FAILED) return rabbet_file_error("map", path, errno);
  map->data = data;
  map->size = (size_t)info.st_size;
  return rabbet_ok();
}

rabbet_status_t rabbet_file_map_create(const char* path,
                                       rabbet_allocator_t allocator,
                                       rabbet_file_map_t** out_map) {
  *out_map = NULL;
  rabbet_file_map_t* map = NULL;
  RABBET_RETURN_IF_ERROR(
      rabbet_allocate(allocator, sizeof(*map), (void**)&map));
  rabbet_refcount_initialize(&map->references);
  map->allocator = allocator;
  int file = open(path, O_RDONLY | O_CLOEXEC);
  rabbet_status_t status = file < 0 ? rabbet_file_error("open", path, errno)
                                    : rabbet_file_map_open(file, path, map);
  if (file >= 0) close(file);
  if (!rabbet_is_ok(status)) {
    rabbet_file_map_release(map);
    return status;
  }
  *out_map = map;
  return rabbet_ok();
}

void rabbet_file_map_retain(rabbet_file_map_t* map) {
  if (map) rabbet_refcount_retain(&map->references);
}

void rabbet_file_map_release(rabbet_file_map_t* map) {
  if (!map || !rabbet_refcount_release(&map->references)) return;
  if (map->data) munmap((void*)map->data, map->size);
  rabbet_free(map->allocator, map);
}

const uint8_t* rabbet_file_map_data(const rabbet_file_map_t* map) {
  return map->data;
}

size_t rabbet_file_map_size(const rabbet_file_map_t* map) {
  return map->size;
}

// Returns 0 or an errno.
static int rabbet_file_write_parts(int file, const rabbet_span_t* parts,
                                   size_t part_count) {
  for (size_t i = 0; i < part_count; ++i) {
    const char* data = parts[i].data;
    size_t left = parts[i].size;
    while (left > 0) {
      ssize_t written = write(file, data, left);
      if (written < 0 && errno == EINTR) continue;
      if (written <= 0) return written < 0 ? errno : EIO;
      data += written;
      left -= (size_t)written;
    }
  }
  return 0;
}

// Opens a new file beside `path`; mode bits follow the umask. Puts its name
// into `name`. Returns a descriptor, or -1 with errno.
static int rabbet_file_open_temporary(const char* path, char name[PATH_MAX]) {
  static atomic_uint counter;
  for (int attempt = 0; attempt < 100; ++attempt) {
    unsigned number =
        atomic_fetch_add_explicit(&counter, 1, memory_order_relaxed);
    int size =
        snprintf(name, PATH_MAX, "%s.%ld-%u.tmp", path, (long)getpid(), number);
    if (size < 0 || size >= PATH_MAX) {
      errno = ENAMETOOLONG;
      return -1;
    }
    int file = open(name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (file >= 0 || errno != EEXIST) return file;
  }
  return -1;
}

static rabbet_status_t rabbet_file_replace(const char* path,
                                           const rabbet_span_t* parts,
                                           size_t part_count) {
  char name[PATH_MAX];
  int file = rabbet_file_open_temporary(path, name);
  if (file < 0) return rabbet_file_error("write", path, errno);
  int error = rabbet_file_write_parts(file, parts, part_count);
  // Without this a power cut could leave the new name on unwritten blocks.
  if (!error && fsync(file) != 0 && errno != EINVAL) error = errno;
  if (close(file) != 0 && !error) error = errno;
  if (!error && rename(name, path) != 0) error = errno;
  if (!error) return rabbet_ok();
  unlink(name);
  return rabbet_file_error("write", path, error);
}

// For devices and pipes, which must not be replaced by a file.
static rabbet_status_t rabbet_file_write_through(const char* path,
                                                 const rabbet_span_t* parts,
                                                 size_t part_count) {
  int file = open(path, O_WRONLY | O_CLOEXEC);
  if (file < 0) return rabbet_file_error("open", path, errno);
  int error = rabbet_file_write_parts(file, parts, part_count);
  if (close(file) != 0 && !error) error = errno;
  return error ? rabbet_file_error("write", path, error) : rabbet_ok();
}

rabbet_status_t rabbet_file_write(const char* path, const rabbet_span_t* parts,
                                  size_t part_count) {
  struct stat info;
  if (stat(path, &info) != 0)
    return rabbet_file_replace(path, parts, part_count);
  if (S_ISDIR(info.st_mode)) return rabbet_file_error("write", path, EISDIR);
  if (!S_ISREG(info.st_mode))
    return rabbet_file_write_through(path, parts, part_count);
  char target[PATH_MAX];  // a link stays a link
  if (!realpath(path, target)) return rabbet_file_error("write", path, errno);
  return rabbet_file_replace(target, parts, part_count);
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
