// Chains and trees of element-wise layers, computed in one pass over memory.
//
// All outputs have one shape, the iteration space; inputs have it too, or are
// broadcast along some of its axes. The space is the tensor's memory: of a
// blocked format, its physical axes. Axes that lie behind one another for every
// operand are merged; the last one is the row, along which each operand either
// streams or stands still (a cell).
#include <string.h>

#include "base/arena.h"
#include "base/math.h"
#include "device/cpu/cpu.h"
#include "device/cpu/parallel.h"
#include "device/cpu/pointwise_program.h"

// ---- Iteration space -------------------------------------------------------

enum { MAX_AXES = RABBET_MAX_RANK + 1, MAX_OPERANDS = 96 };

typedef struct rabbet_pw_space_t {
  int rank;
  int64_t extent[MAX_AXES];
  int operand_count;
  int64_t stride[MAX_OPERANDS][MAX_AXES];  // in elements
} rabbet_pw_space_t;

static bool rabbet_dims_equal(const rabbet_dims_t* a, const rabbet_dims_t* b) {
  return a->rank == b->rank &&
         memcmp(a->d, b->d, (size_t)a->rank * sizeof(a->d[0])) == 0;
}

// Axes of the memory of a tensor of `dims` in `format`: extents, and for each
// the logical axis that it walks and by how many logical steps.
typedef struct rabbet_pw_axes_t {
  int rank;
  int64_t extent[MAX_AXES];
  int logical[MAX_AXES];
  int64_t step[MAX_AXES];
} rabbet_pw_axes_t;

static void rabbet_pw_axes_add(rabbet_pw_axes_t* axes, int64_t extent,
                               int logical, int64_t step) {
  axes->extent[axes->rank] = extent;
  axes->logical[axes->rank] = logical;
  axes->step[axes->rank++] = step;
}

// False where the format pads: the padding must stay zero, which computing on
// it would not ensure.
static bool rabbet_pw_axes(const rabbet_dims_t* dims, rabbet_format_t format,
                           rabbet_pw_axes_t* out) {
  out->rank = 0;
  const rabbet_format_info_t* info = rabbet_format_info(format);
  int64_t block = info->block;
  bool has_channels = format != RABBET_FORMAT_LINEAR;
  if (has_channels && dims->rank < info->min_rank) return false;
  if (has_channels && dims->d[1] % block != 0) return false;
  for (int axis = 0; axis < dims->rank; ++axis) {
    if (axis == 1 && has_channels) {
      if (!info->channels_last) {
        rabbet_pw_axes_add(out, dims->d[1] / block, 1, block);
      }
    } else {
      rabbet_pw_axes_add(out, dims->d[axis], axis, 1);
    }
  }
  if (has_channels) {
    rabbet_pw_axes_add(out, info->channels_last ? dims->d[1] : block, 1, 1);
  }
  return true;
}

// Strides of one operand over the axes; false if its shape does not fit. An
// operand of the full shape has the space's format, a smaller one is LINEAR.
static bool rabbet_pw_strides(const rabbet_pw_axes_t* axes,
                              const rabbet_dims_t* full,
                              const rabbet_dims_t* dims, bool is_full,
                              int64_t* out_strides) {
  if (dims->rank != full->rank) return false;
  int64_t linear[RABBET_MAX_RANK];
  int64_t next = 1;
  for (int axis = dims->rank - 1; axis >= 0; --axis) {
    if (dims->d[axis] != full->d[axis] && dims->d[axis] != 1) return false;
    linear[axis] = dims->d[axis] == 1 ? 0 : next;
    next *= dims->d[axis];
  }
  next = 1;
  for (int i = axes->rank - 1; i >= 0; --i) {
    if (is_full) {
      out_strides[i] = axes->extent[i] == 1 ? 0 : next;
      next *= axes->extent[i];
    } else {
      out_strides[i] =
          axes->extent[i] == 1 ? 0 : linear[axes->logical[i]] * axes->step[i];
    }
  }
  return true;
}

