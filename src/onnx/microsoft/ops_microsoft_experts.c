// Mixtures of experts of com.microsoft: MoE, and QMoE with constant weights of
// 2, 4 or 8 bits, which are dequantized when the model is imported.
//
// With SwiGLU, or SiLU and a third product, experts are the layer 'moe', which
// reads the weights of chosen experts alone. Other activations have no layer:
// all experts are computed, and the weights of those not chosen are 0.
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "core/view.h"
#include "onnx/compositions.h"
#include "onnx/operators.h"

typedef struct onnx_experts_t {
  rabbet_tensor_t* x;  // [tokens, hidden]
  rabbet_dtype_t dtype;
  rabbet_tensor_t *chosen, *scores;  // [tokens, k], INT64 and x's type
  // [experts, outputs, inputs] and [experts, outputs]; NULL where they are
  // omitted.
  rabbet_tensor_t *weights[3], *bias[3];
  int64_t experts;
  const char* activation;
  int64_t fusion;  // of the factors of SwiGLU: 0 none, 1 in turns, 2 in halves
} onnx_experts_t;

// ---- Routing ---------------------------------------------------------------

static rabbet_tensor_t* onnx_experts_taken(rabbet_onnx_node_t* node,
                                           rabbet_tensor_t* x,
                                           rabbet_tensor_t* chosen) {
  rabbet_tensor_t* inputs[] = {x, chosen};
  rabbet_attr_t attrs[] = {
      RABBET_ONNX_INT(
          "mode", rabbet_onnx_enumerator(node, "gather", "mode", "ELEMENT")),
      RABBET_ONNX_INT("axis", 1)};
  return rabbet_onnx_layer(node, "gather", inputs, 2, attrs, 2);
}

// The best k experts of each token, weighed by their probabilities among all
// experts. `mixing`, if it is given, holds other weights for all experts.
static void onnx_experts_route(rabbet_onnx_node_t* node, onnx_experts_t* e,
                               rabbet_tensor_t* mixing) {
  rabbet_tensor_t* router = rabbet_onnx_required(node, 1);
  int64_t k = rabbet_onnx_attr_int(node, "k", 1);
  rabbet_onnx_check_rank(node, "input 1 ('router_probs')", router, 2);
  if (rabbet_onnx_ok(node) && (k < 1 || k > e->experts))
    RABBET_ONNX_FAIL(node, RABBET_STATUS_INVALID_ARGUMENT,
                     "attribute 'k' is %lld; expected 1 to %lld, the number of "
                     "experts",
                     (long long)k, (long long)e->experts);
  if (rabbet_onnx_attr_int(node, "use_sparse_mixer", 0) != 0)
    RABBET_ONNX_FAIL(node, RABBET_STATUS_UNSUPPORTED,
                     "attribute 'use_sparse_mixer' is 1: the weights would "
                     "follow from training's sparse mixer; expected 0");
  router = rabbet_onnx_cast(node, router, RABBET_DTYPE_FLOAT);
  rabbet_tensor_t* best[2] = {NULL, NULL};
  rabbet_onnx_topk(node, router, NULL, k, 1, true, best);
  e->chosen = rabbet_onnx_cast(node, best[1], RABBET_DTYPE_INT64);
  mixing = mixing ? rabbet_onnx_cast(node, mixing, RABBET_DTYPE_FLOAT)
                  : rabbet_onnx_softmax(node, router, 1);
  e->scores = onnx_experts_taken(node, mixing, e->chosen);
  if (rabbet_onnx_attr_int(node, "normalize_routing_weights", 0) != 0)
    e->scores = rabbet_onnx_binary(
        node, "DIV", e->scores,
        rabbet_onnx_reduce(node, "SUM", e->scores, 1u << 1, true));
  e->scores = rabbet_onnx_cast(node, e->scores, e->dtype);
}

// ---- The layer -------------------------------------------------------------

