// A mixture repeats the row of a token for each of its experts, computes one
// expert for each row, and adds up the results of a token. The layer of experts
// does all of that for tokens with several experts.
#include <assert.h>

#include "builder/rewrite/experts/grouped.h"
#include "ops/enums.h"
#include "ops/products/moe.h"

// [.., chosen, hidden] summed over `chosen`: a view of the results of `moe`.
typedef struct tokens_t {
  const rabbet_ir_node_t* moe;
  const rabbet_ir_value_t* rows;  // [.., 1, width], one for each token
  int64_t chosen, width;
} tokens_t;

// Finds the rows that are repeated to make the value: a slice with stride 0
// along the last but one axis.
static bool tokens_rows(const rabbet_ir_t* ir, rabbet_ir_value_t* value,
                        tokens_t* t) {
  const rabbet_ir_value_t* many = rabbet_grouped_before_views(ir, value);
  const rabbet_ir_node_t* slice = many->producer;
  rabbet_ir_window_t window;
  int32_t axis = many->shape.rank - 2;
  if (!slice || slice->dead || axis < 0 || rabbet_ir_has_wishes(ir, slice) ||
      !rabbet_ir_window(ir, slice, &window))
    return false;
  t->rows = rabbet_ir_input(ir, slice, 0);
  for (int32_t i = 0; i < many->shape.rank; ++i)
    if (window.start[i] != 0 ||
        (i != axis &&
         (t->rows->shape.d[i] != many->shape.d[i] || window.stride[i] != 1)))
      return false;
  rabbet_dims_t from = rabbet_ir_dims(ir, t->rows);
  return window.stride[axis] == 0 && from.d[axis] == 1 &&
         from.d[axis + 1] == t->width &&
         rabbet_ir_dims(ir, many).d[axis] == t->chosen;
}

static bool tokens_match(const rabbet_ir_t* ir, const rabbet_ir_node_t* sum,
                         tokens_t* t) {
  rabbet_ir_value_t* parts = rabbet_ir_input(ir, sum, 0);
  int32_t axis = parts->shape.rank - 2;
  *t = (tokens_t){0};
  if (axis < 0 || rabbet_ir_int(sum, "op") != RABBET_REDUCE_SUM ||
      rabbet_ir_int(sum, "axes") != INT64_C(1) << axis ||
      rabbet_ir_has_wishes(ir, sum))
    return false;
  t->moe = rabbet_ir_sole_producer(ir, rabbet_grouped_before_views(ir, parts),
                                   RABBET_OP_MOE);
  if (!t->moe) return false;
  rabbet_ir_value_t* rows = rabbet_ir_input(ir, t->moe, 0);
  rabbet_dims_t experts =
      rabbet_ir_dims(ir, rabbet_ir_input(ir, t->moe, RABBET_MOE_EXPERTS));
  rabbet_dims_t dims = rabbet_ir_dims(ir, parts);
  t->chosen = dims.d[axis];
  t->width = rabbet_ir_dims(ir, rows).d[rows->shape.rank - 1];
  // Rows of the parts are rows of the layer, or groups would be cut.
  return t->chosen > 1 && t->width > 0 && experts.d[experts.rank - 1] == 1 &&
         dims.d[axis + 1] > 0 &&
         parts->shape.d[axis + 1] ==
             rabbet_ir_output(ir, t->moe, 0)->shape.d[rows->shape.rank - 1] &&
         tokens_rows(ir, rows, t);
}

static rabbet_status_t tokens_add(rabbet_build_t* build,
                                  const rabbet_ir_node_t* sum,
                                  const tokens_t* t, int32_t* out_value) {
  rabbet_ir_t* ir = &build->ir;
  const rabbet_ir_node_t* moe = t->moe;
  int32_t inputs[RABBET_MOE_INPUTS];
  rabbet_ir_node_t* made = NULL;
  assert(moe->input_count <= RABBET_MOE_INPUTS);
  for (size_t i = 0; i < moe->input_count; ++i)
    inputs[i] = moe->inputs[i];
  RABBET_RETURN_IF_ERROR(rabbet_grouped_flat(build, sum, t->rows->id, t->width,
                                             &inputs[RABBET_MOE_HIDDEN]));
  for (size_t i = RABBET_MOE_EXPERTS; i <= RABBET_MOE_SCORES; ++i)
    if (inputs[i] >= 0)
      RABBET_RETURN_IF_ERROR(
          rabbet_grouped_flat(build, sum, inputs[i], t->chosen, &inputs[i]));
  RABBET_RETURN_IF_ERROR(rabbet_ir_add_node(
      ir, RABBET_OP_MOE, moe->name, moe->attrs, moe->op->attr_count, inputs,
      moe->input_count, sum, &made));
  const rabbet_ir_value_t* result = rabbet_ir_output(ir, made, 0);
  const rabbet_shape_t* shape = &rabbet_ir_output(ir, sum, 0)->shape;
  RABBET_RETURN_IF_ERROR(
      rabbet_ir_add_reshape(build, sum, shape->d, shape->rank, &result));
  *out_value = result->id;
  return rabbet_ok();
}

rabbet_status_t rabbet_rule_tokens(rabbet_build_t* build,
                                   rabbet_ir_node_t* node, bool* changed) {
  rabbet_ir_t* ir = &build->ir;
  tokens_t tokens;
  int32_t result = -1;
  if (!tokens_match(ir, node, &tokens)) return rabbet_ok();
  RABBET_RETURN_IF_ERROR(tokens_add(build, node, &tokens, &result));
  // What is not used is swept.
  *changed |= rabbet_ir_bypass(ir, node, rabbet_ir_value(ir, result));
  return rabbet_ok();
}
