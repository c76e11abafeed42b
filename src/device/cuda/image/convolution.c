// Convolutions and deconvolutions with bias, residual and a point-wise
// epilogue, by cuDNN.
//
// In LINEAR and with channels last, the layout of tensor cores; the build
// converts the filter. Bound by the tensor cores, with few channels by memory.
#include <string.h>

#include "core/view.h"
#include "device/common/quantized.h"
#include "device/cuda/cudnn/kernel.h"
#include "ops/enums.h"
#include "ops/image/window.h"

static bool convolution_is_transposed(const rabbet_group_node_t* node) {
  return rabbet_op_is(node->op, RABBET_OP_DECONVOLUTION);
}

static int32_t convolution_bias(const rabbet_group_node_t* node) {
  return rabbet_node_input(node, 2);
}

static bool convolution_matches(const rabbet_group_t* group) {
  if (group->node_count == 0 ||
      (!rabbet_op_is(group->nodes[0].op, RABBET_OP_CONVOLUTION) &&
       !convolution_is_transposed(&group->nodes[0])))
    return false;
  return rabbet_group_feeds(group, &group->nodes[0]);
}

static bool convolution_has_format(const rabbet_group_value_t* value) {
  return value->format == RABBET_FORMAT_LINEAR ||
         value->format == RABBET_FORMAT_HWC;
}

static bool convolution_has_formats(const rabbet_group_t* group) {
  bool fits = convolution_has_format(&group->values[group->outputs[0]]);
  for (size_t i = 0; fits && i < group->input_count; ++i)
    fits = convolution_has_format(&group->values[group->inputs[i]]);
  return fits;
}

// ---- Shapes ----------------------------------------------------------------

// cuDNN has two or three spatial axes: a single one gets an axis of extent 1
// before it.
static void convolution_widen(const rabbet_dims_t* dims, rabbet_dims_t* out) {
  *out = *dims;
  if (dims->rank != 3) return;
  out->rank = 4;
  out->d[3] = dims->d[2];
  out->d[2] = 1;
}

static rabbet_cudnn_shape_t convolution_shape(const rabbet_dims_t* dims,
                                              bool channels_last) {
  rabbet_dims_t wide;
  convolution_widen(dims, &wide);
  return rabbet_cudnn_dense(wide.rank, wide.d, channels_last);
}

// Also of the least extents of a range, which may be 0 and then include 1.
static bool convolution_is_pixel(const rabbet_dims_t* dims) {
  for (int i = 2; i < dims->rank; ++i)
    if (dims->d[i] > 1) return false;
  return true;
}

// Whether LINEAR and channels last differ in memory for these dims.
static bool convolution_has_order(const rabbet_dims_t* dims) {
  return dims->d[1] > 1 && !convolution_is_pixel(dims);
}

// The order (LINEAR or channels last) in which a graph describes all its
// tensors; false if they differ. Images of one pixel and tensors of one channel
// are in both orders, so the others decide. If there are no others, channels
// last is used: the strides of one-pixel images in LINEAR, (C, 1, 1, 1), are
// ambiguous, and engine 53 of cuDNN 9.19 reads a batch of them at wrong
// offsets.
static bool convolution_order(const rabbet_group_t* group,
                              const rabbet_dims_t* dims, int32_t result,
                              bool* out_last) {
  const rabbet_group_node_t* node = &group->nodes[0];
  const int32_t values[] = {node->inputs[0], node->inputs[1], result};
  bool linear = false, last = false, pixels = false;
  for (size_t i = 0; i < sizeof(values) / sizeof(values[0]); ++i) {
    const rabbet_dims_t* d = &dims[values[i]];
    bool is_last = group->values[values[i]].format == RABBET_FORMAT_HWC;
    linear = linear || (convolution_has_order(d) && !is_last);
    last = last || (convolution_has_order(d) && is_last);
    pixels = pixels || (convolution_is_pixel(d) && d->d[1] > 1);
  }
  *out_last = !linear && (last || pixels ||
                          group->values[result].format == RABBET_FORMAT_HWC);
  return !linear || !last;
}

