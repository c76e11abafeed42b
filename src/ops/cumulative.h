// Shared with the devices.
#ifndef RABBET_SRC_OPS_CUMULATIVE_H_
#define RABBET_SRC_OPS_CUMULATIVE_H_

#include "ops/op.h"

// The axis that sums run along, in [0, rank): input 1's if it is there.
RABBET_PRIVATE_API int32_t rabbet_cumulative_axis(const rabbet_op_eval_t* eval);

#endif  // RABBET_SRC_OPS_CUMULATIVE_H_
