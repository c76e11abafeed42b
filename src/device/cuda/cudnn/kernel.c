#include "device/cuda/cudnn/internal.h"

#include <pthread.h>
#include <stddef.h>
#include <string.h>

#include "base/store.h"
#include "core/view.h"

enum { SEARCH_LIMIT = 100 };  // the most engines to try

typedef struct cudnn_kernel_t {
  rabbet_node_kernel_t node;
  rabbet_cuda_device_t* device;
  rabbet_cudnn_t* library;
  rabbet_cudnn_describe_fn_t describe;
  int32_t tactic;
  rabbet_dtype_t dtype;
  bool exact;  // use no other engine than the tactic's
  bool has_engine;
  rabbet_cudnn_engine_t engine;
  pthread_mutex_t lock;  // guards the next two, which are set once
  uint8_t* kept;         // header and text, or NULL
  size_t kept_size;
} cudnn_kernel_t;

typedef struct cudnn_state_t {
  rabbet_cudnn_graph_t graph;  // the plan refers to it
  cudnnBackendDescriptor_t plan;
  size_t workspace;
  int count;
  int64_t ids[RABBET_CUDNN_BINDINGS];
  // The variant pack holds the addresses of the last run; NULL: no run yet.
  cudnnBackendDescriptor_t pack;
  void* addresses[RABBET_CUDNN_BINDINGS];
  void* workspace_address;
} cudnn_state_t;

// ---- The kernel ------------------------------------------------------------

// Checks types: all tensors have one floating type (but for the sizes of
// movements), or some are INT8, and the class decides which.
static rabbet_status_t kernel_check(const rabbet_group_t* group,
                                    rabbet_dtype_t* out_dtype) {
  bool fits = group->node_count > 0 && group->output_count == 1;
  rabbet_dtype_t dtype =
      fits ? group->values[group->outputs[0]].dtype : RABBET_DTYPE_NONE;
  if (fits && rabbet_cudnn_has_bytes(group)) {
    *out_dtype = RABBET_DTYPE_INT8;
    return rabbet_ok();
  }
  fits = fits && rabbet_cudnn_type(dtype) >= 0;
  for (size_t i = 0; fits && i < group->input_count; ++i) {
    rabbet_dtype_t other = group->values[group->inputs[i]].dtype;
    fits = other == dtype || !rabbet_dtype_is_float(other);
  }
  *out_dtype = dtype;
  if (fits) return rabbet_ok();
  return RABBET_STATUS(RABBET_STATUS_INCOMPATIBLE,
                       "kernels by cuDNN have one output and tensors of one "
                       "floating type; this group does not");
}

static rabbet_status_t kernel_take(cudnn_kernel_t* kernel, const void* data,
                                   size_t size) {
  RABBET_RETURN_IF_ERROR(
      rabbet_allocate(kernel->node.allocator, size, (void**)&kernel->kept));
  memcpy(kernel->kept, data, size);
  kernel->kept_size = size;
  return rabbet_ok();
}

static void kernel_take_engine(cudnn_kernel_t* kernel,
                               const rabbet_artifact_t* artifact) {
  rabbet_cudnn_kept_engine_t kept;
  if (artifact->size > sizeof(kept) ||
      artifact->size < rabbet_cudnn_kept_engine_size(0))
    return;
  memcpy(&kept, artifact->data, artifact->size);
  if (kept.engine.knob_count < 0 ||
      kept.engine.knob_count > RABBET_CUDNN_KNOBS ||
      artifact->size != rabbet_cudnn_kept_engine_size(kept.engine.knob_count))
    return;
  kernel->engine = kept.engine;
  kernel->has_engine = true;
}

// Finds the plan's artifacts for this tactic, library version and GPU.
static rabbet_status_t kernel_find_kept(cudnn_kernel_t* kernel,
                                        const rabbet_kernel_spec_t* spec) {
  for (size_t i = 0; i < spec->artifact_count; ++i) {
    const rabbet_artifact_t* artifact = &spec->artifacts[i];
    rabbet_cudnn_kept_t header;
    if (artifact->size <= sizeof(header)) continue;
    memcpy(&header, artifact->data, sizeof(header));
    if (header.tactic != spec->tactic ||
        header.version != kernel->library->version ||
        header.major != kernel->device->major ||
        header.minor != kernel->device->minor)
      continue;
    if (header.magic == RABBET_CUDNN_KEPT_ENGINE)
      kernel_take_engine(kernel, artifact);
    else if (header.magic == RABBET_CUDNN_KEPT_PLAN && !kernel->kept)
      RABBET_RETURN_IF_ERROR(
          kernel_take(kernel, artifact->data, artifact->size));
  }
  return rabbet_ok();
}

