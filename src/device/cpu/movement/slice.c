// Strided windows. If each axis is one run of the input, this is a strided
// move. Otherwise (padding by wrapping, clamping, filling or reflecting) it is
// computed row by row: a row of the output is a few runs of an input row.
#include "device/common/slice.h"

#include <assert.h>

#include "device/cpu/cpu.h"
#include "device/cpu/movement/move.h"
#include "device/cpu/parallel.h"
#include "ops/movement/convert.h"

enum { INPUT = 0, FILL = 4 };

// Consecutive elements of the row's axis whose sources have a constant stride.
typedef struct slice_run_t {
  int64_t begin, count;
  int64_t source;  // offset in the input's row, in bytes; -1: fill value
  int64_t step;
} slice_run_t;

typedef struct cpu_slice_state_t {
  bool is_move;
  rabbet_move_t move;
  int64_t offset;                // of the first moved element, in bytes
  rabbet_slice_window_t window;  // the last axis is the row
  int64_t rows;
  int64_t piece, pieces;  // of a row, in its elements
  // The same as copies of bytes, if each run is one or a few of them.
  int64_t copy_count;
  rabbet_copy_run_t* copies;  // behind the runs
  // Runs of the axis outside the row's: runs of rows.
  slice_run_t* lines;
  int64_t run_count;
  slice_run_t runs[];
} cpu_slice_state_t;

// ---- Runs ------------------------------------------------------------------

// Cuts the axis into runs; counts them, and writes them if `runs` is not NULL.
static int64_t slice_cut(rabbet_sample_mode_t mode,
                         const rabbet_slice_axis_t* axis, slice_run_t* runs) {
  int64_t count = 0, begin = 0;
  while (begin < axis->out) {
    int64_t at = axis->start + begin * axis->stride;
    int64_t first = rabbet_slice_position(mode, at, axis->in);
    int64_t n = 1, step = 0, expected = first;
    for (; begin + n < axis->out; ++n) {
      at = axis->start + (begin + n) * axis->stride;
      int64_t next = rabbet_slice_position(mode, at, axis->in);
      if (first < 0 || next < 0) {
        if (first >= 0 || next >= 0) break;
        continue;
      }
      // A jump from one end to the other begins a new run.
      if (n == 1) step = next - first;
      if (step != 0 && step != axis->stride && step != -axis->stride) break;
      expected += step;
      if (next != expected) break;
    }
    if (runs) {
      runs[count] =
          (slice_run_t){.begin = begin,
                        .count = n,
                        .source = first < 0 ? -1 : first * axis->source,
                        .step = step * axis->source};
    }
    ++count;
    begin += n;
  }
  assert(begin == axis->out);
  return count;
}

// Strided runs up to this length are copied element by element.
enum { SHORT_RUN = 8 };

// The number of copies for the runs, which are written if `copies` is not NULL.
// -1 if a run is both long and strided.
static int64_t slice_copies(const slice_run_t* runs, int64_t count,
                            int64_t unit, rabbet_copy_run_t* copies) {
  int64_t n = 0;
  for (int64_t i = 0; i < count; ++i) {
    const slice_run_t* run = &runs[i];
    assert(run->count > 0 && run->source >= -1);
    bool whole = run->source < 0 || run->count == 1 || run->step == unit;
    if (!whole && run->count > SHORT_RUN) return -1;
    int64_t parts = whole ? 1 : run->count;
    for (int64_t k = 0; k < parts; ++k, ++n) {
      if (!copies) continue;
      copies[n] = (rabbet_copy_run_t){
          .target = (run->begin + k) * unit,
          .source = run->source < 0 ? -1 : run->source + k * run->step,
          .bytes = run->count / parts * unit};
    }
  }
  assert(n <= count * SHORT_RUN);
  return n;
}

// ---- The class -------------------------------------------------------------

static rabbet_status_t cpu_slice_body(rabbet_proposal_t* proposal) {
  const rabbet_group_t* group = proposal->propose->group;
  rabbet_dtype_t types[4];
  int count = rabbet_compute_types(
      proposal->propose, group->values[proposal->node->inputs[0]].dtype, types);
  const rabbet_format_t formats[] = {RABBET_FORMAT_LINEAR, RABBET_FORMAT_HWC,
                                     rabbet_cpu_blocked_format()};
  for (int f = 0; f < 3; ++f) {
    if (!rabbet_slice_fits(proposal->propose, formats[f])) continue;
    for (int t = 0; t < count; ++t) {
      rabbet_proposal_set_input(proposal, INPUT, types[t], formats[f]);
      rabbet_proposal_set_output(proposal, types[t], formats[f]);
      RABBET_RETURN_IF_ERROR(rabbet_proposal_offer(proposal, "rows", -1));
    }
  }
  return rabbet_ok();
}

RABBET_PROPOSE_FOR(cpu_slice, SLICE)