// Whether an image's strides in LINEAR, (C, 1, 1, 1), are also those of
// channels last.
static bool convolution_is_ambiguous(const rabbet_dims_t* dims) {
  return dims->d[1] > 1 && convolution_is_pixel(dims);
}

// Whether the group has a one-pixel image in LINEAR, a filter of several pixels
// and an epilogue. Engine 4 of cuDNN 9.19, which compiles epilogues, reads such
// an image as channels last, whatever the filter's layout. Convolutions without
// epilogue use other engines. Channels last is offered instead, and
// deconvolution.c has a kernel.
static bool convolution_is_misread(const rabbet_group_t* group,
                                   const rabbet_dims_t* x,
                                   const rabbet_dims_t* y) {
  const rabbet_group_node_t* node = &group->nodes[0];
  bool alone = group->node_count == 1 && convolution_bias(node) < 0 &&
               !convolution_is_transposed(node);
  return !alone && (convolution_is_ambiguous(x) || convolution_is_ambiguous(y));
}

// Whether the window with this padding at the end yields the output's extent.
static bool convolution_reaches(const rabbet_window_t* window, int axis,
                                int64_t pre, int64_t post, int64_t in,
                                int64_t out) {
  int64_t extent = (window->size[axis] - 1) * window->dilation[axis] + 1;
  int64_t room = in + pre + post - extent;
  return post >= 0 && room >= 0 && room / window->stride[axis] + 1 == out;
}

// Padding at the end for cuDNN, which computes the output's extent from it and
// has more engines for equal padding at both ends. Padding that no window
// reaches does not change the result.
static bool convolution_post(const rabbet_window_t* window, int axis,
                             int64_t pre, int64_t post, int64_t in, int64_t out,
                             int64_t* out_post) {
  const int64_t wishes[] = {pre, post, 0};
  for (size_t i = 0; i < 3; ++i) {
    *out_post = wishes[i];
    if (convolution_reaches(window, axis, pre, *out_post, in, out)) return true;
  }
  return false;
}

// A deconvolution's window slides over y.
static bool convolution_window(const rabbet_group_node_t* node,
                               const rabbet_dims_t* x, const rabbet_dims_t* w,
                               const rabbet_dims_t* y,
                               rabbet_cudnn_window_t* out) {
  rabbet_window_t window;
  bool transposed = convolution_is_transposed(node);
  int64_t pre[RABBET_MAX_RANK], post[RABBET_MAX_RANK];
  rabbet_status_t status = rabbet_window_read(node->attrs, node->op->attr_count,
                                              x->rank - 2, w->d + 2, &window);
  bool fits = rabbet_is_ok(status) && window.spatial <= 3;
  rabbet_status_ignore(status);
  if (!fits) return false;
  (transposed ? rabbet_window_pads_transposed : rabbet_window_pads)(
      &window, x->d + 2, y->d + 2, pre, post);
  const rabbet_dims_t *in = transposed ? y : x, *made = transposed ? x : y;
  int shift = window.spatial == 1;
  *out = (rabbet_cudnn_window_t){
      .spatial = window.spatial + shift, .stride = {1}, .dilation = {1}};
  for (int i = 0; i < window.spatial; ++i) {
    int at = i + shift;
    out->pre[at] = pre[i];
    out->stride[at] = window.stride[i];
    out->dilation[at] = window.dilation[i];
    if (!convolution_post(&window, i, pre[i], post[i], in->d[i + 2],
                          made->d[i + 2], &out->post[at]))
      return false;
  }
  return true;
}

// ---- The graph -------------------------------------------------------------

// cuDNN documents three shapes for operands of an epilogue: a scalar, one
// number per channel, or the result's shape. Its engines accept some other
// shapes and compute wrong results: 9.19 did so for one along the last axis.
static bool convolution_is_by_channel(const rabbet_dims_t* dims,
                                      const rabbet_dims_t* result) {
  if (dims->rank != result->rank) return false;
  for (int i = 0; i < dims->rank; ++i)
    if (dims->d[i] != 1 && (i != 1 || dims->d[i] != result->d[i])) return false;
  return true;
}

