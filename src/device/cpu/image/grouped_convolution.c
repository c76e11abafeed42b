// Convolutions in groups of 4 or 8 channels, channels last. oneDNN's for AVX2
// takes groups of whole vectors alone, of which those of two and more are as
// quick as this; others go through im2col, a group at a time.
#include <string.h>

#include "device/cpu/cpu.h"
#include "device/cpu/image/filters.h"
#include "device/cpu/parallel.h"
#include "device/cpu/vectors/vectors.h"
#include "ops/image/convolution.h"

enum {
  BLOCK = RABBET_GROUPED_BLOCK,
  PIXELS = RABBET_GROUPED_PIXELS,
  LEAST = 4,  // channels of a group
  MOST = 8,
  ALIGNMENT = 64,
};

typedef struct cpu_grouped_state_t {
  rabbet_cpu_windows_t at;
  int64_t segment, segments;  // pixels of a row of the output that are summed
  size_t table, slot;         // a thread's memory: zeros, addresses of pixels
} cpu_grouped_state_t;

// ---- Which groups ----------------------------------------------------------

static bool grouped_matches(const rabbet_group_t* group,
                            rabbet_cpu_finish_t* out_finish) {
  if (!rabbet_cpu_filters_fit(group, out_finish)) return false;
  const rabbet_dims_t* w = rabbet_cpu_filters_dims(group);
  int64_t groups = rabbet_node_int(&group->nodes[0], "num_groups");
  int64_t size = w->d[1];
  return (w->rank == 3 || w->rank == 4) && groups > 1 && size >= LEAST &&
         size <= MOST && (size & (size - 1)) == 0 && w->d[0] == size * groups;
}

static rabbet_status_t cpu_grouped_body(rabbet_proposal_t* proposal) {
  rabbet_cpu_finish_t finish;
  if (!grouped_matches(proposal->propose->group, &finish)) return rabbet_ok();
  return rabbet_cpu_finish_offer(proposal, &finish, RABBET_FORMAT_HWC,
                                 "grouped");
}

static rabbet_status_t cpu_grouped_propose(const rabbet_propose_t* propose,
                                           rabbet_candidate_sink_t sink) {
  return rabbet_proposal_make(propose, sink, &rabbet_cpu_grouped, NULL,
                              cpu_grouped_body);
}

static bool cpu_grouped_takes(const rabbet_kernel_spec_t* spec) {
  rabbet_cpu_finish_t finish;
  return grouped_matches(spec->group, &finish) &&
         rabbet_cpu_finish_formats(spec->group, &finish, RABBET_FORMAT_HWC);
}

// ---- Constants -------------------------------------------------------------

// To [maps / BLOCK][taps][channels][BLOCK].
static void grouped_pack(const rabbet_cpu_filters_t* kernel,
                         const float* from) {
  const int64_t channels = kernel->channels, taps = kernel->planes;
  for (int64_t n = 0; n < kernel->maps; ++n) {
    float* block =
        kernel->weights + n / BLOCK * taps * channels * BLOCK + n % BLOCK;
    for (int64_t c = 0; c < channels; ++c)
      for (int64_t tap = 0; tap < taps; ++tap)
        block[(tap * channels + c) * BLOCK] = *from++;
  }
}

static rabbet_status_t cpu_grouped_create(const rabbet_kernel_spec_t* spec,
                                          rabbet_kernel_t** out_kernel) {
  return rabbet_cpu_filters_create(spec, &rabbet_cpu_grouped, 1,
                                   rabbet_cpu_filters_taps(spec->group),
                                   grouped_pack, out_kernel);
}

// ---- Geometry --------------------------------------------------------------

static void grouped_lay_out(const rabbet_cpu_filters_t* kernel, int threads,
                            cpu_grouped_state_t* s, size_t* out_workspace) {
  int64_t width = s->at.out[1];
  s->segments = rabbet_ceildiv(width, (int64_t)PIXELS);
  s->segment = s->segments ? rabbet_ceildiv(width, s->segments) : 0;
  size_t pixel = (size_t)(kernel->channels * kernel->groups) * sizeof(float);
  s->table = rabbet_align_up(pixel, (size_t)ALIGNMENT);
  size_t addresses = (size_t)(s->segments * kernel->planes * PIXELS);
  s->slot =
      rabbet_align_up(s->table + addresses * sizeof(float*), (size_t)ALIGNMENT);
  *out_workspace = s->slot * (size_t)rabbet_cpu_slots(threads);
}

static rabbet_status_t cpu_grouped_prepare(rabbet_kernel_t* base,
                                           const rabbet_kernel_shapes_t* shapes,
                                           cpu_grouped_state_t** out_state,
                                           size_t* out_workspace) {
  const rabbet_cpu_filters_t* kernel = (const rabbet_cpu_filters_t*)base;
  cpu_grouped_state_t* state = NULL;
  *out_workspace = 0;
  *out_state = NULL;
  RABBET_RETURN_IF_ERROR(
      rabbet_cpu_filters_begin(base, shapes, sizeof(*state), (void**)&state));
  rabbet_status_t status =
      rabbet_cpu_filters_place(kernel, shapes->dims, &state->at);
  if (rabbet_is_ok(status))
    grouped_lay_out(kernel, shapes->threads, state, out_workspace);
  return rabbet_node_state_finish(base, state, status, (void**)out_state);
}

