#include "builder/choose/cover_set.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/heap.h"

// ---- The graph --------------------------------------------------------------

// Calls for each use of a node's first result within the cluster.
static void graph_each_use(const rabbet_build_t* build,
                           rabbet_cover_graph_t* graph,
                           void (*use)(rabbet_cover_graph_t* graph,
                                       int32_t maker, int32_t reader)) {
  const rabbet_cluster_t* cluster = graph->cluster;
  for (size_t i = 0; i < cluster->node_count; ++i) {
    const rabbet_ir_node_t* node = cluster->nodes[i];
    for (size_t k = 0; k < node->input_count; ++k) {
      const rabbet_ir_value_t* value = rabbet_ir_input(&build->ir, node, k);
      int32_t maker = value ? rabbet_cover_maker(graph, value) : -1;
      if (maker >= 0 && cluster->nodes[maker]->outputs[0] == value->id)
        use(graph, maker, (int32_t)i);
    }
  }
}

static void graph_count(rabbet_cover_graph_t* graph, int32_t maker,
                        int32_t reader) {
  assert(maker < reader);  // nodes are in order of execution
  graph->first_makers[reader + 1]++;
  graph->first_readers[maker + 1]++;
}

// While the lists are filled, first_...[i] is the next free place of node i.
static void graph_fill(rabbet_cover_graph_t* graph, int32_t maker,
                       int32_t reader) {
  graph->makers[graph->first_makers[reader]++] = maker;
  graph->readers[graph->first_readers[maker]++] = reader;
}

static void graph_add_up(int32_t* first, size_t count) {
  for (size_t i = 0; i < count; ++i)
    first[i + 1] += first[i];
}

static void graph_step_back(int32_t* first, size_t count) {
  memmove(first + 1, first, count * sizeof(*first));
  first[0] = 0;
}

static rabbet_status_t graph_fill_lists(rabbet_build_t* build,
                                        rabbet_cover_graph_t* graph) {
  size_t count = graph->cluster->node_count;
  rabbet_arena_t* arena = &build->arena;
  int32_t** firsts[] = {&graph->first_makers, &graph->first_readers};
  int32_t** lists[] = {&graph->makers, &graph->readers};
  for (size_t i = 0; i < 2; ++i)
    RABBET_RETURN_IF_ERROR(rabbet_arena_allocate_array(
        arena, count + 1, sizeof(int32_t), (void**)firsts[i]));
  graph_each_use(build, graph, graph_count);
  for (size_t i = 0; i < 2; ++i) {
    graph_add_up(*firsts[i], count);
    RABBET_RETURN_IF_ERROR(rabbet_arena_allocate_array(
        arena, (size_t)(*firsts[i])[count], sizeof(int32_t), (void**)lists[i]));
  }
  graph_each_use(build, graph, graph_fill);
  for (size_t i = 0; i < 2; ++i)
    graph_step_back(*firsts[i], count);
  return rabbet_ok();
}

rabbet_status_t rabbet_cover_graph_create(rabbet_build_t* build,
                                          const rabbet_cluster_t* cluster,
                                          rabbet_cover_graph_t* out_graph) {
  *out_graph = (rabbet_cover_graph_t){.cluster = cluster,
                                      .locals = build->tuner->locals};
  for (size_t i = 0; i < cluster->node_count; ++i) {
    assert(out_graph->locals[cluster->nodes[i]->index] < 0);
    assert(i == 0 || cluster->nodes[i - 1]->index < cluster->nodes[i]->index);
    out_graph->locals[cluster->nodes[i]->index] = (int32_t)i;
  }
  return graph_fill_lists(build, out_graph);
}

void rabbet_cover_graph_destroy(rabbet_cover_graph_t* graph) {
  for (size_t i = 0; graph->cluster && i < graph->cluster->node_count; ++i)
    graph->locals[graph->cluster->nodes[i]->index] = -1;
}

