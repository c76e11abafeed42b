// RoiAlign. A sample's weights are products of a row's and a column's weights.
// So the rows of a bin are combined as vectors first, then the elements of the
// resulting line bin by bin. Positions and weights are computed once for
// several channels.
#include "ops/image/roi_align.h"

#include <string.h>

#include "core/view.h"
#include "device/cpu/cpu.h"
#include "device/cpu/parallel.h"
#include "device/cpu/vectors/vectors.h"

enum { INPUT = 0, ROIS = 1, INDICES = 2, CHANNELS = 32 };

// An element of an axis that samples of a bin read: the sum of their weights.
// For maxima, the greatest and the least weight, as elements may be negative.
typedef struct roi_tap_t {
  int32_t at;
  float weight, least;
} roi_tap_t;

typedef struct roi_taps_t {
  roi_tap_t* taps;
  int32_t count, inside;  // taps; samples inside the image
} roi_taps_t;

typedef struct cpu_roi_align_state_t {
  rabbet_roi_align_t align;
  rabbet_dtype_t dtype, roi_type, index_type;
  int64_t size;     // bytes of an element
  int64_t chunks;   // of the channels
  int64_t room[2];  // taps of a bin
  int64_t thread_bytes;
} cpu_roi_align_state_t;

// A thread's memory: the column taps of all bins, the row taps of one,
// elements.
typedef struct roi_scratch_t {
  roi_taps_t *columns, row;
  float *line, *source, *target;
} roi_scratch_t;

// ---- The class -------------------------------------------------------------

static rabbet_status_t cpu_roi_align_body(rabbet_proposal_t* proposal) {
  return rabbet_cpu_offer_same(proposal, RABBET_CPU_OFFER_LINEAR, "rows", -1);
}

RABBET_PROPOSE_FOR(cpu_roi_align, ROI_ALIGN)

// Lays out a thread's memory from `base` on; returns its bytes. `base` may be
// 0.
static int64_t roi_lay_out(const cpu_roi_align_state_t* state, uintptr_t base,
                           roi_scratch_t* out) {
  const rabbet_roi_align_t* r = &state->align;
  int64_t columns = r->out[1] * (int64_t)sizeof(roi_taps_t);
  int64_t taps = (r->out[1] * state->room[1] + state->room[0]) *
                 (int64_t)sizeof(roi_tap_t);
  roi_tap_t* first = (roi_tap_t*)(base + (uintptr_t)columns);
  out->columns = (roi_taps_t*)base;
  for (int32_t i = 0; base && i < r->out[1]; ++i)
    out->columns[i].taps = first + i * state->room[1];
  out->row.taps = first + r->out[1] * state->room[1];
  out->line = (float*)(base + (uintptr_t)(columns + taps));
  out->source = out->line + r->in[1];
  out->target = out->source + r->in[1];
  return rabbet_align_up(
      columns + taps +
          (2 * (int64_t)r->in[1] + r->out[1]) * (int64_t)sizeof(float),
      64);
}

static rabbet_status_t cpu_roi_align_prepare(
    rabbet_kernel_t* base, const rabbet_kernel_shapes_t* shapes,
    cpu_roi_align_state_t** out_state, size_t* out_workspace) {
  const rabbet_node_kernel_t* kernel = (const rabbet_node_kernel_t*)base;
  const rabbet_group_node_t* node = kernel->node;
  const rabbet_group_value_t* values = kernel->group->values;
  cpu_roi_align_state_t made = {.dtype = values[node->inputs[INPUT]].dtype};
  rabbet_roi_align_t* r = &made.align;
  roi_scratch_t scratch;
  *out_workspace = 0;
  *out_state = NULL;
  RABBET_RETURN_IF_ERROR(RABBET_ANNOTATE(
      rabbet_roi_align_read(node->attrs, node->op->attr_count,
                            &shapes->dims[node->inputs[INPUT]],
                            &shapes->dims[node->inputs[ROIS]],
                            &shapes->dims[node->inputs[INDICES]], r),
      "layer '%s'", node->name));
  made.roi_type = values[node->inputs[ROIS]].dtype;
  made.index_type = values[node->inputs[INDICES]].dtype;
  made.size = rabbet_dtype_bits(made.dtype) / 8;
  made.chunks = rabbet_ceildiv(r->channels, (int64_t)CHANNELS);
  for (int i = 0; i < 2; ++i)
    made.room[i] =
        r->ratio > 0 ? rabbet_min_i64(2 * r->ratio, r->in[i]) : r->in[i];
  made.thread_bytes = roi_lay_out(&made, 0, &scratch);
  RABBET_RETURN_IF_ERROR(
      rabbet_node_state_allocate(base, sizeof(made), (void**)out_state));
  **out_state = made;
  *out_workspace =
      (size_t)(rabbet_cpu_slots(shapes->threads) * made.thread_bytes);
  return rabbet_ok();
}

