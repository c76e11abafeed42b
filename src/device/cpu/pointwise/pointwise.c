// Chains and trees of element-wise layers, computed in one pass over memory.
#include "device/common/pointwise.h"

#include <string.h>

#include "base/math.h"
#include "device/cpu/cpu.h"
#include "device/cpu/parallel.h"
#include "device/cpu/pointwise/pointwise_program.h"

// ---- Proposing -------------------------------------------------------------

// With more operands one pass is not faster, as their tiles exceed the
// first-level cache.
enum { RABBET_CPU_PW_OPERANDS = 96 };

static bool pw_fits(const rabbet_group_t* group) {
  rabbet_pw_lane_t lane;
  return rabbet_pw_is_pointwise(group) &&
         group->input_count + group->output_count <= RABBET_CPU_PW_OPERANDS &&
         rabbet_pw_lane(group, &lane) && rabbet_pw_supports(group, lane);
}

static rabbet_status_t pw_propose(const rabbet_propose_t* propose,
                                  rabbet_candidate_sink_t sink) {
  const rabbet_format_t formats[] = {RABBET_FORMAT_LINEAR, RABBET_FORMAT_HWC,
                                     rabbet_cpu_blocked_format()};
  static const char* const tactics[] = {"one pass"};
  const rabbet_pw_offers_t offers = {.kernel = &rabbet_cpu_pointwise,
                                     .formats = formats,
                                     .format_count = 3,
                                     .tactics = tactics,
                                     .tactic_count = 1};
  if (!pw_fits(propose->group)) return rabbet_ok();
  return rabbet_pw_offer(propose, sink, &offers);
}

static bool pw_takes(const rabbet_kernel_spec_t* spec) {
  return pw_fits(spec->group);
}

// ---- Running ---------------------------------------------------------------

typedef struct pw_kernel_t {
  rabbet_kernel_t base;
  rabbet_allocator_t allocator;
  const rabbet_group_t* group;
} pw_kernel_t;

typedef struct cpu_pointwise_state_t {
  rabbet_pw_space_t space;
  rabbet_pw_program_t program;
  const rabbet_pw_machine_t* machine;
  int tile;       // elements
  int64_t rows;   // rows of the space
  int64_t row;    // elements of one
  int64_t chunk;  // elements of a piece of work, a multiple of tile
  int64_t pieces_per_row;
  size_t thread_bytes;  // workspace of a thread
  int64_t element_size[RABBET_CPU_PW_OPERANDS];
  rabbet_pw_access_t access[RABBET_CPU_PW_OPERANDS];
  // The number of elements after which an operand repeats along the row; 0: it
  // is contiguous or a cell.
  int64_t period[RABBET_CPU_PW_OPERANDS];
  rabbet_dtype_t dtype[RABBET_CPU_PW_OPERANDS];
  int stream_count;
  int streams[RABBET_CPU_PW_OPERANDS];           // operands other than cells
  int64_t stream_bytes[RABBET_CPU_PW_OPERANDS];  // a tile of each
} cpu_pointwise_state_t;

static rabbet_status_t pw_create(const rabbet_kernel_spec_t* spec,
                                 rabbet_kernel_t** out_kernel) {
  *out_kernel = NULL;
  if (!pw_fits(spec->group)) {
    return RABBET_STATUS(RABBET_STATUS_INVALID_ARGUMENT,
                         "the group holds layers that are not element-wise");
  }
  pw_kernel_t* kernel = NULL;
  RABBET_RETURN_IF_ERROR(
      rabbet_allocate(spec->allocator, sizeof(*kernel), (void**)&kernel));
  kernel->base.kernel_class = &rabbet_cpu_pointwise;
  kernel->allocator = spec->allocator;
  kernel->group = spec->group;
  *out_kernel = &kernel->base;
  return rabbet_ok();
}

static void pw_destroy(rabbet_kernel_t* base) {
  if (base) rabbet_free(((pw_kernel_t*)base)->allocator, base);
}

// Instructions of elements. A thread is worth waking for about 10 microseconds
// of them; pieces are smaller, so that threads get equal shares.
enum { WORK_PER_THREAD = 1 << 16, WORK_PER_PIECE = 1 << 14, MIN_CHUNK = 2048 };

