#include "builder/choose/solve.h"

#include <assert.h>
#include <math.h>
#include <string.h>

#include "base/math.h"
#include "base/vec.h"

// Stands for INFINITY in the search, so that fewer violations are better.
#define SOLVE_FORBIDDEN 1e30
#define SOLVE_RESTARTS 16
#define SOLVE_MAX_SWEEPS 100

typedef RABBET_VEC(int32_t) int_vec_t;

// A table of costs over some variables, the last one running fastest.
typedef struct factor_t {
  int_vec_t scope;  // ascending
  double* costs;
  bool dead;
} factor_t;

// An eliminated variable as a function of the remaining ones.
typedef struct elimination_t {
  int32_t variable;
  int_vec_t scope;
  int32_t* best;  // choice for each assignment of `scope`
} elimination_t;

// A variable as a candidate for elimination: the least goes first.
typedef struct candidate_t {
  int64_t fill;  // edges that eliminating it would add
  size_t work;   // entries of the table that would be made
  int32_t variable;
  uint32_t version;  // of the variable, when this was worked out
} candidate_t;

// Each elimination looks at the variable's neighbours and their common
// neighbours alone, so that the time grows with the problem where neighbours
// are few; one with many (an input that thousands read) is no candidate.
typedef struct solver_t {
  const rabbet_solve_problem_t* problem;
  rabbet_allocator_t allocator;
  RABBET_VEC(factor_t) factors;
  int_vec_t* mentions;  // of each variable: factors, ascending; also dead ones
  RABBET_VEC(elimination_t) eliminations;
  int_vec_t* neighbours;               // of each variable, unordered
  RABBET_VEC(candidate_t) candidates;  // a heap; outdated ones among them
  uint32_t* versions;                  // of each variable
  bool* eliminated;
  uint64_t steps;
  int32_t* choices;
  uint64_t random;
} solver_t;

static bool int_vec_has(const int_vec_t* vec, int32_t value) {
  for (size_t i = 0; i < vec->count; ++i)
    if (vec->data[i] == value) return true;
  return false;
}

static void int_vec_remove(int_vec_t* vec, int32_t value) {
  assert(int_vec_has(vec, value));
  for (size_t i = 0; i < vec->count; ++i)
    if (vec->data[i] == value) {
      vec->data[i] = vec->data[--vec->count];
      return;
    }
}

static bool solver_adjacent(solver_t* solver, int32_t a, int32_t b) {
  const int_vec_t *x = &solver->neighbours[a], *y = &solver->neighbours[b];
  if (x->count > y->count) {
    const int_vec_t* swap = x;
    x = y;
    y = swap;
    b = a;
  }
  solver->steps += x->count;
  return int_vec_has(x, b);
}

static rabbet_status_t int_vec_insert_sorted(rabbet_allocator_t allocator,
                                             int_vec_t* vec, int32_t value) {
  RABBET_RETURN_IF_ERROR(RABBET_VEC_PUSH(allocator, vec, value));
  size_t i = vec->count - 1;
  for (; i > 0 && vec->data[i - 1] > value; --i)
    vec->data[i] = vec->data[i - 1];
  vec->data[i] = value;
  assert(i == 0 || vec->data[i - 1] < value);
  return rabbet_ok();
}

// Entries of a table over `scope`, saturated.
static size_t table_size(const solver_t* solver, const int_vec_t* scope) {
  size_t size = 1;
  for (size_t i = 0; i < scope->count; ++i)
    if (!rabbet_checked_mul(
            size, (size_t)solver->problem->domains[scope->data[i]], &size))
      return SIZE_MAX;
  return size;
}

static size_t table_index(const solver_t* solver, const int_vec_t* scope) {
  size_t index = 0;
  for (size_t i = 0; i < scope->count; ++i) {
    int32_t v = scope->data[i];
    assert(i == 0 || scope->data[i - 1] < v);
    assert(solver->choices[v] >= 0 &&
           solver->choices[v] < solver->problem->domains[v]);
    index = index * (size_t)solver->problem->domains[v] +
            (size_t)solver->choices[v];
  }
  return index;
}

// Steps solver->choices over `scope` to the next assignment.
static void table_advance(solver_t* solver, const int_vec_t* scope) {
  for (size_t i = scope->count; i-- > 0;) {
    int32_t v = scope->data[i];
    if (++solver->choices[v] < solver->problem->domains[v]) return;
    solver->choices[v] = 0;
  }
}

