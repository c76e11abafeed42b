#include <assert.h>

#include "builder/ir/passes.h"

// Rules by operator; a node may have several.
static const struct {
  rabbet_op_id_t op;
  rabbet_rule_t* run;
} simplify_rules[] = {
    {RABBET_OP_IDENTITY, rabbet_rule_identity},
    {RABBET_OP_CAST, rabbet_rule_identity},
    {RABBET_OP_CAST, rabbet_rule_packed_cast},
    {RABBET_OP_CAST, rabbet_rule_narrow},
    {RABBET_OP_CAST, rabbet_rule_expansion},
    {RABBET_OP_SHUFFLE, rabbet_rule_shuffle},
    {RABBET_OP_SHUFFLE, rabbet_rule_quantized_view},
    {RABBET_OP_SHUFFLE, rabbet_rule_transposed_normalization},
    {RABBET_OP_SHUFFLE, rabbet_rule_group_normalization},
    {RABBET_OP_SHUFFLE, rabbet_rule_expansion},
    {RABBET_OP_SHUFFLE, rabbet_rule_turned_product},
    {RABBET_OP_SLICE, rabbet_rule_slice},
    {RABBET_OP_SHUFFLE, rabbet_rule_transposed_inputs},
    {RABBET_OP_SLICE, rabbet_rule_slice_of_input},
    {RABBET_OP_SLICE, rabbet_rule_wrapped_slices},
    {RABBET_OP_SLICE, rabbet_rule_cropped_convolution},
    {RABBET_OP_GATHER, rabbet_rule_gathered_rows},
    {RABBET_OP_GATHER, rabbet_rule_gathered_part},
    {RABBET_OP_SCATTER, rabbet_rule_scattered_part},
    {RABBET_OP_CONCATENATION, rabbet_rule_concatenation},
    {RABBET_OP_CONCATENATION, rabbet_rule_wrapped_parts},
    {RABBET_OP_CONCATENATION, rabbet_rule_complex_rotation},
    {RABBET_OP_CONCATENATION, rabbet_rule_rotated_halves},
    {RABBET_OP_CONCATENATION, rabbet_rule_rotated_part},
    {RABBET_OP_ROTATION, rabbet_rule_rotated_transpose},
    {RABBET_OP_ELEMENTWISE, rabbet_rule_neutral},
    {RABBET_OP_ELEMENTWISE, rabbet_rule_normalization},
    {RABBET_OP_ELEMENTWISE, rabbet_rule_rotation},
    {RABBET_OP_ELEMENTWISE, rabbet_rule_affine},
    {RABBET_OP_ELEMENTWISE, rabbet_rule_gelu},
    {RABBET_OP_ELEMENTWISE, rabbet_rule_expansion},
    {RABBET_OP_UNARY, rabbet_rule_expansion},
    {RABBET_OP_ACTIVATION, rabbet_rule_expansion},
    {RABBET_OP_ELEMENTWISE, rabbet_rule_grouped_sum},
    {RABBET_OP_QUANTIZE, rabbet_rule_blocks},
    {RABBET_OP_QUANTIZE, rabbet_rule_quantize},
    {RABBET_OP_QUANTIZE, rabbet_rule_requantize},
    {RABBET_OP_DEQUANTIZE, rabbet_rule_blocks},
    {RABBET_OP_DEQUANTIZE, rabbet_rule_quantize},
    {RABBET_OP_CONVOLUTION, rabbet_rule_padding},
    {RABBET_OP_MATRIX_MULTIPLY, rabbet_rule_matrix},
    {RABBET_OP_MATRIX_MULTIPLY, rabbet_rule_expansion},
    {RABBET_OP_MATRIX_MULTIPLY, rabbet_rule_grouped_product},
    {RABBET_OP_MOE, rabbet_rule_experts},
    {RABBET_OP_REDUCE, rabbet_rule_tokens},
    {RABBET_OP_SOFTMAX, rabbet_rule_mask},
    {RABBET_OP_SELECT, rabbet_rule_weights_nan},
    {RABBET_OP_SOFTMAX, rabbet_rule_mask_range},
    {RABBET_OP_SOFTMAX, rabbet_rule_expansion},
};

#define SIMPLIFY_MAX_ROUNDS 32

static rabbet_status_t simplify_node(rabbet_build_t* build,
                                     rabbet_ir_node_t* node, bool* changed) {
  size_t count = sizeof(simplify_rules) / sizeof(simplify_rules[0]);
  for (size_t i = 0; i < count && !node->dead; ++i)
    if (rabbet_op_is(node->op, simplify_rules[i].op))
      RABBET_RETURN_IF_ERROR(
          RABBET_ANNOTATE(simplify_rules[i].run(build, node, changed),
                          "simplifying layer '%s'", node->name));
  assert(!node->dead || *changed);  // or the next round would not come
  return rabbet_ok();
}

rabbet_status_t rabbet_pass_simplify(rabbet_build_t* build) {
  bool changed = true;
  for (int round = 0; changed && round < SIMPLIFY_MAX_ROUNDS; ++round) {
    changed = false;
    for (size_t i = 0; i < build->ir.nodes.count; ++i) {
      rabbet_ir_node_t* node = build->ir.nodes.data[i];
      if (!node->dead)
        RABBET_RETURN_IF_ERROR(simplify_node(build, node, &changed));
      // Rules insert nodes before this one. The walk goes on behind it: a rule
      // whose result may not be used would insert without end.
      while (build->ir.nodes.data[i] != node)
        ++i;
      assert(i < build->ir.nodes.count);
    }
    RABBET_RETURN_IF_ERROR(rabbet_ir_sweep(&build->ir));
  }
  return rabbet_ok();
}
