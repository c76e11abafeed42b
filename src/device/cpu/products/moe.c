// A mixture of experts. Pairs of a token and an expert are sorted by expert, so
// the weights of each chosen expert are read once for every MOST_PAIRS pairs,
// and those of other experts never. Few tokens are bound by the bytes of the
// weights, many by multiplications.
#include "device/common/moe.h"

#include <assert.h>
#include <string.h>

#include "core/view.h"
#include "device/cpu/cpu.h"
#include "device/cpu/parallel.h"
#include "device/cpu/vectors/vectors.h"

// Columns and rows of the weights' tile that a thread works on; the most pairs
// of a part, which have workspace.
enum { COLUMNS = 64, STEPS = 128, MOST_PAIRS = 4096 };

typedef struct cpu_moe_state_t {
  rabbet_moe_sizes_t sizes;
  rabbet_moe_attrs_t attrs;
  rabbet_dtype_t dtype, index_type, scale_type;
  int64_t step;   // tokens of a part
  int64_t pairs;  // pairs of a part
  // Offsets in the workspace, in bytes.
  size_t x, gate, up, down, order, place, starts;
} cpu_moe_state_t;

static rabbet_status_t cpu_moe_propose(const rabbet_propose_t* propose,
                                       rabbet_candidate_sink_t sink) {
  return rabbet_moe_propose(propose, sink, &rabbet_cpu_moe);
}

static rabbet_status_t moe_lay_out(cpu_moe_state_t* state, const char* layer,
                                   size_t* out_workspace) {
  const rabbet_moe_sizes_t* s = &state->sizes;
  int64_t chosen = rabbet_max_i64(s->chosen, 1), p = 0;
  size_t total = 0;
  state->step = rabbet_max_i64(1, MOST_PAIRS / chosen);
  state->step = rabbet_min_i64(state->step, rabbet_max_i64(s->tokens, 1));
  p = state->pairs = state->step * s->chosen;
  int64_t own = state->dtype == RABBET_DTYPE_FLOAT ? 0 : state->step;
  int64_t inner_rows = s->is_gated ? p : 0;
  bool fits =
      rabbet_moe_reserve(64, own, rabbet_moe_width(s), sizeof(float), &total,
                         &state->x) &&
      rabbet_moe_reserve(64, inner_rows, s->inner, sizeof(float), &total,
                         &state->gate) &&
      rabbet_moe_reserve(64, inner_rows, s->inner, sizeof(float), &total,
                         &state->up) &&
      rabbet_moe_reserve(64, p, s->hidden, sizeof(float), &total,
                         &state->down) &&
      rabbet_moe_reserve(64, p, 1, sizeof(int64_t), &total, &state->order) &&
      rabbet_moe_reserve(64, p, 1, sizeof(int64_t), &total, &state->place) &&
      rabbet_moe_reserve(64, s->experts + 1, 1, sizeof(int64_t), &total,
                         &state->starts);
  *out_workspace = total;
  if (fits) return rabbet_ok();
  return RABBET_STATUS(RABBET_STATUS_OUT_OF_RANGE,
                       "layer '%s': the experts are too large", layer);
}

static rabbet_status_t cpu_moe_prepare(rabbet_kernel_t* base,
                                       const rabbet_kernel_shapes_t* shapes,
                                       cpu_moe_state_t** out_state,
                                       size_t* out_workspace) {
  const rabbet_node_kernel_t* kernel = (const rabbet_node_kernel_t*)base;
  const rabbet_group_node_t* node = kernel->node;
  const rabbet_group_value_t* values = kernel->group->values;
  int32_t scale = rabbet_node_input(node, RABBET_MOE_SCALE);
  rabbet_moe_sizes_t sizes;
  cpu_moe_state_t* state = NULL;
  *out_workspace = 0;
  *out_state = NULL;
  RABBET_RETURN_IF_ERROR(rabbet_moe_check_types(kernel->group, node));
  RABBET_RETURN_IF_ERROR(rabbet_moe_resolve_node(node, shapes->dims, &sizes));
  RABBET_RETURN_IF_ERROR(
      rabbet_node_state_allocate(base, sizeof(*state), (void**)&state));
  state->sizes = sizes;
  state->dtype = values[node->inputs[RABBET_MOE_HIDDEN]].dtype;
  state->index_type = values[node->inputs[RABBET_MOE_EXPERTS]].dtype;
  state->scale_type = scale < 0 ? RABBET_DTYPE_NONE : values[scale].dtype;
  rabbet_moe_read_attrs(node->attrs, node->op->attr_count, sizes.inner,
                        &state->attrs);
  return rabbet_node_state_finish(base, state,
                                  moe_lay_out(state, node->name, out_workspace),
                                  (void**)out_state);
}

