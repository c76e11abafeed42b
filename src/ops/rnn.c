// A recurrent network over sequences: RNN, GRU or LSTM, in one direction or
// two, as ONNX defines them.
//
// The input is the product of each step's input with the weights of all
// gates, with its bias: a layer of its own. What is left depends on the step
// before, with a = x + h R' + bias for each gate, functions f, g, h, and
// peepholes p (0 where omitted):
//   RNN:  h' = f(a)
//   GRU:  z, r = f(a), n = g(x + (r h) R' + bias), h' = (1 - z) n + z h
//         linear_before_reset: n = g(x + r (h R' + bias))
//   LSTM: i = f(a + p c), f = f(a + p c), c' = f c + i g(a),
//         o = f(a + p c'), h' = o h(c')
//         input_forget: f = 1 - i
// Gates are ordered z, r, n and i, o, f, c; peepholes i, o, f. A sequence that
// is shorter than the input has outputs of 0 beyond its end. Last states of an
// empty one are 0, as ONNX Runtime has them.
#include "ops/rnn.h"

#include <math.h>
#include <string.h>

#include "core/view.h"
#include "ops/activation.h"
#include "ops/cost.h"
#include "ops/rules.h"

enum { CELL_GATES = 4, LETTERS = 128 };

static const int32_t rnn_gates[] = {1, 3, CELL_GATES};

static bool rnn_has(const rabbet_op_infer_t* infer, size_t input) {
  return input < infer->input_count && infer->inputs[input].present;
}

// ---- Attributes ------------------------------------------------------------

static rabbet_rnn_function_t rnn_function(const rabbet_attr_t* attrs,
                                          size_t attr_count, int64_t cell,
                                          size_t at) {
  size_t count = 0, alphas = 0, betas = 0;
  const int64_t* types =
      rabbet_attr_ints(attrs, attr_count, "activations", &count);
  const double* alpha =
      rabbet_attr_floats(attrs, attr_count, "activation_alphas", &alphas);
  const double* beta =
      rabbet_attr_floats(attrs, attr_count, "activation_betas", &betas);
  bool is_gate = cell != RABBET_RNN_CELL_RNN &&
                 at % (size_t)rabbet_rnn_function_count(cell) == 0;
  return (rabbet_rnn_function_t){.type = at < count ? (int32_t)types[at]
                                         : is_gate  ? RABBET_ACTIVATION_SIGMOID
                                                    : RABBET_ACTIVATION_TANH,
                                 .alpha = at < alphas ? (float)alpha[at] : 0,
                                 .beta = at < betas ? (float)beta[at] : 0};
}

static void rnn_read_attrs(const rabbet_attr_t* attrs, size_t attr_count,
                           rabbet_rnn_t* r) {
  int64_t direction = rabbet_attr_int(attrs, attr_count, "direction", 0);
  double clip = rabbet_attr_float(attrs, attr_count, "clip", 0);
  r->cell = (int32_t)rabbet_attr_int(attrs, attr_count, "cell", 0);
  r->gates = rnn_gates[r->cell];
  r->directions = direction == RABBET_RNN_DIRECTION_BIDIRECTIONAL ? 2 : 1;
  r->is_reverse = direction == RABBET_RNN_DIRECTION_REVERSE;
  r->batch_first =
      (int32_t)rabbet_attr_int(attrs, attr_count, "batch_first", 0);
  r->linear_before_reset =
      (int32_t)rabbet_attr_int(attrs, attr_count, "linear_before_reset", 0);
  r->input_forget =
      (int32_t)rabbet_attr_int(attrs, attr_count, "input_forget", 0);
  r->clip = clip > 0 ? (float)clip : INFINITY;
  int count = rabbet_rnn_function_count(r->cell);
  for (int d = 0; d < r->directions; ++d)
    for (int i = 0; i < count; ++i)
      r->functions[d][i] =
          rnn_function(attrs, attr_count, r->cell, (size_t)(d * count + i));
}

