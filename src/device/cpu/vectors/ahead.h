// How weights are fetched ahead while others are multiplied.
//
// A thread divides its rows of weights into four parts and multiplies one row
// of each part at the same time. So it reads four streams, each of which goes
// on from row to row: rows lie behind each other. What is fetched goes to the
// second-level cache, which waits for more lines at a time than the first.
#ifndef RABBET_SRC_DEVICE_CPU_VECTORS_AHEAD_H_
#define RABBET_SRC_DEVICE_CPU_VECTORS_AHEAD_H_

#include <stdint.h>

static inline void rabbet_fetch_ahead(const uint8_t* codes) {
  enum { READ = 0, SECOND_LEVEL = 2, AHEAD = 2048 };
  // The address may lie behind all weights: it is not read.
  __builtin_prefetch((const void*)((uintptr_t)codes + AHEAD), READ,
                     SECOND_LEVEL);
}

// Scales are streams, too, of a fourth of the codes' bytes or less.
static inline void rabbet_fetch_scales_ahead(const void* scales) {
  enum { READ = 0, SECOND_LEVEL = 2, AHEAD = 512 };
  __builtin_prefetch((const void*)((uintptr_t)scales + AHEAD), READ,
                     SECOND_LEVEL);
}

#endif  // RABBET_SRC_DEVICE_CPU_VECTORS_AHEAD_H_
