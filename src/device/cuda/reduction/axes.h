// Axes of a tensor's memory, put in order and merged: what reductions and their
// like walk over.
#ifndef RABBET_SRC_DEVICE_CUDA_REDUCTION_AXES_H_
#define RABBET_SRC_DEVICE_CUDA_REDUCTION_AXES_H_

#include <stdbool.h>
#include <stdint.h>

#include "device/cuda/reduction/axes_params.h"

// From the outermost, by falling strides of operand 0.
typedef struct rabbet_cuda_axes_t {
  int32_t rank;
  int64_t extent[AXES_MOST];
  int64_t stride[AXES_OPERANDS][AXES_MOST];  // elements
} rabbet_cuda_axes_t;

// Puts an axis where its stride belongs; those of one element are left out.
void rabbet_cuda_axes_add(rabbet_cuda_axes_t* axes, int64_t extent,
                          const int64_t strides[AXES_OPERANDS]);
// Merges neighbours that follow one another for the first `operands`.
void rabbet_cuda_axes_merge(rabbet_cuda_axes_t* axes, int operands);
// The product of the extents.
int64_t rabbet_cuda_axes_positions(const rabbet_cuda_axes_t* axes);
// Whether operand 0 has stride 1 on the innermost axis.
bool rabbet_cuda_axes_contiguous(const rabbet_cuda_axes_t* axes);
// Whether steps of `vector` elements along the innermost axis end with it, and
// begin at multiples of `vector` on all others, in the first `operands`.
bool rabbet_cuda_axes_fit(const rabbet_cuda_axes_t* axes, int64_t vector,
                          int operands);
// For kernels; positions of the innermost axis are `vector` elements each.
axes_t rabbet_cuda_axes_pack(const rabbet_cuda_axes_t* axes, int64_t vector);

#endif  // RABBET_SRC_DEVICE_CUDA_REDUCTION_AXES_H_
