// Sets of a cluster's nodes, for cover.c. The time of an operation depends only
// on a node's neighbours, so that the time to cover a cluster is proportional
// to its length.
#ifndef RABBET_SRC_BUILDER_CHOOSE_COVER_SET_H_
#define RABBET_SRC_BUILDER_CHOOSE_COVER_SET_H_

#include "builder/choose/tuner.h"

// Nodes by their place in the cluster: makers of a node's inputs, and readers
// of its outputs, once for each use. Node i's begin at first_...[i].
typedef struct rabbet_cover_graph_t {
  const rabbet_cluster_t* cluster;
  int32_t* locals;  // the tuner's: place in the cluster of each IR node, or -1
  int32_t *first_makers, *makers;
  int32_t *first_readers, *readers;
  uint64_t steps;  // a measure of the work
} rabbet_cover_graph_t;

RABBET_PRIVATE_API rabbet_status_t rabbet_cover_graph_create(
    rabbet_build_t* build, const rabbet_cluster_t* cluster,
    rabbet_cover_graph_t* out_graph);
// Clears the tuner's table for the next cluster.
RABBET_PRIVATE_API void rabbet_cover_graph_destroy(rabbet_cover_graph_t* graph);

static inline int32_t rabbet_cover_local(const rabbet_cover_graph_t* graph,
                                         const rabbet_ir_node_t* node) {
  return graph->locals[node->index];
}
// The node of the cluster that makes the value, or -1.
static inline int32_t rabbet_cover_maker(const rabbet_cover_graph_t* graph,
                                         const rabbet_ir_value_t* value) {
  return value->producer ? rabbet_cover_local(graph, value->producer) : -1;
}

typedef struct rabbet_cover_set_t {
  bool* has;
  int32_t* members;  // in order of insertion
  size_t count;
} rabbet_cover_set_t;

RABBET_PRIVATE_API rabbet_status_t rabbet_cover_set_create(
    rabbet_arena_t* arena, size_t node_count, rabbet_cover_set_t* out_set);
// No effect if the node is there.
RABBET_PRIVATE_API void rabbet_cover_set_add(rabbet_cover_set_t* set,
                                             int32_t node);
// Keeps the first `count`.
RABBET_PRIVATE_API void rabbet_cover_set_truncate(rabbet_cover_set_t* set,
                                                  size_t count);
static inline void rabbet_cover_set_clear(rabbet_cover_set_t* set) {
  rabbet_cover_set_truncate(set, 0);
}
RABBET_PRIVATE_API void rabbet_cover_set_sort(rabbet_cover_set_t* set);
// Uses of the node's result by nodes of the set.
RABBET_PRIVATE_API int32_t rabbet_cover_uses(rabbet_cover_graph_t* graph,
                                             int32_t node,
                                             const rabbet_cover_set_t* set);

// A queue that yields each node once, always the first (or, backwards, the
// last) in order of execution.
typedef struct rabbet_cover_queue_t {
  bool backwards;
  int32_t* heap;
  size_t count;
  rabbet_cover_set_t seen;
  uint64_t steps;
} rabbet_cover_queue_t;

RABBET_PRIVATE_API rabbet_status_t rabbet_cover_queue_create(
    rabbet_arena_t* arena, size_t node_count, rabbet_cover_queue_t* out_queue);
RABBET_PRIVATE_API void rabbet_cover_queue_clear(rabbet_cover_queue_t* queue,
                                                 bool backwards);
// -1 if there is none.
RABBET_PRIVATE_API int32_t rabbet_cover_queue_pop(rabbet_cover_queue_t* queue);
RABBET_PRIVATE_API void rabbet_cover_push_readers(
    const rabbet_cover_graph_t* graph, int32_t node,
    rabbet_cover_queue_t* queue);
RABBET_PRIVATE_API void rabbet_cover_push_makers(
    const rabbet_cover_graph_t* graph, int32_t node,
    rabbet_cover_queue_t* queue);

#endif  // RABBET_SRC_BUILDER_CHOOSE_COVER_SET_H_