// ---- Running ---------------------------------------------------------------

typedef struct grouped_call_t {
  const rabbet_cpu_filters_t* kernel;
  const cpu_grouped_state_t* state;
  const rabbet_vectors_t* vectors;
  const float *x, *added;
  float* y;
  char* workspace;
} grouped_call_t;

// The pixel of the input under a tap of an output's; zeros in the padding.
static const float* grouped_under(const grouped_call_t* call, int64_t image,
                                  const int64_t* at, int64_t tap,
                                  const float* zeros) {
  const rabbet_cpu_windows_t* s = &call->state->at;
  int64_t taps[] = {tap / s->window.size[1], tap % s->window.size[1]};
  int64_t pixel = image;
  for (int i = 0; i < RABBET_CPU_AXES; ++i) {
    int64_t place = at[i] * s->window.stride[i] +
                    taps[i] * s->window.dilation[i] - s->before[i];
    if (place < 0 || place >= s->in[i]) return zeros;
    pixel = pixel * s->in[i] + place;
  }
  return call->x + pixel * call->kernel->channels * call->kernel->groups;
}

// Addresses [segments][taps][PIXELS] of a row. Segments that are shorter end
// with zeros.
static void grouped_table(const grouped_call_t* call, int64_t image,
                          int64_t row, const float* zeros,
                          const float** table) {
  const cpu_grouped_state_t* s = call->state;
  for (int64_t i = 0; i < s->segments; ++i)
    for (int64_t tap = 0; tap < call->kernel->planes; ++tap)
      for (int64_t p = 0; p < PIXELS; ++p) {
        const int64_t at[] = {row, i * s->segment + p};
        bool there = p < s->segment && at[1] < s->at.out[1];
        *table++ = there ? grouped_under(call, image, at, tap, zeros) : zeros;
      }
}

// A block of the maps of a row whose first pixel is number `pixel`.
static void grouped_row(const grouped_call_t* call, int64_t block,
                        int64_t pixel, const float* const* table) {
  const rabbet_cpu_filters_t* kernel = call->kernel;
  const cpu_grouped_state_t* s = call->state;
  int64_t first = block * BLOCK;
  const rabbet_grouped_t part = {
      .weights = kernel->weights + first * kernel->planes * kernel->channels,
      .bias = kernel->bias + first,
      .taps = kernel->planes,
      .size = kernel->channels,
      .first = first,
      .count = rabbet_min_i64(BLOCK, kernel->maps - first),
      .finish = kernel->finish.of_sums};
  for (int64_t i = 0; i < s->at.out[1]; i += s->segment) {
    int pixels = (int)rabbet_min_i64(s->segment, s->at.out[1] - i);
    float* y[PIXELS];
    const float* added[PIXELS];
    for (int p = 0; p < pixels; ++p) {
      int64_t at = (pixel + i + p) * kernel->maps;
      y[p] = call->y + at;
      added[p] = call->added ? call->added + at : NULL;
    }
    call->vectors->grouped(&part, table, pixels, call->added ? added : NULL, y);
    table += kernel->planes * PIXELS;
  }
}

static void grouped_range(void* context, int64_t begin, int64_t end) {
  const grouped_call_t* call = context;
  const rabbet_cpu_filters_t* kernel = call->kernel;
  const cpu_grouped_state_t* s = call->state;
  char* slot = call->workspace + (size_t)rabbet_cpu_slot() * s->slot;
  float* zeros = (float*)(void*)slot;
  const float** table = (const float**)(void*)(slot + s->table);
  memset(zeros, 0, s->table);
  for (int64_t i = begin; i < end; ++i) {
    grouped_table(call, i / s->at.out[0], i % s->at.out[0], zeros, table);
    for (int64_t block = 0; block * BLOCK < kernel->maps; ++block)
      grouped_row(call, block, i * s->at.out[1], table);
  }
}

static rabbet_status_t cpu_grouped_enqueue(rabbet_kernel_t* base,
                                           cpu_grouped_state_t* state,
                                           const rabbet_kernel_call_t* call) {
  const rabbet_cpu_filters_t* kernel = (const rabbet_cpu_filters_t*)base;
  grouped_call_t run = {
      .kernel = kernel,
      .state = state,
      .vectors = rabbet_vectors(),
      .x = rabbet_node_input_at(&kernel->node, call, RABBET_CONVOLUTION_INPUT),
      .added =
          rabbet_cpu_finish_added(kernel->node.group, &kernel->finish, call),
      .y = call->outputs[0],
      .workspace = call->workspace};
  if (state->segments > 0)
    rabbet_cpu_parallel(state->at.images * state->at.out[0], 1, grouped_range,
                        &run);
  return rabbet_ok();
}

RABBET_NODE_TABLE(cpu_grouped, "cpu.convolution.grouped", 1,
                  .destroy = rabbet_cpu_filters_destroy);
