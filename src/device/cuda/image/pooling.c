// Maxima and averages of windows. A thread computes an element (LINEAR),
// neighbours of a row (LINEAR, rows that consist of whole vectors), or 16 bytes
// of channels (channels last). For large and few windows, several threads share
// the taps of one. Bound by the bytes of input and output.
#include <string.h>

#include "device/cuda/image/pooling_params.h"
#include "device/cuda/movement/move.h"
#include "ops/enums.h"
#include "ops/image/window.h"

enum {
  LINEAR,
  ROWS,
  LINEAR_WARPS,
  PACKS,
  CHANNELS,
  PACK_COLUMNS,
  CHANNEL_COLUMNS,
  FUNCTIONS
};

enum { THREADS = 256, COLUMN = 8, LANES = 32, MOST_GRID_Y = 65535 };
// Windows of at least this many taps are shared by threads if there are few.
enum { MANY_TAPS = 24 };

typedef struct cuda_pooling_kernel_t {
  rabbet_cuda_node_t node;
  rabbet_window_t window;
  int64_t size;  // bytes of an element
  // The part of the result that a thread of ROWS computes; 0: the kernel does
  // not apply.
  int64_t rows_width, rows_height;
  CUfunction functions[FUNCTIONS];
} cuda_pooling_kernel_t;

typedef struct cuda_pooling_state_t {
  bool is_empty;
  // `wide`: by vectors of 16 bytes, if addresses and extents are multiples of
  // them; `single`: by elements.
  bool has_wide;
  rabbet_cuda_launch_t wide, single;
  pooling_t wide_parameters, single_parameters;
} cuda_pooling_state_t;

// ---- Proposing -------------------------------------------------------------

static bool pooling_is_point(const rabbet_dims_t* dims) {
  bool point = true;
  for (int32_t i = 2; i < dims->rank; ++i)
    point = point && dims->d[i] == 1;
  return point;
}

// Whether the output is also LINEAR in memory: one element per channel, without
// channels of padding.
static bool pooling_may_end_linear(const rabbet_group_value_t* out,
                                   rabbet_format_t format) {
  return format != RABBET_FORMAT_LINEAR && pooling_is_point(&out->min) &&
         pooling_is_point(&out->max) && rabbet_format_is_filled(out, format);
}

// Whether the kernels compute this format. Blocks of channels count as planes
// of a few channels each, if all blocks are full.
static bool pooling_fits(const rabbet_group_value_t* out,
                         rabbet_format_t format) {
  return rabbet_format_info(format)->channels_last ||
         rabbet_format_is_filled(out, format);
}

static rabbet_status_t cuda_pooling_body(rabbet_proposal_t* proposal) {
  const rabbet_group_t* group = proposal->propose->group;
  const rabbet_group_value_t* out = &group->values[proposal->node->outputs[0]];
  rabbet_type_format_t layouts[RABBET_CUDA_LAYOUTS];
  int count = rabbet_cuda_layouts(proposal, layouts);
  proposal->keeps_padding = true;
  for (int i = 0; i < count; ++i) {
    rabbet_dtype_t dtype = layouts[i].dtype;
    rabbet_format_t format = layouts[i].format;
    if (!pooling_fits(out, format)) continue;
    rabbet_proposal_set_input(proposal, 0, dtype, format);
    rabbet_proposal_set_output(proposal, dtype, format);
    RABBET_RETURN_IF_ERROR(rabbet_proposal_offer(proposal, "windows", -1));
    if (!pooling_may_end_linear(out, format)) continue;
    rabbet_proposal_set_output(proposal, dtype, RABBET_FORMAT_LINEAR);
    RABBET_RETURN_IF_ERROR(rabbet_proposal_offer(proposal, "windows", -1));
  }
  return rabbet_ok();
}

RABBET_PROPOSE_FOR(cuda_pooling, POOLING)

// ---- The program -----------------------------------------------------------