static void table_rewind(solver_t* solver, const int_vec_t* scope) {
  for (size_t i = 0; i < scope->count; ++i)
    solver->choices[scope->data[i]] = 0;
}

static void factor_deinitialize(solver_t* solver, factor_t* factor) {
  rabbet_vec_free(solver->allocator, &factor->scope);
  rabbet_free(solver->allocator, factor->costs);
  factor->costs = NULL;
  factor->dead = true;
}

static rabbet_status_t factor_mention(solver_t* solver, size_t index) {
  const int_vec_t* scope = &solver->factors.data[index].scope;
  for (size_t i = 0; i < scope->count; ++i)
    RABBET_RETURN_IF_ERROR(RABBET_VEC_PUSH(
        solver->allocator, &solver->mentions[scope->data[i]], (int32_t)index));
  return rabbet_ok();
}

// Adds a factor over the scope, with costs of zero. Takes the scope, on failure
// too.
static rabbet_status_t factor_add(solver_t* solver, int_vec_t* take_scope,
                                  factor_t** out_factor) {
  *out_factor = NULL;
  factor_t factor = {.scope = *take_scope};
  memset(take_scope, 0, sizeof(*take_scope));
  size_t bytes = 0;
  rabbet_status_t status = rabbet_ok();
  if (!rabbet_checked_mul(table_size(solver, &factor.scope), sizeof(double),
                          &bytes))
    status = RABBET_STATUS(RABBET_STATUS_OUT_OF_MEMORY,
                           "a table of costs does not fit into memory");
  if (rabbet_is_ok(status))
    status = rabbet_allocate(solver->allocator, bytes, (void**)&factor.costs);
  if (rabbet_is_ok(status))
    status = RABBET_VEC_PUSH(solver->allocator, &solver->factors, factor);
  if (!rabbet_is_ok(status)) {
    factor_deinitialize(solver, &factor);
    return status;
  }
  *out_factor = &solver->factors.data[solver->factors.count - 1];
  return factor_mention(solver, solver->factors.count - 1);
}

static rabbet_status_t solver_add_unary(solver_t* solver, int32_t variable) {
  int_vec_t scope = {0};
  assert(solver->problem->domains[variable] >= 1);
  RABBET_RETURN_IF_ERROR(RABBET_VEC_PUSH(solver->allocator, &scope, variable));
  factor_t* factor = NULL;
  RABBET_RETURN_IF_ERROR(factor_add(solver, &scope, &factor));
  memcpy(factor->costs, solver->problem->unary[variable],
         (size_t)solver->problem->domains[variable] * sizeof(double));
  return rabbet_ok();
}

static rabbet_status_t solver_connect(solver_t* solver, int32_t a, int32_t b) {
  assert(a != b && !int_vec_has(&solver->neighbours[a], b));
  RABBET_RETURN_IF_ERROR(
      RABBET_VEC_PUSH(solver->allocator, &solver->neighbours[a], b));
  return RABBET_VEC_PUSH(solver->allocator, &solver->neighbours[b], a);
}

// Adds a pair of which one variable has a single choice: the costs depend only
// on the other one.
static rabbet_status_t solver_add_half(solver_t* solver,
                                       const rabbet_solve_pair_t* pair) {
  const int32_t* domains = solver->problem->domains;
  int32_t free = domains[pair->a] > 1 ? pair->a : pair->b;
  assert(domains[pair->a] == 1 || domains[pair->b] == 1);
  int_vec_t scope = {0};
  factor_t* factor = NULL;
  RABBET_RETURN_IF_ERROR(RABBET_VEC_PUSH(solver->allocator, &scope, free));
  RABBET_RETURN_IF_ERROR(factor_add(solver, &scope, &factor));
  assert(factor->scope.count == 1);
  memcpy(factor->costs, pair->costs, (size_t)domains[free] * sizeof(double));
  return rabbet_ok();
}

