// Transpose, reshape, transpose: no move if the memory stays the same, one if
// strides can express it, otherwise two moves with a tensor in the workspace
// between them. Bound by bytes: a move reads and writes every element once.
#include "device/common/shuffle.h"

#include "device/cuda/movement/move.h"

typedef struct cuda_shuffle_kernel_t {
  rabbet_cuda_node_t node;
  rabbet_cuda_mover_t mover;
} cuda_shuffle_kernel_t;

typedef struct cuda_shuffle_state_t {
  size_t count;
  rabbet_cuda_move_t moves[2];
} cuda_shuffle_state_t;

static rabbet_status_t cuda_shuffle_offer(rabbet_proposal_t* proposal,
                                          rabbet_dtype_t dtype,
                                          rabbet_format_t from,
                                          rabbet_format_t to) {
  const rabbet_group_t* group = proposal->propose->group;
  const rabbet_group_node_t* node = proposal->node;
  int32_t in = node->inputs[0], out = node->outputs[0];
  rabbet_box_t box;
  if (!rabbet_box(&group->values[in].dims, from, &box) ||
      !rabbet_box(&group->values[out].dims, to, &box))
    return rabbet_ok();
  int32_t over = rabbet_shuffle_is_reshape(node, from, to)
                     ? rabbet_group_input_of(group, in)
                     : -1;
  rabbet_proposal_set_input(proposal, 0, dtype, from);
  rabbet_proposal_set_output(proposal, dtype, to);
  return rabbet_proposal_offer(proposal, "strided move", over);
}

static rabbet_status_t cuda_shuffle_body(rabbet_proposal_t* proposal) {
  const rabbet_group_t* group = proposal->propose->group;
  rabbet_dtype_t types[4];
  int count = rabbet_compute_types(
      proposal->propose, group->values[proposal->node->inputs[0]].dtype, types);
  for (int t = 0; t < count; ++t) {
    rabbet_format_t formats[RABBET_CUDA_FORMATS];
    int n = rabbet_cuda_formats(types[t], 0, formats);
    for (int i = 0; i < n * n; ++i) {
      rabbet_format_t from = formats[i / n], to = formats[i % n];
      // Between two channels-last formats another class converts.
      if (from != to && from != RABBET_FORMAT_LINEAR &&
          to != RABBET_FORMAT_LINEAR)
        continue;
      RABBET_RETURN_IF_ERROR(cuda_shuffle_offer(proposal, types[t], from, to));
    }
  }
  return rabbet_ok();
}

RABBET_PROPOSE_FOR(cuda_shuffle, SHUFFLE)

static rabbet_status_t cuda_shuffle_program(rabbet_cuda_node_t* node,
                                            const rabbet_kernel_spec_t* spec) {
  cuda_shuffle_kernel_t* kernel = (cuda_shuffle_kernel_t*)node;
  if (!rabbet_node_is(spec->group, RABBET_OP_SHUFFLE))
    return RABBET_STATUS(RABBET_STATUS_INVALID_ARGUMENT,
                         "layer '%s' is no shuffle", node->node.node->name);
  return rabbet_cuda_mover_create(
      node, spec, spec->group->values[node->node.node->inputs[0]].dtype, true,
      &kernel->mover);
}

static rabbet_status_t cuda_shuffle_prepare(
    rabbet_kernel_t* base, const rabbet_kernel_shapes_t* shapes,
    cuda_shuffle_state_t** out_state, size_t* out_workspace) {
  const cuda_shuffle_kernel_t* kernel = (const cuda_shuffle_kernel_t*)base;
  const rabbet_node_kernel_t* node = &kernel->node.node;
  rabbet_shuffle_t shuffle;
  int64_t count = 0;
  *out_workspace = 0;
  RABBET_RETURN_IF_ERROR(rabbet_shuffle_resolve(node, shapes->dims, &shuffle));
  RABBET_RETURN_IF_ERROR(
      rabbet_dims_count(&shapes->dims[node->node->inputs[0]], &count));
  RABBET_RETURN_IF_ERROR(
      rabbet_node_state_allocate(base, sizeof(**out_state), (void**)out_state));
  cuda_shuffle_state_t* state = *out_state;
  state->count = shuffle.step_count;
  for (size_t i = 0; i < shuffle.step_count; ++i) {
    const rabbet_shuffle_step_t* step = &shuffle.steps[i];
    rabbet_strided_t strided;
    rabbet_strided_plan(step->rank, step->extents, step->sources, step->targets,
                        shuffle.size, &strided);
    rabbet_cuda_move_strided(&kernel->mover, &strided, count, &state->moves[i]);
  }
  *out_workspace = shuffle.workspace;
  return rabbet_ok();
}

static rabbet_status_t cuda_shuffle_enqueue(rabbet_kernel_t* base,
                                            cuda_shuffle_state_t* state,
                                            const rabbet_kernel_call_t* call) {
  const cuda_shuffle_kernel_t* kernel = (const cuda_shuffle_kernel_t*)base;
  const rabbet_node_kernel_t* node = &kernel->node.node;
  const void* source =
      call->inputs[rabbet_group_input_of(node->group, node->node->inputs[0])];
  for (size_t i = 0; i < state->count; ++i) {
    void* target = i + 1 < state->count ? call->workspace : call->outputs[0];
    RABBET_RETURN_IF_ERROR(rabbet_cuda_move_enqueue(
        &kernel->mover, &state->moves[i], source, target, NULL, call->stream));
    source = target;
  }
  return rabbet_ok();
}

RABBET_TAKES_NODE(cuda_shuffle, SHUFFLE, RABBET_TAKES_FORMATS)

RABBET_CUDA_NODE_CLASS(cuda_shuffle, cuda_shuffle_kernel_t, "cuda.shuffle", 2);
