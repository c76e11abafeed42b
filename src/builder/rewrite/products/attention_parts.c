// Factors of an attention that are slices of one tensor become slices of what
// that tensor was made of by transposes and reshapes, where the product left
// it. Exporters write the joint product of queries, keys and values as
//   reshape [N, L, 3, H, D], transpose [3, N, H, L, D], slice or gather
// and torch's MultiheadAttention moves further axes. The transpose moves all
// elements, and is none of the attention's, as three slices read it. Behind the
// slices it is one of each, which attention's kernels take as strides.

#include "builder/choose/fuse.h"
#include "builder/ir/passes.h"
#include "builder/rewrite/parts.h"
#include "ops/enums.h"

// Whether elements move before a slice, or more nodes move them than attention
// takes.
static bool parts_is_wanted(const rabbet_ir_t* ir,
                            const rabbet_parts_chain_t* chain, int first) {
  bool moves = false;
  for (int i = first; i < chain->count; ++i) {
    bool is_slice = rabbet_op_is(chain->nodes[i]->op, RABBET_OP_SLICE);
    if (is_slice && moves) return true;
    moves |= !is_slice && !rabbet_ir_is_view(ir, chain->nodes[i]);
  }
  return chain->count - first > RABBET_FUSE_CHAIN_MAX;
}

static rabbet_status_t parts_rewrite(rabbet_build_t* build,
                                     const rabbet_parts_chain_t* chain,
                                     int first, const rabbet_parts_t* parts,
                                     bool* changed) {
  rabbet_ir_t* ir = &build->ir;
  rabbet_ir_node_t* end = chain->nodes[chain->count - 1];
  const rabbet_ir_value_t* value = rabbet_ir_input(ir, chain->nodes[first], 0);
  const rabbet_shape_t shape = rabbet_ir_output(ir, end, 0)->shape;
  RABBET_RETURN_IF_ERROR(rabbet_parts_make(build, parts, end, &shape, &value));
  // Nodes that nothing reads are swept.
  *changed |= rabbet_ir_bypass(ir, end, rabbet_ir_value(ir, value->id));
  return rabbet_ok();
}

// Whether the elements of the tensor's innermost axis are columns of the
// factor, as kernels read them.
static bool parts_has_columns(const rabbet_parts_t* parts, bool turned) {
  int32_t axis = parts->rank - (turned ? 2 : 1);
  return axis >= 0 && parts->ends[axis] > 0 && parts->count > 0 &&
         parts->order[parts->ends[axis] - 1] == parts->count - 1;
}

// `turned`: the factor's last axis is that of rows.
static rabbet_status_t parts_of(rabbet_build_t* build,
                                rabbet_ir_value_t* factor, bool turned,
                                bool* changed) {
  const rabbet_ir_t* ir = &build->ir;
  rabbet_parts_chain_t chain;
  rabbet_parts_chain(ir, factor, false, &chain);
  for (int first = 0; first < chain.count; ++first) {
    rabbet_status_t status = rabbet_ok();
    rabbet_parts_t parts;
    if (!parts_is_wanted(ir, &chain, first)) break;
    bool reads = rabbet_parts_read(ir, &chain, first, &parts, &status);
    RABBET_RETURN_IF_ERROR(status);
    if (!reads || !parts_has_columns(&parts, turned)) continue;
    return parts_rewrite(build, &chain, first, &parts, changed);
  }
  return rabbet_ok();
}

rabbet_status_t rabbet_pass_attention_parts(rabbet_build_t* build) {
  rabbet_ir_t* ir = &build->ir;
  bool changed = false;
  if (rabbet_fuse_reach(build) < RABBET_FUSE_SLICES) return rabbet_ok();
  for (size_t i = 0; i < ir->nodes.count; ++i) {
    rabbet_ir_node_t* last = ir->nodes.data[i];
    rabbet_ir_node_t* nodes[RABBET_FUSE_ATTENTION_MAX];
    if (last->dead ||
        rabbet_fuse_attention(ir, last, RABBET_FUSE_PRODUCTS, nodes) == 0 ||
        !rabbet_fuse_wants_attention(build, last))
      continue;
    rabbet_ir_value_t* const factors[] = {rabbet_ir_input(ir, nodes[0], 0),
                                          rabbet_ir_input(ir, nodes[0], 1),
                                          rabbet_ir_input(ir, last, 1)};
    const bool turned[] = {
        rabbet_ir_int(nodes[0], "op0") == RABBET_MATRIX_TRANSPOSE,
        rabbet_ir_int(nodes[0], "op1") != RABBET_MATRIX_TRANSPOSE,
        rabbet_ir_int(last, "op1") == RABBET_MATRIX_TRANSPOSE};
    for (size_t k = 0; k < 3; ++k)
      RABBET_RETURN_IF_ERROR(RABBET_ANNOTATE(
          parts_of(build, factors[k], turned[k], &changed),
          "moving parts of one tensor into attention '%s'", last->name));
    while (ir->nodes.data[i] != last)
      ++i;  // nodes were made before it
  }
  return rabbet_ir_sweep(ir);
}
