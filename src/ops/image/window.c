#include "ops/image/window.h"

#include <assert.h>

#include "ops/rules.h"

const rabbet_op_enumerator_t rabbet_padding_modes[] = {
    RABBET_PADDINGS(RABBET_ENUMERATOR){NULL, 0}};

// A bound that keeps all arithmetic on windows far from overflow.
#define RABBET_WINDOW_MAX (INT64_C(1) << 30)

static rabbet_status_t window_list(const rabbet_attr_t* attrs,
                                   size_t attr_count, const char* name,
                                   int32_t spatial, int64_t least,
                                   int64_t fallback, int64_t* out) {
  size_t count = 0;
  const int64_t* values = rabbet_attr_ints(attrs, attr_count, name, &count);
  if (count != 0 && count != (size_t)spatial) {
    return RABBET_OP_INVALID(
        "attribute '%s' has %zu elements; expected %d, one for each spatial "
        "axis",
        name, count, spatial);
  }
  for (int32_t i = 0; i < spatial; ++i) {
    out[i] = count > 0 ? values[i] : fallback;
    if (out[i] >= least && out[i] <= RABBET_WINDOW_MAX) continue;
    return RABBET_OP_INVALID(
        "element %d of attribute '%s' is %lld; expected "
        "%lld or more (and at most 2^30)",
        i, name, (long long)out[i], (long long)least);
  }
  return rabbet_ok();
}

rabbet_status_t rabbet_window_read(const rabbet_attr_t* attrs,
                                   size_t attr_count, int32_t spatial,
                                   const int64_t* size,
                                   rabbet_window_t* out_window) {
  assert(spatial >= 0 && spatial <= RABBET_MAX_RANK);
  rabbet_window_t* w = out_window;
  *w = (rabbet_window_t){.spatial = spatial};
  w->mode = (rabbet_padding_mode_t)rabbet_attr_int(attrs, attr_count,
                                                   "padding_mode", 0);
  for (int32_t i = 0; i < spatial; ++i) {
    w->size[i] = size[i];
    if (size[i] >= 1 && size[i] <= RABBET_WINDOW_MAX) continue;
    return RABBET_OP_INVALID(
        "extent %d of the window is %lld; expected 1 or more (and at most "
        "2^30)",
        i, (long long)size[i]);
  }
  RABBET_RETURN_IF_ERROR(
      window_list(attrs, attr_count, "stride_nd", spatial, 1, 1, w->stride));
  RABBET_RETURN_IF_ERROR(window_list(attrs, attr_count, "dilation_nd", spatial,
                                     1, 1, w->dilation));
  RABBET_RETURN_IF_ERROR(
      window_list(attrs, attr_count, "pre_padding", spatial, 0, 0, w->pre));
  RABBET_RETURN_IF_ERROR(
      window_list(attrs, attr_count, "post_padding", spatial, 0, 0, w->post));
  return window_list(attrs, attr_count, "output_padding", spatial, 0, 0,
                     w->extra);
}

// The extent that the window covers, gaps of the dilation included.
static int64_t window_cover(const rabbet_window_t* w, int32_t i) {
  assert(i < w->spatial && w->size[i] >= 1 && w->dilation[i] >= 1);
  return w->dilation[i] * (w->size[i] - 1) + 1;
}

static bool window_is_same(const rabbet_window_t* w) {
  return w->mode == RABBET_PADDING_SAME_UPPER ||
         w->mode == RABBET_PADDING_SAME_LOWER;
}

static rabbet_status_t window_extent(const rabbet_op_infer_t* infer,
                                     const rabbet_window_t* w, int32_t i,
                                     rabbet_expr_t in, rabbet_expr_t* out) {
  if (window_is_same(w)) {
    return rabbet_op_with_constant(infer, RABBET_EXPR_CEIL_DIV, in,
                                   w->stride[i], out);
  }
  // ROUND_UP adds up to a stride less one, so that a window may be larger than
  // the input with its padding.
  bool up = w->mode == RABBET_PADDING_EXPLICIT_ROUND_UP;
  int64_t padding = w->pre[i] + w->post[i] + (up ? w->stride[i] - 1 : 0);
  int64_t cover = window_cover(w, i), extent = 0;
  if (rabbet_op_is_constant(infer, in, &extent) && extent < cover - padding) {
    return RABBET_OP_INVALID(
        "spatial axis %d has %lld elements and %lld of padding, less than the "
        "%lld that the window covers",
        i, (long long)extent, (long long)padding, (long long)cover);
  }
  int64_t added = padding - cover;
  RABBET_RETURN_IF_ERROR(
      added < 0
          ? rabbet_op_with_constant(infer, RABBET_EXPR_SUB, in, -added, out)
          : rabbet_op_with_constant(infer, RABBET_EXPR_SUM, in, added, out));
  RABBET_RETURN_IF_ERROR(rabbet_op_with_constant(infer, RABBET_EXPR_FLOOR_DIV,
                                                 *out, w->stride[i], out));
  return rabbet_op_with_constant(infer, RABBET_EXPR_SUM, *out, 1, out);
}

