// Resizing, row by row of the output. A nearest row is copied element by
// element. An interpolated one is the weighted sum of rows of the input (over
// all axes but the last), and is then interpolated along the last axis.
#include "device/common/resize.h"

#include <assert.h>
#include <math.h>

#include "device/cpu/cpu.h"
#include "device/cpu/movement/move.h"
#include "device/cpu/parallel.h"

// The most rows of the input that one row of the output depends on.
enum { MOST_ROWS = 256 };

typedef struct cpu_resize_state_t {
  rabbet_resize_plan_t plan;
  rabbet_dtype_t dtype;
  int64_t size;    // bytes of an element
  int64_t lines;   // rows of the output
  int64_t in_row;  // elements of a row
  int64_t out_row;
  int64_t row_step;  // bytes of the workspace for each thread
  int32_t* positions;
  float* weights;
} cpu_resize_state_t;

static int64_t resize_rows(const rabbet_resize_plan_t* plan) {
  int64_t rows = 1;
  for (int32_t i = 0; i + 1 < plan->rank; ++i)
    rows *= plan->steps[i].taps;
  return rows;
}

// ---- The class -------------------------------------------------------------

static rabbet_status_t cpu_resize_body(rabbet_proposal_t* proposal) {
  const rabbet_format_t formats[] = {RABBET_FORMAT_LINEAR, RABBET_FORMAT_HWC,
                                     rabbet_cpu_blocked_format()};
  uint32_t mask = 0;
  for (int f = 0; f < 3; ++f)
    if (rabbet_resize_fits(proposal->propose, formats[f])) mask |= 1u << f;
  return rabbet_cpu_offer_same(proposal, mask, "rows", -1);
}

// Whether a row depends on few enough rows. Otherwise (cubic interpolation
// along many axes) the reference kernel computes it.
static bool resize_is_small(const rabbet_group_t* group) {
  const rabbet_group_node_t* node = &group->nodes[0];
  return rabbet_node_int(node, "resize_mode") != RABBET_INTERPOLATION_CUBIC ||
         group->values[node->inputs[0]].dims.rank <= 5;
}

static rabbet_status_t cpu_resize_propose(const rabbet_propose_t* propose,
                                          rabbet_candidate_sink_t sink) {
  if (!rabbet_node_is(propose->group, RABBET_OP_RESIZE) ||
      !resize_is_small(propose->group))
    return rabbet_ok();
  return rabbet_proposal_make(propose, sink, &rabbet_cpu_resize, NULL,
                              cpu_resize_body);
}

static void resize_set(const rabbet_node_kernel_t* kernel,
                       const rabbet_resize_plan_t* plan, int threads,
                       cpu_resize_state_t* state, size_t* out_workspace) {
  state->plan = *plan;
  state->dtype = kernel->group->values[kernel->node->inputs[0]].dtype;
  state->size = rabbet_dtype_bits(state->dtype) / 8;
  state->weights = (float*)(state + 1);
  state->positions = (int32_t*)(state->weights + plan->entries);
  if (plan->is_empty) return;
  rabbet_resize_fill(plan, state->positions, state->weights);
  const rabbet_resize_step_t* last = &plan->steps[plan->rank - 1];
  state->in_row = last->in * plan->inner;
  state->out_row = last->out * plan->inner;
  assert(plan->out_plane % state->out_row == 0);
  state->lines = plan->outer * plan->out_plane / state->out_row;
  if (plan->resize.mode == RABBET_INTERPOLATION_NEAREST) return;
  // A row of the input as floats, the weighted sum of rows, a row of the
  // output.
  state->row_step = rabbet_align_up(
      (2 * state->in_row + state->out_row) * (int64_t)sizeof(float), 64);
  *out_workspace = (size_t)(rabbet_cpu_slots(threads) * state->row_step);
}

