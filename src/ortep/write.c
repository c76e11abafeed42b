#include "ortep/write.h"

#include <stdlib.h>
#include <string.h>

#include "ortep/fields.h"
#include "ortep/proto.h"

// ---- Tensors

static rabbet_status_t write_tensor_head(const OrtTensorTypeAndShapeInfo* info,
                                         rabbet_strbuf_t* out) {
  ONNXTensorElementDataType type;
  size_t rank = 0;
  int64_t dims[RABBET_MAX_RANK];
  RABBET_RETURN_IF_ERROR(ORT(GetTensorElementType, info, &type));
  RABBET_RETURN_IF_ERROR(ORT(GetDimensionsCount, info, &rank));
  if (type == ONNX_TENSOR_ELEMENT_DATA_TYPE_STRING)
    return RABBET_STATUS(RABBET_STATUS_UNSUPPORTED,
                         "it has a constant of strings");
  if (rank > RABBET_MAX_RANK)
    return RABBET_STATUS(RABBET_STATUS_UNSUPPORTED,
                         "it has a constant of %zu dimensions; at most %d are "
                         "possible",
                         rank, RABBET_MAX_RANK);
  if (rank) RABBET_RETURN_IF_ERROR(ORT(GetDimensions, info, dims, rank));
  for (size_t i = 0; i < rank; ++i)
    rabbet_proto_int(out, ONNX_TENSOR_DIMS, dims[i]);
  rabbet_proto_int(out, ONNX_TENSOR_DATA_TYPE, type);
  return rabbet_ok();
}

rabbet_status_t rabbet_ort_write_tensor(const OrtValue* value, const char* name,
                                        bool has_data, uint32_t field,
                                        rabbet_strbuf_t* out) {
  OrtTensorTypeAndShapeInfo* info = NULL;
  const void* data = NULL;
  size_t size = 0;
  RABBET_RETURN_IF_ERROR(ORT(GetTensorTypeAndShape, value, &info));
  const size_t begin = rabbet_proto_begin(out, field);
  rabbet_status_t status = write_tensor_head(info, out);
  rabbet_ort.api->ReleaseTensorTypeAndShapeInfo(info);
  RABBET_RETURN_IF_ERROR(status);
  if (name) rabbet_proto_text(out, ONNX_TENSOR_NAME, name);
  if (has_data) {
    RABBET_RETURN_IF_ERROR(ORT(GetTensorSizeInBytes, value, &size));
    RABBET_RETURN_IF_ERROR(ORT(GetTensorData, value, &data));
    rabbet_proto_bytes(out, ONNX_TENSOR_RAW_DATA, data, size);
  }
  rabbet_proto_end(out, begin);
  return rabbet_ok();
}

// ---- Descriptions of values

void rabbet_ort_write_value(const char* name, ONNXTensorElementDataType type,
                            const rabbet_dims_t* dims,
                            const char* const* dim_names, uint32_t field,
                            rabbet_strbuf_t* out) {
  const size_t value = rabbet_proto_begin(out, field);
  rabbet_proto_text(out, ONNX_VALUE_NAME, name);
  const size_t kind = rabbet_proto_begin(out, ONNX_VALUE_TYPE);
  const size_t tensor = rabbet_proto_begin(out, ONNX_TYPE_TENSOR);
  rabbet_proto_int(out, ONNX_TENSOR_TYPE_ELEMENT, type);
  const size_t shape = rabbet_proto_begin(out, ONNX_TENSOR_TYPE_SHAPE);
  for (int32_t i = 0; i < dims->rank; ++i) {
    const size_t dim = rabbet_proto_begin(out, ONNX_SHAPE_DIM);
    if (dims->d[i] >= 0)
      rabbet_proto_int(out, ONNX_DIM_VALUE, dims->d[i]);
    else if (dim_names[i])
      rabbet_proto_text(out, ONNX_DIM_NAME, dim_names[i]);
    rabbet_proto_end(out, dim);
  }
  rabbet_proto_end(out, shape);
  rabbet_proto_end(out, tensor);
  rabbet_proto_end(out, kind);
  rabbet_proto_end(out, value);
}

// ---- Attributes

rabbet_status_t rabbet_ort_read_attribute(const OrtOpAttr* attribute,
                                          OrtOpAttrType type, void** out_data,
                                          size_t* out_size) {
  const rabbet_allocator_t allocator = rabbet_allocator_system();
  size_t capacity = 256;
  *out_data = NULL;
  for (int i = 0;; ++i) {
    size_t size = 0;
    RABBET_RETURN_IF_ERROR(
        rabbet_reallocate(allocator, capacity + 1, out_data));
    rabbet_status_t status =
        ORT(ReadOpAttr, attribute, type, *out_data, capacity, &size);
    if (rabbet_is_ok(status)) {
      ((char*)*out_data)[size] = 0;
      *out_size = size;
      return status;
    }
    if (i > 0 || size <= capacity) {
      rabbet_free(allocator, *out_data);
      *out_data = NULL;
      return status;
    }
    rabbet_status_free(status);
    capacity = size;
  }
}

