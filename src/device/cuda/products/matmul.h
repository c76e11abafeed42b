// A matrix product with broadcast batches, as strided products for cuBLASLt and
// cuDNN.
#ifndef RABBET_SRC_DEVICE_CUDA_PRODUCTS_MATMUL_H_
#define RABBET_SRC_DEVICE_CUDA_PRODUCTS_MATMUL_H_

#include "device/cuda/products/epilogue.h"

// An axis of the result, with its strides in elements.
typedef struct rabbet_matmul_axis_t {
  int64_t size;
  int64_t a, b, y;
} rabbet_matmul_axis_t;

// y[..][m][n] = sum over k of a[..][m][k] b[..][k][n]. Batch axes are merged
// with each other and with the rows as far as strides allow. The longest
// remaining one is `batch`; the host loops over the others.
typedef struct rabbet_matmul_shape_t {
  int64_t m, n, k;
  int64_t a_row, a_column, b_row, b_column, y_row;
  rabbet_matmul_axis_t batch;
  rabbet_matmul_axis_t loops[RABBET_MAX_RANK];
  int loop_count;
} rabbet_matmul_shape_t;

// The shape of a matrix product, or of a convolution that is one (channels
// last).
rabbet_status_t rabbet_matmul_shape(const rabbet_group_node_t* node,
                                    const rabbet_dims_t* dims,
                                    rabbet_matmul_shape_t* out_shape);
// Adapts the shape to b in HWC, a constant matrix whose last two axes are
// swapped in memory. False unless b is one matrix of rank 3.
bool rabbet_matmul_turn_weights(const rabbet_group_node_t* node,
                                const rabbet_dims_t* dims,
                                rabbet_matmul_shape_t* shape);
// The host's loop over the remaining batches: the number of turns, and the
// offsets of one turn's matrices.
int64_t rabbet_matmul_turns(const rabbet_matmul_shape_t* shape);
rabbet_matmul_axis_t rabbet_matmul_turn(const rabbet_matmul_shape_t* shape,
                                        int64_t turn);
// Whether the group is a floating-point product with layers after it.
bool rabbet_matmul_matches(const rabbet_group_t* group);
// Whether the group is a floating-point convolution with a 1x1 window, stride 1
// and one group of channels, with an epilogue: without padding it is the
// product of its pixels by its weights. Padding is read from dims; NULL: not
// checked.
bool rabbet_matmul_is_convolution(const rabbet_group_t* group,
                                  const rabbet_dims_t* dims);

// The operations that cuBLASLt can do after a product: y = f(alpha a b +
// residual + bias).
typedef struct rabbet_matmul_epilogue_t {
  float alpha;
  int32_t bias;      // value with one number per column; -1: none
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
// Whether it has one for both the optimal and the largest shapes of the
// profile: a single row at the optimum may be a batch of rows elsewhere.
rabbet_status_t rabbet_matmul_has_epilogue(const rabbet_propose_t* propose,
                                           bool* out_has);

#endif  // RABBET_SRC_DEVICE_CUDA_PRODUCTS_MATMUL_H_
