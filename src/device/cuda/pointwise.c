// Chains and trees of element-wise layers as one kernel, whose text is made for
// the group: each input is loaded once, all else happens in registers.
//
// What bounds it: the bytes of its operands, unless a function of many
// instructions (POW, GELU_ERF, TAN) meets a narrow type. Vectors of 16 bytes
// where rows and addresses allow; many small blocks, so that some 32 KB are on
// their way to each multiprocessor.
#include <stdio.h>
#include <string.h>

#include "core/view.h"
#include "device/common/pointwise.h"
#include "device/cuda/launch.h"
#include "device/cuda/node.h"
#include "device/cuda/pointwise_text.h"

// BLOCK, AXES and space_t of kernels/pointwise.cuh.
enum { BLOCK = 256, AXES = RABBET_PW_MAX_AXES - 1, SINGLE_UNROLL = 4 };

typedef struct pw_operand_t {
  void* data;
  int64_t stride[AXES];
} pw_operand_t;

typedef struct pw_head_t {
  uint32_t count, tail, axes;
  divider_t row, axis[AXES];
  uint32_t streams[2];
} pw_head_t;

// Behind the head: operands, then the scalars.
typedef struct pw_space_t {
  pw_head_t head;
  pw_operand_t operands[];
} pw_space_t;
_Static_assert(sizeof(pw_head_t) % 8 == 0, "operands follow without a gap");

typedef struct rabbet_cuda_pw_t {
  rabbet_cuda_node_t base;
  rabbet_cuda_pw_inputs_t inputs;
  int vector, unroll;
  CUfunction flat, rows, single;
  double scalars[RABBET_CUDA_PW_OPERANDS];
} rabbet_cuda_pw_t;

struct rabbet_kernel_state_t {
  int operand_count;  // in memory
  // Boundary operand of each, and bytes that its address must be a multiple of
  // for vectors (0: any will do).
  int boundary[RABBET_PW_MAX_OPERANDS];
  int64_t alignment[RABBET_PW_MAX_OPERANDS];
  bool has_vectors, empty;
  rabbet_cuda_launch_t vectors, single;
  pw_head_t vector_head, single_head;
  pw_space_t space;
};

// ---- Proposing -------------------------------------------------------------

static const char* const pw_tactics[] = {"1 vector", "4 vectors"};
static const int pw_unrolls[] = {1, 4};
enum { TACTICS = 2 };

// Single conversions are cuda.convert's.
static bool pw_fits(const rabbet_group_t* group) {
  return !rabbet_node_is(group, RABBET_OP_CAST) &&
         !rabbet_node_is(group, RABBET_OP_IDENTITY) &&
         rabbet_pw_is_pointwise(group) && rabbet_cuda_pw_supports(group) &&
         group->input_count + group->output_count <= RABBET_CUDA_PW_OPERANDS;
}

static rabbet_status_t rabbet_cuda_pointwise_propose(
    const rabbet_propose_t* propose, rabbet_candidate_sink_t sink) {
  static const rabbet_format_t formats[] = {
      RABBET_FORMAT_LINEAR, RABBET_FORMAT_HWC, RABBET_FORMAT_HWC8};
  const rabbet_group_t* group = propose->group;
  if (!pw_fits(group)) return rabbet_ok();
  // Several vectors to a thread pay where there are more threads than fit.
  const rabbet_dims_t* dims = &group->values[group->outputs[0]].dims;
  double count = 1;
  for (int32_t i = 0; i < dims->rank; ++i)
    count *= (double)dims->d[i];
  bool large = count >= 1 << 21 && propose->optimization_level >= 2;
  const rabbet_pw_offers_t offers = {.kernel = &rabbet_cuda_pointwise,
                                     .formats = formats,
                                     .format_count = 3,
                                     .tactics = pw_tactics,
                                     .tactic_count = large ? TACTICS : 1};
  return rabbet_pw_offer(propose, sink, &offers);
}

// ---- The program -----------------------------------------------------------

static rabbet_status_t pw_compile(rabbet_cuda_pw_t* kernel,
                                  const rabbet_kernel_spec_t* spec) {
  rabbet_strbuf_t text;
  rabbet_strbuf_initialize(spec->allocator, &text);
  rabbet_cuda_pw_text(spec->group, &kernel->inputs, kernel->unroll, &text);
  rabbet_status_t status = rabbet_strbuf_status(&text);
  if (rabbet_is_ok(status))
    status = rabbet_cuda_node_add(&kernel->base, spec, "pointwise.cu",
                                  rabbet_strbuf_text(&text), NULL);
  rabbet_strbuf_deinitialize(&text);
  return status;
}

