// Products and convolutions of 8-bit integers with what follows them, through
// any number of quantizations and their inverses.
#ifndef RABBET_SRC_DEVICE_CPU_BYTES_PRODUCT_H_
#define RABBET_SRC_DEVICE_CPU_BYTES_PRODUCT_H_

#include "device/common/quantized.h"
#include "device/cpu/bytes/kernels.h"

typedef struct rabbet_bytes_product_t {
  const rabbet_group_node_t* node;  // the convolution or product
  rabbet_quantized_t factors;       // x, w and their scales
  int32_t bias;  // value number of a constant, one for each channel; or -1
  // The sums times the factors' scales, and the bias, are in units of 1 / base.
  double base;
  double shift;  // added to each bias before
  rabbet_bytes_post_t posts[RABBET_BYTES_POSTS];
  int post_count;
  int32_t result;  // value number of the group's output
  rabbet_dtype_t dtype;
  int32_t zero;
} rabbet_bytes_product_t;

// False unless the group is of this form, INT8 or UINT8 by INT8, with functions
// and added tensors that posts can be.
bool rabbet_bytes_parse(const rabbet_group_t* group,
                        rabbet_bytes_product_t* out_product);

#endif  // RABBET_SRC_DEVICE_CPU_BYTES_PRODUCT_H_
