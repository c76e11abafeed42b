// Elements chosen by indices. Negative indices count from the end; an index
// that is still out of bounds gives zero.
//
// DEFAULT: slices along an axis, with the first num_elementwise_dims axes of
//   data and indices walked together.
// ELEMENT: output[.., i, ..] = data[.., indices[.., i, ..], ..] along the axis.
// ND: the last axis of indices holds positions in the axes of data that follow
//   the first num_elementwise_dims, which are walked together.
#include "ops/enums.h"
#include "ops/rules.h"
#include "ops/walk.h"

static const rabbet_op_enumerator_t gather_modes[] = {
    RABBET_GATHERS(RABBET_ENUMERATOR){NULL, 0}};

static rabbet_status_t gather_infer_types(const rabbet_op_infer_t* infer) {
  infer->outputs[0].dtype = infer->inputs[0].dtype;
  return rabbet_ok();
}

static rabbet_status_t gather_invalid(const rabbet_op_infer_t* infer,
                                      const char* rule) {
  char a[RABBET_OP_TEXT], b[RABBET_OP_TEXT];
  return RABBET_OP_INVALID(
      "input 'data' has shape %s and input 'indices' has shape %s; mode %s "
      "needs %s",
      rabbet_op_shape_text(infer, &infer->inputs[0].shape, a),
      rabbet_op_shape_text(infer, &infer->inputs[1].shape, b),
      gather_modes[RABBET_OP_INT(infer, "mode")].name, rule);
}

static rabbet_status_t gather_append(rabbet_shape_t* shape,
                                     const rabbet_expr_t* dims, int32_t count) {
  if (shape->rank + count > RABBET_MAX_RANK) {
    return RABBET_OP_INVALID("the output would have rank %d; at most %d",
                             shape->rank + count, RABBET_MAX_RANK);
  }
  for (int32_t i = 0; i < count; ++i) {
    shape->d[shape->rank++] = dims[i];
  }
  return rabbet_ok();
}

// The leading axes that data and indices share.
static rabbet_status_t gather_batch(const rabbet_op_infer_t* infer,
                                    int32_t count, rabbet_shape_t* shape) {
  const rabbet_shape_t* data = &infer->inputs[0].shape;
  const rabbet_shape_t* indices = &infer->inputs[1].shape;
  for (int32_t i = 0; i < count; ++i) {
    if (!rabbet_op_same_dim(infer, data->d[i], indices->d[i], &shape->d[i])) {
      return gather_invalid(
          infer, "their first 'num_elementwise_dims' dimensions to be equal");
    }
  }
  shape->rank = count;
  return rabbet_ok();
}

static rabbet_status_t gather_default(const rabbet_op_infer_t* infer,
                                      int32_t axis, int32_t batch,
                                      rabbet_shape_t* shape) {
  const rabbet_shape_t* data = &infer->inputs[0].shape;
  const rabbet_shape_t* indices = &infer->inputs[1].shape;
  if (batch > axis || batch > indices->rank) {
    return gather_invalid(infer,
                          "'num_elementwise_dims' to be at most 'axis' and the "
                          "rank of the indices");
  }
  RABBET_RETURN_IF_ERROR(gather_batch(infer, batch, shape));
  RABBET_RETURN_IF_ERROR(gather_append(shape, data->d + batch, axis - batch));
  RABBET_RETURN_IF_ERROR(
      gather_append(shape, indices->d + batch, indices->rank - batch));
  return gather_append(shape, data->d + axis + 1, data->rank - axis - 1);
}

static rabbet_status_t gather_element(const rabbet_op_infer_t* infer,
                                      rabbet_shape_t* shape) {
  if (infer->inputs[0].shape.rank != infer->inputs[1].shape.rank) {
    return gather_invalid(infer, "equal ranks");
  }
  *shape = infer->inputs[1].shape;
  return rabbet_ok();
}

