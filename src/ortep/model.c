#include "ortep/model.h"

#include <string.h>

#include "ortep/fields.h"
#include "ortep/proto.h"
#include "ortep/write.h"

// Constants of more bytes stay where ONNX Runtime has them.
enum { MODEL_SMALL_BYTES = 4096 };
// Of a model that does not say its own.
enum { MODEL_IR_VERSION = 8 };

// ---- Inputs, outputs, constants

static rabbet_status_t model_port(rabbet_ort_model_t* model,
                                  const rabbet_ort_graph_t* graph,
                                  int32_t number, rabbet_ort_port_t* out_port) {
  const rabbet_ort_value_t* value = &graph->values.data[number];
  *out_port = (rabbet_ort_port_t){
      .value = number, .type = value->type, .dims = value->dims};
  for (int32_t i = 0; i < value->dims.rank; ++i)
    if (value->dim_names[i])
      RABBET_RETURN_IF_ERROR(rabbet_arena_strdup(
          &model->arena, value->dim_names[i], &out_port->dim_names[i]));
  return rabbet_arena_strdup(&model->arena, value->name, &out_port->name);
}

static rabbet_status_t model_add_constant(rabbet_ort_model_t* model,
                                          const rabbet_ort_value_t* value) {
  rabbet_onnx_initializer_t weights = {0};
  RABBET_RETURN_IF_ERROR(
      ORT(GetTensorSizeInBytes, value->constant, &weights.size));
  RABBET_RETURN_IF_ERROR(ORT(GetTensorData, value->constant, &weights.data));
  const bool is_small = weights.size <= MODEL_SMALL_BYTES;
  RABBET_RETURN_IF_ERROR(
      rabbet_ort_write_tensor(value->constant, value->name, is_small,
                              ONNX_GRAPH_INITIALIZER, &model->body));
  if (is_small) return rabbet_ok();
  RABBET_RETURN_IF_ERROR(
      rabbet_arena_strdup(&model->arena, value->name, &weights.name));
  return RABBET_VEC_PUSH(model->allocator, &model->weights, weights);
}

// What the nodes read and none of them makes, each once.
static rabbet_status_t model_add_reads(rabbet_ort_model_t* model,
                                       const rabbet_ort_graph_t* graph,
                                       const rabbet_ort_node_t* node,
                                       const bool* is_inside, bool* is_seen) {
  for (size_t i = 0; i < node->read_count; ++i) {
    const int32_t number = node->reads[i];
    if (number < 0 || is_seen[number]) continue;
    const rabbet_ort_value_t* value = &graph->values.data[number];
    is_seen[number] = true;
    if (value->producer >= 0 && is_inside[value->producer]) continue;
    if (value->constant) {
      RABBET_RETURN_IF_ERROR(RABBET_ANNOTATE(model_add_constant(model, value),
                                             "constant '%s'", value->name));
      continue;
    }
    rabbet_ort_port_t port;
    RABBET_RETURN_IF_ERROR(model_port(model, graph, number, &port));
    RABBET_RETURN_IF_ERROR(
        RABBET_VEC_PUSH(model->allocator, &model->inputs, port));
  }
  return rabbet_ok();
}

static rabbet_status_t model_add_outputs(rabbet_ort_model_t* model,
                                         const rabbet_ort_graph_t* graph,
                                         const rabbet_ort_node_t* node,
                                         const bool* is_read_outside) {
  for (size_t i = 0; i < node->output_count; ++i) {
    const int32_t number = node->outputs[i];
    if (number < 0) continue;
    if (!is_read_outside[number] && !graph->values.data[number].is_output)
      continue;
    rabbet_ort_port_t port;
    RABBET_RETURN_IF_ERROR(model_port(model, graph, number, &port));
    RABBET_RETURN_IF_ERROR(
        RABBET_VEC_PUSH(model->allocator, &model->outputs, port));
    const size_t begin = rabbet_proto_begin(&model->body, ONNX_GRAPH_OUTPUT);
    rabbet_proto_text(&model->body, ONNX_VALUE_NAME, port.name);
    rabbet_proto_end(&model->body, begin);
  }
  return rabbet_ok();
}

// ---- The whole

