// Messages about progress. Errors are returned as statuses, not logged.
#ifndef RABBET_LOGGER_H_
#define RABBET_LOGGER_H_

#include "rabbet/base.h"

RABBET_EXTERN_C_BEGIN

typedef enum rabbet_severity_t {
  RABBET_SEVERITY_INTERNAL_ERROR = 0,
  RABBET_SEVERITY_ERROR = 1,
  RABBET_SEVERITY_WARNING = 2,
  RABBET_SEVERITY_INFO = 3,
  RABBET_SEVERITY_VERBOSE = 4,
} rabbet_severity_t;

// Passed by value; {0} logs nothing. `log` is called on any thread.
typedef struct rabbet_logger_t {
  void* user_data;
  void (*log)(void* user_data, rabbet_severity_t severity, const char* message);
  rabbet_severity_t verbosity;  // messages above it are not even formatted
} rabbet_logger_t;

// To stderr, one line each with its severity.
RABBET_API rabbet_logger_t rabbet_logger_stderr(rabbet_severity_t verbosity);
RABBET_API void rabbet_log(rabbet_logger_t logger, rabbet_severity_t severity,
                           const char* format, ...) RABBET_PRINTF(3, 4);

RABBET_EXTERN_C_END
#endif  // RABBET_LOGGER_H_
