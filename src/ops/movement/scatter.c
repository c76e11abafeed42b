// Elements put into a copy of a tensor at the positions of indices. Negative
// indices count from the end; an index that is still out of bounds is skipped.
//
//  ELEMENT: output[.., indices[.., i, ..], ..] = updates[.., i, ..] along an
//  axis. ND: the last axis of indices holds positions in the first axes of the
//  data; updates are the elements there.
//
// Of several updates of one element the last counts, or the reduction joins
// all.
#include <string.h>

#include "ops/movement/scatter.h"
#include "ops/rules.h"
#include "ops/walk.h"

enum { DATA = 0, INDICES = 1, UPDATES = 2 };

static const rabbet_op_enumerator_t scatter_modes[] = {
    RABBET_SCATTERS(RABBET_ENUMERATOR){NULL, 0}};
static const rabbet_op_enumerator_t scatter_reductions[] = {
    RABBET_SCATTER_REDUCTIONS(RABBET_ENUMERATOR){NULL, 0}};

static rabbet_status_t scatter_infer_types(const rabbet_op_infer_t* infer) {
  rabbet_dtype_t dtype = infer->inputs[DATA].dtype;
  int64_t reduction = RABBET_OP_INT(infer, "reduction");
  infer->outputs[0].dtype = dtype;
  if (infer->inputs[UPDATES].dtype != dtype)
    return RABBET_OP_INVALID(
        "input 2 ('updates') has type %s, but input 0 ('data') has type %s",
        rabbet_dtype_name(infer->inputs[UPDATES].dtype),
        rabbet_dtype_name(dtype));
  if (reduction == RABBET_SCATTER_REDUCTION_NONE ||
      (RABBET_T_NUMBERS & 1u << dtype) != 0)
    return rabbet_ok();
  return RABBET_OP_INVALID("elements of %s cannot be reduced by %s",
                           rabbet_dtype_name(dtype),
                           scatter_reductions[reduction].name);
}

static rabbet_status_t scatter_invalid(const rabbet_op_infer_t* infer,
                                       const char* rule) {
  char a[RABBET_OP_TEXT], b[RABBET_OP_TEXT], c[RABBET_OP_TEXT];
  return RABBET_OP_INVALID(
      "input 'data' has shape %s, 'indices' %s and 'updates' %s; mode %s needs "
      "%s",
      rabbet_op_shape_text(infer, &infer->inputs[DATA].shape, a),
      rabbet_op_shape_text(infer, &infer->inputs[INDICES].shape, b),
      rabbet_op_shape_text(infer, &infer->inputs[UPDATES].shape, c),
      scatter_modes[RABBET_OP_INT(infer, "mode")].name, rule);
}

static rabbet_status_t scatter_element(const rabbet_op_infer_t* infer) {
  const rabbet_shape_t* data = &infer->inputs[DATA].shape;
  const rabbet_shape_t* indices = &infer->inputs[INDICES].shape;
  const rabbet_shape_t* updates = &infer->inputs[UPDATES].shape;
  int32_t axis = 0;
  rabbet_expr_t dim = RABBET_EXPR_NONE;
  RABBET_RETURN_IF_ERROR(
      rabbet_op_axis("axis", RABBET_OP_INT(infer, "axis"), data->rank, &axis));
  bool fits = indices->rank == data->rank && updates->rank == data->rank;
  for (int32_t i = 0; fits && i < data->rank; ++i) {
    int64_t most = 0, given = 0;
    fits = rabbet_op_same_dim(infer, indices->d[i], updates->d[i], &dim);
    if (i != axis && rabbet_op_is_constant(infer, data->d[i], &most) &&
        rabbet_op_is_constant(infer, indices->d[i], &given))
      fits = fits && given <= most;
  }
  return fits ? rabbet_ok()
              : scatter_invalid(infer,
                                "indices and updates of one shape, which does "
                                "not exceed the data's on other axes");
}

