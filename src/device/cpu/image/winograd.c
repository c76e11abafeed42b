// Convolutions of 3x3 by Winograd's F(4x4, 3x3), channels last. A tile of 6x6
// pixels becomes 36 numbers of each channel, which are multiplied by as many
// matrices; a quarter of the multiplications is left. oneDNN has it for AVX-512
// alone, and without groups.
#include <assert.h>
#include <string.h>

#include "device/cpu/cpu.h"
#include "device/cpu/image/filters.h"
#include "device/cpu/parallel.h"
#include "device/cpu/vectors/vectors.h"
#include "ops/image/convolution.h"
#include "ops/image/window.h"

enum {
  IN = RABBET_WINOGRAD_IN,
  OUT = RABBET_WINOGRAD_OUT,
  WINDOW = 3,
  PLANES = IN * IN,
  PANEL = RABBET_PANEL,
  DEPTH = 128,  // channels at a time: their panel stays in the first cache
  TILES = 36,   // a whole number of the rows that products take at a time
  LEAST = 16,   // channels and maps
  GROUP_LEAST =
      40,  // of one of several groups; smaller ones were never quicker
  ALIGNMENT = 64,
};

typedef struct cpu_winograd_state_t {
  rabbet_cpu_windows_t at;
  int64_t across, down;  // tiles of an image
  int64_t tiles;         // of all images
  int64_t block, blocks;
  int64_t shares;  // of a group's panels, where there are few blocks
  // A thread's memory: zeros for padding, transformed tiles, products.
  size_t spread, products, slot;
} cpu_winograd_state_t;

// ---- Which groups ----------------------------------------------------------

static bool winograd_window(const rabbet_group_t* group) {
  rabbet_window_t window;
  bool fits = rabbet_cpu_filters_window(group, &window);
  for (int32_t i = 0; fits && i < window.spatial; ++i)
    fits = window.size[i] == WINDOW && window.stride[i] == 1 &&
           window.dilation[i] == 1;
  return fits;
}

static bool winograd_matches(const rabbet_group_t* group,
                             rabbet_cpu_finish_t* out_finish) {
  if (!rabbet_cpu_filters_fit(group, out_finish)) return false;
  const rabbet_dims_t* w = rabbet_cpu_filters_dims(group);
  int64_t groups = rabbet_node_int(&group->nodes[0], "num_groups");
  int64_t least = groups > 1 ? GROUP_LEAST : LEAST;
  return w->rank == 4 && w->d[1] >= least && w->d[0] >= least * groups &&
         winograd_window(group);
}

static rabbet_status_t cpu_winograd_body(rabbet_proposal_t* proposal) {
  rabbet_cpu_finish_t finish;
  const rabbet_group_t* group = proposal->propose->group;
  if (!winograd_matches(group, &finish) ||
      rabbet_convolution_is_whole(group, &group->nodes[0]))
    return rabbet_ok();
  return rabbet_cpu_finish_offer(proposal, &finish, RABBET_FORMAT_HWC,
                                 "winograd_4x4");
}

static rabbet_status_t cpu_winograd_propose(const rabbet_propose_t* propose,
                                            rabbet_candidate_sink_t sink) {
  return rabbet_proposal_make(propose, sink, &rabbet_cpu_winograd, NULL,
                              cpu_winograd_body);
}

static bool cpu_winograd_takes(const rabbet_kernel_spec_t* spec) {
  rabbet_cpu_finish_t finish;
  return winograd_matches(spec->group, &finish) &&
         rabbet_cpu_finish_formats(spec->group, &finish, RABBET_FORMAT_HWC);
}

// ---- Constants -------------------------------------------------------------

// G w for a column of three, in steps.
static void winograd_column(const double* w, int step, double* out,
                            int out_step) {
  double a = w[0], b = w[step], c = w[2 * step];
  const double g[IN] = {a / 4,
                        (-a - b - c) / 6,
                        (-a + b - c) / 6,
                        a / 24 + b / 12 + c / 6,
                        a / 24 - b / 12 + c / 6,
                        c};
  for (int i = 0; i < IN; ++i)
    out[i * out_step] = g[i];
}

// The matrices' numbers of a channel and a map, `step` floats apart.
static void winograd_weights(const float* from, float* to, int64_t step) {
  double w[WINDOW * WINDOW], half[IN * WINDOW], all[PLANES];
  for (int i = 0; i < WINDOW * WINDOW; ++i)
    w[i] = from[i];
  for (int k = 0; k < WINDOW; ++k)
    winograd_column(w + k, WINDOW, half + k, WINDOW);
  for (int i = 0; i < IN; ++i)
    winograd_column(half + i * WINDOW, 1, all + i * IN, 1);
  for (int i = 0; i < PLANES; ++i)
    to[i * step] = (float)all[i];
}

