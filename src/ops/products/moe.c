// A mixture of experts: each token goes through the networks of the experts
// that were chosen for it. The output is the sum of their results, each times
// its score.
//
//   expert(x) = (act(x gate + gate_bias) * (x up + up_bias + beta)) down
//               + down_bias
// Without gate and up, expert(x) = x down + down_bias: products of rows with
// one of several matrices each.
// The gate is clamped to at most `limit`, the other factor to [-limit, limit].
// SILU is x sigmoid(alpha x). Indices without an expert add nothing. Sums are
// FLOAT.
#include "ops/products/moe.h"

#include <math.h>
#include <string.h>

#include "core/view.h"
#include "ops/cost.h"
#include "ops/enums.h"
#include "ops/pointwise/blocks.h"
#include "ops/rules.h"
#include "ops/walk.h"

// ---- Attributes ------------------------------------------------------------

void rabbet_moe_read_attrs(const rabbet_attr_t* attrs, size_t attr_count,
                           int64_t inner, rabbet_moe_attrs_t* out_attrs) {
  size_t count = 0;
  const int64_t* blocks =
      rabbet_attr_ints(attrs, attr_count, "quantization_block_shape", &count);
  int64_t block = count == 0 ? 0 : blocks[count - 1];
  if (count > 0 && (block < 1 || block > inner)) block = inner > 0 ? inner : 1;
  *out_attrs = (rabbet_moe_attrs_t){
      .activation = rabbet_attr_int(attrs, attr_count, "activation_type", 0),
      .limit = (float)rabbet_attr_float(attrs, attr_count, "swiglu_param_limit",
                                        INFINITY),
      .alpha =
          (float)rabbet_attr_float(attrs, attr_count, "swiglu_param_alpha", 1),
      .beta =
          (float)rabbet_attr_float(attrs, attr_count, "swiglu_param_beta", 0),
      .quantization = {
          .to = (rabbet_dtype_t)rabbet_attr_int(
              attrs, attr_count, "quantization_to_type", RABBET_DTYPE_FLOAT),
          .kept = (rabbet_dtype_t)rabbet_attr_int(
              attrs, attr_count, "dyn_q_output_scale_type", RABBET_DTYPE_FLOAT),
          .block = block}};
}

float rabbet_moe_activate(const rabbet_moe_attrs_t* attrs, float gate,
                          float up) {
  if (gate > attrs->limit) gate = attrs->limit;
  if (up > attrs->limit) up = attrs->limit;
  if (up < -attrs->limit) up = -attrs->limit;
  if (attrs->activation == RABBET_MOE_ACT_SILU)
    gate = gate / (1 + expf(-attrs->alpha * gate));
  return gate * (up + attrs->beta);
}

// ---- Types and shapes ------------------------------------------------------

static bool moe_has(const rabbet_op_infer_t* infer, size_t input) {
  return input < infer->input_count && infer->inputs[input].present;
}

// Whether experts have other products than the last one.
static bool moe_is_gated(const rabbet_op_infer_t* infer) {
  return moe_has(infer, RABBET_MOE_GATE) || moe_has(infer, RABBET_MOE_UP) ||
         !moe_has(infer, RABBET_MOE_DOWN);
}

static rabbet_status_t moe_check_inputs(const rabbet_op_infer_t* infer) {
  bool quantizes =
      RABBET_OP_INT(infer, "quantization_to_type") != RABBET_DTYPE_FLOAT;
  bool is_gated = moe_is_gated(infer);
  size_t biases = 0;
  for (size_t i = RABBET_MOE_GATE_BIAS; i <= RABBET_MOE_DOWN_BIAS; ++i)
    biases += moe_has(infer, i);
  for (size_t i = is_gated ? RABBET_MOE_GATE : RABBET_MOE_DOWN;
       i <= RABBET_MOE_DOWN; ++i)
    if (!moe_has(infer, i))
      return RABBET_OP_INVALID(
          "input %zu ('%s') is missing: the experts have no weights "
          "(set_gated_weights)",
          i, infer->op->inputs[i].name);
  if (!is_gated && biases != (size_t)moe_has(infer, RABBET_MOE_DOWN_BIAS))
    return RABBET_OP_INVALID(
        "fc_gate_biases or fc_up_biases are given for experts without the "
        "weights of gate and up");
  if (!is_gated && quantizes)
    return RABBET_OP_INVALID(
        "quantization_to_type is given for experts without the weights of gate "
        "and up, whose product would be quantized");
  if (is_gated && biases != 0 && biases != 3)
    return RABBET_OP_INVALID(
        "%zu of 3 biases are given; expected fc_gate_biases, fc_up_biases and "
        "fc_down_biases, or none",
        biases);
  if (quantizes != moe_has(infer, RABBET_MOE_SCALE))
    return RABBET_OP_INVALID(
        "quantization_to_type is %s and input 9 ('fc_down_activation_scale') "
        "is %s; expected both, or FLOAT and none (set_quantization_static, "
        "set_quantization_dynamic_dbl_q)",
        rabbet_dtype_name(
            (rabbet_dtype_t)RABBET_OP_INT(infer, "quantization_to_type")),
        moe_has(infer, RABBET_MOE_SCALE) ? "given" : "missing");
  return rabbet_ok();
}

