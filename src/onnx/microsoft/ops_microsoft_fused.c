// Fused operators of com.microsoft, as the optimizer of ONNX Runtime writes
// them, composed of the ONNX operators that they replace. Attention and
// quantized operators have files of their own.
#include <math.h>
#include <string.h>

#include "onnx/compositions.h"
#include "onnx/operators.h"

// ---- Activations -----------------------------------------------------------

static void onnx_import_biased_gelu(rabbet_onnx_node_t* node) {
  rabbet_tensor_t* x = rabbet_onnx_required(node, 0);
  rabbet_tensor_t* bias = rabbet_onnx_input(node, 1);
  if (bias) x = rabbet_onnx_binary(node, "SUM", x, bias);
  node->outputs[0] = rabbet_onnx_activation(node, node->variant, x, 0, 0);
}

static void onnx_import_quick_gelu(rabbet_onnx_node_t* node) {
  rabbet_tensor_t* x = rabbet_onnx_required(node, 0);
  double alpha = rabbet_onnx_attr_float(node, "alpha", 1.702f);
  rabbet_tensor_t* gate =
      alpha == 1 ? x : rabbet_onnx_with_number(node, "PROD", x, alpha);
  gate = rabbet_onnx_activation(node, "SIGMOID", gate, 0, 0);
  node->outputs[0] = rabbet_onnx_binary(node, "PROD", x, gate);
}

// The left half of the last axis times GELU of the right one.
static void onnx_import_bias_split_gelu(rabbet_onnx_node_t* node) {
  rabbet_tensor_t* x =
      rabbet_onnx_binary(node, "SUM", rabbet_onnx_required(node, 0),
                         rabbet_onnx_required(node, 1));
  int last = rabbet_onnx_rank(node, x) - 1;
  if (!rabbet_onnx_ok(node)) return;
  rabbet_onnx_slice_t slice = rabbet_onnx_slice_all(node, x);
  slice.size[last] = rabbet_onnx_index_op(node, "FLOOR_DIV", slice.size[last],
                                          rabbet_onnx_index(2));
  rabbet_tensor_t* left = rabbet_onnx_slice(node, x, &slice);
  slice.start[last] = slice.size[last];
  rabbet_tensor_t* right = rabbet_onnx_slice(node, x, &slice);
  right = rabbet_onnx_activation(node, "GELU_ERF", right, 0, 0);
  node->outputs[0] = rabbet_onnx_binary(node, "PROD", left, right);
}

// ---- Products with an activation -------------------------------------------

typedef struct onnx_fused_function_t {
  const char *name, *type;
  double alpha, beta;  // defaults of the parameters
} onnx_fused_function_t;

static const onnx_fused_function_t onnx_fused_functions[] = {
    {"Relu", "RELU", 0, 0},
    {"Sigmoid", "SIGMOID", 0, 0},
    {"Tanh", "TANH", 0, 0},
    {"LeakyRelu", "LEAKY_RELU", 0.01, 0},
    {"HardSigmoid", "HARD_SIGMOID", 0.2, 0.5},
    {"Clip", "CLIP", -INFINITY, INFINITY},
};

// The activation that the attribute 'activation' names, applied to x.
static rabbet_tensor_t* onnx_fused_activation(rabbet_onnx_node_t* node,
                                              rabbet_tensor_t* x,
                                              const double given[2],
                                              size_t count) {
  const char* name = rabbet_onnx_attr_string(node, "activation", "");
  size_t known = sizeof(onnx_fused_functions) / sizeof(*onnx_fused_functions);
  if (!name[0]) return x;
  if (!strcmp(name, "HardSwish"))
    return rabbet_onnx_binary(
        node, "PROD", x,
        rabbet_onnx_activation(node, "HARD_SIGMOID", x, 1.0 / 6, 0.5));
  for (size_t i = 0; i < known; ++i) {
    const onnx_fused_function_t* f = &onnx_fused_functions[i];
    if (strcmp(f->name, name) != 0) continue;
    return rabbet_onnx_activation(node, f->type, x,
                                  count > 0 ? given[0] : f->alpha,
                                  count > 1 ? given[1] : f->beta);
  }
  RABBET_ONNX_FAIL(node, RABBET_STATUS_UNSUPPORTED,
                   "attribute 'activation' is '%s'; expected Relu, Sigmoid, "
                   "Tanh, LeakyRelu, HardSigmoid, HardSwish or Clip",
                   name);
  return NULL;
}

