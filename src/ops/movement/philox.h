// Random numbers that depend only on a seed and a position, not on the number
// of threads: Philox4x32-10 (Salmon, Moraes, Dror, Shaw, "Parallel random
// numbers: as easy as 1, 2, 3", SC 2011).
#ifndef RABBET_SRC_OPS_MOVEMENT_PHILOX_H_
#define RABBET_SRC_OPS_MOVEMENT_PHILOX_H_

#include <stdint.h>

// Four words for a position.
static inline void rabbet_philox(uint64_t seed, uint64_t position,
                                 uint32_t out[4]) {
  uint32_t key[2] = {(uint32_t)seed, (uint32_t)(seed >> 32)};
  uint32_t c[4] = {(uint32_t)position, (uint32_t)(position >> 32), 0, 0};
  for (int round = 0; round < 10; ++round) {
    uint64_t a = UINT64_C(0xd2511f53) * c[0], b = UINT64_C(0xcd9e8d57) * c[2];
    uint32_t next[4] = {(uint32_t)(b >> 32) ^ c[1] ^ key[0], (uint32_t)b,
                        (uint32_t)(a >> 32) ^ c[3] ^ key[1], (uint32_t)a};
    for (int i = 0; i < 4; ++i)
      c[i] = next[i];
    key[0] += 0x9e3779b9u;
    key[1] += 0xbb67ae85u;
  }
  for (int i = 0; i < 4; ++i)
    out[i] = c[i];
}

// 24 bits of a word as a number in [0, 1).
static inline float rabbet_philox_unit(uint32_t word) {
  return (float)(word >> 8) * 0x1p-24f;
}

#endif  // RABBET_SRC_OPS_MOVEMENT_PHILOX_H_
