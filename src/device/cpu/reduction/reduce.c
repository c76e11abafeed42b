// Reductions. The axes of the memory are sorted and merged. Then there are two
// kinds of loops:
//   rows     the contiguous axis is reduced: an output element takes runs of
//            `width` elements at the positions of the other reduced axes
//   columns  the contiguous axis is kept: a tile of up to TILE neighbouring
//            output elements is computed from rows of the input
// Long reductions are divided into parts of PART elements. The parts depend
// only on the shapes, so that results do not depend on the number of threads.
#include <assert.h>
#include <math.h>
#include <string.h>

#include "device/common/axes.h"
#include "device/cpu/cpu.h"
#include "device/cpu/movement/move.h"
#include "device/cpu/parallel.h"

enum { TILE = 512, PART = 64 * 1024, FLUSH = 64 };

typedef union reduce_cell_t {
  double real;
  int64_t integer;
} reduce_cell_t;

enum { SOURCE = 0, TARGET = 1, OPERANDS = 2 };  // of axes

typedef struct cpu_reduce_state_t {
  rabbet_dtype_t dtype;
  int64_t size;
  rabbet_lane_t lane;
  rabbet_reduce_t op;
  bool average;
  bool columns;
  rabbet_axes_t kept, reduced;  // without the contiguous axis
  int64_t width;                // elements of the contiguous axis
  int64_t target_step;          // columns: its stride in the target
  // Columns: a row of the tile has this many narrow rows of the memory, which
  // are combined at the end.
  int64_t fold;
  int64_t outputs;                            // positions of the kept axes
  int64_t positions;                          // of the reduced axes
  int64_t tiles;                              // of the width (columns)
  int64_t parts, part_positions, part_width;  // rows: one of the two is divided
  int64_t count;                              // elements reduced to one
  bool simple;  // rows are FLOAT and contiguous, and so are their results
} cpu_reduce_state_t;

// ---- Axes ------------------------------------------------------------------

// The strides of the output for each logical axis of the input that is kept.
static bool reduce_sort(const rabbet_group_node_t* node,
                        const rabbet_dims_t* in, const rabbet_dims_t* out,
                        rabbet_format_t from, rabbet_format_t to,
                        cpu_reduce_state_t* state) {
  rabbet_box_t source, target;
  if (!rabbet_box(in, from, &source) || !rabbet_box(out, to, &target)) {
    return false;
  }
  int64_t mask = rabbet_node_int(node, "axes");
  bool keep = rabbet_node_int(node, "keep_dims") != 0;
  // Boxes that split the channels must split them alike.
  bool split = source.rank > in->rank;
  if (split != (target.rank > out->rank)) return false;
  if (split && (mask >> 1 & 1)) return false;
  int32_t at = 0;
  state->count = 1;
  for (int32_t i = 0; i < source.rank; ++i) {
    bool reduced = mask >> source.axis[i] & 1;
    if (reduced) state->count *= source.extent[i];
    int64_t strides[RABBET_AXES_OPERANDS] = {source.stride[i],
                                             reduced ? 0 : target.stride[at]};
    rabbet_axes_add(reduced ? &state->reduced : &state->kept, source.extent[i],
                    strides);
    if (!reduced || keep) ++at;
  }
  return true;
}

static void reduce_pop(rabbet_axes_t* axes, cpu_reduce_state_t* state) {
  assert(axes->rank > 0);
  int32_t last = --axes->rank;
  state->width = axes->extent[last];
  state->target_step = axes->stride[TARGET][last];
}

// Narrow columns: joins contiguous rows of the memory into one.
static void reduce_fold(cpu_reduce_state_t* state) {
  rabbet_axes_t* axes = &state->reduced;
  int32_t last = axes->rank - 1;
  state->fold = 1;
  if (state->width == 0 || state->width > TILE / 2 || last < 0 ||
      axes->stride[SOURCE][last] != state->width) {
    return;
  }
  for (int64_t n = TILE / state->width; n > 1; --n) {
    if (axes->extent[last] % n != 0) continue;
    state->fold = n;
    axes->extent[last] /= n;
    axes->stride[SOURCE][last] *= n;
    return;
  }
}

