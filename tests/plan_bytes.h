// Plan files by their bytes, from docs/reference/plan_format.md alone. Takes a
// file apart and puts one together with right checksums, so that tests can
// damage its contents.
#ifndef RABBET_TESTS_PLAN_BYTES_H_
#define RABBET_TESTS_PLAN_BYTES_H_

#include <stdlib.h>
#include <string.h>

#include "base/hash.h"

#define PLAN_BYTES_HEADER 64
#define PLAN_BYTES_ROW 32
#define PLAN_BYTES_SECTIONS 5
enum {
  PLAN_DEVICE = 0,
  PLAN_META = 1,
  PLAN_WEIGHTS = 2,
  PLAN_KERNELS = 3,
  PLAN_PLUGINS = 4
};

// Sections KERNELS and PLUGINS of no bytes are left out.
typedef struct plan_bytes_t {
  const uint8_t* section[PLAN_BYTES_SECTIONS];
  uint64_t size[PLAN_BYTES_SECTIONS];
} plan_bytes_t;

static inline uint64_t plan_bytes_load(const uint8_t* at) {
  uint64_t value = 0;
  for (int i = 7; i >= 0; --i)
    value = value << 8 | at[i];
  return value;
}

static inline void plan_bytes_store(uint8_t* at, uint64_t value, int size) {
  for (int i = 0; i < size; ++i)
    at[i] = (uint8_t)(value >> (8 * i));
}

static inline int plan_bytes_sections(const uint8_t* data) {
  return (int)plan_bytes_load(data + 12) & 0xff;
}

// Of a file that is whole.
static inline plan_bytes_t plan_bytes_split(const uint8_t* data) {
  plan_bytes_t parts = {{0}, {0}};
  for (int i = 0; i < plan_bytes_sections(data); ++i) {
    const uint8_t* row = data + PLAN_BYTES_HEADER + i * PLAN_BYTES_ROW;
    int section = (int)plan_bytes_load(row) - 1;
    parts.section[section] = data + plan_bytes_load(row + 8);
    parts.size[section] = plan_bytes_load(row + 16);
  }
  return parts;
}

static inline void plan_bytes_seal(uint8_t* data) {
  uint8_t* row = data + PLAN_BYTES_HEADER;
  for (int i = plan_bytes_sections(data); i > 0; --i, row += PLAN_BYTES_ROW)
    plan_bytes_store(row + 24,
                     rabbet_hash64(data + plan_bytes_load(row + 8),
                                   plan_bytes_load(row + 16)),
                     8);
  plan_bytes_store(data + 24,
                   rabbet_hash64(data + 32, (size_t)(row - data) - 32), 8);
}

// Aligned to 64; free() it.
static inline uint8_t* plan_bytes_join(const plan_bytes_t* parts,
                                       size_t* out_size) {
  uint64_t offsets[PLAN_BYTES_SECTIONS];
  int sections[PLAN_BYTES_SECTIONS], count = 0;
  for (int i = 0; i < PLAN_BYTES_SECTIONS; ++i)
    if (i < PLAN_KERNELS || parts->size[i] > 0) sections[count++] = i;
  uint64_t end = PLAN_BYTES_HEADER + (uint64_t)count * PLAN_BYTES_ROW;
  for (int i = 0; i < count; ++i) {
    offsets[i] = (end + 63) / 64 * 64;
    end = offsets[i] + parts->size[sections[i]];
  }
  uint8_t* data = aligned_alloc(64, (end + 63) / 64 * 64);
  memset(data, 0, end);
  memcpy(data, "\x89RABBET\n", 8);
  plan_bytes_store(data + 8, 3, 4);
  plan_bytes_store(data + 12, (uint64_t)count, 4);
  plan_bytes_store(data + 16, end, 8);
  memcpy(data + 32, "rabbet test", 11);
  for (int i = 0; i < count; ++i) {
    uint8_t* row = data + PLAN_BYTES_HEADER + i * PLAN_BYTES_ROW;
    int section = sections[i];
    plan_bytes_store(row, (uint64_t)section + 1, 4);
    plan_bytes_store(row + 8, offsets[i], 8);
    plan_bytes_store(row + 16, parts->size[section], 8);
    if (parts->size[section] > 0)
      memcpy(data + offsets[i], parts->section[section], parts->size[section]);
  }
  plan_bytes_seal(data);
  *out_size = end;
  return data;
}

#endif  // RABBET_TESTS_PLAN_BYTES_H_
