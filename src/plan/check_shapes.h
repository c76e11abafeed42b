// Whether a step's shapes follow from its operators' rules.
//
// Kernels rely on their shapes: with an output smaller than its layers' result,
// a kernel would write past its end.
#ifndef RABBET_SRC_PLAN_CHECK_SHAPES_H_
#define RABBET_SRC_PLAN_CHECK_SHAPES_H_

#include "plan/plan.h"

typedef enum rabbet_shapes_verdict_t {
  RABBET_SHAPES_PROVEN = 0,
  RABBET_SHAPES_UNPROVEN = 1,  // perhaps equal: check again once they are known
  RABBET_SHAPES_WRONG = 2,
} rabbet_shapes_verdict_t;

// A step's values as expressions of `graph`, to which nodes are added. Dims
// that are NONE are not compared.
typedef struct rabbet_shapes_check_t {
  rabbet_expr_graph_t* graph;
  rabbet_arena_t* arena;  // for scratch
  const rabbet_plan_step_t* step;
  const rabbet_op_value_t* values;  // [group value]: dtype, shape, constant,
                                    // values
  // [group value]: the plan's value whose elements are symbols of `graph`, or
  // -1.
  const int32_t* numbers;
  // [group value]: memory that there is, SIZE_MAX where that is not known; NULL
  // before a run. Dimensions are known then, so that bounds are, too.
  const size_t* bytes;
} rabbet_shapes_check_t;

// OK with a verdict; an error is a rule's own, about attributes or ranks.
// *out_value is a group value that is wrong or unproven. Plugins' layers are
// skipped. A shape that depends on unknown elements is DATA_LOSS.
rabbet_status_t rabbet_plan_check_shapes(const rabbet_shapes_check_t* check,
                                         rabbet_shapes_verdict_t* out_verdict,
                                         int32_t* out_value);

// The check of a plan that is read, of its layers' types, too: sets each step's
// shapes_proven. Constants must be in place. DATA_LOSS where types or shapes
// cannot be right.
rabbet_status_t rabbet_plan_prove_shapes(rabbet_plan_sequence_t* sequence);

#endif  // RABBET_SRC_PLAN_CHECK_SHAPES_H_
