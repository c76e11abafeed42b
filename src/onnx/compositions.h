// Compositions of layers that operators of several domains share.
#ifndef RABBET_SRC_ONNX_COMPOSITIONS_H_
#define RABBET_SRC_ONNX_COMPOSITIONS_H_

#include "onnx/index.h"

// ---- Convolution (ops_convolution.c) ---------------------------------------

// With the node's attributes of Conv; `bias` may be NULL.
rabbet_tensor_t* rabbet_onnx_convolution(rabbet_onnx_node_t* node,
                                         rabbet_tensor_t* x,
                                         rabbet_tensor_t* kernel,
                                         rabbet_tensor_t* bias);

// ---- Products (ops_matrix.c) -----------------------------------------------

// As numpy.matmul; with `flip` the last two axes of an operand are exchanged,
// unless it is a vector.
rabbet_tensor_t* rabbet_onnx_product(rabbet_onnx_node_t* node,
                                     rabbet_tensor_t* a, bool flip_a,
                                     rabbet_tensor_t* b, bool flip_b);
// Of the node's first three inputs, with the attributes of Gemm.
rabbet_tensor_t* rabbet_onnx_gemm(rabbet_onnx_node_t* node);

// ---- Normalization (ops_normalization.c) -----------------------------------

// The axes from `first` on, as a mask.
uint32_t rabbet_onnx_axes_from(int first, int rank);
// A vector by channel, in the shape [1, C, 1, ...].
rabbet_tensor_t* rabbet_onnx_by_channel(rabbet_onnx_node_t* node,
                                        rabbet_tensor_t* x, int rank);
// `scale` and `bias` have x's rank; `bias` alone, or both, may be NULL.
rabbet_tensor_t* rabbet_onnx_normalize(rabbet_onnx_node_t* node,
                                       rabbet_tensor_t* x,
                                       rabbet_tensor_t* scale,
                                       rabbet_tensor_t* bias, uint32_t axes,
                                       double epsilon, int64_t groups);
// By groups of channels, which are on axis 1; `scale` and `bias` are vectors
// with a number for each channel.
rabbet_tensor_t* rabbet_onnx_group_normalize(rabbet_onnx_node_t* node,
                                             rabbet_tensor_t* x,
                                             rabbet_tensor_t* scale,
                                             rabbet_tensor_t* bias,
                                             int64_t groups, double epsilon);
// x / sqrt(mean(x^2) + epsilon) * scale over the axes from `axis` on, the root
// in FLOAT.
rabbet_tensor_t* rabbet_onnx_rms_normalize(rabbet_onnx_node_t* node,
                                           rabbet_tensor_t* x,
                                           rabbet_tensor_t* scale, int axis,
                                           double epsilon);

#endif  // RABBET_SRC_ONNX_COMPOSITIONS_H_
