// Block quantization: scales of blocks, and elements divided by them. Bound by
// the bytes of input and output; a block that fits registers is read once. A
// few large blocks leave most of a GPU idle, as at most 256 threads share a
// block.
#include "device/common/dynamic_quantize.h"

#include "device/cuda/programs/launch.h"
#include "device/cuda/programs/node.h"
#include "device/cuda/reduction/dynamic_quantize_params.h"

enum { THREADS_LOG = 8, NARROW = 0, PACKS = 1, PACK_BYTES = 16 };

typedef struct cuda_dynamic_kernel_t {
  rabbet_cuda_node_t node;
  int64_t pack;  // elements
  CUfunction functions[2];
} cuda_dynamic_kernel_t;

typedef struct cuda_dynamic_quantize_state_t {
  bool has_packs;
  dynamic_quantize_t parameters[2];
  rabbet_cuda_launch_t launch[2];
} cuda_dynamic_quantize_state_t;

static rabbet_status_t cuda_dynamic_quantize_propose(
    const rabbet_propose_t* propose, rabbet_candidate_sink_t sink) {
  return rabbet_dynamic_quantize_propose(propose, sink,
                                         &rabbet_cuda_dynamic_quantize);
}

static rabbet_status_t cuda_dynamic_quantize_program(
    rabbet_cuda_node_t* node, const rabbet_kernel_spec_t* spec) {
  cuda_dynamic_kernel_t* kernel = (cuda_dynamic_kernel_t*)node;
  const rabbet_group_node_t* layer = node->node.node;
  const rabbet_group_value_t* values = spec->group->values;
  if (!rabbet_node_is(spec->group, RABBET_OP_DYNAMIC_QUANTIZE))
    return RABBET_STATUS(RABBET_STATUS_INVALID_ARGUMENT,
                         "layer '%s' finds no scales", layer->name);
  int32_t by = rabbet_node_input(layer, 1);
  rabbet_dtype_t from = values[layer->inputs[0]].dtype;
  rabbet_dtype_t to = values[layer->outputs[0]].dtype;
  rabbet_dtype_t scale = values[layer->outputs[1]].dtype;
  rabbet_dtype_t factor = by < 0 ? RABBET_DTYPE_FLOAT : values[by].dtype;
  RABBET_RETURN_IF_ERROR(
      rabbet_dynamic_quantize_check_types(spec->group, layer));
  rabbet_cuda_options_t options = {.count = 0};
  kernel->pack = PACK_BYTES * 8 / rabbet_dtype_bits(from);
  rabbet_cuda_option(&options, "-DELEMENT=%s", rabbet_cuda_type(from));
  rabbet_cuda_option(&options, "-DRESULT=%s", rabbet_cuda_type(to));
  rabbet_cuda_option(&options, "-DSCALE=%s", rabbet_cuda_type(scale));
  rabbet_cuda_option(&options, "-DFACTOR=%s", rabbet_cuda_type(factor));
  RABBET_RETURN_IF_ERROR(rabbet_cuda_node_add(
      node, spec, "reduction/dynamic_quantize.cu", NULL, &options));
  RABBET_RETURN_IF_ERROR(rabbet_cuda_node_function(node, 0, "dynamic_quantize",
                                                   &kernel->functions[NARROW]));
  return rabbet_cuda_node_function(node, 0, "dynamic_quantize_packs",
                                   &kernel->functions[PACKS]);
}

// ---- Geometry --------------------------------------------------------------

// Threads of a block: as many as it has elements or packs, unless neighbours in
// memory belong to different blocks; then neighbouring threads have those.
static int32_t dynamic_across(const rabbet_quantize_boxes_t* boxes,
                              int64_t elements) {
  int32_t last = boxes->rank - 1, log = 0;
  bool columns = boxes->rank > 0 && boxes->blocks[last] == 1 &&
                 boxes->counts[last] >= 32 && boxes->count >= 1024;
  while (!columns && log < THREADS_LOG && (int64_t)1 << log < elements)
    ++log;
  return log;
}

// Whether the tensor consists of packs of `pack` elements, each within one
// block.
static bool dynamic_is_packed(const rabbet_quantize_boxes_t* boxes,
                              int64_t pack) {
  int32_t last = boxes->rank - 1;
  return boxes->elements > 0 && boxes->blocks[last] % pack == 0 &&
         boxes->dims[last] % pack == 0;
}