static void onnx_import_fused_convolution(rabbet_onnx_node_t* node) {
  rabbet_tensor_t* x = rabbet_onnx_required(node, 0);
  rabbet_tensor_t* kernel = rabbet_onnx_required(node, 1);
  rabbet_tensor_t* added = rabbet_onnx_input(node, 3);
  rabbet_onnx_floats_t floats =
      rabbet_onnx_attr_floats(node, "activation_params");
  double given[2] = {0};
  for (size_t i = 0; i < 2 && i < floats.count; ++i)
    given[i] = (double)floats.data[i];
  rabbet_tensor_t* y =
      rabbet_onnx_convolution(node, x, kernel, rabbet_onnx_input(node, 2));
  if (added) y = rabbet_onnx_binary(node, "SUM", y, added);
  node->outputs[0] = onnx_fused_activation(node, y, given, floats.count);
}

// Channels are last, in the kernel [outputs, height, width, inputs], too.
static void onnx_import_nhwc_convolution(rabbet_onnx_node_t* node) {
  static const int64_t channels_first[] = {0, 3, 1, 2};
  static const int64_t channels_last[] = {0, 2, 3, 1};
  rabbet_tensor_t* x = rabbet_onnx_required(node, 0);
  rabbet_tensor_t* kernel = rabbet_onnx_required(node, 1);
  rabbet_onnx_check_rank(node, "X", x, 4);
  rabbet_onnx_check_rank(node, "W", kernel, 4);
  x = rabbet_onnx_transpose(node, x, channels_first);
  kernel = rabbet_onnx_transpose(node, kernel, channels_first);
  rabbet_tensor_t* y =
      rabbet_onnx_convolution(node, x, kernel, rabbet_onnx_input(node, 2));
  node->outputs[0] = rabbet_onnx_transpose(node, y, channels_last);
}

// A factor of a product; with `batches` its rows are on axis 0, in front of the
// batch axes.
static rabbet_tensor_t* onnx_fused_factor(rabbet_onnx_node_t* node,
                                          size_t index, bool batches) {
  rabbet_tensor_t* x = rabbet_onnx_required(node, index);
  int rank = rabbet_onnx_rank(node, x);
  int64_t perm[RABBET_MAX_RANK];
  if (!rabbet_onnx_ok(node) || !batches || rank < 3) return x;
  for (int i = 0; i < rank; ++i)
    perm[i] = i < rank - 2 ? i + 1 : i == rank - 2 ? 0 : i;
  return rabbet_onnx_transpose(node, x, perm);
}

static void onnx_import_fused_matmul(rabbet_onnx_node_t* node) {
  bool flip_a = rabbet_onnx_attr_int(node, "transA", 0) != 0;
  bool flip_b = rabbet_onnx_attr_int(node, "transB", 0) != 0;
  rabbet_tensor_t* a = onnx_fused_factor(
      node, 0, rabbet_onnx_attr_int(node, "transBatchA", 0) != 0);
  rabbet_tensor_t* b = onnx_fused_factor(
      node, 1, rabbet_onnx_attr_int(node, "transBatchB", 0) != 0);
  double alpha = rabbet_onnx_attr_float(node, "alpha", 1);
  rabbet_tensor_t* y = rabbet_onnx_product(node, a, flip_a, b, flip_b);
  if (alpha != 1) y = rabbet_onnx_with_number(node, "PROD", y, alpha);
  node->outputs[0] = y;
}

