// RNN, GRU and LSTM, written out: the inputs' product with the weights at once,
// then the rest step by step.
#include <string.h>

#include "base/math.h"
#include "onnx/index.h"
#include "onnx/operators.h"

enum { RABBET_ONNX_MAX_GATES = 4, RABBET_ONNX_MAX_FUNCTIONS = 3 };

typedef struct onnx_function_t {
  const char* name;  // ONNX's
  const char* type;  // activation's; NULL: alpha x + beta
  double alpha, beta;
} onnx_function_t;

static const onnx_function_t onnx_functions[] = {
    {"Sigmoid", "SIGMOID", 0, 0},
    {"Tanh", "TANH", 0, 0},
    {"Relu", "RELU", 0, 0},
    {"Affine", NULL, 1, 0},
    {"LeakyRelu", "LEAKY_RELU", 0.01, 0},
    {"ThresholdedRelu", "THRESHOLDED_RELU", 1, 0},
    {"ScaledTanh", "SCALED_TANH", 1, 1},
    {"HardSigmoid", "HARD_SIGMOID", 0.2, 0.5},
    {"Elu", "ELU", 1, 0},
    {"Softsign", "SOFTSIGN", 0, 0},
    {"Softplus", "SOFTPLUS", 1, 1},
};

// One direction of a layer; its state is h, and c of an LSTM.
typedef struct onnx_cell_t {
  rabbet_onnx_node_t* node;
  int gates;
  int64_t hidden;
  double clip;  // 0: none
  bool linear_before_reset, input_forget;
  onnx_function_t functions[RABBET_ONNX_MAX_FUNCTIONS];
  rabbet_tensor_t* weights;     // [gates * hidden, input]
  rabbet_tensor_t* recurrence;  // [gates * hidden, hidden]
  rabbet_tensor_t* bias[2];     // [1, gates * hidden] or NULL: of x, of h
  rabbet_tensor_t* peepholes;   // [1, 3 * hidden] or NULL
  rabbet_tensor_t* h;           // [batch, hidden]
  rabbet_tensor_t* c;
} onnx_cell_t;

// ---- Parts of tensors ------------------------------------------------------

// Element `index` of an axis, which is taken away.
static rabbet_tensor_t* onnx_slice_at(rabbet_onnx_node_t* node,
                                      rabbet_tensor_t* x, int axis,
                                      int64_t index) {
  if (!rabbet_onnx_ok(node) || !x) return NULL;
  rabbet_tensor_t* inputs[] = {
      x, rabbet_onnx_number(node, RABBET_DTYPE_INT64, 0, (double)index)};
  const rabbet_attr_t attr = RABBET_ONNX_INT("axis", axis);
  return rabbet_onnx_layer(node, "gather", inputs, 2, &attr, 1);
}

// `count` gates' columns (or rows) from gate `first` on.
static rabbet_tensor_t* onnx_gates(const onnx_cell_t* cell, rabbet_tensor_t* x,
                                   int axis, int first, int count) {
  rabbet_onnx_node_t* node = cell->node;
  if (!rabbet_onnx_ok(node) || !x) return NULL;
  rabbet_onnx_slice_t slice = rabbet_onnx_slice_all(node, x);
  slice.start[axis] = rabbet_onnx_index(first * cell->hidden);
  slice.size[axis] = rabbet_onnx_index(count * cell->hidden);
  return rabbet_onnx_slice(node, x, &slice);
}

// ---- Arithmetic ------------------------------------------------------------

static rabbet_tensor_t* onnx_plus(rabbet_onnx_node_t* node, rabbet_tensor_t* a,
                                  rabbet_tensor_t* b) {
  return b ? rabbet_onnx_binary(node, "SUM", a, b) : a;
}

static rabbet_tensor_t* onnx_times(rabbet_onnx_node_t* node, rabbet_tensor_t* a,
                                   rabbet_tensor_t* b) {
  return rabbet_onnx_binary(node, "PROD", a, b);
}

static rabbet_tensor_t* onnx_apply(const onnx_cell_t* cell, int index,
                                   bool clips, rabbet_tensor_t* x) {
  rabbet_onnx_node_t* node = cell->node;
  const onnx_function_t* f = &cell->functions[index];
  if (clips && cell->clip > 0) {
    x = rabbet_onnx_activation(node, "CLIP", x, -cell->clip, cell->clip);
  }
  if (f->type)
    return rabbet_onnx_activation(node, f->type, x, f->alpha, f->beta);
  x = rabbet_onnx_with_number(node, "PROD", x, f->alpha);
  return rabbet_onnx_with_number(node, "SUM", x, f->beta);
}

