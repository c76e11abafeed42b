// Attention and rotary embeddings of com.microsoft, composed in the order in
// which exporters write them out, so that the builder finds them.
#include <math.h>

#include "onnx/microsoft/microsoft_attention.h"
#include "onnx/operators.h"

enum {
  BATCH = RABBET_ONNX_BATCH,
  HEADS = RABBET_ONNX_HEADS,
  LENGTH = RABBET_ONNX_LENGTH,
  SIZE = RABBET_ONNX_SIZE,
  RANK = RABBET_ONNX_HEADS_RANK
};

// ---- Attention of heads ----------------------------------------------------

rabbet_tensor_t* rabbet_onnx_heads_first(rabbet_onnx_node_t* node,
                                         rabbet_tensor_t* x) {
  static const int64_t heads_first[] = {0, 2, 1, 3};
  return rabbet_onnx_transpose(node, x, heads_first);
}

rabbet_tensor_t* rabbet_onnx_part(rabbet_onnx_node_t* node, rabbet_tensor_t* x,
                                  int axis, rabbet_onnx_index_t start,
                                  rabbet_onnx_index_t size) {
  rabbet_onnx_slice_t slice = rabbet_onnx_slice_all(node, x);
  slice.start[axis] = start;
  slice.size[axis] = size;
  return rabbet_onnx_slice(node, x, &slice);
}

void rabbet_onnx_expect_int(rabbet_onnx_node_t* node, const char* attr,
                            int64_t value, const char* why) {
  int64_t found = rabbet_onnx_attr_int(node, attr, value);
  if (rabbet_onnx_ok(node) && found != value)
    RABBET_ONNX_FAIL(node, RABBET_STATUS_UNSUPPORTED,
                     "attribute '%s' is %lld (%s); expected %lld", attr,
                     (long long)found, why, (long long)value);
}

void rabbet_onnx_expect_none(rabbet_onnx_node_t* node, size_t index,
                             const char* operand) {
  if (rabbet_onnx_ok(node) && rabbet_onnx_input(node, index))
    RABBET_ONNX_FAIL(node, RABBET_STATUS_UNSUPPORTED,
                     "input %zu (%s) is given, which is not imported; expected "
                     "none",
                     index, operand);
}

// The queries times the scale.
static rabbet_tensor_t* onnx_scaled_queries(rabbet_onnx_node_t* node,
                                            rabbet_tensor_t* q) {
  rabbet_onnx_index_t size = rabbet_onnx_extent(node, q, SIZE);
  double scale = rabbet_onnx_attr_float(node, "scale", 0);
  if (rabbet_onnx_ok(node) && scale == 0 && !rabbet_onnx_is_static(size))
    RABBET_ONNX_FAIL(node, RABBET_STATUS_UNSUPPORTED,
                     "the size of a head must be known at import, or given by "
                     "the attribute 'scale'");
  if (!rabbet_onnx_ok(node)) return NULL;
  if (scale == 0) scale = 1 / sqrt((double)(size.value > 0 ? size.value : 1));
  return rabbet_onnx_with_number(node, "PROD", q, scale);
}

// The softmax of the scores. The sink takes part in it and is dropped.
static rabbet_tensor_t* onnx_shares(rabbet_onnx_node_t* node,
                                    rabbet_tensor_t* scores,
                                    rabbet_tensor_t* sink) {
  if (!sink) return rabbet_onnx_softmax(node, scores, SIZE);
  rabbet_onnx_index_t dims[RANK];
  for (int i = 0; i < RANK; ++i)
    dims[i] = rabbet_onnx_extent(node, scores, i);
  rabbet_onnx_index_t keys = dims[SIZE];
  dims[SIZE] = rabbet_onnx_index(1);
  rabbet_tensor_t* const parts[] = {
      scores,
      rabbet_onnx_spread(
          node,
          rabbet_onnx_cast(node, sink, rabbet_onnx_dtype_of(node, scores)),
          dims, RANK)};
  rabbet_tensor_t* all =
      rabbet_onnx_softmax(node, rabbet_onnx_concat(node, parts, 2, SIZE), SIZE);
  return rabbet_onnx_part(node, all, SIZE, rabbet_onnx_index(0), keys);
}

