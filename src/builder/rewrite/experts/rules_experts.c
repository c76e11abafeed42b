// Two grouped products (rules_grouped.c) with a gated activation between them
// become experts:
//   down[e] (silu(gate[e] x) * up[e] x)
// Gate and up are slices of one product, halves or every second column, or two
// products. With limits, a factor in the sigmoid and an offset, as GPT-OSS has:
//   gate = min(gate, limit), up = clamp(up, -limit, limit)
//   (up + beta) * gate * sigmoid(alpha * gate)
// Weights and biases of the slices are sliced when the network is folded.
#include <assert.h>
#include <math.h>

#include "builder/rewrite/experts/grouped.h"
#include "core/attr_set.h"
#include "core/view.h"
#include "ops/enums.h"
#include "ops/products/moe.h"

enum { EXPERTS_FACTORS = 3, EXPERTS_GATE = 0, EXPERTS_UP = 1 };

// One of the first products: all columns of `moe`, or those of a slice.
typedef struct experts_part_t {
  const rabbet_ir_node_t *moe, *slice;
  int64_t start, stride, size;
  int32_t readers;  // of what is sliced
} experts_part_t;

typedef struct experts_t {
  rabbet_ir_node_t* down;
  experts_part_t parts[2];
  double limit, alpha, beta;
} experts_t;

// ---- The activation ---------------------------------------------------------

// The number that each element of a constant is.
static bool experts_number(const rabbet_ir_t* ir,
                           const rabbet_ir_value_t* value, double* out) {
  if (!value || !value->constant || !rabbet_ir_is_real(value->dtype) ||
      rabbet_ir_count(ir, value) == 0)
    return false;
  *out = rabbet_load_double(value->dtype, value->constant, 0);
  return rabbet_ir_is_number(ir, value, *out);
}

// The node that makes the value, with one reader if `sole`.
static const rabbet_ir_node_t* experts_maker(const rabbet_ir_t* ir,
                                             const rabbet_ir_value_t* value,
                                             int32_t uses, rabbet_op_id_t op,
                                             const char* attr, int64_t kind) {
  const rabbet_ir_node_t* node = value->producer;
  return node && !node->dead && rabbet_op_is(node->op, op) &&
                 !rabbet_ir_has_wishes(ir, node) && value->uses == uses &&
                 value->output < 0 && rabbet_ir_int(node, attr) == kind
             ? node
             : NULL;
}

// x, where the value is x op number, for one reader; NULL: it is not.
static const rabbet_ir_value_t* experts_operand(const rabbet_ir_t* ir,
                                                const rabbet_ir_value_t* value,
                                                int32_t uses, int64_t op,
                                                double* out_number) {
  const rabbet_ir_node_t* node =
      experts_maker(ir, value, uses, RABBET_OP_ELEMENTWISE, "op", op);
  for (size_t i = 0; node && i < 2; ++i) {
    const rabbet_ir_value_t* x = rabbet_ir_input(ir, node, 1 - i);
    if (experts_number(ir, rabbet_ir_input(ir, node, i), out_number) &&
        rabbet_ir_shape_equal(&x->shape, &value->shape))
      return x;
  }
  return NULL;
}

// The value before it is limited to [*low, *high]; `uses`: of its limited form,
// and then of the result.
static const rabbet_ir_value_t* experts_unclamped(
    const rabbet_ir_t* ir, const rabbet_ir_value_t* value, int32_t* uses,
    double* low, double* high) {
  *low = -INFINITY;
  *high = INFINITY;
  for (;;) {
    double number = 0;
    const rabbet_ir_value_t* x =
        experts_operand(ir, value, *uses, RABBET_ELEMENTWISE_MIN, &number);
    if (x) {
      *high = fmin(*high, number);
    } else {
      x = experts_operand(ir, value, *uses, RABBET_ELEMENTWISE_MAX, &number);
      if (x) *low = fmax(*low, number);
    }
    const rabbet_ir_node_t* clip =
        x ? NULL
          : experts_maker(ir, value, *uses, RABBET_OP_ACTIVATION, "type",
                          RABBET_ACTIVATION_CLIP);
    if (clip) {
      x = rabbet_ir_input(ir, clip, 0);
      *low = fmax(*low, rabbet_attr_float(clip->attrs, clip->op->attr_count,
                                          "alpha", 0));
      *high = fmin(*high, rabbet_attr_float(clip->attrs, clip->op->attr_count,
                                            "beta", 0));
    }
    if (!x) return value;
    value = x;
    *uses = 1;
  }
}

