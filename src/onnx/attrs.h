// Attributes of the node that is being imported.
#ifndef RABBET_SRC_ONNX_ATTRS_H_
#define RABBET_SRC_ONNX_ATTRS_H_

#include "onnx/import.h"

// All of these give the default when the attribute is absent, and make the node
// fail, naming both types, when it has another type.
const Onnx__AttributeProto* rabbet_onnx_attr(const rabbet_onnx_node_t* node,
                                             const char* name);
bool rabbet_onnx_has_attr(const rabbet_onnx_node_t* node, const char* name);
int64_t rabbet_onnx_attr_int(rabbet_onnx_node_t* node, const char* name,
                             int64_t fallback);
double rabbet_onnx_attr_float(rabbet_onnx_node_t* node, const char* name,
                              double fallback);
// Terminated; lives until the import ends.
const char* rabbet_onnx_attr_string(rabbet_onnx_node_t* node, const char* name,
                                    const char* fallback);

typedef struct rabbet_onnx_ints_t {
  bool present;
  size_t count;
  const int64_t* data;
} rabbet_onnx_ints_t;
rabbet_onnx_ints_t rabbet_onnx_attr_ints(rabbet_onnx_node_t* node,
                                         const char* name);
typedef struct rabbet_onnx_floats_t {
  size_t count;  // 0: absent or empty
  const float* data;
} rabbet_onnx_floats_t;
rabbet_onnx_floats_t rabbet_onnx_attr_floats(rabbet_onnx_node_t* node,
                                             const char* name);
// NULL when absent.
const Onnx__TensorProto* rabbet_onnx_attr_tensor(rabbet_onnx_node_t* node,
                                                 const char* name);
const Onnx__GraphProto* rabbet_onnx_attr_graph(rabbet_onnx_node_t* node,
                                               const char* name);

// "FLOAT", "INTS", ... of an attribute, guessed where old files do not say it.
Onnx__AttributeProto__AttributeType rabbet_onnx_attr_type(
    const Onnx__AttributeProto* attr);
const char* rabbet_onnx_attr_type_name(
    Onnx__AttributeProto__AttributeType type);

// ---- Axes ------------------------------------------------------------------

// An axis counted from the end if negative; fails outside [-rank, rank).
int rabbet_onnx_axis(rabbet_onnx_node_t* node, int64_t axis, int rank);
// Bit 1 << axis for each; fails on an axis given twice.
uint32_t rabbet_onnx_axes_mask(rabbet_onnx_node_t* node,
                               rabbet_onnx_ints_t axes, int rank);
// Attribute `axes`, or else the constant input `index`.
rabbet_onnx_ints_t rabbet_onnx_axes(rabbet_onnx_node_t* node, size_t index);

#endif  // RABBET_SRC_ONNX_ATTRS_H_