rabbet_tensor_t* rabbet_onnx_attend(rabbet_onnx_node_t* node,
                                    const rabbet_onnx_heads_t* a) {
  rabbet_dtype_t dtype = rabbet_onnx_dtype_of(node, a->q);
  rabbet_tensor_t *bias = a->bias, *low = NULL;
  rabbet_tensor_t* scores = rabbet_onnx_matmul(
      node, onnx_scaled_queries(node, a->q), "NONE", a->k, "TRANSPOSE");
  if (a->cap != 0) {
    scores = rabbet_onnx_with_number(node, "DIV", scores, a->cap);
    scores = rabbet_onnx_activation(node, "TANH", scores, 0, 0);
    scores = rabbet_onnx_with_number(node, "PROD", scores, a->cap);
  }
  if (a->kept) {
    int rank = rabbet_onnx_rank(node, a->kept);
    low = rabbet_onnx_select(node, a->kept,
                             rabbet_onnx_number(node, dtype, rank, 0),
                             rabbet_onnx_number(node, dtype, rank, a->filter));
    bias = bias ? rabbet_onnx_binary(node, "SUM", bias, low) : low;
  }
  if (bias) scores = rabbet_onnx_binary(node, "SUM", scores, bias);
  rabbet_tensor_t* y = rabbet_onnx_matmul(
      node, onnx_shares(node, scores, a->sink), "NONE", a->v, "NONE");
  return rabbet_onnx_join_heads(node, rabbet_onnx_heads_first(node, y));
}

rabbet_tensor_t* rabbet_onnx_causal(rabbet_onnx_node_t* node,
                                    const rabbet_onnx_heads_t* a,
                                    rabbet_tensor_t* before) {
  rabbet_tensor_t* column = rabbet_onnx_indices(
      node, rabbet_onnx_extent(node, a->k, LENGTH), SIZE, RANK);
  rabbet_tensor_t* row = rabbet_onnx_indices(
      node, rabbet_onnx_extent(node, a->q, LENGTH), LENGTH, RANK);
  row = rabbet_onnx_binary(node, "SUM", row, before);
  row = rabbet_onnx_with_number(node, "SUM", row, 1);
  return rabbet_onnx_binary(node, "LESS", column, row);
}

// ---- Masks -----------------------------------------------------------------

static rabbet_tensor_t* onnx_both(rabbet_onnx_node_t* node, rabbet_tensor_t* a,
                                  rabbet_tensor_t* b) {
  return a && b ? rabbet_onnx_binary(node, "AND", a, b) : a ? a : b;
}

// Part `index` of a mask of rank 1, a number for each sequence of the batch, as
// INT64 [batch, 1, 1, 1].
static rabbet_tensor_t* onnx_mask_numbers(rabbet_onnx_node_t* node,
                                          rabbet_tensor_t* mask,
                                          rabbet_onnx_index_t batch,
                                          int64_t index) {
  rabbet_onnx_index_t start =
      rabbet_onnx_index_op(node, "PROD", batch, rabbet_onnx_index(index));
  rabbet_tensor_t* part = rabbet_onnx_part(node, mask, 0, start, batch);
  part = rabbet_onnx_cast(node, part, RABBET_DTYPE_INT64);
  return rabbet_onnx_unsqueeze(node, part, 0xe, RANK);
}

// The mask of rank 1: an end of keys for each sequence, or all ends and then
// all beginnings. The form with three numbers, for packed sequences, is
// refused.
static rabbet_tensor_t* onnx_mask_of_ends(rabbet_onnx_node_t* node,
                                          rabbet_tensor_t* mask,
                                          const rabbet_onnx_heads_t* a) {
  rabbet_onnx_index_t batch = rabbet_onnx_extent(node, a->q, BATCH);
  rabbet_onnx_index_t count = rabbet_onnx_extent(node, mask, 0);
  bool known = rabbet_onnx_is_static(batch) && rabbet_onnx_is_static(count);
  bool two = known && batch.value != count.value;
  if (two && count.value != 2 * batch.value) {
    RABBET_ONNX_FAIL(node, RABBET_STATUS_UNSUPPORTED,
                     "the mask '%s' has %lld elements; expected %lld (the ends "
                     "of the sequences) or %lld (then their beginnings)",
                     rabbet_tensor_name(mask), (long long)count.value,
                     (long long)batch.value, (long long)(2 * batch.value));
    return NULL;
  }
  rabbet_tensor_t* column = rabbet_onnx_indices(
      node, rabbet_onnx_extent(node, a->k, LENGTH), SIZE, RANK);
  rabbet_tensor_t* kept = rabbet_onnx_binary(
      node, "LESS", column, onnx_mask_numbers(node, mask, batch, 0));
  if (!two) return kept;
  rabbet_tensor_t* before = rabbet_onnx_binary(
      node, "LESS", column, onnx_mask_numbers(node, mask, batch, 1));
  return rabbet_onnx_binary(node, "AND", kept,
                            rabbet_onnx_unary(node, "NOT", before));
}

