// A cuDNN operation graph under construction, and ways to execute it.
//
// Functions that add to a graph store the first error in graph->status and do
// nothing after it, so callers need not check each call.
#ifndef RABBET_SRC_DEVICE_CUDA_CUDNN_GRAPH_H_
#define RABBET_SRC_DEVICE_CUDA_CUDNN_GRAPH_H_

#include "base/vec.h"
#include "device/cuda/cudnn/cudnn.h"

enum {
  RABBET_CUDNN_DIMS = 8,
  RABBET_CUDNN_BINDINGS = 24,
  RABBET_CUDNN_OPERATIONS = 24,
  RABBET_CUDNN_SCALARS = 4,
  RABBET_CUDNN_ALIGNMENT = 16,  // of every tensor's address, in bytes
};

// Where a tensor's elements are: the number of a boundary input (>= 0), or
enum {
  RABBET_CUDNN_OUTPUT = -1,         // output 0
  RABBET_CUDNN_VIRTUAL = -2,        // between two operations, in FLOAT
  RABBET_CUDNN_VIRTUAL_TYPED = -3,  // between two operations, in a given type
};

// The place of scalar i, which the host passes.
#define RABBET_CUDNN_SCALAR_PLACE(i) (-4 - (i))

typedef struct rabbet_cudnn_shape_t {
  int rank;
  int64_t dims[RABBET_CUDNN_DIMS];
  int64_t strides[RABBET_CUDNN_DIMS];
} rabbet_cudnn_shape_t;

typedef struct rabbet_cudnn_binding_t {
  int64_t id;      // of the tensor in the graph
  int32_t place;   // input number, RABBET_CUDNN_OUTPUT, or that of a scalar
  int64_t offset;  // bytes from there to the tensor's first element
  cudnnBackendDescriptor_t tensor;
} rabbet_cudnn_binding_t;

typedef struct rabbet_cudnn_graph_t {
  rabbet_cudnn_t* library;
  rabbet_allocator_t allocator;
  rabbet_status_t status;
  uint64_t hash;                              // of the graph's description
  RABBET_VEC(cudnnBackendDescriptor_t) made;  // destroyed with the graph
  cudnnBackendDescriptor_t operations[RABBET_CUDNN_OPERATIONS];
  int operation_count;
  rabbet_cudnn_binding_t bindings[RABBET_CUDNN_BINDINGS];
  int binding_count;
  float scalars[RABBET_CUDNN_SCALARS];
  int scalar_count;
  int64_t next_id;
  bool sums_whole;  // INT8 convolutions: sums are INT32
  // A window's stride is more than kernels that are compiled for a plan encode.
  bool has_wide_stride;
  // Whether the library knows such operations is not documented for each of its
  // releases: that it finds them ill-formed is UNSUPPORTED.
  bool is_tentative;
  cudnnBackendDescriptor_t graph;  // once finished
} rabbet_cudnn_graph_t;

void rabbet_cudnn_graph_begin(rabbet_cudnn_t* library,
                              rabbet_allocator_t allocator,
                              rabbet_cudnn_graph_t* graph);
// A zeroed graph may be ended, too.
void rabbet_cudnn_graph_end(rabbet_cudnn_graph_t* graph);

// ---- Tensors ---------------------------------------------------------------

// A tensor in dense row-major order, or with axis 1 innermost.
rabbet_cudnn_shape_t rabbet_cudnn_dense(int rank, const int64_t* dims,
                                        bool channels_last);
// Returns the same tensor for the same place.
cudnnBackendDescriptor_t rabbet_cudnn_tensor(rabbet_cudnn_graph_t* graph,
                                             const rabbet_cudnn_shape_t* shape,
                                             rabbet_dtype_t dtype,
                                             int32_t place);
// A part of a boundary input as a tensor of its own: its first element is
// `offset` bytes after the input's.
cudnnBackendDescriptor_t rabbet_cudnn_part(rabbet_cudnn_graph_t* graph,
                                           const rabbet_cudnn_shape_t* shape,
                                           rabbet_dtype_t dtype, int32_t place,
                                           int64_t offset);
// A scalar that the host passes.
cudnnBackendDescriptor_t rabbet_cudnn_scalar(rabbet_cudnn_graph_t* graph,
                                             int rank, float value);

// ---- Operations (all compute in FLOAT, but for graph->sums_whole) ----------

typedef struct rabbet_cudnn_window_t {
  int64_t spatial;
  int64_t pre[3], post[3], stride[3], dilation[3];
} rabbet_cudnn_window_t;
void rabbet_cudnn_convolution(rabbet_cudnn_graph_t* graph,
                              const rabbet_cudnn_window_t* window,
                              cudnnBackendDescriptor_t x,
                              cudnnBackendDescriptor_t w,
                              cudnnBackendDescriptor_t y);
// The gradient of a convolution to its input: the window slides over y.
void rabbet_cudnn_deconvolution(rabbet_cudnn_graph_t* graph,
                                const rabbet_cudnn_window_t* window,
                                cudnnBackendDescriptor_t x,
                                cudnnBackendDescriptor_t w,
                                cudnnBackendDescriptor_t y);