static rabbet_status_t pooling_read(const rabbet_group_node_t* layer,
                                    rabbet_window_t* out_window) {
  size_t count = 0;
  const int64_t* size = rabbet_attr_ints(layer->attrs, layer->op->attr_count,
                                         "window_size_nd", &count);
  if (count < 1 || count > 3)
    return RABBET_STATUS(RABBET_STATUS_INVALID_ARGUMENT,
                         "layer '%s': a window of %zu axes cannot be pooled",
                         layer->name, count);
  return RABBET_ANNOTATE(rabbet_window_read(layer->attrs, layer->op->attr_count,
                                            (int32_t)count, size, out_window),
                         "layer '%s'", layer->name);
}

static void pooling_options(const rabbet_group_node_t* layer,
                            const rabbet_window_t* window,
                            rabbet_cuda_options_t* options) {
  static const char axes[] = "DHW";
  rabbet_cuda_option(options, "-DKIND=%d", (int)rabbet_node_int(layer, "type"));
  rabbet_cuda_option(
      options, "-DEXCLUDES=%d",
      (int)rabbet_node_int(layer, "average_count_excludes_padding"));
  for (int32_t i = 0; i < 3; ++i) {
    int32_t k = i - (3 - window->spatial);
    rabbet_cuda_option(options, "-DWINDOW_%c=%d", axes[i],
                       k < 0 ? 1 : (int)window->size[k]);
    rabbet_cuda_option(options, "-DSTRIDE_%c=%d", axes[i],
                       k < 0 ? 1 : (int)window->stride[k]);
    rabbet_cuda_option(options, "-DDILATION_%c=%d", axes[i],
                       k < 0 ? 1 : (int)window->dilation[k]);
  }
}

// Whether rows can be pooled by vectors, and how many elements a thread then
// computes. If windows overlap, more rows per thread pay for their registers.
static void pooling_find_rows(const rabbet_group_node_t* layer,
                              cuda_pooling_kernel_t* kernel) {
  enum { MOST_VECTORS = 8, MOST_ROWS = 12 };
  const rabbet_window_t* window = &kernel->window;
  bool is_explicit = window->mode == RABBET_PADDING_EXPLICIT_ROUND_DOWN ||
                     window->mode == RABBET_PADDING_EXPLICIT_ROUND_UP;
  if (window->spatial != 2 || !is_explicit ||
      rabbet_node_int(layer, "type") == RABBET_POOLING_MAX_AVERAGE_BLEND ||
      window->size[0] > MOST_ROWS || window->size[1] > MOST_ROWS)
    return;
  int64_t vector = 16 / kernel->size;
  bool overlaps = vector > 4 && window->size[0] > window->stride[0];
  int64_t height = overlaps ? 2 : 1;
  int64_t width = overlaps && window->stride[1] % 2 == 0 ? 4 : vector;
  int64_t span = (width - 1) * window->stride[1] +
                 (window->size[1] - 1) * window->dilation[1] + vector;
  int64_t rows = (height - 1) * window->stride[0] +
                 (window->size[0] - 1) * window->dilation[0] + 1;
  if (rabbet_ceildiv(span, vector) > MOST_VECTORS || rows > MOST_ROWS) return;
  kernel->rows_width = width;
  kernel->rows_height = height;
}

