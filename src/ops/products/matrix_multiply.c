#include "ops/products/matrix_multiply.h"

#include <assert.h>

#include "ops/cost.h"
#include "ops/rules.h"
#include "ops/walk.h"

static const rabbet_op_enumerator_t matrix_ops[] = {
    RABBET_MATRIX_OPS(RABBET_ENUMERATOR){NULL, 0}};

static int32_t matrix_axes(int64_t op) {
  return op == RABBET_MATRIX_VECTOR ? 1 : 2;
}

static rabbet_status_t matrix_infer_types(const rabbet_op_infer_t* infer) {
  infer->outputs[0].dtype = infer->inputs[0].dtype;
  return rabbet_op_same_types(infer, 0);
}

static rabbet_status_t matrix_invalid(const rabbet_op_infer_t* infer,
                                      const char* rule) {
  char a[RABBET_OP_TEXT], b[RABBET_OP_TEXT];
  return RABBET_OP_INVALID(
      "input 0 has shape %s (op0 %s) and input 1 has shape %s (op1 %s): %s",
      rabbet_op_shape_text(infer, &infer->inputs[0].shape, a),
      matrix_ops[RABBET_OP_INT(infer, "op0")].name,
      rabbet_op_shape_text(infer, &infer->inputs[1].shape, b),
      matrix_ops[RABBET_OP_INT(infer, "op1")].name, rule);
}

static rabbet_status_t matrix_batch(const rabbet_op_infer_t* infer,
                                    int32_t rank, rabbet_shape_t* shape) {
  for (int32_t i = 0; i < rank; ++i) {
    bool agree = false;
    RABBET_RETURN_IF_ERROR(rabbet_op_broadcast_dim(
        infer, infer->inputs[0].shape.d[i], infer->inputs[1].shape.d[i],
        &shape->d[i], &agree));
    if (!agree) {
      return matrix_invalid(infer, "the batch dimensions must be equal or 1");
    }
  }
  shape->rank = rank;
  return rabbet_ok();
}

static rabbet_status_t matrix_infer_shapes(const rabbet_op_infer_t* infer) {
  const rabbet_shape_t* a = &infer->inputs[0].shape;
  const rabbet_shape_t* b = &infer->inputs[1].shape;
  int64_t op0 = RABBET_OP_INT(infer, "op0"), op1 = RABBET_OP_INT(infer, "op1");
  int32_t a_batch = a->rank - matrix_axes(op0);
  int32_t b_batch = b->rank - matrix_axes(op1);
  if (a_batch < 0 || b_batch < 0) {
    return matrix_invalid(
        infer, "a matrix needs rank 2 or more, a VECTOR rank 1 or more");
  }
  if (a_batch != b_batch) {
    return matrix_invalid(infer,
                          "both inputs must have the same number of batch "
                          "dimensions (insert dimensions of 1 with a shuffle)");
  }
  rabbet_expr_t inner = RABBET_EXPR_NONE;
  int32_t a_inner = a->rank - (op0 == RABBET_MATRIX_TRANSPOSE ? 2 : 1);
  int32_t b_inner = b->rank - (op1 == RABBET_MATRIX_NONE ? 2 : 1);
  if (!rabbet_op_same_dim(infer, a->d[a_inner], b->d[b_inner], &inner)) {
    return matrix_invalid(infer, "the inner dimensions differ");
  }
  rabbet_shape_t shape = {0};
  RABBET_RETURN_IF_ERROR(matrix_batch(infer, a_batch, &shape));
  if (op0 != RABBET_MATRIX_VECTOR) {
    shape.d[shape.rank++] =
        a->d[a->rank - (op0 == RABBET_MATRIX_TRANSPOSE ? 1 : 2)];
  }
  if (op1 != RABBET_MATRIX_VECTOR) {
    shape.d[shape.rank++] =
        b->d[b->rank - (op1 == RABBET_MATRIX_TRANSPOSE ? 2 : 1)];
  }
  infer->outputs[0].shape = shape;
  return rabbet_ok();
}

