// How weights are fetched ahead while others are multiplied.
//
// A thread divides its rows of weights into four parts and multiplies one row
// of each part at the same time. So it reads four streams, each of which goes
// on from row to row: rows lie behind each other. What is fetched goes to the
// first-level cache: with codes 2 KiB ahead in the second, and no scales, INT4
// took 8 to 12 % longer from memory (Xeon of the 4th generation).
#ifndef RABBET_SRC_DEVICE_CPU_VECTORS_AHEAD_H_
#define RABBET_SRC_DEVICE_CPU_VECTORS_AHEAD_H_

#include <stdint.h>

#include "device/cpu/vectors/vectors.h"

// The addresses may lie behind all weights: they are not read.
#define RABBET_FETCH(address, ahead, level) \
  __builtin_prefetch((const void*)((uintptr_t)(address) + (ahead)), 0, (level))

enum { RABBET_FIRST_LEVEL = 3 };
static inline void rabbet_fetch_ahead(const uint8_t* codes) {
  enum { AHEAD = 768 };
  RABBET_FETCH(codes, AHEAD, RABBET_FIRST_LEVEL);
}

// Scales are streams, too, of a fourth of the codes' bytes or less.
static inline void rabbet_fetch_scales_ahead(const void* scales) {
  enum { AHEAD = 256 };
  RABBET_FETCH(scales, AHEAD, RABBET_FIRST_LEVEL);
}

// Zero points of row n, which are read when it ends.
static inline void rabbet_fetch_zeros(const rabbet_packed_zeros_t* zeros,
                                      int64_t n) {
  enum { LINE = 64 };
  const int8_t* codes = zeros->codes + n * zeros->blocks;
  for (int64_t b = 0; b < zeros->blocks; b += LINE)
    __builtin_prefetch(codes + b);
}

// The same for AVX2, whose loops have so many instructions that few lines are
// under way at a time.
static inline void rabbet_fetch_next(const uint8_t* codes) {
  enum { AHEAD = 384 };
  RABBET_FETCH(codes, AHEAD, RABBET_FIRST_LEVEL);
}
static inline void rabbet_fetch_next_scales(const void* scales) {
  enum { AHEAD = 128 };
  RABBET_FETCH(scales, AHEAD, RABBET_FIRST_LEVEL);
}

#endif  // RABBET_SRC_DEVICE_CPU_VECTORS_AHEAD_H_