static rabbet_status_t rabbet_cuda_pointwise_program(
    rabbet_cuda_node_t* base, const rabbet_kernel_spec_t* spec) {
  rabbet_cuda_pw_t* kernel = (rabbet_cuda_pw_t*)base;
  const rabbet_group_t* group = spec->group;
  if (!pw_fits(group) || spec->tactic < 0 || spec->tactic >= TACTICS)
    return RABBET_STATUS(RABBET_STATUS_INVALID_ARGUMENT,
                         "the group holds layers that are not element-wise, or "
                         "tactic %d is none of theirs",
                         (int)spec->tactic);
  rabbet_cuda_pw_inputs(group, &kernel->inputs);
  kernel->vector = rabbet_cuda_pw_vector(group);
  kernel->unroll = pw_unrolls[spec->tactic];
  for (size_t i = 0; i < group->input_count; ++i) {
    const rabbet_group_value_t* value = &group->values[group->inputs[i]];
    if (kernel->inputs.scalar[i] < 0) continue;
    kernel->scalars[kernel->inputs.scalar[i]] =
        rabbet_load_double(value->dtype, value->constant, 0);
    base->node.base.own_constants |= UINT64_C(1) << i;
  }
  RABBET_RETURN_IF_ERROR(pw_compile(kernel, spec));
  RABBET_RETURN_IF_ERROR(
      rabbet_cuda_node_function(base, 0, "flat", &kernel->flat));
  RABBET_RETURN_IF_ERROR(
      rabbet_cuda_node_function(base, 0, "rows", &kernel->rows));
  return rabbet_cuda_node_function(base, 0, "single", &kernel->single);
}

// ---- Geometry --------------------------------------------------------------

static int64_t pw_row(const rabbet_pw_space_t* space) {
  return space->extent[space->rank - 1];
}

// A row of one element is a stream to all.
static bool pw_streams(const rabbet_pw_space_t* space, int boundary) {
  return space->stride[boundary][space->rank - 1] != 0 || pw_row(space) == 1;
}

static void pw_head(const rabbet_kernel_state_t* state,
                    const rabbet_pw_space_t* space, int64_t vector,
                    pw_head_t* out) {
  int64_t row = pw_row(space) / vector, count = row;
  *out = (pw_head_t){.axes = (uint32_t)space->rank - 1};
  out->row = rabbet_cuda_divider(rabbet_max_i64(row, 1));
  for (int i = 0; i + 1 < space->rank; ++i) {
    int64_t extent = space->extent[space->rank - 2 - i];
    out->axis[i] = rabbet_cuda_divider(rabbet_max_i64(extent, 1));
    count *= extent;
  }
  out->count = (uint32_t)count;
  if (space->rank == 1) out->tail = (uint32_t)(pw_row(space) % vector);
  for (int k = 0; k < state->operand_count; ++k) {
    if (pw_streams(space, state->boundary[k]))
      out->streams[k / 32] |= 1u << k % 32;
  }
}

// Rows of whole vectors that start at multiples of one; flat memory has an end
// that is done element by element.
static bool pw_can_vectorise(const rabbet_kernel_state_t* state,
                             const rabbet_pw_space_t* space, int64_t vector) {
  if (space->rank == 1) return pw_row(space) >= vector;
  bool fits = pw_row(space) % vector == 0;
  for (int k = 0; fits && k < state->operand_count; ++k) {
    int boundary = state->boundary[k];
    for (int i = 0; i + 1 < space->rank && pw_streams(space, boundary); ++i)
      fits = fits && space->stride[boundary][i] % vector == 0;
  }
  return fits;
}

static void pw_launch(rabbet_cuda_launch_t* launch, CUfunction function,
                      int64_t count, int unroll) {
  int64_t blocks = rabbet_ceildiv(count, (int64_t)BLOCK * unroll);
  *launch = (rabbet_cuda_launch_t){
      .function = function,
      .grid = {(unsigned)rabbet_max_i64(blocks, 1), 1, 1},
      .block = {BLOCK, 1, 1}};
}

