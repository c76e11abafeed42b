// The whole-graph choice: one alternative for each cluster.

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "builder/choose/solve.h"
#include "builder/choose/tuner.h"

#define CHOOSE_TABLE_LIMIT ((size_t)1 << 18)

// A value that one cluster makes and another reads.
typedef struct edge_t {
  int32_t maker, reader;
  int32_t output, input;  // the value's index among their outputs and inputs
  int32_t value;
} edge_t;

typedef struct chooser_t {
  rabbet_build_t* build;
  rabbet_weights_of_costs_t weights;
  RABBET_VEC(edge_t) edges;  // by (maker, reader)
  RABBET_VEC(rabbet_solve_pair_t) pairs;
  int32_t* domains;
  const double** unary;
  int32_t* choices;
} chooser_t;

static int edge_compare(const void* a, const void* b) {
  const edge_t *x = a, *y = b;
  if (x->maker != y->maker) return x->maker < y->maker ? -1 : 1;
  if (x->reader != y->reader) return x->reader < y->reader ? -1 : 1;
  return (x->input > y->input) - (x->input < y->input);
}

static rabbet_status_t choose_edges(chooser_t* chooser) {
  const rabbet_tuner_t* tuner = chooser->build->tuner;
  for (size_t c = 0; c < tuner->clusters.count; ++c) {
    const rabbet_cluster_t* reader = tuner->clusters.data[c];
    for (size_t i = 0; i < reader->input_count; ++i) {
      edge_t edge = {.maker = tuner->makers[reader->inputs[i]],
                     .reader = (int32_t)c,
                     .input = (int32_t)i,
                     .value = reader->inputs[i]};
      edge.output = tuner->output_places[edge.value];
      assert(edge.maker >= 0 && edge.maker != edge.reader);
      assert(edge.output >= 0);
      RABBET_RETURN_IF_ERROR(
          RABBET_VEC_PUSH(chooser->build->allocator, &chooser->edges, edge));
    }
  }
  if (chooser->edges.count > 0)
    qsort(chooser->edges.data, chooser->edges.count, sizeof(edge_t),
          edge_compare);
  return rabbet_ok();
}

static rabbet_status_t choose_edge_cost(chooser_t* chooser, const edge_t* edge,
                                        const rabbet_alternative_t* maker,
                                        const rabbet_alternative_t* reader,
                                        double* cost) {
  rabbet_build_t* build = chooser->build;
  uint64_t states = reader->in_states[edge->input];
  for (int state = 0; states != 0; ++state, states >>= 1) {
    if ((states & 1) == 0) continue;
    assert(maker->out_states[edge->output] != RABBET_TUNE_NO_STATE);
    double us = 0;
    RABBET_RETURN_IF_ERROR(rabbet_tune_conversion_cost(
        build, rabbet_ir_value(&build->ir, edge->value),
        maker->out_states[edge->output], (rabbet_tune_state_t)state, &us));
    *cost += us * chooser->weights.conversion;
  }
  return rabbet_ok();
}

// Costs between two clusters, over all the values between them.
static rabbet_status_t choose_pair(chooser_t* chooser, size_t first,
                                   size_t last) {
  const rabbet_tuner_t* tuner = chooser->build->tuner;
  const edge_t* edges = chooser->edges.data;
  const rabbet_cluster_t* maker = tuner->clusters.data[edges[first].maker];
  const rabbet_cluster_t* reader = tuner->clusters.data[edges[first].reader];
  double* costs = NULL;
  assert(first < last && last <= chooser->edges.count);
  assert(maker->alternative_count > 0 && reader->alternative_count > 0);
  RABBET_RETURN_IF_ERROR(rabbet_arena_allocate_array(
      &chooser->build->arena,
      maker->alternative_count * reader->alternative_count, sizeof(double),
      (void**)&costs));
  for (size_t a = 0; a < maker->alternative_count; ++a)
    for (size_t b = 0; b < reader->alternative_count; ++b)
      for (size_t e = first; e < last; ++e)
        RABBET_RETURN_IF_ERROR(
            choose_edge_cost(chooser, &edges[e], &maker->alternatives[a],
                             &reader->alternatives[b],
                             &costs[a * reader->alternative_count + b]));
  rabbet_solve_pair_t pair = {edges[first].maker, edges[first].reader, costs};
  return RABBET_VEC_PUSH(chooser->build->allocator, &chooser->pairs, pair);
}

