#include "base/hash.h"

#include <stdio.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

uint64_t rabbet_hash64(const void* data, size_t size) {
  return XXH3_64bits(data, size);
}

rabbet_hash_t rabbet_hash128(const void* data, size_t size) {
  XXH128_hash_t hash = XXH3_128bits(data, size);
  return (rabbet_hash_t){.high = hash.high64, .low = hash.low64};
}

void rabbet_hash_print(rabbet_hash_t hash, char out_text[33]) {
  snprintf(out_text, 33, "%016llx%016llx", (unsigned long long)hash.high,
           (unsigned long long)hash.low);
}
