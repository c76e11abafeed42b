// Derived properties of a plan: segments, stages of sizes, lifetimes.
//
// Steps form segments, cut after each step whose results the host reads. Stage
// k is the moment before segment k, when k reads have been done; an
// expression's stage is the first at which its value is known.
#ifndef RABBET_SRC_PLAN_ANALYSIS_H_
#define RABBET_SRC_PLAN_ANALYSIS_H_

#include "plan/plan.h"

// Where the value of a symbol comes from: a dimension or an element of an
// input, or (read >= 0) element `index` of all that the host reads after
// segment `read`, in order.
typedef struct rabbet_plan_source_t {
  int32_t read;
  int32_t input;
  int32_t index;
} rabbet_plan_source_t;

typedef struct rabbet_plan_analysis_t {
  size_t segment_count;
  // [segment]: one past its last step; the last segment may be empty.
  int32_t* segment_ends;
  // [segment]: how many elements the host reads after it.
  size_t* segment_reads;
  int32_t* step_segments;         // [step]
  rabbet_plan_source_t* sources;  // [symbol]
  // [expression]: stage at which its value, an upper bound of it, is known.
  int32_t *expr_stages, *expr_bound_stages;
  // [value]
  int32_t* producers;   // step, or -1
  int32_t* roots;       // whose memory it lies in: `alias` or itself
  int32_t* dim_stages;  // stage at which all dimensions are known
  // [value], meaningful for roots: lifetime in steps of all values in the
  // memory (first > last: no step uses it), and the stage at which an upper
  // bound of its size is known.
  int32_t *first_steps, *last_steps, *memory_stages;
  // [value], meaningful for roots: a step writes to the memory; a step reads it
  // though none writes it, so that it is filled from host_values.
  bool *written, *materialized;
} rabbet_plan_analysis_t;

// Numbers in the plan must have been checked. Everything lies in `arena`.
rabbet_status_t rabbet_plan_analyse(const rabbet_plan_sequence_t* sequence,
                                    rabbet_arena_t* arena,
                                    rabbet_plan_analysis_t* out_analysis);

// Whether the value is another one, reshaped: it has as many elements as its
// root, which is checked once both shapes are known, and so needs no memory of
// its own, even where its shape is known later than the root is written.
RABBET_PRIVATE_API bool rabbet_plan_is_view(
    const rabbet_plan_sequence_t* sequence,
    const rabbet_plan_analysis_t* analysis, int32_t v);

#endif  // RABBET_SRC_PLAN_ANALYSIS_H_
