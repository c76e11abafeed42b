// Activations: those of the catalogue, and those composed of them.
#include <math.h>
#include <string.h>

#include "onnx/emit.h"
#include "onnx/operators.h"

static void onnx_import_plain_activation(rabbet_onnx_node_t* node) {
  rabbet_tensor_t* x = rabbet_onnx_required(node, 0);
  node->outputs[0] = rabbet_onnx_activation(node, node->variant, x, 0, 0);
}

static void onnx_import_relu(rabbet_onnx_node_t* node) {
  rabbet_tensor_t* x = rabbet_onnx_required(node, 0);
  node->outputs[0] = rabbet_onnx_is_float(node, x)
                         ? rabbet_onnx_activation(node, "RELU", x, 0, 0)
                         : rabbet_onnx_with_number(node, "MAX", x, 0);
}

static void onnx_import_leaky_relu(rabbet_onnx_node_t* node) {
  double alpha = rabbet_onnx_attr_float(node, "alpha", 0.01);
  node->outputs[0] = rabbet_onnx_activation(
      node, "LEAKY_RELU", rabbet_onnx_required(node, 0), alpha, 0);
}

static void onnx_import_elu(rabbet_onnx_node_t* node) {
  double alpha = rabbet_onnx_attr_float(node, "alpha", 1);
  node->outputs[0] = rabbet_onnx_activation(
      node, "ELU", rabbet_onnx_required(node, 0), alpha, 0);
}

static void onnx_import_selu(rabbet_onnx_node_t* node) {
  bool rough = node->opset < 6;
  double alpha = rabbet_onnx_attr_float(
      node, "alpha", rough ? 1.6732 : 1.67326319217681884765625);
  double gamma = rabbet_onnx_attr_float(
      node, "gamma", rough ? 1.0507 : 1.05070102214813232421875);
  node->outputs[0] = rabbet_onnx_activation(
      node, "SELU", rabbet_onnx_required(node, 0), alpha, gamma);
}

static void onnx_import_softplus(rabbet_onnx_node_t* node) {
  node->outputs[0] = rabbet_onnx_activation(
      node, "SOFTPLUS", rabbet_onnx_required(node, 0), 1, 1);
}

static void onnx_import_hard_sigmoid(rabbet_onnx_node_t* node) {
  double alpha = rabbet_onnx_attr_float(node, "alpha", 0.2f);
  double beta = rabbet_onnx_attr_float(node, "beta", 0.5);
  node->outputs[0] = rabbet_onnx_activation(
      node, "HARD_SIGMOID", rabbet_onnx_required(node, 0), alpha, beta);
}

static void onnx_import_thresholded_relu(rabbet_onnx_node_t* node) {
  double alpha = rabbet_onnx_attr_float(node, "alpha", 1);
  node->outputs[0] = rabbet_onnx_activation(
      node, "THRESHOLDED_RELU", rabbet_onnx_required(node, 0), alpha, 0);
}

static void onnx_import_hard_swish(rabbet_onnx_node_t* node) {
  rabbet_tensor_t* x = rabbet_onnx_required(node, 0);
  rabbet_tensor_t* gate =
      rabbet_onnx_activation(node, "HARD_SIGMOID", x, 1.0 / 6, 0.5);
  node->outputs[0] = rabbet_onnx_binary(node, "PROD", x, gate);
}

static void onnx_import_mish(rabbet_onnx_node_t* node) {
  rabbet_tensor_t* x = rabbet_onnx_required(node, 0);
  rabbet_tensor_t* gate = rabbet_onnx_activation(node, "SOFTPLUS", x, 1, 1);
  gate = rabbet_onnx_activation(node, "TANH", gate, 0, 0);
  node->outputs[0] = rabbet_onnx_binary(node, "PROD", x, gate);
}

// x * sigmoid(alpha * x)
static rabbet_tensor_t* onnx_swish(rabbet_onnx_node_t* node,
                                   rabbet_tensor_t* x) {
  double alpha = rabbet_onnx_attr_float(node, "alpha", 1);
  rabbet_tensor_t* scaled =
      alpha == 1 ? x : rabbet_onnx_with_number(node, "PROD", x, alpha);
  rabbet_tensor_t* gate = rabbet_onnx_activation(node, "SIGMOID", scaled, 0, 0);
  return rabbet_onnx_binary(node, "PROD", x, gate);
}

