#include "device/cuda/cudnn/graph.h"

#include <assert.h>
#include <string.h>

#include "base/hash.h"

void rabbet_cudnn_graph_begin(rabbet_cudnn_t* library,
                              rabbet_allocator_t allocator,
                              rabbet_cudnn_graph_t* graph) {
  *graph = (rabbet_cudnn_graph_t){
      .library = library, .allocator = allocator, .next_id = 1};
}

void rabbet_cudnn_graph_end(rabbet_cudnn_graph_t* graph) {
  for (size_t i = graph->made.count; i-- > 0;)
    graph->library->cudnnBackendDestroyDescriptor(graph->made.data[i]);
  if (graph->library) rabbet_vec_free(graph->allocator, &graph->made);
  rabbet_status_ignore(graph->status);
  *graph = (rabbet_cudnn_graph_t){.library = NULL};
}

// ---- Descriptors -----------------------------------------------------------

static bool graph_is_ok(const rabbet_cudnn_graph_t* graph) {
  return rabbet_is_ok(graph->status);
}

static void graph_too_large(rabbet_cudnn_graph_t* graph) {
  if (graph_is_ok(graph))
    graph->status =
        RABBET_STATUS(RABBET_STATUS_UNSUPPORTED,
                      "more operations or tensors than a cuDNN graph is given");
}

static cudnnBackendDescriptor_t graph_new(rabbet_cudnn_graph_t* graph,
                                          int type) {
  cudnnBackendDescriptor_t descriptor = NULL;
  if (!graph_is_ok(graph)) return NULL;
  graph->status = RABBET_VEC_RESERVE(graph->allocator, &graph->made, 1);
  if (graph_is_ok(graph))
    graph->status = RABBET_CUDNN(graph->library, cudnnBackendCreateDescriptor,
                                 (type, &descriptor));
  if (!graph_is_ok(graph)) return NULL;
  graph->made.data[graph->made.count++] = descriptor;
  return descriptor;
}

static size_t graph_element_size(int type) {
  switch (type) {
    case CUDNN_TYPE_INT64:
    case CUDNN_TYPE_DOUBLE:
    case CUDNN_TYPE_VOID_PTR:
    case CUDNN_TYPE_HANDLE:
    case CUDNN_TYPE_BACKEND_DESCRIPTOR:
      return 8;
    case CUDNN_TYPE_BOOLEAN:
    case CUDNN_TYPE_CHAR:
      return 1;
    default:
      return 4;
  }
}

// Hashes all attributes but addresses, which differ from run to run.
static void graph_hash(rabbet_cudnn_graph_t* graph, int name, int type,
                       int64_t count, const void* values) {
  struct {
    uint64_t before, values;
    int64_t name, count;
  } text = {.before = graph->hash, .name = name, .count = count};
  if (type != CUDNN_TYPE_BACKEND_DESCRIPTOR && type != CUDNN_TYPE_HANDLE)
    text.values =
        rabbet_hash64(values, (size_t)count * graph_element_size(type));
  graph->hash = rabbet_hash64(&text, sizeof(text));
}

static void graph_set(rabbet_cudnn_graph_t* graph,
                      cudnnBackendDescriptor_t descriptor, int name, int type,
                      int64_t count, const void* values) {
  if (!graph_is_ok(graph)) return;
  graph_hash(graph, name, type, count, values);
  graph->status =
      RABBET_ANNOTATE(RABBET_CUDNN(graph->library, cudnnBackendSetAttribute,
                                   (descriptor, name, type, count, values)),
                      "attribute %d", name);
}

static void graph_set_int(rabbet_cudnn_graph_t* graph,
                          cudnnBackendDescriptor_t descriptor, int name,
                          int type, int value) {
  graph_set(graph, descriptor, name, type, 1, &value);
}

// Sets an attribute to another descriptor.
static void graph_refer(rabbet_cudnn_graph_t* graph,
                        cudnnBackendDescriptor_t descriptor, int name,
                        cudnnBackendDescriptor_t to) {
  graph_set(graph, descriptor, name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &to);
}

static void graph_finalize(rabbet_cudnn_graph_t* graph,
                           cudnnBackendDescriptor_t descriptor,
                           const char* what) {
  if (!graph_is_ok(graph)) return;
  cudnnStatus_t result = graph->library->cudnnBackendFinalize(descriptor);
  if (graph->is_tentative && result / 1000 == CUDNN_STATUS_BAD_PARAM / 1000)
    graph->status =
        RABBET_STATUS(RABBET_STATUS_UNSUPPORTED, "cuDNN refuses %s", what);
  else
    graph->status = RABBET_ANNOTATE(
        rabbet_cudnn_check(graph->library, result, "cudnnBackendFinalize"),
        "%s", what);
}

