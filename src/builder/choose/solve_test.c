#include "builder/choose/solve.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#define MAX_VARIABLES 7
#define MAX_DOMAIN 4
#define MAX_PAIRS 12

typedef struct random_problem_t {
  rabbet_solve_problem_t problem;
  int32_t domains[MAX_VARIABLES];
  double unary_costs[MAX_VARIABLES][MAX_DOMAIN];
  const double* unary[MAX_VARIABLES];
  double pair_costs[MAX_PAIRS][MAX_DOMAIN * MAX_DOMAIN];
  rabbet_solve_pair_t pairs[MAX_PAIRS];
} random_problem_t;

static double random_cost(void) {
  if (rand() % 12 == 0) return INFINITY;
  return (double)(rand() % 1000);
}

static void random_problem(random_problem_t* p) {
  size_t n = 1 + (size_t)rand() % MAX_VARIABLES;
  size_t pairs = n > 1 ? (size_t)rand() % MAX_PAIRS : 0;
  for (size_t v = 0; v < n; ++v) {
    p->domains[v] = 1 + rand() % MAX_DOMAIN;
    p->unary[v] = p->unary_costs[v];
    for (int c = 0; c < MAX_DOMAIN; ++c)
      p->unary_costs[v][c] = random_cost();
  }
  for (size_t i = 0; i < pairs; ++i) {
    int32_t a = rand() % (int)n;
    int32_t b = (a + 1 + rand() % ((int)n - 1)) % (int)n;
    for (int c = 0; c < MAX_DOMAIN * MAX_DOMAIN; ++c)
      p->pair_costs[i][c] = random_cost();
    p->pairs[i] = (rabbet_solve_pair_t){a, b, p->pair_costs[i]};
  }
  p->problem = (rabbet_solve_problem_t){
      .variable_count = n,
      .domains = p->domains,
      .unary = p->unary,
      .pairs = p->pairs,
      .pair_count = pairs,
      .table_limit = 1 << 20,
      .seed = 1,
  };
}

static double assignment_cost(const rabbet_solve_problem_t* p,
                              const int32_t* choices) {
  double cost = 0;
  for (size_t v = 0; v < p->variable_count; ++v)
    cost += p->unary[v][choices[v]];
  for (size_t i = 0; i < p->pair_count; ++i)
    cost +=
        p->pairs[i].costs[choices[p->pairs[i].a] * p->domains[p->pairs[i].b] +
                          choices[p->pairs[i].b]];
  return cost;
}

static double brute_force(const rabbet_solve_problem_t* p) {
  int32_t choices[MAX_VARIABLES] = {0};
  double best = INFINITY;
  for (;;) {
    double cost = assignment_cost(p, choices);
    if (cost < best) best = cost;
    size_t v = 0;
    while (v < p->variable_count && ++choices[v] == p->domains[v])
      choices[v++] = 0;
    if (v == p->variable_count) return best;
  }
}

static void solver_equals_brute_force(void** state) {
  (void)state;
  for (unsigned seed = 0; seed < 3000; ++seed) {
    srand(seed);
    random_problem_t p;
    random_problem(&p);
    int32_t choices[MAX_VARIABLES];
    rabbet_solve_result_t result = {.choices = choices};
    assert_true(rabbet_is_ok(
        rabbet_solve(&p.problem, rabbet_allocator_system(), &result)));
    double best = brute_force(&p.problem);
    assert_true(result.exact);
    if (result.cost != best)
      fail_msg("seed %u: %g instead of %g", seed, result.cost, best);
    assert_true(assignment_cost(&p.problem, choices) == result.cost);
  }
}

// Over the limit the search must still give a valid assignment whose cost is
// the one reported, repeatably, and mostly the best one.
static void bounded_search(void** state) {
  (void)state;
  int best_found = 0, feasible = 0;
  for (unsigned seed = 0; seed < 500; ++seed) {
    srand(seed);
    random_problem_t p;
    random_problem(&p);
    p.problem.table_limit = 6;
    int32_t choices[MAX_VARIABLES], again[MAX_VARIABLES];
    rabbet_solve_result_t result = {.choices = choices};
    rabbet_solve_result_t second = {.choices = again};
    assert_true(rabbet_is_ok(
        rabbet_solve(&p.problem, rabbet_allocator_system(), &result)));
    assert_true(rabbet_is_ok(
        rabbet_solve(&p.problem, rabbet_allocator_system(), &second)));
    double best = brute_force(&p.problem);
    assert_true(result.cost >= best);
    assert_true(assignment_cost(&p.problem, choices) == result.cost);
    for (size_t v = 0; v < p.problem.variable_count; ++v)
      assert_int_equal(choices[v], again[v]);
    feasible += isfinite(best);
    best_found += isfinite(best) && result.cost == best;
  }
  assert_true(feasible > 100);
  assert_true(best_found >= feasible * 9 / 10);
}

// A chain of a thousand variables is solved exactly.
static void long_chain(void** state) {
  (void)state;
  enum { N = 1000 };
  static int32_t domains[N], choices[N];
  static double unary_costs[N][2], change[4] = {0, 5, 5, 0};
  static const double* unary[N];
  static rabbet_solve_pair_t pairs[N - 1];
  for (int v = 0; v < N; ++v) {
    domains[v] = 2;
    unary_costs[v][v % 2] = 1;  // alternating wishes cost less than changes
    unary[v] = unary_costs[v];
    if (v > 0) pairs[v - 1] = (rabbet_solve_pair_t){v - 1, v, change};
  }
  rabbet_solve_problem_t problem = {N, domains, unary, pairs, N - 1, 64, 0};
  rabbet_solve_result_t result = {.choices = choices};
  assert_true(
      rabbet_is_ok(rabbet_solve(&problem, rabbet_allocator_system(), &result)));
  assert_true(result.exact);
  assert_true(result.cost == N / 2);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(solver_equals_brute_force),
      cmocka_unit_test(bounded_search),
      cmocka_unit_test(long_chain),
  };
  return cmocka_run_group_tests_name("solve", tests, NULL, NULL);
}
