// Attention and rotary embeddings, composed of products, softmax and moves: in
// the order in which exporters write them out, so that the builder finds them.
#include <math.h>

#include "onnx/compositions.h"
#include "onnx/index.h"
#include "onnx/operators.h"

// Axes of queries, keys and values once their heads have an axis of their own.
enum { BATCH, HEADS, LENGTH, SIZE, RANK };

// Rank 4, or rank 3 with the heads side by side in the last axis.
static void onnx_check_heads(rabbet_onnx_node_t* node, const char* operand,
                             rabbet_tensor_t* x) {
  int rank = rabbet_onnx_rank(node, x);
  if (rabbet_onnx_ok(node) && rank != RANK && rank != RANK - 1)
    RABBET_ONNX_FAIL(node, RABBET_STATUS_INVALID_ARGUMENT,
                     "%s ('%s') has rank %d; expected 4, or 3 with the heads "
                     "joined",
                     operand, rabbet_tensor_name(x), rank);
}

rabbet_tensor_t* rabbet_onnx_split_heads(rabbet_onnx_node_t* node,
                                         rabbet_tensor_t* x, const char* attr) {
  int64_t heads = rabbet_onnx_attr_int(node, attr, 0);
  rabbet_onnx_check_rank(node, "an operand with joined heads", x, RANK - 1);
  rabbet_dims_t dims = rabbet_onnx_dims(node, x);
  if (rabbet_onnx_ok(node) &&
      (heads < 1 || (dims.d[2] >= 0 && dims.d[2] % heads != 0)))
    RABBET_ONNX_FAIL(node, RABBET_STATUS_INVALID_ARGUMENT,
                     "attribute '%s' is %lld; expected how many heads the last "
                     "axis of '%s' has, whose extent is %lld",
                     attr, (long long)heads, rabbet_tensor_name(x),
                     (long long)dims.d[2]);
  if (!rabbet_onnx_ok(node)) return NULL;
  const rabbet_onnx_index_t count = rabbet_onnx_index(heads);
  const rabbet_onnx_index_t split[] = {
      rabbet_onnx_extent(node, x, 0), rabbet_onnx_extent(node, x, 1), count,
      rabbet_onnx_index_op(node, "FLOOR_DIV", rabbet_onnx_extent(node, x, 2),
                           count)};
  return rabbet_onnx_reshape(node, x, split, RANK);
}

rabbet_tensor_t* rabbet_onnx_join_heads(rabbet_onnx_node_t* node,
                                        rabbet_tensor_t* x) {
  const rabbet_onnx_index_t joined[] = {
      rabbet_onnx_extent(node, x, 0), rabbet_onnx_extent(node, x, 1),
      rabbet_onnx_index_op(node, "PROD", rabbet_onnx_extent(node, x, 2),
                           rabbet_onnx_extent(node, x, 3))};
  return rabbet_onnx_reshape(node, x, joined, RANK - 1);
}

static const int64_t onnx_heads_first[] = {0, 2, 1, 3};

// ---- Attention -------------------------------------------------------------

typedef struct onnx_attention_t {
  rabbet_tensor_t *q, *k, *v;  // [batch, heads, length, size]
  rabbet_tensor_t* mask;       // or NULL
  rabbet_tensor_t* lengths;    // of the keys that count, [batch]; or NULL
  rabbet_onnx_index_t past;    // number of keys from the past
  bool joined;                 // the heads of the operands are in the last axis
  int64_t left, right;  // how far a query reaches from its place; -1: no limit
} onnx_attention_t;

static rabbet_tensor_t* onnx_attention_operand(rabbet_onnx_node_t* node,
                                               size_t index,
                                               const char* operand,
                                               const char* attr) {
  rabbet_tensor_t* x = rabbet_onnx_required(node, index);
  onnx_check_heads(node, operand, x);
  if (!rabbet_onnx_ok(node) || rabbet_onnx_rank(node, x) == RANK) return x;
  x = rabbet_onnx_split_heads(node, x, attr);
  return rabbet_onnx_transpose(node, x, onnx_heads_first);
}

