// Recurrent networks, step by step. Each step multiplies the states of all
// sequences by packed weights, which stay in the cache from step to step: one
// sequence is bound by the cache's bandwidth, several by multiplications.
// Threads share directions and sequences; where these are few and the weights
// many, the columns of each product.
#include "device/common/rnn.h"

#include <assert.h>
#include <math.h>
#include <string.h>

#include "core/view.h"
#include "device/cpu/cpu.h"
#include "device/cpu/parallel.h"
#include "device/cpu/vectors/vectors.h"

enum {
  ALIGNMENT = 64,
  FLOATS = ALIGNMENT / sizeof(float),
  MOST_PARTS = 2,
  // Sequences that a thread computes for its reading of the weights to pay.
  LEAST_SEQUENCES = 3,
  // Weights of a step, in bytes, that are worth waking a thread. Those of the
  // other steps find it awake, so that a quarter suffices to share them.
  THREAD_BYTES = 1 << 20,
};

typedef struct cpu_rnn_kernel_t {
  rabbet_node_kernel_t node;
  float* weights;  // of a constant, packed
  void* memory;
} cpu_rnn_kernel_t;

// Products of a step with some of the gates: those of a GRU's new state come
// after its other gates.
typedef struct rnn_part_t {
  int64_t first, count;  // columns
  int64_t panels;
  size_t weights;  // of a direction, in floats
} rnn_part_t;

typedef struct cpu_rnn_state_t {
  rabbet_rnn_t rnn;
  rabbet_dtype_t dtype, length_type;
  int64_t size;  // bytes of an element
  rnn_part_t parts[MOST_PARTS];
  int part_count;
  int64_t groups, group;     // of sequences: how many, and the size of each
  int64_t grain;             // panels of a thread
  size_t direction_weights;  // floats
  // Offsets in the workspace, in bytes.
  size_t weights, bias, peepholes, rows, floats;
  // Floats of a sequence in one direction, and what lies where among them.
  int64_t row_floats, c, sums, new_sums, reset;
} cpu_rnn_state_t;

// The pointers of a sequence in one direction.
typedef struct rnn_rows_t {
  const float** x;
  float** sums;
  int64_t* sequences;  // that have the current step
} rnn_rows_t;

static rabbet_status_t cpu_rnn_propose(const rabbet_propose_t* propose,
                                       rabbet_candidate_sink_t sink) {
  return rabbet_rnn_propose(propose, sink, &rabbet_cpu_rnn);
}

// ---- Packed weights --------------------------------------------------------

static int rnn_parts(const rabbet_rnn_t* r, rnn_part_t parts[MOST_PARTS]) {
  bool is_gru = r->cell == RABBET_RNN_CELL_GRU;
  int64_t first = 0;
  int count = is_gru ? 2 : 1;
  for (int i = 0; i < count; ++i) {
    int64_t gates = !is_gru ? r->gates : i == 0 ? 2 : 1;
    rnn_part_t* part = &parts[i];
    part->first = first;
    part->count = gates * r->hidden;
    part->panels = rabbet_ceildiv(part->count, (int64_t)RABBET_PANEL);
    part->weights = (size_t)(part->panels * RABBET_PANEL * r->hidden);
    first += part->count;
  }
  return count;
}

static size_t rnn_direction_weights(const rnn_part_t* parts, int count) {
  size_t floats = 0;
  for (int i = 0; i < count; ++i)
    floats += parts[i].weights;
  return floats;
}

// Row `column` of the recurrence becomes a column of a panel.
static void rnn_pack_column(const char* row, rabbet_dtype_t dtype,
                            int64_t count, float* panel) {
  rabbet_convert_fn_t convert = rabbet_vectors()->to_float[dtype];
  int64_t size = rabbet_dtype_bits(dtype) / 8;
  float room[RABBET_LANES];
  for (int64_t k = 0; k < count; k += RABBET_LANES) {
    int64_t lanes = rabbet_min_i64(RABBET_LANES, count - k);
    const void* from = row + k * size;
    if (convert) convert(from, room, lanes);
    const float* x = convert ? room : from;
    for (int64_t i = 0; i < lanes; ++i)
      panel[(k + i) * RABBET_PANEL] = x[i];
  }
}

