#include "builder/measure/phases.h"

#include <assert.h>

#include "base/thread.h"

const char* rabbet_phase_name(rabbet_phase_t phase) {
  static const char* const names[RABBET_PHASE_COUNT] = {
      [RABBET_PHASE_SIMPLIFY] = "simplify",
      [RABBET_PHASE_DEVICE] = "device",
      [RABBET_PHASE_COVERS] = "covers",
      [RABBET_PHASE_LIBRARIES] = "libraries",
      [RABBET_PHASE_CONSTANTS] = "constants",
      [RABBET_PHASE_PROGRAMS] = "programs",
      [RABBET_PHASE_KERNELS] = "kernels",
      [RABBET_PHASE_TIMING] = "timing",
      [RABBET_PHASE_CHOICE] = "choice",
      [RABBET_PHASE_WHOLE] = "whole_plans",
      [RABBET_PHASE_PLAN] = "plan",
  };
  assert(phase < RABBET_PHASE_COUNT);
  return names[phase];
}

void rabbet_phases_start(rabbet_phases_t* phases) {
  *phases = (rabbet_phases_t){.since = rabbet_time_ns()};
}

rabbet_phase_t rabbet_phases_enter(rabbet_phases_t* phases,
                                   rabbet_phase_t phase) {
  if (!phases) return phase;
  rabbet_phase_t before = phases->current;
  if (before == phase) return before;
  int64_t now = rabbet_time_ns();
  phases->ns[before] += now - phases->since;
  phases->since = now;
  phases->current = phase;
  return before;
}