void rabbet_cudnn_matmul(rabbet_cudnn_graph_t* graph,
                         cudnnBackendDescriptor_t a, cudnnBackendDescriptor_t b,
                         cudnnBackendDescriptor_t y);
// A point-wise function and the number that some functions need; attribute -1:
// no number.
typedef struct rabbet_cudnn_pointwise_t {
  int mode;  // CUDNN_POINTWISE_...
  int attribute;
  double number;
} rabbet_cudnn_pointwise_t;
// `b` NULL for functions of one tensor.
void rabbet_cudnn_pointwise(rabbet_cudnn_graph_t* graph,
                            const rabbet_cudnn_pointwise_t* pointwise,
                            cudnnBackendDescriptor_t x,
                            cudnnBackendDescriptor_t b,
                            cudnnBackendDescriptor_t y);
// y = x where an element's place on axis `row` is at least that on axis
// `column`, else `other`. All have the shape of x; y is virtual.
cudnnBackendDescriptor_t rabbet_cudnn_triangle(
    rabbet_cudnn_graph_t* graph, const rabbet_cudnn_shape_t* shape, int64_t row,
    int64_t column, cudnnBackendDescriptor_t x, cudnnBackendDescriptor_t other);
// `mode`: CUDNN_REDUCE_TENSOR_...; over the axes where y has 1.
void rabbet_cudnn_reduce(rabbet_cudnn_graph_t* graph, int mode,
                         cudnnBackendDescriptor_t x,
                         cudnnBackendDescriptor_t y);
// Finalizes the graph. Returns its status and clears it.
rabbet_status_t rabbet_cudnn_graph_finish(rabbet_cudnn_graph_t* graph,
                                          cudnnHandle_t handle);

// ---- Engines ---------------------------------------------------------------

enum { RABBET_CUDNN_KNOBS = 64 };

// An engine with settings for its knobs. With the graph they determine a plan.
typedef struct rabbet_cudnn_engine_t {
  int64_t engine;
  int64_t knob_count;
  int64_t knobs[RABBET_CUDNN_KNOBS][2];  // type, value
} rabbet_cudnn_engine_t;

typedef struct rabbet_cudnn_choice_t {
  rabbet_cudnn_engine_t engine;
  int32_t number;  // a hash of engine and knobs, 30 bits
  char name[40];   // "engine 37 k2=13 k14=3"
  bool compiles;   // a plan of it is compiled when it is made
} rabbet_cudnn_choice_t;

typedef struct rabbet_cudnn_choices_t {
  rabbet_cudnn_graph_t* graph;
  RABBET_VEC(rabbet_cudnn_choice_t) list;  // best first
} rabbet_cudnn_choices_t;

typedef struct rabbet_cudnn_wish_t {
  rabbet_dtype_t dtype;   // of the tensors
  bool tf32;              // FLOAT may be computed as TF32
  size_t count;           // engines wanted
  size_t most_compiling;  // of them, those that compile: the first ones
  // An engine of the fallback mode that compiles is left out where mode A has
  // one: it is the same with its knobs at their defaults, or far slower.
  bool spares_compiling;
} rabbet_cudnn_wish_t;

// The engines that the library's heuristics offer: of mode A, then of the
// fallback mode. Engines that round more often than the types require are left
// out, and those that would read other pixels than a window of wide stride
// covers. An empty list is no error.
rabbet_status_t rabbet_cudnn_choices(rabbet_cudnn_graph_t* graph,
                                     const rabbet_cudnn_wish_t* wish,
                                     rabbet_cudnn_choices_t* out_choices);
void rabbet_cudnn_choices_end(rabbet_cudnn_choices_t* choices);

// ---- Plans -----------------------------------------------------------------

// A plan to execute a finished graph. UNSUPPORTED, with the library's message,
// if the engine rejects the graph.
rabbet_status_t rabbet_cudnn_plan(rabbet_cudnn_graph_t* graph,
                                  cudnnHandle_t handle,
                                  const rabbet_cudnn_engine_t* engine,
                                  cudnnBackendDescriptor_t* out_plan);
// Serializes a plan, and restores it. The text is freed with
// rabbet_free(graph->allocator, ..).
rabbet_status_t rabbet_cudnn_plan_save(const rabbet_cudnn_graph_t* graph,
                                       cudnnBackendDescriptor_t plan,
                                       char** out_text, size_t* out_size);
rabbet_status_t rabbet_cudnn_plan_load(const rabbet_cudnn_graph_t* graph,
                                       cudnnHandle_t handle, const char* text,
                                       size_t size,
                                       cudnnBackendDescriptor_t* out_plan);
rabbet_status_t rabbet_cudnn_plan_workspace(const rabbet_cudnn_graph_t* graph,
                                            cudnnBackendDescriptor_t plan,
                                            size_t* out_bytes);

#endif  // RABBET_SRC_DEVICE_CUDA_CUDNN_GRAPH_H_