static rabbet_status_t cpu_resize_prepare(rabbet_kernel_t* base,
                                          const rabbet_kernel_shapes_t* shapes,
                                          cpu_resize_state_t** out_state,
                                          size_t* out_workspace) {
  const rabbet_node_kernel_t* kernel = (const rabbet_node_kernel_t*)base;
  rabbet_resize_plan_t plan;
  *out_workspace = 0;
  *out_state = NULL;
  RABBET_RETURN_IF_ERROR(rabbet_resize_plan(kernel, shapes, &plan));
  if (resize_rows(&plan) > MOST_ROWS)
    return RABBET_STATUS(RABBET_STATUS_UNSUPPORTED,
                         "layer '%s': a row made of %lld rows is more than "
                         "cpu.resize takes",
                         kernel->node->name, (long long)resize_rows(&plan));
  RABBET_RETURN_IF_ERROR(rabbet_node_state_allocate(
      base, sizeof(**out_state) + (size_t)plan.entries * 2 * sizeof(int32_t),
      (void**)out_state));
  resize_set(kernel, &plan, shapes->threads, *out_state, out_workspace);
  return rabbet_ok();
}

// ---- Rows ------------------------------------------------------------------

typedef struct resize_call_t {
  const cpu_resize_state_t* state;
  const char* source;
  char* target;
  char* workspace;
  int64_t outside;  // the element, in its type
  const rabbet_vectors_t* vectors;
} resize_call_t;

typedef struct resize_line_t {
  int count;
  int64_t offsets[MOST_ROWS];  // elements
  float weights[MOST_ROWS];
} resize_line_t;

// Finds the input rows for an output row; none if the row lies outside.
static void resize_find(const cpu_resize_state_t* state, int64_t line,
                        resize_line_t* out) {
  const rabbet_resize_plan_t* plan = &state->plan;
  out->count = 1;
  out->offsets[0] = 0;
  out->weights[0] = 1;
  for (int32_t i = plan->rank - 2; i >= 0; --i) {
    const rabbet_resize_step_t* step = &plan->steps[i];
    int64_t entry = step->table + line % step->out * step->taps;
    line /= step->out;
    if (isnan(state->weights[entry])) {
      out->count = 0;
      return;
    }
    assert(out->count * step->taps <= MOST_ROWS);
    for (int t = step->taps - 1; t >= 0; --t) {
      for (int k = 0; k < out->count; ++k) {
        out->offsets[t * out->count + k] =
            out->offsets[k] + state->positions[entry + t] * step->stride;
        out->weights[t * out->count + k] =
            out->weights[k] * state->weights[entry + t];
      }
    }
    out->count *= step->taps;
  }
  assert(line < plan->outer);
  for (int k = 0; k < out->count; ++k)
    out->offsets[k] += line * plan->in_plane;
}

#define RABBET_RESIZE_CHOOSE(type)    \
  for (int64_t i = 0; i < count; ++i) \
  ((type*)target)[i] = ((const type*)source)[positions[i]]

static void resize_choose(const resize_call_t* call, const char* source,
                          char* target) {
  const cpu_resize_state_t* state = call->state;
  const rabbet_resize_step_t* last = &state->plan.steps[state->plan.rank - 1];
  const int32_t* positions = state->positions + last->table;
  int64_t bytes = state->plan.inner * state->size, count = last->out;
  switch (state->plan.inner == 1 ? bytes : 0) {
    case 1:
      RABBET_RESIZE_CHOOSE(uint8_t);
      return;
    case 2:
      RABBET_RESIZE_CHOOSE(uint16_t);
      return;
    case 4:
      RABBET_RESIZE_CHOOSE(uint32_t);
      return;
    case 8:
      RABBET_RESIZE_CHOOSE(uint64_t);
      return;
    default:
      break;
  }
  for (int64_t i = 0; i < count; ++i)
    rabbet_copy_bytes(target + i * bytes, source + positions[i] * bytes, bytes);
}

static void resize_convert(rabbet_convert_fn_t convert, const char* source,
                           int64_t size, char* target, int64_t target_size,
                           int64_t count) {
  for (int64_t i = 0; i < count; i += RABBET_LANES)
    convert(source + i * size, target + i * target_size,
            rabbet_min_i64(RABBET_LANES, count - i));
}