rabbet_status_t rabbet_cudnn_kernel_create(
    const rabbet_kernel_spec_t* spec, const rabbet_kernel_class_t* kernel_class,
    rabbet_cudnn_describe_fn_t describe, rabbet_kernel_t** out_kernel) {
  rabbet_cudnn_t* library = NULL;
  rabbet_dtype_t dtype = RABBET_DTYPE_NONE;
  cudnn_kernel_t* kernel = NULL;
  *out_kernel = NULL;
  RABBET_RETURN_IF_ERROR(kernel_check(spec->group, &dtype));
  RABBET_RETURN_IF_ERROR(rabbet_cudnn_get(rabbet_cuda(spec->device), &library));
  RABBET_RETURN_IF_ERROR(
      rabbet_allocate(spec->allocator, sizeof(*kernel), (void**)&kernel));
  kernel->node.base.kernel_class = kernel_class;
  kernel->node.base.alignment = RABBET_CUDNN_ALIGNMENT;
  kernel->node.allocator = spec->allocator;
  kernel->node.group = spec->group;
  kernel->node.node = &spec->group->nodes[0];
  kernel->device = rabbet_cuda(spec->device);
  kernel->library = library;
  kernel->describe = describe;
  kernel->tactic = spec->tactic;
  kernel->exact = spec->exact;
  kernel->dtype = dtype;
  pthread_mutex_init(&kernel->lock, NULL);
  rabbet_status_t status = kernel_find_kept(kernel, spec);
  if (!rabbet_is_ok(status)) {
    rabbet_cudnn_kernel_destroy(&kernel->node.base);
    return status;
  }
  *out_kernel = &kernel->node.base;
  return rabbet_ok();
}

void rabbet_cudnn_kernel_destroy(rabbet_kernel_t* base) {
  if (!base) return;
  cudnn_kernel_t* kernel = (cudnn_kernel_t*)base;
  rabbet_free(kernel->node.allocator, kernel->kept);
  pthread_mutex_destroy(&kernel->lock);
  rabbet_node_kernel_destroy(base);
}

static rabbet_status_t kernel_keep(rabbet_artifact_sink_t sink,
                                   const char* name, const void* data,
                                   size_t size) {
  const rabbet_artifact_t artifact = {.key = rabbet_hash128(data, size),
                                      .name = name,
                                      .data = data,
                                      .size = size};
  return sink.add(sink.context, &artifact);
}

rabbet_status_t rabbet_cudnn_kernel_artifacts(rabbet_kernel_t* base,
                                              rabbet_artifact_sink_t sink) {
  cudnn_kernel_t* kernel = (cudnn_kernel_t*)base;
  pthread_mutex_lock(&kernel->lock);
  const void* kept = kernel->kept;
  size_t size = kernel->kept_size;
  pthread_mutex_unlock(&kernel->lock);
  if (kept) RABBET_RETURN_IF_ERROR(kernel_keep(sink, "cuDNN plan", kept, size));
  if (!kernel->has_engine) return rabbet_ok();
  const rabbet_cudnn_kept_engine_t engine = {
      .header = rabbet_cudnn_kept(kernel->device, kernel->library,
                                  RABBET_CUDNN_KEPT_ENGINE, kernel->tactic),
      .engine = kernel->engine};
  return kernel_keep(sink, "cuDNN engine", &engine,
                     rabbet_cudnn_kept_engine_size(kernel->engine.knob_count));
}

// ---- Preparing -------------------------------------------------------------

