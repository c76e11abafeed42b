// Layout -> plan.
#ifndef RABBET_SRC_BUILDER_EMIT_EMIT_H_
#define RABBET_SRC_BUILDER_EMIT_EMIT_H_

#include "builder/emit/layout.h"

// The plan and the bytes of its constants, which belong to the network or the
// arena of the build. Destroyed by rabbet_emitted_deinitialize.
typedef struct rabbet_emitted_t {
  rabbet_plan_t* plan;
  RABBET_VEC(rabbet_plan_blob_t) blobs;
  size_t kept_blobs;  // those of weights that can be refitted come behind
} rabbet_emitted_t;

RABBET_PRIVATE_API rabbet_status_t rabbet_emit(rabbet_build_t* build,
                                               const rabbet_network_t* network,
                                               const rabbet_layout_t* layout,
                                               rabbet_emitted_t* out_emitted);
RABBET_PRIVATE_API void rabbet_emitted_deinitialize(rabbet_build_t* build,
                                                    rabbet_emitted_t* emitted);

#endif  // RABBET_SRC_BUILDER_EMIT_EMIT_H_
