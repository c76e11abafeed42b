// Common parts of convolution and deconvolution: operands, and rules for their
// types, ranks and bias.
#ifndef RABBET_SRC_OPS_IMAGE_CONVOLUTION_H_
#define RABBET_SRC_OPS_IMAGE_CONVOLUTION_H_

#include "ops/group.h"
#include "ops/op.h"

enum {
  RABBET_CONVOLUTION_INPUT = 0,
  RABBET_CONVOLUTION_KERNEL = 1,
  RABBET_CONVOLUTION_BIAS = 2,
  RABBET_CONVOLUTION_INPUTS = 3,
};

extern const rabbet_op_operand_t
    rabbet_convolution_inputs[RABBET_CONVOLUTION_INPUTS];

rabbet_status_t rabbet_convolution_infer_types(const rabbet_op_infer_t* infer);

// The shape of the kernel, which must be known and have the input's rank, 3 to
// 5. `axes` names its axes in the message.
rabbet_status_t rabbet_convolution_infer_kernel(const rabbet_op_infer_t* infer,
                                                const char* axes,
                                                rabbet_dims_t* out_kernel);
// The bias is absent or has one element for each map.
rabbet_status_t rabbet_convolution_check_bias(const rabbet_op_infer_t* infer,
                                              int64_t maps);
// Whether the filter is a constant of whole numbers, as in ConvInteger: direct
// sums of whole numbers are exact, and those of Winograd's algorithm are not.
RABBET_PRIVATE_API bool rabbet_convolution_is_whole(
    const rabbet_group_t* group, const rabbet_group_node_t* node);
// NULL if there is none.
const rabbet_view_t* rabbet_convolution_bias(const rabbet_op_eval_t* eval);

#endif  // RABBET_SRC_OPS_IMAGE_CONVOLUTION_H_
