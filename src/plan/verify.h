// The parts of rabbet_plan_verify.
#ifndef RABBET_SRC_PLAN_VERIFY_H_
#define RABBET_SRC_PLAN_VERIFY_H_

#include "plan/analysis.h"
#include "plan/plan.h"

#define RABBET_DAMAGED(...) RABBET_STATUS(RABBET_STATUS_DATA_LOSS, __VA_ARGS__)

// A sequence while it is verified.
typedef struct rabbet_verify_t {
  const rabbet_plan_sequence_t* sequence;
  uint64_t weights_size;
  rabbet_arena_t arena;
  rabbet_plan_analysis_t analysis;
  // [value]: the values in the memory of one that has parts are a list.
  int32_t *first_in, *next_in;
} rabbet_verify_t;

// Inputs and outputs, after values (verify_ios.c).
rabbet_status_t rabbet_verify_ios(const rabbet_plan_sequence_t* sequence);
rabbet_status_t rabbet_verify_checks(const rabbet_plan_sequence_t* sequence);
rabbet_status_t rabbet_verify_ranges(const rabbet_plan_sequence_t* sequence);

// The order of steps, after all else (verify_order.c).
rabbet_status_t rabbet_verify_order(rabbet_verify_t* verify);

// Bytes of a value of constant shape.
rabbet_status_t rabbet_verify_bytes(const rabbet_plan_sequence_t* sequence,
                                    int32_t v, size_t* out_bytes);

// One step by itself: wiring, operators, attributes, types, shapes. The plan's
// values have been checked. `arena` is for scratch.
rabbet_status_t rabbet_verify_step(const rabbet_plan_sequence_t* sequence,
                                   const rabbet_plan_step_t* step,
                                   rabbet_arena_t* arena);

// Artifacts of the plan, and those that a step names.
rabbet_status_t rabbet_verify_artifacts(const rabbet_plan_t* plan);
rabbet_status_t rabbet_verify_step_artifacts(const rabbet_plan_t* plan,
                                             const rabbet_plan_step_t* step);

// Profiles and the sequences that they run. Afterwards, that entries have equal
// inputs and outputs; sequences have been verified by themselves.
rabbet_status_t rabbet_verify_profiles(const rabbet_plan_t* plan);
rabbet_status_t rabbet_verify_entries(const rabbet_plan_t* plan);

// All calls of the plan: their inputs and outputs, and that each sequence but
// entries is called once. Sequences have been verified by themselves.
rabbet_status_t rabbet_verify_calls(const rabbet_plan_t* plan);

rabbet_status_t rabbet_verify_refits(const rabbet_plan_t* plan);

// Errors of a caller's making (INVALID_ARGUMENT, ...) become DATA_LOSS: here
// they come from a plan.
rabbet_status_t rabbet_plan_as_damage(rabbet_status_t status);

rabbet_status_t rabbet_verify_carried(const rabbet_plan_t* plan);

#endif  // RABBET_SRC_PLAN_VERIFY_H_
