// Chains and trees of element-wise layers as one kernel, whose source is
// generated for the group: each input is loaded once, intermediate values stay
// in registers.
//
// Bound by the bytes of its operands; functions of many instructions (POW,
// GELU_ERF, TAN) on narrow types are bound by these. Uses vectors of 16 bytes
// if rows and addresses are aligned, and many small blocks, so that each
// multiprocessor has some 32 KB in flight.
#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "core/view.h"
#include "device/common/pointwise.h"
#include "device/cuda/pointwise/pointwise_text.h"
#include "device/cuda/programs/launch.h"
#include "device/cuda/programs/node.h"

// BLOCK of pointwise/pointwise.cuh, and the smallest block that is launched.
enum { BLOCK = 256, BLOCK_LEAST = 64 };

// The beginning of space_t of pointwise/pointwise.cuh. Addresses, strides of
// ways (int64_t), extents of axes (divider_t) and scalars (uint32_t) follow.
typedef struct pw_head_t {
  uint32_t count, tail, axes;
  divider_t row;
  uint32_t streams[2], dense[2];
} pw_head_t;
_Static_assert(sizeof(pw_head_t) == 40, "addresses follow without a gap");

typedef struct pw_launch_bytes_t {
  pw_head_t head;
  void* data[];
} pw_launch_bytes_t;

typedef struct cuda_pw_t {
  rabbet_cuda_node_t base;
  rabbet_pw_parts_t parts;  // slices are read where they lie
  rabbet_cuda_pw_layout_t layout;
  int vector, unroll, single_unroll;
  bool goes_across;
  CUfunction flat, rows, single, across;  // across: or NULL
  // Tables of constants, contiguous in the device's memory.
  float* tables;
  int64_t table_at[RABBET_CUDA_PW_TABLES];
} cuda_pw_t;

typedef struct cuda_pointwise_state_t {
  // For vectors, the alignment of each address in bytes (0: none).
  int64_t alignment[RABBET_PW_MAX_OPERANDS];
  int64_t offset[RABBET_PW_MAX_OPERANDS];  // bytes, of parts of tensors
  bool has_vectors, empty;
  rabbet_cuda_launch_t vectors, single;
  pw_head_t vector_head, single_head;
  pw_launch_bytes_t launch;
} cuda_pointwise_state_t;

// ---- Proposing -------------------------------------------------------------

static const char* const pw_tactics[] = {"1 vector", "4 vectors",
                                         "vectors across rows"};
static const int pw_unrolls[] = {1, 4, 1};
enum { ACROSS = 2, TACTICS = 3 };

// Elements below which the kernel for single elements is as quick as vectors
// across rows, and those from which several vectors per thread pay: there are
// more threads than the GPU runs at once, and memory is the bound.
enum { ACROSS_LEAST = 1 << 15, SEVERAL_LEAST = 1 << 21 };
// Elements of the longest vector of types that networks compute in.
enum { VECTOR_USUAL = 8 };

// Leaves single conversions to cuda.convert.
static bool pw_fits(const rabbet_group_t* group) {
  return !rabbet_node_is(group, RABBET_OP_CAST) &&
         !rabbet_node_is(group, RABBET_OP_IDENTITY) &&
         rabbet_pw_is_pointwise(group) && rabbet_cuda_pw_supports(group);
}

static bool pw_suits(const rabbet_pw_space_t* space, size_t tactic) {
  int64_t count = 1, row = space->extent[space->rank - 1];
  bool whole = row % VECTOR_USUAL == 0;
  for (int i = 0; i < space->rank; ++i)
    count *= space->extent[i];
  for (int k = 0; k < space->operand_count; ++k) {
    whole = whole && space->offset[k] % VECTOR_USUAL == 0;
    for (int i = 0; whole && i + 1 < space->rank; ++i)
      whole = space->stride[k][space->rank - 1] == 0 ||
              space->stride[k][i] % VECTOR_USUAL == 0;
  }
  if (tactic == ACROSS)
    return space->rank > 1 && !whole && row >= VECTOR_USUAL &&
           count >= ACROSS_LEAST;
  return tactic == 0 || count >= SEVERAL_LEAST;
}

