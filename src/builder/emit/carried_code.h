// Code of plugins that the plan is to carry.
#ifndef RABBET_SRC_BUILDER_EMIT_CARRIED_CODE_H_
#define RABBET_SRC_BUILDER_EMIT_CARRIED_CODE_H_

#include "builder/build.h"

// Reads libraries and source as the configuration says, before anything is
// tuned: code that cannot be carried is an error at once.
rabbet_status_t rabbet_collect_carried_code(rabbet_build_t* build,
                                            const rabbet_network_t* network);

#endif  // RABBET_SRC_BUILDER_EMIT_CARRIED_CODE_H_