static bool convolution_takes(const rabbet_dims_t* dims,
                              const rabbet_dims_t* result) {
  return rabbet_dims_equal(dims, result) ||
         convolution_is_by_channel(dims, result);
}

// An operand of the result's shape has the result's format.
static bool convolution_operand(const rabbet_cudnn_chain_t* chain,
                                int32_t value,
                                rabbet_cudnn_shape_t* out_shape) {
  const rabbet_dims_t* result = &chain->dims[chain->epilogue->result];
  rabbet_dims_t dims = chain->dims[value];
  if (value == convolution_bias(&chain->group->nodes[0])) {
    dims = (rabbet_dims_t){.rank = result->rank};
    for (int i = 0; i < dims.rank; ++i)
      dims.d[i] = i == 1 ? result->d[1] : 1;
  }
  if (!convolution_takes(&dims, result)) return false;
  const rabbet_quantized_t* q = chain->context;
  int32_t lies = q && value == q->operand.real ? q->operand.value : value;
  bool last = chain->group->values[lies].format == RABBET_FORMAT_HWC;
  if (convolution_has_order(&dims) && last != chain->channels_last)
    return false;
  *out_shape = convolution_shape(&dims, chain->channels_last);
  return true;
}

static bool convolution_is_residual(const rabbet_dims_t* dims,
                                    const rabbet_cuda_epilogue_t* e, int i) {
  const rabbet_cuda_item_t* item = &e->items[i];
  return item->kind == RABBET_CUDA_ITEM_ELEMENTWISE &&
         item->op == RABBET_ELEMENTWISE_SUM &&
         rabbet_dims_equal(&dims[item->operand], &dims[e->result]);
}

// Most engines know the order y + residual + bias, so the bias is moved there.
static bool convolution_insert_bias(const rabbet_dims_t* dims, int32_t bias,
                                    rabbet_cuda_epilogue_t* e) {
  if (bias < 0) return true;
  if (e->count == RABBET_CUDA_EPILOGUE_MAX) return false;
  int at = e->count > 0 && convolution_is_residual(dims, e, 0) ? 1 : 0;
  memmove(&e->items[at + 1], &e->items[at],
          sizeof(e->items[0]) * (size_t)(e->count - at));
  e->items[at] = (rabbet_cuda_item_t){.kind = RABBET_CUDA_ITEM_ELEMENTWISE,
                                      .op = RABBET_ELEMENTWISE_SUM,
                                      .operand = bias};
  ++e->count;
  return true;
}

static bool convolution_add(const rabbet_cudnn_chain_t* chain,
                            rabbet_cudnn_graph_t* graph) {
  const rabbet_group_t* group = chain->group;
  const rabbet_group_node_t* node = &group->nodes[0];
  const rabbet_dims_t* dims = chain->dims;
  int32_t x = node->inputs[0], w = node->inputs[1], y = node->outputs[0];
  rabbet_cudnn_window_t window;
  if (!convolution_window(node, &dims[x], &dims[w], &dims[y], &window) ||
      !rabbet_cudnn_chain_fits(chain))
    return false;
  rabbet_cudnn_shape_t x_shape =
      convolution_shape(&dims[x], chain->channels_last);
  rabbet_cudnn_shape_t w_shape =
      convolution_shape(&dims[w], chain->channels_last);
  cudnnBackendDescriptor_t x_tensor = rabbet_cudnn_tensor(
      graph, &x_shape, chain->dtype, rabbet_group_input_of(group, x));
  cudnnBackendDescriptor_t w_tensor = rabbet_cudnn_tensor(
      graph, &w_shape, chain->dtype, rabbet_group_input_of(group, w));
  cudnnBackendDescriptor_t y_tensor = rabbet_cudnn_chain_start(chain, graph);
  (convolution_is_transposed(node) ? rabbet_cudnn_deconvolution
                                   : rabbet_cudnn_convolution)(
      graph, &window, x_tensor, w_tensor, y_tensor);
  rabbet_cudnn_chain_add(chain, y_tensor, graph);
  return true;
}

