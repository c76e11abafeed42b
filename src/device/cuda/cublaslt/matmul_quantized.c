// 8-bit matrix products: cuBLASLt's 32-bit sums (INT32 of INT8, FLOAT of FP8),
// then one generated kernel for the rest: scales, bias, functions, added
// tensors, the rounding of the result to 8 bits.
//
// The second kernel reads four bytes for each element of the result, which is
// its cost beside a 16-bit product; it pays where k is large. Products of FP8
// with one scale for all weights need no second kernel if cuBLASLt's own
// epilogue suffices.
#include "base/math.h"
#include "device/common/ask.h"
#include "device/cuda/cublaslt/matmul_kernel.h"
#include "device/cuda/cublaslt/matmul_split.h"

enum { PRODUCT = 0, TAIL = 1, PARTS = 2 };
// A bit of the tactic, whose other bits are the product's: threads of the tail
// compute several vectors (tactic 1 of cuda.pointwise), which pays for large
// results.
enum { TACTIC_LONG_TAIL = 1 << 30, TAIL_TACTICS = 2 };
// No second kernel (the bit of TF32, which 8-bit products do not use).
enum { TACTIC_DIRECT = 1 << 29 };

// ---- Asking ----------------------------------------------------------------

typedef struct quantized_ask_t {
  rabbet_answer_sink_t sink;
  int32_t bits;  // of the tactic
} quantized_ask_t;

// Turns a tactic of the product into one of the whole kernel.
static rabbet_status_t quantized_answer(void* context,
                                        const rabbet_answer_t* product) {
  const quantized_ask_t* ask = context;
  rabbet_answer_t answer = *product;
  answer.tactic |= ask->bits;
  return ask->sink.add(ask->sink.context, &answer);
}

static rabbet_status_t quantized_ask_part(const rabbet_question_t* question,
                                          const rabbet_group_t* part,
                                          const rabbet_dims_t* dims,
                                          int32_t bits,
                                          rabbet_answer_sink_t sink) {
  quantized_ask_t ask = {sink, bits};
  rabbet_question_t product = *question;
  product.kernel = &rabbet_cuda_matmul;
  product.group = part;
  product.dims = dims;
  if (part->node_count == 0) return rabbet_ok();
  return rabbet_matmul_ask(&product,
                           (rabbet_answer_sink_t){&ask, quantized_answer});
}

static rabbet_status_t quantized_ask_parts(const rabbet_question_t* question,
                                           const rabbet_matmul_split_t* split,
                                           rabbet_answer_sink_t sink) {
  rabbet_dims_t* dims = NULL;
  RABBET_RETURN_IF_ERROR(rabbet_matmul_split_dims(
      split, question->group, question->dims, question->allocator, &dims));
  rabbet_status_t status =
      quantized_ask_part(question, &split->direct, dims, TACTIC_DIRECT, sink);
  if (rabbet_is_ok(status))
    status = quantized_ask_part(question, &split->product, dims, 0, sink);
  rabbet_free(question->allocator, dims);
  return status;
}

static rabbet_status_t quantized_ask(const rabbet_question_t* question,
                                     rabbet_answer_sink_t sink) {
  rabbet_matmul_split_t split;
  rabbet_group_value_t* values = NULL;
  RABBET_RETURN_IF_ERROR(rabbet_allocate(
      question->allocator, rabbet_matmul_split_bytes(question->group),
      (void**)&values));
  rabbet_status_t status = rabbet_ok();
  if (rabbet_matmul_split(question->group, values, &split))
    status = quantized_ask_parts(question, &split, sink);
  rabbet_free(question->allocator, values);
  return status;
}

// ---- Proposing -------------------------------------------------------------

typedef struct quantized_offer_t {
  const rabbet_propose_t* propose;
  rabbet_candidate_sink_t sink;
  int32_t tail_tactics;  // number of tactics of cuda.pointwise
  bool direct;           // cuBLASLt's epilogue suffices for all shapes
} quantized_offer_t;

static rabbet_status_t quantized_add(void* context,
                                     const rabbet_candidate_t* product) {
  const quantized_offer_t* offer = context;
  rabbet_candidate_t candidate = *product;
  bool direct = (candidate.tactic & TACTIC_DIRECT) != 0;
  if (direct ? !offer->direct : offer->tail_tactics == 0) return rabbet_ok();
  if (!direct && offer->tail_tactics > 1) candidate.tactic |= TACTIC_LONG_TAIL;
  return rabbet_offer(offer->propose, offer->sink, &candidate);
}