// Every second element of axis 1 from `first` on, or half of it.
static rabbet_tensor_t* onnx_experts_part(rabbet_onnx_node_t* node,
                                          rabbet_tensor_t* x, int64_t fusion,
                                          int64_t first) {
  if (!x || fusion == 0) return x;
  rabbet_onnx_slice_t slice = rabbet_onnx_slice_all(node, x);
  slice.size[1] = rabbet_onnx_index_op(node, "FLOOR_DIV", slice.size[1],
                                       rabbet_onnx_index(2));
  if (fusion == 1) slice.stride[1] = rabbet_onnx_index(2);
  if (first == 1)
    slice.start[1] = fusion == 1 ? rabbet_onnx_index(1) : slice.size[1];
  return rabbet_onnx_slice(node, x, &slice);
}

// A bias, zeros where there is none.
static rabbet_tensor_t* onnx_experts_bias(rabbet_onnx_node_t* node,
                                          const onnx_experts_t* e,
                                          rabbet_tensor_t* bias,
                                          rabbet_tensor_t* weights) {
  if (bias || !rabbet_onnx_ok(node)) return bias;
  rabbet_onnx_index_t dims[] = {rabbet_onnx_index(e->experts),
                                rabbet_onnx_extent(node, weights, 1)};
  return rabbet_onnx_spread(node, rabbet_onnx_number(node, e->dtype, 2, 0),
                            dims, 2);
}

// Experts whose activation is gate * sigmoid(alpha * gate) * (up + beta).
static rabbet_tensor_t* onnx_experts_layer(rabbet_onnx_node_t* node,
                                           const onnx_experts_t* e,
                                           bool is_swiglu) {
  enum { GATE, UP, DOWN };
  static const int64_t swapped[] = {0, 2, 1};
  rabbet_tensor_t *weights[3], *bias[3];
  bool has_bias = e->bias[0] || e->bias[1] || e->bias[2];
  for (int64_t i = GATE; i <= UP; ++i) {
    size_t from = e->fusion || i == GATE ? 0 : 2;
    weights[i] = onnx_experts_part(node, e->weights[from], e->fusion, i);
    bias[i] = onnx_experts_part(node, e->bias[from], e->fusion, i);
  }
  weights[DOWN] = e->weights[1];
  bias[DOWN] = e->bias[1];
  rabbet_tensor_t* inputs[9] = {e->x, e->chosen, e->scores};
  for (int i = GATE; i <= DOWN; ++i) {
    inputs[3 + i] = rabbet_onnx_transpose(node, weights[i], swapped);
    if (has_bias)
      inputs[6 + i] = onnx_experts_bias(node, e, bias[i], weights[i]);
  }
  rabbet_attr_t attrs[] = {
      RABBET_ONNX_INT(
          "activation_type",
          rabbet_onnx_enumerator(node, "moe", "activation_type", "SILU")),
      RABBET_ONNX_FLOAT(
          "swiglu_param_limit",
          is_swiglu ? rabbet_onnx_attr_float(node, "swiglu_limit", INFINITY)
                    : INFINITY),
      RABBET_ONNX_FLOAT(
          "swiglu_param_alpha",
          is_swiglu ? rabbet_onnx_attr_float(node, "activation_alpha", 1) : 1),
      RABBET_ONNX_FLOAT(
          "swiglu_param_beta",
          is_swiglu ? rabbet_onnx_attr_float(node, "activation_beta", 0) : 0)};
  return rabbet_onnx_layer(node, "moe", inputs, has_bias ? 9 : 6, attrs, 4);
}

// ---- All experts -----------------------------------------------------------

static rabbet_tensor_t* onnx_experts_activate(rabbet_onnx_node_t* node,
                                              const char* name,
                                              rabbet_tensor_t* x) {
  if (!strcmp(name, "identity")) return x;
  if (!strcmp(name, "relu"))
    return rabbet_onnx_activation(node, "RELU", x, 0, 0);
  if (!strcmp(name, "relu2")) {
    x = rabbet_onnx_activation(node, "RELU", x, 0, 0);
    return rabbet_onnx_binary(node, "PROD", x, x);
  }
  if (!strcmp(name, "gelu") || !strcmp(name, "geglu"))
    return rabbet_onnx_activation(node, "GELU_TANH", x, 0, 0);
  if (!strcmp(name, "silu"))
    return rabbet_onnx_binary(node, "PROD", x,
                              rabbet_onnx_activation(node, "SIGMOID", x, 0, 0));
  if (rabbet_onnx_ok(node))
    RABBET_ONNX_FAIL(node, RABBET_STATUS_UNSUPPORTED,
                     "attribute 'activation_type' is '%s'; expected relu, "
                     "relu2, gelu, silu, identity, swiglu or geglu",
                     name);
  return NULL;
}

