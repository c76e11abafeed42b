// Memory layout of a matrix product's operands; shared with the devices.
#ifndef RABBET_SRC_OPS_PRODUCTS_MATRIX_MULTIPLY_H_
#define RABBET_SRC_OPS_PRODUCTS_MATRIX_MULTIPLY_H_

#include "ops/enums.h"
#include "ops/op.h"

// output[batch][m][n] = sum over k of a[batch][m][k] * b[batch][k][n]; strides
// in elements, 0 where a batch axis is broadcast.
typedef struct rabbet_matrix_product_t {
  int64_t m, n, k;
  rabbet_dims_t batch;
  int64_t a_batch[RABBET_MAX_RANK], b_batch[RABBET_MAX_RANK];
  int64_t a_row, a_column, b_row, b_column;
} rabbet_matrix_product_t;

// For known shapes; OUT_OF_RANGE if they do not match.
RABBET_PRIVATE_API rabbet_status_t rabbet_matrix_product_resolve(
    rabbet_matrix_op_t op0, const rabbet_dims_t* a, rabbet_matrix_op_t op1,
    const rabbet_dims_t* b, rabbet_matrix_product_t* out_product);

#endif  // RABBET_SRC_OPS_PRODUCTS_MATRIX_MULTIPLY_H_
