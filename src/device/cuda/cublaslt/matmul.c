// Matrix products with factor, bias, residual and ReLU or GELU, by cuBLASLt,
// and convolutions that are such products: 1x1 windows with channels last.
//
// The tactics are the first choices of the library's heuristics, identified by
// their properties, so that a tactic means the same in the next build. The plan
// keeps the chosen one. Bound by the tensor cores if m, n and k are large, by
// reading b if m is small.
#include "device/cuda/cublaslt/matmul_kernel.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "base/math.h"
#include "core/view.h"
#include "device/device.h"

typedef struct matmul_kernel_t {
  rabbet_node_kernel_t node;
  rabbet_cuda_device_t* device;
  const rabbet_cublaslt_t* library;
  int32_t tactic;
  bool exact;  // use no other algorithm than the tactic's
  rabbet_matmul_types_t types;
  pthread_mutex_t lock;       // guards `kept`
  rabbet_matmul_kept_t kept;  // magic 0: nothing kept
} matmul_kernel_t;

typedef struct cuda_matmul_state_t {
  rabbet_matmul_setup_t setup;
  rabbet_matmul_shape_t shape;
  cublasLtMatmulAlgo_t algorithm;
  cublasLtMatmulAlgo_t loose;  // for addresses aligned only to elements
  bool has_loose;              // false until the first such address
  size_t workspace;
  size_t in_size, out_size;  // bytes of an element
  bool sums_whole;           // INT8 to INT32
  // K = 0: the product is all zeros. cuBLASLt rejects it, so it is computed
  // with k = 1 and factors of zeros: `zeros` bytes at offset `zeros_at` of the
  // workspace, after the library's part.
  size_t zeros, zeros_at;
  float alpha, beta;
  const void* bias_address;                       // in the descriptor
  int32_t a_index, b_index, c_index, bias_index;  // boundary inputs; -1: none
} cuda_matmul_state_t;

// ---- Creating --------------------------------------------------------------