// ---- Reference -------------------------------------------------------------

static rabbet_status_t matrix_resolve_batch(const rabbet_dims_t* a,
                                            const rabbet_dims_t* b,
                                            rabbet_matrix_product_t* p) {
  rabbet_dims_t from[2] = {*a, *b};
  for (int32_t i = 0; i < p->batch.rank; ++i) {
    p->batch.d[i] = a->d[i] == 1 ? b->d[i] : a->d[i];
  }
  int64_t strides[2][RABBET_MAX_RANK];
  for (int k = 0; k < 2; ++k) {
    rabbet_dims_t to = from[k];  // as it is, but for the batch axes
    for (int32_t i = 0; i < p->batch.rank; ++i) {
      to.d[i] = p->batch.d[i];
    }
    RABBET_RETURN_IF_ERROR(rabbet_broadcast_strides(
        k == 0 ? "input0" : "input1", &from[k], &to, strides[k]));
  }
  for (int32_t i = 0; i < p->batch.rank; ++i) {
    p->a_batch[i] = strides[0][i];
    p->b_batch[i] = strides[1][i];
  }
  return rabbet_ok();
}

rabbet_status_t rabbet_matrix_product_resolve(
    rabbet_matrix_op_t op0, const rabbet_dims_t* a, rabbet_matrix_op_t op1,
    const rabbet_dims_t* b, rabbet_matrix_product_t* out_product) {
  rabbet_matrix_product_t p = {.m = 1, .n = 1};
  p.batch.rank = a->rank - matrix_axes(op0);
  assert(p.batch.rank >= 0 && p.batch.rank == b->rank - matrix_axes(op1));
  int64_t a_columns = a->d[a->rank - 1], b_columns = b->d[b->rank - 1];
  bool a_turned = op0 == RABBET_MATRIX_TRANSPOSE;
  bool b_turned = op1 == RABBET_MATRIX_TRANSPOSE;
  p.a_row = a_turned ? 1 : a_columns;
  p.a_column = a_turned ? a_columns : 1;
  if (op0 != RABBET_MATRIX_VECTOR) p.m = a->d[a->rank - (a_turned ? 1 : 2)];
  p.k = a->d[a->rank - (a_turned ? 2 : 1)];
  // A vector is a column.
  p.b_row = b_turned || op1 == RABBET_MATRIX_VECTOR ? 1 : b_columns;
  p.b_column = b_turned ? b_columns : 1;
  if (op1 != RABBET_MATRIX_VECTOR) p.n = b->d[b->rank - (b_turned ? 2 : 1)];
  int64_t b_inner = b->d[b->rank - (op1 == RABBET_MATRIX_NONE ? 2 : 1)];
  if (p.k != b_inner) {
    char x[128], y[128];
    return RABBET_STATUS(
        RABBET_STATUS_OUT_OF_RANGE,
        "matrices of shapes %s and %s cannot be multiplied: the inner "
        "dimensions are %lld and %lld",
        rabbet_dims_print(a, x, sizeof x), rabbet_dims_print(b, y, sizeof y),
        (long long)p.k, (long long)b_inner);
  }
  RABBET_RETURN_IF_ERROR(matrix_resolve_batch(a, b, &p));
  *out_product = p;
  return rabbet_ok();
}