// The key of all that the engine's plan for this graph depends on.
static rabbet_hash_t prepare_key(const cudnn_kernel_t* kernel,
                                 const cudnn_state_t* state) {
  const char* signature = kernel->device->signature;
  struct {
    char kind[8];
    uint64_t device, version, graph, engine;
  } all = {.kind = "cuDNN",
           .device = rabbet_hash64(signature, strlen(signature)),
           .version = kernel->library->version,
           .graph = state->graph.hash};
  all.engine =
      rabbet_hash64(&kernel->engine, offsetof(rabbet_cudnn_engine_t, knobs) +
                                         sizeof(kernel->engine.knobs[0]) *
                                             (size_t)kernel->engine.knob_count);
  return rabbet_hash128(&all, sizeof(all));
}

// Keeps the plan's text for artifacts, unless there is one.
static rabbet_status_t prepare_keep(cudnn_kernel_t* kernel,
                                    const cudnn_state_t* state,
                                    const char* text, size_t size) {
  uint8_t* both = NULL;
  rabbet_cudnn_kept_t header = rabbet_cudnn_kept(
      kernel->device, kernel->library, RABBET_CUDNN_KEPT_PLAN, kernel->tactic);
  header.graph = state->graph.hash;
  RABBET_RETURN_IF_ERROR(rabbet_allocate(kernel->node.allocator,
                                         sizeof(header) + size, (void**)&both));
  memcpy(both, &header, sizeof(header));
  memcpy(both + sizeof(header), text, size);
  pthread_mutex_lock(&kernel->lock);
  if (!kernel->kept) {
    kernel->kept = both;
    kernel->kept_size = sizeof(header) + size;
    both = NULL;
  }
  pthread_mutex_unlock(&kernel->lock);
  rabbet_free(kernel->node.allocator, both);
  return rabbet_ok();
}

// A plan's text that the library rejects is no failure: state->plan stays NULL.
static rabbet_status_t prepare_load(const cudnn_state_t* state,
                                    cudnnHandle_t handle, const char* text,
                                    size_t size,
                                    cudnnBackendDescriptor_t* out_plan) {
  rabbet_status_t status =
      rabbet_cudnn_plan_load(&state->graph, handle, text, size, out_plan);
  if (rabbet_status_code(status) == RABBET_STATUS_OUT_OF_MEMORY) return status;
  rabbet_status_ignore(status);
  return rabbet_ok();
}

// Restores the kept plan. state->plan stays NULL if it is for another graph, or
// if the library rejects it.
static rabbet_status_t prepare_from_kept(cudnn_kernel_t* kernel,
                                         cudnnHandle_t handle,
                                         cudnn_state_t* state) {
  rabbet_cudnn_kept_t header = {.magic = 0};
  pthread_mutex_lock(&kernel->lock);
  const uint8_t* kept = kernel->kept;  // never changes once set
  size_t size = kernel->kept_size;
  pthread_mutex_unlock(&kernel->lock);
  if (!kept) return rabbet_ok();
  memcpy(&header, kept, sizeof(header));
  if (header.graph != state->graph.hash) return rabbet_ok();
  return prepare_load(state, handle, (const char*)kept + sizeof(header),
                      size - sizeof(header), &state->plan);
}

// Takes the first engine that works: for shapes that the tactic's engine
// rejects, or on another GPU.
static rabbet_status_t prepare_search(cudnn_kernel_t* kernel,
                                      cudnnHandle_t handle,
                                      cudnn_state_t* state) {
  const rabbet_cudnn_wish_t wish = {
      .dtype = kernel->dtype,
      .tf32 = (kernel->tactic & RABBET_CUDNN_TF32) != 0,
      .count = SEARCH_LIMIT,
      .most_compiling = SEARCH_LIMIT};
  rabbet_cudnn_choices_t choices;
  RABBET_RETURN_IF_ERROR(rabbet_cudnn_choices(&state->graph, &wish, &choices));
  rabbet_status_t status =
      RABBET_STATUS(RABBET_STATUS_UNSUPPORTED, "cuDNN has no engine for it");
  for (size_t i = 0; i < choices.list.count && !state->plan; ++i) {
    rabbet_status_ignore(status);
    status = rabbet_cudnn_plan(&state->graph, handle,
                               &choices.list.data[i].engine, &state->plan);
    if (rabbet_status_code(status) == RABBET_STATUS_OUT_OF_MEMORY) break;
  }
  rabbet_cudnn_choices_end(&choices);
  return status;
}

