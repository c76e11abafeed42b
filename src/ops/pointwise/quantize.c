// Quantization to 8 bits and its inverse: x = (q - zero_point) * scale.
//
// Scale and zero point are one number, one for each index of `axis` (rank 1),
// or have the input's rank and one number for each block of `block_shape`.
// Without `block_shape` the extents give the blocks: an extent of 1 in the
// scale makes the whole axis one block. Both operators compute in FLOAT for all
// floating types, and round once.
#include <math.h>

#include "core/view.h"
#include "ops/pointwise/blocks.h"
#include "ops/rules.h"
#include "ops/walk.h"

enum { INPUT = 0, SCALE = 1, ZERO_POINT = 2 };

#define SCALES (RABBET_T_NARROW_FLOATS | RABBET_T(E8M0))
#define QUANTIZED (RABBET_T(INT8) | RABBET_T(UINT8) | RABBET_T(FP8))
// Types of 4 bits are read, but not written.
#define DEQUANTIZED (QUANTIZED | RABBET_T(INT4) | RABBET_T(FP4) | RABBET_T(NF4))

static bool quantize_present(const rabbet_op_infer_t* infer, size_t index) {
  return index < infer->input_count && infer->inputs[index].present;
}

// ---- Types -----------------------------------------------------------------

static rabbet_status_t quantize_infer_types(const rabbet_op_infer_t* infer) {
  rabbet_dtype_t to = (rabbet_dtype_t)RABBET_OP_INT(infer, "to_type");
  infer->outputs[0].dtype = to;
  if (!quantize_present(infer, ZERO_POINT) ||
      infer->inputs[ZERO_POINT].dtype == to)
    return rabbet_ok();
  return RABBET_OP_INVALID(
      "input 2 ('zero_point') is %s and the output is %s; they must be equal",
      rabbet_dtype_name(infer->inputs[ZERO_POINT].dtype),
      rabbet_dtype_name(to));
}

// Biases are stored as INT32.
static rabbet_status_t dequantize_infer_types(const rabbet_op_infer_t* infer) {
  infer->outputs[0].dtype = (rabbet_dtype_t)RABBET_OP_INT(infer, "to_type");
  if (!quantize_present(infer, ZERO_POINT) ||
      infer->inputs[ZERO_POINT].dtype == infer->inputs[INPUT].dtype)
    return rabbet_ok();
  return RABBET_OP_INVALID(
      "input 2 ('zero_point') is %s and input 0 is %s; they must be equal",
      rabbet_dtype_name(infer->inputs[ZERO_POINT].dtype),
      rabbet_dtype_name(infer->inputs[INPUT].dtype));
}

// ---- Shapes ----------------------------------------------------------------

// Whether the extents of scales or zero points divide those of the input, so
// that all blocks have one size.
static bool quantize_fits(const rabbet_op_infer_t* infer,
                          const rabbet_shape_t* given, int32_t axis) {
  const rabbet_shape_t* x = &infer->inputs[INPUT].shape;
  rabbet_expr_t ignored = RABBET_EXPR_NONE;
  if (given->rank == 0) return true;
  if (given->rank == 1 && rabbet_op_equals(infer, given->d[0], 1)) return true;
  if (given->rank == 1 && x->rank != 1)
    return rabbet_op_same_dim(infer, given->d[0], x->d[axis], &ignored);
  bool fits = given->rank == x->rank;
  for (int32_t i = 0; fits && i < x->rank; ++i) {
    int64_t all = 0, scales = 0;
    bool known = rabbet_op_is_constant(infer, x->d[i], &all) &&
                 rabbet_op_is_constant(infer, given->d[i], &scales);
    fits = rabbet_op_same_dim(infer, given->d[i], x->d[i], &ignored) ||
           (known && scales > 0 && all % scales == 0);
  }
  return fits;
}

