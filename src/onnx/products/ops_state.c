// Layers that go on where an earlier run ended: the state comes in as an input
// and goes out as an output.
#include <math.h>
#include <string.h>

#include "onnx/index.h"
#include "onnx/operators.h"

// ---- CausalConvWithState ---------------------------------------------------

// The input behind the `count` elements of the state, or behind zeros.
static rabbet_tensor_t* onnx_behind_state(rabbet_onnx_node_t* node,
                                          rabbet_tensor_t* x, int64_t count) {
  rabbet_tensor_t* state = rabbet_onnx_input(node, 3);
  if (state) {
    rabbet_tensor_t* parts[] = {state, x};
    return rabbet_onnx_concat(node, parts, 2, 2);
  }
  rabbet_onnx_slice_t slice = rabbet_onnx_slice_all(node, x);
  slice.mode = "FILL";
  slice.start[2] = rabbet_onnx_index(-count);
  slice.size[2] = rabbet_onnx_index_op(node, "SUM", slice.size[2],
                                       rabbet_onnx_index(count));
  return rabbet_onnx_slice(node, x, &slice);
}

static rabbet_tensor_t* onnx_state_activation(rabbet_onnx_node_t* node,
                                              rabbet_tensor_t* x) {
  const char* name = rabbet_onnx_attr_string(node, "activation", "none");
  if (!strcmp(name, "none")) return x;
  if (strcmp(name, "silu") != 0 && strcmp(name, "swish") != 0)
    RABBET_ONNX_FAIL(node, RABBET_STATUS_INVALID_ARGUMENT,
                     "activation is '%s'; none, silu and swish exist", name);
  return rabbet_onnx_binary(node, "PROD", x,
                            rabbet_onnx_activation(node, "SIGMOID", x, 0, 0));
}

static void onnx_import_causal_conv(rabbet_onnx_node_t* node) {
  rabbet_tensor_t* x = rabbet_onnx_required(node, 0);
  rabbet_tensor_t* weights = rabbet_onnx_required(node, 1);
  rabbet_onnx_check_rank(node, "input 0 ('input')", x, 3);
  rabbet_onnx_check_rank(node, "input 1 ('weight')", weights, 3);
  rabbet_onnx_check_rank(node, "input 3 ('past_state')",
                         rabbet_onnx_input(node, 3), 3);
  rabbet_dims_t dims = rabbet_onnx_dims(node, weights);
  if (rabbet_onnx_ok(node) &&
      (dims.d[0] < 1 || dims.d[1] != 1 || dims.d[2] < 1))
    RABBET_ONNX_FAIL(node, RABBET_STATUS_INVALID_ARGUMENT,
                     "input 1 ('weight') has shape (%lld, %lld, %lld); "
                     "expected (channels, 1, k), known at import",
                     (long long)dims.d[0], (long long)dims.d[1],
                     (long long)dims.d[2]);
  if (!rabbet_onnx_ok(node)) return;
  int64_t before = dims.d[2] - 1;
  rabbet_tensor_t* whole = onnx_behind_state(node, x, before);
  rabbet_tensor_t* inputs[] = {whole, weights, rabbet_onnx_input(node, 2)};
  const rabbet_attr_t groups = RABBET_ONNX_INT("num_groups", dims.d[0]);
  rabbet_tensor_t* y = rabbet_onnx_layer(node, "convolution", inputs,
                                         inputs[2] ? 3 : 2, &groups, 1);
  node->outputs[0] = onnx_state_activation(node, y);
  if (!rabbet_onnx_wants(node, 1)) return;
  rabbet_onnx_slice_t slice = rabbet_onnx_slice_all(node, whole);
  slice.start[2] = rabbet_onnx_index_op(node, "SUB", slice.size[2],
                                        rabbet_onnx_index(before));
  slice.size[2] = rabbet_onnx_index(before);
  node->outputs[1] = rabbet_onnx_slice(node, whole, &slice);
}

// ---- LinearAttention -------------------------------------------------------

typedef struct onnx_linear_t {
  int64_t heads, groups;  // of keys and values; queries for each of them
  int64_t keys, values;   // extents of a head
  int64_t tokens;
  int64_t decays;  // 1, or one for each element of a key
  int64_t rates;   // 1, or one for each head
  bool gated, delta;
  rabbet_onnx_index_t batch;
} onnx_linear_t;

