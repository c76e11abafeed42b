// Asking an operator's rules for types and shapes.
#ifndef RABBET_SRC_OPS_INFER_H_
#define RABBET_SRC_OPS_INFER_H_

#include "ops/op.h"

// Of an `infer` that has operator, arena and numbers of inputs and outputs:
// sets the number of attributes, and inputs (absent) and outputs (of type NONE)
// in the arena. The caller fills *out_inputs, which are infer->inputs.
RABBET_PRIVATE_API rabbet_status_t rabbet_op_infer_allocate(
    rabbet_op_infer_t* infer, rabbet_op_value_t** out_inputs);

#endif  // RABBET_SRC_OPS_INFER_H_
