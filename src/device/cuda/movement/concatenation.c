// Concatenation along an axis: one launch for up to 64 inputs. Bound by bytes:
// each element is read and written once.
#include "device/common/concatenation.h"

#include <string.h>

#include "device/cuda/movement/gather_params.h"
#include "device/cuda/movement/move.h"

enum { NARROW_PIECES = 4, WIDE_PIECES = 4, WIDE = 16 };
enum { NARROW_ELEMENTS, WIDE_ELEMENTS, WIDTHS };

typedef struct cuda_concatenation_kernel_t {
  rabbet_cuda_node_t node;
  int64_t size;                     // bytes of an element
  CUfunction functions[WIDTHS][2];  // for small tensors and for all
} cuda_concatenation_kernel_t;

typedef struct cuda_concatenation_state_t {
  int64_t rows, row;  // bytes of a row
  bool is_wide;       // where addresses allow
  rabbet_cuda_launch_t launches[WIDTHS];
  size_t input_count;
  int64_t begins[];  // bytes of a row; and where the last one ends
} cuda_concatenation_state_t;

// ---- Proposing -------------------------------------------------------------

static rabbet_status_t cuda_concatenation_body(rabbet_proposal_t* proposal) {
  const rabbet_group_t* group = proposal->propose->group;
  const rabbet_group_node_t* node = proposal->node;
  rabbet_type_format_t layouts[RABBET_CUDA_LAYOUTS];
  proposal->keeps_padding = true;
  int count = rabbet_cuda_layouts(proposal, layouts);
  for (int i = 0; i < count; ++i) {
    rabbet_dtype_t dtype = layouts[i].dtype;
    rabbet_format_t format = layouts[i].format;
    if (!rabbet_concatenation_fits(group, format)) continue;
    for (size_t k = 0; k < node->input_count; ++k)
      rabbet_proposal_set_input(proposal, k, dtype, format);
    rabbet_proposal_set_output(proposal, dtype, format);
    RABBET_RETURN_IF_ERROR(rabbet_proposal_offer(proposal, "pieces", -1));
  }
  return rabbet_ok();
}

RABBET_PROPOSE_FOR(cuda_concatenation, CONCATENATION)

static rabbet_status_t cuda_concatenation_program(
    rabbet_cuda_node_t* node, const rabbet_kernel_spec_t* spec) {
  static const char* const names[WIDTHS][2] = {
      [NARROW_ELEMENTS] = {"concatenation_narrow",
                           "concatenation_narrow_large"},
      [WIDE_ELEMENTS] = {"concatenation_wide", "concatenation_wide_large"}};
  cuda_concatenation_kernel_t* kernel = (cuda_concatenation_kernel_t*)node;
  const rabbet_group_node_t* layer = node->node.node;
  if (!rabbet_node_is(spec->group, RABBET_OP_CONCATENATION))
    return RABBET_STATUS(RABBET_STATUS_INVALID_ARGUMENT,
                         "layer '%s' is no concatenation", layer->name);
  rabbet_dtype_t dtype = spec->group->values[layer->inputs[0]].dtype;
  if (rabbet_dtype_bits(dtype) < 8)
    return RABBET_STATUS(RABBET_STATUS_UNSUPPORTED,
                         "layer '%s': elements of %s are not moved one by one",
                         layer->name, rabbet_dtype_name(dtype));
  rabbet_cuda_options_t options = {.count = 0};
  kernel->size = rabbet_dtype_bits(dtype) / 8;
  rabbet_cuda_option(&options, "-DSIZE=%d", (int)kernel->size);
  RABBET_RETURN_IF_ERROR(rabbet_cuda_node_add(
      node, spec, "movement/concatenation.cu", NULL, &options));
  for (int i = 0; i < 2 * WIDTHS; ++i)
    RABBET_RETURN_IF_ERROR(rabbet_cuda_node_function(
        node, 0, names[i / 2][i % 2], &kernel->functions[i / 2][i % 2]));
  return rabbet_ok();
}

// ---- Preparing -------------------------------------------------------------

