// RNN, GRU and LSTM: a product of all steps' inputs with the weights of all
// gates and directions, and the layer that goes from step to step.
#include <string.h>
#include <strings.h>

#include "base/math.h"
#include "onnx/index.h"
#include "onnx/operators.h"
#include "ops/rnn.h"

enum { MOST_FUNCTIONS = 2 * RABBET_RNN_FUNCTIONS };

typedef struct onnx_function_t {
  const char* name;  // ONNX's
  int64_t type;
  int parameters;  // of alpha and beta, those that it has
  double alpha, beta;
} onnx_function_t;

static const onnx_function_t onnx_functions[] = {
    {"Sigmoid", RABBET_ACTIVATION_SIGMOID, 0, 0, 0},
    {"Tanh", RABBET_ACTIVATION_TANH, 0, 0, 0},
    {"Relu", RABBET_ACTIVATION_RELU, 0, 0, 0},
    {"Affine", RABBET_RNN_AFFINE, 2, 1, 0},
    {"LeakyRelu", RABBET_ACTIVATION_LEAKY_RELU, 1, 0.01, 0},
    {"ThresholdedRelu", RABBET_ACTIVATION_THRESHOLDED_RELU, 1, 1, 0},
    {"ScaledTanh", RABBET_ACTIVATION_SCALED_TANH, 2, 1, 1},
    {"HardSigmoid", RABBET_ACTIVATION_HARD_SIGMOID, 2, 0.2, 0.5},
    {"Elu", RABBET_ACTIVATION_ELU, 1, 1, 0},
    {"Softsign", RABBET_ACTIVATION_SOFTSIGN, 0, 0, 0},
    {"Softplus", RABBET_ACTIVATION_SOFTPLUS, 0, 1, 1},
};

typedef struct onnx_recurrent_t {
  rabbet_onnx_node_t* node;
  int64_t cell, direction;
  int gates, directions;
  size_t functions;  // of all directions
  int64_t types[MOST_FUNCTIONS];
  double alphas[MOST_FUNCTIONS], betas[MOST_FUNCTIONS];
  bool batch_first;
} onnx_recurrent_t;

// ---- Attributes ------------------------------------------------------------

static const onnx_function_t* onnx_find_function(
    rabbet_onnx_node_t* node, const ProtobufCBinaryData* name) {
  for (size_t i = 0; i < sizeof onnx_functions / sizeof *onnx_functions; ++i) {
    const onnx_function_t* f = &onnx_functions[i];
    if (strlen(f->name) == name->len &&
        !strncasecmp(f->name, (const char*)name->data, name->len))
      return f;
  }
  RABBET_ONNX_FAIL(node, RABBET_STATUS_UNSUPPORTED,
                   "activation '%.*s' is not known; expected Sigmoid, "
                   "Tanh, Relu, Affine, LeakyRelu, ThresholdedRelu, "
                   "ScaledTanh, HardSigmoid, Elu, Softsign or Softplus",
                   (int)name->len, (const char*)name->data);
  return NULL;
}

// Functions take numbers from the lists one after the other, each as many as it
// has parameters.
static void onnx_read_functions(onnx_recurrent_t* layer) {
  rabbet_onnx_node_t* node = layer->node;
  const Onnx__AttributeProto* names = rabbet_onnx_attr(node, "activations");
  rabbet_onnx_floats_t alphas =
      rabbet_onnx_attr_floats(node, "activation_alpha");
  rabbet_onnx_floats_t betas = rabbet_onnx_attr_floats(node, "activation_beta");
  size_t each = layer->functions / (size_t)layer->directions;
  size_t alpha = 0, beta = 0;
  for (size_t i = 0; i < layer->functions; ++i) {
    // By default a sigmoid for gates, and tanh; an RNN has no gates.
    const onnx_function_t* f = &onnx_functions[i % each > 0 || each == 1];
    if (names && i < names->n_strings)
      f = onnx_find_function(node, &names->strings[i]);
    if (!f) return;
    layer->types[i] = f->type;
    layer->alphas[i] = f->parameters > 0 && alpha < alphas.count
                           ? alphas.data[alpha++]
                           : f->alpha;
    layer->betas[i] =
        f->parameters > 1 && beta < betas.count ? betas.data[beta++] : f->beta;
  }
}