static rabbet_status_t moe_infer_types(const rabbet_op_infer_t* infer) {
  rabbet_dtype_t dtype = infer->inputs[RABBET_MOE_HIDDEN].dtype;
  infer->outputs[0].dtype = dtype;
  RABBET_RETURN_IF_ERROR(moe_check_inputs(infer));
  for (size_t i = RABBET_MOE_SCORES; i <= RABBET_MOE_DOWN_BIAS; ++i)
    if (moe_has(infer, i) && infer->inputs[i].dtype != dtype)
      return RABBET_OP_INVALID(
          "input %zu ('%s') has type %s, but input 0 ('hidden_states') has "
          "type "
          "%s; they must be equal (insert a cast)",
          i, infer->op->inputs[i].name,
          rabbet_dtype_name(infer->inputs[i].dtype), rabbet_dtype_name(dtype));
  return rabbet_ok();
}

// The shape that an input must have, as letters: the leading dimensions of the
// tokens (t), chosen experts (k), experts (e), hidden (h) and inner (i).
static const char* const moe_shapes[RABBET_MOE_INPUTS] = {
    "th", "tk", "tk", "ehi", "ehi", "eih", "ei", "ei", "eh", ""};

static rabbet_status_t moe_invalid(const rabbet_op_infer_t* infer, size_t input,
                                   const char* why) {
  char a[RABBET_OP_TEXT], b[RABBET_OP_TEXT], c[RABBET_OP_TEXT];
  size_t first = moe_is_gated(infer) ? RABBET_MOE_GATE : RABBET_MOE_DOWN;
  return RABBET_OP_INVALID(
      "input %zu ('%s') has shape %s; %s, where 'hidden_states' has shape %s "
      "and '%s' %s",
      input, infer->op->inputs[input].name,
      rabbet_op_shape_text(infer, &infer->inputs[input].shape, a), why,
      rabbet_op_shape_text(infer, &infer->inputs[RABBET_MOE_HIDDEN].shape, b),
      infer->op->inputs[first].name,
      rabbet_op_shape_text(infer, &infer->inputs[first].shape, c));
}

// Dimensions that are known so far, by letter.
typedef struct moe_letters_t {
  rabbet_expr_t dims[128];
} moe_letters_t;

static bool moe_meets(const rabbet_op_infer_t* infer, moe_letters_t* letters,
                      char letter, rabbet_expr_t dim) {
  rabbet_expr_t* known = &letters->dims[(int)letter];
  if (*known != RABBET_EXPR_NONE)
    return rabbet_op_same_dim(infer, dim, *known, known);
  *known = dim;
  return true;
}

static bool moe_fits(const rabbet_op_infer_t* infer, moe_letters_t* letters,
                     size_t input) {
  const rabbet_shape_t* hidden = &infer->inputs[RABBET_MOE_HIDDEN].shape;
  const rabbet_shape_t* shape = &infer->inputs[input].shape;
  bool is_row = input == RABBET_MOE_HIDDEN && !moe_is_gated(infer);
  const char* wanted = is_row ? "ti" : moe_shapes[input];
  rabbet_expr_t ignored = RABBET_EXPR_NONE;
  int32_t at = 0, tokens = hidden->rank - 1;
  if (input == RABBET_MOE_SCALE)
    return shape->rank == 0 ||
           (shape->rank == 1 && rabbet_op_equals(infer, shape->d[0], 1));
  if (wanted[0] == 't') {
    if (shape->rank != hidden->rank) return false;
    for (; at < tokens; ++at)
      if (!rabbet_op_same_dim(infer, shape->d[at], hidden->d[at], &ignored))
        return false;
    ++wanted;
  }
  if (shape->rank != at + (int32_t)strlen(wanted)) return false;
  for (; *wanted; ++wanted, ++at)
    if (!moe_meets(infer, letters, *wanted, shape->d[at])) return false;
  return true;
}

