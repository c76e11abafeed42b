// Gather: contiguous rows in pieces of 16 bytes, or several single elements per
// thread. Bound by the bytes of the indices, the gathered elements and the
// output.
#include "device/common/gather.h"

#include "device/cuda/movement/gather_params.h"
#include "device/cuda/movement/move.h"
#include "ops/enums.h"

enum { NARROW_PIECES = 2, WIDE_PIECES = 4, WIDE = 16, ELEMENTS = 4 };
// Rows of fewer bytes are gathered element by element.
enum { SHORT_ROW = 32 };

enum { ROWS_NARROW, ROWS_WIDE, SINGLE, FUNCTIONS };

typedef struct cuda_gather_kernel_t {
  rabbet_cuda_node_t node;
  int64_t size;                        // bytes of an element
  CUfunction functions[FUNCTIONS][2];  // for small tensors and for all
} cuda_gather_kernel_t;

typedef struct cuda_gather_state_t {
  bool is_empty, is_by_rows, has_wide, is_large;
  rabbet_cuda_launch_t narrow, wide;
  gather_t parameters, wide_parameters;
} cuda_gather_state_t;

// ---- Proposing -------------------------------------------------------------

static rabbet_status_t cuda_gather_body(rabbet_proposal_t* proposal) {
  const rabbet_group_t* group = proposal->propose->group;
  rabbet_dtype_t types[4];
  int count = rabbet_compute_types(
      proposal->propose, group->values[proposal->node->inputs[0]].dtype, types);
  for (int t = 0; t < count; ++t) {
    if (rabbet_dtype_bits(types[t]) < 8) continue;
    rabbet_proposal_set_input(proposal, 0, types[t], RABBET_FORMAT_LINEAR);
    rabbet_proposal_set_output(proposal, types[t], RABBET_FORMAT_LINEAR);
    RABBET_RETURN_IF_ERROR(rabbet_proposal_offer(proposal, "rows", -1));
  }
  return rabbet_ok();
}

RABBET_PROPOSE_FOR(cuda_gather, GATHER)

static rabbet_status_t cuda_gather_program(rabbet_cuda_node_t* node,
                                           const rabbet_kernel_spec_t* spec) {
  static const char* const names[FUNCTIONS][2] = {
      [ROWS_NARROW] = {"gather_narrow", "gather_narrow_large"},
      [ROWS_WIDE] = {"gather_wide", "gather_wide_large"},
      [SINGLE] = {"gather_elements", "gather_elements_large"}};
  cuda_gather_kernel_t* kernel = (cuda_gather_kernel_t*)node;
  const rabbet_group_node_t* layer = node->node.node;
  if (!rabbet_node_is(spec->group, RABBET_OP_GATHER))
    return RABBET_STATUS(RABBET_STATUS_INVALID_ARGUMENT,
                         "layer '%s' is no gather", layer->name);
  rabbet_dtype_t dtype = spec->group->values[layer->inputs[0]].dtype;
  rabbet_dtype_t index = spec->group->values[layer->inputs[1]].dtype;
  if (rabbet_dtype_bits(dtype) < 8 ||
      (index != RABBET_DTYPE_INT32 && index != RABBET_DTYPE_INT64))
    return RABBET_STATUS(RABBET_STATUS_UNSUPPORTED,
                         "layer '%s': elements of %s cannot be gathered by "
                         "indices of %s",
                         layer->name, rabbet_dtype_name(dtype),
                         rabbet_dtype_name(index));
  rabbet_cuda_options_t options = {.count = 0};
  kernel->size = rabbet_dtype_bits(dtype) / 8;
  rabbet_cuda_option(&options, "-DSIZE=%d", (int)kernel->size);
  RABBET_RETURN_IF_ERROR(
      rabbet_cuda_node_add(node, spec, "movement/gather.cu", NULL, &options));
  for (int i = 0; i < 2 * FUNCTIONS; ++i)
    RABBET_RETURN_IF_ERROR(rabbet_cuda_node_function(
        node, 0, names[i / 2][i % 2], &kernel->functions[i / 2][i % 2]));
  return rabbet_ok();
}

// ---- Geometry --------------------------------------------------------------

// Adds an axis; the innermost one comes first.
static void gather_add_axis(gather_t* gather, int64_t extent, int64_t data,
                            int64_t index) {
  gather->axes[gather->rank++] = (gather_axis_t){
      .extent = rabbet_cuda_divisor(extent), .data = data, .index = index};
}