static void rnn_pack(const rabbet_rnn_t* r, const char* weights,
                     rabbet_dtype_t dtype, float* packed) {
  rnn_part_t parts[MOST_PARTS];
  int count = rnn_parts(r, parts);
  int64_t size = rabbet_dtype_bits(dtype) / 8, panel = RABBET_PANEL * r->hidden;
  memset(packed, 0,
         (size_t)r->directions * rnn_direction_weights(parts, count) *
             sizeof(*packed));
  for (int32_t d = 0; d < r->directions; ++d) {
    for (int i = 0; i < count; ++i) {
      int64_t first = d * r->gates * r->hidden + parts[i].first;
      for (int64_t n = 0; n < parts[i].count; ++n)
        rnn_pack_column(weights + (first + n) * r->hidden * size, dtype,
                        r->hidden,
                        packed + n / RABBET_PANEL * panel + n % RABBET_PANEL);
      packed += parts[i].weights;
    }
  }
}

static rabbet_status_t rnn_pack_constant(cpu_rnn_kernel_t* kernel) {
  const rabbet_group_node_t* node = kernel->node.node;
  int32_t value = node->inputs[RABBET_RNN_RECURRENCE];
  const rabbet_group_value_t* weights = &kernel->node.group->values[value];
  const rabbet_dims_t* dims[RABBET_RNN_INPUTS] = {[RABBET_RNN_RECURRENCE] =
                                                      &weights->dims};
  rnn_part_t parts[MOST_PARTS];
  rabbet_rnn_t r;
  if (!weights->constant) return rabbet_ok();
  RABBET_RETURN_IF_ERROR(
      rabbet_rnn_read(node->attrs, node->op->attr_count, dims, &r));
  size_t floats =
      (size_t)r.directions * rnn_direction_weights(parts, rnn_parts(&r, parts));
  RABBET_RETURN_IF_ERROR(rabbet_allocate(kernel->node.allocator,
                                         floats * sizeof(float) + ALIGNMENT,
                                         &kernel->memory));
  kernel->node.base.kept_bytes = floats * sizeof(float);
  kernel->weights =
      (float*)rabbet_align_up((uintptr_t)kernel->memory, ALIGNMENT);
  rnn_pack(&r, weights->constant, weights->dtype, kernel->weights);
  int32_t input = rabbet_group_input_of(kernel->node.group, value);
  if (input < 64) kernel->node.base.own_constants = UINT64_C(1) << input;
  return rabbet_ok();
}

static void cpu_rnn_destroy(rabbet_kernel_t* base) {
  cpu_rnn_kernel_t* kernel = (cpu_rnn_kernel_t*)base;
  if (!kernel) return;
  rabbet_free(kernel->node.allocator, kernel->memory);
  rabbet_free(kernel->node.allocator, kernel);
}

static rabbet_status_t cpu_rnn_create(const rabbet_kernel_spec_t* spec,
                                      rabbet_kernel_t** out_kernel) {
  cpu_rnn_kernel_t* kernel = NULL;
  *out_kernel = NULL;
  RABBET_RETURN_IF_ERROR(
      rabbet_allocate(spec->allocator, sizeof(*kernel), (void**)&kernel));
  kernel->node =
      (rabbet_node_kernel_t){.base = {.kernel_class = &rabbet_cpu_rnn},
                             .allocator = spec->allocator,
                             .group = spec->group,
                             .node = &spec->group->nodes[0]};
  rabbet_status_t status = rnn_pack_constant(kernel);
  if (rabbet_is_ok(status))
    *out_kernel = &kernel->node.base;
  else
    cpu_rnn_destroy(&kernel->node.base);
  return status;
}

// ---- Geometry --------------------------------------------------------------