static bool cuda_convolution_describe(const rabbet_group_t* group,
                                      const rabbet_dims_t* dims,
                                      rabbet_cudnn_graph_t* graph) {
  rabbet_cuda_epilogue_t epilogue;
  if (!convolution_matches(group) || !convolution_has_formats(group))
    return false;
  const rabbet_group_node_t* node = &group->nodes[0];
  bool last = false;
  if (!rabbet_cuda_epilogue_parse(group, dims, 1, node->outputs[0],
                                  &epilogue) ||
      !convolution_insert_bias(dims, convolution_bias(node), &epilogue) ||
      !convolution_order(group, dims, epilogue.result, &last) ||
      (!last && convolution_is_misread(group, &dims[node->inputs[0]],
                                       &dims[epilogue.result])))
    return false;
  const rabbet_cudnn_chain_t chain = {
      .group = group,
      .dims = dims,
      .epilogue = &epilogue,
      .result = convolution_shape(&dims[epilogue.result], last),
      .dtype = group->values[epilogue.result].dtype,
      .channels_last = last,
      .operand = convolution_operand};
  return convolution_add(&chain, graph);
}

// ---- Proposing -------------------------------------------------------------

typedef struct convolution_offer_t {
  const rabbet_propose_t* propose;
  rabbet_candidate_sink_t sink;
  rabbet_type_format_t* tensors;
} convolution_offer_t;

// A tensor of the shape of the input or the output has its format; a bias or
// another broadcast operand stays LINEAR.
static void convolution_tensors(const convolution_offer_t* offer,
                                rabbet_dtype_t dtype, rabbet_format_t format) {
  const rabbet_group_t* group = offer->propose->group;
  const rabbet_group_node_t* node = &group->nodes[0];
  const rabbet_dims_t* result = &group->values[group->outputs[0]].dims;
  rabbet_network_tensors(group, offer->tensors);
  for (size_t i = 0; i < group->input_count + group->output_count; ++i) {
    int32_t value = rabbet_group_boundary(group, i);
    if (rabbet_dtype_is_float(offer->tensors[i].dtype))
      offer->tensors[i].dtype = dtype;
    if (value == node->inputs[0] || value == node->inputs[1] ||
        rabbet_dims_equal(&group->values[value].dims, result))
      offer->tensors[i].format = format;
  }
}

// Whether an operand has the result's shape for all shapes of the profile, or
// is per channel for all of them: its format is chosen at the optimum.
static bool convolution_always_takes_value(const rabbet_group_value_t* value,
                                           const rabbet_group_value_t* y) {
  bool full = rabbet_dims_equal(&value->dims, &y->dims) &&
              rabbet_dims_equal(&value->min, &y->min) &&
              rabbet_dims_equal(&value->max, &y->max);
  bool by_channel = convolution_is_by_channel(&value->dims, &y->dims) &&
                    convolution_is_by_channel(&value->min, &y->min) &&
                    convolution_is_by_channel(&value->max, &y->max);
  return full || by_channel;
}

// Checks the operands of the epilogue, which exclude the filter and the scales
// of an 8-bit group. The first node of `plain` is the convolution.
static bool convolution_always_takes(const rabbet_group_t* plain) {
  const rabbet_group_value_t* y = &plain->values[plain->outputs[0]];
  for (size_t i = 1; i < plain->node_count; ++i) {
    const rabbet_group_node_t* node = &plain->nodes[i];
    for (size_t k = 0; k < node->input_count; ++k) {
      int32_t value = node->inputs[k];
      if (value >= 0 && rabbet_group_input_of(plain, value) >= 0 &&
          !convolution_always_takes_value(&plain->values[value], y))
        return false;
    }
  }
  return true;
}

