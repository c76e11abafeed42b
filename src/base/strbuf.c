#include "base/strbuf.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/math.h"
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
static bool rabbet_strbuf_reserve(rabbet_strbuf_t* buffer, size_t extra) {
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
  if (!rabbet_strbuf_reserve(buffer, size)) return;
  if (size) memcpy(buffer->data + buffer->size, data, size);
  buffer->size += size;
  buffer->data[buffer->size] = '\0';
}

void rabbet_strbuf_printf(rabbet_strbuf_t* buffer, const char* format, ...) {
  va_list arguments, again;
  va_start(arguments, format);
  va_copy(again, arguments);
  int size = vsnprintf(NULL, 0, format, arguments);
  if (size < 0) {
    buffer->failed = true;
  } else if (rabbet_strbuf_reserve(buffer, (size_t)size)) {
    vsnprintf(buffer->data + buffer->size, (size_t)size + 1, format, again);
    buffer->size += (size_t)size;
  }
  va_end(again);
  va_end(arguments);
}

// Bytes of the well-formed UTF-8 sequence at `text` (Unicode 15, table 3-7),
// or 0 when there is none.
static size_t rabbet_utf8_length(const unsigned char* text) {
  static const struct {
    unsigned char first, last;  // of the first byte
    unsigned char low, high;    // of the second byte
    unsigned char length;
  } rows[] = {
      {0x00, 0x7f, 0x00, 0x00, 1}, {0xc2, 0xdf, 0x80, 0xbf, 2},
      {0xe0, 0xe0, 0xa0, 0xbf, 3}, {0xe1, 0xec, 0x80, 0xbf, 3},
      {0xed, 0xed, 0x80, 0x9f, 3}, {0xee, 0xef, 0x80, 0xbf, 3},
      {0xf0, 0xf0, 0x90, 0xbf, 4}, {0xf1, 0xf3, 0x80, 0xbf, 4},
      {0xf4, 0xf4, 0x80, 0x8f, 4},
  };
  for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); ++i) {
    if (text[0] < rows[i].first || text[0] > rows[i].last) continue;
    if (rows[i].length == 1) return 1;
    if (text[1] < rows[i].low || text[1] > rows[i].high) return 0;
    for (size_t k = 2; k < rows[i].length; ++k) {
      if ((text[k] & 0xc0) != 0x80) return 0;
    }
    return rows[i].length;
  }
  return 0;
}

// What stands for a byte in a JSON string, or NULL where it stands for itself.
static const char* rabbet_json_escape(unsigned char byte, char scratch[8]) {
  switch (byte) {
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
  if (byte >= 0x20 && byte != 0x7f) return NULL;
  snprintf(scratch, 8, "\\u%04x", byte);
  return scratch;
}

void rabbet_strbuf_json_string(rabbet_strbuf_t* buffer, const char* text) {
  rabbet_strbuf_append(buffer, "\"", 1);
  const unsigned char* at = (const unsigned char*)text;
  while (*at) {
    size_t length = rabbet_utf8_length(at);
    char scratch[8];
    const char* escape = length == 1   ? rabbet_json_escape(*at, scratch)
                         : length == 0 ? "\xef\xbf\xbd"  // U+FFFD
                                       : NULL;
    if (escape) {
      rabbet_strbuf_append(buffer, escape, strlen(escape));
    } else {
      rabbet_strbuf_append(buffer, at, length);
    }
    at += length ? length : 1;
  }
  rabbet_strbuf_append(buffer, "\"", 1);
}

rabbet_status_t rabbet_strbuf_status(const rabbet_strbuf_t* buffer) {
  if (!buffer->failed) return rabbet_ok();
  return RABBET_STATUS(RABBET_STATUS_OUT_OF_MEMORY,
                       "no memory for a text of more than %zu bytes",
                       buffer->size);
}
