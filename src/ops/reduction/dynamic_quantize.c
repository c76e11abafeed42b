// Quantization with scales that are computed from the input: one for each
// block, so that the block's largest absolute value becomes the type's largest.
//
//   scale  = largest / limit (/ double_quant_scale), rounded to its type
//   output = clamp(round(input / (scale * double_quant_scale)))
// with a limit of 127 for INT8 and 448 for FP8. A scale of E8M0 is rounded up
// to a power of two. Where the scale is 0 all elements become 0. Everything is
// computed in FLOAT.
#include <math.h>

#include "core/view.h"
#include "ops/pointwise/blocks.h"
#include "ops/rules.h"
#include "ops/walk.h"

enum { INPUT = 0, FACTOR = 1 };

// ---- Blocks ----------------------------------------------------------------

rabbet_status_t rabbet_dynamic_quantize_blocks(
    const rabbet_attr_t* attrs, size_t attr_count, int32_t rank,
    int64_t out_extents[RABBET_MAX_RANK]) {
  size_t count = 0;
  const int64_t* shape =
      rabbet_attr_ints(attrs, attr_count, "block_shape", &count);
  int64_t size = rabbet_attr_int(attrs, attr_count, "block_size", 0);
  if (count > 0) {
    RABBET_RETURN_IF_ERROR(rabbet_blocks_check(shape, count, rank));
    for (int32_t i = 0; i < rank; ++i)
      out_extents[i] = shape[i];
    return rabbet_ok();
  }
  int32_t axis = 0;
  RABBET_RETURN_IF_ERROR(rabbet_op_axis(
      "axis", rabbet_attr_int(attrs, attr_count, "axis", -1), rank, &axis));
  if (size < 1 && size != -1)
    return RABBET_OP_INVALID(
        "attribute 'block_size' is %lld; expected the number of elements along "
        "the axis that share a scale, -1 for all, or a 'block_shape' instead",
        (long long)size);
  for (int32_t i = 0; i < rank; ++i)
    out_extents[i] = i == axis ? size : 1;
  return rabbet_ok();
}

// ---- Types and shapes ------------------------------------------------------

static rabbet_status_t dynamic_infer_types(const rabbet_op_infer_t* infer) {
  infer->outputs[0].dtype = (rabbet_dtype_t)RABBET_OP_INT(infer, "to_type");
  infer->outputs[1].dtype = (rabbet_dtype_t)RABBET_OP_INT(infer, "scale_type");
  return rabbet_ok();
}

static rabbet_status_t dynamic_infer_shapes(const rabbet_op_infer_t* infer) {
  const rabbet_shape_t* x = &infer->inputs[INPUT].shape;
  int64_t extents[RABBET_MAX_RANK];
  if (x->rank == 0)
    return RABBET_OP_INVALID("input 0 is a scalar; blocks need an axis");
  RABBET_RETURN_IF_ERROR(rabbet_dynamic_quantize_blocks(
      infer->attrs, infer->attr_count, x->rank, extents));
  if (infer->input_count > FACTOR && infer->inputs[FACTOR].present) {
    const rabbet_shape_t* factor = &infer->inputs[FACTOR].shape;
    char text[RABBET_OP_TEXT];
    if (factor->rank > 1 ||
        (factor->rank == 1 && !rabbet_op_equals(infer, factor->d[0], 1)))
      return RABBET_OP_INVALID(
          "input 1 ('double_quant_scale') has shape %s; expected one number",
          rabbet_op_shape_text(infer, factor, text));
  }
  infer->outputs[0].shape = *x;
  return rabbet_blocks_infer(infer, x, extents, &infer->outputs[1].shape);
}

// ---- Reference -------------------------------------------------------------

float rabbet_dynamic_quantize_scale(rabbet_dtype_t to, rabbet_dtype_t kept,
                                    float most, float factor,
                                    float* out_stored) {
  float scale = most / rabbet_dynamic_quantize_limit(to) / factor;
  char stored[8];
  if (kept == RABBET_DTYPE_E8M0 && scale > 0 && isfinite(scale)) {
    int exponent = 0;
    float part = frexpf(scale, &exponent);  // [0.5, 1)
    scale = ldexpf(1.0f, part > 0.5f ? exponent : exponent - 1);
    if (scale < 0x1p-127f) scale = 0x1p-127f;
  }
  rabbet_store_double(kept, stored, 0, scale);
  *out_stored = (float)rabbet_load_double(kept, stored, 0);
  return *out_stored * factor;
}

typedef struct dynamic_block_t {
  rabbet_dims_t dims;
  int64_t first;
  int64_t strides[RABBET_MAX_RANK];
} dynamic_block_t;

static float dynamic_most(const rabbet_view_t* x,
                          const dynamic_block_t* block) {
  float most = 0;
  rabbet_walk_t walk;
  rabbet_walk_initialize(&block->dims, &walk);
  rabbet_walk_add(&walk, block->strides, block->first);
  for (; !walk.done; rabbet_walk_next(&walk)) {
    float a =
        fabsf((float)rabbet_load_double(x->dtype, x->data, walk.offsets[0]));
    if (a > most) most = a;
  }
  return most;
}

