#include "triton/text.h"

#include <stdio.h>

void rabbet_text_printf(rabbet_text_t* text, const char* format, ...) {
  va_list arguments;
  if (!rabbet_is_ok(text->status)) return;
  va_start(arguments, format);
  int length = vsnprintf(NULL, 0, format, arguments);
  va_end(arguments);
  size_t needed = text->size + (length < 0 ? 0 : (size_t)length) + 1;
  if (needed > text->capacity) {
    text->status =
        rabbet_reallocate(text->allocator, 2 * needed, (void**)&text->data);
    if (!rabbet_is_ok(text->status)) return;
    text->capacity = 2 * needed;
  }
  va_start(arguments, format);
  vsnprintf(text->data + text->size, text->capacity - text->size, format,
            arguments);
  va_end(arguments);
  text->size = needed - 1;
}