static void write_strings(const char* data, size_t size, rabbet_strbuf_t* out) {
  for (const char *text = data, *end = data + size; text < end;) {
    const char* stop = memchr(text, 0, (size_t)(end - text));
    const size_t length = (size_t)((stop ? stop : end) - text);
    rabbet_proto_bytes(out, ONNX_ATTRIBUTE_STRINGS, text, length);
    text += length + 1;
  }
}

static void write_plain(OrtOpAttrType type, const void* data, size_t size,
                        rabbet_strbuf_t* out) {
  const int64_t* ints = data;
  const float* floats = data;
  const char* text = data;
  switch (type) {
    case ORT_OP_ATTR_INT:
      rabbet_proto_int(out, ONNX_ATTRIBUTE_I, ints[0]);
      rabbet_proto_int(out, ONNX_ATTRIBUTE_TYPE, ONNX_KIND_INT);
      break;
    case ORT_OP_ATTR_INTS:
      for (size_t i = 0; i < size / sizeof(*ints); ++i)
        rabbet_proto_int(out, ONNX_ATTRIBUTE_INTS, ints[i]);
      rabbet_proto_int(out, ONNX_ATTRIBUTE_TYPE, ONNX_KIND_INTS);
      break;
    case ORT_OP_ATTR_FLOAT:
      rabbet_proto_float(out, ONNX_ATTRIBUTE_F, floats[0]);
      rabbet_proto_int(out, ONNX_ATTRIBUTE_TYPE, ONNX_KIND_FLOAT);
      break;
    case ORT_OP_ATTR_FLOATS:
      for (size_t i = 0; i < size / sizeof(*floats); ++i)
        rabbet_proto_float(out, ONNX_ATTRIBUTE_FLOATS, floats[i]);
      rabbet_proto_int(out, ONNX_ATTRIBUTE_TYPE, ONNX_KIND_FLOATS);
      break;
    case ORT_OP_ATTR_STRING:
      rabbet_proto_bytes(out, ONNX_ATTRIBUTE_S, text, size);
      rabbet_proto_int(out, ONNX_ATTRIBUTE_TYPE, ONNX_KIND_STRING);
      break;
    default:
      write_strings(text, size, out);
      rabbet_proto_int(out, ONNX_ATTRIBUTE_TYPE, ONNX_KIND_STRINGS);
      break;
  }
}

static rabbet_status_t write_tensor_attribute(const OrtOpAttr* attribute,
                                              rabbet_strbuf_t* out) {
  OrtValue* value = NULL;
  RABBET_RETURN_IF_ERROR(
      ORT(OpAttr_GetTensorAttributeAsOrtValue, attribute, &value));
  rabbet_status_t status =
      rabbet_ort_write_tensor(value, NULL, true, ONNX_ATTRIBUTE_T, out);
  rabbet_ort.api->ReleaseValue(value);
  rabbet_proto_int(out, ONNX_ATTRIBUTE_TYPE, ONNX_KIND_TENSOR);
  return status;
}

static rabbet_status_t write_attribute_value(const OrtOpAttr* attribute,
                                             OrtOpAttrType type,
                                             rabbet_strbuf_t* out) {
  void* data = NULL;
  size_t size = 0;
  if (type == ORT_OP_ATTR_TENSOR) return write_tensor_attribute(attribute, out);
  if (type < ORT_OP_ATTR_INT || type > ORT_OP_ATTR_STRINGS)
    return RABBET_STATUS(RABBET_STATUS_UNSUPPORTED,
                         "it is of a kind that ONNX Runtime's interface does "
                         "not hand over");
  RABBET_RETURN_IF_ERROR(
      rabbet_ort_read_attribute(attribute, type, &data, &size));
  write_plain(type, data, size, out);
  rabbet_free(rabbet_allocator_system(), data);
  return rabbet_ok();
}