static rabbet_status_t solver_add_pair(solver_t* solver,
                                       const rabbet_solve_pair_t* pair) {
  assert(pair->a >= 0 && pair->b >= 0 && pair->a != pair->b);
  assert((size_t)pair->a < solver->problem->variable_count &&
         (size_t)pair->b < solver->problem->variable_count);
  if (solver->problem->domains[pair->a] == 1 ||
      solver->problem->domains[pair->b] == 1)
    return solver_add_half(solver, pair);
  int_vec_t scope = {0};
  rabbet_status_t status =
      int_vec_insert_sorted(solver->allocator, &scope, pair->a);
  if (rabbet_is_ok(status))
    status = int_vec_insert_sorted(solver->allocator, &scope, pair->b);
  if (!rabbet_is_ok(status)) {
    rabbet_vec_free(solver->allocator, &scope);
    return status;
  }
  factor_t* factor = NULL;
  RABBET_RETURN_IF_ERROR(factor_add(solver, &scope, &factor));
  table_rewind(solver, &factor->scope);
  size_t size = table_size(solver, &factor->scope);
  size_t columns = (size_t)solver->problem->domains[pair->b];
  for (size_t i = 0; i < size; ++i) {
    factor->costs[i] = pair->costs[(size_t)solver->choices[pair->a] * columns +
                                   (size_t)solver->choices[pair->b]];
    table_advance(solver, &factor->scope);
  }
  return solver_adjacent(solver, pair->a, pair->b)
             ? rabbet_ok()
             : solver_connect(solver, pair->a, pair->b);
}

static int64_t solver_fill(solver_t* solver, int32_t variable) {
  const int_vec_t* near = &solver->neighbours[variable];
  int64_t fill = 0;
  for (size_t i = 0; i < near->count; ++i)
    for (size_t k = i + 1; k < near->count; ++k)
      fill += !solver_adjacent(solver, near->data[i], near->data[k]);
  return fill;
}

// Entries of the table over the variable and its neighbours; SIZE_MAX: more
// than the limit.
static size_t solver_work(const solver_t* solver, int32_t variable) {
  const int_vec_t* near = &solver->neighbours[variable];
  size_t limit = solver->problem->table_limit;
  size_t work = (size_t)solver->problem->domains[variable];
  for (size_t i = 0; i < near->count && work <= limit; ++i)
    if (!rabbet_checked_mul(
            work, (size_t)solver->problem->domains[near->data[i]], &work))
      return SIZE_MAX;
  return work <= limit ? work : SIZE_MAX;
}

// ---- The order of elimination -----------------------------------------------

static bool candidate_before(const candidate_t* a, const candidate_t* b) {
  if (a->fill != b->fill) return a->fill < b->fill;
  if (a->work != b->work) return a->work < b->work;
  return a->variable < b->variable;
}

static void candidate_swap(candidate_t* a, candidate_t* b) {
  candidate_t swap = *a;
  *a = *b;
  *b = swap;
}

static void candidates_sink(solver_t* solver) {
  candidate_t* heap = solver->candidates.data;
  size_t count = solver->candidates.count;
  for (size_t i = 0;;) {
    size_t least = i;
    for (size_t child = 2 * i + 1; child <= 2 * i + 2 && child < count; ++child)
      if (candidate_before(&heap[child], &heap[least])) least = child;
    if (least == i) return;
    candidate_swap(&heap[i], &heap[least]);
    i = least;
  }
}

// Recomputes the cost of eliminating the variable.
static rabbet_status_t solver_consider(solver_t* solver, int32_t variable) {
  candidate_t candidate = {.variable = variable,
                           .work = solver_work(solver, variable),
                           .version = ++solver->versions[variable]};
  ++solver->steps;
  if (candidate.work == SIZE_MAX) return rabbet_ok();
  candidate.fill = solver_fill(solver, variable);
  RABBET_RETURN_IF_ERROR(
      RABBET_VEC_PUSH(solver->allocator, &solver->candidates, candidate));
  candidate_t* heap = solver->candidates.data;
  for (size_t i = solver->candidates.count - 1;
       i > 0 && candidate_before(&heap[i], &heap[(i - 1) / 2]); i = (i - 1) / 2)
    candidate_swap(&heap[i], &heap[(i - 1) / 2]);
  return rabbet_ok();
}

// The next variable to eliminate, -1 if none is under the limit.
static int32_t solver_pick(solver_t* solver) {
  while (solver->candidates.count > 0) {
    candidate_t best = solver->candidates.data[0];
    solver->candidates.data[0] =
        solver->candidates.data[--solver->candidates.count];
    candidates_sink(solver);
    if (best.version != solver->versions[best.variable]) continue;
    assert(!solver->eliminated[best.variable]);
    return best.variable;
  }
  return -1;
}

// ---- Elimination ------------------------------------------------------------

