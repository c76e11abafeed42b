#include "base/hash.h"

#include <assert.h>
#include <stdio.h>

#define XXH_INLINE_ALL
#define XXH_NO_INLINE_HINTS 1  // 4 KiB less, and as fast
#include <xxhash.h>

uint64_t rabbet_hash64(const void* data, size_t size) {
  return XXH3_64bits(data, size);
}

rabbet_hash_t rabbet_hash128(const void* data, size_t size) {
  XXH128_hash_t hash = XXH3_128bits(data, size);
  return (rabbet_hash_t){.high = hash.high64, .low = hash.low64};
}

static_assert(sizeof(XXH3_state_t) <= sizeof(rabbet_hash_stream_t) &&
                  _Alignof(XXH3_state_t) <= _Alignof(rabbet_hash_stream_t),
              "the state fits");

void rabbet_hash_stream_begin(rabbet_hash_stream_t* stream) {
  XXH3_state_t* state = (XXH3_state_t*)(void*)stream;
  XXH3_INITSTATE(state);
  XXH3_64bits_reset(state);
}

void rabbet_hash_stream_add(rabbet_hash_stream_t* stream, const void* data,
                            size_t size) {
  if (size > 0) XXH3_64bits_update((XXH3_state_t*)(void*)stream, data, size);
}

uint64_t rabbet_hash_stream_end(const rabbet_hash_stream_t* stream) {
  return XXH3_64bits_digest((const XXH3_state_t*)(const void*)stream);
}

void rabbet_hash_print(rabbet_hash_t hash, char out_text[33]) {
  snprintf(out_text, 33, "%016llx%016llx", (unsigned long long)hash.high,
           (unsigned long long)hash.low);
}