static void onnx_import_fused_gemm(rabbet_onnx_node_t* node) {
  const double given[] = {rabbet_onnx_attr_float(node, "activation_alpha", 0),
                          rabbet_onnx_attr_float(node, "activation_beta", 0)};
  size_t count = rabbet_onnx_has_attr(node, "activation_beta")    ? 2
                 : rabbet_onnx_has_attr(node, "activation_alpha") ? 1
                                                                  : 0;
  node->outputs[0] =
      onnx_fused_activation(node, rabbet_onnx_gemm(node), given, count);
}

// ---- Normalization ---------------------------------------------------------

static rabbet_tensor_t* onnx_layer_norm(rabbet_onnx_node_t* node,
                                        rabbet_tensor_t* x,
                                        rabbet_tensor_t* scale,
                                        rabbet_tensor_t* bias) {
  int rank = rabbet_onnx_rank(node, x);
  double epsilon = rabbet_onnx_attr_float(node, "epsilon", 1e-12f);
  if (!rabbet_onnx_ok(node)) return NULL;
  scale = rabbet_onnx_to_rank(node, scale, rank);
  if (bias) bias = rabbet_onnx_to_rank(node, bias, rank);
  return rabbet_onnx_normalize(node, x, scale, bias, 1u << (rank - 1), epsilon,
                               1);
}

// Sum of the first two inputs and, if it is there, of a bias; output 3 shows
// it. Outputs 1 and 2 serve a backward pass.
static rabbet_tensor_t* onnx_skip_sum(rabbet_onnx_node_t* node, size_t bias) {
  rabbet_tensor_t* sum =
      rabbet_onnx_binary(node, "SUM", rabbet_onnx_required(node, 0),
                         rabbet_onnx_required(node, 1));
  if (rabbet_onnx_input(node, bias))
    sum = rabbet_onnx_binary(node, "SUM", sum, node->inputs[bias]);
  if (rabbet_onnx_ok(node) &&
      (rabbet_onnx_wants(node, 1) || rabbet_onnx_wants(node, 2)))
    RABBET_ONNX_FAIL(node, RABBET_STATUS_UNSUPPORTED,
                     "outputs 1 and 2 (mean, inv_std_var) serve a backward "
                     "pass; export the model for inference");
  if (rabbet_onnx_wants(node, 3)) node->outputs[3] = sum;
  return sum;
}

static void onnx_import_skip_layer_norm(rabbet_onnx_node_t* node) {
  rabbet_tensor_t* sum = onnx_skip_sum(node, 4);
  node->outputs[0] = onnx_layer_norm(node, sum, rabbet_onnx_required(node, 2),
                                     rabbet_onnx_input(node, 3));
}

static void onnx_import_skip_rms_norm(rabbet_onnx_node_t* node) {
  rabbet_tensor_t* sum = onnx_skip_sum(node, 3);
  rabbet_tensor_t* scale = rabbet_onnx_required(node, 2);
  double epsilon = rabbet_onnx_attr_float(node, "epsilon", 1e-12f);
  int last = rabbet_onnx_rank(node, sum) - 1;
  node->outputs[0] = rabbet_onnx_rms_normalize(node, sum, scale, last, epsilon);
}

static void onnx_import_rms_norm(rabbet_onnx_node_t* node) {
  rabbet_tensor_t* x = rabbet_onnx_required(node, 0);
  rabbet_tensor_t* scale = rabbet_onnx_required(node, 1);
  double epsilon = rabbet_onnx_attr_float(node, "epsilon", 1e-5f);
  int axis = rabbet_onnx_axis(node, rabbet_onnx_attr_int(node, "axis", -1),
                              rabbet_onnx_rank(node, x));
  node->outputs[0] = rabbet_onnx_rms_normalize(node, x, scale, axis, epsilon);
}