// Sum of the live factors that mention the variable, at solver->choices.
static double solver_cost_around(solver_t* solver, int32_t variable) {
  const int_vec_t* mentions = &solver->mentions[variable];
  double cost = 0;
  solver->steps += mentions->count;
  for (size_t i = 0; i < mentions->count; ++i) {
    const factor_t* factor = &solver->factors.data[mentions->data[i]];
    if (!factor->dead)
      cost += factor->costs[table_index(solver, &factor->scope)];
  }
  return cost;
}

// The choice of the variable that costs least, others as in solver->choices.
static double solver_best_choice(solver_t* solver, int32_t variable,
                                 const factor_t* const* around, size_t count,
                                 int32_t* out_choice) {
  double best = INFINITY;
  *out_choice = 0;
  for (int32_t c = 0; c < solver->problem->domains[variable]; ++c) {
    solver->choices[variable] = c;
    double cost = 0;
    for (size_t i = 0; i < count; ++i)
      cost += around[i]->costs[table_index(solver, &around[i]->scope)];
    if (cost < best) {
      best = cost;
      *out_choice = c;
    }
  }
  return best;
}

typedef RABBET_VEC(const factor_t*) factor_vec_t;

static rabbet_status_t solver_factors_around(solver_t* solver, int32_t variable,
                                             factor_vec_t* out) {
  const int_vec_t* mentions = &solver->mentions[variable];
  solver->steps += mentions->count;
  for (size_t i = 0; i < mentions->count; ++i) {
    const factor_t* factor = &solver->factors.data[mentions->data[i]];
    if (!factor->dead)
      RABBET_RETURN_IF_ERROR(RABBET_VEC_PUSH(solver->allocator, out, factor));
  }
  return rabbet_ok();
}

static rabbet_status_t solver_scope_around(solver_t* solver, int32_t variable,
                                           int_vec_t* out_scope) {
  const int_vec_t* near = &solver->neighbours[variable];
  for (size_t i = 0; i < near->count; ++i)
    RABBET_RETURN_IF_ERROR(
        int_vec_insert_sorted(solver->allocator, out_scope, near->data[i]));
  return rabbet_ok();
}

static void solver_minimise(solver_t* solver, int32_t variable,
                            const factor_vec_t* around, factor_t* result,
                            int32_t* best) {
  size_t size = table_size(solver, &result->scope);
  assert(!int_vec_has(&result->scope, variable));
  table_rewind(solver, &result->scope);
  solver->steps += size * around->count;
  for (size_t i = 0; i < size; ++i) {
    result->costs[i] = solver_best_choice(solver, variable, around->data,
                                          around->count, &best[i]);
    table_advance(solver, &result->scope);
  }
}

// Connects two neighbours of an eliminated variable. Eliminating a variable
// adjacent to both then adds one edge less.
static rabbet_status_t solver_join(solver_t* solver, int32_t a, int32_t b) {
  if (solver_adjacent(solver, a, b)) return rabbet_ok();
  RABBET_RETURN_IF_ERROR(solver_connect(solver, a, b));
  bool swap = solver->neighbours[a].count > solver->neighbours[b].count;
  const int_vec_t* fewer = &solver->neighbours[swap ? b : a];
  for (size_t i = 0; i < fewer->count; ++i)
    if (solver_adjacent(solver, fewer->data[i], swap ? a : b))
      RABBET_RETURN_IF_ERROR(solver_consider(solver, fewer->data[i]));
  return rabbet_ok();
}

static rabbet_status_t solver_detach(solver_t* solver, int32_t variable) {
  int_vec_t* near = &solver->neighbours[variable];
  rabbet_status_t status = rabbet_ok();
  assert(!solver->eliminated[variable]);
  solver->eliminated[variable] = true;
  ++solver->versions[variable];
  for (size_t i = 0; i < near->count; ++i) {
    solver->steps += solver->neighbours[near->data[i]].count;
    int_vec_remove(&solver->neighbours[near->data[i]], variable);
  }
  for (size_t i = 0; i < near->count; ++i)
    for (size_t k = i + 1; rabbet_is_ok(status) && k < near->count; ++k)
      status = solver_join(solver, near->data[i], near->data[k]);
  for (size_t i = 0; rabbet_is_ok(status) && i < near->count; ++i)
    status = solver_consider(solver, near->data[i]);
  return status;
}