static int64_t rnn_aligned(int64_t floats) {
  return rabbet_ceildiv(floats, (int64_t)FLOATS) * FLOATS;
}

static void rnn_lay_out_row(cpu_rnn_state_t* state) {
  const rabbet_rnn_t* r = &state->rnn;
  int64_t hidden = rnn_aligned(r->hidden);
  state->c = hidden;
  state->sums = state->c + (r->cell == RABBET_RNN_CELL_LSTM ? hidden : 0);
  state->new_sums = state->sums + state->parts[0].panels * RABBET_PANEL;
  state->reset = state->new_sums;
  state->row_floats = state->new_sums;
  if (state->part_count < MOST_PARTS) return;
  state->reset += state->parts[1].panels * RABBET_PANEL;
  state->row_floats = state->reset + hidden;
}

static bool rnn_reserve(int64_t count, size_t size, size_t* total,
                        size_t* out_place) {
  size_t bytes = 0;
  *out_place = *total;
  if (!rabbet_checked_mul((size_t)count, size, &bytes) ||
      !rabbet_checked_add(*total, bytes, total) ||
      *total > PTRDIFF_MAX - ALIGNMENT)
    return false;
  *total = rabbet_align_up(*total, ALIGNMENT);
  return true;
}

static rabbet_status_t rnn_lay_out(cpu_rnn_state_t* state, bool packs,
                                   const char* layer, size_t* out_workspace) {
  const rabbet_rnn_t* r = &state->rnn;
  int64_t rows = r->directions * r->batch, columns = r->directions * r->hidden;
  int64_t converted = state->dtype == RABBET_DTYPE_FLOAT ? 0 : columns;
  size_t total = 0;
  rnn_lay_out_row(state);
  int64_t weights =
      packs ? r->directions * (int64_t)state->direction_weights : 0;
  bool fits =
      rnn_reserve(weights, sizeof(float), &total, &state->weights) &&
      rnn_reserve(converted * r->gates, sizeof(float), &total, &state->bias) &&
      rnn_reserve(converted * 3, sizeof(float), &total, &state->peepholes) &&
      rnn_reserve(rows, 2 * sizeof(float*) + sizeof(int64_t), &total,
                  &state->rows) &&
      state->row_floats < PTRDIFF_MAX / (int64_t)sizeof(float) &&
      rnn_reserve(rows, (size_t)state->row_floats * sizeof(float), &total,
                  &state->floats);
  *out_workspace = total;
  if (fits) return rabbet_ok();
  return RABBET_STATUS(RABBET_STATUS_OUT_OF_RANGE,
                       "layer '%s': %lld sequences with %lld hidden elements "
                       "are too many",
                       layer, (long long)r->batch, (long long)r->hidden);
}

static void rnn_share(cpu_rnn_state_t* state, int threads) {
  const rabbet_rnn_t* r = &state->rnn;
  int64_t slots = rabbet_cpu_slots(threads);
  int64_t bytes = (int64_t)(state->direction_weights * sizeof(float));
  int64_t most = rabbet_max_i64(1, r->batch / LEAST_SEQUENCES);
  state->groups =
      rabbet_min_i64(most, rabbet_ceildiv(slots, (int64_t)r->directions));
  state->group = rabbet_ceildiv(r->batch, state->groups);
  state->grain = INT64_MAX;  // one thread
  if (slots > state->groups * r->directions && bytes >= THREAD_BYTES / 4)
    state->grain = rabbet_max_i64(
        1, THREAD_BYTES / (RABBET_PANEL * (int64_t)sizeof(float) *
                           rabbet_max_i64(1, r->hidden)));
}