// Token `at` of input `index`, [batch, rows, columns, 1 or more] as FLOAT or
// DOUBLE.
static rabbet_tensor_t* onnx_linear_token(rabbet_onnx_node_t* node,
                                          const onnx_linear_t* a, size_t index,
                                          int64_t at, int64_t heads,
                                          int64_t rows, int64_t columns) {
  rabbet_tensor_t* x = rabbet_onnx_in_float(node, node->inputs[index]);
  rabbet_onnx_slice_t slice = rabbet_onnx_slice_all(node, x);
  slice.start[1] = rabbet_onnx_index(at);
  slice.size[1] = rabbet_onnx_index(1);
  const rabbet_onnx_index_t dims[] = {a->batch, rabbet_onnx_index(heads),
                                      rabbet_onnx_index(rows),
                                      rabbet_onnx_index(columns)};
  return rabbet_onnx_reshape(node, rabbet_onnx_slice(node, x, &slice), dims, 4);
}

// The state after a token.
static rabbet_tensor_t* onnx_linear_step(rabbet_onnx_node_t* node,
                                         const onnx_linear_t* a,
                                         rabbet_tensor_t* state, int64_t at) {
  rabbet_tensor_t* key =
      onnx_linear_token(node, a, 1, at, a->heads, 1, a->keys);
  rabbet_tensor_t* value =
      onnx_linear_token(node, a, 2, at, a->heads, 1, a->values);
  if (a->gated) {
    rabbet_tensor_t* decay =
        onnx_linear_token(node, a, 4, at, a->heads, a->decays, 1);
    state = rabbet_onnx_binary(node, "PROD", state,
                               rabbet_onnx_unary(node, "EXP", decay));
  }
  if (a->delta) {
    rabbet_tensor_t* known =
        rabbet_onnx_matmul(node, key, "NONE", state, "NONE");
    value = rabbet_onnx_binary(node, "SUB", value, known);
    value = rabbet_onnx_binary(
        node, "PROD", value, onnx_linear_token(node, a, 5, at, a->rates, 1, 1));
  }
  return rabbet_onnx_binary(
      node, "SUM", state,
      rabbet_onnx_matmul(node, key, "TRANSPOSE", value, "NONE"));
}

// The values that a token reads from the state, [batch, 1, heads * values].
static rabbet_tensor_t* onnx_linear_read(rabbet_onnx_node_t* node,
                                         const onnx_linear_t* a,
                                         rabbet_tensor_t* state, int64_t at) {
  rabbet_tensor_t* query =
      onnx_linear_token(node, a, 0, at, a->heads, a->groups, a->keys);
  const rabbet_onnx_index_t dims[] = {
      a->batch, rabbet_onnx_index(1),
      rabbet_onnx_index(a->heads * a->groups * a->values)};
  double scale = rabbet_onnx_attr_float(node, "scale", 0);
  if (scale == 0) scale = 1 / sqrt((double)a->keys);
  rabbet_tensor_t* y = rabbet_onnx_matmul(node, query, "NONE", state, "NONE");
  y = rabbet_onnx_with_number(node, "PROD", y, scale);
  return rabbet_onnx_reshape(node, y, dims, 3);
}

static bool onnx_linear_rule(rabbet_onnx_node_t* node, onnx_linear_t* a) {
  static const struct {
    const char* name;
    bool gated, delta;
  } rules[] = {{"linear", false, false},
               {"gated", true, false},
               {"delta", false, true},
               {"gated_delta", true, true}};
  const char* given =
      rabbet_onnx_attr_string(node, "update_rule", "gated_delta");
  size_t count = sizeof(rules) / sizeof(rules[0]), i = 0;
  while (i < count && strcmp(rules[i].name, given) != 0)
    ++i;
  if (i == count) {
    RABBET_ONNX_FAIL(node, RABBET_STATUS_INVALID_ARGUMENT,
                     "update_rule is '%s'; linear, gated, delta and "
                     "gated_delta exist",
                     given);
    return false;
  }
  a->gated = rules[i].gated;
  a->delta = rules[i].delta;
  if (a->gated != (rabbet_onnx_input(node, 4) != NULL) ||
      a->delta != (rabbet_onnx_input(node, 5) != NULL))
    RABBET_ONNX_FAIL(node, RABBET_STATUS_INVALID_ARGUMENT,
                     "update_rule '%s' needs %s input 4 ('decay') and %s input "
                     "5 ('beta')",
                     given, a->gated ? "an" : "no", a->delta ? "an" : "no");
  return rabbet_onnx_ok(node);
}

