// Positions of the elements that are not zero. Bound by the bytes of the input;
// a small input is bound by latency.
#include "core/view.h"
#include "device/cuda/programs/node.h"
#include "device/cuda/selection/non_zero_params.h"

enum { COUNT, ADD_UP, WRITE, FEW, FUNCTIONS };
enum { FEW_BLOCKS = 8 };  // up to these, one launch is faster than three

typedef struct cuda_non_zero_kernel_t {
  rabbet_cuda_node_t node;
  CUfunction functions[FUNCTIONS];
} cuda_non_zero_kernel_t;

typedef struct cuda_non_zero_state_t {
  bool is_few;
  non_zero_t parameters;
  rabbet_cuda_launch_t launches[FUNCTIONS];
} cuda_non_zero_state_t;

static rabbet_status_t cuda_non_zero_body(rabbet_proposal_t* proposal) {
  return rabbet_proposal_offer(proposal, "tiles", -1);
}

RABBET_PROPOSE_FOR(cuda_non_zero, NON_ZERO)

static rabbet_status_t cuda_non_zero_program(rabbet_cuda_node_t* node,
                                             const rabbet_kernel_spec_t* spec) {
  static const char* const names[FUNCTIONS] = {[COUNT] = "non_zero_count",
                                               [ADD_UP] = "non_zero_add_up",
                                               [WRITE] = "non_zero_write",
                                               [FEW] = "non_zero_few"};
  cuda_non_zero_kernel_t* kernel = (cuda_non_zero_kernel_t*)node;
  const rabbet_group_node_t* layer = node->node.node;
  if (!rabbet_node_is(spec->group, RABBET_OP_NON_ZERO))
    return RABBET_STATUS(RABBET_STATUS_INVALID_ARGUMENT,
                         "layer '%s' looks for no elements", layer->name);
  rabbet_dtype_t dtype = spec->group->values[layer->inputs[0]].dtype;
  int bits = rabbet_dtype_bits(dtype);
  bool is_float = rabbet_dtype_is_float(dtype);
  rabbet_cuda_options_t options = {.count = 0};
  rabbet_cuda_option(&options, "-DELEMENT=uint%d_t", bits);
  rabbet_cuda_option(&options, "-DMASK=0x%llxull",
                     (unsigned long long)UINT64_MAX >> (64 - bits + is_float));
  RABBET_RETURN_IF_ERROR(rabbet_cuda_node_add(
      node, spec, "selection/non_zero.cu", NULL, &options));
  for (int i = 0; i < FUNCTIONS; ++i)
    RABBET_RETURN_IF_ERROR(
        rabbet_cuda_node_function(node, 0, names[i], &kernel->functions[i]));
  return rabbet_ok();
}

static rabbet_status_t non_zero_set(const rabbet_group_node_t* layer,
                                    const rabbet_dims_t* dims, non_zero_t* p) {
  RABBET_RETURN_IF_ERROR(rabbet_dims_count(dims, &p->count));
  p->blocks = rabbet_ceildiv(p->count, (int64_t)NON_ZERO_TILE);
  p->rank = dims->rank;
  for (int32_t i = 0; i < dims->rank; ++i)
    p->extents[i] = rabbet_cuda_divisor(dims->d[i]);
  if (p->blocks <= INT32_MAX) return rabbet_ok();
  return RABBET_STATUS(RABBET_STATUS_OUT_OF_RANGE,
                       "layer '%s': the input has too many elements",
                       layer->name);
}

static rabbet_status_t cuda_non_zero_prepare(
    rabbet_kernel_t* base, const rabbet_kernel_shapes_t* shapes,
    cuda_non_zero_state_t** out_state, size_t* out_workspace) {
  const cuda_non_zero_kernel_t* kernel = (const cuda_non_zero_kernel_t*)base;
  const rabbet_group_node_t* layer = kernel->node.node.node;
  non_zero_t p = {.count = 0};
  *out_workspace = 0;
  *out_state = NULL;
  RABBET_RETURN_IF_ERROR(
      non_zero_set(layer, &shapes->dims[layer->inputs[0]], &p));
  p.is_long = kernel->node.node.group->values[layer->outputs[0]].dtype ==
              RABBET_DTYPE_INT64;
  RABBET_RETURN_IF_ERROR(
      rabbet_node_state_allocate(base, sizeof(**out_state), (void**)out_state));
  cuda_non_zero_state_t* state = *out_state;
  state->parameters = p;
  state->is_few = p.blocks <= FEW_BLOCKS;
  for (int i = 0; i < FUNCTIONS; ++i) {
    bool one = i == ADD_UP || i == FEW;
    state->launches[i] =
        (rabbet_cuda_launch_t){.function = kernel->functions[i],
                               .grid = {one ? 1 : (unsigned)p.blocks, 1, 1},
                               .block = {NON_ZERO_THREADS, 1, 1}};
  }
  if (!state->is_few) *out_workspace = (size_t)p.blocks * sizeof(int64_t);
  return rabbet_ok();
}

static rabbet_status_t cuda_non_zero_enqueue(rabbet_kernel_t* base,
                                             cuda_non_zero_state_t* state,
                                             const rabbet_kernel_call_t* call) {
  const cuda_non_zero_kernel_t* kernel = (const cuda_non_zero_kernel_t*)base;
  const rabbet_node_kernel_t* node = &kernel->node.node;
  const rabbet_cuda_launch_t* launches = state->launches;
  const void* x = rabbet_node_input_at(node, call, 0);
  void* y = rabbet_node_output(node, call, 0);
  void* total = rabbet_node_output(node, call, 1);
  void *places = call->workspace, *p = &state->parameters;
  void* few[] = {&x, &total, &y, p};
  void* count[] = {&x, &places, p};
  void* add_up[] = {&places, &total, p};
  void* write[] = {&x, &places, &total, &y, p};
  if (state->is_few)
    return rabbet_cuda_launch(kernel->node.device, &launches[FEW], few,
                              call->stream);
  RABBET_RETURN_IF_ERROR(rabbet_cuda_launch(
      kernel->node.device, &launches[COUNT], count, call->stream));
  RABBET_RETURN_IF_ERROR(rabbet_cuda_launch(
      kernel->node.device, &launches[ADD_UP], add_up, call->stream));
  return rabbet_cuda_launch(kernel->node.device, &launches[WRITE], write,
                            call->stream);
}

RABBET_TAKES_NODE(cuda_non_zero, NON_ZERO, 0)

RABBET_CUDA_NODE_CLASS(cuda_non_zero, cuda_non_zero_kernel_t, "cuda.non_zero",
                       1);
