// Asks cuBLASLt for algorithms for a group and offers them. matmul.c has the
// kernel.
#include <stdio.h>
#include <string.h>

#include "core/view.h"
#include "device/common/ask.h"
#include "device/cuda/cublaslt/matmul_kernel.h"

// ---- The group -------------------------------------------------------------

// 8-bit factors have 32-bit sums and no epilogue, or, for FP8, results of any
// floating type. They are parts of quantized products (matmul_quantized.c) and
// occur in no network.
static bool matmul_is_bytes(const rabbet_group_t* group) {
  if (!rabbet_node_is(group, RABBET_OP_MATRIX_MULTIPLY) ||
      group->input_count != 2)
    return false;
  rabbet_dtype_t in = group->values[group->inputs[0]].dtype;
  rabbet_dtype_t out = group->values[group->outputs[0]].dtype;
  return in == group->values[group->inputs[1]].dtype &&
         ((in == RABBET_DTYPE_INT8 && out == RABBET_DTYPE_INT32) ||
          (in == RABBET_DTYPE_FP8 && out == RABBET_DTYPE_FLOAT));
}

static bool matmul_is_scaled_bytes(const rabbet_group_t* group) {
  return rabbet_matmul_matches(group) && group->node_count > 1 &&
         group->values[group->nodes[0].inputs[0]].dtype == RABBET_DTYPE_FP8 &&
         group->values[group->nodes[0].inputs[1]].dtype == RABBET_DTYPE_FP8;
}

static bool matmul_matches(const rabbet_group_t* group) {
  if (matmul_is_bytes(group) || matmul_is_scaled_bytes(group)) return true;
  return (rabbet_matmul_matches(group) ||
          rabbet_matmul_is_convolution(group, NULL)) &&
         group->values[group->nodes[0].inputs[0]].dtype != RABBET_DTYPE_FP8;
}

// A tensor added to a product of FP8 has the type of a 16-bit result; with
// other results nothing can be added.
static bool matmul_takes_types(const rabbet_group_t* group,
                               const rabbet_matmul_epilogue_t* e) {
  const int32_t added[] = {e->bias, e->residual};
  rabbet_dtype_t dtype = group->values[group->outputs[0]].dtype;
  if (!matmul_is_scaled_bytes(group)) return true;
  for (int i = 0; i < 2; ++i)
    if (added[i] >= 0 && (rabbet_dtype_bits(dtype) != 16 ||
                          group->values[added[i]].dtype != dtype))
      return false;
  return true;
}

static rabbet_matmul_types_t matmul_types(const rabbet_group_t* group,
                                          rabbet_dtype_t dtype) {
  return (rabbet_matmul_types_t){dtype,
                                 rabbet_dtype_bits(dtype) == 8
                                     ? group->values[group->outputs[0]].dtype
                                     : dtype};
}

rabbet_status_t rabbet_matmul_check_group(const rabbet_group_t* group,
                                          rabbet_matmul_types_t* out_types) {
  rabbet_dtype_t dtype = RABBET_DTYPE_NONE;
  bool fits = matmul_matches(group) && group->output_count == 1;
  bool pixels = rabbet_matmul_is_convolution(group, NULL);
  bool scaled = fits && matmul_is_scaled_bytes(group);
  if (fits) dtype = group->values[group->outputs[0]].dtype;
  if (fits && (scaled || matmul_is_bytes(group)))
    dtype = group->values[group->inputs[0]].dtype;
  fits = fits && rabbet_cublaslt_type(dtype) >= 0;
  for (size_t i = 0; fits && i < group->input_count; ++i) {
    const rabbet_group_value_t* value = &group->values[group->inputs[i]];
    if (scaled && i >= 2) continue;  // matmul_takes_types checks these
    bool may_turn = pixels || group->inputs[i] == group->nodes[0].inputs[1];
    fits = value->dtype == dtype &&
           (value->format == RABBET_FORMAT_LINEAR ||
            (may_turn && value->format == RABBET_FORMAT_HWC));
  }
  if (fits) *out_types = matmul_types(group, dtype);
  if (fits && group->values[group->outputs[0]].format ==
                  (pixels ? RABBET_FORMAT_HWC : RABBET_FORMAT_LINEAR))
    return rabbet_ok();
  return RABBET_STATUS(RABBET_STATUS_INCOMPATIBLE,
                       "cuda.matmul computes groups that begin with a product "
                       "and have one floating type, all LINEAR but for "
                       "weights, or with a convolution of single pixels, all "
                       "HWC but for the bias; this one does not");
}

