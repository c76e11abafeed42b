#include "ops/pointwise/blocks.h"

#include "ops/rules.h"

rabbet_status_t rabbet_blocks_check(const int64_t* shape, size_t count,
                                    int32_t rank) {
  bool fits = count == (size_t)rank;
  for (size_t i = 0; fits && i < count; ++i)
    fits = shape[i] == -1 || shape[i] >= 1;
  if (fits) return rabbet_ok();
  rabbet_dims_t dims = {.rank = 0};
  for (size_t i = 0; i < count && i < RABBET_MAX_RANK; ++i)
    dims.d[dims.rank++] = shape[i];
  char text[128];
  return RABBET_OP_INVALID(
      "attribute 'block_shape' is %s; expected an extent for each of the %d "
      "axes of input 0, 1 or more, or -1 for the whole axis",
      rabbet_dims_print(&dims, text, sizeof(text)), rank);
}

rabbet_status_t rabbet_blocks_infer(const rabbet_op_infer_t* infer,
                                    const rabbet_shape_t* x,
                                    const int64_t* extents,
                                    rabbet_shape_t* out_scales) {
  *out_scales = *x;
  for (int32_t i = 0; i < x->rank; ++i) {
    if (extents[i] == 1) continue;
    if (extents[i] < 0)
      RABBET_RETURN_IF_ERROR(
          rabbet_expr_constant(infer->graph, 1, &out_scales->d[i]));
    else
      RABBET_RETURN_IF_ERROR(rabbet_op_with_constant(
          infer, RABBET_EXPR_CEIL_DIV, x->d[i], extents[i], &out_scales->d[i]));
  }
  return rabbet_ok();
}

void rabbet_blocks_count(const rabbet_dims_t* x, const int64_t* extents,
                         rabbet_dims_t* out_blocks, rabbet_dims_t* out_scales) {
  *out_blocks = *out_scales = *x;
  for (int32_t i = 0; i < x->rank; ++i) {
    int64_t extent = extents[i] < 0 ? x->d[i] : extents[i];
    if (extent < 1) extent = 1;
    out_blocks->d[i] = extent;
    out_scales->d[i] =
        extents[i] < 0 ? 1 : x->d[i] / extent + (x->d[i] % extent != 0);
  }
}
