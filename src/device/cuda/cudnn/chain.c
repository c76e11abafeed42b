// Point-wise layers as operations of a cuDNN graph.
#include "device/cuda/cudnn/kernel.h"
#include "ops/enums.h"

// cuDNN's function for an item; `swapped`: the item's operand comes first.
typedef struct chain_function_t {
  rabbet_cudnn_pointwise_t pointwise;
  bool swapped;
} chain_function_t;

static bool chain_simple(int mode, rabbet_cudnn_pointwise_t* out) {
  *out = (rabbet_cudnn_pointwise_t){.mode = mode, .attribute = -1};
  return true;
}

static bool chain_with(int mode, int attribute, double number,
                       rabbet_cudnn_pointwise_t* out) {
  *out = (rabbet_cudnn_pointwise_t){mode, attribute, number};
  return true;
}

static bool chain_activation(const rabbet_cuda_item_t* item,
                             rabbet_cudnn_pointwise_t* out) {
  switch (item->op) {
    case RABBET_ACTIVATION_RELU:
      return chain_simple(CUDNN_POINTWISE_RELU_FWD, out);
    case RABBET_ACTIVATION_SIGMOID:
      return chain_simple(CUDNN_POINTWISE_SIGMOID_FWD, out);
    case RABBET_ACTIVATION_TANH:
      return chain_simple(CUDNN_POINTWISE_TANH_FWD, out);
    case RABBET_ACTIVATION_LEAKY_RELU:
      return chain_with(CUDNN_POINTWISE_RELU_FWD,
                        CUDNN_ATTR_POINTWISE_RELU_LOWER_CLIP_SLOPE,
                        (double)item->alpha, out);
    case RABBET_ACTIVATION_ELU:
      return chain_with(CUDNN_POINTWISE_ELU_FWD, CUDNN_ATTR_POINTWISE_ELU_ALPHA,
                        (double)item->alpha, out);
    case RABBET_ACTIVATION_CLIP:
      return item->alpha == 0 && item->beta > 0 &&
             chain_with(CUDNN_POINTWISE_RELU_FWD,
                        CUDNN_ATTR_POINTWISE_RELU_UPPER_CLIP,
                        (double)item->beta, out);
    case RABBET_ACTIVATION_GELU_ERF:
      return chain_simple(CUDNN_POINTWISE_GELU_FWD, out);
    case RABBET_ACTIVATION_GELU_TANH:
      return chain_simple(CUDNN_POINTWISE_GELU_APPROX_TANH_FWD, out);
    default:
      return false;
  }
}

static bool chain_unary(int64_t op, rabbet_cudnn_pointwise_t* out) {
  switch (op) {
    case RABBET_UNARY_EXP:
      return chain_simple(CUDNN_POINTWISE_EXP, out);
    case RABBET_UNARY_LOG:
      return chain_simple(CUDNN_POINTWISE_LOG, out);
    case RABBET_UNARY_SQRT:
      return chain_simple(CUDNN_POINTWISE_SQRT, out);
    case RABBET_UNARY_ABS:
      return chain_simple(CUDNN_POINTWISE_ABS, out);
    case RABBET_UNARY_NEG:
      return chain_simple(CUDNN_POINTWISE_NEG, out);
    default:
      return false;
  }
}

static bool chain_elementwise(int64_t op, rabbet_cudnn_pointwise_t* out) {
  switch (op) {
    case RABBET_ELEMENTWISE_SUM:
      return chain_simple(CUDNN_POINTWISE_ADD, out);
    case RABBET_ELEMENTWISE_PROD:
      return chain_simple(CUDNN_POINTWISE_MUL, out);
    case RABBET_ELEMENTWISE_MAX:
      return chain_simple(CUDNN_POINTWISE_MAX, out);
    case RABBET_ELEMENTWISE_MIN:
      return chain_simple(CUDNN_POINTWISE_MIN, out);
    case RABBET_ELEMENTWISE_SUB:
      return chain_simple(CUDNN_POINTWISE_SUB, out);
    case RABBET_ELEMENTWISE_DIV:
      return chain_simple(CUDNN_POINTWISE_DIV, out);
    default:
      return false;
  }
}

static bool chain_function(const rabbet_cuda_item_t* item,
                           chain_function_t* out) {
  out->swapped = item->reversed && (item->op == RABBET_ELEMENTWISE_SUB ||
                                    item->op == RABBET_ELEMENTWISE_DIV);
  switch (item->kind) {
    case RABBET_CUDA_ITEM_ACTIVATION:
      return chain_activation(item, &out->pointwise);
    case RABBET_CUDA_ITEM_UNARY:
      return chain_unary(item->op, &out->pointwise);
    case RABBET_CUDA_ITEM_ELEMENTWISE:
      return chain_elementwise(item->op, &out->pointwise);
    default:
      return chain_with(CUDNN_POINTWISE_SWISH_FWD,
                        CUDNN_ATTR_POINTWISE_SWISH_BETA, 1, &out->pointwise);
  }
}

bool rabbet_cudnn_chain_fits(const rabbet_cudnn_chain_t* chain) {
  chain_function_t function;
  rabbet_cudnn_shape_t shape;
  for (int i = 0; i < chain->epilogue->count; ++i) {
    const rabbet_cuda_item_t* item = &chain->epilogue->items[i];
    if (!chain_function(item, &function) ||
        (item->operand >= 0 && !chain->operand(chain, item->operand, &shape)))
      return false;
  }
  return true;
}

static cudnnBackendDescriptor_t chain_tensor(const rabbet_cudnn_chain_t* chain,
                                             bool is_last,
                                             rabbet_cudnn_graph_t* graph) {
  return rabbet_cudnn_tensor(
      graph, &chain->result, chain->dtype,
      is_last && !chain->goes_on ? RABBET_CUDNN_OUTPUT : RABBET_CUDNN_VIRTUAL);
}

cudnnBackendDescriptor_t rabbet_cudnn_chain_start(
    const rabbet_cudnn_chain_t* chain, rabbet_cudnn_graph_t* graph) {
  return chain_tensor(chain, chain->epilogue->count == 0, graph);
}

static cudnnBackendDescriptor_t chain_operand(const rabbet_cudnn_chain_t* chain,
                                              int32_t value,
                                              rabbet_cudnn_graph_t* graph) {
  rabbet_cudnn_shape_t shape;
  if (value < 0 || !chain->operand(chain, value, &shape)) return NULL;
  if (chain->tensor) return chain->tensor(chain, value, &shape, graph);
  return rabbet_cudnn_tensor(graph, &shape, chain->dtype,
                             rabbet_group_input_of(chain->group, value));
}

cudnnBackendDescriptor_t rabbet_cudnn_chain_add(
    const rabbet_cudnn_chain_t* chain, cudnnBackendDescriptor_t from,
    rabbet_cudnn_graph_t* graph) {
  int count = chain->epilogue->count;
  for (int i = 0; i < count; ++i) {
    const rabbet_cuda_item_t* item = &chain->epilogue->items[i];
    chain_function_t function;
    chain_function(item, &function);
    cudnnBackendDescriptor_t b = chain_operand(chain, item->operand, graph);
    cudnnBackendDescriptor_t y = chain_tensor(chain, i + 1 == count, graph);
    if (function.swapped)
      rabbet_cudnn_pointwise(graph, &function.pointwise, b, from, y);
    else
      rabbet_cudnn_pointwise(graph, &function.pointwise, from, b, y);
    from = y;
  }
  return from;
}
