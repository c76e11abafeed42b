// Plugins of TensorRT's library for BERT. Tensors are [sequence, batch, hidden,
// 1, 1].
#include <float.h>
#include <math.h>

#include "onnx/compositions.h"
#include "onnx/file/model.h"
#include "onnx/operators.h"

// A tensor of the attributes; NULL without it.
static rabbet_tensor_t* onnx_bert_weights(rabbet_onnx_node_t* node,
                                          const char* name, bool is_required) {
  rabbet_onnx_constant_t found = {0};
  const Onnx__TensorProto* tensor = rabbet_onnx_attr_tensor(node, name);
  if (rabbet_onnx_ok(node) && !tensor && is_required)
    RABBET_ONNX_FAIL(node, RABBET_STATUS_INVALID_ARGUMENT,
                     "attribute '%s', a tensor, is missing", name);
  if (!rabbet_onnx_ok(node) || !tensor) return NULL;
  rabbet_onnx_fail(node, RABBET_ANNOTATE(rabbet_onnx_tensor_read(
                                             node->importer->storage,
                                             node->importer->network->logger,
                                             tensor, &found),
                                         "attribute '%s'", name));
  rabbet_tensor_t* x = rabbet_onnx_weights(node, found.weights.dtype,
                                           found.weights.data, &found.dims);
  return rabbet_onnx_cast(node, x, RABBET_DTYPE_FLOAT);
}

// A vector by index of axis 2, beside a tensor of this rank.
static rabbet_tensor_t* onnx_bert_vector(rabbet_onnx_node_t* node,
                                         const char* name, bool is_required,
                                         int rank) {
  rabbet_tensor_t* x = onnx_bert_weights(node, name, is_required);
  if (!x) return NULL;
  x = rabbet_onnx_flat(node, x);
  return rabbet_onnx_unsqueeze(node, x, ((1u << rank) - 1) & ~(1u << 2), rank);
}

// The type of results: `type_id` 0 is FLOAT, 1 FLOAT16. INT8 is refused, as its
// scales are not in the model.
static rabbet_dtype_t onnx_bert_type(rabbet_onnx_node_t* node,
                                     const char* name) {
  int64_t type = rabbet_onnx_attr_int(node, name, 0);
  if (rabbet_onnx_ok(node) && type != 0 && type != 1)
    RABBET_ONNX_FAIL(node, RABBET_STATUS_UNSUPPORTED,
                     "attribute '%s' is %lld; expected 0 (FLOAT) or 1 "
                     "(FLOAT16)",
                     name, (long long)type);
  return type == 1 ? RABBET_DTYPE_HALF : RABBET_DTYPE_FLOAT;
}

static rabbet_tensor_t* onnx_bert_normalize(rabbet_onnx_node_t* node,
                                            rabbet_tensor_t* x,
                                            const char* gamma,
                                            const char* beta) {
  int rank = rabbet_onnx_rank(node, x);
  rabbet_tensor_t* scale = onnx_bert_vector(node, gamma, true, rank);
  rabbet_tensor_t* bias = onnx_bert_vector(node, beta, true, rank);
  return rabbet_onnx_normalize(node, x, scale, bias, 1u << 2, FLT_EPSILON, 1);
}

// ---- Layers ----------------------------------------------------------------

// gelu(x + bias), by tanh
static void onnx_import_bert_gelu(rabbet_onnx_node_t* node) {
  rabbet_tensor_t* x = rabbet_onnx_required(node, 0);
  rabbet_dtype_t dtype = rabbet_onnx_dtype_of(node, x);
  int rank = rabbet_onnx_rank(node, x);
  if (rabbet_onnx_ok(node) && rabbet_onnx_has_attr(node, "bias")) {
    if (rank < 3) {
      RABBET_ONNX_FAIL(node, RABBET_STATUS_INVALID_ARGUMENT,
                       "input 0 has rank %d; expected 3 or more", rank);
      return;
    }
    rabbet_tensor_t* bias = onnx_bert_vector(node, "bias", true, rank);
    x = rabbet_onnx_binary(node, "SUM", x, rabbet_onnx_cast(node, bias, dtype));
  }
  node->outputs[0] = rabbet_onnx_activation(node, "GELU_TANH", x, 0, 0);
}

// The norm of input + skip + bias over the hidden axis.
static void onnx_import_bert_skip(rabbet_onnx_node_t* node) {
  rabbet_tensor_t* x = rabbet_onnx_required(node, 0);
  rabbet_tensor_t* skip = rabbet_onnx_required(node, 1);
  rabbet_dtype_t dtype = rabbet_onnx_dtype_of(node, x);
  int rank = rabbet_onnx_rank(node, x);
  (void)onnx_bert_type(node, "type_id");
  if (rabbet_onnx_ok(node) && rank < 3)
    RABBET_ONNX_FAIL(node, RABBET_STATUS_INVALID_ARGUMENT,
                     "input 0 has rank %d; expected 3 or more", rank);
  x = rabbet_onnx_cast(node, rabbet_onnx_binary(node, "SUM", x, skip),
                       RABBET_DTYPE_FLOAT);
  rabbet_tensor_t* bias = onnx_bert_vector(node, "bias", false, rank);
  if (bias) x = rabbet_onnx_binary(node, "SUM", x, bias);
  node->outputs[0] = rabbet_onnx_cast(
      node, onnx_bert_normalize(node, x, "gamma", "beta"), dtype);
}

