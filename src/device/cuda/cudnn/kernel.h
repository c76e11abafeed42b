// The common part of kernels that are cuDNN graphs. A class defines `describe`
// and `propose`.
//
// A tactic is an engine with its knobs. The plan keeps both and the library's
// serialized execution plan, so that loading needs no search.
#ifndef RABBET_SRC_DEVICE_CUDA_CUDNN_KERNEL_H_
#define RABBET_SRC_DEVICE_CUDA_CUDNN_KERNEL_H_

#include "device/cuda/cudnn/graph.h"
#include "device/cuda/products/epilogue.h"

// Adds the group's computation to the graph. Boundary values have their chosen
// types and formats. False if a graph cannot express it; true does not mean
// that an engine exists. Thread-safe.
typedef bool (*rabbet_cudnn_describe_fn_t)(const rabbet_group_t* group,
                                           const rabbet_dims_t* dims,
                                           rabbet_cudnn_graph_t* graph);

// ---- For describe ----------------------------------------------------------

// A chain of point-wise operations on a tensor of shape `result`. Its last
// result is the group's output, unless `goes_on`.
typedef struct rabbet_cudnn_chain_t {
  const rabbet_group_t* group;
  const rabbet_dims_t* dims;
  const rabbet_cuda_epilogue_t* epilogue;
  rabbet_cudnn_shape_t result;
  rabbet_dtype_t dtype;
  bool channels_last;  // order of operands' axes
  // The shape of an operand in the graph; false if it has none.
  bool (*operand)(const struct rabbet_cudnn_chain_t* chain, int32_t value,
                  rabbet_cudnn_shape_t* out_shape);
  // The operand's tensor; NULL: the boundary input, of type `dtype`.
  cudnnBackendDescriptor_t (*tensor)(const struct rabbet_cudnn_chain_t* chain,
                                     int32_t value,
                                     const rabbet_cudnn_shape_t* shape,
                                     rabbet_cudnn_graph_t* graph);
  const void* context;  // for `operand` and `tensor`
  bool goes_on;         // the result is virtual: more operations follow
} rabbet_cudnn_chain_t;

// Whether cuDNN has a function for each item.
bool rabbet_cudnn_chain_fits(const rabbet_cudnn_chain_t* chain);
// The tensor for the operation before the chain to write: a virtual one, or the
// output if the chain is empty.
cudnnBackendDescriptor_t rabbet_cudnn_chain_start(
    const rabbet_cudnn_chain_t* chain, rabbet_cudnn_graph_t* graph);
// Applies the chain to `from`. Returns the result, which is `from` if the chain
// is empty.
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
  bool is_unlikely;                     // rarely the fastest: try one engine
} rabbet_cudnn_offer_t;

// Offers the engines that the library has for the group in these types and
// formats.
rabbet_status_t rabbet_cudnn_offer(const rabbet_cudnn_offer_t* offer);
// Offers the group in LINEAR with one type for all boundary values: for the
// type `network`, and each other type that the network allows and `can`
// accepts. With TF32 also with boundary input `turned` (-1: none) in HWC.
// Offers nothing if cuDNN is missing, as other classes compute the group, too.
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

// Defines the class rabbet_<id> from id_propose, id_takes and id_describe,
// which checks types, formats and extents.
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
