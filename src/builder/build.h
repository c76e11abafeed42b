// One build: data that all its passes share.
#ifndef RABBET_SRC_BUILDER_BUILD_H_
#define RABBET_SRC_BUILDER_BUILD_H_

#include "builder/config.h"
#include "builder/ir/ir.h"
#include "builder/measure/phases.h"
#include "builder/measure/timing_cache.h"
#include "device/device.h"
#include "plan/plan.h"

typedef struct rabbet_estimates_t rabbet_estimates_t;  // estimates.h

// The values of each expression of the IR's graph under the profiles.
typedef struct rabbet_ranges_t {
  size_t count;          // expressions
  int64_t* opt;          // at the first profile's optimum
  bool* valid;           // opt[i] exists (no overflow, no division by 0)
  int64_t *low, *high;   // over all profiles
  bool* data_dependent;  // it depends on data of a run
  // Of symbols, in the first profile.
  int64_t *symbol_low, *symbol_opt, *symbol_high;
  int64_t* search;  // memory of estimates.c
  bool* search_flags;
  rabbet_plan_range_t* profiles;  // [profile * input_count + input]
  size_t profile_count;           // at least 1
} rabbet_ranges_t;

#define RABBET_FOLD_ALIGNMENT 64
typedef struct rabbet_fold_block_t {
  void* data;  // NULL: given back
  size_t bytes;
} rabbet_fold_block_t;

// Constants that folding made (fold.c), and their cost.
typedef struct rabbet_fold_t {
  size_t growth, growth_limit;  // bytes; a limit of 0 is not set yet
  double steps, steps_limit;
  RABBET_VEC(rabbet_fold_block_t) blocks;
  size_t first_block;  // of the pass that runs
} rabbet_fold_t;

// Of what devices offer for groups (propose/kept_proposals.h).
typedef struct rabbet_proposals_t {
  bool is_known, are_kept;
  rabbet_hash_t device;  // what is the same for all groups
} rabbet_proposals_t;

// The elements of a body's input, not an extent.
#define RABBET_BUILD_TOLD_VALUES (UINT64_C(1) << 63)

typedef struct rabbet_build_t {
  rabbet_allocator_t allocator;
  const rabbet_builder_config_t* config;
  const int32_t* profiles;  // numbers of its profiles; NULL: from 0
  rabbet_logger_t logger;
  rabbet_device_t* device;
  rabbet_arena_t arena;
  rabbet_ir_t ir;
  rabbet_ranges_t ranges;
  rabbet_timing_cache_t* cache;
  // Of a body, for each input: bits of the axes whose extents are estimates of
  // the caller, and RABBET_BUILD_TOLD_VALUES; else NULL.
  const uint64_t* told;
  int threads;
  int level;              // of optimization, 0..5
  uint32_t extra_dtypes;  // bits 1 << dtype
  bool has_cold_weights;  // weights come from memory when kernels run
                          // (cold_weights.h)
  uint64_t formats;       // asked for by plugins and at the network's boundary
  rabbet_fold_t fold;     // what folding may spend
  size_t timings;         // measurements that this build made
  size_t doubtful;        // of them: that are unsure
  uint64_t search_steps;  // of the searches, as a measure of their work
  rabbet_phases_t* phases;  // of the whole build; may be NULL
  int64_t pace;             // of the processor at its best so far (samples.h)
  int32_t* numbers;  // of IR values in the unit that is being made, from 1
  struct rabbet_constants_t* constants;  // converted so far (constant.c)
  RABBET_VEC(rabbet_carried_t) carried;  // in the arena; libraries first
  struct rabbet_bench_t* bench;
  struct rabbet_tuner_t* tuner;
  struct rabbet_trials_t* trials;
  rabbet_proposals_t proposals;
} rabbet_build_t;

static inline size_t rabbet_build_profile(const rabbet_build_t* build,
                                          size_t index) {
  return build->profiles ? (size_t)build->profiles[index] : index;
}

// Whether kernels are timed for the same shapes (profile.c).
RABBET_PRIVATE_API bool rabbet_profile_same_optimum(const rabbet_profile_t* a,
                                                    const rabbet_profile_t* b);

// ---- Ranges (ranges.c) -----------------------------------------------------

// Checks the profiles against the inputs. The IR gets no expressions after it.
RABBET_PRIVATE_API rabbet_status_t rabbet_ranges_compute(rabbet_build_t* build);
// Whether the symbol's value is data-dependent: no profile gives its range.
RABBET_PRIVATE_API bool rabbet_ranges_symbol_is_data_dependent(
    const rabbet_build_t* build, size_t symbol);
// Whether an extent of the shape is data-dependent.
RABBET_PRIVATE_API bool rabbet_ranges_is_data_dependent(
    const rabbet_build_t* build, const rabbet_shape_t* shape);
// Dims at opt, min and max; an error names the value if there are none. An
// invalid estimate is replaced by the nearest valid size. `estimates` NULL:
// those of the whole network.
RABBET_PRIVATE_API rabbet_status_t rabbet_ranges_dims(
    const rabbet_build_t* build, const rabbet_estimates_t* estimates,
    const rabbet_ir_value_t* value, rabbet_dims_t* out_opt,
    rabbet_dims_t* out_min, rabbet_dims_t* out_max);
// Elements known to the host, at opt, in the arena; NULL if there are none.
RABBET_PRIVATE_API rabbet_status_t rabbet_ranges_host_values(
    rabbet_build_t* build, const rabbet_estimates_t* estimates,
    const rabbet_ir_value_t* value, int64_t** out_values);

// ---- Progress (progress.c) -------------------------------------------------

RABBET_PRIVATE_API void rabbet_progress_start(const rabbet_build_t* build,
                                              const char* phase,
                                              const char* parent, size_t steps);
// CANCELLED if the caller asked to stop.
RABBET_PRIVATE_API rabbet_status_t rabbet_progress_step(
    const rabbet_build_t* build, const char* phase, size_t step);
RABBET_PRIVATE_API rabbet_status_t
rabbet_progress_check(const rabbet_build_t* build);
RABBET_PRIVATE_API void rabbet_progress_end(const rabbet_build_t* build,
                                            const char* phase);

#endif  // RABBET_SRC_BUILDER_BUILD_H_
