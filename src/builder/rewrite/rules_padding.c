// Zeros put around a tensor before a convolution are a part of its padding;
// ends cut off its result are padding that was too long: causal convolutions
// are written so.

#include <assert.h>

#include "builder/ir/passes.h"
#include "core/view.h"
#include "ops/enums.h"
#include "ops/movement/slice.h"

// Elements of a list that is an attribute or a constant input.
static bool padding_list(const rabbet_ir_t* ir, const rabbet_ir_node_t* slice,
                         size_t input, const char* name, int32_t rank,
                         int64_t fallback, int64_t out[RABBET_MAX_RANK]) {
  size_t count = 0;
  const int64_t* list = rabbet_ir_ints(slice, name, &count);
  const rabbet_ir_value_t* value = rabbet_ir_input(ir, slice, input);
  if (!value && count == 0) {
    for (int32_t i = 0; i < rank; ++i)
      out[i] = fallback;
    return true;
  }
  if (value) {
    rabbet_dims_t dims = rabbet_ir_dims(ir, value);
    if (!value->constant || dims.rank != 1 || dims.d[0] != rank) return false;
  } else if (count != (size_t)rank) {
    return false;
  }
  for (int32_t i = 0; i < rank; ++i)
    out[i] =
        value ? rabbet_load_int64(value->dtype, value->constant, i) : list[i];
  return true;
}

// Elements that the slice adds before and after each axis; negative ones are
// cut off. False unless the slice does just that.
static rabbet_status_t padding_of(rabbet_ir_t* ir,
                                  const rabbet_ir_node_t* slice,
                                  int64_t pre[RABBET_MAX_RANK],
                                  int64_t post[RABBET_MAX_RANK],
                                  bool* out_is_padding) {
  const rabbet_ir_value_t* in = rabbet_ir_input(ir, slice, 0);
  const rabbet_ir_value_t* out = rabbet_ir_output(ir, slice, 0);
  int64_t start[RABBET_MAX_RANK], stride[RABBET_MAX_RANK];
  size_t axes = 0;
  int32_t rank = in->shape.rank;
  rabbet_ir_ints(slice, "axes", &axes);
  *out_is_padding = false;
  if (axes > 0 || rabbet_ir_input(ir, slice, 5) ||
      !padding_list(ir, slice, 1, "start", rank, 0, start) ||
      !padding_list(ir, slice, 3, "stride", rank, 1, stride))
    return rabbet_ok();
  for (int32_t i = 0; i < rank; ++i) {
    rabbet_expr_t grown = RABBET_EXPR_NONE;
    RABBET_RETURN_IF_ERROR(rabbet_expr_binary(
        ir->graph, RABBET_EXPR_SUB, out->shape.d[i], in->shape.d[i], &grown));
    int64_t growth = 0;
    if (!rabbet_expr_is_constant(ir->graph, grown, &growth) || stride[i] != 1 ||
        (i < 2 && (growth != 0 || start[i] != 0)))
      return rabbet_ok();
    pre[i] = -start[i];
    post[i] = growth + start[i];
  }
  *out_is_padding = true;
  return rabbet_ok();
}

// The sums of an attribute of the convolution and `more`, once or for each step
// of its windows; false if one is below zero.
static bool padding_sum(const rabbet_ir_node_t* conv, const char* name,
                        const int64_t* more, bool by_stride, int32_t spatial,
                        int64_t out[RABBET_MAX_RANK]) {
  size_t count = 0, strides = 0;
  const int64_t* old = rabbet_ir_ints(conv, name, &count);
  const int64_t* stride = rabbet_ir_ints(conv, "stride_nd", &strides);
  assert(spatial >= 1 && spatial <= RABBET_MAX_RANK - 2);
  for (int32_t i = 0; i < spatial; ++i) {
    int64_t step = by_stride && (size_t)i < strides ? stride[i] : 1, own = 0;
    if (__builtin_mul_overflow(more[i], step, &own) ||
        __builtin_add_overflow(own, (size_t)i < count ? old[i] : 0, &out[i]) ||
        out[i] < 0)
      return false;
  }
  return true;
}

