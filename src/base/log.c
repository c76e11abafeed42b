#include <stdarg.h>
#include <stdio.h>

#include "rabbet/allocator.h"
#include "rabbet/logger.h"

static void rabbet_log_to_stderr(void* user_data, rabbet_severity_t severity,
                                 const char* message) {
  (void)user_data;
  static const char* const names[] = {"internal error", "error", "warning",
                                      "info", "verbose"};
  size_t count = sizeof(names) / sizeof(names[0]);
  fprintf(stderr, "rabbet: %s: %s\n",
          (size_t)severity < count ? names[severity] : "?", message);
}

rabbet_logger_t rabbet_logger_stderr(rabbet_severity_t verbosity) {
  return (rabbet_logger_t){.log = rabbet_log_to_stderr, .verbosity = verbosity};
}

void rabbet_log(rabbet_logger_t logger, rabbet_severity_t severity,
                const char* format, ...) {
  if (!logger.log || severity > logger.verbosity) return;
  char brief[512];
  va_list arguments, again;
  va_start(arguments, format);
  va_copy(again, arguments);
  int size = vsnprintf(brief, sizeof(brief), format, arguments);
  void* whole = NULL;
  if (size >= (int)sizeof(brief)) {
    // Short of memory, the message is cut rather than lost.
    rabbet_status_ignore(
        rabbet_allocate(rabbet_allocator_system(), (size_t)size + 1, &whole));
    if (whole) vsnprintf(whole, (size_t)size + 1, format, again);
  }
  if (size >= 0) logger.log(logger.user_data, severity, whole ? whole : brief);
  rabbet_free(rabbet_allocator_system(), whole);
  va_end(again);
  va_end(arguments);
}
