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

// The parts that a sequence of the plan is made of.
typedef struct rabbet_emit_sequence_t {
  const char* name;         // "" for the first
  int32_t number;           // its place
  const int32_t* profiles;  // of the plan, ascending: of an entry; else NULL
  rabbet_build_t* build;
  const rabbet_network_t* network;
  const rabbet_layout_t* layout;
} rabbet_emit_sequence_t;

// An entry comes first. Those that a sequence calls stand behind it, before the
// next entry. Entries that turn out equal are one in the plan.
RABBET_PRIVATE_API rabbet_status_t
rabbet_emit(const rabbet_emit_sequence_t* sequences, size_t count,
            rabbet_emitted_t* out_emitted);
// The number of the sequence of a network that `caller` calls.
int32_t rabbet_emit_find(const rabbet_emit_sequence_t* caller,
                         const rabbet_network_t* network);
RABBET_PRIVATE_API void rabbet_emitted_deinitialize(rabbet_build_t* build,
                                                    rabbet_emitted_t* emitted);

#endif  // RABBET_SRC_BUILDER_EMIT_EMIT_H_