static rabbet_status_t choose_pairs(chooser_t* chooser) {
  size_t first = 0;
  while (first < chooser->edges.count) {
    const edge_t* edge = &chooser->edges.data[first];
    size_t last = first + 1;
    while (last < chooser->edges.count &&
           edge[last - first].maker == edge->maker &&
           edge[last - first].reader == edge->reader)
      ++last;
    RABBET_RETURN_IF_ERROR(choose_pair(chooser, first, last));
    first = last;
  }
  return rabbet_ok();
}

static double choose_cost(const chooser_t* chooser,
                          const rabbet_cluster_t* cluster,
                          const rabbet_alternative_t* alternative) {
  if (cluster->kind != RABBET_CLUSTER_NODES) return 0;
  assert(alternative->cover >= 0 &&
         (size_t)alternative->cover < cluster->cover_count);
  const rabbet_cover_t* cover = &cluster->covers[alternative->cover];
  double steps = 0;
  for (size_t u = 0; u < cover->unit_count; ++u)
    steps +=
        cover->units[u]->choices[alternative->choices[u]].candidate.kernel !=
        NULL;
  return alternative->us + steps * chooser->weights.step_us;
}

static rabbet_status_t choose_unary(chooser_t* chooser) {
  rabbet_arena_t* arena = &chooser->build->arena;
  const rabbet_tuner_t* tuner = chooser->build->tuner;
  size_t count = tuner->clusters.count;
  RABBET_RETURN_IF_ERROR(rabbet_arena_allocate_array(
      arena, count, sizeof(int32_t), (void**)&chooser->domains));
  RABBET_RETURN_IF_ERROR(rabbet_arena_allocate_array(
      arena, count, sizeof(int32_t), (void**)&chooser->choices));
  RABBET_RETURN_IF_ERROR(rabbet_arena_allocate_array(
      arena, count, sizeof(double*), (void**)&chooser->unary));
  for (size_t c = 0; c < count; ++c) {
    const rabbet_cluster_t* cluster = tuner->clusters.data[c];
    double* costs = NULL;
    assert(cluster->alternative_count > 0);
    chooser->domains[c] = (int32_t)cluster->alternative_count;
    RABBET_RETURN_IF_ERROR(rabbet_arena_allocate_array(
        arena, cluster->alternative_count, sizeof(double), (void**)&costs));
    for (size_t i = 0; i < cluster->alternative_count; ++i)
      costs[i] = choose_cost(chooser, cluster, &cluster->alternatives[i]);
    chooser->unary[c] = costs;
  }
  return rabbet_ok();
}

// Finds the value whose conversion is impossible, for the error.
static rabbet_status_t choose_impossible(const chooser_t* chooser) {
  const rabbet_tuner_t* tuner = chooser->build->tuner;
  const char *from = "?", *to = "?";
  for (size_t i = 0; i < chooser->pairs.count; ++i) {
    const rabbet_solve_pair_t* pair = &chooser->pairs.data[i];
    size_t size =
        (size_t)chooser->domains[pair->a] * (size_t)chooser->domains[pair->b];
    bool possible = false;
    for (size_t k = 0; k < size; ++k)
      possible |= isfinite(pair->costs[k]);
    if (possible) continue;
    const rabbet_cluster_t* a = tuner->clusters.data[pair->a];
    const rabbet_cluster_t* b = tuner->clusters.data[pair->b];
    from = a->node_count ? a->nodes[a->node_count - 1]->name : "network input";
    to = b->node_count ? b->nodes[0]->name : "network output";
  }
  return RABBET_STATUS(
      RABBET_STATUS_UNSUPPORTED,
      "no choice of kernels fits together: device '%s' cannot convert between "
      "the types and formats of '%s' and '%s'",
      chooser->build->device->name, from, to);
}

static int pick_compare(const void* a, const void* b) {
  const rabbet_pick_t *x = a, *y = b;
  // A unit has one exit, its last node, so it can run at that node's place.
  int32_t i = x->unit->nodes[x->unit->node_count - 1]->index;
  int32_t k = y->unit->nodes[y->unit->node_count - 1]->index;
  return (i > k) - (i < k);
}

