// Samples of an image at the points of a grid. Bound by the bytes of the output
// and of the pixels that are read.
#include "ops/image/grid_sample.h"

#include "device/cuda/image/grid_sample_params.h"
#include "device/cuda/programs/node.h"

enum { THREADS = 256, MOST_GRID_Y = 65535 };

typedef struct cuda_grid_sample_kernel_t {
  rabbet_cuda_node_t node;
  CUfunction function;
} cuda_grid_sample_kernel_t;

typedef struct cuda_grid_sample_state_t {
  bool is_empty;
  grid_sample_t parameters;
  rabbet_cuda_launch_t launch;
} cuda_grid_sample_state_t;

static rabbet_status_t cuda_grid_sample_body(rabbet_proposal_t* proposal) {
  return rabbet_proposal_offer_linear(proposal, "points", -1);
}

RABBET_PROPOSE_FOR(cuda_grid_sample, GRID_SAMPLE)

static rabbet_status_t cuda_grid_sample_program(
    rabbet_cuda_node_t* node, const rabbet_kernel_spec_t* spec) {
  static const int taps[] = {1, 2, 4};
  cuda_grid_sample_kernel_t* kernel = (cuda_grid_sample_kernel_t*)node;
  const rabbet_group_node_t* layer = node->node.node;
  const rabbet_group_value_t* values = spec->group->values;
  if (!rabbet_node_is(spec->group, RABBET_OP_GRID_SAMPLE))
    return RABBET_STATUS(RABBET_STATUS_INVALID_ARGUMENT,
                         "layer '%s' samples no grid", layer->name);
  rabbet_dtype_t dtype = values[layer->inputs[0]].dtype;
  rabbet_dtype_t point = values[layer->inputs[1]].dtype;
  int32_t rank = values[layer->inputs[0]].dims.rank;
  int64_t mode = rabbet_node_int(layer, "interpolation_mode");
  if (values[layer->outputs[0]].dtype != dtype ||
      rabbet_dtype_bits(dtype) < 16 || rabbet_dtype_bits(point) < 16 ||
      (rank != 4 && rank != 5) ||
      (rank == 5 && mode == RABBET_INTERPOLATION_CUBIC))
    return RABBET_STATUS(RABBET_STATUS_UNSUPPORTED,
                         "layer '%s': tensors of %s cannot be sampled so",
                         layer->name, rabbet_dtype_name(dtype));
  rabbet_cuda_options_t options = {.count = 0};
  rabbet_cuda_option(&options, "-DELEMENT=%s", rabbet_cuda_type(dtype));
  rabbet_cuda_option(&options, "-DPOINT=%s", rabbet_cuda_type(point));
  rabbet_cuda_option(&options, "-DTAPS=%d", taps[mode]);
  rabbet_cuda_option(&options, "-DOUTSIDE=%d",
                     (int)rabbet_node_int(layer, "sample_mode"));
  rabbet_cuda_option(&options, "-DALIGN=%d",
                     (int)rabbet_node_int(layer, "align_corners"));
  rabbet_cuda_option(&options, "-DAXES=%d", (int)rank - 2);
  RABBET_RETURN_IF_ERROR(
      rabbet_cuda_node_add(node, spec, "image/grid_sample.cu", NULL, &options));
  return rabbet_cuda_node_function(node, 0, "grid_sample", &kernel->function);
}

