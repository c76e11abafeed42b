// Ordered and merged axes (device/common/axes.h) for kernels.
#ifndef RABBET_SRC_DEVICE_CUDA_REDUCTION_AXES_H_
#define RABBET_SRC_DEVICE_CUDA_REDUCTION_AXES_H_

#include "device/common/axes.h"
#include "device/cuda/reduction/axes_params.h"

// Whether the innermost axis is a multiple of `vector` elements, and all other
// strides of the first `operands` operands are, too.
bool rabbet_cuda_axes_fit(const rabbet_axes_t* axes, int64_t vector,
                          int operands);
// The axes for kernels, at most AXES_MOST. A position of the innermost axis is
// `vector` elements.
axes_t rabbet_cuda_axes_pack(const rabbet_axes_t* axes, int64_t vector);

#endif  // RABBET_SRC_DEVICE_CUDA_REDUCTION_AXES_H_
