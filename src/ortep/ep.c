#include "ortep/ep.h"

#include <string.h>
#include <unistd.h>

#include "device/device.h"
#include "ortep/context_model.h"
#include "ortep/gpu.h"
#include "ortep/support.h"
#include "rabbet/pyhost.h"

typedef struct ep_t {
  OrtEp base;
  rabbet_ort_session_t session;
  rabbet_status_t refusal;  // of the options
} ep_t;

typedef struct ep_node_t {
  OrtNodeComputeInfo base;
  rabbet_ort_part_t* part;
} ep_node_t;

static const char* ep_name(const OrtEp* self) {
  (void)self;
  return RABBET_ORT_EP_NAME;
}

// ---- Which nodes

static rabbet_status_t ep_claim(OrtEpGraphSupportInfo* info,
                                const rabbet_ort_graph_t* graph,
                                const uint32_t* nodes, size_t count) {
  // The plan has the constants, and a model that is not built yet its copy.
  const OrtNodeFusionOptions options = {
      .ort_version_supported = ORT_INTERFACE_VERSION,
      .drop_constant_initializers = true,
  };
  const OrtNode** handles = NULL;
  RABBET_RETURN_IF_ERROR(rabbet_allocate(
      graph->allocator, count * sizeof(*handles), (void**)&handles));
  for (size_t i = 0; i < count; ++i)
    handles[i] = graph->nodes[nodes[i]].node;
  rabbet_status_t status =
      ORT_EP(EpGraphSupportInfo_AddNodesToFuse, info, handles, count, &options);
  rabbet_free(graph->allocator, handles);
  return status;
}

static rabbet_status_t ep_find_parts(const ep_t* ep,
                                     const rabbet_ort_graph_t* graph,
                                     rabbet_logger_t logger,
                                     rabbet_ort_parts_t* out_parts) {
  const rabbet_ort_support_options_t options = {
      .allocator = ep->session.allocator,
      .logger = logger,
      .keeps_double = ep->session.keeps_double,
      .least_nodes = (size_t)ep->session.options.least_nodes,
  };
  return rabbet_ort_find_parts(graph, &options, out_parts);
}

// Whether a graph within a node is imported with that node: then its nodes are
// left alone. The node is asked about by itself, as the graph around it is not
// there yet when ONNX Runtime asks about the inner one.
static rabbet_status_t ep_is_within_part(const ep_t* ep, const OrtGraph* graph,
                                         bool* out_is_within) {
  const OrtNode* parent = NULL;
  *out_is_within = false;
  RABBET_RETURN_IF_ERROR(ORT(Graph_GetParentNode, graph, &parent));
  while (parent && !*out_is_within) {
    rabbet_ort_graph_t alone;
    const OrtGraph* around = NULL;
    rabbet_ort_parts_t parts;
    RABBET_RETURN_IF_ERROR(rabbet_ort_graph_initialize_node(
        graph, parent, ep->session.allocator, &alone));
    rabbet_status_t status =
        ep_find_parts(ep, &alone, (rabbet_logger_t){0}, &parts);
    if (rabbet_is_ok(status)) {
      *out_is_within = parts.list.count > 0;
      rabbet_ort_parts_deinitialize(ep->session.allocator, &parts);
    }
    rabbet_ort_graph_deinitialize(&alone);
    RABBET_RETURN_IF_ERROR(status);
    RABBET_RETURN_IF_ERROR(ORT(Node_GetGraph, parent, &around));
    parent = NULL;
    if (around)
      RABBET_RETURN_IF_ERROR(ORT(Graph_GetParentNode, around, &parent));
  }
  return rabbet_ok();
}

static rabbet_status_t ep_claim_parts(const ep_t* ep,
                                      const rabbet_ort_graph_t* graph,
                                      OrtEpGraphSupportInfo* info) {
  rabbet_ort_parts_t parts;
  size_t taken = 0;
  RABBET_RETURN_IF_ERROR(ep_find_parts(ep, graph, ep->session.logger, &parts));
  rabbet_status_t status = rabbet_ok();
  for (size_t i = 0; rabbet_is_ok(status) && i < parts.list.count; ++i) {
    taken += parts.list.data[i].count;
    status = ep_claim(info, graph, parts.list.data[i].nodes,
                      parts.list.data[i].count);
  }
  rabbet_log(ep->session.logger, RABBET_SEVERITY_INFO,
             "takes %zu of %zu nodes, in %zu parts", taken, graph->node_count,
             parts.list.count);
  rabbet_ort_parts_deinitialize(ep->session.allocator, &parts);
  return status;
}

