// Tables of cosines and sines that are equal constants become one: exporters
// write those of queries, of keys and of each layer apart, and folding makes a
// constant of each.
#include <string.h>

#include "builder/ir/passes.h"

typedef RABBET_VEC(rabbet_ir_value_t*) tables_t;

static bool tables_equal(const rabbet_ir_t* ir, const rabbet_ir_value_t* a,
                         const rabbet_ir_value_t* b) {
  return a->dtype == b->dtype && rabbet_ir_shape_equal(&a->shape, &b->shape) &&
         memcmp(a->constant, b->constant,
                (size_t)rabbet_ir_count(ir, a) *
                    (rabbet_dtype_bits(a->dtype) / 8)) == 0;
}

static rabbet_status_t tables_share(rabbet_build_t* build,
                                    rabbet_ir_node_t* rotation, size_t input,
                                    tables_t* known) {
  rabbet_ir_t* ir = &build->ir;
  rabbet_ir_value_t* table = rabbet_ir_input(ir, rotation, input);
  if (!table->constant || table->is_deferred ||
      !rabbet_ir_is_real(table->dtype))
    return rabbet_ok();
  for (size_t i = 0; i < known->count; ++i) {
    if (known->data[i] == table) return rabbet_ok();
    if (!tables_equal(ir, known->data[i], table)) continue;
    rabbet_ir_set_input(ir, rotation, input, known->data[i]->id);
    return rabbet_ok();
  }
  return RABBET_VEC_PUSH(build->allocator, known, table);
}

rabbet_status_t rabbet_share_tables(rabbet_build_t* build) {
  rabbet_ir_t* ir = &build->ir;
  rabbet_status_t status = rabbet_ok();
  tables_t known = {0};
  for (size_t i = 0; rabbet_is_ok(status) && i < ir->nodes.count; ++i) {
    rabbet_ir_node_t* node = ir->nodes.data[i];
    for (size_t k = 1; rabbet_is_ok(status) && k < 3; ++k)
      if (!node->dead && rabbet_op_is(node->op, RABBET_OP_ROTATION))
        status = tables_share(build, node, k, &known);
  }
  rabbet_vec_free(build->allocator, &known);
  return status;
}
