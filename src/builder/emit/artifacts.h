// Artifacts of the chosen kernels, which the plan keeps.
#ifndef RABBET_SRC_BUILDER_EMIT_ARTIFACTS_H_
#define RABBET_SRC_BUILDER_EMIT_ARTIFACTS_H_

#include "builder/emit/emit.h"

// Creates the kernels of the layouts' steps again, prepared for the optimum,
// and fills in the plan's artifacts and those of each step. The plan's steps
// are the layouts' without views.
RABBET_PRIVATE_API rabbet_status_t rabbet_artifacts_collect(
    const rabbet_emit_sequence_t* sequences, size_t count, rabbet_plan_t* plan);

#endif  // RABBET_SRC_BUILDER_EMIT_ARTIFACTS_H_
