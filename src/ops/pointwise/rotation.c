// Rotary position embedding: pairs (a, b) of the last axis become
// (a cos - b sin, b cos + a sin).
//
// The pairs of the first `size` elements are neighbours, or lie half of `size`
// apart; the elements behind are copied. Tables of cosines and sines broadcast
// to the input on all axes but the last one, where they have a number for each
// pair or for each element: then b has its own. They have the input's type, or
// FLOAT.
#include "ops/pointwise/rotation.h"

#include "core/attr_set.h"
#include "ops/rules.h"
#include "ops/walk.h"

enum {
  INPUT = RABBET_ROTATION_INPUT,
  COSINES = RABBET_ROTATION_COSINES,
  SINES = RABBET_ROTATION_SINES,
  OPERANDS = RABBET_ROTATION_OPERANDS
};

// ---- Rules -----------------------------------------------------------------

static rabbet_status_t rotation_infer_types(const rabbet_op_infer_t* infer) {
  infer->outputs[0].dtype = infer->inputs[INPUT].dtype;
  RABBET_RETURN_IF_ERROR(rabbet_op_same_type(infer, COSINES, SINES));
  if (infer->inputs[COSINES].dtype == RABBET_DTYPE_FLOAT) return rabbet_ok();
  return rabbet_op_same_type(infer, INPUT, COSINES);
}

// Whether `size` elements of `width` can be rotated by tables of this extent.
static bool rotation_fits(int64_t width, int64_t size, int64_t table) {
  return size > 0 && size % 2 == 0 && size <= width &&
         (table == size || table == size / 2);
}

static rabbet_status_t rotation_infer_shapes(const rabbet_op_infer_t* infer) {
  const rabbet_shape_t* x = &infer->inputs[INPUT].shape;
  const rabbet_shape_t* tables[] = {&infer->inputs[COSINES].shape,
                                    &infer->inputs[SINES].shape};
  int32_t last = x->rank - 1;
  int64_t size = RABBET_OP_INT(infer, "size"), width = 0, extents[2] = {0};
  bool fits = last >= 0 && rabbet_op_is_constant(infer, x->d[last], &width);
  for (int k = 0; fits && k < 2; ++k) {
    rabbet_expr_t ignored = RABBET_EXPR_NONE;
    fits = tables[k]->rank == x->rank &&
           rabbet_op_is_constant(infer, tables[k]->d[last], &extents[k]) &&
           rotation_fits(width, size > 0 ? size : width, extents[k]);
    for (int32_t i = 0; fits && i < last; ++i)
      fits = rabbet_op_equals(infer, tables[k]->d[i], 1) ||
             rabbet_op_same_dim(infer, tables[k]->d[i], x->d[i], &ignored);
  }
  if (fits && extents[0] == extents[1]) return rabbet_op_same_shape(infer);
  char a[RABBET_OP_TEXT], b[RABBET_OP_TEXT], c[RABBET_OP_TEXT];
  return RABBET_OP_INVALID(
      "input 0 ('input') has shape %s, input 1 ('cosines') %s and input 2 "
      "('sines') %s, attribute 'size' is %lld; an even part of a known last "
      "axis is rotated, by tables of as many elements or of half as many, with "
      "1 or the input's extent on the other axes",
      rabbet_op_shape_text(infer, x, a),
      rabbet_op_shape_text(infer, tables[0], b),
      rabbet_op_shape_text(infer, tables[1], c), (long long)size);
}

rabbet_status_t rabbet_rotation_read(const rabbet_attr_t* attrs,
                                     size_t attr_count, const rabbet_dims_t* x,
                                     const rabbet_dims_t* cosines,
                                     const rabbet_dims_t* sines,
                                     rabbet_rotation_t* out_rotation) {
  rabbet_rotation_t* r = out_rotation;
  const rabbet_dims_t* operands[OPERANDS] = {x, cosines, sines};
  int32_t last = x->rank - 1;
  *r = (rabbet_rotation_t){.outer = *x, .width = x->d[last]};
  r->size = rabbet_attr_int(attrs, attr_count, "size", 0);
  if (r->size == 0) r->size = r->width;
  r->interleaved = rabbet_attr_int(attrs, attr_count, "interleaved", 0) != 0;
  r->is_whole = cosines->d[last] == r->size;
  if (!rotation_fits(r->width, r->size, cosines->d[last]) ||
      sines->d[last] != cosines->d[last])
    return RABBET_STATUS(RABBET_STATUS_OUT_OF_RANGE,
                         "%lld of %lld elements are rotated by %lld cosines "
                         "and %lld sines",
                         (long long)r->size, (long long)r->width,
                         (long long)cosines->d[last],
                         (long long)sines->d[last]);
  r->outer.rank = last;
  for (int k = 0; k < OPERANDS; ++k) {
    rabbet_dims_t outer = *operands[k];
    outer.rank = last;
    RABBET_RETURN_IF_ERROR(rabbet_broadcast_strides(
        k == COSINES ? "cosines" : "sines", &outer, &r->outer, r->strides[k]));
    for (int32_t i = 0; i < last; ++i)
      r->strides[k][i] *= operands[k]->d[last];
  }
  return rabbet_ok();
}

