// Axes known only in a run. Their number and all ranks are known at import; the
// rest is arithmetic on extents between reshapes.
#ifndef RABBET_SRC_ONNX_DYNAMIC_AXES_H_
#define RABBET_SRC_ONNX_DYNAMIC_AXES_H_

#include "onnx/index.h"

typedef struct rabbet_onnx_dynamic_axes_t {
  int count;                                // 0: all is known now
  rabbet_onnx_index_t at[RABBET_MAX_RANK];  // counted from the front
} rabbet_onnx_dynamic_axes_t;

// Whether `axes` (NULL: none) of a tensor of `rank` axes are dynamic; fails if
// their number is not known.
bool rabbet_onnx_read_dynamic_axes(rabbet_onnx_node_t* node,
                                   rabbet_tensor_t* axes, int rank,
                                   rabbet_onnx_dynamic_axes_t* out_axes);
// The element of `values` (one for each axis, from `first` on) that belongs to
// axis `axis`, or `otherwise` where it is none of them.
rabbet_onnx_index_t rabbet_onnx_dynamic_value(
    rabbet_onnx_node_t* node, const rabbet_onnx_dynamic_axes_t* axes,
    rabbet_tensor_t* values, int first, int axis, int64_t otherwise);

rabbet_tensor_t* rabbet_onnx_dynamic_reduce(
    rabbet_onnx_node_t* node, const char* op, rabbet_tensor_t* x,
    const rabbet_onnx_dynamic_axes_t* axes, bool keep_dims);
rabbet_tensor_t* rabbet_onnx_dynamic_squeeze(
    rabbet_onnx_node_t* node, rabbet_tensor_t* x,
    const rabbet_onnx_dynamic_axes_t* axes);
rabbet_tensor_t* rabbet_onnx_dynamic_unsqueeze(
    rabbet_onnx_node_t* node, rabbet_tensor_t* x,
    const rabbet_onnx_dynamic_axes_t* axes);
// x as three axes, of which the middle one is the one that is named; the way
// back is a reshape to x's own extents.
rabbet_tensor_t* rabbet_onnx_dynamic_middle(rabbet_onnx_node_t* node,
                                            rabbet_tensor_t* x,
                                            rabbet_onnx_index_t axis);

#endif  // RABBET_SRC_ONNX_DYNAMIC_AXES_H_