// The three factors of a product of products.
static bool experts_factors(const rabbet_ir_t* ir,
                            const rabbet_ir_value_t* value,
                            const rabbet_ir_value_t** factors) {
  const rabbet_ir_node_t* outer = experts_maker(
      ir, value, 1, RABBET_OP_ELEMENTWISE, "op", RABBET_ELEMENTWISE_PROD);
  for (size_t i = 0; outer && i < 2; ++i) {
    const rabbet_ir_node_t* inner =
        experts_maker(ir, rabbet_ir_input(ir, outer, i), 1,
                      RABBET_OP_ELEMENTWISE, "op", RABBET_ELEMENTWISE_PROD);
    if (!inner) continue;
    factors[0] = rabbet_ir_input(ir, inner, 0);
    factors[1] = rabbet_ir_input(ir, inner, 1);
    factors[2] = rabbet_ir_input(ir, outer, 1 - i);
    for (size_t k = 0; k < EXPERTS_FACTORS; ++k)
      if (!rabbet_ir_shape_equal(&factors[k]->shape, &value->shape))
        return false;
    return true;
  }
  return false;
}

// Whether the factor is sigmoid(alpha * gate).
static bool experts_is_sigmoid(const rabbet_ir_t* ir,
                               const rabbet_ir_value_t* factor,
                               const rabbet_ir_value_t* gate, double* alpha) {
  const rabbet_ir_node_t* node = experts_maker(
      ir, factor, 1, RABBET_OP_ACTIVATION, "type", RABBET_ACTIVATION_SIGMOID);
  if (!node) return false;
  const rabbet_ir_value_t* x = rabbet_ir_input(ir, node, 0);
  *alpha = 1;
  return x == gate ||
         experts_operand(ir, x, 1, RABBET_ELEMENTWISE_PROD, alpha) == gate;
}

// Finds gate and up, before their limits.
static bool experts_activation(const rabbet_ir_t* ir,
                               const rabbet_ir_value_t* value, experts_t* e,
                               const rabbet_ir_value_t* sources[2],
                               int32_t uses[2]) {
  const rabbet_ir_value_t* factors[EXPERTS_FACTORS];
  if (!experts_factors(ir, value, factors)) return false;
  for (size_t s = 0; s < EXPERTS_FACTORS; ++s)
    for (size_t g = 0; g < EXPERTS_FACTORS; ++g) {
      const rabbet_ir_value_t *gate = factors[g], *up = factors[3 - s - g];
      double low[2], high[2];
      if (s == g || !experts_is_sigmoid(ir, factors[s], gate, &e->alpha))
        continue;
      const rabbet_ir_value_t* before =
          experts_operand(ir, up, 1, RABBET_ELEMENTWISE_SUM, &e->beta);
      if (!before) e->beta = 0;
      uses[EXPERTS_GATE] = 2;
      uses[EXPERTS_UP] = 1;
      sources[EXPERTS_GATE] =
          experts_unclamped(ir, gate, &uses[EXPERTS_GATE], &low[0], &high[0]);
      sources[EXPERTS_UP] = experts_unclamped(
          ir, before ? before : up, &uses[EXPERTS_UP], &low[1], &high[1]);
      e->limit = high[1];
      return low[0] == -INFINITY && high[0] == high[1] && low[1] == -high[1] &&
             e->limit >= 0;
    }
  return false;
}

// ---- The first products -----------------------------------------------------

static bool experts_is_foldable(const rabbet_ir_t* ir,
                                const rabbet_ir_value_t* value) {
  const rabbet_ir_node_t* node = value->producer;
  if (node && !node->dead && rabbet_op_is(node->op, RABBET_OP_SHUFFLE) &&
      !rabbet_ir_input(ir, node, 1))
    value = rabbet_ir_input(ir, node, 0);
  return rabbet_grouped_is_constant(value);
}

