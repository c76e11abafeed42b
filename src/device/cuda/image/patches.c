// Convolutions as products of an image's patches, as rows, by the filters
// (products/matmul_tiles.cuh), with bias and any chain of element-wise layers
// after them: the embeddings of patches with which vision transformers begin,
// reductions of images between stages, groups of channels, and windows over
// images of few pixels, where a cluster of blocks shares the elements of a
// patch.
//
// cuDNN (convolution.c) is better where a dense convolution has many rows; it
// takes ten times as long for patches of a few channels, and a hundred times
// for long windows of groups.
#include <assert.h>
#include <stdio.h>

#include "device/cuda/products/layers.h"
#include "device/cuda/products/matmul_tiles.h"
#include "device/cuda/programs/launch.h"
#include "ops/image/window.h"

enum { MOST_GRID_Y = 65535, OLDEST_MAJOR = 9 };
enum { MOST = INT32_MAX / 2 };  // patches, and others that are counted

// Plans keep the index.
static const tiles_tactic_t patches_tactics[] = {
    {64, 48, 6, 1, TILES_K},  {128, 96, 4, 1, TILES_K}, {64, 64, 4, 4, TILES_K},
    {64, 16, 8, 1, TILES_K},  {64, 32, 6, 1, TILES_K},  {64, 64, 6, 1, TILES_K},
    {128, 64, 4, 1, TILES_K}, {64, 48, 4, 4, TILES_K},  {64, 64, 4, 8, TILES_K},
};
enum { TACTICS = sizeof(patches_tactics) / sizeof(patches_tactics[0]) };

typedef struct patches_kernel_t {
  rabbet_cuda_node_t node;
  const tiles_tactic_t* tactic;
  bool channels_last;  // the image; its patches then begin with their rows
  bool is_plain;       // the window
  // The filters are constants that the build did not lay out anew: their loads
  // begin before the previous kernel has ended.
  bool constant;
  CUfunction whole, single;
} patches_kernel_t;

typedef struct cuda_patches_state_t {
  tiles_t parameters;
  rabbet_cuda_layers_t layers;
  int x, w, bias;  // boundary inputs; bias -1: none
  bool has_whole_filters, has_whole_patches, is_empty;
  rabbet_cuda_launch_t launch;
} cuda_patches_state_t;

// ---- Shapes ----------------------------------------------------------------

// A convolution's window as one over two axes: a single axis is that of
// columns.
typedef struct patches_window_t {
  int64_t size[2], stride[2], dilation[2], pre[2];
  int64_t groups;
  // Within the image at all shapes, without holes, of one group: the elements
  // of its rows are contiguous.
  bool is_plain;
  bool overlaps;
} patches_window_t;

// `x` and `y`: NULL, or the shapes for which `pre` is wanted. False if the
// window is none that the kernel knows.
static bool patches_window(const rabbet_group_node_t* node,
                           const rabbet_dims_t* w, const rabbet_dims_t* x,
                           const rabbet_dims_t* y, patches_window_t* out) {
  rabbet_window_t o;
  int64_t pre[RABBET_MAX_RANK], post[RABBET_MAX_RANK];
  *out = (patches_window_t){.size = {1, 1},
                            .stride = {1, 1},
                            .dilation = {1, 1},
                            .groups = rabbet_node_int(node, "num_groups"),
                            .is_plain = true};
  if (w->rank != 3 && w->rank != 4) return false;
  rabbet_status_t status = rabbet_window_read(node->attrs, node->op->attr_count,
                                              w->rank - 2, w->d + 2, &o);
  bool fits = rabbet_is_ok(status);
  rabbet_status_ignore(status);
  if (!fits) return false;
  if (x) rabbet_window_pads(&o, x->d + 2, y->d + 2, pre, post);
  out->is_plain =
      o.mode == RABBET_PADDING_EXPLICIT_ROUND_DOWN && out->groups == 1;
  for (int32_t i = 0; i < o.spatial; ++i) {
    int to = i + 2 - o.spatial;
    out->size[to] = o.size[i];
    out->stride[to] = o.stride[i];
    out->dilation[to] = o.size[i] == 1 ? 1 : o.dilation[i];
    out->pre[to] = x ? pre[i] : 0;
    out->is_plain = out->is_plain && o.pre[i] == 0 && o.post[i] == 0 &&
                    out->dilation[to] == 1;
    out->overlaps = out->overlaps || o.size[i] > o.stride[i];
    fits = fits && o.size[i] > 0 && o.size[i] < MOST && o.stride[i] < MOST &&
           o.dilation[i] < MOST && (o.size[i] - 1) * o.dilation[i] < MOST &&
           out->pre[to] > -MOST && out->pre[to] < MOST;
  }
  return fits;
}

