// Determinants of the matrices on the last two axes.
#include "ops/products/determinant.h"

#include "base/math.h"
#include "ops/cost.h"
#include "ops/rules.h"

// ---- Rules -----------------------------------------------------------------

static rabbet_status_t determinant_infer_shapes(
    const rabbet_op_infer_t* infer) {
  const rabbet_shape_t* x = &infer->inputs[0].shape;
  rabbet_shape_t* y = &infer->outputs[0].shape;
  char text[RABBET_OP_TEXT];
  rabbet_expr_t order;
  if (x->rank < 2 ||
      !rabbet_op_same_dim(infer, x->d[x->rank - 2], x->d[x->rank - 1], &order))
    return RABBET_OP_INVALID(
        "input 0 ('input') has shape %s; expected square matrices on the last "
        "two axes",
        rabbet_op_shape_text(infer, x, text));
  y->rank = x->rank - 2;
  for (int32_t i = 0; i < y->rank; ++i)
    y->d[i] = x->d[i];
  return rabbet_ok();
}

rabbet_status_t rabbet_determinant_read(const rabbet_dims_t* dims,
                                        rabbet_determinant_t* out_determinant) {
  rabbet_dims_t batch = *dims;
  int64_t rows = dims->d[dims->rank - 2], columns = dims->d[dims->rank - 1];
  batch.rank -= 2;
  *out_determinant = (rabbet_determinant_t){0};
  RABBET_RETURN_IF_ERROR(rabbet_dims_count(&batch, &out_determinant->count));
  if (rows != columns || rows > INT32_MAX)
    return RABBET_STATUS(RABBET_STATUS_OUT_OF_RANGE,
                         "matrices have %lld rows and %lld columns; expected "
                         "as many, at most 2^31 - 1",
                         (long long)rows, (long long)columns);
  if (out_determinant->count > 0) out_determinant->order = (int32_t)rows;
  return rabbet_ok();
}

// ---- Reference -------------------------------------------------------------

static bool determinant_better(double a, double b) {
  return fabs(a) > fabs(b) || (isnan(a) && !isnan(b));
}

// Overwrites the matrix.
static double determinant_of(double* a, int64_t order) {
  double product = 1;
  for (int64_t k = 0; k < order; ++k) {
    int64_t best = k;
    for (int64_t i = k + 1; i < order; ++i)
      if (determinant_better(a[i * order + k], a[best * order + k])) best = i;
    double pivot = a[best * order + k];
    if (pivot == 0) return 0;
    product *= best == k ? pivot : -pivot;
    for (int64_t j = k; j < order && best != k; ++j) {
      double moved = a[k * order + j];
      a[k * order + j] = a[best * order + j];
      a[best * order + j] = moved;
    }
    for (int64_t i = k + 1; i < order; ++i) {
      double factor = a[i * order + k] / pivot;
      for (int64_t j = k + 1; j < order; ++j)
        a[i * order + j] -= factor * a[k * order + j];
    }
  }
  return product;
}

static rabbet_status_t determinant_reference(const rabbet_op_eval_t* eval) {
  const rabbet_view_t *x = &eval->inputs[0], *y = &eval->outputs[0];
  rabbet_determinant_t d;
  double* matrix = NULL;
  RABBET_RETURN_IF_ERROR(rabbet_determinant_read(&x->dims, &d));
  int64_t size = (int64_t)d.order * d.order;
  if (size > 0)
    RABBET_RETURN_IF_ERROR(rabbet_allocate(
        eval->allocator, (size_t)size * sizeof(*matrix), (void**)&matrix));
  for (int64_t m = 0; m < d.count; ++m) {
    for (int64_t i = 0; i < size; ++i)
      matrix[i] = rabbet_load_double(x->dtype, x->data, m * size + i);
    rabbet_store_double(y->dtype, y->data, m, determinant_of(matrix, d.order));
  }
  rabbet_free(eval->allocator, matrix);
  return rabbet_ok();
}

static double determinant_cost(const rabbet_op_eval_t* eval) {
  const rabbet_dims_t* dims = &eval->inputs[0].dims;
  double order = (double)rabbet_max_i64(dims->d[dims->rank - 1], 0);
  return rabbet_cost_elements(eval) * (1 + order / 3);
}

static const rabbet_op_operand_t determinant_inputs[] = {
    {"input", 0, RABBET_T_FLOATS}};
static const rabbet_op_operand_t determinant_outputs[] = {
    {"output", 0, RABBET_T_FLOATS}};

const rabbet_op_t rabbet_op_determinant = {
    .name = "determinant",
    .layer_type = "DETERMINANT",
    .inputs = determinant_inputs,
    .input_count = RABBET_OP_COUNT_OF(determinant_inputs),
    .outputs = determinant_outputs,
    .output_count = RABBET_OP_COUNT_OF(determinant_outputs),
    .infer_shapes = determinant_infer_shapes,
    .reference = determinant_reference,
    .cost = determinant_cost,
};