static rabbet_tensor_t* onnx_product(rabbet_onnx_node_t* node,
                                     rabbet_tensor_t* x,
                                     rabbet_tensor_t* weights) {
  rabbet_tensor_t* pair[] = {x, weights};
  rabbet_onnx_align(node, pair, 2);
  return rabbet_onnx_matmul(node, pair[0], "NONE", pair[1], "TRANSPOSE");
}

// ---- Cells -----------------------------------------------------------------

// `x` is the input's part of all gates, with its bias; sets h and c.
typedef void (*onnx_step_t)(onnx_cell_t* cell, rabbet_tensor_t* x);

static void onnx_rnn_step(onnx_cell_t* cell, rabbet_tensor_t* x) {
  rabbet_onnx_node_t* node = cell->node;
  rabbet_tensor_t* h = onnx_product(node, cell->h, cell->recurrence);
  x = onnx_plus(node, onnx_plus(node, x, h), cell->bias[1]);
  cell->h = onnx_apply(cell, 0, true, x);
}

// Gates: update, reset, new.
static void onnx_gru_step(onnx_cell_t* cell, rabbet_tensor_t* x) {
  rabbet_onnx_node_t* node = cell->node;
  rabbet_tensor_t* both =
      onnx_product(node, cell->h, onnx_gates(cell, cell->recurrence, 0, 0, 2));
  both = onnx_plus(node, both, onnx_gates(cell, cell->bias[1], 1, 0, 2));
  both = onnx_plus(node, both, onnx_gates(cell, x, 1, 0, 2));
  both = onnx_apply(cell, 0, true, both);
  rabbet_tensor_t* update = onnx_gates(cell, both, 1, 0, 1);
  rabbet_tensor_t* reset = onnx_gates(cell, both, 1, 1, 1);
  rabbet_tensor_t* weights = onnx_gates(cell, cell->recurrence, 0, 2, 1);
  rabbet_tensor_t* bias = onnx_gates(cell, cell->bias[1], 1, 2, 1);
  rabbet_tensor_t* h = cell->h;
  if (!cell->linear_before_reset) h = onnx_times(node, reset, h);
  h = onnx_plus(node, onnx_product(node, h, weights), bias);
  if (cell->linear_before_reset) h = onnx_times(node, reset, h);
  h = onnx_plus(node, onnx_gates(cell, x, 1, 2, 1), h);
  h = onnx_apply(cell, 1, true, h);
  // (1 - update) h + update h' = h + update (h' - h)
  rabbet_tensor_t* step = rabbet_onnx_binary(node, "SUB", cell->h, h);
  cell->h = onnx_plus(node, h, onnx_times(node, update, step));
}

static rabbet_tensor_t* onnx_peep(const onnx_cell_t* cell, rabbet_tensor_t* x,
                                  int peephole, rabbet_tensor_t* c) {
  if (!cell->peepholes) return x;
  return onnx_plus(
      cell->node, x,
      onnx_times(cell->node, c,
                 onnx_gates(cell, cell->peepholes, 1, peephole, 1)));
}

// Gates: input, output, forget, cell; peepholes: input, output, forget.
static void onnx_lstm_step(onnx_cell_t* cell, rabbet_tensor_t* x) {
  rabbet_onnx_node_t* node = cell->node;
  rabbet_tensor_t* h = onnx_product(node, cell->h, cell->recurrence);
  x = onnx_plus(node, onnx_plus(node, x, h), cell->bias[1]);
  rabbet_tensor_t* gates[RABBET_ONNX_MAX_GATES];
  for (int i = 0; i < 4; ++i) {
    gates[i] = onnx_gates(cell, x, 1, i, 1);
  }
  rabbet_tensor_t* in =
      onnx_apply(cell, 0, true, onnx_peep(cell, gates[0], 0, cell->c));
  rabbet_tensor_t* forget = NULL;
  if (cell->input_forget) {
    forget = rabbet_onnx_with_number(node, "PROD", in, -1);
    forget = rabbet_onnx_with_number(node, "SUM", forget, 1);
  } else {
    forget = onnx_apply(cell, 0, true, onnx_peep(cell, gates[2], 2, cell->c));
  }
  rabbet_tensor_t* new = onnx_apply(cell, 1, true, gates[3]);
  cell->c = onnx_plus(node, onnx_times(node, forget, cell->c),
                      onnx_times(node, in, new));
  rabbet_tensor_t* out =
      onnx_apply(cell, 0, true, onnx_peep(cell, gates[1], 1, cell->c));
  cell->h = onnx_times(node, out, onnx_apply(cell, 2, false, cell->c));
}