// Puts past keys and values in front of the node's.
static void onnx_attention_past(rabbet_onnx_node_t* node, onnx_attention_t* a) {
  rabbet_tensor_t* keys[] = {rabbet_onnx_input(node, 4), a->k};
  rabbet_tensor_t* values[] = {rabbet_onnx_input(node, 5), a->v};
  a->past = rabbet_onnx_index(0);
  if (!keys[0] != !values[0])
    RABBET_ONNX_FAIL(node, RABBET_STATUS_INVALID_ARGUMENT,
                     "past_key and past_value must both be given, or neither");
  if (keys[0] && a->lengths)
    RABBET_ONNX_FAIL(node, RABBET_STATUS_INVALID_ARGUMENT,
                     "nonpad_kv_seqlen excludes past_key and past_value");
  rabbet_onnx_check_rank(node, "past_key", keys[0], RANK);
  rabbet_onnx_check_rank(node, "past_value", values[0], RANK);
  if (!rabbet_onnx_ok(node) || !keys[0]) return;
  a->past = rabbet_onnx_extent(node, keys[0], LENGTH);
  a->k = rabbet_onnx_concat(node, keys, 2, LENGTH);
  a->v = rabbet_onnx_concat(node, values, 2, LENGTH);
}

// A window larger than any extent is dropped.
static int64_t onnx_attention_window(rabbet_onnx_node_t* node,
                                     const char* attr) {
  int64_t size = rabbet_onnx_attr_int(node, attr, -1);
  return size < 0 || size > INT32_MAX ? -1 : size;
}

static void onnx_attention_operands(rabbet_onnx_node_t* node,
                                    onnx_attention_t* a) {
  a->q = onnx_attention_operand(node, 0, "Q", "q_num_heads");
  a->k = onnx_attention_operand(node, 1, "K", "kv_num_heads");
  a->v = onnx_attention_operand(node, 2, "V", "kv_num_heads");
  if (!rabbet_onnx_ok(node)) return;
  a->joined = rabbet_onnx_rank(node, node->inputs[0]) == RANK - 1;
  a->mask = rabbet_onnx_input(node, 3);
  a->lengths = rabbet_onnx_input(node, 6);
  a->left = onnx_attention_window(node, "left_window_size");
  a->right = onnx_attention_window(node, "right_window_size");
  if (rabbet_onnx_attr_int(node, "is_causal", 0) != 0) a->right = 0;
  rabbet_onnx_check_rank(node, "nonpad_kv_seqlen", a->lengths, 1);
  if (a->mask && rabbet_onnx_rank(node, a->mask) > RANK)
    rabbet_onnx_check_rank(node, "attn_mask", a->mask, RANK);
  onnx_attention_past(node, a);
}

rabbet_tensor_t* rabbet_onnx_repeat_heads(rabbet_onnx_node_t* node,
                                          rabbet_tensor_t* x,
                                          rabbet_onnx_index_t times) {
  rabbet_onnx_index_t old[RANK];
  for (int i = 0; i < RANK; ++i)
    old[i] = rabbet_onnx_extent(node, x, i);
  const rabbet_onnx_index_t spread[] = {old[BATCH], old[HEADS], times,
                                        old[LENGTH], old[SIZE]};
  x = rabbet_onnx_unsqueeze(node, x, 1u << 2, RANK + 1);
  x = rabbet_onnx_spread(node, x, spread, RANK + 1);
  old[HEADS] = rabbet_onnx_index_op(node, "PROD", old[HEADS], times);
  return rabbet_onnx_reshape(node, x, old, RANK);
}

// Heads of queries may share those of keys and values.
static void onnx_attention_share(rabbet_onnx_node_t* node,
                                 onnx_attention_t* a) {
  rabbet_onnx_index_t heads = rabbet_onnx_extent(node, a->q, HEADS);
  rabbet_tensor_t** const operands[] = {&a->k, &a->v};
  for (size_t i = 0; i < 2 && rabbet_onnx_ok(node); ++i) {
    rabbet_onnx_index_t own = rabbet_onnx_extent(node, *operands[i], HEADS);
    if (rabbet_onnx_is_static(heads) && rabbet_onnx_is_static(own) &&
        (own.value < 1 || heads.value % own.value != 0))
      RABBET_ONNX_FAIL(node, RABBET_STATUS_INVALID_ARGUMENT,
                       "%lld heads of queries cannot share %lld heads of %s",
                       (long long)heads.value, (long long)own.value,
                       i == 0 ? "keys" : "values");
    if (!rabbet_onnx_ok(node)) return;
    rabbet_onnx_index_t times =
        rabbet_onnx_index_op(node, "FLOOR_DIV", heads, own);
    if (rabbet_onnx_is_static(times) && times.value == 1) continue;
    *operands[i] = rabbet_onnx_repeat_heads(node, *operands[i], times);
  }
}

