// The passes that change the IR, in the order in which a build runs them.
#ifndef RABBET_SRC_BUILDER_PASSES_H_
#define RABBET_SRC_BUILDER_PASSES_H_

#include "builder/build.h"

// What the host knows needs no kernel: integer tensors whose elements are
// expressions lose their producers, constants among them become constants.
RABBET_PRIVATE_API rabbet_status_t rabbet_pass_shapes(rabbet_build_t* build);

#endif  // RABBET_SRC_BUILDER_PASSES_H_