static void reduce_divide(cpu_reduce_state_t* state) {
  state->outputs = rabbet_axes_positions(&state->kept);
  state->positions = rabbet_axes_positions(&state->reduced);
  state->part_width = state->width;
  state->part_positions = state->positions;
  state->tiles = 1;
  int64_t wide = state->width;
  if (state->columns) {
    state->tiles = rabbet_ceildiv(state->width, TILE);
    wide = rabbet_min_i64(state->width * state->fold, TILE);
  }
  if (state->positions * wide >= 2 * PART) {
    if (wide >= 2 * PART) {
      state->part_width = PART;
    } else {
      state->part_positions = rabbet_max_i64(1, PART / wide);
    }
  }
  state->parts = state->positions == 0 || state->width == 0
                     ? 1
                     : rabbet_ceildiv(state->positions, state->part_positions) *
                           (state->columns ? 1
                                           : rabbet_ceildiv(state->width,
                                                            state->part_width));
  assert(state->parts > 0);
  assert(state->width * state->fold <= TILE || state->fold == 1);
}

// False if the formats do not suit the shapes.
static bool reduce_plan(const rabbet_group_node_t* node,
                        const rabbet_dims_t* in, const rabbet_dims_t* out,
                        rabbet_format_t from, rabbet_format_t to,
                        cpu_reduce_state_t* state) {
  if (!reduce_sort(node, in, out, from, to, state)) return false;
  rabbet_axes_merge(&state->kept, OPERANDS);
  rabbet_axes_merge(&state->reduced, OPERANDS);
  state->width = 1;
  state->fold = 1;
  if (rabbet_axes_contiguous(&state->kept)) {
    state->columns = true;
    reduce_pop(&state->kept, state);
    reduce_fold(state);
  } else if (rabbet_axes_contiguous(&state->reduced)) {
    reduce_pop(&state->reduced, state);
  }
  reduce_divide(state);
  return true;
}

// ---- The class -------------------------------------------------------------

static rabbet_status_t cpu_reduce_body(rabbet_proposal_t* proposal) {
  const rabbet_group_t* group = proposal->propose->group;
  const rabbet_group_node_t* node = proposal->node;
  const rabbet_dims_t* in = &group->values[node->inputs[0]].dims;
  const rabbet_dims_t* out = &group->values[node->outputs[0]].dims;
  const rabbet_format_t formats[] = {RABBET_FORMAT_LINEAR, RABBET_FORMAT_HWC,
                                     rabbet_cpu_blocked_format()};
  rabbet_dtype_t types[4];
  int count = rabbet_compute_types(proposal->propose,
                                   group->values[node->inputs[0]].dtype, types);
  for (int i = 0; i < 6; ++i) {
    rabbet_format_t from = formats[i / 2];
    rabbet_format_t to = i % 2 ? from : RABBET_FORMAT_LINEAR;
    cpu_reduce_state_t state = {0};
    if ((i == 1) || !reduce_plan(node, in, out, from, to, &state)) {
      continue;
    }
    for (int t = 0; t < count; ++t) {
      rabbet_proposal_set_input(proposal, 0, types[t], from);
      rabbet_proposal_set_output(proposal, types[t], to);
      RABBET_RETURN_IF_ERROR(rabbet_proposal_offer(
          proposal, state.columns ? "columns" : "rows", -1));
    }
  }
  return rabbet_ok();
}

RABBET_PROPOSE_FOR(cpu_reduce, REDUCE)

static rabbet_lane_t reduce_lane(rabbet_dtype_t dtype, bool average) {
  if (rabbet_dtype_is_float(dtype)) return RABBET_LANE_FLOAT;
  return dtype == RABBET_DTYPE_INT64 || average ? RABBET_LANE_INT64
                                                : RABBET_LANE_INT32;
}

