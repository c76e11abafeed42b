// Softmax, or its logarithm if the builder groups the two. The memory is
// [outer, count, inner]: rows if inner is 1, otherwise columns.
//
// Bound by the bytes of both tensors. The input is read once if a row fits the
// registers of a block, or eight rows that are no whole vectors its shared
// memory; otherwise twice, the second time from the cache.
#include <assert.h>

#include "core/view.h"
#include "device/common/box.h"
#include "device/cuda/programs/launch.h"
#include "device/cuda/programs/node.h"

// Constants of reduction/softmax.cu.
enum {
  BLOCK = 256,
  BLOCK_LOG = 8,
  HELD = 4,
  HELD_SINGLE = 8,
  MOST_COLUMNS = 4,
  STAGED = BLOCK / 32,      // rows
  STAGED_BYTES = 40 << 10,  // with the static ones below 48 KiB
  LONG_LOG = 10,
};

typedef enum softmax_function_t {
  ROWS,
  ROWS_HELD,
  ROWS_SINGLE,
  ROWS_STAGED,
  ROWS_LONG,
  ROWS_LONG_SINGLE,
  COLUMNS,
  COLUMNS_SINGLE,
  FUNCTIONS,
} softmax_function_t;
static const char* const softmax_names[FUNCTIONS] = {
    "rows",      "rows_held",        "rows_single", "rows_staged",
    "rows_long", "rows_long_single", "columns",     "columns_single",
};

typedef struct cuda_softmax_t {
  rabbet_cuda_node_t base;
  int64_t size, vector, columns_vector;
  CUfunction functions[FUNCTIONS];
} cuda_softmax_t;

typedef struct softmax_shape_t {
  int64_t outer, count, inner;
} softmax_shape_t;

// The parameters of a launch after source and target.
typedef struct softmax_launch_t {
  rabbet_cuda_launch_t launch;
  uint32_t numbers[4];
} softmax_launch_t;

typedef struct cuda_softmax_state_t {
  softmax_launch_t vectors, single;  // vectors may have no function: none
  int64_t alignment;
  bool empty;
} cuda_softmax_state_t;

// ---- Shapes ----------------------------------------------------------------

static int32_t softmax_axis(const rabbet_group_node_t* node, int32_t rank) {
  int64_t mask = rabbet_node_int(node, "axes");
  if (mask == 0) return rank > 3 ? rank - 3 : 0;
  return __builtin_ctzll((unsigned long long)mask);
}

// False if the axis is not a single axis of the memory.
static bool softmax_shape(const rabbet_group_node_t* node,
                          const rabbet_dims_t* dims, rabbet_format_t format,
                          softmax_shape_t* out) {
  rabbet_box_t box;
  int32_t axis = softmax_axis(node, dims->rank);
  if (!rabbet_box(dims, format, &box) || box.rank != dims->rank ||
      axis >= dims->rank)
    return false;
  int64_t total = 1;
  for (int32_t i = 0; i < box.rank; ++i)
    total *= box.extent[i];
  out->count = box.extent[axis];
  out->inner = box.stride[axis];
  out->outer = total == 0 ? 0 : total / (out->count * out->inner);
  return true;
}

// ---- Proposing -------------------------------------------------------------

static rabbet_status_t cuda_softmax_body(rabbet_proposal_t* proposal) {
  static const rabbet_format_t formats[] = {
      RABBET_FORMAT_LINEAR, RABBET_FORMAT_HWC, RABBET_FORMAT_HWC8};
  const rabbet_group_t* group = proposal->propose->group;
  const rabbet_group_value_t* value = &group->values[proposal->node->inputs[0]];
  rabbet_dtype_t types[4];
  int count = rabbet_compute_types(proposal->propose, value->dtype, types);
  for (int i = 0; i < 3 * count; ++i) {
    softmax_shape_t shape;
    if (!softmax_shape(proposal->node, &value->dims, formats[i % 3], &shape))
      continue;
    rabbet_proposal_set_input(proposal, 0, types[i / 3], formats[i % 3]);
    rabbet_proposal_set_output(proposal, types[i / 3], formats[i % 3]);
    RABBET_RETURN_IF_ERROR(rabbet_proposal_offer(
        proposal, shape.inner > 1 ? "columns" : "rows", 0));
  }
  return rabbet_ok();
}

static bool softmax_fits(const rabbet_group_t* group) {
  return rabbet_node_is(group, RABBET_OP_SOFTMAX) ||
         rabbet_node_is_log_softmax(group);
}

static rabbet_status_t cuda_softmax_propose(const rabbet_propose_t* propose,
                                            rabbet_candidate_sink_t sink) {
  if (!softmax_fits(propose->group)) return rabbet_ok();
  return rabbet_proposal_make(propose, sink, &rabbet_cuda_softmax, NULL,
                              cuda_softmax_body);
}

// ---- The program -----------------------------------------------------------