static rabbet_status_t rnn_check_functions(const rabbet_op_infer_t* infer,
                                           const rabbet_rnn_t* r) {
  static const char* const lists[] = {"activation_alphas", "activation_betas"};
  size_t wanted = (size_t)(r->directions * rabbet_rnn_function_count(r->cell));
  size_t count = 0, numbers = 0;
  const int64_t* types = RABBET_OP_INTS(infer, "activations", &count);
  if (count != 0 && count != wanted)
    return RABBET_OP_INVALID(
        "attribute 'activations' has %zu functions; expected %zu, or none",
        count, wanted);
  for (size_t i = 0; i < count; ++i)
    if (types[i] != RABBET_RNN_AFFINE &&
        (types[i] < 0 || types[i] >= RABBET_ACTIVATION_COUNT))
      return RABBET_OP_INVALID(
          "attribute 'activations' has %lld; expected numbers of "
          "ActivationType, or %d",
          (long long)types[i], RABBET_RNN_AFFINE);
  for (size_t i = 0; i < RABBET_OP_COUNT_OF(lists); ++i) {
    RABBET_OP_FLOATS(infer, lists[i], &numbers);
    if (numbers != 0 && numbers != wanted)
      return RABBET_OP_INVALID(
          "attribute '%s' has %zu numbers; expected %zu, or none", lists[i],
          numbers, wanted);
  }
  return rabbet_ok();
}

static rabbet_status_t rnn_check_attrs(const rabbet_op_infer_t* infer,
                                       const rabbet_rnn_t* r) {
  double clip = RABBET_OP_FLOAT(infer, "clip");
  if (!(clip >= 0))
    return RABBET_OP_INVALID(
        "attribute 'clip' is %g; expected a bound, or 0 for none", clip);
  for (size_t i = RABBET_RNN_CELL; i <= RABBET_RNN_PEEPHOLES; ++i)
    if (r->cell != RABBET_RNN_CELL_LSTM && rnn_has(infer, i))
      return RABBET_OP_INVALID(
          "input %zu ('%s') is given; only cells of type LSTM have it", i,
          infer->op->inputs[i].name);
  return rnn_check_functions(infer, r);
}

// ---- Types and shapes ------------------------------------------------------

static rabbet_status_t rnn_infer_types(const rabbet_op_infer_t* infer) {
  rabbet_dtype_t dtype = infer->inputs[RABBET_RNN_INPUT].dtype;
  for (size_t i = 0; i < infer->output_count; ++i)
    infer->outputs[i].dtype = dtype;
  for (size_t i = RABBET_RNN_RECURRENCE; i <= RABBET_RNN_PEEPHOLES; ++i)
    if (rnn_has(infer, i) && infer->inputs[i].dtype != dtype)
      return RABBET_OP_INVALID(
          "input %zu ('%s') has type %s, but input 0 ('input') has type %s; "
          "they must be equal (insert a cast)",
          i, infer->op->inputs[i].name,
          rabbet_dtype_name(infer->inputs[i].dtype), rabbet_dtype_name(dtype));
  return rabbet_ok();
}

// Shapes of inputs as letters: steps (t), sequences (b), directions (d), hidden
// size (h), and products of these: a direction's gates (g), all gates (c),
// peepholes (p).
static const char* const rnn_shapes[2][RABBET_RNN_INPUTS] = {
    {"tbc", "dgh", "dg", "dbh", "dbh", "dp", "b"},
    {"btc", "dgh", "dg", "bdh", "bdh", "dp", "b"}};
static const char* const rnn_output_shapes[2][2] = {{"tbdh", "dbh"},
                                                    {"btdh", "bdh"}};
static const char* const rnn_expected[2][RABBET_RNN_INPUTS] = {
    {"(steps, batch, directions * gates * hidden)",
     "(directions, gates * hidden, hidden)", "(directions, gates * hidden)",
     "(directions, batch, hidden)", "(directions, batch, hidden)",
     "(directions, 3 * hidden)", "(batch)"},
    {"(batch, steps, directions * gates * hidden)",
     "(directions, gates * hidden, hidden)", "(directions, gates * hidden)",
     "(batch, directions, hidden)", "(batch, directions, hidden)",
     "(directions, 3 * hidden)", "(batch)"}};