static rabbet_status_t cpu_reduce_prepare(rabbet_kernel_t* base,
                                          const rabbet_kernel_shapes_t* shapes,
                                          cpu_reduce_state_t** out_state,
                                          size_t* out_workspace) {
  const rabbet_node_kernel_t* kernel = (const rabbet_node_kernel_t*)base;
  const rabbet_group_node_t* node = kernel->node;
  const rabbet_group_value_t* in = &kernel->group->values[node->inputs[0]];
  const rabbet_group_value_t* out = &kernel->group->values[node->outputs[0]];
  const rabbet_dims_t* dims = &shapes->dims[node->inputs[0]];
  int64_t op = rabbet_node_int(node, "op");
  cpu_reduce_state_t made = {
      .dtype = in->dtype,
      .size = rabbet_dtype_bits(in->dtype) / 8,
      .lane = reduce_lane(in->dtype, op == RABBET_REDUCE_AVG),
      .op = op == RABBET_REDUCE_AVG ? RABBET_REDUCE_SUM : (rabbet_reduce_t)op,
      .average = op == RABBET_REDUCE_AVG};
  *out_workspace = 0;
  if (!reduce_plan(node, dims, &shapes->dims[node->outputs[0]], in->format,
                   out->format, &made)) {
    char text[128];
    return RABBET_STATUS(RABBET_STATUS_UNSUPPORTED,
                         "layer '%s': the kernel does not take shape %s in "
                         "format %s",
                         node->name,
                         rabbet_dims_print(dims, text, sizeof(text)),
                         rabbet_format_name(in->format));
  }
  const rabbet_axes_t* kept = &made.kept;
  made.simple = made.dtype == RABBET_DTYPE_FLOAT && !made.columns &&
                made.op != RABBET_REDUCE_PROD && made.parts == 1 &&
                made.positions == 1 && made.width > 0 &&
                (kept->rank == 0 ||
                 (kept->rank == 1 && kept->stride[SOURCE][0] == made.width &&
                  kept->stride[TARGET][0] == 1));
  if (made.parts > 1) {
    *out_workspace =
        (size_t)(made.outputs * made.parts * (made.columns ? made.width : 1)) *
        sizeof(reduce_cell_t);
  }
  RABBET_RETURN_IF_ERROR(
      rabbet_node_state_allocate(base, sizeof(made), (void**)out_state));
  **out_state = made;
  return rabbet_ok();
}

// ---- Cells -----------------------------------------------------------------

static reduce_cell_t reduce_identity(const cpu_reduce_state_t* state) {
  static const int64_t lowest[RABBET_DTYPE_COUNT] = {
      [RABBET_DTYPE_INT8] = INT8_MIN,
      [RABBET_DTYPE_UINT8] = 0,
      [RABBET_DTYPE_INT32] = INT32_MIN,
      [RABBET_DTYPE_INT64] = INT64_MIN};
  static const int64_t highest[RABBET_DTYPE_COUNT] = {
      [RABBET_DTYPE_INT8] = INT8_MAX,
      [RABBET_DTYPE_UINT8] = UINT8_MAX,
      [RABBET_DTYPE_INT32] = INT32_MAX,
      [RABBET_DTYPE_INT64] = INT64_MAX};
  reduce_cell_t cell;
  if (state->lane == RABBET_LANE_FLOAT) {
    cell.real = state->op == RABBET_REDUCE_MAX ? -INFINITY
                : state->op == RABBET_REDUCE_MIN
                    ? INFINITY
                    : state->op == RABBET_REDUCE_PROD;
  } else {
    cell.integer = state->op == RABBET_REDUCE_MAX ? lowest[state->dtype]
                   : state->op == RABBET_REDUCE_MIN
                       ? highest[state->dtype]
                       : state->op == RABBET_REDUCE_PROD;
  }
  return cell;
}

