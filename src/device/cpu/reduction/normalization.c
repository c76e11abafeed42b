// (x - mean) / sqrt(variance + epsilon) * scale + bias; with is_rms the mean is
// taken as 0.
//
// Axes of the memory are outer (a mean for each of their positions) or inner (a
// mean is over them). If the contiguous axis is inner, the elements of a mean
// are a few contiguous runs: one pass computes mean and variance, a second one,
// often from the cache, the result. If it is outer, tiles of neighbouring means
// are computed together, a row at a time.
#include <math.h>
#include <string.h>

#include "device/common/normalization.h"
#include "device/cpu/cpu.h"
#include "device/cpu/movement/move.h"
#include "device/cpu/parallel.h"

enum {
  INPUT = RABBET_NORMALIZE_INPUT,
  SCALE = RABBET_NORMALIZE_SCALE,
  BIAS = RABBET_NORMALIZE_BIAS,
  OPERANDS = RABBET_AXES_OPERANDS,
};
enum { TILE = 256 };

typedef struct cpu_normalization_state_t {
  rabbet_dtype_t dtype;
  int64_t size;
  double epsilon;
  bool columns, is_rms;
  // Axes without the contiguous one, whose extent is `width`. `moments`: inner
  // axes, merged for the input alone, with runs of `run` elements (rows).
  rabbet_axes_t outer, inner, moments;
  int64_t width, run;
  bool moves[OPERANDS];  // operand has stride 1 on the contiguous axis, else 0
  int64_t outputs, positions, runs, tiles;
  double count;
  // Scale and bias as FLOAT in the workspace, where they have another type.
  rabbet_dtype_t types[OPERANDS];  // NONE: absent
  int64_t counts[OPERANDS];
  size_t offsets[OPERANDS];
} cpu_normalization_state_t;

// ---- Axes ------------------------------------------------------------------

// Adds an axis of the box to the outer or the inner axes; grouped channels
// become one of each.
static bool normalize_place(const rabbet_normalization_t* layer,
                            const rabbet_box_t* box, int32_t i,
                            cpu_normalization_state_t* state) {
  int32_t axis = box->axis[i];
  // A step is a block of channels, or one channel within a block.
  bool is_blocks = i + 1 < box->rank && box->axis[i + 1] == axis;
  int64_t step = is_blocks ? box->extent[i + 1] : 1;
  int64_t strides[OPERANDS] = {box->stride[i],
                               layer->strides[SCALE][axis] * step,
                               layer->strides[BIAS][axis] * step};
  if (axis != 1 || layer->groups == 1) {
    bool inside = layer->mask >> axis & 1;
    rabbet_axes_add(inside ? &state->inner : &state->outer, box->extent[i],
                    strides);
    return true;
  }
  int64_t inside[OPERANDS], outside[OPERANDS];
  rabbet_normalization_split(layer, step, strides, outside, inside);
  bool is_lane = i > 0 && box->axis[i - 1] == axis;
  if (is_lane) {
    rabbet_axes_add(&state->inner, box->extent[i], inside);
    return true;
  }
  int64_t each = layer->x->d[1] / layer->groups;  // channels of a group
  if (each % step != 0) return false;
  rabbet_axes_add(&state->outer, layer->groups, outside);
  rabbet_axes_add(&state->inner, each / step, inside);
  return true;
}

// Removes the contiguous axis from the axes; false if scale or bias is neither
// broadcast nor contiguous along it.
static bool normalize_pop(rabbet_axes_t* axes,
                          cpu_normalization_state_t* state) {
  int32_t last = --axes->rank;
  state->width = axes->extent[last];
  for (int k = 0; k < OPERANDS; ++k) {
    int64_t stride = axes->stride[k][last];
    if (stride != 0 && stride != 1) return false;
    state->moves[k] = stride == 1;
  }
  return true;
}

