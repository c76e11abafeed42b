// Deconvolutions of any window by a kernel of our own, LINEAR. A thread
// computes one position in one or four maps. cuDNN (convolution.c) is faster if
// it has an engine.
#include "core/view.h"
#include "device/cuda/image/deconvolution_params.h"
#include "device/cuda/programs/node.h"
#include "ops/image/window.h"

enum { THREADS = 256, MANY_MAPS = 4, MOST_GRID_Y = 65535 };

typedef struct cuda_deconvolution_kernel_t {
  rabbet_cuda_node_t node;
  int64_t groups;
  CUfunction one, many;  // maps to a thread
} cuda_deconvolution_kernel_t;

typedef struct cuda_deconvolution_state_t {
  bool is_empty;
  deconvolution_t parameters;
  rabbet_cuda_launch_t launch;
} cuda_deconvolution_state_t;

// ---- Proposing -------------------------------------------------------------

static rabbet_status_t cuda_deconvolution_body(rabbet_proposal_t* proposal) {
  const rabbet_group_t* group = proposal->propose->group;
  rabbet_dtype_t types[4];
  int count = rabbet_compute_types(
      proposal->propose, group->values[proposal->node->inputs[0]].dtype, types);
  for (int t = 0; t < count; ++t) {
    for (size_t i = 0; i < proposal->node->input_count; ++i)
      rabbet_proposal_set_input(proposal, i, types[t], RABBET_FORMAT_LINEAR);
    rabbet_proposal_set_output(proposal, types[t], RABBET_FORMAT_LINEAR);
    RABBET_RETURN_IF_ERROR(rabbet_proposal_offer(proposal, "elements", -1));
  }
  return rabbet_ok();
}

RABBET_PROPOSE_FOR(cuda_deconvolution, DECONVOLUTION)

// ---- The program -----------------------------------------------------------

static rabbet_status_t deconvolution_check(const rabbet_group_t* group,
                                           const rabbet_group_node_t* layer) {
  rabbet_dtype_t dtype = group->values[layer->inputs[0]].dtype;
  int32_t rank = group->values[layer->inputs[0]].dims.rank;
  bool fits = (dtype == RABBET_DTYPE_FLOAT || dtype == RABBET_DTYPE_HALF ||
               dtype == RABBET_DTYPE_BF16) &&
              rank >= 3 && rank <= 5;
  for (size_t i = 0; i < layer->input_count; ++i)
    fits = fits && (layer->inputs[i] < 0 ||
                    group->values[layer->inputs[i]].dtype == dtype);
  if (fits && group->values[layer->outputs[0]].dtype == dtype &&
      rabbet_node_int(layer, "num_groups") > 0)
    return rabbet_ok();
  return RABBET_STATUS(RABBET_STATUS_UNSUPPORTED,
                       "layer '%s': cuda.deconvolution takes tensors of one "
                       "floating type and one to three spatial axes",
                       layer->name);
}

// Options for strides and dilations; the window's extents are parameters.
static rabbet_status_t deconvolution_options(const rabbet_group_node_t* layer,
                                             int32_t spatial,
                                             rabbet_cuda_options_t* options) {
  static const char axes[] = "DHW";
  static const int64_t ones[3] = {1, 1, 1};
  rabbet_window_t w;
  RABBET_RETURN_IF_ERROR(
      RABBET_ANNOTATE(rabbet_window_read(layer->attrs, layer->op->attr_count,
                                         spatial, ones, &w),
                      "layer '%s'", layer->name));
  for (int32_t i = 0; i < 3; ++i) {
    int32_t k = i - (3 - spatial);
    rabbet_cuda_option(options, "-DSTRIDE_%c=%d", axes[i],
                       k < 0 ? 1 : (int)w.stride[k]);
    rabbet_cuda_option(options, "-DDILATION_%c=%d", axes[i],
                       k < 0 ? 1 : (int)w.dilation[k]);
  }
  return rabbet_ok();
}