// Combines two partial results.
static void reduce_join(const cpu_reduce_state_t* state, reduce_cell_t* total,
                        const reduce_cell_t* part) {
  const rabbet_vectors_t* vectors = rabbet_vectors();
  if (state->lane != RABBET_LANE_FLOAT) {
    vectors->combine_int64(state->op, &part->integer, 1, &total->integer);
    return;
  }
  double a = total->real, b = part->real;
  switch (state->op) {
    case RABBET_REDUCE_SUM:
      a += b;
      break;
    case RABBET_REDUCE_PROD:
      a *= b;
      break;
    case RABBET_REDUCE_MAX:
      a = isnan(b) || b > a ? b : a;
      break;
    default:
      a = isnan(b) || b < a ? b : a;
      break;
  }
  total->real = a;
}

static void reduce_store(const cpu_reduce_state_t* state, reduce_cell_t cell,
                         void* target, int64_t at) {
  if (state->lane == RABBET_LANE_FLOAT) {
    if (state->average) cell.real /= (double)state->count;
    if (state->dtype == RABBET_DTYPE_FLOAT) {
      ((float*)target)[at] = (float)cell.real;
    } else {
      rabbet_store_double(state->dtype, target, at, cell.real);
    }
    return;
  }
  if (state->average) {
    cell.integer = state->count > 0 ? cell.integer / state->count : 0;
  }
  rabbet_store_int64(state->dtype, target, at, cell.integer);
}

// ---- Lanes -----------------------------------------------------------------

// A block of at most RABBET_LANES elements as lanes: in their own memory, or
// converted into the buffer.
static const void* reduce_lanes(const cpu_reduce_state_t* state,
                                const void* source, int64_t count,
                                void* buffer) {
  assert(count <= RABBET_LANES);
  const rabbet_vectors_t* vectors = rabbet_vectors();
  if (state->lane == RABBET_LANE_FLOAT) {
    rabbet_convert_fn_t convert = vectors->to_float[state->dtype];
    if (!convert) return source;
    convert(source, buffer, count);
    return buffer;
  }
  if (state->lane == RABBET_LANE_INT64 && state->dtype == RABBET_DTYPE_INT64) {
    return source;
  }
  rabbet_convert_fn_t convert = vectors->to_int32[state->dtype];
  if (state->lane == RABBET_LANE_INT32) {
    if (!convert) return source;
    convert(source, buffer, count);
    return buffer;
  }
  int32_t lanes[RABBET_LANES];
  if (convert) {
    convert(source, lanes, count);
    source = lanes;
  }
  vectors->from_int32[RABBET_DTYPE_INT64](source, buffer, count);
  return buffer;
}

// ---- Rows ------------------------------------------------------------------

static void reduce_run(const cpu_reduce_state_t* state, const char* source,
                       int64_t count, reduce_cell_t* total) {
  const rabbet_vectors_t* vectors = rabbet_vectors();
  int64_t buffer[RABBET_LANES];
  for (int64_t i = 0; i < count; i += RABBET_LANES) {
    int64_t n = rabbet_min_i64(RABBET_LANES, count - i);
    const void* lanes =
        reduce_lanes(state, source + i * state->size, n, buffer);
    if (state->lane == RABBET_LANE_FLOAT) {
      vectors->reduce_float(state->op, lanes, n, &total->real);
    } else if (state->lane == RABBET_LANE_INT64) {
      vectors->reduce_int64(state->op, lanes, n, &total->integer);
    } else {
      int32_t part = (int32_t)total->integer;
      vectors->reduce_int32(state->op, lanes, n, &part);
      total->integer = part;
    }
  }
}

typedef struct reduce_call_t {
  const cpu_reduce_state_t* state;
  const char* source;
  void* target;
  reduce_cell_t* cells;  // [outputs][parts][width of columns]
} reduce_call_t;