// Channels are last unless the node says otherwise; activation 1 is SiLU. A
// skip tensor and a bias are added before.
static void onnx_group_norm(rabbet_onnx_node_t* node, rabbet_tensor_t* x) {
  enum { NONE, SILU, ACTIVATIONS };
  rabbet_tensor_t* scale = rabbet_onnx_required(node, 1);
  rabbet_tensor_t* bias = rabbet_onnx_required(node, 2);
  bool last = rabbet_onnx_attr_int(node, "channels_last", 1) != 0;
  int64_t groups = rabbet_onnx_attr_int(node, "groups", 0);
  int64_t activation = rabbet_onnx_attr_int(node, "activation", NONE);
  double epsilon = rabbet_onnx_attr_float(node, "epsilon", 1e-5f);
  rabbet_dims_t dims = rabbet_onnx_dims(node, x);
  if (rabbet_onnx_ok(node) && (activation < NONE || activation >= ACTIVATIONS))
    RABBET_ONNX_FAIL(node, RABBET_STATUS_INVALID_ARGUMENT,
                     "attribute 'activation' is %lld; expected 0 (none) or 1 "
                     "(SiLU)",
                     (long long)activation);
  if (!rabbet_onnx_ok(node)) return;
  int64_t channels = dims.rank < 3 ? -1 : dims.d[last ? dims.rank - 1 : 1];
  if (channels < 1 || groups < 1 || channels % groups != 0) {
    RABBET_ONNX_FAIL(node, RABBET_STATUS_UNSUPPORTED,
                     "the channels of the input (of rank 3 or more) must be "
                     "known and a multiple of groups, %lld",
                     (long long)groups);
    return;
  }
  int64_t to[RABBET_MAX_RANK], back[RABBET_MAX_RANK];
  for (int i = 0; i < dims.rank; ++i) {
    to[i] = i == 0 ? 0 : i == 1 ? dims.rank - 1 : i - 1;
    back[to[i]] = i;
  }
  rabbet_dtype_t dtype = rabbet_onnx_dtype_of(node, x);
  scale = rabbet_onnx_cast(node, scale, dtype);
  bias = rabbet_onnx_cast(node, bias, dtype);
  if (last) x = rabbet_onnx_transpose(node, x, to);
  rabbet_tensor_t* y =
      rabbet_onnx_group_normalize(node, x, scale, bias, groups, epsilon);
  if (activation == SILU)
    y = rabbet_onnx_binary(node, "PROD", y,
                           rabbet_onnx_activation(node, "SIGMOID", y, 0, 0));
  node->outputs[0] = last ? rabbet_onnx_transpose(node, y, back) : y;
}

static void onnx_import_group_norm(rabbet_onnx_node_t* node) {
  onnx_group_norm(node, rabbet_onnx_required(node, 0));
}

// ---- EmbedLayerNormalization -----------------------------------------------

enum {
  IDS,
  SEGMENT_IDS,
  WORDS,
  POSITIONS,
  SEGMENTS,
  GAMMA,
  BETA,
  MASK,
  PLACES
};

// Rows of the position table: by the ids, else the first ones in order.
static rabbet_tensor_t* onnx_embedded_positions(rabbet_onnx_node_t* node) {
  rabbet_tensor_t* table = rabbet_onnx_required(node, POSITIONS);
  rabbet_tensor_t* places = rabbet_onnx_input(node, PLACES);
  if (places) return rabbet_onnx_take(node, table, places, 0);
  rabbet_onnx_check_rank(node, "position_embedding", table, 2);
  if (!rabbet_onnx_ok(node)) return NULL;
  rabbet_onnx_slice_t slice = rabbet_onnx_slice_all(node, table);
  slice.size[0] = rabbet_onnx_extent(node, node->inputs[IDS], 1);
  return rabbet_onnx_slice(node, table, &slice);
}