static rabbet_status_t moe_check_blocks(const rabbet_op_infer_t* infer) {
  size_t count = 0;
  const int64_t* blocks =
      RABBET_OP_INTS(infer, "quantization_block_shape", &count);
  bool fits = count == 0 || blocks[count - 1] == -1 || blocks[count - 1] >= 1;
  for (size_t i = 0; i + 1 < count; ++i)
    fits = fits && blocks[i] == 1;
  if (fits) return rabbet_ok();
  return RABBET_OP_INVALID(
      "attribute 'quantization_block_shape' must be 1 but for its last number, "
      "which is 1 or more, or -1 for a whole row");
}

static rabbet_status_t moe_check_numbers(const rabbet_op_infer_t* infer) {
  double limit = rabbet_attr_float(infer->attrs, infer->attr_count,
                                   "swiglu_param_limit", INFINITY);
  if (!(limit >= 0))
    return RABBET_OP_INVALID(
        "attribute 'swiglu_param_limit' is %g; expected 0 or more, or infinity "
        "for no limit",
        limit);
  static const char* const finite[] = {"swiglu_param_alpha",
                                       "swiglu_param_beta"};
  for (size_t i = 0; i < RABBET_OP_COUNT_OF(finite); ++i) {
    double number = RABBET_OP_FLOAT(infer, finite[i]);
    if (!isfinite(number))
      return RABBET_OP_INVALID("attribute '%s' is %g; expected a finite number",
                               finite[i], number);
  }
  return rabbet_ok();
}

static rabbet_status_t moe_infer_shapes(const rabbet_op_infer_t* infer) {
  const rabbet_shape_t* hidden = &infer->inputs[RABBET_MOE_HIDDEN].shape;
  moe_letters_t letters;
  RABBET_RETURN_IF_ERROR(moe_check_numbers(infer));
  for (size_t i = 0; i < RABBET_OP_COUNT_OF(letters.dims); ++i)
    letters.dims[i] = RABBET_EXPR_NONE;
  if (hidden->rank < 2)
    return moe_invalid(infer, RABBET_MOE_HIDDEN,
                       "expected [tokens, hidden] or [batch, tokens, hidden]");
  for (size_t i = 0; i < infer->input_count; ++i) {
    static const char* const expected[RABBET_MOE_INPUTS] = {
        "",
        "expected the experts of each token",
        "expected a score for each expert of a token",
        "expected [experts, hidden, inner]",
        "expected [experts, hidden, inner]",
        "expected [experts, inner, hidden]",
        "expected [experts, inner]",
        "expected [experts, inner]",
        "expected [experts, hidden]",
        "expected one number"};
    if (moe_has(infer, i) && !moe_fits(infer, &letters, i))
      return moe_invalid(infer, i, expected[i]);
  }
  infer->outputs[0].shape = *hidden;
  infer->outputs[0].shape.d[hidden->rank - 1] = letters.dims['h'];
  return moe_check_blocks(infer);
}

// ---- Known sizes -----------------------------------------------------------

static int64_t moe_tokens(const rabbet_dims_t* dims) {
  int64_t tokens = 1;
  for (int32_t i = 0; i + 1 < dims->rank; ++i)
    tokens *= dims->d[i];
  return tokens;
}

static bool moe_is(const rabbet_dims_t* dims, int64_t a, int64_t b, int64_t c) {
  if (!dims) return true;
  return c < 0 ? dims->rank == 2 && dims->d[0] == a && dims->d[1] == b
               : dims->rank == 3 && dims->d[0] == a && dims->d[1] == b &&
                     dims->d[2] == c;
}