static rabbet_status_t scatter_nd(const rabbet_op_infer_t* infer) {
  const rabbet_shape_t* data = &infer->inputs[DATA].shape;
  const rabbet_shape_t* indices = &infer->inputs[INDICES].shape;
  const rabbet_shape_t* updates = &infer->inputs[UPDATES].shape;
  int64_t depth = 0;
  rabbet_expr_t dim = RABBET_EXPR_NONE;
  if (indices->rank < 1 ||
      !rabbet_op_is_constant(infer, indices->d[indices->rank - 1], &depth) ||
      depth < 1 || depth > data->rank)
    return scatter_invalid(infer,
                           "the indices' last dimension to be constant, at "
                           "least 1 and at most the rank of the data");
  int32_t outer = indices->rank - 1, inner = data->rank - (int32_t)depth;
  bool fits = updates->rank == outer + inner;
  for (int32_t i = 0; fits && i < updates->rank; ++i)
    fits = rabbet_op_same_dim(
        infer, updates->d[i],
        i < outer ? indices->d[i] : data->d[(int32_t)depth + i - outer], &dim);
  return fits ? rabbet_ok()
              : scatter_invalid(infer,
                                "updates of the shape of the indices without "
                                "their last axis, then of the data's axes that "
                                "they leave");
}

static rabbet_status_t scatter_infer_shapes(const rabbet_op_infer_t* infer) {
  infer->outputs[0].shape = infer->inputs[DATA].shape;
  if (infer->inputs[DATA].shape.rank == 0)
    return scatter_invalid(infer, "data that has an axis");
  return RABBET_OP_INT(infer, "mode") == RABBET_SCATTER_ND
             ? scatter_nd(infer)
             : scatter_element(infer);
}

// ---- Reference -------------------------------------------------------------

static void scatter_put(const rabbet_view_t* y, int64_t at,
                        const rabbet_view_t* updates, int64_t from,
                        int64_t reduction) {
  rabbet_dtype_t dtype = y->dtype;
  if (reduction == RABBET_SCATTER_REDUCTION_NONE)
    rabbet_copy_element(y->data, at, updates->data, from,
                        rabbet_element_size(dtype));
  else if (rabbet_dtype_is_integer(dtype))
    rabbet_store_int64(dtype, y->data, at,
                       rabbet_scatter_join_int64(
                           reduction, rabbet_load_int64(dtype, y->data, at),
                           rabbet_load_int64(dtype, updates->data, from)));
  else
    rabbet_store_double(
        dtype, y->data, at,
        rabbet_scatter_join(reduction, rabbet_load_double(dtype, y->data, at),
                            rabbet_load_double(dtype, updates->data, from)));
}

// Adds an index's offset; false: out of bounds.
static bool scatter_move(const rabbet_view_t* indices, int64_t at,
                         int64_t extent, int64_t stride, int64_t* offset) {
  int64_t index = rabbet_load_int64(indices->dtype, indices->data, at);
  if (index < 0) index += extent;
  if (index < 0 || index >= extent) return false;
  *offset += index * stride;
  return true;
}

static bool scatter_find_element(const rabbet_op_eval_t* eval, int32_t axis,
                                 const rabbet_walk_t* walk,
                                 const int64_t* strides, int64_t* offset) {
  const rabbet_dims_t* data = &eval->inputs[DATA].dims;
  *offset = 0;
  for (int32_t i = 0; i < data->rank; ++i) {
    if (i == axis) continue;
    if (walk->at[i] >= data->d[i]) return false;
    *offset += walk->at[i] * strides[i];
  }
  return scatter_move(&eval->inputs[INDICES], walk->linear, data->d[axis],
                      strides[axis], offset);
}

static bool scatter_find_nd(const rabbet_op_eval_t* eval, int64_t row,
                            int64_t in_row, const int64_t* strides,
                            int64_t* offset) {
  const rabbet_view_t* indices = &eval->inputs[INDICES];
  int64_t depth = indices->dims.d[indices->dims.rank - 1];
  *offset = in_row;
  for (int64_t k = 0; k < depth; ++k)
    if (!scatter_move(indices, row * depth + k, eval->inputs[DATA].dims.d[k],
                      strides[k], offset))
      return false;
  return true;
}