// The mask of keys that count: by sequence, by key, or by query and key.
static rabbet_tensor_t* onnx_mask_kept(rabbet_onnx_node_t* node,
                                       rabbet_tensor_t* mask,
                                       const rabbet_onnx_heads_t* a) {
  static const uint32_t axes[] = {[2] = 0x6, [3] = 0x2};
  int rank = rabbet_onnx_rank(node, mask);
  if (!rabbet_onnx_ok(node) || !mask) return NULL;
  if (rank == 1) return onnx_mask_of_ends(node, mask, a);
  if (rank != 2 && rank != 3) {
    RABBET_ONNX_FAIL(node, RABBET_STATUS_UNSUPPORTED,
                     "the mask '%s' has rank %d; expected 1, 2 or 3",
                     rabbet_tensor_name(mask), rank);
    return NULL;
  }
  rabbet_tensor_t* kept = rabbet_onnx_with_number(node, "GREATER", mask, 0);
  return rabbet_onnx_unsqueeze(node, kept, axes[rank], RANK);
}

// The mask, and that of causal attention behind `past` keys.
static void onnx_set_masks(rabbet_onnx_node_t* node, rabbet_tensor_t* mask,
                           rabbet_onnx_index_t past, rabbet_onnx_heads_t* a) {
  a->filter = rabbet_onnx_attr_float(node, "mask_filter_value", -10000);
  a->kept = onnx_mask_kept(node, mask, a);
  if (rabbet_onnx_attr_int(node, "unidirectional", 0) == 0) return;
  rabbet_tensor_t* causal =
      rabbet_onnx_causal(node, a, rabbet_onnx_index_vector(node, &past, 1));
  a->kept = onnx_both(node, a->kept, causal);
}

// ---- MultiHeadAttention ----------------------------------------------------

enum { QUERY, KEY, VALUE, BIAS, MASK, ADDED, PAST_KEY, PAST_VALUE };

// x [batch, length, ...] plus its part of the bias, if there is one.
static rabbet_tensor_t* onnx_biased(rabbet_onnx_node_t* node,
                                    rabbet_tensor_t* x,
                                    rabbet_onnx_index_t* start) {
  rabbet_tensor_t* bias = rabbet_onnx_input(node, BIAS);
  if (!bias) return x;
  rabbet_onnx_index_t size = rabbet_onnx_extent(node, x, 2);
  rabbet_tensor_t* part = rabbet_onnx_part(node, bias, 0, *start, size);
  *start = rabbet_onnx_index_op(node, "SUM", *start, size);
  return rabbet_onnx_binary(node, "SUM", x, part);
}

// x [batch, length, heads * size] with its bias, heads first.
static rabbet_tensor_t* onnx_operand(rabbet_onnx_node_t* node,
                                     rabbet_tensor_t* x,
                                     rabbet_onnx_index_t* start) {
  x = onnx_biased(node, x, start);
  x = rabbet_onnx_split_heads(node, x, "num_heads");
  return rabbet_onnx_heads_first(node, x);
}

// Tensor `index` of those packed in axis 3 of x [batch, length, heads, ...,
// size], joined with its bias and split again.
static rabbet_tensor_t* onnx_packed_operand(rabbet_onnx_node_t* node,
                                            rabbet_tensor_t* x, int64_t index,
                                            rabbet_onnx_index_t* start) {
  x = rabbet_onnx_part(node, x, 3, rabbet_onnx_index(index),
                       rabbet_onnx_index(1));
  x = rabbet_onnx_squeeze(node, x, 1u << 3);
  return onnx_operand(node, rabbet_onnx_join_heads(node, x), start);
}

