// Recurrent networks: a kernel for each step, two for those of a GRU that
// resets the state before the product. Steps are launched, or replayed from a
// graph, one after the other; states stay in the workspace.
#include "device/common/rnn.h"

#include "device/cuda/programs/launch.h"
#include "device/cuda/programs/node.h"
#include "device/cuda/recurrent/rnn_params.h"

enum { THREADS = 256, MOST_ROWS_OF_BLOCKS = 65535, ALIGNMENT = 256 };
enum { BEGIN, STEP, NEW, END, FUNCTIONS };

typedef struct cuda_rnn_kernel_t {
  rabbet_cuda_node_t node;
  bool resets;  // NEW follows STEP
  CUfunction one[FUNCTIONS], many[FUNCTIONS];
} cuda_rnn_kernel_t;

typedef struct cuda_rnn_state_t {
  rabbet_rnn_t rnn;
  bool is_long;
  size_t part;  // bytes of a state in the workspace
} cuda_rnn_state_t;

static rabbet_status_t cuda_rnn_propose(const rabbet_propose_t* propose,
                                        rabbet_candidate_sink_t sink) {
  return rabbet_rnn_propose(propose, sink, &rabbet_cuda_rnn);
}

static rabbet_status_t cuda_rnn_program(rabbet_cuda_node_t* node,
                                        const rabbet_kernel_spec_t* spec) {
  static const char* const one[FUNCTIONS] = {"rnn_begin", "rnn_step_one",
                                             "rnn_new_one", "rnn_end"};
  static const char* const many[FUNCTIONS] = {"rnn_begin", "rnn_step_many",
                                              "rnn_new_many", "rnn_end"};
  cuda_rnn_kernel_t* kernel = (cuda_rnn_kernel_t*)node;
  const rabbet_group_node_t* layer = node->node.node;
  rabbet_cuda_options_t options = {.count = 0};
  int64_t cell = rabbet_node_int(layer, "cell");
  bool is_linear = rabbet_node_int(layer, "linear_before_reset") != 0;
  kernel->resets = cell == RABBET_RNN_CELL_GRU && !is_linear;
  rabbet_cuda_option(
      &options, "-DELEMENT=%s",
      rabbet_cuda_type(spec->group->values[layer->inputs[0]].dtype));
  rabbet_cuda_option(&options, "-DCELL=%d", (int)cell);
  rabbet_cuda_option(&options, "-DLINEAR=%d", is_linear);
  RABBET_RETURN_IF_ERROR(
      rabbet_cuda_node_add(node, spec, "recurrent/rnn.cu", NULL, &options));
  for (int i = 0; i < FUNCTIONS; ++i) {
    if (i == NEW && !kernel->resets) continue;
    RABBET_RETURN_IF_ERROR(
        rabbet_cuda_node_function(node, 0, one[i], &kernel->one[i]));
    RABBET_RETURN_IF_ERROR(
        rabbet_cuda_node_function(node, 0, many[i], &kernel->many[i]));
  }
  return rabbet_ok();
}

// ---- Geometry --------------------------------------------------------------

static rabbet_status_t rnn_check(const rabbet_rnn_t* r, const char* layer,
                                 size_t* out_part) {
  size_t floats = 0;
  if (rabbet_checked_mul((size_t)(r->directions * r->batch), (size_t)r->hidden,
                         &floats) &&
      floats < (size_t)INT32_MAX * THREADS && floats < PTRDIFF_MAX / 64) {
    *out_part = rabbet_align_up(floats * sizeof(float), ALIGNMENT);
    return rabbet_ok();
  }
  return RABBET_STATUS(RABBET_STATUS_OUT_OF_RANGE,
                       "layer '%s': %lld sequences with %lld hidden elements "
                       "are too many",
                       layer, (long long)r->batch, (long long)r->hidden);
}

static rabbet_status_t cuda_rnn_prepare(rabbet_kernel_t* base,
                                        const rabbet_kernel_shapes_t* shapes,
                                        cuda_rnn_state_t** out_state,
                                        size_t* out_workspace) {
  const cuda_rnn_kernel_t* kernel = (const cuda_rnn_kernel_t*)base;
  const rabbet_group_node_t* layer = kernel->node.node.node;
  int32_t lengths = rabbet_node_input(layer, RABBET_RNN_LENGTHS);
  cuda_rnn_state_t made = {0};
  *out_workspace = 0;
  *out_state = NULL;
  RABBET_RETURN_IF_ERROR(rabbet_rnn_read_node(layer, shapes->dims, &made.rnn));
  RABBET_RETURN_IF_ERROR(rnn_check(&made.rnn, layer->name, &made.part));
  made.is_long =
      lengths >= 0 &&
      kernel->node.node.group->values[lengths].dtype == RABBET_DTYPE_INT64;
  RABBET_RETURN_IF_ERROR(
      rabbet_node_state_allocate(base, sizeof(made), (void**)out_state));
  **out_state = made;
  // h twice; c, or z and the reset state.
  *out_workspace = 4 * made.part;
  return rabbet_ok();
}