static rabbet_status_t quantized_count(void* context,
                                       const rabbet_candidate_t* candidate) {
  int32_t* count = context;
  if (candidate->tactic >= *count && candidate->tactic < TAIL_TACTICS)
    *count = candidate->tactic + 1;
  return rabbet_ok();
}

static rabbet_status_t quantized_offer(const rabbet_propose_t* propose,
                                       rabbet_candidate_sink_t sink,
                                       const rabbet_matmul_split_t* split,
                                       rabbet_type_format_t* tensors) {
  quantized_offer_t offer = {.propose = propose, .sink = sink};
  const rabbet_candidate_t like = {.kernel = &rabbet_cuda_matmul_quantized,
                                   .tensors = tensors};
  const rabbet_asked_t asked = {
      .wish = rabbet_matmul_wish(propose->optimization_level)};
  rabbet_propose_t part = *propose;
  part.fixed = NULL;
  part.extra_dtypes = 0;
  part.group = &split->tail;
  RABBET_RETURN_IF_ERROR(rabbet_cuda_pointwise.propose(
      &part, (rabbet_candidate_sink_t){&offer.tail_tactics, quantized_count}));
  part.group = &split->direct;
  if (split->direct.node_count > 0)
    RABBET_RETURN_IF_ERROR(rabbet_matmul_has_epilogue(&part, &offer.direct));
  if (!offer.direct && offer.tail_tactics == 0) return rabbet_ok();
  rabbet_network_tensors(propose->group, tensors);
  return rabbet_offer_asked(
      propose, (rabbet_candidate_sink_t){&offer, quantized_add}, &like, &asked);
}

static rabbet_status_t quantized_propose(const rabbet_propose_t* propose,
                                         rabbet_candidate_sink_t sink) {
  const rabbet_group_t* group = propose->group;
  rabbet_matmul_split_t split;
  rabbet_group_value_t* values = NULL;
  rabbet_type_format_t* tensors = NULL;
  if (group->node_count < 3) return rabbet_ok();
  rabbet_status_t status = rabbet_allocate(
      propose->allocator, rabbet_matmul_split_bytes(group), (void**)&values);
  if (rabbet_is_ok(status))
    status = rabbet_allocate(
        propose->allocator,
        (group->input_count + group->output_count) * sizeof(*tensors),
        (void**)&tensors);
  if (rabbet_is_ok(status) && rabbet_matmul_split(group, values, &split))
    status = quantized_offer(propose, sink, &split, tensors);
  rabbet_free(propose->allocator, tensors);
  rabbet_free(propose->allocator, values);
  return status;
}

// ---- The kernel ------------------------------------------------------------

typedef struct quantized_kernel_t {
  rabbet_node_kernel_t node;
  rabbet_matmul_split_t split;
  rabbet_kernel_t* parts[PARTS];
  int part_count;  // 1: no tail
} quantized_kernel_t;

typedef struct cuda_matmul_quantized_state_t {
  rabbet_kernel_state_t* parts[PARTS];
  size_t sums_bytes;  // of the workspace
} cuda_matmul_quantized_state_t;

static const rabbet_kernel_class_t* quantized_class(int part) {
  return part == PRODUCT ? &rabbet_cuda_matmul : &rabbet_cuda_pointwise;
}

static void quantized_destroy(rabbet_kernel_t* base) {
  quantized_kernel_t* kernel = (quantized_kernel_t*)base;
  if (!kernel) return;
  for (int i = 0; i < PARTS; ++i)
    if (kernel->parts[i]) quantized_class(i)->destroy(kernel->parts[i]);
  rabbet_free(kernel->node.allocator, kernel->split.values);
  rabbet_free(kernel->node.allocator, kernel);
}