static void onnx_multi_head_operands(rabbet_onnx_node_t* node,
                                     rabbet_onnx_heads_t* a) {
  enum { PACKED = 5 };
  rabbet_tensor_t* q = rabbet_onnx_required(node, QUERY);
  rabbet_tensor_t* k = rabbet_onnx_input(node, KEY);
  rabbet_tensor_t* v = rabbet_onnx_input(node, VALUE);
  rabbet_onnx_index_t start = rabbet_onnx_index(0);
  int rank = rabbet_onnx_rank(node, q);
  if (!rabbet_onnx_ok(node)) return;
  if (rank == PACKED) {
    a->q = onnx_packed_operand(node, q, 0, &start);
    a->k = onnx_packed_operand(node, q, 1, &start);
    a->v = onnx_packed_operand(node, q, 2, &start);
    return;
  }
  a->q = onnx_operand(node, q, &start);
  rank = k ? rabbet_onnx_rank(node, k) : 0;
  if (rank == PACKED) {
    a->k = onnx_packed_operand(node, k, 0, &start);
    a->v = onnx_packed_operand(node, k, 1, &start);
  } else if (rank == RANK) {
    rabbet_onnx_check_rank(node, "value", rabbet_onnx_required(node, VALUE),
                           RANK);
    a->k = k;
    a->v = v;
  } else {
    a->k = onnx_operand(node, rabbet_onnx_required(node, KEY), &start);
    a->v = onnx_operand(node, rabbet_onnx_required(node, VALUE), &start);
  }
}

// Puts past keys and values in front; returns their number.
static rabbet_onnx_index_t onnx_join_past(rabbet_onnx_node_t* node,
                                          rabbet_tensor_t* past_k,
                                          rabbet_tensor_t* past_v,
                                          rabbet_onnx_heads_t* a) {
  rabbet_tensor_t* const keys[] = {past_k, a->k};
  rabbet_tensor_t* const values[] = {past_v, a->v};
  if (rabbet_onnx_ok(node) && !past_k != !past_v)
    RABBET_ONNX_FAIL(node, RABBET_STATUS_INVALID_ARGUMENT,
                     "past_key and past_value must both be given, or neither");
  rabbet_onnx_check_rank(node, "past_key", past_k, RANK);
  rabbet_onnx_check_rank(node, "past_value", past_v, RANK);
  if (!rabbet_onnx_ok(node) || !past_k) return rabbet_onnx_index(0);
  a->k = rabbet_onnx_concat(node, keys, 2, LENGTH);
  a->v = rabbet_onnx_concat(node, values, 2, LENGTH);
  return rabbet_onnx_extent(node, past_k, LENGTH);
}

static void onnx_import_multi_head(rabbet_onnx_node_t* node) {
  rabbet_onnx_heads_t a = {.bias = rabbet_onnx_input(node, ADDED)};
  rabbet_onnx_expect_none(node, 8, "past_sequence_length");
  rabbet_onnx_expect_none(node, 9, "cache_indirection");
  onnx_multi_head_operands(node, &a);
  rabbet_onnx_index_t past =
      onnx_join_past(node, rabbet_onnx_input(node, PAST_KEY),
                     rabbet_onnx_input(node, PAST_VALUE), &a);
  onnx_set_masks(node, rabbet_onnx_input(node, MASK), past, &a);
  node->outputs[0] = rabbet_onnx_attend(node, &a);
  if (rabbet_onnx_wants(node, 1)) node->outputs[1] = a.k;
  if (rabbet_onnx_wants(node, 2)) node->outputs[2] = a.v;
}

// ---- Attention, QAttention -------------------------------------------------

// Queries, keys and values: parts of a product [batch, length, all of them].
static void onnx_split_projection(rabbet_onnx_node_t* node,
                                  rabbet_tensor_t* all,
                                  rabbet_onnx_heads_t* a) {
  rabbet_tensor_t** const operands[] = {&a->q, &a->k, &a->v};
  rabbet_onnx_ints_t sizes = rabbet_onnx_attr_ints(node, "qkv_hidden_sizes");
  rabbet_onnx_index_t start = rabbet_onnx_index(0);
  rabbet_onnx_index_t third =
      rabbet_onnx_index_op(node, "FLOOR_DIV", rabbet_onnx_extent(node, all, 2),
                           rabbet_onnx_index(3));
  if (rabbet_onnx_ok(node) && sizes.present && sizes.count != 3)
    RABBET_ONNX_FAIL(node, RABBET_STATUS_INVALID_ARGUMENT,
                     "attribute 'qkv_hidden_sizes' has %zu numbers, but 3 are "
                     "expected",
                     sizes.count);
  for (size_t i = 0; i < 3 && rabbet_onnx_ok(node); ++i) {
    rabbet_onnx_index_t size =
        sizes.present ? rabbet_onnx_index(sizes.data[i]) : third;
    rabbet_tensor_t* x = rabbet_onnx_part(node, all, 2, start, size);
    x = rabbet_onnx_split_heads(node, x, "num_heads");
    *operands[i] = rabbet_onnx_heads_first(node, x);
    start = rabbet_onnx_index_op(node, "SUM", start, size);
  }
}

