// A strided window into a tensor; the mode gives the elements outside.
#include "ops/movement/slice.h"

#include <assert.h>

#include "ops/rules.h"
#include "ops/walk.h"

enum { DATA = 0, START = 1, SHAPE = 2, STRIDE = 3, FILL = 4, AXES = 5 };

static const rabbet_op_enumerator_t slice_modes[] = {
    RABBET_SAMPLES(RABBET_ENUMERATOR){NULL, 0}};

// ---- Inference -------------------------------------------------------------

static bool slice_has(const rabbet_op_infer_t* infer, size_t index) {
  return index < infer->input_count && infer->inputs[index].present;
}

// Start, shape, stride or axes as expressions, from the input or the attribute;
// *out_count 0 when neither is given.
static rabbet_status_t slice_list(const rabbet_op_infer_t* infer, size_t index,
                                  const char* name,
                                  const rabbet_expr_t** out_values,
                                  size_t* out_count) {
  *out_values = NULL;
  *out_count = 0;
  if (slice_has(infer, index)) {
    return rabbet_op_operand_values(infer, index, out_values, out_count);
  }
  const int64_t* ints = RABBET_OP_INTS(infer, name, out_count);
  rabbet_expr_t* values = NULL;
  RABBET_RETURN_IF_ERROR(rabbet_op_new_values(infer, *out_count, &values));
  for (size_t i = 0; i < *out_count; ++i) {
    RABBET_RETURN_IF_ERROR(
        rabbet_expr_constant(infer->graph, ints[i], &values[i]));
  }
  *out_values = values;
  return rabbet_ok();
}

// axes[i] is the axis of the i-th start, size and stride.
static rabbet_status_t slice_axes(const rabbet_op_infer_t* infer,
                                  int32_t axes[RABBET_MAX_RANK],
                                  size_t* out_count) {
  const rabbet_expr_t* values = NULL;
  int32_t rank = infer->inputs[DATA].shape.rank;
  RABBET_RETURN_IF_ERROR(slice_list(infer, AXES, "axes", &values, out_count));
  if (*out_count > (size_t)rank) {
    return RABBET_OP_INVALID("'axes' lists %zu axes of a tensor of rank %d",
                             *out_count, rank);
  }
  uint32_t seen = 0;
  for (size_t i = 0; i < *out_count; ++i) {
    int64_t axis = 0;
    if (!rabbet_op_is_constant(infer, values[i], &axis)) {
      return RABBET_OP_INVALID("'axes' must be constant");
    }
    RABBET_RETURN_IF_ERROR(rabbet_op_axis("axes", axis, rank, &axes[i]));
    if (seen & 1u << axes[i]) {
      return RABBET_OP_INVALID("'axes' lists axis %d twice", axes[i]);
    }
    seen |= 1u << axes[i];
  }
  if (*out_count > 0 || slice_has(infer, AXES)) return rabbet_ok();
  for (int32_t i = 0; i < rank; ++i) {
    axes[i] = i;
  }
  *out_count = (size_t)rank;
  return rabbet_ok();
}

static rabbet_status_t slice_check_length(const char* name, size_t length,
                                          size_t expected, bool optional) {
  if (length == expected || (optional && length == 0)) return rabbet_ok();
  return RABBET_OP_INVALID(
      "'%s' has %zu elements; expected %zu, one for each axis that is sliced",
      name, length, expected);
}

// STRICT_BOUNDS where everything on the axis is constant; otherwise the kernel
// checks.
static rabbet_status_t slice_check_bounds(const rabbet_op_infer_t* infer,
                                          int32_t axis, rabbet_expr_t start,
                                          rabbet_expr_t size,
                                          rabbet_expr_t stride) {
  int64_t first = 0, count = 0, step = 0, extent = 0;
  if (RABBET_OP_INT(infer, "mode") != RABBET_SAMPLE_STRICT_BOUNDS ||
      !rabbet_op_is_constant(infer, start, &first) ||
      !rabbet_op_is_constant(infer, size, &count) ||
      !rabbet_op_is_constant(infer, stride, &step) ||
      !rabbet_op_is_constant(infer, infer->inputs[DATA].shape.d[axis],
                             &extent) ||
      count <= 0) {
    return rabbet_ok();
  }
  int64_t last = 0;
  bool fits = !__builtin_mul_overflow(count - 1, step, &last) &&
              !__builtin_add_overflow(last, first, &last) && first >= 0 &&
              first < extent && last >= 0 && last < extent;
  if (fits) return rabbet_ok();
  return RABBET_OP_INVALID(
      "start %lld, shape %lld, stride %lld leave the bounds of axis %d, which "
      "has %lld elements (another 'mode' says what lies outside)",
      (long long)first, (long long)count, (long long)step, axis,
      (long long)extent);
}

