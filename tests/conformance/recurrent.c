// Recurrent networks.
#include "conformance/conformance.h"
#include "ops/enums.h"
#include "ops/rnn.h"

typedef struct recurrent_t {
  int64_t cell, gates, directions, steps, batch, hidden;
  bool batch_first;
} recurrent_t;

static recurrent_t recurrent_sizes(conformance_t* t, int64_t direction) {
  static const int64_t gates[] = {1, 3, 4};
  recurrent_t r = {
      .cell = conformance_random(t, 3),
      .directions = direction == RABBET_RNN_DIRECTION_BIDIRECTIONAL ? 2 : 1,
      .steps = conformance_random(t, 6),
      .batch = 1 + conformance_random(t, t->large ? 33 : 9),
      .hidden = 1 + conformance_random(t, 70),
      .batch_first = conformance_chance(t, 2)};
  r.gates = gates[r.cell];
  if (conformance_chance(t, 10)) r.batch = 0;
  return r;
}

// Functions without jumps: at one, results of equal sums may differ.
static size_t recurrent_functions(conformance_t* t, const recurrent_t* r,
                                  int64_t types[6], double alphas[6],
                                  double betas[6]) {
  size_t count = (size_t)(r->directions * rabbet_rnn_function_count(r->cell));
  for (size_t i = 0; i < count; ++i) {
    types[i] = conformance_random(t, RABBET_ACTIVATION_COUNT + 1);
    if (types[i] == RABBET_ACTIVATION_COUNT) types[i] = RABBET_RNN_AFFINE;
    alphas[i] = 0.25 * (double)conformance_random(t, 4);
    betas[i] = 0.5 + 0.25 * (double)conformance_random(t, 2);
    if (types[i] == RABBET_ACTIVATION_THRESHOLDED_RELU) alphas[i] = 0;
  }
  return count;
}

static int32_t recurrent_states(conformance_t* t, const recurrent_t* r) {
  return r->batch_first
             ? kernel_case_input(
                   &t->c, KERNEL_DIMS(r->batch, r->directions, r->hidden),
                   false)
             : kernel_case_input(
                   &t->c, KERNEL_DIMS(r->directions, r->batch, r->hidden),
                   false);
}

static int32_t recurrent_lengths(conformance_t* t, const recurrent_t* r) {
  int64_t lengths[64];
  for (int64_t i = 0; i < r->batch; ++i)
    lengths[i] = conformance_random(t, r->steps + 3) - 1;
  return kernel_case_numbers(
      &t->c, conformance_chance(t, 2) ? RABBET_DTYPE_INT32 : RABBET_DTYPE_INT64,
      KERNEL_DIMS(r->batch), lengths, false);
}

static void recurrent_operands(conformance_t* t, const recurrent_t* r,
                               int32_t inputs[RABBET_RNN_INPUTS]) {
  kernel_case_t* c = &t->c;
  int64_t gates = r->gates * r->hidden, columns = r->directions * gates;
  int64_t first = r->batch_first ? r->batch : r->steps;
  int64_t second = r->batch_first ? r->steps : r->batch;
  bool constant = !conformance_chance(t, 4);
  bool is_lstm = r->cell == RABBET_RNN_CELL_LSTM;
  inputs[0] = kernel_case_input(c, KERNEL_DIMS(first, second, columns), false);
  // States must neither grow from step to step nor magnify errors.
  c->low = -0.125;
  c->high = 0.125;
  inputs[1] = kernel_case_input(c, KERNEL_DIMS(r->directions, gates, r->hidden),
                                constant);
  c->low = -1;
  c->high = 1;
  for (int i = 2; i < RABBET_RNN_INPUTS; ++i)
    inputs[i] = -1;
  if (conformance_chance(t, 2))
    inputs[2] =
        kernel_case_input(c, KERNEL_DIMS(r->directions, gates), constant);
  if (conformance_chance(t, 2)) inputs[3] = recurrent_states(t, r);
  if (is_lstm && conformance_chance(t, 2)) inputs[4] = recurrent_states(t, r);
  if (is_lstm && conformance_chance(t, 2))
    inputs[5] = kernel_case_input(c, KERNEL_DIMS(r->directions, 3 * r->hidden),
                                  constant);
  if (conformance_chance(t, 2)) inputs[6] = recurrent_lengths(t, r);
}

// Any cell and length, sequences of nothing, outputs that nobody reads.
static void recurrent(conformance_t* t) {
  kernel_case_t* c = &t->c;
  conformance_begin_product(t);
  int64_t types[6], direction = conformance_random(t, 3);
  double alphas[6], betas[6], clip = conformance_chance(t, 3) ? 0.75 : 0;
  int32_t inputs[RABBET_RNN_INPUTS];
  recurrent_t r = recurrent_sizes(t, direction);
  size_t functions = recurrent_functions(t, &r, types, alphas, betas);
  if (conformance_chance(t, 2)) functions = 0;
  recurrent_operands(t, &r, inputs);
  const rabbet_attr_t attrs[] = {
      conformance_int(t, "cell", r.cell),
      conformance_int(t, "direction", direction),
      conformance_bool(t, "batch_first", r.batch_first),
      conformance_ints(t, "activations", types, functions),
      {.name = "activation_alphas",
       .type = RABBET_ATTR_FLOATS,
       .data = alphas,
       .count = functions},
      {.name = "activation_betas",
       .type = RABBET_ATTR_FLOATS,
       .data = betas,
       .count = functions},
      {.name = "clip", .type = RABBET_ATTR_FLOAT, .data = &clip, .count = 1},
      conformance_bool(t, "linear_before_reset", conformance_chance(t, 2)),
      conformance_bool(t, "input_forget", conformance_chance(t, 2))};
  c->tolerance = 1e-4;
  int32_t y = kernel_case_op(c, "rnn", attrs, sizeof attrs / sizeof *attrs,
                             inputs, RABBET_RNN_INPUTS);
  int64_t reads = conformance_random(t, 4);
  if (reads != 1) kernel_case_output(c, y);
  if (reads != 2) kernel_case_output(c, y + 1);
  if (reads != 3 && r.cell == RABBET_RNN_CELL_LSTM)
    kernel_case_output(c, y + 2);
}

const conformance_family_t conformance_recurrent[] = {
    {"rnn", 150, recurrent},
    {0},
};
