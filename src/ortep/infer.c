#include "ortep/infer.h"

#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "ortep/fields.h"
#include "ortep/graph.h"
#include "ortep/proto.h"
#include "ortep/write.h"
#include "rabbet/onnx.h"

// Of a model whose operators are plugins.
enum { INFER_IR_VERSION = 8, INFER_OPSET = 17 };

static void infer_write_opset(rabbet_strbuf_t* out, const char* domain,
                              int64_t version) {
  const size_t begin = rabbet_proto_begin(out, ONNX_MODEL_OPSET);
  rabbet_proto_text(out, ONNX_OPSET_DOMAIN, domain);
  rabbet_proto_int(out, ONNX_OPSET_VERSION, version);
  rabbet_proto_end(out, begin);
}

// The inputs of the model, of the types and shapes of the node's.
static rabbet_status_t infer_write_inputs(OrtShapeInferContext* context,
                                          size_t count, rabbet_strbuf_t* out) {
  for (size_t i = 0; i < count; ++i) {
    OrtTensorTypeAndShapeInfo* info = NULL;
    rabbet_ort_value_t value = {0};
    char name[32];
    snprintf(name, sizeof(name), "x%zu", i);
    RABBET_RETURN_IF_ERROR(
        ORT(ShapeInferContext_GetInputTypeShape, context, i, &info));
    if (!info) continue;
    // The context's.
    RABBET_RETURN_IF_ERROR(rabbet_ort_read_type(info, &value));
    rabbet_ort_write_value(name, value.type, &value.dims, value.dim_names,
                           ONNX_GRAPH_INPUT, out);
  }
  return rabbet_ok();
}

static rabbet_status_t infer_write_node(const char* op_type, const char* domain,
                                        const char* const* attributes,
                                        size_t attribute_count,
                                        OrtShapeInferContext* context,
                                        size_t inputs, rabbet_strbuf_t* out) {
  const size_t begin = rabbet_proto_begin(out, ONNX_GRAPH_NODE);
  rabbet_status_t status = rabbet_ok();
  for (size_t i = 0; i < inputs; ++i) {
    char name[32];
    snprintf(name, sizeof(name), "x%zu", i);
    rabbet_proto_text(out, ONNX_NODE_INPUT, name);
  }
  rabbet_proto_text(out, ONNX_NODE_OUTPUT, "y");
  rabbet_proto_text(out, ONNX_NODE_OP_TYPE, op_type);
  if (domain[0]) rabbet_proto_text(out, ONNX_NODE_DOMAIN, domain);
  for (size_t i = 0; rabbet_is_ok(status) && i < attribute_count; ++i) {
    const OrtOpAttr* attribute = NULL;
    // One that the node does not have is an error there.
    rabbet_status_ignore(ORT(ShapeInferContext_GetAttribute, context,
                             attributes[i], &attribute));
    if (attribute)
      status = rabbet_ort_write_attribute(attribute, attributes[i], out);
  }
  rabbet_proto_end(out, begin);
  return status;
}

static rabbet_status_t infer_write(const char* op_type, const char* domain,
                                   const char* const* attributes,
                                   size_t attribute_count,
                                   OrtShapeInferContext* context,
                                   rabbet_strbuf_t* out) {
  size_t inputs = 0;
  RABBET_RETURN_IF_ERROR(
      ORT(ShapeInferContext_GetInputCount, context, &inputs));
  rabbet_proto_int(out, ONNX_MODEL_IR_VERSION, INFER_IR_VERSION);
  infer_write_opset(out, "", INFER_OPSET);
  if (domain[0]) infer_write_opset(out, domain, 1);
  const size_t graph = rabbet_proto_begin(out, ONNX_MODEL_GRAPH);
  rabbet_proto_text(out, ONNX_GRAPH_NAME, op_type);
  RABBET_RETURN_IF_ERROR(infer_write_inputs(context, inputs, out));
  RABBET_RETURN_IF_ERROR(infer_write_node(
      op_type, domain, attributes, attribute_count, context, inputs, out));
  const size_t output = rabbet_proto_begin(out, ONNX_GRAPH_OUTPUT);
  rabbet_proto_text(out, ONNX_VALUE_NAME, "y");
  rabbet_proto_end(out, output);
  rabbet_proto_end(out, graph);
  return rabbet_strbuf_status(out);
}