static void resize_outside(const resize_call_t* call, char* target) {
  const cpu_resize_state_t* state = call->state;
  const rabbet_resize_step_t* last = &state->plan.steps[state->plan.rank - 1];
  const float* weights = state->weights + last->table;
  int64_t bytes = state->plan.inner * state->size;
  for (int64_t i = 0; i < last->out; ++i)
    if (isnan(weights[i * last->taps]))
      rabbet_fill_elements(target + i * bytes, (const char*)&call->outside,
                           state->plan.inner, state->size);
}

static void resize_interpolate(const resize_call_t* call,
                               const resize_line_t* line, float* scratch,
                               char* target) {
  const cpu_resize_state_t* state = call->state;
  const rabbet_resize_step_t* last = &state->plan.steps[state->plan.rank - 1];
  rabbet_convert_fn_t from = call->vectors->to_float[state->dtype];
  rabbet_convert_fn_t to = call->vectors->from_float[state->dtype];
  float *row = scratch, *sum = scratch + state->in_row,
        *out = scratch + 2 * state->in_row;
  const float* summed = sum;
  for (int k = 0; k < line->count; ++k) {
    const char* source = call->source + line->offsets[k] * state->size;
    const float* x = from ? row : (const float*)source;
    if (from)
      resize_convert(from, source, state->size, (char*)row, sizeof(float),
                     state->in_row);
    if (line->count == 1)
      summed = x;
    else
      call->vectors->weigh(x, line->weights[k], k > 0, state->in_row, sum);
  }
  call->vectors->resample(summed, state->positions + last->table,
                          state->weights + last->table, last->taps, last->out,
                          state->plan.inner, to ? out : (float*)target);
  if (to)
    resize_convert(to, (const char*)out, sizeof(float), target, state->size,
                   state->out_row);
}

static void resize_lines(void* context, int64_t first, int64_t last) {
  const resize_call_t* call = context;
  const cpu_resize_state_t* state = call->state;
  bool nearest = state->plan.resize.mode == RABBET_INTERPOLATION_NEAREST;
  bool crops = state->plan.resize.coordinate == RABBET_COORDINATE_CROP;
  int64_t bytes = state->out_row * state->size, before = -1;
  float* scratch =
      (float*)(call->workspace + rabbet_cpu_slot() * state->row_step);
  resize_line_t line;
  for (int64_t i = first; i < last; ++i) {
    char* target = call->target + i * bytes;
    resize_find(state, i, &line);
    if (line.count == 0) {
      rabbet_fill_elements(target, (const char*)&call->outside, state->out_row,
                           state->size);
    } else if (!nearest) {
      resize_interpolate(call, &line, scratch, target);
    } else if (line.offsets[0] == before) {
      // The row equals the one before, which is copied.
      __builtin_memcpy(target, target - bytes, (size_t)bytes);
    } else {
      resize_choose(call, call->source + line.offsets[0] * state->size, target);
    }
    if (crops && line.count > 0) resize_outside(call, target);
    before = nearest && line.count > 0 ? line.offsets[0] : -1;
  }
}

static rabbet_status_t cpu_resize_enqueue(rabbet_kernel_t* base,
                                          cpu_resize_state_t* state,
                                          const rabbet_kernel_call_t* call) {
  const rabbet_node_kernel_t* kernel = (const rabbet_node_kernel_t*)base;
  if (state->plan.is_empty) return rabbet_ok();
  resize_call_t run = {.state = state,
                       .source = call->inputs[rabbet_group_input_of(
                           kernel->group, kernel->node->inputs[0])],
                       .target = call->outputs[0],
                       .workspace = call->workspace,
                       .vectors = rabbet_vectors()};
  rabbet_store_double(state->dtype, &run.outside, 0,
                      state->plan.resize.outside);
  rabbet_cpu_parallel(state->lines,
                      rabbet_max_i64(1, RABBET_CPU_GRAIN_BYTES /
                                            (state->out_row * state->size)),
                      resize_lines, &run);
  return rabbet_ok();
}

RABBET_TAKES_NODE(cpu_resize, RESIZE, RABBET_TAKES_ONE_FORMAT)

RABBET_NODE_CLASS(cpu_resize, "cpu.resize", 1);