static rabbet_status_t cuda_pooling_program(rabbet_cuda_node_t* node,
                                            const rabbet_kernel_spec_t* spec) {
  static const char* const names[FUNCTIONS] = {
      [LINEAR] = "pooling_linear",
      [ROWS] = "pooling_rows",
      [LINEAR_WARPS] = "pooling_linear_warps",
      [PACKS] = "pooling_packs",
      [CHANNELS] = "pooling_channels",
      [PACK_COLUMNS] = "pooling_pack_columns",
      [CHANNEL_COLUMNS] = "pooling_channel_columns"};
  cuda_pooling_kernel_t* kernel = (cuda_pooling_kernel_t*)node;
  const rabbet_group_node_t* layer = node->node.node;
  if (!rabbet_node_is(spec->group, RABBET_OP_POOLING))
    return RABBET_STATUS(RABBET_STATUS_INVALID_ARGUMENT,
                         "layer '%s' is no pooling", layer->name);
  rabbet_dtype_t dtype = spec->group->values[layer->inputs[0]].dtype;
  if (dtype != RABBET_DTYPE_FLOAT && dtype != RABBET_DTYPE_HALF &&
      dtype != RABBET_DTYPE_BF16)
    return RABBET_STATUS(RABBET_STATUS_UNSUPPORTED,
                         "layer '%s': %s cannot be pooled", layer->name,
                         rabbet_dtype_name(dtype));
  RABBET_RETURN_IF_ERROR(pooling_read(layer, &kernel->window));
  rabbet_cuda_options_t options = {.count = 0};
  kernel->size = rabbet_dtype_bits(dtype) / 8;
  rabbet_cuda_option(&options, "-DELEMENT=%s", rabbet_cuda_type(dtype));
  pooling_options(layer, &kernel->window, &options);
  pooling_find_rows(layer, kernel);
  if (kernel->rows_width > 0) {
    rabbet_cuda_option(&options, "-DROWS_PRE=%d", (int)kernel->window.pre[1]);
    rabbet_cuda_option(&options, "-DROWS_WIDTH=%d", (int)kernel->rows_width);
    rabbet_cuda_option(&options, "-DROWS_HEIGHT=%d", (int)kernel->rows_height);
  }
  RABBET_RETURN_IF_ERROR(
      rabbet_cuda_node_add(node, spec, "image/pooling.cu", NULL, &options));
  for (int i = 0; i < FUNCTIONS; ++i) {
    if (i == ROWS && kernel->rows_width == 0) continue;
    RABBET_RETURN_IF_ERROR(
        rabbet_cuda_node_function(node, 0, names[i], &kernel->functions[i]));
  }
  return rabbet_ok();
}

// ---- Geometry --------------------------------------------------------------

static rabbet_status_t pooling_too_large(const rabbet_group_node_t* layer,
                                         const rabbet_dims_t* in) {
  char text[128];
  return RABBET_STATUS(RABBET_STATUS_UNSUPPORTED,
                       "layer '%s': planes of a tensor of shape %s with its "
                       "padding are too large to be pooled; at most 2^30 "
                       "positions",
                       layer->name, rabbet_dims_print(in, text, sizeof(text)));
}

// Sets the fields that all kernels have.
static rabbet_status_t pooling_set(const cuda_pooling_kernel_t* kernel,
                                   const rabbet_dims_t* in,
                                   const rabbet_dims_t* out, pooling_t* p) {
  const rabbet_window_t* window = &kernel->window;
  const rabbet_group_node_t* layer = kernel->node.node.node;
  const int64_t most = INT64_C(1) << 30;
  int64_t pre[RABBET_MAX_RANK], post[RABBET_MAX_RANK], positions = 1;
  bool is_explicit = window->mode == RABBET_PADDING_EXPLICIT_ROUND_DOWN ||
                     window->mode == RABBET_PADDING_EXPLICIT_ROUND_UP;
  memset(p, 0, sizeof(*p));
  rabbet_window_pads(window, in->d + 2, out->d + 2, pre, post);
  for (int32_t i = 0; i < 3; ++i) {
    int32_t k = i - (3 - window->spatial);
    p->in[i] = p->out[i] = p->end[i] = 1;
    if (k < 0) continue;
    int64_t end = in->d[k + 2] + (is_explicit ? window->post[k] : post[k]);
    int64_t reach = (out->d[k + 2] + 1) * window->stride[k] +
                    window->size[k] * window->dilation[k];
    if (in->d[k + 2] > most || end > most || reach > most || pre[k] > most)
      return pooling_too_large(layer, in);
    p->in[i] = (int32_t)in->d[k + 2];
    p->out[i] = (int32_t)out->d[k + 2];
    p->pre[i] = (int32_t)pre[k];
    p->end[i] = (int32_t)end;
    if (__builtin_mul_overflow(positions, p->out[i], &positions) ||
        positions > most)
      return pooling_too_large(layer, in);
  }
  p->out_height = rabbet_cuda_divisor(p->out[1]);
  p->out_width = rabbet_cuda_divisor(p->out[2]);
  p->blend = (float)rabbet_attr_float(layer->attrs, layer->op->attr_count,
                                      "blend_factor", 0);
  return rabbet_ok();
}

static int64_t pooling_taps(const rabbet_window_t* window) {
  int64_t taps = 1;
  for (int32_t i = 0; i < window->spatial; ++i)
    taps = taps > MANY_TAPS ? taps : taps * window->size[i];
  return taps;
}