static rabbet_status_t cuda_softmax_program(rabbet_cuda_node_t* base,
                                            const rabbet_kernel_spec_t* spec) {
  cuda_softmax_t* kernel = (cuda_softmax_t*)base;
  const rabbet_group_t* group = spec->group;
  if (!softmax_fits(group))
    return RABBET_STATUS(RABBET_STATUS_INVALID_ARGUMENT,
                         "the group is no softmax");
  rabbet_dtype_t dtype = group->values[group->inputs[0]].dtype;
  if (!rabbet_dtype_is_float(dtype) || !rabbet_cuda_type(dtype) ||
      dtype != group->values[group->outputs[0]].dtype)
    return RABBET_STATUS(RABBET_STATUS_INVALID_ARGUMENT,
                         "layer '%s': there is no softmax of type %s",
                         group->nodes[0].name, rabbet_dtype_name(dtype));
  kernel->size = rabbet_dtype_bits(dtype) / 8;
  kernel->vector = 16 / kernel->size;
  kernel->columns_vector = rabbet_min_i64(kernel->vector, MOST_COLUMNS);
  rabbet_cuda_options_t options = {.count = 0};
  rabbet_cuda_option(&options, "-DELEMENT=%s", rabbet_cuda_type(dtype));
  rabbet_cuda_option(&options, "-DVECTOR=%d", (int)kernel->vector);
  if (rabbet_node_is_log_softmax(group)) rabbet_cuda_option(&options, "-DLOG");
  RABBET_RETURN_IF_ERROR(
      rabbet_cuda_node_add(base, spec, "reduction/softmax.cu", NULL, &options));
  for (int i = 0; i < FUNCTIONS; ++i)
    RABBET_RETURN_IF_ERROR(rabbet_cuda_node_function(base, 0, softmax_names[i],
                                                     &kernel->functions[i]));
  return rabbet_ok();
}

// ---- Geometry --------------------------------------------------------------

static void softmax_launch(softmax_launch_t* out, CUfunction function,
                           int64_t blocks) {
  assert(blocks > 0 && blocks <= INT32_MAX);
  out->launch = (rabbet_cuda_launch_t){.function = function,
                                       .grid = {(unsigned)blocks, 1, 1},
                                       .block = {BLOCK, 1, 1}};
}

// A block for each row; few rows get large blocks, so that enough loads are on
// their way.
static void softmax_long_rows(const cuda_softmax_t* kernel,
                              const softmax_shape_t* shape, int64_t vector,
                              softmax_launch_t* out) {
  bool few = shape->outer < 2 * (int64_t)kernel->base.device->multiprocessors;
  out->numbers[0] = (uint32_t)shape->count;
  out->numbers[1] = few ? LONG_LOG : BLOCK_LOG;
  softmax_launch(out,
                 kernel->functions[vector > 1 ? ROWS_LONG : ROWS_LONG_SINGLE],
                 shape->outer);
  out->launch.block[0] = 1u << out->numbers[1];
}

// Rows that are no whole vectors, for aligned tensors; false: too short.
static bool softmax_odd_rows(const cuda_softmax_t* kernel,
                             const softmax_shape_t* shape,
                             softmax_launch_t* out) {
  int64_t bytes = STAGED * shape->count * kernel->size;
  if (shape->count < 32) return false;
  if (bytes > STAGED_BYTES) {
    softmax_long_rows(kernel, shape, kernel->vector, out);
    return true;
  }
  out->numbers[0] = (uint32_t)shape->outer;
  out->numbers[1] = (uint32_t)shape->count;
  softmax_launch(out, kernel->functions[ROWS_STAGED],
                 rabbet_ceildiv(shape->outer, STAGED));
  out->launch.shared_bytes = (unsigned)bytes;
  return true;
}

// A warp holds a row of up to 32 vectors; longer rows get as many threads as
// they need, up to a block.
static void softmax_rows(const cuda_softmax_t* kernel,
                         const softmax_shape_t* shape, int64_t vector,
                         softmax_launch_t* out) {
  assert(shape->count % vector == 0);
  int64_t vectors = shape->count / vector;
  int64_t held = vector > 1 ? HELD : HELD_SINGLE;
  bool is_short = vector > 1 && vectors <= 32;
  if (vectors > held * BLOCK) {
    softmax_long_rows(kernel, shape, vector, out);
    return;
  }
  uint32_t log = rabbet_cuda_log2(rabbet_min_i64(vectors, 32));
  while (held << log < vectors)
    ++log;
  assert(log <= BLOCK_LOG);  // longer rows were taken by softmax_long_rows
  out->numbers[0] = (uint32_t)shape->outer;
  out->numbers[1] = (uint32_t)vectors;
  out->numbers[2] = log;
  softmax_launch(out,
                 kernel->functions[vector == 1 ? ROWS_SINGLE
                                   : is_short  ? ROWS
                                               : ROWS_HELD],
                 rabbet_ceildiv(shape->outer, BLOCK >> log));
}

