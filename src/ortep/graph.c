#include "ortep/graph.h"

#include <assert.h>
#include <string.h>

// ---- Values

rabbet_status_t rabbet_ort_read_type(const OrtTensorTypeAndShapeInfo* info,
                                     rabbet_ort_value_t* out_value) {
  size_t rank = 0;
  const char* names[RABBET_MAX_RANK] = {0};
  out_value->has_shape = false;
  RABBET_RETURN_IF_ERROR(ORT(GetTensorElementType, info, &out_value->type));
  if (!rabbet_ort.api->TensorTypeAndShape_HasShape(info)) return rabbet_ok();
  RABBET_RETURN_IF_ERROR(ORT(GetDimensionsCount, info, &rank));
  if (rank > RABBET_MAX_RANK) return rabbet_ok();
  out_value->dims.rank = (int32_t)rank;
  out_value->has_shape = true;
  if (rank == 0) return rabbet_ok();
  RABBET_RETURN_IF_ERROR(ORT(GetDimensions, info, out_value->dims.d, rank));
  RABBET_RETURN_IF_ERROR(ORT(GetSymbolicDimensions, info, names, rank));
  for (size_t i = 0; i < rank; ++i)
    out_value->dim_names[i] = names[i] && names[i][0] ? names[i] : NULL;
  return rabbet_ok();
}

// A value that is no tensor has no shape.
static rabbet_status_t graph_read_value(rabbet_ort_value_t* value) {
  const OrtTypeInfo* type = NULL;
  const OrtTensorTypeAndShapeInfo* tensor = NULL;
  bool is_constant = false;
  RABBET_RETURN_IF_ERROR(ORT(GetValueInfoTypeInfo, value->info, &type));
  if (type)
    RABBET_RETURN_IF_ERROR(ORT(CastTypeInfoToTensorInfo, type, &tensor));
  if (tensor) RABBET_RETURN_IF_ERROR(rabbet_ort_read_type(tensor, value));
  RABBET_RETURN_IF_ERROR(
      ORT(ValueInfo_IsConstantInitializer, value->info, &is_constant));
  if (is_constant)
    RABBET_RETURN_IF_ERROR(
        ORT(ValueInfo_GetInitializerValue, value->info, &value->constant));
  return ORT(ValueInfo_IsGraphOutput, value->info, &value->is_output);
}

static rabbet_status_t graph_add_value(rabbet_ort_graph_t* graph,
                                       const OrtValueInfo* info,
                                       int32_t* out_number) {
  rabbet_ort_value_t value = {.info = info, .producer = -1};
  *out_number = -1;
  if (!info) return rabbet_ok();
  RABBET_RETURN_IF_ERROR(ORT(GetValueInfoName, info, &value.name));
  *out_number = rabbet_ort_graph_find(graph, value.name);
  if (*out_number >= 0) return rabbet_ok();
  RABBET_RETURN_IF_ERROR(graph_read_value(&value));
  RABBET_RETURN_IF_ERROR(
      RABBET_VEC_PUSH(graph->allocator, &graph->values, value));
  *out_number = (int32_t)graph->values.count - 1;
  return rabbet_map_set(&graph->by_name, value.name, strlen(value.name),
                        (void*)(uintptr_t)graph->values.count);
}

int32_t rabbet_ort_graph_find(const rabbet_ort_graph_t* graph,
                              const char* name) {
  return (int32_t)(uintptr_t)rabbet_map_get_string(&graph->by_name, name) - 1;
}

// ---- Nodes

static rabbet_status_t graph_add_values(rabbet_ort_graph_t* graph,
                                        const OrtValueInfo* const* infos,
                                        size_t count, int32_t* numbers) {
  for (size_t i = 0; i < count; ++i)
    RABBET_RETURN_IF_ERROR(graph_add_value(graph, infos[i], &numbers[i]));
  return rabbet_ok();
}

static rabbet_status_t graph_read_reads(rabbet_ort_graph_t* graph,
                                        rabbet_ort_node_t* node) {
  size_t implicit = 0;
  const OrtValueInfo** infos = NULL;
  RABBET_RETURN_IF_ERROR(
      ORT(Node_GetNumInputs, node->node, &node->input_count));
  RABBET_RETURN_IF_ERROR(ORT(Node_GetNumImplicitInputs, node->node, &implicit));
  node->read_count = node->input_count + implicit;
  RABBET_RETURN_IF_ERROR(
      rabbet_arena_allocate_array(&graph->arena, node->read_count,
                                  sizeof(*node->reads), (void**)&node->reads));
  RABBET_RETURN_IF_ERROR(rabbet_arena_allocate_array(
      &graph->arena, node->read_count, sizeof(*infos), (void**)&infos));
  if (node->input_count)
    RABBET_RETURN_IF_ERROR(
        ORT(Node_GetInputs, node->node, infos, node->input_count));
  if (implicit)
    RABBET_RETURN_IF_ERROR(ORT(Node_GetImplicitInputs, node->node,
                               infos + node->input_count, implicit));
  return graph_add_values(graph, infos, node->read_count, node->reads);
}