// Checks scales or zero points against the sizes of blocks that `block_shape`
// gives.
static rabbet_status_t quantize_check_blocks(const rabbet_op_infer_t* infer,
                                             size_t index,
                                             const int64_t* blocks,
                                             size_t count) {
  const rabbet_shape_t* x = &infer->inputs[INPUT].shape;
  const rabbet_shape_t* given = &infer->inputs[index].shape;
  rabbet_shape_t wanted;
  rabbet_expr_t ignored = RABBET_EXPR_NONE;
  RABBET_RETURN_IF_ERROR(rabbet_blocks_check(blocks, count, x->rank));
  RABBET_RETURN_IF_ERROR(rabbet_blocks_infer(infer, x, blocks, &wanted));
  bool fits = given->rank == x->rank;
  for (int32_t i = 0; fits && i < x->rank; ++i)
    fits = rabbet_op_same_dim(infer, given->d[i], wanted.d[i], &ignored);
  if (fits) return rabbet_ok();
  char a[RABBET_OP_TEXT], b[RABBET_OP_TEXT], c[RABBET_OP_TEXT];
  return RABBET_OP_INVALID(
      "input %zu ('%s') has shape %s; for input 0 of shape %s and the blocks "
      "of "
      "attribute 'block_shape' it must have shape %s",
      index, infer->op->inputs[index].name,
      rabbet_op_shape_text(infer, given, a), rabbet_op_shape_text(infer, x, b),
      rabbet_op_shape_text(infer, &wanted, c));
}

static rabbet_status_t quantize_check(const rabbet_op_infer_t* infer,
                                      size_t index) {
  const rabbet_shape_t* x = &infer->inputs[INPUT].shape;
  int32_t axis = 0;
  size_t count = 0;
  const int64_t* blocks = RABBET_OP_INTS(infer, "block_shape", &count);
  if (!quantize_present(infer, index)) return rabbet_ok();
  if (count > 0) return quantize_check_blocks(infer, index, blocks, count);
  const rabbet_shape_t* given = &infer->inputs[index].shape;
  if (given->rank == 1 && x->rank > 1 &&
      !rabbet_op_equals(infer, given->d[0], 1))
    RABBET_RETURN_IF_ERROR(
        rabbet_op_axis("axis", RABBET_OP_INT(infer, "axis"), x->rank, &axis));
  if (quantize_fits(infer, given, axis)) return rabbet_ok();
  char a[RABBET_OP_TEXT], b[RABBET_OP_TEXT];
  return RABBET_OP_INVALID(
      "input %zu ('%s') has shape %s; for input 0 of shape %s it must hold one "
      "number, one for each index of axis %lld, or have that rank and divide "
      "each axis into whole blocks",
      index, infer->op->inputs[index].name,
      rabbet_op_shape_text(infer, given, a), rabbet_op_shape_text(infer, x, b),
      (long long)RABBET_OP_INT(infer, "axis"));
}

static rabbet_status_t quantize_infer_shapes(const rabbet_op_infer_t* infer) {
  RABBET_RETURN_IF_ERROR(quantize_check(infer, SCALE));
  RABBET_RETURN_IF_ERROR(quantize_check(infer, ZERO_POINT));
  return rabbet_op_same_shape(infer);
}

// ---- Reference -------------------------------------------------------------

// The position of an element's scale or zero point: index i of an axis is in
// block i / block. If no axis is cut into several blocks of several elements,
// strides alone give the position.
typedef struct quantize_places_t {
  bool is_cut;
  int64_t blocks[RABBET_MAX_RANK];
  int64_t strides[RABBET_MAX_RANK];
} quantize_places_t;

// Gives a scale or zero point of lower rank the input's rank.
static rabbet_status_t quantize_widen(const rabbet_op_eval_t* eval,
                                      rabbet_dims_t* dims) {
  int32_t axis = 0, rank = eval->inputs[INPUT].dims.rank;
  int64_t count = rabbet_count_of(dims);
  if (dims->rank > 1 || dims->rank == rank) return rabbet_ok();
  if (count != 1)
    RABBET_RETURN_IF_ERROR(
        rabbet_op_axis("axis", RABBET_OP_INT(eval, "axis"), rank, &axis));
  dims->rank = rank;
  for (int32_t i = 0; i < rank; ++i)
    dims->d[i] = i == axis ? count : 1;
  return rabbet_ok();
}