static rabbet_status_t grid_set(const cuda_grid_sample_kernel_t* kernel,
                                const rabbet_dims_t* in,
                                const rabbet_dims_t* out,
                                cuda_grid_sample_state_t* state) {
  const rabbet_group_node_t* layer = kernel->node.node.node;
  grid_sample_t* p = &state->parameters;
  rabbet_grid_sample_t sample;
  int64_t out_plane = 1;
  rabbet_grid_sample_read(layer->attrs, layer->op->attr_count, in, &sample);
  p->in_plane = 1;
  p->channels = out->d[1];
  for (int32_t i = 0; i < sample.spatial; ++i) {
    int32_t at = i + 3 - sample.spatial;
    if (sample.extent[i] > 1 << 24)
      return RABBET_STATUS(RABBET_STATUS_UNSUPPORTED,
                           "layer '%s': axis %d is too long to be sampled; at "
                           "most 2^24 elements",
                           layer->name, i + 2);
    p->extent[at] = (int32_t)sample.extent[i];
    p->strides[at] = sample.strides[i];
    p->in_plane *= sample.extent[i];
    out_plane *= out->d[i + 2];
  }
  p->out_plane = rabbet_cuda_divisor(out_plane);
  p->points = out->d[0] * out_plane;
  state->is_empty = p->points == 0 || p->channels == 0;
  int64_t blocks = rabbet_ceildiv(p->points, (int64_t)THREADS);
  if (blocks > INT32_MAX)
    return RABBET_STATUS(RABBET_STATUS_OUT_OF_RANGE,
                         "layer '%s': there are %lld points; expected at most "
                         "2^31 times %d",
                         layer->name, (long long)p->points, THREADS);
  // A thread gets as many channels as possible while the device stays busy.
  int64_t wanted = 8 * (int64_t)kernel->node.device->multiprocessors;
  int64_t shares = rabbet_max_i64(1, wanted / rabbet_max_i64(blocks, 1));
  shares = rabbet_min_i64(rabbet_min_i64(shares, p->channels), MOST_GRID_Y);
  state->launch = (rabbet_cuda_launch_t){
      .function = kernel->function,
      .grid = {(unsigned)blocks, (unsigned)rabbet_max_i64(shares, 1), 1},
      .block = {THREADS, 1, 1}};
  return rabbet_ok();
}

static rabbet_status_t cuda_grid_sample_prepare(
    rabbet_kernel_t* base, const rabbet_kernel_shapes_t* shapes,
    cuda_grid_sample_state_t** out_state, size_t* out_workspace) {
  const cuda_grid_sample_kernel_t* kernel =
      (const cuda_grid_sample_kernel_t*)base;
  const rabbet_group_node_t* layer = kernel->node.node.node;
  const rabbet_dims_t* in = &shapes->dims[layer->inputs[0]];
  *out_workspace = 0;
  *out_state = NULL;
  RABBET_RETURN_IF_ERROR(RABBET_ANNOTATE(
      rabbet_grid_sample_check(in, &shapes->dims[layer->inputs[1]]),
      "layer '%s'", layer->name));
  cuda_grid_sample_state_t* state = NULL;
  RABBET_RETURN_IF_ERROR(
      rabbet_node_state_allocate(base, sizeof(*state), (void**)&state));
  rabbet_status_t status =
      grid_set(kernel, in, &shapes->dims[layer->outputs[0]], state);
  return rabbet_node_state_finish(base, state, status, (void**)out_state);
}

static rabbet_status_t cuda_grid_sample_enqueue(
    rabbet_kernel_t* base, cuda_grid_sample_state_t* state,
    const rabbet_kernel_call_t* call) {
  const cuda_grid_sample_kernel_t* kernel =
      (const cuda_grid_sample_kernel_t*)base;
  if (state->is_empty) return rabbet_ok();
  const void* in = rabbet_node_input_at(&kernel->node.node, call, 0);
  const void* grid = rabbet_node_input_at(&kernel->node.node, call, 1);
  void* out = rabbet_node_output(&kernel->node.node, call, 0);
  void* parameters[] = {&in, &grid, &out, &state->parameters};
  return rabbet_cuda_launch(kernel->node.device, &state->launch, parameters,
                            call->stream);
}

RABBET_TAKES_NODE(cuda_grid_sample, GRID_SAMPLE, 0)

RABBET_CUDA_NODE_CLASS(cuda_grid_sample, cuda_grid_sample_kernel_t,
                       "cuda.grid_sample", 1);