// ---- Sets -------------------------------------------------------------------

rabbet_status_t rabbet_cover_set_create(rabbet_arena_t* arena,
                                        size_t node_count,
                                        rabbet_cover_set_t* out_set) {
  *out_set = (rabbet_cover_set_t){0};
  RABBET_RETURN_IF_ERROR(rabbet_arena_allocate_array(
      arena, node_count, sizeof(bool), (void**)&out_set->has));
  return rabbet_arena_allocate_array(arena, node_count, sizeof(int32_t),
                                     (void**)&out_set->members);
}

void rabbet_cover_set_add(rabbet_cover_set_t* set, int32_t node) {
  assert(node >= 0);
  if (set->has[node]) return;
  set->has[node] = true;
  set->members[set->count++] = node;
}

void rabbet_cover_set_truncate(rabbet_cover_set_t* set, size_t count) {
  while (set->count > count) {
    assert(set->has[set->members[set->count - 1]]);
    set->has[set->members[--set->count]] = false;
  }
}

static int node_compare(const void* a, const void* b) {
  int32_t x = *(const int32_t*)a, y = *(const int32_t*)b;
  return (x > y) - (x < y);
}

void rabbet_cover_set_sort(rabbet_cover_set_t* set) {
  if (set->count > 0)
    qsort(set->members, set->count, sizeof(*set->members), node_compare);
}

int32_t rabbet_cover_uses(rabbet_cover_graph_t* graph, int32_t node,
                          const rabbet_cover_set_t* set) {
  int32_t uses = 0, end = graph->first_readers[node + 1];
  for (int32_t k = graph->first_readers[node]; k < end; ++k)
    uses += set->has[graph->readers[k]];
  assert(end >= graph->first_readers[node]);
  graph->steps += (uint64_t)(end - graph->first_readers[node]);
  return uses;
}

// ---- Queues -----------------------------------------------------------------

rabbet_status_t rabbet_cover_queue_create(rabbet_arena_t* arena,
                                          size_t node_count,
                                          rabbet_cover_queue_t* out_queue) {
  *out_queue = (rabbet_cover_queue_t){0};
  RABBET_RETURN_IF_ERROR(rabbet_arena_allocate_array(
      arena, node_count, sizeof(int32_t), (void**)&out_queue->heap));
  return rabbet_cover_set_create(arena, node_count, &out_queue->seen);
}

void rabbet_cover_queue_clear(rabbet_cover_queue_t* queue, bool backwards) {
  queue->backwards = backwards;
  queue->count = 0;
  rabbet_cover_set_clear(&queue->seen);
}

// The heap's least number comes first. Negated indices make a queue that goes
// backwards.
static void queue_push(rabbet_cover_queue_t* queue, int32_t node) {
  queue->steps++;
  if (queue->seen.has[node]) return;
  rabbet_cover_set_add(&queue->seen, node);
  rabbet_heap_push(queue->heap, &queue->count, queue->backwards ? -node : node);
}

int32_t rabbet_cover_queue_pop(rabbet_cover_queue_t* queue) {
  if (queue->count == 0) return -1;
  int32_t next = rabbet_heap_pop(queue->heap, &queue->count);
  int32_t node = queue->backwards ? -next : next;
  assert(queue->seen.has[node]);
  return node;
}

void rabbet_cover_push_readers(const rabbet_cover_graph_t* graph, int32_t node,
                               rabbet_cover_queue_t* queue) {
  for (int32_t k = graph->first_readers[node];
       k < graph->first_readers[node + 1]; ++k)
    queue_push(queue, graph->readers[k]);
}

void rabbet_cover_push_makers(const rabbet_cover_graph_t* graph, int32_t node,
                              rabbet_cover_queue_t* queue) {
  for (int32_t k = graph->first_makers[node]; k < graph->first_makers[node + 1];
       ++k)
    queue_push(queue, graph->makers[k]);
}
