#include "builder/rewrite/products/attention_nodes.h"

#include "builder/ir/passes.h"
#include "ops/enums.h"

rabbet_status_t rabbet_attention_softmaxes(rabbet_build_t* build,
                                           rabbet_ir_node_t*** out_nodes,
                                           size_t* out_count) {
  const rabbet_ir_t* ir = &build->ir;
  *out_count = 0;
  RABBET_RETURN_IF_ERROR(rabbet_arena_allocate_array(
      &build->arena, ir->nodes.count, sizeof(**out_nodes), (void**)out_nodes));
  for (size_t i = 0; i < ir->nodes.count; ++i)
    if (!ir->nodes.data[i]->dead &&
        rabbet_op_is(ir->nodes.data[i]->op, RABBET_OP_SOFTMAX))
      (*out_nodes)[(*out_count)++] = ir->nodes.data[i];
  return rabbet_ok();
}

bool rabbet_attention_is_product(const rabbet_ir_node_t* node) {
  return rabbet_op_is(node->op, RABBET_OP_MATRIX_MULTIPLY) &&
         rabbet_ir_int(node, "op0") != RABBET_MATRIX_VECTOR &&
         rabbet_ir_int(node, "op1") != RABBET_MATRIX_VECTOR;
}

rabbet_ir_node_t* rabbet_attention_reader(const rabbet_ir_t* ir,
                                          const rabbet_ir_node_t* node) {
  const rabbet_ir_value_t* value = rabbet_ir_output(ir, node, 0);
  if (value->uses != 1 || rabbet_fuse_is_exit(ir, node)) return NULL;
  for (size_t i = 0; i < ir->nodes.count; ++i) {
    rabbet_ir_node_t* reader = ir->nodes.data[i];
    for (size_t k = 0; !reader->dead && k < reader->input_count; ++k)
      if (reader->inputs[k] == value->id)
        return rabbet_ir_has_wishes(ir, reader) ? NULL : reader;
  }
  return NULL;
}

void rabbet_attention_before_scales(const rabbet_ir_t* ir,
                                    const rabbet_ir_value_t** value,
                                    rabbet_attention_scales_t* out) {
  for (out->count = 0; out->count < RABBET_FUSE_SCALES_MAX; ++out->count) {
    rabbet_ir_node_t* maker = (*value)->uses == 1 ? (*value)->producer : NULL;
    const rabbet_ir_value_t* scaled =
        maker ? rabbet_fuse_scaled(ir, maker) : NULL;
    if (!scaled) return;
    out->nodes[out->count] = maker;
    *value = scaled;
  }
}

rabbet_status_t rabbet_attention_scale(rabbet_build_t* build,
                                       const rabbet_ir_node_t* before,
                                       const rabbet_attention_scales_t* scales,
                                       const rabbet_ir_value_t** value) {
  for (int i = scales->count; i-- > 0;)
    RABBET_RETURN_IF_ERROR(
        rabbet_ir_add_scale(build, before, scales->nodes[i], value));
  return rabbet_ok();
}