// The plan that an earlier build or the helper compiled, from the device's
// store.
static rabbet_status_t prepare_from_store(cudnn_kernel_t* kernel,
                                          cudnnHandle_t handle,
                                          cudnn_state_t* state) {
  rabbet_store_t* store = kernel->device->base.store;
  rabbet_allocator_t allocator = kernel->node.allocator;
  void* text = NULL;
  size_t size = 0;
  if (!store) return rabbet_ok();
  RABBET_RETURN_IF_ERROR(rabbet_store_find(store, prepare_key(kernel, state),
                                           allocator, &text, &size));
  if (!text) return rabbet_ok();
  rabbet_status_t status =
      prepare_load(state, handle, text, size, &state->plan);
  if (rabbet_is_ok(status) && state->plan)
    status = prepare_keep(kernel, state, text, size);
  rabbet_free(allocator, text);
  return status;
}

static rabbet_status_t prepare_save(cudnn_kernel_t* kernel,
                                    const cudnn_state_t* state) {
  rabbet_store_t* store = kernel->device->base.store;
  char* text = NULL;
  size_t size = 0;
  pthread_mutex_lock(&kernel->lock);
  bool has = kernel->kept != NULL;
  pthread_mutex_unlock(&kernel->lock);
  if (has) return rabbet_ok();
  RABBET_RETURN_IF_ERROR(
      rabbet_cudnn_plan_save(&state->graph, state->plan, &text, &size));
  rabbet_status_t status = prepare_keep(kernel, state, text, size);
  if (rabbet_is_ok(status) && store)
    rabbet_store_put(store, prepare_key(kernel, state),
                     &(rabbet_span_t){text, size}, 1);
  rabbet_free(kernel->node.allocator, text);
  return status;
}

static rabbet_status_t prepare_engine(cudnn_kernel_t* kernel,
                                      cudnnHandle_t handle,
                                      cudnn_state_t* state) {
  RABBET_RETURN_IF_ERROR(prepare_from_store(kernel, handle, state));
  if (state->plan) return rabbet_ok();
  rabbet_status_t status =
      rabbet_cudnn_plan(&state->graph, handle, &kernel->engine, &state->plan);
  if (rabbet_is_ok(status)) return prepare_save(kernel, state);
  if (kernel->exact || rabbet_status_code(status) != RABBET_STATUS_UNSUPPORTED)
    return status;
  rabbet_status_ignore(status);
  return rabbet_ok();
}

static rabbet_status_t prepare_plan(cudnn_kernel_t* kernel,
                                    cudnnHandle_t handle,
                                    cudnn_state_t* state) {
  RABBET_RETURN_IF_ERROR(prepare_from_kept(kernel, handle, state));
  if (!state->plan && kernel->has_engine)
    RABBET_RETURN_IF_ERROR(prepare_engine(kernel, handle, state));
  if (state->plan) return rabbet_ok();
  if (kernel->exact)
    return RABBET_STATUS(RABBET_STATUS_UNSUPPORTED,
                         "cuDNN was not asked for an engine");
  return prepare_search(kernel, handle, state);
}

static rabbet_status_t prepare_with(cudnn_kernel_t* kernel,
                                    const rabbet_kernel_shapes_t* shapes,
                                    cudnnHandle_t handle,
                                    cudnn_state_t* state) {
  rabbet_cudnn_graph_t* graph = &state->graph;
  if (!kernel->describe(kernel->node.group, shapes->dims, graph))
    return RABBET_STATUS(RABBET_STATUS_UNSUPPORTED,
                         "a cuDNN graph cannot express '%s' at these shapes",
                         kernel->node.node->name);
  RABBET_RETURN_IF_ERROR(rabbet_cudnn_graph_finish(graph, handle));
  RABBET_RETURN_IF_ERROR(prepare_plan(kernel, handle, state));
  for (int i = 0; i < graph->binding_count; ++i)
    state->ids[i] = graph->bindings[i].id;
  state->count = graph->binding_count;
  return rabbet_cudnn_plan_workspace(graph, state->plan, &state->workspace);
}