static void graph_operation(rabbet_cudnn_graph_t* graph,
                            cudnnBackendDescriptor_t operation) {
  if (graph->operation_count == RABBET_CUDNN_OPERATIONS)
    graph_too_large(graph);
  else
    graph->operations[graph->operation_count++] = operation;
}

// ---- Tensors ---------------------------------------------------------------

rabbet_cudnn_shape_t rabbet_cudnn_dense(int rank, const int64_t* dims,
                                        bool channels_last) {
  assert(rank >= (channels_last ? 2 : 0) && rank <= RABBET_CUDNN_DIMS);
  rabbet_cudnn_shape_t shape = {.rank = rank};
  int64_t stride = 1;
  memcpy(shape.dims, dims, sizeof(*dims) * (size_t)rank);
  if (channels_last) {
    shape.strides[1] = 1;
    stride = dims[1];
  }
  for (int i = rank - 1; i >= 0; --i) {
    if (channels_last && i == 1) continue;
    shape.strides[i] = stride;
    stride *= dims[i];
  }
  return shape;
}

// cuDNN's type of a tensor; INT8 occurs only at the boundary, INT32 and BOOL
// only between operations.
static int graph_type(rabbet_dtype_t dtype) {
  switch (dtype) {
    case RABBET_DTYPE_INT8:
      return CUDNN_DATA_INT8;
    case RABBET_DTYPE_INT32:
      return CUDNN_DATA_INT32;
    case RABBET_DTYPE_BOOL:
      return CUDNN_DATA_BOOLEAN;
    default:
      return rabbet_cudnn_type(dtype);
  }
}

static cudnnBackendDescriptor_t graph_tensor(rabbet_cudnn_graph_t* graph,
                                             const rabbet_cudnn_shape_t* shape,
                                             int type, int64_t id,
                                             int flag_name) {
  assert(shape->rank > 0 && shape->rank <= RABBET_CUDNN_DIMS);
  const int64_t alignment = RABBET_CUDNN_ALIGNMENT;
  const bool yes = true;
  cudnnBackendDescriptor_t tensor =
      graph_new(graph, CUDNN_BACKEND_TENSOR_DESCRIPTOR);
  graph_set_int(graph, tensor, CUDNN_ATTR_TENSOR_DATA_TYPE,
                CUDNN_TYPE_DATA_TYPE, type);
  graph_set(graph, tensor, CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64,
            shape->rank, shape->dims);
  graph_set(graph, tensor, CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64,
            shape->rank, shape->strides);
  graph_set(graph, tensor, CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, 1,
            &id);
  graph_set(graph, tensor, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64,
            1, &alignment);
  if (flag_name)
    graph_set(graph, tensor, flag_name, CUDNN_TYPE_BOOLEAN, 1, &yes);
  graph_finalize(graph, tensor, "a tensor");
  return tensor;
}

static void graph_bind(rabbet_cudnn_graph_t* graph, int64_t id, int32_t place,
                       int64_t offset, cudnnBackendDescriptor_t tensor) {
  if (graph->binding_count == RABBET_CUDNN_BINDINGS)
    graph_too_large(graph);
  else
    graph->bindings[graph->binding_count++] =
        (rabbet_cudnn_binding_t){id, place, offset, tensor};
}

cudnnBackendDescriptor_t rabbet_cudnn_tensor(rabbet_cudnn_graph_t* graph,
                                             const rabbet_cudnn_shape_t* shape,
                                             rabbet_dtype_t dtype,
                                             int32_t place) {
  assert(place >= RABBET_CUDNN_VIRTUAL_TYPED);  // scalars have a function
  if (place == RABBET_CUDNN_VIRTUAL || place == RABBET_CUDNN_VIRTUAL_TYPED)
    return graph_tensor(
        graph, shape,
        place == RABBET_CUDNN_VIRTUAL ? CUDNN_DATA_FLOAT : graph_type(dtype),
        graph->next_id++, CUDNN_ATTR_TENSOR_IS_VIRTUAL);
  for (int i = 0; i < graph->binding_count; ++i)
    if (graph->bindings[i].place == place) return graph->bindings[i].tensor;
  return rabbet_cudnn_part(graph, shape, dtype, place, 0);
}

