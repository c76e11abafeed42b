// Nodes that return their input.

#include <assert.h>
#include <string.h>

#include "builder/ir/passes.h"
#include "core/view.h"
#include "ops/enums.h"

rabbet_status_t rabbet_rule_identity(rabbet_build_t* build,
                                     rabbet_ir_node_t* node, bool* changed) {
  rabbet_ir_t* ir = &build->ir;
  *changed |= rabbet_ir_bypass(ir, node, rabbet_ir_input(ir, node, 0));
  return rabbet_ok();
}

// ---- Shuffles ---------------------------------------------------------------

static bool shuffle_same_shape(const rabbet_ir_t* ir,
                               const rabbet_ir_node_t* node,
                               const rabbet_ir_value_t* value) {
  return rabbet_ir_shape_equal(&rabbet_ir_output(ir, node, 0)->shape,
                               &value->shape);
}

bool rabbet_ir_permutation(const rabbet_ir_t* ir, const rabbet_ir_node_t* node,
                           int64_t perm[RABBET_MAX_RANK]) {
  size_t reshape = 0, first_count = 0, second_count = 0;
  rabbet_ir_ints(node, "reshape_dims", &reshape);
  const int64_t* first = rabbet_ir_ints(node, "first_transpose", &first_count);
  const int64_t* second =
      rabbet_ir_ints(node, "second_transpose", &second_count);
  const rabbet_ir_value_t* input = rabbet_ir_input(ir, node, 0);
  int32_t rank = input->shape.rank;
  if (reshape > 0 || rabbet_ir_input(ir, node, 1) ||
      rabbet_ir_int(node, "reshape_to_scalar") ||
      rabbet_ir_output(ir, node, 0)->shape.rank != rank ||
      first_count > RABBET_MAX_RANK || second_count > RABBET_MAX_RANK)
    return false;
  for (int32_t i = 0; i < rank; ++i) {
    int64_t axis = (size_t)i < second_count ? second[i] : i;
    perm[i] = (size_t)axis < first_count ? first[axis] : axis;
    assert(perm[i] >= 0 && perm[i] < rank);
  }
  return true;
}

rabbet_status_t rabbet_ir_add_permutation(rabbet_build_t* build,
                                          const rabbet_ir_node_t* before,
                                          const char* name, int32_t input,
                                          const int64_t* perm, int32_t rank,
                                          rabbet_ir_node_t** out_node) {
  const rabbet_attr_t attr = {.name = "first_transpose",
                              .type = RABBET_ATTR_INTS,
                              .data = perm,
                              .count = (size_t)rank};
  return rabbet_ir_add_node(&build->ir, RABBET_OP_SHUFFLE, name, &attr, 1,
                            &input, 1, before, out_node);
}

rabbet_status_t rabbet_ir_add_slice(rabbet_build_t* build,
                                    const rabbet_ir_node_t* before,
                                    const char* name, int32_t input,
                                    int64_t axis, int64_t start, int64_t size,
                                    rabbet_ir_node_t** out_node) {
  const rabbet_attr_t attrs[] = {
      {.name = "start", .type = RABBET_ATTR_INTS, .data = &start, .count = 1},
      {.name = "shape", .type = RABBET_ATTR_INTS, .data = &size, .count = 1},
      {.name = "axes", .type = RABBET_ATTR_INTS, .data = &axis, .count = 1},
  };
  return rabbet_ir_add_node(&build->ir, RABBET_OP_SLICE, name, attrs, 3, &input,
                            1, before, out_node);
}

rabbet_status_t rabbet_ir_permute_operands(rabbet_build_t* build,
                                           const rabbet_ir_node_t* node,
                                           const int64_t* perm, int32_t rank,
                                           int32_t inputs[3], bool* out_views) {
  rabbet_ir_t* ir = &build->ir;
  *out_views = true;
  for (size_t i = 1; i < 3; ++i) {
    const rabbet_ir_value_t* value = rabbet_ir_input(ir, node, i);
    rabbet_ir_node_t* view = NULL;
    inputs[i] = -1;
    if (!value) continue;
    RABBET_RETURN_IF_ERROR(rabbet_ir_add_permutation(
        build, node, value->name, value->id, perm, rank, &view));
    *out_views &= value->constant || rabbet_ir_is_view(ir, view);
    inputs[i] = view->outputs[0];
  }
  return rabbet_ok();
}