static rabbet_status_t cpu_rnn_prepare(rabbet_kernel_t* base,
                                       const rabbet_kernel_shapes_t* shapes,
                                       cpu_rnn_state_t** out_state,
                                       size_t* out_workspace) {
  const cpu_rnn_kernel_t* kernel = (const cpu_rnn_kernel_t*)base;
  const rabbet_group_node_t* node = kernel->node.node;
  const rabbet_group_value_t* values = kernel->node.group->values;
  int32_t lengths = rabbet_node_input(node, RABBET_RNN_LENGTHS);
  cpu_rnn_state_t* state = NULL;
  rabbet_rnn_t rnn;
  *out_workspace = 0;
  *out_state = NULL;
  RABBET_RETURN_IF_ERROR(rabbet_rnn_read_node(node, shapes->dims, &rnn));
  RABBET_RETURN_IF_ERROR(
      rabbet_node_state_allocate(base, sizeof(*state), (void**)&state));
  state->rnn = rnn;
  state->dtype = values[node->inputs[RABBET_RNN_INPUT]].dtype;
  state->length_type = lengths < 0 ? RABBET_DTYPE_NONE : values[lengths].dtype;
  state->size = rabbet_dtype_bits(state->dtype) / 8;
  state->part_count = rnn_parts(&rnn, state->parts);
  state->direction_weights =
      rnn_direction_weights(state->parts, state->part_count);
  rnn_share(state, shapes->threads);
  return rabbet_node_state_finish(
      base, state,
      rnn_lay_out(state, !kernel->weights, node->name, out_workspace),
      (void**)out_state);
}

// ---- A call ----------------------------------------------------------------

typedef struct rnn_call_t {
  const cpu_rnn_state_t* state;
  const rabbet_vectors_t* vectors;
  const char* in[RABBET_RNN_INPUTS];
  char* out[RABBET_RNN_OUTPUTS];
  const float *weights, *bias, *peepholes;  // of all directions
  char* rows;
  float* floats;
} rnn_call_t;

// Some sequences in one direction.
typedef struct rnn_run_t {
  const rnn_call_t* call;
  int32_t direction;
  int64_t first, end;  // sequences
  rnn_rows_t rows;
  int64_t count;  // rows of the current step
} rnn_run_t;

static void rnn_convert(const rnn_call_t* call, const void* from, int64_t count,
                        float* to) {
  rabbet_convert_fn_t convert = call->vectors->to_float[call->state->dtype];
  if (!convert) memcpy(to, from, (size_t)count * sizeof(*to));
  for (int64_t i = 0; convert && i < count; i += RABBET_LANES)
    convert((const char*)from + i * call->state->size, to + i,
            rabbet_min_i64(RABBET_LANES, count - i));
}

static void rnn_store(const rnn_call_t* call, const float* from, int64_t count,
                      char* to) {
  rabbet_convert_fn_t convert = call->vectors->from_float[call->state->dtype];
  if (!convert) memcpy(to, from, (size_t)count * sizeof(*from));
  for (int64_t i = 0; convert && i < count; i += RABBET_LANES)
    convert(from + i, to + i * call->state->size,
            rabbet_min_i64(RABBET_LANES, count - i));
}

// An input as FLOAT; `room` where it is of another type.
static const float* rnn_floats(const rnn_call_t* call, size_t input,
                               int64_t count, void* room) {
  const char* from = call->in[input];
  if (!from || call->state->dtype == RABBET_DTYPE_FLOAT)
    return (const float*)(const void*)from;
  rnn_convert(call, from, count, room);
  return room;
}

static float* rnn_row(const rnn_run_t* run, int64_t sequence) {
  const cpu_rnn_state_t* state = run->call->state;
  return run->call->floats +
         (run->direction * state->rnn.batch + sequence) * state->row_floats;
}

static int64_t rnn_length(const rnn_call_t* call, int64_t sequence) {
  const rabbet_rnn_t* r = &call->state->rnn;
  if (!call->in[RABBET_RNN_LENGTHS]) return r->steps;
  return rabbet_rnn_length(
      r, rabbet_load_int64(call->state->length_type,
                           call->in[RABBET_RNN_LENGTHS], sequence));
}

static void rnn_add(const float* restrict x, int64_t count, float* restrict y) {
  for (int64_t i = 0; i < count; ++i)
    y[i] += x[i];
}
static void rnn_add_product(const float* restrict a, const float* restrict b,
                            int64_t count, float* restrict y) {
  for (int64_t i = 0; i < count; ++i)
    y[i] += a[i] * b[i];
}