static void gather_add_index(gather_t* gather, int64_t extent, int64_t stride) {
  gather->extent[gather->depth] = extent;
  gather->stride[gather->depth++] = stride;
}

static int64_t gather_product(const rabbet_dims_t* dims, int32_t begin,
                              int32_t end) {
  int64_t product = 1;
  for (int32_t i = begin; i < end; ++i)
    product *= dims->d[i];
  return product;
}

// The output is (batch, outer, count, row).
static void gather_set_default(const rabbet_dims_t* data,
                               const rabbet_dims_t* indices, int32_t axis,
                               int32_t batch, gather_t* gather) {
  int64_t row = gather_product(data, axis + 1, data->rank);
  int64_t outer = gather_product(data, batch, axis);
  int64_t count = gather_product(indices, batch, indices->rank);
  int64_t plane = data->d[axis] * row;
  gather_add_axis(gather, row, 1, 0);
  gather_add_axis(gather, count, 0, 1);
  if (outer != 1) gather_add_axis(gather, outer, plane, 0);
  if (batch > 0)
    gather_add_axis(gather, gather_product(data, 0, batch), outer * plane,
                    count);
  gather_add_index(gather, data->d[axis], row);
}

// The output is (batch, count, row).
static void gather_set_nd(const rabbet_dims_t* data,
                          const rabbet_dims_t* indices, int32_t batch,
                          gather_t* gather) {
  int32_t depth = (int32_t)indices->d[indices->rank - 1];
  int64_t row = gather_product(data, batch + depth, data->rank);
  int64_t count = gather_product(indices, batch, indices->rank - 1);
  gather_add_axis(gather, row, 1, 0);
  gather_add_axis(gather, count, 0, depth);
  if (batch > 0)
    gather_add_axis(gather, gather_product(data, 0, batch),
                    gather_product(data, batch, data->rank), count * depth);
  for (int32_t i = batch; i < batch + depth; ++i)
    gather_add_index(gather, data->d[i],
                     gather_product(data, i + 1, data->rank));
}

// The output has the shape of the indices. On axes other than `axis`, data and
// indices advance together.
static void gather_set_element(const rabbet_dims_t* data,
                               const rabbet_dims_t* indices, int32_t axis,
                               gather_t* gather) {
  int64_t from = 1, index = 1;
  for (int32_t i = data->rank - 1; i >= 0; --i) {
    gather_add_axis(gather, indices->d[i], i == axis ? 0 : from, index);
    if (i == axis) gather_add_index(gather, data->d[i], from);
    from *= data->d[i];
    index *= indices->d[i];
  }
}

static void gather_set(const rabbet_node_kernel_t* kernel,
                       const rabbet_dims_t* data, const rabbet_dims_t* indices,
                       gather_t* gather) {
  const rabbet_group_node_t* node = kernel->node;
  int64_t mode = rabbet_node_int(node, "mode");
  int32_t batch = (int32_t)rabbet_node_int(node, "num_elementwise_dims");
  int32_t axis = (int32_t)rabbet_node_int(node, "axis");
  if (axis < 0) axis += data->rank;
  gather->is_long =
      kernel->group->values[node->inputs[1]].dtype == RABBET_DTYPE_INT64;
  gather->size = gather_product(data, 0, data->rank);
  if (mode == RABBET_GATHER_ELEMENT) {
    gather_set_element(data, indices, axis, gather);
  } else if (mode == RABBET_GATHER_ND) {
    gather_set_nd(data, indices, batch, gather);
  } else {
    gather_set_default(data, indices, axis, batch, gather);
  }
  gather->count = 1;
  for (int32_t i = 0; i < gather->rank; ++i)
    gather->count *= gather->axes[i].extent.divisor;
}

// The same in elements of 16 bytes; false if rows are not multiples of them.
static bool gather_widen(const gather_t* narrow, int64_t size, gather_t* wide) {
  int64_t by = WIDE / size;
  bool fits = narrow->axes[0].extent.divisor % by == 0;
  *wide = *narrow;
  wide->count /= by;
  wide->size /= by;
  wide->axes[0].extent =
      rabbet_cuda_divisor(narrow->axes[0].extent.divisor / by);
  for (int32_t i = 1; i < wide->rank; ++i) {
    fits = fits && wide->axes[i].data % by == 0;
    wide->axes[i].data /= by;
  }
  for (int32_t i = 0; i < wide->depth; ++i) {
    fits = fits && wide->stride[i] % by == 0;
    wide->stride[i] /= by;
  }
  return fits;
}

