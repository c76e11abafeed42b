// Windows that slide over the spatial axes (2, 3, ...): convolution, pooling,
// and deconvolution, whose window slides over the output.
#ifndef RABBET_SRC_OPS_IMAGE_WINDOW_H_
#define RABBET_SRC_OPS_IMAGE_WINDOW_H_

#include "ops/enums.h"
#include "ops/op.h"

extern const rabbet_op_enumerator_t rabbet_padding_modes[];

// Arrays have one element for each spatial axis.
typedef struct rabbet_window_t {
  int32_t spatial;  // number of spatial axes: rank - 2
  rabbet_padding_mode_t mode;
  int64_t size[RABBET_MAX_RANK];
  int64_t stride[RABBET_MAX_RANK];
  int64_t dilation[RABBET_MAX_RANK];
  int64_t pre[RABBET_MAX_RANK];  // as given; SAME modes ignore them
  int64_t post[RABBET_MAX_RANK];
  int64_t extra[RABBET_MAX_RANK];  // deconvolution: added after the output
} rabbet_window_t;

// Reads stride_nd, dilation_nd and output_padding (if the operator has them),
// pre_padding, post_padding and padding_mode; empty lists stand for ones and
// zeros. `size` has one element for each spatial axis. Errors name the
// attribute.
RABBET_PRIVATE_API rabbet_status_t rabbet_window_read(
    const rabbet_attr_t* attrs, size_t attr_count, int32_t spatial,
    const int64_t* size, rabbet_window_t* out_window);
// Output extents of spatial axes.
rabbet_status_t rabbet_window_infer(const rabbet_op_infer_t* infer,
                                    const rabbet_window_t* window,
                                    const rabbet_expr_t* in,
                                    rabbet_expr_t* out);
// For known extents: padding before the first and after the last element. Post
// may exceed the given padding (ROUND_UP) or be negative (elements not
// reached).
RABBET_PRIVATE_API void rabbet_window_pads(const rabbet_window_t* window,
                                           const int64_t* in,
                                           const int64_t* out, int64_t* out_pre,
                                           int64_t* out_post);

// The same two for a deconvolution: `in` and `out` are its own, the padding is
// that of the window over its output (of which it cuts so many elements off);
// post is negative only where the output's end is beyond all windows.
rabbet_status_t rabbet_window_infer_transposed(const rabbet_op_infer_t* infer,
                                               const rabbet_window_t* window,
                                               const rabbet_expr_t* in,
                                               rabbet_expr_t* out);
RABBET_PRIVATE_API void rabbet_window_pads_transposed(
    const rabbet_window_t* window, const int64_t* in, const int64_t* out,
    int64_t* out_pre, int64_t* out_post);

#endif  // RABBET_SRC_OPS_IMAGE_WINDOW_H_
