// Where a build's time goes: each moment of its thread counts for one phase.
#ifndef RABBET_SRC_BUILDER_MEASURE_PHASES_H_
#define RABBET_SRC_BUILDER_MEASURE_PHASES_H_

#include <stdint.h>

#include "base/status.h"

typedef enum rabbet_phase_t {
  RABBET_PHASE_SIMPLIFY,   // importing, simplifying, and all that has no phase
  RABBET_PHASE_DEVICE,     // opening the device
  RABBET_PHASE_COVERS,     // groups of nodes, and candidates for them
  RABBET_PHASE_LIBRARIES,  // libraries find and try their kernels
  RABBET_PHASE_CONSTANTS,  // other types and formats of weights
  RABBET_PHASE_PROGRAMS,   // compiling in threads
  RABBET_PHASE_KERNELS,    // creating those that are timed
  RABBET_PHASE_TIMING,     // kernels one by one
  RABBET_PHASE_CHOICE,     // the least sum
  RABBET_PHASE_WHOLE,      // timing whole plans
  RABBET_PHASE_PLAN,       // writing it
  RABBET_PHASE_COUNT,
} rabbet_phase_t;

typedef struct rabbet_phases_t {
  int64_t ns[RABBET_PHASE_COUNT];
  int64_t since;  // of the current phase
  rabbet_phase_t current;
} rabbet_phases_t;

// Its name in reports.
RABBET_PRIVATE_API const char* rabbet_phase_name(rabbet_phase_t phase);
RABBET_PRIVATE_API void rabbet_phases_start(rabbet_phases_t* phases);
// The phase before, to return to. `phases` NULL: nothing is counted.
RABBET_PRIVATE_API rabbet_phase_t rabbet_phases_enter(rabbet_phases_t* phases,
                                                      rabbet_phase_t phase);

#endif  // RABBET_SRC_BUILDER_MEASURE_PHASES_H_