static void softmax_columns(const cuda_softmax_t* kernel,
                            const softmax_shape_t* shape, int64_t vector,
                            softmax_launch_t* out) {
  assert(shape->inner % vector == 0);
  int64_t vectors = shape->inner / vector;
  uint32_t down = BLOCK_LOG - rabbet_cuda_log2(rabbet_min_i64(vectors, 32));
  while (down > 0 && INT64_C(1) << (down - 1) >= shape->count)
    --down;
  uint32_t log = BLOCK_LOG - down;
  int64_t tiles = rabbet_ceildiv(vectors, INT64_C(1) << log);
  out->numbers[0] = (uint32_t)shape->count;
  out->numbers[1] = (uint32_t)vectors;
  out->numbers[2] = (uint32_t)tiles;
  out->numbers[3] = log;
  softmax_launch(out, kernel->functions[vector > 1 ? COLUMNS : COLUMNS_SINGLE],
                 tiles * shape->outer);
}

static void softmax_set(const cuda_softmax_t* kernel,
                        const softmax_shape_t* shape, int64_t vector,
                        softmax_launch_t* out) {
  if (shape->inner > 1)
    softmax_columns(kernel, shape, vector, out);
  else
    softmax_rows(kernel, shape, vector, out);
}

static rabbet_status_t cuda_softmax_prepare(
    rabbet_kernel_t* base, const rabbet_kernel_shapes_t* shapes,
    cuda_softmax_state_t** out_state, size_t* out_workspace) {
  const cuda_softmax_t* kernel = (const cuda_softmax_t*)base;
  const rabbet_group_node_t* node = kernel->base.node.node;
  const rabbet_dims_t* dims = &shapes->dims[node->inputs[0]];
  rabbet_format_t format =
      kernel->base.node.group->values[node->inputs[0]].format;
  softmax_shape_t shape;
  *out_workspace = 0;
  if (!softmax_shape(node, dims, format, &shape) ||
      shape.outer * shape.inner >= RABBET_CUDA_MAX_COUNT - BLOCK ||
      shape.count >= RABBET_CUDA_MAX_COUNT - BLOCK) {
    char text[128];
    return RABBET_STATUS(RABBET_STATUS_UNSUPPORTED,
                         "layer '%s': the kernel does not take shape %s in "
                         "format %s, or so many rows",
                         node->name,
                         rabbet_dims_print(dims, text, sizeof(text)),
                         rabbet_format_name(format));
  }
  RABBET_RETURN_IF_ERROR(
      rabbet_node_state_allocate(base, sizeof(**out_state), (void**)out_state));
  cuda_softmax_state_t* state = *out_state;
  state->empty = shape.outer == 0;
  if (state->empty) return rabbet_ok();
  int64_t vector = shape.inner > 1 ? kernel->columns_vector : kernel->vector;
  int64_t along = shape.inner > 1 ? shape.inner : shape.count;
  softmax_set(kernel, &shape, 1, &state->single);
  state->alignment = vector * kernel->size;
  if (along % vector == 0)
    softmax_set(kernel, &shape, vector, &state->vectors);
  else if (shape.inner == 1)
    (void)softmax_odd_rows(kernel, &shape, &state->vectors);
  return rabbet_ok();
}

static rabbet_status_t cuda_softmax_enqueue(rabbet_kernel_t* base,
                                            cuda_softmax_state_t* state,
                                            const rabbet_kernel_call_t* call) {
  const cuda_softmax_t* kernel = (const cuda_softmax_t*)base;
  void *source = call->inputs[0], *target = call->outputs[0];
  if (state->empty) return rabbet_ok();
  bool vectors = state->vectors.launch.function &&
                 rabbet_cuda_is_aligned(source, state->alignment) &&
                 rabbet_cuda_is_aligned(target, state->alignment);
  softmax_launch_t* launch = vectors ? &state->vectors : &state->single;
  void* parameters[] = {&source,
                        &target,
                        &launch->numbers[0],
                        &launch->numbers[1],
                        &launch->numbers[2],
                        &launch->numbers[3]};
  return rabbet_cuda_launch(kernel->base.device, &launch->launch, parameters,
                            call->stream);
}

static bool cuda_softmax_takes(const rabbet_kernel_spec_t* spec) {
  const rabbet_group_t* group = spec->group;
  return rabbet_takes_node(group, RABBET_OP_SOFTMAX, RABBET_TAKES_ONE_FORMAT) ||
         (rabbet_node_is_log_softmax(group) &&
          rabbet_takes_tensors(
              group, RABBET_TAKES_ONE_FORMAT | RABBET_TAKES_OTHER_TYPES));
}

RABBET_CUDA_NODE_CLASS(cuda_softmax, cuda_softmax_t, "cuda.softmax", 2);