rabbet_status_t rabbet_ort_write_attribute(const OrtOpAttr* attribute,
                                           const char* name,
                                           rabbet_strbuf_t* out) {
  OrtOpAttrType type = ORT_OP_ATTR_UNDEFINED;
  RABBET_RETURN_IF_ERROR(ORT(OpAttr_GetType, attribute, &type));
  // Graphs are written of the node that has them.
  if (type == ORT_OP_ATTR_GRAPH) return rabbet_ok();
  const size_t begin = rabbet_proto_begin(out, ONNX_NODE_ATTRIBUTE);
  rabbet_proto_text(out, ONNX_ATTRIBUTE_NAME, name);
  rabbet_status_t status = write_attribute_value(attribute, type, out);
  rabbet_proto_end(out, begin);
  return RABBET_ANNOTATE(status, "attribute '%s'", name);
}

static rabbet_status_t write_attributes(const OrtNode* node,
                                        rabbet_strbuf_t* out) {
  const rabbet_allocator_t allocator = rabbet_allocator_system();
  size_t count = 0;
  const OrtOpAttr** attributes = NULL;
  RABBET_RETURN_IF_ERROR(ORT(Node_GetNumAttributes, node, &count));
  if (!count) return rabbet_ok();
  RABBET_RETURN_IF_ERROR(rabbet_allocate(allocator, count * sizeof(*attributes),
                                         (void**)&attributes));
  rabbet_status_t status = ORT(Node_GetAttributes, node, attributes, count);
  for (size_t i = 0; rabbet_is_ok(status) && i < count; ++i) {
    const char* name = NULL;
    if (!attributes[i]) continue;  // optional, and not given
    status = ORT(OpAttr_GetName, attributes[i], &name);
    if (rabbet_is_ok(status))
      status = rabbet_ort_write_attribute(attributes[i], name, out);
  }
  rabbet_free(allocator, attributes);
  return status;
}

// ---- Graphs within nodes

typedef rabbet_status_t (*write_get_t)(const OrtGraph* graph,
                                       const OrtValueInfo** values,
                                       size_t count);

static rabbet_status_t write_get_inputs(const OrtGraph* graph,
                                        const OrtValueInfo** values,
                                        size_t count) {
  return ORT(Graph_GetInputs, graph, values, count);
}
static rabbet_status_t write_get_outputs(const OrtGraph* graph,
                                         const OrtValueInfo** values,
                                         size_t count) {
  return ORT(Graph_GetOutputs, graph, values, count);
}
static rabbet_status_t write_get_constants(const OrtGraph* graph,
                                           const OrtValueInfo** values,
                                           size_t count) {
  return ORT(Graph_GetInitializers, graph, values, count);
}

// Types of a body's values are found again by the import.
static rabbet_status_t write_body_value(const OrtValueInfo* info,
                                        uint32_t field, rabbet_strbuf_t* out) {
  const char* name = NULL;
  const OrtValue* constant = NULL;
  RABBET_RETURN_IF_ERROR(ORT(GetValueInfoName, info, &name));
  if (field == ONNX_GRAPH_INITIALIZER) {
    RABBET_RETURN_IF_ERROR(ORT(ValueInfo_GetInitializerValue, info, &constant));
    return constant ? rabbet_ort_write_tensor(constant, name, true, field, out)
                    : rabbet_ok();
  }
  const OrtTypeInfo* type = NULL;
  const OrtTensorTypeAndShapeInfo* tensor = NULL;
  rabbet_ort_value_t value = {0};
  RABBET_RETURN_IF_ERROR(ORT(GetValueInfoTypeInfo, info, &type));
  if (type)
    RABBET_RETURN_IF_ERROR(ORT(CastTypeInfoToTensorInfo, type, &tensor));
  if (tensor) RABBET_RETURN_IF_ERROR(rabbet_ort_read_type(tensor, &value));
  if (value.has_shape) {
    rabbet_ort_write_value(name, value.type, &value.dims, value.dim_names,
                           field, out);
    return rabbet_ok();
  }
  const size_t begin = rabbet_proto_begin(out, field);
  rabbet_proto_text(out, ONNX_VALUE_NAME, name);
  rabbet_proto_end(out, begin);
  return rabbet_ok();
}

static rabbet_status_t write_body_values(const OrtGraph* graph, size_t count,
                                         write_get_t get, uint32_t field,
                                         rabbet_strbuf_t* out) {
  const rabbet_allocator_t allocator = rabbet_allocator_system();
  const OrtValueInfo** values = NULL;
  if (!count) return rabbet_ok();
  RABBET_RETURN_IF_ERROR(
      rabbet_allocate(allocator, count * sizeof(*values), (void**)&values));
  rabbet_status_t status = get(graph, values, count);
  for (size_t i = 0; rabbet_is_ok(status) && i < count; ++i)
    status = write_body_value(values[i], field, out);
  rabbet_free(allocator, values);
  return status;
}