static rabbet_status_t padding_set(rabbet_build_t* build,
                                   rabbet_ir_node_t* conv, const int64_t* pre,
                                   const int64_t* post, int32_t spatial) {
  RABBET_RETURN_IF_ERROR(
      rabbet_ir_set_ints(build, conv, "pre_padding", pre, (size_t)spatial));
  return rabbet_ir_set_ints(build, conv, "post_padding", post, (size_t)spatial);
}

rabbet_status_t rabbet_rule_padding(rabbet_build_t* build,
                                    rabbet_ir_node_t* conv, bool* changed) {
  rabbet_ir_t* ir = &build->ir;
  rabbet_ir_node_t* slice = rabbet_ir_sole_producer(
      ir, rabbet_ir_input(ir, conv, 0), RABBET_OP_SLICE);
  int64_t mode = rabbet_ir_int(conv, "padding_mode");
  if (!slice || rabbet_ir_int(slice, "mode") != RABBET_SAMPLE_FILL ||
      (mode != RABBET_PADDING_EXPLICIT_ROUND_DOWN &&
       mode != RABBET_PADDING_EXPLICIT_ROUND_UP))
    return rabbet_ok();
  const rabbet_ir_value_t* fill = rabbet_ir_input(ir, slice, 4);
  int64_t pre[RABBET_MAX_RANK], post[RABBET_MAX_RANK];
  bool is_padding = false;
  if (fill && !rabbet_ir_is_number(ir, fill, 0)) return rabbet_ok();
  RABBET_RETURN_IF_ERROR(padding_of(ir, slice, pre, post, &is_padding));
  int32_t rank = rabbet_ir_input(ir, slice, 0)->shape.rank;
  for (int32_t i = 0; i < rank && is_padding; ++i)
    is_padding = pre[i] >= 0 && post[i] >= 0;
  int64_t before[RABBET_MAX_RANK], after[RABBET_MAX_RANK];
  if (!is_padding ||
      !padding_sum(conv, "pre_padding", pre + 2, false, rank - 2, before) ||
      !padding_sum(conv, "post_padding", post + 2, false, rank - 2, after))
    return rabbet_ok();
  RABBET_RETURN_IF_ERROR(padding_set(build, conv, before, after, rank - 2));
  rabbet_ir_set_input(ir, conv, 0, slice->inputs[0]);
  *changed = true;
  return rabbet_ok();
}

rabbet_status_t rabbet_rule_cropped_convolution(rabbet_build_t* build,
                                                rabbet_ir_node_t* slice,
                                                bool* changed) {
  rabbet_ir_t* ir = &build->ir;
  rabbet_ir_node_t* conv = rabbet_ir_sole_producer(
      ir, rabbet_ir_input(ir, slice, 0), RABBET_OP_CONVOLUTION);
  // Rounding up, the last window may begin before what is cut off ends.
  if (!conv ||
      rabbet_ir_int(conv, "padding_mode") != RABBET_PADDING_EXPLICIT_ROUND_DOWN)
    return rabbet_ok();
  int64_t pre[RABBET_MAX_RANK], post[RABBET_MAX_RANK];
  bool is_crop = false;
  RABBET_RETURN_IF_ERROR(padding_of(ir, slice, pre, post, &is_crop));
  rabbet_ir_value_t* whole = rabbet_ir_output(ir, conv, 0);
  rabbet_ir_value_t* cut = rabbet_ir_output(ir, slice, 0);
  int32_t rank = whole->shape.rank;
  for (int32_t i = 0; i < rank && is_crop; ++i)
    is_crop = pre[i] <= 0 && post[i] <= 0;
  int64_t before[RABBET_MAX_RANK], after[RABBET_MAX_RANK];
  if (!is_crop || !rabbet_ir_can_replace(cut, whole) ||
      !padding_sum(conv, "pre_padding", pre + 2, true, rank - 2, before) ||
      !padding_sum(conv, "post_padding", post + 2, true, rank - 2, after))
    return rabbet_ok();
  RABBET_RETURN_IF_ERROR(padding_set(build, conv, before, after, rank - 2));
  whole->shape = cut->shape;
  rabbet_ir_replace_uses(ir, cut, whole);
  rabbet_ir_kill(ir, slice);
  *changed = true;
  return rabbet_ok();
}
