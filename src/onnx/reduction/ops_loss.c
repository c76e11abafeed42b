// Losses of classification.
#include <string.h>

#include "onnx/compositions.h"
#include "onnx/operators.h"

typedef struct onnx_loss_t {
  rabbet_tensor_t* target;   // [N, d1, ...], INT64
  rabbet_tensor_t* ignored;  // BOOL, of its shape; NULL: none is ignored
  rabbet_tensor_t* weight;   // of each target; NULL: 1
} onnx_loss_t;

// x [N, C, d1, ...] at the classes [N, d1, ...].
static rabbet_tensor_t* onnx_loss_at(rabbet_onnx_node_t* node,
                                     rabbet_tensor_t* x,
                                     rabbet_tensor_t* classes) {
  rabbet_tensor_t* inputs[] = {
      x,
      rabbet_onnx_unsqueeze(node, classes, 1u << 1, rabbet_onnx_rank(node, x))};
  const rabbet_attr_t attrs[] = {
      RABBET_ONNX_INT(
          "mode", rabbet_onnx_enumerator(node, "gather", "mode", "ELEMENT")),
      RABBET_ONNX_INT("axis", 1)};
  return rabbet_onnx_squeeze(
      node, rabbet_onnx_layer(node, "gather", inputs, 2, attrs, 2), 1u << 1);
}

// The targets that are ignored become class 0, which exists, with weight 0.
static onnx_loss_t onnx_loss_read(rabbet_onnx_node_t* node,
                                  rabbet_tensor_t* x) {
  rabbet_tensor_t* weight = rabbet_onnx_input(node, 2);
  onnx_loss_t loss = {.target = rabbet_onnx_required(node, 1)};
  rabbet_onnx_check_rank(node, "input 1 ('target')", loss.target,
                         rabbet_onnx_rank(node, x) - 1);
  rabbet_onnx_check_rank(node, "input 2 ('weight')", weight, 1);
  loss.target = rabbet_onnx_cast(node, loss.target, RABBET_DTYPE_INT64);
  int rank = rabbet_onnx_rank(node, loss.target);
  if (rabbet_onnx_has_attr(node, "ignore_index")) {
    double index = (double)rabbet_onnx_attr_int(node, "ignore_index", 0);
    loss.ignored = rabbet_onnx_with_number(node, "EQUAL", loss.target, index);
    loss.target = rabbet_onnx_select(
        node, loss.ignored,
        rabbet_onnx_number(node, RABBET_DTYPE_INT64, rank, 0), loss.target);
  }
  if (!weight && !loss.ignored) return loss;
  rabbet_dtype_t dtype = rabbet_onnx_dtype_of(node, x);
  loss.weight = weight ? rabbet_onnx_take(node, weight, loss.target, 0)
                       : rabbet_onnx_number(node, dtype, rank, 1);
  if (loss.ignored)
    loss.weight = rabbet_onnx_select(node, loss.ignored,
                                     rabbet_onnx_number(node, dtype, rank, 0),
                                     loss.weight);
  return loss;
}

// The loss of each target, or their sum, or their mean by weight.
static rabbet_tensor_t* onnx_loss(rabbet_onnx_node_t* node,
                                  rabbet_tensor_t* x) {
  const char* reduction = rabbet_onnx_attr_string(node, "reduction", "mean");
  onnx_loss_t loss = onnx_loss_read(node, x);
  if (!rabbet_onnx_ok(node)) return NULL;
  bool is_mean = !strcmp(reduction, "mean"), is_sum = !strcmp(reduction, "sum");
  uint32_t all = (1u << rabbet_onnx_rank(node, loss.target)) - 1;
  rabbet_tensor_t* y =
      rabbet_onnx_unary(node, "NEG", onnx_loss_at(node, x, loss.target));
  if (loss.weight) y = rabbet_onnx_binary(node, "PROD", y, loss.weight);
  if (is_mean && !loss.weight)
    return rabbet_onnx_reduce(node, "AVG", y, all, false);
  if (is_mean || is_sum) y = rabbet_onnx_reduce(node, "SUM", y, all, false);
  if (is_mean)
    y = rabbet_onnx_binary(
        node, "DIV", y,
        rabbet_onnx_reduce(node, "SUM", loss.weight, all, false));
  if (!is_mean && !is_sum && strcmp(reduction, "none") != 0)
    RABBET_ONNX_FAIL(node, RABBET_STATUS_INVALID_ARGUMENT,
                     "reduction is '%s'; mean, sum and none exist", reduction);
  return y;
}

static void onnx_import_nll_loss(rabbet_onnx_node_t* node) {
  node->outputs[0] = onnx_loss(node, rabbet_onnx_required(node, 0));
}

static void onnx_import_cross_entropy(rabbet_onnx_node_t* node) {
  rabbet_tensor_t* x =
      rabbet_onnx_log_softmax(node, rabbet_onnx_required(node, 0), 1);
  node->outputs[0] = onnx_loss(node, x);
  if (node->output_count > 1) node->outputs[1] = x;
}

RABBET_ONNX_OPERATORS(loss) = {
    RABBET_ONNX_OP(NegativeLogLikelihoodLoss, nll_loss, "", 12, 13, 22),
    RABBET_ONNX_OP(SoftmaxCrossEntropyLoss, cross_entropy, "", 12, 13),
    {0},
};