// ---- Reference -------------------------------------------------------------

static void rotation_row(const rabbet_op_eval_t* eval,
                         const rabbet_rotation_t* r, const int64_t* at) {
  const rabbet_view_t *x = eval->inputs, *y = eval->outputs;
  for (int64_t i = 0; i < r->size / 2; ++i) {
    const int64_t places[2] = {rabbet_rotation_first(r, i),
                               rabbet_rotation_second(r, i)};
    double part[2], cosine[2], sine[2];
    for (int k = 0; k < 2; ++k) {
      int64_t entry = r->is_whole ? places[k] : i;
      part[k] = rabbet_load_double(x->dtype, x->data, at[INPUT] + places[k]);
      cosine[k] =
          rabbet_load_double(eval->inputs[COSINES].dtype,
                             eval->inputs[COSINES].data, at[COSINES] + entry);
      sine[k] = rabbet_load_double(eval->inputs[SINES].dtype,
                                   eval->inputs[SINES].data, at[SINES] + entry);
    }
    rabbet_store_double(y->dtype, y->data, at[INPUT] + places[0],
                        part[0] * cosine[0] - part[1] * sine[0]);
    rabbet_store_double(y->dtype, y->data, at[INPUT] + places[1],
                        part[1] * cosine[1] + part[0] * sine[1]);
  }
  for (int64_t i = r->size; i < r->width; ++i)
    rabbet_copy_element(y->data, at[INPUT] + i, x->data, at[INPUT] + i,
                        rabbet_element_size(x->dtype));
}

static rabbet_status_t rotation_reference(const rabbet_op_eval_t* eval) {
  rabbet_rotation_t r;
  RABBET_RETURN_IF_ERROR(rabbet_rotation_read(
      eval->attrs, eval->attr_count, &eval->inputs[INPUT].dims,
      &eval->inputs[COSINES].dims, &eval->inputs[SINES].dims, &r));
  rabbet_walk_t walk;
  rabbet_walk_initialize(&r.outer, &walk);
  for (int k = 0; k < OPERANDS; ++k)
    rabbet_walk_add(&walk, r.strides[k], 0);
  for (; !walk.done; rabbet_walk_next(&walk))
    rotation_row(eval, &r, walk.offsets);
  return rabbet_ok();
}

static const rabbet_op_operand_t rotation_inputs[] = {
    {"input", 0, RABBET_T_FLOATS},
    {"cosines", 0, RABBET_T_FLOATS},
    {"sines", 0, RABBET_T_FLOATS},
};
static const rabbet_op_operand_t rotation_outputs[] = {
    {"output", 0, RABBET_T_FLOATS}};
static const rabbet_op_attr_t rotation_attrs[] = {
    {"size", RABBET_ATTR_INT, false, 0, 0, NULL},
    {"interleaved", RABBET_ATTR_BOOL, false, 0, 0, NULL},
};

const rabbet_op_t rabbet_op_rotation = {
    .name = "rotation",
    .layer_type = "ROTATION",
    .inputs = rotation_inputs,
    .input_count = RABBET_OP_COUNT_OF(rotation_inputs),
    .outputs = rotation_outputs,
    .output_count = RABBET_OP_COUNT_OF(rotation_outputs),
    .attrs = rotation_attrs,
    .attr_count = RABBET_OP_COUNT_OF(rotation_attrs),
    .infer_types = rotation_infer_types,
    .infer_shapes = rotation_infer_shapes,
    .reference = rotation_reference,
};