static rabbet_status_t pw_propose_parts(const rabbet_propose_t* propose,
                                        rabbet_candidate_sink_t sink,
                                        const rabbet_pw_parts_t* parts) {
  rabbet_format_t formats[RABBET_CUDA_FORMATS];
  const rabbet_group_t* group = &parts->plain;
  rabbet_cuda_pw_layout_t layout;
  if (!pw_fits(group) || !rabbet_cuda_pw_layout(group, &layout))
    return rabbet_ok();
  bool all = propose->optimization_level >= 2 && !rabbet_cuda_pw_is_long(group);
  size_t format_count =
      (size_t)rabbet_cuda_formats(RABBET_DTYPE_HALF, propose->formats, formats);
  const rabbet_pw_offers_t offers = {.kernel = &rabbet_cuda_pointwise,
                                     .formats = formats,
                                     .format_count = format_count,
                                     .tactics = pw_tactics,
                                     .tactic_count = all ? TACTICS : 1,
                                     .parts = parts,
                                     .suits = pw_suits};
  return rabbet_pw_offer(propose, sink, &offers);
}

static rabbet_status_t cuda_pointwise_propose(const rabbet_propose_t* propose,
                                              rabbet_candidate_sink_t sink) {
  rabbet_pw_parts_t parts;
  bool fits = false;
  RABBET_RETURN_IF_ERROR(
      rabbet_pw_parts_make(propose->group, propose->allocator, &parts, &fits));
  rabbet_status_t status =
      fits ? pw_propose_parts(propose, sink, &parts) : rabbet_ok();
  rabbet_pw_parts_end(propose->allocator, &parts);
  return status;
}

// ---- The program -----------------------------------------------------------

static rabbet_status_t pw_compile(cuda_pw_t* kernel,
                                  const rabbet_kernel_spec_t* spec) {
  rabbet_strbuf_t text;
  rabbet_strbuf_initialize(spec->allocator, &text);
  rabbet_cuda_pw_text(&kernel->parts.plain, &kernel->layout, kernel->unroll,
                      kernel->goes_across, &text);
  rabbet_status_t status = rabbet_strbuf_status(&text);
  if (rabbet_is_ok(status))
    status = rabbet_cuda_node_add(&kernel->base, spec, "pointwise/pointwise.cu",
                                  rabbet_strbuf_text(&text), NULL);
  rabbet_strbuf_deinitialize(&text);
  return status;
}

static rabbet_status_t pw_functions(cuda_pw_t* kernel) {
  rabbet_cuda_node_t* base = &kernel->base;
  if (kernel->layout.table_count == 0)
    RABBET_RETURN_IF_ERROR(
        rabbet_cuda_node_function(base, 0, "flat", &kernel->flat));
  if (kernel->goes_across)
    RABBET_RETURN_IF_ERROR(
        rabbet_cuda_node_function(base, 0, "across", &kernel->across));
  RABBET_RETURN_IF_ERROR(
      rabbet_cuda_node_function(base, 0, "rows", &kernel->rows));
  return rabbet_cuda_node_function(base, 0, "single", &kernel->single);
}

static int64_t pw_elements(const rabbet_dims_t* dims) {
  int64_t count = 1;
  for (int32_t i = 0; i < dims->rank; ++i)
    count *= dims->d[i];
  return count;
}

// Assigns offsets to the tables; returns their size in floats.
static int64_t pw_place_tables(cuda_pw_t* kernel) {
  const rabbet_cuda_pw_layout_t* layout = &kernel->layout;
  const rabbet_group_t* group = &kernel->parts.plain;
  assert(layout->table_count <= RABBET_CUDA_PW_TABLES);
  int64_t floats = 0;
  for (int i = 0; i < layout->table_count; ++i) {
    int32_t first = group->inputs[layout->boundary[layout->memory_count + i]];
    kernel->table_at[i] = floats;
    floats += pw_elements(&group->values[first].dims) *
              rabbet_cuda_pw_table_row(layout, i);
  }
  return floats;
}

