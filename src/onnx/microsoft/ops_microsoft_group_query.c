// GroupQueryAttention of com.microsoft, as decoders with a cache have it.
//
// Each sequence of the batch has its own number of keys from before. The cache
// may have room for more keys than count: those are masked.
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
enum {
  QUERY,
  KEY,
  VALUE,
  PAST_KEY,
  PAST_VALUE,
  LENGTHS,
  TOTAL,
  COSINES,
  SINES,
  POSITIONS,
  ADDED,
  SINK
};

typedef struct onnx_group_query_t {
  rabbet_onnx_heads_t a;
  rabbet_onnx_index_t total;  // the longest sequence's keys, with the new ones
  rabbet_tensor_t* lengths;   // keys of each sequence, INT64 [batch, 1]
  rabbet_tensor_t* before;    // keys from the past, INT64 [batch, 1]
} onnx_group_query_t;

// Refuses inputs and attributes that ONNX Runtime lacks on the CPU, too, or
// that describe its caches.
static void onnx_group_query_limits(rabbet_onnx_node_t* node) {
  static const char* const inputs[] = {"k_scale", "v_scale", "q_norm_weight",
                                       "k_norm_weight", "query_seqlens"};
  for (size_t i = 0; i < sizeof(inputs) / sizeof(*inputs); ++i)
    rabbet_onnx_expect_none(node, SINK + 1 + i, inputs[i]);
  rabbet_onnx_expect_int(node, "sliding_window_cache", 0,
                         "a cache of a window's size");
  rabbet_onnx_expect_int(node, "qk_output", 0, "an output of scores");
}

static int64_t onnx_head_count(rabbet_onnx_node_t* node, const char* attr) {
  int64_t count = rabbet_onnx_attr_int(node, attr, 0);
  if (rabbet_onnx_ok(node) && count < 1)
    RABBET_ONNX_FAIL(node, RABBET_STATUS_INVALID_ARGUMENT,
                     "attribute '%s' is %lld; expected at least 1", attr,
                     (long long)count);
  return rabbet_onnx_ok(node) ? count : 1;
}

// Queries, keys and values [batch, length, heads, size]; without keys they are
// side by side in the queries.
static void onnx_group_query_operands(rabbet_onnx_node_t* node,
                                      rabbet_tensor_t** parts) {
  rabbet_tensor_t* q = rabbet_onnx_required(node, QUERY);
  int64_t heads = onnx_head_count(node, "num_heads");
  int64_t own = onnx_head_count(node, "kv_num_heads");
  const int64_t counts[] = {heads, own, own};
  if (rabbet_onnx_ok(node) && heads % own != 0)
    RABBET_ONNX_FAIL(node, RABBET_STATUS_INVALID_ARGUMENT,
                     "%lld heads of queries cannot share %lld heads of keys",
                     (long long)heads, (long long)own);
  rabbet_onnx_check_rank(node, "query", q, RANK - 1);
  if (!rabbet_onnx_ok(node)) return;
  bool packed = !rabbet_onnx_input(node, KEY);
  rabbet_onnx_index_t start = rabbet_onnx_index(0);
  rabbet_onnx_index_t size =
      rabbet_onnx_index_op(node, "FLOOR_DIV", rabbet_onnx_extent(node, q, 2),
                           rabbet_onnx_index(packed ? heads + 2 * own : heads));
  for (size_t i = 0; i < 3 && rabbet_onnx_ok(node); ++i) {
    rabbet_tensor_t* x = packed ? q : rabbet_onnx_required(node, QUERY + i);
    rabbet_onnx_check_rank(node, "key or value", x, RANK - 1);
    rabbet_onnx_index_t width =
        rabbet_onnx_index_op(node, "PROD", size, rabbet_onnx_index(counts[i]));
    if (packed) x = rabbet_onnx_part(node, x, 2, start, width);
    start = rabbet_onnx_index_op(node, "SUM", start, width);
    const rabbet_onnx_index_t split[] = {rabbet_onnx_extent(node, x, 0),
                                         rabbet_onnx_extent(node, x, 1),
                                         rabbet_onnx_index(counts[i]), size};
    parts[i] = rabbet_onnx_reshape(node, x, split, RANK);
  }
}

