#include <assert.h>
#include <math.h>

#include "core/view.h"
#include "device/cuda/attention/attention.h"
#include "ops/enums.h"

// ---- The group -------------------------------------------------------------

static const rabbet_group_node_t* attention_maker(const rabbet_group_t* group,
                                                  int32_t value) {
  for (size_t i = 0; i < group->node_count; ++i)
    if (group->nodes[i].output_count == 1 &&
        group->nodes[i].outputs[0] == value)
      return &group->nodes[i];
  return NULL;
}

static const rabbet_group_node_t* attention_made_by(const rabbet_group_t* group,
                                                    int32_t value,
                                                    rabbet_op_id_t op,
                                                    rabbet_attention_t* a) {
  const rabbet_group_node_t* node = attention_maker(group, value);
  if (!node || !rabbet_op_is(node->op, op)) return NULL;
  ++a->nodes;
  return node;
}

static bool attention_is_input(const rabbet_group_t* group, int32_t value) {
  return value >= 0 && rabbet_group_input_of(group, value) >= 0;
}

static bool attention_is_plain(const rabbet_group_node_t* product) {
  return product && rabbet_node_int(product, "op0") == RABBET_MATRIX_NONE &&
         rabbet_node_int(product, "op1") != RABBET_MATRIX_VECTOR;
}

static const rabbet_group_node_t* attention_turn(const rabbet_group_t* group,
                                                 int32_t value,
                                                 rabbet_attention_t* a) {
  const rabbet_group_node_t* node =
      attention_made_by(group, value, RABBET_OP_SHUFFLE, a);
  return node ? node : attention_made_by(group, value, RABBET_OP_SLICE, a);
}

// Matches x times a constant scalar, or x divided by it, and multiplies the
// scalar into a->scale, which kernels apply to the sums. *value becomes x.
// False: no match.
static bool attention_factor(const rabbet_group_t* group, rabbet_attention_t* a,
                             int32_t* value) {
  const rabbet_group_node_t* node = attention_maker(group, *value);
  double number = 0;
  if (!node || !rabbet_op_is(node->op, RABBET_OP_ELEMENTWISE)) return false;
  int64_t op = rabbet_node_int(node, "op");
  bool is_product = op == RABBET_ELEMENTWISE_PROD;
  bool reversed =
      is_product && rabbet_cuda_is_number(group, node->inputs[0], &number);
  if ((!is_product && op != RABBET_ELEMENTWISE_DIV) ||
      (!reversed && !rabbet_cuda_is_number(group, node->inputs[1], &number)))
    return false;
  a->scale = is_product ? a->scale * number : a->scale / number;
  *value = node->inputs[reversed ? 1 : 0];
  ++a->nodes;
  return true;
}

static bool attention_operand(const rabbet_group_t* group,
                              const rabbet_group_node_t* product, size_t input,
                              rabbet_attention_t* a,
                              rabbet_attention_tensor_t* out) {
  bool is_score = a->y.seen != product->outputs[0];
  *out = (rabbet_attention_tensor_t){.value = product->inputs[input],
                                     .seen = product->inputs[input]};
  out->turned =
      input == 1 && rabbet_node_int(product, "op1") == RABBET_MATRIX_TRANSPOSE;
  for (;;) {
    if (is_score && attention_factor(group, a, &out->value)) continue;
    const rabbet_group_node_t* turn = attention_turn(group, out->value, a);
    if (!turn) break;
    if (out->turn_count == RABBET_ATTENTION_TURNS) return false;
    assert(turn->outputs[0] == out->value);  // seen from the product, backwards
    for (int i = out->turn_count++; i > 0; --i)
      out->turns[i] = out->turns[i - 1];
    out->turns[0] = turn;
    out->value = turn->inputs[0];
  }
  return attention_is_input(group, out->value);
}

// ---- Masks that compare places ---------------------------------------------

// A band's ends are differences of places.
#define MOST_PLACE (INT64_MAX / 4)