static void winograd_pack(const rabbet_cpu_filters_t* kernel,
                          const float* from) {
  const int64_t plane = kernel->channels * PANEL;
  const int64_t maps = kernel->maps / kernel->parts;
  for (int64_t n = 0; n < kernel->maps; ++n) {
    int64_t panel = n / maps * kernel->panels + n % maps / PANEL;
    float* to = kernel->weights + panel * PLANES * plane + n % maps % PANEL;
    for (int64_t c = 0; c < kernel->channels; ++c, from += WINDOW * WINDOW)
      winograd_weights(from, to + c * PANEL, plane);
  }
}

static rabbet_status_t cpu_winograd_create(const rabbet_kernel_spec_t* spec,
                                           rabbet_kernel_t** out_kernel) {
  int64_t groups = rabbet_node_int(&spec->group->nodes[0], "num_groups");
  return rabbet_cpu_filters_create(spec, &rabbet_cpu_winograd, groups, PLANES,
                                   winograd_pack, out_kernel);
}

// ---- Geometry --------------------------------------------------------------

static void winograd_lay_out(const rabbet_cpu_filters_t* kernel, int threads,
                             cpu_winograd_state_t* s, size_t* out_workspace) {
  int64_t team = rabbet_cpu_slots(threads);
  s->down = rabbet_ceildiv(s->at.out[0], (int64_t)OUT);
  s->across = rabbet_ceildiv(s->at.out[1], (int64_t)OUT);
  s->tiles = s->at.images * s->down * s->across;
  s->blocks = rabbet_ceildiv(s->tiles, (int64_t)TILES);
  s->block = s->blocks ? rabbet_ceildiv(s->tiles, s->blocks) : 0;
  int64_t items = s->blocks * kernel->groups;
  s->shares = items >= team || items == 0
                  ? 1
                  : rabbet_min_i64(kernel->panels, rabbet_ceildiv(team, items));
  size_t pixel = (size_t)kernel->channels * sizeof(float);
  s->spread = rabbet_align_up(pixel, (size_t)ALIGNMENT);
  s->products = rabbet_align_up(s->spread + (size_t)(PLANES * s->block) * pixel,
                                (size_t)ALIGNMENT);
  s->slot = s->products + (size_t)(PLANES * s->block * PANEL) * sizeof(float);
  *out_workspace = s->slot * (size_t)team;
}

static rabbet_status_t cpu_winograd_prepare(
    rabbet_kernel_t* base, const rabbet_kernel_shapes_t* shapes,
    cpu_winograd_state_t** out_state, size_t* out_workspace) {
  const rabbet_cpu_filters_t* kernel = (const rabbet_cpu_filters_t*)base;
  cpu_winograd_state_t* state = NULL;
  *out_workspace = 0;
  *out_state = NULL;
  RABBET_RETURN_IF_ERROR(
      rabbet_cpu_filters_begin(base, shapes, sizeof(*state), (void**)&state));
  rabbet_status_t status =
      rabbet_cpu_filters_place(kernel, shapes->dims, &state->at);
  if (rabbet_is_ok(status))
    winograd_lay_out(kernel, shapes->threads, state, out_workspace);
  return rabbet_node_state_finish(base, state, status, (void**)out_state);
}

// ---- Running ---------------------------------------------------------------

typedef struct winograd_call_t {
  const rabbet_cpu_filters_t* kernel;
  const cpu_winograd_state_t* state;
  const rabbet_vectors_t* vectors;
  const float *x, *added;
  float* y;
  char* workspace;
} winograd_call_t;

// A unit of parallel work: some tiles of the images, for the maps of a group.
typedef struct winograd_block_t {
  int64_t first, count;  // tiles
  int64_t group;
} winograd_block_t;

typedef struct winograd_room_t {
  float *zeros, *spread, *products;
} winograd_room_t;

// A tile's image, and the first pixel of its result.
typedef struct winograd_place_t {
  int64_t image, row, column;
} winograd_place_t;

static winograd_place_t winograd_place(const cpu_winograd_state_t* s,
                                       int64_t tile) {
  int64_t line = tile / s->across;
  return (winograd_place_t){.image = line / s->down,
                            .row = line % s->down * OUT,
                            .column = tile % s->across * OUT};
}

static void winograd_spread_tiles(const winograd_call_t* call,
                                  const winograd_block_t* block,
                                  const winograd_room_t* room) {
  const cpu_winograd_state_t* s = call->state;
  int64_t channels = call->kernel->channels;
  int64_t pixel = channels * call->kernel->groups;
  const float* x = call->x + block->group * channels;
  memset(room->zeros, 0, (size_t)channels * sizeof(float));
  for (int64_t t = 0; t < block->count; ++t) {
    winograd_place_t place = winograd_place(s, block->first + t);
    const float* pixels[PLANES];
    for (int i = 0; i < PLANES; ++i) {
      int64_t row = place.row + i / IN - s->at.before[0];
      int64_t column = place.column + i % IN - s->at.before[1];
      bool inside =
          row >= 0 && row < s->at.in[0] && column >= 0 && column < s->at.in[1];
      pixels[i] =
          inside
              ? x + ((place.image * s->at.in[0] + row) * s->at.in[1] + column) *
                        pixel
              : room->zeros;
    }
    call->vectors->winograd_input(pixels, channels, room->spread + t * channels,
                                  block->count * channels);
  }
}