// ---- Steps -----------------------------------------------------------------

static void rnn_apply(const rnn_run_t* run, int index, float clip,
                      int64_t count, float* x) {
  const rabbet_rnn_function_t* function =
      &run->call->state->rnn.functions[run->direction][index];
  if (clip < INFINITY)
    for (int64_t i = 0; i < count; ++i)
      x[i] = x[i] < -clip ? -clip : x[i] > clip ? clip : x[i];
  if (run->call->vectors->activate(function, count, x)) return;
  for (int64_t i = 0; i < count; ++i)
    x[i] = (float)rabbet_rnn_apply(function, x[i]);
}

// The sums begin with the input's part and the bias.
static void rnn_begin_row(const rnn_run_t* run, float* row, int64_t step,
                          int64_t sequence) {
  const rnn_call_t* call = run->call;
  const cpu_rnn_state_t* state = call->state;
  const rabbet_rnn_t* r = &state->rnn;
  int64_t count = state->parts[0].count, gates = r->gates * r->hidden;
  const char* x =
      call->in[RABBET_RNN_INPUT] +
      (rabbet_rnn_row(r, step, sequence) * r->directions + run->direction) *
          gates * state->size;
  const float* bias = call->bias ? call->bias + run->direction * gates : NULL;
  rnn_convert(call, x, count, row + state->sums);
  if (bias) rnn_add(bias, count, row + state->sums);
  if (r->cell != RABBET_RNN_CELL_GRU) return;
  x += count * state->size;
  if (r->linear_before_reset) {
    rnn_convert(call, x, r->hidden, row + state->reset);
    memset(row + state->new_sums, 0, (size_t)r->hidden * sizeof(*row));
  } else {
    rnn_convert(call, x, r->hidden, row + state->new_sums);
  }
  if (bias) rnn_add(bias + count, r->hidden, row + state->new_sums);
}

// Gates that nothing else is added to: all but an LSTM's that see the cell.
static bool rnn_gates_are_sums(const rnn_run_t* run) {
  return run->call->state->rnn.cell != RABBET_RNN_CELL_LSTM ||
         !run->call->peepholes;
}

// Applies the functions to sums `begin` to `end` - 1 of the first part.
static void rnn_apply_gates(const rnn_run_t* run, int64_t begin, int64_t end,
                            float* sums) {
  const rabbet_rnn_t* r = &run->call->state->rnn;
  int64_t count = run->call->state->parts[0].count;
  bool is_lstm = r->cell == RABBET_RNN_CELL_LSTM;
  int64_t border = is_lstm ? 3 * r->hidden : count;
  int64_t first = rabbet_min_i64(end, border) - begin;
  int64_t from = rabbet_max_i64(begin, border);
  int64_t rest = rabbet_min_i64(end, count) - from;
  if (first > 0) rnn_apply(run, 0, r->clip, first, sums + begin);
  if (rest > 0) rnn_apply(run, 1, r->clip, rest, sums + from);
}

typedef struct rnn_product_t {
  const rnn_run_t* run;
  const rnn_part_t* part;
  const float* weights;
  bool makes_gates;
} rnn_product_t;

static void rnn_panels(void* context, int64_t begin, int64_t end) {
  const rnn_product_t* p = context;
  const rnn_run_t* run = p->run;
  int64_t hidden = run->call->state->rnn.hidden;
  for (int64_t i = begin; i < end; ++i) {
    const rabbet_panel_t panel = {
        .weights = p->weights + i * RABBET_PANEL * hidden,
        .count = hidden,
        .column = i * RABBET_PANEL,
        .width = RABBET_PANEL};
    run->call->vectors->panel_products(run->rows.x, run->rows.sums, run->count,
                                       &panel);
  }
  for (int64_t i = 0; p->makes_gates && i < run->count; ++i)
    rnn_apply_gates(run, begin * RABBET_PANEL, end * RABBET_PANEL,
                    run->rows.sums[i]);
}

