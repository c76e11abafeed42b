#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/text.h"
#include "rabbet/allocator.h"
#include "rabbet/logger.h"

static void log_to_stderr(void* user_data, rabbet_severity_t severity,
                          const char* message) {
  (void)user_data;
  static const char* const names[] = {"internal error", "error", "warning",
                                      "info", "verbose"};
  size_t count = sizeof(names) / sizeof(names[0]);
  fprintf(stderr, "rabbet: %s: %s\n",
          (size_t)severity < count ? names[severity] : "?", message);
}

rabbet_logger_t rabbet_logger_stderr(rabbet_severity_t verbosity) {
  return (rabbet_logger_t){.log = log_to_stderr, .verbosity = verbosity};
}

// Formats into `brief` or, if that is too small, into memory that the caller
// frees. Short of memory, the message is cut rather than lost.
static char* log_format(char* brief, size_t capacity, const char* format,
                        va_list arguments) {
  va_list again;
  va_copy(again, arguments);
  int size = vsnprintf(brief, capacity, format, arguments);
  void* whole = NULL;
  if (size >= 0 && (size_t)size >= capacity) {
    rabbet_status_ignore(
        rabbet_allocate(rabbet_allocator_system(), (size_t)size + 1, &whole));
    if (whole) vsnprintf(whole, (size_t)size + 1, format, again);
  }
  if (size < 0) brief[0] = '\0';
  va_end(again);
  return whole ? whole : brief;
}

void rabbet_log(rabbet_logger_t logger, rabbet_severity_t severity,
                const char* format, ...) {
  if (!logger.log || severity > logger.verbosity) return;
  char brief[512], cut[512];
  va_list arguments;
  va_start(arguments, format);
  char* text = log_format(brief, sizeof(brief), format, arguments);
  va_end(arguments);
  size_t size = rabbet_text_escape(text, cut, sizeof(cut));
  void* whole = NULL;
  if (size != strlen(text) && size >= sizeof(cut)) {
    rabbet_status_ignore(
        rabbet_allocate(rabbet_allocator_system(), size + 1, &whole));
    if (whole) rabbet_text_escape(text, whole, size + 1);
  }
  const char* shown = size == strlen(text) ? text : whole ? whole : cut;
  logger.log(logger.user_data, severity, shown);
  rabbet_free(rabbet_allocator_system(), whole);
  if (text != brief) rabbet_free(rabbet_allocator_system(), text);
}