// The algorithm that the plan keeps for this tactic, if it was chosen for this
// library and GPU.
static void matmul_find_kept(matmul_kernel_t* kernel,
                             const rabbet_kernel_spec_t* spec) {
  for (size_t i = 0; i < spec->artifact_count; ++i) {
    rabbet_matmul_kept_t kept;
    if (spec->artifacts[i].size != sizeof(kept)) continue;
    memcpy(&kept, spec->artifacts[i].data, sizeof(kept));
    if (kept.magic == RABBET_MATMUL_KEPT && kept.tactic == spec->tactic &&
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
  RABBET_RETURN_IF_ERROR(rabbet_matmul_check_group(spec->group, &types));
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
  // Algorithms other than the chosen one need less alignment, except for 8
  // bits.
  if (rabbet_dtype_bits(types.in) <= 8)
    kernel->node.base.alignment = RABBET_MATMUL_ALIGNMENT;
  pthread_mutex_init(&kernel->lock, NULL);
  matmul_find_kept(kernel, spec);
  *out_kernel = &kernel->node.base;
  return rabbet_ok();
}

static rabbet_status_t matmul_artifacts(rabbet_kernel_t* base,
                                        rabbet_artifact_sink_t sink) {
  matmul_kernel_t* kernel = (matmul_kernel_t*)base;
  pthread_mutex_lock(&kernel->lock);
  rabbet_matmul_kept_t kept = kernel->kept;
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

// Whether an algorithm that was chosen for other shapes is used: up to twice or
// half as much work.
static bool matmul_is_near(const rabbet_matmul_kept_t* kept,
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
    kernel->kept = rabbet_matmul_kept(kernel->device, kernel->library,
                                      kernel->tactic, shape, algorithm);
  pthread_mutex_unlock(&kernel->lock);
}

static bool matmul_use_kept(matmul_kernel_t* kernel,
                            cuda_matmul_state_t* state) {
  pthread_mutex_lock(&kernel->lock);
  rabbet_matmul_kept_t kept = kernel->kept;
  pthread_mutex_unlock(&kernel->lock);
  if (kept.magic == 0 || !matmul_is_near(&kept, &state->shape) ||
      !rabbet_matmul_admits(&state->setup, &kept.algorithm, &state->workspace))
    return false;
  state->algorithm = kept.algorithm;
  return true;
}

// The tactic's algorithm if the library has it for these shapes, otherwise the
// library's first choice.
static rabbet_status_t matmul_choose(matmul_kernel_t* kernel,
                                     cuda_matmul_state_t* state) {
  cublasLtMatmulHeuristicResult_t choices[RABBET_MATMUL_MAX_CHOICES];
  int count = 0, chosen = 0;
  if (matmul_use_kept(kernel, state)) return rabbet_ok();
  if (kernel->exact)
    return RABBET_STATUS(RABBET_STATUS_UNSUPPORTED,
                         "cuBLASLt does not take the algorithm that it named "
                         "for the product '%s'",
                         kernel->node.node->name);
  const rabbet_matmul_limits_t limits =
      rabbet_matmul_limits(state->in_size, state->out_size, false);
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
    if (rabbet_matmul_hash(&choices[i].algo) ==
        (kernel->tactic & ~RABBET_MATMUL_TF32))
      chosen = i;
  state->algorithm = choices[chosen].algo;
  state->workspace = choices[chosen].workspaceSize;
  if (rabbet_matmul_hash(&state->algorithm) ==
      (kernel->tactic & ~RABBET_MATMUL_TF32))
    matmul_keep(kernel, &state->shape, &state->algorithm);
  return rabbet_ok();
}

static int32_t matmul_index(const rabbet_group_t* group, int32_t value) {
  return value < 0 ? -1 : rabbet_group_input_of(group, value);
}

static void matmul_of_nothing(cuda_matmul_state_t* state) {
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
                                   cuda_matmul_state_t* state) {
  const rabbet_group_t* group = kernel->node.group;
  const rabbet_group_node_t* node = kernel->node.node;
  rabbet_matmul_epilogue_t e;
  RABBET_RETURN_IF_ERROR(
      rabbet_matmul_problem(group, shapes->dims, &state->shape, &e));
  state->in_size = rabbet_matmul_size(kernel->types.in);
  state->out_size = rabbet_matmul_size(kernel->types.out);
  state->sums_whole = kernel->types.out == RABBET_DTYPE_INT32;
  if (state->shape.k == 0) matmul_of_nothing(state);
  state->alpha = e.alpha;
  state->beta = e.residual >= 0 ? 1 : 0;
  state->a_index = matmul_index(group, node->inputs[0]);
  state->b_index = matmul_index(group, node->inputs[1]);
  state->c_index = matmul_index(group, e.residual);
  state->bias_index = matmul_index(group, e.bias);
  RABBET_RETURN_IF_ERROR(rabbet_matmul_setup(
      kernel->library, &state->shape, &e, kernel->types,
      (kernel->tactic & RABBET_MATMUL_TF32) != 0, &state->setup));
  return matmul_choose(kernel, state);
}

static void matmul_destroy_state(rabbet_kernel_t* base,
                                 rabbet_kernel_state_t* prepared) {
  cuda_matmul_state_t* state = (cuda_matmul_state_t*)prepared;
  if (!state) return;
  rabbet_matmul_setup_end(&state->setup);
  rabbet_free(((matmul_kernel_t*)base)->node.allocator, state);
}

static rabbet_status_t matmul_prepare(rabbet_kernel_t* base,
                                      const rabbet_kernel_shapes_t* shapes,
                                      rabbet_kernel_state_t** out_state,
                                      size_t* out_workspace) {
  matmul_kernel_t* kernel = (matmul_kernel_t*)base;
  cuda_matmul_state_t* state = NULL;
  CUcontext before = NULL;
  *out_state = NULL;
  RABBET_RETURN_IF_ERROR(
      rabbet_node_state_allocate(base, sizeof(*state), (void**)&state));
  state->setup.library = kernel->library;
  rabbet_status_t status = rabbet_cuda_enter(kernel->device, &before);
  if (rabbet_is_ok(status)) {
    status = matmul_fill(kernel, shapes, state);
    rabbet_cuda_leave(kernel->device, before);
  }
  if (!rabbet_is_ok(status)) {
    matmul_destroy_state(base, (rabbet_kernel_state_t*)state);
    return status;
  }
  if (state->zeros > 0)
    state->zeros_at = rabbet_align_up(state->workspace, 256);
  *out_workspace =
      state->zeros > 0 ? state->zeros_at + state->zeros : state->workspace;
  *out_state = (rabbet_kernel_state_t*)state;
  return rabbet_ok();
}

// ---- Running ---------------------------------------------------------------

static rabbet_status_t matmul_bind_bias(cuda_matmul_state_t* state,
                                        const rabbet_kernel_call_t* call) {
  if (state->bias_index < 0 ||
      call->inputs[state->bias_index] == state->bias_address)
    return rabbet_ok();
  state->bias_address = call->inputs[state->bias_index];
  return rabbet_matmul_set_bias(&state->setup, state->bias_address);
}

// The algorithm was chosen for aligned addresses, as the engine's own are. A
// caller's addresses may be less aligned: then the first algorithm that allows
// them, and the existing workspace, is used.
static rabbet_status_t matmul_loosen(const matmul_kernel_t* kernel,
                                     cuda_matmul_state_t* state) {
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

static bool matmul_is_aligned(const cuda_matmul_state_t* state,
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
                                  const cuda_matmul_state_t* state,
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
  // If no tensor is added, c may be the result only if it has its type.
  const char* c = setup->c == setup->y ? y : NULL;
  if (state->c_index >= 0)
    c = (const char*)call->inputs[state->c_index] + at->y * out;
  rabbet_cuda_launch_other(call->stream);
  return RABBET_CUBLASLT(library, cublasLtMatmul,
                         (library->handle, setup->desc, alpha, b, setup->b, a,
                          setup->a, beta, c, setup->c, y, setup->y, algorithm,
                          call->workspace, state->workspace, call->stream));
}

static rabbet_status_t matmul_enqueue(rabbet_kernel_t* base,
                                      rabbet_kernel_state_t* prepared,
                                      const rabbet_kernel_call_t* call) {
  cuda_matmul_state_t* state = (cuda_matmul_state_t*)prepared;
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
    .propose = rabbet_matmul_propose,
    .create = matmul_create,
    .destroy = matmul_destroy,
    .prepare = matmul_prepare,
    .destroy_state = matmul_destroy_state,
    .enqueue = matmul_enqueue,
    .artifacts = matmul_artifacts,
    .library_version = rabbet_cublaslt_version,
    .tactic_sources =
        1u << RABBET_TACTIC_CUBLAS | 1u << RABBET_TACTIC_CUBLAS_LT,
    .ask = rabbet_matmul_ask,
};
