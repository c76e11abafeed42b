// A graph of ONNX Runtime as arrays: nodes in topological order, and values by
// number. Only for the time of the call that the graph was handed to.
#ifndef RABBET_SRC_ORTEP_GRAPH_H_
#define RABBET_SRC_ORTEP_GRAPH_H_

#include "base/arena.h"
#include "base/map.h"
#include "base/vec.h"
#include "ortep/ort.h"

typedef struct rabbet_ort_value_t {
  const char* name;
  const OrtValueInfo* info;
  int32_t producer;          // a node's index; -1: none in this graph
  bool is_output;            // of the graph
  const OrtValue* constant;  // of a constant initializer; else NULL
  // A tensor with a type and a rank that ONNX Runtime knows; the rest is its.
  bool has_shape;
  ONNXTensorElementDataType type;
  rabbet_dims_t dims;                      // -1: not known
  const char* dim_names[RABBET_MAX_RANK];  // NULL: none
} rabbet_ort_value_t;

typedef struct rabbet_ort_node_t {
  const OrtNode* node;
  const char* op_type;
  const char* domain;  // "" for ONNX's own
  // Numbers of values; -1: omitted. Read ones are inputs, then those that only
  // graphs in it read.
  int32_t* reads;
  size_t input_count, read_count;
  int32_t* outputs;
  size_t output_count;
  bool is_taken;  // by another provider
} rabbet_ort_node_t;

typedef struct rabbet_ort_graph_t {
  const OrtGraph* graph;
  rabbet_allocator_t allocator;
  rabbet_arena_t arena;
  rabbet_ort_node_t* nodes;
  size_t node_count;
  RABBET_VEC(rabbet_ort_value_t) values;
  rabbet_map_t by_name;  // number of a value + 1
} rabbet_ort_graph_t;

rabbet_status_t rabbet_ort_graph_initialize(const OrtGraph* graph,
                                            rabbet_allocator_t allocator,
                                            rabbet_ort_graph_t* out_graph);
// One node by itself, with the operator sets of `graph`: all its outputs are
// the graph's.
rabbet_status_t rabbet_ort_graph_initialize_node(const OrtGraph* graph,
                                                 const OrtNode* node,
                                                 rabbet_allocator_t allocator,
                                                 rabbet_ort_graph_t* out_graph);
void rabbet_ort_graph_deinitialize(rabbet_ort_graph_t* graph);
// -1: none.
int32_t rabbet_ort_graph_find(const rabbet_ort_graph_t* graph,
                              const char* name);
// Type and shape; `out_value`'s other members stay.
rabbet_status_t rabbet_ort_read_type(const OrtTensorTypeAndShapeInfo* info,
                                     rabbet_ort_value_t* out_value);

#endif  // RABBET_SRC_ORTEP_GRAPH_H_
