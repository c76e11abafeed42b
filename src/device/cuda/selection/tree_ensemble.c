// Decision trees: a block aggregates the trees of a row.
#include "ops/selection/tree_ensemble.h"

#include "device/cuda/programs/node.h"

enum { THREADS = 128, MOST_BLOCKS = 1 << 16 };

typedef struct cuda_tree_ensemble_kernel_t {
  rabbet_cuda_node_t node;
  CUfunction one, many;  // targets
} cuda_tree_ensemble_kernel_t;

typedef struct cuda_tree_ensemble_state_t {
  rabbet_tree_ensemble_t parameters;
  rabbet_cuda_launch_t launch;
} cuda_tree_ensemble_state_t;

// Offers only FLOAT: rounded features would reach other leaves.
static rabbet_status_t cuda_tree_ensemble_body(rabbet_proposal_t* proposal) {
  return rabbet_proposal_offer(proposal, "rows", -1);
}

RABBET_PROPOSE_FOR(cuda_tree_ensemble, TREE_ENSEMBLE)

static rabbet_status_t cuda_tree_ensemble_program(
    rabbet_cuda_node_t* node, const rabbet_kernel_spec_t* spec) {
  cuda_tree_ensemble_kernel_t* kernel = (cuda_tree_ensemble_kernel_t*)node;
  rabbet_cuda_options_t options = {.count = 0};
  rabbet_cuda_option(
      &options, "-DAGGREGATE=%d",
      (int)rabbet_node_int(node->node.node, "aggregate_function"));
  RABBET_RETURN_IF_ERROR(rabbet_cuda_node_add(
      node, spec, "selection/tree_ensemble.cu", NULL, &options));
  RABBET_RETURN_IF_ERROR(
      rabbet_cuda_node_function(node, 0, "trees_of_one", &kernel->one));
  return rabbet_cuda_node_function(node, 0, "trees_of_many", &kernel->many);
}

static rabbet_status_t cuda_tree_ensemble_prepare(
    rabbet_kernel_t* base, const rabbet_kernel_shapes_t* shapes,
    cuda_tree_ensemble_state_t** out_state, size_t* out_workspace) {
  const cuda_tree_ensemble_kernel_t* kernel =
      (const cuda_tree_ensemble_kernel_t*)base;
  const rabbet_group_node_t* layer = kernel->node.node.node;
  const rabbet_dims_t* dims[RABBET_TREE_INPUTS];
  rabbet_tree_ensemble_t p;
  *out_workspace = 0;
  *out_state = NULL;
  for (size_t i = 0; i < RABBET_TREE_INPUTS; ++i)
    dims[i] = &shapes->dims[layer->inputs[i]];
  RABBET_RETURN_IF_ERROR(RABBET_ANNOTATE(
      rabbet_tree_ensemble_read(layer->attrs, layer->op->attr_count, dims, &p),
      "layer '%s'", layer->name));
  RABBET_RETURN_IF_ERROR(
      rabbet_node_state_allocate(base, sizeof(**out_state), (void**)out_state));
  (*out_state)->parameters = p;
  (*out_state)->launch = (rabbet_cuda_launch_t){
      .function = p.targets == 1 ? kernel->one : kernel->many,
      .grid = {(unsigned)rabbet_min_i64(p.rows, MOST_BLOCKS), 1, 1},
      .block = {THREADS, 1, 1}};
  return rabbet_ok();
}

static rabbet_status_t cuda_tree_ensemble_enqueue(
    rabbet_kernel_t* base, cuda_tree_ensemble_state_t* state,
    const rabbet_kernel_call_t* call) {
  const cuda_tree_ensemble_kernel_t* kernel =
      (const cuda_tree_ensemble_kernel_t*)base;
  const rabbet_node_kernel_t* node = &kernel->node.node;
  const void* in[RABBET_TREE_INPUTS];
  void* out = rabbet_node_output(node, call, 0);
  if (state->parameters.rows == 0) return rabbet_ok();
  for (size_t i = 0; i < RABBET_TREE_INPUTS; ++i)
    in[i] = rabbet_node_input_at(node, call, i);
  void* parameters[] = {
      &in[0], &in[1], &in[2], &in[3], &in[4], &out, &state->parameters};
  return rabbet_cuda_launch(kernel->node.device, &state->launch, parameters,
                            call->stream);
}

RABBET_TAKES_NODE(cuda_tree_ensemble, TREE_ENSEMBLE, 0)

RABBET_CUDA_NODE_CLASS(cuda_tree_ensemble, cuda_tree_ensemble_kernel_t,
                       "cuda.tree_ensemble", 1);