static rabbet_status_t dynamic_set(const cuda_dynamic_kernel_t* kernel,
                                   const rabbet_quantize_boxes_t* boxes,
                                   int64_t pack, int function,
                                   cuda_dynamic_quantize_state_t* state) {
  dynamic_quantize_t* p = &state->parameters[function];
  *p = (dynamic_quantize_t){.count = boxes->count,
                            .elements = boxes->elements / pack,
                            .rank = boxes->elements > 0 ? boxes->rank : 0};
  p->across_log = boxes->elements > 0 ? dynamic_across(boxes, p->elements) : 0;
  for (int32_t i = 0; i < p->rank; ++i) {
    int64_t by = i == p->rank - 1 ? pack : 1;
    p->axes[i] =
        (quantize_axis_t){.count = rabbet_cuda_divisor(boxes->counts[i]),
                          .block = rabbet_cuda_divisor(boxes->blocks[i] / by),
                          .dim = boxes->dims[i] / by,
                          .stride = boxes->strides[i] * by};
  }
  int64_t blocks =
      rabbet_ceildiv(boxes->count, (int64_t)1 << (THREADS_LOG - p->across_log));
  if (blocks > INT32_MAX)
    return RABBET_STATUS(RABBET_STATUS_OUT_OF_RANGE,
                         "layer '%s': there are too many blocks",
                         kernel->node.node.node->name);
  state->launch[function] =
      (rabbet_cuda_launch_t){.function = kernel->functions[function],
                             .grid = {(unsigned)blocks, 1, 1},
                             .block = {1 << THREADS_LOG, 1, 1}};
  return rabbet_ok();
}

static rabbet_status_t cuda_dynamic_quantize_prepare(
    rabbet_kernel_t* base, const rabbet_kernel_shapes_t* shapes,
    cuda_dynamic_quantize_state_t** out_state, size_t* out_workspace) {
  const cuda_dynamic_kernel_t* kernel = (const cuda_dynamic_kernel_t*)base;
  const rabbet_group_node_t* layer = kernel->node.node.node;
  rabbet_quantize_boxes_t boxes;
  *out_workspace = 0;
  *out_state = NULL;
  RABBET_RETURN_IF_ERROR(rabbet_dynamic_quantize_boxes(
      layer, &shapes->dims[layer->inputs[0]], &boxes));
  cuda_dynamic_quantize_state_t* state = NULL;
  RABBET_RETURN_IF_ERROR(
      rabbet_node_state_allocate(base, sizeof(*state), (void**)&state));
  state->has_packs = dynamic_is_packed(&boxes, kernel->pack);
  rabbet_status_t status = dynamic_set(kernel, &boxes, 1, NARROW, state);
  if (rabbet_is_ok(status) && state->has_packs)
    status = dynamic_set(kernel, &boxes, kernel->pack, PACKS, state);
  return rabbet_node_state_finish(base, state, status, (void**)out_state);
}

static rabbet_status_t cuda_dynamic_quantize_enqueue(
    rabbet_kernel_t* base, cuda_dynamic_quantize_state_t* state,
    const rabbet_kernel_call_t* call) {
  const cuda_dynamic_kernel_t* kernel = (const cuda_dynamic_kernel_t*)base;
  const rabbet_node_kernel_t* node = &kernel->node.node;
  const void* x = rabbet_node_input_at(node, call, 0);
  const void* factor = rabbet_node_input_at(node, call, 1);
  void* y = rabbet_node_output(node, call, 0);
  void* scales = rabbet_node_output(node, call, 1);
  int function = state->has_packs && rabbet_cuda_is_aligned(x, PACK_BYTES) &&
                         rabbet_cuda_is_aligned(y, kernel->pack)
                     ? PACKS
                     : NARROW;
  if (state->parameters[function].count == 0) return rabbet_ok();
  void* parameters[] = {&x, &y, &scales, &factor, &state->parameters[function]};
  return rabbet_cuda_launch(kernel->node.device, &state->launch[function],
                            parameters, call->stream);
}

RABBET_TAKES_NODE(cuda_dynamic_quantize, DYNAMIC_QUANTIZE, RABBET_TAKES_UNREAD)

RABBET_CUDA_NODE_CLASS(cuda_dynamic_quantize, cuda_dynamic_kernel_t,
                       "cuda.dynamic_quantize", 1);