// Groups of one channel and one filter are depthwise.c's.
static bool patches_matches(const rabbet_group_t* group) {
  if (group->node_count == 0 || group->output_count != 1 ||
      !rabbet_op_is(group->nodes[0].op, RABBET_OP_CONVOLUTION))
    return false;
  const rabbet_group_node_t* node = &group->nodes[0];
  const rabbet_dims_t* w = &group->values[node->inputs[1]].dims;
  patches_window_t window;
  return patches_window(node, w, NULL, NULL, &window) && window.groups > 0 &&
         (window.groups == 1 || w->d[0] > window.groups || w->d[1] > 1) &&
         rabbet_group_feeds(group, node);
}

// Patches and their positions. `packed`: elements of a pixel that are
// contiguous.
static void patches_place(const patches_window_t* window,
                          const rabbet_dims_t* x, const rabbet_dims_t* y,
                          bool channels_last, patches_t* p) {
  bool plane = x->rank == 4;
  int64_t channels = x->d[1], own = channels / window->groups;
  int64_t high = plane ? x->d[2] : 1, wide = x->d[plane ? 3 : 2];
  int64_t packed = channels_last ? channels : 1, line = wide * packed;
  p->across = rabbet_cuda_divider(y->d[plane ? 3 : 2]);
  p->down = rabbet_cuda_divider(plane ? y->d[2] : 1);
  p->image = line * high * (channels_last ? 1 : channels);
  p->line = line * window->stride[0];
  p->pixel = window->stride[1] * packed;
  p->before = window->pre[0] * line + window->pre[1] * packed;
  p->channels = (int32_t)own;
  if (window->is_plain || !channels_last) {
    p->run = rabbet_cuda_divider(window->size[1] * packed);
    p->runs = rabbet_cuda_divider(window->size[0]);
    p->plane = line * high;
    p->step = line;
  } else {
    p->run = rabbet_cuda_divider(own);
    p->runs = rabbet_cuda_divider(window->size[1]);
    p->plane = line * window->dilation[0];
    p->step = channels * window->dilation[1];
  }
  p->extent[0] = (int32_t)high, p->extent[1] = (int32_t)wide;
  for (int i = 0; i < 2; ++i) {
    p->pre[i] = (int32_t)window->pre[i];
    p->stride[i] = (int32_t)window->stride[i];
    p->dilation[i] = (int32_t)window->dilation[i];
  }
}

// The product of the image's patches; false if it exceeds the kernel's
// integers.
static bool patches_parameters(const rabbet_group_node_t* node,
                               const rabbet_dims_t* dims, bool channels_last,
                               tiles_t* p) {
  const rabbet_dims_t *x = &dims[node->inputs[0]], *w = &dims[node->inputs[1]];
  const rabbet_dims_t* y = &dims[node->outputs[0]];
  bool plane = x->rank == 4;
  int64_t high = plane ? x->d[2] : 1, wide = x->d[plane ? 3 : 2];
  int64_t down = plane ? y->d[2] : 1, across = y->d[plane ? 3 : 2];
  int64_t length = 0, patches = 0;
  patches_window_t window;
  if (!patches_window(node, w, x, y, &window) ||
      x->d[1] != w->d[1] * window.groups ||
      __builtin_mul_overflow(window.size[0] * window.size[1], w->d[1],
                             &length) ||
      __builtin_mul_overflow(x->d[0], down, &patches) ||
      __builtin_mul_overflow(patches, across, &patches) || length > MOST / 8 ||
      patches > MOST || y->d[1] > MOST || down <= 0 || across <= 0 ||
      high > MOST || wide > MOST || (down + 1) * window.stride[0] > MOST ||
      (across + 1) * window.stride[1] > MOST)
    return false;
  patches_place(&window, x, y, channels_last, &p->patches);
  p->patches.length = (int32_t)length;
  p->patches.columns = (int32_t)(y->d[1] / window.groups);
  p->a = (tiles_lines_t){.count = patches, .length = length};
  p->b = (tiles_lines_t){
      .count = y->d[1], .length = length, .step = length, .pace = 1};
  p->rows = patches;
  p->columns = p->y_row = y->d[1];
  p->stages = (int32_t)rabbet_ceildiv(length, (int64_t)TILES_INNER);
  return true;
}