// Multiplies element `x` of the rows by a part of the weights, to `sums`.
static void rnn_multiply(const rnn_run_t* run, int index, int64_t x,
                         int64_t sums) {
  const cpu_rnn_state_t* state = run->call->state;
  rnn_product_t product = {
      .run = run,
      .part = &state->parts[index],
      .makes_gates = index == 0 && rnn_gates_are_sums(run),
      .weights = run->call->weights +
                 (size_t)run->direction * state->direction_weights};
  for (int i = 0; i < index; ++i)
    product.weights += state->parts[i].weights;
  for (int64_t i = 0; i < run->count; ++i) {
    float* row = rnn_row(run, run->rows.sequences[i]);
    run->rows.x[i] = row + x;
    run->rows.sums[i] = row + sums;
  }
  rabbet_cpu_parallel(product.part->panels, state->grain, rnn_panels, &product);
}

static void rnn_simple_step(const rnn_run_t* run, float* row) {
  const cpu_rnn_state_t* state = run->call->state;
  memcpy(row, row + state->sums, (size_t)state->rnn.hidden * sizeof(*row));
}

static void rnn_gru_reset(const rnn_run_t* run, float* row) {
  const cpu_rnn_state_t* state = run->call->state;
  int64_t hidden = state->rnn.hidden;
  const float* gates = row + state->sums;
  if (state->rnn.linear_before_reset) return;
  float* reset = row + state->reset;
  memset(reset, 0, (size_t)hidden * sizeof(*reset));
  rnn_add_product(gates + hidden, row, hidden, reset);
}

static void rnn_gru_step(const rnn_run_t* run, float* row) {
  const cpu_rnn_state_t* state = run->call->state;
  int64_t hidden = state->rnn.hidden;
  const float* restrict update = row + state->sums;
  float* new = row + state->new_sums;
  if (state->rnn.linear_before_reset) {
    float* sum = row + state->reset;  // the input's part so far
    rnn_add_product(update + hidden, new, hidden, sum);
    new = sum;
  }
  rnn_apply(run, 1, state->rnn.clip, hidden, new);
  for (int64_t i = 0; i < hidden; ++i)
    row[i] = new[i] + update[i] * (row[i] - new[i]);
}

// Adds what the gates see of the cell.
static void rnn_lstm_peepholes(const rnn_run_t* run, float* row) {
  const cpu_rnn_state_t* state = run->call->state;
  int64_t hidden = state->rnn.hidden;
  float *gates = row + state->sums, clip = state->rnn.clip;
  const float* peepholes = run->call->peepholes + run->direction * 3 * hidden;
  rnn_add_product(peepholes, row + state->c, hidden, gates);
  rnn_add_product(peepholes + 2 * hidden, row + state->c, hidden,
                  gates + 2 * hidden);
  rnn_apply(run, 0, clip, hidden, gates);
  rnn_apply(run, 0, clip, hidden, gates + 2 * hidden);
  rnn_apply(run, 1, clip, hidden, gates + 3 * hidden);
}

static void rnn_lstm_cell(int64_t hidden, bool input_forget,
                          const float* restrict gates, float* restrict c) {
  const float *in = gates, *forget = gates + 2 * hidden;
  const float* new = gates + 3 * hidden;
  for (int64_t i = 0; i < hidden; ++i) {
    float kept = input_forget ? 1 - in[i] : forget[i];
    c[i] = kept * c[i] + in[i] * new[i];
  }
}

static void rnn_lstm_step(const rnn_run_t* run, float* row) {
  const cpu_rnn_state_t* state = run->call->state;
  int64_t hidden = state->rnn.hidden;
  float *gates = row + state->sums, *c = row + state->c;
  float* restrict out = gates + hidden;
  const float* peepholes = run->call->peepholes;
  if (peepholes) rnn_lstm_peepholes(run, row);
  rnn_lstm_cell(hidden, state->rnn.input_forget, gates, c);
  if (peepholes) {
    rnn_add_product(peepholes + (run->direction * 3 + 1) * hidden, c, hidden,
                    out);
    rnn_apply(run, 0, state->rnn.clip, hidden, out);
  }
  memcpy(row, c, (size_t)hidden * sizeof(*row));
  rnn_apply(run, 2, INFINITY, hidden, row);
  for (int64_t i = 0; i < hidden; ++i)
    row[i] *= out[i];
}