static rabbet_status_t slice_check_fill(const rabbet_op_infer_t* infer) {
  if (!slice_has(infer, FILL)) return rabbet_ok();
  if (infer->inputs[FILL].dtype != infer->inputs[DATA].dtype) {
    return RABBET_OP_INVALID(
        "input 4 ('fill_value') has type %s, but input 0 ('input') has type %s",
        rabbet_dtype_name(infer->inputs[FILL].dtype),
        rabbet_dtype_name(infer->inputs[DATA].dtype));
  }
  return rabbet_ok();
}

static rabbet_status_t slice_check_fill_shape(const rabbet_op_infer_t* infer) {
  if (!slice_has(infer, FILL) ||
      rabbet_op_constant_count(infer, &infer->inputs[FILL].shape) == 1)
    return rabbet_ok();
  char text[RABBET_OP_TEXT];
  return RABBET_OP_INVALID(
      "input 4 ('fill_value') has shape %s; expected one element",
      rabbet_op_shape_text(infer, &infer->inputs[FILL].shape, text));
}

static rabbet_status_t slice_infer_types(const rabbet_op_infer_t* infer) {
  infer->outputs[0].dtype = infer->inputs[DATA].dtype;
  return slice_check_fill(infer);
}

static rabbet_status_t slice_infer_shapes(const rabbet_op_infer_t* infer) {
  const rabbet_expr_t *start = NULL, *shape = NULL, *stride = NULL;
  size_t starts = 0, shapes = 0, strides = 0, count = 0;
  int32_t axes[RABBET_MAX_RANK] = {0};
  rabbet_expr_t one = RABBET_EXPR_NONE;
  RABBET_RETURN_IF_ERROR(slice_check_fill_shape(infer));
  RABBET_RETURN_IF_ERROR(slice_axes(infer, axes, &count));
  RABBET_RETURN_IF_ERROR(slice_list(infer, START, "start", &start, &starts));
  RABBET_RETURN_IF_ERROR(slice_list(infer, SHAPE, "shape", &shape, &shapes));
  RABBET_RETURN_IF_ERROR(
      slice_list(infer, STRIDE, "stride", &stride, &strides));
  RABBET_RETURN_IF_ERROR(slice_check_length("start", starts, count, false));
  RABBET_RETURN_IF_ERROR(slice_check_length("shape", shapes, count, false));
  RABBET_RETURN_IF_ERROR(slice_check_length("stride", strides, count, true));
  RABBET_RETURN_IF_ERROR(rabbet_expr_constant(infer->graph, 1, &one));
  infer->outputs[0].shape = infer->inputs[DATA].shape;
  for (size_t i = 0; i < count; ++i) {
    RABBET_RETURN_IF_ERROR(slice_check_bounds(
        infer, axes[i], start[i], shape[i], strides ? stride[i] : one));
    infer->outputs[0].shape.d[axes[i]] = shape[i];
  }
  return rabbet_ok();
}

// ---- Reference -------------------------------------------------------------

// An element of start, stride or axes when the kernel runs.
static int64_t slice_element(const rabbet_op_eval_t* eval, size_t index,
                             const char* name, size_t i, int64_t fallback) {
  if (index < eval->input_count &&
      eval->inputs[index].dtype != RABBET_DTYPE_NONE) {
    const rabbet_view_t* view = &eval->inputs[index];
    return rabbet_load_int64(view->dtype, view->data, (int64_t)i);
  }
  size_t count = 0;
  const int64_t* ints = RABBET_OP_INTS(eval, name, &count);
  return i < count ? ints[i] : fallback;
}

static size_t slice_axis_count(const rabbet_op_eval_t* eval, int32_t rank) {
  if (AXES < eval->input_count &&
      eval->inputs[AXES].dtype != RABBET_DTYPE_NONE) {
    return (size_t)rabbet_count_of(&eval->inputs[AXES].dims);
  }
  size_t count = 0;
  (void)RABBET_OP_INTS(eval, "axes", &count);
  return count > 0 ? count : (size_t)rank;
}

static rabbet_status_t slice_check_axis(const rabbet_slice_t* slice,
                                        int32_t axis, int64_t extent,
                                        int64_t count) {
  if (count == 0) return rabbet_ok();
  int64_t first = slice->start[axis], last = 0;
  bool sums = !__builtin_mul_overflow(count - 1, slice->stride[axis], &last) &&
              !__builtin_add_overflow(last, first, &last);
  bool fits = sums;
  if (slice->mode == RABBET_SAMPLE_STRICT_BOUNDS) {
    fits = fits && first >= 0 && first < extent && last >= 0 && last < extent;
  } else if (slice->mode != RABBET_SAMPLE_FILL) {
    fits = fits && extent > 0;
  }
  if (fits) return rabbet_ok();
  return RABBET_STATUS(
      RABBET_STATUS_OUT_OF_RANGE,
      "start %lld, shape %lld, stride %lld leave the bounds of axis %d, which "
      "has %lld elements",
      (long long)first, (long long)count, (long long)slice->stride[axis], axis,
      (long long)extent);
}

