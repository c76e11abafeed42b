// Artifacts of the chosen kernels, which the plan keeps.
#ifndef RABBET_SRC_BUILDER_EMIT_ARTIFACTS_H_
#define RABBET_SRC_BUILDER_EMIT_ARTIFACTS_H_

#include "builder/emit/layout.h"

// Creates the kernels of the layout's steps again, prepared for the optimum,
// and fills in the plan's artifacts and those of each step. The plan's steps
// are the layout's without views.
RABBET_PRIVATE_API rabbet_status_t rabbet_artifacts_collect(
    rabbet_build_t* build, const rabbet_layout_t* layout, rabbet_plan_t* plan);

#endif  // RABBET_SRC_BUILDER_EMIT_ARTIFACTS_H_