// ---- Running ---------------------------------------------------------------

typedef struct rnn_call_t {
  const cuda_rnn_kernel_t* kernel;
  const rabbet_rnn_t* rnn;
  rnn_memory_t memory;
  void* stream;
} rnn_call_t;

// A thread for each hidden element.
static rabbet_status_t rnn_launch_states(rnn_call_t* call, int function) {
  const rabbet_rnn_t* r = call->rnn;
  int64_t count = r->directions * r->batch * r->hidden;
  const rabbet_cuda_launch_t launch = {
      .function = call->kernel->one[function],
      .grid = {(unsigned)rabbet_ceildiv(count, (int64_t)THREADS), 1, 1},
      .block = {THREADS, 1, 1}};
  void* parameters[] = {&call->memory, (void*)(uintptr_t)r};
  return rabbet_cuda_launch(call->kernel->node.device, &launch, parameters,
                            call->stream);
}

static rabbet_status_t rnn_launch_step(rnn_call_t* call, int function,
                                       int64_t i) {
  const rabbet_rnn_t* r = call->rnn;
  int64_t rows = r->batch == 1 ? 1 : RNN_ROWS;
  int64_t blocks =
      rabbet_min_i64(rabbet_ceildiv(r->batch, rows), MOST_ROWS_OF_BLOCKS);
  const rabbet_cuda_launch_t launch = {
      .function = r->batch == 1 ? call->kernel->one[function]
                                : call->kernel->many[function],
      .grid = {(unsigned)rabbet_ceildiv(r->hidden, (int64_t)RNN_WARPS),
               (unsigned)blocks, (unsigned)r->directions},
      .block = {32 * RNN_WARPS, 1, 1}};
  void* parameters[] = {&call->memory, (void*)(uintptr_t)r, &i};
  return rabbet_cuda_launch(call->kernel->node.device, &launch, parameters,
                            call->stream);
}

static rnn_memory_t rnn_memory(const cuda_rnn_kernel_t* kernel,
                               const cuda_rnn_state_t* state,
                               const rabbet_kernel_call_t* call) {
  const rabbet_node_kernel_t* node = &kernel->node.node;
  char* workspace = call->workspace;
  float* parts[4];
  for (size_t i = 0; i < 4; ++i)
    parts[i] = (float*)(void*)(workspace + i * state->part);
  return (rnn_memory_t){
      .x = rabbet_node_input_at(node, call, RABBET_RNN_INPUT),
      .weights = rabbet_node_input_at(node, call, RABBET_RNN_RECURRENCE),
      .bias = rabbet_node_input_at(node, call, RABBET_RNN_BIAS),
      .hidden = rabbet_node_input_at(node, call, RABBET_RNN_HIDDEN),
      .cell = rabbet_node_input_at(node, call, RABBET_RNN_CELL),
      .peepholes = rabbet_node_input_at(node, call, RABBET_RNN_PEEPHOLES),
      .lengths = rabbet_node_input_at(node, call, RABBET_RNN_LENGTHS),
      .y = rabbet_node_output(node, call, RABBET_RNN_OUTPUT),
      .last_hidden = rabbet_node_output(node, call, RABBET_RNN_LAST_HIDDEN),
      .last_cell = rabbet_node_output(node, call, RABBET_RNN_LAST_CELL),
      .h = {parts[0], parts[1]},
      .c = parts[2],
      .z = parts[2],
      .reset = parts[3],
      .is_long = state->is_long};
}

static rabbet_status_t cuda_rnn_enqueue(rabbet_kernel_t* base,
                                        cuda_rnn_state_t* state,
                                        const rabbet_kernel_call_t* call) {
  const cuda_rnn_kernel_t* kernel = (const cuda_rnn_kernel_t*)base;
  if (state->part == 0) return rabbet_ok();
  rnn_call_t run = {.kernel = kernel,
                    .rnn = &state->rnn,
                    .memory = rnn_memory(kernel, state, call),
                    .stream = call->stream};
  RABBET_RETURN_IF_ERROR(rnn_launch_states(&run, BEGIN));
  for (int64_t i = 0; i < state->rnn.steps; ++i) {
    RABBET_RETURN_IF_ERROR(rnn_launch_step(&run, STEP, i));
    if (kernel->resets) RABBET_RETURN_IF_ERROR(rnn_launch_step(&run, NEW, i));
  }
  return rnn_launch_states(&run, END);
}

RABBET_TAKES_NODE(cuda_rnn, RNN, RABBET_TAKES_UNREAD)

RABBET_CUDA_NODE_CLASS(cuda_rnn, cuda_rnn_kernel_t, "cuda.rnn", 1);
