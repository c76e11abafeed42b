// Ordered and merged axes (device/common/axes.h) for kernels.
#ifndef RABBET_SRC_DEVICE_CUDA_REDUCTION_AXES_H_
#define RABBET_SRC_DEVICE_CUDA_REDUCTION_AXES_H_

#include "device/common/axes.h"
#include "device/cuda/reduction/axes_params.h"

// Whether steps of `vector` elements along the innermost axis end with it, and
// begin at multiples of `vector` on all others, in the first `operands`.
bool rabbet_cuda_axes_fit(const rabbet_axes_t* axes, int64_t vector,
                          int operands);
// As kernels take them, at most AXES_MOST; positions of the innermost axis are
// `vector` elements each.
axes_t rabbet_cuda_axes_pack(const rabbet_axes_t* axes, int64_t vector);

#endif  // RABBET_SRC_DEVICE_CUDA_REDUCTION_AXES_H_
