#include "device/common/kv_cache.h"

#include <assert.h>
#include <stdio.h>

static rabbet_status_t kv_cache_body(rabbet_proposal_t* proposal) {
  const rabbet_group_t* group = proposal->propose->group;
  const int32_t aliased =
      rabbet_group_input_of(group, proposal->node->inputs[0]);
  assert(aliased >= 0);
  rabbet_candidate_t candidate = {.kernel = proposal->kernel,
                                  .tensors = proposal->tensors,
                                  .aliased = &aliased};
  snprintf(candidate.tactic_name, sizeof(candidate.tactic_name), "in place");
  return rabbet_offer(proposal->propose, proposal->sink, &candidate);
}

rabbet_status_t rabbet_kv_cache_propose(const rabbet_propose_t* propose,
                                        rabbet_candidate_sink_t sink,
                                        const rabbet_kernel_class_t* kernel) {
  return rabbet_proposal_make_for(propose, sink, RABBET_OP_KV_CACHE_UPDATE,
                                  kernel, kv_cache_body);
}

rabbet_status_t rabbet_kv_cache_check_types(const rabbet_group_t* group,
                                            const rabbet_group_node_t* node) {
  const rabbet_group_value_t* values = group->values;
  rabbet_dtype_t cache = values[node->inputs[0]].dtype;
  rabbet_dtype_t update = values[node->inputs[1]].dtype;
  int32_t indices = rabbet_node_input(node, 2);
  rabbet_dtype_t index =
      indices < 0 ? RABBET_DTYPE_INT32 : values[indices].dtype;
  if (rabbet_dtype_bits(cache) % 8 == 0 && update == cache &&
      values[node->outputs[0]].dtype == cache &&
      (index == RABBET_DTYPE_INT32 || index == RABBET_DTYPE_INT64))
    return rabbet_ok();
  return RABBET_STATUS(
      RABBET_STATUS_UNSUPPORTED,
      "layer '%s': elements of %s cannot be put into a cache of %s by indices "
      "of %s",
      node->name, rabbet_dtype_name(update), rabbet_dtype_name(cache),
      rabbet_dtype_name(index));
}

rabbet_status_t rabbet_kv_cache_resolve_node(const rabbet_group_node_t* node,
                                             const rabbet_dims_t* dims,
                                             rabbet_kv_cache_rows_t* out_rows) {
  int32_t indices = rabbet_node_input(node, 2);
  return RABBET_ANNOTATE(
      rabbet_kv_cache_resolve(&dims[node->inputs[0]], &dims[node->inputs[1]],
                              indices < 0 ? NULL : &dims[indices],
                              rabbet_node_int(node, "axis"), out_rows),
      "layer '%s'", node->name);
}