// False if the kernel does not support the format.
static bool normalize_plan(const rabbet_normalization_t* layer,
                           rabbet_format_t format,
                           cpu_normalization_state_t* state) {
  rabbet_box_t box;
  if (!rabbet_box(layer->x, format, &box)) return false;
  for (int32_t i = 0; i < box.rank; ++i) {
    if (!normalize_place(layer, &box, i, state)) return false;
  }
  state->count = (double)rabbet_axes_positions(&state->inner);
  state->moments = state->inner;
  rabbet_axes_merge(&state->outer, OPERANDS);
  rabbet_axes_merge(&state->inner, OPERANDS);
  rabbet_axes_merge(&state->moments, 1);
  state->width = state->run = 1;
  state->is_rms = layer->is_rms;
  state->columns = rabbet_axes_contiguous(&state->outer);
  if (state->columns) {
    if (!normalize_pop(&state->outer, state)) return false;
  } else if (rabbet_axes_contiguous(&state->inner)) {
    if (!normalize_pop(&state->inner, state)) return false;
    state->run = state->moments.extent[--state->moments.rank];
  }
  state->outputs = rabbet_axes_positions(&state->outer);
  state->positions = rabbet_axes_positions(&state->inner);
  state->runs = rabbet_axes_positions(&state->moments);
  state->tiles = state->columns ? rabbet_ceildiv(state->width, TILE) : 1;
  return true;
}

// ---- The class -------------------------------------------------------------

static rabbet_status_t cpu_normalization_body(rabbet_proposal_t* proposal) {
  const rabbet_group_t* group = proposal->propose->group;
  rabbet_dims_t* dims = NULL;
  rabbet_normalization_t layer;
  RABBET_RETURN_IF_ERROR(
      rabbet_group_opt_dims(group, proposal->propose->allocator, &dims));
  rabbet_status_t status = rabbet_normalization_read(group, dims, &layer);
  const rabbet_format_t formats[] = {RABBET_FORMAT_LINEAR, RABBET_FORMAT_HWC,
                                     rabbet_cpu_blocked_format()};
  uint32_t fits = 0;
  for (int i = 0; rabbet_is_ok(status) && i < 3; ++i) {
    cpu_normalization_state_t state = {0};
    if (normalize_plan(&layer, formats[i], &state)) fits |= 1u << i;
  }
  rabbet_free(proposal->propose->allocator, dims);
  RABBET_RETURN_IF_ERROR(status);
  // Scale or bias that is the input itself keeps the input's type.
  return rabbet_cpu_offer_same(proposal, fits, "two passes", 0);
}

static rabbet_status_t cpu_normalization_propose(
    const rabbet_propose_t* propose, rabbet_candidate_sink_t sink) {
  const rabbet_group_t* group = propose->group;
  if (!rabbet_node_is(group, RABBET_OP_NORMALIZATION)) return rabbet_ok();
  const rabbet_group_node_t* node = &group->nodes[0];
  for (size_t i = SCALE; i <= BIAS; ++i) {
    if (rabbet_node_input(node, i) == node->inputs[INPUT]) return rabbet_ok();
  }
  return rabbet_proposal_make(propose, sink, &rabbet_cpu_normalization, NULL,
                              cpu_normalization_body);
}

static rabbet_status_t normalize_operands(const rabbet_node_kernel_t* kernel,
                                          const rabbet_dims_t* dims,
                                          cpu_normalization_state_t* state,
                                          size_t* out_workspace) {
  for (size_t i = SCALE; i <= BIAS; ++i) {
    int32_t value = rabbet_node_input(kernel->node, i);
    state->types[i] = RABBET_DTYPE_NONE;
    if (value < 0) continue;
    state->types[i] = kernel->group->values[value].dtype;
    RABBET_RETURN_IF_ERROR(rabbet_dims_count(&dims[value], &state->counts[i]));
    if (state->types[i] == RABBET_DTYPE_FLOAT) continue;
    state->offsets[i] = *out_workspace;
    *out_workspace +=
        rabbet_align_up((size_t)state->counts[i] * sizeof(float), 64);
  }
  return rabbet_ok();
}