// The queries times the scale, 1 / sqrt(size) unless the node gives one.
static rabbet_tensor_t* onnx_attention_scaled(rabbet_onnx_node_t* node,
                                              const onnx_attention_t* a) {
  rabbet_onnx_index_t size = rabbet_onnx_extent(node, a->q, SIZE);
  bool given = rabbet_onnx_has_attr(node, "scale");
  if (!rabbet_onnx_ok(node)) return NULL;
  if (given || rabbet_onnx_is_static(size)) {
    double usual = 1 / sqrt((double)(size.value > 0 ? size.value : 1));
    double scale = rabbet_onnx_attr_float(node, "scale", usual);
    return rabbet_onnx_with_number(node, "PROD", a->q, scale);
  }
  rabbet_dtype_t dtype = rabbet_onnx_dtype_of(node, a->q);
  rabbet_tensor_t* root = rabbet_onnx_cast(
      node, size.tensor,
      dtype == RABBET_DTYPE_DOUBLE ? dtype : RABBET_DTYPE_FLOAT);
  root =
      rabbet_onnx_unary(node, "RECIP", rabbet_onnx_unary(node, "SQRT", root));
  root = rabbet_onnx_cast(node, root, dtype);
  return rabbet_onnx_binary(node, "PROD", a->q, root);
}

// A mask may be shorter than the keys. Keys beyond its end are masked.
static rabbet_tensor_t* onnx_attention_mask(rabbet_onnx_node_t* node,
                                            onnx_attention_t* a) {
  rabbet_tensor_t* mask = a->mask;
  int last = rabbet_onnx_rank(node, mask) - 1;
  if (!rabbet_onnx_ok(node) || last < 0) return mask;
  rabbet_dtype_t dtype = rabbet_onnx_dtype_of(node, mask);
  rabbet_onnx_index_t keys = rabbet_onnx_extent(node, a->k, LENGTH);
  rabbet_onnx_index_t own = rabbet_onnx_extent(node, mask, last);
  rabbet_onnx_index_t rest = rabbet_onnx_index_op(node, "SUB", keys, own);
  bool single = rabbet_onnx_is_static(own) && own.value == 1;
  bool equal = rabbet_onnx_is_static(rest) && rest.value == 0;
  if (!rabbet_onnx_ok(node) || node->opset < 24 || single || equal) return mask;
  rabbet_onnx_slice_t slice = rabbet_onnx_slice_all(node, mask);
  slice.size[last] = keys;
  slice.mode = "FILL";
  if (dtype != RABBET_DTYPE_BOOL)
    slice.fill = rabbet_onnx_number(node, dtype, 0, -INFINITY);
  return rabbet_onnx_slice(node, mask, &slice);
}

// Positions of queries [1, 1, queries, 1] among the keys, plus `more`. The last
// query is at the last key that counts.
static rabbet_tensor_t* onnx_attention_places(rabbet_onnx_node_t* node,
                                              const onnx_attention_t* a,
                                              int64_t more) {
  rabbet_onnx_index_t queries = rabbet_onnx_extent(node, a->q, LENGTH);
  rabbet_tensor_t* row = rabbet_onnx_indices(node, queries, LENGTH, RANK);
  rabbet_onnx_index_t before =
      rabbet_onnx_index_op(node, "SUM", a->past, rabbet_onnx_index(more));
  row = rabbet_onnx_binary(node, "SUM", row,
                           rabbet_onnx_index_vector(node, &before, 1));
  if (!a->lengths) return row;
  rabbet_tensor_t* offset = rabbet_onnx_binary(
      node, "SUB", a->lengths, rabbet_onnx_index_vector(node, &queries, 1));
  offset = rabbet_onnx_unsqueeze(node, offset, 0xe, RANK);
  return rabbet_onnx_binary(node, "SUM", row, offset);
}

// The logical and; NULL stands for a mask that is true everywhere.
static rabbet_tensor_t* onnx_attention_and(rabbet_onnx_node_t* node,
                                           rabbet_tensor_t* a,
                                           rabbet_tensor_t* b) {
  return a && b ? rabbet_onnx_binary(node, "AND", a, b) : a ? a : b;
}