static bool rabbet_pw_mergeable(const rabbet_pw_space_t* space, int outer,
                                int inner) {
  for (int i = 0; i < space->operand_count; ++i) {
    if (space->stride[i][outer] !=
        space->stride[i][inner] * space->extent[inner]) {
      return false;
    }
  }
  return true;
}

// Drops axes of extent 1 and merges neighbours, from the last to the first.
static void rabbet_pw_merge(rabbet_pw_space_t* space) {
  rabbet_pw_space_t from = *space;
  int kept[MAX_AXES], count = 0;  // innermost first
  for (int axis = from.rank - 1; axis >= 0; --axis) {
    if (from.extent[axis] == 1 && from.rank > 1) continue;
    if (count > 0 && rabbet_pw_mergeable(&from, axis, kept[count - 1])) {
      from.extent[kept[count - 1]] *= from.extent[axis];
      continue;
    }
    kept[count++] = axis;
  }
  space->rank = count;
  for (int i = 0; i < count; ++i) {
    int axis = kept[count - 1 - i];
    space->extent[i] = from.extent[axis];
    for (int k = 0; k < from.operand_count; ++k) {
      space->stride[k][i] = from.stride[k][axis];
    }
  }
  if (count == 0) {
    space->rank = 1;
    space->extent[0] = 1;
    for (int k = 0; k < from.operand_count; ++k)
      space->stride[k][0] = 0;
  }
}

static int32_t rabbet_pw_operand(const rabbet_group_t* group, int operand) {
  return operand < (int)group->input_count
             ? group->inputs[operand]
             : group->outputs[operand - (int)group->input_count];
}

// The space of the group with these shapes (by value) and this format for all
// that has the full shape; false if the kernel cannot walk it.
static bool rabbet_pw_space(const rabbet_group_t* group,
                            const rabbet_dims_t* dims, rabbet_format_t format,
                            rabbet_pw_space_t* out_space) {
  const rabbet_dims_t* full = &dims[group->outputs[0]];
  rabbet_pw_axes_t axes;
  if (full->rank < 0 || !rabbet_pw_axes(full, format, &axes)) return false;
  out_space->rank = axes.rank;
  memcpy(out_space->extent, axes.extent, sizeof(axes.extent));
  out_space->operand_count = (int)(group->input_count + group->output_count);
  for (int i = 0; i < out_space->operand_count; ++i) {
    const rabbet_dims_t* own = &dims[rabbet_pw_operand(group, i)];
    bool is_full = rabbet_dims_equal(own, full);
    if (!is_full && i >= (int)group->input_count) return false;
    if (!rabbet_pw_strides(&axes, full, own, is_full, out_space->stride[i])) {
      return false;
    }
  }
  rabbet_pw_merge(out_space);
  for (int i = 0; i < out_space->operand_count; ++i) {
    if (out_space->stride[i][out_space->rank - 1] > 1) return false;
  }
  return true;
}

// Values inside the group must have the full shape too, or be computed from
// such as are broadcast: every node's output is the whole space.
static bool rabbet_pw_inner_shapes_fit(const rabbet_group_t* group,
                                       const rabbet_dims_t* dims) {
  const rabbet_dims_t* full = &dims[group->outputs[0]];
  for (size_t i = 0; i < group->node_count; ++i) {
    for (size_t k = 0; k < group->nodes[i].output_count; ++k) {
      if (!rabbet_dims_equal(&dims[group->nodes[i].outputs[k]], full)) {
        return false;
      }
    }
  }
  return true;
}

// ---- Proposing -------------------------------------------------------------

static bool rabbet_pw_fits(const rabbet_group_t* group) {
  rabbet_pw_lane_t lane;
  if (group->node_count == 0 || group->output_count == 0 ||
      group->input_count + group->output_count > MAX_OPERANDS ||
      !rabbet_pw_lane(group, &lane)) {
    return false;
  }
  for (size_t i = 0; i < group->node_count; ++i) {
    if (!(group->nodes[i].op->flags & RABBET_OP_POINTWISE)) return false;
  }
  return rabbet_pw_supports(group, lane);
}

typedef struct rabbet_pw_proposal_t {
  const rabbet_propose_t* propose;
  rabbet_candidate_sink_t sink;
  const rabbet_dims_t* dims;
  rabbet_type_format_t* tensors;
  int32_t* in_place;
} rabbet_pw_proposal_t;