static rabbet_status_t model_write_opsets(rabbet_ort_model_t* model,
                                          const OrtGraph* graph) {
  size_t count = 0;
  int64_t ir_version = 0;
  const char** domains = NULL;
  int64_t* versions = NULL;
  RABBET_RETURN_IF_ERROR(ORT(Graph_GetOnnxIRVersion, graph, &ir_version));
  RABBET_RETURN_IF_ERROR(ORT(Graph_GetNumOperatorSets, graph, &count));
  RABBET_RETURN_IF_ERROR(rabbet_arena_allocate_array(
      &model->arena, count, sizeof(*domains), (void**)&domains));
  RABBET_RETURN_IF_ERROR(rabbet_arena_allocate_array(
      &model->arena, count, sizeof(*versions), (void**)&versions));
  RABBET_RETURN_IF_ERROR(
      ORT(Graph_GetOperatorSets, graph, domains, versions, count));
  rabbet_proto_int(&model->opsets, ONNX_MODEL_IR_VERSION,
                   ir_version > 0 ? ir_version : MODEL_IR_VERSION);
  for (size_t i = 0; i < count; ++i) {
    const size_t begin = rabbet_proto_begin(&model->opsets, ONNX_MODEL_OPSET);
    rabbet_proto_text(&model->opsets, ONNX_OPSET_DOMAIN, domains[i]);
    rabbet_proto_int(&model->opsets, ONNX_OPSET_VERSION, versions[i]);
    rabbet_proto_end(&model->opsets, begin);
  }
  return rabbet_ok();
}

static rabbet_status_t model_write_nodes(rabbet_ort_model_t* model,
                                         const rabbet_ort_graph_t* graph,
                                         const uint32_t* nodes, size_t count,
                                         const bool* is_inside,
                                         const bool* is_read_outside,
                                         bool* is_seen, int32_t* out_refused) {
  for (size_t i = 0; i < count; ++i) {
    const rabbet_ort_node_t* node = &graph->nodes[nodes[i]];
    rabbet_status_t status = rabbet_ort_write_node(graph, node, &model->body);
    if (rabbet_is_ok(status))
      status = model_add_reads(model, graph, node, is_inside, is_seen);
    if (rabbet_is_ok(status))
      status = model_add_outputs(model, graph, node, is_read_outside);
    if (!rabbet_is_ok(status)) {
      *out_refused = (int32_t)nodes[i];
      return status;
    }
  }
  return rabbet_ok();
}

static rabbet_status_t model_write(rabbet_ort_model_t* model,
                                   const rabbet_ort_graph_t* graph,
                                   const uint32_t* nodes, size_t count,
                                   int32_t* out_refused) {
  bool *is_inside = NULL, *is_read_outside = NULL, *is_seen = NULL;
  const size_t values = graph->values.count;
  RABBET_RETURN_IF_ERROR(rabbet_arena_allocate(&model->arena, graph->node_count,
                                               (void**)&is_inside));
  RABBET_RETURN_IF_ERROR(
      rabbet_arena_allocate(&model->arena, values, (void**)&is_read_outside));
  RABBET_RETURN_IF_ERROR(
      rabbet_arena_allocate(&model->arena, values, (void**)&is_seen));
  for (size_t i = 0; i < count; ++i)
    is_inside[nodes[i]] = true;
  for (size_t i = 0; i < graph->node_count; ++i) {
    const rabbet_ort_node_t* node = &graph->nodes[i];
    for (size_t j = 0; !is_inside[i] && j < node->read_count; ++j)
      if (node->reads[j] >= 0) is_read_outside[node->reads[j]] = true;
  }
  RABBET_RETURN_IF_ERROR(model_write_opsets(model, graph->graph));
  rabbet_proto_text(&model->body, ONNX_GRAPH_NAME, RABBET_ORT_EP_NAME);
  RABBET_RETURN_IF_ERROR(model_write_nodes(model, graph, nodes, count,
                                           is_inside, is_read_outside, is_seen,
                                           out_refused));
  RABBET_RETURN_IF_ERROR(rabbet_strbuf_status(&model->opsets));
  return rabbet_strbuf_status(&model->body);
}

rabbet_status_t rabbet_ort_model_initialize(const rabbet_ort_graph_t* graph,
                                            const uint32_t* nodes, size_t count,
                                            rabbet_allocator_t allocator,
                                            rabbet_ort_model_t* out_model,
                                            int32_t* out_refused) {
  *out_model = (rabbet_ort_model_t){.allocator = allocator};
  *out_refused = -1;
  rabbet_arena_initialize(allocator, &out_model->arena);
  rabbet_arena_initialize(allocator, &out_model->kept);
  rabbet_strbuf_initialize(allocator, &out_model->opsets);
  rabbet_strbuf_initialize(allocator, &out_model->body);
  rabbet_status_t status =
      model_write(out_model, graph, nodes, count, out_refused);
  if (!rabbet_is_ok(status)) rabbet_ort_model_deinitialize(out_model);
  return status;
}

void rabbet_ort_model_drop(rabbet_ort_model_t* model) {
  rabbet_vec_free(model->allocator, &model->weights);
  rabbet_strbuf_deinitialize(&model->opsets);
  rabbet_strbuf_deinitialize(&model->body);
  rabbet_arena_deinitialize(&model->kept);
  rabbet_arena_initialize(model->allocator, &model->kept);
}

void rabbet_ort_model_deinitialize(rabbet_ort_model_t* model) {
  rabbet_ort_model_drop(model);
  rabbet_vec_free(model->allocator, &model->inputs);
  rabbet_vec_free(model->allocator, &model->outputs);
  rabbet_arena_deinitialize(&model->kept);
  rabbet_arena_deinitialize(&model->arena);
}

