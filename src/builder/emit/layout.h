// Solution -> steps in order, with conversions and copies, and sharing of
// memory.
#ifndef RABBET_SRC_BUILDER_EMIT_LAYOUT_H_
#define RABBET_SRC_BUILDER_EMIT_LAYOUT_H_

#include "builder/choose/tune.h"

// A value of the plan: an IR value in one type and format.
typedef struct rabbet_slot_t {
  int32_t value;  // IR value
  rabbet_type_format_t type;
  bool is_constant;
  bool is_host_only;  // elements are expressions; no step makes it
  int32_t input;      // network input, or -1
  int32_t output;     // network output, or -1
  // Slot whose memory this is; -1: its own. After rabbet_layout_initialize
  // always a slot that has its own. A part begins `offset` bytes into it and
  // may be smaller.
  int32_t alias;
  bool is_part;
  uint64_t offset;
} rabbet_slot_t;

// Of bytes at which parts begin.
enum { RABBET_LAYOUT_PART_ALIGNMENT = 64 };

// The use of the memory of a slot that has its own, by all slots in it
// together, while sharing is decided.
typedef struct rabbet_memory_use_t {
  bool is_fixed;  // a constant, an input, an output, or known to the host
  // Number of the last step that reads it, without inserted copies; -1: none.
  int32_t last_read;
} rabbet_memory_use_t;

typedef struct rabbet_layout_step_t {
  rabbet_pick_t pick;  // candidate.kernel NULL: a view
  int32_t* slots;      // boundary inputs, then outputs
} rabbet_layout_step_t;

static inline size_t rabbet_layout_step_inputs(
    const rabbet_layout_step_t* step) {
  return step->pick.unit->group.input_count;
}

static inline size_t rabbet_layout_step_outputs(
    const rabbet_layout_step_t* step) {
  return step->pick.unit->group.output_count;
}

static inline bool rabbet_layout_step_is_view(
    const rabbet_layout_step_t* step) {
  return !step->pick.choice->candidate.kernel;
}

// Whether the step works in place because it must.
static inline bool rabbet_layout_step_is_in_place(
    const rabbet_layout_step_t* step) {
  const int32_t* aliased = step->pick.choice->candidate.aliased;
  for (size_t i = 0; aliased && i < rabbet_layout_step_outputs(step); ++i)
    if (aliased[i] >= 0) return true;
  return false;
}

typedef struct rabbet_layout_t {
  RABBET_VEC(rabbet_slot_t) slots;
  RABBET_VEC(rabbet_layout_step_t) steps;
  RABBET_VEC(rabbet_memory_use_t) uses;  // of each slot
  int32_t* outputs;                      // slot of each network output
  int32_t* aliased_inputs;  // network input that may have the same address as
                            // the network output, or -1
} rabbet_layout_t;

RABBET_PRIVATE_API rabbet_status_t rabbet_layout_initialize(
    rabbet_build_t* build, const rabbet_solution_t* solution,
    rabbet_layout_t* out_layout);
RABBET_PRIVATE_API void rabbet_layout_deinitialize(rabbet_build_t* build,
                                                   rabbet_layout_t* layout);

// ---- Shared by layout.c and in_place.c
// ---------------------------------------

RABBET_PRIVATE_API int32_t rabbet_layout_root(const rabbet_layout_t* layout,
                                              int32_t slot);
// Whether the slot is a part of that memory, and where it begins.
RABBET_PRIVATE_API bool rabbet_layout_is_part(const rabbet_layout_t* layout,
                                              int32_t slot);
RABBET_PRIVATE_API uint64_t rabbet_layout_offset(const rabbet_layout_t* layout,
                                                 int32_t slot);
RABBET_PRIVATE_API rabbet_status_t
rabbet_layout_add_slot(rabbet_build_t* build, rabbet_layout_t* layout,
                       rabbet_slot_t slot, int32_t* out_slot);
// A step at `index` that copies slot `source` to a new slot of the same type.
RABBET_PRIVATE_API rabbet_status_t
rabbet_layout_insert_copy(rabbet_build_t* build, rabbet_layout_t* layout,
                          size_t index, int32_t source, int32_t* out_copy);
// Moves other readers of memory that a step overwrites before that step, if
// possible.
RABBET_PRIVATE_API rabbet_status_t rabbet_layout_order(rabbet_build_t* build,
                                                       rabbet_layout_t* layout);
// Slot `slot` lies in the memory of `whole` from now on: all of it, or the part
// from `offset` on.
RABBET_PRIVATE_API void rabbet_layout_alias_slot(rabbet_layout_t* layout,
                                                 int32_t slot, int32_t whole);
// Decides which slots share memory; inserts copies where sharing is demanded
// but would be seen.
RABBET_PRIVATE_API rabbet_status_t rabbet_layout_alias(rabbet_build_t* build,
                                                       rabbet_layout_t* layout);

#endif  // RABBET_SRC_BUILDER_EMIT_LAYOUT_H_