static rabbet_status_t quantized_create_parts(
    quantized_kernel_t* kernel, const rabbet_kernel_spec_t* spec) {
  rabbet_group_value_t* values = NULL;
  RABBET_RETURN_IF_ERROR(rabbet_allocate(spec->allocator,
                                         rabbet_matmul_split_bytes(spec->group),
                                         (void**)&values));
  bool direct = (spec->tactic & TACTIC_DIRECT) != 0;
  if (!rabbet_matmul_split(spec->group, values, &kernel->split) ||
      (direct && kernel->split.direct.node_count == 0))
    return RABBET_STATUS(RABBET_STATUS_INCOMPATIBLE,
                         "cuda.matmul.quantized computes products of "
                         "dequantized INT8 or FP8 tensors; this group is none");
  kernel->part_count = direct ? 1 : PARTS;
  for (int i = 0; i < kernel->part_count; ++i) {
    rabbet_kernel_spec_t part = *spec;
    part.group = i == TAIL ? &kernel->split.tail
                 : direct  ? &kernel->split.direct
                           : &kernel->split.product;
    part.tactic = i == TAIL
                      ? (spec->tactic & TACTIC_LONG_TAIL) != 0
                      : spec->tactic & ~(TACTIC_LONG_TAIL | TACTIC_DIRECT);
    RABBET_RETURN_IF_ERROR(
        rabbet_kernel_create(quantized_class(i), &part, &kernel->parts[i]));
    if (kernel->parts[i]->alignment > kernel->node.base.alignment)
      kernel->node.base.alignment = kernel->parts[i]->alignment;
  }
  if (direct) return rabbet_ok();
  for (size_t i = 1; i < kernel->split.tail.input_count; ++i)
    if (kernel->parts[TAIL]->own_constants >> i & 1)
      kernel->node.base.own_constants |= UINT64_C(1) << kernel->split.from[i];
  return rabbet_ok();
}

static rabbet_status_t quantized_create(const rabbet_kernel_spec_t* spec,
                                        rabbet_kernel_t** out_kernel) {
  quantized_kernel_t* kernel = NULL;
  *out_kernel = NULL;
  RABBET_RETURN_IF_ERROR(
      rabbet_allocate(spec->allocator, sizeof(*kernel), (void**)&kernel));
  kernel->node.base.kernel_class = &rabbet_cuda_matmul_quantized;
  kernel->node.allocator = spec->allocator;
  kernel->node.group = spec->group;
  kernel->node.node = &spec->group->nodes[0];
  rabbet_status_t status = quantized_create_parts(kernel, spec);
  if (!rabbet_is_ok(status)) {
    quantized_destroy(&kernel->node.base);
    return status;
  }
  *out_kernel = &kernel->node.base;
  return rabbet_ok();
}

static rabbet_status_t quantized_artifacts(rabbet_kernel_t* base,
                                           rabbet_artifact_sink_t sink) {
  quantized_kernel_t* kernel = (quantized_kernel_t*)base;
  for (int i = 0; i < kernel->part_count; ++i)
    RABBET_RETURN_IF_ERROR(
        quantized_class(i)->artifacts(kernel->parts[i], sink));
  return rabbet_ok();
}

// ---- Preparing -------------------------------------------------------------

static void quantized_destroy_state(rabbet_kernel_t* base,
                                    rabbet_kernel_state_t* prepared) {
  cuda_matmul_quantized_state_t* state =
      (cuda_matmul_quantized_state_t*)prepared;
  quantized_kernel_t* kernel = (quantized_kernel_t*)base;
  if (!state) return;
  for (int i = 0; i < kernel->part_count; ++i)
    quantized_class(i)->destroy_state(kernel->parts[i], state->parts[i]);
  rabbet_free(kernel->node.allocator, state);
}

static rabbet_status_t quantized_prepare_parts(
    quantized_kernel_t* kernel, const rabbet_kernel_shapes_t* shapes,
    rabbet_dims_t* dims, cuda_matmul_quantized_state_t* state,
    size_t* out_workspace) {
  rabbet_kernel_shapes_t part = *shapes;
  part.dims = dims;
  part.host_values = NULL;
  part.bytes = NULL;
  size_t most = 0, bytes = 0;
  for (int i = 0; i < kernel->part_count; ++i) {
    bytes = 0;
    RABBET_RETURN_IF_ERROR(quantized_class(i)->prepare(
        kernel->parts[i], &part, &state->parts[i], &bytes));
    if (bytes > most) most = bytes;
  }
  *out_workspace = most;
  if (kernel->part_count == 1) return rabbet_ok();
  RABBET_RETURN_IF_ERROR(
      rabbet_tensor_bytes(RABBET_DTYPE_INT32, RABBET_FORMAT_LINEAR,
                          &dims[kernel->split.sums], &bytes));
  state->sums_bytes = rabbet_align_up(bytes, 256);
  *out_workspace = state->sums_bytes + most;
  return rabbet_ok();
}