// Two permutations in a row become one.
static rabbet_status_t shuffle_merge(rabbet_build_t* build,
                                     rabbet_ir_node_t* node, bool* changed) {
  rabbet_ir_t* ir = &build->ir;
  rabbet_ir_node_t* before = rabbet_ir_input(ir, node, 0)->producer;
  int64_t outer[RABBET_MAX_RANK], inner[RABBET_MAX_RANK];
  if (!before || !rabbet_op_is(before->op, RABBET_OP_SHUFFLE) ||
      rabbet_ir_has_wishes(ir, before) ||
      !rabbet_ir_permutation(ir, node, outer) ||
      !rabbet_ir_permutation(ir, before, inner))
    return rabbet_ok();
  int32_t rank = rabbet_ir_output(ir, node, 0)->shape.rank;
  int64_t merged[RABBET_MAX_RANK];
  // Permutations keep the rank.
  assert(rabbet_ir_input(ir, before, 0)->shape.rank == rank);
  for (int32_t i = 0; i < rank; ++i)
    merged[i] = inner[outer[i]];
  RABBET_RETURN_IF_ERROR(
      rabbet_ir_set_ints(build, node, "first_transpose", merged, (size_t)rank));
  RABBET_RETURN_IF_ERROR(
      rabbet_ir_set_ints(build, node, "second_transpose", NULL, 0));
  rabbet_ir_set_input(ir, node, 0, before->inputs[0]);
  *changed = true;
  return rabbet_ok();
}

// Whether consecutive reshapes end with the shape of the first one's input,
// *out_value.
static bool shuffle_returns(const rabbet_ir_t* ir, const rabbet_ir_node_t* node,
                            rabbet_ir_value_t** out_value) {
  const rabbet_ir_node_t* at = node;
  while (at && rabbet_op_is(at->op, RABBET_OP_SHUFFLE) &&
         rabbet_ir_is_view(ir, at) && !rabbet_ir_has_wishes(ir, at)) {
    *out_value = rabbet_ir_input(ir, at, 0);
    if (shuffle_same_shape(ir, node, *out_value)) return true;
    at = (*out_value)->producer;
  }
  return false;
}

// The permutation that equals a reshape that joins axes, a permutation, and a
// reshape that splits the axes again. Axes of `from` and `joined` are paired
// from the end. The first axis of `joined` stands for all axes that remain.
static bool shuffle_split_permutation(const rabbet_ir_t* ir,
                                      const rabbet_ir_value_t* from,
                                      const rabbet_ir_node_t* permute,
                                      const rabbet_ir_value_t* to,
                                      int64_t perm[RABBET_MAX_RANK]) {
  const rabbet_shape_t* joined = &rabbet_ir_input(ir, permute, 0)->shape;
  int64_t between[RABBET_MAX_RANK];
  int32_t extra = from->shape.rank - joined->rank, count = 0;
  if (extra <= 0 || joined->rank < 1 || to->shape.rank != from->shape.rank ||
      !rabbet_ir_permutation(ir, permute, between))
    return false;
  for (int32_t i = 1; i < joined->rank; ++i)
    if (joined->d[i] != from->shape.d[i + extra]) return false;
  for (int32_t i = 0; i < joined->rank; ++i) {
    int32_t first = between[i] == 0 ? 0 : (int32_t)between[i] + extra;
    int32_t end = between[i] == 0 ? extra + 1 : first + 1;
    for (int32_t axis = first; axis < end; ++axis) {
      assert(count < from->shape.rank && axis < from->shape.rank);
      if (to->shape.d[count] != from->shape.d[axis]) return false;
      perm[count++] = axis;
    }
  }
  return true;
}

// torch transposes keys of an attention with batches and heads as one axis.
static rabbet_status_t shuffle_split(rabbet_build_t* build,
                                     rabbet_ir_node_t* node, bool* changed) {
  rabbet_ir_t* ir = &build->ir;
  int64_t perm[RABBET_MAX_RANK];
  rabbet_ir_node_t *permute = NULL, *join = NULL, *made = NULL;
  if (rabbet_ir_has_wishes(ir, node) || !rabbet_ir_is_view(ir, node))
    return rabbet_ok();
  permute = rabbet_ir_sole_producer(ir, rabbet_ir_input(ir, node, 0),
                                    RABBET_OP_SHUFFLE);
  if (permute)
    join = rabbet_ir_sole_producer(ir, rabbet_ir_input(ir, permute, 0),
                                   RABBET_OP_SHUFFLE);
  if (!join || !rabbet_ir_is_view(ir, join) ||
      !shuffle_split_permutation(ir, rabbet_ir_input(ir, join, 0), permute,
                                 rabbet_ir_output(ir, node, 0), perm))
    return rabbet_ok();
  const rabbet_attr_t attr = {
      .name = "first_transpose",
      .type = RABBET_ATTR_INTS,
      .data = perm,
      .count = (size_t)rabbet_ir_output(ir, node, 0)->shape.rank};
  RABBET_RETURN_IF_ERROR(rabbet_ir_add_node(ir, RABBET_OP_SHUFFLE,
                                            permute->name, &attr, 1,
                                            &join->inputs[0], 1, node, &made));
  if (rabbet_ir_bypass(ir, node, rabbet_ir_output(ir, made, 0)))
    *changed = true;
  else
    rabbet_ir_kill(ir, made);
  return rabbet_ok();
}