static void pw_fill_tables(const cuda_pw_t* kernel, float* tables) {
  const rabbet_group_t* group = &kernel->parts.plain;
  for (size_t i = 0; i < group->input_count; ++i) {
    const rabbet_cuda_pw_input_t* input = &kernel->layout.inputs[i];
    const rabbet_group_value_t* value = &group->values[group->inputs[i]];
    if (input->source != RABBET_CUDA_PW_TABLE) continue;
    assert(value->constant && input->number < kernel->layout.table_count);
    int row = rabbet_cuda_pw_table_row(&kernel->layout, input->number);
    assert(input->column >= 0 && input->column < row);
    float* at = tables + kernel->table_at[input->number] + input->column;
    for (int64_t k = 0; k < pw_elements(&value->dims); ++k)
      at[k * row] = (float)rabbet_load_double(value->dtype, value->constant, k);
  }
}

static rabbet_status_t pw_make_tables(cuda_pw_t* kernel) {
  rabbet_allocator_t allocator = kernel->base.node.allocator;
  size_t bytes = (size_t)pw_place_tables(kernel) * sizeof(float);
  void* host = NULL;
  if (bytes == 0) return rabbet_ok();
  RABBET_RETURN_IF_ERROR(rabbet_allocate(allocator, bytes, &host));
  pw_fill_tables(kernel, host);
  rabbet_status_t status = rabbet_cuda_upload(&kernel->base.device->base, host,
                                              bytes, (void**)&kernel->tables);
  rabbet_free(allocator, host);
  return status;
}

static rabbet_status_t cuda_pointwise_program(
    rabbet_cuda_node_t* base, const rabbet_kernel_spec_t* spec) {
  cuda_pw_t* kernel = (cuda_pw_t*)base;
  const rabbet_group_t* group = &kernel->parts.plain;
  bool fits = false;
  RABBET_RETURN_IF_ERROR(rabbet_pw_parts_make(spec->group, spec->allocator,
                                              &kernel->parts, &fits));
  if (!fits || !pw_fits(group) || spec->tactic < 0 || spec->tactic >= TACTICS ||
      !rabbet_cuda_pw_layout(group, &kernel->layout))
    return RABBET_STATUS(RABBET_STATUS_INVALID_ARGUMENT,
                         "the group holds layers that are not element-wise, "
                         "slices of their results, or more operands than a "
                         "launch takes, or tactic %d is "
                         "unknown",
                         (int)spec->tactic);
  kernel->vector = rabbet_cuda_pw_vector(group);
  kernel->unroll = pw_unrolls[spec->tactic];
  kernel->single_unroll = rabbet_cuda_pw_single(group);
  kernel->goes_across = spec->tactic == ACROSS &&
                        kernel->layout.table_count == 0 &&
                        !rabbet_cuda_pw_is_lazy(&kernel->layout);
  for (size_t i = 0; i < group->input_count; ++i)
    if (kernel->layout.inputs[i].source != RABBET_CUDA_PW_MEMORY &&
        kernel->parts.from[i] < 64)
      base->node.base.own_constants |= UINT64_C(1) << kernel->parts.from[i];
  RABBET_RETURN_IF_ERROR(pw_compile(kernel, spec));
  RABBET_RETURN_IF_ERROR(pw_functions(kernel));
  return pw_make_tables(kernel);
}

static rabbet_status_t cuda_pointwise_create(const rabbet_kernel_spec_t* spec,
                                             rabbet_kernel_t** out_kernel) {
  return rabbet_cuda_node_create(spec, &rabbet_cuda_pointwise,
                                 sizeof(cuda_pw_t), cuda_pointwise_program,
                                 out_kernel);
}

