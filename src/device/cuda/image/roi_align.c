// RoiAlign: a thread computes one bin for several channels.
#include "ops/image/roi_align.h"

#include "device/cuda/programs/index.h"
#include "device/cuda/programs/node.h"
#include "ops/enums.h"

enum { INPUT = 0, ROIS = 1, INDICES = 2 };
enum { THREADS = 256, CHANNELS = 8, MOST_GRID_Y = 65535 };

typedef struct cuda_roi_align_kernel_t {
  rabbet_cuda_node_t node;
  CUfunction function;
} cuda_roi_align_kernel_t;

typedef struct cuda_roi_align_state_t {
  rabbet_roi_align_t parameters;
  divisor_t bins, width;
  rabbet_cuda_launch_t launch;
} cuda_roi_align_state_t;

// Regions keep their type: rounded to a narrow one, they would move by pixels.
static rabbet_status_t cuda_roi_align_body(rabbet_proposal_t* proposal) {
  rabbet_dtype_t types[4];
  int count = rabbet_compute_types(
      proposal->propose,
      proposal->propose->group->values[proposal->node->inputs[INPUT]].dtype,
      types);
  for (int i = 0; i < count; ++i) {
    rabbet_proposal_set_input(proposal, INPUT, types[i], RABBET_FORMAT_LINEAR);
    rabbet_proposal_set_output(proposal, types[i], RABBET_FORMAT_LINEAR);
    RABBET_RETURN_IF_ERROR(rabbet_proposal_offer(proposal, "bins", -1));
  }
  return rabbet_ok();
}

RABBET_PROPOSE_FOR(cuda_roi_align, ROI_ALIGN)

static rabbet_status_t cuda_roi_align_program(
    rabbet_cuda_node_t* node, const rabbet_kernel_spec_t* spec) {
  cuda_roi_align_kernel_t* kernel = (cuda_roi_align_kernel_t*)node;
  const rabbet_group_node_t* layer = node->node.node;
  const rabbet_group_value_t* values = spec->group->values;
  rabbet_cuda_options_t options = {.count = 0};
  rabbet_cuda_option(&options, "-DELEMENT=%s",
                     rabbet_cuda_type(values[layer->inputs[INPUT]].dtype));
  rabbet_cuda_option(&options, "-DROI=%s",
                     rabbet_cuda_type(values[layer->inputs[ROIS]].dtype));
  rabbet_cuda_option(&options, "-DINDEX=%s",
                     rabbet_cuda_type(values[layer->inputs[INDICES]].dtype));
  rabbet_cuda_option(&options, "-DIS_MAX=%d",
                     rabbet_node_int(layer, "mode") == RABBET_POOLING_MAX);
  rabbet_cuda_option(&options, "-DCHANNELS=%d", CHANNELS);
  RABBET_RETURN_IF_ERROR(
      rabbet_cuda_node_add(node, spec, "image/roi_align.cu", NULL, &options));
  return rabbet_cuda_node_function(node, 0, "roi_align", &kernel->function);
}

static rabbet_status_t roi_launch(const cuda_roi_align_kernel_t* kernel,
                                  cuda_roi_align_state_t* state) {
  const rabbet_roi_align_t* p = &state->parameters;
  if (p->channels == 0) return rabbet_ok();  // nothing is launched
  int64_t bins = (int64_t)p->out[0] * p->out[1];
  int64_t blocks = rabbet_ceildiv(p->rois * bins, (int64_t)THREADS);
  if (blocks > INT32_MAX)
    return RABBET_STATUS(RABBET_STATUS_OUT_OF_RANGE,
                         "layer '%s': there are %lld regions of %lld bins; "
                         "expected at most 2^31 times %d bins",
                         kernel->node.node.node->name, (long long)p->rois,
                         (long long)bins, THREADS);
  int64_t chunks = rabbet_ceildiv(p->channels, (int64_t)CHANNELS);
  state->bins = rabbet_cuda_divisor(bins);
  state->width = rabbet_cuda_divisor(p->out[1]);
  state->launch = (rabbet_cuda_launch_t){
      .function = kernel->function,
      .grid = {(unsigned)blocks, (unsigned)rabbet_min_i64(chunks, MOST_GRID_Y),
               1},
      .block = {THREADS, 1, 1}};
  return rabbet_ok();
}

static rabbet_status_t cuda_roi_align_prepare(
    rabbet_kernel_t* base, const rabbet_kernel_shapes_t* shapes,
    cuda_roi_align_state_t** out_state, size_t* out_workspace) {
  const cuda_roi_align_kernel_t* kernel = (const cuda_roi_align_kernel_t*)base;
  const rabbet_group_node_t* layer = kernel->node.node.node;
  cuda_roi_align_state_t* state = NULL;
  *out_workspace = 0;
  *out_state = NULL;
  RABBET_RETURN_IF_ERROR(
      rabbet_node_state_allocate(base, sizeof(*state), (void**)&state));
  rabbet_status_t status = RABBET_ANNOTATE(
      rabbet_roi_align_read(layer->attrs, layer->op->attr_count,
                            &shapes->dims[layer->inputs[INPUT]],
                            &shapes->dims[layer->inputs[ROIS]],
                            &shapes->dims[layer->inputs[INDICES]],
                            &state->parameters),
      "layer '%s'", layer->name);
  if (rabbet_is_ok(status)) status = roi_launch(kernel, state);
  return rabbet_node_state_finish(base, state, status, (void**)out_state);
}

static rabbet_status_t cuda_roi_align_enqueue(
    rabbet_kernel_t* base, cuda_roi_align_state_t* state,
    const rabbet_kernel_call_t* call) {
  const cuda_roi_align_kernel_t* kernel = (const cuda_roi_align_kernel_t*)base;
  const rabbet_node_kernel_t* node = &kernel->node.node;
  if (state->parameters.rois == 0 || state->parameters.channels == 0)
    return rabbet_ok();
  const void* in = rabbet_node_input_at(node, call, INPUT);
  const void* rois = rabbet_node_input_at(node, call, ROIS);
  const void* indices = rabbet_node_input_at(node, call, INDICES);
  void* out = rabbet_node_output(node, call, 0);
  void* parameters[] = {
      &in,          &rois,        &indices, &out, &state->parameters,
      &state->bins, &state->width};
  return rabbet_cuda_launch(kernel->node.device, &state->launch, parameters,
                            call->stream);
}

RABBET_TAKES_NODE(cuda_roi_align, ROI_ALIGN, 0)

RABBET_CUDA_NODE_CLASS(cuda_roi_align, cuda_roi_align_kernel_t,
                       "cuda.roi_align", 1);
