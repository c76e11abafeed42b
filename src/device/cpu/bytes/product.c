// Convolutions with channels last, and products with the second factor
// [columns][depth], are tiles of sums. The first factor's rows are the windows;
// where these do not lie in the tensor as rows, a block of them is copied.
#include "device/cpu/bytes/product.h"

#include <assert.h>
#include <string.h>

#include "device/cpu/cpu.h"
#include "device/cpu/parallel.h"
#include "ops/enums.h"
#include "ops/image/window.h"

enum {
  ROWS = RABBET_BYTES_ROWS,
  COLUMNS = RABBET_BYTES_COLUMNS,
  QUAD = RABBET_BYTES_QUAD,
  ALIGNMENT = 64,
  // Bytes of a block of rows, which stays in the second cache.
  BLOCK_BYTES = 192 * 1024,
  MOST_BLOCK_ROWS = 512,
  // Rows this far apart would share the first cache's sets.
  SHARED_SETS = 1024,
  // Sums of products of 8 bits stay within 32.
  MOST_DEPTH = 65536,
  // The least channels of a group; others are left to kernels of their own.
  LEAST_CHANNELS = 4,
  PADDING = 64,  // elements that are copied at a time
};

typedef struct cpu_bytes_kernel_t {
  rabbet_node_kernel_t node;
  rabbet_bytes_product_t product;
  const rabbet_bytes_kernels_t* kernels;
  int64_t groups, channels, maps;  // channels and maps of a group
  int64_t taps;
  int64_t depth;   // taps times channels, a multiple of kernels->step
  int64_t panels;  // of a group
  int8_t* weights;
  // Of each column of the panels.
  int32_t* offsets;
  float *scales, *biases;
} cpu_bytes_kernel_t;

typedef struct cpu_bytes_state_t {
  rabbet_window_t window;  // of a convolution
  int64_t before[2];
  int64_t height, width, out_height, out_width;
  int64_t rows;           // of the result, of all images
  bool is_direct;         // rows lie in the tensor
  int64_t stride;         // bytes between rows of a block
  int64_t block;          // rows
  int64_t parts;          // of the panels, where there are few blocks
  size_t slot, own_sums;  // a thread's memory, and where its sums are
} cpu_bytes_state_t;

// ---- Which groups ----------------------------------------------------------

static bool bytes_is_image(const rabbet_bytes_product_t* p) {
  return rabbet_op_is(p->node->op, RABBET_OP_CONVOLUTION);
}

static bool bytes_is_row_product(const rabbet_group_t* group,
                                 const rabbet_bytes_product_t* p) {
  const rabbet_dims_t* w = &group->values[p->factors.w].dims;
  if (rabbet_node_int(p->node, "op0") != RABBET_MATRIX_NONE ||
      rabbet_node_int(p->node, "op1") != RABBET_MATRIX_TRANSPOSE || w->rank < 2)
    return false;
  for (int32_t i = 0; i < w->rank - 2; ++i)
    if (w->d[i] != 1) return false;
  return true;
}

static int64_t bytes_count(const rabbet_dims_t* dims) {
  int64_t count = 1;
  for (int32_t i = 0; i < dims->rank; ++i)
    count *= dims->d[i];
  return count;
}

// Channels and maps of a group, taps of the window.
static bool bytes_measure(const rabbet_group_t* group,
                          const rabbet_bytes_product_t* p,
                          cpu_bytes_kernel_t* out) {
  const rabbet_dims_t* w = &group->values[p->factors.w].dims;
  bool image = bytes_is_image(p);
  int32_t rank = w->rank;
  if (image ? rank != 3 && rank != 4 : !bytes_is_row_product(group, p))
    return false;
  out->groups = image ? rabbet_node_int(p->node, "num_groups") : 1;
  if (out->groups < 1) return false;
  out->maps = (image ? w->d[0] : w->d[rank - 2]) / out->groups;
  out->channels = image ? w->d[1] : w->d[rank - 1];
  out->taps = 1;
  for (int32_t i = 2; image && i < rank; ++i)
    out->taps *= w->d[i];
  if (p->bias >= 0 &&
      bytes_count(&group->values[p->bias].dims) != out->maps * out->groups)
    return false;
  return out->maps > 0 && out->channels > 0 && out->taps > 0 &&
         out->taps <= MOST_DEPTH && out->channels <= MOST_DEPTH &&
         out->taps * out->channels < MOST_DEPTH &&
         (out->groups == 1 ||
          (out->channels >= LEAST_CHANNELS && out->maps >= LEAST_CHANNELS));
}