static void pw_divide(cpu_pointwise_state_t* state, int threads) {
  state->rows = 1;
  for (int i = 0; i + 1 < state->space.rank; ++i) {
    state->rows *= state->space.extent[i];
  }
  state->row = state->space.extent[state->space.rank - 1];
  int64_t chunk = rabbet_max_i64(
      MIN_CHUNK, WORK_PER_PIECE / (int64_t)state->program.insn_count);
  // If there are few rows, they are divided evenly among the threads.
  int64_t share = rabbet_ceildiv(state->row * state->rows, threads);
  chunk = rabbet_max_i64(MIN_CHUNK, rabbet_min_i64(chunk, share));
  chunk = rabbet_ceildiv(chunk, state->tile) * state->tile;
  state->chunk = chunk;
  state->pieces_per_row = rabbet_ceildiv(state->row, chunk);
}

// Joins short rows (the channels of a block, or innermost channels) into long
// ones. A per-channel operand then repeats along the row; it is read from a
// tile that has as many copies as fit.
static void pw_join_rows(cpu_pointwise_state_t* state, int64_t tile) {
  rabbet_pw_space_t* space = &state->space;
  int last = space->rank - 1;
  int64_t period = space->extent[last];
  if (last < 1 || period < 1 || period >= tile || tile % period != 0) return;
  for (int i = 0; i < space->operand_count; ++i) {
    const int64_t* stride = space->stride[i];
    bool streams = stride[last] == 1 && stride[last - 1] == period;
    if (!streams && stride[last - 1] != 0) return;
  }
  space->extent[last - 1] *= period;
  --space->rank;
  for (int i = 0; i < space->operand_count; ++i) {
    int64_t* stride = space->stride[i];
    bool streams = stride[last - 1] != 0;
    state->period[i] = !streams && stride[last] == 1 ? period : 0;
    stride[last - 1] = streams;
  }
}

static rabbet_status_t pw_set_up(const pw_kernel_t* kernel,
                                 const rabbet_kernel_shapes_t* shapes,
                                 cpu_pointwise_state_t* state) {
  const rabbet_group_t* group = kernel->group;
  RABBET_RETURN_IF_ERROR(rabbet_pw_plan(group, shapes->dims, &state->space));
  rabbet_pw_lane_t lane = RABBET_PW_FLOAT;
  if (rabbet_pw_lane(group, &lane))
    pw_join_rows(state, rabbet_pw_machine()->tile[lane]);
  int last = state->space.rank - 1;
  for (int i = 0; i < state->space.operand_count; ++i) {
    state->dtype[i] = group->values[rabbet_pw_operand(group, i)].dtype;
    state->element_size[i] = rabbet_dtype_bits(state->dtype[i]) / 8;
    // A row of one element counts as contiguous for inputs and outputs.
    state->access[i] =
        i < (int)group->input_count && state->space.stride[i][last] == 0 &&
                state->period[i] == 0 && state->space.extent[last] > 1
            ? RABBET_PW_CELL
            : RABBET_PW_STREAM;
  }
  RABBET_RETURN_IF_ERROR(rabbet_pw_compile(group, state->access,
                                           kernel->allocator, &state->program));
  state->machine = rabbet_pw_machine();
  state->tile = state->machine->tile[state->program.lane];
  for (int i = 0; i < state->space.operand_count; ++i) {
    if (state->access[i] == RABBET_PW_CELL || state->period[i] > 0) continue;
    state->stream_bytes[state->stream_count] =
        state->tile * state->element_size[i];
    state->streams[state->stream_count++] = i;
  }
  pw_divide(state, shapes->threads > 0 ? shapes->threads : 1);
  // A tile per slot, a tile per operand for the ends of rows, and addresses.
  state->thread_bytes = rabbet_align_up(
      (size_t)(state->program.slot_count + state->space.operand_count) *
          ((size_t)(state->tile * 8) + sizeof(char*)),
      64);
  return rabbet_ok();
}

