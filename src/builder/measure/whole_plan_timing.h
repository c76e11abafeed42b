// Whole plans: the memory they need, and the time they take.
#ifndef RABBET_SRC_BUILDER_MEASURE_WHOLE_PLAN_TIMING_H_
#define RABBET_SRC_BUILDER_MEASURE_WHOLE_PLAN_TIMING_H_

#include "builder/emit/layout.h"

// Where the slots of a layout lie at opt shapes.
typedef struct rabbet_whole_plan_memory_t {
  size_t* offsets;  // of each slot that leads its group, in the arena
  size_t* sizes;
  size_t total;
} rabbet_whole_plan_memory_t;
RABBET_PRIVATE_API rabbet_status_t
rabbet_whole_plan_memory(rabbet_build_t* build, const rabbet_layout_t* layout,
                         rabbet_whole_plan_memory_t* out_memory);

// The time of a run of each layout, measured in turns; `us` < 0 if that is not
// possible (data-dependent sizes). Times in the timing cache are not measured.
RABBET_PRIVATE_API rabbet_status_t
rabbet_whole_plan_time(rabbet_build_t* build, const rabbet_layout_t* layouts,
                       size_t count, rabbet_timing_t* out_timings);

#endif  // RABBET_SRC_BUILDER_MEASURE_WHOLE_PLAN_TIMING_H_