rabbet_status_t rabbet_moe_resolve(
    const rabbet_dims_t* const dims[RABBET_MOE_INPUTS],
    rabbet_moe_sizes_t* out_sizes) {
  const rabbet_dims_t* x = dims[RABBET_MOE_HIDDEN];
  const rabbet_dims_t* chosen = dims[RABBET_MOE_EXPERTS];
  const rabbet_dims_t* scores = dims[RABBET_MOE_SCORES];
  const rabbet_dims_t* down = dims[RABBET_MOE_DOWN];
  rabbet_moe_sizes_t* s = out_sizes;
  *s = (rabbet_moe_sizes_t){0};
  bool is_gated = dims[RABBET_MOE_GATE] != NULL;
  bool fits = x->rank > 1 && chosen->rank == x->rank &&
              (!scores || scores->rank == x->rank) && down->rank == 3;
  for (int32_t i = 0; fits && i < x->rank; ++i)
    fits = (!scores || chosen->d[i] == scores->d[i]) &&
           (i + 1 == x->rank || chosen->d[i] == x->d[i]);
  if (fits)
    *s = (rabbet_moe_sizes_t){.tokens = moe_tokens(x),
                              .chosen = chosen->d[chosen->rank - 1],
                              .experts = down->d[0],
                              .hidden = down->d[2],
                              .inner = down->d[1],
                              .is_gated = is_gated};
  fits = fits && x->d[x->rank - 1] == rabbet_moe_width(s) &&
         moe_is(dims[RABBET_MOE_GATE], s->experts, s->hidden, s->inner) &&
         moe_is(dims[RABBET_MOE_UP], s->experts, s->hidden, s->inner) &&
         moe_is(dims[RABBET_MOE_GATE_BIAS], s->experts, s->inner, -1) &&
         moe_is(dims[RABBET_MOE_UP_BIAS], s->experts, s->inner, -1) &&
         moe_is(dims[RABBET_MOE_DOWN_BIAS], s->experts, s->hidden, -1);
  if (fits) return rabbet_ok();
  char a[128], b[128], c[128];
  return RABBET_STATUS(
      RABBET_STATUS_OUT_OF_RANGE,
      "hidden states of shape %s, experts of shape %s and weights of shape %s "
      "(or biases, scores) do not fit each other",
      rabbet_dims_print(x, a, sizeof(a)),
      rabbet_dims_print(chosen, b, sizeof(b)),
      rabbet_dims_print(down, c, sizeof(c)));
}

// ---- Reference -------------------------------------------------------------

void rabbet_moe_quantize(const rabbet_moe_quantization_t* quantization,
                         float scale, float* row, int64_t inner) {
  rabbet_dtype_t to = quantization->to;
  int64_t block = quantization->block > 0 ? quantization->block : inner;
  if (to == RABBET_DTYPE_FLOAT) return;
  for (int64_t first = 0; first < inner; first += block) {
    int64_t end = first + block < inner ? first + block : inner;
    float by = scale, most = 0, stored = 0;
    for (int64_t i = first; i < end; ++i)
      if (fabsf(row[i]) > most) most = fabsf(row[i]);
    if (quantization->block > 0)
      by = rabbet_dynamic_quantize_scale(to, quantization->kept, most, scale,
                                         &stored);
    for (int64_t i = first; i < end; ++i) {
      char byte[1];
      float value = by == 0 ? 0 : row[i] / by;
      if (to != RABBET_DTYPE_FP8) value = nearbyintf(value);
      rabbet_store_double(to, byte, 0, value);
      row[i] = (float)rabbet_load_double(to, byte, 0) * by;
    }
  }
}

typedef struct moe_call_t {
  const rabbet_view_t* in;
  size_t count;
  rabbet_moe_sizes_t sizes;
  rabbet_moe_attrs_t attrs;
  bool has_scores;
  float scale;
  double* sum;  // of a token
  float* row;
} moe_call_t;

static double moe_at(const moe_call_t* call, size_t input, int64_t at) {
  const rabbet_view_t* view = &call->in[input];
  if (input >= call->count || view->dtype == RABBET_DTYPE_NONE) return 0;
  return rabbet_load_double(view->dtype, view->data, at);
}

// Element `i` of a row of `count` times matrix `expert` of [count, columns].
static double moe_product(const moe_call_t* call, size_t weights,
                          int64_t expert, int64_t columns, int64_t i,
                          const float* row, int64_t count) {
  double sum = 0;
  for (int64_t k = 0; k < count; ++k)
    sum += row[k] * moe_at(call, weights, (expert * count + k) * columns + i);
  return sum;
}