// An output may be written over an input that is read at the same place by the
// same step: same shape, and elements of the same size.
static int32_t rabbet_pw_in_place(const rabbet_pw_proposal_t* proposal,
                                  size_t output, uint64_t* taken) {
  const rabbet_group_t* group = proposal->propose->group;
  const rabbet_type_format_t* own =
      &proposal->tensors[group->input_count + output];
  for (size_t i = 0; i < group->input_count && i < 64; ++i) {
    if ((*taken >> i & 1) || group->values[group->inputs[i]].constant ||
        rabbet_dtype_bits(proposal->tensors[i].dtype) !=
            rabbet_dtype_bits(own->dtype) ||
        !rabbet_dims_equal(&proposal->dims[group->inputs[i]],
                           &proposal->dims[group->outputs[output]])) {
      continue;
    }
    *taken |= 1ull << i;
    return (int32_t)i;
  }
  return -1;
}

static rabbet_status_t rabbet_pw_offer(rabbet_pw_proposal_t* proposal,
                                       rabbet_format_t format,
                                       rabbet_dtype_t dtype) {
  const rabbet_group_t* group = proposal->propose->group;
  rabbet_pw_space_t space;
  if (!rabbet_pw_space(group, proposal->dims, format, &space)) {
    return rabbet_ok();
  }
  const rabbet_dims_t* full = &proposal->dims[group->outputs[0]];
  for (int i = 0; i < space.operand_count; ++i) {
    int32_t value = rabbet_pw_operand(group, i);
    rabbet_type_format_t* tensor = &proposal->tensors[i];
    bool is_full = rabbet_dims_equal(&proposal->dims[value], full);
    tensor->dtype = group->values[value].dtype;
    tensor->format = is_full ? format : RABBET_FORMAT_LINEAR;
    if (is_full && rabbet_dtype_is_float(tensor->dtype) &&
        dtype != RABBET_DTYPE_NONE) {
      tensor->dtype = dtype;
    }
  }
  uint64_t taken = 0;
  for (size_t i = 0; i < group->output_count; ++i) {
    proposal->in_place[i] = rabbet_pw_in_place(proposal, i, &taken);
  }
  rabbet_candidate_t candidate = {.kernel = &rabbet_cpu_pointwise,
                                  .tactic_name = "one pass",
                                  .tensors = proposal->tensors,
                                  .in_place = proposal->in_place};
  return rabbet_offer(proposal->propose, proposal->sink, &candidate);
}

static rabbet_status_t rabbet_pw_offer_formats(rabbet_pw_proposal_t* proposal,
                                               rabbet_dtype_t dtype) {
  const rabbet_format_t formats[] = {RABBET_FORMAT_LINEAR, RABBET_FORMAT_HWC,
                                     rabbet_cpu_blocked_format()};
  for (size_t i = 0; i < sizeof(formats) / sizeof(formats[0]); ++i) {
    RABBET_RETURN_IF_ERROR(rabbet_pw_offer(proposal, formats[i], dtype));
  }
  return rabbet_ok();
}

static rabbet_status_t rabbet_pw_offer_all(rabbet_pw_proposal_t* proposal) {
  RABBET_RETURN_IF_ERROR(rabbet_pw_offer_formats(proposal, RABBET_DTYPE_NONE));
  static const rabbet_dtype_t others[] = {RABBET_DTYPE_FLOAT, RABBET_DTYPE_HALF,
                                          RABBET_DTYPE_BF16};
  for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); ++i) {
    if (proposal->propose->extra_dtypes >> others[i] & 1) {
      RABBET_RETURN_IF_ERROR(rabbet_pw_offer_formats(proposal, others[i]));
    }
  }
  return rabbet_ok();
}

