// Reads bytes as a timing cache whose checksum is right: what is taken can be
// written, and is the same when it is read again.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "rabbet/builder.h"

#define CACHE_HEADER 32  // the checksum is its last 8 bytes

// Refuses what would only test the machine's memory.
static void* capped_resize(void* self, void* block, size_t size,
                           size_t alignment) {
  (void)self;
  if (size > (size_t)16 << 20) return NULL;
  rabbet_allocator_t system = rabbet_allocator_system();
  return system.resize(system.self, block, size, alignment);
}

static const rabbet_allocator_t capped = {.resize = capped_resize};

static void check_same(const void* data, size_t size) {
  rabbet_timing_cache_t* cache = NULL;
  void* again = NULL;
  size_t count = 0;
  rabbet_status_t status =
      rabbet_timing_cache_create(data, size, capped, &cache);
  if (rabbet_is_ok(status))
    status = rabbet_timing_cache_serialize(cache, capped, &again, &count);
  if (!rabbet_is_ok(status) || count != size ||
      memcmp(data, again, size) != 0) {
    fprintf(stderr, "%s\n", rabbet_status_message(status));
    abort();
  }
  rabbet_free(capped, again);
  rabbet_timing_cache_release(cache);
}

static void try_bytes(const uint8_t* data, size_t size) {
  rabbet_timing_cache_t *cache = NULL, *other = NULL;
  void* written = NULL;
  size_t count = 0;
  rabbet_status_t status =
      rabbet_timing_cache_create(data, size, capped, &cache);
  if (rabbet_is_ok(status))
    status = rabbet_timing_cache_create(NULL, 0, capped, &other);
  if (rabbet_is_ok(status)) status = rabbet_timing_cache_combine(other, cache);
  if (rabbet_is_ok(status))
    status = rabbet_timing_cache_serialize(other, capped, &written, &count);
  if (rabbet_is_ok(status)) check_same(written, count);
  rabbet_status_ignore(status);
  rabbet_free(capped, written);
  rabbet_timing_cache_release(other);
  rabbet_timing_cache_release(cache);
}

static void seal_and_try(uint8_t* data, size_t size) {
  if (size >= CACHE_HEADER) {
    uint64_t sum = rabbet_hash64(data + CACHE_HEADER, size - CACHE_HEADER);
    memcpy(data + CACHE_HEADER - sizeof(sum), &sum, sizeof(sum));
  }
  try_bytes(data, size);
}

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  uint8_t* copy = malloc(size ? size : 1);
  memcpy(copy, data, size);
  seal_and_try(copy, size);
#ifndef RABBET_FUZZ  // without a fuzzer, each byte changed in some ways
  static const uint8_t changes[] = {0x01, 0x40, 0x80, 0xff};
  for (size_t i = 0; i < size && size <= 1024; ++i) {
    for (size_t k = 0; k < sizeof(changes); ++k) {
      memcpy(copy, data, size);
      copy[i] ^= changes[k];
      seal_and_try(copy, size);
    }
  }
  for (size_t cut = 0; cut < size && size <= 1024; ++cut) {
    uint8_t* exact = malloc(cut ? cut : 1);
    memcpy(exact, data, cut);
    seal_and_try(exact, cut);
    free(exact);
  }
#endif
  free(copy);
  return 0;
}