// ---- Attributes ------------------------------------------------------------

static const Onnx__AttributeProto* onnx_raw_attr(const rabbet_onnx_node_t* node,
                                                 const char* name) {
  for (size_t i = 0; i < node->attr_count; ++i) {
    if (node->attrs[i]->name && !strcmp(node->attrs[i]->name, name)) {
      return node->attrs[i];
    }
  }
  return NULL;
}

// Functions of direction `direction`, each of which has `count`.
static void onnx_read_functions(onnx_cell_t* cell, int direction, int count) {
  rabbet_onnx_node_t* node = cell->node;
  const Onnx__AttributeProto* names = onnx_raw_attr(node, "activations");
  const Onnx__AttributeProto* lists[] = {
      onnx_raw_attr(node, "activation_alpha"),
      onnx_raw_attr(node, "activation_beta")};
  for (int i = 0; i < count; ++i) {
    size_t at = (size_t)(direction * count + i);
    onnx_function_t* f = &cell->functions[i];
    // By default a sigmoid for gates, and tanh; an RNN has no gates.
    *f = onnx_functions[i > 0 || count == 1];
    if (names && at < names->n_strings) {
      const ProtobufCBinaryData* name = &names->strings[at];
      size_t k = 0, all = sizeof onnx_functions / sizeof *f;
      while (k < all &&
             (strlen(onnx_functions[k].name) != name->len ||
              memcmp(onnx_functions[k].name, name->data, name->len) != 0)) {
        ++k;
      }
      if (k == all) {
        RABBET_ONNX_FAIL(node, RABBET_STATUS_UNSUPPORTED,
                         "activation '%.*s' is not known; expected Sigmoid, "
                         "Tanh, Relu, Affine, LeakyRelu, ThresholdedRelu, "
                         "ScaledTanh, HardSigmoid, Elu, Softsign or Softplus",
                         (int)name->len, (const char*)name->data);
        return;
      }
      *f = onnx_functions[k];
    }
    if (lists[0] && at < lists[0]->n_floats) f->alpha = lists[0]->floats[at];
    if (lists[1] && at < lists[1]->n_floats) f->beta = lists[1]->floats[at];
  }
}

// ---- Layers ----------------------------------------------------------------

typedef struct onnx_recurrent_t {
  rabbet_onnx_node_t* node;
  int gates, functions;
  onnx_step_t step;
  bool batch_first, reverse;
  int directions;
  int64_t hidden, length;
  rabbet_tensor_t* x;  // [length, batch, input]
} onnx_recurrent_t;

static rabbet_tensor_t* onnx_swap(rabbet_onnx_node_t* node,
                                  rabbet_tensor_t* x) {
  const int64_t order[] = {1, 0, 2};
  return x ? rabbet_onnx_transpose(node, x, order) : NULL;
}

// Each sequence's length must equal the input's.
static void onnx_check_lengths(const onnx_recurrent_t* layer) {
  rabbet_onnx_node_t* node = layer->node;
  rabbet_tensor_t* lengths = rabbet_onnx_input(node, 4);
  if (!rabbet_onnx_ok(node) || !lengths) return;
  rabbet_onnx_ints_t known =
      rabbet_onnx_constant_ints(node, "sequence_lens", lengths);
  for (size_t i = 0; rabbet_onnx_ok(node) && i < known.count; ++i) {
    if (known.data[i] == layer->length) continue;
    RABBET_ONNX_FAIL(node, RABBET_STATUS_UNSUPPORTED,
                     "sequence_lens has %lld; sequences must be as long as the "
                     "input, which has %lld steps",
                     (long long)known.data[i], (long long)layer->length);
  }
}