static onnx_linear_t onnx_linear(rabbet_onnx_node_t* node) {
  static const char* const names[] = {"query", "key",   "value",
                                      "state", "decay", "beta"};
  onnx_linear_t a = {.heads = rabbet_onnx_attr_int(node, "kv_num_heads", 0),
                     .decays = 1};
  int64_t queries = rabbet_onnx_attr_int(node, "q_num_heads", 0);
  rabbet_dims_t dims[6] = {{0}};
  for (size_t i = 0; i < 6; ++i) {
    rabbet_tensor_t* x =
        i < 3 ? rabbet_onnx_required(node, i) : rabbet_onnx_input(node, i);
    rabbet_onnx_check_rank(node, names[i], x, i == 3 ? 4 : 3);
    if (x) dims[i] = rabbet_onnx_dims(node, x);
  }
  if (!onnx_linear_rule(node, &a)) return a;
  a.tokens = dims[0].d[1];
  if (a.tokens < 1)
    RABBET_ONNX_FAIL(node, RABBET_STATUS_UNSUPPORTED,
                     "the number of tokens, axis 1 of input 0 ('query'), must "
                     "be known when the model is imported, and 1 or more");
  else if (a.heads < 1 || queries < 1 || queries % a.heads ||
           dims[0].d[2] < 1 || dims[0].d[2] % queries || dims[2].d[2] < 1 ||
           dims[2].d[2] % a.heads)
    RABBET_ONNX_FAIL(node, RABBET_STATUS_INVALID_ARGUMENT,
                     "q_num_heads (%lld) and kv_num_heads (%lld) do not divide "
                     "queries of %lld and values of %lld elements",
                     (long long)queries, (long long)a.heads,
                     (long long)dims[0].d[2], (long long)dims[2].d[2]);
  if (!rabbet_onnx_ok(node)) return a;
  a.groups = queries / a.heads;
  a.keys = dims[0].d[2] / queries;
  a.values = dims[2].d[2] / a.heads;
  if (a.gated) a.decays = dims[4].d[2] / a.heads;
  if (a.delta) a.rates = dims[5].d[2];
  a.batch = rabbet_onnx_extent(node, node->inputs[0], 0);
  return a;
}

static void onnx_import_linear_attention(rabbet_onnx_node_t* node) {
  onnx_linear_t a = onnx_linear(node);
  if (!rabbet_onnx_ok(node)) return;
  rabbet_dtype_t dtype = rabbet_onnx_dtype_of(node, node->inputs[0]);
  rabbet_tensor_t* given = rabbet_onnx_input(node, 3);
  rabbet_dtype_t own = given ? rabbet_onnx_dtype_of(node, given) : dtype;
  const rabbet_onnx_index_t dims[] = {a.batch, rabbet_onnx_index(a.heads),
                                      rabbet_onnx_index(a.keys),
                                      rabbet_onnx_index(a.values)};
  rabbet_tensor_t* state =
      given
          ? rabbet_onnx_in_float(node, given)
          : rabbet_onnx_spread(node,
                               rabbet_onnx_in_float(
                                   node, rabbet_onnx_number(node, dtype, 4, 0)),
                               dims, 4);
  rabbet_tensor_t** parts = NULL;
  rabbet_onnx_fail(node, rabbet_onnx_spend(node->importer, (uint64_t)a.tokens));
  if (rabbet_onnx_ok(node))
    rabbet_onnx_fail(node, rabbet_arena_allocate_array(
                               &node->importer->arena, (size_t)a.tokens,
                               sizeof(*parts), (void**)&parts));
  for (int64_t i = 0; i < a.tokens && rabbet_onnx_ok(node); ++i) {
    state = onnx_linear_step(node, &a, state, i);
    parts[i] = onnx_linear_read(node, &a, state, i);
  }
  if (!rabbet_onnx_ok(node)) return;
  rabbet_tensor_t* y =
      a.tokens > 1 ? rabbet_onnx_concat(node, parts, (size_t)a.tokens, 1)
                   : parts[0];
  node->outputs[0] = rabbet_onnx_cast(node, y, dtype);
  if (rabbet_onnx_wants(node, 1))
    node->outputs[1] = rabbet_onnx_cast(node, state, own);
}

RABBET_ONNX_OPERATORS(state) = {
    RABBET_ONNX_OP(CausalConvWithState, causal_conv, "", 27),
    RABBET_ONNX_OP(LinearAttention, linear_attention, "", 27),
    {0},
};
