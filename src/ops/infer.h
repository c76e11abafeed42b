// Queries of an operator's type and shape rules.
#ifndef RABBET_SRC_OPS_INFER_H_
#define RABBET_SRC_OPS_INFER_H_

#include "ops/op.h"

// Given an `infer` with operator, arena and numbers of inputs and outputs: sets
// the number of attributes, and allocates inputs (absent) and outputs (type
// NONE) in the arena. The caller fills *out_inputs, which is infer->inputs.
RABBET_PRIVATE_API rabbet_status_t rabbet_op_infer_allocate(
    rabbet_op_infer_t* infer, rabbet_op_value_t** out_inputs);

#endif  // RABBET_SRC_OPS_INFER_H_
