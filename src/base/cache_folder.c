#define _GNU_SOURCE
#include "base/cache_folder.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static bool folder_path(const char* variable, const char* name,
                        char path[PATH_MAX]) {
  const char* asked = getenv(variable);
  const char* cache = getenv("XDG_CACHE_HOME");
  const char* home = getenv("HOME");
  int size = -1;
  if (asked && *asked)
    size =
        strcmp(asked, "none") == 0 ? -1 : snprintf(path, PATH_MAX, "%s", asked);
  else if (cache && *cache == '/')
    size = snprintf(path, PATH_MAX, "%s/rabbet/%s", cache, name);
  else if (home && *home == '/')
    size = snprintf(path, PATH_MAX, "%s/.cache/rabbet/%s", home, name);
  return size > 0 && size < PATH_MAX;
}

// Makes the folder and those above it. Returns 0 or an errno.
static int folder_make(char path[PATH_MAX]) {
  for (char* at = path + 1;; ++at) {
    char end = *at;
    if (end != '/' && end != 0) continue;
    *at = 0;
    int error = mkdir(path, 0700) == 0 || errno == EEXIST ? 0 : errno;
    *at = end;
    if (end == 0) return error;
  }
}

// Returns NULL, or why the folder cannot be used.
static const char* folder_open(rabbet_cache_folder_t* folder) {
  struct stat info;
  int error = folder_make(folder->path);
  folder->file = open(folder->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (folder->file < 0) return strerror(error ? error : errno);
  if (fstat(folder->file, &info) != 0) return strerror(errno);
  if (info.st_uid != geteuid() || (info.st_mode & (S_IWGRP | S_IWOTH)) != 0)
    return "other users can write to it";
  if (faccessat(folder->file, ".", W_OK, AT_EACCESS) != 0)
    return strerror(errno);
  return NULL;
}

void rabbet_cache_folder_open(const char* variable, const char* name,
                              rabbet_cache_folder_t* out_folder) {
  *out_folder = (rabbet_cache_folder_t){.file = -1};
  if (!folder_path(variable, name, out_folder->path)) return;
  out_folder->reason = folder_open(out_folder);
  if (!out_folder->reason) return;
  if (out_folder->file >= 0) close(out_folder->file);
  out_folder->file = -1;
}

uint64_t rabbet_cache_limit(const char* variable, int default_mib,
                            rabbet_logger_t logger) {
  const char* text = getenv(variable);
  char* end = NULL;
  if (!text || !*text) return (uint64_t)default_mib << 20;
  errno = 0;
  long long mib = strtoll(text, &end, 10);
  if (errno == 0 && *end == 0 && mib >= 0 && mib < (INT64_MAX >> 20))
    return (uint64_t)mib << 20;
  rabbet_log(logger, RABBET_SEVERITY_WARNING,
             "%s is '%s'; expected a number of MiB: %d is taken", variable,
             text, default_mib);
  return (uint64_t)default_mib << 20;
}
