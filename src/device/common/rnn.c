#include "device/common/rnn.h"

static rabbet_status_t rnn_body(rabbet_proposal_t* proposal) {
  return rabbet_proposal_offer_linear(proposal, "steps", -1);
}

rabbet_status_t rabbet_rnn_propose(const rabbet_propose_t* propose,
                                   rabbet_candidate_sink_t sink,
                                   const rabbet_kernel_class_t* kernel) {
  if (!rabbet_node_is(propose->group, RABBET_OP_RNN)) return rabbet_ok();
  return rabbet_proposal_make(propose, sink, kernel, NULL, rnn_body);
}

rabbet_status_t rabbet_rnn_read_node(const rabbet_group_node_t* node,
                                     const rabbet_dims_t* dims,
                                     rabbet_rnn_t* out_rnn) {
  const rabbet_dims_t* inputs[RABBET_RNN_INPUTS] = {NULL};
  for (size_t i = 0; i < RABBET_RNN_INPUTS; ++i) {
    int32_t value = rabbet_node_input(node, i);
    if (value >= 0) inputs[i] = &dims[value];
  }
  return RABBET_ANNOTATE(
      rabbet_rnn_read(node->attrs, node->op->attr_count, inputs, out_rnn),
      "layer '%s'", node->name);
}
