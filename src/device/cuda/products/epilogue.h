// The point-wise layers after a convolution or a product in its group, as a
// chain of operations on its result. The kernel class checks whether its
// library has each of them.
#ifndef RABBET_SRC_DEVICE_CUDA_PRODUCTS_EPILOGUE_H_
#define RABBET_SRC_DEVICE_CUDA_PRODUCTS_EPILOGUE_H_

#include "device/cuda/cuda.h"

enum { RABBET_CUDA_EPILOGUE_MAX = 12 };

typedef enum rabbet_cuda_item_kind_t {
  RABBET_CUDA_ITEM_ACTIVATION,   // op: RABBET_ACTIVATION_...
  RABBET_CUDA_ITEM_UNARY,        // op: RABBET_UNARY_...
  RABBET_CUDA_ITEM_ELEMENTWISE,  // op: RABBET_ELEMENTWISE_...
  RABBET_CUDA_ITEM_SWISH,        // x sigmoid(x)
} rabbet_cuda_item_kind_t;

typedef struct rabbet_cuda_item_t {
  rabbet_cuda_item_kind_t kind;
  int64_t op;
  float alpha, beta;
  int32_t operand;  // value number of a boundary input; -1: none
  bool reversed;    // operand (op) result, else result (op) operand
} rabbet_cuda_item_t;

typedef struct rabbet_cuda_epilogue_t {
  rabbet_cuda_item_t items[RABBET_CUDA_EPILOGUE_MAX];
  int count;
  int32_t result;  // the group's only output
} rabbet_cuda_epilogue_t;

// Reads nodes [first_node, node_count). False unless they are a floating-point
// chain from `start` to the group's only output, which has the shape of
// `start`.
bool rabbet_cuda_epilogue_parse(const rabbet_group_t* group,
                                const rabbet_dims_t* dims, size_t first_node,
                                int32_t start,
                                rabbet_cuda_epilogue_t* out_epilogue);

// Describes a node as an operation on the value `x`; false if epilogues do not
// have it.
bool rabbet_cuda_epilogue_item(const rabbet_group_t* group,
                               const rabbet_group_node_t* node, int32_t x,
                               rabbet_cuda_item_t* out);

// The number in a constant of one element; false if the value is no such
// constant.
bool rabbet_cuda_is_number(const rabbet_group_t* group, int32_t value,
                           double* out_number);

#endif  // RABBET_SRC_DEVICE_CUDA_PRODUCTS_EPILOGUE_H_