static bool bytes_matches(const rabbet_group_t* group,
                          cpu_bytes_kernel_t* kernel) {
  return rabbet_bytes_kernels() &&
         rabbet_bytes_parse(group, &kernel->product) &&
         bytes_measure(group, &kernel->product, kernel);
}

// Whether the boundary tensor has an element for each one of an image.
static bool bytes_is_full(const rabbet_bytes_product_t* p, int32_t value) {
  bool full = value == p->factors.x || value == p->result;
  for (int i = 0; i < p->post_count; ++i)
    full |=
        p->posts[i].kind == RABBET_BYTES_ADD && p->posts[i].operand == value;
  return full;
}

static rabbet_format_t bytes_format(const rabbet_bytes_product_t* p,
                                    int32_t value) {
  return bytes_is_image(p) && bytes_is_full(p, value) ? RABBET_FORMAT_HWC
                                                      : RABBET_FORMAT_LINEAR;
}

static bool cpu_bytes_takes(const rabbet_kernel_spec_t* spec) {
  const rabbet_group_t* group = spec->group;
  cpu_bytes_kernel_t kernel = {0};
  if (!bytes_matches(group, &kernel)) return false;
  for (size_t i = 0; i < group->input_count + group->output_count; ++i) {
    int32_t value = rabbet_group_boundary(group, i);
    if (group->values[value].format != bytes_format(&kernel.product, value))
      return false;
  }
  return true;
}

static rabbet_status_t cpu_bytes_body(rabbet_proposal_t* proposal) {
  const rabbet_group_t* group = proposal->propose->group;
  cpu_bytes_kernel_t kernel = {0};
  if (!bytes_matches(group, &kernel)) return rabbet_ok();
  for (size_t i = 0; i < group->input_count + group->output_count; ++i)
    proposal->tensors[i].format =
        bytes_format(&kernel.product, rabbet_group_boundary(group, i));
  return rabbet_proposal_offer(proposal, rabbet_bytes_kernels()->name, -1);
}

static rabbet_status_t cpu_bytes_propose(const rabbet_propose_t* propose,
                                         rabbet_candidate_sink_t sink) {
  return rabbet_proposal_make(propose, sink, &rabbet_cpu_bytes, NULL,
                              cpu_bytes_body);
}

// ---- Constants -------------------------------------------------------------

// Channels of a tap lie together.
static void bytes_pack_column(cpu_bytes_kernel_t* kernel, int64_t group,
                              int64_t n, const int8_t* from) {
  int64_t panel = group * kernel->panels + n / COLUMNS;
  int8_t* to = kernel->weights + panel * kernel->depth * COLUMNS;
  int64_t sum = 0, lane = n % COLUMNS;
  const int64_t taps = kernel->taps, channels = kernel->channels;
  from += (group * kernel->maps + n) * channels * taps;
  for (int64_t tap = 0, k = 0; tap < taps; ++tap)
    for (int64_t channel = 0; channel < channels; ++channel, ++k) {
      int8_t w = from[channel * taps + tap];
      to[(k / QUAD * COLUMNS + lane) * QUAD + k % QUAD] = w;
      sum += w;
    }
  const rabbet_bytes_product_t* p = &kernel->product;
  const rabbet_group_value_t* values = kernel->node.group->values;
  bool shifted = kernel->kernels->is_shifted &&
                 values[p->factors.x].dtype == RABBET_DTYPE_INT8;
  int64_t column = panel * COLUMNS + lane, map = group * kernel->maps + n;
  double bias = p->shift;
  if (p->bias >= 0)
    bias += rabbet_load_double(values[p->bias].dtype, values[p->bias].constant,
                               map);
  kernel->offsets[column] =
      (int32_t)(sum * (p->factors.x_zero + (shifted ? -INT8_MIN : 0)));
  kernel->scales[column] =
      (float)(p->factors.x_scale * rabbet_quantized_w_scale(&p->factors, map) *
              p->base);
  kernel->biases[column] = (float)(bias * p->base);
}