// x times the transposed matrix of each expert, with its bias: [experts,
// tokens, outputs].
static rabbet_tensor_t* onnx_experts_product(rabbet_onnx_node_t* node,
                                             rabbet_tensor_t* x,
                                             rabbet_tensor_t* weights,
                                             rabbet_tensor_t* bias) {
  rabbet_tensor_t* y = rabbet_onnx_product(node, x, false, weights, true);
  if (!bias) return y;
  return rabbet_onnx_binary(node, "SUM", y,
                            rabbet_onnx_unsqueeze(node, bias, 1u << 1, 3));
}

// The weight of each expert for each token, 0 unless it is chosen: [experts,
// tokens, 1].
static rabbet_tensor_t* onnx_experts_shares(rabbet_onnx_node_t* node,
                                            const onnx_experts_t* e) {
  static const int64_t experts_first[] = {1, 0, 2};
  rabbet_tensor_t* numbers =
      rabbet_onnx_indices(node, rabbet_onnx_index(e->experts), 2, 3);
  rabbet_tensor_t* is_chosen = rabbet_onnx_binary(
      node, "EQUAL", rabbet_onnx_unsqueeze(node, e->chosen, 1u << 2, 3),
      numbers);
  rabbet_tensor_t* share = rabbet_onnx_binary(
      node, "PROD", rabbet_onnx_cast(node, is_chosen, e->dtype),
      rabbet_onnx_unsqueeze(node, e->scores, 1u << 2, 3));
  share = rabbet_onnx_reduce(node, "SUM", share, 1u << 1, false);
  share = rabbet_onnx_unsqueeze(node, share, 1u << 2, 3);
  return rabbet_onnx_transpose(node, share, experts_first);
}

static rabbet_tensor_t* onnx_experts_all(rabbet_onnx_node_t* node,
                                         const onnx_experts_t* e) {
  rabbet_tensor_t* x = rabbet_onnx_unsqueeze(node, e->x, 1, 3);
  rabbet_tensor_t* up = NULL;
  rabbet_tensor_t* gate = onnx_experts_product(
      node, x, onnx_experts_part(node, e->weights[0], e->fusion, 0),
      onnx_experts_part(node, e->bias[0], e->fusion, 0));
  if (e->fusion)
    up = onnx_experts_product(
        node, x, onnx_experts_part(node, e->weights[0], e->fusion, 1),
        onnx_experts_part(node, e->bias[0], e->fusion, 1));
  else if (e->weights[2])
    up = onnx_experts_product(node, x, e->weights[2], e->bias[2]);
  rabbet_tensor_t* y = onnx_experts_activate(node, e->activation, gate);
  if (up) y = rabbet_onnx_binary(node, "PROD", y, up);
  y = onnx_experts_product(node, y, e->weights[1], e->bias[1]);
  y = rabbet_onnx_binary(node, "PROD", y, onnx_experts_shares(node, e));
  return rabbet_onnx_reduce(node, "SUM", y, 1u << 0, false);
}

// ---- Both operators --------------------------------------------------------

static void onnx_experts_check(rabbet_onnx_node_t* node,
                               const onnx_experts_t* e) {
  bool gates =
      !strcmp(e->activation, "swiglu") || !strcmp(e->activation, "geglu");
  if (!rabbet_onnx_ok(node)) return;
  if (e->fusion < 0 || e->fusion > 2)
    RABBET_ONNX_FAIL(node, RABBET_STATUS_INVALID_ARGUMENT,
                     "attribute 'swiglu_fusion' is %lld; expected 0 to 2",
                     (long long)e->fusion);
  else if (gates && (e->fusion == 0) != (e->weights[2] != NULL))
    RABBET_ONNX_FAIL(node, RABBET_STATUS_INVALID_ARGUMENT,
                     "'swiglu_fusion' is %lld, and the weights of fc3 are %s; "
                     "expected them for 0 alone",
                     (long long)e->fusion, e->weights[2] ? "given" : "missing");
  else if (rabbet_onnx_attr_int(node, "swiglu_limit_after_activation", 0) != 0)
    RABBET_ONNX_FAIL(node, RABBET_STATUS_UNSUPPORTED,
                     "attribute 'swiglu_limit_after_activation' is 1; expected "
                     "0, a limit before the activation");
}

