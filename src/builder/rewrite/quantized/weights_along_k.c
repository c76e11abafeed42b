// Constant weights of products of few rows, transposed once.
//
// Exporters write them [k][n], torch keeps them [n][k]. A product of few rows
// is bound by reading its weights: contiguous along k, each warp reads lines of
// them and needs no other's sums.
#include "builder/ir/passes.h"
#include "ops/enums.h"

enum {
  ALONG_K_ROWS = 16,   // most; products of more are left to libraries
  ALONG_K_VECTOR = 8,  // elements of lines that kernels read at once
};

static bool along_k_is_wanted(const rabbet_ir_t* ir,
                              const rabbet_ir_node_t* node) {
  if (node->dead || !rabbet_op_is(node->op, RABBET_OP_MATRIX_MULTIPLY) ||
      rabbet_ir_int(node, "op0") != RABBET_MATRIX_NONE ||
      rabbet_ir_int(node, "op1") != RABBET_MATRIX_NONE)
    return false;
  const rabbet_ir_value_t* weights = rabbet_ir_input(ir, node, 1);
  if (!weights->constant || weights->producer || weights->values ||
      weights->uses != 1 || weights->output >= 0 ||
      !rabbet_ir_is_real(weights->dtype))
    return false;
  rabbet_dims_t w = rabbet_ir_dims(ir, weights);
  for (int32_t i = 0; i < w.rank - 2; ++i)
    if (w.d[i] != 1) return false;
  return w.rank >= 2 && w.d[w.rank - 2] % ALONG_K_VECTOR == 0 &&
         w.d[w.rank - 2] > 0 && w.d[w.rank - 1] > 1 &&
         rabbet_ir_has_few_rows(ir, rabbet_ir_input(ir, node, 0), ALONG_K_ROWS);
}

rabbet_status_t rabbet_pass_weights_along_k(rabbet_build_t* build) {
  rabbet_ir_t* ir = &build->ir;
  if (!(build->device->traits & RABBET_DEVICE_WEIGHTS_ALONG_K))
    return rabbet_ok();
  for (size_t i = 0; i < ir->nodes.count; ++i) {
    rabbet_ir_node_t* node = ir->nodes.data[i];
    int32_t turned = -1;
    if (!along_k_is_wanted(ir, node)) continue;
    RABBET_RETURN_IF_ERROR(
        rabbet_ir_turn_constant(build, rabbet_ir_input(ir, node, 1), &turned));
    rabbet_ir_set_input(ir, node, 1, turned);
    RABBET_RETURN_IF_ERROR(
        rabbet_ir_set_int(build, node, "op1", RABBET_MATRIX_TRANSPOSE));
  }
  return rabbet_ok();
}