static rabbet_status_t cpu_normalization_prepare(
    rabbet_kernel_t* base, const rabbet_kernel_shapes_t* shapes,
    cpu_normalization_state_t** out_state, size_t* out_workspace) {
  const rabbet_node_kernel_t* kernel = (const rabbet_node_kernel_t*)base;
  const rabbet_group_node_t* node = kernel->node;
  const rabbet_group_value_t* value =
      &kernel->group->values[node->inputs[INPUT]];
  rabbet_normalization_t layer;
  cpu_normalization_state_t made = {
      .dtype = value->dtype,
      .size = rabbet_dtype_bits(value->dtype) / 8,
      .epsilon =
          rabbet_attr_float(node->attrs, node->op->attr_count, "epsilon", 0)};
  *out_workspace = 0;
  RABBET_RETURN_IF_ERROR(
      rabbet_normalization_read(kernel->group, shapes->dims, &layer));
  if (!normalize_plan(&layer, value->format, &made)) {
    char text[128];
    return RABBET_STATUS(RABBET_STATUS_UNSUPPORTED,
                         "layer '%s': the kernel does not take shape %s in "
                         "format %s",
                         node->name,
                         rabbet_dims_print(layer.x, text, sizeof(text)),
                         rabbet_format_name(value->format));
  }
  RABBET_RETURN_IF_ERROR(
      normalize_operands(kernel, shapes->dims, &made, out_workspace));
  RABBET_RETURN_IF_ERROR(
      rabbet_node_state_allocate(base, sizeof(made), (void**)out_state));
  **out_state = made;
  return rabbet_ok();
}

// ---- Running ---------------------------------------------------------------

typedef struct normalize_call_t {
  const cpu_normalization_state_t* state;
  const rabbet_vectors_t* vectors;
  const char* source;
  char* target;
  const float* operands[OPERANDS];  // scale and bias, NULL where absent
} normalize_call_t;

static const float* normalize_lanes(const normalize_call_t* call, int64_t at,
                                    int64_t count, float* buffer) {
  const cpu_normalization_state_t* state = call->state;
  const char* source = call->source + at * state->size;
  rabbet_convert_fn_t convert = call->vectors->to_float[state->dtype];
  if (!convert) return (const float*)source;
  convert(source, buffer, count);
  return buffer;
}

// Normalizes `count` elements at `at`, which have one mean.
static void normalize_run(const normalize_call_t* call,
                          rabbet_normalize_row_t row, int64_t at,
                          int64_t count) {
  const cpu_normalization_state_t* state = call->state;
  rabbet_convert_fn_t convert = call->vectors->from_float[state->dtype];
  float buffer[RABBET_LANES];
  int64_t block = convert ? RABBET_LANES : count;
  for (int64_t i = 0; i < count; i += block) {
    int64_t n = rabbet_min_i64(block, count - i);
    const float* x = normalize_lanes(call, at + i, n, buffer);
    char* target = call->target + (at + i) * state->size;
    call->vectors->normalize(&row, x, n, convert ? buffer : (float*)target);
    if (convert) convert(buffer, target, n);
    if (row.scale) row.scale += n;
    if (row.bias) row.bias += n;
  }
}

static void normalize_measure(const normalize_call_t* call, int64_t at,
                              rabbet_moments_t* moments) {
  const cpu_normalization_state_t* state = call->state;
  float buffer[RABBET_LANES];
  int64_t block = state->dtype == RABBET_DTYPE_FLOAT
                      ? rabbet_max_i64(1, state->run)
                      : RABBET_LANES;
  *moments = (rabbet_moments_t){0, 0, 0};
  for (int64_t r = 0; r < state->runs; ++r) {
    int64_t offsets[OPERANDS];
    rabbet_axes_locate(&state->moments, r, OPERANDS, offsets);
    for (int64_t i = 0; i < state->run; i += block) {
      int64_t n = rabbet_min_i64(block, state->run - i);
      call->vectors->moments(
          normalize_lanes(call, at + offsets[INPUT] + i, n, buffer), n,
          moments);
    }
  }
}

