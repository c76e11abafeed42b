#include "device/common/swish.h"

#include <math.h>

#include "device/common/node_kernel.h"
#include "ops/enums.h"

static bool swish_gates(const rabbet_group_node_t* product, int32_t x,
                        int32_t gate) {
  return rabbet_op_is(product->op, RABBET_OP_ELEMENTWISE) &&
         rabbet_node_int(product, "op") == RABBET_ELEMENTWISE_PROD &&
         ((product->inputs[0] == x && product->inputs[1] == gate) ||
          (product->inputs[0] == gate && product->inputs[1] == x));
}

static double swish_float(const rabbet_group_node_t* node, const char* name) {
  return rabbet_attr_float(node->attrs, node->op->attr_count, name, 0);
}

rabbet_swish_t rabbet_group_swish(const rabbet_group_t* group, size_t i,
                                  int32_t x) {
  if (i + 1 >= group->node_count) return RABBET_SWISH_NONE;
  const rabbet_group_node_t* gate = &group->nodes[i];
  if (!rabbet_op_is(gate->op, RABBET_OP_ACTIVATION) || gate->inputs[0] != x ||
      !swish_gates(&group->nodes[i + 1], x, gate->outputs[0]))
    return RABBET_SWISH_NONE;
  switch (rabbet_node_int(gate, "type")) {
    case RABBET_ACTIVATION_SIGMOID:
      return RABBET_SWISH_SIGMOID;
    case RABBET_ACTIVATION_HARD_SIGMOID:
      return fabs(swish_float(gate, "alpha") - 1.0 / 6) < 1e-6 &&
                     swish_float(gate, "beta") == 0.5
                 ? RABBET_SWISH_HARD
                 : RABBET_SWISH_NONE;
    default:
      return RABBET_SWISH_NONE;
  }
}