cudnnBackendDescriptor_t rabbet_cudnn_part(rabbet_cudnn_graph_t* graph,
                                           const rabbet_cudnn_shape_t* shape,
                                           rabbet_dtype_t dtype, int32_t place,
                                           int64_t offset) {
  assert(place >= RABBET_CUDNN_OUTPUT && offset >= 0);
  int64_t id = graph->next_id++;
  cudnnBackendDescriptor_t tensor =
      graph_tensor(graph, shape, graph_type(dtype), id, 0);
  graph_bind(graph, id, place, offset, tensor);
  return tensor;
}

cudnnBackendDescriptor_t rabbet_cudnn_scalar(rabbet_cudnn_graph_t* graph,
                                             int rank, float value) {
  assert(rank > 0 && rank <= RABBET_CUDNN_DIMS);
  rabbet_cudnn_shape_t shape = {.rank = rank};
  for (int i = 0; i < rank; ++i)
    shape.dims[i] = shape.strides[i] = 1;
  if (graph->scalar_count == RABBET_CUDNN_SCALARS) {
    graph_too_large(graph);
    return NULL;
  }
  int number = graph->scalar_count++;
  graph->scalars[number] = value;
  int64_t id = graph->next_id++;
  cudnnBackendDescriptor_t tensor = graph_tensor(
      graph, &shape, CUDNN_DATA_FLOAT, id, CUDNN_ATTR_TENSOR_IS_BY_VALUE);
  graph_bind(graph, id, RABBET_CUDNN_SCALAR_PLACE(number), 0, tensor);
  return tensor;
}

// ---- Operations ------------------------------------------------------------

// Tensor maps of compute capability 9.0 hold strides of an image in three bits.
// Kernels that cuDNN 9.19 compiles for a plan (engine 4) take a wider stride
// modulo 8: with 14 the second image began at pixel 6 of the first.
enum { GRAPH_STRIDE_MOST = 8 };

// Convolution and deconvolution have the same attributes under different names.
typedef struct graph_direction_t {
  int type, how, x, w, y, alpha, beta;
} graph_direction_t;

static cudnnBackendDescriptor_t graph_window(
    rabbet_cudnn_graph_t* graph, const rabbet_cudnn_window_t* window) {
  assert(window->spatial > 0 && window->spatial <= 3);
  const struct {
    int name;
    const int64_t* values;
  } lists[] = {
      {CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, window->pre},
      {CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, window->post},
      {CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, window->stride},
      {CUDNN_ATTR_CONVOLUTION_DILATIONS, window->dilation},
  };
  cudnnBackendDescriptor_t how =
      graph_new(graph, CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR);
  graph_set_int(graph, how, CUDNN_ATTR_CONVOLUTION_COMP_TYPE,
                CUDNN_TYPE_DATA_TYPE,
                graph->sums_whole ? CUDNN_DATA_INT32 : CUDNN_DATA_FLOAT);
  graph_set_int(graph, how, CUDNN_ATTR_CONVOLUTION_CONV_MODE,
                CUDNN_TYPE_CONVOLUTION_MODE, CUDNN_CROSS_CORRELATION);
  graph_set(graph, how, CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, CUDNN_TYPE_INT64,
            1, &window->spatial);
  for (size_t i = 0; i < sizeof(lists) / sizeof(lists[0]); ++i)
    graph_set(graph, how, lists[i].name, CUDNN_TYPE_INT64, window->spatial,
              lists[i].values);
  for (int64_t i = 0; i < window->spatial; ++i)
    graph->has_wide_stride |= window->stride[i] > GRAPH_STRIDE_MOST;
  graph_finalize(graph, how, "a convolution's window");
  return how;
}

static void graph_convolution(rabbet_cudnn_graph_t* graph,
                              const graph_direction_t* names,
                              const rabbet_cudnn_window_t* window,
                              const cudnnBackendDescriptor_t tensors[3]) {
  const float one = 1, zero = 0;
  cudnnBackendDescriptor_t how = graph_window(graph, window);
  cudnnBackendDescriptor_t operation = graph_new(graph, names->type);
  graph_refer(graph, operation, names->how, how);
  graph_refer(graph, operation, names->x, tensors[0]);
  graph_refer(graph, operation, names->w, tensors[1]);
  graph_refer(graph, operation, names->y, tensors[2]);
  graph_set(graph, operation, names->alpha, CUDNN_TYPE_FLOAT, 1, &one);
  graph_set(graph, operation, names->beta, CUDNN_TYPE_FLOAT, 1, &zero);
  graph_finalize(graph, operation, "a convolution");
  graph_operation(graph, operation);
}