// Sets the fields that both operators read alike, before the weights.
static onnx_experts_t onnx_experts_begin(rabbet_onnx_node_t* node) {
  rabbet_tensor_t* x = rabbet_onnx_required(node, 0);
  int rank = rabbet_onnx_rank(node, x);
  onnx_experts_t e = {
      .dtype = rabbet_onnx_dtype_of(node, x),
      .activation = rabbet_onnx_attr_string(node, "activation_type", "relu"),
      .fusion = rabbet_onnx_attr_int(node, "swiglu_fusion", 0)};
  if (rabbet_onnx_ok(node) && rank != 2 && rank != 3)
    RABBET_ONNX_FAIL(node, RABBET_STATUS_INVALID_ARGUMENT,
                     "input 0 ('input') has rank %d; expected 2 or 3", rank);
  if (strcmp(e.activation, "swiglu") != 0 && strcmp(e.activation, "geglu") != 0)
    e.fusion = 0;
  if (!rabbet_onnx_ok(node)) return e;
  rabbet_onnx_index_t rows[2] = {rabbet_onnx_extent(node, x, 0),
                                 rabbet_onnx_extent(node, x, rank - 1)};
  if (rank == 3)
    rows[0] = rabbet_onnx_index_op(node, "PROD", rows[0],
                                   rabbet_onnx_extent(node, x, 1));
  e.x = rank == 2 ? x : rabbet_onnx_reshape(node, x, rows, 2);
  return e;
}

static void onnx_experts_finish(rabbet_onnx_node_t* node, onnx_experts_t* e,
                                rabbet_tensor_t* mixing) {
  rabbet_dims_t dims = rabbet_onnx_dims(node, e->weights[0]);
  onnx_experts_check(node, e);
  if (rabbet_onnx_ok(node) && (dims.rank != 3 || dims.d[0] < 1))
    RABBET_ONNX_FAIL(node, RABBET_STATUS_INVALID_ARGUMENT,
                     "the weights of fc1 have rank %d and %lld experts; "
                     "expected (experts, outputs, inputs), with a known number "
                     "of experts",
                     dims.rank, (long long)dims.d[0]);
  e->experts = dims.d[0];
  onnx_experts_route(node, e, mixing);
  if (!rabbet_onnx_ok(node)) return;
  bool is_swiglu = !strcmp(e->activation, "swiglu");
  bool has_layer =
      is_swiglu || (!strcmp(e->activation, "silu") && e->weights[2]);
  rabbet_tensor_t* y = has_layer ? onnx_experts_layer(node, e, is_swiglu)
                                 : onnx_experts_all(node, e);
  rabbet_tensor_t* x = node->inputs[0];
  int rank = rabbet_onnx_rank(node, x);
  rabbet_onnx_index_t like[3];
  for (int i = 0; i < rank && rabbet_onnx_ok(node); ++i)
    like[i] = rabbet_onnx_extent(node, x, i);
  node->outputs[0] = rank == 2 ? y : rabbet_onnx_reshape(node, y, like, rank);
}

static void onnx_import_experts(rabbet_onnx_node_t* node) {
  onnx_experts_t e = onnx_experts_begin(node);
  for (size_t i = 0; i < 3; ++i) {
    e.weights[i] = i < 2 ? rabbet_onnx_required(node, 2 + 2 * i)
                         : rabbet_onnx_input(node, 2 + 2 * i);
    e.bias[i] = rabbet_onnx_input(node, 3 + 2 * i);
  }
  onnx_experts_finish(node, &e, NULL);
}

// ---- QMoE ------------------------------------------------------------------

// The inputs of the weights number `i` (fc1, fc2, fc3): 2 + 3 * i, then scales
// and bias; zero points from 11 on.
enum { QMOE_WEIGHTS = 2, QMOE_ZEROS = 11, QMOE_ROUTER_WEIGHTS = 14 };

typedef struct onnx_packed_experts_t {
  rabbet_onnx_constant_t weights, scales, zeros;
  bool has_zeros;
  int64_t bits, experts, rows, columns, blocks;
} onnx_packed_experts_t;

