#include "device/common/nms.h"

rabbet_status_t rabbet_nms_resolve_node(const rabbet_node_kernel_t* kernel,
                                        const rabbet_kernel_shapes_t* shapes,
                                        rabbet_nms_t* out_nms) {
  const rabbet_group_node_t* node = kernel->node;
  rabbet_view_t views[RABBET_NMS_INPUTS + 2];
  rabbet_op_eval_t eval;
  rabbet_node_eval(kernel->group, shapes->dims, shapes->host_values,
                   kernel->allocator, views, &eval);
  const rabbet_view_t* most = &eval.inputs[RABBET_NMS_MOST];
  return RABBET_ANNOTATE(
      rabbet_nms_plan(node->attrs, node->op->attr_count,
                      &shapes->dims[node->inputs[RABBET_NMS_BOXES]],
                      &shapes->dims[node->inputs[RABBET_NMS_SCORES]],
                      most->data, most->dtype, out_nms),
      "layer '%s'", node->name);
}