// Whether one thread per result would leave the device idle, so that several
// threads should share a window's taps.
static bool pooling_shares_taps(const cuda_pooling_kernel_t* kernel,
                                int64_t threads) {
  return pooling_taps(&kernel->window) >= MANY_TAPS &&
         threads < (int64_t)kernel->node.device->multiprocessors * 1024;
}

static void pooling_plan_rows(const cuda_pooling_kernel_t* kernel,
                              cuda_pooling_state_t* state) {
  pooling_t* p = &state->wide_parameters;
  *p = state->single_parameters;
  if (kernel->rows_width == 0 || p->in[2] * kernel->size % 16 != 0) return;
  int64_t across = rabbet_ceildiv(p->out[2], kernel->rows_width);
  int64_t down = rabbet_ceildiv(p->out[1], kernel->rows_height);
  int64_t threads = 0;
  if (__builtin_mul_overflow(across * down, p->planes, &threads) ||
      threads > INT32_MAX - THREADS)
    return;
  p->out_width = rabbet_cuda_divisor(across);
  p->out_height = rabbet_cuda_divisor(down);
  p->threads = (int32_t)threads;
  state->has_wide = true;
  state->wide = (rabbet_cuda_launch_t){
      .function = kernel->functions[ROWS],
      .grid = {(unsigned)rabbet_ceildiv(threads, THREADS), 1, 1},
      .block = {THREADS, 1, 1}};
}

static void pooling_plan_linear(const cuda_pooling_kernel_t* kernel,
                                cuda_pooling_state_t* state) {
  const pooling_t* p = &state->single_parameters;
  int64_t size = (int64_t)p->out[0] * p->out[1] * p->out[2];
  rabbet_cuda_launch_t* launch = &state->single;
  int64_t wide = 1;
  if (pooling_shares_taps(kernel, p->planes * size)) {
    int64_t warps = THREADS / LANES;
    *launch = (rabbet_cuda_launch_t){
        .function = kernel->functions[LINEAR_WARPS],
        .grid = {(unsigned)rabbet_ceildiv(p->planes * size, warps), 1, 1},
        .block = {THREADS, 1, 1}};
    return;
  }
  while (wide < THREADS && wide < size)
    wide *= 2;
  int64_t rows = rabbet_ceildiv(p->planes, THREADS / wide);
  *launch = (rabbet_cuda_launch_t){
      .function = kernel->functions[LINEAR],
      .grid = {(unsigned)rabbet_ceildiv(size, wide),
               (unsigned)rabbet_min_i64(rows, MOST_GRID_Y), 1},
      .block = {(unsigned)wide, (unsigned)(THREADS / wide), 1}};
  pooling_plan_rows(kernel, state);
}

// Launches for `pack` channels per thread.
static void pooling_plan_channels(const cuda_pooling_kernel_t* kernel,
                                  int64_t pack, pooling_t* p,
                                  rabbet_cuda_launch_t* launch) {
  int64_t size = (int64_t)p->out[0] * p->out[1] * p->out[2];
  int64_t threads = size * (p->pitch / pack);
  bool shares = pooling_shares_taps(kernel, threads * p->planes);
  bool packs = pack > 1;
  int function = shares  ? packs ? PACK_COLUMNS : CHANNEL_COLUMNS
                 : packs ? PACKS
                         : CHANNELS;
  p->groups = rabbet_cuda_divisor(p->pitch / pack);
  *launch = (rabbet_cuda_launch_t){
      .function = kernel->functions[function],
      .grid = {(unsigned)rabbet_ceildiv(threads, shares ? LANES : THREADS),
               (unsigned)rabbet_min_i64(p->planes, MOST_GRID_Y), 1},
      .block = {shares ? LANES : THREADS, shares ? COLUMN : 1, 1}};
}