// Whether the value is a constant that counts up by 1 along one of its last two
// axes, and has no other; *out_axis: 0 for the last, of keys, 1 for that of
// queries. Without its bytes, which trials replace, *out_known becomes false.
static bool attention_places(const rabbet_group_t* group,
                             const rabbet_dims_t* dims, int32_t value,
                             int* out_axis, int64_t* out_first,
                             bool* out_known) {
  const rabbet_group_value_t* constant = &group->values[value];
  const rabbet_dims_t* shape = &dims[value];
  int32_t axis = -1;
  if (!attention_is_input(group, value) || shape->rank < 2) return false;
  for (int32_t i = 0; i < shape->rank; ++i) {
    if (shape->d[i] == 1) continue;
    if (axis >= 0) return false;
    axis = i;
  }
  if (axis < shape->rank - 2) return false;
  *out_axis = shape->rank - 1 - axis;
  if (!constant->constant || rabbet_dtype_is_float(constant->dtype)) {
    *out_known = false;
    return !rabbet_dtype_is_float(constant->dtype);
  }
  *out_first = rabbet_load_int64(constant->dtype, constant->constant, 0);
  if (*out_first < -MOST_PLACE || *out_first > MOST_PLACE) return false;
  for (int64_t i = 1; i < shape->d[axis] && *out_known; ++i)
    *out_known = rabbet_load_int64(constant->dtype, constant->constant, i) ==
                 *out_first + i;
  return true;
}

// Matches `key < query`, `key > query`, or both by AND, and narrows the band to
// where it is true; `turned`: to where it is false.
static bool attention_compares(const rabbet_group_t* group,
                               const rabbet_dims_t* dims, int32_t value,
                               bool turned, rabbet_attention_t* a) {
  const rabbet_group_node_t* node =
      attention_made_by(group, value, RABBET_OP_ELEMENTWISE, a);
  int axis[2];
  int64_t first[2] = {0, 0};
  if (!node) return false;
  int64_t op = rabbet_node_int(node, "op");
  if (op == RABBET_ELEMENTWISE_AND)
    return !turned &&
           attention_compares(group, dims, node->inputs[0], false, a) &&
           attention_compares(group, dims, node->inputs[1], false, a);
  if (op != RABBET_ELEMENTWISE_LESS && op != RABBET_ELEMENTWISE_GREATER)
    return false;
  for (int i = 0; i < 2; ++i)
    if (!attention_places(group, dims, node->inputs[i], &axis[i], &first[i],
                          &a->band.known))
      return false;
  if (axis[0] == axis[1]) return false;
  // key - query is less than, or greater than, the difference of the firsts.
  bool reversed = axis[0] != 0;
  int64_t between = reversed ? first[0] - first[1] : first[1] - first[0];
  bool less = (op == RABBET_ELEMENTWISE_LESS) != reversed;
  if (less != turned)
    a->band.last = rabbet_min_i64(a->band.last, between - (less ? 1 : 0));
  else
    a->band.first = rabbet_max_i64(a->band.first, between + (less ? 0 : 1));
  return true;
}

// Whether no mask and nothing before it in the order of execution was matched.
static bool attention_may_mask(const rabbet_attention_t* a) {
  return a->mask < 0 && !a->band.exists && a->scale == 1 && a->cap == 0;
}

static bool attention_band(const rabbet_group_t* group,
                           const rabbet_dims_t* dims, int32_t condition,
                           bool turned, rabbet_attention_t* a) {
  a->band = (rabbet_attention_band_t){
      .exists = true, .known = true, .first = INT32_MIN, .last = INT32_MAX};
  return attention_compares(group, dims, condition, turned, a);
}

// Matches a Select of 0 and another number, which is added to the scores. Its
// condition says where to add; false: no match, and nothing has changed.
static bool attention_adds_number(const rabbet_group_t* group, int32_t value,
                                  double out_numbers[2]) {
  const rabbet_group_node_t* node = attention_maker(group, value);
  return node && rabbet_op_is(node->op, RABBET_OP_SELECT) &&
         rabbet_cuda_is_number(group, node->inputs[1], &out_numbers[0]) &&
         rabbet_cuda_is_number(group, node->inputs[2], &out_numbers[1]) &&
         (out_numbers[0] != 0) != (out_numbers[1] != 0);
}

// Matches a node that adds a band to the scores.
static bool attention_added_band(const rabbet_group_t* group,
                                 const rabbet_dims_t* dims,
                                 const rabbet_group_node_t* sum,
                                 rabbet_attention_t* a, int32_t* scores) {
  double numbers[2] = {0, 0};
  for (int i = 0; i < 2; ++i) {
    if (!attention_adds_number(group, sum->inputs[i], numbers)) continue;
    const rabbet_group_node_t* node =
        attention_made_by(group, sum->inputs[i], RABBET_OP_SELECT, a);
    a->other = numbers[0] + numbers[1];
    *scores = sum->inputs[1 - i];
    return attention_band(group, dims, node->inputs[0], numbers[0] != 0, a);
  }
  return false;
}