// Numbers of keys of each sequence, in all and from the past. A first prompt
// has no past and is as long as the longest sequence.
static void onnx_group_query_lengths(rabbet_onnx_node_t* node,
                                     rabbet_tensor_t* q,
                                     onnx_group_query_t* g) {
  rabbet_tensor_t* lengths = rabbet_onnx_required(node, LENGTHS);
  rabbet_tensor_t* total = rabbet_onnx_required(node, TOTAL);
  if (!rabbet_onnx_ok(node)) return;
  const rabbet_onnx_index_t column[] = {rabbet_onnx_extent(node, q, 0),
                                        rabbet_onnx_index(1)};
  rabbet_onnx_index_t queries = rabbet_onnx_extent(node, q, 1);
  g->total = rabbet_onnx_element(node, total, 0);
  lengths = rabbet_onnx_cast(node, lengths, RABBET_DTYPE_INT64);
  lengths = rabbet_onnx_reshape(node, lengths, column, 2);
  g->lengths = rabbet_onnx_with_number(node, "SUM", lengths, 1);
  rabbet_onnx_index_t later = rabbet_onnx_index_op(
      node, "SUB", rabbet_onnx_index(1),
      rabbet_onnx_index_op(node, "EQUAL", g->total, queries));
  g->before = rabbet_onnx_binary(node, "SUB", g->lengths,
                                 rabbet_onnx_index_vector(node, &queries, 1));
  g->before = rabbet_onnx_binary(node, "PROD", g->before,
                                 rabbet_onnx_index_vector(node, &later, 1));
}

// Rotates x [batch, length, heads, size].
static rabbet_tensor_t* onnx_group_query_rotate(rabbet_onnx_node_t* node,
                                                rabbet_tensor_t* x,
                                                rabbet_tensor_t* positions) {
  rabbet_tensor_t* cosines = rabbet_onnx_required(node, COSINES);
  rabbet_tensor_t* sines = rabbet_onnx_required(node, SINES);
  rabbet_onnx_check_rank(node, "cos_cache", cosines, 2);
  if (!rabbet_onnx_ok(node)) return NULL;
  const rabbet_onnx_rotation_t r = {
      .cosines = rabbet_onnx_rotary_rows(node, cosines, positions, 2),
      .sines = rabbet_onnx_rotary_rows(node, sines, positions, 2),
      .turned = rabbet_onnx_index_op(node, "PROD",
                                     rabbet_onnx_extent(node, cosines, 1),
                                     rabbet_onnx_index(2)),
      .interleaved = rabbet_onnx_attr_int(node, "rotary_interleaved", 0) != 0};
  return rabbet_onnx_rotate(node, x, &r);
}

// Writes the new keys or values x behind the valid ones of the past. The result
// is as long as the past or the longest sequence, whichever is longer.
static rabbet_tensor_t* onnx_group_query_cache(rabbet_onnx_node_t* node,
                                               const onnx_group_query_t* g,
                                               size_t index,
                                               rabbet_tensor_t* x) {
  rabbet_tensor_t* past = rabbet_onnx_input(node, index);
  if (!past) return x;
  rabbet_onnx_check_rank(node, "past_key or past_value", past, RANK);
  if (!rabbet_onnx_ok(node)) return NULL;
  rabbet_onnx_slice_t room = rabbet_onnx_slice_all(node, past);
  room.size[LENGTH] =
      rabbet_onnx_index_op(node, "MAX", room.size[LENGTH], g->total);
  room.mode = "FILL";
  rabbet_tensor_t* const inputs[] = {
      rabbet_onnx_slice(node, past, &room), x,
      rabbet_onnx_squeeze(node, g->before, 1u << 1)};
  const rabbet_attr_t attrs[] = {
      RABBET_ONNX_INT("cache_mode",
                      rabbet_onnx_enumerator(node, "kv_cache_update",
                                             "cache_mode", "LINEAR")),
      RABBET_ONNX_INT("axis", LENGTH)};
  return rabbet_onnx_layer(node, "kv_cache_update", inputs, 3, attrs, 2);
}

// The mask of keys that count: from the beginning of the query's window to its
// own position.
static void onnx_group_query_mask(rabbet_onnx_node_t* node,
                                  onnx_group_query_t* g) {
  int64_t window = rabbet_onnx_attr_int(node, "local_window_size", -1);
  rabbet_tensor_t* before = rabbet_onnx_unsqueeze(node, g->before, 0x6, RANK);
  if (rabbet_onnx_attr_int(node, "causal", 1) == 0) {
    rabbet_tensor_t* column = rabbet_onnx_indices(
        node, rabbet_onnx_extent(node, g->a.k, LENGTH), SIZE, RANK);
    g->a.kept =
        rabbet_onnx_binary(node, "LESS", column,
                           rabbet_onnx_unsqueeze(node, g->lengths, 0x6, RANK));
    return;
  }
  g->a.kept = rabbet_onnx_causal(node, &g->a, before);
  if (window <= 0 || window > INT32_MAX) return;
  before = rabbet_onnx_with_number(node, "SUB", before, (double)window);
  rabbet_tensor_t* passed = rabbet_onnx_causal(node, &g->a, before);
  g->a.kept = rabbet_onnx_binary(node, "AND", g->a.kept,
                                 rabbet_onnx_unary(node, "NOT", passed));
}