static rabbet_status_t convolution_offer_all(const convolution_offer_t* offer) {
  static const rabbet_format_t formats[] = {RABBET_FORMAT_HWC,
                                            RABBET_FORMAT_LINEAR};
  const rabbet_group_t* group = offer->propose->group;
  rabbet_dtype_t types[4];
  const rabbet_group_node_t* node = &group->nodes[0];
  const rabbet_group_value_t* x = &group->values[node->inputs[0]];
  const rabbet_group_value_t* y = &group->values[node->outputs[0]];
  bool misread = !convolution_is_pixel(&group->values[node->inputs[1]].dims) &&
                 convolution_is_misread(group, &x->min, &y->min);
  int count = rabbet_compute_types(offer->propose, x->dtype, types);
  for (int i = 0; i < count; ++i) {
    if (rabbet_cudnn_type(types[i]) < 0) continue;
    for (size_t k = 0; k < (misread ? 1 : 2); ++k) {
      convolution_tensors(offer, types[i], formats[k]);
      RABBET_RETURN_IF_ERROR(rabbet_cudnn_offer(&(rabbet_cudnn_offer_t){
          .propose = offer->propose,
          .sink = offer->sink,
          .kernel = &rabbet_cuda_convolution,
          .tensors = offer->tensors,
          .dtype = types[i],
          // Kernels for tensor cores first transpose LINEAR tensors.
          .is_unlikely =
              formats[k] == RABBET_FORMAT_LINEAR &&
              (types[i] != RABBET_DTYPE_FLOAT || offer->propose->tf32),
      }));
    }
  }
  return rabbet_ok();
}

static rabbet_status_t cuda_convolution_propose(const rabbet_propose_t* propose,
                                                rabbet_candidate_sink_t sink) {
  const rabbet_group_t* group = propose->group;
  if (!convolution_matches(group) || group->output_count != 1 ||
      !convolution_always_takes(group))
    return rabbet_ok();
  convolution_offer_t offer = {.propose = propose, .sink = sink};
  rabbet_cudnn_t* library = NULL;
  RABBET_RETURN_IF_ERROR(
      rabbet_cudnn_get(rabbet_cuda(propose->device), &library));
  RABBET_RETURN_IF_ERROR(rabbet_allocate(
      propose->allocator,
      sizeof(*offer.tensors) * (group->input_count + group->output_count),
      (void**)&offer.tensors));
  rabbet_status_t status = convolution_offer_all(&offer);
  rabbet_free(propose->allocator, offer.tensors);
  return status;
}

static bool cuda_convolution_takes(const rabbet_kernel_spec_t* spec) {
  return convolution_matches(spec->group) && spec->group->output_count == 1;
}

RABBET_CUDNN_CLASS(cuda_convolution, "cuda.convolution", 6);

// ---- INT8 ------------------------------------------------------------------

// Sums are INT32. They are multiplied by the factors' scales in FLOAT; the
// result is quantized to INT8 at the end. cuDNN supports only channels last.

static const rabbet_cudnn_pointwise_t convolution_product = {
    .mode = CUDNN_POINTWISE_MUL, .attribute = -1};

// The tensor for an operation's result: the output if it is the last one,
// otherwise a virtual one.
static cudnnBackendDescriptor_t quantized_next(
    const rabbet_cudnn_chain_t* chain, bool is_last,
    rabbet_cudnn_graph_t* graph) {
  const rabbet_quantized_t* q = chain->context;
  return rabbet_cudnn_tensor(
      graph, &chain->result, chain->group->values[q->result].dtype,
      is_last ? RABBET_CUDNN_OUTPUT : RABBET_CUDNN_VIRTUAL);
}

// y = x * number
static cudnnBackendDescriptor_t quantized_multiply(
    const rabbet_cudnn_chain_t* chain, cudnnBackendDescriptor_t x,
    double number, bool is_last, rabbet_cudnn_graph_t* graph) {
  cudnnBackendDescriptor_t factor =
      rabbet_cudnn_scalar(graph, chain->result.rank, (float)number);
  cudnnBackendDescriptor_t y = quantized_next(chain, is_last, graph);
  rabbet_cudnn_pointwise(graph, &convolution_product, x, factor, y);
  return y;
}

