// A sequence of the plan while it is emitted.
#ifndef RABBET_SRC_BUILDER_EMIT_EMITTER_H_
#define RABBET_SRC_BUILDER_EMIT_EMITTER_H_

#include "base/hash.h"
#include "base/map.h"
#include "builder/emit/emit.h"

// State that the sequences of a plan share.
typedef struct rabbet_emit_shared_t {
  rabbet_emitted_t* out;
  rabbet_map_t constants;  // by hash
  uint64_t weights_size;
  const void** refitted;  // [weights to refit]: the network's constant
} rabbet_emit_shared_t;

typedef struct rabbet_emitter_t {
  rabbet_emit_shared_t* shared;
  const rabbet_emit_sequence_t* from;
  rabbet_build_t* build;
  const rabbet_layout_t* layout;
  rabbet_plan_t* plan;
  rabbet_plan_sequence_t* sequence;
  int32_t* values;         // plan value of each slot, or -1
  int32_t* made;           // first plan value of each IR value, or -1
  bool* is_shape_operand;  // of each IR value
  rabbet_expr_t* exprs;    // IR expression -> plan expression
  rabbet_hash_t hash;      // of what the sequence runs (entries.c)
} rabbet_emitter_t;

rabbet_status_t rabbet_emit_each(
    rabbet_emitter_t* emitters, size_t count,
    rabbet_status_t (*emit)(rabbet_emitter_t* emitter));

// ---- emit_values.c ----------------------------------------------------------

// Numbers the sequence's values and emits its expressions and all values but
// weights that can be refitted.
rabbet_status_t rabbet_emit_kept_values(rabbet_emitter_t* emitter);
rabbet_status_t rabbet_emit_refittable_values(rabbet_emitter_t* emitter);
rabbet_shape_t rabbet_emit_shape(const rabbet_emitter_t* emitter,
                                 const rabbet_shape_t* shape);
// Whether the plan's graph has a symbol for elements of the value.
bool rabbet_emit_is_read(const rabbet_emitter_t* emitter, int32_t value);

// ---- entries.c -------------------------------------------------------------

// Sets the plan's entries.
rabbet_status_t rabbet_emit_entries(rabbet_emitter_t* emitters, size_t count);
// Takes entries out that equal one before, with all that they call; the
// emitters' sequences move.
rabbet_status_t rabbet_emit_join_entries(rabbet_emitter_t* emitters,
                                         size_t* count);

// ---- emit_refits.c, emit_steps.c --------------------------------------------

// Lists the plan's weights and scales that can be refitted.
rabbet_status_t rabbet_emit_refits(rabbet_emitter_t* emitters, size_t count);
rabbet_status_t rabbet_emit_steps(rabbet_emitter_t* emitter);

#endif  // RABBET_SRC_BUILDER_EMIT_EMITTER_H_