static void onnx_read_direction(onnx_recurrent_t* layer) {
  static const char* const names[] = {"forward", "reverse", "bidirectional"};
  rabbet_onnx_node_t* node = layer->node;
  const char* direction = rabbet_onnx_attr_string(node, "direction", names[0]);
  for (int64_t i = 0; i < 3; ++i) {
    if (strcmp(direction, names[i]) != 0) continue;
    layer->direction = i;
    layer->directions = i == RABBET_RNN_DIRECTION_BIDIRECTIONAL ? 2 : 1;
    return;
  }
  RABBET_ONNX_FAIL(node, RABBET_STATUS_INVALID_ARGUMENT,
                   "attribute 'direction' is '%s'; expected forward, reverse "
                   "or bidirectional",
                   direction);
}

static void onnx_check_operands(onnx_recurrent_t* layer) {
  static const struct {
    const char* name;
    size_t input;
    int rank;
  } operands[] = {{"X", 0, 3},
                  {"W", 1, 3},
                  {"R", 2, 3},
                  {"B", 3, 2},
                  {"sequence_lens", 4, 1},
                  {"initial_h", 5, 3},
                  {"initial_c", 6, 3},
                  {"P", 7, 2}};
  rabbet_onnx_node_t* node = layer->node;
  for (size_t i = 0; i < sizeof operands / sizeof *operands; ++i) {
    if (i < 3) rabbet_onnx_required(node, i);
    rabbet_onnx_check_rank(node, operands[i].name,
                           rabbet_onnx_input(node, operands[i].input),
                           operands[i].rank);
  }
  rabbet_dims_t r = rabbet_onnx_dims(node, rabbet_onnx_input(node, 2));
  int64_t rows = 0;
  if (!rabbet_onnx_ok(node) || r.d[0] < 0 || r.d[1] < 0 || r.d[2] < 0) return;
  if (r.d[2] > 0 && r.d[0] == layer->directions &&
      rabbet_checked_mul((int64_t)layer->gates, r.d[2], &rows) &&
      r.d[1] == rows)
    return;
  char text[128];
  RABBET_ONNX_FAIL(node, RABBET_STATUS_INVALID_ARGUMENT,
                   "R has shape %s; expected (%d, %d * hidden_size, "
                   "hidden_size)",
                   rabbet_dims_print(&r, text, sizeof text), layer->directions,
                   layer->gates);
}

// ---- Tensors ---------------------------------------------------------------

// All directions' rows of gates as one axis: [directions, gates, ...] becomes
// [1, directions * gates, ...] of rank 3, or the same with the axis last.
static rabbet_tensor_t* onnx_join_gates(const onnx_recurrent_t* layer,
                                        rabbet_tensor_t* x, bool last) {
  rabbet_onnx_node_t* node = layer->node;
  if (!rabbet_onnx_ok(node) || !x) return NULL;
  rabbet_onnx_index_t rows =
      rabbet_onnx_index_op(node, "PROD", rabbet_onnx_index(layer->directions),
                           rabbet_onnx_extent(node, x, 1));
  rabbet_onnx_index_t dims[] = {rabbet_onnx_index(1), rows,
                                rabbet_onnx_index(1)};
  if (last) {
    dims[2] = rows;
    dims[1] = rabbet_onnx_index(1);
  } else {
    dims[2] = rabbet_onnx_extent(node, x, 2);
  }
  return rabbet_onnx_reshape(node, x, dims, 3);
}

// The bias of the input (0) or the recurrence (1), [directions, gates].
static rabbet_tensor_t* onnx_half_bias(const onnx_recurrent_t* layer,
                                       int half) {
  rabbet_onnx_node_t* node = layer->node;
  rabbet_tensor_t* bias = rabbet_onnx_input(node, 3);
  if (!rabbet_onnx_ok(node) || !bias) return NULL;
  rabbet_onnx_index_t gates =
      rabbet_onnx_extent(node, rabbet_onnx_input(node, 2), 1);
  rabbet_onnx_slice_t slice = rabbet_onnx_slice_all(node, bias);
  slice.start[1] = half == 0 ? rabbet_onnx_index(0) : gates;
  slice.size[1] = gates;
  return rabbet_onnx_slice(node, bias, &slice);
}

// [steps, batch, directions * gates] of [steps, batch, input]; or batch first.
static rabbet_tensor_t* onnx_input_gates(const onnx_recurrent_t* layer,
                                         rabbet_tensor_t* bias) {
  rabbet_onnx_node_t* node = layer->node;
  rabbet_tensor_t* weights =
      onnx_join_gates(layer, rabbet_onnx_input(node, 1), false);
  rabbet_tensor_t* x = rabbet_onnx_matmul(node, rabbet_onnx_input(node, 0),
                                          "NONE", weights, "TRANSPOSE");
  bias = onnx_join_gates(layer, bias, true);
  return bias ? rabbet_onnx_binary(node, "SUM", x, bias) : x;
}

