// The parameters of a Resize node.
#ifndef RABBET_SRC_ONNX_IMAGE_RESIZE_H_
#define RABBET_SRC_ONNX_IMAGE_RESIZE_H_

#include "onnx/index.h"

typedef struct rabbet_onnx_resize_t {
  int rank;
  int count;  // axes that the inputs name
  int axes[RABBET_MAX_RANK];
  bool has_scales, has_sizes, has_part;
  double scales[RABBET_MAX_RANK];
  // Scales that are not known now: in units of 2^-40 (ops/image/resize.h).
  bool has_units;
  rabbet_onnx_index_t units[RABBET_MAX_RANK];
  rabbet_onnx_index_t sizes[RABBET_MAX_RANK];
  double part[2 * RABBET_MAX_RANK];
} rabbet_onnx_resize_t;

// The node with `antialias`: each axis is a product with weights of a filter
// that is as wide as an element of the result.
rabbet_tensor_t* rabbet_onnx_resize_smooth(rabbet_onnx_node_t* node,
                                           rabbet_tensor_t* x,
                                           const rabbet_onnx_resize_t* r);

#endif  // RABBET_SRC_ONNX_IMAGE_RESIZE_H_