static rabbet_status_t scatter_check(const rabbet_op_eval_t* eval) {
  const rabbet_dims_t* updates = &eval->inputs[UPDATES].dims;
  rabbet_dims_t expected = eval->inputs[INDICES].dims;
  if (RABBET_OP_INT(eval, "mode") == RABBET_SCATTER_ND) {
    int32_t depth = (int32_t)expected.d[--expected.rank];
    const rabbet_dims_t* data = &eval->inputs[DATA].dims;
    for (int32_t i = depth; i < data->rank; ++i)
      expected.d[expected.rank++] = data->d[i];
  }
  return rabbet_check_dims("updates", updates, &expected);
}

static rabbet_status_t scatter_reference(const rabbet_op_eval_t* eval) {
  const rabbet_view_t *x = &eval->inputs[DATA], *y = &eval->outputs[0];
  const rabbet_view_t* updates = &eval->inputs[UPDATES];
  int64_t strides[RABBET_MAX_RANK], row = 1;
  int64_t reduction = RABBET_OP_INT(eval, "reduction");
  bool nd = RABBET_OP_INT(eval, "mode") == RABBET_SCATTER_ND;
  int32_t axis = 0;
  RABBET_RETURN_IF_ERROR(scatter_check(eval));
  if (!nd)
    RABBET_RETURN_IF_ERROR(rabbet_op_axis("axis", RABBET_OP_INT(eval, "axis"),
                                          x->dims.rank, &axis));
  rabbet_row_major(&x->dims, strides);
  if (y->data != x->data)
    memcpy(y->data, x->data,
           (size_t)rabbet_count_of(&x->dims) * rabbet_element_size(x->dtype));
  const rabbet_dims_t* indices = &eval->inputs[INDICES].dims;
  if (nd) row = strides[indices->d[indices->rank - 1] - 1];
  rabbet_walk_t walk;
  rabbet_walk_initialize(&updates->dims, &walk);
  for (; !walk.done; rabbet_walk_next(&walk)) {
    int64_t offset = 0;
    bool inside =
        nd ? scatter_find_nd(eval, walk.linear / row, walk.linear % row,
                             strides, &offset)
           : scatter_find_element(eval, axis, &walk, strides, &offset);
    if (inside) scatter_put(y, offset, updates, walk.linear, reduction);
  }
  return rabbet_ok();
}

// Elements are replaced as they are; sums and the like are left to the kernel.
static rabbet_status_t scatter_infer_values(const rabbet_op_infer_t* infer) {
  return RABBET_OP_INT(infer, "reduction") == RABBET_SCATTER_REDUCTION_NONE
             ? rabbet_op_move_values(infer)
             : rabbet_ok();
}

static const rabbet_op_operand_t scatter_inputs[] = {
    {"data", 0, RABBET_T_ANY},
    {"indices", RABBET_OPERAND_INDEX, RABBET_T_INDICES},
    {"updates", 0, RABBET_T_ANY},
};
static const rabbet_op_operand_t scatter_outputs[] = {
    {"output", 0, RABBET_T_ANY}};
static const rabbet_op_attr_t scatter_attrs[] = {
    {"mode", RABBET_ATTR_INT, true, 0, 0, scatter_modes},
    {"axis", RABBET_ATTR_INT, false, 0, 0, NULL},
    {"reduction", RABBET_ATTR_INT, false, RABBET_SCATTER_REDUCTION_NONE, 0,
     scatter_reductions},
};

const rabbet_op_t rabbet_op_scatter = {
    .name = "scatter",
    .layer_type = "SCATTER",
    .inputs = scatter_inputs,
    .input_count = RABBET_OP_COUNT_OF(scatter_inputs),
    .outputs = scatter_outputs,
    .output_count = RABBET_OP_COUNT_OF(scatter_outputs),
    .attrs = scatter_attrs,
    .attr_count = RABBET_OP_COUNT_OF(scatter_attrs),
    .infer_types = scatter_infer_types,
    .infer_shapes = scatter_infer_shapes,
    .infer_values = scatter_infer_values,
    .reference = scatter_reference,
};