static rabbet_status_t cuda_deconvolution_program(
    rabbet_cuda_node_t* node, const rabbet_kernel_spec_t* spec) {
  cuda_deconvolution_kernel_t* kernel = (cuda_deconvolution_kernel_t*)node;
  const rabbet_group_node_t* layer = node->node.node;
  if (!rabbet_node_is(spec->group, RABBET_OP_DECONVOLUTION))
    return RABBET_STATUS(RABBET_STATUS_INVALID_ARGUMENT,
                         "layer '%s' is no deconvolution", layer->name);
  RABBET_RETURN_IF_ERROR(deconvolution_check(spec->group, layer));
  const rabbet_group_value_t* x = &spec->group->values[layer->inputs[0]];
  rabbet_cuda_options_t options = {.count = 0};
  kernel->groups = rabbet_node_int(layer, "num_groups");
  rabbet_cuda_option(&options, "-DELEMENT=%s", rabbet_cuda_type(x->dtype));
  rabbet_cuda_option(&options, "-DHAS_BIAS=%d",
                     rabbet_node_input(layer, 2) >= 0);
  RABBET_RETURN_IF_ERROR(
      deconvolution_options(layer, x->dims.rank - 2, &options));
  RABBET_RETURN_IF_ERROR(rabbet_cuda_node_add(
      node, spec, "image/deconvolution.cu", NULL, &options));
  RABBET_RETURN_IF_ERROR(
      rabbet_cuda_node_function(node, 0, "deconvolution", &kernel->one));
  return rabbet_cuda_node_function(node, 0, "deconvolution_maps",
                                   &kernel->many);
}

// ---- Geometry --------------------------------------------------------------

static rabbet_status_t deconvolution_refuse(const rabbet_group_node_t* layer,
                                            const rabbet_dims_t* out) {
  char text[128];
  return RABBET_STATUS(RABBET_STATUS_UNSUPPORTED,
                       "layer '%s': planes of a tensor of shape %s, or the "
                       "windows over them, are too large to be deconvolved; at "
                       "most 2^30 positions",
                       layer->name, rabbet_dims_print(out, text, sizeof(text)));
}

// Extents and strides of the spatial axes; false if they exceed the kernel's
// integers.
static bool deconvolution_axes(const rabbet_window_t* window,
                               const rabbet_dims_t* in,
                               const rabbet_dims_t* out, deconvolution_t* p) {
  const int64_t most = INT64_C(1) << 30;
  int64_t pre[RABBET_MAX_RANK], post[RABBET_MAX_RANK], size = 1;
  rabbet_window_pads_transposed(window, in->d + 2, out->d + 2, pre, post);
  for (int32_t i = 0; i < 3; ++i) {
    int32_t k = i - (3 - window->spatial);
    p->in[i] = p->out[i] = p->window[i] = 1;
    if (k < 0) continue;
    int64_t reach =
        out->d[k + 2] + pre[k] + window->size[k] * window->dilation[k];
    if (in->d[k + 2] > most || reach > most ||
        __builtin_mul_overflow(size, out->d[k + 2], &size) || size > most)
      return false;
    p->in[i] = (int32_t)in->d[k + 2];
    p->out[i] = (int32_t)out->d[k + 2];
    p->window[i] = (int32_t)window->size[k];
    p->pre[i] = (int32_t)pre[k];
  }
  p->out_height = rabbet_cuda_divisor(p->out[1]);
  p->out_width = rabbet_cuda_divisor(p->out[2]);
  return true;
}