static void concatenation_plan(const cuda_concatenation_kernel_t* kernel,
                               cuda_concatenation_state_t* state) {
  const int64_t bytes[WIDTHS] = {kernel->size, WIDE};
  int64_t count = state->rows * state->row / kernel->size;
  bool large = !rabbet_cuda_is_small(count);
  state->is_wide = true;
  for (size_t i = 0; i <= state->input_count; ++i)
    state->is_wide = state->is_wide && state->begins[i] % WIDE == 0;
  for (int i = 0; i < WIDTHS; ++i) {
    int pieces = i == WIDE_ELEMENTS ? WIDE_PIECES : NARROW_PIECES;
    rabbet_cuda_pieces_t geometry = rabbet_cuda_pieces(
        kernel->node.device, state->rows * state->row / bytes[i], bytes[i],
        large ? 1 : pieces, large);
    state->launches[i] =
        (rabbet_cuda_launch_t){.function = kernel->functions[i][large],
                               .grid = {geometry.blocks, 1, 1},
                               .block = {geometry.threads, 1, 1}};
  }
}

static rabbet_status_t cuda_concatenation_prepare(
    rabbet_kernel_t* base, const rabbet_kernel_shapes_t* shapes,
    cuda_concatenation_state_t** out_state, size_t* out_workspace) {
  const cuda_concatenation_kernel_t* kernel =
      (const cuda_concatenation_kernel_t*)base;
  size_t count = kernel->node.node.node->input_count;
  *out_workspace = 0;
  RABBET_RETURN_IF_ERROR(rabbet_node_state_allocate(
      base, sizeof(**out_state) + (count + 1) * sizeof(int64_t),
      (void**)out_state));
  cuda_concatenation_state_t* state = *out_state;
  state->input_count = count;
  rabbet_status_t status = rabbet_concatenation_begins(
      &kernel->node.node, shapes->dims, state->begins, &state->rows);
  if (!rabbet_is_ok(status)) {
    rabbet_node_state_destroy(base, (rabbet_kernel_state_t*)state);
    *out_state = NULL;
    return status;
  }
  state->row = state->begins[count];
  if (state->rows * state->row > 0) concatenation_plan(kernel, state);
  return rabbet_ok();
}

// ---- Running ---------------------------------------------------------------

static const void* concatenation_input(const rabbet_node_kernel_t* kernel,
                                       const rabbet_kernel_call_t* call,
                                       size_t input) {
  return call->inputs[rabbet_group_input_of(kernel->group,
                                            kernel->node->inputs[input])];
}

// Fills the table of the inputs from `first` on; an element has `bytes` bytes.
static void concatenation_fill(const rabbet_node_kernel_t* kernel,
                               const cuda_concatenation_state_t* state,
                               const rabbet_kernel_call_t* call, size_t first,
                               int64_t bytes, concatenation_t* table) {
  size_t count = state->input_count - first;
  if (count > CONCATENATION_INPUTS) count = CONCATENATION_INPUTS;
  table->count = state->rows * state->row / bytes;
  table->rows = state->rows;
  table->row = rabbet_cuda_divisor(state->row / bytes);
  table->input_count = (int32_t)count;
  table->half = count > 1 ? 1 << (31 - __builtin_clz((unsigned)count - 1)) : 0;
  for (size_t i = 0; i < count; ++i) {
    table->begins[i] = state->begins[first + i] / bytes;
    table->inputs[i] = concatenation_input(kernel, call, first + i);
  }
  table->begins[count] = state->begins[first + count] / bytes;
}

static rabbet_status_t cuda_concatenation_enqueue(
    rabbet_kernel_t* base, cuda_concatenation_state_t* state,
    const rabbet_kernel_call_t* call) {
  const cuda_concatenation_kernel_t* kernel =
      (const cuda_concatenation_kernel_t*)base;
  if (state->rows * state->row == 0) return rabbet_ok();
  void* target = call->outputs[0];
  uintptr_t all = (uintptr_t)target;
  for (size_t i = 0; i < state->input_count; ++i)
    all |= (uintptr_t)concatenation_input(&kernel->node.node, call, i);
  bool wide = state->is_wide && all % WIDE == 0;
  int64_t bytes = wide ? WIDE : kernel->size;
  const rabbet_cuda_launch_t* launch =
      &state->launches[wide ? WIDE_ELEMENTS : NARROW_ELEMENTS];
  for (size_t i = 0; i < state->input_count; i += CONCATENATION_INPUTS) {
    concatenation_t table;
    concatenation_fill(&kernel->node.node, state, call, i, bytes, &table);
    void* parameters[] = {&target, &table};
    RABBET_RETURN_IF_ERROR(rabbet_cuda_launch(kernel->node.device, launch,
                                              parameters, call->stream));
  }
  return rabbet_ok();
}

static bool cuda_concatenation_takes(const rabbet_kernel_spec_t* spec) {
  return rabbet_concatenation_takes(spec->group);
}

RABBET_CUDA_NODE_CLASS(cuda_concatenation, cuda_concatenation_kernel_t,
                       "cuda.concatenation", 2);
