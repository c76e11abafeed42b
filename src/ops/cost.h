// The work of the reference kernels, in operations. It limits constant folding.
#ifndef RABBET_SRC_OPS_COST_H_
#define RABBET_SRC_OPS_COST_H_

#include "ops/op.h"

// Estimated number of elements that the reference kernel reads, computes or
// writes; each takes some nanoseconds. Data may be NULL. An output with unknown
// extents (dims of -1) or dtype NONE counts as much as the inputs.
RABBET_PRIVATE_API double rabbet_op_steps(const rabbet_op_eval_t* eval);

// Whether the steps may far exceed the number of elements.
RABBET_PRIVATE_API bool rabbet_op_is_slow(const rabbet_op_t* op);

// ---- For the descriptors' cost ---------------------------------------------

// Number of elements, as a double to avoid overflow; 0 if an extent is unknown.
double rabbet_cost_count(const rabbet_view_t* view);
// Number of elements of all inputs and outputs, plus 1.
double rabbet_cost_elements(const rabbet_op_eval_t* eval);
// Cost of sorting that many elements.
double rabbet_cost_sorting(const rabbet_op_eval_t* eval);
// Cost of a convolution: each element sums over the kernel's axes except
// `maps`.
double rabbet_cost_kernel(const rabbet_op_eval_t* eval, int32_t maps);
// Input elements along an axis that one interpolated element reads; `mode` is a
// rabbet_interpolation_t.
double rabbet_cost_taps(int64_t mode);

#endif  // RABBET_SRC_OPS_COST_H_