static void onnx_import_swish(rabbet_onnx_node_t* node) {
  node->outputs[0] = onnx_swish(node, rabbet_onnx_required(node, 0));
}

static void onnx_import_swiglu(rabbet_onnx_node_t* node) {
  rabbet_tensor_t* gate = rabbet_onnx_required(node, 0);
  rabbet_tensor_t* linear = rabbet_onnx_required(node, 1);
  node->outputs[0] =
      rabbet_onnx_binary(node, "PROD", onnx_swish(node, gate), linear);
}

// max(0, x) + min(0, alpha * (exp(x / alpha) - 1))
static void onnx_import_celu(rabbet_onnx_node_t* node) {
  rabbet_tensor_t* x = rabbet_onnx_required(node, 0);
  double alpha = rabbet_onnx_attr_float(node, "alpha", 1);
  if (alpha == 1) {
    node->outputs[0] = rabbet_onnx_activation(node, "ELU", x, 1, 0);
    return;
  }
  // The scaled ELU of x / alpha. Only its negative side is used, where it is
  // exact.
  rabbet_tensor_t* low = rabbet_onnx_with_number(node, "DIV", x, alpha);
  low = rabbet_onnx_activation(node, "ELU", low, 1, 0);
  low = rabbet_onnx_with_number(node, "PROD", low, alpha);
  low = rabbet_onnx_with_number(node, "MIN", low, 0);
  rabbet_tensor_t* high = rabbet_onnx_activation(node, "RELU", x, 0, 0);
  node->outputs[0] = rabbet_onnx_binary(node, "SUM", high, low);
}

static void onnx_import_gelu(rabbet_onnx_node_t* node) {
  const char* approximate =
      rabbet_onnx_attr_string(node, "approximate", "none");
  bool tanh = !strcmp(approximate, "tanh");
  if (!tanh && strcmp(approximate, "none") != 0) {
    RABBET_ONNX_FAIL(node, RABBET_STATUS_INVALID_ARGUMENT,
                     "approximate is '%s'; 'none' and 'tanh' exist",
                     approximate);
  }
  node->outputs[0] =
      rabbet_onnx_activation(node, tanh ? "GELU_TANH" : "GELU_ERF",
                             rabbet_onnx_required(node, 0), 0, 0);
}

// Before opset 7 a vector of slopes has one for each channel.
static rabbet_tensor_t* onnx_slope(rabbet_onnx_node_t* node, int rank) {
  rabbet_tensor_t* slope = rabbet_onnx_required(node, 1);
  rabbet_dims_t dims = rabbet_onnx_dims(node, slope);
  bool channels = node->opset < 7 && dims.rank == 1 && dims.d[0] != 1;
  return channels && rank > 2
             ? rabbet_onnx_unsqueeze(node, slope,
                                     ((1u << (rank - 1)) - 1) & ~1u, rank - 1)
             : slope;
}

static void onnx_import_prelu(rabbet_onnx_node_t* node) {
  rabbet_tensor_t* x = rabbet_onnx_required(node, 0);
  rabbet_tensor_t* slope = onnx_slope(node, rabbet_onnx_rank(node, x));
  rabbet_tensor_t* high = rabbet_onnx_with_number(node, "MAX", x, 0);
  rabbet_tensor_t* low = rabbet_onnx_with_number(node, "MIN", x, 0);
  low = rabbet_onnx_binary(node, "PROD", low, slope);
  node->outputs[0] = rabbet_onnx_binary(node, "SUM", high, low);
}

