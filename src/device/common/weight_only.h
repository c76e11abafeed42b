// Weight-only groups: constant weights of 4 or 8 bits that are dequantized and
// multiplied with floating-point numbers, and an element-wise epilogue. A pair
// is two such products of one tensor whose results the epilogue combines, as
// the gated perceptrons of decoders do.
#ifndef RABBET_SRC_DEVICE_COMMON_WEIGHT_ONLY_H_
#define RABBET_SRC_DEVICE_COMMON_WEIGHT_ONLY_H_

#include "device/common/propose.h"

enum { RABBET_WEIGHT_ONLY_NODES = 16, RABBET_WEIGHT_ONLY_INPUTS = 24 };

// Numbers for blocks of the weights: for row n of the result's columns and
// index k of the sums, element n / rows * row_stride + k / depth *
// depth_stride. A stride is 0 where one number is for the whole axis.
typedef struct rabbet_weight_blocks_t {
  int64_t rows, depth;
  int64_t row_stride, depth_stride;
  int64_t count;
} rabbet_weight_blocks_t;

// Boundary inputs that make a factor; zero -1: none.
typedef struct rabbet_weight_factor_t {
  int32_t w, scale, zero;
} rabbet_weight_factor_t;

typedef struct rabbet_weight_only_t {
  int32_t x, w;         // boundary inputs: the factors
  int32_t scale, zero;  // boundary inputs; zero -1: none
  int32_t real;         // the dequantized weights
  // Of a pair: the second product's weights, which are like the first one's in
  // all but their contents, and its result; -1: there is one product.
  rabbet_weight_factor_t second;
  int32_t second_result;
  int64_t n, k;    // extents of the weights
  bool is_turned;  // they lie as [n][k], else as [k][n]
  rabbet_weight_blocks_t scales, zeros;
  // The group without the dequantization: nodes[0] is the product of x and w.
  // Outputs and values are those of the whole group, inputs too; those of a
  // pair end with the second result.
  rabbet_group_t plain;
  rabbet_group_node_t nodes[RABBET_WEIGHT_ONLY_NODES];
  int32_t product_inputs[2];
  int32_t inputs[RABBET_WEIGHT_ONLY_INPUTS];
} rabbet_weight_only_t;

// False unless the group has this form: one product or a pair, whose second
// factors alone are dequantized from constants of INT4, FP4, NF4, INT8, UINT8
// or FP8 that are one matrix. Neither elements nor the types of x, scales and
// the epilogue are looked at. *out_product has pointers into itself and the
// group: it must not be moved.
bool rabbet_weight_only_parse(const rabbet_group_t* group,
                              rabbet_weight_only_t* out_product);
// Rows of the product for x of these extents.
int64_t rabbet_weight_only_rows(const rabbet_dims_t* x);

#endif  // RABBET_SRC_DEVICE_COMMON_WEIGHT_ONLY_H_