void rabbet_cudnn_convolution(rabbet_cudnn_graph_t* graph,
                              const rabbet_cudnn_window_t* window,
                              cudnnBackendDescriptor_t x,
                              cudnnBackendDescriptor_t w,
                              cudnnBackendDescriptor_t y) {
  static const graph_direction_t forward = {
      .type = CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR,
      .how = CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC,
      .x = CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X,
      .w = CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W,
      .y = CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y,
      .alpha = CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA,
      .beta = CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA};
  graph_convolution(graph, &forward, window,
                    (cudnnBackendDescriptor_t[]){x, w, y});
}

void rabbet_cudnn_deconvolution(rabbet_cudnn_graph_t* graph,
                                const rabbet_cudnn_window_t* window,
                                cudnnBackendDescriptor_t x,
                                cudnnBackendDescriptor_t w,
                                cudnnBackendDescriptor_t y) {
  static const graph_direction_t backward = {
      .type = CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR,
      .how = CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC,
      .x = CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY,
      .w = CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W,
      .y = CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX,
      .alpha = CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA,
      .beta = CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA};
  graph_convolution(graph, &backward, window,
                    (cudnnBackendDescriptor_t[]){x, w, y});
}

void rabbet_cudnn_matmul(rabbet_cudnn_graph_t* graph,
                         cudnnBackendDescriptor_t a, cudnnBackendDescriptor_t b,
                         cudnnBackendDescriptor_t y) {
  cudnnBackendDescriptor_t how =
      graph_new(graph, CUDNN_BACKEND_MATMUL_DESCRIPTOR);
  graph_set_int(graph, how, CUDNN_ATTR_MATMUL_COMP_TYPE, CUDNN_TYPE_DATA_TYPE,
                CUDNN_DATA_FLOAT);
  graph_finalize(graph, how, "a product's type");
  cudnnBackendDescriptor_t operation =
      graph_new(graph, CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR);
  graph_refer(graph, operation, CUDNN_ATTR_OPERATION_MATMUL_DESC, how);
  graph_refer(graph, operation, CUDNN_ATTR_OPERATION_MATMUL_ADESC, a);
  graph_refer(graph, operation, CUDNN_ATTR_OPERATION_MATMUL_BDESC, b);
  graph_refer(graph, operation, CUDNN_ATTR_OPERATION_MATMUL_CDESC, y);
  graph_finalize(graph, operation, "a product");
  graph_operation(graph, operation);
}

// A point-wise function without its tensors.
typedef struct graph_function_t {
  int mode, precision;
  int name, type;  // of an attribute that the function needs; name -1: none
  const void* value;
} graph_function_t;