// Reduces elements [first, first + count) of the runs at positions [begin,
// end).
static void reduce_runs(const reduce_call_t* call, const char* source,
                        int64_t begin, int64_t end, int64_t first,
                        int64_t count, reduce_cell_t* total) {
  const cpu_reduce_state_t* state = call->state;
  for (int64_t at = begin; at < end; ++at) {
    int64_t offset = 0;
    rabbet_axes_locate(&state->reduced, at, 1, &offset);
    reduce_run(state, source + (offset + first) * state->size, count, total);
  }
}

static void reduce_row_part(const reduce_call_t* call, const char* source,
                            int64_t part, reduce_cell_t* total) {
  const cpu_reduce_state_t* state = call->state;
  if (state->parts == 1) {
    reduce_runs(call, source, 0, state->positions, 0, state->width, total);
    return;
  }
  int64_t across = rabbet_ceildiv(state->width, state->part_width);
  int64_t begin = part / across * state->part_positions;
  int64_t end = rabbet_min_i64(begin + state->part_positions, state->positions);
  int64_t first = part % across * state->part_width;
  int64_t count = rabbet_min_i64(state->part_width, state->width - first);
  assert(begin < end && count > 0);
  reduce_runs(call, source, begin, end, first, count, total);
}

static void reduce_simple(const reduce_call_t* call, int64_t begin,
                          int64_t end) {
  const cpu_reduce_state_t* state = call->state;
  assert(state->parts == 1 && state->positions == 1 && !state->columns);
  float* target = call->target;
  rabbet_vectors()->reduce_rows(
      state->op, (const float*)call->source + begin * state->width, end - begin,
      state->width, target + begin);
  for (int64_t i = begin; state->average && i < end; ++i) {
    target[i] /= (float)state->count;
  }
}

static void cpu_reduce_rows(void* context, int64_t begin, int64_t end) {
  const reduce_call_t* call = context;
  const cpu_reduce_state_t* state = call->state;
  if (state->simple) {
    reduce_simple(call, begin, end);
    return;
  }
  for (int64_t item = begin; item < end; ++item) {
    int64_t place[OPERANDS];
    rabbet_axes_locate(&state->kept, item / state->parts, OPERANDS, place);
    int64_t source = place[SOURCE], target = place[TARGET];
    reduce_cell_t total = reduce_identity(state);
    reduce_row_part(call, call->source + source * state->size,
                    item % state->parts, &total);
    if (state->parts > 1) {
      call->cells[item] = total;
    } else {
      reduce_store(state, total, call->target, target);
    }
  }
}

// ---- Columns ---------------------------------------------------------------

// Totals of a tile: lanes collect a few rows, cells all rows.
typedef struct reduce_tile_t {
  int64_t width;
  union {
    float real[TILE];
    int32_t small[TILE];
    int64_t large[TILE];
  } lanes;
  reduce_cell_t cells[TILE];
} reduce_tile_t;

static void reduce_start(const cpu_reduce_state_t* state, reduce_tile_t* tile) {
  reduce_cell_t identity = reduce_identity(state);
  for (int64_t i = 0; i < tile->width; ++i) {
    if (state->lane == RABBET_LANE_FLOAT) {
      tile->lanes.real[i] = (float)identity.real;
    } else if (state->lane == RABBET_LANE_INT32) {
      tile->lanes.small[i] = (int32_t)identity.integer;
    } else {
      tile->lanes.large[i] = identity.integer;
    }
  }
}

static void reduce_flush(const cpu_reduce_state_t* state, reduce_tile_t* tile) {
  if (state->lane == RABBET_LANE_FLOAT) {
    rabbet_vectors()->flush_float(state->op, tile->lanes.real, tile->width,
                                  &tile->cells[0].real);
    reduce_start(state, tile);
    return;
  }
  for (int64_t i = 0; i < tile->width; ++i) {
    tile->cells[i].integer = state->lane == RABBET_LANE_INT32
                                 ? tile->lanes.small[i]
                                 : tile->lanes.large[i];
  }
}

