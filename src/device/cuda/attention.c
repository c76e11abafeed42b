// softmax(scale q k' + mask) v as one kernel, by cuDNN's fused attention:
// scores never reach memory. FP16 and BF16. Bounded by the tensor cores for
// long sequences, by latency for short ones.
#include <math.h>

#include "core/view.h"
#include "device/cuda/cudnn_kernel.h"
#include "ops/enums.h"

typedef struct attention_t {
  int32_t q, k, v, mask, y;  // value numbers; mask -1: none
  bool k_turned, v_turned;   // as their products read them (TRANSPOSE)
  double scale;
} attention_t;

// ---- The group -------------------------------------------------------------

static bool attention_is_input(const rabbet_group_t* group, int32_t value) {
  return value >= 0 && rabbet_group_input_of(group, value) >= 0;
}

static bool attention_product(const rabbet_group_node_t* node,
                              bool* out_turned) {
  *out_turned = rabbet_node_int(node, "op1") == RABBET_MATRIX_TRANSPOSE;
  return rabbet_op_is(node->op, RABBET_OP_MATRIX_MULTIPLY) &&
         rabbet_node_int(node, "op0") == RABBET_MATRIX_NONE &&
         rabbet_node_int(node, "op1") != RABBET_MATRIX_VECTOR;
}

// A scale by a constant, before the mask; one mask.
static bool attention_take(const rabbet_group_t* group,
                           const rabbet_dims_t* dims,
                           const rabbet_group_node_t* node, int32_t scores,
                           attention_t* out) {
  double number = 0;
  if (!rabbet_op_is(node->op, RABBET_OP_ELEMENTWISE)) return false;
  bool reversed = node->inputs[1] == scores;
  int32_t operand = node->inputs[reversed ? 0 : 1];
  if (node->inputs[reversed ? 1 : 0] != scores ||
      !attention_is_input(group, operand) || out->mask >= 0)
    return false;
  int64_t op = rabbet_node_int(node, "op");
  if (op == RABBET_ELEMENTWISE_SUM) {
    out->mask = operand;
    return true;
  }
  if (!rabbet_cuda_is_number(group, dims, operand, &number)) return false;
  if (op == RABBET_ELEMENTWISE_PROD)
    out->scale *= number;
  else if (op == RABBET_ELEMENTWISE_DIV && !reversed && number != 0)
    out->scale /= number;
  else
    return false;
  return isfinite(out->scale);
}

static bool attention_is_softmax(const rabbet_group_node_t* node,
                                 const rabbet_dims_t* dims, int32_t scores) {
  int64_t axes = rabbet_node_int(node, "axes");
  return rabbet_op_is(node->op, RABBET_OP_SOFTMAX) &&
         node->inputs[0] == scores &&
         axes == (int64_t)1 << (dims[scores].rank - 1);
}

static bool attention_match(const rabbet_group_t* group,
                            const rabbet_dims_t* dims, attention_t* out) {
  size_t count = group->node_count;
  if (count < 3 || group->output_count != 1) return false;
  const rabbet_group_node_t *first = &group->nodes[0],
                            *last = &group->nodes[count - 1];
  *out = (attention_t){.mask = -1, .scale = 1};
  if (!attention_product(first, &out->k_turned) ||
      !attention_product(last, &out->v_turned))
    return false;
  out->q = first->inputs[0];
  out->k = first->inputs[1];
  out->v = last->inputs[1];
  out->y = last->outputs[0];
  int32_t scores = first->outputs[0];
  for (size_t i = 1; i + 2 < count; ++i) {
    if (!attention_take(group, dims, &group->nodes[i], scores, out))
      return false;
    scores = group->nodes[i].outputs[0];
  }
  const rabbet_group_node_t* softmax = &group->nodes[count - 2];
  return attention_is_softmax(softmax, dims, scores) &&
         last->inputs[0] == softmax->outputs[0] &&
         group->outputs[0] == out->y && attention_is_input(group, out->q) &&
         attention_is_input(group, out->k) && attention_is_input(group, out->v);
}

// ---- Shapes: [batch, heads, rows, columns] ---------------------------------