rabbet_status_t rabbet_ort_model_keep(rabbet_ort_model_t* model) {
  for (size_t i = 0; i < model->weights.count; ++i) {
    rabbet_onnx_initializer_t* weights = &model->weights.data[i];
    RABBET_RETURN_IF_ERROR(rabbet_arena_copy(
        &model->kept, weights->data, weights->size, (void**)&weights->data));
  }
  return rabbet_ok();
}

// ---- The import

static rabbet_status_t model_bytes(const rabbet_ort_model_t* model,
                                   const rabbet_dims_t* dims,
                                   rabbet_strbuf_t* out) {
  rabbet_strbuf_append(out, model->opsets.data, model->opsets.size);
  const size_t graph = rabbet_proto_begin(out, ONNX_MODEL_GRAPH);
  rabbet_strbuf_append(out, model->body.data, model->body.size);
  for (size_t i = 0; i < model->inputs.count; ++i) {
    const rabbet_ort_port_t* input = &model->inputs.data[i];
    rabbet_ort_write_value(input->name, input->type,
                           dims ? &dims[i] : &input->dims, input->dim_names,
                           ONNX_GRAPH_INPUT, out);
  }
  rabbet_proto_end(out, graph);
  return rabbet_strbuf_status(out);
}

static rabbet_tensor_t* model_find(const rabbet_network_t* network,
                                   bool is_input, const char* name) {
  const size_t count = is_input ? rabbet_network_input_count(network)
                                : rabbet_network_output_count(network);
  for (size_t i = 0; i < count; ++i) {
    rabbet_tensor_t* tensor = is_input ? rabbet_network_input(network, i)
                                       : rabbet_network_output(network, i);
    if (strcmp(rabbet_tensor_name(tensor), name) == 0) return tensor;
  }
  return NULL;
}

static rabbet_status_t model_check_port(const rabbet_network_t* network,
                                        bool is_input,
                                        const rabbet_ort_port_t* port) {
  const char* kind = is_input ? "input" : "output";
  rabbet_dtype_t dtype = RABBET_DTYPE_NONE;
  rabbet_tensor_t* tensor = model_find(network, is_input, port->name);
  if (!tensor)
    return RABBET_STATUS(RABBET_STATUS_UNSUPPORTED,
                         "the network has no %s '%s'", kind, port->name);
  RABBET_RETURN_IF_ERROR(rabbet_tensor_dtype(tensor, &dtype));
  if (rabbet_ort_type(dtype) != port->type)
    return RABBET_STATUS(RABBET_STATUS_UNSUPPORTED,
                         "%s '%s' would be %s, which is not its type in the "
                         "model (number %d of ONNX)",
                         kind, port->name, rabbet_dtype_name(dtype),
                         port->type);
  return rabbet_ok();
}

static rabbet_status_t model_check(const rabbet_ort_model_t* model,
                                   const rabbet_network_t* network,
                                   int32_t* out_port) {
  const size_t inputs = model->inputs.count;
  for (size_t i = 0; i < inputs + model->outputs.count; ++i) {
    const bool is_input = i < inputs;
    const rabbet_ort_port_t* port =
        is_input ? &model->inputs.data[i] : &model->outputs.data[i - inputs];
    rabbet_status_t status = model_check_port(network, is_input, port);
    if (!rabbet_is_ok(status)) {
      if (out_port) *out_port = port->value;
      return status;
    }
  }
  return rabbet_ok();
}

rabbet_status_t rabbet_ort_model_import(
    const rabbet_ort_model_t* model, const rabbet_dims_t* dims,
    bool keeps_double, rabbet_logger_t logger, rabbet_onnx_errors_t* errors,
    int32_t* out_port, rabbet_network_t** out_network) {
  const rabbet_onnx_options_t options = {
      .struct_size = sizeof(options),
      .initializers = model->weights.data,
      .initializer_count = model->weights.count,
      .initializer_size = sizeof(*model->weights.data),
      .borrow_initializers = 1,
      .keep_double = keeps_double,
      .refuse_open_ranks = 1,
  };
  rabbet_strbuf_t bytes;
  rabbet_network_t* network = NULL;
  *out_network = NULL;
  if (out_port) *out_port = -1;
  rabbet_strbuf_initialize(model->allocator, &bytes);
  rabbet_status_t status = model_bytes(model, dims, &bytes);
  if (rabbet_is_ok(status))
    status = rabbet_network_create(0, model->allocator, logger, &network);
  if (rabbet_is_ok(status))
    status = rabbet_onnx_import_memory(network, bytes.data, bytes.size, NULL,
                                       &options, errors);
  rabbet_strbuf_deinitialize(&bytes);
  if (rabbet_is_ok(status)) status = model_check(model, network, out_port);
  if (rabbet_is_ok(status))
    *out_network = network;
  else
    rabbet_network_release(network);
  return status;
}