static void onnx_recurrent_begin(onnx_recurrent_t* layer) {
  rabbet_onnx_node_t* node = layer->node;
  const char* direction = rabbet_onnx_attr_string(node, "direction", "forward");
  layer->batch_first = rabbet_onnx_attr_int(node, "layout", 0) != 0;
  rabbet_tensor_t* x = rabbet_onnx_required(node, 0);
  rabbet_onnx_required(node, 1);
  rabbet_dims_t r = rabbet_onnx_dims(node, rabbet_onnx_required(node, 2));
  rabbet_onnx_check_rank(node, "X", x, 3);
  rabbet_onnx_check_rank(node, "W", rabbet_onnx_input(node, 1), 3);
  rabbet_onnx_check_rank(node, "B", rabbet_onnx_input(node, 3), 2);
  rabbet_onnx_check_rank(node, "initial_h", rabbet_onnx_input(node, 5), 3);
  if (layer->gates == 4) {
    rabbet_onnx_check_rank(node, "initial_c", rabbet_onnx_input(node, 6), 3);
    rabbet_onnx_check_rank(node, "P", rabbet_onnx_input(node, 7), 2);
  }
  if (!rabbet_onnx_ok(node)) return;
  layer->directions = strcmp(direction, "bidirectional") ? 1 : 2;
  layer->reverse = !strcmp(direction, "reverse");
  layer->x = layer->batch_first ? onnx_swap(node, x) : x;
  rabbet_dims_t dims = rabbet_onnx_dims(node, layer->x);
  if (!rabbet_onnx_ok(node)) return;
  layer->hidden = r.rank == 3 ? r.d[2] : 0;
  layer->length = dims.d[0];
  int64_t rows = 0;
  if (r.rank != 3 || layer->hidden < 1 || r.d[0] != layer->directions ||
      !rabbet_checked_mul((int64_t)layer->gates, layer->hidden, &rows) ||
      r.d[1] != rows) {
    char text[128];
    RABBET_ONNX_FAIL(node, RABBET_STATUS_INVALID_ARGUMENT,
                     "R has shape %s; expected (%d, %d * hidden_size, "
                     "hidden_size)",
                     rabbet_dims_print(&r, text, sizeof text),
                     layer->directions, layer->gates);
  } else if (layer->length < 1) {
    RABBET_ONNX_FAIL(
        node, RABBET_STATUS_UNSUPPORTED,
        "the number of steps of X is not known; recurrent layers are unrolled "
        "at import: give the model's inputs fixed shapes");
  }
  onnx_check_lengths(layer);
}

// The state at the beginning: an input, or zeros.
static rabbet_tensor_t* onnx_initial(const onnx_recurrent_t* layer,
                                     size_t input, int direction) {
  rabbet_onnx_node_t* node = layer->node;
  rabbet_tensor_t* given = rabbet_onnx_input(node, input);
  if (!rabbet_onnx_ok(node)) return NULL;
  if (given) {
    return onnx_slice_at(node, given, layer->batch_first ? 1 : 0, direction);
  }
  const rabbet_onnx_index_t dims[] = {rabbet_onnx_extent(node, layer->x, 1),
                                      rabbet_onnx_index(layer->hidden)};
  rabbet_dtype_t dtype = rabbet_onnx_dtype_of(node, layer->x);
  return rabbet_onnx_spread(node, rabbet_onnx_number(node, dtype, 2, 0), dims,
                            2);
}

static rabbet_tensor_t* onnx_row(rabbet_onnx_node_t* node, rabbet_tensor_t* x,
                                 int direction) {
  x = onnx_slice_at(node, x, 0, direction);
  return x ? rabbet_onnx_unsqueeze(node, x, 1u, 2) : NULL;
}

static onnx_cell_t onnx_cell(const onnx_recurrent_t* layer, int direction) {
  rabbet_onnx_node_t* node = layer->node;
  onnx_cell_t cell = {
      .node = node,
      .gates = layer->gates,
      .hidden = layer->hidden,
      .clip = rabbet_onnx_attr_float(node, "clip", 0),
      .linear_before_reset =
          rabbet_onnx_attr_int(node, "linear_before_reset", 0) != 0,
      .input_forget = rabbet_onnx_attr_int(node, "input_forget", 0) != 0};
  onnx_read_functions(&cell, direction, layer->functions);
  cell.weights = onnx_slice_at(node, rabbet_onnx_input(node, 1), 0, direction);
  cell.recurrence =
      onnx_slice_at(node, rabbet_onnx_input(node, 2), 0, direction);
  rabbet_tensor_t* bias = onnx_row(node, rabbet_onnx_input(node, 3), direction);
  cell.bias[0] = onnx_gates(&cell, bias, 1, 0, cell.gates);
  cell.bias[1] = onnx_gates(&cell, bias, 1, cell.gates, cell.gates);
  cell.h = onnx_initial(layer, 5, direction);
  if (cell.gates == 4) {
    cell.c = onnx_initial(layer, 6, direction);
    cell.peepholes = onnx_row(node, rabbet_onnx_input(node, 7), direction);
  }
  return cell;
}