static rabbet_status_t gather_nd(const rabbet_op_infer_t* infer, int32_t batch,
                                 rabbet_shape_t* shape) {
  const rabbet_shape_t* data = &infer->inputs[0].shape;
  const rabbet_shape_t* indices = &infer->inputs[1].shape;
  int64_t depth = 0;
  if (indices->rank < 1 || batch >= indices->rank || batch > data->rank) {
    return gather_invalid(
        infer, "'num_elementwise_dims' to be less than the indices' rank");
  }
  if (!rabbet_op_is_constant(infer, indices->d[indices->rank - 1], &depth) ||
      depth < 1 || depth > data->rank - batch) {
    return gather_invalid(infer,
                          "the indices' last dimension to be constant, at "
                          "least 1 and at most the axes of data that are left");
  }
  RABBET_RETURN_IF_ERROR(gather_batch(infer, batch, shape));
  RABBET_RETURN_IF_ERROR(
      gather_append(shape, indices->d + batch, indices->rank - 1 - batch));
  int32_t rest = batch + (int32_t)depth;
  return gather_append(shape, data->d + rest, data->rank - rest);
}

static rabbet_status_t gather_infer_shapes(const rabbet_op_infer_t* infer) {
  const rabbet_shape_t* data = &infer->inputs[0].shape;
  int64_t mode = RABBET_OP_INT(infer, "mode");
  int64_t batch = RABBET_OP_INT(infer, "num_elementwise_dims");
  int32_t axis = 0;
  if (data->rank == 0) return gather_invalid(infer, "data that has an axis");
  if (batch < 0 || batch > data->rank) {
    return RABBET_OP_INVALID(
        "attribute 'num_elementwise_dims' is %lld; expected 0 to %d",
        (long long)batch, data->rank);
  }
  if (mode == RABBET_GATHER_ND) {
    return gather_nd(infer, (int32_t)batch, &infer->outputs[0].shape);
  }
  RABBET_RETURN_IF_ERROR(
      rabbet_op_axis("axis", RABBET_OP_INT(infer, "axis"), data->rank, &axis));
  if (mode == RABBET_GATHER_ELEMENT)
    return gather_element(infer, &infer->outputs[0].shape);
  return gather_default(infer, axis, (int32_t)batch, &infer->outputs[0].shape);
}

// ---- Reference -------------------------------------------------------------

// The state of a walk over the output, which finds indices and data.
typedef struct gather_t {
  const rabbet_view_t *data, *indices, *output;
  int64_t data_strides[RABBET_MAX_RANK];
  int64_t index_strides[RABBET_MAX_RANK];
  int32_t axis, batch, depth;
} gather_t;

// Position in data for an index read along `axis`; false if out of bounds.
static bool gather_position(const gather_t* g, int64_t index_at, int32_t axis,
                            int64_t* offset) {
  int64_t extent = g->data->dims.d[axis];
  int64_t index =
      rabbet_load_int64(g->indices->dtype, g->indices->data, index_at);
  if (index < 0) index += extent;
  if (index < 0 || index >= extent) return false;
  *offset += index * g->data_strides[axis];
  return true;
}

static bool gather_locate_default(const gather_t* g, const int64_t* at,
                                  int64_t* offset) {
  int32_t middle = g->indices->dims.rank - g->batch;
  int64_t index_at = 0;
  for (int32_t i = 0; i < g->axis; ++i) {
    *offset += at[i] * g->data_strides[i];
  }
  for (int32_t i = 0; i < g->batch; ++i) {
    index_at += at[i] * g->index_strides[i];
  }
  for (int32_t i = 0; i < middle; ++i) {
    index_at += at[g->axis + i] * g->index_strides[g->batch + i];
  }
  for (int32_t i = g->axis + 1; i < g->data->dims.rank; ++i) {
    *offset += at[i + middle - 1] * g->data_strides[i];
  }
  return gather_position(g, index_at, g->axis, offset);
}

static bool gather_locate_element(const gather_t* g, const int64_t* at,
                                  int64_t* offset) {
  int64_t index_at = 0;
  for (int32_t i = 0; i < g->data->dims.rank; ++i) {
    index_at += at[i] * g->index_strides[i];
    if (i != g->axis) *offset += at[i] * g->data_strides[i];
  }
  return gather_position(g, index_at, g->axis, offset);
}

static bool gather_locate_nd(const gather_t* g, const int64_t* at,
                             int64_t* offset) {
  int32_t outer = g->indices->dims.rank - 1;
  int64_t index_at = 0;
  for (int32_t i = 0; i < outer; ++i) {
    index_at += at[i] * g->index_strides[i];
    if (i < g->batch) *offset += at[i] * g->data_strides[i];
  }
  int32_t rest = g->batch + g->depth;
  for (int32_t i = rest; i < g->data->dims.rank; ++i) {
    *offset += at[outer + i - rest] * g->data_strides[i];
  }
  for (int32_t i = 0; i < g->depth; ++i) {
    if (!gather_position(g, index_at + i, g->batch + i, offset)) return false;
  }
  return true;
}

