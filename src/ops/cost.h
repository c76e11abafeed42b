// The work of the reference kernels, in operations. It limits constant folding.
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

// ---- For the descriptors' cost ---------------------------------------------

// As numbers that do not overflow; 0 where an extent is not known.
double rabbet_cost_count(const rabbet_view_t* view);
// All elements of inputs and outputs, and 1.
double rabbet_cost_elements(const rabbet_op_eval_t* eval);
// The cost of sorting as many elements.
double rabbet_cost_sorting(const rabbet_op_eval_t* eval);
// An element is a sum over the kernel but its maps, which are axis `maps`.
double rabbet_cost_kernel(const rabbet_op_eval_t* eval, int32_t maps);
// Elements on an axis that an interpolation (rabbet_interpolation_t) visits.
double rabbet_cost_taps(int64_t mode);

#endif  // RABBET_SRC_OPS_COST_H_