static void pw_state_destroy(rabbet_kernel_t* base,
                             rabbet_kernel_state_t* prepared) {
  cpu_pointwise_state_t* state = (cpu_pointwise_state_t*)prepared;
  if (!state) return;
  rabbet_allocator_t allocator = ((pw_kernel_t*)base)->allocator;
  rabbet_pw_program_free(allocator, &state->program);
  rabbet_free(allocator, state);
}

static rabbet_status_t pw_prepare(rabbet_kernel_t* base,
                                  const rabbet_kernel_shapes_t* shapes,
                                  rabbet_kernel_state_t** out_state,
                                  size_t* out_workspace) {
  pw_kernel_t* kernel = (pw_kernel_t*)base;
  *out_state = NULL;
  *out_workspace = 0;
  cpu_pointwise_state_t* state = NULL;
  RABBET_RETURN_IF_ERROR(
      rabbet_allocate(kernel->allocator, sizeof(*state), (void**)&state));
  rabbet_status_t status = pw_set_up(kernel, shapes, state);
  if (!rabbet_is_ok(status)) {
    pw_state_destroy(base, (rabbet_kernel_state_t*)state);
    return status;
  }
  *out_workspace =
      state->thread_bytes * (size_t)rabbet_cpu_slots(shapes->threads);
  *out_state = (rabbet_kernel_state_t*)state;
  return rabbet_ok();
}

typedef struct pw_run_t {
  const cpu_pointwise_state_t* state;
  const rabbet_kernel_call_t* call;
} pw_run_t;

// The state of one thread.
typedef struct pw_worker_t {
  const cpu_pointwise_state_t* state;
  char** bases;
  char* rows[RABBET_CPU_PW_OPERANDS];  // start of each operand's piece of a row
  char* ends;                          // tiles for the ends of rows
  double cells[RABBET_CPU_PW_OPERANDS];
} pw_worker_t;

static void pw_set_cell(pw_worker_t* worker, int operand) {
  const cpu_pointwise_state_t* state = worker->state;
  const void* from = worker->rows[operand];
  void* cell = &worker->cells[operand];
  rabbet_dtype_t dtype = state->dtype[operand];
  if (state->program.lane == RABBET_PW_INT32) {
    *(int32_t*)cell = (int32_t)rabbet_load_int64(dtype, from, 0);
  } else if (state->program.lane == RABBET_PW_INT64) {
    *(int64_t*)cell = rabbet_load_int64(dtype, from, 0);
  } else if (state->program.lane == RABBET_PW_DOUBLE) {
    *(double*)cell = rabbet_load_double(dtype, from, 0);
  } else if (dtype == RABBET_DTYPE_FLOAT) {
    *(float*)cell = *(const float*)from;
  } else {
    *(float*)cell = (float)rabbet_load_double(dtype, from, 0);
  }
  worker->bases[operand] = cell;
}

// Runs full tiles, with operands in their own memory.
static void pw_run_tiles(pw_worker_t* worker, int64_t tiles) {
  const cpu_pointwise_state_t* state = worker->state;
  rabbet_pw_frame_t frame = {worker->bases};
  for (int64_t t = 0; t < tiles; ++t) {
    state->machine->run[state->program.lane](state->program.insns, &frame);
    for (int i = 0; i < state->stream_count; ++i) {
      worker->bases[state->streams[i]] += state->stream_bytes[i];
    }
  }
}

// Runs the last `count` < tile elements of a row, with copies in tiles.
static void pw_run_end(pw_worker_t* worker, int64_t count) {
  const cpu_pointwise_state_t* state = worker->state;
  char* streams[RABBET_CPU_PW_OPERANDS];
  for (int k = 0; k < state->stream_count; ++k) {
    int i = state->streams[k];
    streams[i] = worker->bases[i];
    worker->bases[i] = worker->ends + (int64_t)i * state->tile * 8;
    if (i < state->program.input_count) {
      memcpy(worker->bases[i], streams[i],
             (size_t)(count * state->element_size[i]));
    }
  }
  rabbet_pw_frame_t frame = {worker->bases};
  state->machine->run[state->program.lane](state->program.insns, &frame);
  for (int i = state->program.input_count; i < state->space.operand_count;
       ++i) {
    memcpy(streams[i], worker->bases[i],
           (size_t)(count * state->element_size[i]));
  }
}