rabbet_status_t rabbet_window_infer(const rabbet_op_infer_t* infer,
                                    const rabbet_window_t* window,
                                    const rabbet_expr_t* in,
                                    rabbet_expr_t* out) {
  for (int32_t i = 0; i < window->spatial; ++i) {
    RABBET_RETURN_IF_ERROR(window_extent(infer, window, i, in[i], &out[i]));
  }
  return rabbet_ok();
}

void rabbet_window_pads(const rabbet_window_t* w, const int64_t* in,
                        const int64_t* out, int64_t* out_pre,
                        int64_t* out_post) {
  for (int32_t i = 0; i < w->spatial; ++i) {
    int64_t total = (out[i] - 1) * w->stride[i] + window_cover(w, i) - in[i];
    if (window_is_same(w)) {
      int64_t padded = total > 0 ? total : 0;
      bool upper = w->mode == RABBET_PADDING_SAME_UPPER;
      out_pre[i] = upper ? padded / 2 : padded - padded / 2;
    } else {
      out_pre[i] = w->pre[i];
    }
    out_post[i] = total - out_pre[i];
  }
}

// ---- Over the output --------------------------------------------------------

static rabbet_status_t window_extent_transposed(const rabbet_op_infer_t* infer,
                                                const rabbet_window_t* w,
                                                int32_t i, rabbet_expr_t in,
                                                rabbet_expr_t* out) {
  int64_t added =
      window_cover(w, i) - w->stride[i] + w->extra[i] - w->pre[i] - w->post[i];
  int64_t extent = 0;
  RABBET_RETURN_IF_ERROR(
      rabbet_op_with_constant(infer, RABBET_EXPR_PROD, in, w->stride[i], out));
  if (window_is_same(w)) return rabbet_ok();
  if (rabbet_op_is_constant(infer, *out, &extent) && extent + added < 0) {
    return RABBET_OP_INVALID(
        "spatial axis %d would have %lld elements without padding, less than "
        "the %lld of 'pre_padding' and 'post_padding' that are cut off",
        i, (long long)(extent + added + w->pre[i] + w->post[i]),
        (long long)(w->pre[i] + w->post[i]));
  }
  return added < 0 ? rabbet_op_with_constant(infer, RABBET_EXPR_SUB, *out,
                                             -added, out)
                   : rabbet_op_with_constant(infer, RABBET_EXPR_SUM, *out,
                                             added, out);
}

rabbet_status_t rabbet_window_infer_transposed(const rabbet_op_infer_t* infer,
                                               const rabbet_window_t* window,
                                               const rabbet_expr_t* in,
                                               rabbet_expr_t* out) {
  for (int32_t i = 0; i < window->spatial; ++i) {
    RABBET_RETURN_IF_ERROR(
        window_extent_transposed(infer, window, i, in[i], &out[i]));
  }
  return rabbet_ok();
}

void rabbet_window_pads_transposed(const rabbet_window_t* w, const int64_t* in,
                                   const int64_t* out, int64_t* out_pre,
                                   int64_t* out_post) {
  for (int32_t i = 0; i < w->spatial; ++i) {
    int64_t cover = window_cover(w, i);
    int64_t total = cover - w->stride[i] + w->extra[i];
    out_pre[i] = w->pre[i];
    if (window_is_same(w)) {
      int64_t cut = total > 0 ? total : 0;
      bool upper = w->mode == RABBET_PADDING_SAME_UPPER;
      out_pre[i] = upper ? cut / 2 : cut - cut / 2;
    }
    // Each padding in [post, post + stride - 1] gives the extent: the one
    // nearest to 0 is taken.
    int64_t post = (in[i] - 1) * w->stride[i] + cover - out_pre[i] - out[i];
    int64_t most = post + w->stride[i] - 1;
    out_post[i] = post >= 0 ? post : most < 0 ? most : 0;
  }
}