static rabbet_status_t rabbet_pw_propose(const rabbet_propose_t* propose,
                                         rabbet_candidate_sink_t sink) {
  const rabbet_group_t* group = propose->group;
  if (!rabbet_pw_fits(group)) return rabbet_ok();
  rabbet_arena_t arena;
  rabbet_arena_initialize(propose->allocator, &arena);
  rabbet_pw_proposal_t proposal = {.propose = propose, .sink = sink};
  rabbet_dims_t* dims = NULL;
  rabbet_status_t status = rabbet_arena_allocate_array(
      &arena, group->value_count, sizeof(*dims), (void**)&dims);
  if (rabbet_is_ok(status)) {
    status = rabbet_arena_allocate_array(
        &arena, group->input_count + group->output_count,
        sizeof(*proposal.tensors), (void**)&proposal.tensors);
  }
  if (rabbet_is_ok(status)) {
    status = rabbet_arena_allocate_array(&arena, group->output_count,
                                         sizeof(int32_t),
                                         (void**)&proposal.in_place);
  }
  if (rabbet_is_ok(status)) {
    for (size_t i = 0; i < group->value_count; ++i) {
      dims[i] = group->values[i].dims;
    }
    proposal.dims = dims;
    if (rabbet_pw_inner_shapes_fit(group, dims)) {
      status = rabbet_pw_offer_all(&proposal);
    }
  }
  rabbet_arena_deinitialize(&arena);
  return status;
}

// ---- Running ---------------------------------------------------------------

typedef struct rabbet_pw_kernel_t {
  rabbet_kernel_t base;
  rabbet_allocator_t allocator;
  const rabbet_group_t* group;
} rabbet_pw_kernel_t;

struct rabbet_kernel_state_t {
  rabbet_pw_space_t space;
  rabbet_pw_program_t program;
  const rabbet_pw_machine_t* machine;
  int tile;           // elements
  int64_t lane_size;  // bytes of a lane
  int64_t rows;       // rows of the space
  int64_t row;        // elements of one
  int64_t chunk;      // elements of a piece of work, a multiple of tile
  int64_t pieces_per_row;
  size_t thread_bytes;  // workspace of a thread
  int64_t element_size[MAX_OPERANDS];
  rabbet_pw_access_t access[MAX_OPERANDS];
  rabbet_dtype_t dtype[MAX_OPERANDS];
  int stream_count;
  int streams[MAX_OPERANDS];           // operands that are no cells
  int64_t stream_bytes[MAX_OPERANDS];  // a tile of each
};

static rabbet_status_t rabbet_pw_create(const rabbet_kernel_spec_t* spec,
                                        rabbet_kernel_t** out_kernel) {
  *out_kernel = NULL;
  if (!rabbet_pw_fits(spec->group)) {
    return RABBET_STATUS(RABBET_STATUS_INVALID_ARGUMENT,
                         "the group holds layers that are not element-wise");
  }
  rabbet_pw_kernel_t* kernel = NULL;
  RABBET_RETURN_IF_ERROR(
      rabbet_allocate(spec->allocator, sizeof(*kernel), (void**)&kernel));
  kernel->base.kernel_class = &rabbet_cpu_pointwise;
  kernel->allocator = spec->allocator;
  kernel->group = spec->group;
  *out_kernel = &kernel->base;
  return rabbet_ok();
}

static void rabbet_pw_destroy(rabbet_kernel_t* base) {
  if (base) rabbet_free(((rabbet_pw_kernel_t*)base)->allocator, base);
}

// Enough work for a thread to be worth waking: about 20 microseconds.
enum { WORK_PER_PIECE = 1 << 17, MIN_CHUNK = 2048 };

static void rabbet_pw_divide(rabbet_kernel_state_t* state, int threads) {
  state->rows = 1;
  for (int i = 0; i + 1 < state->space.rank; ++i) {
    state->rows *= state->space.extent[i];
  }
  state->row = state->space.extent[state->space.rank - 1];
  int64_t chunk = rabbet_max_i64(
      MIN_CHUNK, WORK_PER_PIECE / (int64_t)state->program.insn_count);
  // Even pieces for the threads, if there are few rows.
  int64_t share = rabbet_ceildiv(state->row * state->rows, threads);
  chunk = rabbet_max_i64(MIN_CHUNK, rabbet_min_i64(chunk, share));
  chunk = rabbet_ceildiv(chunk, state->tile) * state->tile;
  state->chunk = chunk;
  state->pieces_per_row = rabbet_ceildiv(state->row, chunk);
}