// x + bias below -lambd, x - bias above lambd, 0 between.
static void onnx_import_shrink(rabbet_onnx_node_t* node) {
  rabbet_tensor_t* x = rabbet_onnx_required(node, 0);
  double bias = rabbet_onnx_attr_float(node, "bias", 0);
  double lambd = rabbet_onnx_attr_float(node, "lambd", 0.5);
  rabbet_dtype_t type = rabbet_onnx_dtype_of(node, x);
  rabbet_tensor_t* work = rabbet_dtype_is_float(type)
                              ? x
                              : rabbet_onnx_cast(node, x, RABBET_DTYPE_FLOAT);
  rabbet_tensor_t* below = rabbet_onnx_with_number(node, "LESS", work, -lambd);
  rabbet_tensor_t* above =
      rabbet_onnx_with_number(node, "GREATER", work, lambd);
  rabbet_tensor_t* zero = rabbet_onnx_number(
      node, rabbet_onnx_dtype_of(node, work), rabbet_onnx_rank(node, work), 0);
  rabbet_tensor_t* y = rabbet_onnx_select(
      node, above, rabbet_onnx_with_number(node, "SUB", work, bias), zero);
  y = rabbet_onnx_select(node, below,
                         rabbet_onnx_with_number(node, "SUM", work, bias), y);
  node->outputs[0] = rabbet_onnx_cast(node, y, type);
}

// ---- Clip ------------------------------------------------------------------

// Reads a bound that is known at import; `absent` if the node has none. False
// if only a run knows it.
static bool onnx_bound(rabbet_onnx_node_t* node, size_t index, const char* attr,
                       double absent, double* out) {
  rabbet_tensor_t* x = rabbet_onnx_input(node, index);
  *out = rabbet_onnx_attr_float(node, attr, absent);
  return !x || rabbet_onnx_constant_number(node, x, out);
}

static void onnx_import_clip(rabbet_onnx_node_t* node) {
  rabbet_tensor_t* x = rabbet_onnx_required(node, 0);
  double low, high;
  bool known = onnx_bound(node, 1, "min", -INFINITY, &low);
  known &= onnx_bound(node, 2, "max", INFINITY, &high);
  if (known && low <= high && rabbet_onnx_is_float(node, x)) {
    node->outputs[0] = rabbet_onnx_activation(node, "CLIP", x, low, high);
    return;
  }
  rabbet_tensor_t* y = x;
  if (rabbet_onnx_input(node, 1)) {
    y = rabbet_onnx_binary(node, "MAX", y, node->inputs[1]);
  } else if (low > -INFINITY) {
    y = rabbet_onnx_with_number(node, "MAX", y, low);
  }
  if (rabbet_onnx_input(node, 2)) {
    y = rabbet_onnx_binary(node, "MIN", y, node->inputs[2]);
  } else if (high < INFINITY) {
    y = rabbet_onnx_with_number(node, "MIN", y, high);
  }
  node->outputs[0] = y;
}

RABBET_ONNX_OPERATORS(activation) = {
    RABBET_ONNX_OP(Celu, celu, "", 12, 28),
    RABBET_ONNX_OP(Clip, clip, "", 1, 6, 11, 12, 13),
    RABBET_ONNX_OP(Elu, elu, "", 1, 6, 22),
    RABBET_ONNX_OP(Gelu, gelu, "", 20),
    RABBET_ONNX_OP(HardSigmoid, hard_sigmoid, "", 1, 6, 22),
    RABBET_ONNX_OP(HardSwish, hard_swish, "", 14, 22),
    RABBET_ONNX_OP(LeakyRelu, leaky_relu, "", 1, 6, 16),
    RABBET_ONNX_OP(Mish, mish, "", 18, 22),
    RABBET_ONNX_OP(PRelu, prelu, "", 1, 6, 7, 9, 16),
    RABBET_ONNX_OP(Relu, relu, "", 1, 6, 13, 14),
    RABBET_ONNX_OP(Selu, selu, "", 1, 6, 22),
    RABBET_ONNX_OP(Shrink, shrink, "", 9),
    RABBET_ONNX_OP(Sigmoid, plain_activation, "SIGMOID", 1, 6, 13),
    RABBET_ONNX_OP(Softplus, softplus, "", 1, 22),
    RABBET_ONNX_OP(Softsign, plain_activation, "SOFTSIGN", 1, 22),
    RABBET_ONNX_OP(SwiGLU, swiglu, "", 28),
    RABBET_ONNX_OP(Swish, swish, "", 24),
    RABBET_ONNX_OP(Tanh, plain_activation, "TANH", 1, 6, 13),
    RABBET_ONNX_OP(ThresholdedRelu, thresholded_relu, "", 10, 22),
    {0},
};
