// Functions of a mixture of experts for devices.
#ifndef RABBET_SRC_OPS_PRODUCTS_MOE_H_
#define RABBET_SRC_OPS_PRODUCTS_MOE_H_

#include "ops/op.h"

// Inputs of the operator.
enum {
  RABBET_MOE_HIDDEN = 0,
  RABBET_MOE_EXPERTS = 1,
  RABBET_MOE_SCORES = 2,
  RABBET_MOE_GATE = 3,
  RABBET_MOE_UP = 4,
  RABBET_MOE_DOWN = 5,
  RABBET_MOE_GATE_BIAS = 6,
  RABBET_MOE_UP_BIAS = 7,
  RABBET_MOE_DOWN_BIAS = 8,
  RABBET_MOE_SCALE = 9,
  RABBET_MOE_INPUTS = 10,
};

// hidden [tokens, hidden], experts and scores [tokens, chosen], weights
// [experts, hidden, inner] and [experts, inner, hidden]. Without the weights of
// gate and up, which are given both or not at all, an expert is its last
// product: the tokens have `inner` elements, the results `hidden`.
typedef struct rabbet_moe_sizes_t {
  int64_t tokens, chosen, experts, hidden, inner;
  bool is_gated;
} rabbet_moe_sizes_t;

// Elements of a token.
static inline int64_t rabbet_moe_width(const rabbet_moe_sizes_t* sizes) {
  return sizes->is_gated ? sizes->hidden : sizes->inner;
}

// Quantization of the first products' result before the last product.
typedef struct rabbet_moe_quantization_t {
  rabbet_dtype_t to;    // FLOAT: none
  rabbet_dtype_t kept;  // type of computed scales
  int64_t block;        // elements per scale; 0: the scale is given
} rabbet_moe_quantization_t;

typedef struct rabbet_moe_attrs_t {
  int64_t activation;  // rabbet_moe_act_t
  float limit, alpha, beta;
  rabbet_moe_quantization_t quantization;
} rabbet_moe_attrs_t;

// For known dims of the inputs, NULL for an omitted one; OUT_OF_RANGE if they
// do not match.
RABBET_PRIVATE_API rabbet_status_t
rabbet_moe_resolve(const rabbet_dims_t* const dims[RABBET_MOE_INPUTS],
                   rabbet_moe_sizes_t* out_sizes);
// Reads completed attributes; a quantized block has at most `inner` elements.
RABBET_PRIVATE_API void rabbet_moe_read_attrs(const rabbet_attr_t* attrs,
                                              size_t attr_count, int64_t inner,
                                              rabbet_moe_attrs_t* out_attrs);
// One element of the first products' result.
RABBET_PRIVATE_API float rabbet_moe_activate(const rabbet_moe_attrs_t* attrs,
                                             float gate, float up);
// Quantizes and dequantizes a row of that result. `scale` is the value of input
// SCALE.
RABBET_PRIVATE_API void rabbet_moe_quantize(
    const rabbet_moe_quantization_t* quantization, float scale, float* row,
    int64_t inner);

#endif  // RABBET_SRC_OPS_PRODUCTS_MOE_H_
