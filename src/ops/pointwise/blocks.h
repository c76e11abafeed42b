// Blocks of elements that share a quantization scale: boxes of one shape that
// tile a tensor. The last block along an axis may be shorter.
#ifndef RABBET_SRC_OPS_POINTWISE_BLOCKS_H_
#define RABBET_SRC_OPS_POINTWISE_BLOCKS_H_

#include "ops/op.h"

// Extents of a block of a tensor of rank `rank` as attributes give them, -1 for
// the whole axis: `shape` has an entry for each axis, at least 1 or -1. Errors
// name the attribute.
RABBET_PRIVATE_API rabbet_status_t rabbet_blocks_check(const int64_t* shape,
                                                       size_t count,
                                                       int32_t rank);
// The number of blocks along each axis, which is the shape of the scales.
// `extents` has an entry for each axis.
RABBET_PRIVATE_API rabbet_status_t
rabbet_blocks_infer(const rabbet_op_infer_t* infer, const rabbet_shape_t* x,
                    const int64_t* extents, rabbet_shape_t* out_scales);
// The same for known dims; out_blocks has no -1.
RABBET_PRIVATE_API void rabbet_blocks_count(const rabbet_dims_t* x,
                                            const int64_t* extents,
                                            rabbet_dims_t* out_blocks,
                                            rabbet_dims_t* out_scales);

// Extents of a block from dynamic_quantize's attributes.
RABBET_PRIVATE_API rabbet_status_t rabbet_dynamic_quantize_blocks(
    const rabbet_attr_t* attrs, size_t attr_count, int32_t rank,
    int64_t out_extents[RABBET_MAX_RANK]);
// The scale by which a block's elements are divided; `most`, their largest
// absolute value, is not NaN. *out_stored is the scale as stored. `factor` is 1
// if there is no second scale.
static inline float rabbet_dynamic_quantize_limit(rabbet_dtype_t to) {
  return to == RABBET_DTYPE_FP8 ? 448.0f : 127.0f;
}
RABBET_PRIVATE_API float rabbet_dynamic_quantize_scale(rabbet_dtype_t to,
                                                       rabbet_dtype_t kept,
                                                       float most, float factor,
                                                       float* out_stored);

#endif  // RABBET_SRC_OPS_POINTWISE_BLOCKS_H_
