// The cheapest assignment of variables under unary and pairwise costs.
#ifndef RABBET_SRC_BUILDER_CHOOSE_SOLVE_H_
#define RABBET_SRC_BUILDER_CHOOSE_SOLVE_H_

#include "rabbet/allocator.h"

// A cost for each pair of choices of two different variables.
typedef struct rabbet_solve_pair_t {
  int32_t a, b;
  const double* costs;  // [domain of a][domain of b]; INFINITY forbids
} rabbet_solve_pair_t;

typedef struct rabbet_solve_problem_t {
  size_t variable_count;
  const int32_t* domains;      // choices of each variable, at least 1
  const double* const* unary;  // [variable][choice]; INFINITY forbids
  const rabbet_solve_pair_t* pairs;
  size_t pair_count;
  size_t table_limit;  // entries that a table may have; see below
  uint64_t seed;
} rabbet_solve_problem_t;

typedef struct rabbet_solve_result_t {
  int32_t* choices;  // the caller's, variable_count long
  double cost;       // INFINITY: every assignment is forbidden
  bool exact;
  uint64_t steps;  // a measure of the work
} rabbet_solve_result_t;

// Variable elimination in min-fill order (Dechter, "Bucket elimination", 1999):
// exact while no table grows over `table_limit`. The remaining variables are
// then searched by iterated conditional modes from several seeded starts, and
// the variables eliminated before follow exactly.
RABBET_PRIVATE_API rabbet_status_t
rabbet_solve(const rabbet_solve_problem_t* problem,
             rabbet_allocator_t allocator, rabbet_solve_result_t* result);

#endif  // RABBET_SRC_BUILDER_CHOOSE_SOLVE_H_