static void rnn_end_row(const rnn_run_t* run, float* row) {
  switch (run->call->state->rnn.cell) {
    case RABBET_RNN_CELL_LSTM:
      rnn_lstm_step(run, row);
      break;
    case RABBET_RNN_CELL_GRU:
      rnn_gru_step(run, row);
      break;
    default:
      rnn_simple_step(run, row);
  }
}

static char* rnn_output(const rnn_run_t* run, int64_t step, int64_t sequence) {
  const cpu_rnn_state_t* state = run->call->state;
  const rabbet_rnn_t* r = &state->rnn;
  return run->call->out[RABBET_RNN_OUTPUT] +
         (rabbet_rnn_row(r, step, sequence) * r->directions + run->direction) *
             r->hidden * state->size;
}

// Step `i` of the run's sequences that are longer.
static void rnn_step(rnn_run_t* run, int64_t i) {
  const rnn_call_t* call = run->call;
  const cpu_rnn_state_t* state = call->state;
  const rabbet_rnn_t* r = &state->rnn;
  run->count = 0;
  for (int64_t b = run->first; b < run->end; ++b) {
    int64_t length = rnn_length(call, b);
    if (i >= length) continue;
    rnn_begin_row(run, rnn_row(run, b),
                  rabbet_rnn_step(r, run->direction, i, length), b);
    run->rows.sequences[run->count++] = b;
  }
  bool resets = r->cell == RABBET_RNN_CELL_GRU;
  rnn_multiply(run, 0, 0, state->sums);
  for (int64_t k = 0; resets && k < run->count; ++k)
    rnn_gru_reset(run, rnn_row(run, run->rows.sequences[k]));
  if (resets)
    rnn_multiply(run, 1, r->linear_before_reset ? 0 : state->reset,
                 state->new_sums);
  for (int64_t k = 0; k < run->count; ++k) {
    int64_t b = run->rows.sequences[k];
    float* row = rnn_row(run, b);
    rnn_end_row(run, row);
    if (!call->out[RABBET_RNN_OUTPUT]) continue;
    int64_t step = rabbet_rnn_step(r, run->direction, i, rnn_length(call, b));
    rnn_store(call, row, r->hidden, rnn_output(run, step, b));
  }
}

// ---- Sequences -------------------------------------------------------------

static void rnn_begin_sequence(const rnn_run_t* run, int64_t sequence,
                               size_t input, float* to) {
  const rnn_call_t* call = run->call;
  int64_t hidden = call->state->rnn.hidden;
  int64_t at = rabbet_rnn_state(&call->state->rnn, run->direction, sequence);
  if (call->in[input])
    rnn_convert(call, call->in[input] + at * hidden * call->state->size, hidden,
                to);
  else
    memset(to, 0, (size_t)hidden * sizeof(*to));
}

static void rnn_end_sequence(const rnn_run_t* run, int64_t sequence,
                             size_t output, const float* from) {
  const rnn_call_t* call = run->call;
  int64_t hidden = call->state->rnn.hidden, size = call->state->size;
  int64_t at = rabbet_rnn_state(&call->state->rnn, run->direction, sequence);
  if (!call->out[output]) return;
  char* to = call->out[output] + at * hidden * size;
  if (rnn_length(call, sequence) > 0)
    rnn_store(call, from, hidden, to);
  else
    memset(to, 0, (size_t)(hidden * size));
}

