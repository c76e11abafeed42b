// Networks of HALF and BF16 normalize and rotate in FLOAT, between two casts.
// Kernels compute in FLOAT for tensors of these types, too, so the casts go:
// the result is rounded once, as by the second cast.

#include <assert.h>

#include "builder/ir/passes.h"

// x, of which the value is a cast to FLOAT; NULL: it is none.
static const rabbet_ir_value_t* narrow_widened(const rabbet_ir_t* ir,
                                               const rabbet_ir_value_t* value) {
  const rabbet_ir_node_t* cast = value->producer;
  if (!cast || cast->dead || !rabbet_op_is(cast->op, RABBET_OP_CAST) ||
      rabbet_ir_has_wishes(ir, cast) || value->dtype != RABBET_DTYPE_FLOAT)
    return NULL;
  return rabbet_ir_input(ir, cast, 0);
}

// The other operands stay FLOAT, unless all are casts from that type, too.
static void narrow_operands(const rabbet_ir_t* ir, const rabbet_ir_node_t* wide,
                            rabbet_dtype_t dtype, int32_t inputs[3]) {
  int32_t before[3] = {-1, -1, -1};
  bool all = true;
  assert(wide->input_count <= 3);
  for (size_t i = 1; i < wide->input_count; ++i) {
    const rabbet_ir_value_t* operand = rabbet_ir_input(ir, wide, i);
    const rabbet_ir_value_t* x = operand ? narrow_widened(ir, operand) : NULL;
    all = all && (!operand || (x && x->dtype == dtype));
    before[i] = x ? x->id : -1;
  }
  for (size_t i = 1; i < wide->input_count; ++i)
    inputs[i] = all ? before[i] : wide->inputs[i];
}

rabbet_status_t rabbet_rule_narrow(rabbet_build_t* build,
                                   rabbet_ir_node_t* node, bool* changed) {
  static const rabbet_op_id_t ops[] = {RABBET_OP_NORMALIZATION,
                                       RABBET_OP_ROTATION};
  rabbet_ir_t* ir = &build->ir;
  rabbet_dtype_t dtype = rabbet_ir_output(ir, node, 0)->dtype;
  for (size_t i = 0; i < sizeof(ops) / sizeof(ops[0]); ++i) {
    const rabbet_ir_node_t* wide =
        rabbet_ir_sole_producer(ir, rabbet_ir_input(ir, node, 0), ops[i]);
    const rabbet_ir_value_t* x =
        wide ? narrow_widened(ir, rabbet_ir_input(ir, wide, 0)) : NULL;
    if (!x || x->dtype != dtype || !rabbet_ir_is_real(dtype)) continue;
    int32_t inputs[3] = {x->id, -1, -1};
    narrow_operands(ir, wide, dtype, inputs);
    rabbet_ir_node_t* narrow = NULL;
    RABBET_RETURN_IF_ERROR(rabbet_ir_add_node(
        ir, ops[i], wide->name, wide->attrs, wide->op->attr_count, inputs,
        wide->input_count, node, &narrow));
    if (rabbet_ir_bypass(ir, node, rabbet_ir_output(ir, narrow, 0))) {
      *changed = true;
      return rabbet_ok();
    }
    rabbet_ir_kill(ir, narrow);
  }
  return rabbet_ok();
}