// Reduces `rows` rows with a stride of `stride` bytes into the tile's lanes.
static void reduce_rows_into(const cpu_reduce_state_t* state,
                             const char* source, int64_t rows, int64_t stride,
                             reduce_tile_t* tile) {
  const rabbet_vectors_t* vectors = rabbet_vectors();
  int64_t buffer[TILE];
  if (state->dtype == RABBET_DTYPE_FLOAT) {
    vectors->combine_float(state->op, (const float*)source, rows,
                           stride / (int64_t)sizeof(float), tile->width,
                           tile->lanes.real);
    return;
  }
  for (int64_t i = 0; i < rows; ++i, source += stride) {
    const void* lanes = reduce_lanes(state, source, tile->width, buffer);
    if (state->lane == RABBET_LANE_FLOAT) {
      vectors->combine_float(state->op, lanes, 1, 0, tile->width,
                             tile->lanes.real);
    } else if (state->lane == RABBET_LANE_INT32) {
      vectors->combine_int32(state->op, lanes, tile->width, tile->lanes.small);
    } else {
      vectors->combine_int64(state->op, lanes, tile->width, tile->lanes.large);
    }
  }
}

// Reduces positions [begin, end) of the reduced axes into the tile's lanes, and
// after every `flush` positions the lanes into its cells.
static void reduce_tile_rows(const cpu_reduce_state_t* state,
                             const char* source, int64_t begin, int64_t end,
                             int64_t flush, reduce_tile_t* tile) {
  const rabbet_axes_t* axes = &state->reduced;
  int32_t last = axes->rank - 1;
  int64_t extent = last < 0 ? 1 : axes->extent[last];
  int64_t stride = last < 0 ? 0 : axes->stride[SOURCE][last] * state->size;
  int64_t pending = 0;
  for (int64_t at = begin; at < end;) {
    int64_t offset = 0;
    rabbet_axes_locate(axes, at, 1, &offset);
    int64_t n = rabbet_min_i64(extent - at % extent, end - at);
    n = rabbet_min_i64(n, flush - pending);
    reduce_rows_into(state, source + offset * state->size, n, stride, tile);
    at += n;
    pending += n;
    if (pending < flush) continue;
    pending = 0;
    if (state->lane == RABBET_LANE_FLOAT) reduce_flush(state, tile);
  }
}

// Reduces positions [begin, end) of the reduced axes into the tile's cells.
static void reduce_tile(const cpu_reduce_state_t* state, const char* source,
                        int64_t begin, int64_t end, reduce_tile_t* tile) {
  reduce_cell_t identity = reduce_identity(state);
  for (int64_t i = 0; i < tile->width; ++i)
    tile->cells[i] = identity;
  reduce_start(state, tile);
  // Products are double from row to row: partial products in FLOAT could
  // overflow.
  reduce_tile_rows(state, source, begin, end,
                   state->op == RABBET_REDUCE_PROD ? 1 : FLUSH, tile);
  reduce_flush(state, tile);
  assert(tile->width % state->fold == 0);
  int64_t width = tile->width / state->fold;
  for (int64_t i = width; i < tile->width; ++i) {
    reduce_join(state, &tile->cells[i % width], &tile->cells[i]);
  }
}

// For few rows of FLOAT: the lanes are the result.
static bool reduce_is_short(const cpu_reduce_state_t* state) {
  return state->dtype == RABBET_DTYPE_FLOAT && state->parts == 1 &&
         state->positions <= FLUSH && state->target_step == 1 &&
         state->op != RABBET_REDUCE_PROD;
}

static void reduce_short(const cpu_reduce_state_t* state, const char* source,
                         reduce_tile_t* tile, float* target) {
  reduce_start(state, tile);
  reduce_tile_rows(state, source, 0, state->positions, FLUSH + 1, tile);
  int64_t width = tile->width / state->fold;
  float* lanes = tile->lanes.real;
  rabbet_vectors()->combine_float(state->op, lanes + width, state->fold - 1,
                                  width, width, lanes);
  for (int64_t i = 0; i < width; ++i) {
    target[i] = state->average ? lanes[i] / (float)state->count : lanes[i];
  }
}