// One direction: [length, 1, batch, hidden] of all steps, and the last states,
// [1, batch, hidden].
static void onnx_direction(const onnx_recurrent_t* layer, int direction,
                           rabbet_tensor_t** steps, rabbet_tensor_t* out[3]) {
  rabbet_onnx_node_t* node = layer->node;
  bool reverse = layer->reverse || direction == 1;
  onnx_cell_t cell = onnx_cell(layer, direction);
  rabbet_tensor_t* x = onnx_product(node, layer->x, cell.weights);
  x = onnx_plus(node, x, cell.bias[0]);
  for (int64_t i = 0; i < layer->length && rabbet_onnx_ok(node); ++i) {
    int64_t at = reverse ? layer->length - 1 - i : i;
    layer->step(&cell, onnx_slice_at(node, x, 0, at));
    steps[at] = rabbet_onnx_unsqueeze(node, cell.h, 3u, 4);
  }
  if (!rabbet_onnx_ok(node)) return;
  out[0] = rabbet_onnx_concat(node, steps, (size_t)layer->length, 0);
  out[1] = rabbet_onnx_unsqueeze(node, cell.h, 1u, 3);
  if (cell.c) out[2] = rabbet_onnx_unsqueeze(node, cell.c, 1u, 3);
}

static void onnx_recurrent(rabbet_onnx_node_t* node, int gates, int functions,
                           onnx_step_t step) {
  onnx_recurrent_t layer = {
      .node = node, .gates = gates, .functions = functions, .step = step};
  rabbet_tensor_t *results[2][3] = {{NULL}}, **steps = NULL;
  onnx_recurrent_begin(&layer);
  if (!rabbet_onnx_ok(node)) return;
  rabbet_onnx_fail(node,
                   rabbet_onnx_spend(node->importer, (uint64_t)layer.length));
  if (!rabbet_onnx_ok(node)) return;
  rabbet_onnx_fail(node, rabbet_arena_allocate_array(
                             &node->importer->arena, (size_t)layer.length,
                             sizeof(*steps), (void**)&steps));
  for (int i = 0; i < layer.directions && rabbet_onnx_ok(node); ++i) {
    onnx_direction(&layer, i, steps, results[i]);
  }
  for (size_t i = 0; i < node->output_count && i < (gates == 4 ? 3 : 2); ++i) {
    if (!rabbet_onnx_ok(node) || !rabbet_onnx_wants(node, i)) continue;
    rabbet_tensor_t* both[] = {results[0][i], results[1][i]};
    rabbet_tensor_t* y = both[0];
    if (layer.directions == 2) {
      y = rabbet_onnx_concat(node, both, 2, i == 0 ? 1 : 0);
    }
    const int64_t order[] = {2, 0, 1, 3};
    if (layer.batch_first) {
      y = i == 0 ? rabbet_onnx_transpose(node, y, order) : onnx_swap(node, y);
    }
    node->outputs[i] = y;
  }
}

static void onnx_import_recurrent(rabbet_onnx_node_t* node) {
  switch (node->variant[0]) {
    case 'L':
      onnx_recurrent(node, 4, 3, onnx_lstm_step);
      break;
    case 'G':
      onnx_recurrent(node, 3, 2, onnx_gru_step);
      break;
    default:
      onnx_recurrent(node, 1, 1, onnx_rnn_step);
  }
}

RABBET_ONNX_OPERATORS(recurrent) = {
    RABBET_ONNX_OP(GRU, recurrent, "GRU", 1, 3, 7, 14, 22),
    RABBET_ONNX_OP(LSTM, recurrent, "LSTM", 1, 7, 14, 22),
    RABBET_ONNX_OP(RNN, recurrent, "RNN", 1, 7, 14, 22),
    {0},
};
