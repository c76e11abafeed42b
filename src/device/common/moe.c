#include "device/common/moe.h"

#include <assert.h>

static rabbet_status_t moe_body(rabbet_proposal_t* proposal) {
  return rabbet_proposal_offer_linear(proposal, "chosen", -1);
}

rabbet_status_t rabbet_moe_propose(const rabbet_propose_t* propose,
                                   rabbet_candidate_sink_t sink,
                                   const rabbet_kernel_class_t* kernel) {
  return rabbet_proposal_make_for(propose, sink, RABBET_OP_MOE, kernel,
                                  moe_body);
}

rabbet_status_t rabbet_moe_resolve_node(const rabbet_group_node_t* node,
                                        const rabbet_dims_t* dims,
                                        rabbet_moe_sizes_t* out_sizes) {
  const rabbet_dims_t* inputs[RABBET_MOE_INPUTS] = {NULL};
  for (size_t i = 0; i < RABBET_MOE_INPUTS; ++i) {
    int32_t value = rabbet_node_input(node, i);
    if (value >= 0) inputs[i] = &dims[value];
  }
  return RABBET_ANNOTATE(rabbet_moe_resolve(inputs, out_sizes), "layer '%s'",
                         node->name);
}

rabbet_status_t rabbet_moe_check_types(const rabbet_group_t* group,
                                       const rabbet_group_node_t* node) {
  rabbet_dtype_t dtype = group->values[node->inputs[RABBET_MOE_HIDDEN]].dtype;
  rabbet_dtype_t index = group->values[node->inputs[RABBET_MOE_EXPERTS]].dtype;
  bool is_gated = rabbet_node_input(node, RABBET_MOE_GATE) >= 0 ||
                  rabbet_node_input(node, RABBET_MOE_UP) >= 0;
  bool fits = index == RABBET_DTYPE_INT32 || index == RABBET_DTYPE_INT64;
  fits = fits && (dtype == RABBET_DTYPE_FLOAT || dtype == RABBET_DTYPE_HALF ||
                  dtype == RABBET_DTYPE_BF16);
  fits = fits && group->values[node->outputs[0]].dtype == dtype;
  for (size_t i = RABBET_MOE_SCORES; i <= RABBET_MOE_DOWN_BIAS; ++i) {
    int32_t value = rabbet_node_input(node, i);
    bool may_lack = i >= RABBET_MOE_GATE_BIAS || i == RABBET_MOE_SCORES ||
                    (!is_gated && i >= RABBET_MOE_GATE && i <= RABBET_MOE_UP);
    fits = fits && (value < 0 ? may_lack : group->values[value].dtype == dtype);
  }
  if (fits) return rabbet_ok();
  return RABBET_STATUS(RABBET_STATUS_UNSUPPORTED,
                       "layer '%s': experts for hidden states of %s have "
                       "weights, scores or biases of another type, or none",
                       node->name, rabbet_dtype_name(dtype));
}

bool rabbet_moe_reserve(size_t alignment, int64_t a, int64_t b, size_t size,
                        size_t* total, size_t* out_place) {
  size_t bytes = 0;
  assert(a >= 0 && b >= 0 && *total % alignment == 0);
  *out_place = *total;
  if (!rabbet_checked_mul((size_t)a, (size_t)b, &bytes) ||
      !rabbet_checked_mul(bytes, size, &bytes) ||
      !rabbet_checked_add(*total, bytes, total) ||
      *total > PTRDIFF_MAX - alignment)
    return false;
  *total = rabbet_align_up(*total, alignment);
  return true;
}
