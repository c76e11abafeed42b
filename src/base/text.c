#include "base/text.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

// ---- UTF-8 -----------------------------------------------------------------

// Unicode 15, table 3-7.
size_t rabbet_utf8_length_within(const void* data, size_t size) {
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
  const unsigned char* text = data;
  for (size_t i = 0; size && i < sizeof(rows) / sizeof(rows[0]); ++i) {
    if (text[0] < rows[i].first || text[0] > rows[i].last) continue;
    if (rows[i].length == 1) return 1;
    if (rows[i].length > size) return 0;
    if (text[1] < rows[i].low || text[1] > rows[i].high) return 0;
    for (size_t k = 2; k < rows[i].length; ++k) {
      if ((text[k] & 0xc0) != 0x80) return 0;
    }
    return rows[i].length;
  }
  return 0;
}

size_t rabbet_utf8_length(const char* text) {
  return rabbet_utf8_length_within(text, strnlen(text, 4) + 1);
}

// Offset of the first byte that is no UTF-8, or the length.
static size_t utf8_valid_bytes(const char* text) {
  const char* at = text;
  size_t length;
  while (*at && (length = rabbet_utf8_length(at)))
    at += length;
  return (size_t)(at - text);
}

bool rabbet_utf8_is_valid(const char* text) {
  return !text[utf8_valid_bytes(text)];
}

rabbet_status_t rabbet_text_check(const char* what, const char* text) {
  if (!text || rabbet_utf8_is_valid(text)) return rabbet_ok();
  return RABBET_STATUS(RABBET_STATUS_INVALID_ARGUMENT,
                       "%s, '%s', is not UTF-8 from byte %zu on", what, text,
                       utf8_valid_bytes(text));
}

// ---- Terminals -------------------------------------------------------------

static uint32_t utf8_decode(const char* data, size_t length) {
  assert(length >= 1 && length <= 4);
  const unsigned char* text = (const unsigned char*)data;
  if (length == 1) return text[0];
  uint32_t point = text[0] & (0x7fu >> length);
  for (size_t i = 1; i < length; ++i)
    point = point << 6 | (text[i] & 0x3fu);
  return point;
}

uint32_t rabbet_utf8_unsafe(const char* text, size_t length) {
  static const struct {
    uint32_t first, last;
  } rows[] = {{0x01, 0x08},     {0x0b, 0x1f},     {0x7f, 0x9f},
              {0x061c, 0x061c}, {0x200e, 0x200f}, {0x2028, 0x202e},
              {0x2066, 0x2069}};
  uint32_t point = utf8_decode(text, length);
  for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); ++i) {
    if (point >= rows[i].first && point <= rows[i].last) return point;
  }
  return 0;
}

size_t rabbet_text_piece(const char* text, char out[RABBET_TEXT_PIECE],
                         size_t* out_length) {
  size_t length = rabbet_utf8_length(text);
  *out_length = length ? length : 1;
  uint32_t point =
      length ? rabbet_utf8_unsafe(text, length) : (unsigned char)text[0];
  if (!point) {
    memcpy(out, text, length);
    return length;
  }
  return (size_t)snprintf(out, RABBET_TEXT_PIECE,
                          point <= 0xff ? "\\x%02x" : "\\u%04x", point);
}

size_t rabbet_text_escape(const char* text, char* buffer, size_t capacity) {
  size_t total = 0, written = 0, length;
  for (const char* at = text; *at; at += length) {
    char piece[RABBET_TEXT_PIECE];
    size_t size = rabbet_text_piece(at, piece, &length);
    // Text that does not fit is cut between two escaped characters.
    if (written == total && total + size < capacity) {
      memcpy(buffer + written, piece, size);
      written += size;
    }
    total += size;
  }
  assert(capacity == 0 || written < capacity);
  if (capacity) buffer[written] = '\0';
  return total;
}