// ---- Pairs -----------------------------------------------------------------

typedef struct moe_call_t {
  const cpu_moe_state_t* state;
  const rabbet_vectors_t* vectors;
  const char* in[RABBET_MOE_INPUTS];
  char* output;
  int64_t size;    // bytes of an element
  int64_t first;   // token
  int64_t tokens;  // of this part
  float scale;     // for quantization
  const float* x;  // [tokens][hidden], or [inner] without a gate
  float *gate, *up, *down;
  int64_t* order;   // pairs by expert
  int64_t* place;   // of a pair in that order; -1: its expert does not exist
  int64_t* starts;  // of each expert's pairs
} moe_call_t;

static int64_t moe_expert(const moe_call_t* call, int64_t pair) {
  const rabbet_moe_sizes_t* s = &call->state->sizes;
  int64_t expert =
      rabbet_load_int64(call->state->index_type, call->in[RABBET_MOE_EXPERTS],
                        call->first * s->chosen + pair);
  return expert >= 0 && expert < s->experts ? expert : -1;
}

static void moe_sort(const moe_call_t* call) {
  const rabbet_moe_sizes_t* s = &call->state->sizes;
  int64_t pairs = call->tokens * s->chosen, *starts = call->starts;
  memset(starts, 0, (size_t)(s->experts + 1) * sizeof(*starts));
  for (int64_t i = 0; i < pairs; ++i)
    if (moe_expert(call, i) >= 0) ++starts[moe_expert(call, i) + 1];
  for (int64_t e = 0; e < s->experts; ++e)
    starts[e + 1] += starts[e];
  // Each start has moved to the end of its expert's pairs.
  for (int64_t i = 0; i < pairs; ++i) {
    int64_t expert = moe_expert(call, i);
    call->place[i] = expert < 0 ? -1 : starts[expert]++;
    if (expert >= 0) call->order[call->place[i]] = i;
  }
  assert(s->experts == 0 || starts[s->experts - 1] == starts[s->experts]);
  memmove(starts + 1, starts, (size_t)s->experts * sizeof(*starts));
  starts[0] = 0;
}

// ---- Products --------------------------------------------------------------

// A product with one matrix of each expert: from `count` elements to `width`.
typedef struct moe_product_t {
  const moe_call_t* call;
  size_t weights;
  int64_t count, width;
  const float* x;  // of a token, or of a place in the order of pairs
  bool by_token;
  float* sums;  // by place
} moe_product_t;

static const float* moe_row(const moe_product_t* p, int64_t place) {
  const moe_call_t* call = p->call;
  int64_t row =
      p->by_token ? call->order[place] / call->state->sizes.chosen : place;
  assert(row >= 0 && (!p->by_token || row < call->tokens));
  return p->x + row * p->count;
}

// A tile of the weights as FLOAT; *out_stride: the stride of its rows.
static const float* moe_tile(const moe_product_t* p, int64_t expert, int64_t k,
                             int64_t steps, int64_t column, int64_t width,
                             float* room, int64_t* out_stride) {
  const moe_call_t* call = p->call;
  rabbet_convert_fn_t convert = call->vectors->to_float[call->state->dtype];
  const char* from = call->in[p->weights] +
                     ((expert * p->count + k) * p->width + column) * call->size;
  assert(steps <= STEPS && width <= COLUMNS && column + width <= p->width);
  *out_stride = convert ? COLUMNS : p->width;
  if (!convert) return (const float*)(const void*)from;
  for (int64_t i = 0; i < steps; ++i)
    convert(from + i * p->width * call->size, room + i * COLUMNS, width);
  return room;
}

// Computes some columns for all pairs of an expert.
static void moe_multiply(const moe_product_t* p, int64_t expert, int64_t column,
                         int64_t width) {
  const int64_t* starts = p->call->starts;
  float room[STEPS * COLUMNS];
  for (int64_t r = starts[expert]; r < starts[expert + 1]; ++r)
    memset(p->sums + r * p->width + column, 0, (size_t)width * sizeof(float));
  for (int64_t k = 0; k < p->count; k += STEPS) {
    int64_t steps = rabbet_min_i64(STEPS, p->count - k), stride = 0;
    const float* w =
        moe_tile(p, expert, k, steps, column, width, room, &stride);
    for (int64_t r = starts[expert]; r < starts[expert + 1];
         r += RABBET_PRODUCT_ROWS) {
      const float* rows[RABBET_PRODUCT_ROWS];
      int count =
          (int)rabbet_min_i64(RABBET_PRODUCT_ROWS, starts[expert + 1] - r);
      for (int i = 0; i < count; ++i)
        rows[i] = moe_row(p, r + i) + k;
      p->call->vectors->products(rows, count, w, stride, steps, width,
                                 p->sums + r * p->width + column, p->width);
    }
  }
}

