// Convolutions with dilation, channels last: each tap adds the products of the
// pixels that it meets. Taps reach far into the padding where the dilation is
// about as large as the image; what lies there is not multiplied.
#include <assert.h>
#include <string.h>

#include "device/cpu/cpu.h"
#include "device/cpu/image/filters.h"
#include "device/cpu/parallel.h"
#include "device/cpu/vectors/vectors.h"
#include "ops/image/convolution.h"
#include "ops/image/window.h"

enum {
  AXES = RABBET_CPU_AXES,
  PANEL = RABBET_PANEL,
  DEPTH = 128,  // channels at a time: their panel stays in the first cache
  BLOCK = 512,  // pixels of the output, whose sums stay in the second cache
  LEAST = 8,    // channels and maps; fewer are left to others
  ALIGNMENT = 64,
};

typedef struct cpu_taps_state_t {
  rabbet_cpu_windows_t at;
  int64_t pixels;  // of the output, of all images
  int64_t block, blocks;
  // A thread's memory: sums, their rows' addresses and those of the input.
  size_t sum_rows, x_rows, slot;
} cpu_taps_state_t;

// ---- Which groups ----------------------------------------------------------

// Others are Winograd's and oneDNN's: with strides alone this was no quicker.
static bool taps_window(const rabbet_group_t* group) {
  rabbet_window_t window;
  bool fits = false;
  if (!rabbet_cpu_filters_window(group, &window)) return false;
  for (int32_t i = 0; i < window.spatial; ++i)
    fits |= window.size[i] > 1 && window.dilation[i] > 1;
  return fits;
}

static bool taps_matches(const rabbet_group_t* group,
                         rabbet_cpu_finish_t* out_finish) {
  if (!rabbet_cpu_filters_match(group, LEAST, out_finish)) return false;
  int32_t rank = rabbet_cpu_filters_dims(group)->rank;
  return (rank == 3 || rank == 4) && taps_window(group);
}

static rabbet_status_t cpu_taps_body(rabbet_proposal_t* proposal) {
  rabbet_cpu_finish_t finish;
  if (!taps_matches(proposal->propose->group, &finish)) return rabbet_ok();
  return rabbet_cpu_finish_offer(proposal, &finish, RABBET_FORMAT_HWC, "taps");
}

static rabbet_status_t cpu_taps_propose(const rabbet_propose_t* propose,
                                        rabbet_candidate_sink_t sink) {
  return rabbet_proposal_make(propose, sink, &rabbet_cpu_taps, NULL,
                              cpu_taps_body);
}

static bool cpu_taps_takes(const rabbet_kernel_spec_t* spec) {
  rabbet_cpu_finish_t finish;
  return taps_matches(spec->group, &finish) &&
         rabbet_cpu_finish_formats(spec->group, &finish, RABBET_FORMAT_HWC);
}

// ---- Constants -------------------------------------------------------------

// The planes are the window's taps.
static void taps_pack(const rabbet_cpu_filters_t* kernel, const float* from) {
  const int64_t channels = kernel->channels, taps = kernel->planes;
  for (int64_t n = 0; n < kernel->maps; ++n) {
    float* panel = kernel->weights + n / PANEL * taps * channels * PANEL;
    for (int64_t c = 0; c < channels; ++c)
      for (int64_t tap = 0; tap < taps; ++tap)
        panel[(tap * channels + c) * PANEL + n % PANEL] = *from++;
  }
}

static rabbet_status_t cpu_taps_create(const rabbet_kernel_spec_t* spec,
                                       rabbet_kernel_t** out_kernel) {
  return rabbet_cpu_filters_create(spec, &rabbet_cpu_taps, 1,
                                   rabbet_cpu_filters_taps(spec->group),
                                   taps_pack, out_kernel);
}

// ---- Geometry --------------------------------------------------------------

static void taps_lay_out(int threads, cpu_taps_state_t* s,
                         size_t* out_workspace) {
  s->pixels = s->at.images * s->at.out[0] * s->at.out[1];
  s->blocks = rabbet_ceildiv(s->pixels, (int64_t)BLOCK);
  s->block = s->blocks ? rabbet_ceildiv(s->pixels, s->blocks) : 0;
  size_t rows = (size_t)s->block;
  s->sum_rows = rows * PANEL * sizeof(float);
  s->x_rows = s->sum_rows + rows * sizeof(float*);
  s->slot =
      rabbet_align_up(s->x_rows + rows * sizeof(float*), (size_t)ALIGNMENT);
  *out_workspace = s->slot * (size_t)rabbet_cpu_slots(threads);
}

static rabbet_status_t cpu_taps_prepare(rabbet_kernel_t* base,
                                        const rabbet_kernel_shapes_t* shapes,
                                        cpu_taps_state_t** out_state,
                                        size_t* out_workspace) {
  const rabbet_cpu_filters_t* kernel = (const rabbet_cpu_filters_t*)base;
  cpu_taps_state_t* state = NULL;
  *out_workspace = 0;
  *out_state = NULL;
  RABBET_RETURN_IF_ERROR(
      rabbet_cpu_filters_begin(base, shapes, sizeof(*state), (void**)&state));
  rabbet_status_t status =
      rabbet_cpu_filters_place(kernel, shapes->dims, &state->at);
  if (rabbet_is_ok(status)) taps_lay_out(shapes->threads, state, out_workspace);
  return rabbet_node_state_finish(base, state, status, (void**)out_state);
}

// ---- Running ---------------------------------------------------------------

typedef struct taps_call_t {
  const rabbet_cpu_filters_t* kernel;
  const cpu_taps_state_t* state;
  const rabbet_vectors_t* vectors;
  const float *x, *added;
  float* y;
  char* workspace;
} taps_call_t;