// The value before views, of which the last one has `*uses` readers and others
// have one; *uses is then what the result has.
static const rabbet_ir_value_t* experts_before_views(
    const rabbet_ir_t* ir, const rabbet_ir_value_t* value, int32_t* uses) {
  const rabbet_ir_node_t* node = value->producer;
  if (!node || node->dead || !rabbet_ir_is_view(ir, node) ||
      rabbet_ir_has_wishes(ir, node) || value->uses != *uses ||
      value->output >= 0)
    return value;
  const rabbet_ir_value_t* before =
      rabbet_grouped_before_views(ir, rabbet_ir_input(ir, node, 0));
  if (!rabbet_grouped_same_rows(value, before)) return value;
  *uses = 1;
  return before;
}

// The product of which the value is some columns, for `uses` readers. All of
// the product's columns have one reader, or two slices.
static bool experts_part(const rabbet_ir_t* ir, const rabbet_ir_value_t* value,
                         int32_t uses, experts_part_t* part) {
  value = experts_before_views(ir, value, &uses);
  const rabbet_ir_node_t* node = value->producer;
  int32_t last = value->shape.rank - 1;
  rabbet_ir_window_t window;
  *part = (experts_part_t){.stride = 1};
  if (!node || node->dead || value->uses != uses || value->output >= 0 ||
      rabbet_ir_has_wishes(ir, node))
    return false;
  part->size = rabbet_ir_dims(ir, value).d[last];
  if (rabbet_ir_window(ir, node, &window)) {
    const rabbet_ir_value_t* from = rabbet_ir_input(ir, node, 0);
    for (int32_t i = 0; i < last; ++i)
      if (window.start[i] != 0 || window.stride[i] != 1 ||
          from->shape.d[i] != value->shape.d[i])
        return false;
    part->slice = node;
    part->start = window.start[last];
    part->stride = window.stride[last];
    part->readers = uses = from->uses;
    from = experts_before_views(ir, from, &uses);
    if (from->uses != uses || from->output >= 0) return false;
    node = from->producer;
  }
  part->moe = node;
  return node && !node->dead && rabbet_op_is(node->op, RABBET_OP_MOE) &&
         part->size > 0 && part->stride > 0 &&
         !rabbet_ir_has_wishes(ir, node) && rabbet_grouped_is_product(ir, node);
}

// Weights and bias of a slice must be known, or slicing them would be work of
// each run.
static bool experts_can_slice(const rabbet_ir_t* ir,
                              const experts_part_t* part) {
  const rabbet_ir_value_t* bias =
      rabbet_ir_input(ir, part->moe, RABBET_MOE_DOWN_BIAS);
  return !part->slice ||
         (experts_is_foldable(
              ir, rabbet_ir_input(ir, part->moe, RABBET_MOE_DOWN)) &&
          (!bias || experts_is_foldable(ir, bias)));
}

// Whether the rows of both layers have the same experts.
static bool experts_agree(const rabbet_ir_t* ir, const rabbet_ir_node_t* a,
                          const rabbet_ir_node_t* b) {
  const rabbet_ir_value_t* x = rabbet_ir_input(ir, a, RABBET_MOE_EXPERTS);
  const rabbet_ir_value_t* y = rabbet_ir_input(ir, b, RABBET_MOE_EXPERTS);
  int64_t groups =
      rabbet_ir_dims(ir, rabbet_ir_input(ir, a, RABBET_MOE_DOWN)).d[0];
  return rabbet_ir_dims(ir, rabbet_ir_input(ir, b, RABBET_MOE_DOWN)).d[0] ==
             groups &&
         rabbet_ir_shape_equal(&x->shape, &y->shape) &&
         rabbet_grouped_root(ir, x, groups) ==
             rabbet_grouped_root(ir, y, groups);
}

