// Matrix products with factor, bias, residual and ReLU or GELU, by cuBLASLt,
// and convolutions that are such products: those of single pixels, channels
// last.
//
// The first choices of the library's heuristics are tactics, named by what they
// are, so that a tactic means the same in the next build; the plan keeps the
// one chosen. Bounded by the tensor cores where m, n and k are large, by the
// reading of b where m is small.
#include "device/cuda/matmul_algorithms.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "base/math.h"
#include "core/view.h"
#include "device/common/ask.h"
#include "device/device.h"

// A tactic is an algorithm's hash and this.
#define TACTIC_TF32 (1 << 29)

// What a plan keeps.
#define MATMUL_MAGIC 0x314d4c52u  // "RLM1"
typedef struct matmul_kept_t {
  uint32_t magic;
  int32_t tactic;
  uint64_t version;  // of the library
  int32_t major, minor;
  int64_t m, n, k, batch;  // for which the algorithm was chosen
  cublasLtMatmulAlgo_t algorithm;
} matmul_kept_t;

typedef struct matmul_kernel_t {
  rabbet_node_kernel_t node;
  rabbet_cuda_device_t* device;
  const rabbet_cublaslt_t* library;
  int32_t tactic;
  bool exact;  // no other algorithm than the tactic's
  rabbet_matmul_types_t types;
  pthread_mutex_t lock;  // guards `kept`
  matmul_kept_t kept;    // magic 0: nothing
} matmul_kernel_t;

struct rabbet_kernel_state_t {
  rabbet_matmul_setup_t setup;
  rabbet_matmul_shape_t shape;
  cublasLtMatmulAlgo_t algorithm;
  cublasLtMatmulAlgo_t loose;  // for addresses aligned to elements alone
  bool has_loose;              // asked for with the first such addresses
  size_t workspace;
  size_t in_size, out_size;  // bytes of an element
  bool sums_whole;           // INT8 to INT32
  // Sums of nothing, which the library does not take, are of one zero each: so
  // many bytes of zeros are behind the library's workspace.
  size_t zeros, zeros_at;
  float alpha, beta;
  const void* bias_address;                       // that the descriptor holds
  int32_t a_index, b_index, c_index, bias_index;  // boundary inputs; -1: none
};

static size_t matmul_size(rabbet_dtype_t dtype) {
  return (size_t)rabbet_dtype_bits(dtype) / 8;
}

static rabbet_matmul_limits_t matmul_limits(size_t in_size, size_t out_size,
                                            bool rounds_once) {
  return (rabbet_matmul_limits_t){RABBET_MATMUL_WORKSPACE,
                                  RABBET_MATMUL_ALIGNMENT, in_size, out_size,
                                  rounds_once};
}

// ---- The group -------------------------------------------------------------

// Factors of 8 bits have sums of 32 and nothing after them, or, of FP8, results
// of any floating type: parts of quantized products (matmul_quantized.c), which
// no network has.
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

// What is added to a product of FP8 has the type of a result of 16 bits; other
// results have nothing added.
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

// ---- Proposing -------------------------------------------------------------

typedef struct matmul_offer_t {
  const rabbet_propose_t* propose;
  rabbet_candidate_sink_t sink;
  const rabbet_dims_t* dims;
  rabbet_matmul_shape_t shape;
  rabbet_matmul_epilogue_t epilogue;
  rabbet_type_format_t* tensors;
} matmul_offer_t;

static int matmul_wish(int level) {
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
      .wish = matmul_wish(offer->propose->optimization_level)};
  if (rabbet_cublaslt_type(dtype) < 0) return rabbet_ok();
  matmul_tensors(offer, dtype, turned);
  return rabbet_offer_asked(offer->propose, offer->sink, &like, &asked);
}

// Tensor cores of 9.0 take factors of TF32 along k alone: weights that lie the
// other way are offered turned round.
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

