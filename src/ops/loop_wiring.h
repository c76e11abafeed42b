// How a layer that runs a loop passes tensors to the loop's sequences.
//
// Inputs of the body, and of the condition if that is computed: the carried
// tensors, then one slice of each tensor that the loop walks along, then what
// they take from outside. Outputs of the body: the next values of the carried
// tensors, then tensors that are stacked. The condition has one output.
#ifndef RABBET_SRC_OPS_LOOP_WIRING_H_
#define RABBET_SRC_OPS_LOOP_WIRING_H_

#include "core/attr_set.h"
#include "core/expr.h"

// A stacked output has as many elements as iterations ran.
#define RABBET_LOOP_LENGTH_TRIPS (-1)

typedef struct rabbet_loop_wiring_t {
  // [carried tensor]: axes whose extents iterations may change, as bits.
  const int64_t* varying;
  size_t carried_count;
  const int64_t* reverse;  // [slice]: from the end; along axis 0
  size_t slice_count;
  // [output of the layer]: output of the body, a rabbet_loop_output_t, and the
  // layer's input with the length of a stack or RABBET_LOOP_LENGTH_TRIPS.
  const int64_t *sources, *kinds, *lengths;
  size_t output_count;
  int64_t count;      // the layer's input with the number of iterations, or -1
  int64_t condition;  // the carried tensor that tells whether to go on, or -1
} rabbet_loop_wiring_t;

// The iterations that a limit of kind COUNT allows, max(count, 0), which are a
// stack's default length, too.
RABBET_PRIVATE_API rabbet_status_t rabbet_loop_trips(rabbet_expr_graph_t* graph,
                                                     rabbet_expr_t count,
                                                     rabbet_expr_t* out_trips);

// Fails if the lists differ in length; numbers in them are not checked.
RABBET_PRIVATE_API rabbet_status_t rabbet_loop_wiring_read(
    const rabbet_attr_t* attrs, size_t count, rabbet_loop_wiring_t* out_wiring);

#endif  // RABBET_SRC_OPS_LOOP_WIRING_H_
