// Nodes of a model as layers of a network that has others already.
#ifndef RABBET_SRC_ONNX_PART_H_
#define RABBET_SRC_ONNX_PART_H_

#include "rabbet/network.h"

// Tensors in the place of the graph's inputs, in their order, and room for its
// outputs, which are not outputs of the network.
typedef struct rabbet_onnx_part_t {
  rabbet_tensor_t* const* inputs;
  size_t input_count;
  rabbet_tensor_t** outputs;
  size_t output_count;
} rabbet_onnx_part_t;

// `data` is copied. Layers of a failed import stay in the network, unused.
RABBET_PRIVATE_API rabbet_status_t
rabbet_onnx_import_part(rabbet_network_t* network, const void* data,
                        size_t size, const rabbet_onnx_part_t* part);

#endif  // RABBET_SRC_ONNX_PART_H_