// Whether a convolution has no padding, and all its tensors are channels last.
static bool matmul_lies_by_pixels(const rabbet_group_t* group,
                                  const rabbet_dims_t* dims,
                                  const rabbet_matmul_epilogue_t* e) {
  bool fits = rabbet_matmul_is_convolution(group, dims);
  for (size_t i = 0; fits && i < group->input_count; ++i)
    fits = (group->values[group->inputs[i]].format == RABBET_FORMAT_HWC) ==
           (group->inputs[i] != e->bias);
  return fits;
}

// Describes the product to the library, for a group with these types and
// formats.
rabbet_status_t rabbet_matmul_problem(const rabbet_group_t* group,
                                      const rabbet_dims_t* dims,
                                      rabbet_matmul_shape_t* out_shape,
                                      rabbet_matmul_epilogue_t* out_epilogue) {
  const rabbet_group_node_t* node = &group->nodes[0];
  bool pixels = rabbet_matmul_is_convolution(group, NULL);
  if (!rabbet_matmul_epilogue(group, dims, out_epilogue) ||
      !matmul_takes_types(group, out_epilogue) ||
      (pixels && !matmul_lies_by_pixels(group, dims, out_epilogue)))
    return RABBET_STATUS(
        RABBET_STATUS_UNSUPPORTED,
        "cuBLASLt cannot compute product '%s' and its epilogue "
        "at these shapes",
        node->name);
  RABBET_RETURN_IF_ERROR(rabbet_matmul_shape(node, dims, out_shape));
  if (!pixels && group->values[node->inputs[1]].format == RABBET_FORMAT_HWC &&
      !rabbet_matmul_turn_weights(node, dims, out_shape))
    return RABBET_STATUS(RABBET_STATUS_UNSUPPORTED,
                         "the product '%s' has weights in format HWC that are "
                         "not one matrix of rank 3",
                         node->name);
  if (out_shape->batch.size <= INT32_MAX) return rabbet_ok();
  return RABBET_STATUS(RABBET_STATUS_UNSUPPORTED,
                       "the product '%s' has a batch of %lld, which cuBLASLt "
                       "does not take",
                       node->name, (long long)out_shape->batch.size);
}

// ---- Asking ----------------------------------------------------------------

rabbet_matmul_kept_t rabbet_matmul_kept(const rabbet_cuda_device_t* device,
                                        const rabbet_cublaslt_t* library,
                                        int32_t tactic,
                                        const rabbet_matmul_shape_t* shape,
                                        const cublasLtMatmulAlgo_t* algorithm) {
  return (rabbet_matmul_kept_t){.magic = RABBET_MATMUL_KEPT,
                                .tactic = tactic,
                                .version = library->version,
                                .major = device->major,
                                .minor = device->minor,
                                .m = shape->m,
                                .n = shape->n,
                                .k = shape->k,
                                .batch = shape->batch.size,
                                .algorithm = *algorithm};
}

static rabbet_status_t ask_add(const rabbet_question_t* question,
                               const rabbet_cublaslt_t* library,
                               const rabbet_matmul_shape_t* shape,
                               const cublasLtMatmulAlgo_t* algorithm,
                               rabbet_answer_sink_t sink) {
  rabbet_answer_t answer = {.tactic =
                                rabbet_matmul_hash(algorithm) |
                                (question->tf32 ? RABBET_MATMUL_TF32 : 0)};
  const rabbet_matmul_kept_t kept = rabbet_matmul_kept(
      rabbet_cuda(question->device), library, answer.tactic, shape, algorithm);
  answer.artifact =
      (rabbet_artifact_t){.key = rabbet_hash128(&kept, sizeof(kept)),
                          .name = "cuBLASLt algorithm",
                          .data = &kept,
                          .size = sizeof(kept)};
  rabbet_matmul_name(library, algorithm, answer.tactic_name,
                     sizeof(answer.tactic_name));
  return sink.add(sink.context, &answer);
}

