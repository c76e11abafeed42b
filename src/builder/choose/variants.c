// The plan that is fastest as a whole.
#include <string.h>

#include "builder/measure/cold_weights.h"
#include "builder/measure/whole_plan_timing.h"
#include "builder/sequence.h"

// Solutions that the sum of measured times does not tell apart for sure.
// step_us is a share of the mean time of a step here.
static const rabbet_weights_of_costs_t build_weights[] = {
    {1, 0}, {1, 0.01}, {1.5, 0.03}, {3, 0.1}};
#define BUILD_MAX_VARIANTS (sizeof(build_weights) / sizeof(build_weights[0]))

typedef struct variants_t {
  rabbet_solution_t solutions[BUILD_MAX_VARIANTS];
  rabbet_layout_t layouts[BUILD_MAX_VARIANTS];
  rabbet_timing_t timings[BUILD_MAX_VARIANTS];
  size_t count;
} variants_t;

static bool build_same_choices(const rabbet_solution_t* a,
                               const rabbet_solution_t* b, size_t inputs,
                               size_t outputs) {
  if (a->pick_count != b->pick_count ||
      memcmp(a->inputs, b->inputs, inputs * sizeof(*a->inputs)) != 0 ||
      memcmp(a->outputs, b->outputs, outputs * sizeof(*a->outputs)) != 0)
    return false;
  for (size_t i = 0; i < a->pick_count; ++i)
    if (a->picks[i].choice != b->picks[i].choice) return false;
  return true;
}

static rabbet_status_t build_variant(rabbet_build_t* build,
                                     rabbet_weights_of_costs_t weights,
                                     variants_t* variants) {
  rabbet_solution_t* solution = &variants->solutions[variants->count];
  RABBET_RETURN_IF_ERROR(rabbet_tuner_solve(build, weights, solution));
  if (variants->count == 0)
    RABBET_RETURN_IF_ERROR(rabbet_tuner_avoid_starts(build, weights, solution));
  for (size_t i = 0; i < variants->count; ++i)
    if (build_same_choices(&variants->solutions[i], solution,
                           build->ir.input_count, build->ir.output_count))
      return rabbet_ok();
  RABBET_RETURN_IF_ERROR(rabbet_layout_initialize(
      build, solution, &variants->layouts[variants->count]));
  variants->count++;
  return rabbet_ok();
}

// Whether a step exchanges data with other ranks: no plan can be timed then.
static bool build_exchanges(const rabbet_layout_t* layout) {
  for (size_t i = 0; i < layout->steps.count; ++i)
    if (rabbet_unit_exchanges(layout->steps.data[i].pick.unit)) return true;
  return false;
}

// The first variant, unless another is faster as a whole.
static rabbet_status_t build_compare(rabbet_build_t* build,
                                     variants_t* variants, size_t* out_best) {
  size_t wanted = build->level >= 3 ? BUILD_MAX_VARIANTS : 1;
  *out_best = 0;
  double mean_us = 0;
  for (size_t i = 0; i < wanted; ++i) {
    rabbet_weights_of_costs_t weights = build_weights[i];
    weights.step_us *= mean_us;
    RABBET_RETURN_IF_ERROR(build_variant(build, weights, variants));
    const rabbet_solution_t* first = &variants->solutions[0];
    if (first->pick_count > 0) mean_us = first->us / (double)first->pick_count;
  }
  for (size_t i = 0; i < variants->count; ++i)
    variants->timings[i] = (rabbet_timing_t){.us = -1};
  if (variants->count < 2 || build_exchanges(&variants->layouts[0]))
    return rabbet_ok();
  RABBET_RETURN_IF_ERROR(rabbet_whole_plan_time(
      build, variants->layouts, variants->count, variants->timings));
  for (size_t i = 0; i < variants->count; ++i) {
    rabbet_log(build->logger, RABBET_SEVERITY_VERBOSE,
               "plan %zu: %zu step%s, sum %.1f us, whole %.1f us", i,
               variants->layouts[i].steps.count,
               rabbet_plural(variants->layouts[i].steps.count),
               variants->solutions[i].us, variants->timings[i].us);
    if (variants->timings[i].us >= 0 &&
        variants->timings[i].us < variants->timings[*out_best].us)
      *out_best = i;
  }
  return rabbet_ok();
}

// The sum of the times in the report's table.
static double build_sum(const rabbet_layout_t* layout) {
  double sum = 0;
  for (size_t i = 0; i < layout->steps.count; ++i) {
    double us = layout->steps.data[i].pick.choice->us;
    if (us > 0) sum += us;
  }
  return sum;
}

rabbet_status_t rabbet_build_choose(rabbet_build_t* build,
                                    rabbet_built_result_t* result) {
  size_t best = 0;
  RABBET_RETURN_IF_ERROR(rabbet_ranges_compute(build));
  build->has_cold_weights = rabbet_cold_weights_apply(build);
  RABBET_RETURN_IF_ERROR(rabbet_tuner_explore(build));
  variants_t variants = {.count = 0};
  rabbet_whole_plan_memory_t memory = {0};
  rabbet_status_t status = build_compare(build, &variants, &best);
  if (rabbet_is_ok(status)) {
    result->solution = variants.solutions[best];
    result->layout = variants.layouts[best];
    memset(&variants.layouts[best], 0, sizeof(rabbet_layout_t));
    result->totals.whole = variants.timings[best];
    result->solution.us = build_sum(&result->layout);
    status = rabbet_whole_plan_memory(build, &result->layout, &memory);
    result->totals.memory = memory.total;
  }
  for (size_t i = 0; i < variants.count; ++i)
    rabbet_layout_deinitialize(build, &variants.layouts[i]);
  return status;
}
