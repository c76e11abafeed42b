// Which nodes of a graph a plan can compute. There is no list of operators: the
// importer imports the nodes, and says which it refuses.
#ifndef RABBET_SRC_ORTEP_SUPPORT_H_
#define RABBET_SRC_ORTEP_SUPPORT_H_

#include "ortep/graph.h"

typedef struct rabbet_ort_parts_t {
  rabbet_arena_t arena;
  RABBET_VEC(struct rabbet_ort_part_nodes_t {
    uint32_t* nodes;  // ascending
    size_t count;
  })
  list;
} rabbet_ort_parts_t;

typedef struct rabbet_ort_support_options_t {
  rabbet_allocator_t allocator;
  rabbet_logger_t logger;
  bool keeps_double;
  size_t least_nodes;  // of a part
} rabbet_ort_support_options_t;

// Parts of the graph that were imported whole, each of which can be one node:
// no path between two of its nodes leaves it, and no two parts need each other.
// First the whole graph is tried; then, as long as nodes are refused, the
// connected parts that remain without them.
rabbet_status_t rabbet_ort_find_parts(
    const rabbet_ort_graph_t* graph,
    const rabbet_ort_support_options_t* options, rabbet_ort_parts_t* out_parts);
void rabbet_ort_parts_deinitialize(rabbet_allocator_t allocator,
                                   rabbet_ort_parts_t* parts);

#endif  // RABBET_SRC_ORTEP_SUPPORT_H_