// The last two axes turned round, if wanted; a missing axis of heads is 1.
static bool attention_shape(const rabbet_dims_t* dims, bool turned,
                            rabbet_cudnn_shape_t* out) {
  rabbet_dims_t four = {.rank = 4};
  if (dims->rank != 3 && dims->rank != 4) return false;
  for (int i = 0; i < 4; ++i)
    four.d[i] = dims->rank == 4 ? dims->d[i]
                : i == 1        ? 1
                                : dims->d[i > 1 ? i - 1 : 0];
  *out = rabbet_cudnn_dense(4, four.d, false);
  if (!turned) return true;
  for (int k = 0; k < 2; ++k) {
    int64_t* pair = k == 0 ? out->dims : out->strides;
    int64_t swap = pair[2];
    pair[2] = pair[3];
    pair[3] = swap;
  }
  return true;
}

typedef struct attention_shapes_t {
  rabbet_cudnn_shape_t q, k, v, mask, scores, sums, y;
} attention_shapes_t;

static bool attention_shapes(const attention_t* a, const rabbet_dims_t* dims,
                             attention_shapes_t* out) {
  if (!attention_shape(&dims[a->q], false, &out->q) ||
      !attention_shape(&dims[a->k], a->k_turned, &out->k) ||
      !attention_shape(&dims[a->v], a->v_turned, &out->v) ||
      !attention_shape(&dims[a->y], false, &out->y) ||
      (a->mask >= 0 && !attention_shape(&dims[a->mask], false, &out->mask)))
    return false;
  // Batches that broadcast are not what the fused kernels take.
  for (int i = 0; i < 2; ++i)
    if (out->q.dims[i] != out->k.dims[i] || out->q.dims[i] != out->v.dims[i])
      return false;
  const int64_t scores[4] = {out->q.dims[0], out->q.dims[1], out->q.dims[2],
                             out->k.dims[3]};
  const int64_t sums[4] = {scores[0], scores[1], scores[2], 1};
  out->scores = rabbet_cudnn_dense(4, scores, false);
  out->sums = rabbet_cudnn_dense(4, sums, false);
  return true;
}

// ---- The graph -------------------------------------------------------------

static cudnnBackendDescriptor_t attention_virtual(
    rabbet_cudnn_graph_t* graph, const rabbet_cudnn_shape_t* shape) {
  return rabbet_cudnn_tensor(graph, shape, RABBET_DTYPE_FLOAT,
                             RABBET_CUDNN_VIRTUAL);
}

static cudnnBackendDescriptor_t attention_then(
    rabbet_cudnn_graph_t* graph, int mode, const rabbet_cudnn_shape_t* shape,
    cudnnBackendDescriptor_t x, cudnnBackendDescriptor_t b) {
  const rabbet_cudnn_pointwise_t pointwise = {.mode = mode, .attribute = -1};
  cudnnBackendDescriptor_t y = attention_virtual(graph, shape);
  rabbet_cudnn_pointwise(graph, &pointwise, x, b, y);
  return y;
}

// exp(x - max) / sum, in the order and with the types by which cuDNN knows its
// fused kernel: weights have the tensors' type, and the logarithm of the sum is
// in the graph though nobody reads it.
static cudnnBackendDescriptor_t attention_softmax(rabbet_cudnn_graph_t* graph,
                                                  const attention_shapes_t* s,
                                                  rabbet_dtype_t dtype,
                                                  cudnnBackendDescriptor_t x) {
  const rabbet_cudnn_pointwise_t divide = {.mode = CUDNN_POINTWISE_DIV,
                                           .attribute = -1};
  cudnnBackendDescriptor_t most = attention_virtual(graph, &s->sums);
  cudnnBackendDescriptor_t sum = attention_virtual(graph, &s->sums);
  rabbet_cudnn_reduce(graph, CUDNN_REDUCE_TENSOR_MAX, x, most);
  x = attention_then(graph, CUDNN_POINTWISE_SUB, &s->scores, x, most);
  x = attention_then(graph, CUDNN_POINTWISE_EXP, &s->scores, x, NULL);
  rabbet_cudnn_reduce(graph, CUDNN_REDUCE_TENSOR_ADD, x, sum);
  attention_then(
      graph, CUDNN_POINTWISE_ADD, &s->sums, most,
      attention_then(graph, CUDNN_POINTWISE_LOG, &s->sums, sum, NULL));
  cudnnBackendDescriptor_t weights =
      rabbet_cudnn_tensor(graph, &s->scores, dtype, RABBET_CUDNN_VIRTUAL_TYPED);
  rabbet_cudnn_pointwise(graph, &divide, x, sum, weights);
  return weights;
}