// Windows of one pixel are contiguous with channels last only; then the filters
// lie alike in both formats.
static bool patches_is_pixel(const rabbet_dims_t* w) {
  return w->d[2] * (w->rank == 4 ? w->d[3] : 1) == 1;
}

static int64_t patches_tiles(int columns, const tiles_t* p) {
  return rabbet_ceildiv(p->patches.columns, (int64_t)columns);
}

static int64_t patches_blocks(const tiles_tactic_t* t, const tiles_t* p) {
  return rabbet_ceildiv(p->rows, (int64_t)t->rows) * t->parts *
         patches_tiles(t->columns, p) * (p->columns / p->patches.columns);
}

// ---- Proposing -------------------------------------------------------------

// Whether a tactic's tiles cover a group's columns about as well as any.
static bool patches_covers(const tiles_tactic_t* t, const tiles_t* p) {
  int64_t least = INT64_MAX;
  if (t->columns < 48 && t->columns < p->patches.columns) return false;
  for (int i = 0; i < TACTICS; ++i)
    least = rabbet_min_i64(least, patches_tiles(patches_tactics[i].columns, p) *
                                      patches_tactics[i].columns);
  return patches_tiles(t->columns, p) * t->columns * 4 <= least * 5;
}

// Small tiles for few patches, which clusters share if they are very few.
static bool patches_suits(const rabbet_cuda_device_t* device,
                          const tiles_tactic_t* t, const tiles_t* p) {
  int64_t blocks = patches_blocks(t, p), most = device->multiprocessors;
  if (tiles_shared(t) > device->shared_bytes || !patches_covers(t, p))
    return false;
  if (t->parts > 1) return p->stages >= t->parts && blocks <= 4 * most;
  return t->rows == 64 || 2 * blocks >= most;
}

// Dense windows that overlap, in images of many pixels and channels, are left
// to cuDNN.
static bool patches_is_worth(const rabbet_cuda_device_t* device,
                             const patches_window_t* window, const tiles_t* p) {
  static const tiles_tactic_t square = {.rows = 64, .columns = 64, .parts = 1};
  return !window->overlaps || window->groups > 1 ||
         p->patches.channels < TILES_CHUNK ||
         patches_blocks(&square, p) <= 4 * (int64_t)device->multiprocessors;
}

static rabbet_status_t patches_offer(rabbet_proposal_t* proposal) {
  const rabbet_propose_t* propose = proposal->propose;
  const tiles_t* p = proposal->context;
  // Groups that are no whole chunks are gathered, slowly: for types that no
  // other kernel takes.
  bool gathers = p->patches.channels % TILES_CHUNK != 0 &&
                 p->patches.columns != p->columns;
  int left = propose->optimization_level >= 2 && !gathers ? TACTICS : 1;
  for (int i = 0; i < TACTICS && left > 0; ++i) {
    const tiles_tactic_t* t = &patches_tactics[i];
    if (!patches_suits(rabbet_cuda(propose->device), t, p)) continue;
    rabbet_candidate_t candidate = {
        .kernel = proposal->kernel, .tactic = i, .tensors = proposal->tensors};
    snprintf(candidate.tactic_name, sizeof(candidate.tactic_name),
             "%d x %d x %d", t->rows, t->columns, t->parts);
    RABBET_RETURN_IF_ERROR(rabbet_offer(propose, proposal->sink, &candidate));
    --left;
  }
  return rabbet_ok();
}

