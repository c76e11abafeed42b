// Cumulative sums along an axis. Bound by bytes, or by latency if rows are few.
#include "ops/reduction/cumulative.h"

#include <assert.h>

#include "core/view.h"
#include "device/cuda/programs/node.h"
#include "device/cuda/reduction/cumulative_params.h"

enum { THREADS = 256, MOST_BLOCKS = 65535 };

typedef struct cuda_cumulative_kernel_t {
  rabbet_cuda_node_t node;
  CUfunction rows, columns;
} cuda_cumulative_kernel_t;

typedef struct cuda_cumulative_state_t {
  bool is_empty;
  cumulative_t parameters;
  rabbet_cuda_launch_t launch;
} cuda_cumulative_state_t;

static rabbet_status_t cuda_cumulative_body(rabbet_proposal_t* proposal) {
  return rabbet_proposal_offer_linear(
      proposal, "rows",
      rabbet_group_input_of(proposal->propose->group,
                            proposal->node->inputs[0]));
}

RABBET_PROPOSE_FOR(cuda_cumulative, CUMULATIVE)

static rabbet_status_t cuda_cumulative_program(
    rabbet_cuda_node_t* node, const rabbet_kernel_spec_t* spec) {
  cuda_cumulative_kernel_t* kernel = (cuda_cumulative_kernel_t*)node;
  const rabbet_group_node_t* layer = node->node.node;
  if (!rabbet_node_is(spec->group, RABBET_OP_CUMULATIVE))
    return RABBET_STATUS(RABBET_STATUS_INVALID_ARGUMENT,
                         "layer '%s' (cumulative): the axis has extent 0",
                         layer->name);
  rabbet_dtype_t dtype = spec->group->values[layer->inputs[0]].dtype;
  const char* type = rabbet_cuda_type(dtype);
  if (!type || dtype == RABBET_DTYPE_BOOL || dtype == RABBET_DTYPE_FP8)
    return RABBET_STATUS(RABBET_STATUS_UNSUPPORTED,
                         "layer '%s': type %s has no sums", layer->name,
                         rabbet_dtype_name(dtype));
  rabbet_cuda_options_t options = {.count = 0};
  rabbet_cuda_option(&options, "-DELEMENT=%s", type);
  rabbet_cuda_option(&options, "-DSUM=%s",
                     rabbet_dtype_is_float(dtype) ? "float" : "int64_t");
  RABBET_RETURN_IF_ERROR(rabbet_cuda_node_add(
      node, spec, "reduction/cumulative.cu", NULL, &options));
  RABBET_RETURN_IF_ERROR(
      rabbet_cuda_node_function(node, 0, "cumulative_rows", &kernel->rows));
  return rabbet_cuda_node_function(node, 0, "cumulative_columns",
                                   &kernel->columns);
}

static void cumulative_plan(const cuda_cumulative_kernel_t* kernel,
                            const rabbet_dims_t* dims, int32_t axis,
                            cuda_cumulative_state_t* state) {
  const rabbet_group_node_t* layer = kernel->node.node.node;
  cumulative_t* p = &state->parameters;
  assert(axis >= 0 && axis < dims->rank);
  int64_t inner = 1;
  p->rows = 1;
  for (int32_t i = 0; i < dims->rank; ++i) {
    if (i != axis) p->rows *= dims->d[i];
    if (i > axis) inner *= dims->d[i];
  }
  p->count = dims->d[axis];
  p->inner = rabbet_cuda_divisor(inner);
  p->exclusive = rabbet_node_int(layer, "exclusive") != 0;
  p->reverse = rabbet_node_int(layer, "reverse") != 0;
  state->is_empty = p->rows == 0 || p->count == 0;
  bool columns = inner >= 32 || p->count <= 32;
  int64_t blocks = columns ? rabbet_ceildiv(p->rows, (int64_t)THREADS)
                           : rabbet_min_i64(p->rows, MOST_BLOCKS);
  state->launch = (rabbet_cuda_launch_t){
      .function = columns ? kernel->columns : kernel->rows,
      .grid = {(unsigned)blocks, 1, 1},
      .block = {THREADS, 1, 1}};
}

static rabbet_status_t cuda_cumulative_prepare(
    rabbet_kernel_t* base, const rabbet_kernel_shapes_t* shapes,
    cuda_cumulative_state_t** out_state, size_t* out_workspace) {
  const cuda_cumulative_kernel_t* kernel =
      (const cuda_cumulative_kernel_t*)base;
  const rabbet_group_node_t* layer = kernel->node.node.node;
  const rabbet_dims_t* dims = &shapes->dims[layer->inputs[0]];
  rabbet_view_t views[3];
  rabbet_op_eval_t eval;
  rabbet_node_eval(kernel->node.node.group, shapes->dims, shapes->host_values,
                   kernel->node.node.allocator, views, &eval);
  int32_t axis = rabbet_cumulative_axis(&eval);
  *out_workspace = 0;
  *out_state = NULL;
  int64_t count = 0;
  RABBET_RETURN_IF_ERROR(rabbet_dims_count(dims, &count));
  if (count / THREADS > INT32_MAX)
    return RABBET_STATUS(RABBET_STATUS_OUT_OF_RANGE,
                         "layer '%s': the input has too many elements",
                         layer->name);
  RABBET_RETURN_IF_ERROR(
      rabbet_node_state_allocate(base, sizeof(**out_state), (void**)out_state));
  cumulative_plan(kernel, dims, axis, *out_state);
  return rabbet_ok();
}

static rabbet_status_t cuda_cumulative_enqueue(
    rabbet_kernel_t* base, cuda_cumulative_state_t* state,
    const rabbet_kernel_call_t* call) {
  const cuda_cumulative_kernel_t* kernel =
      (const cuda_cumulative_kernel_t*)base;
  if (state->is_empty) return rabbet_ok();
  const void* in = rabbet_node_input_at(&kernel->node.node, call, 0);
  void* out = rabbet_node_output(&kernel->node.node, call, 0);
  void* parameters[] = {&in, &out, &state->parameters};
  return rabbet_cuda_launch(kernel->node.device, &state->launch, parameters,
                            call->stream);
}

RABBET_TAKES_NODE(cuda_cumulative, CUMULATIVE, 0)

RABBET_CUDA_NODE_CLASS(cuda_cumulative, cuda_cumulative_kernel_t,
                       "cuda.cumulative", 1);