static float moe_bias(const moe_call_t* call, size_t input, int64_t at) {
  if (!call->in[input]) return 0;
  return (float)rabbet_load_double(call->state->dtype, call->in[input], at);
}

static void moe_inner_part(void* context, int64_t begin, int64_t end) {
  const moe_call_t* call = context;
  const rabbet_moe_sizes_t* s = &call->state->sizes;
  int64_t tiles = rabbet_ceildiv(s->inner, (int64_t)COLUMNS);
  moe_product_t gate = {.call = call,
                        .weights = RABBET_MOE_GATE,
                        .count = s->hidden,
                        .width = s->inner,
                        .x = call->x,
                        .by_token = true,
                        .sums = call->gate};
  moe_product_t up = gate;
  up.weights = RABBET_MOE_UP;
  up.sums = call->up;
  for (int64_t i = begin; i < end; ++i) {
    int64_t expert = i / tiles, column = i % tiles * COLUMNS;
    int64_t width = rabbet_min_i64(COLUMNS, s->inner - column);
    if (call->starts[expert] == call->starts[expert + 1]) continue;
    moe_multiply(&gate, expert, column, width);
    moe_multiply(&up, expert, column, width);
    for (int64_t c = column; c < column + width; ++c) {
      float g = moe_bias(call, RABBET_MOE_GATE_BIAS, expert * s->inner + c);
      float u = moe_bias(call, RABBET_MOE_UP_BIAS, expert * s->inner + c);
      for (int64_t r = call->starts[expert]; r < call->starts[expert + 1]; ++r)
        call->gate[r * s->inner + c] = rabbet_moe_activate(
            &call->state->attrs, call->gate[r * s->inner + c] + g,
            call->up[r * s->inner + c] + u);
    }
  }
}

static void moe_round_part(void* context, int64_t begin, int64_t end) {
  const moe_call_t* call = context;
  int64_t inner = call->state->sizes.inner;
  for (int64_t r = begin; r < end; ++r)
    rabbet_moe_quantize(&call->state->attrs.quantization, call->scale,
                        call->gate + r * inner, inner);
}

static void moe_down_part(void* context, int64_t begin, int64_t end) {
  const moe_call_t* call = context;
  const rabbet_moe_sizes_t* s = &call->state->sizes;
  int64_t tiles = rabbet_ceildiv(s->hidden, (int64_t)COLUMNS);
  const moe_product_t down = {.call = call,
                              .weights = RABBET_MOE_DOWN,
                              .count = s->inner,
                              .width = s->hidden,
                              .x = s->is_gated ? call->gate : call->x,
                              .by_token = !s->is_gated,
                              .sums = call->down};
  for (int64_t i = begin; i < end; ++i) {
    int64_t expert = i / tiles, column = i % tiles * COLUMNS;
    int64_t width = rabbet_min_i64(COLUMNS, s->hidden - column);
    if (call->starts[expert] < call->starts[expert + 1])
      moe_multiply(&down, expert, column, width);
  }
}

// ---- Tokens ----------------------------------------------------------------

static float moe_score(const moe_call_t* call, int64_t pair) {
  const char* scores = call->in[RABBET_MOE_SCORES];
  if (!scores) return 1;
  return (float)rabbet_load_double(call->state->dtype, scores, pair);
}

// Computes elements [k, k + count) of a token's result, at most RABBET_LANES.
static void moe_sum(const moe_call_t* call, int64_t token, int64_t k,
                    int64_t count) {
  const cpu_moe_state_t* state = call->state;
  const rabbet_moe_sizes_t* s = &state->sizes;
  const rabbet_vectors_t* vectors = call->vectors;
  const char* biases = call->in[RABBET_MOE_DOWN_BIAS];
  rabbet_convert_fn_t to_float = vectors->to_float[state->dtype];
  float sum[RABBET_LANES] = {0}, room[RABBET_LANES];
  for (int64_t c = 0; c < s->chosen; ++c) {
    int64_t pair = token * s->chosen + c, place = call->place[pair];
    if (place < 0) continue;
    float score = moe_score(call, call->first * s->chosen + pair);
    vectors->weigh(call->down + place * s->hidden + k, score, true, count, sum);
    if (!biases) continue;
    const char* from =
        biases + (moe_expert(call, pair) * s->hidden + k) * call->size;
    if (to_float) to_float(from, room, count);
    vectors->weigh(to_float ? room : (const float*)(const void*)from, score,
                   true, count, sum);
  }
  char* to =
      call->output + ((call->first + token) * s->hidden + k) * call->size;
  if (to_float)
    vectors->from_float[state->dtype](sum, to, count);
  else
    memcpy(to, sum, (size_t)count * sizeof(float));
}