static bool rabbet_cuda_attention_describe(const rabbet_group_t* group,
                                           const rabbet_dims_t* dims,
                                           rabbet_cudnn_graph_t* graph) {
  attention_t a;
  attention_shapes_t s;
  if (!attention_match(group, dims, &a) || !attention_shapes(&a, dims, &s))
    return false;
  rabbet_dtype_t dtype = group->values[a.y].dtype;
  if (dtype != RABBET_DTYPE_HALF && dtype != RABBET_DTYPE_BF16) return false;
  for (size_t i = 0; i < group->input_count; ++i)
    if (group->values[group->inputs[i]].format != RABBET_FORMAT_LINEAR)
      return false;
  cudnnBackendDescriptor_t q = rabbet_cudnn_tensor(
      graph, &s.q, dtype, rabbet_group_input_of(group, a.q));
  cudnnBackendDescriptor_t k = rabbet_cudnn_tensor(
      graph, &s.k, dtype, rabbet_group_input_of(group, a.k));
  cudnnBackendDescriptor_t x = attention_virtual(graph, &s.scores);
  rabbet_cudnn_matmul(graph, q, k, x);
  x = attention_then(graph, CUDNN_POINTWISE_MUL, &s.scores, x,
                     rabbet_cudnn_scalar(graph, 4, (float)a.scale));
  if (a.mask >= 0)
    x = attention_then(
        graph, CUDNN_POINTWISE_ADD, &s.scores, x,
        rabbet_cudnn_tensor(graph, &s.mask, dtype,
                            rabbet_group_input_of(group, a.mask)));
  x = attention_softmax(graph, &s, dtype, x);
  rabbet_cudnn_matmul(
      graph, x,
      rabbet_cudnn_tensor(graph, &s.v, dtype,
                          rabbet_group_input_of(group, a.v)),
      rabbet_cudnn_tensor(graph, &s.y, dtype, RABBET_CUDNN_OUTPUT));
  return true;
}

// ---- Proposing -------------------------------------------------------------

static rabbet_status_t attention_offer(const rabbet_propose_t* propose,
                                       rabbet_candidate_sink_t sink,
                                       rabbet_cudnn_t* library,
                                       rabbet_type_format_t* tensors) {
  const rabbet_group_t* group = propose->group;
  rabbet_dtype_t types[4];
  int count = rabbet_compute_types(
      propose, group->values[group->inputs[0]].dtype, types);
  for (int i = 0; i < count; ++i) {
    if (types[i] != RABBET_DTYPE_HALF && types[i] != RABBET_DTYPE_BF16)
      continue;
    rabbet_network_tensors(group, tensors);
    for (size_t k = 0; k < group->input_count + group->output_count; ++k)
      tensors[k].dtype = types[i];
    RABBET_RETURN_IF_ERROR(rabbet_cudnn_offer(&(rabbet_cudnn_offer_t){
        .propose = propose,
        .sink = sink,
        .kernel = &rabbet_cuda_attention,
        .describe = rabbet_cuda_attention_describe,
        .library = library,
        .tensors = tensors,
        .dtype = types[i],
    }));
  }
  return rabbet_ok();
}

static rabbet_status_t rabbet_cuda_attention_propose(
    const rabbet_propose_t* propose, rabbet_candidate_sink_t sink) {
  const rabbet_group_t* group = propose->group;
  rabbet_allocator_t allocator = propose->allocator;
  rabbet_cudnn_t* library = NULL;
  rabbet_dims_t* dims = NULL;
  rabbet_type_format_t* tensors = NULL;
  attention_t a;
  if (group->node_count < 3 ||
      !rabbet_dtype_is_float(group->values[group->nodes[0].inputs[0]].dtype))
    return rabbet_ok();
  RABBET_RETURN_IF_ERROR(rabbet_group_opt_dims(group, allocator, &dims));
  bool matches = attention_match(group, dims, &a);
  rabbet_free(allocator, dims);
  if (!matches) return rabbet_ok();
  rabbet_status_t status =
      rabbet_cudnn_get(rabbet_cuda(propose->device), &library);
  // Without cuDNN there are other ways to compute it.
  if (rabbet_status_code(status) == RABBET_STATUS_UNAVAILABLE) {
    rabbet_status_ignore(status);
    return rabbet_ok();
  }
  if (rabbet_is_ok(status))
    status = rabbet_allocate(
        allocator,
        sizeof(*tensors) * (group->input_count + group->output_count),
        (void**)&tensors);
  if (rabbet_is_ok(status))
    status = attention_offer(propose, sink, library, tensors);
  rabbet_free(allocator, tensors);
  return status;
}

RABBET_CUDNN_CLASS(rabbet_cuda_attention, "cuda.attention", 1);