static void cuda_pointwise_destroy(rabbet_kernel_t* base) {
  if (!base) return;
  cuda_pw_t* kernel = (cuda_pw_t*)base;
  rabbet_device_t* device = &kernel->base.device->base;
  device->vtable->free(device, kernel->tables);
  rabbet_pw_parts_end(kernel->base.node.allocator, &kernel->parts);
  rabbet_cuda_node_destroy(base);
}

// ---- Geometry --------------------------------------------------------------

static int64_t pw_row(const rabbet_pw_space_t* space) {
  return space->extent[space->rank - 1];
}

// Whether an operand is contiguous along the row, not broadcast. A row of one
// element counts as contiguous.
static bool pw_streams(const rabbet_pw_space_t* space, int boundary) {
  return space->stride[boundary][space->rank - 1] != 0 || pw_row(space) == 1;
}

// Whether an operand's elements lie as those of a dense tensor of the space.
static bool pw_is_dense(const rabbet_pw_space_t* space, int boundary) {
  int64_t next = 1;
  for (int i = space->rank - 1; i >= 0; --i) {
    if (space->stride[boundary][i] != next && space->extent[i] != 1)
      return false;
    next *= space->extent[i];
  }
  return true;
}

static void pw_head(const rabbet_cuda_pw_layout_t* layout,
                    const rabbet_pw_space_t* space, int64_t vector,
                    pw_head_t* out) {
  assert(space->rank >= 1 && layout->way_count <= 64);
  int64_t row = pw_row(space) / vector, count = row;
  *out = (pw_head_t){.axes = (uint32_t)space->rank - 1};
  out->row = rabbet_cuda_divider(rabbet_max_i64(row, 1));
  for (int i = 0; i + 1 < space->rank; ++i)
    count *= space->extent[i];
  assert(count >= 0 && count < RABBET_CUDA_MAX_COUNT);
  out->count = (uint32_t)count;
  if (space->rank == 1) out->tail = (uint32_t)(pw_row(space) % vector);
  for (int w = 0; w < layout->way_count; ++w) {
    if (pw_streams(space, layout->leader[w]))
      out->streams[w / 32] |= 1u << w % 32;
    if (pw_is_dense(space, layout->leader[w]))
      out->dense[w / 32] |= 1u << w % 32;
  }
}

// The head for vectors of all elements, whose rows are counted in elements.
static void pw_head_across(const rabbet_cuda_pw_layout_t* layout,
                           const rabbet_pw_space_t* space, int64_t vector,
                           pw_head_t* out) {
  pw_head(layout, space, 1, out);
  out->tail = out->count % (uint32_t)vector;
  out->count /= (uint32_t)vector;
}

// Whether rows consist of whole, aligned vectors. If there is only one row
// (flat memory), the elements after the last vector are computed one by one. A
// table has one row for all elements of a vector.
static bool pw_can_vectorise(const rabbet_cuda_pw_layout_t* layout,
                             const rabbet_pw_space_t* space, int64_t vector) {
  for (int i = 0; i < layout->table_count; ++i)
    if (pw_streams(space, layout->boundary[layout->memory_count + i]))
      return false;
  if (space->rank == 1) return pw_row(space) >= vector;
  bool fits = pw_row(space) % vector == 0;
  for (int w = 0; fits && w < layout->way_count; ++w) {
    int leader = layout->leader[w];
    fits = !pw_streams(space, leader) || space->offset[leader] % vector == 0;
    for (int i = 0; i + 1 < space->rank && pw_streams(space, leader); ++i)
      fits = fits && space->stride[leader][i] % vector == 0;
  }
  return fits;
}

// Takes smaller blocks if there are too few for all multiprocessors.
static void pw_launch(const cuda_pw_t* kernel, rabbet_cuda_launch_t* launch,
                      CUfunction function, int64_t count, int unroll) {
  assert(function && unroll >= 1);
  int64_t block = BLOCK;
  while (block > BLOCK_LEAST &&
         count < 2 * block * unroll * kernel->base.device->multiprocessors)
    block /= 2;
  int64_t blocks = rabbet_ceildiv(count, block * unroll);
  *launch = (rabbet_cuda_launch_t){
      .function = function,
      .grid = {(unsigned)rabbet_max_i64(blocks, 1), 1, 1},
      .block = {(unsigned)block, 1, 1}};
}