static rabbet_status_t bytes_pack(cpu_bytes_kernel_t* kernel) {
  const rabbet_group_t* group = kernel->node.group;
  int64_t columns = kernel->groups * kernel->panels * COLUMNS;
  rabbet_allocator_t allocator = kernel->node.allocator;
  RABBET_RETURN_IF_ERROR(rabbet_allocate(
      allocator, (size_t)(columns * kernel->depth), (void**)&kernel->weights));
  kernel->node.base.kept_bytes = (size_t)(columns * kernel->depth);
  void** const numbers[] = {(void**)&kernel->offsets, (void**)&kernel->scales,
                            (void**)&kernel->biases};
  for (int i = 0; i < 3; ++i)
    RABBET_RETURN_IF_ERROR(rabbet_allocate(
        allocator, (size_t)columns * sizeof(float), numbers[i]));
  const int8_t* from = group->values[kernel->product.factors.w].constant;
  for (int64_t g = 0; g < kernel->groups; ++g)
    for (int64_t n = 0; n < kernel->maps; ++n)
      bytes_pack_column(kernel, g, n, from);
  // Calls read tensors alone.
  for (size_t i = 0; i < group->input_count && i < 64; ++i)
    if (!bytes_is_full(&kernel->product, group->inputs[i]) &&
        group->values[group->inputs[i]].constant)
      kernel->node.base.own_constants |= UINT64_C(1) << i;
  return rabbet_ok();
}

static void cpu_bytes_destroy(rabbet_kernel_t* base) {
  cpu_bytes_kernel_t* kernel = (cpu_bytes_kernel_t*)base;
  if (!kernel) return;
  rabbet_free(kernel->node.allocator, kernel->weights);
  rabbet_free(kernel->node.allocator, kernel->offsets);
  rabbet_free(kernel->node.allocator, kernel->scales);
  rabbet_free(kernel->node.allocator, kernel->biases);
  rabbet_free(kernel->node.allocator, kernel);
}

static rabbet_status_t cpu_bytes_create(const rabbet_kernel_spec_t* spec,
                                        rabbet_kernel_t** out_kernel) {
  cpu_bytes_kernel_t* kernel = NULL;
  *out_kernel = NULL;
  RABBET_RETURN_IF_ERROR(
      rabbet_allocate(spec->allocator, sizeof(*kernel), (void**)&kernel));
  bool matches = bytes_matches(spec->group, kernel);
  assert(matches);  // `takes` has checked it
  kernel->node =
      (rabbet_node_kernel_t){.base = {.kernel_class = &rabbet_cpu_bytes},
                             .allocator = spec->allocator,
                             .group = spec->group,
                             .node = kernel->product.node};
  kernel->kernels = rabbet_bytes_kernels();
  kernel->depth =
      rabbet_ceildiv(kernel->taps * kernel->channels, kernel->kernels->step) *
      kernel->kernels->step;
  kernel->panels = rabbet_ceildiv(kernel->maps, (int64_t)COLUMNS);
  rabbet_status_t status = matches ? bytes_pack(kernel) : rabbet_ok();
  if (rabbet_is_ok(status))
    *out_kernel = &kernel->node.base;
  else
    cpu_bytes_destroy(&kernel->node.base);
  return status;
}

// ---- Geometry --------------------------------------------------------------

