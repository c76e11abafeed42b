// The largest or smallest elements along an axis, best first, and their
// indices. Of equal elements the one with the lower index comes first. NaN is
// larger than all other elements.
#include <assert.h>
#include <math.h>
#include <stdlib.h>

#include "ops/cost.h"
#include "ops/enums.h"
#include "ops/rules.h"
#include "ops/walk.h"

enum { INPUT = 0, K = 1, VALUES = 0, INDICES = 1 };

static const rabbet_op_enumerator_t topk_ops[] = {
    RABBET_TOPKS(RABBET_ENUMERATOR){NULL, 0}};
static const rabbet_op_enumerator_t topk_types[] = {
    {"INT32", RABBET_DTYPE_INT32}, {"INT64", RABBET_DTYPE_INT64}, {NULL, 0}};

static rabbet_status_t topk_infer_types(const rabbet_op_infer_t* infer) {
  infer->outputs[VALUES].dtype = infer->inputs[INPUT].dtype;
  infer->outputs[INDICES].dtype =
      (rabbet_dtype_t)RABBET_OP_INT(infer, "indices_type");
  return rabbet_ok();
}

static rabbet_status_t topk_count(const rabbet_op_infer_t* infer,
                                  rabbet_expr_t* out_count) {
  const rabbet_expr_t* values = NULL;
  size_t count = 0;
  if (infer->input_count <= K || !infer->inputs[K].present) {
    int64_t k = RABBET_OP_INT(infer, "k");
    if (k >= 0) return rabbet_expr_constant(infer->graph, k, out_count);
    return RABBET_OP_INVALID("attribute 'k' is %lld; expected 0 or more",
                             (long long)k);
  }
  RABBET_RETURN_IF_ERROR(rabbet_op_operand_values(infer, K, &values, &count));
  if (count != 1)
    return RABBET_OP_INVALID("input 1 ('k') has %zu elements; expected one",
                             count);
  *out_count = values[0];
  return rabbet_ok();
}

static rabbet_status_t topk_infer_shapes(const rabbet_op_infer_t* infer) {
  const rabbet_shape_t* x = &infer->inputs[INPUT].shape;
  int64_t mask = RABBET_OP_INT(infer, "axes"), k = 0, extent = 0;
  rabbet_shape_t shape = *x;
  RABBET_RETURN_IF_ERROR(rabbet_op_axes_mask(infer, mask, x->rank));
  if ((mask & (mask - 1)) != 0) {
    return RABBET_OP_INVALID(
        "attribute 'axes' is 0x%llx; elements are chosen along one axis, so "
        "that one bit must be set",
        (unsigned long long)mask);
  }
  int32_t axis = __builtin_ctzll((unsigned long long)mask);
  RABBET_RETURN_IF_ERROR(topk_count(infer, &shape.d[axis]));
  if (rabbet_op_is_constant(infer, shape.d[axis], &k) &&
      rabbet_op_is_constant(infer, x->d[axis], &extent) &&
      (k < 0 || k > extent)) {
    return RABBET_OP_INVALID("k is %lld; axis %d has %lld elements",
                             (long long)k, axis, (long long)extent);
  }
  infer->outputs[VALUES].shape = infer->outputs[INDICES].shape = shape;
  return rabbet_ok();
}

// ---- Reference -------------------------------------------------------------

typedef struct topk_item_t {
  double real;
  int64_t integer;  // exact where double is not
  int64_t index;
  bool is_nan, smallest;
} topk_item_t;

// Negative: a comes first.
static int topk_compare(const void* left, const void* right) {
  const topk_item_t *a = left, *b = right;
  int order = a->is_nan || b->is_nan     ? (int)b->is_nan - (int)a->is_nan
              : a->real != b->real       ? (a->real > b->real ? -1 : 1)
              : a->integer != b->integer ? (a->integer > b->integer ? -1 : 1)
                                         : 0;
  if (order == 0) return a->index < b->index ? -1 : 1;
  return a->smallest ? -order : order;
}

