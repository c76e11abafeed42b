// softmax(scale q k' + mask) v as one kernel, by cuDNN's fused attention:
// scores never reach memory. FP16 and BF16. Long sequences are bound by the
// tensor cores, short ones by latency.
#include "device/cuda/attention/attention.h"

#include <float.h>
#include <math.h>
#include <string.h>

#include "core/view.h"

typedef struct attention_shapes_t {
  rabbet_cudnn_shape_t q, k, v, mask, scores, sums, y;
  int64_t q_offset, k_offset, v_offset;  // elements
} attention_shapes_t;

// Heads that share elements count once: cuDNN takes keys and values of fewer
// heads than queries have, each for as many neighbouring ones.
static void attention_join_heads(rabbet_attention_view_t* view) {
  bool all = view->dims[1] > 1 && view->strides[1] == 0;
  view->dims[1] /= all ? view->dims[1] : view->share;
  view->share = 1;
  int64_t dense = view->dims[2] * view->dims[3];
  for (int i = 1; i >= 0; --i) {
    if (view->dims[i] == 1 && view->strides[i] == 0) view->strides[i] = dense;
    dense *= view->dims[i];
  }
}

static rabbet_cudnn_shape_t attention_shape(
    const rabbet_attention_view_t* view) {
  rabbet_cudnn_shape_t shape = {.rank = 4};
  memcpy(shape.dims, view->dims, sizeof(view->dims));
  memcpy(shape.strides, view->strides, sizeof(view->strides));
  return shape;
}

// The support surface that cuDNN documents, and that its frontend checks before
// it asks: the columns of a head are contiguous and a multiple of 8, and so are
// the strides of rows, heads and batches. With keys stored by columns, as
// `Transpose` and `Mul` leave them, 9.19 crashes or reads misaligned addresses.
enum { ATTENTION_MULTIPLE = 8 };

static bool attention_lies_by_rows(const rabbet_attention_view_t* view,
                                   int columns) {
  bool fits = view->share == 1 && view->strides[columns] == 1 &&
              view->dims[columns] % ATTENTION_MULTIPLE == 0 &&
              view->offset % ATTENTION_MULTIPLE == 0;
  for (int i = 0; fits && i < 4; ++i)
    fits = i == columns || view->dims[i] == 1 ||
           (view->strides[i] > 0 && view->strides[i] % ATTENTION_MULTIPLE == 0);
  return fits;
}

static bool attention_is_supported(const rabbet_attention_views_t* views) {
  return attention_lies_by_rows(&views->q, 3) &&
         attention_lies_by_rows(&views->k, 2) &&
         attention_lies_by_rows(&views->v, 3) &&
         attention_lies_by_rows(&views->y, 3);
}

// cuDNN broadcasts a mask over batches and heads, and wants a row for each
// query: one for all of them has stride 0.
static rabbet_cudnn_shape_t attention_mask_shape(
    const rabbet_attention_views_t* views) {
  rabbet_cudnn_shape_t shape = rabbet_cudnn_dense(4, views->mask.dims, false);
  if (shape.dims[2] == views->q.dims[2]) return shape;
  shape.dims[2] = views->q.dims[2];
  shape.strides[2] = 0;
  return shape;
}