static void moe_sum_part(void* context, int64_t begin, int64_t end) {
  const moe_call_t* call = context;
  int64_t hidden = call->state->sizes.hidden;
  for (int64_t token = begin; token < end; ++token)
    for (int64_t k = 0; k < hidden; k += RABBET_LANES)
      moe_sum(call, token, k, rabbet_min_i64(RABBET_LANES, hidden - k));
}

static void moe_run(moe_call_t* call) {
  const cpu_moe_state_t* state = call->state;
  const rabbet_moe_sizes_t* s = &state->sizes;
  int64_t grain = RABBET_CPU_GRAIN_BYTES / (int64_t)sizeof(float);
  moe_sort(call);
  int64_t pairs = call->starts[s->experts];
  int64_t rows = rabbet_max_i64(
      1, pairs / rabbet_max_i64(1, rabbet_min_i64(pairs, s->experts)));
  int64_t work = rabbet_max_i64(1, s->hidden * COLUMNS * rows);
  if (s->is_gated)
    rabbet_cpu_parallel(s->experts * rabbet_ceildiv(s->inner, (int64_t)COLUMNS),
                        rabbet_ceildiv(grain, work), moe_inner_part, call);
  if (state->attrs.quantization.to != RABBET_DTYPE_FLOAT)
    rabbet_cpu_parallel(pairs,
                        rabbet_ceildiv(grain / 8, rabbet_max_i64(1, s->inner)),
                        moe_round_part, call);
  work = rabbet_max_i64(1, s->inner * COLUMNS * rows);
  rabbet_cpu_parallel(s->experts * rabbet_ceildiv(s->hidden, (int64_t)COLUMNS),
                      rabbet_ceildiv(grain, work), moe_down_part, call);
  rabbet_cpu_parallel(call->tokens,
                      rabbet_ceildiv(grain / 4, rabbet_max_i64(1, s->hidden)),
                      moe_sum_part, call);
}

// Converts the hidden states to FLOAT.
static void moe_begin(moe_call_t* call, char* workspace) {
  const cpu_moe_state_t* state = call->state;
  const rabbet_moe_sizes_t* s = &state->sizes;
  rabbet_convert_fn_t convert = call->vectors->to_float[state->dtype];
  int64_t width = rabbet_moe_width(s);
  const char* from =
      call->in[RABBET_MOE_HIDDEN] + call->first * width * call->size;
  call->x = (const float*)(const void*)(convert ? workspace + state->x : from);
  int64_t count = convert ? call->tokens * width : 0;
  for (int64_t i = 0; i < count; i += RABBET_LANES)
    convert(from + i * call->size, (float*)(void*)(workspace + state->x) + i,
            rabbet_min_i64(RABBET_LANES, count - i));
}

static rabbet_status_t cpu_moe_enqueue(rabbet_kernel_t* base,
                                       cpu_moe_state_t* state,
                                       const rabbet_kernel_call_t* call) {
  const rabbet_node_kernel_t* kernel = (const rabbet_node_kernel_t*)base;
  char* workspace = call->workspace;
  moe_call_t run = {.state = state,
                    .vectors = rabbet_vectors(),
                    .output = rabbet_node_output(kernel, call, 0),
                    .size = rabbet_dtype_bits(state->dtype) / 8,
                    .gate = (float*)(void*)(workspace + state->gate),
                    .up = (float*)(void*)(workspace + state->up),
                    .down = (float*)(void*)(workspace + state->down),
                    .order = (int64_t*)(void*)(workspace + state->order),
                    .place = (int64_t*)(void*)(workspace + state->place),
                    .starts = (int64_t*)(void*)(workspace + state->starts)};
  for (size_t i = 0; i < RABBET_MOE_INPUTS; ++i)
    run.in[i] = rabbet_node_input_at(kernel, call, i);
  if (state->scale_type != RABBET_DTYPE_NONE)
    run.scale = (float)rabbet_load_double(state->scale_type,
                                          run.in[RABBET_MOE_SCALE], 0);
  for (; run.first < state->sizes.tokens; run.first += state->step) {
    run.tokens = rabbet_min_i64(state->step, state->sizes.tokens - run.first);
    moe_begin(&run, workspace);
    moe_run(&run);
  }
  return rabbet_ok();
}

RABBET_TAKES_NODE(cpu_moe, MOE, 0)

RABBET_NODE_CLASS(cpu_moe, "cpu.moe", 1);
