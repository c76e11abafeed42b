// The gate of squeeze and excitation (fuse.h).
#include "builder/choose/fuse.h"
#include "builder/ir/passes.h"
#include "ops/enums.h"

typedef struct squeeze_walk_t {
  const rabbet_ir_t* ir;
  rabbet_ir_node_t** nodes;
  size_t count;
  int products, reductions;
} squeeze_walk_t;

static bool squeeze_has(const squeeze_walk_t* walk,
                        const rabbet_ir_node_t* node) {
  for (size_t i = 0; i < walk->count; ++i)
    if (walk->nodes[i] == node) return true;
  return false;
}

// Whether all axes but the first two have extent 1.
static bool squeeze_is_pixel(const rabbet_ir_t* ir,
                             const rabbet_ir_value_t* value) {
  for (int32_t i = 2; i < value->shape.rank; ++i) {
    int64_t extent = 0;
    if (!rabbet_expr_is_constant(ir->graph, value->shape.d[i], &extent) ||
        extent != 1)
      return false;
  }
  return value->shape.rank > 2;
}

// Adds the node and those before it, up to the reduction. A node is listed
// before those that make its inputs.
static bool squeeze_visit(squeeze_walk_t* walk, rabbet_ir_node_t* node) {
  const rabbet_ir_t* ir = walk->ir;
  uint32_t kind = node ? rabbet_fuse_kind(ir, node) : 0;
  if (kind == 0 || !squeeze_is_pixel(ir, rabbet_ir_output(ir, node, 0)))
    return false;
  if (squeeze_has(walk, node)) return true;
  if (walk->count == RABBET_FUSE_SQUEEZE_MAX) return false;
  walk->nodes[walk->count++] = node;
  if (rabbet_op_is(node->op, RABBET_OP_REDUCE)) return ++walk->reductions == 1;
  size_t inputs = node->input_count;
  if (rabbet_op_is(node->op, RABBET_OP_CONVOLUTION)) {
    if (!rabbet_ir_input(ir, node, 1)->constant || ++walk->products > 2)
      return false;
    inputs = 1;  // others are weights
  } else if (kind != RABBET_FUSE_POINTWISE) {
    return false;
  }
  for (size_t i = 0; i < inputs; ++i) {
    const rabbet_ir_value_t* value = rabbet_ir_input(ir, node, i);
    if (value && !value->constant && !squeeze_visit(walk, value->producer))
      return false;
  }
  return true;
}

// Whether nothing outside reads the results of nodes before the last.
static bool squeeze_is_closed(const squeeze_walk_t* walk) {
  for (size_t i = 1; i < walk->count; ++i) {
    const rabbet_ir_node_t* node = walk->nodes[i];
    const rabbet_ir_value_t* value = rabbet_ir_output(walk->ir, node, 0);
    int32_t uses = 0;
    for (size_t k = 0; k < walk->count; ++k)
      for (size_t m = 0; m < walk->nodes[k]->input_count; ++m)
        uses += rabbet_ir_input(walk->ir, walk->nodes[k], m) == value;
    if (uses != value->uses || rabbet_fuse_is_exit(walk->ir, node))
      return false;
  }
  return true;
}

size_t rabbet_fuse_squeeze(
    const rabbet_build_t* build, rabbet_ir_node_t* last,
    rabbet_ir_node_t* out_nodes[RABBET_FUSE_SQUEEZE_MAX]) {
  squeeze_walk_t walk = {.ir = &build->ir, .nodes = out_nodes};
  if ((build->device->traits & RABBET_DEVICE_SQUEEZE) == 0 ||
      !squeeze_visit(&walk, last) || walk.reductions != 1 ||
      walk.products == 0 || !squeeze_is_closed(&walk))
    return 0;
  return walk.count;
}