// One element: the inner product of a row and a column.
static void matrix_element(const rabbet_op_eval_t* eval,
                           const rabbet_matrix_product_t* p, int64_t a_at,
                           int64_t b_at, int64_t y_at) {
  const rabbet_view_t* a = &eval->inputs[0];
  const rabbet_view_t* b = &eval->inputs[1];
  const rabbet_view_t* y = &eval->outputs[0];
  double real = 0;
  uint64_t integer = 0;
  bool is_float = rabbet_dtype_is_float(a->dtype);
  for (int64_t k = 0; k < p->k; ++k) {
    int64_t i = a_at + k * p->a_column, j = b_at + k * p->b_row;
    if (is_float) {
      real += rabbet_load_double(a->dtype, a->data, i) *
              rabbet_load_double(b->dtype, b->data, j);
    } else {
      integer += (uint64_t)rabbet_load_int64(a->dtype, a->data, i) *
                 (uint64_t)rabbet_load_int64(b->dtype, b->data, j);
    }
  }
  if (is_float) {
    rabbet_store_double(y->dtype, y->data, y_at, real);
  } else {
    rabbet_store_int64(y->dtype, y->data, y_at, (int64_t)integer);
  }
}

static rabbet_status_t matrix_reference(const rabbet_op_eval_t* eval) {
  rabbet_matrix_product_t p;
  RABBET_RETURN_IF_ERROR(rabbet_matrix_product_resolve(
      (rabbet_matrix_op_t)RABBET_OP_INT(eval, "op0"), &eval->inputs[0].dims,
      (rabbet_matrix_op_t)RABBET_OP_INT(eval, "op1"), &eval->inputs[1].dims,
      &p));
  rabbet_walk_t walk;
  rabbet_walk_initialize(&p.batch, &walk);
  rabbet_walk_add(&walk, p.a_batch, 0);
  rabbet_walk_add(&walk, p.b_batch, 0);
  for (; !walk.done; rabbet_walk_next(&walk)) {
    for (int64_t m = 0; m < p.m; ++m) {
      for (int64_t n = 0; n < p.n; ++n) {
        matrix_element(eval, &p, walk.offsets[0] + m * p.a_row,
                       walk.offsets[1] + n * p.b_column,
                       (walk.linear * p.m + m) * p.n + n);
      }
    }
  }
  return rabbet_ok();
}

static double matrix_multiply_cost(const rabbet_op_eval_t* eval) {
  const rabbet_dims_t* a = &eval->inputs[0].dims;
  int64_t op = RABBET_OP_INT(eval, "op0");
  int32_t axis = op == RABBET_MATRIX_TRANSPOSE ? a->rank - 2 : a->rank - 1;
  double depth = a->rank > 0 && axis >= 0 ? (double)a->d[axis] : 1;
  return rabbet_cost_elements(eval) +
         depth * rabbet_cost_count(&eval->outputs[0]);
}

static const rabbet_op_operand_t matrix_inputs[] = {
    {"input0", 0, RABBET_T_FLOATS | RABBET_T_INDICES},
    {"input1", 0, RABBET_T_FLOATS | RABBET_T_INDICES},
};
static const rabbet_op_operand_t matrix_outputs[] = {
    {"output", 0, RABBET_T_FLOATS | RABBET_T_INDICES}};
static const rabbet_op_attr_t matrix_attrs[] = {
    {"op0", RABBET_ATTR_INT, false, RABBET_MATRIX_NONE, 0, matrix_ops},
    {"op1", RABBET_ATTR_INT, false, RABBET_MATRIX_NONE, 0, matrix_ops},
    {"round_input0", RABBET_ATTR_BOOL, false, 0, 0, NULL},
};

const rabbet_op_t rabbet_op_matrix_multiply = {
    .name = "matrix_multiply",
    .layer_type = "MATRIX_MULTIPLY",
    .inputs = matrix_inputs,
    .input_count = RABBET_OP_COUNT_OF(matrix_inputs),
    .outputs = matrix_outputs,
    .output_count = RABBET_OP_COUNT_OF(matrix_outputs),
    .attrs = matrix_attrs,
    .attr_count = RABBET_OP_COUNT_OF(matrix_attrs),
    .infer_types = matrix_infer_types,
    .infer_shapes = matrix_infer_shapes,
    .reference = matrix_reference,
    .cost = matrix_multiply_cost,
};