// The formats of the image: with channels last, chunks of which are read at
// once, or in planes of rows.
static int patches_formats(const rabbet_group_t* group,
                           rabbet_format_t formats[2]) {
  const rabbet_group_node_t* node = &group->nodes[0];
  const rabbet_dims_t* w = &group->values[node->inputs[1]].dims;
  patches_window_t window;
  bool fits = patches_window(node, w, NULL, NULL, &window);
  bool few = w->d[1] < TILES_CHUNK;
  int count = 0;
  assert(fits);
  (void)fits;
  if (w->d[1] % TILES_CHUNK == 0 || window.groups > 1 ||
      (window.is_plain && !window.overlaps))
    formats[count++] = RABBET_FORMAT_HWC;
  if (!patches_is_pixel(w) && window.groups == 1 && window.dilation[0] == 1 &&
      window.dilation[1] == 1 && (few || (window.is_plain && !window.overlaps)))
    formats[count++] = RABBET_FORMAT_LINEAR;
  return count;
}

// The filters lie in the order of the patches' elements.
static void patches_tensors(rabbet_proposal_t* proposal, rabbet_dtype_t dtype,
                            rabbet_format_t image) {
  const rabbet_group_t* group = proposal->propose->group;
  const rabbet_group_node_t* node = &group->nodes[0];
  const rabbet_dims_t* result = &group->values[group->outputs[0]].dims;
  for (size_t i = 0; i < group->input_count + group->output_count; ++i) {
    int32_t value = rabbet_group_boundary(group, i);
    rabbet_type_format_t* tensor = &proposal->tensors[i];
    if (rabbet_dtype_is_float(tensor->dtype)) tensor->dtype = dtype;
    tensor->format = RABBET_FORMAT_LINEAR;
    const rabbet_dims_t* dims = &group->values[value].dims;
    bool is_filter = value == node->inputs[1];
    if (is_filter ? !patches_is_pixel(dims) : value == node->inputs[0])
      tensor->format = image;
    else if (!is_filter && rabbet_dims_equal(dims, result))
      tensor->format = RABBET_FORMAT_HWC;
  }
}

static rabbet_status_t cuda_patches_body(rabbet_proposal_t* proposal) {
  const rabbet_propose_t* propose = proposal->propose;
  const rabbet_group_t* group = propose->group;
  const rabbet_group_node_t* node = &group->nodes[0];
  rabbet_format_t images[2];
  int kinds = patches_formats(group, images);
  rabbet_dtype_t types[4];
  int count = rabbet_compute_types(propose,
                                   group->values[node->inputs[0]].dtype, types);
  for (int t = 0; t < count; ++t)
    for (int i = 0; tiles_computes(types[t]) && i < kinds; ++i) {
      patches_tensors(proposal, types[t], images[i]);
      RABBET_RETURN_IF_ERROR(patches_offer(proposal));
    }
  return rabbet_ok();
}

static rabbet_status_t cuda_patches_propose(const rabbet_propose_t* propose,
                                            rabbet_candidate_sink_t sink) {
  const rabbet_group_t* group = propose->group;
  rabbet_dims_t* opt = NULL;
  tiles_t parameters = {.stages = 0};
  if (!patches_matches(group) ||
      rabbet_cuda(propose->device)->major < OLDEST_MAJOR)
    return rabbet_ok();
  RABBET_RETURN_IF_ERROR(
      rabbet_group_opt_dims(group, propose->allocator, &opt));
  const rabbet_group_node_t* node = &group->nodes[0];
  patches_window_t window;
  bool fits =
      rabbet_cuda_layers_fit(group, opt) &&
      patches_window(node, &opt[node->inputs[1]], NULL, NULL, &window) &&
      patches_parameters(node, opt, false, &parameters) &&
      parameters.rows > 0 &&
      patches_is_worth(rabbet_cuda(propose->device), &window, &parameters);
  rabbet_free(propose->allocator, opt);
  return fits ? rabbet_proposal_make(propose, sink, &rabbet_cuda_patches,
                                     &parameters, cuda_patches_body)
              : rabbet_ok();
}

// ---- The program -----------------------------------------------------------

static bool patches_takes_boundary(const rabbet_group_t* group) {
  const rabbet_group_node_t* node = &group->nodes[0];
  const rabbet_group_value_t* x = &group->values[node->inputs[0]];
  for (size_t i = 0; i < group->input_count + group->output_count; ++i) {
    const rabbet_group_value_t* value =
        &group->values[rabbet_group_boundary(group, i)];
    if (value->dtype != x->dtype || (value->format != RABBET_FORMAT_HWC &&
                                     value->format != RABBET_FORMAT_LINEAR))
      return false;
  }
  const rabbet_group_value_t* w = &group->values[node->inputs[1]];
  rabbet_format_t filters =
      patches_is_pixel(&w->dims) ? RABBET_FORMAT_LINEAR : x->format;
  return tiles_computes(x->dtype) && w->format == filters &&
         group->values[group->outputs[0]].format == RABBET_FORMAT_HWC;
}