static rabbet_status_t matmul_propose(const rabbet_propose_t* propose,
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

// ---- The kernel ------------------------------------------------------------

static rabbet_status_t matmul_check_group(const rabbet_group_t* group,
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
    if (scaled && i >= 2) continue;  // matmul_takes_types tells
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

// Whether a convolution without padding has all of its tensors channels last.
static bool matmul_lies_by_pixels(const rabbet_group_t* group,
                                  const rabbet_dims_t* dims,
                                  const rabbet_matmul_epilogue_t* e) {
  bool fits = rabbet_matmul_is_convolution(group, dims);
  for (size_t i = 0; fits && i < group->input_count; ++i)
    fits = (group->values[group->inputs[i]].format == RABBET_FORMAT_HWC) ==
           (group->inputs[i] != e->bias);
  return fits;
}

// What the library is to do for a group with these types and formats.
static rabbet_status_t matmul_problem(const rabbet_group_t* group,
                                      const rabbet_dims_t* dims,
                                      rabbet_matmul_shape_t* out_shape,
                                      rabbet_matmul_epilogue_t* out_epilogue) {
  const rabbet_group_node_t* node = &group->nodes[0];
  bool pixels = rabbet_matmul_is_convolution(group, NULL);
  if (!rabbet_matmul_epilogue(group, dims, out_epilogue) ||
      !matmul_takes_types(group, out_epilogue) ||
      (pixels && !matmul_lies_by_pixels(group, dims, out_epilogue)))
    return RABBET_STATUS(RABBET_STATUS_UNSUPPORTED,
                         "cuBLASLt cannot do the product '%s' and what follows "
                         "it at these shapes",
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

static matmul_kept_t matmul_kept(const rabbet_cuda_device_t* device,
                                 const rabbet_cublaslt_t* library,
                                 int32_t tactic,
                                 const rabbet_matmul_shape_t* shape,
                                 const cublasLtMatmulAlgo_t* algorithm) {
  return (matmul_kept_t){.magic = MATMUL_MAGIC,
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
  rabbet_answer_t answer = {.tactic = rabbet_matmul_hash(algorithm) |
                                      (question->tf32 ? TACTIC_TF32 : 0)};
  const matmul_kept_t kept = matmul_kept(rabbet_cuda(question->device), library,
                                         answer.tactic, shape, algorithm);
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
  RABBET_RETURN_IF_ERROR(matmul_check_group(question->group, &types));
  RABBET_RETURN_IF_ERROR(
      matmul_problem(question->group, question->dims, &shape, &epilogue));
  const rabbet_matmul_limits_t limits =
      matmul_limits(matmul_size(types.in), matmul_size(types.out), true);
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

static rabbet_status_t matmul_ask(const rabbet_question_t* question,
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

// ---- Creating --------------------------------------------------------------

// The algorithm that the plan keeps for this tactic, if this library and GPU
// are those that it was chosen for.
static void matmul_find_kept(matmul_kernel_t* kernel,
                             const rabbet_kernel_spec_t* spec) {
  for (size_t i = 0; i < spec->artifact_count; ++i) {
    matmul_kept_t kept;
    if (spec->artifacts[i].size != sizeof(kept)) continue;
    memcpy(&kept, spec->artifacts[i].data, sizeof(kept));
    if (kept.magic == MATMUL_MAGIC && kept.tactic == spec->tactic &&
        kept.version == kernel->library->version &&
        kept.major == kernel->device->major &&
        kept.minor == kernel->device->minor)
      kernel->kept = kept;
  }
}

static void matmul_destroy(rabbet_kernel_t* base) {
  if (!base) return;
  pthread_mutex_destroy(&((matmul_kernel_t*)base)->lock);
  rabbet_node_kernel_destroy(base);
}

static rabbet_status_t matmul_create(const rabbet_kernel_spec_t* spec,
                                     rabbet_kernel_t** out_kernel) {
  rabbet_matmul_types_t types = {RABBET_DTYPE_NONE, RABBET_DTYPE_NONE};
  const rabbet_cublaslt_t* library = NULL;
  matmul_kernel_t* kernel = NULL;
  *out_kernel = NULL;
  RABBET_RETURN_IF_ERROR(matmul_check_group(spec->group, &types));
  RABBET_RETURN_IF_ERROR(
      rabbet_cublaslt_get(rabbet_cuda(spec->device), &library));
  RABBET_RETURN_IF_ERROR(
      rabbet_allocate(spec->allocator, sizeof(*kernel), (void**)&kernel));
  kernel->node.base.kernel_class = &rabbet_cuda_matmul;
  kernel->node.allocator = spec->allocator;
  kernel->node.group = spec->group;
  kernel->node.node = &spec->group->nodes[0];
  kernel->device = rabbet_cuda(spec->device);
  kernel->library = library;
  kernel->tactic = spec->tactic;
  kernel->exact = spec->exact;
  kernel->types = types;
  pthread_mutex_init(&kernel->lock, NULL);
  matmul_find_kept(kernel, spec);
  *out_kernel = &kernel->node.base;
  return rabbet_ok();
}

static rabbet_status_t matmul_artifacts(rabbet_kernel_t* base,
                                        rabbet_artifact_sink_t sink) {
  matmul_kernel_t* kernel = (matmul_kernel_t*)base;
  pthread_mutex_lock(&kernel->lock);
  matmul_kept_t kept = kernel->kept;
  pthread_mutex_unlock(&kernel->lock);
  if (kept.magic == 0) return rabbet_ok();
  const rabbet_artifact_t artifact = {
      .key = rabbet_hash128(&kept, sizeof(kept)),
      .name = "cuBLASLt algorithm",
      .data = &kept,
      .size = sizeof(kept)};
  return sink.add(sink.context, &artifact);
}

// ---- Preparing -------------------------------------------------------------

// Twice as much or half as much work is done by the same algorithm.
static bool matmul_is_near(const matmul_kept_t* kept,
                           const rabbet_matmul_shape_t* shape) {
  double work = (double)shape->m * (double)shape->n * (double)shape->k *
                (double)shape->batch.size;
  double chosen =
      (double)kept->m * (double)kept->n * (double)kept->k * (double)kept->batch;
  return kept->n == shape->n && kept->k == shape->k && work <= 2 * chosen &&
         chosen <= 2 * work;
}

static void matmul_keep(matmul_kernel_t* kernel,
                        const rabbet_matmul_shape_t* shape,
                        const cublasLtMatmulAlgo_t* algorithm) {
  pthread_mutex_lock(&kernel->lock);
  if (kernel->kept.magic == 0)
    kernel->kept = matmul_kept(kernel->device, kernel->library, kernel->tactic,
                               shape, algorithm);
  pthread_mutex_unlock(&kernel->lock);
}

static bool matmul_use_kept(matmul_kernel_t* kernel,
                            rabbet_kernel_state_t* state) {
  pthread_mutex_lock(&kernel->lock);
  matmul_kept_t kept = kernel->kept;
  pthread_mutex_unlock(&kernel->lock);
  if (kept.magic == 0 || !matmul_is_near(&kept, &state->shape) ||
      !rabbet_matmul_admits(&state->setup, &kept.algorithm, &state->workspace))
    return false;
  state->algorithm = kept.algorithm;
  return true;
}

// The tactic's algorithm where these shapes have it, else the library's first
// choice.
static rabbet_status_t matmul_choose(matmul_kernel_t* kernel,
                                     rabbet_kernel_state_t* state) {
  cublasLtMatmulHeuristicResult_t choices[RABBET_MATMUL_MAX_CHOICES];
  int count = 0, chosen = 0;
  if (matmul_use_kept(kernel, state)) return rabbet_ok();
  if (kernel->exact)
    return RABBET_STATUS(RABBET_STATUS_UNSUPPORTED,
                         "cuBLASLt does not take the algorithm that it named "
                         "for the product '%s'",
                         kernel->node.node->name);
  const rabbet_matmul_limits_t limits =
      matmul_limits(state->in_size, state->out_size, false);
  RABBET_RETURN_IF_ERROR(
      rabbet_matmul_choices(&state->setup, &state->shape, &limits,
                            RABBET_MATMUL_MAX_CHOICES, choices, &count));
  if (count == 0)
    return RABBET_STATUS(
        RABBET_STATUS_UNSUPPORTED,
        "cuBLASLt has no algorithm for the product '%s' with m %lld, n %lld, k "
        "%lld, batch %lld",
        kernel->node.node->name, (long long)state->shape.m,
        (long long)state->shape.n, (long long)state->shape.k,
        (long long)state->shape.batch.size);
  for (int i = 0; i < count; ++i)
    if (rabbet_matmul_hash(&choices[i].algo) == (kernel->tactic & ~TACTIC_TF32))
      chosen = i;
  state->algorithm = choices[chosen].algo;
  state->workspace = choices[chosen].workspaceSize;
  if (rabbet_matmul_hash(&state->algorithm) == (kernel->tactic & ~TACTIC_TF32))
    matmul_keep(kernel, &state->shape, &state->algorithm);
  return rabbet_ok();
}

static int32_t matmul_index(const rabbet_group_t* group, int32_t value) {
  return value < 0 ? -1 : rabbet_group_input_of(group, value);
}

static void matmul_of_nothing(rabbet_kernel_state_t* state) {
  rabbet_matmul_shape_t* s = &state->shape;
  s->k = s->a_row = s->a_column = s->b_column = 1;
  s->b_row = s->n;
  s->batch.a = s->batch.b = 0;
  for (int i = 0; i < s->loop_count; ++i)
    s->loops[i].a = s->loops[i].b = 0;
  state->zeros = (size_t)(s->m > s->n ? s->m : s->n) * state->in_size;
}

static rabbet_status_t matmul_fill(matmul_kernel_t* kernel,
                                   const rabbet_kernel_shapes_t* shapes,
                                   rabbet_kernel_state_t* state) {
  const rabbet_group_t* group = kernel->node.group;
  const rabbet_group_node_t* node = kernel->node.node;
  rabbet_matmul_epilogue_t e;
  RABBET_RETURN_IF_ERROR(
      matmul_problem(group, shapes->dims, &state->shape, &e));
  state->in_size = matmul_size(kernel->types.in);
  state->out_size = matmul_size(kernel->types.out);
  state->sums_whole = kernel->types.out == RABBET_DTYPE_INT32;
  if (state->shape.k == 0) matmul_of_nothing(state);
  state->alpha = e.alpha;
  state->beta = e.residual >= 0 ? 1 : 0;
  state->a_index = matmul_index(group, node->inputs[0]);
  state->b_index = matmul_index(group, node->inputs[1]);
  state->c_index = matmul_index(group, e.residual);
  state->bias_index = matmul_index(group, e.bias);
  RABBET_RETURN_IF_ERROR(
      rabbet_matmul_setup(kernel->library, &state->shape, &e, kernel->types,
                          (kernel->tactic & TACTIC_TF32) != 0, &state->setup));
  return matmul_choose(kernel, state);
}

static void matmul_destroy_state(rabbet_kernel_t* base,
                                 rabbet_kernel_state_t* state) {
  if (!state) return;
  rabbet_matmul_setup_end(&state->setup);
  rabbet_free(((matmul_kernel_t*)base)->node.allocator, state);
}

static rabbet_status_t matmul_prepare(rabbet_kernel_t* base,
                                      const rabbet_kernel_shapes_t* shapes,
                                      rabbet_kernel_state_t** out_state,
                                      size_t* out_workspace) {
  matmul_kernel_t* kernel = (matmul_kernel_t*)base;
  rabbet_kernel_state_t* state = NULL;
  CUcontext before = NULL;
  *out_state = NULL;
  RABBET_RETURN_IF_ERROR(
      rabbet_node_state_allocate(base, sizeof(*state), &state));
  state->setup.library = kernel->library;
  rabbet_status_t status = rabbet_cuda_enter(kernel->device, &before);
  if (rabbet_is_ok(status)) {
    status = matmul_fill(kernel, shapes, state);
    rabbet_cuda_leave(kernel->device, before);
  }
  if (!rabbet_is_ok(status)) {
    matmul_destroy_state(base, state);
    return status;
  }
  if (state->zeros > 0)
    state->zeros_at = rabbet_align_up(state->workspace, 256);
  *out_workspace =
      state->zeros > 0 ? state->zeros_at + state->zeros : state->workspace;
  *out_state = state;
  return rabbet_ok();
}

// ---- Running ---------------------------------------------------------------

static rabbet_status_t matmul_bind_bias(rabbet_kernel_state_t* state,
                                        const rabbet_kernel_call_t* call) {
  if (state->bias_index < 0 ||
      call->inputs[state->bias_index] == state->bias_address)
    return rabbet_ok();
  state->bias_address = call->inputs[state->bias_index];
  return rabbet_matmul_set_bias(&state->setup, state->bias_address);
}

// The algorithm was chosen for aligned addresses, as the engine's own are. With
// others, which a caller may give, the first that can do with them is taken; it
// has the workspace that there is.
static rabbet_status_t matmul_loosen(const matmul_kernel_t* kernel,
                                     rabbet_kernel_state_t* state) {
  const rabbet_matmul_limits_t limits = {
      state->workspace, (uint32_t)state->in_size, state->in_size,
      state->out_size, false};
  cublasLtMatmulHeuristicResult_t choice;
  int count = 0;
  if (state->has_loose) return rabbet_ok();
  RABBET_RETURN_IF_ERROR(rabbet_matmul_choices(&state->setup, &state->shape,
                                               &limits, 1, &choice, &count));
  if (count == 0)
    return RABBET_STATUS(RABBET_STATUS_INVALID_ARGUMENT,
                         "product '%s': a tensor's address is not a multiple "
                         "of %d, and cuBLASLt has no algorithm for that",
                         kernel->node.node->name, RABBET_MATMUL_ALIGNMENT);
  state->loose = choice.algo;
  state->has_loose = true;
  return rabbet_ok();
}

static bool matmul_is_aligned(const rabbet_kernel_state_t* state,
                              const rabbet_kernel_call_t* call) {
  uintptr_t bits = (uintptr_t)call->inputs[state->a_index] |
                   (uintptr_t)call->inputs[state->b_index] |
                   (uintptr_t)call->outputs[0];
  if (state->c_index >= 0) bits |= (uintptr_t)call->inputs[state->c_index];
  if (state->bias_index >= 0)
    bits |= (uintptr_t)call->inputs[state->bias_index];
  return (bits & (RABBET_MATMUL_ALIGNMENT - 1)) == 0;
}

static rabbet_status_t matmul_run(const matmul_kernel_t* kernel,
                                  const rabbet_kernel_state_t* state,
                                  const rabbet_kernel_call_t* call,
                                  const cublasLtMatmulAlgo_t* algorithm,
                                  const rabbet_matmul_axis_t* at) {
  const rabbet_matmul_setup_t* setup = &state->setup;
  const rabbet_cublaslt_t* library = kernel->library;
  static const int32_t one = 1, zero = 0;
  const void* alpha = state->sums_whole ? (const void*)&one : &state->alpha;
  const void* beta = state->sums_whole ? (const void*)&zero : &state->beta;
  int64_t in = (int64_t)state->in_size, out = (int64_t)state->out_size;
  const char* nothing = (const char*)call->workspace + state->zeros_at;
  const char *a = nothing, *b = nothing;
  if (state->zeros == 0) {
    a = (const char*)call->inputs[state->a_index] + at->a * in;
    b = (const char*)call->inputs[state->b_index] + at->b * in;
  }
  char* y = (char*)call->outputs[0] + at->y * out;
  // Where nothing is added, c may be the result only if it is of its type.
  const char* c = setup->c == setup->y ? y : NULL;
  if (state->c_index >= 0)
    c = (const char*)call->inputs[state->c_index] + at->y * out;
  rabbet_cuda_launch_other();
  return RABBET_CUBLASLT(library, cublasLtMatmul,
                         (library->handle, setup->desc, alpha, b, setup->b, a,
                          setup->a, beta, c, setup->c, y, setup->y, algorithm,
                          call->workspace, state->workspace, call->stream));
}

static rabbet_status_t matmul_enqueue(rabbet_kernel_t* base,
                                      rabbet_kernel_state_t* state,
                                      const rabbet_kernel_call_t* call) {
  const matmul_kernel_t* kernel = (const matmul_kernel_t*)base;
  const rabbet_matmul_shape_t* shape = &state->shape;
  int64_t turns = rabbet_matmul_turns(shape);
  bool aligned = matmul_is_aligned(state, call);
  rabbet_device_t* device = &kernel->device->base;
  RABBET_RETURN_IF_ERROR(matmul_bind_bias(state, call));
  if (state->zeros > 0)
    RABBET_RETURN_IF_ERROR(
        device->vtable->fill(device, (char*)call->workspace + state->zeros_at,
                             0, state->zeros, call->stream));
  if (!aligned) RABBET_RETURN_IF_ERROR(matmul_loosen(kernel, state));
  const cublasLtMatmulAlgo_t* algorithm =
      aligned ? &state->algorithm : &state->loose;
  for (int64_t turn = 0; turn < turns; ++turn) {
    rabbet_matmul_axis_t at = rabbet_matmul_turn(shape, turn);
    RABBET_RETURN_IF_ERROR(matmul_run(kernel, state, call, algorithm, &at));
  }
  return rabbet_ok();
}

const rabbet_kernel_class_t rabbet_cuda_matmul = {
    .struct_size = sizeof(rabbet_kernel_class_t),
    .name = "cuda.matmul",
    .version = 3,
    .propose = matmul_propose,
    .create = matmul_create,
    .destroy = matmul_destroy,
    .prepare = matmul_prepare,
    .destroy_state = matmul_destroy_state,
    .enqueue = matmul_enqueue,
    .artifacts = matmul_artifacts,
    .library_version = rabbet_cublaslt_version,
    .tactic_sources =
        1u << RABBET_TACTIC_CUBLAS | 1u << RABBET_TACTIC_CUBLAS_LT,
    .ask = matmul_ask,
};