// ---- Taps ------------------------------------------------------------------

// Adds a sample's element. Samples are in order, so if the element occurred
// before, it is one of the last three taps.
static void roi_add_tap(roi_taps_t* taps, bool is_max, int32_t at,
                        float weight) {
  for (int32_t i = taps->count - 1; i >= 0 && i >= taps->count - 3; --i) {
    roi_tap_t* tap = &taps->taps[i];
    if (tap->at != at) continue;
    if (!is_max) {
      tap->weight += weight;
    } else {
      if (weight > tap->weight) tap->weight = weight;
      if (weight < tap->least) tap->least = weight;
    }
    return;
  }
  taps->taps[taps->count++] = (roi_tap_t){at, weight, weight};
}

static void roi_find_taps(const rabbet_roi_align_t* r, int32_t axis,
                          const rabbet_roi_axis_t* region, int32_t bin,
                          roi_taps_t* taps) {
  int32_t last = rabbet_roi_last(region, bin, r->in[axis]);
  taps->count = taps->inside = 0;
  for (int32_t i = rabbet_roi_first(region, bin); i < last; ++i) {
    rabbet_roi_sample_t sample;
    if (!rabbet_roi_sample(region, bin, i, r->in[axis], &sample)) continue;
    ++taps->inside;
    roi_add_tap(taps, r->is_max, sample.low, sample.low_weight);
    roi_add_tap(taps, r->is_max, sample.high, sample.high_weight);
  }
}

// ---- Lines -----------------------------------------------------------------

// A row of bins of a region, in one channel.
typedef struct roi_line_t {
  const cpu_roi_align_state_t* state;
  const rabbet_vectors_t* vectors;
  const roi_scratch_t* scratch;
  int32_t first, count;  // columns that bins read
  int64_t samples;       // of a bin
} roi_line_t;

static const float* roi_load(const roi_line_t* line, const char* row) {
  const cpu_roi_align_state_t* state = line->state;
  rabbet_convert_fn_t convert = line->vectors->to_float[state->dtype];
  const char* from = row + line->first * state->size;
  if (!convert) return (const float*)from;
  for (int64_t i = 0; i < line->count; i += RABBET_LANES)
    convert(from + i * state->size, line->scratch->source + i,
            rabbet_min_i64(RABBET_LANES, line->count - i));
  return line->scratch->source;
}

static void roi_join_max(const float* x, const roi_tap_t* tap, int32_t count,
                         float* y) {
  for (int32_t i = 0; i < count; ++i)
    y[i] = rabbet_roi_max(
        y[i], rabbet_roi_max(x[i] * tap->weight, x[i] * tap->least));
}

static void roi_combine(const roi_line_t* line, const char* plane) {
  const cpu_roi_align_state_t* state = line->state;
  const roi_taps_t* row = &line->scratch->row;
  int64_t step = state->align.in[1] * state->size;
  float* y = line->scratch->line;
  for (int32_t i = 0; state->align.is_max && i < line->count; ++i)
    y[i] = -INFINITY;
  for (int32_t k = 0; k < row->count; ++k) {
    const roi_tap_t* tap = &row->taps[k];
    const float* x = roi_load(line, plane + tap->at * step);
    if (state->align.is_max)
      roi_join_max(x, tap, line->count, y);
    else
      line->vectors->weigh(x, tap->weight, k > 0, line->count, y);
  }
}

static float roi_bin(const roi_line_t* line, int32_t bin) {
  const roi_taps_t* column = &line->scratch->columns[bin];
  const float* x = line->scratch->line - line->first;
  int64_t inside = (int64_t)line->scratch->row.inside * column->inside;
  float sum = 0, most = inside < line->samples ? 0 : -INFINITY;
  if (inside == 0) return 0;
  for (int32_t k = 0; k < column->count; ++k) {
    const roi_tap_t* tap = &column->taps[k];
    if (!line->state->align.is_max)
      sum += x[tap->at] * tap->weight;
    else
      most = rabbet_roi_max(most, rabbet_roi_max(x[tap->at] * tap->weight,
                                                 x[tap->at] * tap->least));
  }
  return line->state->align.is_max ? most : sum / (float)line->samples;
}

static void roi_line(const roi_line_t* line, const char* plane, char* target) {
  const cpu_roi_align_state_t* state = line->state;
  rabbet_convert_fn_t convert = line->vectors->from_float[state->dtype];
  int64_t width = state->align.out[1];
  float* y = convert ? line->scratch->target : (float*)target;
  roi_combine(line, plane);
  for (int32_t i = 0; i < width; ++i)
    y[i] = roi_bin(line, i);
  for (int64_t i = 0; convert && i < width; i += RABBET_LANES)
    convert(y + i, target + i * state->size,
            rabbet_min_i64(RABBET_LANES, width - i));
}