static cudnnBackendDescriptor_t quantized_operand(
    const rabbet_cudnn_chain_t* chain, int32_t value,
    const rabbet_cudnn_shape_t* shape, rabbet_cudnn_graph_t* graph) {
  const rabbet_quantized_t* q = chain->context;
  const rabbet_group_t* group = chain->group;
  bool bytes = value == q->operand.real;
  if (bytes) value = q->operand.value;
  cudnnBackendDescriptor_t tensor =
      rabbet_cudnn_tensor(graph, shape, group->values[value].dtype,
                          rabbet_group_input_of(group, value));
  return bytes
             ? quantized_multiply(chain, tensor, q->operand.scale, false, graph)
             : tensor;
}

// Turns the INT32 sums into FLOAT.
static cudnnBackendDescriptor_t quantized_scale(
    const rabbet_cudnn_chain_t* chain, cudnnBackendDescriptor_t sums,
    rabbet_cudnn_graph_t* graph) {
  const rabbet_quantized_t* q = chain->context;
  bool is_last = chain->epilogue->count == 0 && !chain->goes_on;
  double scale = q->x_scale;
  if (q->w_count == 1) {
    scale *= rabbet_quantized_w_scale(q, 0);
  } else {
    rabbet_dims_t dims = {.rank = chain->result.rank};
    for (int i = 0; i < dims.rank; ++i)
      dims.d[i] = i == 1 ? q->w_count : 1;
    rabbet_cudnn_shape_t shape = rabbet_cudnn_dense(dims.rank, dims.d, true);
    int32_t value = (int32_t)(q->w_scale - q->plain.values);
    cudnnBackendDescriptor_t factors =
        rabbet_cudnn_tensor(graph, &shape, q->w_scale->dtype,
                            rabbet_group_input_of(&q->plain, value));
    cudnnBackendDescriptor_t y = quantized_next(chain, false, graph);
    rabbet_cudnn_pointwise(graph, &convolution_product, sums, factors, y);
    sums = y;
  }
  return quantized_multiply(chain, sums, scale, is_last, graph);
}

static bool quantized_add(const rabbet_cudnn_chain_t* chain,
                          rabbet_cudnn_graph_t* graph) {
  const rabbet_quantized_t* q = chain->context;
  const rabbet_group_node_t* node = &q->nodes[0];
  const rabbet_dims_t* dims = chain->dims;
  rabbet_cudnn_window_t window;
  if (!convolution_window(node, &dims[q->x], &dims[q->w],
                          &dims[node->outputs[0]], &window) ||
      !rabbet_cudnn_chain_fits(chain))
    return false;
  rabbet_cudnn_shape_t x_shape = convolution_shape(&dims[q->x], true);
  rabbet_cudnn_shape_t w_shape = convolution_shape(&dims[q->w], true);
  cudnnBackendDescriptor_t x =
      rabbet_cudnn_tensor(graph, &x_shape, RABBET_DTYPE_INT8,
                          rabbet_group_input_of(&q->plain, q->x));
  cudnnBackendDescriptor_t w =
      rabbet_cudnn_tensor(graph, &w_shape, RABBET_DTYPE_INT8,
                          rabbet_group_input_of(&q->plain, q->w));
  cudnnBackendDescriptor_t y = quantized_next(chain, false, graph);
  graph->sums_whole = true;
  rabbet_cudnn_convolution(graph, &window, x, w, y);
  y = rabbet_cudnn_chain_add(chain, quantized_scale(chain, y, graph), graph);
  if (q->scale != 0) quantized_multiply(chain, y, 1 / q->scale, true, graph);
  return true;
}