typedef struct taps_rows_t {
  float* sums;
  float** sum_rows;
  const float** x_rows;
} taps_rows_t;

// The outputs of an axis, from *begin to *end - 1, whose tap lies in the input.
static void taps_inside(const cpu_taps_state_t* s, int axis, int64_t tap,
                        int64_t* begin, int64_t* end) {
  int64_t stride = s->at.window.stride[axis];
  int64_t reach = tap * s->at.window.dilation[axis] - s->at.before[axis];
  *begin = reach < 0 ? rabbet_ceildiv(-reach, stride) : 0;
  int64_t last = s->at.in[axis] - 1 - reach;
  *end = last < 0 ? 0 : rabbet_min_i64(s->at.out[axis], last / stride + 1);
}

// The rows of the pixels `first` to `first` + `count` - 1 whose tap lies in the
// input. Returns their number.
static int64_t taps_meet(const taps_call_t* call, int64_t tap, int64_t first,
                         int64_t count, const taps_rows_t* rows) {
  const cpu_taps_state_t* s = call->state;
  int64_t channels = call->kernel->channels, found = 0, begin[AXES], end[AXES];
  int64_t taps[AXES] = {tap / s->at.window.size[1], tap % s->at.window.size[1]};
  int64_t reach[AXES];
  for (int i = 0; i < AXES; ++i) {
    taps_inside(s, i, taps[i], &begin[i], &end[i]);
    reach[i] = taps[i] * s->at.window.dilation[i] - s->at.before[i];
  }
  for (int64_t i = 0; i < count;) {
    int64_t column = (first + i) % s->at.out[1],
            line = (first + i) / s->at.out[1];
    int64_t row = line % s->at.out[0], image = line / s->at.out[0];
    int64_t left = rabbet_min_i64(s->at.out[1] - column, count - i);
    if (row >= begin[0] && row < end[0]) {
      int64_t from =
          (image * s->at.in[0] + row * s->at.window.stride[0] + reach[0]) *
              s->at.in[1] +
          reach[1];
      int64_t stop = rabbet_min_i64(column + left, end[1]);
      for (int64_t c = rabbet_max_i64(column, begin[1]); c < stop; ++c) {
        rows->x_rows[found] =
            call->x + (from + c * s->at.window.stride[1]) * channels;
        rows->sum_rows[found++] = rows->sums + (i + c - column) * PANEL;
      }
    }
    i += left;
  }
  return found;
}

static void taps_block(const taps_call_t* call, int64_t first, int64_t count,
                       int64_t panel, const taps_rows_t* rows) {
  const rabbet_cpu_filters_t* kernel = call->kernel;
  int64_t channels = kernel->channels, column = panel * PANEL;
  const float* weights =
      kernel->weights + panel * kernel->planes * channels * PANEL;
  for (int64_t i = 0; i < count; ++i)
    memcpy(rows->sums + i * PANEL, kernel->bias + column,
           PANEL * sizeof(float));
  int64_t width = rabbet_cpu_filters_width(kernel, panel);
  for (int64_t tap = 0; tap < kernel->planes; ++tap) {
    int64_t met = taps_meet(call, tap, first, count, rows);
    for (int64_t k = 0; met > 0 && k < channels; k += DEPTH) {
      const rabbet_panel_t part = {
          .weights = weights + (tap * channels + k) * PANEL,
          .count = rabbet_min_i64(DEPTH, channels - k),
          .width = width};
      call->vectors->panel_products(rows->x_rows, rows->sum_rows, met, &part);
      for (int64_t i = 0; i < met; ++i)
        rows->x_rows[i] += part.count;
    }
  }
  for (int64_t i = 0; i < count; ++i) {
    int64_t at = (first + i) * kernel->maps + column;
    call->vectors->finish(&kernel->finish.of_sums, rows->sums + i * PANEL,
                          call->added ? call->added + at : NULL, width,
                          call->y + at);
  }
}

static void taps_range(void* context, int64_t begin, int64_t end) {
  const taps_call_t* call = context;
  const cpu_taps_state_t* s = call->state;
  char* room = call->workspace + (size_t)rabbet_cpu_slot() * s->slot;
  const taps_rows_t rows = {.sums = (float*)(void*)room,
                            .sum_rows = (float**)(void*)(room + s->sum_rows),
                            .x_rows = (const float**)(void*)(room + s->x_rows)};
  // Blocks of one panel follow each other and find its weights in a cache.
  for (int64_t i = begin; i < end; ++i) {
    int64_t first = i % s->blocks * s->block;
    taps_block(call, first, rabbet_min_i64(s->block, s->pixels - first),
               i / s->blocks, &rows);
  }
}

static rabbet_status_t cpu_taps_enqueue(rabbet_kernel_t* base,
                                        cpu_taps_state_t* state,
                                        const rabbet_kernel_call_t* call) {
  const rabbet_cpu_filters_t* kernel = (const rabbet_cpu_filters_t*)base;
  taps_call_t run = {
      .kernel = kernel,
      .state = state,
      .vectors = rabbet_vectors(),
      .x = rabbet_node_input_at(&kernel->node, call, RABBET_CONVOLUTION_INPUT),
      .added =
          rabbet_cpu_finish_added(kernel->node.group, &kernel->finish, call),
      .y = call->outputs[0],
      .workspace = call->workspace};
  rabbet_cpu_parallel(state->blocks * kernel->panels, 1, taps_range, &run);
  return rabbet_ok();
}

RABBET_NODE_TABLE(cpu_taps, "cpu.convolution.taps", 1,
                  .destroy = rabbet_cpu_filters_destroy);
