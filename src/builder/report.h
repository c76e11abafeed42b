// A build's candidates and choices, for people.
#ifndef RABBET_SRC_BUILDER_REPORT_H_
#define RABBET_SRC_BUILDER_REPORT_H_

#include "builder/emit/layout.h"

// The other choices that a unit had, cheapest first, as a JSON list.
RABBET_PRIVATE_API rabbet_status_t rabbet_report_alternatives(
    const rabbet_build_t* build, const rabbet_pick_t* pick,
    rabbet_arena_t* arena, const char** out_json);

// Sums of a build.
typedef struct rabbet_report_totals_t {
  rabbet_timing_t whole;  // the chosen plan, run as a whole
  size_t layer_count;
  size_t memory;   // bytes for intermediate tensors at the optimum
  size_t weights;  // bytes of constants
  size_t tactics;  // bytes that measurements held at a time, at most
  uint64_t plan;   // bytes of the plan
  double seconds;
} rabbet_report_totals_t;

// A sequence of the plan as it was built.
typedef struct rabbet_report_sequence_t {
  const char* name;  // "" for that of the callers
  const rabbet_build_t* build;
  const rabbet_solution_t* solution;
  const rabbet_layout_t* layout;
} rabbet_report_sequence_t;

typedef struct rabbet_report_t {
  const rabbet_report_sequence_t* sequences;  // that of the callers first
  size_t count;
  const rabbet_report_totals_t* totals;
} rabbet_report_t;

RABBET_PRIVATE_API rabbet_status_t
rabbet_report_create(const rabbet_report_t* from, rabbet_allocator_t allocator,
                     rabbet_build_report_t** out_report);

#endif  // RABBET_SRC_BUILDER_REPORT_H_