static void moe_expert(const moe_call_t* call, int64_t token, int64_t expert,
                       double score, float* x) {
  const rabbet_moe_sizes_t* s = &call->sizes;
  int64_t width = rabbet_moe_width(s);
  float* first = s->is_gated ? x : call->row;
  for (int64_t k = 0; k < width; ++k)
    first[k] = (float)moe_at(call, RABBET_MOE_HIDDEN, token * width + k);
  for (int64_t i = 0; i < s->inner && s->is_gated; ++i) {
    int64_t at = expert * s->inner + i;
    double gate =
        moe_product(call, RABBET_MOE_GATE, expert, s->inner, i, x, s->hidden) +
        moe_at(call, RABBET_MOE_GATE_BIAS, at);
    double up =
        moe_product(call, RABBET_MOE_UP, expert, s->inner, i, x, s->hidden) +
        moe_at(call, RABBET_MOE_UP_BIAS, at);
    call->row[i] = rabbet_moe_activate(&call->attrs, (float)gate, (float)up);
  }
  rabbet_moe_quantize(&call->attrs.quantization, call->scale, call->row,
                      s->inner);
  for (int64_t k = 0; k < s->hidden; ++k)
    call->sum[k] +=
        score * (moe_product(call, RABBET_MOE_DOWN, expert, s->hidden, k,
                             call->row, s->inner) +
                 moe_at(call, RABBET_MOE_DOWN_BIAS, expert * s->hidden + k));
}

static void moe_run(const moe_call_t* call, const rabbet_view_t* y, float* x) {
  const rabbet_moe_sizes_t* s = &call->sizes;
  const rabbet_view_t* experts = &call->in[RABBET_MOE_EXPERTS];
  for (int64_t token = 0; token < s->tokens; ++token) {
    for (int64_t k = 0; k < s->hidden; ++k)
      call->sum[k] = 0;
    for (int64_t c = 0; c < s->chosen; ++c) {
      int64_t at = token * s->chosen + c;
      int64_t expert = rabbet_load_int64(experts->dtype, experts->data, at);
      if (expert >= 0 && expert < s->experts)
        moe_expert(call, token, expert,
                   call->has_scores ? moe_at(call, RABBET_MOE_SCORES, at) : 1,
                   x);
    }
    for (int64_t k = 0; k < s->hidden; ++k)
      rabbet_store_double(y->dtype, y->data, token * s->hidden + k,
                          call->sum[k]);
  }
}

static rabbet_status_t moe_reference(const rabbet_op_eval_t* eval) {
  const rabbet_dims_t* dims[RABBET_MOE_INPUTS] = {NULL};
  moe_call_t call = {.in = eval->inputs, .count = eval->input_count};
  for (size_t i = 0; i < eval->input_count; ++i)
    if (eval->inputs[i].dtype != RABBET_DTYPE_NONE)
      dims[i] = &eval->inputs[i].dims;
  RABBET_RETURN_IF_ERROR(rabbet_moe_resolve(dims, &call.sizes));
  rabbet_moe_read_attrs(eval->attrs, eval->attr_count, call.sizes.inner,
                        &call.attrs);
  call.has_scores = dims[RABBET_MOE_SCORES] != NULL;
  call.scale = (float)moe_at(&call, RABBET_MOE_SCALE, 0);
  size_t hidden = (size_t)call.sizes.hidden, inner = (size_t)call.sizes.inner;
  void* room = NULL;
  RABBET_RETURN_IF_ERROR(rabbet_allocate(
      eval->allocator,
      hidden * (sizeof(double) + sizeof(float)) + inner * sizeof(float) + 1,
      &room));
  call.sum = room;
  call.row = (float*)(call.sum + hidden);
  moe_run(&call, &eval->outputs[0], call.row + inner);
  rabbet_free(eval->allocator, room);
  return rabbet_ok();
}

// ---- The descriptor --------------------------------------------------------

static const rabbet_op_enumerator_t moe_activations[] = {
    RABBET_MOE_ACTS(RABBET_ENUMERATOR){NULL, 0}};