// ---- From the last product to the first ------------------------------------

// Matches cap tanh(x / cap). *scores becomes x.
static bool attention_cap(const rabbet_group_t* group, rabbet_attention_t* a,
                          int32_t* scores) {
  const rabbet_group_node_t* product = attention_maker(group, *scores);
  double cap = 0, divisor = 0;
  if (!product || !rabbet_op_is(product->op, RABBET_OP_ELEMENTWISE) ||
      rabbet_node_int(product, "op") != RABBET_ELEMENTWISE_PROD ||
      a->cap != 0 || a->scale != 1)
    return false;
  bool reversed = rabbet_cuda_is_number(group, product->inputs[0], &cap);
  if (!reversed && !rabbet_cuda_is_number(group, product->inputs[1], &cap))
    return false;
  const rabbet_group_node_t* tanh =
      attention_maker(group, product->inputs[reversed ? 1 : 0]);
  if (!tanh || !rabbet_op_is(tanh->op, RABBET_OP_ACTIVATION) ||
      rabbet_node_int(tanh, "type") != RABBET_ACTIVATION_TANH || !(cap > 0))
    return false;
  const rabbet_group_node_t* quotient = attention_maker(group, tanh->inputs[0]);
  bool divides = quotient &&
                 rabbet_op_is(quotient->op, RABBET_OP_ELEMENTWISE) &&
                 attention_maker(group, quotient->inputs[0]);
  int64_t op = divides ? rabbet_node_int(quotient, "op") : -1;
  if (!divides ||
      !rabbet_cuda_is_number(group, quotient->inputs[1], &divisor) ||
      !(op == RABBET_ELEMENTWISE_DIV ||
        (op == RABBET_ELEMENTWISE_PROD && divisor != 0)) ||
      divisor == 0)
    return false;
  // Scores are divided by the cap as they are scaled.
  a->scale *= cap / (op == RABBET_ELEMENTWISE_DIV ? divisor : 1 / divisor);
  a->cap = cap;
  a->nodes += 3;
  *scores = quotient->inputs[0];
  return isfinite(a->scale);
}

// Matches a node between the products, from the last to the first: a scale
// (before the mask) or the one mask. *scores becomes the node's input.
static bool attention_take(const rabbet_group_t* group,
                           const rabbet_dims_t* dims,
                           const rabbet_group_node_t* node,
                           rabbet_attention_t* a, int32_t* scores) {
  assert(node->input_count == 2);
  double number = 0;
  bool reversed = attention_maker(group, node->inputs[1]) != NULL;
  int32_t operand = node->inputs[reversed ? 0 : 1];
  int64_t op = rabbet_node_int(node, "op");
  bool fits = attention_may_mask(a);
  *scores = node->inputs[reversed ? 1 : 0];
  if (!attention_is_input(group, operand))
    return op == RABBET_ELEMENTWISE_SUM && fits &&
           attention_added_band(group, dims, node, a, scores);
  if (op == RABBET_ELEMENTWISE_SUM) {
    a->mask = operand;
    return fits;
  }
  if (!rabbet_cuda_is_number(group, operand, &number)) return false;
  if (op == RABBET_ELEMENTWISE_PROD)
    a->scale *= number;
  else if (op == RABBET_ELEMENTWISE_DIV && !reversed && number != 0)
    a->scale /= number;
  else
    return false;
  return isfinite(a->scale) && a->scale != 1;
}

// Matches a Select of scores or a constant by the mask. *scores as above.
static bool attention_select(const rabbet_group_t* group,
                             const rabbet_dims_t* dims,
                             const rabbet_group_node_t* node,
                             rabbet_attention_t* a, int32_t* scores) {
  assert(node->input_count == 3);
  bool second = attention_maker(group, node->inputs[2]) != NULL;
  bool fits =
      attention_may_mask(a) &&
      attention_is_input(group, node->inputs[second ? 1 : 2]) &&
      rabbet_cuda_is_number(group, node->inputs[second ? 1 : 2], &a->other);
  *scores = node->inputs[second ? 2 : 1];
  a->masking =
      second ? RABBET_ATTENTION_KEEPS_FALSE : RABBET_ATTENTION_KEEPS_TRUE;
  if (!fits) return false;
  if (!attention_is_input(group, node->inputs[0]))
    return attention_band(group, dims, node->inputs[0], second, a);
  a->mask = node->inputs[0];
  return true;
}

