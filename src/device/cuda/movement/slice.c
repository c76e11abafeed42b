// Strided windows, and padding by wrapping, clamping, filling or reflecting.
// Bound by bytes: the window is read once and the output written once, in
// pieces of 16 bytes for any alignment of its rows.
#include "device/cuda/movement/move.h"

enum { INPUT = 0, FILL = 4 };

typedef struct cuda_slice_kernel_t {
  rabbet_cuda_node_t node;
  rabbet_cuda_mover_t mover;
} cuda_slice_kernel_t;

typedef struct cuda_slice_state_t {
  rabbet_cuda_move_t move;
} cuda_slice_state_t;

static rabbet_status_t cuda_slice_body(rabbet_proposal_t* proposal) {
  rabbet_type_format_t layouts[RABBET_CUDA_LAYOUTS];
  int count = rabbet_cuda_layouts(proposal, layouts);
  for (int i = 0; i < count; ++i) {
    rabbet_dtype_t dtype = layouts[i].dtype;
    rabbet_format_t format = layouts[i].format;
    if (!rabbet_slice_fits(proposal->propose, format)) continue;
    rabbet_proposal_set_input(proposal, INPUT, dtype, format);
    rabbet_proposal_set_input(proposal, FILL, dtype, RABBET_FORMAT_LINEAR);
    rabbet_proposal_set_output(proposal, dtype, format);
    RABBET_RETURN_IF_ERROR(rabbet_proposal_offer(proposal, "pieces", -1));
  }
  return rabbet_ok();
}

RABBET_PROPOSE_FOR(cuda_slice, SLICE)

static rabbet_status_t cuda_slice_program(rabbet_cuda_node_t* node,
                                          const rabbet_kernel_spec_t* spec) {
  cuda_slice_kernel_t* kernel = (cuda_slice_kernel_t*)node;
  const rabbet_group_node_t* layer = node->node.node;
  if (!rabbet_node_is(spec->group, RABBET_OP_SLICE))
    return RABBET_STATUS(RABBET_STATUS_INVALID_ARGUMENT,
                         "layer '%s' is no slice", layer->name);
  rabbet_dtype_t dtype = spec->group->values[layer->inputs[INPUT]].dtype;
  int32_t fill = rabbet_node_input(layer, FILL);
  if (fill >= 0 && spec->group->values[fill].dtype != dtype)
    return RABBET_STATUS(
        RABBET_STATUS_INVALID_ARGUMENT,
        "layer '%s': the fill value is %s, expected %s as the input",
        layer->name, rabbet_dtype_name(spec->group->values[fill].dtype),
        rabbet_dtype_name(dtype));
  return rabbet_cuda_mover_create(node, spec, dtype, false, &kernel->mover);
}

static rabbet_status_t cuda_slice_prepare(rabbet_kernel_t* base,
                                          const rabbet_kernel_shapes_t* shapes,
                                          cuda_slice_state_t** out_state,
                                          size_t* out_workspace) {
  const cuda_slice_kernel_t* kernel = (const cuda_slice_kernel_t*)base;
  const rabbet_node_kernel_t* node = &kernel->node.node;
  rabbet_slice_window_t window;
  int64_t count = 0;
  *out_workspace = 0;
  RABBET_RETURN_IF_ERROR(rabbet_slice_window(node, shapes, &window));
  RABBET_RETURN_IF_ERROR(
      rabbet_dims_count(&shapes->dims[node->node->inputs[INPUT]], &count));
  RABBET_RETURN_IF_ERROR(
      rabbet_node_state_allocate(base, sizeof(**out_state), (void**)out_state));
  rabbet_cuda_move_window(&kernel->mover, &window, count, &(*out_state)->move);
  return rabbet_ok();
}

static rabbet_status_t cuda_slice_enqueue(rabbet_kernel_t* base,
                                          cuda_slice_state_t* state,
                                          const rabbet_kernel_call_t* call) {
  const cuda_slice_kernel_t* kernel = (const cuda_slice_kernel_t*)base;
  const rabbet_group_t* group = kernel->node.node.group;
  const rabbet_group_node_t* node = kernel->node.node.node;
  int32_t fill = rabbet_node_input(node, FILL);
  return rabbet_cuda_move_enqueue(
      &kernel->mover, &state->move,
      call->inputs[rabbet_group_input_of(group, node->inputs[INPUT])],
      call->outputs[0],
      fill < 0 ? NULL : call->inputs[rabbet_group_input_of(group, fill)],
      call->stream);
}

RABBET_TAKES_NODE(cuda_slice, SLICE, RABBET_TAKES_ONE_FORMAT)

RABBET_CUDA_NODE_CLASS(cuda_slice, cuda_slice_kernel_t, "cuda.slice", 2);