// Keys or values of the past [2, batch, heads, length, size].
static rabbet_tensor_t* onnx_past_half(rabbet_onnx_node_t* node,
                                       rabbet_tensor_t* past, int64_t half) {
  if (!past) return NULL;
  rabbet_onnx_check_rank(node, "past", past, RANK + 1);
  if (!rabbet_onnx_ok(node)) return NULL;
  past = rabbet_onnx_part(node, past, 0, rabbet_onnx_index(half),
                          rabbet_onnx_index(1));
  return rabbet_onnx_squeeze(node, past, 1);
}

// The attention of a projection, with mask, past and an added bias.
static void onnx_attend_projection(rabbet_onnx_node_t* node,
                                   rabbet_tensor_t* all, rabbet_tensor_t* mask,
                                   rabbet_tensor_t* past,
                                   rabbet_tensor_t* bias) {
  rabbet_onnx_heads_t a = {.bias = bias};
  rabbet_onnx_expect_int(node, "do_rotary", 0, "rotary embeddings inside");
  rabbet_onnx_expect_int(node, "past_present_share_buffer", 0,
                         "past and present are one buffer");
  onnx_split_projection(node, all, &a);
  rabbet_onnx_index_t before = onnx_join_past(
      node, onnx_past_half(node, past, 0), onnx_past_half(node, past, 1), &a);
  onnx_set_masks(node, mask, before, &a);
  node->outputs[0] = rabbet_onnx_attend(node, &a);
  if (!rabbet_onnx_wants(node, 1)) return;
  rabbet_tensor_t* const halves[] = {
      rabbet_onnx_unsqueeze(node, a.k, 1, RANK + 1),
      rabbet_onnx_unsqueeze(node, a.v, 1, RANK + 1)};
  node->outputs[1] = rabbet_onnx_concat(node, halves, 2, 0);
}

static void onnx_import_projected_attention(rabbet_onnx_node_t* node) {
  rabbet_tensor_t* x = rabbet_onnx_required(node, 0);
  rabbet_tensor_t* weights = rabbet_onnx_required(node, 1);
  rabbet_tensor_t* bias = rabbet_onnx_input(node, 2);
  rabbet_onnx_expect_none(node, 6, "past_sequence_length");
  rabbet_tensor_t* all = rabbet_onnx_product(node, x, false, weights, false);
  if (bias) all = rabbet_onnx_binary(node, "SUM", all, bias);
  onnx_attend_projection(node, all, rabbet_onnx_input(node, 3),
                         rabbet_onnx_input(node, 4),
                         rabbet_onnx_input(node, 5));
}

static void onnx_import_quantized_attention(rabbet_onnx_node_t* node) {
  for (size_t i = 0; i < 5; ++i)
    rabbet_onnx_required(node, i);
  if (!rabbet_onnx_ok(node)) return;
  rabbet_tensor_t* const* in = node->inputs;
  const rabbet_onnx_quantized_t x = {in[0], in[3], rabbet_onnx_input(node, 6)};
  const rabbet_onnx_quantized_t weights = {in[1], in[4],
                                           rabbet_onnx_input(node, 7)};
  rabbet_tensor_t* all = rabbet_onnx_quantized_product(node, &x, &weights);
  all = rabbet_onnx_cast(node, all, rabbet_onnx_dtype_of(node, in[2]));
  all = rabbet_onnx_binary(node, "SUM", all, in[2]);
  onnx_attend_projection(node, all, rabbet_onnx_input(node, 5),
                         rabbet_onnx_input(node, 8), NULL);
}

// ---- RotaryEmbedding -------------------------------------------------------

