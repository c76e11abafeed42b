// Layers that the kernel of a product of few rows computes besides it and its
// epilogue: the RMS normalization that makes its rows, and a second product of
// the same rows, whose result the epilogue combines with the first one's, as
// the gated perceptrons of decoders do.
#ifndef RABBET_SRC_DEVICE_CUDA_PRODUCTS_JOINT_H_
#define RABBET_SRC_DEVICE_CUDA_PRODUCTS_JOINT_H_

#include "device/cuda/cuda.h"

enum { RABBET_CUDA_JOINT_NODES = 20, RABBET_CUDA_JOINT_INPUTS = 24 };

typedef struct rabbet_cuda_normalized_t {
  bool is_normalized;
  int32_t scale;  // boundary value: a number for each column of x; -1: none
  float epsilon;
  // The group without the normalization, whose input the products read in
  // place of its result. Inputs, outputs and values are those of the group.
  rabbet_group_t plain;
  rabbet_group_node_t nodes[RABBET_CUDA_JOINT_NODES];
  int32_t inputs[2][2];  // of up to two products
} rabbet_cuda_normalized_t;

// Takes the normalization off a group, if it has one. False if the group has a
// normalization that is none of the rows of its products, or has more nodes
// than are counted here. *out has pointers into itself and the group: it must
// not be moved.
bool rabbet_cuda_normalized_parse(const rabbet_group_t* group,
                                  rabbet_cuda_normalized_t* out);

typedef struct rabbet_cuda_pair_t {
  // Boundary value: the second product's weights, of the first one's shape;
  // the second result; -1: there is one product.
  int32_t weights, result;
  int other;  // the epilogue's operand that is the second result; -1: none
  // The group without the second product: nodes[0] is the one with which the
  // epilogue begins. Inputs end with the second result.
  rabbet_group_t plain;
  rabbet_group_node_t nodes[RABBET_CUDA_JOINT_NODES];
  int32_t inputs[RABBET_CUDA_JOINT_INPUTS];
} rabbet_cuda_pair_t;

// Takes the second product off a group, if it has one. False if products differ
// in more than their weights, or the epilogue (at `dims`, by value) reads the
// second result more than once. *out must not be moved.
bool rabbet_cuda_pair_parse(const rabbet_group_t* group,
                            const rabbet_dims_t* dims, rabbet_cuda_pair_t* out);
// Which operand of the epilogue after the group's first node is the value; -1:
// none. False if the epilogue does not read it exactly once.
bool rabbet_cuda_epilogue_operand(const rabbet_group_t* group,
                                  const rabbet_dims_t* dims, int32_t value,
                                  int* out_operand);

#endif  // RABBET_SRC_DEVICE_CUDA_PRODUCTS_JOINT_H_