static rabbet_cuda_launch_t gather_launch(const cuda_gather_kernel_t* kernel,
                                          int function, int64_t count,
                                          int64_t bytes, int pieces,
                                          bool is_large) {
  rabbet_cuda_pieces_t geometry =
      rabbet_cuda_pieces(kernel->node.device, count, bytes, pieces, is_large);
  return (rabbet_cuda_launch_t){
      .function = kernel->functions[function][is_large],
      .grid = {geometry.blocks, 1, 1},
      .block = {geometry.threads, 1, 1}};
}

static void gather_plan(const cuda_gather_kernel_t* kernel, bool by_rows,
                        cuda_gather_state_t* state) {
  const gather_t* gather = &state->parameters;
  bool large = !rabbet_cuda_is_small(gather->count) ||
               !rabbet_cuda_is_small(gather->size);
  int64_t size = kernel->size;
  state->is_by_rows =
      by_rows && gather->axes[0].extent.divisor * size >= SHORT_ROW;
  if (!state->is_by_rows) {
    state->narrow =
        gather_launch(kernel, SINGLE, gather->count, WIDE, ELEMENTS, large);
    return;
  }
  state->narrow = gather_launch(kernel, ROWS_NARROW, gather->count, size,
                                large ? 1 : NARROW_PIECES, large);
  state->has_wide = gather_widen(gather, size, &state->wide_parameters);
  state->wide = gather_launch(kernel, ROWS_WIDE, state->wide_parameters.count,
                              WIDE, large ? 1 : WIDE_PIECES, large);
}

static rabbet_status_t cuda_gather_prepare(rabbet_kernel_t* base,
                                           const rabbet_kernel_shapes_t* shapes,
                                           cuda_gather_state_t** out_state,
                                           size_t* out_workspace) {
  const cuda_gather_kernel_t* kernel = (const cuda_gather_kernel_t*)base;
  const rabbet_group_node_t* node = kernel->node.node.node;
  const rabbet_dims_t* data = &shapes->dims[node->inputs[0]];
  const rabbet_dims_t* indices = &shapes->dims[node->inputs[1]];
  *out_workspace = 0;
  RABBET_RETURN_IF_ERROR(rabbet_gather_check(node, data, indices));
  RABBET_RETURN_IF_ERROR(
      rabbet_node_state_allocate(base, sizeof(**out_state), (void**)out_state));
  cuda_gather_state_t* state = *out_state;
  gather_set(&kernel->node.node, data, indices, &state->parameters);
  state->is_empty = state->parameters.count == 0;
  if (state->is_empty) return rabbet_ok();
  bool by_rows = rabbet_node_int(node, "mode") != RABBET_GATHER_ELEMENT;
  gather_plan(kernel, by_rows, state);
  return rabbet_ok();
}

static rabbet_status_t cuda_gather_enqueue(rabbet_kernel_t* base,
                                           cuda_gather_state_t* state,
                                           const rabbet_kernel_call_t* call) {
  const cuda_gather_kernel_t* kernel = (const cuda_gather_kernel_t*)base;
  const rabbet_group_t* group = kernel->node.node.group;
  const rabbet_group_node_t* node = kernel->node.node.node;
  if (state->is_empty) return rabbet_ok();
  const void* data =
      call->inputs[rabbet_group_input_of(group, node->inputs[0])];
  const void* indices =
      call->inputs[rabbet_group_input_of(group, node->inputs[1])];
  void* target = call->outputs[0];
  bool wide =
      state->has_wide && ((uintptr_t)data | (uintptr_t)target) % WIDE == 0;
  void* parameters[] = {&data, &indices, &target,
                        wide ? &state->wide_parameters : &state->parameters};
  return rabbet_cuda_launch(kernel->node.device,
                            wide ? &state->wide : &state->narrow, parameters,
                            call->stream);
}

RABBET_TAKES_NODE(cuda_gather, GATHER, 0)

RABBET_CUDA_NODE_CLASS(cuda_gather, cuda_gather_kernel_t, "cuda.gather", 2);
