// Determinants: a thread or a block computes one.
#include "ops/products/determinant.h"

#include "device/cuda/programs/node.h"

enum { THREADS = 256, MOST_BLOCKS = 65535 };
// The largest orders of matrices in registers and in shared memory.
enum { THREAD_ORDER = 4, SHARED_ORDER = 96 };
// The workspace for matrices, in bytes, unless one matrix needs more.
enum { WORKSPACE_BYTES = 1 << 28 };

typedef struct cuda_determinant_kernel_t {
  rabbet_cuda_node_t node;
  CUfunction threads, blocks;
} cuda_determinant_kernel_t;

typedef struct cuda_determinant_state_t {
  rabbet_determinant_t parameters;
  int64_t stride;
  bool in_workspace;
  rabbet_cuda_launch_t launch;
} cuda_determinant_state_t;

// Offers only the network's type: rounding the elements can change all digits
// of the result.
static rabbet_status_t cuda_determinant_body(rabbet_proposal_t* proposal) {
  return rabbet_proposal_offer(proposal, "elimination", -1);
}

RABBET_PROPOSE_FOR(cuda_determinant, DETERMINANT)

static rabbet_status_t cuda_determinant_program(
    rabbet_cuda_node_t* node, const rabbet_kernel_spec_t* spec) {
  cuda_determinant_kernel_t* kernel = (cuda_determinant_kernel_t*)node;
  const rabbet_group_node_t* layer = node->node.node;
  rabbet_cuda_options_t options = {.count = 0};
  rabbet_cuda_option(
      &options, "-DELEMENT=%s",
      rabbet_cuda_type(spec->group->values[layer->inputs[0]].dtype));
  RABBET_RETURN_IF_ERROR(rabbet_cuda_node_add(
      node, spec, "products/determinant.cu", NULL, &options));
  RABBET_RETURN_IF_ERROR(rabbet_cuda_node_function(
      node, 0, "determinant_threads", &kernel->threads));
  return rabbet_cuda_node_function(node, 0, "determinant_blocks",
                                   &kernel->blocks);
}

// Matrices of THREAD_ORDER or less.
static rabbet_status_t determinant_launch_threads(
    const cuda_determinant_kernel_t* kernel, cuda_determinant_state_t* state) {
  int64_t blocks = rabbet_ceildiv(state->parameters.count, (int64_t)THREADS);
  if (blocks > INT32_MAX)
    return RABBET_STATUS(RABBET_STATUS_OUT_OF_RANGE,
                         "layer '%s': there are %lld matrices; expected at "
                         "most 2^31 times %d",
                         kernel->node.node.node->name,
                         (long long)state->parameters.count, THREADS);
  state->launch = (rabbet_cuda_launch_t){.function = kernel->threads,
                                         .grid = {(unsigned)blocks, 1, 1},
                                         .block = {THREADS, 1, 1}};
  return rabbet_ok();
}

static void determinant_launch_blocks(const cuda_determinant_kernel_t* kernel,
                                      cuda_determinant_state_t* state,
                                      size_t* out_workspace) {
  int64_t order = state->parameters.order;
  state->stride = order | 1;  // columns lie in all banks of shared memory
  int64_t bytes = order * state->stride * (int64_t)sizeof(float);
  int64_t most = MOST_BLOCKS;
  state->in_workspace = order > SHARED_ORDER;
  if (state->in_workspace) most = rabbet_max_i64(1, WORKSPACE_BYTES / bytes);
  int64_t blocks = rabbet_min_i64(state->parameters.count, most);
  if (state->in_workspace) *out_workspace = (size_t)(blocks * bytes);
  state->launch = (rabbet_cuda_launch_t){
      .function = kernel->blocks,
      .grid = {(unsigned)blocks, 1, 1},
      .block = {order <= 8    ? 32
                : order <= 32 ? 128
                              : THREADS,
                1, 1},
      .shared_bytes = state->in_workspace ? 0 : (unsigned)bytes};
}

static rabbet_status_t cuda_determinant_prepare(
    rabbet_kernel_t* base, const rabbet_kernel_shapes_t* shapes,
    cuda_determinant_state_t** out_state, size_t* out_workspace) {
  const cuda_determinant_kernel_t* kernel =
      (const cuda_determinant_kernel_t*)base;
  const rabbet_group_node_t* layer = kernel->node.node.node;
  cuda_determinant_state_t* state = NULL;
  *out_workspace = 0;
  *out_state = NULL;
  RABBET_RETURN_IF_ERROR(
      rabbet_node_state_allocate(base, sizeof(*state), (void**)&state));
  rabbet_status_t status =
      RABBET_ANNOTATE(rabbet_determinant_read(&shapes->dims[layer->inputs[0]],
                                              &state->parameters),
                      "layer '%s'", layer->name);
  if (rabbet_is_ok(status)) {
    if (state->parameters.order <= THREAD_ORDER)
      status = determinant_launch_threads(kernel, state);
    else
      determinant_launch_blocks(kernel, state, out_workspace);
  }
  return rabbet_node_state_finish(base, state, status, (void**)out_state);
}

static rabbet_status_t cuda_determinant_enqueue(
    rabbet_kernel_t* base, cuda_determinant_state_t* state,
    const rabbet_kernel_call_t* call) {
  const cuda_determinant_kernel_t* kernel =
      (const cuda_determinant_kernel_t*)base;
  if (state->parameters.count == 0) return rabbet_ok();
  const void* in = rabbet_node_input_at(&kernel->node.node, call, 0);
  void* out = rabbet_node_output(&kernel->node.node, call, 0);
  void* memory = state->in_workspace ? call->workspace : NULL;
  void* few[] = {&in, &out, &state->parameters};
  void* many[] = {&in, &out, &memory, &state->parameters, &state->stride};
  bool is_small = state->parameters.order <= THREAD_ORDER;
  return rabbet_cuda_launch(kernel->node.device, &state->launch,
                            is_small ? few : many, call->stream);
}

RABBET_TAKES_NODE(cuda_determinant, DETERMINANT, 0)

RABBET_CUDA_NODE_CLASS(cuda_determinant, cuda_determinant_kernel_t,
                       "cuda.determinant", 1);