// Pieces begin at multiples of the tile, which are multiples of the period.
static void pw_set_period(pw_worker_t* worker, int operand) {
  const cpu_pointwise_state_t* state = worker->state;
  size_t bytes =
      (size_t)(state->period[operand] * state->element_size[operand]);
  size_t size = (size_t)(state->tile * state->element_size[operand]);
  char* tile = worker->ends + (int64_t)operand * state->tile * 8;
  for (size_t at = 0; at < size; at += bytes)
    memcpy(tile + at, worker->rows[operand], bytes);
  worker->bases[operand] = tile;
}

static void pw_run_piece(pw_worker_t* worker, const rabbet_kernel_call_t* call,
                         int64_t piece) {
  const cpu_pointwise_state_t* state = worker->state;
  const rabbet_pw_space_t* space = &state->space;
  int64_t row = piece / state->pieces_per_row;
  int64_t begin = piece % state->pieces_per_row * state->chunk;
  int64_t count = rabbet_min_i64(state->chunk, state->row - begin);
  int64_t index[RABBET_PW_MAX_AXES];
  for (int axis = space->rank - 2; axis >= 0; --axis) {
    index[axis] = row % space->extent[axis];
    row /= space->extent[axis];
  }
  for (int i = 0; i < space->operand_count; ++i) {
    int64_t offset = begin * space->stride[i][space->rank - 1];
    for (int axis = 0; axis + 1 < space->rank; ++axis) {
      offset += index[axis] * space->stride[i][axis];
    }
    char* base = i < state->program.input_count
                     ? call->inputs[i]
                     : call->outputs[i - state->program.input_count];
    worker->rows[i] = base + offset * state->element_size[i];
    worker->bases[i] = worker->rows[i];
    if (state->access[i] == RABBET_PW_CELL) pw_set_cell(worker, i);
    if (state->period[i] > 0) pw_set_period(worker, i);
  }
  pw_run_tiles(worker, count / state->tile);
  if (count % state->tile) pw_run_end(worker, count % state->tile);
}

static void pw_run_pieces(void* context, int64_t begin, int64_t end) {
  const pw_run_t* run = context;
  const cpu_pointwise_state_t* state = run->state;
  pw_worker_t worker;
  worker.state = state;
  char* own = (char*)run->call->workspace +
              (size_t)rabbet_cpu_slot() * state->thread_bytes;
  worker.ends = own;
  char* slots = own + (int64_t)state->space.operand_count * state->tile * 8;
  worker.bases =
      (char**)(slots + (int64_t)state->program.slot_count * state->tile * 8);
  for (int i = 0; i < state->program.slot_count; ++i) {
    worker.bases[state->space.operand_count + i] =
        slots + (int64_t)i * state->tile * 8;
  }
  memset(worker.ends, 0, (size_t)(slots - worker.ends));
  for (int64_t piece = begin; piece < end; ++piece) {
    pw_run_piece(&worker, run->call, piece);
  }
}

static rabbet_status_t pw_enqueue(rabbet_kernel_t* base,
                                  rabbet_kernel_state_t* prepared,
                                  const rabbet_kernel_call_t* call) {
  cpu_pointwise_state_t* state = (cpu_pointwise_state_t*)prepared;
  (void)base;
  pw_run_t run = {state, call};
  int64_t work = state->chunk * (int64_t)state->program.insn_count;
  int64_t grain = rabbet_max_i64(1, WORK_PER_THREAD / work);
  rabbet_cpu_parallel(state->rows * state->pieces_per_row, grain, pw_run_pieces,
                      &run);
  return rabbet_ok();
}

const rabbet_kernel_class_t rabbet_cpu_pointwise = {
    .struct_size = sizeof(rabbet_kernel_class_t),
    .name = "cpu.pointwise",
    .version = 6,
    .flags = RABBET_KERNEL_DOUBLE,
    .propose = pw_propose,
    .create = pw_create,
    .takes = pw_takes,
    .destroy = pw_destroy,
    .prepare = pw_prepare,
    .destroy_state = pw_state_destroy,
    .enqueue = pw_enqueue,
};