static rabbet_status_t graph_read_outputs(rabbet_ort_graph_t* graph,
                                          size_t index) {
  rabbet_ort_node_t* node = &graph->nodes[index];
  const OrtValueInfo** infos = NULL;
  RABBET_RETURN_IF_ERROR(
      ORT(Node_GetNumOutputs, node->node, &node->output_count));
  RABBET_RETURN_IF_ERROR(rabbet_arena_allocate_array(
      &graph->arena, node->output_count, sizeof(*node->outputs),
      (void**)&node->outputs));
  RABBET_RETURN_IF_ERROR(rabbet_arena_allocate_array(
      &graph->arena, node->output_count, sizeof(*infos), (void**)&infos));
  if (!node->output_count) return rabbet_ok();
  RABBET_RETURN_IF_ERROR(
      ORT(Node_GetOutputs, node->node, infos, node->output_count));
  RABBET_RETURN_IF_ERROR(
      graph_add_values(graph, infos, node->output_count, node->outputs));
  for (size_t i = 0; i < node->output_count; ++i)
    if (node->outputs[i] >= 0)
      graph->values.data[node->outputs[i]].producer = (int32_t)index;
  return rabbet_ok();
}

static rabbet_status_t graph_read_node(rabbet_ort_graph_t* graph,
                                       size_t index) {
  rabbet_ort_node_t* node = &graph->nodes[index];
  const char* provider = NULL;
  RABBET_RETURN_IF_ERROR(ORT(Node_GetOperatorType, node->node, &node->op_type));
  RABBET_RETURN_IF_ERROR(ORT(Node_GetDomain, node->node, &node->domain));
  if (strcmp(node->domain, "ai.onnx") == 0) node->domain = "";
  RABBET_RETURN_IF_ERROR(ORT(Node_GetEpName, node->node, &provider));
  node->is_taken =
      provider && provider[0] && strcmp(provider, RABBET_ORT_EP_NAME) != 0;
  RABBET_RETURN_IF_ERROR(graph_read_reads(graph, node));
  return graph_read_outputs(graph, index);
}

static rabbet_status_t graph_read(rabbet_ort_graph_t* graph) {
  const OrtNode** nodes = NULL;
  RABBET_RETURN_IF_ERROR(
      ORT(Graph_GetNumNodes, graph->graph, &graph->node_count));
  RABBET_RETURN_IF_ERROR(rabbet_arena_allocate_array(
      &graph->arena, graph->node_count, sizeof(*nodes), (void**)&nodes));
  RABBET_RETURN_IF_ERROR(rabbet_arena_allocate_array(
      &graph->arena, graph->node_count, sizeof(*graph->nodes),
      (void**)&graph->nodes));
  if (!graph->node_count) return rabbet_ok();
  RABBET_RETURN_IF_ERROR(
      ORT(Graph_GetNodes, graph->graph, nodes, graph->node_count));
  for (size_t i = 0; i < graph->node_count; ++i) {
    graph->nodes[i].node = nodes[i];
    RABBET_RETURN_IF_ERROR(graph_read_node(graph, i));
  }
  return rabbet_ok();
}

rabbet_status_t rabbet_ort_graph_initialize(const OrtGraph* graph,
                                            rabbet_allocator_t allocator,
                                            rabbet_ort_graph_t* out_graph) {
  *out_graph = (rabbet_ort_graph_t){.graph = graph, .allocator = allocator};
  rabbet_arena_initialize(allocator, &out_graph->arena);
  rabbet_map_initialize(allocator, &out_graph->by_name);
  rabbet_status_t status = graph_read(out_graph);
  if (!rabbet_is_ok(status)) rabbet_ort_graph_deinitialize(out_graph);
  return status;
}

static rabbet_status_t graph_read_one(rabbet_ort_graph_t* graph,
                                      const OrtNode* node) {
  graph->node_count = 1;
  RABBET_RETURN_IF_ERROR(rabbet_arena_allocate(
      &graph->arena, sizeof(*graph->nodes), (void**)&graph->nodes));
  graph->nodes[0].node = node;
  RABBET_RETURN_IF_ERROR(graph_read_node(graph, 0));
  for (size_t i = 0; i < graph->nodes[0].output_count; ++i)
    if (graph->nodes[0].outputs[i] >= 0)
      graph->values.data[graph->nodes[0].outputs[i]].is_output = true;
  return rabbet_ok();
}

rabbet_status_t rabbet_ort_graph_initialize_node(
    const OrtGraph* graph, const OrtNode* node, rabbet_allocator_t allocator,
    rabbet_ort_graph_t* out_graph) {
  *out_graph = (rabbet_ort_graph_t){.graph = graph, .allocator = allocator};
  rabbet_arena_initialize(allocator, &out_graph->arena);
  rabbet_map_initialize(allocator, &out_graph->by_name);
  rabbet_status_t status = graph_read_one(out_graph, node);
  if (!rabbet_is_ok(status)) rabbet_ort_graph_deinitialize(out_graph);
  return status;
}

void rabbet_ort_graph_deinitialize(rabbet_ort_graph_t* graph) {
  rabbet_vec_free(graph->allocator, &graph->values);
  rabbet_map_deinitialize(&graph->by_name);
  rabbet_arena_deinitialize(&graph->arena);
}