static rabbet_status_t rnn_begin_letters(const rabbet_op_infer_t* infer,
                                         const rabbet_rnn_t* r,
                                         rabbet_expr_t letters[LETTERS]) {
  const rabbet_shape_t* weights = &infer->inputs[RABBET_RNN_RECURRENCE].shape;
  const struct {
    char letter;
    int64_t factor;
  } products[] = {{'g', r->gates}, {'c', r->directions * r->gates}, {'p', 3}};
  for (int i = 0; i < LETTERS; ++i)
    letters[i] = RABBET_EXPR_NONE;
  RABBET_RETURN_IF_ERROR(
      rabbet_expr_constant(infer->graph, r->directions, &letters['d']));
  if (weights->rank != 3) return rabbet_ok();
  letters['h'] = weights->d[2];
  for (size_t i = 0; i < RABBET_OP_COUNT_OF(products); ++i)
    RABBET_RETURN_IF_ERROR(rabbet_op_with_constant(
        infer, RABBET_EXPR_PROD, weights->d[2], products[i].factor,
        &letters[(int)products[i].letter]));
  return rabbet_ok();
}

static bool rnn_fits(const rabbet_op_infer_t* infer,
                     rabbet_expr_t letters[LETTERS], const char* wanted,
                     const rabbet_shape_t* shape) {
  if (shape->rank != (int32_t)strlen(wanted)) return false;
  for (int32_t i = 0; i < shape->rank; ++i) {
    rabbet_expr_t* known = &letters[(int)wanted[i]];
    if (*known == RABBET_EXPR_NONE)
      *known = shape->d[i];
    else if (!rabbet_op_same_dim(infer, shape->d[i], *known, known))
      return false;
  }
  return true;
}

static rabbet_status_t rnn_infer_shapes(const rabbet_op_infer_t* infer) {
  rabbet_expr_t letters[LETTERS];
  char a[RABBET_OP_TEXT], b[RABBET_OP_TEXT];
  rabbet_rnn_t r;
  rnn_read_attrs(infer->attrs, infer->attr_count, &r);
  RABBET_RETURN_IF_ERROR(rnn_check_attrs(infer, &r));
  RABBET_RETURN_IF_ERROR(rnn_begin_letters(infer, &r, letters));
  for (size_t i = 0; i < infer->input_count; ++i)
    if (rnn_has(infer, i) &&
        !rnn_fits(infer, letters, rnn_shapes[r.batch_first][i],
                  &infer->inputs[i].shape))
      return RABBET_OP_INVALID(
          "input %zu ('%s') has shape %s; expected %s, with %d directions and "
          "%d gates; 'recurrence' has shape %s",
          i, infer->op->inputs[i].name,
          rabbet_op_shape_text(infer, &infer->inputs[i].shape, a),
          rnn_expected[r.batch_first][i], r.directions, r.gates,
          rabbet_op_shape_text(infer,
                               &infer->inputs[RABBET_RNN_RECURRENCE].shape, b));
  for (size_t i = 0; i < infer->output_count; ++i) {
    const char* shape =
        rnn_output_shapes[r.batch_first][i != RABBET_RNN_OUTPUT];
    rabbet_shape_t* y = &infer->outputs[i].shape;
    y->rank = (int32_t)strlen(shape);
    for (int32_t k = 0; k < y->rank; ++k)
      y->d[k] = letters[(int)shape[k]];
  }
  if (r.cell == RABBET_RNN_CELL_LSTM) return rabbet_ok();
  return rabbet_expr_constant(infer->graph, 0,
                              &infer->outputs[RABBET_RNN_LAST_CELL].shape.d[2]);
}

// ---- Known sizes -----------------------------------------------------------

static int64_t rnn_extent(const rabbet_rnn_t* r, char letter) {
  switch (letter) {
    case 't':
      return r->steps;
    case 'b':
      return r->batch;
    case 'd':
      return r->directions;
    case 'h':
      return r->hidden;
    case 'g':
      return r->gates * r->hidden;
    case 'c':
      return r->directions * r->gates * r->hidden;
    default:
      return 3 * r->hidden;
  }
}

static bool rnn_has_dims(const rabbet_rnn_t* r, const char* wanted,
                         const rabbet_dims_t* dims) {
  if (dims->rank != (int32_t)strlen(wanted)) return false;
  for (int32_t i = 0; i < dims->rank; ++i)
    if (dims->d[i] != rnn_extent(r, wanted[i])) return false;
  return true;
}