// `kept` without the keys that are out of a query's reach. BOOL; NULL: all are
// kept.
static rabbet_tensor_t* onnx_attention_reach(rabbet_onnx_node_t* node,
                                             const onnx_attention_t* a,
                                             rabbet_tensor_t* kept) {
  if (a->left < 0 && a->right < 0 && !a->lengths) return kept;
  rabbet_tensor_t* column = rabbet_onnx_indices(
      node, rabbet_onnx_extent(node, a->k, LENGTH), SIZE, RANK);
  if (a->right >= 0)
    kept = onnx_attention_and(
        node, kept,
        rabbet_onnx_binary(node, "LESS", column,
                           onnx_attention_places(node, a, a->right + 1)));
  if (a->left >= 0)
    kept = onnx_attention_and(
        node, kept,
        rabbet_onnx_binary(node, "GREATER", column,
                           onnx_attention_places(node, a, -1 - a->left)));
  if (a->lengths) {
    rabbet_tensor_t* end = rabbet_onnx_unsqueeze(node, a->lengths, 0xe, RANK);
    kept = onnx_attention_and(node, kept,
                              rabbet_onnx_binary(node, "LESS", column, end));
  }
  return kept;
}

// The tensor that is added to the scores, or NULL.
static rabbet_tensor_t* onnx_attention_bias(rabbet_onnx_node_t* node,
                                            onnx_attention_t* a) {
  rabbet_tensor_t *kept = NULL, *bias = NULL;
  rabbet_dtype_t dtype = rabbet_onnx_dtype_of(node, a->q);
  if (a->mask) bias = onnx_attention_mask(node, a);
  if (bias && rabbet_onnx_dtype_of(node, bias) == RABBET_DTYPE_BOOL) {
    kept = bias;
    bias = NULL;
  }
  kept = onnx_attention_reach(node, a, kept);
  if (bias) bias = rabbet_onnx_cast(node, bias, dtype);
  if (!kept || !rabbet_onnx_ok(node)) return bias;
  int rank = rabbet_onnx_rank(node, kept);
  rabbet_tensor_t* low =
      rabbet_onnx_select(node, kept, rabbet_onnx_number(node, dtype, rank, 0),
                         rabbet_onnx_number(node, dtype, rank, -INFINITY));
  return bias ? rabbet_onnx_binary(node, "SUM", bias, low) : low;
}

// The softmax of the scores in the type that the node asks for; rows whose keys
// are all masked are 0.
static rabbet_tensor_t* onnx_attention_softmax(rabbet_onnx_node_t* node,
                                               rabbet_tensor_t* scores,
                                               bool masked) {
  rabbet_dtype_t dtype = rabbet_onnx_dtype_of(node, scores), wide = dtype;
  int32_t asked = (int32_t)rabbet_onnx_attr_int(node, "softmax_precision", 0);
  if (asked != 0)
    rabbet_onnx_fail(node, rabbet_onnx_node_dtype(node, asked, &wide, NULL));
  scores = rabbet_onnx_cast(node, scores, wide);
  rabbet_tensor_t* weights = rabbet_onnx_softmax(node, scores, SIZE);
  if (masked)
    weights =
        rabbet_onnx_select(node, rabbet_onnx_unary(node, "ISNAN", weights),
                           rabbet_onnx_number(node, wide, RANK, 0), weights);
  return rabbet_onnx_cast(node, weights, dtype);
}