rabbet_status_t rabbet_rule_shuffle(rabbet_build_t* build,
                                    rabbet_ir_node_t* node, bool* changed) {
  rabbet_ir_t* ir = &build->ir;
  assert(rabbet_op_is(node->op, RABBET_OP_SHUFFLE));
  rabbet_ir_value_t* origin = NULL;
  if (shuffle_returns(ir, node, &origin) &&
      rabbet_ir_bypass(ir, node, origin)) {
    *changed = true;
    return rabbet_ok();
  }
  RABBET_RETURN_IF_ERROR(shuffle_split(build, node, changed));
  return node->dead ? rabbet_ok() : shuffle_merge(build, node, changed);
}

// ---- Slices and concatenations ----------------------------------------------

// Whether a list given as input or attribute is this number everywhere.
static bool slice_list_is(const rabbet_ir_t* ir, const rabbet_ir_node_t* node,
                          size_t input, const char* name, int64_t number) {
  const rabbet_ir_value_t* value = rabbet_ir_input(ir, node, input);
  if (value) return rabbet_ir_is_number(ir, value, (double)number);
  size_t count = 0;
  const int64_t* list = rabbet_ir_ints(node, name, &count);
  for (size_t i = 0; i < count; ++i)
    if (list[i] != number) return false;
  return true;
}

rabbet_status_t rabbet_rule_slice(rabbet_build_t* build, rabbet_ir_node_t* node,
                                  bool* changed) {
  rabbet_ir_t* ir = &build->ir;
  rabbet_ir_value_t* input = rabbet_ir_input(ir, node, 0);
  if (shuffle_same_shape(ir, node, input) &&
      slice_list_is(ir, node, 1, "start", 0) &&
      slice_list_is(ir, node, 3, "stride", 1))
    *changed |= rabbet_ir_bypass(ir, node, input);
  return rabbet_ok();
}

rabbet_status_t rabbet_rule_concatenation(rabbet_build_t* build,
                                          rabbet_ir_node_t* node,
                                          bool* changed) {
  rabbet_ir_t* ir = &build->ir;
  rabbet_ir_value_t* only = NULL;
  size_t count = 0;
  for (size_t i = 0; i < node->input_count; ++i) {
    rabbet_ir_value_t* input = rabbet_ir_input(ir, node, i);
    if (rabbet_ir_is_empty(ir, input)) continue;
    only = input;
    ++count;
  }
  if (count == 1 && shuffle_same_shape(ir, node, only))
    *changed |= rabbet_ir_bypass(ir, node, only);
  return rabbet_ok();
}

// ---- Neutral constants ------------------------------------------------------

static const struct {
  int64_t op;
  double number;  // on the right
  bool left_too;
} neutral_numbers[] = {
    {RABBET_ELEMENTWISE_SUM, 0, true},  {RABBET_ELEMENTWISE_SUB, 0, false},
    {RABBET_ELEMENTWISE_PROD, 1, true}, {RABBET_ELEMENTWISE_DIV, 1, false},
    {RABBET_ELEMENTWISE_POW, 1, false},
};

rabbet_status_t rabbet_rule_neutral(rabbet_build_t* build,
                                    rabbet_ir_node_t* node, bool* changed) {
  rabbet_ir_t* ir = &build->ir;
  assert(rabbet_op_is(node->op, RABBET_OP_ELEMENTWISE));
  rabbet_ir_value_t* a = rabbet_ir_input(ir, node, 0);
  rabbet_ir_value_t* b = rabbet_ir_input(ir, node, 1);
  int64_t op = rabbet_ir_int(node, "op");
  if (a->dtype == RABBET_DTYPE_BOOL) return rabbet_ok();
  for (size_t i = 0; i < sizeof(neutral_numbers) / sizeof(neutral_numbers[0]);
       ++i) {
    if (neutral_numbers[i].op != op) continue;
    rabbet_ir_value_t* kept =
        rabbet_ir_is_number(ir, b, neutral_numbers[i].number) ? a
        : neutral_numbers[i].left_too &&
                rabbet_ir_is_number(ir, a, neutral_numbers[i].number)
            ? b
            : NULL;
    if (kept && shuffle_same_shape(ir, node, kept))
      *changed |= rabbet_ir_bypass(ir, node, kept);
    break;
  }
  return rabbet_ok();
}