static rabbet_status_t prepare_inside(cudnn_kernel_t* kernel,
                                      const rabbet_kernel_shapes_t* shapes,
                                      cudnn_state_t* state) {
  rabbet_cudnn_slot_t* slot = NULL;
  CUcontext before = NULL;
  RABBET_RETURN_IF_ERROR(rabbet_cuda_enter(kernel->device, &before));
  rabbet_status_t status = rabbet_cudnn_acquire(kernel->library, &slot);
  if (rabbet_is_ok(status)) {
    status = prepare_with(kernel, shapes, slot->handle, state);
    rabbet_cudnn_release(slot);
  }
  rabbet_cuda_leave(kernel->device, before);
  return RABBET_ANNOTATE(status, "layer '%s', tactic 0x%x",
                         kernel->node.node->name, (unsigned)kernel->tactic);
}

void rabbet_cudnn_kernel_destroy_state(rabbet_kernel_t* base,
                                       rabbet_kernel_state_t* prepared) {
  cudnn_state_t* state = (cudnn_state_t*)prepared;
  if (!state) return;
  cudnn_kernel_t* kernel = (cudnn_kernel_t*)base;
  CUcontext before = NULL;
  // Modules that an engine has loaded are unloaded with the plan.
  rabbet_status_t status = rabbet_cuda_enter(kernel->device, &before);
  if (state->pack) kernel->library->cudnnBackendDestroyDescriptor(state->pack);
  if (state->plan && rabbet_is_ok(status))
    kernel->library->cudnnBackendDestroyDescriptor(state->plan);
  rabbet_cudnn_graph_end(&state->graph);
  if (rabbet_is_ok(status)) rabbet_cuda_leave(kernel->device, before);
  rabbet_status_ignore(status);
  rabbet_free(kernel->node.allocator, state);
}

// cuDNN rejects empty tensors. The runtime skips steps with empty outputs, so
// only an empty input with a nonempty output, made of padding, gets here.
static rabbet_status_t prepare_check(const cudnn_kernel_t* kernel,
                                     const rabbet_kernel_shapes_t* shapes) {
  const rabbet_group_t* group = kernel->node.group;
  char text[192];
  for (size_t i = 0; i < group->input_count; ++i) {
    const rabbet_dims_t* dims = &shapes->dims[group->inputs[i]];
    for (int32_t axis = 0; axis < dims->rank; ++axis)
      if (dims->d[axis] == 0)
        return RABBET_STATUS(
            RABBET_STATUS_UNSUPPORTED,
            "layer '%s': its input %zu has shape %s; expected elements, which "
            "cuDNN needs even where padding surrounds them",
            kernel->node.node->name, i,
            rabbet_dims_print(dims, text, sizeof(text)));
  }
  return rabbet_ok();
}

rabbet_status_t rabbet_cudnn_kernel_prepare(
    rabbet_kernel_t* base, const rabbet_kernel_shapes_t* shapes,
    rabbet_kernel_state_t** out_state, size_t* out_workspace) {
  cudnn_kernel_t* kernel = (cudnn_kernel_t*)base;
  cudnn_state_t* state = NULL;
  *out_state = NULL;
  RABBET_RETURN_IF_ERROR(prepare_check(kernel, shapes));
  RABBET_RETURN_IF_ERROR(
      rabbet_node_state_allocate(base, sizeof(*state), (void**)&state));
  rabbet_cudnn_graph_begin(kernel->library, kernel->node.allocator,
                           &state->graph);
  rabbet_status_t status = prepare_inside(kernel, shapes, state);
  if (!rabbet_is_ok(status)) {
    rabbet_cudnn_kernel_destroy_state(base, (rabbet_kernel_state_t*)state);
    return status;
  }
  *out_workspace = state->workspace;
  *out_state = (rabbet_kernel_state_t*)state;
  return rabbet_ok();
}

// ---- Running ---------------------------------------------------------------

static void* run_address(cudnn_state_t* state, const rabbet_kernel_call_t* call,
                         int i) {
  int32_t place = state->graph.bindings[i].place;
  if (place >= 0)
    return (char*)call->inputs[place] + state->graph.bindings[i].offset;
  if (place == RABBET_CUDNN_OUTPUT) return call->outputs[0];
  return &state->graph.scalars[RABBET_CUDNN_SCALAR_PLACE(place)];
}

