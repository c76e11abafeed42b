// Timing caches as files that several builds share.
#include <sys/stat.h>

#include "base/file.h"
#include "builder/measure/timing_cache.h"

// The file as it is now; not a regular one: none.
static rabbet_timing_file_t timing_file_at(const char* path) {
  struct stat info;
  if (stat(path, &info) != 0 || !S_ISREG(info.st_mode))
    return (rabbet_timing_file_t){.device = 0};
  return (rabbet_timing_file_t){.device = (uint64_t)info.st_dev,
                                .number = (uint64_t)info.st_ino,
                                .size = (uint64_t)info.st_size,
                                .seconds = (int64_t)info.st_mtim.tv_sec,
                                .nanoseconds = (int64_t)info.st_mtim.tv_nsec};
}

// The cache's entries, and those of the file that it has not.
static rabbet_status_t timing_cache_merge(rabbet_timing_cache_t* cache,
                                          rabbet_span_t old,
                                          rabbet_allocator_t allocator,
                                          rabbet_timing_cache_t* merged) {
  rabbet_timing_cache_t* others = NULL;
  rabbet_status_t status = rabbet_timing_cache_combine(merged, cache);
  if (rabbet_is_ok(status))
    status = rabbet_timing_cache_create(old.data, old.size, allocator, &others);
  if (rabbet_is_ok(status))
    status = rabbet_timing_cache_combine(merged, others);
  rabbet_timing_cache_release(others);
  return status;
}

static rabbet_status_t timing_cache_make(void* context, rabbet_span_t old,
                                         rabbet_allocator_t allocator,
                                         rabbet_span_t* out_new) {
  rabbet_timing_cache_t* merged = NULL;
  RABBET_RETURN_IF_ERROR(
      rabbet_timing_cache_create(NULL, 0, allocator, &merged));
  rabbet_status_t status = timing_cache_merge(context, old, allocator, merged);
  void* data = NULL;
  if (rabbet_is_ok(status))
    status =
        rabbet_timing_cache_serialize(merged, allocator, &data, &out_new->size);
  out_new->data = data;
  rabbet_timing_cache_release(merged);
  return status;
}

rabbet_status_t rabbet_timing_cache_save(rabbet_timing_cache_t* cache,
                                         const char* path,
                                         rabbet_allocator_t allocator) {
  // A build that found all times leaves the file alone.
  if (rabbet_timing_cache_equals_file(cache, timing_file_at(path)))
    return rabbet_ok();
  const rabbet_file_change_t change = {.context = cache,
                                       .make = timing_cache_make};
  return RABBET_ANNOTATE(rabbet_file_update(path, change, allocator),
                         "saving timing cache '%s'", path);
}

rabbet_status_t rabbet_timing_cache_load(const char* path,
                                         rabbet_allocator_t allocator,
                                         rabbet_timing_cache_t** out_cache) {
  rabbet_file_map_t* map = NULL;
  *out_cache = NULL;
  // /dev/null stands for a cache that is not kept.
  struct stat info;
  if (stat(path, &info) == 0 && S_ISCHR(info.st_mode))
    return rabbet_timing_cache_create(NULL, 0, allocator, out_cache);
  // Before its bytes are read: a file that is replaced meanwhile is another.
  rabbet_timing_file_t file = timing_file_at(path);
  rabbet_status_t status = rabbet_file_map_create(path, allocator, &map);
  if (rabbet_is_ok(status))
    status = rabbet_timing_cache_create(rabbet_file_map_data(map),
                                        rabbet_file_map_size(map), allocator,
                                        out_cache);
  rabbet_file_map_release(map);
  if (rabbet_is_ok(status)) rabbet_timing_cache_set_file(*out_cache, file);
  return RABBET_ANNOTATE(status, "timing cache '%s'", path);
}