static rabbet_status_t write_body(const OrtGraph* graph, rabbet_strbuf_t* out) {
  size_t inputs = 0, outputs = 0, constants = 0;
  rabbet_ort_graph_t body;
  RABBET_RETURN_IF_ERROR(ORT(Graph_GetNumInputs, graph, &inputs));
  RABBET_RETURN_IF_ERROR(ORT(Graph_GetNumOutputs, graph, &outputs));
  RABBET_RETURN_IF_ERROR(ORT(Graph_GetNumInitializers, graph, &constants));
  RABBET_RETURN_IF_ERROR(write_body_values(graph, inputs, write_get_inputs,
                                           ONNX_GRAPH_INPUT, out));
  RABBET_RETURN_IF_ERROR(write_body_values(graph, outputs, write_get_outputs,
                                           ONNX_GRAPH_OUTPUT, out));
  RABBET_RETURN_IF_ERROR(write_body_values(
      graph, constants, write_get_constants, ONNX_GRAPH_INITIALIZER, out));
  RABBET_RETURN_IF_ERROR(
      rabbet_ort_graph_initialize(graph, out->allocator, &body));
  rabbet_status_t status = rabbet_ok();
  for (size_t i = 0; rabbet_is_ok(status) && i < body.node_count; ++i)
    status = rabbet_ort_write_node(&body, &body.nodes[i], out);
  rabbet_ort_graph_deinitialize(&body);
  return status;
}

static rabbet_status_t write_graph_attribute(const OrtGraph* graph,
                                             const char* name,
                                             rabbet_strbuf_t* out) {
  const size_t attribute = rabbet_proto_begin(out, ONNX_NODE_ATTRIBUTE);
  rabbet_proto_text(out, ONNX_ATTRIBUTE_NAME, name);
  rabbet_proto_int(out, ONNX_ATTRIBUTE_TYPE, ONNX_KIND_GRAPH);
  const size_t body = rabbet_proto_begin(out, ONNX_ATTRIBUTE_G);
  rabbet_proto_text(out, ONNX_GRAPH_NAME, name);
  rabbet_status_t status = write_body(graph, out);
  rabbet_proto_end(out, body);
  rabbet_proto_end(out, attribute);
  return status;
}

static rabbet_status_t write_graphs(const OrtNode* node, rabbet_strbuf_t* out) {
  enum { MOST = 16 };  // graphs of a node: `If` has two
  const OrtGraph* graphs[MOST];
  const char* names[MOST];
  size_t count = 0;
  RABBET_RETURN_IF_ERROR(ORT(Node_GetNumSubgraphs, node, &count));
  if (!count) return rabbet_ok();
  if (count > MOST)
    return RABBET_STATUS(RABBET_STATUS_UNSUPPORTED,
                         "it has %zu graphs; at most %d are possible", count,
                         MOST);
  RABBET_RETURN_IF_ERROR(ORT(Node_GetSubgraphs, node, graphs, count, names));
  rabbet_status_t status = rabbet_ok();
  for (size_t i = 0; rabbet_is_ok(status) && i < count; ++i)
    status = write_graph_attribute(graphs[i], names[i], out);
  return status;
}

// ---- Nodes

static void write_names(const rabbet_ort_graph_t* graph, const int32_t* values,
                        size_t count, uint32_t field, rabbet_strbuf_t* out) {
  while (count && values[count - 1] < 0)
    --count;
  for (size_t i = 0; i < count; ++i)
    rabbet_proto_text(out, field,
                      values[i] < 0 ? "" : graph->values.data[values[i]].name);
}

rabbet_status_t rabbet_ort_write_node(const rabbet_ort_graph_t* graph,
                                      const rabbet_ort_node_t* node,
                                      rabbet_strbuf_t* out) {
  const char* name = NULL;
  RABBET_RETURN_IF_ERROR(ORT(Node_GetName, node->node, &name));
  const size_t begin = rabbet_proto_begin(out, ONNX_GRAPH_NODE);
  write_names(graph, node->reads, node->input_count, ONNX_NODE_INPUT, out);
  write_names(graph, node->outputs, node->output_count, ONNX_NODE_OUTPUT, out);
  if (name && name[0]) rabbet_proto_text(out, ONNX_NODE_NAME, name);
  rabbet_proto_text(out, ONNX_NODE_OP_TYPE, node->op_type);
  if (node->domain[0]) rabbet_proto_text(out, ONNX_NODE_DOMAIN, node->domain);
  rabbet_status_t status = write_attributes(node->node, out);
  if (rabbet_is_ok(status)) status = write_graphs(node->node, out);
  rabbet_proto_end(out, begin);
  return RABBET_ANNOTATE(status, "node '%s' (%s)", name ? name : "",
                         node->op_type);
}