static int64_t onnx_experts_bits(rabbet_onnx_node_t* node, size_t i) {
  static const char* const names[] = {"fc1_expert_weight_bits",
                                      "fc2_expert_weight_bits",
                                      "fc3_expert_weight_bits"};
  int64_t bits = rabbet_onnx_attr_int(
      node, names[i], rabbet_onnx_attr_int(node, "expert_weight_bits", 4));
  if (rabbet_onnx_ok(node) && bits != 2 && bits != 4 && bits != 8)
    RABBET_ONNX_FAIL(node, RABBET_STATUS_UNSUPPORTED,
                     "the weights of fc%zu have %lld bits; expected 2, 4 or 8",
                     i + 1, (long long)bits);
  return bits;
}

static bool onnx_experts_constants(rabbet_onnx_node_t* node, size_t i,
                                   onnx_packed_experts_t* p) {
  rabbet_tensor_t* zeros = rabbet_onnx_input(node, QMOE_ZEROS + i);
  rabbet_tensor_t* scales =
      rabbet_onnx_required(node, QMOE_WEIGHTS + 3 * i + 1);
  p->has_zeros = zeros != NULL;
  bool known = rabbet_onnx_is_constant(
                   node, rabbet_onnx_required(node, QMOE_WEIGHTS + 3 * i),
                   &p->weights) &&
               rabbet_onnx_is_constant(node, scales, &p->scales) &&
               (!zeros || rabbet_onnx_is_constant(node, zeros, &p->zeros));
  if (rabbet_onnx_ok(node) && !known)
    RABBET_ONNX_FAIL(node, RABBET_STATUS_UNSUPPORTED,
                     "weights, scales and zero points of fc%zu must be "
                     "constants",
                     i + 1);
  return rabbet_onnx_ok(node);
}

// Sizes of the packed weights; fails where the constants do not fit together.
static void onnx_experts_sizes(rabbet_onnx_node_t* node, size_t i,
                               onnx_packed_experts_t* p) {
  const rabbet_dims_t *w = &p->weights.dims, *s = &p->scales.dims;
  bool fits = w->rank == 3 && (s->rank == 2 || s->rank == 3) &&
              p->weights.weights.dtype == RABBET_DTYPE_UINT8;
  if (fits) {
    p->experts = w->d[0];
    p->rows = w->d[1];
    p->columns = w->d[2] * 8 / p->bits;
    p->blocks = s->rank == 3 ? s->d[2] : 1;
    fits = s->d[0] == p->experts && s->d[1] == p->rows && p->blocks > 0 &&
           p->columns % p->blocks == 0;
  }
  if (fits && p->has_zeros) {
    int64_t bytes = s->rank == 3 ? p->rows * ((p->blocks * p->bits + 7) / 8)
                                 : (p->rows * p->bits + 7) / 8;
    fits = p->zeros.weights.dtype == RABBET_DTYPE_UINT8 &&
           p->zeros.weights.count == p->experts * bytes;
  }
  if (!fits)
    RABBET_ONNX_FAIL(
        node, RABBET_STATUS_INVALID_ARGUMENT,
        "weights, scales and zero points of fc%zu do not fit together; "
        "expected UINT8 (experts, outputs, inputs * bits / 8), a scale for "
        "each output or each of its blocks, and zero points packed as these",
        i + 1);
}

static int onnx_experts_number(const uint8_t* row, int64_t at, int64_t bits) {
  return row[at * bits / 8] >> at * bits % 8 & ((1 << bits) - 1);
}

// The zero point of a block of a row of an expert.
static int onnx_experts_zero(const onnx_packed_experts_t* p, int64_t expert,
                             int64_t row, int64_t block) {
  const uint8_t* zeros = p->zeros.weights.data;
  if (!p->has_zeros) return 1 << (p->bits - 1);
  if (p->scales.dims.rank == 2)
    return onnx_experts_number(zeros + expert * ((p->rows * p->bits + 7) / 8),
                               row, p->bits);
  return onnx_experts_number(
      zeros + (expert * p->rows + row) * ((p->blocks * p->bits + 7) / 8), block,
      p->bits);
}