// Skips casts between the products: kernels keep scores and weights in FLOAT.
static bool attention_cast(const rabbet_group_t* group, rabbet_attention_t* a,
                           int32_t* value) {
  const rabbet_group_node_t* node =
      attention_made_by(group, *value, RABBET_OP_CAST, a);
  if (!node) return false;
  for (int i = 0; i < 2; ++i) {
    rabbet_dtype_t dtype =
        group->values[i ? node->outputs[0] : node->inputs[0]].dtype;
    if (dtype != RABBET_DTYPE_FLOAT && dtype != RABBET_DTYPE_HALF &&
        dtype != RABBET_DTYPE_BF16)
      return false;
  }
  *value = node->inputs[0];
  return true;
}

// Matches isnan(x) ? 0 : x.
static void attention_zero_nan(const rabbet_group_t* group,
                               rabbet_attention_t* a, int32_t* value) {
  const rabbet_group_node_t* select = attention_maker(group, *value);
  double number = 1;
  if (!select || !rabbet_op_is(select->op, RABBET_OP_SELECT)) return;
  const rabbet_group_node_t* test = attention_maker(group, select->inputs[0]);
  if (!test || !rabbet_op_is(test->op, RABBET_OP_UNARY) ||
      rabbet_node_int(test, "op") != RABBET_UNARY_ISNAN ||
      test->inputs[0] != select->inputs[2] ||
      !rabbet_cuda_is_number(group, select->inputs[1], &number) || number != 0)
    return;
  a->zero_nan = true;
  a->nodes += 2;
  *value = test->inputs[0];
}

// Matches the nodes between the first product and the softmax.
static bool attention_scores(const rabbet_group_t* group,
                             const rabbet_dims_t* dims, rabbet_attention_t* a,
                             int32_t* scores) {
  for (;;) {
    if (attention_cast(group, a, scores) || attention_cap(group, a, scores))
      continue;
    const rabbet_group_node_t* node =
        attention_made_by(group, *scores, RABBET_OP_ELEMENTWISE, a);
    if (node) {
      if (!attention_take(group, dims, node, a, scores)) return false;
      continue;
    }
    node = attention_made_by(group, *scores, RABBET_OP_SELECT, a);
    if (!node) return true;
    if (!attention_select(group, dims, node, a, scores)) return false;
  }
}

static bool attention_is_softmax(const rabbet_group_node_t* node,
                                 const rabbet_dims_t* dims) {
  int32_t rank = node ? dims[node->inputs[0]].rank : 0;
  return rank > 0 && rabbet_node_int(node, "axes") == (int64_t)1 << (rank - 1);
}

bool rabbet_attention_match(const rabbet_group_t* group,
                            const rabbet_dims_t* dims,
                            rabbet_attention_t* out_attention) {
  rabbet_attention_t* a = out_attention;
  *a = (rabbet_attention_t){.mask = -1, .scale = 1};
  if (group->node_count < 3 || group->output_count != 1) return false;
  a->y.value = a->y.seen = group->outputs[0];
  const rabbet_group_node_t* turn = NULL;
  while (a->y.turn_count < RABBET_ATTENTION_TURNS &&
         (turn = attention_made_by(group, a->y.seen, RABBET_OP_SHUFFLE, a))) {
    a->y.turns[a->y.turn_count++] = turn;
    a->y.seen = turn->inputs[0];
  }
  const rabbet_group_node_t* last =
      attention_made_by(group, a->y.seen, RABBET_OP_MATRIX_MULTIPLY, a);
  if (!attention_is_plain(last) || !attention_operand(group, last, 1, a, &a->v))
    return false;
  int32_t weights = last->inputs[0];
  (void)attention_cast(group, a, &weights);
  attention_zero_nan(group, a, &weights);
  const rabbet_group_node_t* softmax =
      attention_made_by(group, weights, RABBET_OP_SOFTMAX, a);
  if (!attention_is_softmax(softmax, dims)) return false;
  int32_t scores = softmax->inputs[0];
  if (!attention_scores(group, dims, a, &scores)) return false;
  const rabbet_group_node_t* first =
      attention_made_by(group, scores, RABBET_OP_MATRIX_MULTIPLY, a);
  return attention_is_plain(first) &&
         attention_operand(group, first, 0, a, &a->q) &&
         attention_operand(group, first, 1, a, &a->k) && isfinite(a->scale) &&
         a->nodes == group->node_count;
}
