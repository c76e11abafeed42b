// Layout -> plan.
#ifndef RABBET_SRC_BUILDER_EMIT_EMIT_H_
#define RABBET_SRC_BUILDER_EMIT_EMIT_H_

#include "builder/emit/layout.h"

// A constant of the plan: a value of a sequence's build, as `type`.
typedef struct rabbet_emit_constant_t {
  rabbet_build_t* build;
  rabbet_ir_value_t* value;
  rabbet_type_format_t type;
} rabbet_emit_constant_t;

// The plan and the bytes of its constants, which belong to the network or the
// build. Those that are converted are made when they are written, so that they
// are never in memory together. Destroyed by rabbet_emitted_deinitialize.
typedef struct rabbet_emitted_t {
  rabbet_plan_t* plan;
  RABBET_VEC(rabbet_plan_blob_t) blobs;
  RABBET_VEC(rabbet_emit_constant_t) constants;  // of each blob
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
// The plan's contents, all blobs or the first `blob_count`. `emitted` must
// stay.
RABBET_PRIVATE_API rabbet_plan_contents_t
rabbet_emitted_contents(rabbet_emitted_t* emitted, size_t blob_count);
RABBET_PRIVATE_API void rabbet_emitted_deinitialize(rabbet_build_t* build,
                                                    rabbet_emitted_t* emitted);

#endif  // RABBET_SRC_BUILDER_EMIT_EMIT_H_
