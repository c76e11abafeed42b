#include "onnx/attrs.h"

#include <string.h>

#include "onnx/emit.h"

const char* rabbet_onnx_attr_type_name(
    Onnx__AttributeProto__AttributeType type) {
  static const char* const names[] = {
      "UNDEFINED", "FLOAT",         "INT",  "STRING",     "TENSOR",
      "GRAPH",     "FLOATS",        "INTS", "STRINGS",    "TENSORS",
      "GRAPHS",    "SPARSE_TENSOR", "?",    "TYPE_PROTO", "TYPE_PROTOS",
  };
  size_t count = sizeof(names) / sizeof(names[0]);
  return (size_t)type < count ? names[type] : "?";
}

Onnx__AttributeProto__AttributeType rabbet_onnx_attr_type(
    const Onnx__AttributeProto* attr) {
  if (attr->type != ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__UNDEFINED) {
    return attr->type;
  }
  if (attr->has_f) return ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__FLOAT;
  if (attr->has_i) return ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__INT;
  if (attr->has_s) return ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__STRING;
  if (attr->t) return ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__TENSOR;
  if (attr->g) return ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__GRAPH;
  if (attr->n_floats) return ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__FLOATS;
  if (attr->n_ints) return ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__INTS;
  if (attr->n_strings) return ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__STRINGS;
  return ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__UNDEFINED;
}

const Onnx__AttributeProto* rabbet_onnx_attr(const rabbet_onnx_node_t* node,
                                             const char* name) {
  for (size_t i = 0; i < node->attr_count; ++i) {
    const char* found = node->attrs[i]->name;
    if (found && !strcmp(found, name)) return node->attrs[i];
  }
  return NULL;
}

bool rabbet_onnx_has_attr(const rabbet_onnx_node_t* node, const char* name) {
  return rabbet_onnx_attr(node, name) != NULL;
}

// The attribute if it is there and of this type.
static const Onnx__AttributeProto* onnx_attr_of(
    rabbet_onnx_node_t* node, const char* name,
    Onnx__AttributeProto__AttributeType type) {
  const Onnx__AttributeProto* attr = rabbet_onnx_attr(node, name);
  if (!attr || !rabbet_onnx_ok(node)) return NULL;
  Onnx__AttributeProto__AttributeType found = rabbet_onnx_attr_type(attr);
  // An empty list in an old file says nothing of its type.
  if (found == type ||
      found == ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__UNDEFINED) {
    return attr;
  }
  RABBET_ONNX_FAIL(node, RABBET_STATUS_INVALID_ARGUMENT,
                   "attribute '%s' is %s, but %s is expected", name,
                   rabbet_onnx_attr_type_name(found),
                   rabbet_onnx_attr_type_name(type));
  return NULL;
}

int64_t rabbet_onnx_attr_int(rabbet_onnx_node_t* node, const char* name,
                             int64_t fallback) {
  const Onnx__AttributeProto* attr =
      onnx_attr_of(node, name, ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__INT);
  return attr ? attr->i : fallback;
}

double rabbet_onnx_attr_float(rabbet_onnx_node_t* node, const char* name,
                              double fallback) {
  const Onnx__AttributeProto* attr =
      onnx_attr_of(node, name, ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__FLOAT);
  return attr ? (double)attr->f : fallback;
}

const char* rabbet_onnx_attr_string(rabbet_onnx_node_t* node, const char* name,
                                    const char* fallback) {
  const Onnx__AttributeProto* attr =
      onnx_attr_of(node, name, ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__STRING);
  if (!attr) return fallback;
  char* text = NULL;
  rabbet_onnx_fail(node, rabbet_arena_allocate(&node->importer->arena,
                                               attr->s.len + 1, (void**)&text));
  if (!rabbet_onnx_ok(node)) return fallback;
  if (attr->s.len) memcpy(text, attr->s.data, attr->s.len);
  return text;
}

rabbet_onnx_ints_t rabbet_onnx_attr_ints(rabbet_onnx_node_t* node,
                                         const char* name) {
  const Onnx__AttributeProto* attr =
      onnx_attr_of(node, name, ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__INTS);
  if (!attr) return (rabbet_onnx_ints_t){0};
  return (rabbet_onnx_ints_t){true, attr->n_ints, attr->ints};
}

rabbet_onnx_floats_t rabbet_onnx_attr_floats(rabbet_onnx_node_t* node,
                                             const char* name) {
  const Onnx__AttributeProto* attr =
      onnx_attr_of(node, name, ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__FLOATS);
  if (!attr) return (rabbet_onnx_floats_t){0};
  return (rabbet_onnx_floats_t){attr->n_floats, attr->floats};
}

const Onnx__TensorProto* rabbet_onnx_attr_tensor(rabbet_onnx_node_t* node,
                                                 const char* name) {
  const Onnx__AttributeProto* attr =
      onnx_attr_of(node, name, ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__TENSOR);
  return attr ? attr->t : NULL;
}

const Onnx__GraphProto* rabbet_onnx_attr_graph(rabbet_onnx_node_t* node,
                                               const char* name) {
  const Onnx__AttributeProto* attr =
      onnx_attr_of(node, name, ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__GRAPH);
  return attr ? attr->g : NULL;
}

// ---- Axes ------------------------------------------------------------------

int rabbet_onnx_axis(rabbet_onnx_node_t* node, int64_t axis, int rank) {
  if (axis >= -rank && axis < rank) {
    return (int)(axis < 0 ? axis + rank : axis);
  }
  RABBET_ONNX_FAIL(node, RABBET_STATUS_OUT_OF_RANGE,
                   "axis %lld is outside [%d, %d) of a tensor of rank %d",
                   (long long)axis, -rank, rank, rank);
  return 0;
}

uint32_t rabbet_onnx_axes_mask(rabbet_onnx_node_t* node,
                               rabbet_onnx_ints_t axes, int rank) {
  uint32_t mask = 0;
  for (size_t i = 0; i < axes.count && rabbet_onnx_ok(node); ++i) {
    uint32_t bit = 1u << rabbet_onnx_axis(node, axes.data[i], rank);
    if ((mask & bit) && rabbet_onnx_ok(node)) {
      RABBET_ONNX_FAIL(node, RABBET_STATUS_INVALID_ARGUMENT,
                       "axis %lld is given twice", (long long)axes.data[i]);
    }
    mask |= bit;
  }
  return mask;
}

rabbet_onnx_ints_t rabbet_onnx_axes(rabbet_onnx_node_t* node, size_t index) {
  rabbet_onnx_ints_t axes = rabbet_onnx_attr_ints(node, "axes");
  if (axes.present || index >= node->input_count || !node->inputs[index]) {
    return axes;
  }
  return rabbet_onnx_constant_ints(node, "axes", node->inputs[index]);
}
