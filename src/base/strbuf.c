#include "base/strbuf.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "base/math.h"
#include "base/text.h"
#include "base/vec.h"

void rabbet_strbuf_initialize(rabbet_allocator_t allocator,
                              rabbet_strbuf_t* out_buffer) {
  *out_buffer = (rabbet_strbuf_t){.allocator = allocator};
}

void rabbet_strbuf_deinitialize(rabbet_strbuf_t* buffer) {
  rabbet_free(buffer->allocator, buffer->data);
  *buffer = (rabbet_strbuf_t){.allocator = buffer->allocator};
}

// Room for `extra` bytes and the NUL.
static bool strbuf_reserve(rabbet_strbuf_t* buffer, size_t extra) {
  if (buffer->failed || !rabbet_checked_add(extra, (size_t)1, &extra)) {
    buffer->failed = true;
    return false;
  }
  rabbet_status_t status =
      rabbet_vec_reserve(buffer->allocator, (void**)&buffer->data,
                         &buffer->capacity, buffer->size, extra, 1);
  buffer->failed = !rabbet_is_ok(status);
  rabbet_status_ignore(status);
  return !buffer->failed;
}

void rabbet_strbuf_append(rabbet_strbuf_t* buffer, const void* data,
                          size_t size) {
  if (!strbuf_reserve(buffer, size)) return;
  if (size) memcpy(buffer->data + buffer->size, data, size);
  buffer->size += size;
  assert(buffer->size < buffer->capacity);
  buffer->data[buffer->size] = '\0';
}

void rabbet_strbuf_printf_v(rabbet_strbuf_t* buffer, const char* format,
                            va_list arguments) {
  if (buffer->failed) return;
  va_list again;
  va_copy(again, arguments);
  // Into the room that there is, and again where it is too small.
  size_t room = buffer->capacity - buffer->size;
  char* end = room > 0 ? buffer->data + buffer->size : NULL;
  int size = vsnprintf(end, room, format, arguments);
  if (size >= 0 && (size_t)size >= room) {
    if (end) *end = '\0';
    size = strbuf_reserve(buffer, (size_t)size)
               ? vsnprintf(buffer->data + buffer->size, (size_t)size + 1,
                           format, again)
               : -1;
  }
  if (size < 0)
    buffer->failed = true;
  else
    buffer->size += (size_t)size;
  assert(buffer->failed || buffer->size < buffer->capacity);
  va_end(again);
}

void rabbet_strbuf_printf(rabbet_strbuf_t* buffer, const char* format, ...) {
  va_list arguments;
  va_start(arguments, format);
  rabbet_strbuf_printf_v(buffer, format, arguments);
  va_end(arguments);
}

void rabbet_strbuf_integer(rabbet_strbuf_t* buffer, int64_t value) {
  char digits[20];  // of -2^63
  char* at = digits + sizeof(digits);
  uint64_t left = value < 0 ? -(uint64_t)value : (uint64_t)value;
  do {
    *--at = (char)('0' + left % 10);
    left /= 10;
  } while (left > 0);
  if (value < 0) *--at = '-';
  rabbet_strbuf_append(buffer, at, (size_t)(digits + sizeof(digits) - at));
}

// The escape of a character in a JSON string, or NULL if it needs none.
static const char* json_escape(const char* text, size_t length,
                               char scratch[8]) {
  switch (*text) {
    case '"':
      return "\\\"";
    case '\\':
      return "\\\\";
    case '\n':
      return "\\n";
    case '\r':
      return "\\r";
    case '\t':
      return "\\t";
  }
  uint32_t unsafe = rabbet_utf8_unsafe(text, length);
  if (!unsafe) return NULL;
  snprintf(scratch, 8, "\\u%04x", unsafe & 0xffff);
  return scratch;
}

void rabbet_strbuf_json_string(rabbet_strbuf_t* buffer, const char* text) {
  rabbet_strbuf_append(buffer, "\"", 1);
  for (const char* at = text; *at;) {
    size_t length = rabbet_utf8_length(at);
    char scratch[8];
    const char* escape =
        length ? json_escape(at, length, scratch) : "\xef\xbf\xbd";  // U+FFFD
    if (escape) {
      rabbet_strbuf_append(buffer, escape, strlen(escape));
    } else {
      rabbet_strbuf_append(buffer, at, length);
    }
    at += length ? length : 1;
  }
  rabbet_strbuf_append(buffer, "\"", 1);
}

void rabbet_strbuf_line(rabbet_strbuf_t* buffer, const char* text) {
  size_t length;
  for (const char* at = text; *at; at += length) {
    char piece[RABBET_TEXT_PIECE];
    size_t size = rabbet_text_piece(at, piece, &length);
    if (*at == '\n' || *at == '\t')
      rabbet_strbuf_append(buffer, *at == '\n' ? "\\n" : "\\t", 2);
    else
      rabbet_strbuf_append(buffer, piece, size);
  }
}

void rabbet_strbuf_escape(rabbet_strbuf_t* buffer) {
  const char* text = rabbet_strbuf_text(buffer);
  size_t size = rabbet_text_escape(text, NULL, 0);
  if (buffer->failed || size == buffer->size) return;
  rabbet_strbuf_t shown;
  rabbet_strbuf_initialize(buffer->allocator, &shown);
  if (strbuf_reserve(&shown, size)) {
    shown.size = rabbet_text_escape(text, shown.data, size + 1);
  }
  rabbet_strbuf_deinitialize(buffer);
  *buffer = shown;
}

rabbet_status_t rabbet_strbuf_status(const rabbet_strbuf_t* buffer) {
  if (!buffer->failed) return rabbet_ok();
  return RABBET_STATUS(RABBET_STATUS_OUT_OF_MEMORY,
                       "no memory for a text of more than %zu bytes",
                       buffer->size);
}
