// Text from outside: names that must be UTF-8, and escaping for terminals.
#ifndef RABBET_SRC_BASE_TEXT_H_
#define RABBET_SRC_BASE_TEXT_H_

#include "rabbet/status.h"

// Bytes of the well-formed UTF-8 sequence at `text` (1 for the NUL at its end),
// or 0 where the bytes are none.
RABBET_PRIVATE_API size_t rabbet_utf8_length(const char* text);
// The same for bytes without a NUL behind them.
RABBET_PRIVATE_API size_t rabbet_utf8_length_within(const void* text,
                                                    size_t size);
RABBET_PRIVATE_API bool rabbet_utf8_is_valid(const char* text);
// The character of a well-formed sequence if a terminal or an editor obeys it
// (controls but newline and tab, line separators, marks and overrides of
// direction), else 0.
RABBET_PRIVATE_API uint32_t rabbet_utf8_unsafe(const char* text, size_t length);
// INVALID_ARGUMENT, with `what` ("the name of a layer") and the offset, unless
// `text` is UTF-8: plans hold no other text, nor does JSON. NULL is valid.
RABBET_PRIVATE_API rabbet_status_t rabbet_text_check(const char* what,
                                                     const char* text);

// Room for a character as it is shown.
#define RABBET_TEXT_PIECE 8
// How the character at `text`, of *out_length bytes, is shown, as
// rabbet_text_escape says; returns the size of `out`, which no NUL ends.
RABBET_PRIVATE_API size_t rabbet_text_piece(const char* text,
                                            char out[RABBET_TEXT_PIECE],
                                            size_t* out_length);
// Copies `text` so that a terminal prints it without obeying it: bytes that are
// not UTF-8, and the characters of rabbet_utf8_unsafe, become "\xff" or
// "\u202e". A backslash stays, so that escaping twice is the same as escaping
// once. Writes at most `capacity` bytes with the NUL; returns the length of the
// whole, as snprintf does, which is that of `text` if nothing needs to be
// escaped.
RABBET_PRIVATE_API size_t rabbet_text_escape(const char* text, char* buffer,
                                             size_t capacity);

#endif  // RABBET_SRC_BASE_TEXT_H_