// Images of rank 3 have a height of 1.
static rabbet_status_t bytes_window(const cpu_bytes_kernel_t* kernel,
                                    const rabbet_dims_t* x,
                                    const rabbet_dims_t* y,
                                    cpu_bytes_state_t* state) {
  const rabbet_group_node_t* node = kernel->product.node;
  const rabbet_dims_t* w =
      &kernel->node.group->values[kernel->product.factors.w].dims;
  int64_t before[RABBET_MAX_RANK], after[RABBET_MAX_RANK];
  rabbet_window_t* window = &state->window;
  int32_t last = x->rank - 3;  // of the spatial axes
  RABBET_RETURN_IF_ERROR(rabbet_window_read(node->attrs, node->op->attr_count,
                                            x->rank - 2, w->d + 2, window));
  rabbet_window_pads(window, x->d + 2, y->d + 2, before, after);
  state->width = x->d[last + 2];
  state->out_width = y->d[last + 2];
  state->before[1] = before[last];
  if (last == 1) {
    state->height = x->d[2];
    state->out_height = y->d[2];
    state->before[0] = before[0];
    return rabbet_ok();
  }
  state->height = state->out_height = 1;
  window->size[1] = window->size[0];
  window->stride[1] = window->stride[0];
  window->dilation[1] = window->dilation[0];
  window->size[0] = window->stride[0] = window->dilation[0] = 1;
  return rabbet_ok();
}

// Whether each row is that of one element of the tensor.
static bool bytes_are_rows(const cpu_bytes_kernel_t* kernel,
                           const cpu_bytes_state_t* state) {
  bool whole = kernel->depth == kernel->channels && kernel->groups == 1 &&
               kernel->kernels->element == 1 &&
               kernel->depth % (4 * SHARED_SETS) != 0;
  rabbet_dtype_t x =
      kernel->node.group->values[kernel->product.factors.x].dtype;
  if (kernel->kernels->is_shifted && x == RABBET_DTYPE_INT8) return false;
  if (!bytes_is_image(&kernel->product)) return whole;
  return whole && kernel->taps == 1 && state->window.stride[0] == 1 &&
         state->window.stride[1] == 1 && state->height == state->out_height &&
         state->width == state->out_width;
}

static void bytes_lay_out(const cpu_bytes_kernel_t* kernel, int threads,
                          cpu_bytes_state_t* state, size_t* out_workspace) {
  int64_t bytes = kernel->depth * kernel->kernels->element;
  if (!state->is_direct && bytes % SHARED_SETS == 0) bytes += ALIGNMENT;
  state->stride = state->is_direct ? kernel->channels : bytes;
  int64_t block = rabbet_max_i64(1, BLOCK_BYTES / bytes / ROWS) * ROWS;
  if (block > MOST_BLOCK_ROWS) block = MOST_BLOCK_ROWS;
  int64_t blocks = rabbet_ceildiv(state->rows, block);
  int64_t team = rabbet_cpu_slots(threads);
  if (blocks < 2 * team) {
    // Panels are shared, unless there are rows enough.
    if (state->rows >= 4 * team * ROWS) {
      blocks = team;
      state->parts = 1;
    } else {
      state->parts = rabbet_min_i64(team, kernel->groups * kernel->panels);
    }
  } else {
    blocks = rabbet_ceildiv(blocks, team) * team;
    state->parts = 1;
  }
  state->block = rabbet_min_i64(block, rabbet_ceildiv(state->rows, blocks));
  size_t copied =
      state->is_direct
          ? 0
          : (size_t)(rabbet_ceildiv(state->block, ROWS) * ROWS * bytes);
  state->own_sums = rabbet_align_up(copied, ALIGNMENT);
  state->slot = state->own_sums + ROWS * COLUMNS * sizeof(int32_t);
  *out_workspace = state->slot * (size_t)team + ALIGNMENT;
}

