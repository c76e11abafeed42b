// Parameters of the kernel in direct.cu. C and CUDA C++.
#pragma once

#include "device/cuda/programs/index.h"

enum {
  DIRECT_RANKS = 8,
  DIRECT_BYTES = 64 << 10,  // the most that a rank gives to an exchange
  DIRECT_DATA = 8,          // bytes in a line
  DIRECT_LINE = 16,
  DIRECT_LINES = DIRECT_BYTES / DIRECT_DATA,
  DIRECT_THREADS = 256,
  DIRECT_BLOCKS = 32,
  // Bytes before the lines of an area: direct_state_t.
  DIRECT_STATE = 256,
  DIRECT_AREA = DIRECT_STATE + 2 * DIRECT_RANKS * DIRECT_LINES * DIRECT_LINE,
};

// A rank's own, in its area's first bytes.
typedef struct direct_state_t {
  uint64_t done;     // exchanges
  uint32_t arrived;  // blocks of the present one that have ended
} direct_state_t;

typedef struct direct_t {
  char* areas[DIRECT_RANKS];  // of each rank, in this process's addresses
  const int32_t* given_up;    // pinned; not 0: nobody waits any more
  int64_t bytes;              // of a rank's input
  int32_t rank, ranks, reduce;
} direct_t;