static rabbet_status_t choose_collect(const chooser_t* chooser,
                                      rabbet_solution_t* solution) {
  rabbet_build_t* build = chooser->build;
  const rabbet_tuner_t* tuner = build->tuner;
  RABBET_RETURN_IF_ERROR(rabbet_arena_allocate_array(
      &build->arena, build->ir.nodes.count, sizeof(rabbet_pick_t),
      (void**)&solution->picks));
  RABBET_RETURN_IF_ERROR(rabbet_arena_allocate_array(
      &build->arena, build->ir.input_count, sizeof(rabbet_type_format_t),
      (void**)&solution->inputs));
  RABBET_RETURN_IF_ERROR(rabbet_arena_allocate_array(
      &build->arena, build->ir.output_count, sizeof(rabbet_type_format_t),
      (void**)&solution->outputs));
  for (size_t c = 0; c < tuner->clusters.count; ++c) {
    const rabbet_cluster_t* cluster = tuner->clusters.data[c];
    assert(chooser->choices[c] >= 0 &&
           (size_t)chooser->choices[c] < cluster->alternative_count);
    const rabbet_alternative_t* chosen =
        &cluster->alternatives[chooser->choices[c]];
    if (cluster->kind != RABBET_CLUSTER_NODES) {
      rabbet_type_format_t* place = cluster->kind == RABBET_CLUSTER_INPUT
                                        ? solution->inputs
                                        : solution->outputs;
      place[cluster->number] = tuner->states[chosen->out_states[0]];
      continue;
    }
    const rabbet_cover_t* cover = &cluster->covers[chosen->cover];
    for (size_t u = 0; u < cover->unit_count; ++u)
      solution->picks[solution->pick_count++] = (rabbet_pick_t){
          cover->units[u], &cover->units[u]->choices[chosen->choices[u]]};
  }
  if (solution->pick_count > 0)
    qsort(solution->picks, solution->pick_count, sizeof(rabbet_pick_t),
          pick_compare);
  assert(solution->pick_count <= build->ir.nodes.count);
  for (size_t i = 1; i < solution->pick_count; ++i)
    assert(pick_compare(&solution->picks[i - 1], &solution->picks[i]) < 0);
  return rabbet_ok();
}

static rabbet_status_t choose_solve(chooser_t* chooser,
                                    rabbet_solution_t* solution) {
  RABBET_RETURN_IF_ERROR(choose_edges(chooser));
  RABBET_RETURN_IF_ERROR(choose_unary(chooser));
  RABBET_RETURN_IF_ERROR(choose_pairs(chooser));
  rabbet_solve_problem_t problem = {
      .variable_count = chooser->build->tuner->clusters.count,
      .domains = chooser->domains,
      .unary = chooser->unary,
      .pairs = chooser->pairs.data,
      .pair_count = chooser->pairs.count,
      .table_limit = CHOOSE_TABLE_LIMIT,
      .seed = 1,
  };
  rabbet_solve_result_t result = {.choices = chooser->choices};
  RABBET_RETURN_IF_ERROR(
      rabbet_solve(&problem, chooser->build->allocator, &result));
  chooser->build->search_steps += result.steps;
  if (!isfinite(result.cost)) return choose_impossible(chooser);
  solution->us = result.cost;
  solution->exact = result.exact;
  return choose_collect(chooser, solution);
}

rabbet_status_t rabbet_tuner_solve(rabbet_build_t* build,
                                   rabbet_weights_of_costs_t weights,
                                   rabbet_solution_t* out_solution) {
  *out_solution = (rabbet_solution_t){0};
  chooser_t chooser = {.build = build, .weights = weights};
  rabbet_phase_t before =
      rabbet_phases_enter(build->phases, RABBET_PHASE_CHOICE);
  rabbet_status_t status = choose_solve(&chooser, out_solution);
  rabbet_phases_enter(build->phases, before);
  rabbet_vec_free(build->allocator, &chooser.edges);
  rabbet_vec_free(build->allocator, &chooser.pairs);
  return status;
}
