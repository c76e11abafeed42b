// Memory layout of reverse_sequence's tensor.
#ifndef RABBET_SRC_OPS_MOVEMENT_REVERSE_SEQUENCE_H_
#define RABBET_SRC_OPS_MOVEMENT_REVERSE_SEQUENCE_H_

#include "ops/op.h"

// The tensor as (outer, first, middle, second, inner): batch and sequence are
// the first and the second, one way or the other.
typedef struct rabbet_reverse_sequence_t {
  int64_t outer, first, middle, second, inner;
  bool sequence_first;
} rabbet_reverse_sequence_t;

RABBET_PRIVATE_API rabbet_reverse_sequence_t rabbet_reverse_sequence_plan(
    const rabbet_dims_t* dims, int64_t batch_axis, int64_t sequence_axis);
static inline int64_t rabbet_reverse_sequence_extent(
    const rabbet_reverse_sequence_t* plan) {
  return plan->sequence_first ? plan->first : plan->second;
}
// Elements from one step of a sequence to the next.
static inline int64_t rabbet_reverse_sequence_step(
    const rabbet_reverse_sequence_t* plan) {
  return plan->sequence_first ? plan->middle * plan->second * plan->inner
                              : plan->inner;
}
// OUT_OF_RANGE unless there is one length for each batch element.
RABBET_PRIVATE_API rabbet_status_t rabbet_reverse_sequence_check(
    const rabbet_reverse_sequence_t* plan, const rabbet_dims_t* lengths);

#endif  // RABBET_SRC_OPS_MOVEMENT_REVERSE_SEQUENCE_H_