static rabbet_status_t deconvolution_set(
    const cuda_deconvolution_kernel_t* kernel, const rabbet_dims_t* in,
    const rabbet_dims_t* weights, const rabbet_dims_t* out,
    cuda_deconvolution_state_t* state) {
  const rabbet_group_node_t* layer = kernel->node.node.node;
  deconvolution_t* p = &state->parameters;
  rabbet_window_t window;
  RABBET_RETURN_IF_ERROR(rabbet_window_read(layer->attrs, layer->op->attr_count,
                                            in->rank - 2, weights->d + 2,
                                            &window));
  if (!deconvolution_axes(&window, in, out, p) || in->d[1] > INT32_MAX ||
      out->d[1] > INT32_MAX)
    return deconvolution_refuse(layer, out);
  bool many = weights->d[1] % MANY_MAPS == 0;
  p->groups = (int32_t)kernel->groups;
  p->channels = (int32_t)(in->d[1] / kernel->groups);
  p->maps = (int32_t)weights->d[1];
  p->planes = out->d[0] * (out->d[1] / (many ? MANY_MAPS : 1));
  int64_t size = (int64_t)p->out[0] * p->out[1] * p->out[2];
  state->is_empty = size == 0 || p->planes == 0;
  state->launch = (rabbet_cuda_launch_t){
      .function = many ? kernel->many : kernel->one,
      .grid = {(unsigned)rabbet_ceildiv(size, THREADS),
               (unsigned)rabbet_min_i64(p->planes, MOST_GRID_Y), 1},
      .block = {THREADS, 1, 1}};
  return rabbet_ok();
}

static rabbet_status_t cuda_deconvolution_prepare(
    rabbet_kernel_t* base, const rabbet_kernel_shapes_t* shapes,
    cuda_deconvolution_state_t** out_state, size_t* out_workspace) {
  const cuda_deconvolution_kernel_t* kernel =
      (const cuda_deconvolution_kernel_t*)base;
  const rabbet_group_node_t* layer = kernel->node.node.node;
  const rabbet_dims_t* in = &shapes->dims[layer->inputs[0]];
  const rabbet_dims_t* weights = &shapes->dims[layer->inputs[1]];
  *out_workspace = 0;
  *out_state = NULL;
  if (in->d[1] != weights->d[0] || in->d[1] % kernel->groups != 0)
    return RABBET_STATUS(RABBET_STATUS_OUT_OF_RANGE,
                         "layer '%s': the input has %lld channels; the kernel "
                         "takes %lld in %lld groups",
                         layer->name, (long long)in->d[1],
                         (long long)weights->d[0], (long long)kernel->groups);
  cuda_deconvolution_state_t* state = NULL;
  RABBET_RETURN_IF_ERROR(
      rabbet_node_state_allocate(base, sizeof(*state), (void**)&state));
  rabbet_status_t status = deconvolution_set(
      kernel, in, weights, &shapes->dims[layer->outputs[0]], state);
  return rabbet_node_state_finish(base, state, status, (void**)out_state);
}

static rabbet_status_t cuda_deconvolution_enqueue(
    rabbet_kernel_t* base, cuda_deconvolution_state_t* state,
    const rabbet_kernel_call_t* call) {
  const cuda_deconvolution_kernel_t* kernel =
      (const cuda_deconvolution_kernel_t*)base;
  const rabbet_group_t* group = kernel->node.node.group;
  const rabbet_group_node_t* layer = kernel->node.node.node;
  if (state->is_empty) return rabbet_ok();
  const void* inputs[3] = {NULL, NULL, NULL};
  for (size_t i = 0; i < 3; ++i) {
    int32_t value = rabbet_node_input(layer, i);
    if (value >= 0)
      inputs[i] = call->inputs[rabbet_group_input_of(group, value)];
  }
  void* out = call->outputs[0];
  void* parameters[] = {&inputs[0], &inputs[1], &inputs[2], &out,
                        &state->parameters};
  return rabbet_cuda_launch(kernel->node.device, &state->launch, parameters,
                            call->stream);
}

RABBET_TAKES_NODE(cuda_deconvolution, DECONVOLUTION, 0)

RABBET_CUDA_NODE_CLASS(cuda_deconvolution, cuda_deconvolution_kernel_t,
                       "cuda.deconvolution", 1);
