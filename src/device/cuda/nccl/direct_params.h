// Parameters of the kernels in direct.cu. C and CUDA C++.
#pragma once

#include "device/cuda/programs/index.h"

enum {
  DIRECT_RANKS = 8,
  DIRECT_BYTES = 1 << 20,  // the most that a rank gives, or is given
  DIRECT_DATA = 8,         // bytes in a line
  DIRECT_LINE = 16,
  // The largest grid. Small ones have small blocks, on many multiprocessors.
  DIRECT_BLOCKS = 128,
  DIRECT_THREADS = 512,
  DIRECT_FEW_THREADS = 128,
  // Thread t alone writes and reads lines t, t + DIRECT_CHANNELS, ..., and
  // counts its own exchanges.
  DIRECT_CHANNELS = DIRECT_BLOCKS * DIRECT_THREADS,
  // An area: the counters, then lines. DIRECT_CHUNK lines from each rank in
  // each of two sets lie beside each other, so that exchanges of few bytes
  // touch one page.
  DIRECT_COUNTERS = DIRECT_CHANNELS * 4,  // bytes
  DIRECT_CHUNK = 512,
  DIRECT_LINES = 4 * (DIRECT_BYTES / DIRECT_DATA + DIRECT_RANKS * DIRECT_CHUNK),
  DIRECT_AREA = DIRECT_COUNTERS + DIRECT_LINES * DIRECT_LINE,
};

// With two ranks a second step would save nothing.
#define DIRECT_STEPS(ranks) ((ranks) > 2 ? 2 : 1)
// Lines from a rank in a step of a set.
#define DIRECT_CAPACITY(ranks)                                       \
  (DIRECT_LINES / (2 * DIRECT_STEPS(ranks) * (ranks)*DIRECT_CHUNK) * \
   DIRECT_CHUNK)

typedef struct direct_t {
  // In this process's addresses: the own, then those of the ranks behind it, in
  // a ring.
  char* areas[DIRECT_RANKS];
  const int32_t* given_up;  // pinned; not 0: nobody waits any more
  int32_t bytes;            // that a rank gives to another
  int32_t rank;
} direct_t;