rabbet_status_t rabbet_slice_resolve(const rabbet_op_eval_t* eval,
                                     rabbet_slice_t* out_slice) {
  const rabbet_dims_t* in = &eval->inputs[DATA].dims;
  const rabbet_dims_t* out = &eval->outputs[0].dims;
  rabbet_slice_t slice = {.rank = in->rank};
  slice.mode = (rabbet_sample_mode_t)RABBET_OP_INT(eval, "mode");
  for (int32_t i = 0; i < in->rank; ++i) {
    slice.stride[i] = 1;
  }
  size_t count = slice_axis_count(eval, in->rank);
  for (size_t i = 0; i < count; ++i) {
    int32_t axis = 0;
    RABBET_RETURN_IF_ERROR(
        rabbet_op_axis("axes", slice_element(eval, AXES, "axes", i, (int64_t)i),
                       in->rank, &axis));
    slice.start[axis] = slice_element(eval, START, "start", i, 0);
    slice.stride[axis] = slice_element(eval, STRIDE, "stride", i, 1);
  }
  // An empty slice reads nothing outside of the input, whatever its start and
  // stride.
  bool empty = rabbet_count_of(out) == 0;
  for (int32_t i = 0; i < in->rank && !empty; ++i) {
    RABBET_RETURN_IF_ERROR(slice_check_axis(&slice, i, in->d[i], out->d[i]));
  }
  *out_slice = slice;
  return rabbet_ok();
}

// False: the fill value.
static bool slice_locate(const rabbet_slice_t* slice, const rabbet_dims_t* in,
                         const int64_t* strides, const int64_t* at,
                         int64_t* out_offset) {
  *out_offset = 0;
  for (int32_t i = 0; i < slice->rank; ++i) {
    int64_t position = rabbet_slice_position(
        slice->mode, slice->start[i] + at[i] * slice->stride[i], in->d[i]);
    if (position < 0) return false;
    assert(position < in->d[i]);
    *out_offset += position * strides[i];
  }
  return true;
}

static rabbet_status_t slice_reference(const rabbet_op_eval_t* eval) {
  const rabbet_view_t* x = &eval->inputs[DATA];
  const rabbet_view_t* y = &eval->outputs[0];
  rabbet_slice_t slice;
  RABBET_RETURN_IF_ERROR(rabbet_slice_resolve(eval, &slice));
  static const int64_t zero = 0;
  bool has_fill =
      FILL < eval->input_count && eval->inputs[FILL].dtype != RABBET_DTYPE_NONE;
  const void* fill = has_fill ? eval->inputs[FILL].data : &zero;
  size_t size = rabbet_element_size(y->dtype);
  int64_t strides[RABBET_MAX_RANK];
  rabbet_row_major(&x->dims, strides);
  rabbet_walk_t walk;
  rabbet_walk_initialize(&y->dims, &walk);
  for (; !walk.done; rabbet_walk_next(&walk)) {
    int64_t from = 0;
    bool inside = slice_locate(&slice, &x->dims, strides, walk.at, &from);
    rabbet_copy_element(y->data, walk.linear, inside ? x->data : fill,
                        inside ? from : 0, size);
  }
  return rabbet_ok();
}

static const rabbet_op_operand_t slice_inputs[] = {
    {"input", 0, RABBET_T_ANY},
    {"start", RABBET_OPERAND_OPTIONAL | RABBET_OPERAND_SHAPE, RABBET_T_INDICES},
    {"shape", RABBET_OPERAND_OPTIONAL | RABBET_OPERAND_SHAPE, RABBET_T_INDICES},
    {"stride", RABBET_OPERAND_OPTIONAL | RABBET_OPERAND_SHAPE,
     RABBET_T_INDICES},
    {"fill_value", RABBET_OPERAND_OPTIONAL, RABBET_T_ANY},
    {"axes", RABBET_OPERAND_OPTIONAL | RABBET_OPERAND_SHAPE, RABBET_T_INDICES},
};
static const rabbet_op_operand_t slice_outputs[] = {
    {"output", 0, RABBET_T_ANY}};
static const rabbet_op_attr_t slice_attrs[] = {
    {"start", RABBET_ATTR_INTS, false, 0, 0, NULL},
    {"shape", RABBET_ATTR_INTS, false, 0, 0, NULL},
    {"stride", RABBET_ATTR_INTS, false, 0, 0, NULL},
    {"mode", RABBET_ATTR_INT, false, RABBET_SAMPLE_STRICT_BOUNDS, 0,
     slice_modes},
    {"axes", RABBET_ATTR_INTS, false, 0, 0, NULL},
};

const rabbet_op_t rabbet_op_slice = {
    .name = "slice",
    .layer_type = "SLICE",
    .flags = RABBET_OP_MOVES_DATA,
    .inputs = slice_inputs,
    .input_count = RABBET_OP_COUNT_OF(slice_inputs),
    .outputs = slice_outputs,
    .output_count = RABBET_OP_COUNT_OF(slice_outputs),
    .attrs = slice_attrs,
    .attr_count = RABBET_OP_COUNT_OF(slice_attrs),
    .infer_types = slice_infer_types,
    .infer_shapes = slice_infer_shapes,
    .reference = slice_reference,
};