static void dynamic_store(const rabbet_view_t* x, const rabbet_view_t* y,
                          const dynamic_block_t* block, float scale) {
  rabbet_walk_t walk;
  rabbet_walk_initialize(&block->dims, &walk);
  rabbet_walk_add(&walk, block->strides, block->first);
  for (; !walk.done; rabbet_walk_next(&walk)) {
    float value = (float)rabbet_load_double(x->dtype, x->data, walk.offsets[0]);
    value = scale == 0 ? 0 : value / scale;
    if (y->dtype != RABBET_DTYPE_FP8) value = nearbyintf(value);
    rabbet_store_double(y->dtype, y->data, walk.offsets[0], value);
  }
}

static rabbet_status_t dynamic_reference(const rabbet_op_eval_t* eval) {
  const rabbet_view_t *x = &eval->inputs[INPUT], *y = &eval->outputs[0];
  const rabbet_view_t* scales = &eval->outputs[1];
  int64_t extents[RABBET_MAX_RANK];
  rabbet_dims_t blocks, counts;
  dynamic_block_t block = {.first = 0};
  float factor = 1;
  RABBET_RETURN_IF_ERROR(rabbet_dynamic_quantize_blocks(
      eval->attrs, eval->attr_count, x->dims.rank, extents));
  rabbet_blocks_count(&x->dims, extents, &blocks, &counts);
  rabbet_row_major(&x->dims, block.strides);
  if (eval->input_count > FACTOR &&
      eval->inputs[FACTOR].dtype != RABBET_DTYPE_NONE)
    factor = (float)rabbet_load_double(eval->inputs[FACTOR].dtype,
                                       eval->inputs[FACTOR].data, 0);
  rabbet_walk_t walk;
  rabbet_walk_initialize(&counts, &walk);
  for (; !walk.done; rabbet_walk_next(&walk)) {
    block.dims = x->dims;
    block.first = 0;
    for (int32_t i = 0; i < x->dims.rank; ++i) {
      int64_t at = walk.at[i] * blocks.d[i], left = x->dims.d[i] - at;
      block.dims.d[i] = left < blocks.d[i] ? left : blocks.d[i];
      block.first += at * block.strides[i];
    }
    float stored = 0;
    float scale = rabbet_dynamic_quantize_scale(
        y->dtype, scales->dtype, dynamic_most(x, &block), factor, &stored);
    rabbet_store_double(scales->dtype, scales->data, walk.linear, stored);
    dynamic_store(x, y, &block, scale);
  }
  return rabbet_ok();
}

// ---- The descriptor --------------------------------------------------------

static const rabbet_op_enumerator_t dynamic_types[] = {
    {"INT8", RABBET_DTYPE_INT8},
    {"FP8", RABBET_DTYPE_FP8},
    {NULL, 0},
};
static const rabbet_op_enumerator_t dynamic_scale_types[] = {
    {"FLOAT", RABBET_DTYPE_FLOAT}, {"HALF", RABBET_DTYPE_HALF},
    {"BF16", RABBET_DTYPE_BF16},   {"FP8", RABBET_DTYPE_FP8},
    {"E8M0", RABBET_DTYPE_E8M0},   {NULL, 0},
};
static const rabbet_op_operand_t dynamic_inputs[] = {
    {"input", 0, RABBET_T_NARROW_FLOATS},
    {"double_quant_scale", RABBET_OPERAND_OPTIONAL, RABBET_T_NARROW_FLOATS},
};
static const rabbet_op_operand_t dynamic_outputs[] = {
    {"output", 0, RABBET_T(INT8) | RABBET_T(FP8)},
    {"scale", 0, RABBET_T_NARROW_FLOATS | RABBET_T(FP8) | RABBET_T(E8M0)},
};
static const rabbet_op_attr_t dynamic_attrs[] = {
    {"axis", RABBET_ATTR_INT, false, -1, 0, NULL},
    {"block_size", RABBET_ATTR_INT, false, 0, 0, NULL},
    {"block_shape", RABBET_ATTR_INTS, false, 0, 0, NULL},
    {"to_type", RABBET_ATTR_INT, false, RABBET_DTYPE_INT8, 0, dynamic_types},
    {"scale_type", RABBET_ATTR_INT, false, RABBET_DTYPE_FLOAT, 0,
     dynamic_scale_types},
};

const rabbet_op_t rabbet_op_dynamic_quantize = {
    .name = "dynamic_quantize",
    .layer_type = "DYNAMIC_QUANTIZE",
    .inputs = dynamic_inputs,
    .input_count = RABBET_OP_COUNT_OF(dynamic_inputs),
    .outputs = dynamic_outputs,
    .output_count = RABBET_OP_COUNT_OF(dynamic_outputs),
    .attrs = dynamic_attrs,
    .attr_count = RABBET_OP_COUNT_OF(dynamic_attrs),
    .infer_types = dynamic_infer_types,
    .infer_shapes = dynamic_infer_shapes,
    .reference = dynamic_reference,
};