// True if the addresses are those of the last run.
static bool run_same(cudnn_state_t* state, const rabbet_kernel_call_t* call,
                     uintptr_t* out_bits) {
  bool same = state->pack && state->workspace_address == call->workspace;
  *out_bits = 0;
  for (int i = 0; i < state->count; ++i) {
    int32_t place = state->graph.bindings[i].place;
    void* address = run_address(state, call, i);
    same = same && state->addresses[i] == address;
    state->addresses[i] = address;
    if (place >= RABBET_CUDNN_OUTPUT) *out_bits |= (uintptr_t)address;
  }
  state->workspace_address = call->workspace;
  return same;
}

static rabbet_status_t run_set(const cudnn_kernel_t* kernel,
                               cudnnBackendDescriptor_t pack, int name,
                               int type, int64_t count, const void* values) {
  return RABBET_CUDNN(kernel->library, cudnnBackendSetAttribute,
                      (pack, name, type, count, values));
}

static rabbet_status_t run_fill(const cudnn_kernel_t* kernel,
                                const cudnn_state_t* state) {
  cudnnBackendDescriptor_t pack = state->pack;
  RABBET_RETURN_IF_ERROR(run_set(kernel, pack,
                                 CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS,
                                 CUDNN_TYPE_INT64, state->count, state->ids));
  RABBET_RETURN_IF_ERROR(
      run_set(kernel, pack, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS,
              CUDNN_TYPE_VOID_PTR, state->count, state->addresses));
  RABBET_RETURN_IF_ERROR(
      run_set(kernel, pack, CUDNN_ATTR_VARIANT_PACK_WORKSPACE,
              CUDNN_TYPE_VOID_PTR, 1, &state->workspace_address));
  return RABBET_CUDNN(kernel->library, cudnnBackendFinalize, (pack));
}

// Makes a new variant pack only if an address has changed.
static rabbet_status_t run_bind(const cudnn_kernel_t* kernel,
                                cudnn_state_t* state,
                                const rabbet_kernel_call_t* call) {
  uintptr_t bits = 0;
  if (run_same(state, call, &bits)) return rabbet_ok();
  if (state->pack) kernel->library->cudnnBackendDestroyDescriptor(state->pack);
  state->pack = NULL;
  if ((bits & (RABBET_CUDNN_ALIGNMENT - 1)) != 0)
    return RABBET_STATUS(RABBET_STATUS_INVALID_ARGUMENT,
                         "a tensor's address is not a multiple of %d; give "
                         "the engine memory that is",
                         RABBET_CUDNN_ALIGNMENT);
  RABBET_RETURN_IF_ERROR(
      RABBET_CUDNN(kernel->library, cudnnBackendCreateDescriptor,
                   (CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR, &state->pack)));
  rabbet_status_t status = run_fill(kernel, state);
  if (!rabbet_is_ok(status)) {
    kernel->library->cudnnBackendDestroyDescriptor(state->pack);
    state->pack = NULL;
  }
  return status;
}

static rabbet_status_t run_execute(const cudnn_kernel_t* kernel,
                                   const cudnn_state_t* state, void* stream) {
  rabbet_cudnn_slot_t* slot = NULL;
  RABBET_RETURN_IF_ERROR(rabbet_cudnn_acquire(kernel->library, &slot));
  rabbet_status_t status =
      RABBET_CUDNN(kernel->library, cudnnSetStream, (slot->handle, stream));
  if (rabbet_is_ok(status))
    status = rabbet_cuda_launch_close(kernel->device, stream);
  if (rabbet_is_ok(status))
    status = RABBET_CUDNN(kernel->library, cudnnBackendExecute,
                          (slot->handle, state->plan, state->pack));
  rabbet_cudnn_release(slot);
  return status;
}

rabbet_status_t rabbet_cudnn_kernel_enqueue(rabbet_kernel_t* base,
                                            rabbet_kernel_state_t* prepared,
                                            const rabbet_kernel_call_t* call) {
  cudnn_state_t* state = (cudnn_state_t*)prepared;
  const cudnn_kernel_t* kernel = (const cudnn_kernel_t*)base;
  rabbet_status_t status = run_bind(kernel, state, call);
  if (rabbet_is_ok(status)) status = run_execute(kernel, state, call->stream);
  return RABBET_ANNOTATE(status, "layer '%s'", kernel->node.node->name);
}