static bool attention_shapes(const rabbet_group_t* group,
                             const rabbet_attention_t* a,
                             const rabbet_dims_t* dims,
                             attention_shapes_t* out) {
  rabbet_attention_views_t views;
  if (!rabbet_attention_views(group, a, dims, NULL, &views) ||
      views.outside > 1)
    return false;
  attention_join_heads(&views.k);
  attention_join_heads(&views.v);
  if (!attention_is_supported(&views)) return false;
  out->q = attention_shape(&views.q);
  out->k = attention_shape(&views.k);
  out->v = attention_shape(&views.v);
  out->y = attention_shape(&views.y);
  out->q_offset = views.q.offset;
  out->k_offset = views.k.offset;
  out->v_offset = views.v.offset;
  if (a->mask >= 0) {
    // Rows may share a mask, and keys do not.
    if (views.mask.dims[3] != views.k.dims[3]) return false;
    out->mask = attention_mask_shape(&views);
  }
  // The fused kernels do not broadcast over the batch.
  if (out->q.dims[0] != out->k.dims[0] || out->q.dims[0] != out->v.dims[0] ||
      out->q.dims[1] != out->y.dims[1] ||
      out->q.dims[1] % out->k.dims[1] != 0 ||
      out->q.dims[1] % out->v.dims[1] != 0)
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

// exp(x - max) / sum. cuDNN recognizes its fused kernel only by these
// operations and types: weights have the tensors' type, and the graph computes
// the logarithm of the sum, which is unused.
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

// NVIDIA's frontend refuses these releases because of known bugs.
static bool attention_is_broken(const rabbet_cudnn_t* library) {
  return library->version == 91000 || library->version == 91001;
}

// Whether rows that are masked entirely, whose weights are NaN by the formula,
// become zeros. Tried with 9.19, in FP16 and BF16, with masks of all forms.
static bool attention_zeros_rows(const rabbet_cudnn_t* library) {
  return library->version >= 91900;
}

// One mask for all heads, and rows that hide keys. A graph with the places of a
// single query has given wrong results in some releases.
static bool attention_has_places(const rabbet_attention_t* a,
                                 const attention_shapes_t* s) {
  if (a->band.exists) return s->scores.dims[2] > 1 && s->scores.dims[3] > 1;
  return a->mask >= 0 && s->mask.dims[0] == 1 && s->mask.dims[1] == 1 &&
         s->mask.dims[2] == s->scores.dims[2] && s->mask.dims[2] > 1 &&
         s->mask.dims[3] == s->scores.dims[3] && s->mask.dims[3] > 1;
}

// NVIDIA's frontend takes the lowest number for releases before 9.10.
static cudnnBackendDescriptor_t attention_hide(rabbet_cudnn_graph_t* graph,
                                               const attention_shapes_t* s,
                                               cudnnBackendDescriptor_t x) {
  float low = graph->library->version < 91000 ? -FLT_MAX : -INFINITY;
  graph->is_tentative = true;
  return rabbet_cudnn_triangle(graph, &s->scores, 2, 3, x,
                               rabbet_cudnn_scalar(graph, 4, low));
}

static cudnnBackendDescriptor_t attention_capped(rabbet_cudnn_graph_t* graph,
                                                 const attention_shapes_t* s,
                                                 cudnnBackendDescriptor_t x,
                                                 double cap) {
  graph->is_tentative = true;
  x = attention_then(graph, CUDNN_POINTWISE_MUL, &s->scores, x,
                     rabbet_cudnn_scalar(graph, 4, (float)(1 / cap)));
  x = attention_then(graph, CUDNN_POINTWISE_TANH_FWD, &s->scores, x, NULL);
  return attention_then(graph, CUDNN_POINTWISE_MUL, &s->scores, x,
                        rabbet_cudnn_scalar(graph, 4, (float)cap));
}

bool rabbet_attention_describe(const rabbet_group_t* group,
                               const rabbet_dims_t* dims,
                               rabbet_attention_graph_t kind,
                               rabbet_cudnn_graph_t* graph) {
  rabbet_attention_t a;
  attention_shapes_t s;
  bool by_bias = kind == RABBET_ATTENTION_BY_BIAS;
  if (!rabbet_attention_match(group, dims, &a) ||
      !attention_shapes(group, &a, dims, &s) ||
      (by_bias ? a.band.exists || a.masking != RABBET_ATTENTION_ADDS
               : !attention_has_places(&a, &s)))
    return false;
  // Rows that share a mask have stride 0.
  graph->is_tentative = by_bias && a.mask >= 0;
  rabbet_dtype_t dtype = group->values[a.y.value].dtype;
  if ((dtype != RABBET_DTYPE_HALF && dtype != RABBET_DTYPE_BF16) ||
      attention_is_broken(graph->library) ||
      (by_bias && a.zero_nan && !attention_zeros_rows(graph->library)))
    return false;
  for (size_t i = 0; i < group->input_count; ++i)
    if (group->values[group->inputs[i]].format != RABBET_FORMAT_LINEAR)
      return false;
  int64_t size = rabbet_dtype_bits(dtype) / 8;
  cudnnBackendDescriptor_t q = rabbet_cudnn_part(
      graph, &s.q, dtype, rabbet_group_input_of(group, a.q.value),
      s.q_offset * size);
  cudnnBackendDescriptor_t k = rabbet_cudnn_part(
      graph, &s.k, dtype, rabbet_group_input_of(group, a.k.value),
      s.k_offset * size);
  cudnnBackendDescriptor_t x = attention_virtual(graph, &s.scores);
  rabbet_cudnn_matmul(graph, q, k, x);
  if (a.scale != 1)
    x = attention_then(graph, CUDNN_POINTWISE_MUL, &s.scores, x,
                       rabbet_cudnn_scalar(graph, 4, (float)a.scale));
  if (a.cap != 0) x = attention_capped(graph, &s, x, a.cap);
  if (!by_bias)
    x = attention_hide(graph, &s, x);
  else if (a.mask >= 0)
    x = attention_then(
        graph, CUDNN_POINTWISE_ADD, &s.scores, x,
        rabbet_cudnn_part(graph, &s.mask, dtype,
                          rabbet_group_input_of(group, a.mask), 0));
  x = attention_softmax(graph, &s, dtype, x);
  rabbet_cudnn_matmul(
      graph, x,
      rabbet_cudnn_part(graph, &s.v, dtype,
                        rabbet_group_input_of(group, a.v.value),
                        s.v_offset * size),
      rabbet_cudnn_tensor(graph, &s.y, dtype, RABBET_CUDNN_OUTPUT));
  return true;
}

static bool cuda_attention_describe(const rabbet_group_t* group,
                                    const rabbet_dims_t* dims,
                                    rabbet_cudnn_graph_t* graph) {
  return rabbet_attention_describe(group, dims, RABBET_ATTENTION_BY_BIAS,
                                   graph);
}

// ---- Proposing -------------------------------------------------------------

static bool attention_can(rabbet_dtype_t dtype) {
  return dtype == RABBET_DTYPE_HALF || dtype == RABBET_DTYPE_BF16;
}

// A mask of FLOAT, for which the scores are cast, may be narrowed only if the
// network allows the narrow type.
static bool attention_may_narrow(const rabbet_propose_t* propose,
                                 const rabbet_attention_t* a) {
  const rabbet_group_value_t* values = propose->group->values;
  rabbet_dtype_t types[4];
  rabbet_dtype_t dtype = values[a->q.value].dtype;
  if (a->mask < 0 || values[a->mask].dtype == dtype) return true;
  int count = rabbet_compute_types(propose, values[a->mask].dtype, types);
  for (int i = 0; i < count; ++i)
    if (types[i] == dtype) return true;
  return false;
}

static bool attention_may_offer(const rabbet_propose_t* propose,
                                const rabbet_attention_t* a,
                                const rabbet_dims_t* dims,
                                rabbet_attention_graph_t kind) {
  const rabbet_group_value_t* values = propose->group->values;
  if (!rabbet_dtype_is_float(values[a->q.value].dtype)) return false;
  if (kind == RABBET_ATTENTION_BY_PLACES &&
      !rabbet_attention_is_causal(propose->group, a, dims))
    return false;
  if (a->band.exists || a->masking != RABBET_ATTENTION_ADDS)
    return kind == RABBET_ATTENTION_BY_PLACES;
  return (a->mask < 0 || rabbet_dtype_is_float(values[a->mask].dtype)) &&
         attention_may_narrow(propose, a);
}

rabbet_status_t rabbet_attention_offer(const rabbet_propose_t* propose,
                                       rabbet_attention_graph_t kind,
                                       const rabbet_kernel_class_t* kernel,
                                       rabbet_candidate_sink_t sink) {
  const rabbet_group_t* group = propose->group;
  rabbet_allocator_t allocator = propose->allocator;
  rabbet_dims_t* dims = NULL;
  rabbet_attention_t a;
  if (group->node_count < 3 || rabbet_cuda(propose->device)->major < 8)
    return rabbet_ok();
  RABBET_RETURN_IF_ERROR(rabbet_group_opt_dims(group, allocator, &dims));
  bool matches = rabbet_attention_match(group, dims, &a) &&
                 attention_may_offer(propose, &a, dims, kind);
  rabbet_free(allocator, dims);
  if (!matches) return rabbet_ok();
  bool holds = true, outside = false;
  RABBET_RETURN_IF_ERROR(rabbet_attention_holds(propose, &a, &holds, &outside));
  if (!holds || outside) return rabbet_ok();
  return rabbet_cudnn_offer_linear(
      propose, sink, kernel, group->values[a.q.value].dtype, attention_can, -1);
}

static rabbet_status_t cuda_attention_propose(const rabbet_propose_t* propose,
                                              rabbet_candidate_sink_t sink) {
  return rabbet_attention_offer(propose, RABBET_ATTENTION_BY_BIAS,
                                &rabbet_cuda_attention, sink);
}

static bool cuda_attention_takes(const rabbet_kernel_spec_t* spec) {
  return spec->group->node_count >= 3 && spec->group->output_count == 1;
}

RABBET_CUDNN_CLASS(cuda_attention, "cuda.attention", 3);