static rabbet_status_t cuda_patches_program(rabbet_cuda_node_t* base,
                                            const rabbet_kernel_spec_t* spec) {
  patches_kernel_t* kernel = (patches_kernel_t*)base;
  const rabbet_group_t* group = spec->group;
  if (!patches_takes_boundary(group) || spec->tactic < 0 ||
      spec->tactic >= TACTICS)
    return RABBET_STATUS(RABBET_STATUS_INCOMPATIBLE,
                         "convolution '%s': cuda.convolution.patches computes "
                         "in HALF or BF16, to HWC, with image and filters in "
                         "one format; this is another, or it has no tactic %d",
                         base->node.node->name, (int)spec->tactic);
  const rabbet_group_value_t* x = &group->values[group->nodes[0].inputs[0]];
  const tiles_tactic_t* t = &patches_tactics[spec->tactic];
  patches_window_t window;
  char begin[256];
  kernel->tactic = t;
  kernel->constant = group->values[group->nodes[0].inputs[1]].constant != NULL;
  kernel->channels_last = x->format == RABBET_FORMAT_HWC;
  bool known = patches_window(&group->nodes[0],
                              &group->values[group->nodes[0].inputs[1]].dims,
                              NULL, NULL, &window);
  assert(known);
  (void)known;
  kernel->is_plain = window.is_plain;
  snprintf(begin, sizeof(begin),
           "#define PATCHES\n#define ELEMENT %s\n#define ALONG_COLUMNS 0\n"
           "#define ROWS %d\n#define COLUMNS %d\n#define STAGES %d\n"
           "#define PARTS %d\n#define WINDOWS %d\n#define CHANNELS_LAST %d\n",
           rabbet_cuda_type(x->dtype), t->rows, t->columns, t->stages, t->parts,
           !window.is_plain, kernel->channels_last);
  base->specific = true;
  RABBET_RETURN_IF_ERROR(
      rabbet_cuda_layers_add(base, spec, "image/patches.cu", begin,
                             "device/cuda/products/matmul_tiles.cuh"));
  RABBET_RETURN_IF_ERROR(
      rabbet_cuda_node_function(base, 0, "tiles", &kernel->whole));
  RABBET_RETURN_IF_ERROR(
      rabbet_cuda_node_function(base, 0, "tiles_single", &kernel->single));
  return rabbet_cuda_tiles_permit(base->device, t, kernel->whole,
                                  kernel->single);
}

// ---- Preparing -------------------------------------------------------------

// Whether chunks of patches lie at multiples of a chunk.
static bool patches_are_whole(const patches_t* p) {
  const int64_t strides[] = {p->image, p->line,   p->pixel,       p->plane,
                             p->step,  p->length, p->run.divisor, p->before};
  for (size_t i = 0; i < sizeof(strides) / sizeof(strides[0]); ++i)
    if (strides[i] % TILES_CHUNK != 0) return false;
  return true;
}

