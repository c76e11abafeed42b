// The work of the reference kernels, in operations, by which folding is
// limited.
#ifndef RABBET_SRC_OPS_COST_H_
#define RABBET_SRC_OPS_COST_H_

#include "ops/op.h"

// Elements that the reference kernel reads, computes or writes, roughly: some
// nanoseconds each. Inputs and outputs have their data or NULL; an output of
// unknown extent (dims of -1), and one with dtype NONE, counts as its inputs
// do.
RABBET_PRIVATE_API double rabbet_op_steps(const rabbet_op_eval_t* eval);

// Whether that may be far more than its elements.
RABBET_PRIVATE_API bool rabbet_op_is_slow(const rabbet_op_t* op);

#endif  // RABBET_SRC_OPS_COST_H_