rabbet_status_t rabbet_rnn_read(
    const rabbet_attr_t* attrs, size_t attr_count,
    const rabbet_dims_t* const dims[RABBET_RNN_INPUTS], rabbet_rnn_t* out_rnn) {
  const rabbet_dims_t* x = dims[RABBET_RNN_INPUT];
  const rabbet_dims_t* weights = dims[RABBET_RNN_RECURRENCE];
  char a[128], b[128];
  *out_rnn = (rabbet_rnn_t){0};
  rnn_read_attrs(attrs, attr_count, out_rnn);
  if (x && x->rank == 3) {
    out_rnn->steps = x->d[out_rnn->batch_first ? 1 : 0];
    out_rnn->batch = x->d[out_rnn->batch_first ? 0 : 1];
  }
  if (weights->rank == 3) out_rnn->hidden = weights->d[2];
  for (size_t i = 0; i < RABBET_RNN_INPUTS; ++i)
    if (dims[i] &&
        !rnn_has_dims(out_rnn, rnn_shapes[out_rnn->batch_first][i], dims[i]))
      return RABBET_STATUS(
          RABBET_STATUS_OUT_OF_RANGE,
          "input %zu has shape %s; expected %s, with %d directions and %d "
          "gates; the recurrence has shape %s",
          i, rabbet_dims_print(dims[i], a, sizeof(a)),
          rnn_expected[out_rnn->batch_first][i], out_rnn->directions,
          out_rnn->gates, rabbet_dims_print(weights, b, sizeof(b)));
  return rabbet_ok();
}

double rabbet_rnn_apply(const rabbet_rnn_function_t* function, double x) {
  if (function->type == RABBET_RNN_AFFINE)
    return function->alpha * x + function->beta;
  return rabbet_activation_of(function->type, x, function->alpha,
                              function->beta);
}

// ---- Reference -------------------------------------------------------------

// One sequence in one direction.
typedef struct rnn_sequence_t {
  const rabbet_rnn_t* r;
  const rabbet_view_t* in;
  size_t in_count;
  int32_t direction;
  int64_t at;  // its number
  double *h, *c, *sums, *reset;
} rnn_sequence_t;

static double rnn_at(const rnn_sequence_t* s, size_t input, int64_t at) {
  const rabbet_view_t* view = &s->in[input];
  if (input >= s->in_count || view->dtype == RABBET_DTYPE_NONE) return 0;
  return rabbet_load_double(view->dtype, view->data, at);
}

// Adds row `gate` * hidden + i of the recurrence times `h`, and the bias.
static double rnn_product(const rnn_sequence_t* s, const double* h, int gate,
                          int64_t i) {
  const rabbet_rnn_t* r = s->r;
  int64_t row = (s->direction * r->gates + gate) * r->hidden + i;
  double sum = rnn_at(s, RABBET_RNN_BIAS, row);
  for (int64_t k = 0; k < r->hidden; ++k)
    sum += h[k] * rnn_at(s, RABBET_RNN_RECURRENCE, row * r->hidden + k);
  return sum;
}

static double rnn_apply(const rnn_sequence_t* s, int function, double x) {
  double clip = s->r->clip;
  x = x < -clip ? -clip : x > clip ? clip : x;
  return rabbet_rnn_apply(&s->r->functions[s->direction][function], x);
}

static void rnn_simple_step(const rnn_sequence_t* s) {
  for (int64_t i = 0; i < s->r->hidden; ++i)
    s->sums[i] += rnn_product(s, s->h, 0, i);
  for (int64_t i = 0; i < s->r->hidden; ++i)
    s->h[i] = rnn_apply(s, 0, s->sums[i]);
}

static void rnn_gru_step(const rnn_sequence_t* s) {
  int64_t hidden = s->r->hidden;
  bool is_linear = s->r->linear_before_reset;
  double *z = s->sums, *gate = z + hidden, *n = gate + hidden;
  for (int64_t i = 0; i < hidden; ++i) {
    z[i] = rnn_apply(s, 0, z[i] + rnn_product(s, s->h, 0, i));
    gate[i] = rnn_apply(s, 0, gate[i] + rnn_product(s, s->h, 1, i));
    s->reset[i] = gate[i] * s->h[i];
  }
  for (int64_t i = 0; i < hidden; ++i) {
    double sum = rnn_product(s, is_linear ? s->h : s->reset, 2, i);
    n[i] = rnn_apply(s, 1, n[i] + (is_linear ? gate[i] * sum : sum));
  }
  for (int64_t i = 0; i < hidden; ++i)
    s->h[i] = (1 - z[i]) * n[i] + z[i] * s->h[i];
}

