// softmax(scale q k' + mask) v as one kernel, by cuDNN's fused attention:
// scores never reach memory. FP16 and BF16. Bounded by the tensor cores for
// long sequences, by latency for short ones.
#include <math.h>

#include "core/view.h"
#include "device/cuda/cudnn_kernel.h"
#include "ops/enums.h"

// A tensor of the attention: where it lies, and how the value that a product
// reads or makes is got from there. A transpose is a matter of strides.
typedef struct attention_tensor_t {
  int32_t value;                    // of the group's boundary
  int32_t seen;                     // as the product sees it
  const rabbet_group_node_t* turn;  // shuffle between the two, or NULL
  bool turned;                      // the product reads it with TRANSPOSE
} attention_tensor_t;

typedef struct attention_t {
  attention_tensor_t q, k, v, y;
  int32_t mask;  // value number; -1: none
  double scale;
  size_t nodes;  // of the group that were recognized
} attention_t;

// ---- The group -------------------------------------------------------------

static const rabbet_group_node_t* attention_maker(const rabbet_group_t* group,
                                                  int32_t value) {
  for (size_t i = 0; i < group->node_count; ++i)
    if (group->nodes[i].output_count == 1 &&
        group->nodes[i].outputs[0] == value)
      return &group->nodes[i];
  return NULL;
}

static const rabbet_group_node_t* attention_made_by(const rabbet_group_t* group,
                                                    int32_t value,
                                                    rabbet_op_id_t op,
                                                    attention_t* a) {
  const rabbet_group_node_t* node = attention_maker(group, value);
  if (!node || !rabbet_op_is(node->op, op)) return NULL;
  ++a->nodes;
  return node;
}

static bool attention_is_input(const rabbet_group_t* group, int32_t value) {
  return value >= 0 && rabbet_group_input_of(group, value) >= 0;
}

static bool attention_is_plain(const rabbet_group_node_t* product) {
  return product && rabbet_node_int(product, "op0") == RABBET_MATRIX_NONE &&
         rabbet_node_int(product, "op1") != RABBET_MATRIX_VECTOR;
}

static bool attention_operand(const rabbet_group_t* group,
                              const rabbet_group_node_t* product, size_t input,
                              attention_t* a, attention_tensor_t* out) {
  out->seen = out->value = product->inputs[input];
  out->turned =
      input == 1 && rabbet_node_int(product, "op1") == RABBET_MATRIX_TRANSPOSE;
  out->turn = attention_made_by(group, out->seen, RABBET_OP_SHUFFLE, a);
  if (out->turn) out->value = out->turn->inputs[0];
  return attention_is_input(group, out->value);
}

// A scale by a constant, before the mask; one mask. They come from the end to
// the beginning; *scores becomes what the node works on.
static bool attention_take(const rabbet_group_t* group,
                           const rabbet_dims_t* dims,
                           const rabbet_group_node_t* node, attention_t* a,
                           int32_t* scores) {
  double number = 0;
  bool reversed = attention_maker(group, node->inputs[1]) != NULL;
  int32_t operand = node->inputs[reversed ? 0 : 1];
  *scores = node->inputs[reversed ? 1 : 0];
  if (!attention_is_input(group, operand)) return false;
  int64_t op = rabbet_node_int(node, "op");
  if (op == RABBET_ELEMENTWISE_SUM) {
    bool fits = a->mask < 0 && a->scale == 1;
    a->mask = operand;
    return fits;
  }
  if (!rabbet_cuda_is_number(group, dims, operand, &number)) return false;
  if (op == RABBET_ELEMENTWISE_PROD)
    a->scale *= number;
  else if (op == RABBET_ELEMENTWISE_DIV && !reversed && number != 0)
    a->scale /= number;
  else
    return false;
  return isfinite(a->scale) && a->scale != 1;
}

static bool attention_is_softmax(const rabbet_group_node_t* node,
                                 const rabbet_dims_t* dims) {
  return node && rabbet_node_int(node, "axes") ==
                     (int64_t)1 << (dims[node->inputs[0]].rank - 1);
}