static void topk_row(const rabbet_op_eval_t* eval, topk_item_t* items,
                     int64_t count, int64_t from, int64_t from_stride,
                     int64_t to, int64_t to_stride) {
  const rabbet_view_t* x = &eval->inputs[INPUT];
  const rabbet_view_t *y = &eval->outputs[VALUES],
                      *where = &eval->outputs[INDICES];
  int64_t mask = RABBET_OP_INT(eval, "axes");
  int32_t axis = __builtin_ctzll((unsigned long long)mask);
  bool smallest = RABBET_OP_INT(eval, "op") == RABBET_TOPK_MIN;
  for (int64_t i = 0; i < count; ++i) {
    int64_t at = from + i * from_stride;
    double real = rabbet_load_double(x->dtype, x->data, at);
    items[i] = (topk_item_t){.real = real,
                             .integer = x->dtype == RABBET_DTYPE_INT64
                                            ? ((const int64_t*)x->data)[at]
                                            : 0,
                             .index = i,
                             .is_nan = isnan(real),
                             .smallest = smallest};
  }
  assert(y->dims.d[axis] <= count);
  qsort(items, (size_t)count, sizeof(*items), topk_compare);
  for (int64_t i = 0; i < y->dims.d[axis]; ++i) {
    rabbet_copy_element(y->data, to + i * to_stride, x->data,
                        from + items[i].index * from_stride,
                        rabbet_element_size(x->dtype));
    rabbet_store_int64(where->dtype, where->data, to + i * to_stride,
                       items[i].index);
  }
}

static rabbet_status_t topk_reference(const rabbet_op_eval_t* eval) {
  const rabbet_dims_t* in = &eval->inputs[INPUT].dims;
  const rabbet_dims_t* out = &eval->outputs[VALUES].dims;
  int64_t mask = RABBET_OP_INT(eval, "axes");
  int32_t axis = __builtin_ctzll((unsigned long long)mask);
  int64_t in_strides[RABBET_MAX_RANK], out_strides[RABBET_MAX_RANK];
  topk_item_t* items = NULL;
  if (out->d[axis] > in->d[axis])
    return RABBET_STATUS(RABBET_STATUS_OUT_OF_RANGE,
                         "k is %lld; axis %d has %lld elements",
                         (long long)out->d[axis], axis, (long long)in->d[axis]);
  RABBET_RETURN_IF_ERROR(
      rabbet_allocate(eval->allocator, sizeof(*items) * (size_t)in->d[axis] + 1,
                      (void**)&items));
  rabbet_row_major(in, in_strides);
  rabbet_row_major(out, out_strides);
  rabbet_dims_t rows = *in;
  rows.d[axis] = 1;
  rabbet_walk_t walk;
  rabbet_walk_initialize(&rows, &walk);
  rabbet_walk_add(&walk, in_strides, 0);
  rabbet_walk_add(&walk, out_strides, 0);
  for (; !walk.done; rabbet_walk_next(&walk))
    topk_row(eval, items, in->d[axis], walk.offsets[0], in_strides[axis],
             walk.offsets[1], out_strides[axis]);
  rabbet_free(eval->allocator, items);
  return rabbet_ok();
}

static double topk_cost(const rabbet_op_eval_t* eval) {
  return rabbet_cost_sorting(eval);
}

static const rabbet_op_operand_t topk_inputs[] = {
    {"input", 0, RABBET_T_NUMBERS},
    {"k", RABBET_OPERAND_OPTIONAL | RABBET_OPERAND_SHAPE, RABBET_T_INDICES},
};
static const rabbet_op_operand_t topk_outputs[] = {
    {"values", 0, RABBET_T_NUMBERS}, {"indices", 0, RABBET_T_INDICES}};
static const rabbet_op_attr_t topk_attrs[] = {
    {"op", RABBET_ATTR_INT, true, 0, 0, topk_ops},
    {"k", RABBET_ATTR_INT, false, 1, 0, NULL},
    {"axes", RABBET_ATTR_INT, true, 0, 0, NULL},
    {"indices_type", RABBET_ATTR_INT, false, RABBET_DTYPE_INT32, 0, topk_types},
};

const rabbet_op_t rabbet_op_topk = {
    .name = "topk",
    .layer_type = "TOPK",
    .inputs = topk_inputs,
    .input_count = RABBET_OP_COUNT_OF(topk_inputs),
    .outputs = topk_outputs,
    .output_count = RABBET_OP_COUNT_OF(topk_outputs),
    .attrs = topk_attrs,
    .attr_count = RABBET_OP_COUNT_OF(topk_attrs),
    .infer_types = topk_infer_types,
    .infer_shapes = topk_infer_shapes,
    .reference = topk_reference,
    .cost = topk_cost,
};
