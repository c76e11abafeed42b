// Functions with which the operators' importers add layers.
//
// Every function does nothing and returns NULL (or zeros) once the node has
// failed; see rabbet_onnx_node_t. Ranks of operands that must agree are made
// equal by ones in front, as ONNX broadcasts.
#ifndef RABBET_SRC_ONNX_EMIT_H_
#define RABBET_SRC_ONNX_EMIT_H_

#include "onnx/attrs.h"

// ---- Known properties of a tensor ------------------------------------------

rabbet_dims_t rabbet_onnx_dims(rabbet_onnx_node_t* node, rabbet_tensor_t* x);
int rabbet_onnx_rank(rabbet_onnx_node_t* node, rabbet_tensor_t* x);
// Fails, naming the operand, unless x (if it is given) has this rank.
void rabbet_onnx_check_rank(rabbet_onnx_node_t* node, const char* operand,
                            rabbet_tensor_t* x, int rank);
rabbet_dtype_t rabbet_onnx_dtype_of(rabbet_onnx_node_t* node,
                                    rabbet_tensor_t* x);
bool rabbet_onnx_is_float(rabbet_onnx_node_t* node, rabbet_tensor_t* x);
// The network's type in the place of a type of ONNX (file/model.h).
rabbet_status_t rabbet_onnx_node_dtype(const rabbet_onnx_node_t* node,
                                       int32_t onnx_type,
                                       rabbet_dtype_t* out_dtype,
                                       bool* out_narrowed);
// Weights: data for the network's lifetime.
bool rabbet_onnx_is_constant(rabbet_onnx_node_t* node, rabbet_tensor_t* x,
                             rabbet_onnx_constant_t* out_constant);
// Elements of an integer tensor, if weights or expressions give them all.
// Fails, naming the operand, if they are not constant.
rabbet_onnx_ints_t rabbet_onnx_constant_ints(rabbet_onnx_node_t* node,
                                             const char* operand,
                                             rabbet_tensor_t* x);
// The same without failing: `present` is false.
rabbet_onnx_ints_t rabbet_onnx_try_ints(rabbet_onnx_node_t* node,
                                        rabbet_tensor_t* x);
// The one number in a constant tensor; false if it is not constant.
bool rabbet_onnx_constant_number(rabbet_onnx_node_t* node, rabbet_tensor_t* x,
                                 double* out_value);
// Input `index`, or NULL if it is omitted.
static inline rabbet_tensor_t* rabbet_onnx_input(const rabbet_onnx_node_t* node,
                                                 size_t index) {
  return index < node->input_count ? node->inputs[index] : NULL;
}
// The same, failing if it is omitted.
rabbet_tensor_t* rabbet_onnx_required(rabbet_onnx_node_t* node, size_t index);
static inline bool rabbet_onnx_wants(const rabbet_onnx_node_t* node,
                                     size_t index) {
  return index < node->output_count && node->proto->output[index][0];
}

// ---- Constants -------------------------------------------------------------

// `data` must live as long as the network.
rabbet_tensor_t* rabbet_onnx_weights(rabbet_onnx_node_t* node,
                                     rabbet_dtype_t dtype, const void* data,
                                     const rabbet_dims_t* dims);
// Memory for `data` above, zeroed; *out_count elements.
void* rabbet_onnx_weights_room(rabbet_onnx_node_t* node, rabbet_dtype_t dtype,
                               const rabbet_dims_t* dims, int64_t* out_count);
// One number, in the shape [1, ..., 1] of that rank.
rabbet_tensor_t* rabbet_onnx_number(rabbet_onnx_node_t* node,
                                    rabbet_dtype_t dtype, int rank,
                                    double value);
rabbet_tensor_t* rabbet_onnx_int64s(rabbet_onnx_node_t* node,
                                    const int64_t* values, size_t count);

// ---- Layers ----------------------------------------------------------------

#define RABBET_ONNX_INT(attr_name, value)              \
  ((rabbet_attr_t){.name = (attr_name),                \
                   .type = RABBET_ATTR_INT,            \
                   .data = (const int64_t[]){(value)}, \
                   .count = 1})
#define RABBET_ONNX_BOOL(attr_name, value)                  \
  ((rabbet_attr_t){.name = (attr_name),                     \
                   .type = RABBET_ATTR_BOOL,                \
                   .data = (const int64_t[]){(value) != 0}, \
                   .count = 1})
#define RABBET_ONNX_FLOAT(attr_name, value)           \
  ((rabbet_attr_t){.name = (attr_name),               \
                   .type = RABBET_ATTR_FLOAT,         \
                   .data = (const double[]){(value)}, \
                   .count = 1})
#define RABBET_ONNX_INTS(attr_name, values, number) \
  ((rabbet_attr_t){.name = (attr_name),             \
                   .type = RABBET_ATTR_INTS,        \
                   .data = (values),                \
                   .count = (size_t)(number)})

rabbet_tensor_t* rabbet_onnx_layer(rabbet_onnx_node_t* node, const char* op,
                                   rabbet_tensor_t* const* inputs,
                                   size_t input_count,
                                   const rabbet_attr_t* attrs,
                                   size_t attr_count);