// A bias for the keys of the longest sequence; the cache may have room for
// more.
static rabbet_tensor_t* onnx_group_query_bias(rabbet_onnx_node_t* node,
                                              const onnx_group_query_t* g) {
  rabbet_tensor_t* bias = rabbet_onnx_input(node, ADDED);
  if (!bias) return NULL;
  rabbet_onnx_check_rank(node, "attention_bias", bias, RANK);
  if (!rabbet_onnx_ok(node)) return NULL;
  rabbet_onnx_slice_t slice = rabbet_onnx_slice_all(node, bias);
  slice.size[SIZE] = rabbet_onnx_extent(node, g->a.k, LENGTH);
  slice.mode = "FILL";
  return rabbet_onnx_slice(node, bias, &slice);
}

// The sink, a score without a key: one for each head, or 0.
static rabbet_tensor_t* onnx_group_query_sink(rabbet_onnx_node_t* node) {
  rabbet_tensor_t* sink = rabbet_onnx_input(node, SINK);
  if (sink) return rabbet_onnx_unsqueeze(node, sink, 0xd, RANK);
  if (rabbet_onnx_attr_int(node, "smooth_softmax", 0) != 1) return NULL;
  return rabbet_onnx_number(node, rabbet_onnx_dtype_of(node, node->inputs[0]),
                            RANK, 0);
}

static void onnx_group_query_share(rabbet_onnx_node_t* node,
                                   rabbet_onnx_heads_t* a) {
  int64_t times = rabbet_onnx_attr_int(node, "num_heads", 1) /
                  rabbet_onnx_attr_int(node, "kv_num_heads", 1);
  if (times == 1) return;
  a->k = rabbet_onnx_repeat_heads(node, a->k, rabbet_onnx_index(times));
  a->v = rabbet_onnx_repeat_heads(node, a->v, rabbet_onnx_index(times));
}

static void onnx_import_group_query(rabbet_onnx_node_t* node) {
  onnx_group_query_t g = {
      .a = {.filter = -INFINITY,
            .cap = rabbet_onnx_attr_float(node, "softcap", 0)}};
  rabbet_tensor_t* x[3] = {NULL, NULL, NULL};
  onnx_group_query_limits(node);
  onnx_group_query_operands(node, x);
  onnx_group_query_lengths(node, x[0], &g);
  if (!rabbet_onnx_ok(node)) return;
  if (rabbet_onnx_attr_int(node, "do_rotary", 0) != 0) {
    rabbet_tensor_t* positions = rabbet_onnx_input(node, POSITIONS);
    if (!positions)
      positions = rabbet_onnx_binary(
          node, "SUM", g.before,
          rabbet_onnx_indices(node, rabbet_onnx_extent(node, x[0], 1), 1, 2));
    for (size_t i = 0; i < 2; ++i)
      x[i] = onnx_group_query_rotate(node, x[i], positions);
  }
  for (size_t i = 0; i < 3; ++i)
    x[i] = rabbet_onnx_heads_first(node, x[i]);
  g.a.q = x[0];
  g.a.k = onnx_group_query_cache(node, &g, PAST_KEY, x[1]);
  g.a.v = onnx_group_query_cache(node, &g, PAST_VALUE, x[2]);
  if (rabbet_onnx_wants(node, 1)) node->outputs[1] = g.a.k;
  if (rabbet_onnx_wants(node, 2)) node->outputs[2] = g.a.v;
  onnx_group_query_mask(node, &g);
  g.a.bias = onnx_group_query_bias(node, &g);
  g.a.sink = onnx_group_query_sink(node);
  onnx_group_query_share(node, &g.a);
  node->outputs[0] = rabbet_onnx_attend(node, &g.a);
}

RABBET_ONNX_OPERATORS(microsoft_group_query) = {
    RABBET_ONNX_RUNTIME_OP("com.microsoft", GroupQueryAttention, group_query,
                           ""),
    {0},
};
