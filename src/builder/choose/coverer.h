// A cluster while its covers are made.
#ifndef RABBET_SRC_BUILDER_CHOOSE_COVERER_H_
#define RABBET_SRC_BUILDER_CHOOSE_COVERER_H_

#include "builder/choose/cover_set.h"

#define RABBET_COVER_NO_GROUP (-1)

typedef struct rabbet_coverer_t {
  rabbet_build_t* build;
  rabbet_cluster_t* cluster;
  rabbet_cover_graph_t graph;
  size_t count;  // nodes of the cluster, in order of execution
  uint32_t* kinds;
  int32_t* groups;  // of each node
  int32_t group_count;
  bool has_optional;           // there are nodes that may be left out
  bool apart;                  // each of these is a group of its own
  rabbet_cover_set_t inside;   // scratch: a set of nodes
  rabbet_cover_queue_t queue;  // scratch
  int32_t* left;               // scratch: uses of each node by nodes outside
  int32_t* order;              // scratch: nodes, group by group
  int32_t* begins;             // scratch: of each group in `order`
  rabbet_ir_node_t** members;  // scratch
  RABBET_VEC(rabbet_cover_t) covers;
} rabbet_coverer_t;

static inline rabbet_ir_node_t* rabbet_cover_node(const rabbet_coverer_t* c,
                                                  size_t i) {
  return c->cluster->nodes[i];
}

// ---- Groups (cover_groups.c)

// The set of one node.
void rabbet_cover_start(rabbet_coverer_t* c, size_t i);
// Gives the nodes of the set a group of their own.
void rabbet_cover_assign(rabbet_coverer_t* c);
// Grows c->inside from one node to the free point-wise nodes that follow it, up
// to the `level`-th set with a single exit. Returns the number of such sets.
int rabbet_cover_grow(rabbet_coverer_t* c, size_t start, int level);
// The same from two nodes of one shape. The set has at least one more.
int rabbet_cover_grow_pair(rabbet_coverer_t* c, size_t start, size_t other,
                           int level);
// Groups nodes with the point-wise nodes before their input 0; `grouped`: also
// those that begin a group.
void rabbet_cover_prologues(rabbet_coverer_t* c, bool grouped);
// Whether both are free, and products that one kernel may compute.
bool rabbet_cover_is_pair(const rabbet_coverer_t* c, size_t a, size_t b);
// Sets c->inside to node i, a free normalization, and the group of the products
// that read it, or, if they have none, the only one. False if others read it.
bool rabbet_cover_gather(rabbet_coverer_t* c, size_t i, int32_t* out_group);
// Adds to c->inside the nodes that make the factors of a quantized product, and
// those that dequantize tensors added to its result.
bool rabbet_cover_take_factors(rabbet_coverer_t* c, size_t product,
                               bool operands);
// Groups the remaining nodes: regions of at most `limit` point-wise nodes, all
// others alone.
void rabbet_cover_rest(rabbet_coverer_t* c, size_t limit);

#endif  // RABBET_SRC_BUILDER_CHOOSE_COVERER_H_