static rabbet_status_t bytes_check(const cpu_bytes_kernel_t* kernel,
                                   const rabbet_kernel_shapes_t* shapes) {
  const rabbet_bytes_product_t* p = &kernel->product;
  const rabbet_dims_t* x = &shapes->dims[p->factors.x];
  int32_t axis = bytes_is_image(p) ? 1 : x->rank - 1;
  bool fits = x->rank > axis && axis >= 0 &&
              x->d[axis] == kernel->groups * kernel->channels;
  for (int i = 0; i < p->post_count; ++i)
    fits &= p->posts[i].kind != RABBET_BYTES_ADD ||
            rabbet_dims_equal(&shapes->dims[p->posts[i].operand],
                              &shapes->dims[p->result]);
  if (fits) return rabbet_ok();
  return RABBET_STATUS(RABBET_STATUS_OUT_OF_RANGE,
                       "layer '%s': the extents of its inputs do not fit the "
                       "kernel",
                       p->node->name);
}

static rabbet_status_t cpu_bytes_prepare(rabbet_kernel_t* base,
                                         const rabbet_kernel_shapes_t* shapes,
                                         cpu_bytes_state_t** out_state,
                                         size_t* out_workspace) {
  const cpu_bytes_kernel_t* kernel = (const cpu_bytes_kernel_t*)base;
  const rabbet_dims_t* x = &shapes->dims[kernel->product.factors.x];
  const rabbet_dims_t* y = &shapes->dims[kernel->product.result];
  cpu_bytes_state_t* state = NULL;
  *out_workspace = 0;
  *out_state = NULL;
  RABBET_RETURN_IF_ERROR(bytes_check(kernel, shapes));
  RABBET_RETURN_IF_ERROR(
      rabbet_node_state_allocate(base, sizeof(*state), (void**)&state));
  rabbet_status_t status = rabbet_ok();
  state->rows = 1;
  if (bytes_is_image(&kernel->product)) {
    status = bytes_window(kernel, x, y, state);
    state->rows = y->d[0] * state->out_height * state->out_width;
  } else {
    for (int32_t i = 0; i < y->rank - 1; ++i)
      state->rows *= y->d[i];
  }
  state->is_direct = bytes_are_rows(kernel, state);
  if (rabbet_is_ok(status) && state->rows > 0)
    bytes_lay_out(kernel, shapes->threads, state, out_workspace);
  return rabbet_node_state_finish(base, state, status, (void**)out_state);
}

// ---- Copies of windows -----------------------------------------------------

typedef struct bytes_call_t {
  const cpu_bytes_kernel_t* kernel;
  const cpu_bytes_state_t* state;
  const rabbet_kernel_call_t* call;
  const char* x;
  char* y;
  char* workspace;
  uint8_t shift;  // of bytes that are copied: 0, or the highest bit
  char padding[PADDING];
  bool is_signed;
} bytes_call_t;

// Lines of `count` bytes for the sums.
static inline char* bytes_copy(const bytes_call_t* call, const char* from,
                               int64_t lines, int64_t step, int64_t count,
                               char* to) {
  const rabbet_bytes_kernels_t* kernels = call->kernel->kernels;
  const rabbet_bytes_lines_t copied = {.from = from,
                                       .lines = lines,
                                       .step = step,
                                       .count = count,
                                       .shift = call->shift,
                                       .is_signed = call->is_signed};
  kernels->copy(&copied, to);
  return to + lines * count * kernels->element;
}

static char* bytes_pad(const bytes_call_t* call, int64_t count, char* to) {
  for (int64_t i = 0; i < count; i += PADDING)
    to = bytes_copy(call, call->padding, 1, 0,
                    rabbet_min_i64(PADDING, count - i), to);
  return to;
}

// The taps of a row of the window, of which the first is at `left`; line NULL:
// all are padding.
static char* bytes_copy_line(const bytes_call_t* call, const char* line,
                             int64_t left, char* to) {
  const cpu_bytes_kernel_t* kernel = call->kernel;
  const cpu_bytes_state_t* s = call->state;
  int64_t all = kernel->groups * kernel->channels, own = kernel->channels;
  int64_t taps = s->window.size[1], dilation = s->window.dilation[1];
  if (!line) return bytes_pad(call, taps * own, to);
  int64_t first =
      left < 0 ? rabbet_min_i64(rabbet_ceildiv(-left, dilation), taps) : 0;
  int64_t end = rabbet_ceildiv(s->width - left, dilation);
  end = rabbet_max_i64(first, rabbet_min_i64(taps, end));
  to = bytes_pad(call, first * own, to);
  const char* from = line + (left + first * dilation) * all;
  if (all == own && dilation == 1)
    to = bytes_copy(call, from, 1, 0, (end - first) * own, to);
  else
    to = bytes_copy(call, from, end - first, dilation * all, own, to);
  return bytes_pad(call, (taps - end) * own, to);
}