// Bodies of functions are left alone, as ONNX Runtime writes those functions
// out afterwards, and then finds nodes of ours in them that it does not know;
// and all graphs within nodes where a model with plans is made, as it replaces
// nodes of the outermost graph only.
static rabbet_status_t ep_is_left_alone(const ep_t* ep, const OrtGraph* graph,
                                        bool* out_is_left_alone) {
  static const char* const control_flow[] = {"If", "Loop", "Scan"};
  const OrtNode* parent = NULL;
  const char* op_type = NULL;
  *out_is_left_alone = false;
  RABBET_RETURN_IF_ERROR(ORT(Graph_GetParentNode, graph, &parent));
  if (!parent) return rabbet_ok();
  *out_is_left_alone = true;
  if (ep->session.options.context_enable) return rabbet_ok();
  RABBET_RETURN_IF_ERROR(ORT(Node_GetOperatorType, parent, &op_type));
  for (size_t i = 0; i < sizeof(control_flow) / sizeof(*control_flow); ++i)
    if (strcmp(op_type, control_flow[i]) == 0) *out_is_left_alone = false;
  return rabbet_ok();
}

static bool ep_has_dimension(const rabbet_ort_graph_t* graph,
                             const rabbet_ort_range_t* range) {
  for (size_t i = 0; i < graph->values.count; ++i) {
    const rabbet_ort_value_t* value = &graph->values.data[i];
    for (int32_t axis = 0; value->has_shape && axis < value->dims.rank; ++axis)
      if (value->dims.d[axis] < 0 &&
          rabbet_ort_range_fits(range, value->name, axis,
                                value->dim_names[axis]))
        return true;
  }
  return false;
}

// Graphs within nodes have names of their own, and are not asked.
static rabbet_status_t ep_check_ranges(const ep_t* ep,
                                       const rabbet_ort_graph_t* graph) {
  const OrtNode* parent = NULL;
  RABBET_RETURN_IF_ERROR(ORT(Graph_GetParentNode, graph->graph, &parent));
  for (size_t i = 0; !parent && i < ep->session.options.ranges.count; ++i) {
    const rabbet_ort_range_t* range = &ep->session.options.ranges.data[i];
    if (!ep_has_dimension(graph, range))
      rabbet_log(ep->session.logger, RABBET_SEVERITY_WARNING,
                 "option dims of " RABBET_ORT_EP_NAME
                 ": the model has no open dimension '%s'",
                 range->name);
  }
  return rabbet_ok();
}

static rabbet_status_t ep_claim_graph(const ep_t* ep,
                                      const rabbet_ort_graph_t* graph,
                                      OrtEpGraphSupportInfo* info) {
  bool has_context = false, is_within = false;
  const uint32_t first = 0;
  if (!graph->node_count) return rabbet_ok();
  // One node is enough to be asked to compile, which tells the reason.
  if (!rabbet_is_ok(ep->refusal)) return ep_claim(info, graph, &first, 1);
  for (uint32_t i = 0; i < graph->node_count; ++i) {
    if (!rabbet_ort_is_context(&graph->nodes[i])) continue;
    has_context = true;
    RABBET_RETURN_IF_ERROR(ep_claim(info, graph, &i, 1));
  }
  // Nodes that a context model leaves to others were left when it was made.
  if (has_context) return rabbet_ok();
  RABBET_RETURN_IF_ERROR(ep_check_ranges(ep, graph));
  RABBET_RETURN_IF_ERROR(ep_is_left_alone(ep, graph->graph, &is_within));
  if (!is_within)
    RABBET_RETURN_IF_ERROR(ep_is_within_part(ep, graph->graph, &is_within));
  return is_within ? rabbet_ok() : ep_claim_parts(ep, graph, info);
}

