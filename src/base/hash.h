// 128-bit hashes (XXH3) of byte streams, and of parts fed one by one.
#ifndef RABBET_SRC_BASE_HASH_H_
#define RABBET_SRC_BASE_HASH_H_

#include "rabbet/base.h"

typedef struct rabbet_hash_t {
  uint64_t high, low;
} rabbet_hash_t;

RABBET_PRIVATE_API uint64_t rabbet_hash64(const void* data, size_t size);
RABBET_PRIVATE_API rabbet_hash_t rabbet_hash128(const void* data, size_t size);
// 32 lower-case hex digits and a NUL.
RABBET_PRIVATE_API void rabbet_hash_print(rabbet_hash_t hash,
                                          char out_text[33]);

#endif  // RABBET_SRC_BASE_HASH_H_