static void rnn_lstm_step(const rnn_sequence_t* s) {
  const rabbet_rnn_t* r = s->r;
  int64_t hidden = r->hidden, peep = s->direction * 3 * hidden;
  for (int gate = 0; gate < CELL_GATES; ++gate)
    for (int64_t i = 0; i < hidden; ++i)
      s->sums[gate * hidden + i] += rnn_product(s, s->h, gate, i);
  for (int64_t i = 0; i < hidden; ++i) {
    const double* a = s->sums + i;
    double c = s->c[i], p[3];
    for (int k = 0; k < 3; ++k)
      p[k] = rnn_at(s, RABBET_RNN_PEEPHOLES, peep + k * hidden + i);
    double in = rnn_apply(s, 0, a[0] + p[0] * c);
    double forget =
        r->input_forget ? 1 - in : rnn_apply(s, 0, a[2 * hidden] + p[2] * c);
    s->c[i] = forget * c + in * rnn_apply(s, 1, a[3 * hidden]);
    double out = rnn_apply(s, 0, a[hidden] + p[1] * s->c[i]);
    s->h[i] = out * rabbet_rnn_apply(&r->functions[s->direction][2], s->c[i]);
  }
}

static void rnn_store(const rnn_sequence_t* s, const rabbet_view_t* y,
                      int64_t row, const double* from) {
  for (int64_t i = 0; i < s->r->hidden; ++i)
    rabbet_store_double(y->dtype, y->data, row * s->r->hidden + i,
                        from ? from[i] : 0);
}

static void rnn_steps(const rnn_sequence_t* s, int64_t length,
                      const rabbet_view_t* y) {
  const rabbet_rnn_t* r = s->r;
  int64_t gates = r->gates * r->hidden;
  for (int64_t i = 0; i < length; ++i) {
    int64_t step = rabbet_rnn_step(r, s->direction, i, length);
    int64_t row = rabbet_rnn_row(r, step, s->at) * r->directions + s->direction;
    for (int64_t k = 0; k < gates; ++k)
      s->sums[k] = rnn_at(s, RABBET_RNN_INPUT, row * gates + k);
    if (r->cell == RABBET_RNN_CELL_LSTM)
      rnn_lstm_step(s);
    else if (r->cell == RABBET_RNN_CELL_GRU)
      rnn_gru_step(s);
    else
      rnn_simple_step(s);
    rnn_store(s, y, row, s->h);
  }
  for (int64_t i = length; i < r->steps; ++i)
    rnn_store(s, y, rabbet_rnn_row(r, i, s->at) * r->directions + s->direction,
              NULL);
}

static void rnn_run(rnn_sequence_t* s, const rabbet_view_t* outputs) {
  const rabbet_rnn_t* r = s->r;
  int64_t state = rabbet_rnn_state(r, s->direction, s->at), length = r->steps;
  const rabbet_view_t* lengths = &s->in[RABBET_RNN_LENGTHS];
  if (s->in_count > RABBET_RNN_LENGTHS && lengths->dtype != RABBET_DTYPE_NONE)
    length = rabbet_rnn_length(
        r, rabbet_load_int64(lengths->dtype, lengths->data, s->at));
  for (int64_t i = 0; i < r->hidden; ++i) {
    s->h[i] = rnn_at(s, RABBET_RNN_HIDDEN, state * r->hidden + i);
    s->c[i] = rnn_at(s, RABBET_RNN_CELL, state * r->hidden + i);
  }
  rnn_steps(s, length, &outputs[RABBET_RNN_OUTPUT]);
  rnn_store(s, &outputs[RABBET_RNN_LAST_HIDDEN], state,
            length > 0 ? s->h : NULL);
  if (r->cell == RABBET_RNN_CELL_LSTM)
    rnn_store(s, &outputs[RABBET_RNN_LAST_CELL], state,
              length > 0 ? s->c : NULL);
}

static rabbet_status_t rnn_read_eval(const rabbet_op_eval_t* eval,
                                     rabbet_rnn_t* out_rnn) {
  const rabbet_dims_t* dims[RABBET_RNN_INPUTS] = {NULL};
  for (size_t i = 0; i < eval->input_count && i < RABBET_RNN_INPUTS; ++i)
    if (eval->inputs[i].dtype != RABBET_DTYPE_NONE)
      dims[i] = &eval->inputs[i].dims;
  return rabbet_rnn_read(eval->attrs, eval->attr_count, dims, out_rnn);
}