static rabbet_status_t rabbet_pw_set_up(const rabbet_pw_kernel_t* kernel,
                                        const rabbet_kernel_shapes_t* shapes,
                                        rabbet_kernel_state_t* state) {
  const rabbet_group_t* group = kernel->group;
  rabbet_format_t format = group->values[group->outputs[0]].format;
  if (!rabbet_pw_inner_shapes_fit(group, shapes->dims) ||
      !rabbet_pw_space(group, shapes->dims, format, &state->space)) {
    char text[128];
    return RABBET_STATUS(
        RABBET_STATUS_INVALID_ARGUMENT,
        "layer '%s': its inputs do not broadcast to its output %s in format %s",
        group->nodes[0].name,
        rabbet_dims_print(&shapes->dims[group->outputs[0]], text, sizeof(text)),
        rabbet_format_name(format));
  }
  int last = state->space.rank - 1;
  for (int i = 0; i < state->space.operand_count; ++i) {
    state->dtype[i] = group->values[rabbet_pw_operand(group, i)].dtype;
    state->element_size[i] = rabbet_dtype_bits(state->dtype[i]) / 8;
    // A row of one element is a stream to outputs and to inputs alike.
    state->access[i] = i < (int)group->input_count &&
                               state->space.stride[i][last] == 0 &&
                               state->space.extent[last] > 1
                           ? RABBET_PW_CELL
                           : RABBET_PW_STREAM;
  }
  RABBET_RETURN_IF_ERROR(rabbet_pw_compile(group, state->access,
                                           kernel->allocator, &state->program));
  state->machine = rabbet_pw_machine();
  state->tile = state->machine->tile[state->program.lane];
  state->lane_size = state->program.lane == RABBET_PW_INT64 ? 8 : 4;
  for (int i = 0; i < state->space.operand_count; ++i) {
    if (state->access[i] == RABBET_PW_CELL) continue;
    state->stream_bytes[state->stream_count] =
        state->tile * state->element_size[i];
    state->streams[state->stream_count++] = i;
  }
  rabbet_pw_divide(state, shapes->threads > 0 ? shapes->threads : 1);
  // A tile for each slot, one for each operand at the ends of rows, and their
  // addresses.
  state->thread_bytes = rabbet_align_up(
      (size_t)(state->program.slot_count + state->space.operand_count) *
          ((size_t)(state->tile * 8) + sizeof(char*)),
      64);
  return rabbet_ok();
}

static void rabbet_pw_state_destroy(rabbet_kernel_t* base,
                                    rabbet_kernel_state_t* state) {
  if (!state) return;
  rabbet_allocator_t allocator = ((rabbet_pw_kernel_t*)base)->allocator;
  rabbet_pw_program_free(allocator, &state->program);
  rabbet_free(allocator, state);
}

static rabbet_status_t rabbet_pw_prepare(rabbet_kernel_t* base,
                                         const rabbet_kernel_shapes_t* shapes,
                                         rabbet_kernel_state_t** out_state,
                                         size_t* out_workspace) {
  rabbet_pw_kernel_t* kernel = (rabbet_pw_kernel_t*)base;
  *out_state = NULL;
  *out_workspace = 0;
  rabbet_kernel_state_t* state = NULL;
  RABBET_RETURN_IF_ERROR(
      rabbet_allocate(kernel->allocator, sizeof(*state), (void**)&state));
  rabbet_status_t status = rabbet_pw_set_up(kernel, shapes, state);
  if (!rabbet_is_ok(status)) {
    rabbet_pw_state_destroy(base, state);
    return status;
  }
  *out_workspace =
      state->thread_bytes * (size_t)rabbet_cpu_slots(shapes->threads);
  *out_state = state;
  return rabbet_ok();
}

typedef struct rabbet_pw_run_t {
  const rabbet_kernel_state_t* state;
  const rabbet_kernel_call_t* call;
} rabbet_pw_run_t;

// What one thread works with.
typedef struct rabbet_pw_worker_t {
  const rabbet_kernel_state_t* state;
  char** bases;
  char* rows[MAX_OPERANDS];  // start of each operand's piece of a row
  char* ends;                // tiles for the ends of rows
  double cells[MAX_OPERANDS];
} rabbet_pw_worker_t;