// Fills in the fields of space_t after the head.
static void pw_fill(const cuda_pw_t* kernel, const rabbet_pw_space_t* space,
                    bool across, cuda_pointwise_state_t* state) {
  const rabbet_cuda_pw_layout_t* layout = &kernel->layout;
  const rabbet_group_t* group = &kernel->parts.plain;
  int addresses = rabbet_cuda_pw_addresses(layout);
  assert(space->rank - 1 <= layout->axes);
  assert(addresses <= RABBET_PW_MAX_OPERANDS);
  int64_t* strides = (int64_t*)&state->launch.data[addresses];
  divider_t* axes = (divider_t*)(strides + layout->way_count * layout->axes);
  uint32_t* scalars = (uint32_t*)(axes + layout->axes);
  for (int i = 0; i + 1 < space->rank; ++i) {
    int axis = space->rank - 2 - i;
    axes[i] = rabbet_cuda_divider(rabbet_max_i64(space->extent[axis], 1));
    for (int w = 0; w < layout->way_count; ++w)
      strides[w * layout->axes + i] = space->stride[layout->leader[w]][axis];
  }
  for (size_t i = 0; i < group->input_count; ++i) {
    if (layout->inputs[i].source == RABBET_CUDA_PW_SCALAR)
      scalars[layout->inputs[i].number] =
          rabbet_cuda_pw_scalar(&group->values[group->inputs[i]]);
  }
  for (int k = 0; k < addresses; ++k) {
    int32_t value = rabbet_pw_operand(group, layout->boundary[k]);
    state->offset[k] = space->offset[layout->boundary[k]] *
                       rabbet_dtype_bits(group->values[value].dtype) / 8;
    bool is_table = k >= layout->memory_count &&
                    k < layout->memory_count + layout->table_count;
    if (is_table)
      state->launch.data[k] =
          kernel->tables + kernel->table_at[k - layout->memory_count];
    else if (across ? pw_is_dense(space, layout->boundary[k])
                    : pw_streams(space, layout->boundary[k]))
      state->alignment[k] =
          kernel->vector * rabbet_dtype_bits(group->values[value].dtype) / 8;
  }
}

static size_t pw_launch_bytes(const rabbet_cuda_pw_layout_t* layout) {
  return (size_t)rabbet_cuda_pw_addresses(layout) * sizeof(void*) +
         (size_t)layout->axes *
             ((size_t)layout->way_count * sizeof(int64_t) + sizeof(divider_t)) +
         (size_t)(layout->scalar_count + 1) * sizeof(uint32_t) +
         sizeof(void*);  // the struct's end is aligned
}

static rabbet_status_t pw_set_up(const cuda_pw_t* kernel,
                                 const rabbet_pw_space_t* space,
                                 cuda_pointwise_state_t* state) {
  int64_t count = 1;
  for (int i = 0; i < space->rank; ++i)
    count *= space->extent[i];
  state->empty = count == 0;
  if (space->rank - 1 > kernel->layout.axes)
    return RABBET_STATUS(
        RABBET_STATUS_INTERNAL, "layer '%s': %d axes where its program has %d",
        kernel->base.node.node->name, space->rank - 1, kernel->layout.axes);
  bool whole = pw_can_vectorise(&kernel->layout, space, kernel->vector);
  bool across = !whole && kernel->across && space->rank > 1 &&
                pw_row(space) >= kernel->vector &&
                count < RABBET_CUDA_MAX_COUNT;
  pw_fill(kernel, space, across, state);
  state->has_vectors = whole || across;
  int64_t most = state->has_vectors ? count / kernel->vector : count;
  if (most >= RABBET_CUDA_MAX_COUNT)
    return RABBET_STATUS(RABBET_STATUS_UNSUPPORTED,
                         "layer '%s': %lld elements are more than the kernel "
                         "counts",
                         kernel->base.node.node->name, (long long)count);
  if (state->has_vectors) {
    (across ? pw_head_across : pw_head)(&kernel->layout, space, kernel->vector,
                                        &state->vector_head);
    pw_launch(kernel, &state->vectors,
              across             ? kernel->across
              : space->rank == 1 ? kernel->flat
                                 : kernel->rows,
              most, across ? 1 : kernel->unroll);
  }
  if (count >= RABBET_CUDA_MAX_COUNT) return rabbet_ok();
  pw_head(&kernel->layout, space, 1, &state->single_head);
  state->single_head.tail = 0;
  pw_launch(kernel, &state->single, kernel->single, count,
            kernel->single_unroll);
  return rabbet_ok();
}

