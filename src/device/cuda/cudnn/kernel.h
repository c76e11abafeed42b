// Common part of kernels that are cuDNN graphs. A class defines `describe` and
// `propose`.
//
// Engines are tactics, named by engine and knobs. The plan keeps these and the
// library's serialized execution plan, so that loading searches nothing.
#ifndef RABBET_SRC_DEVICE_CUDA_CUDNN_KERNEL_H_
#define RABBET_SRC_DEVICE_CUDA_CUDNN_KERNEL_H_

#include "device/cuda/cudnn/graph.h"
#include "device/cuda/products/epilogue.h"

// Adds the group's computation to the graph; boundary values have the types and
// formats to be used. False if a graph cannot express it. (True does not
// promise that an engine exists.) Thread-safe.
typedef bool (*rabbet_cudnn_describe_fn_t)(const rabbet_group_t* group,
                                           const rabbet_dims_t* dims,
                                           rabbet_cudnn_graph_t* graph);

// ---- For describe ----------------------------------------------------------

// Adds the chain to `from`, which has the shape `result`, and ends in the
// group's output or goes on.
typedef struct rabbet_cudnn_chain_t {
  const rabbet_group_t* group;
  const rabbet_dims_t* dims;
  const rabbet_cuda_epilogue_t* epilogue;
  rabbet_cudnn_shape_t result;
  rabbet_dtype_t dtype;
  bool channels_last;  // order of operands' axes
  // The shape in the graph of an operand; false where there is none.
  bool (*operand)(const struct rabbet_cudnn_chain_t* chain, int32_t value,
                  rabbet_cudnn_shape_t* out_shape);
  // The operand itself; NULL: the boundary input, of type `dtype`.
  cudnnBackendDescriptor_t (*tensor)(const struct rabbet_cudnn_chain_t* chain,
                                     int32_t value,
                                     const rabbet_cudnn_shape_t* shape,
                                     rabbet_cudnn_graph_t* graph);
  const void* context;  // of `operand` and `tensor`
  bool goes_on;         // the result is virtual: more follows
} rabbet_cudnn_chain_t;

// Whether cuDNN has a function for each item.
bool rabbet_cudnn_chain_fits(const rabbet_cudnn_chain_t* chain);
// The tensor that the operation before the chain writes: virtual, or the output
// if the chain is empty.
cudnnBackendDescriptor_t rabbet_cudnn_chain_start(
    const rabbet_cudnn_chain_t* chain, rabbet_cudnn_graph_t* graph);
// Returns the result, `from` itself of an empty chain.
cudnnBackendDescriptor_t rabbet_cudnn_chain_add(
    const rabbet_cudnn_chain_t* chain, cudnnBackendDescriptor_t from,
    rabbet_cudnn_graph_t* graph);

// ---- For propose -----------------------------------------------------------

typedef struct rabbet_cudnn_offer_t {
  const rabbet_propose_t* propose;
  rabbet_candidate_sink_t sink;
  const rabbet_kernel_class_t* kernel;
  const rabbet_type_format_t* tensors;  // of the boundary
  rabbet_dtype_t dtype;                 // the tensors'
  bool is_unlikely;                     // to be the best: one engine will do
} rabbet_cudnn_offer_t;

// Offers the engines that the library has for the group in these types and
// formats.
rabbet_status_t rabbet_cudnn_offer(const rabbet_cudnn_offer_t* offer);
// Offers the group with one type at the whole boundary, LINEAR: each type that
// the network allows besides `network`, its own, and that `can` accepts. In
// TF32 also with boundary input `turned` (-1: none) in HWC. Offers nothing
// without cuDNN: the group can be computed in other ways.
rabbet_status_t rabbet_cudnn_offer_linear(const rabbet_propose_t* propose,
                                          rabbet_candidate_sink_t sink,
                                          const rabbet_kernel_class_t* kernel,
                                          rabbet_dtype_t network,
                                          bool (*can)(rabbet_dtype_t dtype),
                                          int32_t turned);

// ---- For the class tables --------------------------------------------------

rabbet_status_t rabbet_cudnn_kernel_ask(const rabbet_question_t* question,
                                        rabbet_cudnn_describe_fn_t describe,
                                        rabbet_answer_sink_t sink);
rabbet_status_t rabbet_cudnn_kernel_create(
    const rabbet_kernel_spec_t* spec, const rabbet_kernel_class_t* kernel_class,
    rabbet_cudnn_describe_fn_t describe, rabbet_kernel_t** out_kernel);
void rabbet_cudnn_kernel_destroy(rabbet_kernel_t* kernel);
rabbet_status_t rabbet_cudnn_kernel_prepare(
    rabbet_kernel_t* kernel, const rabbet_kernel_shapes_t* shapes,
    rabbet_kernel_state_t** out_state, size_t* out_workspace);
void rabbet_cudnn_kernel_destroy_state(rabbet_kernel_t* kernel,
                                       rabbet_kernel_state_t* state);
rabbet_status_t rabbet_cudnn_kernel_enqueue(rabbet_kernel_t* kernel,
                                            rabbet_kernel_state_t* state,
                                            const rabbet_kernel_call_t* call);
rabbet_status_t rabbet_cudnn_kernel_artifacts(rabbet_kernel_t* kernel,
                                              rabbet_artifact_sink_t sink);

// Defines the class rabbet_<id> from id_propose, id_takes and
// id_describe, which looks at types, formats and extents.
#define RABBET_CUDNN_CLASS(id, class_name, class_version)                \
  static rabbet_status_t id##_create(const rabbet_kernel_spec_t* spec,   \
                                     rabbet_kernel_t** out_kernel) {     \
    return rabbet_cudnn_kernel_create(spec, &rabbet_##id, id##_describe, \
                                      out_kernel);                       \
  }                                                                      \
  static rabbet_status_t id##_ask(const rabbet_question_t* question,     \
                                  rabbet_answer_sink_t sink) {           \
    return rabbet_cudnn_kernel_ask(question, id##_describe, sink);       \
  }                                                                      \
  const rabbet_kernel_class_t rabbet_##id = {                            \
      .struct_size = sizeof(rabbet_kernel_class_t),                      \
      .name = class_name,                                                \
      .version = class_version,                                          \
      .propose = id##_propose,                                           \
      .create = id##_create,                                             \
      .takes = id##_takes,                                               \
      .destroy = rabbet_cudnn_kernel_destroy,                            \
      .prepare = rabbet_cudnn_kernel_prepare,                            \
      .destroy_state = rabbet_cudnn_kernel_destroy_state,                \
      .enqueue = rabbet_cudnn_kernel_enqueue,                            \
      .artifacts = rabbet_cudnn_kernel_artifacts,                        \
      .library_version = rabbet_cudnn_version,                           \
      .tactic_sources = 1u << RABBET_TACTIC_CUDNN,                       \
      .ask = id##_ask,                                                   \
  }

#endif  // RABBET_SRC_DEVICE_CUDA_CUDNN_KERNEL_H_