// `tensors`: x, b, t and y; b and t are NULL where the function has none.
static void graph_pointwise(rabbet_cudnn_graph_t* graph,
                            const graph_function_t* function,
                            const cudnnBackendDescriptor_t tensors[4]) {
  static const int names[4] = {CUDNN_ATTR_OPERATION_POINTWISE_XDESC,
                               CUDNN_ATTR_OPERATION_POINTWISE_BDESC,
                               CUDNN_ATTR_OPERATION_POINTWISE_TDESC,
                               CUDNN_ATTR_OPERATION_POINTWISE_YDESC};
  cudnnBackendDescriptor_t how =
      graph_new(graph, CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
  graph_set_int(graph, how, CUDNN_ATTR_POINTWISE_MODE,
                CUDNN_TYPE_POINTWISE_MODE, function->mode);
  graph_set_int(graph, how, CUDNN_ATTR_POINTWISE_MATH_PREC,
                CUDNN_TYPE_DATA_TYPE, function->precision);
  if (function->name >= 0)
    graph_set(graph, how, function->name, function->type, 1, function->value);
  graph_finalize(graph, how, "a point-wise function");
  cudnnBackendDescriptor_t operation =
      graph_new(graph, CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
  graph_refer(graph, operation, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR,
              how);
  for (int i = 0; i < 4; ++i)
    if (tensors[i]) graph_refer(graph, operation, names[i], tensors[i]);
  graph_finalize(graph, operation, "a point-wise operation");
  graph_operation(graph, operation);
}

void rabbet_cudnn_pointwise(rabbet_cudnn_graph_t* graph,
                            const rabbet_cudnn_pointwise_t* pointwise,
                            cudnnBackendDescriptor_t x,
                            cudnnBackendDescriptor_t b,
                            cudnnBackendDescriptor_t y) {
  const graph_function_t function = {pointwise->mode, CUDNN_DATA_FLOAT,
                                     pointwise->attribute, CUDNN_TYPE_DOUBLE,
                                     &pointwise->number};
  graph_pointwise(graph, &function,
                  (cudnnBackendDescriptor_t[]){x, b, NULL, y});
}

// Places on an axis of x.
static cudnnBackendDescriptor_t graph_index(rabbet_cudnn_graph_t* graph,
                                            const rabbet_cudnn_shape_t* shape,
                                            int64_t axis,
                                            cudnnBackendDescriptor_t x) {
  const graph_function_t function = {
      CUDNN_POINTWISE_GEN_INDEX, CUDNN_DATA_FLOAT, CUDNN_ATTR_POINTWISE_AXIS,
      CUDNN_TYPE_INT64, &axis};
  cudnnBackendDescriptor_t y = rabbet_cudnn_tensor(
      graph, shape, RABBET_DTYPE_INT32, RABBET_CUDNN_VIRTUAL_TYPED);
  graph_pointwise(graph, &function,
                  (cudnnBackendDescriptor_t[]){x, NULL, NULL, y});
  return y;
}

// cuDNN recognizes its attention's causal mask by these operations and types.
cudnnBackendDescriptor_t rabbet_cudnn_triangle(
    rabbet_cudnn_graph_t* graph, const rabbet_cudnn_shape_t* shape, int64_t row,
    int64_t column, cudnnBackendDescriptor_t x,
    cudnnBackendDescriptor_t other) {
  const graph_function_t compare = {.mode = CUDNN_POINTWISE_CMP_GE,
                                    .precision = CUDNN_DATA_BOOLEAN,
                                    .name = -1};
  const graph_function_t select = {.mode = CUDNN_POINTWISE_BINARY_SELECT,
                                   .precision = CUDNN_DATA_FLOAT,
                                   .name = -1};
  cudnnBackendDescriptor_t rows = graph_index(graph, shape, row, x);
  cudnnBackendDescriptor_t columns = graph_index(graph, shape, column, x);
  cudnnBackendDescriptor_t kept = rabbet_cudnn_tensor(
      graph, shape, RABBET_DTYPE_BOOL, RABBET_CUDNN_VIRTUAL_TYPED);
  cudnnBackendDescriptor_t y = rabbet_cudnn_tensor(
      graph, shape, RABBET_DTYPE_FLOAT, RABBET_CUDNN_VIRTUAL);
  graph_pointwise(graph, &compare,
                  (cudnnBackendDescriptor_t[]){rows, columns, NULL, kept});
  graph_pointwise(graph, &select,
                  (cudnnBackendDescriptor_t[]){x, other, kept, y});
  return y;
}

void rabbet_cudnn_reduce(rabbet_cudnn_graph_t* graph, int mode,
                         cudnnBackendDescriptor_t x,
                         cudnnBackendDescriptor_t y) {
  cudnnBackendDescriptor_t how =
      graph_new(graph, CUDNN_BACKEND_REDUCTION_DESCRIPTOR);
  graph_set_int(graph, how, CUDNN_ATTR_REDUCTION_OPERATOR,
                CUDNN_TYPE_REDUCTION_OPERATOR_TYPE, mode);
  graph_set_int(graph, how, CUDNN_ATTR_REDUCTION_COMP_TYPE,
                CUDNN_TYPE_DATA_TYPE, CUDNN_DATA_FLOAT);
  graph_finalize(graph, how, "a reduction's kind");
  cudnnBackendDescriptor_t operation =
      graph_new(graph, CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR);
  graph_refer(graph, operation, CUDNN_ATTR_OPERATION_REDUCTION_DESC, how);
  graph_refer(graph, operation, CUDNN_ATTR_OPERATION_REDUCTION_XDESC, x);
  graph_refer(graph, operation, CUDNN_ATTR_OPERATION_REDUCTION_YDESC, y);
  graph_finalize(graph, operation, "a reduction");
  graph_operation(graph, operation);
}

rabbet_status_t rabbet_cudnn_graph_finish(rabbet_cudnn_graph_t* graph,
                                          cudnnHandle_t handle) {
  assert(!graph->graph);
  assert(!graph_is_ok(graph) || graph->operation_count > 0);
  cudnnBackendDescriptor_t made =
      graph_new(graph, CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
  graph_set(graph, made, CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, 1,
            &handle);
  graph_set(graph, made, CUDNN_ATTR_OPERATIONGRAPH_OPS,
            CUDNN_TYPE_BACKEND_DESCRIPTOR, graph->operation_count,
            graph->operations);
  graph_finalize(graph, made, "a graph");
  graph->graph = made;
  rabbet_status_t status = graph->status;
  graph->status = rabbet_ok();
  return status;
}
