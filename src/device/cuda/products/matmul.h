// A matrix product with broadcast batches as strided products of column-major
// matrices, as cuBLASLt and cuDNN take them.
#ifndef RABBET_SRC_DEVICE_CUDA_PRODUCTS_MATMUL_H_
#define RABBET_SRC_DEVICE_CUDA_PRODUCTS_MATMUL_H_

#include "device/cuda/products/epilogue.h"

// One axis of the result, with the distance in elements between neighbours.
typedef struct rabbet_matmul_axis_t {
  int64_t size;
  int64_t a, b, y;
} rabbet_matmul_axis_t;

// y[..][m][n] = sum over k of a[..][m][k] b[..][k][n]. Batch axes are joined
// with each other and with the rows as far as strides allow; the longest of
// those left is `batch`, the others are looped over on the host.
typedef struct rabbet_matmul_shape_t {
  int64_t m, n, k;
  int64_t a_row, a_column, b_row, b_column, y_row;
  rabbet_matmul_axis_t batch;
  rabbet_matmul_axis_t loops[RABBET_MAX_RANK];
  int loop_count;
} rabbet_matmul_shape_t;

// Of a matrix product, or of a convolution that is one, with channels last.
rabbet_status_t rabbet_matmul_shape(const rabbet_group_node_t* node,
                                    const rabbet_dims_t* dims,
                                    rabbet_matmul_shape_t* out_shape);
// With b in HWC, a constant matrix whose last two axes are swapped in memory.
// False unless b is one matrix of rank 3.
bool rabbet_matmul_turn_weights(const rabbet_group_node_t* node,
                                const rabbet_dims_t* dims,
                                rabbet_matmul_shape_t* shape);
// The host's loops: how many turns they take, and where the matrices of one of
// them begin.
int64_t rabbet_matmul_turns(const rabbet_matmul_shape_t* shape);
rabbet_matmul_axis_t rabbet_matmul_turn(const rabbet_matmul_shape_t* shape,
                                        int64_t turn);
// Whether the group is a floating-point product with layers after it.
bool rabbet_matmul_matches(const rabbet_group_t* group);
// Whether it is a floating-point convolution with a 1x1 window and stride 1, in
// one group of channels, with an epilogue: without padding it is the product of
// its pixels by its weights. Padding is read from dims; NULL: not checked.
bool rabbet_matmul_is_convolution(const rabbet_group_t* group,
                                  const rabbet_dims_t* dims);

// The operations that cuBLASLt can do after a product: y = f(alpha a b +
// residual + bias).
typedef struct rabbet_matmul_epilogue_t {
  float alpha;
  int32_t bias;      // value with one number for each column; -1: none
  int32_t residual;  // value of the result's shape; -1: none
  enum {
    RABBET_MATMUL_NO_FUNCTION = 0,
    RABBET_MATMUL_RELU,
    RABBET_MATMUL_GELU,
  } function;
  int32_t result;
} rabbet_matmul_epilogue_t;

// False if cuBLASLt has no such epilogue.
bool rabbet_matmul_epilogue(const rabbet_group_t* group,
                            const rabbet_dims_t* dims,
                            rabbet_matmul_epilogue_t* out_epilogue);
// Whether it is one at the usual and at the largest shapes of the profile: a
// single row at the usual shapes may be a batch of rows elsewhere.
rabbet_status_t rabbet_matmul_has_epilogue(const rabbet_propose_t* propose,
                                           bool* out_has);

#endif  // RABBET_SRC_DEVICE_CUDA_PRODUCTS_MATMUL_H_