static rabbet_status_t ask_inside(const rabbet_question_t* question,
                                  const rabbet_cublaslt_t* library,
                                  rabbet_answer_sink_t sink) {
  cublasLtMatmulHeuristicResult_t choices[RABBET_MATMUL_MAX_CHOICES];
  rabbet_matmul_types_t types = {RABBET_DTYPE_NONE, RABBET_DTYPE_NONE};
  rabbet_matmul_shape_t shape;
  rabbet_matmul_epilogue_t epilogue;
  rabbet_matmul_setup_t setup;
  int count = 0;
  RABBET_RETURN_IF_ERROR(rabbet_matmul_check_group(question->group, &types));
  RABBET_RETURN_IF_ERROR(rabbet_matmul_problem(question->group, question->dims,
                                               &shape, &epilogue));
  const rabbet_matmul_limits_t limits = rabbet_matmul_limits(
      rabbet_matmul_size(types.in), rabbet_matmul_size(types.out), true);
  rabbet_status_t status = rabbet_matmul_setup(library, &shape, &epilogue,
                                               types, question->tf32, &setup);
  if (rabbet_is_ok(status))
    status = rabbet_matmul_choices(&setup, &shape, &limits, question->wish,
                                   choices, &count);
  for (int i = 0; rabbet_is_ok(status) && i < count; ++i)
    status = ask_add(question, library, &shape, &choices[i].algo, sink);
  rabbet_matmul_setup_end(&setup);
  return status;
}

rabbet_status_t rabbet_matmul_ask(const rabbet_question_t* question,
                                  rabbet_answer_sink_t sink) {
  rabbet_cuda_device_t* device = rabbet_cuda(question->device);
  const rabbet_cublaslt_t* library = NULL;
  CUcontext before = NULL;
  RABBET_RETURN_IF_ERROR(rabbet_cublaslt_get(device, &library));
  RABBET_RETURN_IF_ERROR(rabbet_cuda_enter(device, &before));
  rabbet_status_t status = ask_inside(question, library, sink);
  rabbet_cuda_leave(device, before);
  if (rabbet_status_code(status) != RABBET_STATUS_UNSUPPORTED &&
      rabbet_status_code(status) != RABBET_STATUS_INCOMPATIBLE)
    return status;
  rabbet_status_ignore(status);
  return rabbet_ok();
}

// ---- Proposing -------------------------------------------------------------

typedef struct matmul_offer_t {
  const rabbet_propose_t* propose;
  rabbet_candidate_sink_t sink;
  const rabbet_dims_t* dims;
  rabbet_matmul_shape_t shape;
  rabbet_matmul_epilogue_t epilogue;
  rabbet_type_format_t* tensors;
} matmul_offer_t;

int32_t rabbet_matmul_wish(int level) {
  return level == 0   ? 1
         : level <= 2 ? 4
         : level <= 4 ? 8
                      : RABBET_MATMUL_MAX_CHOICES;
}

// The result may replace the residual if the product does not read it.
static int32_t matmul_in_place(const matmul_offer_t* offer) {
  const rabbet_group_t* group = offer->propose->group;
  int32_t residual = offer->epilogue.residual;
  const rabbet_group_node_t* node = &group->nodes[0];
  if (residual < 0 || group->values[residual].constant ||
      residual == node->inputs[0] || residual == node->inputs[1] ||
      residual == offer->epilogue.bias)
    return -1;
  return rabbet_group_input_of(group, residual);
}

static void matmul_tensors(const matmul_offer_t* offer, rabbet_dtype_t dtype,
                           bool turned) {
  const rabbet_group_t* group = offer->propose->group;
  rabbet_network_tensors(group, offer->tensors);
  if (rabbet_dtype_bits(dtype) == 8) return;
  bool pixels = rabbet_matmul_is_convolution(group, NULL);
  for (size_t i = 0; i < group->input_count + group->output_count; ++i) {
    if (rabbet_dtype_is_float(offer->tensors[i].dtype))
      offer->tensors[i].dtype = dtype;
    if (pixels &&
        (i >= group->input_count || group->inputs[i] != offer->epilogue.bias))
      offer->tensors[i].format = RABBET_FORMAT_HWC;
  }
  if (turned)
    offer->tensors[rabbet_group_input_of(group, group->nodes[0].inputs[1])]
        .format = RABBET_FORMAT_HWC;
}