// The weights of fc1, fc2 or fc3, dequantized.
static rabbet_tensor_t* onnx_experts_unpack(rabbet_onnx_node_t* node, size_t i,
                                            rabbet_dtype_t dtype) {
  onnx_packed_experts_t p = {.bits = onnx_experts_bits(node, i)};
  int64_t count;
  if (!rabbet_onnx_ok(node) || !onnx_experts_constants(node, i, &p))
    return NULL;
  onnx_experts_sizes(node, i, &p);
  rabbet_dims_t dims = {.rank = 3, .d = {p.experts, p.rows, p.columns}};
  void* data = rabbet_onnx_weights_room(node, dtype, &dims, &count);
  int64_t each = p.blocks > 0 ? p.columns / p.blocks : 1;
  for (int64_t at = 0; data && at < p.experts * p.rows; ++at) {
    const uint8_t* packed =
        (const uint8_t*)p.weights.weights.data + at * p.weights.dims.d[2];
    for (int64_t block = 0; block < p.blocks; ++block) {
      double scale = rabbet_load_double(
          p.scales.weights.dtype, p.scales.weights.data, at * p.blocks + block);
      int zero = onnx_experts_zero(&p, at / p.rows, at % p.rows, block);
      for (int64_t k = block * each; k < (block + 1) * each; ++k)
        rabbet_store_double(
            dtype, data, at * p.columns + k,
            scale * (onnx_experts_number(packed, k, p.bits) - zero));
    }
  }
  return rabbet_onnx_weights(node, dtype, data, &dims);
}

static void onnx_import_quantized_experts(rabbet_onnx_node_t* node) {
  const char* type = rabbet_onnx_attr_string(node, "quant_type", "int");
  onnx_experts_t e = onnx_experts_begin(node);
  if (rabbet_onnx_ok(node) && strcmp(type, "int") != 0)
    RABBET_ONNX_FAIL(node, RABBET_STATUS_UNSUPPORTED,
                     "attribute 'quant_type' is '%s'; expected 'int'", type);
  if (rabbet_onnx_ok(node) &&
      rabbet_onnx_attr_int(node, "weights_prepacked", -1) == 1)
    RABBET_ONNX_FAIL(node, RABBET_STATUS_UNSUPPORTED,
                     "attribute 'weights_prepacked' is 1: weights in the order "
                     "of a kernel of ONNX Runtime; expected 0");
  for (size_t i = 0; i < 3 && rabbet_onnx_ok(node); ++i) {
    if (i == 2 && !rabbet_onnx_input(node, QMOE_WEIGHTS + 3 * i)) continue;
    e.weights[i] = onnx_experts_unpack(node, i, e.dtype);
    e.bias[i] = rabbet_onnx_input(node, QMOE_WEIGHTS + 3 * i + 2);
  }
  onnx_experts_finish(node, &e, rabbet_onnx_input(node, QMOE_ROUTER_WEIGHTS));
}

// ---- Grouped products ------------------------------------------------------

// Rows [rows, k], the matrix of each row [rows], matrices [groups, k, n]. A row
// of a matrix that does not exist becomes 0. The layer is that of experts which
// have their last product alone.
static void onnx_import_grouped_product(rabbet_onnx_node_t* node) {
  static const int ranks[] = {2, 1, 3};
  static const char* const names[] = {"rows", "groups", "matrices"};
  rabbet_tensor_t* in[3];
  for (size_t i = 0; i < 3; ++i) {
    in[i] = rabbet_onnx_required(node, i);
    char told[48];
    snprintf(told, sizeof(told), "input %zu ('%s')", i, names[i]);
    rabbet_onnx_check_rank(node, told, in[i], ranks[i]);
  }
  if (!rabbet_onnx_ok(node)) return;
  rabbet_tensor_t* inputs[] = {
      in[0], rabbet_onnx_unsqueeze(node, in[1], 1u << 1, 2), NULL, NULL, NULL,
      in[2]};
  node->outputs[0] = rabbet_onnx_layer(node, "moe", inputs, 6, NULL, 0);
}

RABBET_ONNX_OPERATORS(microsoft_experts) = {
    RABBET_ONNX_RUNTIME_OP("rabbet", GroupedMatMul, grouped_product, ""),
    RABBET_ONNX_RUNTIME_OP("com.microsoft", MoE, experts, ""),
    RABBET_ONNX_RUNTIME_OP("com.microsoft", QMoE, quantized_experts, ""),
    {0},
};