static bool attention_match(const rabbet_group_t* group,
                            const rabbet_dims_t* dims, attention_t* a) {
  if (group->node_count < 3 || group->output_count != 1) return false;
  *a = (attention_t){.mask = -1, .scale = 1};
  a->y.value = a->y.seen = group->outputs[0];
  a->y.turn = attention_made_by(group, a->y.value, RABBET_OP_SHUFFLE, a);
  if (a->y.turn) a->y.seen = a->y.turn->inputs[0];
  const rabbet_group_node_t* last =
      attention_made_by(group, a->y.seen, RABBET_OP_MATRIX_MULTIPLY, a);
  if (!attention_is_plain(last) || !attention_operand(group, last, 1, a, &a->v))
    return false;
  const rabbet_group_node_t* softmax =
      attention_made_by(group, last->inputs[0], RABBET_OP_SOFTMAX, a);
  if (!attention_is_softmax(softmax, dims)) return false;
  int32_t scores = softmax->inputs[0];
  const rabbet_group_node_t* node = NULL;
  while ((node = attention_made_by(group, scores, RABBET_OP_ELEMENTWISE, a)))
    if (!attention_take(group, dims, node, a, &scores)) return false;
  const rabbet_group_node_t* first =
      attention_made_by(group, scores, RABBET_OP_MATRIX_MULTIPLY, a);
  return attention_is_plain(first) &&
         attention_operand(group, first, 0, a, &a->q) &&
         attention_operand(group, first, 1, a, &a->k) &&
         a->nodes == group->node_count;
}

// ---- Shapes: [batch, heads, rows, columns] ---------------------------------

static const int64_t* attention_axes(const rabbet_group_node_t* node,
                                     const char* name, size_t* out_count) {
  return rabbet_attr_ints(node->attrs, node->op->attr_count, name, out_count);
}

// Strides of `dims`, whose axis i is axis order[i] of dense memory (count 0: in
// order).
static bool attention_permuted(const rabbet_dims_t* dims, const int64_t* order,
                               size_t count, int64_t* strides) {
  int64_t stored[RABBET_MAX_RANK] = {0}, stride = 1;
  int axis_of[RABBET_MAX_RANK];
  bool taken[RABBET_MAX_RANK] = {false};
  if (count != 0 && count != (size_t)dims->rank) return false;
  for (int i = 0; i < dims->rank; ++i) {
    int64_t at = count ? order[i] : i;
    if (at < 0 || at >= dims->rank || taken[at]) return false;
    taken[at] = true;
    stored[at] = dims->d[i];
    axis_of[at] = i;
  }
  for (int at = dims->rank - 1; at >= 0; --at) {
    strides[axis_of[at]] = stride;
    stride *= stored[at];
  }
  return true;
}

// An input's shuffle ends with a transpose: reshape, then transpose; or
// transpose alone.
static bool attention_strides_before(const attention_tensor_t* tensor,
                                     const rabbet_dims_t* seen,
                                     int64_t* strides) {
  size_t first = 0, second = 0, reshape = 0;
  const int64_t* one = attention_axes(tensor->turn, "first_transpose", &first);
  const int64_t* two =
      attention_axes(tensor->turn, "second_transpose", &second);
  attention_axes(tensor->turn, "reshape_dims", &reshape);
  if (second > 0)
    return first == 0 && attention_permuted(seen, two, second, strides);
  return reshape == 0 && attention_permuted(seen, one, first, strides);
}

// The output's begins with one: what is seen is where it lies after it.
static bool attention_strides_after(const attention_tensor_t* tensor,
                                    const rabbet_dims_t* seen,
                                    int64_t* strides) {
  size_t first = 0, second = 0, reshape = 0;
  int64_t inverse[RABBET_MAX_RANK] = {0};
  const int64_t* one = attention_axes(tensor->turn, "first_transpose", &first);
  const int64_t* two =
      attention_axes(tensor->turn, "second_transpose", &second);
  attention_axes(tensor->turn, "reshape_dims", &reshape);
  if (first > 0 && second > 0) return false;
  if (second > 0 && reshape > 0) return false;
  const int64_t* order = first > 0 ? one : two;
  size_t count = first > 0 ? first : second;
  if (count != (size_t)seen->rank) return false;
  for (int i = 0; i < seen->rank; ++i) {
    if (order[i] < 0 || order[i] >= seen->rank) return false;
    inverse[order[i]] = i;
  }
  return attention_permuted(seen, inverse, count, strides);
}

