// Collectives: exchanges between the devices of several processes (ranks).
#ifndef RABBET_SRC_OPS_COLLECTIVE_DIST_COLLECTIVE_H_
#define RABBET_SRC_OPS_COLLECTIVE_DIST_COLLECTIVE_H_

#include "ops/enums.h"
#include "ops/op.h"

// reduce_op of collectives that reduce nothing: TensorRT's
// ReduceOperation.NONE.
#define RABBET_COLLECTIVE_REDUCE_NONE 5
// Ranks that a layer may have; a bound for damaged plans.
#define RABBET_COLLECTIVE_MAX_RANKS 65536

// A layer's attributes.
typedef struct rabbet_collective_t {
  rabbet_collective_op_t operation;
  int64_t reduce_op;     // rabbet_reduce_t or RABBET_COLLECTIVE_REDUCE_NONE
  int64_t root;          // of the communicator; -1: none
  int64_t ranks;         // that take part
  const int64_t* group;  // the communicator's ranks that take part, in order
  size_t group_count;    // 0: all of them
} rabbet_collective_t;

// `attrs` are complete, in the descriptor's order, and borrowed.
RABBET_PRIVATE_API void rabbet_collective_read(
    const rabbet_attr_t* attrs, rabbet_collective_t* out_collective);
RABBET_PRIVATE_API bool rabbet_collective_reduces(rabbet_collective_op_t op);
RABBET_PRIVATE_API bool rabbet_collective_has_root(rabbet_collective_op_t op);
// "ALL_REDUCE"
RABBET_PRIVATE_API const char* rabbet_collective_name(
    rabbet_collective_op_t op);
// Whether the layer exchanges anything: it has more than one rank.
static inline bool rabbet_collective_exchanges(const rabbet_op_t* op,
                                               const rabbet_attr_t* attrs) {
  if (!rabbet_op_is(op, RABBET_OP_DIST_COLLECTIVE)) return false;
  rabbet_collective_t collective;
  rabbet_collective_read(attrs, &collective);
  return collective.ranks > 1;
}

#endif  // RABBET_SRC_OPS_COLLECTIVE_DIST_COLLECTIVE_H_