static rabbet_status_t quantize_find(const rabbet_op_eval_t* eval, size_t index,
                                     quantize_places_t* out_places) {
  const rabbet_dims_t* x = &eval->inputs[INPUT].dims;
  rabbet_dims_t dims = eval->inputs[index].dims, blocks, wanted;
  size_t count = 0;
  const int64_t* given = RABBET_OP_INTS(eval, "block_shape", &count);
  int64_t extents[RABBET_MAX_RANK];
  RABBET_RETURN_IF_ERROR(quantize_widen(eval, &dims));
  for (int32_t i = 0; i < x->rank; ++i) {
    int64_t scales = i < dims.rank ? dims.d[i] : 0;
    bool whole = scales > 0 && x->d[i] % scales == 0;
    extents[i] = count == (size_t)x->rank ? given[i]
                 : scales == 1            ? -1
                 : whole                  ? x->d[i] / scales
                                          : 1;
  }
  rabbet_blocks_count(x, extents, &blocks, &wanted);
  RABBET_RETURN_IF_ERROR(
      rabbet_check_dims(eval->op->inputs[index].name, &dims, &wanted));
  rabbet_row_major(&dims, out_places->strides);
  out_places->is_cut = false;
  for (int32_t i = 0; i < x->rank; ++i) {
    out_places->blocks[i] = blocks.d[i];
    if (wanted.d[i] == 1)
      out_places->strides[i] = 0;
    else if (blocks.d[i] > 1)
      out_places->is_cut = true;
  }
  return rabbet_ok();
}

static int64_t quantize_place(const quantize_places_t* places,
                              const rabbet_walk_t* walk, int operand) {
  int64_t place = 0;
  if (!places->is_cut) return walk->offsets[operand];
  for (int32_t i = 0; i < walk->dims.rank; ++i)
    place += walk->at[i] / places->blocks[i] * places->strides[i];
  return place;
}

static double quantize_load(const rabbet_view_t* view, int64_t at) {
  return rabbet_load_double(view->dtype, view->data, at);
}

// A call as the kernel sees it.
typedef struct quantize_call_t {
  bool shifts;
  quantize_places_t scale, zero_point;
} quantize_call_t;

static rabbet_status_t quantize_begin(const rabbet_op_eval_t* eval,
                                      quantize_call_t* out_call,
                                      rabbet_walk_t* out_walk) {
  rabbet_walk_initialize(&eval->inputs[INPUT].dims, out_walk);
  out_call->shifts = eval->input_count > ZERO_POINT &&
                     eval->inputs[ZERO_POINT].dtype != RABBET_DTYPE_NONE;
  RABBET_RETURN_IF_ERROR(quantize_find(eval, SCALE, &out_call->scale));
  rabbet_walk_add(out_walk, out_call->scale.strides, 0);
  if (!out_call->shifts) return rabbet_ok();
  RABBET_RETURN_IF_ERROR(
      quantize_find(eval, ZERO_POINT, &out_call->zero_point));
  rabbet_walk_add(out_walk, out_call->zero_point.strides, 0);
  return rabbet_ok();
}

static rabbet_status_t quantize_reference(const rabbet_op_eval_t* eval) {
  const rabbet_view_t* in = eval->inputs;
  const rabbet_view_t* y = &eval->outputs[0];
  bool is_whole = y->dtype != RABBET_DTYPE_FP8;
  quantize_call_t call;
  rabbet_walk_t walk;
  RABBET_RETURN_IF_ERROR(quantize_begin(eval, &call, &walk));
  for (; !walk.done; rabbet_walk_next(&walk)) {
    float value =
        (float)quantize_load(&in[INPUT], walk.linear) /
        (float)quantize_load(&in[SCALE], quantize_place(&call.scale, &walk, 0));
    if (is_whole) value = nearbyintf(value);
    if (call.shifts)
      value += (float)quantize_load(&in[ZERO_POINT],
                                    quantize_place(&call.zero_point, &walk, 1));
    rabbet_store_double(y->dtype, y->data, walk.linear, value);
  }
  return rabbet_ok();
}