static void normalize_rows(void* context, int64_t begin, int64_t end) {
  const normalize_call_t* call = context;
  const cpu_normalization_state_t* state = call->state;
  for (int64_t output = begin; output < end; ++output) {
    int64_t outer[OPERANDS], inner[OPERANDS];
    rabbet_moments_t moments;
    rabbet_axes_locate(&state->outer, output, OPERANDS, outer);
    normalize_measure(call, outer[INPUT], &moments);
    double mean = state->is_rms ? 0 : moments.mean;
    double from_zero = state->is_rms ? moments.mean * moments.mean : 0;
    double variance = moments.squares / moments.count + from_zero;
    rabbet_normalize_row_t row = {
        .mean = (float)mean,
        .factor = (float)(1 / sqrt(variance + state->epsilon)),
        .cell_scale = 1};
    for (int64_t i = 0; i < state->positions; ++i) {
      rabbet_axes_locate(&state->inner, i, OPERANDS, inner);
      const float* operands[OPERANDS] = {NULL};
      for (int k = SCALE; k <= BIAS; ++k) {
        if (!call->operands[k]) continue;
        operands[k] = call->operands[k] + outer[k] + inner[k];
      }
      row.scale = state->moves[SCALE] ? operands[SCALE] : NULL;
      row.bias = state->moves[BIAS] ? operands[BIAS] : NULL;
      if (operands[SCALE]) row.cell_scale = *operands[SCALE];
      if (operands[BIAS]) row.cell_bias = *operands[BIAS];
      normalize_run(call, row, outer[INPUT] + inner[INPUT], state->width);
    }
  }
}

// ---- Columns ---------------------------------------------------------------

enum { FLUSH = 64 };

typedef struct normalize_tile_t {
  double sum[TILE];
  float center[TILE], factor[TILE], scale[TILE], bias[TILE];
  float total[TILE], lanes[TILE];
} normalize_tile_t;

// Adds rows, or the squares of their distances from `center`, to `sum`.
static void normalize_tile_sum(const normalize_call_t* call, int64_t at,
                               int64_t width, bool squares,
                               normalize_tile_t* tile) {
  const cpu_normalization_state_t* state = call->state;
  const rabbet_vectors_t* vectors = call->vectors;
  memset(tile->sum, 0, (size_t)width * sizeof(tile->sum[0]));
  memset(tile->total, 0, (size_t)width * sizeof(tile->total[0]));
  for (int64_t i = 0; i < state->positions; ++i) {
    int64_t inner[OPERANDS];
    rabbet_axes_locate(&state->inner, i, OPERANDS, inner);
    const float* x =
        normalize_lanes(call, at + inner[INPUT], width, tile->lanes);
    if (squares) {
      vectors->column_squares(x, width, tile->center, tile->total);
    } else {
      vectors->combine_float(RABBET_REDUCE_SUM, x, 1, 0, width, tile->total);
    }
    if ((i + 1) % FLUSH != 0 && i + 1 < state->positions) continue;
    vectors->flush_float(RABBET_REDUCE_SUM, tile->total, width, tile->sum);
    memset(tile->total, 0, (size_t)width * sizeof(tile->total[0]));
  }
}

static void normalize_tile_moments(const normalize_call_t* call, int64_t at,
                                   int64_t width, normalize_tile_t* tile) {
  const cpu_normalization_state_t* state = call->state;
  double rest[TILE];
  if (state->is_rms)
    memset(tile->sum, 0, (size_t)width * sizeof(tile->sum[0]));
  else
    normalize_tile_sum(call, at, width, false, tile);
  for (int64_t i = 0; i < width; ++i) {
    double mean = tile->sum[i] / state->count;
    tile->center[i] = (float)mean;
    rest[i] = mean - (double)tile->center[i];
  }
  // The second pass is around the rounded means and corrects them.
  normalize_tile_sum(call, at, width, true, tile);
  for (int64_t i = 0; i < width; ++i) {
    double variance = tile->sum[i] / state->count - rest[i] * rest[i];
    tile->factor[i] = (float)(1 / sqrt(variance + state->epsilon));
  }
}

