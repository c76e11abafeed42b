// The folder of a cache of one user's, which an environment variable may name.
#ifndef RABBET_SRC_BASE_CACHE_FOLDER_H_
#define RABBET_SRC_BASE_CACHE_FOLDER_H_

#include <limits.h>

#include "rabbet/base.h"
#include "rabbet/logger.h"

typedef struct rabbet_cache_folder_t {
  int file;             // open; -1: nothing is kept
  const char* reason;   // why; NULL: so it was asked for
  char path[PATH_MAX];  // for messages
} rabbet_cache_folder_t;

// The variable names the folder; "none": nothing is kept. Without it,
// rabbet/NAME in $XDG_CACHE_HOME, else in ~/.cache. It is made, for its user
// alone, if it is missing, and must not be one that others could write to: they
// would choose what runs here. The caller closes the file.
RABBET_PRIVATE_API void rabbet_cache_folder_open(
    const char* variable, const char* name, rabbet_cache_folder_t* out_folder);
// Bytes, which the variable gives as MiB; a warning where it is no number.
RABBET_PRIVATE_API uint64_t rabbet_cache_limit(const char* variable,
                                               int default_mib,
                                               rabbet_logger_t logger);

#endif  // RABBET_SRC_BASE_CACHE_FOLDER_H_