static rabbet_status_t patches_fill(const patches_kernel_t* kernel,
                                    const rabbet_dims_t* dims,
                                    cuda_patches_state_t* state) {
  const rabbet_group_t* group = kernel->node.node.group;
  const rabbet_group_node_t* node = kernel->node.node.node;
  const rabbet_dims_t* x = &dims[node->inputs[0]];
  const rabbet_dims_t* y = &dims[node->outputs[0]];
  const tiles_tactic_t* t = kernel->tactic;
  tiles_t* p = &state->parameters;
  int32_t bias = rabbet_node_input(node, 2);
  int64_t elements = 0;
  state->x = rabbet_group_input_of(group, node->inputs[0]);
  state->w = rabbet_group_input_of(group, node->inputs[1]);
  state->bias = bias < 0 ? -1 : rabbet_group_input_of(group, bias);
  assert(state->x >= 0 && state->w >= 0);
  RABBET_RETURN_IF_ERROR(rabbet_dims_count(y, &elements));
  state->is_empty = elements == 0;
  if (state->is_empty) return rabbet_ok();
  char text[128];
  if (!patches_parameters(node, dims, kernel->channels_last, p))
    return RABBET_STATUS(RABBET_STATUS_UNSUPPORTED,
                         "convolution '%s': cuda.convolution.patches takes "
                         "images of at most 2^30 patches, of as many channels "
                         "as the filters have; the input is %s",
                         node->name, rabbet_dims_print(x, text, sizeof(text)));
  int64_t tiles = patches_tiles(t->columns, p);
  int64_t down = rabbet_ceildiv(p->rows, (int64_t)t->rows);
  int64_t turns = rabbet_ceildiv(down, (int64_t)MOST_GRID_Y);
  p->patches.tiles = rabbet_cuda_divider(tiles);
  state->has_whole_patches = patches_are_whole(&p->patches) &&
                             (kernel->channels_last || kernel->is_plain);
  state->has_whole_filters =
      p->b.length % TILES_CHUNK == 0 && p->patches.columns % TILES_WIDTH == 0;
  state->launch = (rabbet_cuda_launch_t){
      .grid = {(unsigned)(tiles * (p->columns / p->patches.columns) * t->parts),
               (unsigned)rabbet_ceildiv(down, turns), (unsigned)turns},
      .block = {(unsigned)tiles_threads(t), 1, 1},
      .shared_bytes = (unsigned)tiles_shared(t),
      .cluster = (unsigned)t->parts,
      .overlaps = kernel->constant ? &p->ahead : NULL};
  const layer_operand_t result = {NULL, 0, p->y_row, 1};
  return rabbet_cuda_layers_place(&kernel->node, group, dims, &result, false,
                                  &state->layers, &p->layers);
}

static rabbet_status_t cuda_patches_prepare(
    rabbet_kernel_t* base, const rabbet_kernel_shapes_t* shapes,
    cuda_patches_state_t** out_state, size_t* out_workspace) {
  cuda_patches_state_t* state = NULL;
  *out_workspace = 0;
  *out_state = NULL;
  RABBET_RETURN_IF_ERROR(
      rabbet_node_state_allocate(base, sizeof(*state), (void**)&state));
  rabbet_status_t status =
      patches_fill((const patches_kernel_t*)base, shapes->dims, state);
  return rabbet_node_state_finish(base, state, status, (void**)out_state);
}

// ---- Running ---------------------------------------------------------------

static bool patches_is_aligned(const cuda_patches_state_t* state,
                               const rabbet_kernel_call_t* call) {
  enum { PIECE = TILES_WIDTH * TILES_ELEMENT };
  bool aligned = rabbet_cuda_is_aligned(call->inputs[state->w], 16) &&
                 rabbet_cuda_is_aligned(call->outputs[0], PIECE);
  for (int i = 0; i < state->layers.count; ++i)
    aligned = aligned && (state->parameters.layers.operands[i].column == 0 ||
                          rabbet_cuda_is_aligned(
                              call->inputs[state->layers.inputs[i]], PIECE));
  return aligned;
}

static rabbet_status_t cuda_patches_enqueue(rabbet_kernel_t* base,
                                            cuda_patches_state_t* state,
                                            const rabbet_kernel_call_t* call) {
  const patches_kernel_t* kernel = (const patches_kernel_t*)base;
  tiles_t* p = &state->parameters;
  if (state->is_empty) return rabbet_ok();
  bool whole = state->has_whole_filters && patches_is_aligned(state, call);
  state->launch.function = whole ? kernel->whole : kernel->single;
  p->a.data = call->inputs[state->x];
  p->b.data = call->inputs[state->w];
  p->patches.bias = state->bias < 0 ? NULL : call->inputs[state->bias];
  p->patches.is_whole =
      state->has_whole_patches && rabbet_cuda_is_aligned(p->a.data, 16);
  p->y = call->outputs[0];
  rabbet_cuda_layers_bind(&state->layers, call, 0, &p->layers);
  void* parameters[] = {p};
  return rabbet_cuda_launch(kernel->node.device, &state->launch, parameters,
                            call->stream);
}

static bool cuda_patches_takes(const rabbet_kernel_spec_t* spec) {
  return patches_matches(spec->group);
}

RABBET_CUDA_NODE_CLASS(cuda_patches, patches_kernel_t,
                       "cuda.convolution.patches", 1);
