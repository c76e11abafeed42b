// The order of collectives.
//
// Ranks that build their own plans may choose other kernels, and steps that do
// not depend on each other may then come in another order; ranks that exchange
// in different orders get each other's data, or wait for ever. So a collective
// that does not depend on the one before it in the network is made to.
#include "builder/ir/passes.h"
#include "ops/collective/dist_collective.h"

enum { ORDER_AFTER = 1 };  // input

// Whether the node needs `value`, which nodes from `first` on read.
static bool order_needs(const rabbet_ir_t* ir, size_t first, size_t node,
                        int32_t value, bool* needs) {
  for (size_t i = first; i <= node; ++i) {
    const rabbet_ir_node_t* at = ir->nodes.data[i];
    for (size_t k = 0; !at->dead && k < at->input_count; ++k)
      if (at->inputs[k] >= 0 &&
          (at->inputs[k] == value || needs[at->inputs[k]]))
        for (size_t o = 0; o < at->output_count; ++o)
          needs[at->outputs[o]] = true;
  }
  return needs[ir->nodes.data[node]->outputs[0]];
}

static rabbet_status_t order_after(rabbet_build_t* build,
                                   rabbet_ir_node_t* node, int32_t value) {
  int32_t* inputs = NULL;
  RABBET_RETURN_IF_ERROR(rabbet_arena_allocate_array(
      &build->arena, ORDER_AFTER + 1, sizeof(*inputs), (void**)&inputs));
  inputs[0] = node->inputs[0];
  inputs[ORDER_AFTER] = -1;
  node->inputs = inputs;
  node->input_count = ORDER_AFTER + 1;
  rabbet_ir_set_input(&build->ir, node, ORDER_AFTER, value);
  return rabbet_ok();
}

rabbet_status_t rabbet_pass_collective_order(rabbet_build_t* build) {
  rabbet_ir_t* ir = &build->ir;
  size_t before = SIZE_MAX;
  for (size_t i = 0; i < ir->nodes.count; ++i) {
    rabbet_ir_node_t* node = ir->nodes.data[i];
    if (node->dead || !rabbet_collective_exchanges(node->op, node->attrs))
      continue;
    if (before != SIZE_MAX && node->input_count == 1) {
      int32_t value = ir->nodes.data[before]->outputs[0];
      bool* needs = NULL;
      RABBET_RETURN_IF_ERROR(rabbet_allocate(
          build->allocator, ir->values.count * sizeof(*needs), (void**)&needs));
      bool needed = order_needs(ir, before + 1, i, value, needs);
      rabbet_free(build->allocator, needs);
      if (!needed) RABBET_RETURN_IF_ERROR(order_after(build, node, value));
    }
    before = i;
  }
  return rabbet_ok();
}