static void pw_operands(const rabbet_cuda_pw_t* kernel,
                        const rabbet_pw_space_t* space,
                        rabbet_kernel_state_t* state) {
  const rabbet_group_t* group = kernel->base.node.group;
  for (int i = 0; i < space->operand_count; ++i) {
    if (i < (int)group->input_count && kernel->inputs.memory[i] < 0) continue;
    int k = state->operand_count++;
    state->boundary[k] = i;
    for (int axis = 0; axis + 1 < space->rank; ++axis)
      state->space.operands[k].stride[axis] =
          space->stride[i][space->rank - 2 - axis];
    int32_t value = rabbet_pw_operand(group, i);
    if (pw_streams(space, i))
      state->alignment[k] =
          kernel->vector * rabbet_dtype_bits(group->values[value].dtype) / 8;
  }
  memcpy(&state->space.operands[state->operand_count], kernel->scalars,
         (size_t)kernel->inputs.scalar_count * sizeof(double));
}

static rabbet_status_t pw_set_up(const rabbet_cuda_pw_t* kernel,
                                 const rabbet_pw_space_t* space,
                                 rabbet_kernel_state_t* state) {
  int64_t count = 1;
  for (int i = 0; i < space->rank; ++i)
    count *= space->extent[i];
  state->empty = count == 0;
  pw_operands(kernel, space, state);
  state->has_vectors = pw_can_vectorise(state, space, kernel->vector);
  int64_t most = state->has_vectors ? count / kernel->vector : count;
  if (most >= RABBET_CUDA_MAX_COUNT)
    return RABBET_STATUS(RABBET_STATUS_UNSUPPORTED,
                         "layer '%s': %lld elements are more than the kernel "
                         "counts",
                         kernel->base.node.node->name, (long long)count);
  if (state->has_vectors) {
    pw_head(state, space, kernel->vector, &state->vector_head);
    pw_launch(&state->vectors, space->rank == 1 ? kernel->flat : kernel->rows,
              most, kernel->unroll);
  }
  if (count >= RABBET_CUDA_MAX_COUNT) return rabbet_ok();
  pw_head(state, space, 1, &state->single_head);
  state->single_head.tail = 0;
  pw_launch(&state->single, kernel->single, count, SINGLE_UNROLL);
  return rabbet_ok();
}

static rabbet_status_t rabbet_cuda_pointwise_prepare(
    rabbet_kernel_t* base, const rabbet_kernel_shapes_t* shapes,
    rabbet_kernel_state_t** out_state, size_t* out_workspace) {
  const rabbet_cuda_pw_t* kernel = (const rabbet_cuda_pw_t*)base;
  rabbet_pw_space_t space;
  *out_state = NULL;
  *out_workspace = 0;
  RABBET_RETURN_IF_ERROR(
      rabbet_pw_plan(kernel->base.node.group, shapes->dims, &space));
  rabbet_kernel_state_t* state = NULL;
  RABBET_RETURN_IF_ERROR(rabbet_node_state_allocate(
      base,
      sizeof(*state) + (size_t)space.operand_count * sizeof(pw_operand_t) +
          (size_t)(kernel->inputs.scalar_count + 1) * sizeof(double),
      &state));
  rabbet_status_t status = pw_set_up(kernel, &space, state);
  if (!rabbet_is_ok(status)) {
    rabbet_node_state_destroy(base, state);
    return status;
  }
  *out_state = state;
  return rabbet_ok();
}

// ---- Running ---------------------------------------------------------------

static rabbet_status_t rabbet_cuda_pointwise_enqueue(
    rabbet_kernel_t* base, rabbet_kernel_state_t* state,
    const rabbet_kernel_call_t* call) {
  const rabbet_cuda_pw_t* kernel = (const rabbet_cuda_pw_t*)base;
  int inputs = (int)kernel->base.node.group->input_count;
  bool vectors = state->has_vectors;
  if (state->empty) return rabbet_ok();
  for (int k = 0; k < state->operand_count; ++k) {
    int i = state->boundary[k];
    void* data = i < inputs ? call->inputs[i] : call->outputs[i - inputs];
    state->space.operands[k].data = data;
    if (state->alignment[k] > 0 &&
        !rabbet_cuda_is_aligned(data, state->alignment[k]))
      vectors = false;
  }
  if (!vectors && !state->single.function)
    return RABBET_STATUS(RABBET_STATUS_UNSUPPORTED,
                         "layer '%s': tensors of this size must lie at "
                         "multiples of 16 bytes",
                         kernel->base.node.node->name);
  state->space.head = vectors ? state->vector_head : state->single_head;
  void* parameters[] = {&state->space};
  return rabbet_cuda_launch(kernel->base.device,
                            vectors ? &state->vectors : &state->single,
                            parameters, call->stream);
}

RABBET_CUDA_NODE_CLASS(rabbet_cuda_pointwise, rabbet_cuda_pw_t,
                       "cuda.pointwise", 1);