static rabbet_status_t quantized_prepare(rabbet_kernel_t* base,
                                         const rabbet_kernel_shapes_t* shapes,
                                         rabbet_kernel_state_t** out_state,
                                         size_t* out_workspace) {
  quantized_kernel_t* kernel = (quantized_kernel_t*)base;
  cuda_matmul_quantized_state_t* state = NULL;
  rabbet_dims_t* dims = NULL;
  *out_state = NULL;
  *out_workspace = 0;
  RABBET_RETURN_IF_ERROR(
      rabbet_node_state_allocate(base, sizeof(*state), (void**)&state));
  rabbet_status_t status =
      rabbet_matmul_split_dims(&kernel->split, kernel->node.group, shapes->dims,
                               kernel->node.allocator, &dims);
  if (rabbet_is_ok(status))
    status =
        quantized_prepare_parts(kernel, shapes, dims, state, out_workspace);
  rabbet_free(kernel->node.allocator, dims);
  if (!rabbet_is_ok(status)) {
    quantized_destroy_state(base, (rabbet_kernel_state_t*)state);
    return status;
  }
  *out_state = (rabbet_kernel_state_t*)state;
  return rabbet_ok();
}

// ---- Running ---------------------------------------------------------------

static rabbet_status_t quantized_enqueue_direct(
    const quantized_kernel_t* kernel,
    const cuda_matmul_quantized_state_t* state,
    const rabbet_kernel_call_t* call) {
  const rabbet_matmul_split_t* split = &kernel->split;
  void* inputs[RABBET_MATMUL_TAIL_INPUTS + 2];
  for (size_t i = 0; i < split->direct.input_count; ++i)
    inputs[i] =
        split->direct_from[i] < 0 ? NULL : call->inputs[split->direct_from[i]];
  rabbet_kernel_call_t product = *call;
  product.inputs = inputs;
  return rabbet_cuda_matmul.enqueue(kernel->parts[PRODUCT],
                                    state->parts[PRODUCT], &product);
}

static rabbet_status_t quantized_enqueue(rabbet_kernel_t* base,
                                         rabbet_kernel_state_t* prepared,
                                         const rabbet_kernel_call_t* call) {
  cuda_matmul_quantized_state_t* state =
      (cuda_matmul_quantized_state_t*)prepared;
  quantized_kernel_t* kernel = (quantized_kernel_t*)base;
  const rabbet_matmul_split_t* split = &kernel->split;
  const rabbet_group_t* group = kernel->node.group;
  if (kernel->part_count == 1)
    return quantized_enqueue_direct(kernel, state, call);
  void* sums = call->workspace;
  void* inputs[RABBET_MATMUL_TAIL_INPUTS] = {sums};
  void* factors[2] = {
      call->inputs[rabbet_group_input_of(group, split->quantized.x)],
      call->inputs[rabbet_group_input_of(group, split->quantized.w)]};
  for (size_t i = 1; i < split->tail.input_count; ++i)
    inputs[i] = call->inputs[split->from[i]];
  const rabbet_kernel_call_t product = {
      .inputs = factors,
      .outputs = &sums,
      .workspace = (char*)call->workspace + state->sums_bytes,
      .stream = call->stream};
  const rabbet_kernel_call_t tail = {.inputs = inputs,
                                     .outputs = call->outputs,
                                     .workspace = product.workspace,
                                     .stream = call->stream};
  RABBET_RETURN_IF_ERROR(rabbet_cuda_matmul.enqueue(
      kernel->parts[PRODUCT], state->parts[PRODUCT], &product));
  return rabbet_cuda_pointwise.enqueue(kernel->parts[TAIL], state->parts[TAIL],
                                       &tail);
}

static uint64_t quantized_library(rabbet_device_t* device) {
  return rabbet_cublaslt_version(device) * 1000003u ^
         rabbet_cuda_pointwise.library_version(device);
}

const rabbet_kernel_class_t rabbet_cuda_matmul_quantized = {
    .struct_size = sizeof(rabbet_kernel_class_t),
    .name = "cuda.matmul.quantized",
    .version = 2,
    .propose = quantized_propose,
    .create = quantized_create,
    .destroy = quantized_destroy,
    .prepare = quantized_prepare,
    .destroy_state = quantized_destroy_state,
    .enqueue = quantized_enqueue,
    .artifacts = quantized_artifacts,
    .library_version = quantized_library,
    .tactic_sources =
        1u << RABBET_TACTIC_CUBLAS | 1u << RABBET_TACTIC_CUBLAS_LT,
    .ask = quantized_ask,
};