static void bytes_copy_window(const bytes_call_t* call, const char* image,
                              int64_t line, int64_t column, char* to) {
  const cpu_bytes_kernel_t* kernel = call->kernel;
  const cpu_bytes_state_t* s = call->state;
  const rabbet_window_t* window = &s->window;
  int64_t all = kernel->groups * kernel->channels, width = s->width * all;
  int64_t left = column * window->stride[1] - s->before[1];
  int64_t top = line * window->stride[0] - s->before[0];
  int64_t right = left + window->size[1];
  int64_t bottom = top + (window->size[0] - 1) * window->dilation[0];
  if (kernel->groups == 1 && window->dilation[1] == 1 && left >= 0 &&
      right <= s->width && top >= 0 && bottom < s->height) {
    bytes_copy(call, image + top * width + left * all, window->size[0],
               window->dilation[0] * width, window->size[1] * all, to);
    return;
  }
  for (int64_t t = 0; t < window->size[0]; ++t) {
    int64_t at = top + t * window->dilation[0];
    bool inside = at >= 0 && at < s->height;
    to = bytes_copy_line(call, inside ? image + at * width : NULL, left, to);
  }
}

// Windows from `row` on, counted through all images; group g's channels. What
// lies between them and the next multiple of a step has weights of 0.
static void bytes_copy_windows(const bytes_call_t* call, int64_t row,
                               int64_t count, int64_t g, char* to) {
  const cpu_bytes_kernel_t* kernel = call->kernel;
  const cpu_bytes_state_t* s = call->state;
  int64_t all = kernel->groups * kernel->channels;
  if (!bytes_is_image(&kernel->product)) {
    for (int64_t i = 0; i < count; ++i)
      bytes_copy(call, call->x + (row + i) * all, 1, 0, all,
                 to + i * s->stride);
    return;
  }
  int64_t column = row % s->out_width, line = row / s->out_width;
  const int64_t image = s->height * s->width * all;
  const char* x = call->x + line / s->out_height * image + g * kernel->channels;
  line %= s->out_height;
  for (int64_t i = 0; i < count; ++i) {
    bytes_copy_window(call, x, line, column, to + i * s->stride);
    if (++column < s->out_width) continue;
    column = 0;
    if (++line < s->out_height) continue;
    line = 0;
    x += image;
  }
}

// ---- A call ----------------------------------------------------------------

static void bytes_finish_tile(const bytes_call_t* call, int64_t row, int rows,
                              int64_t panel, const int32_t* sums) {
  const cpu_bytes_kernel_t* kernel = call->kernel;
  const rabbet_bytes_product_t* p = &kernel->product;
  int64_t g = panel / kernel->panels, first = panel % kernel->panels * COLUMNS;
  int64_t stride = kernel->groups * kernel->maps;
  int64_t at = row * stride + g * kernel->maps + first;
  rabbet_bytes_finish_t finish = {
      .offsets = kernel->offsets + panel * COLUMNS,
      .scales = kernel->scales + panel * COLUMNS,
      .biases = kernel->biases + panel * COLUMNS,
      .posts = p->posts,
      .post_count = p->post_count,
      .y = call->y + at * rabbet_dtype_bits(p->dtype) / 8,
      .dtype = p->dtype,
      .zero = p->zero,
      .stride = stride,
      .rows = rows,
      .columns = (int)rabbet_min_i64(COLUMNS, kernel->maps - first),
  };
  for (int i = 0; i < p->post_count; ++i) {
    const rabbet_bytes_post_t* post = &p->posts[i];
    if (post->kind != RABBET_BYTES_ADD) continue;
    int32_t input = rabbet_group_input_of(kernel->node.group, post->operand);
    finish.operands[i] = (const char*)call->call->inputs[input] +
                         at * rabbet_dtype_bits(post->dtype) / 8;
  }
  kernel->kernels->finish(&finish, sums);
}