// How many ones the mask of each sequence has; 0 without a mask.
static rabbet_tensor_t* onnx_mask_index(rabbet_onnx_node_t* node) {
  rabbet_tensor_t* mask = rabbet_onnx_input(node, MASK);
  if (mask) {
    mask =
        rabbet_onnx_cast(node, rabbet_onnx_with_number(node, "EQUAL", mask, 1),
                         RABBET_DTYPE_INT32);
    return rabbet_onnx_reduce(node, "SUM", mask, 1u << 1, false);
  }
  rabbet_onnx_index_t batch = rabbet_onnx_extent(node, node->inputs[IDS], 0);
  rabbet_tensor_t* zero = rabbet_onnx_number(node, RABBET_DTYPE_INT32, 1, 0);
  return rabbet_onnx_spread(node, zero, &batch, 1);
}

static void onnx_import_embed_layer_norm(rabbet_onnx_node_t* node) {
  rabbet_tensor_t* ids = rabbet_onnx_required(node, IDS);
  rabbet_tensor_t* words = rabbet_onnx_required(node, WORDS);
  rabbet_tensor_t* gamma = rabbet_onnx_required(node, GAMMA);
  rabbet_tensor_t* beta = rabbet_onnx_required(node, BETA);
  rabbet_onnx_check_rank(node, "input_ids", ids, 2);
  if (!rabbet_onnx_ok(node)) return;
  rabbet_tensor_t* sum =
      rabbet_onnx_binary(node, "SUM", rabbet_onnx_take(node, words, ids, 0),
                         onnx_embedded_positions(node));
  rabbet_tensor_t* segment_ids = rabbet_onnx_input(node, SEGMENT_IDS);
  rabbet_tensor_t* segments = rabbet_onnx_input(node, SEGMENTS);
  if (segment_ids && segments)
    sum = rabbet_onnx_binary(node, "SUM", sum,
                             rabbet_onnx_take(node, segments, segment_ids, 0));
  node->outputs[0] = onnx_layer_norm(node, sum, gamma, beta);
  if (rabbet_onnx_wants(node, 1)) node->outputs[1] = onnx_mask_index(node);
  if (rabbet_onnx_wants(node, 2)) node->outputs[2] = sum;
}

RABBET_ONNX_OPERATORS(microsoft_fused) = {
    RABBET_ONNX_RUNTIME_OP("", SimplifiedLayerNormalization, rms_norm, ""),
    RABBET_ONNX_RUNTIME_OP("com.microsoft", BiasGelu, biased_gelu, "GELU_ERF"),
    RABBET_ONNX_RUNTIME_OP("com.microsoft", BiasSplitGelu, bias_split_gelu, ""),
    RABBET_ONNX_RUNTIME_OP("com.microsoft", EmbedLayerNormalization,
                           embed_layer_norm, ""),
    RABBET_ONNX_RUNTIME_OP("com.microsoft", FastGelu, biased_gelu, "GELU_TANH"),
    RABBET_ONNX_RUNTIME_OP("com.microsoft", FusedConv, fused_convolution, ""),
    RABBET_ONNX_RUNTIME_OP("com.microsoft", FusedGemm, fused_gemm, ""),
    RABBET_ONNX_RUNTIME_OP("com.microsoft", FusedMatMul, fused_matmul, ""),
    RABBET_ONNX_RUNTIME_OP("com.microsoft", Gelu, biased_gelu, "GELU_ERF"),
    RABBET_ONNX_RUNTIME_OP("com.microsoft", GroupNorm, group_norm, ""),
    RABBET_ONNX_RUNTIME_OP("com.microsoft", NhwcConv, nhwc_convolution, ""),
    RABBET_ONNX_RUNTIME_OP("com.microsoft", QuickGelu, quick_gelu, ""),
    RABBET_ONNX_RUNTIME_OP("com.microsoft", SkipLayerNormalization,
                           skip_layer_norm, ""),
    RABBET_ONNX_RUNTIME_OP("com.microsoft", SkipSimplifiedLayerNormalization,
                           skip_rms_norm, ""),
    {0},
};