static OrtStatus* ep_get_capability(OrtEp* self, const OrtGraph* handle,
                                    OrtEpGraphSupportInfo* info) {
  const ep_t* ep = (const ep_t*)self;
  rabbet_ort_graph_t graph;
  rabbet_status_t status =
      rabbet_ort_graph_initialize(handle, ep->session.allocator, &graph);
  if (rabbet_is_ok(status)) {
    status = ep_claim_graph(ep, &graph, info);
    rabbet_ort_graph_deinitialize(&graph);
  }
  return rabbet_ort_error(status);
}

// ---- Compilation

static OrtStatus* ep_create_state(OrtNodeComputeInfo* self,
                                  OrtNodeComputeContext* context,
                                  void** out_state) {
  (void)context;
  *out_state = ((ep_node_t*)self)->part;
  return NULL;
}

static OrtStatus* ep_compute(OrtNodeComputeInfo* self, void* state,
                             OrtKernelContext* context) {
  (void)self;
  return rabbet_ort_error(rabbet_ort_part_run(state, context));
}

static void ep_release_state(OrtNodeComputeInfo* self, void* state) {
  (void)self, (void)state;
}

static void ep_release_infos(OrtEp* self, OrtNodeComputeInfo** infos,
                             size_t count) {
  ep_t* ep = (ep_t*)self;
  for (size_t i = 0; i < count; ++i) {
    ep_node_t* node = (ep_node_t*)infos[i];
    if (!node) continue;
    rabbet_ort_part_destroy(node->part);
    rabbet_free(ep->session.allocator, node);
    infos[i] = NULL;
  }
}

static rabbet_status_t ep_make_part(ep_t* ep, const OrtGraph* graph,
                                    const OrtNode* fused_node,
                                    rabbet_ort_part_t** out_part) {
  rabbet_ort_graph_t content;
  *out_part = NULL;
  RABBET_RETURN_IF_ERROR(
      rabbet_ort_graph_initialize(graph, ep->session.allocator, &content));
  const bool is_context =
      content.node_count == 1 && rabbet_ort_is_context(&content.nodes[0]);
  rabbet_status_t status =
      is_context
          ? rabbet_ort_context_load(&ep->session, graph, content.nodes[0].node,
                                    out_part)
          : rabbet_ort_part_create(&ep->session, graph, fused_node, out_part);
  rabbet_ort_graph_deinitialize(&content);
  return status;
}

static rabbet_status_t ep_compile_node(ep_t* ep, const OrtGraph* graph,
                                       const OrtNode* fused_node,
                                       OrtNodeComputeInfo** out_info,
                                       OrtNode** out_context_node) {
  ep_node_t* node = NULL;
  const char* path = NULL;
  if (!rabbet_is_ok(ep->refusal)) return rabbet_status_clone(ep->refusal);
  RABBET_RETURN_IF_ERROR(
      rabbet_allocate(ep->session.allocator, sizeof(*node), (void**)&node));
  node->base = (OrtNodeComputeInfo){
      .ort_version_supported = ORT_INTERFACE_VERSION,
      .CreateState = ep_create_state,
      .Compute = ep_compute,
      .ReleaseState = ep_release_state,
  };
  *out_info = &node->base;  // released by the caller, also after a failure
  RABBET_RETURN_IF_ERROR(ep_make_part(ep, graph, fused_node, &node->part));
  if (!ep->session.options.context_enable || !out_context_node)
    return rabbet_ok();
  RABBET_RETURN_IF_ERROR(ORT(Graph_GetModelPath, graph, &path));
  return rabbet_ort_context_node(&ep->session, path, fused_node, node->part,
                                 out_context_node);
}

static OrtStatus* ep_compile(OrtEp* self, const OrtGraph** graphs,
                             const OrtNode** fused_nodes, size_t count,
                             OrtNodeComputeInfo** out_infos,
                             OrtNode** out_context_nodes) {
  ep_t* ep = (ep_t*)self;
  rabbet_status_t status = rabbet_ok();
  for (size_t i = 0; i < count; ++i)
    out_infos[i] = NULL;
  for (size_t i = 0; rabbet_is_ok(status) && i < count; ++i)
    status = ep_compile_node(ep, graphs[i], fused_nodes[i], &out_infos[i],
                             out_context_nodes ? &out_context_nodes[i] : NULL);
  if (!rabbet_is_ok(status)) ep_release_infos(self, out_infos, count);
  return rabbet_ort_error(status);
}

