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
// log(exp(x) / sum(exp(x))) without exponentials that overflow.
rabbet_tensor_t* rabbet_onnx_log_softmax(rabbet_onnx_node_t* node,
                                         rabbet_tensor_t* x, int axis);

// ---- Quantization (ops_quantize.c, ops_integer.c) --------------------------

// (x - zero) * scale in FLOAT. `scale` and `zero` may be NULL for 1 and 0; they
// are single numbers, vectors along `axis`, or of x's rank.
rabbet_tensor_t* rabbet_onnx_dequantize(rabbet_onnx_node_t* node,
                                        rabbet_tensor_t* x,
                                        rabbet_tensor_t* scale,
                                        rabbet_tensor_t* zero, int axis);
rabbet_tensor_t* rabbet_onnx_quantize(rabbet_onnx_node_t* node,
                                      rabbet_tensor_t* x,
                                      rabbet_tensor_t* scale,
                                      rabbet_tensor_t* zero, int axis,
                                      rabbet_dtype_t to);
// The outputs of DynamicQuantizeLinear: x in UINT8, its scale and zero point.
void rabbet_onnx_dynamic_quantize(rabbet_onnx_node_t* node, rabbet_tensor_t* x,
                                  rabbet_tensor_t** outputs);
// A quantized operand of a product; `scale` NULL: 1, `zero` NULL: 0.
typedef struct rabbet_onnx_quantized_t {
  rabbet_tensor_t *x, *scale, *zero;
} rabbet_onnx_quantized_t;
// The matrix product of two dequantized operands, in FLOAT. Scale and zero
// point are single numbers, or vectors by row of `a` and by column of `b`.
rabbet_tensor_t* rabbet_onnx_quantized_product(
    rabbet_onnx_node_t* node, const rabbet_onnx_quantized_t* a,
    const rabbet_onnx_quantized_t* b);

// ---- Attention (ops_attention.c) -------------------------------------------

// x [batch, length, heads * size] as [batch, length, heads, size]; `attr` says
// how many heads there are.
rabbet_tensor_t* rabbet_onnx_split_heads(rabbet_onnx_node_t* node,
                                         rabbet_tensor_t* x, const char* attr);
// The inverse of rabbet_onnx_split_heads.
rabbet_tensor_t* rabbet_onnx_join_heads(rabbet_onnx_node_t* node,
                                        rabbet_tensor_t* x);
// x [batch, heads, length, size] with each head `times` times, one after the
// other.
rabbet_tensor_t* rabbet_onnx_repeat_heads(rabbet_onnx_node_t* node,
                                          rabbet_tensor_t* x,
                                          rabbet_onnx_index_t times);
typedef struct rabbet_onnx_rotation_t {
  rabbet_tensor_t *cosines, *sines;  // of rank 4
  rabbet_onnx_index_t turned;        // how much of the last axis is rotated
  bool interleaved;  // pairs are neighbours, and not halves apart
} rabbet_onnx_rotation_t;
// Rotates pairs of the last axis of x, which has rank 4.
rabbet_tensor_t* rabbet_onnx_rotate(rabbet_onnx_node_t* node,
                                    rabbet_tensor_t* x,
                                    const rabbet_onnx_rotation_t* rotation);

// ---- Another operator (operators.c) ----------------------------------------

// Imports the node, with the inputs that it has now, as this operator of the
// default domain.
void rabbet_onnx_import_as(rabbet_onnx_node_t* node, const char* name,
                           int64_t opset);

// ---- Normalization (ops_normalization.c) -----------------------------------

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
// x / sqrt(mean(x^2) + epsilon) * scale over the axes from `axis` on.
rabbet_tensor_t* rabbet_onnx_rms_normalize(rabbet_onnx_node_t* node,
                                           rabbet_tensor_t* x,
                                           rabbet_tensor_t* scale, int axis,
                                           double epsilon);

#endif  // RABBET_SRC_ONNX_COMPOSITIONS_H_