static rabbet_status_t matmul_offer_type(const matmul_offer_t* offer,
                                         rabbet_dtype_t dtype, bool turned) {
  int32_t in_place = matmul_in_place(offer);
  const rabbet_candidate_t like = {.kernel = &rabbet_cuda_matmul,
                                   .tensors = offer->tensors,
                                   .in_place = in_place < 0 ? NULL : &in_place};
  const rabbet_asked_t asked = {
      .tf32 = dtype == RABBET_DTYPE_FLOAT && offer->propose->tf32,
      .wish = rabbet_matmul_wish(offer->propose->optimization_level)};
  if (rabbet_cublaslt_type(dtype) < 0) return rabbet_ok();
  matmul_tensors(offer, dtype, turned);
  return rabbet_offer_asked(offer->propose, offer->sink, &like, &asked);
}

// Tensor cores of compute capability 9.0 read TF32 factors only along k: other
// weights are offered transposed.
static rabbet_status_t matmul_offer_turned(const matmul_offer_t* offer) {
  const rabbet_group_t* group = offer->propose->group;
  const rabbet_group_node_t* node = &group->nodes[0];
  rabbet_matmul_shape_t shape = offer->shape;
  if (!offer->propose->tf32 || !group->values[node->inputs[1]].constant ||
      offer->shape.b_row == 1 || node->inputs[0] == node->inputs[1] ||
      !rabbet_matmul_turn_weights(node, offer->dims, &shape))
    return rabbet_ok();
  return matmul_offer_type(offer, RABBET_DTYPE_FLOAT, true);
}

static rabbet_status_t matmul_offer(matmul_offer_t* offer) {
  const rabbet_group_t* group = offer->propose->group;
  const rabbet_group_node_t* node = &group->nodes[0];
  rabbet_dtype_t types[4];
  int count = rabbet_compute_types(offer->propose,
                                   group->values[node->inputs[0]].dtype, types);
  if (rabbet_dtype_bits(types[0]) == 8) count = 1;
  if (!rabbet_matmul_epilogue(group, offer->dims, &offer->epilogue) ||
      !matmul_takes_types(group, &offer->epilogue))
    return rabbet_ok();
  if (rabbet_matmul_is_convolution(group, NULL) &&
      !rabbet_matmul_is_convolution(group, offer->dims))
    return rabbet_ok();
  RABBET_RETURN_IF_ERROR(rabbet_matmul_shape(node, offer->dims, &offer->shape));
  if (rabbet_group_is_empty(group)) return rabbet_ok();
  const rabbet_cublaslt_t* library = NULL;
  RABBET_RETURN_IF_ERROR(
      rabbet_cublaslt_get(rabbet_cuda(offer->propose->device), &library));
  for (int i = 0; i < count; ++i)
    RABBET_RETURN_IF_ERROR(matmul_offer_type(offer, types[i], false));
  return types[0] == RABBET_DTYPE_FLOAT ? matmul_offer_turned(offer)
                                        : rabbet_ok();
}

rabbet_status_t rabbet_matmul_propose(const rabbet_propose_t* propose,
                                      rabbet_candidate_sink_t sink) {
  const rabbet_group_t* group = propose->group;
  bool fits = false;
  if (!matmul_matches(group)) return rabbet_ok();
  RABBET_RETURN_IF_ERROR(rabbet_matmul_has_epilogue(propose, &fits));
  if (!fits) return rabbet_ok();
  rabbet_dims_t* dims = NULL;
  matmul_offer_t offer = {.propose = propose, .sink = sink};
  rabbet_status_t status =
      rabbet_group_opt_dims(group, propose->allocator, &dims);
  offer.dims = dims;
  if (rabbet_is_ok(status))
    status = rabbet_allocate(
        propose->allocator,
        sizeof(*offer.tensors) * (group->input_count + group->output_count),
        (void**)&offer.tensors);
  if (rabbet_is_ok(status)) status = matmul_offer(&offer);
  rabbet_free(propose->allocator, offer.tensors);
  rabbet_free(propose->allocator, dims);
  return status;
}