// ---- Regions ---------------------------------------------------------------

typedef struct roi_call_t {
  const cpu_roi_align_state_t* state;
  const char* source;
  const void *rois, *indices;
  char *target, *workspace;
} roi_call_t;

// Finds the column taps of all bins, and the range of columns that they span.
static void roi_find_columns(const rabbet_roi_axis_t* region,
                             roi_line_t* line) {
  const rabbet_roi_align_t* r = &line->state->align;
  int32_t first = r->in[1], end = 0;
  for (int32_t i = 0; i < r->out[1]; ++i) {
    roi_taps_t* column = &line->scratch->columns[i];
    roi_find_taps(r, 1, region, i, column);
    for (int32_t k = 0; k < column->count; ++k) {
      if (column->taps[k].at < first) first = column->taps[k].at;
      if (column->taps[k].at >= end) end = column->taps[k].at + 1;
    }
  }
  line->first = first < end ? first : 0;
  line->count = first < end ? end - first : 0;
}

static void roi_channels(const roi_call_t* call, int64_t roi, int64_t image,
                         int64_t begin, int64_t end) {
  const cpu_roi_align_state_t* state = call->state;
  const rabbet_roi_align_t* r = &state->align;
  int64_t plane = (int64_t)r->in[0] * r->in[1] * state->size;
  int64_t bins = r->out[1] * state->size;
  float box[4];
  roi_scratch_t scratch;
  roi_lay_out(state,
              (uintptr_t)call->workspace +
                  (uintptr_t)(rabbet_cpu_slot() * state->thread_bytes),
              &scratch);
  for (int i = 0; i < 4; ++i)
    box[i] =
        (float)rabbet_load_double(state->roi_type, call->rois, 4 * roi + i);
  rabbet_roi_axis_t rows = rabbet_roi_axis(r, 0, box[1], box[3]);
  rabbet_roi_axis_t columns = rabbet_roi_axis(r, 1, box[0], box[2]);
  roi_line_t line = {.state = state,
                     .vectors = rabbet_vectors(),
                     .scratch = &scratch,
                     .samples = (int64_t)rows.samples * columns.samples};
  roi_find_columns(&columns, &line);
  for (int32_t i = 0; i < r->out[0]; ++i) {
    roi_find_taps(r, 0, &rows, i, &scratch.row);
    for (int64_t c = begin; c < end; ++c)
      roi_line(&line, call->source + (image * r->channels + c) * plane,
               call->target + ((roi * r->channels + c) * r->out[0] + i) * bins);
  }
}

static void roi_items(void* context, int64_t first, int64_t last) {
  const roi_call_t* call = context;
  const cpu_roi_align_state_t* state = call->state;
  const rabbet_roi_align_t* r = &state->align;
  int64_t bytes = (int64_t)r->out[0] * r->out[1] * state->size;
  for (int64_t item = first; item < last; ++item) {
    int64_t roi = item / state->chunks;
    int64_t begin = item % state->chunks * CHANNELS;
    int64_t end = rabbet_min_i64(begin + CHANNELS, r->channels);
    int64_t image = rabbet_load_int64(state->index_type, call->indices, roi);
    if (image >= 0 && image < r->batch)
      roi_channels(call, roi, image, begin, end);
    else
      memset(call->target + (roi * r->channels + begin) * bytes, 0,
             (size_t)((end - begin) * bytes));
  }
}

static rabbet_status_t cpu_roi_align_enqueue(rabbet_kernel_t* base,
                                             cpu_roi_align_state_t* state,
                                             const rabbet_kernel_call_t* call) {
  const rabbet_node_kernel_t* kernel = (const rabbet_node_kernel_t*)base;
  const rabbet_roi_align_t* r = &state->align;
  roi_call_t run = {.state = state,
                    .source = rabbet_node_input_at(kernel, call, INPUT),
                    .rois = rabbet_node_input_at(kernel, call, ROIS),
                    .indices = rabbet_node_input_at(kernel, call, INDICES),
                    .target = rabbet_node_output(kernel, call, 0),
                    .workspace = call->workspace};
  // A bin reads some 4 rows of 4 elements.
  int64_t work = CHANNELS * 64 * (int64_t)r->out[0] * r->out[1];
  rabbet_cpu_parallel(r->rois * state->chunks,
                      rabbet_max_i64(1, RABBET_CPU_GRAIN_BYTES / work),
                      roi_items, &run);
  return rabbet_ok();
}

RABBET_TAKES_NODE(cpu_roi_align, ROI_ALIGN, 0)

RABBET_NODE_CLASS(cpu_roi_align, "cpu.roi_align", 1);
