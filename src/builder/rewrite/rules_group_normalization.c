// Group normalization as torch's exporters write it for ONNX: images with their
// groups as channels, [n, groups, rest], are normalized as instances, and
// reshaped back. It becomes one normalization of groups, whose channels may be
// last in memory.
#include "builder/ir/passes.h"
#include "core/view.h"

// Whether the parameter is absent, or this number everywhere.
static bool group_is_neutral(const rabbet_ir_t* ir,
                             const rabbet_ir_node_t* norm, size_t input,
                             double number) {
  const rabbet_ir_value_t* value = rabbet_ir_input(ir, norm, input);
  return !value || (value->constant && rabbet_ir_is_number(ir, value, number));
}

// The channels of a tensor, if they are known, and axes follow them; else 0.
static int64_t group_channels(const rabbet_ir_t* ir,
                              const rabbet_ir_value_t* value) {
  int64_t channels = 0;
  return value->shape.rank > 2 && rabbet_expr_is_constant(
                                      ir->graph, value->shape.d[1], &channels)
             ? channels
             : 0;
}

static int64_t group_spatial(const rabbet_ir_value_t* value) {
  return (INT64_C(1) << value->shape.rank) - 4;
}

// The shuffle that makes the instances which `norm` normalizes, if `back` takes
// it back; else NULL.
static const rabbet_ir_node_t* group_match(const rabbet_ir_t* ir,
                                           const rabbet_ir_node_t* back,
                                           const rabbet_ir_node_t* norm,
                                           int64_t* out_groups) {
  const rabbet_ir_value_t* x = rabbet_ir_input(ir, norm, 0);
  const rabbet_ir_node_t* there = x->producer;
  if (!there || there->dead || rabbet_ir_has_wishes(ir, there) ||
      !rabbet_ir_is_view(ir, there) || !rabbet_ir_is_view(ir, back))
    return NULL;
  const rabbet_ir_value_t* image = rabbet_ir_input(ir, there, 0);
  int64_t channels = group_channels(ir, image);
  *out_groups = group_channels(ir, x);
  return *out_groups > 1 && channels % *out_groups == 0 && channels > 0 &&
                 image->shape.d[0] == x->shape.d[0] &&
                 rabbet_ir_int(norm, "num_groups") == 1 &&
                 rabbet_ir_int(norm, "axes") == group_spatial(x) &&
                 rabbet_ir_shape_equal(&rabbet_ir_output(ir, back, 0)->shape,
                                       &image->shape) &&
                 group_is_neutral(ir, norm, 1, 1) &&
                 group_is_neutral(ir, norm, 2, 0)
             ? there
             : NULL;
}

rabbet_status_t rabbet_rule_group_normalization(rabbet_build_t* build,
                                                rabbet_ir_node_t* node,
                                                bool* changed) {
  rabbet_ir_t* ir = &build->ir;
  int64_t groups = 0;
  rabbet_ir_node_t *made = NULL, *norm = rabbet_ir_sole_producer(
                                     ir, rabbet_ir_input(ir, node, 0),
                                     RABBET_OP_NORMALIZATION);
  if (!norm || rabbet_ir_has_wishes(ir, node)) return rabbet_ok();
  const rabbet_ir_node_t* there = group_match(ir, node, norm, &groups);
  if (!there) return rabbet_ok();
  RABBET_RETURN_IF_ERROR(
      rabbet_ir_add_node(ir, RABBET_OP_NORMALIZATION, norm->name, norm->attrs,
                         norm->op->attr_count, there->inputs, 1, node, &made));
  const rabbet_ir_value_t* image = rabbet_ir_input(ir, there, 0);
  RABBET_RETURN_IF_ERROR(
      rabbet_ir_set_int(build, made, "axes", group_spatial(image)));
  RABBET_RETURN_IF_ERROR(rabbet_ir_set_int(build, made, "num_groups", groups));
  RABBET_RETURN_IF_ERROR(rabbet_ir_set_int(build, made, "is_v2", 1));
  if (rabbet_ir_bypass(ir, node, rabbet_ir_output(ir, made, 0)))
    *changed = true;
  else
    rabbet_ir_kill(ir, made);
  return rabbet_ok();
}