static void onnx_recurrent(onnx_recurrent_t* layer) {
  rabbet_onnx_node_t* node = layer->node;
  layer->batch_first = rabbet_onnx_attr_int(node, "layout", 0) != 0;
  onnx_read_direction(layer);
  if (!rabbet_onnx_ok(node)) return;
  layer->functions =
      (size_t)(layer->directions * rabbet_rnn_function_count(layer->cell));
  onnx_check_operands(layer);
  onnx_read_functions(layer);
  if (!rabbet_onnx_ok(node)) return;
  bool is_lstm = layer->cell == RABBET_RNN_CELL_LSTM;
  rabbet_tensor_t* biases[] = {onnx_half_bias(layer, 0),
                               onnx_half_bias(layer, 1)};
  // A GRU may multiply the recurrence's bias by its reset gate.
  if (layer->cell != RABBET_RNN_CELL_GRU && biases[0]) {
    biases[0] = rabbet_onnx_binary(node, "SUM", biases[0], biases[1]);
    biases[1] = NULL;
  }
  rabbet_tensor_t* inputs[RABBET_RNN_INPUTS] = {
      [RABBET_RNN_INPUT] = onnx_input_gates(layer, biases[0]),
      [RABBET_RNN_RECURRENCE] = rabbet_onnx_input(node, 2),
      [RABBET_RNN_BIAS] = biases[1],
      [RABBET_RNN_HIDDEN] = rabbet_onnx_input(node, 5),
      [RABBET_RNN_CELL] = is_lstm ? rabbet_onnx_input(node, 6) : NULL,
      [RABBET_RNN_PEEPHOLES] = is_lstm ? rabbet_onnx_input(node, 7) : NULL,
      [RABBET_RNN_LENGTHS] = rabbet_onnx_input(node, 4)};
  const rabbet_attr_t attrs[] = {
      RABBET_ONNX_INT("cell", layer->cell),
      RABBET_ONNX_INT("direction", layer->direction),
      RABBET_ONNX_BOOL("batch_first", layer->batch_first),
      RABBET_ONNX_INTS("activations", layer->types, layer->functions),
      {.name = "activation_alphas",
       .type = RABBET_ATTR_FLOATS,
       .data = layer->alphas,
       .count = layer->functions},
      {.name = "activation_betas",
       .type = RABBET_ATTR_FLOATS,
       .data = layer->betas,
       .count = layer->functions},
      RABBET_ONNX_FLOAT("clip", rabbet_onnx_attr_float(node, "clip", 0)),
      RABBET_ONNX_BOOL("linear_before_reset",
                       rabbet_onnx_attr_int(node, "linear_before_reset", 0)),
      RABBET_ONNX_BOOL("input_forget",
                       rabbet_onnx_attr_int(node, "input_forget", 0))};
  rabbet_tensor_t* outputs[RABBET_RNN_OUTPUTS] = {NULL};
  rabbet_onnx_layer_outputs(node, "rnn", inputs, RABBET_RNN_INPUTS, attrs,
                            sizeof attrs / sizeof *attrs, outputs,
                            RABBET_RNN_OUTPUTS);
  if (!rabbet_onnx_ok(node)) return;
  // ONNX has directions before the batch, except with the batch first.
  const int64_t order[] = {0, 2, 1, 3};
  if (rabbet_onnx_wants(node, 0))
    node->outputs[0] = layer->batch_first
                           ? outputs[0]
                           : rabbet_onnx_transpose(node, outputs[0], order);
  for (size_t i = 1; i < (is_lstm ? 3 : 2); ++i)
    if (rabbet_onnx_wants(node, i)) node->outputs[i] = outputs[i];
}

static void onnx_import_recurrent(rabbet_onnx_node_t* node) {
  onnx_recurrent_t layer = {.node = node};
  switch (node->variant[0]) {
    case 'L':
      layer.cell = RABBET_RNN_CELL_LSTM;
      layer.gates = 4;
      break;
    case 'G':
      layer.cell = RABBET_RNN_CELL_GRU;
      layer.gates = 3;
      break;
    default:
      layer.cell = RABBET_RNN_CELL_RNN;
      layer.gates = 1;
  }
  onnx_recurrent(&layer);
}

RABBET_ONNX_OPERATORS(recurrent) = {
    RABBET_ONNX_OP(GRU, recurrent, "GRU", 1, 3, 7, 14, 22),
    RABBET_ONNX_OP(LSTM, recurrent, "LSTM", 1, 7, 14, 22),
    RABBET_ONNX_OP(RNN, recurrent, "RNN", 1, 7, 14, 22),
    {0},
};