static rabbet_status_t cuda_pointwise_prepare(
    rabbet_kernel_t* base, const rabbet_kernel_shapes_t* shapes,
    rabbet_kernel_state_t** out_state, size_t* out_workspace) {
  const cuda_pw_t* kernel = (const cuda_pw_t*)base;
  rabbet_pw_space_t space;
  *out_state = NULL;
  *out_workspace = 0;
  RABBET_RETURN_IF_ERROR(
      rabbet_pw_plan_parts(kernel->base.node.group, &kernel->parts, shapes,
                           kernel->base.node.allocator, &space));
  cuda_pointwise_state_t* state = NULL;
  RABBET_RETURN_IF_ERROR(rabbet_node_state_allocate(
      base, sizeof(*state) + pw_launch_bytes(&kernel->layout), (void**)&state));
  return rabbet_node_state_finish(base, state, pw_set_up(kernel, &space, state),
                                  (void**)out_state);
}

// ---- Running ---------------------------------------------------------------

static rabbet_status_t cuda_pointwise_enqueue(
    rabbet_kernel_t* base, rabbet_kernel_state_t* prepared,
    const rabbet_kernel_call_t* call) {
  cuda_pointwise_state_t* state = (cuda_pointwise_state_t*)prepared;
  const cuda_pw_t* kernel = (const cuda_pw_t*)base;
  const rabbet_cuda_pw_layout_t* layout = &kernel->layout;
  int inputs = (int)kernel->parts.plain.input_count;
  int addresses = rabbet_cuda_pw_addresses(layout);
  bool vectors = state->has_vectors;
  if (state->empty) return rabbet_ok();
  for (int k = 0; k < addresses; ++k) {
    int i = layout->boundary[k];
    if (k >= layout->memory_count &&
        k < layout->memory_count + layout->table_count)
      continue;  // tables are on the device already
    char* data = i < inputs ? call->inputs[kernel->parts.from[i]]
                            : call->outputs[i - inputs];
    data += state->offset[k];
    state->launch.data[k] = data;
    if (state->alignment[k] > 0 &&
        !rabbet_cuda_is_aligned(data, state->alignment[k]))
      vectors = false;
  }
  if (!vectors && !state->single.function)
    return RABBET_STATUS(RABBET_STATUS_UNSUPPORTED,
                         "layer '%s': tensors of this size must lie at "
                         "multiples of 16 bytes",
                         kernel->base.node.node->name);
  state->launch.head = vectors ? state->vector_head : state->single_head;
  void* parameters[] = {&state->launch};
  return rabbet_cuda_launch(kernel->base.device,
                            vectors ? &state->vectors : &state->single,
                            parameters, call->stream);
}

const rabbet_kernel_class_t rabbet_cuda_pointwise = {
    .struct_size = sizeof(rabbet_kernel_class_t),
    .name = "cuda.pointwise",
    .version = 4,
    .propose = cuda_pointwise_propose,
    .create = cuda_pointwise_create,
    .destroy = cuda_pointwise_destroy,
    .prepare = cuda_pointwise_prepare,
    .destroy_state = rabbet_node_state_destroy,
    .enqueue = cuda_pointwise_enqueue,
    .artifacts = rabbet_cuda_node_artifacts,
    .library_version = rabbet_cuda_node_library,
};