rabbet_tensor_t* rabbet_onnx_rotary_rows(rabbet_onnx_node_t* node,
                                         rabbet_tensor_t* table,
                                         rabbet_tensor_t* positions,
                                         int heads) {
  rabbet_onnx_check_rank(node, "a table of cosines or sines", table, 2);
  if (!rabbet_onnx_ok(node)) return NULL;
  table = rabbet_onnx_take(node, table, positions, 0);
  return rabbet_onnx_unsqueeze(node, table, 1u << heads, RANK);
}

// Positions [batch or 1, length]: given one by one, or only the first.
static rabbet_tensor_t* onnx_positions(rabbet_onnx_node_t* node,
                                       rabbet_onnx_index_t length) {
  rabbet_tensor_t* positions = rabbet_onnx_required(node, 1);
  int rank = rabbet_onnx_rank(node, positions);
  if (rabbet_onnx_ok(node) && rank != 1 && rank != 2)
    rabbet_onnx_check_rank(node, "position_ids", positions, 2);
  if (!rabbet_onnx_ok(node) || rank == 2) return positions;
  positions = rabbet_onnx_cast(node, positions, RABBET_DTYPE_INT64);
  return rabbet_onnx_binary(node, "SUM",
                            rabbet_onnx_indices(node, length, 1, 2), positions);
}

// Heads are split by the attribute if a part of them is rotated, else by the
// tables, which are half as wide.
static rabbet_tensor_t* onnx_rotary_heads(rabbet_onnx_node_t* node,
                                          rabbet_tensor_t* x,
                                          rabbet_onnx_index_t turned) {
  if (rabbet_onnx_attr_int(node, "rotary_embedding_dim", 0) > 0 ||
      rabbet_onnx_attr_int(node, "num_heads", 0) > 0)
    return rabbet_onnx_split_heads(node, x, "num_heads");
  if (!rabbet_onnx_ok(node)) return NULL;
  const rabbet_onnx_index_t split[] = {
      rabbet_onnx_extent(node, x, 0), rabbet_onnx_extent(node, x, 1),
      rabbet_onnx_index_op(node, "FLOOR_DIV", rabbet_onnx_extent(node, x, 2),
                           turned),
      turned};
  return rabbet_onnx_reshape(node, x, split, RANK);
}

static void onnx_import_rotation(rabbet_onnx_node_t* node) {
  rabbet_tensor_t* x = rabbet_onnx_required(node, 0);
  rabbet_tensor_t* cosines = rabbet_onnx_required(node, 2);
  rabbet_tensor_t* sines = rabbet_onnx_required(node, 3);
  rabbet_onnx_check_rank(node, "cos_cache", cosines, 2);
  int rank = rabbet_onnx_rank(node, x);
  if (rabbet_onnx_ok(node) && rank != RANK)
    rabbet_onnx_check_rank(node, "input", x, RANK - 1);
  if (!rabbet_onnx_ok(node)) return;
  bool joined = rank != RANK;
  int heads = joined ? 2 : HEADS;
  rabbet_onnx_rotation_t r = {
      .turned = rabbet_onnx_index_op(node, "PROD",
                                     rabbet_onnx_extent(node, cosines, 1),
                                     rabbet_onnx_index(2)),
      .interleaved = rabbet_onnx_attr_int(node, "interleaved", 0) != 0};
  if (joined) x = onnx_rotary_heads(node, x, r.turned);
  rabbet_tensor_t* positions =
      onnx_positions(node, rabbet_onnx_extent(node, x, joined ? 1 : LENGTH));
  r.cosines = rabbet_onnx_rotary_rows(node, cosines, positions, heads);
  r.sines = rabbet_onnx_rotary_rows(node, sines, positions, heads);
  rabbet_tensor_t* y = rabbet_onnx_rotate(node, x, &r);
  node->outputs[0] = joined ? rabbet_onnx_join_heads(node, y) : y;
}

RABBET_ONNX_OPERATORS(microsoft_attention) = {
    RABBET_ONNX_RUNTIME_OP("com.microsoft", Attention, projected_attention, ""),
    RABBET_ONNX_RUNTIME_OP("com.microsoft", MultiHeadAttention, multi_head, ""),
    RABBET_ONNX_RUNTIME_OP("com.microsoft", QAttention, quantized_attention,
                           ""),
    RABBET_ONNX_RUNTIME_OP("com.microsoft", RotaryEmbedding, rotation, ""),
    {0},
};