// Checks at run time the extents that inference could not: they must be equal
// or, for ELEMENT, at least those of the indices.
static rabbet_status_t gather_check(const gather_t* g, int64_t mode) {
  const rabbet_dims_t* data = &g->data->dims;
  const rabbet_dims_t* indices = &g->indices->dims;
  bool fits = true;
  for (int32_t i = 0; mode != RABBET_GATHER_ELEMENT && i < g->batch; ++i) {
    fits = fits && data->d[i] == indices->d[i];
  }
  for (int32_t i = 0; mode == RABBET_GATHER_ELEMENT && i < data->rank; ++i) {
    fits = fits && (i == g->axis || indices->d[i] <= data->d[i]);
  }
  if (fits) return rabbet_ok();
  char a[128], b[128];
  return RABBET_STATUS(RABBET_STATUS_OUT_OF_RANGE,
                       "input 'indices' of shape %s does not fit data of shape "
                       "%s",
                       rabbet_dims_print(indices, a, sizeof a),
                       rabbet_dims_print(data, b, sizeof b));
}

static rabbet_status_t gather_start(const rabbet_op_eval_t* eval,
                                    gather_t* out_gather) {
  *out_gather = (gather_t){.data = &eval->inputs[0],
                           .indices = &eval->inputs[1],
                           .output = &eval->outputs[0]};
  gather_t* g = out_gather;
  int64_t mode = RABBET_OP_INT(eval, "mode");
  g->batch = (int32_t)RABBET_OP_INT(eval, "num_elementwise_dims");
  if (mode == RABBET_GATHER_ND) {
    g->depth = (int32_t)g->indices->dims.d[g->indices->dims.rank - 1];
  } else {
    RABBET_RETURN_IF_ERROR(rabbet_op_axis("axis", RABBET_OP_INT(eval, "axis"),
                                          g->data->dims.rank, &g->axis));
  }
  rabbet_row_major(&g->data->dims, g->data_strides);
  rabbet_row_major(&g->indices->dims, g->index_strides);
  return gather_check(g, mode);
}

static rabbet_status_t gather_reference(const rabbet_op_eval_t* eval) {
  static bool (*const locate[])(const gather_t*, const int64_t*, int64_t*) = {
      gather_locate_default, gather_locate_element, gather_locate_nd};
  int64_t mode = RABBET_OP_INT(eval, "mode");
  gather_t g;
  RABBET_RETURN_IF_ERROR(gather_start(eval, &g));
  size_t size = rabbet_element_size(g.output->dtype);
  rabbet_walk_t walk;
  rabbet_walk_initialize(&g.output->dims, &walk);
  for (; !walk.done; rabbet_walk_next(&walk)) {
    int64_t from = 0;
    if (locate[mode](&g, walk.at, &from)) {
      rabbet_copy_element(g.output->data, walk.linear, g.data->data, from,
                          size);
    } else {
      __builtin_memset((char*)g.output->data + (size_t)walk.linear * size, 0,
                       size);
    }
  }
  return rabbet_ok();
}

static const rabbet_op_operand_t gather_inputs[] = {
    {"data", 0, RABBET_T_ANY},
    {"indices", RABBET_OPERAND_INDEX, RABBET_T_INDICES},
};
static const rabbet_op_operand_t gather_outputs[] = {
    {"output", 0, RABBET_T_ANY}};
static const rabbet_op_attr_t gather_attrs[] = {
    {"axis", RABBET_ATTR_INT, false, 0, 0, NULL},
    {"num_elementwise_dims", RABBET_ATTR_INT, false, 0, 0, NULL},
    {"mode", RABBET_ATTR_INT, false, RABBET_GATHER_DEFAULT, 0, gather_modes},
};

const rabbet_op_t rabbet_op_gather = {
    .name = "gather",
    .layer_type = "GATHER",
    .flags = RABBET_OP_MOVES_DATA,
    .inputs = gather_inputs,
    .input_count = RABBET_OP_COUNT_OF(gather_inputs),
    .outputs = gather_outputs,
    .output_count = RABBET_OP_COUNT_OF(gather_outputs),
    .attrs = gather_attrs,
    .attr_count = RABBET_OP_COUNT_OF(gather_attrs),
    .infer_types = gather_infer_types,
    .infer_shapes = gather_infer_shapes,
    .reference = gather_reference,
};