// The operand's elements for the tile's columns: in its own memory, or copies
// of a single element.
static const float* normalize_operand(const normalize_call_t* call, int operand,
                                      int64_t at, int64_t width,
                                      float* buffer) {
  const float* from = call->operands[operand];
  if (from && call->state->moves[operand]) return from + at;
  float cell = from ? from[at] : operand == SCALE;
  for (int64_t i = 0; i < width; ++i)
    buffer[i] = cell;
  return buffer;
}

static void normalize_tile_row(const normalize_call_t* call,
                               const int64_t at[OPERANDS], int64_t width,
                               normalize_tile_t* tile) {
  const cpu_normalization_state_t* state = call->state;
  const float* x = normalize_lanes(call, at[INPUT], width, tile->lanes);
  const float* scale =
      normalize_operand(call, SCALE, at[SCALE], width, tile->scale);
  const float* bias =
      normalize_operand(call, BIAS, at[BIAS], width, tile->bias);
  rabbet_normalize_columns_t columns = {tile->center, tile->factor, scale,
                                        bias};
  rabbet_convert_fn_t convert = call->vectors->from_float[state->dtype];
  char* target = call->target + at[INPUT] * state->size;
  float* y = convert ? tile->lanes : (float*)target;
  call->vectors->normalize_columns(&columns, x, width, y);
  if (convert) convert(y, target, width);
}

static void cpu_normalize_columns(void* context, int64_t begin, int64_t end) {
  const normalize_call_t* call = context;
  const cpu_normalization_state_t* state = call->state;
  normalize_tile_t tile;
  for (int64_t item = begin; item < end; ++item) {
    int64_t outer[OPERANDS], inner[OPERANDS], at[OPERANDS];
    int64_t column = item % state->tiles * TILE;
    int64_t width = rabbet_min_i64(TILE, state->width - column);
    rabbet_axes_locate(&state->outer, item / state->tiles, OPERANDS, outer);
    for (int k = 0; k < OPERANDS; ++k) {
      if (state->moves[k]) outer[k] += column;
    }
    normalize_tile_moments(call, outer[INPUT], width, &tile);
    for (int64_t i = 0; i < state->positions; ++i) {
      rabbet_axes_locate(&state->inner, i, OPERANDS, inner);
      for (int k = 0; k < OPERANDS; ++k)
        at[k] = outer[k] + inner[k];
      normalize_tile_row(call, at, width, &tile);
    }
  }
}

static rabbet_status_t cpu_normalization_enqueue(
    rabbet_kernel_t* base, cpu_normalization_state_t* state,
    const rabbet_kernel_call_t* call) {
  const rabbet_node_kernel_t* kernel = (const rabbet_node_kernel_t*)base;
  normalize_call_t run = {.state = state,
                          .vectors = rabbet_vectors(),
                          .source = call->inputs[rabbet_group_input_of(
                              kernel->group, kernel->node->inputs[INPUT])],
                          .target = call->outputs[0]};
  for (size_t i = SCALE; i <= BIAS; ++i) {
    int32_t value = rabbet_node_input(kernel->node, i);
    if (value < 0) continue;
    const void* from =
        call->inputs[rabbet_group_input_of(kernel->group, value)];
    if (state->types[i] != RABBET_DTYPE_FLOAT) {
      float* to = (float*)((char*)call->workspace + state->offsets[i]);
      run.vectors->to_float[state->types[i]](from, to, state->counts[i]);
      from = to;
    }
    run.operands[i] = from;
  }
  int64_t bytes = (int64_t)state->count * state->size *
                  (state->columns ? rabbet_min_i64(TILE, state->width) : 1);
  rabbet_cpu_parallel(
      state->outputs * state->tiles,
      rabbet_max_i64(1, RABBET_CPU_GRAIN_BYTES / rabbet_max_i64(1, bytes)),
      state->columns ? cpu_normalize_columns : normalize_rows, &run);
  return rabbet_ok();
}

RABBET_TAKES_NODE(cpu_normalization, NORMALIZATION,
                  RABBET_TAKES_ONE_FORMAT | RABBET_TAKES_OTHER_TYPES)

RABBET_NODE_CLASS(cpu_normalization, "cpu.normalization", 1);
