// Masks that compare places of queries and keys, for each attention its own.
//
// The layers of a decoder share one causal mask. Where it is too large to be
// folded it is made in each run, and read by each layer. As a part of the
// attention it is two numbers, and the keys that it hides are left out.
#include "builder/choose/fuse.h"
#include "builder/ir/passes.h"

// Copies the nodes, of which each reads constants or others of them, in front
// of the reader; its input reads the last copy.
static rabbet_status_t masks_copy(rabbet_build_t* build,
                                  rabbet_ir_node_t* const* makers, size_t count,
                                  rabbet_ir_node_t* reader, size_t input) {
  rabbet_ir_t* ir = &build->ir;
  rabbet_ir_node_t* copies[RABBET_FUSE_MASK_MAX];
  for (size_t i = 0; i < count; ++i) {
    const rabbet_ir_node_t* node = makers[i];
    RABBET_RETURN_IF_ERROR(
        rabbet_ir_add_node(ir, rabbet_op_id(node->op), node->name, node->attrs,
                           node->op->attr_count, node->inputs,
                           node->input_count, reader, &copies[i]));
    for (size_t m = 0; m < i; ++m)
      for (size_t k = 0; k < node->input_count; ++k)
        if (node->inputs[k] == makers[m]->outputs[0])
          rabbet_ir_set_input(ir, copies[i], k, copies[m]->outputs[0]);
  }
  rabbet_ir_set_input(ir, reader, input, copies[count - 1]->outputs[0]);
  return rabbet_ok();
}

static rabbet_status_t masks_of(rabbet_build_t* build,
                                rabbet_ir_node_t* reader) {
  rabbet_ir_t* ir = &build->ir;
  for (size_t i = 0; i < reader->input_count; ++i) {
    rabbet_ir_node_t* makers[RABBET_FUSE_MASK_MAX];
    size_t count = rabbet_fuse_mask(ir, rabbet_ir_input(ir, reader, i), makers);
    bool shared = false;
    for (size_t m = 0; m < count; ++m)
      shared = shared || rabbet_ir_output(ir, makers[m], 0)->uses > 1;
    if (shared)
      RABBET_RETURN_IF_ERROR(masks_copy(build, makers, count, reader, i));
  }
  return rabbet_ok();
}

rabbet_status_t rabbet_pass_masks(rabbet_build_t* build) {
  rabbet_ir_t* ir = &build->ir;
  if (rabbet_fuse_reach(build) < RABBET_FUSE_PLACES) return rabbet_ok();
  for (size_t i = 0; i < ir->nodes.count; ++i) {
    rabbet_ir_node_t* last = ir->nodes.data[i];
    rabbet_ir_node_t* nodes[RABBET_FUSE_ATTENTION_MAX];
    size_t count = rabbet_fuse_attention(ir, last, RABBET_FUSE_PRODUCTS, nodes);
    for (size_t k = 0; k < count && rabbet_fuse_wants_attention(build, last);
         ++k)
      if (nodes[k] != last &&
          rabbet_fuse_kind(ir, nodes[k]) == RABBET_FUSE_POINTWISE)
        RABBET_RETURN_IF_ERROR(masks_of(build, nodes[k]));
    while (ir->nodes.data[i] != last)
      ++i;  // copies lie before it
  }
  return rabbet_ir_sweep(ir);
}