static bool quantized_has_types(const rabbet_quantized_t* q) {
  const rabbet_group_value_t* values = q->plain.values;
  const int32_t last[] = {q->x, q->w, q->result, q->operand.value};
  bool fits = values[q->x].dtype == RABBET_DTYPE_INT8 &&
              values[q->w].dtype == RABBET_DTYPE_INT8 &&
              (q->scale == 0 || values[q->result].dtype == RABBET_DTYPE_INT8);
  for (size_t i = 0; i < sizeof(last) / sizeof(last[0]); ++i)
    fits = fits && (last[i] < 0 || values[last[i]].format == RABBET_FORMAT_HWC);
  return fits && (q->operand.value < 0 ||
                  values[q->operand.value].dtype == RABBET_DTYPE_INT8);
}

static bool cuda_convolution_quantized_describe(const rabbet_group_t* group,
                                                const rabbet_dims_t* dims,
                                                rabbet_cudnn_graph_t* graph) {
  rabbet_cuda_epilogue_t epilogue;
  rabbet_quantized_t q;
  if (!rabbet_quantized_parse(group, RABBET_OP_CONVOLUTION, &q) ||
      !quantized_has_types(&q) || q.x_zero != 0 || q.zero != 0 ||
      !rabbet_cuda_epilogue_parse(&q.plain, dims, 1, q.nodes[0].outputs[0],
                                  &epilogue) ||
      !convolution_insert_bias(dims, convolution_bias(&q.nodes[0]), &epilogue))
    return false;
  const rabbet_cudnn_chain_t chain = {
      .group = &q.plain,
      .dims = dims,
      .epilogue = &epilogue,
      .result = convolution_shape(&dims[q.result], true),
      .dtype = group->values[q.result].dtype,
      .channels_last = true,
      .operand = convolution_operand,
      .tensor = quantized_operand,
      .context = &q,
      .goes_on = q.scale != 0};
  return quantized_add(&chain, graph);
}

static void quantized_tensors(const rabbet_quantized_t* q,
                              const rabbet_group_t* group,
                              rabbet_type_format_t* tensors) {
  const rabbet_dims_t* result = &group->values[q->result].dims;
  rabbet_network_tensors(group, tensors);
  for (size_t i = 0; i < group->input_count; ++i) {
    int32_t value = group->inputs[i];
    if (value == q->x || value == q->w ||
        rabbet_dims_equal(&group->values[value].dims, result))
      tensors[i].format = RABBET_FORMAT_HWC;
  }
  tensors[group->input_count].format = RABBET_FORMAT_HWC;
}

static rabbet_status_t cuda_convolution_quantized_propose(
    const rabbet_propose_t* propose, rabbet_candidate_sink_t sink) {
  const rabbet_group_t* group = propose->group;
  rabbet_quantized_t q;
  rabbet_type_format_t* tensors = NULL;
  rabbet_cudnn_t* library = NULL;
  if (!rabbet_quantized_parse(group, RABBET_OP_CONVOLUTION, &q) ||
      group->values[q.x].dims.rank < 3 || !convolution_always_takes(&q.plain))
    return rabbet_ok();
  RABBET_RETURN_IF_ERROR(
      rabbet_cudnn_get(rabbet_cuda(propose->device), &library));
  RABBET_RETURN_IF_ERROR(rabbet_allocate(
      propose->allocator,
      sizeof(*tensors) * (group->input_count + group->output_count),
      (void**)&tensors));
  quantized_tensors(&q, group, tensors);
  rabbet_status_t status = rabbet_cudnn_offer(&(rabbet_cudnn_offer_t){
      .propose = propose,
      .sink = sink,
      .kernel = &rabbet_cuda_convolution_quantized,
      .tensors = tensors,
      .dtype = RABBET_DTYPE_INT8,
  });
  rabbet_free(propose->allocator, tensors);
  return status;
}

static bool cuda_convolution_quantized_takes(const rabbet_kernel_spec_t* spec) {
  rabbet_quantized_t q;
  return rabbet_quantized_parse(spec->group, RABBET_OP_CONVOLUTION, &q);
}

RABBET_CUDNN_CLASS(cuda_convolution_quantized, "cuda.convolution.quantized", 2);