static void slice_plan_move(cpu_slice_state_t* state) {
  int64_t extents[RABBET_BOX_AXES + 1], sources[RABBET_BOX_AXES + 1],
      targets[RABBET_BOX_AXES + 1];
  state->is_move = true;
  for (int32_t i = 0; i < state->window.rank; ++i) {
    const rabbet_slice_axis_t* axis = &state->window.axes[i];
    extents[i] = axis->out;
    sources[i] = axis->source * axis->stride / state->window.size;
    targets[i] = axis->target / state->window.size;
    state->offset += axis->start * axis->source;
  }
  extents[state->window.rank] = state->window.unit / state->window.size;
  sources[state->window.rank] = targets[state->window.rank] = 1;
  rabbet_move_plan(state->window.rank + 1, extents, sources, targets,
                   state->window.size, &state->move);
}

// Writes runs, lines and copies into the room after the state.
static void slice_plan_rows(cpu_slice_state_t* state) {
  const rabbet_slice_axis_t* row = &state->window.axes[state->window.rank - 1];
  state->run_count = slice_cut(state->window.mode, row, state->runs);
  state->lines = state->runs + state->run_count;
  int64_t lines = 1;
  state->rows = 1;
  if (state->window.rank > 1) {
    lines = slice_cut(state->window.mode, row - 1, state->lines);
  } else {
    state->lines[0] = (slice_run_t){.count = 1};
  }
  state->copies = (rabbet_copy_run_t*)(state->lines + lines);
  for (int32_t i = 0; i + 1 < state->window.rank; ++i)
    state->rows *= state->window.axes[i].out;
  state->piece = rabbet_max_i64(1, 256 * 1024 / state->window.unit);
  state->pieces = rabbet_ceildiv(row->out, state->piece);
  int64_t copies = state->pieces > 1
                       ? -1
                       : slice_copies(state->runs, state->run_count,
                                      state->window.unit, NULL);
  if (copies < 0) return;
  state->copy_count = slice_copies(state->runs, state->run_count,
                                   state->window.unit, state->copies);
}

// The size of the room after the state, in bytes.
static size_t slice_room(const cpu_slice_state_t* state) {
  const rabbet_slice_axis_t* row = &state->window.axes[state->window.rank - 1];
  int64_t runs = slice_cut(state->window.mode, row, NULL);
  int64_t lines =
      state->window.rank > 1 ? slice_cut(state->window.mode, row - 1, NULL) : 1;
  return (size_t)(runs + lines) * sizeof(slice_run_t) +
         (size_t)runs * SHORT_RUN * sizeof(rabbet_copy_run_t);
}

static rabbet_status_t cpu_slice_prepare(rabbet_kernel_t* base,
                                         const rabbet_kernel_shapes_t* shapes,
                                         cpu_slice_state_t** out_state,
                                         size_t* out_workspace) {
  const rabbet_node_kernel_t* kernel = (const rabbet_node_kernel_t*)base;
  cpu_slice_state_t made = {0};
  *out_workspace = 0;
  RABBET_RETURN_IF_ERROR(rabbet_slice_window(kernel, shapes, &made.window));
  bool nothing = made.window.is_empty, inside = made.window.is_inside;
  size_t room = nothing || inside ? 0 : slice_room(&made);
  RABBET_RETURN_IF_ERROR(
      rabbet_node_state_allocate(base, sizeof(made) + room, (void**)out_state));
  **out_state = made;
  if (nothing) {
    (*out_state)->is_move = true;
  } else if (inside) {
    slice_plan_move(*out_state);
  } else {
    slice_plan_rows(*out_state);
  }
  return rabbet_ok();
}

// ---- Running ---------------------------------------------------------------

typedef struct slice_call_t {
  const cpu_slice_state_t* state;
  const char* source;
  const char* fill;  // one element, and a pattern of it
  char pattern[RABBET_PATTERN_BYTES];
  char* target;
  const rabbet_vectors_t* vectors;
} slice_call_t;

static void slice_fill(const slice_call_t* call, char* target, int64_t bytes) {
  int64_t size = call->state->window.size;
  rabbet_fill_elements(target, call->fill, bytes / size, size);
}

// Elements [begin, end) of a row of the output; `source` is the input's row.
static void slice_row(const slice_call_t* call, const char* source,
                      char* target, int64_t begin, int64_t end) {
  const cpu_slice_state_t* state = call->state;
  int64_t unit = state->window.unit;
  for (int64_t i = 0; i < state->run_count; ++i) {
    const slice_run_t* run = &state->runs[i];
    int64_t first = rabbet_max_i64(run->begin, begin);
    int64_t count = rabbet_min_i64(run->begin + run->count, end) - first;
    if (count <= 0) continue;
    char* to = target + first * unit;
    if (run->source < 0) {
      slice_fill(call, to, count * unit);
      continue;
    }
    const char* from = source + run->source + (first - run->begin) * run->step;
    if (run->step == unit || count == 1) {
      rabbet_copy_bytes(to, from, count * unit);
    } else {
      rabbet_copy_strided(to, from, run->step, count, unit);
    }
  }
}