static void reduce_columns(void* context, int64_t begin, int64_t end) {
  const reduce_call_t* call = context;
  const cpu_reduce_state_t* state = call->state;
  bool is_short = reduce_is_short(state);
  reduce_tile_t tile;
  for (int64_t item = begin; item < end; ++item) {
    int64_t column = item % state->tiles * TILE;
    int64_t part = item / state->tiles % state->parts;
    int64_t output = item / state->tiles / state->parts;
    int64_t place[OPERANDS];
    rabbet_axes_locate(&state->kept, output, OPERANDS, place);
    int64_t source = place[SOURCE], target = place[TARGET];
    int64_t width = rabbet_min_i64(TILE, state->width - column);
    tile.width = width * state->fold;
    assert(tile.width > 0 && tile.width <= TILE && output < state->outputs);
    if (is_short) {
      reduce_short(state, call->source + (source + column) * state->size, &tile,
                   (float*)call->target + target + column);
      continue;
    }
    int64_t first = part * state->part_positions;
    reduce_tile(state, call->source + (source + column) * state->size, first,
                rabbet_min_i64(first + state->part_positions, state->positions),
                &tile);
    if (state->parts > 1) {
      memcpy(
          call->cells + (output * state->parts + part) * state->width + column,
          tile.cells, (size_t)width * sizeof(tile.cells[0]));
      continue;
    }
    for (int64_t i = 0; i < width; ++i) {
      reduce_store(state, tile.cells[i], call->target,
                   target + (column + i) * state->target_step);
    }
  }
}

// ---- Running ---------------------------------------------------------------

// Combines the parts of each output element.
static void reduce_finish(void* context, int64_t begin, int64_t end) {
  const reduce_call_t* call = context;
  const cpu_reduce_state_t* state = call->state;
  int64_t width = state->columns ? state->width : 1;
  for (int64_t item = begin; item < end; ++item) {
    int64_t output = item / width, column = item % width;
    int64_t place[OPERANDS];
    rabbet_axes_locate(&state->kept, output, OPERANDS, place);
    const reduce_cell_t* cells =
        call->cells + output * state->parts * width + column;
    reduce_cell_t total = cells[0];
    for (int64_t part = 1; part < state->parts; ++part) {
      reduce_join(state, &total, &cells[part * width]);
    }
    reduce_store(state, total, call->target,
                 place[TARGET] + column * state->target_step);
  }
}

static rabbet_status_t cpu_reduce_enqueue(rabbet_kernel_t* base,
                                          cpu_reduce_state_t* state,
                                          const rabbet_kernel_call_t* call) {
  (void)base;
  reduce_call_t run = {.state = state,
                       .source = call->inputs[0],
                       .target = call->outputs[0],
                       .cells = call->workspace};
  int64_t width = state->columns ? state->width : 1;
  int64_t items = state->outputs * state->parts * state->tiles;
  int64_t work =
      rabbet_max_i64(1, state->outputs * width > 0
                            ? state->count * state->size * state->outputs *
                                  width / rabbet_max_i64(1, items)
                            : 1);
  rabbet_cpu_parallel(items, rabbet_max_i64(1, RABBET_CPU_GRAIN_BYTES / work),
                      state->columns ? reduce_columns : cpu_reduce_rows, &run);
  if (state->parts > 1) {
    rabbet_cpu_parallel(state->outputs * width, 4096, reduce_finish, &run);
  }
  return rabbet_ok();
}

RABBET_TAKES_NODE(cpu_reduce, REDUCE, RABBET_TAKES_FORMATS)

RABBET_NODE_CLASS(cpu_reduce, "cpu.reduce", 1);
