// Zeros put around a tensor before a convolution: a part of its padding.

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

// Zeros before and after each axis; false unless the slice does just that.
static rabbet_status_t padding_of(rabbet_ir_t* ir,
                                  const rabbet_ir_node_t* slice,
                                  int64_t pre[RABBET_MAX_RANK],
                                  int64_t post[RABBET_MAX_RANK],
                                  bool* out_is_padding) {
  const rabbet_ir_value_t* in = rabbet_ir_input(ir, slice, 0);
  const rabbet_ir_value_t* out = rabbet_ir_output(ir, slice, 0);
  const rabbet_ir_value_t* fill = rabbet_ir_input(ir, slice, 4);
  int64_t start[RABBET_MAX_RANK], stride[RABBET_MAX_RANK];
  size_t axes = 0;
  int32_t rank = in->shape.rank;
  rabbet_ir_ints(slice, "axes", &axes);
  *out_is_padding = false;
  if (rabbet_ir_int(slice, "mode") != RABBET_SAMPLE_FILL || axes > 0 ||
      rabbet_ir_input(ir, slice, 5) ||
      (fill && !rabbet_ir_is_number(ir, fill, 0)) ||
      !padding_list(ir, slice, 1, "start", rank, 0, start) ||
      !padding_list(ir, slice, 3, "stride", rank, 1, stride))
    return rabbet_ok();
  for (int32_t i = 0; i < rank; ++i) {
    rabbet_expr_t grown = RABBET_EXPR_NONE;
    RABBET_RETURN_IF_ERROR(rabbet_expr_binary(
        ir->graph, RABBET_EXPR_SUB, out->shape.d[i], in->shape.d[i], &grown));
    int64_t growth = 0;
    if (!rabbet_expr_is_constant(ir->graph, grown, &growth) || stride[i] != 1 ||
        start[i] > 0 || growth + start[i] < 0 || (i < 2 && growth != 0))
      return rabbet_ok();
    pre[i] = -start[i];
    post[i] = growth + start[i];
  }
  *out_is_padding = true;
  return rabbet_ok();
}

static rabbet_status_t padding_add(rabbet_build_t* build,
                                   rabbet_ir_node_t* conv, const char* name,
                                   const int64_t* more, int32_t spatial) {
  size_t count = 0;
  const int64_t* old = rabbet_ir_ints(conv, name, &count);
  int64_t sum[RABBET_MAX_RANK];
  assert(spatial >= 1 && spatial <= RABBET_MAX_RANK - 2);
  for (int32_t i = 0; i < spatial; ++i)
    sum[i] = more[i] + ((size_t)i < count ? old[i] : 0);
  return rabbet_ir_set_ints(build, conv, name, sum, (size_t)spatial);
}

rabbet_status_t rabbet_rule_padding(rabbet_build_t* build,
                                    rabbet_ir_node_t* conv, bool* changed) {
  rabbet_ir_t* ir = &build->ir;
  rabbet_ir_node_t* slice = rabbet_ir_sole_producer(
      ir, rabbet_ir_input(ir, conv, 0), RABBET_OP_SLICE);
  int64_t mode = rabbet_ir_int(conv, "padding_mode");
  if (!slice || (mode != RABBET_PADDING_EXPLICIT_ROUND_DOWN &&
                 mode != RABBET_PADDING_EXPLICIT_ROUND_UP))
    return rabbet_ok();
  int64_t pre[RABBET_MAX_RANK], post[RABBET_MAX_RANK];
  bool is_padding = false;
  RABBET_RETURN_IF_ERROR(padding_of(ir, slice, pre, post, &is_padding));
  if (!is_padding) return rabbet_ok();
  // Batches and channels are not padded.
  assert(pre[0] == 0 && pre[1] == 0 && post[0] == 0 && post[1] == 0);
  int32_t spatial = rabbet_ir_input(ir, slice, 0)->shape.rank - 2;
  RABBET_RETURN_IF_ERROR(
      padding_add(build, conv, "pre_padding", pre + 2, spatial));
  RABBET_RETURN_IF_ERROR(
      padding_add(build, conv, "post_padding", post + 2, spatial));
  rabbet_ir_set_input(ir, conv, 0, slice->inputs[0]);
  *changed = true;
  return rabbet_ok();
}
