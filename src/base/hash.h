// Hashes (XXH3) of bytes, whole or in pieces.
#ifndef RABBET_SRC_BASE_HASH_H_
#define RABBET_SRC_BASE_HASH_H_

#include "rabbet/base.h"

typedef struct rabbet_hash_t {
  uint64_t high, low;
} rabbet_hash_t;

RABBET_PRIVATE_API uint64_t rabbet_hash64(const void* data, size_t size);
RABBET_PRIVATE_API rabbet_hash_t rabbet_hash128(const void* data, size_t size);
// rabbet_hash64 of bytes that come in pieces.
typedef struct rabbet_hash_stream_t {
  _Alignas(64) unsigned char state[576];
} rabbet_hash_stream_t;
RABBET_PRIVATE_API void rabbet_hash_stream_begin(rabbet_hash_stream_t* stream);
RABBET_PRIVATE_API void rabbet_hash_stream_add(rabbet_hash_stream_t* stream,
                                               const void* data, size_t size);
RABBET_PRIVATE_API uint64_t
rabbet_hash_stream_end(const rabbet_hash_stream_t* stream);
// 32 lower-case hex digits and a NUL.
RABBET_PRIVATE_API void rabbet_hash_print(rabbet_hash_t hash,
                                          char out_text[33]);

#endif  // RABBET_SRC_BASE_HASH_H_