// The softmax of the scores. Output 3 is an intermediate result.
static rabbet_tensor_t* onnx_attention_weights(rabbet_onnx_node_t* node,
                                               onnx_attention_t* a) {
  enum { PRODUCT, CAPPED, MASKED, WEIGHTS, STEPS };
  int64_t shown = rabbet_onnx_attr_int(node, "qk_matmul_output_mode", PRODUCT);
  double cap = rabbet_onnx_attr_float(node, "softcap", 0);
  if (rabbet_onnx_ok(node) && (shown < PRODUCT || shown >= STEPS))
    RABBET_ONNX_FAIL(node, RABBET_STATUS_INVALID_ARGUMENT,
                     "attribute 'qk_matmul_output_mode' is %lld; expected 0 to "
                     "3",
                     (long long)shown);
  rabbet_tensor_t* steps[STEPS];
  steps[PRODUCT] = rabbet_onnx_matmul(node, onnx_attention_scaled(node, a),
                                      "NONE", a->k, "TRANSPOSE");
  steps[CAPPED] = steps[PRODUCT];
  if (cap != 0) {
    rabbet_tensor_t* x =
        rabbet_onnx_with_number(node, "DIV", steps[PRODUCT], cap);
    x = rabbet_onnx_activation(node, "TANH", x, 0, 0);
    steps[CAPPED] = rabbet_onnx_with_number(node, "PROD", x, cap);
  }
  rabbet_tensor_t* bias = onnx_attention_bias(node, a);
  steps[MASKED] = bias ? rabbet_onnx_binary(node, "SUM", steps[CAPPED], bias)
                       : steps[CAPPED];
  // Only a mask, a window or lengths can mask whole rows: without them each
  // query reaches key 0.
  bool masked = a->mask || a->lengths || a->left >= 0;
  steps[WEIGHTS] = onnx_attention_softmax(node, steps[MASKED], masked);
  if (rabbet_onnx_ok(node) && rabbet_onnx_wants(node, 3))
    node->outputs[3] = steps[shown];
  return steps[WEIGHTS];
}

static void onnx_import_attention(rabbet_onnx_node_t* node) {
  onnx_attention_t a = {0};
  onnx_attention_operands(node, &a);
  if (!rabbet_onnx_ok(node)) return;
  if (rabbet_onnx_wants(node, 1)) node->outputs[1] = a.k;
  if (rabbet_onnx_wants(node, 2)) node->outputs[2] = a.v;
  onnx_attention_share(node, &a);
  rabbet_tensor_t* weights = onnx_attention_weights(node, &a);
  weights = rabbet_onnx_cast(node, weights, rabbet_onnx_dtype_of(node, a.v));
  rabbet_tensor_t* y = rabbet_onnx_matmul(node, weights, "NONE", a.v, "NONE");
  y = rabbet_onnx_cast(node, y, rabbet_onnx_dtype_of(node, a.q));
  if (a.joined)
    y = rabbet_onnx_join_heads(
        node, rabbet_onnx_transpose(node, y, onnx_heads_first));
  node->outputs[0] = y;
}

// ---- RotaryEmbedding -------------------------------------------------------

// Part of the last axis of x [batch, ..., size].
static rabbet_tensor_t* onnx_rotary_part(rabbet_onnx_node_t* node,
                                         rabbet_tensor_t* x,
                                         rabbet_onnx_index_t start,
                                         rabbet_onnx_index_t size,
                                         int64_t stride) {
  rabbet_onnx_slice_t slice = rabbet_onnx_slice_all(node, x);
  slice.start[SIZE] = start;
  slice.size[SIZE] = size;
  slice.stride[SIZE] = rabbet_onnx_index(stride);
  return rabbet_onnx_slice(node, x, &slice);
}

// A cosine or sine for each position, with an axis for the heads.
static rabbet_tensor_t* onnx_rotary_table(rabbet_onnx_node_t* node,
                                          size_t index, int heads) {
  rabbet_tensor_t* table = rabbet_onnx_required(node, index);
  rabbet_tensor_t* positions = rabbet_onnx_input(node, 3);
  const char* operand = index == 1 ? "cos_cache" : "sin_cache";
  rabbet_onnx_check_rank(node, operand, table, positions ? 2 : 3);
  rabbet_onnx_check_rank(node, "position_ids", positions, 2);
  if (positions) table = rabbet_onnx_take(node, table, positions, 0);
  return rabbet_onnx_unsqueeze(node, table, 1u << heads, RANK);
}