// W is [out_dims, hidden].
static void onnx_import_bert_fc(rabbet_onnx_node_t* node) {
  rabbet_tensor_t* x = rabbet_onnx_required(node, 0);
  int64_t out = rabbet_onnx_attr_int(node, "out_dims", 0);
  rabbet_tensor_t* w = onnx_bert_weights(node, "W", true);
  rabbet_onnx_check_rank(node, "input 0", x, 5);
  rabbet_dims_t dims = rabbet_onnx_dims(node, x);
  rabbet_dtype_t dtype = rabbet_onnx_dtype_of(node, x);
  if (rabbet_onnx_ok(node) && (out < 1 || dims.d[2] < 1))
    RABBET_ONNX_FAIL(node, RABBET_STATUS_INVALID_ARGUMENT,
                     "out_dims is %lld and axis 2 of the input %lld; expected "
                     "numbers above 0 that are known at import",
                     (long long)out, (long long)dims.d[2]);
  if (!rabbet_onnx_ok(node)) return;
  const rabbet_onnx_index_t matrix[] = {rabbet_onnx_index(out),
                                        rabbet_onnx_index(dims.d[2])};
  w = rabbet_onnx_cast(
      node, rabbet_onnx_reshape(node, rabbet_onnx_flat(node, w), matrix, 2),
      dtype);
  x = rabbet_onnx_product(node, rabbet_onnx_squeeze(node, x, 3u << 3), false, w,
                          true);
  node->outputs[0] = rabbet_onnx_unsqueeze(node, x, 3u << 3, 5);
}

// ---- Embeddings ------------------------------------------------------------

// Sums of embeddings of words, types and positions, normalized; and how many
// elements of each sequence the mask leaves.
static void onnx_import_bert_embeddings(rabbet_onnx_node_t* node) {
  static const char* const tables[] = {"bert_embeddings_word_embeddings",
                                       "bert_embeddings_token_type_embeddings",
                                       "bert_embeddings_position_embeddings"};
  rabbet_tensor_t* mask = rabbet_onnx_required(node, 2);
  rabbet_tensor_t* sum = NULL;
  rabbet_dtype_t dtype = onnx_bert_type(node, "output_fp16");
  for (size_t i = 0; i < 3; ++i)
    rabbet_onnx_check_rank(node, "an input", rabbet_onnx_required(node, i), 2);
  if (rabbet_onnx_attr_int(node, "full_mask", 0) != 0)
    RABBET_ONNX_FAIL(node, RABBET_STATUS_UNSUPPORTED,
                     "attribute 'full_mask' is 1: a mask in the layout of "
                     "TensorRT's kernels; expected 0");
  if (!rabbet_onnx_ok(node)) return;
  rabbet_onnx_index_t length = rabbet_onnx_extent(node, mask, 0);
  for (int i = 0; i < 3 && rabbet_onnx_ok(node); ++i) {
    rabbet_tensor_t* at =
        i == 2 ? rabbet_onnx_indices(node, length, 0, 2)
               : rabbet_onnx_cast(node, node->inputs[i], RABBET_DTYPE_INT64);
    rabbet_tensor_t* x =
        rabbet_onnx_take(node, onnx_bert_weights(node, tables[i], true), at, 0);
    sum = sum ? rabbet_onnx_binary(node, "SUM", sum, x) : x;
  }
  rabbet_tensor_t* y =
      onnx_bert_normalize(node, sum, "bert_embeddings_layernorm_gamma",
                          "bert_embeddings_layernorm_beta");
  node->outputs[0] =
      rabbet_onnx_unsqueeze(node, rabbet_onnx_cast(node, y, dtype), 3u << 3, 5);
  if (node->output_count > 1)
    node->outputs[1] = rabbet_onnx_reduce(
        node, "SUM", rabbet_onnx_cast(node, mask, RABBET_DTYPE_INT32), 1u << 0,
        false);
}

// ---- Attention -------------------------------------------------------------

// Part 0 (queries), 1 (keys) or 2 (values) of x [sequence, batch, heads, 3,
// size] as [batch, heads, sequence, size].
static rabbet_tensor_t* onnx_bert_part(rabbet_onnx_node_t* node,
                                       rabbet_tensor_t* x, int part) {
  static const int64_t heads_first[] = {1, 2, 0, 3};
  rabbet_onnx_slice_t slice = rabbet_onnx_slice_all(node, x);
  slice.start[3] = rabbet_onnx_index(part);
  slice.size[3] = rabbet_onnx_index(1);
  if (!rabbet_onnx_ok(node)) return NULL;
  x = rabbet_onnx_squeeze(node, rabbet_onnx_slice(node, x, &slice), 1u << 3);
  return rabbet_onnx_transpose(node, x, heads_first);
}

