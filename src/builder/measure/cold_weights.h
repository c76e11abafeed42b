// Copies of weights, so that kernels are timed with weights in memory. A kernel
// that is timed repeatedly has its weights in the cache. If a network's weights
// do not all fit there, each run reads them from memory, and so consecutive
// calls use different copies.
#ifndef RABBET_SRC_BUILDER_MEASURE_COLD_WEIGHTS_H_
#define RABBET_SRC_BUILDER_MEASURE_COLD_WEIGHTS_H_

#include "builder/measure/bench.h"

enum { RABBET_COLD_WEIGHTS_MAX_TURNS = 64 };

typedef struct rabbet_cold_weights_t {
  void** inputs;  // of the call; borrowed
  // [turn * weight_count + weight], and which inputs these are; in the arena.
  void** copies;
  size_t* weights;
  size_t weight_count;
  int turns, turn;  // turns 0: there are no copies
} rabbet_cold_weights_t;

// Whether the network's constants are more than the device's cache holds.
RABBET_PRIVATE_API bool rabbet_cold_weights_apply(const rabbet_build_t* build);
// Copies, in memory of the bench, of the group's constants whose addresses are
// in `inputs`, except those that `written` (may be NULL, else one for each
// input) marks as written by the kernel. No copies if the build does not need
// them.
RABBET_PRIVATE_API rabbet_status_t rabbet_cold_weights_initialize(
    rabbet_build_t* build, const rabbet_group_t* group, const bool* written,
    void** inputs, rabbet_cold_weights_t* out_cold);
// Selects the next copies for the next call.
RABBET_PRIVATE_API void rabbet_cold_weights_turn(rabbet_cold_weights_t* cold);

#endif  // RABBET_SRC_BUILDER_MEASURE_COLD_WEIGHTS_H_