// The part of x that is rotated, composed: how much of it is not known.
static rabbet_tensor_t* onnx_rotated(rabbet_onnx_node_t* node,
                                     rabbet_tensor_t* x,
                                     const rabbet_onnx_rotation_t* r) {
  rabbet_onnx_index_t half =
      rabbet_onnx_index_op(node, "FLOOR_DIV", r->turned, rabbet_onnx_index(2));
  rabbet_onnx_index_t second = r->interleaved ? rabbet_onnx_index(1) : half;
  int64_t stride = r->interleaved ? 2 : 1;
  rabbet_tensor_t* a =
      onnx_rotary_part(node, x, rabbet_onnx_index(0), half, stride);
  rabbet_tensor_t* b = onnx_rotary_part(node, x, second, half, stride);
  rabbet_tensor_t* parts[] = {
      rabbet_onnx_binary(node, "SUB",
                         rabbet_onnx_binary(node, "PROD", r->cosines, a),
                         rabbet_onnx_binary(node, "PROD", r->sines, b)),
      rabbet_onnx_binary(node, "SUM",
                         rabbet_onnx_binary(node, "PROD", r->sines, a),
                         rabbet_onnx_binary(node, "PROD", r->cosines, b))};
  if (!r->interleaved) return rabbet_onnx_concat(node, parts, 2, SIZE);
  for (size_t i = 0; i < 2; ++i)
    parts[i] = rabbet_onnx_unsqueeze(node, parts[i], 1u << RANK, RANK + 1);
  rabbet_onnx_index_t dims[RANK];
  for (int i = 0; i < RANK && rabbet_onnx_ok(node); ++i)
    dims[i] = rabbet_onnx_extent(node, x, i);
  dims[SIZE] = r->turned;
  return rabbet_onnx_reshape(node, rabbet_onnx_concat(node, parts, 2, RANK),
                             dims, RANK);
}

// Whether the extents that the layer must know are known.
static bool onnx_is_rotation(rabbet_onnx_node_t* node, rabbet_onnx_index_t size,
                             const rabbet_onnx_rotation_t* r) {
  return rabbet_onnx_is_static(size) && rabbet_onnx_is_static(r->turned) &&
         rabbet_onnx_is_static(rabbet_onnx_extent(node, r->cosines, SIZE)) &&
         rabbet_onnx_is_static(rabbet_onnx_extent(node, r->sines, SIZE));
}

rabbet_tensor_t* rabbet_onnx_rotate(rabbet_onnx_node_t* node,
                                    rabbet_tensor_t* x,
                                    const rabbet_onnx_rotation_t* rotation) {
  rabbet_onnx_index_t size = rabbet_onnx_extent(node, x, SIZE);
  if (!rabbet_onnx_ok(node)) return NULL;
  if (onnx_is_rotation(node, size, rotation)) {
    rabbet_tensor_t* inputs[] = {x, rotation->cosines, rotation->sines};
    const rabbet_attr_t attrs[] = {
        RABBET_ONNX_INT("size", rotation->turned.value),
        RABBET_ONNX_BOOL("interleaved", rotation->interleaved)};
    return rabbet_onnx_layer(node, "rotation", inputs, 3, attrs, 2);
  }
  rabbet_tensor_t* parts[2] = {onnx_rotated(node, x, rotation)};
  rabbet_onnx_index_t rest =
      rabbet_onnx_index_op(node, "SUB", size, rotation->turned);
  bool whole = rabbet_onnx_is_static(rest) && rest.value == 0;
  if (!whole) parts[1] = onnx_rotary_part(node, x, rotation->turned, rest, 1);
  return rabbet_onnx_concat(node, parts, whole ? 1 : 2, SIZE);
}

static void onnx_import_rotary_embedding(rabbet_onnx_node_t* node) {
  rabbet_tensor_t* x = rabbet_onnx_required(node, 0);
  onnx_check_heads(node, "X", x);
  if (!rabbet_onnx_ok(node)) return;
  bool joined = rabbet_onnx_rank(node, x) == RANK - 1;
  // Joined heads are behind the positions.
  int heads = joined ? 2 : HEADS;
  if (joined) x = rabbet_onnx_split_heads(node, x, "num_heads");
  int64_t turned = rabbet_onnx_attr_int(node, "rotary_embedding_dim", 0);
  const rabbet_onnx_rotation_t r = {
      .cosines = onnx_rotary_table(node, 1, heads),
      .sines = onnx_rotary_table(node, 2, heads),
      .turned = turned > 0 ? rabbet_onnx_index(turned)
                           : rabbet_onnx_extent(node, x, SIZE),
      .interleaved = rabbet_onnx_attr_int(node, "interleaved", 0) != 0};
  rabbet_tensor_t* y = rabbet_onnx_rotate(node, x, &r);
  node->outputs[0] = joined ? rabbet_onnx_join_heads(node, y) : y;
}

RABBET_ONNX_OPERATORS(attention) = {
    RABBET_ONNX_OP(Attention, attention, "", 23, 24, 25),
    RABBET_ONNX_OP(RotaryEmbedding, rotary_embedding, "", 23),
    {0},
};
