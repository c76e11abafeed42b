// Integers of types that networks do not have, held in wider ones.
//
// INT16 and UINT16 are INT32 in the network, UINT32 and UINT64 are INT64. The
// importer remembers which tensors hold such a type. Results that leave its
// range are wrapped to it, so that elements are always those of the model, but
// for UINT64: values from 2^63 on have no place in INT64.
#ifndef RABBET_SRC_ONNX_HELD_H_
#define RABBET_SRC_ONNX_HELD_H_

#include "onnx/emit.h"

// The type (its ONNX number) that the tensor holds; 0: its own.
int32_t rabbet_onnx_held(const rabbet_onnx_importer_t* importer,
                         const rabbet_tensor_t* tensor);
// Remembers the type, if it is one that networks do not have, and warns of
// UINT64. `name` is for the warning.
rabbet_status_t rabbet_onnx_hold(rabbet_onnx_importer_t* importer,
                                 const char* name, rabbet_tensor_t* tensor,
                                 int32_t onnx_type);
// x, whose elements may have left the range of the held type, in that range.
rabbet_tensor_t* rabbet_onnx_wrap(rabbet_onnx_node_t* node, rabbet_tensor_t* x,
                                  int32_t onnx_type);
// The same with the range's limits for elements beyond it.
rabbet_tensor_t* rabbet_onnx_saturate(rabbet_onnx_node_t* node,
                                      rabbet_tensor_t* x, int32_t onnx_type);
// After the node's import: wraps and remembers its outputs. Fails where the
// inputs hold a type that the operator cannot be given.
void rabbet_onnx_hold_outputs(rabbet_onnx_node_t* node);

#endif  // RABBET_SRC_ONNX_HELD_H_