// Scores of keys at the length of a sequence, and behind it, become -infinity.
static rabbet_tensor_t* onnx_bert_masked(rabbet_onnx_node_t* node,
                                         rabbet_tensor_t* scores,
                                         rabbet_tensor_t* lengths) {
  rabbet_onnx_check_rank(node, "input 1 ('mask')", lengths, 1);
  rabbet_tensor_t* at =
      rabbet_onnx_indices(node, rabbet_onnx_extent(node, scores, 3), 3, 4);
  rabbet_tensor_t* length = rabbet_onnx_unsqueeze(
      node, rabbet_onnx_cast(node, lengths, RABBET_DTYPE_INT64), 7u << 1, 4);
  rabbet_tensor_t* lowest = rabbet_onnx_number(
      node, rabbet_onnx_dtype_of(node, scores), 4, -(double)INFINITY);
  return rabbet_onnx_select(node, rabbet_onnx_binary(node, "LESS", at, length),
                            scores, lowest);
}

// Attention of x [sequence, batch, 3 * hidden, 1, 1]. Queries, keys and values
// of a head lie next to each other.
static void onnx_import_bert_attention(rabbet_onnx_node_t* node) {
  static const int64_t sequence_first[] = {2, 0, 1, 3};
  rabbet_tensor_t* x = rabbet_onnx_required(node, 0);
  int64_t hidden = rabbet_onnx_attr_int(node, "hidden_size", 0);
  int64_t heads = rabbet_onnx_attr_int(node, "num_heads", 0);
  (void)onnx_bert_type(node, "type_id");
  rabbet_onnx_check_rank(node, "input 0", x, 5);
  if (rabbet_onnx_ok(node) && (heads < 1 || hidden < 1 || hidden % heads))
    RABBET_ONNX_FAIL(node, RABBET_STATUS_INVALID_ARGUMENT,
                     "hidden_size is %lld and num_heads %lld; expected a "
                     "multiple of the heads",
                     (long long)hidden, (long long)heads);
  if (!rabbet_onnx_ok(node)) return;
  const rabbet_onnx_index_t length = rabbet_onnx_extent(node, x, 0),
                            batch = rabbet_onnx_extent(node, x, 1),
                            one = rabbet_onnx_index(1);
  const rabbet_onnx_index_t split[] = {length, batch, rabbet_onnx_index(heads),
                                       rabbet_onnx_index(3),
                                       rabbet_onnx_index(hidden / heads)};
  const rabbet_onnx_index_t joined[] = {length, batch,
                                        rabbet_onnx_index(hidden), one, one};
  x = rabbet_onnx_reshape(node, x, split, 5);
  rabbet_tensor_t* scores =
      rabbet_onnx_matmul(node, onnx_bert_part(node, x, 0), "NONE",
                         onnx_bert_part(node, x, 1), "TRANSPOSE");
  scores = rabbet_onnx_with_number(node, "PROD", scores,
                                   1 / sqrt((double)(hidden / heads)));
  if (rabbet_onnx_input(node, 1))
    scores = onnx_bert_masked(node, scores, node->inputs[1]);
  rabbet_tensor_t* y =
      rabbet_onnx_matmul(node, rabbet_onnx_softmax(node, scores, 3), "NONE",
                         onnx_bert_part(node, x, 2), "NONE");
  node->outputs[0] = rabbet_onnx_reshape(
      node, rabbet_onnx_transpose(node, y, sequence_first), joined, 5);
}

RABBET_ONNX_OPERATORS(trt_bert) = {
    RABBET_ONNX_PLUGIN_OP("", CustomEmbLayerNormPluginDynamic, bert_embeddings),
    RABBET_ONNX_PLUGIN_OP("TRT", CustomEmbLayerNormPluginDynamic,
                          bert_embeddings),
    RABBET_ONNX_PLUGIN_OP("", CustomFCPluginDynamic, bert_fc),
    RABBET_ONNX_PLUGIN_OP("TRT", CustomFCPluginDynamic, bert_fc),
    RABBET_ONNX_PLUGIN_OP("", CustomGeluPluginDynamic, bert_gelu),
    RABBET_ONNX_PLUGIN_OP("TRT", CustomGeluPluginDynamic, bert_gelu),
    RABBET_ONNX_PLUGIN_OP("", CustomQKVToContextPluginDynamic, bert_attention),
    RABBET_ONNX_PLUGIN_OP("TRT", CustomQKVToContextPluginDynamic,
                          bert_attention),
    RABBET_ONNX_PLUGIN_OP("", CustomSkipLayerNormPluginDynamic, bert_skip),
    RABBET_ONNX_PLUGIN_OP("TRT", CustomSkipLayerNormPluginDynamic, bert_skip),
    {0},
};
