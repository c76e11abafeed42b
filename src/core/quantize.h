// Symmetric quantization of weights to INT8.
#ifndef RABBET_SRC_CORE_QUANTIZE_H_
#define RABBET_SRC_CORE_QUANTIZE_H_

#include "rabbet/types.h"

#define RABBET_QUANTIZE_STEPS 127.0f
// Scales have reciprocals.
#define RABBET_QUANTIZE_LEAST_SCALE 1e-30f

// The scale of values in [-range, range].
RABBET_PRIVATE_API float rabbet_quantize_scale(float range);
// Writes a scale for each index of `axis`, from the largest absolute value
// there. False if an element is not finite.
RABBET_PRIVATE_API bool rabbet_quantize_measure(const rabbet_dims_t* dims,
                                                int32_t axis, const float* data,
                                                float* scales);
// Nearest multiples of the scales, ties to even, at most 127 of them.
RABBET_PRIVATE_API void rabbet_quantize_round(const rabbet_dims_t* dims,
                                              int32_t axis, const float* data,
                                              const float* scales, int8_t* out);

#endif  // RABBET_SRC_CORE_QUANTIZE_H_
