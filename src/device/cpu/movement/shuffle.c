// Transpose, reshape, transpose: one strided move if strides can express it,
// otherwise two with a tensor in the workspace between them.
#include "device/common/shuffle.h"
#include "device/cpu/cpu.h"
#include "device/cpu/movement/move.h"

typedef struct cpu_shuffle_state_t {
  rabbet_move_t first, second;
  bool has_second;
} cpu_shuffle_state_t;

// ---- The class -------------------------------------------------------------

static rabbet_status_t cpu_shuffle_body(rabbet_proposal_t* proposal) {
  const rabbet_group_t* group = proposal->propose->group;
  const rabbet_group_node_t* node = proposal->node;
  int32_t in = node->inputs[0], out = node->outputs[0];
  const rabbet_format_t formats[] = {RABBET_FORMAT_LINEAR, RABBET_FORMAT_HWC,
                                     rabbet_cpu_blocked_format()};
  rabbet_dtype_t types[4];
  int count =
      rabbet_compute_types(proposal->propose, group->values[in].dtype, types);
  for (int i = 0; i < 9; ++i) {
    rabbet_box_t box;
    rabbet_format_t from = formats[i / 3], to = formats[i % 3];
    if (!rabbet_box(&group->values[in].dims, from, &box) ||
        !rabbet_box(&group->values[out].dims, to, &box)) {
      continue;
    }
    int32_t over = rabbet_shuffle_is_reshape(node, from, to)
                       ? rabbet_group_input_of(group, in)
                       : -1;
    for (int t = 0; t < count; ++t) {
      rabbet_proposal_set_input(proposal, 0, types[t], from);
      rabbet_proposal_set_output(proposal, types[t], to);
      RABBET_RETURN_IF_ERROR(
          rabbet_proposal_offer(proposal, "strided move", over));
    }
  }
  return rabbet_ok();
}

RABBET_PROPOSE_FOR(cpu_shuffle, SHUFFLE)

static rabbet_status_t cpu_shuffle_prepare(rabbet_kernel_t* base,
                                           const rabbet_kernel_shapes_t* shapes,
                                           cpu_shuffle_state_t** out_state,
                                           size_t* out_workspace) {
  const rabbet_node_kernel_t* kernel = (const rabbet_node_kernel_t*)base;
  rabbet_shuffle_t shuffle;
  *out_workspace = 0;
  RABBET_RETURN_IF_ERROR(
      rabbet_shuffle_resolve(kernel, shapes->dims, &shuffle));
  RABBET_RETURN_IF_ERROR(
      rabbet_node_state_allocate(base, sizeof(**out_state), (void**)out_state));
  cpu_shuffle_state_t* state = *out_state;
  const rabbet_shuffle_step_t* steps = shuffle.steps;
  if (shuffle.step_count > 0)
    rabbet_move_plan(steps[0].rank, steps[0].extents, steps[0].sources,
                     steps[0].targets, shuffle.size, &state->first);
  if (shuffle.step_count > 1)
    rabbet_move_plan(steps[1].rank, steps[1].extents, steps[1].sources,
                     steps[1].targets, shuffle.size, &state->second);
  state->has_second = shuffle.step_count > 1;
  *out_workspace = shuffle.workspace;
  return rabbet_ok();
}

static rabbet_status_t cpu_shuffle_enqueue(rabbet_kernel_t* base,
                                           cpu_shuffle_state_t* state,
                                           const rabbet_kernel_call_t* call) {
  const rabbet_node_kernel_t* kernel = (const rabbet_node_kernel_t*)base;
  const void* source = call->inputs[rabbet_group_input_of(
      kernel->group, kernel->node->inputs[0])];
  void* between = state->has_second ? call->workspace : call->outputs[0];
  rabbet_move_run(&state->first, source, between);
  if (state->has_second) {
    rabbet_move_run(&state->second, between, call->outputs[0]);
  }
  return rabbet_ok();
}

RABBET_TAKES_NODE(cpu_shuffle, SHUFFLE, RABBET_TAKES_FORMATS)

RABBET_NODE_CLASS_WITH(cpu_shuffle, "cpu.shuffle", 1, RABBET_KERNEL_DOUBLE);
