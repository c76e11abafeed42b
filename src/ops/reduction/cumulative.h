// The axis of cumulative, for its reference and for devices' kernels.
#ifndef RABBET_SRC_OPS_REDUCTION_CUMULATIVE_H_
#define RABBET_SRC_OPS_REDUCTION_CUMULATIVE_H_

#include "ops/op.h"

// The axis of the sums, in [0, rank): from input 1 if it is present.
RABBET_PRIVATE_API int32_t rabbet_cumulative_axis(const rabbet_op_eval_t* eval);

#endif  // RABBET_SRC_OPS_REDUCTION_CUMULATIVE_H_
