// An 8-bit product and its epilogue, in two ways. As two groups: the product
// with 32-bit sums (INT32 of INT8, FLOAT of FP8), and a group of element-wise
// layers for the rest: scales, bias, functions, added tensors, the rounding of
// the result to 8 bits. Or, for FP8 with one scale for all weights, as one
// group without quantizations: the product times a number, and the rest.
#ifndef RABBET_SRC_DEVICE_CUDA_CUBLASLT_MATMUL_SPLIT_H_
#define RABBET_SRC_DEVICE_CUDA_CUBLASLT_MATMUL_SPLIT_H_

#include "device/common/quantized.h"

enum {
  // Values of the parts that the whole group does not have.
  RABBET_MATMUL_SPLIT_VALUES = 3,
  RABBET_MATMUL_TAIL_NODES = RABBET_QUANTIZED_NODES + 4,
  RABBET_MATMUL_TAIL_INPUTS = RABBET_QUANTIZED_INPUTS + 1,
};

typedef struct rabbet_matmul_split_t {
  rabbet_quantized_t quantized;
  rabbet_group_value_t* values;  // of both groups
  rabbet_group_t product, tail;
  int32_t sums, scaled;  // two new values: the sums; the sums times x's scale
  rabbet_group_node_t nodes[RABBET_MATMUL_TAIL_NODES];
  int32_t scale_inputs[2], factor_inputs[2];
  rabbet_attr_t elementwise[1];
  int64_t product_op;
  // Boundary inputs of the tail: the sums, then the group's except for x and w.
  int32_t inputs[RABBET_MATMUL_TAIL_INPUTS];
  int32_t from[RABBET_MATMUL_TAIL_INPUTS];  // the group's input; -1: sums
  // The group without quantizations; node_count 0: impossible.
  rabbet_group_t direct;
  int32_t alpha;  // the third new value: the product of the scales
  float alpha_number;
  rabbet_group_node_t direct_nodes[RABBET_MATMUL_TAIL_NODES];
  int32_t alpha_inputs[2];
  // Boundary inputs: x, w, alpha (from: -1), and the inputs of the other nodes.
  int32_t direct_inputs[RABBET_MATMUL_TAIL_INPUTS + 2];
  int32_t direct_from[RABBET_MATMUL_TAIL_INPUTS + 2];
} rabbet_matmul_split_t;

// The size of the `values` of rabbet_matmul_split, in bytes.
static inline size_t rabbet_matmul_split_bytes(const rabbet_group_t* group) {
  return (group->value_count + RABBET_MATMUL_SPLIT_VALUES) *
         sizeof(rabbet_group_value_t);
}
// Fills *out_split, which then has pointers into itself, `values` and the
// group: it must not be moved. False unless the group is a quantized product of
// INT8 or FP8.
bool rabbet_matmul_split(const rabbet_group_t* group,
                         rabbet_group_value_t* values,
                         rabbet_matmul_split_t* out_split);
// The dims of the whole group's values, and of the parts' own or reshaped ones;
// the caller frees them.
rabbet_status_t rabbet_matmul_split_dims(const rabbet_matmul_split_t* split,
                                         const rabbet_group_t* group,
                                         const rabbet_dims_t* dims,
                                         rabbet_allocator_t allocator,
                                         rabbet_dims_t** out_dims);

#endif  // RABBET_SRC_DEVICE_CUDA_CUBLASLT_MATMUL_SPLIT_H_