// Replaces the factors around the variable by one without it.
static rabbet_status_t solver_eliminate(solver_t* solver, int32_t variable) {
  elimination_t step = {.variable = variable};
  int_vec_t scope = {0};
  factor_vec_t around = {0};
  factor_t* result = NULL;
  rabbet_status_t status = solver_scope_around(solver, variable, &scope);
  if (rabbet_is_ok(status))
    status = solver_scope_around(solver, variable, &step.scope);
  if (rabbet_is_ok(status))
    status = rabbet_allocate(solver->allocator,
                             table_size(solver, &scope) * sizeof(int32_t),
                             (void**)&step.best);
  // The new factor first: adding it may move the others.
  if (rabbet_is_ok(status)) status = factor_add(solver, &scope, &result);
  if (rabbet_is_ok(status))
    status = solver_factors_around(solver, variable, &around);
  if (rabbet_is_ok(status))
    solver_minimise(solver, variable, &around, result, step.best);
  for (size_t i = 0; rabbet_is_ok(status) && i < around.count; ++i)
    factor_deinitialize(solver, (factor_t*)around.data[i]);
  if (rabbet_is_ok(status)) status = solver_detach(solver, variable);
  if (rabbet_is_ok(status))
    status = RABBET_VEC_PUSH(solver->allocator, &solver->eliminations, step);
  if (!rabbet_is_ok(status)) {
    rabbet_vec_free(solver->allocator, &step.scope);
    rabbet_free(solver->allocator, step.best);
  }
  rabbet_vec_free(solver->allocator, &scope);
  rabbet_vec_free(solver->allocator, &around);
  return status;
}

// ---- After elimination: iterated conditional modes -------------------------