static void rabbet_pw_set_cell(rabbet_pw_worker_t* worker, int operand) {
  const rabbet_kernel_state_t* state = worker->state;
  const void* from = worker->rows[operand];
  void* cell = &worker->cells[operand];
  rabbet_dtype_t dtype = state->dtype[operand];
  if (state->program.lane == RABBET_PW_INT32) {
    *(int32_t*)cell = (int32_t)rabbet_load_int64(dtype, from, 0);
  } else if (state->program.lane == RABBET_PW_INT64) {
    *(int64_t*)cell = rabbet_load_int64(dtype, from, 0);
  } else if (dtype == RABBET_DTYPE_FLOAT) {
    *(float*)cell = *(const float*)from;
  } else {
    *(float*)cell = (float)rabbet_load_double(dtype, from, 0);
  }
  worker->bases[operand] = cell;
}

// Tiles that are whole: operands are used where they lie.
static void rabbet_pw_run_tiles(rabbet_pw_worker_t* worker, int64_t tiles) {
  const rabbet_kernel_state_t* state = worker->state;
  rabbet_pw_frame_t frame = {worker->bases};
  for (int64_t t = 0; t < tiles; ++t) {
    state->machine->run[state->program.lane](state->program.insns, &frame);
    for (int i = 0; i < state->stream_count; ++i) {
      worker->bases[state->streams[i]] += state->stream_bytes[i];
    }
  }
}

// The last `count` < tile elements of a row go through tiles of their own.
static void rabbet_pw_run_end(rabbet_pw_worker_t* worker, int64_t count) {
  const rabbet_kernel_state_t* state = worker->state;
  char* streams[MAX_OPERANDS];
  for (int i = 0; i < state->space.operand_count; ++i) {
    if (state->access[i] == RABBET_PW_CELL) continue;
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

static void rabbet_pw_run_piece(rabbet_pw_worker_t* worker,
                                const rabbet_kernel_call_t* call,
                                int64_t piece) {
  const rabbet_kernel_state_t* state = worker->state;
  const rabbet_pw_space_t* space = &state->space;
  int64_t row = piece / state->pieces_per_row;
  int64_t begin = piece % state->pieces_per_row * state->chunk;
  int64_t count = rabbet_min_i64(state->chunk, state->row - begin);
  int64_t index[MAX_AXES];
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
    if (state->access[i] == RABBET_PW_CELL) rabbet_pw_set_cell(worker, i);
  }
  rabbet_pw_run_tiles(worker, count / state->tile);
  if (count % state->tile) rabbet_pw_run_end(worker, count % state->tile);
}

static void rabbet_pw_run_pieces(void* context, int64_t begin, int64_t end) {
  const rabbet_pw_run_t* run = context;
  const rabbet_kernel_state_t* state = run->state;
  rabbet_pw_worker_t worker;
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
    rabbet_pw_run_piece(&worker, run->call, piece);
  }
}

static rabbet_status_t rabbet_pw_enqueue(rabbet_kernel_t* base,
                                         rabbet_kernel_state_t* state,
                                         const rabbet_kernel_call_t* call) {
  (void)base;
  rabbet_pw_run_t run = {state, call};
  int64_t work = state->chunk * (int64_t)state->program.insn_count;
  int64_t grain = rabbet_max_i64(1, WORK_PER_PIECE / 2 / work);
  rabbet_cpu_parallel(state->rows * state->pieces_per_row, grain,
                      rabbet_pw_run_pieces, &run);
  return rabbet_ok();
}

const rabbet_kernel_class_t rabbet_cpu_pointwise = {
    .struct_size = sizeof(rabbet_kernel_class_t),
    .name = "cpu.pointwise",
    .version = 3,
    .propose = rabbet_pw_propose,
    .create = rabbet_pw_create,
    .destroy = rabbet_pw_destroy,
    .prepare = rabbet_pw_prepare,
    .destroy_state = rabbet_pw_state_destroy,
    .enqueue = rabbet_pw_enqueue,
};