// Whether the parts use up the products they are of.
static bool experts_parts_fit(const rabbet_ir_t* ir, const experts_t* e) {
  const experts_part_t *gate = &e->parts[0], *up = &e->parts[1];
  for (size_t i = 0; i < 2; ++i) {
    const experts_part_t* part = &e->parts[i];
    if (part->moe->inputs[RABBET_MOE_HIDDEN] !=
            gate->moe->inputs[RABBET_MOE_HIDDEN] ||
        !experts_agree(ir, part->moe, e->down) ||
        !experts_can_slice(ir, part) ||
        (part->slice && part->readers != (gate->moe == up->moe ? 2 : 1)))
      return false;
  }
  return gate->size == up->size &&
         (gate->moe != up->moe || gate->slice != up->slice);
}

static bool experts_match(const rabbet_ir_t* ir, rabbet_ir_node_t* down,
                          experts_t* e) {
  const rabbet_ir_value_t* sources[2] = {NULL, NULL};
  int32_t uses[2] = {0, 0};
  rabbet_ir_value_t* hidden = rabbet_ir_input(ir, down, RABBET_MOE_HIDDEN);
  const rabbet_ir_value_t* rows = rabbet_grouped_before_views(ir, hidden);
  *e = (experts_t){.down = down};
  const rabbet_ir_value_t* experts =
      rabbet_ir_input(ir, down, RABBET_MOE_EXPERTS);
  int64_t chosen = 0;
  return !rabbet_ir_input(ir, down, RABBET_MOE_GATE) &&
         rabbet_grouped_same_rows(hidden, rows) &&
         rabbet_expr_is_constant(
             ir->graph, experts->shape.d[experts->shape.rank - 1], &chosen) &&
         chosen == 1 && experts_activation(ir, rows, e, sources, uses) &&
         experts_part(ir, sources[EXPERTS_GATE], uses[EXPERTS_GATE],
                      &e->parts[EXPERTS_GATE]) &&
         experts_part(ir, sources[EXPERTS_UP], uses[EXPERTS_UP],
                      &e->parts[EXPERTS_UP]) &&
         experts_parts_fit(ir, e);
}

// ---- The layer --------------------------------------------------------------

// Some elements of the last axis.
static rabbet_status_t experts_slice(rabbet_build_t* build, const experts_t* e,
                                     const experts_part_t* part, int32_t value,
                                     int32_t* out_value) {
  const rabbet_ir_value_t* from = rabbet_ir_value(&build->ir, value);
  int64_t axis = from->shape.rank - 1;
  const rabbet_attr_t attrs[] = {
      {.name = "start",
       .type = RABBET_ATTR_INTS,
       .data = &part->start,
       .count = 1},
      {.name = "shape",
       .type = RABBET_ATTR_INTS,
       .data = &part->size,
       .count = 1},
      {.name = "stride",
       .type = RABBET_ATTR_INTS,
       .data = &part->stride,
       .count = 1},
      {.name = "axes", .type = RABBET_ATTR_INTS, .data = &axis, .count = 1},
  };
  rabbet_ir_node_t* slice = NULL;
  *out_value = value;
  if (!part->slice) return rabbet_ok();
  RABBET_RETURN_IF_ERROR(rabbet_ir_add_node(
      &build->ir, RABBET_OP_SLICE, from->name, attrs,
      sizeof(attrs) / sizeof(attrs[0]), &value, 1, e->down, &slice));
  *out_value = slice->outputs[0];
  return rabbet_ok();
}

// [experts, columns] of zeros, as the layer has all biases or none.
static rabbet_status_t experts_zeros(rabbet_build_t* build, const experts_t* e,
                                     int64_t columns, int32_t* out_value) {
  rabbet_ir_t* ir = &build->ir;
  const rabbet_ir_value_t* weights =
      rabbet_ir_input(ir, e->down, RABBET_MOE_DOWN);
  const rabbet_dims_t dims = {.rank = 2,
                              .d = {rabbet_ir_dims(ir, weights).d[0], columns}};
  rabbet_ir_value_t* zeros = NULL;
  size_t bytes = 0;
  void* data = NULL;
  RABBET_RETURN_IF_ERROR(
      rabbet_tensor_bytes(weights->dtype, RABBET_FORMAT_LINEAR, &dims, &bytes));
  RABBET_RETURN_IF_ERROR(
      rabbet_arena_allocate_array(&build->arena, bytes + 1, 1, &data));
  RABBET_RETURN_IF_ERROR(rabbet_ir_add_constant(
      ir, e->down->name, weights->dtype, &dims, data, &zeros));
  *out_value = zeros->id;
  return rabbet_ok();
}