static OrtStatus* ep_is_concurrent(OrtEp* self, bool* out) {
  (void)self;
  *out = true;
  return NULL;
}

// ---- The whole

static rabbet_status_t ep_load_plugins(const rabbet_ort_options_t* options) {
  if (!options->plugins.count) return rabbet_ok();
  RABBET_RETURN_IF_ERROR(rabbet_pyhost_start(NULL));
  return RABBET_ANNOTATE(
      rabbet_pyhost_load_plugins(options->plugins.data, options->plugins.count),
      "option plugins of " RABBET_ORT_EP_NAME);
}

// Whether there is such a device.
static rabbet_status_t ep_check_device(const rabbet_ort_session_t* session) {
  rabbet_device_t* device = NULL;
  rabbet_status_t status = rabbet_device_create(session->options.device,
                                                session->allocator, &device);
  rabbet_device_release(device);
  return RABBET_ANNOTATE(status, "option device of " RABBET_ORT_EP_NAME);
}

// A file of its own, or the times of all sessions without one.
static rabbet_status_t ep_open_times(rabbet_ort_session_t* session,
                                     rabbet_timing_cache_t* shared) {
  const char* file = session->options.timing_cache;
  if (file && access(file, F_OK) != 0)
    return rabbet_timing_cache_create(NULL, 0, session->allocator,
                                      &session->timing_cache);
  if (file)
    return RABBET_ANNOTATE(rabbet_timing_cache_load(file, session->allocator,
                                                    &session->timing_cache),
                           "option timing_cache of " RABBET_ORT_EP_NAME);
  rabbet_timing_cache_retain(shared);
  session->timing_cache = shared;
  return rabbet_ok();
}

static rabbet_status_t ep_read_options(ep_t* ep,
                                       const OrtSessionOptions* options,
                                       const char* device,
                                       rabbet_timing_cache_t* timing_cache) {
  RABBET_RETURN_IF_ERROR(rabbet_ort_options_initialize(
      options, device, ep->session.allocator, &ep->session.options));
  // Other devices have no DOUBLE: their parts are left to ONNX Runtime.
  ep->session.keeps_double = strncmp(ep->session.options.device, "cpu", 3) == 0;
  if (ep->session.on_device && strcmp(ep->session.options.device, device) != 0)
    return RABBET_STATUS(RABBET_STATUS_INVALID_ARGUMENT,
                         "option device=%s of " RABBET_ORT_EP_NAME
                         ": the session's device is %s",
                         ep->session.options.device, device);
  RABBET_RETURN_IF_ERROR(ep_check_device(&ep->session));
  RABBET_RETURN_IF_ERROR(ep_load_plugins(&ep->session.options));
  return ep_open_times(&ep->session, timing_cache);
}

rabbet_status_t rabbet_ort_ep_create(const OrtSessionOptions* options,
                                     const OrtLogger* logger,
                                     const char* device, bool on_device,
                                     rabbet_timing_cache_t* timing_cache,
                                     OrtEp** out_ep) {
  ep_t* ep = NULL;
  const rabbet_allocator_t allocator = rabbet_allocator_system();
  *out_ep = NULL;
  RABBET_RETURN_IF_ERROR(rabbet_allocate(allocator, sizeof(*ep), (void**)&ep));
  ep->base = (OrtEp){
      .ort_version_supported = ORT_INTERFACE_VERSION,
      .GetName = ep_name,
      .GetCapability = ep_get_capability,
      .Compile = ep_compile,
      .ReleaseNodeComputeInfos = ep_release_infos,
      .IsConcurrentRunSupported = ep_is_concurrent,
  };
  ep->session.allocator = allocator;
  ep->session.logger = rabbet_ort_logger(logger);
  ep->session.on_device = on_device;
  if (on_device) ep->session.ordinal = rabbet_ort_gpu_ordinal(device);
  ep->refusal = ep_read_options(ep, options, device, timing_cache);
  *out_ep = &ep->base;
  return rabbet_ok();
}

void rabbet_ort_ep_destroy(OrtEp* self) {
  ep_t* ep = (ep_t*)self;
  if (!ep) return;
  rabbet_status_free(ep->refusal);
  rabbet_timing_cache_release(ep->session.timing_cache);
  rabbet_ort_options_deinitialize(&ep->session.options);
  rabbet_free(ep->session.allocator, ep);
}