// SplitMix64 (Steele, Lea, Flood, 2014).
static uint64_t solver_random(solver_t* solver) {
  uint64_t z = solver->random += 0x9e3779b97f4a7c15u;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

static void solver_start(solver_t* solver, int restart) {
  for (size_t v = 0; v < solver->problem->variable_count; ++v) {
    if (solver->eliminated[v]) continue;
    int32_t domain = solver->problem->domains[v];
    solver->choices[v] = 0;
    if (restart > 0) {
      solver->choices[v] = (int32_t)(solver_random(solver) % (uint64_t)domain);
      continue;
    }
    for (int32_t c = 1; c < domain; ++c)
      if (solver->problem->unary[v][c] <
          solver->problem->unary[v][solver->choices[v]])
        solver->choices[v] = c;
  }
}

static bool solver_improve(solver_t* solver, int32_t variable) {
  int32_t old = solver->choices[variable], best = old;
  double best_cost = solver_cost_around(solver, variable);
  for (int32_t c = 0; c < solver->problem->domains[variable]; ++c) {
    solver->choices[variable] = c;
    double cost = solver_cost_around(solver, variable);
    if (cost < best_cost) {
      best_cost = cost;
      best = c;
    }
  }
  assert(best >= 0 && best < solver->problem->domains[variable]);
  solver->choices[variable] = best;
  return best != old;
}

static double solver_core_cost(const solver_t* solver) {
  double cost = 0;
  for (size_t i = 0; i < solver->factors.count; ++i) {
    const factor_t* factor = &solver->factors.data[i];
    if (!factor->dead)
      cost += factor->costs[table_index(solver, &factor->scope)];
  }
  return cost;
}

static void solver_descend(solver_t* solver) {
  bool changed = true;
  for (int sweep = 0; changed && sweep < SOLVE_MAX_SWEEPS; ++sweep) {
    changed = false;
    for (size_t v = 0; v < solver->problem->variable_count; ++v)
      if (!solver->eliminated[v] && solver_improve(solver, (int32_t)v))
        changed = true;
  }
}

static void solver_cap(solver_t* solver) {
  for (size_t i = 0; i < solver->factors.count; ++i) {
    factor_t* factor = &solver->factors.data[i];
    if (factor->dead) continue;
    size_t size = table_size(solver, &factor->scope);
    for (size_t k = 0; k < size; ++k)
      if (factor->costs[k] > SOLVE_FORBIDDEN)
        factor->costs[k] = SOLVE_FORBIDDEN;
  }
}

static rabbet_status_t solver_search(solver_t* solver) {
  size_t bytes = solver->problem->variable_count * sizeof(int32_t);
  int32_t* best = NULL;
  RABBET_RETURN_IF_ERROR(
      rabbet_allocate(solver->allocator, bytes, (void**)&best));
  double best_cost = INFINITY;
  solver_cap(solver);
  for (int restart = 0; restart < SOLVE_RESTARTS; ++restart) {
    solver_start(solver, restart);
    solver_descend(solver);
    double cost = solver_core_cost(solver);
    if (cost >= best_cost) continue;
    best_cost = cost;
    memcpy(best, solver->choices, bytes);
  }
  assert(isfinite(best_cost));  // solver_cap leaves no infinite costs
  memcpy(solver->choices, best, bytes);
  rabbet_free(solver->allocator, best);
  return rabbet_ok();
}

// ---- The whole --------------------------------------------------------------

static rabbet_status_t solver_initialize(solver_t* solver) {
  size_t count = solver->problem->variable_count;
  solver->random = solver->problem->seed;
  rabbet_status_t status =
      rabbet_allocate(solver->allocator, count * sizeof(int_vec_t),
                      (void**)&solver->neighbours);
  if (rabbet_is_ok(status))
    status = rabbet_allocate(solver->allocator, count * sizeof(int_vec_t),
                             (void**)&solver->mentions);
  if (rabbet_is_ok(status))
    status = rabbet_allocate(solver->allocator, count * sizeof(uint32_t),
                             (void**)&solver->versions);
  if (rabbet_is_ok(status))
    status = rabbet_allocate(solver->allocator, count * sizeof(bool),
                             (void**)&solver->eliminated);
  for (size_t v = 0; rabbet_is_ok(status) && v < count; ++v)
    status = solver_add_unary(solver, (int32_t)v);
  for (size_t i = 0; rabbet_is_ok(status) && i < solver->problem->pair_count;
       ++i)
    status = solver_add_pair(solver, &solver->problem->pairs[i]);
  for (size_t v = 0; rabbet_is_ok(status) && v < count; ++v)
    status = solver_consider(solver, (int32_t)v);
  return status;
}

static void solver_deinitialize(solver_t* solver) {
  for (size_t i = 0; i < solver->factors.count; ++i)
    factor_deinitialize(solver, &solver->factors.data[i]);
  for (size_t i = 0; i < solver->eliminations.count; ++i) {
    rabbet_vec_free(solver->allocator, &solver->eliminations.data[i].scope);
    rabbet_free(solver->allocator, solver->eliminations.data[i].best);
  }
  for (size_t v = 0; v < solver->problem->variable_count; ++v) {
    if (solver->neighbours)
      rabbet_vec_free(solver->allocator, &solver->neighbours[v]);
    if (solver->mentions)
      rabbet_vec_free(solver->allocator, &solver->mentions[v]);
  }
  rabbet_vec_free(solver->allocator, &solver->factors);
  rabbet_vec_free(solver->allocator, &solver->eliminations);
  rabbet_free(solver->allocator, solver->neighbours);
  rabbet_vec_free(solver->allocator, &solver->candidates);
  rabbet_free(solver->allocator, solver->mentions);
  rabbet_free(solver->allocator, solver->versions);
  rabbet_free(solver->allocator, solver->eliminated);
}

static double solver_total(const rabbet_solve_problem_t* problem,
                           const int32_t* choices) {
  double cost = 0;
  for (size_t v = 0; v < problem->variable_count; ++v)
    cost += problem->unary[v][choices[v]];
  for (size_t i = 0; i < problem->pair_count; ++i) {
    const rabbet_solve_pair_t* pair = &problem->pairs[i];
    cost += pair->costs[(size_t)choices[pair->a] *
                            (size_t)problem->domains[pair->b] +
                        (size_t)choices[pair->b]];
  }
  return cost;
}

rabbet_status_t rabbet_solve(const rabbet_solve_problem_t* problem,
                             rabbet_allocator_t allocator,
                             rabbet_solve_result_t* result) {
  solver_t solver = {
      .problem = problem, .allocator = allocator, .choices = result->choices};
  memset(result->choices, 0, problem->variable_count * sizeof(int32_t));
  size_t left = problem->variable_count;
  rabbet_status_t status = solver_initialize(&solver);
  while (rabbet_is_ok(status) && left > 0) {
    int32_t variable = solver_pick(&solver);
    if (variable < 0) break;
    status = solver_eliminate(&solver, variable);
    --left;
  }
  if (rabbet_is_ok(status) && left > 0) status = solver_search(&solver);
  for (size_t i = solver.eliminations.count; rabbet_is_ok(status) && i-- > 0;) {
    const elimination_t* step = &solver.eliminations.data[i];
    solver.choices[step->variable] =
        step->best[table_index(&solver, &step->scope)];
  }
  result->exact = left == 0;
  result->steps = solver.steps;
  result->cost = solver_total(problem, result->choices);
  solver_deinitialize(&solver);
  return status;
}
