// A grouped product takes the sum or product that follows it: an added vector
// that is gathered by the same indices becomes the layer's bias, and a factor
// for each row its scores.
#include <assert.h>

#include "builder/rewrite/experts/grouped.h"
#include "core/view.h"
#include "ops/enums.h"
#include "ops/products/moe.h"

// Whether each row has one expert.
static bool grouped_is_single(const rabbet_ir_t* ir,
                              const rabbet_ir_node_t* moe) {
  const rabbet_shape_t* experts =
      &rabbet_ir_input(ir, moe, RABBET_MOE_EXPERTS)->shape;
  int64_t chosen = 0;
  assert(rabbet_op_is(moe->op, RABBET_OP_MOE));
  return rabbet_expr_is_constant(ir->graph, experts->d[experts->rank - 1],
                                 &chosen) &&
         chosen == 1;
}

bool rabbet_grouped_is_product(const rabbet_ir_t* ir,
                               const rabbet_ir_node_t* moe) {
  return !rabbet_ir_input(ir, moe, RABBET_MOE_GATE) &&
         !rabbet_ir_input(ir, moe, RABBET_MOE_SCORES) &&
         grouped_is_single(ir, moe);
}

rabbet_ir_value_t* rabbet_grouped_before_views(const rabbet_ir_t* ir,
                                               rabbet_ir_value_t* value) {
  for (;;) {
    const rabbet_ir_node_t* node =
        rabbet_ir_sole_producer(ir, value, RABBET_OP_SHUFFLE);
    if (!node || !rabbet_ir_is_view(ir, node)) return value;
    value = rabbet_ir_input(ir, node, 0);
  }
}

bool rabbet_grouped_same_rows(const rabbet_ir_value_t* a,
                              const rabbet_ir_value_t* b) {
  return a->shape.rank > 0 && b->shape.rank > 0 &&
         a->shape.d[a->shape.rank - 1] == b->shape.d[b->shape.rank - 1];
}

// The layer with input `place` as well, in the place of `node`.
static rabbet_status_t grouped_extend(rabbet_build_t* build,
                                      rabbet_ir_node_t* node,
                                      const rabbet_ir_node_t* moe, size_t place,
                                      int32_t value, bool* changed) {
  rabbet_ir_t* ir = &build->ir;
  int32_t inputs[RABBET_MOE_INPUTS];
  rabbet_ir_node_t* made = NULL;
  size_t count = moe->input_count > place ? moe->input_count : place + 1;
  for (size_t i = 0; i < count; ++i)
    inputs[i] = i < moe->input_count ? moe->inputs[i] : -1;
  inputs[place] = value;
  RABBET_RETURN_IF_ERROR(rabbet_ir_add_node(ir, RABBET_OP_MOE, moe->name,
                                            moe->attrs, moe->op->attr_count,
                                            inputs, count, node, &made));
  const rabbet_ir_value_t* result = rabbet_ir_output(ir, made, 0);
  const rabbet_shape_t* shape = &rabbet_ir_output(ir, node, 0)->shape;
  RABBET_RETURN_IF_ERROR(
      rabbet_ir_add_reshape(build, node, shape->d, shape->rank, &result));
  *changed |= rabbet_ir_bypass(ir, node, rabbet_ir_value(ir, result->id));
  return rabbet_ok();
}

// Whether the value is, for each row of `rows`, the vector of the row's expert.
static bool grouped_is_bias(const rabbet_ir_t* ir, const rabbet_ir_node_t* moe,
                            const rabbet_ir_value_t* rows,
                            const rabbet_ir_value_t* value) {
  const rabbet_ir_node_t* gather = value->producer;
  const rabbet_ir_value_t* down = rabbet_ir_input(ir, moe, RABBET_MOE_DOWN);
  if (!rabbet_grouped_is_product(ir, moe) ||
      rabbet_ir_input(ir, moe, RABBET_MOE_DOWN_BIAS) || !gather ||
      gather->dead || !rabbet_op_is(gather->op, RABBET_OP_GATHER) ||
      rabbet_ir_has_wishes(ir, gather) ||
      !rabbet_grouped_gathers(ir, gather, 2))
    return false;
  rabbet_dims_t w = rabbet_ir_dims(ir, down);
  rabbet_dims_t b = rabbet_ir_dims(ir, rabbet_ir_input(ir, gather, 0));
  return b.d[0] == w.d[0] && b.d[1] == w.d[2] && value->dtype == down->dtype &&
         rabbet_ir_shape_equal(&value->shape, &rows->shape) &&
         rabbet_grouped_root(ir, rabbet_ir_input(ir, gather, 1), w.d[0]) ==
             rabbet_grouped_root(
                 ir, rabbet_ir_input(ir, moe, RABBET_MOE_EXPERTS), w.d[0]);
}

// Whether the value has one number for each row of `rows`.
static bool grouped_is_scores(const rabbet_ir_t* ir,
                              const rabbet_ir_node_t* moe,
                              const rabbet_ir_value_t* rows,
                              const rabbet_ir_value_t* value) {
  rabbet_shape_t wanted = rows->shape;
  int64_t one = 0;
  if (rabbet_ir_input(ir, moe, RABBET_MOE_SCORES) ||
      !grouped_is_single(ir, moe) || value->dtype != rows->dtype ||
      value->shape.rank != wanted.rank ||
      !rabbet_expr_is_constant(ir->graph, value->shape.d[wanted.rank - 1],
                               &one) ||
      one != 1)
    return false;
  wanted.d[wanted.rank - 1] = value->shape.d[wanted.rank - 1];
  return rabbet_ir_shape_equal(&value->shape, &wanted);
}

rabbet_status_t rabbet_rule_grouped_sum(rabbet_build_t* build,
                                        rabbet_ir_node_t* node, bool* changed) {
  rabbet_ir_t* ir = &build->ir;
  int64_t op = rabbet_ir_int(node, "op");
  const rabbet_ir_value_t* output = rabbet_ir_output(ir, node, 0);
  bool adds = op == RABBET_ELEMENTWISE_SUM;
  if ((!adds && op != RABBET_ELEMENTWISE_PROD) ||
      rabbet_ir_has_wishes(ir, node) || rabbet_ir_is_empty(ir, output))
    return rabbet_ok();
  for (size_t i = 0; i < 2; ++i) {
    rabbet_ir_value_t* rows = rabbet_ir_input(ir, node, i);
    const rabbet_ir_value_t* other = rabbet_ir_input(ir, node, 1 - i);
    rabbet_ir_value_t* made = rabbet_grouped_before_views(ir, rows);
    const rabbet_ir_node_t* moe =
        rabbet_ir_sole_producer(ir, made, RABBET_OP_MOE);
    if (!moe || !rabbet_grouped_same_rows(made, rows) ||
        !rabbet_ir_shape_equal(&rows->shape, &output->shape))
      continue;
    if (adds && grouped_is_bias(ir, moe, rows, other))
      return grouped_extend(build, node, moe, RABBET_MOE_DOWN_BIAS,
                            other->producer->inputs[0], changed);
    if (!adds && grouped_is_scores(ir, moe, rows, other)) {
      int32_t scores = -1;
      RABBET_RETURN_IF_ERROR(
          rabbet_grouped_flat(build, node, other->id, 1, &scores));
      return grouped_extend(build, node, moe, RABBET_MOE_SCORES, scores,
                            changed);
    }
  }
  return rabbet_ok();
}