static const rabbet_op_enumerator_t moe_types[] = {
    {"FLOAT", RABBET_DTYPE_FLOAT},
    {"INT8", RABBET_DTYPE_INT8},
    {"FP8", RABBET_DTYPE_FP8},
    {NULL, 0},
};
static const rabbet_op_enumerator_t moe_scale_types[] = {
    {"FLOAT", RABBET_DTYPE_FLOAT}, {"HALF", RABBET_DTYPE_HALF},
    {"BF16", RABBET_DTYPE_BF16},   {"FP8", RABBET_DTYPE_FP8},
    {"E8M0", RABBET_DTYPE_E8M0},   {NULL, 0},
};
// Weights are checked by the rule of types, which says how to give them.
static double moe_cost(const rabbet_op_eval_t* eval) {
  const rabbet_dims_t* dims[RABBET_MOE_INPUTS] = {NULL};
  rabbet_moe_sizes_t sizes;
  for (size_t i = 0; i < eval->input_count && i < RABBET_MOE_INPUTS; ++i)
    if (eval->inputs[i].dtype != RABBET_DTYPE_NONE)
      dims[i] = &eval->inputs[i].dims;
  rabbet_status_t status = rabbet_moe_resolve(dims, &sizes);
  bool known = rabbet_is_ok(status);
  rabbet_status_ignore(status);
  if (!known) return rabbet_cost_elements(eval);
  return rabbet_cost_elements(eval) +
         (sizes.is_gated ? 3.0 : 1.0) * (double)sizes.tokens *
             (double)sizes.chosen * (double)sizes.hidden * (double)sizes.inner;
}

static const rabbet_op_operand_t moe_inputs[] = {
    {"hidden_states", 0, RABBET_T_NARROW_FLOATS},
    {"selected_experts_for_tokens", RABBET_OPERAND_INDEX, RABBET_T_INDICES},
    {"scores_for_selected_experts", RABBET_OPERAND_OPTIONAL,
     RABBET_T_NARROW_FLOATS},
    {"fc_gate_weights", RABBET_OPERAND_OPTIONAL, RABBET_T_NARROW_FLOATS},
    {"fc_up_weights", RABBET_OPERAND_OPTIONAL, RABBET_T_NARROW_FLOATS},
    {"fc_down_weights", RABBET_OPERAND_OPTIONAL, RABBET_T_NARROW_FLOATS},
    {"fc_gate_biases", RABBET_OPERAND_OPTIONAL, RABBET_T_NARROW_FLOATS},
    {"fc_up_biases", RABBET_OPERAND_OPTIONAL, RABBET_T_NARROW_FLOATS},
    {"fc_down_biases", RABBET_OPERAND_OPTIONAL, RABBET_T_NARROW_FLOATS},
    {"fc_down_activation_scale", RABBET_OPERAND_OPTIONAL,
     RABBET_T_NARROW_FLOATS},
};
static const rabbet_op_operand_t moe_outputs[] = {
    {"output", 0, RABBET_T_NARROW_FLOATS}};
static const rabbet_op_attr_t moe_attrs[] = {
    {"activation_type", RABBET_ATTR_INT, false, RABBET_MOE_ACT_SILU, 0,
     moe_activations},
    {"swiglu_param_limit", RABBET_ATTR_FLOAT, false, 0, INFINITY, NULL},
    {"swiglu_param_alpha", RABBET_ATTR_FLOAT, false, 0, 1, NULL},
    {"swiglu_param_beta", RABBET_ATTR_FLOAT, false, 0, 0, NULL},
    {"quantization_to_type", RABBET_ATTR_INT, false, RABBET_DTYPE_FLOAT, 0,
     moe_types},
    {"quantization_block_shape", RABBET_ATTR_INTS, false, 0, 0, NULL},
    {"dyn_q_output_scale_type", RABBET_ATTR_INT, false, RABBET_DTYPE_FLOAT, 0,
     moe_scale_types},
};

const rabbet_op_t rabbet_op_moe = {
    .name = "moe",
    .layer_type = "MOE",
    .inputs = moe_inputs,
    .input_count = RABBET_OP_COUNT_OF(moe_inputs),
    .outputs = moe_outputs,
    .output_count = RABBET_OP_COUNT_OF(moe_outputs),
    .attrs = moe_attrs,
    .attr_count = RABBET_OP_COUNT_OF(moe_attrs),
    .infer_types = moe_infer_types,
    .infer_shapes = moe_infer_shapes,
    .reference = moe_reference,
    .cost = moe_cost,
};
