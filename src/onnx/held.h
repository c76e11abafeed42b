// Numbers of types that networks do not have, held in wider ones.
//
// INT16 and UINT16 are INT32 in the network, UINT32 and UINT64 are INT64,
// integers of 2 and 4 bits INT8 and UINT8; FLOAT8E5M2 and the types of FNUZ are
// HALF, real numbers of 4 and 6 bits FP8 (file/types.def). The importer
// remembers which tensors hold such a type. Results that leave its range are
// wrapped or rounded to it, so that elements are always those of the model, but
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
// Remembers for y, which has elements of x, what x holds.
void rabbet_onnx_hold_like(rabbet_onnx_node_t* node, rabbet_tensor_t* y,
                           const rabbet_tensor_t* x);
// The type that the tensor has in the model; DOUBLE is FLOAT.
int32_t rabbet_onnx_type_in_model(rabbet_onnx_node_t* node,
                                  rabbet_tensor_t* tensor);
// x, whose elements may have left the range of the held type, in that range.
rabbet_tensor_t* rabbet_onnx_wrap(rabbet_onnx_node_t* node, rabbet_tensor_t* x,
                                  int32_t onnx_type);
// The same with the range's limits for elements beyond it. Types of more than
// 16 bits are left as they are.
rabbet_tensor_t* rabbet_onnx_saturate(rabbet_onnx_node_t* node,
                                      rabbet_tensor_t* x, int32_t onnx_type);
// x in a type of the model, as the operator Cast with the node's attributes
// `saturate` and `round_mode` gives it, and held in the network's type.
rabbet_tensor_t* rabbet_onnx_convert(rabbet_onnx_node_t* node,
                                     rabbet_tensor_t* x, int32_t onnx_type);
// x rounded to nearest even as a real number of 8 bits or fewer, in FLOAT.
// Those that are too large become the largest, or, unless `saturates`, infinity
// or NaN where the type has them.
rabbet_tensor_t* rabbet_onnx_round(rabbet_onnx_node_t* node, rabbet_tensor_t* x,
                                   int32_t onnx_type, bool saturates);
// x as a power of two in E8M0, rounded as the attribute `round_mode` says.
rabbet_tensor_t* rabbet_onnx_round_to_power(rabbet_onnx_node_t* node,
                                            rabbet_tensor_t* x, bool saturates);
// The bits of elements as those of another type of the network.
rabbet_tensor_t* rabbet_onnx_bits_as(rabbet_onnx_node_t* node,
                                     rabbet_tensor_t* x, rabbet_dtype_t dtype);
// After the node's import: wraps and remembers its outputs. Fails where the
// inputs hold a type that the operator cannot be given.
void rabbet_onnx_hold_outputs(rabbet_onnx_node_t* node);

#endif  // RABBET_SRC_ONNX_HELD_H_
