// Layers whose outputs are known before they run: shapes and constants.
#include <string.h>

#include "device/cpu/cpu.h"
#include "device/cpu/movement/move.h"

typedef struct cpu_constant_output_state_t {
  const void* data;  // a constant's, or `dims`
  int64_t bytes;
  int64_t dims[RABBET_MAX_RANK];
} cpu_constant_output_state_t;

static rabbet_status_t cpu_constant_output_body(rabbet_proposal_t* proposal) {
  return rabbet_proposal_offer(proposal, "copy", -1);
}

static rabbet_status_t cpu_constant_output_propose(
    const rabbet_propose_t* propose, rabbet_candidate_sink_t sink) {
  if (!rabbet_node_is(propose->group, RABBET_OP_SHAPE) &&
      !rabbet_node_is(propose->group, RABBET_OP_CONSTANT)) {
    return rabbet_ok();
  }
  return rabbet_proposal_make(propose, sink, &rabbet_cpu_constant_output, NULL,
                              cpu_constant_output_body);
}

static rabbet_status_t cpu_constant_output_prepare(
    rabbet_kernel_t* base, const rabbet_kernel_shapes_t* shapes,
    cpu_constant_output_state_t** out_state, size_t* out_workspace) {
  const rabbet_group_node_t* node = ((rabbet_node_kernel_t*)base)->node;
  *out_workspace = 0;
  RABBET_RETURN_IF_ERROR(
      rabbet_node_state_allocate(base, sizeof(**out_state), (void**)out_state));
  cpu_constant_output_state_t* state = *out_state;
  if (rabbet_op_is(node->op, RABBET_OP_SHAPE)) {
    const rabbet_dims_t* dims = &shapes->dims[node->inputs[0]];
    state->bytes = dims->rank * (int64_t)sizeof(int64_t);
    memcpy(state->dims, dims->d, (size_t)state->bytes);
    state->data = state->dims;
  } else {
    const rabbet_attr_t* weights =
        rabbet_attr_find(node->attrs, node->op->attr_count, "weights");
    state->bytes = (int64_t)rabbet_attr_bytes(weights);
    state->data = weights->data;
  }
  return rabbet_ok();
}

static rabbet_status_t cpu_constant_output_enqueue(
    rabbet_kernel_t* base, cpu_constant_output_state_t* state,
    const rabbet_kernel_call_t* call) {
  (void)base;
  rabbet_copy_flat(call->outputs[0], state->data, state->bytes);
  return rabbet_ok();
}

static bool cpu_constant_output_takes(const rabbet_kernel_spec_t* spec) {
  return rabbet_takes_node(spec->group, RABBET_OP_SHAPE, 0) ||
         rabbet_takes_node(spec->group, RABBET_OP_CONSTANT, 0);
}

RABBET_NODE_CLASS_WITH(cpu_constant_output, "cpu.constant_output", 1,
                       RABBET_KERNEL_DOUBLE);