// The same for an operator with several outputs; nothing is folded.
void rabbet_onnx_layer_outputs(rabbet_onnx_node_t* node, const char* op,
                               rabbet_tensor_t* const* inputs,
                               size_t input_count, const rabbet_attr_t* attrs,
                               size_t attr_count, rabbet_tensor_t** outputs,
                               size_t output_count);
// Fails runs in which an element of `condition`, BOOL, is false.
void rabbet_onnx_assert(rabbet_onnx_node_t* node, rabbet_tensor_t* condition,
                        const char* message);
// The number of an enumerator: ("unary", "op", "EXP").
int64_t rabbet_onnx_enumerator(rabbet_onnx_node_t* node, const char* op,
                               const char* attr, const char* name);

rabbet_tensor_t* rabbet_onnx_unary(rabbet_onnx_node_t* node, const char* op,
                                   rabbet_tensor_t* x);
rabbet_tensor_t* rabbet_onnx_binary(rabbet_onnx_node_t* node, const char* op,
                                    rabbet_tensor_t* a, rabbet_tensor_t* b);
// With a number of x's type on the right.
rabbet_tensor_t* rabbet_onnx_with_number(rabbet_onnx_node_t* node,
                                         const char* op, rabbet_tensor_t* x,
                                         double number);
rabbet_tensor_t* rabbet_onnx_activation(rabbet_onnx_node_t* node,
                                        const char* type, rabbet_tensor_t* x,
                                        double alpha, double beta);
// x itself if it has the type already.
rabbet_tensor_t* rabbet_onnx_cast(rabbet_onnx_node_t* node, rabbet_tensor_t* x,
                                  rabbet_dtype_t dtype);
// x in FLOAT, or as it is if it is DOUBLE.
rabbet_tensor_t* rabbet_onnx_in_float(rabbet_onnx_node_t* node,
                                      rabbet_tensor_t* x);
// The type that the operator is computed in: FLOAT, or DOUBLE if input 0 has
// that.
rabbet_dtype_t rabbet_onnx_wide(rabbet_onnx_node_t* node);
// No axes: x itself.
rabbet_tensor_t* rabbet_onnx_reduce(rabbet_onnx_node_t* node, const char* op,
                                    rabbet_tensor_t* x, uint32_t axes,
                                    bool keep_dims);
rabbet_tensor_t* rabbet_onnx_select(rabbet_onnx_node_t* node,
                                    rabbet_tensor_t* condition,
                                    rabbet_tensor_t* yes, rabbet_tensor_t* no);
rabbet_tensor_t* rabbet_onnx_concat(rabbet_onnx_node_t* node,
                                    rabbet_tensor_t* const* inputs,
                                    size_t count, int axis);
rabbet_tensor_t* rabbet_onnx_matmul(rabbet_onnx_node_t* node,
                                    rabbet_tensor_t* a, const char* op_a,
                                    rabbet_tensor_t* b, const char* op_b);
// Values and indices of the best along an axis: as many as the tensor `k` says,
// or `count` if it is NULL. Of equal ones the first comes first.
void rabbet_onnx_topk(rabbet_onnx_node_t* node, rabbet_tensor_t* x,
                      rabbet_tensor_t* k, int64_t count, int axis, bool largest,
                      rabbet_tensor_t** outputs);
// Positions of the elements that are not zero, INT64 [rank, count].
rabbet_tensor_t* rabbet_onnx_non_zero(rabbet_onnx_node_t* node,
                                      rabbet_tensor_t* x);
// Slices of x along an axis at INT64 indices, which are within bounds.
rabbet_tensor_t* rabbet_onnx_take(rabbet_onnx_node_t* node, rabbet_tensor_t* x,
                                  rabbet_tensor_t* indices, int axis);
// All elements of x in one row.
rabbet_tensor_t* rabbet_onnx_flat(rabbet_onnx_node_t* node, rabbet_tensor_t* x);
rabbet_tensor_t* rabbet_onnx_softmax(rabbet_onnx_node_t* node,
                                     rabbet_tensor_t* x, int axis);
// INT64, one element for each axis.
rabbet_tensor_t* rabbet_onnx_shape(rabbet_onnx_node_t* node,
                                   rabbet_tensor_t* x);
rabbet_tensor_t* rabbet_onnx_transpose(rabbet_onnx_node_t* node,
                                       rabbet_tensor_t* x, const int64_t* perm);

// ---- Axes of extent 1 ------------------------------------------------------

// Inserts extents of 1 at the axes (of the result) in the mask.
rabbet_tensor_t* rabbet_onnx_unsqueeze(rabbet_onnx_node_t* node,
                                       rabbet_tensor_t* x, uint32_t axes,
                                       int out_rank);
rabbet_tensor_t* rabbet_onnx_squeeze(rabbet_onnx_node_t* node,
                                     rabbet_tensor_t* x, uint32_t axes);
// x with ones in front of its extents up to that rank.
rabbet_tensor_t* rabbet_onnx_to_rank(rabbet_onnx_node_t* node,
                                     rabbet_tensor_t* x, int rank);
void rabbet_onnx_align(rabbet_onnx_node_t* node, rabbet_tensor_t** tensors,
                       size_t count);

#endif  // RABBET_SRC_ONNX_EMIT_H_