static rabbet_status_t experts_biases(rabbet_build_t* build, const experts_t* e,
                                      int32_t inputs[RABBET_MOE_INPUTS],
                                      size_t* out_count) {
  rabbet_ir_t* ir = &build->ir;
  rabbet_ir_value_t* biases[3] = {
      rabbet_ir_input(ir, e->parts[0].moe, RABBET_MOE_DOWN_BIAS),
      rabbet_ir_input(ir, e->parts[1].moe, RABBET_MOE_DOWN_BIAS),
      rabbet_ir_input(ir, e->down, RABBET_MOE_DOWN_BIAS)};
  *out_count = RABBET_MOE_DOWN + 1;
  if (!biases[0] && !biases[1] && !biases[2]) return rabbet_ok();
  *out_count = RABBET_MOE_DOWN_BIAS + 1;
  int64_t hidden =
      rabbet_ir_dims(ir, rabbet_ir_input(ir, e->down, RABBET_MOE_DOWN)).d[2];
  for (size_t i = 0; i < 3; ++i) {
    int32_t* input = &inputs[RABBET_MOE_GATE_BIAS + i];
    if (!biases[i])
      RABBET_RETURN_IF_ERROR(
          experts_zeros(build, e, i < 2 ? e->parts[i].size : hidden, input));
    else if (i < 2)
      RABBET_RETURN_IF_ERROR(
          experts_slice(build, e, &e->parts[i], biases[i]->id, input));
    else
      *input = biases[i]->id;
  }
  return rabbet_ok();
}

static rabbet_status_t experts_add(rabbet_build_t* build, const experts_t* e,
                                   rabbet_ir_node_t** out_node) {
  const rabbet_ir_node_t* down = e->down;
  int64_t silu = RABBET_MOE_ACT_SILU;
  const rabbet_attr_t attrs[] = {
      {.name = "activation_type",
       .type = RABBET_ATTR_INT,
       .data = &silu,
       .count = 1},
      {.name = "swiglu_param_limit",
       .type = RABBET_ATTR_FLOAT,
       .data = &e->limit,
       .count = 1},
      {.name = "swiglu_param_alpha",
       .type = RABBET_ATTR_FLOAT,
       .data = &e->alpha,
       .count = 1},
      {.name = "swiglu_param_beta",
       .type = RABBET_ATTR_FLOAT,
       .data = &e->beta,
       .count = 1},
  };
  int32_t inputs[RABBET_MOE_INPUTS];
  size_t count = 0;
  for (size_t i = 0; i < RABBET_MOE_INPUTS; ++i)
    inputs[i] = i < down->input_count ? down->inputs[i] : -1;
  inputs[RABBET_MOE_HIDDEN] = e->parts[0].moe->inputs[RABBET_MOE_HIDDEN];
  for (size_t i = 0; i < 2; ++i)
    RABBET_RETURN_IF_ERROR(experts_slice(
        build, e, &e->parts[i], e->parts[i].moe->inputs[RABBET_MOE_DOWN],
        &inputs[RABBET_MOE_GATE + i]));
  RABBET_RETURN_IF_ERROR(experts_biases(build, e, inputs, &count));
  return rabbet_ir_add_node(&build->ir, RABBET_OP_MOE, down->name, attrs,
                            sizeof(attrs) / sizeof(attrs[0]), inputs, count,
                            down, out_node);
}

rabbet_status_t rabbet_rule_experts(rabbet_build_t* build,
                                    rabbet_ir_node_t* node, bool* changed) {
  rabbet_ir_t* ir = &build->ir;
  experts_t experts;
  rabbet_ir_node_t* made = NULL;
  if (rabbet_ir_has_wishes(ir, node) || !experts_match(ir, node, &experts))
    return rabbet_ok();
  RABBET_RETURN_IF_ERROR(experts_add(build, &experts, &made));
  if (rabbet_ir_bypass(ir, node, rabbet_ir_output(ir, made, 0)))
    *changed = true;
  else
    rabbet_ir_kill(ir, made);
  return rabbet_ok();
}
