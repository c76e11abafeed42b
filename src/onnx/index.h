// Arithmetic on extents: static numbers, or INT64 tensors of one
// element that the network follows as expressions.
#ifndef RABBET_SRC_ONNX_INDEX_H_
#define RABBET_SRC_ONNX_INDEX_H_

#include "onnx/emit.h"

typedef struct rabbet_onnx_index_t {
  int64_t value;            // where tensor is NULL
  rabbet_tensor_t* tensor;  // shape [1]
} rabbet_onnx_index_t;

static inline rabbet_onnx_index_t rabbet_onnx_index(int64_t value) {
  return (rabbet_onnx_index_t){.value = value};
}
static inline bool rabbet_onnx_is_static(rabbet_onnx_index_t index) {
  return index.tensor == NULL;
}

// The extent of an axis.
rabbet_onnx_index_t rabbet_onnx_extent(rabbet_onnx_node_t* node,
                                       rabbet_tensor_t* x, int axis);
// The length of a tensor that holds a shape: a vector of known length.
int rabbet_onnx_shape_length(rabbet_onnx_node_t* node, rabbet_tensor_t* shape);
// Element `position` of an integer tensor of rank 0 or 1.
rabbet_onnx_index_t rabbet_onnx_element(rabbet_onnx_node_t* node,
                                        rabbet_tensor_t* x, int position);
// `op` is one of elementwise's: SUM, SUB, PROD, MIN, MAX, FLOOR_DIV, LESS,
// EQUAL (the last two give 0 or 1).
rabbet_onnx_index_t rabbet_onnx_index_op(rabbet_onnx_node_t* node,
                                         const char* op, rabbet_onnx_index_t a,
                                         rabbet_onnx_index_t b);
// ceil(a / b); b is not 0.
rabbet_onnx_index_t rabbet_onnx_ceil_div(rabbet_onnx_node_t* node,
                                         rabbet_onnx_index_t a,
                                         rabbet_onnx_index_t b);
// An INT64 tensor of these elements.
rabbet_tensor_t* rabbet_onnx_index_vector(rabbet_onnx_node_t* node,
                                          const rabbet_onnx_index_t* elements,
                                          size_t count);
bool rabbet_onnx_all_static(const rabbet_onnx_index_t* elements, size_t count,
                            int64_t* out_values);

// A reshape to exactly these extents.
rabbet_tensor_t* rabbet_onnx_reshape(rabbet_onnx_node_t* node,
                                     rabbet_tensor_t* x,
                                     const rabbet_onnx_index_t* dims, int rank);

// A slice over all axes of x.
typedef struct rabbet_onnx_slice_t {
  rabbet_onnx_index_t start[RABBET_MAX_RANK];
  rabbet_onnx_index_t size[RABBET_MAX_RANK];
  rabbet_onnx_index_t stride[RABBET_MAX_RANK];
  const char* mode;       // "STRICT_BOUNDS", ...
  rabbet_tensor_t* fill;  // FILL: scalar of x's type, or NULL for 0
} rabbet_onnx_slice_t;
// The slice that takes all of x.
rabbet_onnx_slice_t rabbet_onnx_slice_all(rabbet_onnx_node_t* node,
                                          rabbet_tensor_t* x);
rabbet_tensor_t* rabbet_onnx_slice(rabbet_onnx_node_t* node, rabbet_tensor_t* x,
                                   const rabbet_onnx_slice_t* slice);
// x (whose extents are 1 or the result's) spread over these extents.
rabbet_tensor_t* rabbet_onnx_spread(rabbet_onnx_node_t* node,
                                    rabbet_tensor_t* x,
                                    const rabbet_onnx_index_t* dims, int rank);
// 0, 1, 2, ... as INT64, in the shape [1, ..., count, ..., 1].
rabbet_tensor_t* rabbet_onnx_indices(rabbet_onnx_node_t* node,
                                     rabbet_onnx_index_t count, int axis,
                                     int rank);

#endif  // RABBET_SRC_ONNX_INDEX_H_