// A missing axis of heads is 1; the last two axes are turned round if wanted.
static bool attention_shape(const attention_tensor_t* tensor,
                            const rabbet_dims_t* dims, bool is_output,
                            rabbet_cudnn_shape_t* out) {
  const rabbet_dims_t* seen = &dims[tensor->seen];
  int64_t strides[RABBET_MAX_RANK];
  if (seen->rank != 3 && seen->rank != 4) return false;
  bool fits = !tensor->turn ? attention_permuted(seen, NULL, 0, strides)
              : is_output   ? attention_strides_after(tensor, seen, strides)
                            : attention_strides_before(tensor, seen, strides);
  if (!fits) return false;
  *out = (rabbet_cudnn_shape_t){.rank = 4};
  for (int i = 0, from = 0; i < 4; ++i) {
    bool missing = seen->rank == 3 && i == 1;
    out->dims[i] = missing ? 1 : seen->d[from];
    out->strides[i] = missing ? strides[0] : strides[from];
    from += !missing;
  }
  for (int k = 0; tensor->turned && k < 2; ++k) {
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
  const attention_tensor_t mask = {.value = a->mask, .seen = a->mask};
  if (!attention_shape(&a->q, dims, false, &out->q) ||
      !attention_shape(&a->k, dims, false, &out->k) ||
      !attention_shape(&a->v, dims, false, &out->v) ||
      !attention_shape(&a->y, dims, true, &out->y) ||
      (a->mask >= 0 && !attention_shape(&mask, dims, false, &out->mask)))
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
  rabbet_dtype_t dtype = group->values[a.y.value].dtype;
  if (dtype != RABBET_DTYPE_HALF && dtype != RABBET_DTYPE_BF16) return false;
  for (size_t i = 0; i < group->input_count; ++i)
    if (group->values[group->inputs[i]].format != RABBET_FORMAT_LINEAR)
      return false;
  cudnnBackendDescriptor_t q = rabbet_cudnn_tensor(
      graph, &s.q, dtype, rabbet_group_input_of(group, a.q.value));
  cudnnBackendDescriptor_t k = rabbet_cudnn_tensor(
      graph, &s.k, dtype, rabbet_group_input_of(group, a.k.value));
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
                          rabbet_group_input_of(group, a.v.value)),
      rabbet_cudnn_tensor(graph, &s.y, dtype, RABBET_CUDNN_OUTPUT));
  return true;
}

// ---- Proposing -------------------------------------------------------------

static bool attention_can(rabbet_dtype_t dtype) {
  return dtype == RABBET_DTYPE_HALF || dtype == RABBET_DTYPE_BF16;
}

static rabbet_status_t rabbet_cuda_attention_propose(
    const rabbet_propose_t* propose, rabbet_candidate_sink_t sink) {
  const rabbet_group_t* group = propose->group;
  rabbet_allocator_t allocator = propose->allocator;
  rabbet_dims_t* dims = NULL;
  attention_t a;
  if (group->node_count < 3 || group->input_count == 0 ||
      !rabbet_dtype_is_float(group->values[group->inputs[0]].dtype))
    return rabbet_ok();
  RABBET_RETURN_IF_ERROR(rabbet_group_opt_dims(group, allocator, &dims));
  bool matches = attention_match(group, dims, &a);
  rabbet_free(allocator, dims);
  if (!matches) return rabbet_ok();
  return rabbet_cudnn_offer_linear(
      propose, sink, &rabbet_cuda_attention, rabbet_cuda_attention_describe,
      group->values[group->inputs[0]].dtype, attention_can);
}

RABBET_CUDNN_CLASS(rabbet_cuda_attention, "cuda.attention", 1);