static void rnn_run(rnn_run_t* run) {
  const rnn_call_t* call = run->call;
  const cpu_rnn_state_t* state = call->state;
  const rabbet_rnn_t* r = &state->rnn;
  bool has_cell = r->cell == RABBET_RNN_CELL_LSTM;
  int64_t longest = 0;
  for (int64_t b = run->first; b < run->end; ++b) {
    int64_t length = rnn_length(call, b);
    longest = rabbet_max_i64(longest, length);
    rnn_begin_sequence(run, b, RABBET_RNN_HIDDEN, rnn_row(run, b));
    if (has_cell)
      rnn_begin_sequence(run, b, RABBET_RNN_CELL, rnn_row(run, b) + state->c);
    for (int64_t i = length; call->out[RABBET_RNN_OUTPUT] && i < r->steps; ++i)
      memset(rnn_output(run, i, b), 0, (size_t)(r->hidden * state->size));
  }
  for (int64_t i = 0; i < longest; ++i)
    rnn_step(run, i);
  for (int64_t b = run->first; b < run->end; ++b) {
    rnn_end_sequence(run, b, RABBET_RNN_LAST_HIDDEN, rnn_row(run, b));
    if (has_cell)
      rnn_end_sequence(run, b, RABBET_RNN_LAST_CELL,
                       rnn_row(run, b) + state->c);
  }
}

static void rnn_runs(void* context, int64_t begin, int64_t end) {
  const rnn_call_t* call = context;
  const cpu_rnn_state_t* state = call->state;
  int64_t batch = state->rnn.batch;
  for (int64_t i = begin; i < end; ++i) {
    rnn_run_t run = {.call = call,
                     .direction = (int32_t)(i / state->groups),
                     .first = i % state->groups * state->group};
    run.end = rabbet_min_i64(run.first + state->group, batch);
    int64_t rows = state->rnn.directions * batch;
    int64_t at = run.direction * batch + run.first;
    run.rows.sequences = (int64_t*)(void*)call->rows + at;
    run.rows.x =
        (const float**)(void*)((int64_t*)(void*)call->rows + rows) + at;
    run.rows.sums =
        (float**)(void*)((int64_t*)(void*)call->rows + rows) + rows + at;
    rnn_run(&run);
  }
}

static rabbet_status_t cpu_rnn_enqueue(rabbet_kernel_t* base,
                                       cpu_rnn_state_t* state,
                                       const rabbet_kernel_call_t* call) {
  const cpu_rnn_kernel_t* kernel = (const cpu_rnn_kernel_t*)base;
  const rabbet_rnn_t* r = &state->rnn;
  char* workspace = call->workspace;
  int64_t columns = r->directions * r->hidden;
  rnn_call_t run = {.state = state,
                    .vectors = rabbet_vectors(),
                    .weights = kernel->weights,
                    .rows = workspace + state->rows,
                    .floats = (float*)(void*)(workspace + state->floats)};
  if (r->batch == 0) return rabbet_ok();
  for (size_t i = 0; i < RABBET_RNN_INPUTS; ++i)
    run.in[i] = rabbet_node_input_at(&kernel->node, call, i);
  for (size_t i = 0; i < RABBET_RNN_OUTPUTS; ++i)
    run.out[i] = rabbet_node_output(&kernel->node, call, i);
  run.bias = rnn_floats(&run, RABBET_RNN_BIAS, columns * r->gates,
                        workspace + state->bias);
  run.peepholes = rnn_floats(&run, RABBET_RNN_PEEPHOLES, columns * 3,
                             workspace + state->peepholes);
  if (!run.weights) {
    float* packed = (float*)(void*)(workspace + state->weights);
    rnn_pack(r, run.in[RABBET_RNN_RECURRENCE], state->dtype, packed);
    run.weights = packed;
  }
  rabbet_cpu_parallel(r->directions * state->groups, 1, rnn_runs, &run);
  return rabbet_ok();
}

RABBET_TAKES_NODE(cpu_rnn, RNN, RABBET_TAKES_UNREAD)

RABBET_NODE_TABLE(cpu_rnn, "cpu.rnn", 1, .destroy = cpu_rnn_destroy);