static rabbet_status_t dequantize_reference(const rabbet_op_eval_t* eval) {
  const rabbet_view_t* in = eval->inputs;
  const rabbet_view_t* y = &eval->outputs[0];
  quantize_call_t call;
  rabbet_walk_t walk;
  RABBET_RETURN_IF_ERROR(quantize_begin(eval, &call, &walk));
  for (; !walk.done; rabbet_walk_next(&walk)) {
    double value = quantize_load(&in[INPUT], walk.linear);
    if (call.shifts)
      value -= quantize_load(&in[ZERO_POINT],
                             quantize_place(&call.zero_point, &walk, 1));
    float scale =
        (float)quantize_load(&in[SCALE], quantize_place(&call.scale, &walk, 0));
    rabbet_store_double(y->dtype, y->data, walk.linear, (float)value * scale);
  }
  return rabbet_ok();
}

// ---- The descriptors -------------------------------------------------------

static const rabbet_op_enumerator_t quantized_types[] = {
    {"INT8", RABBET_DTYPE_INT8},
    {"UINT8", RABBET_DTYPE_UINT8},
    {"FP8", RABBET_DTYPE_FP8},
    {NULL, 0},
};
static const rabbet_op_enumerator_t real_types[] = {
    {"FLOAT", RABBET_DTYPE_FLOAT},
    {"HALF", RABBET_DTYPE_HALF},
    {"BF16", RABBET_DTYPE_BF16},
    {NULL, 0},
};

static const rabbet_op_operand_t quantize_inputs[] = {
    {"input", 0, RABBET_T_NARROW_FLOATS},
    {"scale", 0, SCALES},
    {"zero_point", RABBET_OPERAND_OPTIONAL, QUANTIZED},
};
static const rabbet_op_operand_t quantize_outputs[] = {
    {"output", 0, QUANTIZED}};
static const rabbet_op_attr_t quantize_attrs[] = {
    {"axis", RABBET_ATTR_INT, false, -1, 0, NULL},
    {"to_type", RABBET_ATTR_INT, false, RABBET_DTYPE_INT8, 0, quantized_types},
    {"block_shape", RABBET_ATTR_INTS, false, 0, 0, NULL},
};

const rabbet_op_t rabbet_op_quantize = {
    .name = "quantize",
    .layer_type = "QUANTIZE",
    .flags = RABBET_OP_POINTWISE,
    .inputs = quantize_inputs,
    .input_count = RABBET_OP_COUNT_OF(quantize_inputs),
    .outputs = quantize_outputs,
    .output_count = RABBET_OP_COUNT_OF(quantize_outputs),
    .attrs = quantize_attrs,
    .attr_count = RABBET_OP_COUNT_OF(quantize_attrs),
    .infer_types = quantize_infer_types,
    .infer_shapes = quantize_infer_shapes,
    .reference = quantize_reference,
};

static const rabbet_op_operand_t dequantize_inputs[] = {
    {"input", 0, DEQUANTIZED | RABBET_T(INT32)},
    {"scale", 0, SCALES},
    {"zero_point", RABBET_OPERAND_OPTIONAL, DEQUANTIZED | RABBET_T(INT32)},
};
static const rabbet_op_operand_t dequantize_outputs[] = {
    {"output", 0, RABBET_T_NARROW_FLOATS}};
static const rabbet_op_attr_t dequantize_attrs[] = {
    {"axis", RABBET_ATTR_INT, false, -1, 0, NULL},
    {"to_type", RABBET_ATTR_INT, false, RABBET_DTYPE_FLOAT, 0, real_types},
    {"block_shape", RABBET_ATTR_INTS, false, 0, 0, NULL},
};

const rabbet_op_t rabbet_op_dequantize = {
    .name = "dequantize",
    .layer_type = "DEQUANTIZE",
    .flags = RABBET_OP_POINTWISE | RABBET_OP_FOLD_LATE,
    .inputs = dequantize_inputs,
    .input_count = RABBET_OP_COUNT_OF(dequantize_inputs),
    .outputs = dequantize_outputs,
    .output_count = RABBET_OP_COUNT_OF(dequantize_outputs),
    .attrs = dequantize_attrs,
    .attr_count = RABBET_OP_COUNT_OF(dequantize_attrs),
    .infer_types = dequantize_infer_types,
    .infer_shapes = quantize_infer_shapes,
    .reference = dequantize_reference,
};