static rabbet_status_t rnn_reference(const rabbet_op_eval_t* eval) {
  rabbet_rnn_t r;
  RABBET_RETURN_IF_ERROR(rnn_read_eval(eval, &r));
  void* room = NULL;
  size_t hidden = (size_t)r.hidden;
  RABBET_RETURN_IF_ERROR(rabbet_allocate(
      eval->allocator, (3 + CELL_GATES) * hidden * sizeof(double) + 1, &room));
  rnn_sequence_t s = {
      .r = &r, .in = eval->inputs, .in_count = eval->input_count, .h = room};
  s.c = s.h + hidden;
  s.reset = s.c + hidden;
  s.sums = s.reset + hidden;
  for (s.direction = 0; s.direction < r.directions; ++s.direction)
    for (s.at = 0; s.at < r.batch; ++s.at)
      rnn_run(&s, eval->outputs);
  rabbet_free(eval->allocator, room);
  return rabbet_ok();
}

static double rnn_cost(const rabbet_op_eval_t* eval) {
  const int64_t* x = eval->inputs[RABBET_RNN_INPUT].dims.d;
  const int64_t* weights = eval->inputs[RABBET_RNN_RECURRENCE].dims.d;
  return rabbet_cost_elements(eval) +
         (double)x[0] * (double)x[1] * (double)x[2] * (double)weights[2];
}

// ---- The descriptor --------------------------------------------------------

static const rabbet_op_enumerator_t rnn_cells[] = {
    RABBET_RNN_CELLS(RABBET_ENUMERATOR){NULL, 0}};
static const rabbet_op_enumerator_t rnn_directions[] = {
    RABBET_RNN_DIRECTIONS(RABBET_ENUMERATOR){NULL, 0}};
static const rabbet_op_operand_t rnn_inputs[] = {
    {"input", 0, RABBET_T_FLOATS},
    {"recurrence", 0, RABBET_T_FLOATS},
    {"bias", RABBET_OPERAND_OPTIONAL, RABBET_T_FLOATS},
    {"hidden", RABBET_OPERAND_OPTIONAL, RABBET_T_FLOATS},
    {"cell", RABBET_OPERAND_OPTIONAL, RABBET_T_FLOATS},
    {"peepholes", RABBET_OPERAND_OPTIONAL, RABBET_T_FLOATS},
    {"lengths", RABBET_OPERAND_OPTIONAL | RABBET_OPERAND_INDEX,
     RABBET_T_INDICES},
};
static const rabbet_op_operand_t rnn_outputs[] = {
    {"output", 0, RABBET_T_FLOATS},
    {"last_hidden", 0, RABBET_T_FLOATS},
    {"last_cell", 0, RABBET_T_FLOATS},
};
static const rabbet_op_attr_t rnn_attrs[] = {
    {"cell", RABBET_ATTR_INT, true, 0, 0, rnn_cells},
    {"direction", RABBET_ATTR_INT, false, 0, 0, rnn_directions},
    {"batch_first", RABBET_ATTR_BOOL, false, 0, 0, NULL},
    {"activations", RABBET_ATTR_INTS, false, 0, 0, NULL},
    {"activation_alphas", RABBET_ATTR_FLOATS, false, 0, 0, NULL},
    {"activation_betas", RABBET_ATTR_FLOATS, false, 0, 0, NULL},
    {"clip", RABBET_ATTR_FLOAT, false, 0, 0, NULL},
    {"linear_before_reset", RABBET_ATTR_BOOL, false, 0, 0, NULL},
    {"input_forget", RABBET_ATTR_BOOL, false, 0, 0, NULL},
};

const rabbet_op_t rabbet_op_rnn = {
    .name = "rnn",
    .layer_type = "RNN",
    .inputs = rnn_inputs,
    .input_count = RABBET_OP_COUNT_OF(rnn_inputs),
    .outputs = rnn_outputs,
    .output_count = RABBET_OP_COUNT_OF(rnn_outputs),
    .attrs = rnn_attrs,
    .attr_count = RABBET_OP_COUNT_OF(rnn_attrs),
    .infer_types = rnn_infer_types,
    .infer_shapes = rnn_infer_shapes,
    .reference = rnn_reference,
    .cost = rnn_cost,
};