// Rows `row` to `row` + `count` - 1, panels `begin` to `end` - 1.
static void bytes_block(const bytes_call_t* call, int64_t row, int64_t count,
                        int64_t begin, int64_t end) {
  const cpu_bytes_kernel_t* kernel = call->kernel;
  const cpu_bytes_state_t* state = call->state;
  char* room = call->workspace + (size_t)rabbet_cpu_slot() * state->slot;
  int32_t* sums = (int32_t*)(void*)(room + state->own_sums);
  int64_t copied = -1;  // the group whose windows are in `room`
  int tile_rows = 0;
  for (int64_t panel = begin; panel < end; ++panel) {
    int64_t g = panel / kernel->panels;
    if (!state->is_direct && copied != g) {
      bytes_copy_windows(call, row, count, g, room);
      copied = g;
    }
    const char* rows = state->is_direct ? call->x + row * state->stride : room;
    int64_t left = kernel->maps - panel % kernel->panels * COLUMNS;
    for (int64_t i = 0; i < count; i += ROWS) {
      const rabbet_bytes_rows_t a = {
          .data = rows + i * state->stride,
          .stride = state->stride,
          .rows = (int)rabbet_min_i64(ROWS, count - i),
          .is_signed = call->is_signed,
          .tile_rows = &tile_rows,
      };
      kernel->kernels->multiply(
          &a, kernel->weights + panel * kernel->depth * COLUMNS, kernel->depth,
          (int)rabbet_min_i64(COLUMNS, left), sums);
      bytes_finish_tile(call, row + i, a.rows, panel, sums);
    }
  }
  if (kernel->kernels->end) kernel->kernels->end();
}

static void bytes_range(void* context, int64_t begin, int64_t end) {
  const bytes_call_t* call = context;
  const cpu_bytes_state_t* state = call->state;
  int64_t panels = call->kernel->groups * call->kernel->panels;
  for (int64_t i = begin; i < end; ++i) {
    int64_t row = i / state->parts * state->block, part = i % state->parts;
    bytes_block(call, row, rabbet_min_i64(state->block, state->rows - row),
                panels * part / state->parts,
                panels * (part + 1) / state->parts);
  }
}

static rabbet_status_t cpu_bytes_enqueue(rabbet_kernel_t* base,
                                         cpu_bytes_state_t* state,
                                         const rabbet_kernel_call_t* call) {
  const cpu_bytes_kernel_t* kernel = (const cpu_bytes_kernel_t*)base;
  const rabbet_bytes_product_t* p = &kernel->product;
  const rabbet_group_t* group = kernel->node.group;
  bool is_signed = group->values[p->factors.x].dtype == RABBET_DTYPE_INT8;
  if (state->rows == 0) return rabbet_ok();
  bytes_call_t run = {
      .kernel = kernel,
      .state = state,
      .call = call,
      .x = call->inputs[rabbet_group_input_of(group, p->factors.x)],
      .y = call->outputs[0],
      .workspace = call->workspace,
      .shift = kernel->kernels->is_shifted && is_signed ? 0x80 : 0,
      .is_signed = is_signed,
  };
  memset(run.padding, p->factors.x_zero, PADDING);
  // A unit of work costs at least its weights' bytes.
  int64_t units = rabbet_ceildiv(state->rows, state->block) * state->parts;
  int64_t each = state->block * kernel->depth * kernel->groups *
                 kernel->panels * COLUMNS / state->parts;
  enum { GRAIN = 2 << 20 };  // products
  rabbet_cpu_parallel(units, rabbet_max_i64(1, GRAIN / rabbet_max_i64(1, each)),
                      bytes_range, &run);
  return rabbet_ok();
}

RABBET_NODE_TABLE(cpu_bytes, "cpu.bytes", 1, .destroy = cpu_bytes_destroy);