static void winograd_multiply(const winograd_call_t* call,
                              const winograd_block_t* block, int64_t panel,
                              const winograd_room_t* room) {
  const int64_t channels = call->kernel->channels, count = block->count;
  const float* planes =
      call->kernel->weights +
      (block->group * call->kernel->panels + panel) * PLANES * channels * PANEL;
  const float* x[TILES];
  float* sums[TILES];
  int64_t width = rabbet_cpu_filters_width(call->kernel, panel);
  for (int64_t plane = 0; plane < PLANES; ++plane) {
    const float* weights = planes + plane * channels * PANEL;
    for (int64_t t = 0; t < count; ++t) {
      sums[t] = room->products + (plane * count + t) * PANEL;
      // Vectors may go beyond the width.
      memset(sums[t], 0, PANEL * sizeof(float));
    }
    for (int64_t k = 0; k < channels; k += DEPTH) {
      for (int64_t t = 0; t < count; ++t)
        x[t] = room->spread + (plane * count + t) * channels + k;
      const rabbet_panel_t part = {.weights = weights + k * PANEL,
                                   .count = rabbet_min_i64(DEPTH, channels - k),
                                   .width = width};
      call->vectors->panel_products(x, sums, count, &part);
    }
  }
}

static void winograd_gather_tiles(const winograd_call_t* call,
                                  const winograd_block_t* block, int64_t panel,
                                  const winograd_room_t* room) {
  const rabbet_cpu_filters_t* kernel = call->kernel;
  const cpu_winograd_state_t* s = call->state;
  int64_t map = block->group * (kernel->maps / kernel->groups) + panel * PANEL;
  rabbet_winograd_tile_t tile = {.bias = kernel->bias + map,
                                 .finish = kernel->finish.of_sums};
  for (int64_t t = 0; t < block->count; ++t) {
    winograd_place_t place = winograd_place(s, block->first + t);
    for (int i = 0; i < OUT * OUT; ++i) {
      int64_t row = place.row + i / OUT, column = place.column + i % OUT;
      bool inside = row < s->at.out[0] && column < s->at.out[1];
      int64_t at =
          ((place.image * s->at.out[0] + row) * s->at.out[1] + column) *
              kernel->maps +
          map;
      tile.y[i] = inside ? call->y + at : NULL;
      tile.added[i] = inside && call->added ? call->added + at : NULL;
    }
    call->vectors->winograd_output(&tile, room->products + t * PANEL,
                                   block->count * PANEL,
                                   rabbet_cpu_filters_width(kernel, panel));
  }
}

static void winograd_range(void* context, int64_t begin, int64_t end) {
  const winograd_call_t* call = context;
  const cpu_winograd_state_t* s = call->state;
  int64_t panels = call->kernel->panels;
  char* slot = call->workspace + (size_t)rabbet_cpu_slot() * s->slot;
  const winograd_room_t room = {
      .zeros = (float*)(void*)slot,
      .spread = (float*)(void*)(slot + s->spread),
      .products = (float*)(void*)(slot + s->products)};
  for (int64_t i = begin; i < end; ++i) {
    int64_t share = i % s->shares, item = i / s->shares;
    // Blocks of a group one after another: its matrices stay in a cache.
    int64_t first = item % s->blocks * s->block;
    const winograd_block_t block = {
        .first = first,
        .count = rabbet_min_i64(s->block, s->tiles - first),
        .group = item / s->blocks};
    winograd_spread_tiles(call, &block, &room);
    for (int64_t panel = panels * share / s->shares;
         panel < panels * (share + 1) / s->shares; ++panel) {
      winograd_multiply(call, &block, panel, &room);
      winograd_gather_tiles(call, &block, panel, &room);
    }
  }
}

static rabbet_status_t cpu_winograd_enqueue(rabbet_kernel_t* base,
                                            cpu_winograd_state_t* state,
                                            const rabbet_kernel_call_t* call) {
  const rabbet_cpu_filters_t* kernel = (const rabbet_cpu_filters_t*)base;
  char* workspace = call->workspace;
  winograd_call_t run = {
      .kernel = kernel,
      .state = state,
      .vectors = rabbet_vectors(),
      .x = rabbet_node_input_at(&kernel->node, call, RABBET_CONVOLUTION_INPUT),
      .added =
          rabbet_cpu_finish_added(kernel->node.group, &kernel->finish, call),
      .y = call->outputs[0],
      .workspace = workspace};
  rabbet_cpu_parallel(state->blocks * kernel->groups * state->shares, 1,
                      winograd_range, &run);
  return rabbet_ok();
}

RABBET_NODE_TABLE(cpu_winograd, "cpu.convolution.winograd", 1,
                  .destroy = rabbet_cpu_filters_destroy);
