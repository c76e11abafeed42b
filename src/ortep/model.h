// Nodes of a graph as an ONNX model: the importer is asked about it, and plans
// are built of it.
#ifndef RABBET_SRC_ORTEP_MODEL_H_
#define RABBET_SRC_ORTEP_MODEL_H_

#include "base/strbuf.h"
#include "ortep/graph.h"
#include "rabbet/onnx.h"

// An input or output of the model.
typedef struct rabbet_ort_port_t {
  const char* name;
  int32_t value;  // its number in the graph
  ONNXTensorElementDataType type;
  rabbet_dims_t dims;  // -1: varies
  const char* dim_names[RABBET_MAX_RANK];
} rabbet_ort_port_t;

typedef struct rabbet_ort_model_t {
  rabbet_allocator_t allocator;
  rabbet_arena_t arena;
  rabbet_strbuf_t opsets;  // fields of the model
  rabbet_strbuf_t body;    // fields of its graph, except the inputs
  RABBET_VEC(rabbet_ort_port_t) inputs;
  RABBET_VEC(rabbet_ort_port_t) outputs;
  // Constants that are not in `body`, but where ONNX Runtime has them.
  RABBET_VEC(rabbet_onnx_initializer_t) weights;
  rabbet_arena_t kept;  // copies of them
} rabbet_ort_model_t;

// Writes nodes, ascending in the order of the graph. Inputs are what the nodes
// read and none of them makes; outputs, what others read. *out_refused is the
// node that cannot be written, or -1.
rabbet_status_t rabbet_ort_model_initialize(const rabbet_ort_graph_t* graph,
                                            const uint32_t* nodes, size_t count,
                                            rabbet_allocator_t allocator,
                                            rabbet_ort_model_t* out_model,
                                            int32_t* out_refused);
void rabbet_ort_model_deinitialize(rabbet_ort_model_t* model);
// Copies the weights, so that the model outlives the graph.
rabbet_status_t rabbet_ort_model_keep(rabbet_ort_model_t* model);
// Frees all but the inputs and outputs.
void rabbet_ort_model_drop(rabbet_ort_model_t* model);
// Imports. `dims`, of each input, fixes all extents; NULL: as in the model.
// UNSUPPORTED if the network has other inputs, outputs or types than the
// model; *out_port (may be NULL) then is the value whose type it is, else -1.
// `errors` may be NULL. The model must outlive the network.
rabbet_status_t rabbet_ort_model_import(
    const rabbet_ort_model_t* model, const rabbet_dims_t* dims,
    bool keeps_double, rabbet_logger_t logger, rabbet_onnx_errors_t* errors,
    int32_t* out_port, rabbet_network_t** out_network);

#endif  // RABBET_SRC_ORTEP_MODEL_H_
