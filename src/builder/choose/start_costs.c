// Kernels whose library generates code for milliseconds at its first call in a
// process, and the plan without them.
//
// Their times say nothing of it. It is paid once, however many steps use the
// library, so it is no cost of a step: the network is solved again without such
// kernels. Many plans are as fast then, and give their first result far sooner.
#include <math.h>

#include "builder/choose/tuner.h"

// The share of its time that a plan may lose: measurements hardly tell apart
// what differs by less.
#define START_SHARE 0.01

double rabbet_choice_start_us(const rabbet_choice_t* choice) {
  const rabbet_kernel_class_t* kernel = choice->candidate.kernel;
  return kernel && kernel->start_us ? kernel->start_us(choice->candidate.tactic)
                                    : 0;
}

static double start_of_solution(const rabbet_solution_t* solution) {
  double us = 0;
  for (size_t i = 0; i < solution->pick_count; ++i)
    us = fmax(us, rabbet_choice_start_us(solution->picks[i].choice));
  return us;
}

static bool start_concerns_unit(const rabbet_unit_t* unit) {
  for (size_t i = 0; i < unit->choice_count; ++i)
    if (rabbet_choice_start_us(&unit->choices[i]) > 0) return true;
  return false;
}

static bool start_concerns(const rabbet_cluster_t* cluster) {
  for (size_t i = 0; i < cluster->cover_count; ++i)
    for (size_t u = 0; u < cluster->covers[i].unit_count; ++u)
      if (start_concerns_unit(cluster->covers[i].units[u])) return true;
  return false;
}

// A cluster and its alternatives before those without start costs replaced
// them.
typedef struct start_swap_t {
  rabbet_cluster_t* cluster;
  rabbet_alternative_t* alternatives;
  size_t count;
} start_swap_t;

typedef RABBET_VEC(start_swap_t) start_swaps_t;

// *out_possible: each cluster has alternatives without such kernels.
static rabbet_status_t start_leave_out(rabbet_build_t* build,
                                       start_swaps_t* swaps,
                                       bool* out_possible) {
  const rabbet_tuner_t* tuner = build->tuner;
  *out_possible = true;
  for (size_t i = 0; *out_possible && i < tuner->clusters.count; ++i) {
    rabbet_cluster_t* cluster = tuner->clusters.data[i];
    if (!start_concerns(cluster)) continue;
    const start_swap_t swap = {cluster, cluster->alternatives,
                               cluster->alternative_count};
    RABBET_RETURN_IF_ERROR(RABBET_VEC_PUSH(build->allocator, swaps, swap));
    RABBET_RETURN_IF_ERROR(rabbet_tune_alternatives_at_once(build, cluster));
    *out_possible = cluster->alternative_count > 0;
  }
  return rabbet_ok();
}

// The formats that are left may not fit together, which is no error here.
static rabbet_status_t start_solve(rabbet_build_t* build,
                                   rabbet_weights_of_costs_t weights,
                                   rabbet_solution_t* solution,
                                   bool* out_possible) {
  rabbet_status_t status = rabbet_tuner_solve(build, weights, solution);
  *out_possible = rabbet_is_ok(status);
  if (rabbet_status_code(status) != RABBET_STATUS_UNSUPPORTED) return status;
  rabbet_status_ignore(status);
  return rabbet_ok();
}

static rabbet_status_t start_try(rabbet_build_t* build,
                                 rabbet_weights_of_costs_t weights,
                                 double start_us, start_swaps_t* swaps,
                                 rabbet_solution_t* solution, bool* out_taken) {
  rabbet_solution_t other = {0};
  RABBET_RETURN_IF_ERROR(start_leave_out(build, swaps, out_taken));
  if (!*out_taken) return rabbet_ok();
  RABBET_RETURN_IF_ERROR(start_solve(build, weights, &other, out_taken));
  if (!*out_taken) return rabbet_ok();
  *out_taken = other.us <= solution->us * (1 + START_SHARE);
  rabbet_log(build->logger, RABBET_SEVERITY_VERBOSE,
             "without kernels that take %.0f us to start: sum %.1f us, with "
             "them %.1f us",
             start_us, other.us, solution->us);
  if (*out_taken) *solution = other;
  return rabbet_ok();
}

rabbet_status_t rabbet_tuner_avoid_starts(rabbet_build_t* build,
                                          rabbet_weights_of_costs_t weights,
                                          rabbet_solution_t* solution) {
  double start_us = start_of_solution(solution);
  start_swaps_t swaps = {0};
  bool taken = false;
  // Without times nothing says what is lost.
  if (start_us <= 0 || build->level == 0) return rabbet_ok();
  rabbet_status_t status =
      start_try(build, weights, start_us, &swaps, solution, &taken);
  for (size_t i = 0; !taken && i < swaps.count; ++i) {
    swaps.data[i].cluster->alternatives = swaps.data[i].alternatives;
    swaps.data[i].cluster->alternative_count = swaps.data[i].count;
  }
  rabbet_vec_free(build->allocator, &swaps);
  return status;
}
