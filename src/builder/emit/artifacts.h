// Data that the chosen kernels want kept in the plan.
#ifndef RABBET_SRC_BUILDER_EMIT_ARTIFACTS_H_
#define RABBET_SRC_BUILDER_EMIT_ARTIFACTS_H_

#include "builder/emit/layout.h"

// Makes the kernels of the layout's steps once more, prepared for the optimum,
// and fills the plan's artifacts and which of them each step uses. The plan's
// steps are the layout's without views.
RABBET_PRIVATE_API rabbet_status_t rabbet_artifacts_collect(
    rabbet_build_t* build, const rabbet_layout_t* layout, rabbet_plan_t* plan);

#endif  // RABBET_SRC_BUILDER_EMIT_ARTIFACTS_H_