static rabbet_status_t pooling_check_formats(
    const cuda_pooling_kernel_t* kernel, const rabbet_dims_t* out,
    rabbet_format_t from, rabbet_format_t to) {
  const rabbet_format_info_t* info = rabbet_format_info(from);
  bool fits = info->channels_last || out->d[1] % info->block == 0;
  if (from == to && fits) return rabbet_ok();
  if (to == RABBET_FORMAT_LINEAR && pooling_is_point(out) &&
      out->d[1] % info->block == 0)
    return rabbet_ok();
  char text[128];
  return RABBET_STATUS(RABBET_STATUS_UNSUPPORTED,
                       "layer '%s': %s cannot be pooled to %s of shape %s",
                       kernel->node.node.node->name, rabbet_format_name(from),
                       rabbet_format_name(to),
                       rabbet_dims_print(out, text, sizeof(text)));
}

static rabbet_status_t cuda_pooling_prepare(
    rabbet_kernel_t* base, const rabbet_kernel_shapes_t* shapes,
    cuda_pooling_state_t** out_state, size_t* out_workspace) {
  const cuda_pooling_kernel_t* kernel = (const cuda_pooling_kernel_t*)base;
  const rabbet_group_t* group = kernel->node.node.group;
  const rabbet_group_node_t* layer = kernel->node.node.node;
  const rabbet_dims_t* in = &shapes->dims[layer->inputs[0]];
  const rabbet_dims_t* out = &shapes->dims[layer->outputs[0]];
  rabbet_format_t format = group->values[layer->inputs[0]].format;
  const rabbet_format_info_t* info = rabbet_format_info(format);
  pooling_t p;
  int64_t count = 0;
  *out_workspace = 0;
  RABBET_RETURN_IF_ERROR(pooling_check_formats(
      kernel, out, format, group->values[layer->outputs[0]].format));
  RABBET_RETURN_IF_ERROR(rabbet_dims_count(out, &count));
  RABBET_RETURN_IF_ERROR(pooling_set(kernel, in, out, &p));
  RABBET_RETURN_IF_ERROR(
      rabbet_node_state_allocate(base, sizeof(**out_state), (void**)out_state));
  cuda_pooling_state_t* state = *out_state;
  state->is_empty = count == 0;
  state->single_parameters = p;
  if (state->is_empty) return rabbet_ok();
  if (format == RABBET_FORMAT_LINEAR) {
    state->single_parameters.planes = in->d[0] * in->d[1];
    pooling_plan_linear(kernel, state);
    return rabbet_ok();
  }
  pooling_t* single = &state->single_parameters;
  int64_t blocks = rabbet_ceildiv(in->d[1], info->block);
  single->planes = in->d[0];
  single->channels = (int32_t)in->d[1];
  single->pitch = (int32_t)(blocks * info->block);
  if (!info->channels_last) {
    single->planes *= blocks;
    single->channels = single->pitch = info->block;
  }
  state->wide_parameters = *single;
  pooling_plan_channels(kernel, 1, single, &state->single);
  int64_t pack = 16 / kernel->size;
  state->has_wide = single->pitch % pack == 0;
  if (state->has_wide)
    pooling_plan_channels(kernel, pack, &state->wide_parameters, &state->wide);
  return rabbet_ok();
}

static rabbet_status_t cuda_pooling_enqueue(rabbet_kernel_t* base,
                                            cuda_pooling_state_t* state,
                                            const rabbet_kernel_call_t* call) {
  const cuda_pooling_kernel_t* kernel = (const cuda_pooling_kernel_t*)base;
  const rabbet_group_t* group = kernel->node.node.group;
  const rabbet_group_node_t* layer = kernel->node.node.node;
  if (state->is_empty) return rabbet_ok();
  const void* in = call->inputs[rabbet_group_input_of(group, layer->inputs[0])];
  void* out = call->outputs[0];
  bool is_wide = state->has_wide && ((uintptr_t)in | (uintptr_t)out) % 16 == 0;
  void* parameters[] = {
      &in, &out, is_wide ? &state->wide_parameters : &state->single_parameters};
  return rabbet_cuda_launch(kernel->node.device,
                            is_wide ? &state->wide : &state->single, parameters,
                            call->stream);
}

RABBET_TAKES_NODE(cuda_pooling, POOLING, RABBET_TAKES_FORMATS)

RABBET_CUDA_NODE_CLASS(cuda_pooling, cuda_pooling_kernel_t, "cuda.pooling", 2);