// ---- Outputs

static rabbet_status_t infer_set_output(OrtShapeInferContext* context,
                                        size_t index, rabbet_tensor_t* tensor) {
  OrtTensorTypeAndShapeInfo* info = NULL;
  rabbet_dtype_t dtype;
  rabbet_dims_t dims;
  const char* names[RABBET_MAX_RANK] = {0};
  char made[RABBET_MAX_RANK][32];
  static atomic_ullong number;
  RABBET_RETURN_IF_ERROR(rabbet_tensor_dtype(tensor, &dtype));
  RABBET_RETURN_IF_ERROR(rabbet_tensor_dims(tensor, &dims));
  for (int32_t i = 0; i < dims.rank; ++i) {
    names[i] = dims.d[i] < 0 ? rabbet_tensor_dim_name(tensor, i) : "";
    if (names[i]) continue;
    // An extent without a name would be -1. No two of them have one name.
    snprintf(made[i], sizeof(made[i]), "rabbet_%llu",
             (unsigned long long)atomic_fetch_add(&number, 1));
    names[i] = made[i];
  }
  RABBET_RETURN_IF_ERROR(ORT(CreateTensorTypeAndShapeInfo, &info));
  rabbet_status_t status =
      ORT(SetTensorElementType, info, rabbet_ort_type(dtype));
  if (rabbet_is_ok(status))
    status = ORT(SetDimensions, info, dims.d, (size_t)dims.rank);
  if (rabbet_is_ok(status) && dims.rank)
    status = ORT(SetSymbolicDimensions, info, names, (size_t)dims.rank);
  if (rabbet_is_ok(status))
    status = ORT(ShapeInferContext_SetOutputTypeShape, context, index, info);
  rabbet_ort.api->ReleaseTensorTypeAndShapeInfo(info);
  return status;
}

// The plugin's layer has all outputs, also those that the model does not name.
static rabbet_status_t infer_set_outputs(OrtShapeInferContext* context,
                                         const rabbet_network_t* network) {
  const size_t layers = rabbet_network_layer_count(network);
  const rabbet_layer_t* plugin = NULL;
  for (size_t i = 0; i < layers && !plugin; ++i) {
    const rabbet_layer_t* layer = rabbet_network_layer(network, i);
    if (strcmp(rabbet_layer_op(layer), "plugin") == 0) plugin = layer;
  }
  if (!plugin)
    return RABBET_STATUS(RABBET_STATUS_INTERNAL, "no layer of a plugin");
  RABBET_RETURN_IF_ERROR(
      infer_set_output(context, 0, rabbet_layer_output(plugin, 0)));
  for (size_t i = 1; i < rabbet_layer_output_count(plugin); ++i) {
    // A node may leave the last outputs out.
    rabbet_status_t status =
        infer_set_output(context, i, rabbet_layer_output(plugin, i));
    if (rabbet_is_ok(status)) continue;
    rabbet_status_ignore(status);
    break;
  }
  return rabbet_ok();
}

rabbet_status_t rabbet_ort_infer(const char* op_type, const char* domain,
                                 const char* const* attributes,
                                 size_t attribute_count,
                                 OrtShapeInferContext* context) {
  const rabbet_allocator_t allocator = rabbet_allocator_system();
  const rabbet_onnx_options_t options = {.struct_size = sizeof(options),
                                         .keep_double = 1};
  rabbet_strbuf_t bytes;
  rabbet_network_t* network = NULL;
  rabbet_strbuf_initialize(allocator, &bytes);
  rabbet_status_t status = infer_write(op_type, domain, attributes,
                                       attribute_count, context, &bytes);
  if (rabbet_is_ok(status))
    status =
        rabbet_network_create(0, allocator, (rabbet_logger_t){0}, &network);
  if (rabbet_is_ok(status))
    status = rabbet_onnx_import_memory(network, bytes.data, bytes.size, NULL,
                                       &options, NULL);
  if (rabbet_is_ok(status)) status = infer_set_outputs(context, network);
  rabbet_network_release(network);
  rabbet_strbuf_deinitialize(&bytes);
  return RABBET_ANNOTATE(status, "shapes of the outputs of '%s'", op_type);
}
