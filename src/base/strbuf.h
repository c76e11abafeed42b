// Text or bytes built piece by piece. Failure is sticky: append freely, then
// ask once with rabbet_strbuf_status.
#ifndef RABBET_SRC_BASE_STRBUF_H_
#define RABBET_SRC_BASE_STRBUF_H_

#include <stdarg.h>

#include "rabbet/allocator.h"

typedef struct rabbet_strbuf_t {
  rabbet_allocator_t allocator;
  char* data;  // NUL-terminated once anything was appended, else NULL
  size_t size;
  size_t capacity;
  bool failed;
} rabbet_strbuf_t;

RABBET_PRIVATE_API void rabbet_strbuf_initialize(rabbet_allocator_t allocator,
                                                 rabbet_strbuf_t* out_buffer);
RABBET_PRIVATE_API void rabbet_strbuf_deinitialize(rabbet_strbuf_t* buffer);
RABBET_PRIVATE_API void rabbet_strbuf_append(rabbet_strbuf_t* buffer,
                                             const void* data, size_t size);
RABBET_PRIVATE_API void rabbet_strbuf_printf(rabbet_strbuf_t* buffer,
                                             const char* format, ...)
    RABBET_PRINTF(2, 3);
RABBET_PRIVATE_API void rabbet_strbuf_printf_v(rabbet_strbuf_t* buffer,
                                               const char* format,
                                               va_list arguments);
// A number's digits, in a tenth of the time that printf takes.
RABBET_PRIVATE_API void rabbet_strbuf_integer(rabbet_strbuf_t* buffer,
                                              int64_t value);
// A JSON string with quotes and escapes.
RABBET_PRIVATE_API void rabbet_strbuf_json_string(rabbet_strbuf_t* buffer,
                                                  const char* text);
// Text on one line of a terminal: as rabbet_text_escape writes it
// (base/text.h), newlines and tabs escaped too.
RABBET_PRIVATE_API void rabbet_strbuf_line(rabbet_strbuf_t* buffer,
                                           const char* text);
// Escapes the text in the buffer as rabbet_text_escape does.
RABBET_PRIVATE_API void rabbet_strbuf_escape(rabbet_strbuf_t* buffer);
// OUT_OF_MEMORY if any append failed.
RABBET_PRIVATE_API rabbet_status_t
rabbet_strbuf_status(const rabbet_strbuf_t* buffer);
// "1 layer", "2 layers".
static inline const char* rabbet_plural(size_t count) {
  return count == 1 ? "" : "s";
}
// "" when empty.
static inline const char* rabbet_strbuf_text(const rabbet_strbuf_t* buffer) {
  return buffer->data ? buffer->data : "";
}

#endif  // RABBET_SRC_BASE_STRBUF_H_