// Elements [begin, end) of `count` rows whose sources are `step` bytes apart.
static void slice_rows(const slice_call_t* call, const char* source,
                       int64_t step, char* target, int64_t count, int64_t begin,
                       int64_t end) {
  const cpu_slice_state_t* state = call->state;
  int64_t bytes =
      state->window.axes[state->window.rank - 1].out * state->window.unit;
  if (state->copy_count > 0) {
    call->vectors->copy_runs(target, bytes, source, step, count, call->pattern,
                             state->copies, state->copy_count);
    return;
  }
  for (int64_t i = 0; i < count; ++i) {
    slice_row(call, source + i * step, target + i * bytes, begin, end);
  }
}

// The input at a position of the axes outside the lines; NULL: fill value.
static const char* slice_outer(const slice_call_t* call, int64_t position) {
  const cpu_slice_state_t* state = call->state;
  const char* source = call->source;
  for (int32_t i = state->window.rank - 3; i >= 0; --i) {
    const rabbet_slice_axis_t* axis = &state->window.axes[i];
    int64_t at = rabbet_slice_position(
        state->window.mode, axis->start + position % axis->out * axis->stride,
        axis->in);
    if (at < 0) return NULL;
    source += at * axis->source;
    position /= axis->out;
  }
  return source;
}

static const slice_run_t* slice_find_line(const cpu_slice_state_t* state,
                                          int64_t at) {
  const slice_run_t* line = state->lines;
  while (line->begin + line->count <= at)
    ++line;
  assert(line->begin <= at);
  return line;
}

static void slice_items(void* context, int64_t first, int64_t last) {
  const slice_call_t* call = context;
  const cpu_slice_state_t* state = call->state;
  int64_t length = state->window.axes[state->window.rank - 1].out;
  int64_t extent = state->window.rank > 1
                       ? state->window.axes[state->window.rank - 2].out
                       : 1;
  while (first < last) {
    int64_t row = first / state->pieces;
    int64_t begin = first % state->pieces * state->piece;
    int64_t end = rabbet_min_i64(begin + state->piece, length);
    assert(begin < end);
    const slice_run_t* line = slice_find_line(state, row % extent);
    int64_t at = row % extent - line->begin;
    int64_t count =
        state->pieces > 1 ? 1 : rabbet_min_i64(line->count - at, last - first);
    const char* source = slice_outer(call, row / extent);
    char* target = call->target + row * length * state->window.unit;
    if (source && line->source >= 0) {
      slice_rows(call, source + line->source + at * line->step, line->step,
                 target, count, begin, end);
    } else {
      slice_fill(call, target + begin * state->window.unit,
                 ((count - 1) * length + end - begin) * state->window.unit);
    }
    first += count;
  }
}

static rabbet_status_t cpu_slice_enqueue(rabbet_kernel_t* base,
                                         cpu_slice_state_t* state,
                                         const rabbet_kernel_call_t* call) {
  const rabbet_node_kernel_t* kernel = (const rabbet_node_kernel_t*)base;
  const rabbet_group_t* group = kernel->group;
  const char* source =
      call->inputs[rabbet_group_input_of(group, kernel->node->inputs[0])];
  if (state->is_move) {
    rabbet_move_run(&state->move, source + state->offset, call->outputs[0]);
    return rabbet_ok();
  }
  int32_t fill = rabbet_node_input(kernel->node, FILL);
  int64_t element = 0;
  if (fill >= 0) {  // in the network's type
    rabbet_convert(group->values[fill].dtype,
                   call->inputs[rabbet_group_input_of(group, fill)],
                   group->values[kernel->node->inputs[0]].dtype, &element, 1);
  }
  slice_call_t run = {.state = state,
                      .source = source,
                      .fill = (const char*)&element,
                      .target = call->outputs[0],
                      .vectors = rabbet_vectors()};
  rabbet_fill_elements(run.pattern, run.fill,
                       RABBET_PATTERN_BYTES / state->window.size,
                       state->window.size);
  int64_t bytes =
      state->window.unit *
      rabbet_min_i64(state->piece,
                     state->window.axes[state->window.rank - 1].out);
  rabbet_cpu_parallel(state->rows * state->pieces,
                      rabbet_max_i64(1, RABBET_CPU_GRAIN_BYTES / bytes),
                      slice_items, &run);
  return rabbet_ok();
}

RABBET_TAKES_NODE(cpu_slice, SLICE,
                  RABBET_TAKES_ONE_FORMAT | RABBET_TAKES_OTHER_TYPES)

RABBET_NODE_CLASS_WITH(cpu_slice, "cpu.slice", 1, RABBET_KERNEL_DOUBLE);
