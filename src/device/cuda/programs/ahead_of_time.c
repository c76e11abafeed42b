// The class "cuda.aot": plugin layers with kernels that the plugin compiled
// ahead of time. The plan keeps code and launch expressions, so a run does not
// need the plugin. A run adds nothing to the kernel's time but the launch and
// one store per parameter that is an address.
#include <stdio.h>
#include <string.h>

#include "device/cuda/cuda.h"
#include "device/plugin_kernel.h"
#include "plugin/aot_kernels.h"

#define AOT_STATIC_SHARED (48 * 1024)  // without a driver call

typedef struct aot_kernel_t {
  rabbet_node_kernel_t node;
  rabbet_cuda_device_t* device;
  rabbet_aot_kernels_t* kernels;
  rabbet_artifact_t artifact;  // of a kernel made in this process
  CUmodule* modules;           // [launch]; equal code has one
  CUfunction* functions;       // [launch]
} aot_kernel_t;

// A launch for concrete shapes.
typedef struct aot_launch_t {
  CUfunction function;
  CUlaunchConfig config;
  CUlaunchAttribute attributes[2];
  void** parameters;
  bool empty;  // a grid dimension is 0
} aot_launch_t;

// An address to store before a launch.
typedef struct aot_patch_t {
  rabbet_plugin_arg_kind_t kind;
  int32_t index;
  uint64_t offset;
  CUdeviceptr* slot;
} aot_patch_t;

// A tensor map, encoded again when its tensor's address changes.
typedef struct aot_map_t {
  const rabbet_plugin_tensor_map_t* map;
  void* address;
  uint64_t dims[5], strides[5];
  CUtensorMap* slot;
} aot_map_t;

typedef struct cuda_aot_state_t {
  rabbet_arena_t arena;
  aot_launch_t* launches;
  aot_patch_t* patches;
  size_t patch_count;
  aot_map_t* maps;
  size_t map_count;
} cuda_aot_state_t;

// ---- Proposing -------------------------------------------------------------

static rabbet_status_t aot_propose(const rabbet_propose_t* propose,
                                   rabbet_candidate_sink_t sink) {
  const rabbet_group_t* group = propose->group;
  // The class "plugin" reports plugins that cannot run on this device at all.
  if (group->node_count != 1 || !group->nodes[0].plugin ||
      !(rabbet_plugin_kinds(group->nodes[0].plugin, propose->device->kind) &
        RABBET_PLUGIN_READY))
    return rabbet_ok();
  return rabbet_plugin_propose_kind(propose, sink, &rabbet_cuda_aot,
                                    RABBET_PLUGIN_READY);
}

// ---- Creating --------------------------------------------------------------

// Names the architecture of machine code that is for "the GPU of the build".
static void aot_name_architecture(aot_kernel_t* kernel) {
  for (size_t i = 0; i < kernel->kernels->launch_count; ++i) {
    const rabbet_plugin_launch_t* launch = &kernel->kernels->launches[i];
    for (size_t k = 0; k < launch->image_count; ++k) {
      // The images are the kernel's own copy, so they may be changed.
      rabbet_plugin_image_t* image =
          (rabbet_plugin_image_t*)(uintptr_t)&launch->images[k];
      if (image->major != 0) continue;
      image->major = kernel->device->major;
      image->minor = kernel->device->minor;
    }
  }
}

static rabbet_status_t aot_make(aot_kernel_t* kernel,
                                const rabbet_kernel_spec_t* spec) {
  const rabbet_group_node_t* node = kernel->node.node;
  rabbet_allocator_t allocator = spec->allocator;
  rabbet_plugin_tensor_t* tensors = NULL;
  size_t count = node->input_count + node->output_count;
  if (!node->plugin)
    return RABBET_STATUS(RABBET_STATUS_DATA_LOSS,
                         "the plan lacks the kernels that '%s' made ahead of "
                         "time",
                         node->name);
  RABBET_RETURN_IF_ERROR(
      rabbet_allocate(allocator, count * sizeof(*tensors), (void**)&tensors));
  rabbet_plugin_query_t query;
  rabbet_plugin_query_node(spec->group, node, spec->device->kind, tensors,
                           &query);
  rabbet_status_t status = rabbet_aot_kernels_create(
      node->plugin, &query, spec->tactic, allocator, &kernel->kernels);
  rabbet_free(allocator, tensors);
  if (!rabbet_is_ok(status)) return status;
  aot_name_architecture(kernel);
  void* data = NULL;
  status = rabbet_aot_kernels_encode(kernel->kernels, allocator, &data,
                                     &kernel->artifact.size);
  kernel->artifact.data = data;
  if (rabbet_is_ok(status)) {
    kernel->artifact.key = rabbet_hash128(data, kernel->artifact.size);
    kernel->artifact.name = kernel->kernels->launches[0].kernel;
  }
  return status;
}

// The machine code for this device with the highest minor version, else PTX.
static const rabbet_plugin_image_t* aot_image(
    const rabbet_cuda_device_t* device, const rabbet_plugin_launch_t* launch) {
  const rabbet_plugin_image_t* best = NULL;
  for (size_t i = 0; i < launch->image_count; ++i) {
    const rabbet_plugin_image_t* image = &launch->images[i];
    if (image->major == device->major && image->minor <= device->minor &&
        (!best || best->major < 0 || image->minor > best->minor))
      best = image;
    if (image->major < 0 && !best) best = image;
  }
  return best;
}

static rabbet_status_t aot_no_image(const rabbet_cuda_device_t* device,
                                    const rabbet_plugin_launch_t* launch) {
  char list[128] = "";
  size_t at = 0;
  for (size_t i = 0; i < launch->image_count && at < sizeof(list) - 16; ++i)
    at += (size_t)snprintf(list + at, sizeof(list) - at, "%ssm_%d%d",
                           i ? ", " : "", launch->images[i].major,
                           launch->images[i].minor);
  return RABBET_STATUS(RABBET_STATUS_INCOMPATIBLE,
                       "kernel '%s' has machine code for %s and no PTX; this "
                       "device is sm_%d%d: build the plan again with code for "
                       "it",
                       launch->kernel, list, device->major, device->minor);
}

// The driver reports bad code as an internal error; it is the plugin's fault.
static rabbet_status_t aot_code_status(const rabbet_cuda_driver_t* driver,
                                       CUresult result, const char* call) {
  const char* why = NULL;
  if (result == CUDA_ERROR_NOT_FOUND)
    why = "the code has no kernel of that name (C++ declares it extern \"C\")";
  if (result == CUDA_ERROR_INVALID_IMAGE || result == CUDA_ERROR_INVALID_PTX)
    why = "the code is neither PTX nor machine code that this driver can load";
  return why ? RABBET_STATUS(RABBET_STATUS_INVALID_ARGUMENT, "%s", why)
             : rabbet_cuda_driver_check(driver, result, call);
}

// The size of an argument in a launch, in bytes.
static size_t aot_arg_bytes(const rabbet_plugin_arg_t* arg) {
  if (arg->kind == RABBET_PLUGIN_ARG_BYTES) return arg->size;
  return arg->kind == RABBET_PLUGIN_ARG_TENSOR_MAP ? sizeof(CUtensorMap)
                                                   : sizeof(int64_t);
}

// Checks number and sizes of the arguments against the code's parameters: a
// launch reads as many bytes as the code declares.
static rabbet_status_t aot_check_parameters(
    const rabbet_cuda_driver_t* driver, CUfunction function,
    const rabbet_plugin_launch_t* launch) {
  size_t offset = 0, size = 0;
  if (!driver->cuFuncGetParamInfo) return rabbet_ok();
  for (size_t i = 0;; ++i) {
    CUresult result = driver->cuFuncGetParamInfo(function, i, &offset, &size);
    if (result == CUDA_ERROR_INVALID_VALUE) return rabbet_ok();
    RABBET_RETURN_IF_ERROR(
        rabbet_cuda_driver_check(driver, result, "cuFuncGetParamInfo"));
    if (i >= launch->arg_count)
      return RABBET_STATUS(RABBET_STATUS_INVALID_ARGUMENT,
                           "the code takes more than the %zu arguments that "
                           "are given",
                           launch->arg_count);
    size_t given = aot_arg_bytes(&launch->args[i]);
    if (size > given)
      return RABBET_STATUS(RABBET_STATUS_INVALID_ARGUMENT,
                           "argument %zu has %zu bytes; the code takes %zu", i,
                           given, size);
  }
}

static rabbet_status_t aot_load_one(aot_kernel_t* kernel, size_t index) {
  const rabbet_cuda_device_t* device = kernel->device;
  const rabbet_cuda_driver_t* driver = device->driver;
  const rabbet_plugin_launch_t* launch = &kernel->kernels->launches[index];
  const rabbet_plugin_image_t* image = aot_image(device, launch);
  if (!image) return aot_no_image(device, launch);
  for (size_t i = 0; i < index && !kernel->modules[index]; ++i) {
    const rabbet_plugin_image_t* other =
        aot_image(device, &kernel->kernels->launches[i]);
    if (other->size == image->size &&
        memcmp(other->data, image->data, image->size) == 0)
      kernel->modules[index] = kernel->modules[i];
  }
  if (!kernel->modules[index])
    RABBET_RETURN_IF_ERROR(aot_code_status(
        driver, driver->cuModuleLoadData(&kernel->modules[index], image->data),
        "cuModuleLoadData"));
  RABBET_RETURN_IF_ERROR(aot_code_status(
      driver,
      driver->cuModuleGetFunction(&kernel->functions[index],
                                  kernel->modules[index], launch->kernel),
      "cuModuleGetFunction"));
  return aot_check_parameters(driver, kernel->functions[index], launch);
}

static rabbet_status_t aot_load(aot_kernel_t* kernel) {
  size_t count = kernel->kernels->launch_count;
  rabbet_arena_t* arena = &kernel->kernels->arena;
  CUcontext before = NULL;
  rabbet_status_t status = rabbet_ok();
  RABBET_RETURN_IF_ERROR(rabbet_arena_allocate_array(
      arena, count, sizeof(*kernel->modules), (void**)&kernel->modules));
  RABBET_RETURN_IF_ERROR(rabbet_arena_allocate_array(
      arena, count, sizeof(*kernel->functions), (void**)&kernel->functions));
  RABBET_RETURN_IF_ERROR(rabbet_cuda_enter(kernel->device, &before));
  for (size_t i = 0; i < count && rabbet_is_ok(status); ++i)
    status = RABBET_ANNOTATE(aot_load_one(kernel, i), "layer '%s': kernel '%s'",
                             kernel->node.node->name,
                             kernel->kernels->launches[i].kernel);
  rabbet_cuda_leave(kernel->device, before);
  return status;
}

static void aot_destroy(rabbet_kernel_t* base) {
  if (!base) return;
  aot_kernel_t* kernel = (aot_kernel_t*)base;
  CUcontext before = NULL;
  rabbet_status_t status = rabbet_cuda_enter(kernel->device, &before);
  for (size_t i = 0; kernel->modules && rabbet_is_ok(status) &&
                     i < kernel->kernels->launch_count;
       ++i) {
    bool shared = !kernel->modules[i];
    for (size_t k = 0; k < i; ++k)
      shared |= kernel->modules[k] == kernel->modules[i];
    if (!shared) kernel->device->driver->cuModuleUnload(kernel->modules[i]);
  }
  if (rabbet_is_ok(status)) rabbet_cuda_leave(kernel->device, before);
  rabbet_status_ignore(status);
  rabbet_allocator_t allocator = kernel->node.allocator;
  rabbet_free(allocator, (void*)(uintptr_t)kernel->artifact.data);
  rabbet_aot_kernels_destroy(kernel->kernels);
  rabbet_free(allocator, kernel);
}

static rabbet_status_t aot_create(const rabbet_kernel_spec_t* spec,
                                  rabbet_kernel_t** out_kernel) {
  const rabbet_group_t* group = spec->group;
  aot_kernel_t* kernel = NULL;
  *out_kernel = NULL;
  if (group->node_count != 1 ||
      !rabbet_op_is(group->nodes[0].op, RABBET_OP_PLUGIN))
    return RABBET_STATUS(RABBET_STATUS_INVALID_ARGUMENT,
                         "an ahead-of-time kernel is one plugin layer");
  RABBET_RETURN_IF_ERROR(
      rabbet_allocate(spec->allocator, sizeof(*kernel), (void**)&kernel));
  kernel->node = (rabbet_node_kernel_t){.base = {&rabbet_cuda_aot},
                                        .allocator = spec->allocator,
                                        .group = group,
                                        .node = &group->nodes[0]};
  kernel->device = rabbet_cuda(spec->device);
  const rabbet_group_node_t* node = kernel->node.node;
  rabbet_status_t status =
      spec->artifact_count > 0
          ? rabbet_aot_kernels_decode(spec->artifacts[0].data,
                                      spec->artifacts[0].size,
                                      node->input_count, node->output_count,
                                      spec->allocator, &kernel->kernels)
          : aot_make(kernel, spec);
  if (rabbet_is_ok(status)) status = aot_load(kernel);
  if (!rabbet_is_ok(status)) {
    aot_destroy(&kernel->node.base);
    return status;
  }
  *out_kernel = &kernel->node.base;
  return rabbet_ok();
}

static rabbet_status_t aot_artifacts(rabbet_kernel_t* base,
                                     rabbet_artifact_sink_t sink) {
  return sink.add(sink.context, &((aot_kernel_t*)base)->artifact);
}

// ---- Preparing -------------------------------------------------------------

typedef struct aot_preparer_t {
  aot_kernel_t* kernel;
  cuda_aot_state_t* state;
  const int64_t* values;
  const bool* valid;
} aot_preparer_t;

// The value of an expression that must lie in [low, high].
static rabbet_status_t aot_value(const aot_preparer_t* preparer,
                                 rabbet_expr_t expr, const char* what,
                                 int64_t low, int64_t high,
                                 int64_t* out_value) {
  *out_value = preparer->values[expr];
  if (preparer->valid[expr] && *out_value >= low && *out_value <= high)
    return rabbet_ok();
  return RABBET_STATUS(RABBET_STATUS_OUT_OF_RANGE,
                       "%s is %lld for these input shapes; it must be %lld to "
                       "%lld",
                       what,
                       preparer->valid[expr] ? (long long)*out_value : -1LL,
                       (long long)low, (long long)high);
}

static rabbet_status_t aot_geometry(const aot_preparer_t* preparer,
                                    const rabbet_plugin_launch_t* from,
                                    aot_launch_t* launch) {
  static const char* const grid_names[] = {"grid_x", "grid_y", "grid_z"};
  static const char* const block_names[] = {"block_x", "block_y", "block_z"};
  static const int64_t grid_limits[] = {INT32_MAX, 65535, 65535};
  static const int64_t block_limits[] = {1024, 1024, 64};
  const rabbet_cuda_device_t* device = preparer->kernel->device;
  CUlaunchConfig* config = &launch->config;
  unsigned* grid[] = {&config->gridDimX, &config->gridDimY, &config->gridDimZ};
  unsigned* block[] = {&config->blockDimX, &config->blockDimY,
                       &config->blockDimZ};
  int64_t value = 0;
  for (int i = 0; i < 3; ++i) {
    RABBET_RETURN_IF_ERROR(aot_value(preparer, from->grid[i], grid_names[i], 0,
                                     grid_limits[i], &value));
    *grid[i] = (unsigned)value;
    launch->empty |= value == 0;
    RABBET_RETURN_IF_ERROR(aot_value(preparer, from->block[i], block_names[i],
                                     1, block_limits[i], &value));
    *block[i] = (unsigned)value;
  }
  RABBET_RETURN_IF_ERROR(aot_value(preparer, from->shared_bytes, "shared_mem",
                                   0, device->shared_bytes, &value));
  config->sharedMemBytes = (unsigned)value;
  if (value <= AOT_STATIC_SHARED) return rabbet_ok();
  return rabbet_cuda_launch_permit(device, launch->function, value);
}

static void aot_attributes(const rabbet_plugin_launch_t* from,
                           aot_launch_t* launch) {
  CUlaunchConfig* config = &launch->config;
  config->attrs = launch->attributes;
  if (from->cooperative)
    launch->attributes[config->numAttrs++] = (CUlaunchAttribute){
        .id = CU_LAUNCH_ATTRIBUTE_COOPERATIVE, .value = {.cooperative = 1}};
  if (from->cluster[0] > 0 || from->cluster[1] > 0 || from->cluster[2] > 0) {
    CUlaunchAttribute* attribute = &launch->attributes[config->numAttrs++];
    *attribute =
        (CUlaunchAttribute){.id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION};
    attribute->value.clusterDim.x =
        (unsigned)rabbet_max_i64(1, from->cluster[0]);
    attribute->value.clusterDim.y =
        (unsigned)rabbet_max_i64(1, from->cluster[1]);
    attribute->value.clusterDim.z =
        (unsigned)rabbet_max_i64(1, from->cluster[2]);
  }
}

static rabbet_status_t aot_map(const aot_preparer_t* preparer,
                               const rabbet_plugin_tensor_map_t* map,
                               void** out_parameter) {
  cuda_aot_state_t* state = preparer->state;
  aot_map_t* out = &state->maps[state->map_count];
  uint8_t* memory = NULL;
  if (!preparer->kernel->device->driver->cuTensorMapEncodeTiled)
    return RABBET_STATUS(RABBET_STATUS_UNAVAILABLE,
                         "a kernel takes a tensor map, which this driver does "
                         "not know; install a newer one");
  // The driver wants it aligned to 64.
  RABBET_RETURN_IF_ERROR(rabbet_arena_allocate(
      &state->arena, sizeof(CUtensorMap) + 64, (void**)&memory));
  *out = (aot_map_t){
      .map = map,
      .slot = (CUtensorMap*)(void*)rabbet_align_up((uintptr_t)memory, 64)};
  for (int32_t i = 0; i < map->rank; ++i) {
    int64_t value = 0;
    RABBET_RETURN_IF_ERROR(aot_value(preparer, map->dims[i],
                                     "a tensor map's dimension", 1, UINT32_MAX,
                                     &value));
    out->dims[i] = (uint64_t)value;
    if (i == 0) continue;
    RABBET_RETURN_IF_ERROR(aot_value(preparer, map->strides[i - 1],
                                     "a tensor map's stride", 1,
                                     INT64_C(1) << 40, &value));
    out->strides[i - 1] = (uint64_t)value;
  }
  *out_parameter = out->slot;
  ++state->map_count;
  return rabbet_ok();
}

static rabbet_status_t aot_parameter(const aot_preparer_t* preparer,
                                     const rabbet_plugin_arg_t* arg,
                                     void** out_parameter) {
  cuda_aot_state_t* state = preparer->state;
  const rabbet_group_node_t* node = preparer->kernel->node.node;
  int64_t* slot = NULL;
  if (arg->kind == RABBET_PLUGIN_ARG_TENSOR_MAP)
    return aot_map(preparer, arg->map, out_parameter);
  if (arg->kind == RABBET_PLUGIN_ARG_BYTES)
    return rabbet_arena_copy(&state->arena, arg->data, arg->size,
                             out_parameter);
  RABBET_RETURN_IF_ERROR(
      rabbet_arena_allocate(&state->arena, sizeof(*slot), (void**)&slot));
  *out_parameter = slot;
  if (arg->kind == RABBET_PLUGIN_ARG_INTEGER) {
    int64_t high =
        arg->size == 8 ? INT64_MAX : (INT64_C(1) << (8 * arg->size - 1)) - 1;
    // Little-endian, like every machine with such a GPU.
    return aot_value(preparer, arg->value, "an integer argument", -high - 1,
                     high, slot);
  }
  int64_t offset = 0;
  if (arg->kind == RABBET_PLUGIN_ARG_WORKSPACE)
    RABBET_RETURN_IF_ERROR(aot_value(preparer, arg->value,
                                     "an offset in the workspace", 0,
                                     INT64_C(1) << 40, &offset));
  int32_t index = arg->index;
  if (arg->kind == RABBET_PLUGIN_ARG_INPUT)
    index = rabbet_group_input_of(preparer->kernel->node.group,
                                  node->inputs[arg->index]);
  state->patches[state->patch_count++] =
      (aot_patch_t){.kind = arg->kind,
                    .index = index,
                    .offset = (uint64_t)offset,
                    .slot = (CUdeviceptr*)slot};
  return rabbet_ok();
}

static rabbet_status_t aot_prepare_launch(const aot_preparer_t* preparer,
                                          size_t index) {
  const rabbet_plugin_launch_t* from =
      &preparer->kernel->kernels->launches[index];
  aot_launch_t* launch = &preparer->state->launches[index];
  launch->function = preparer->kernel->functions[index];
  RABBET_RETURN_IF_ERROR(aot_geometry(preparer, from, launch));
  aot_attributes(from, launch);
  RABBET_RETURN_IF_ERROR(
      rabbet_arena_allocate_array(&preparer->state->arena, from->arg_count,
                                  sizeof(void*), (void**)&launch->parameters));
  for (size_t i = 0; i < from->arg_count; ++i)
    RABBET_RETURN_IF_ERROR(RABBET_ANNOTATE(
        aot_parameter(preparer, &from->args[i], &launch->parameters[i]),
        "argument %zu", i));
  return rabbet_ok();
}

static rabbet_status_t aot_evaluate(aot_kernel_t* kernel,
                                    const rabbet_kernel_shapes_t* shapes,
                                    rabbet_arena_t* arena,
                                    aot_preparer_t* preparer) {
  const rabbet_expr_graph_t* graph = kernel->kernels->graph;
  const rabbet_group_node_t* node = kernel->node.node;
  int64_t *symbols = NULL, *values = NULL;
  bool* valid = NULL;
  rabbet_dims_t* dims = NULL;
  RABBET_RETURN_IF_ERROR(
      rabbet_arena_allocate_array(arena, rabbet_expr_symbol_count(graph),
                                  sizeof(*symbols), (void**)&symbols));
  RABBET_RETURN_IF_ERROR(rabbet_arena_allocate_array(
      arena, rabbet_expr_node_count(graph), sizeof(*values), (void**)&values));
  RABBET_RETURN_IF_ERROR(rabbet_arena_allocate_array(
      arena, rabbet_expr_node_count(graph), sizeof(*valid), (void**)&valid));
  RABBET_RETURN_IF_ERROR(rabbet_arena_allocate_array(
      arena, node->input_count, sizeof(*dims), (void**)&dims));
  for (size_t i = 0; i < node->input_count; ++i)
    if (node->inputs[i] >= 0) dims[i] = shapes->dims[node->inputs[i]];
  preparer->values = values;
  preparer->valid = valid;
  return rabbet_aot_kernels_evaluate(kernel->kernels, dims, symbols, values,
                                     valid);
}

// A grid of 0 is right without work. A grid of 0 with a nonempty output is an
// error in an expression.
static rabbet_status_t aot_check_work(const aot_kernel_t* kernel,
                                      const rabbet_kernel_shapes_t* shapes,
                                      const cuda_aot_state_t* state) {
  const rabbet_group_node_t* node = kernel->node.node;
  for (size_t i = 0; i < kernel->kernels->launch_count; ++i)
    if (!state->launches[i].empty) return rabbet_ok();
  for (size_t i = 0; i < node->output_count; ++i) {
    const rabbet_dims_t* dims = &shapes->dims[node->outputs[i]];
    // A tensor of rank 0 may be a size output, which holds 0 before a run.
    bool elements = dims->rank > 0 && (!node->aliased || node->aliased[i] < 0);
    for (int32_t axis = 0; axis < dims->rank; ++axis)
      elements &= dims->d[axis] > 0;
    char text[160];
    if (elements)
      return RABBET_STATUS(RABBET_STATUS_OUT_OF_RANGE,
                           "layer '%s': the grid has no blocks for these input "
                           "shapes, but output %zu of shape %s is to be "
                           "written; calculate grids from shape_expr",
                           node->name, i,
                           rabbet_dims_print(dims, text, sizeof(text)));
  }
  return rabbet_ok();
}

static rabbet_status_t aot_fill(aot_kernel_t* kernel,
                                const rabbet_kernel_shapes_t* shapes,
                                cuda_aot_state_t* state,
                                size_t* out_workspace) {
  const rabbet_aot_kernels_t* kernels = kernel->kernels;
  aot_preparer_t preparer = {.kernel = kernel, .state = state};
  int64_t workspace = 0;
  size_t args = 0;
  for (size_t i = 0; i < kernels->launch_count; ++i)
    args += kernels->launches[i].arg_count;
  RABBET_RETURN_IF_ERROR(rabbet_arena_allocate_array(
      &state->arena, kernels->launch_count, sizeof(*state->launches),
      (void**)&state->launches));
  RABBET_RETURN_IF_ERROR(rabbet_arena_allocate_array(
      &state->arena, args, sizeof(*state->patches), (void**)&state->patches));
  RABBET_RETURN_IF_ERROR(rabbet_arena_allocate_array(
      &state->arena, args, sizeof(*state->maps), (void**)&state->maps));
  RABBET_RETURN_IF_ERROR(
      aot_evaluate(kernel, shapes, &state->arena, &preparer));
  RABBET_RETURN_IF_ERROR(aot_value(&preparer, kernels->workspace,
                                   "the workspace", 0, INT64_C(1) << 46,
                                   &workspace));
  *out_workspace = (size_t)workspace;
  for (size_t i = 0; i < kernels->launch_count; ++i)
    RABBET_RETURN_IF_ERROR(RABBET_ANNOTATE(
        aot_prepare_launch(&preparer, i), "layer '%s': kernel '%s'",
        kernel->node.node->name, kernels->launches[i].kernel));
  return aot_check_work(kernel, shapes, state);
}

static void aot_destroy_state(rabbet_kernel_t* base,
                              rabbet_kernel_state_t* prepared) {
  cuda_aot_state_t* state = (cuda_aot_state_t*)prepared;
  if (!state) return;
  rabbet_arena_deinitialize(&state->arena);
  rabbet_free(((rabbet_node_kernel_t*)base)->allocator, state);
}

static rabbet_status_t aot_prepare(rabbet_kernel_t* base,
                                   const rabbet_kernel_shapes_t* shapes,
                                   rabbet_kernel_state_t** out_state,
                                   size_t* out_workspace) {
  aot_kernel_t* kernel = (aot_kernel_t*)base;
  rabbet_allocator_t allocator = kernel->node.allocator;
  cuda_aot_state_t* state = NULL;
  *out_workspace = 0;
  RABBET_RETURN_IF_ERROR(
      rabbet_allocate(allocator, sizeof(*state), (void**)&state));
  rabbet_arena_initialize(allocator, &state->arena);
  rabbet_status_t status = aot_fill(kernel, shapes, state, out_workspace);
  if (!rabbet_is_ok(status)) {
    aot_destroy_state(base, (rabbet_kernel_state_t*)state);
    return status;
  }
  *out_state = (rabbet_kernel_state_t*)state;
  return rabbet_ok();
}

// ---- Running ---------------------------------------------------------------

static rabbet_status_t aot_encode_map(const aot_kernel_t* kernel,
                                      aot_map_t* map, void* address) {
  const rabbet_plugin_tensor_map_t* from = map->map;
  const rabbet_group_node_t* node = kernel->node.node;
  int32_t value =
      from->of_output ? node->outputs[from->index] : node->inputs[from->index];
  CUtensorMapDataType type = CU_TENSOR_MAP_DATA_TYPE_UINT8;
  switch (kernel->node.group->values[value].dtype) {
    case RABBET_DTYPE_FLOAT:
      type = CU_TENSOR_MAP_DATA_TYPE_FLOAT32;
      break;
    case RABBET_DTYPE_HALF:
      type = CU_TENSOR_MAP_DATA_TYPE_FLOAT16;
      break;
    case RABBET_DTYPE_BF16:
      type = CU_TENSOR_MAP_DATA_TYPE_BFLOAT16;
      break;
    case RABBET_DTYPE_INT32:
      type = CU_TENSOR_MAP_DATA_TYPE_INT32;
      break;
    case RABBET_DTYPE_INT64:
      type = CU_TENSOR_MAP_DATA_TYPE_INT64;
      break;
    default:
      break;
  }
  map->address = address;
  return RABBET_CUDA(
      kernel->device->driver, cuTensorMapEncodeTiled,
      (map->slot, type, (uint32_t)from->rank, address, map->dims, map->strides,
       from->box, from->element_strides, from->interleave, from->swizzle,
       from->l2_promotion, from->oob_fill));
}

static rabbet_status_t aot_patch(const aot_kernel_t* kernel,
                                 cuda_aot_state_t* state,
                                 const rabbet_kernel_call_t* call) {
  for (size_t i = 0; i < state->patch_count; ++i) {
    const aot_patch_t* patch = &state->patches[i];
    const void* base = call->workspace;
    if (patch->kind == RABBET_PLUGIN_ARG_OUTPUT)
      base = call->outputs[patch->index];
    if (patch->kind == RABBET_PLUGIN_ARG_INPUT)
      base = patch->index < 0 ? NULL : call->inputs[patch->index];
    *patch->slot = (CUdeviceptr)(uintptr_t)base + patch->offset;
  }
  for (size_t i = 0; i < state->map_count; ++i) {
    aot_map_t* map = &state->maps[i];
    const rabbet_group_node_t* node = kernel->node.node;
    void* address =
        map->map->of_output
            ? call->outputs[map->map->index]
            : call->inputs[rabbet_group_input_of(
                  kernel->node.group, node->inputs[map->map->index])];
    if (address != map->address)
      RABBET_RETURN_IF_ERROR(aot_encode_map(kernel, map, address));
  }
  return rabbet_ok();
}

static rabbet_status_t aot_enqueue(rabbet_kernel_t* base,
                                   rabbet_kernel_state_t* prepared,
                                   const rabbet_kernel_call_t* call) {
  cuda_aot_state_t* state = (cuda_aot_state_t*)prepared;
  const aot_kernel_t* kernel = (const aot_kernel_t*)base;
  const rabbet_cuda_driver_t* driver = kernel->device->driver;
  RABBET_RETURN_IF_ERROR(aot_patch(kernel, state, call));
  rabbet_cuda_launch_other(call->stream);
  for (size_t i = 0; i < kernel->kernels->launch_count; ++i) {
    aot_launch_t* launch = &state->launches[i];
    CUlaunchConfig* config = &launch->config;
    if (launch->empty) continue;
    config->hStream = (CUstream)call->stream;
    rabbet_status_t status =
        config->numAttrs > 0
            ? RABBET_CUDA(driver, cuLaunchKernelEx,
                          (config, launch->function, launch->parameters, NULL))
            : RABBET_CUDA(
                  driver, cuLaunchKernel,
                  (launch->function, config->gridDimX, config->gridDimY,
                   config->gridDimZ, config->blockDimX, config->blockDimY,
                   config->blockDimZ, config->sharedMemBytes, config->hStream,
                   launch->parameters, NULL));
    RABBET_RETURN_IF_ERROR(RABBET_ANNOTATE(
        status, "kernel '%s', grid %u x %u x %u, block %u x %u x %u",
        kernel->kernels->launches[i].kernel, config->gridDimX, config->gridDimY,
        config->gridDimZ, config->blockDimX, config->blockDimY,
        config->blockDimZ));
  }
  return rabbet_ok();
}

const rabbet_kernel_class_t rabbet_cuda_aot = {
    .struct_size = sizeof(rabbet_kernel_class_t),
    .name = "cuda.aot",
    .version = 1,
    .flags = RABBET_KERNEL_WITHOUT_PLUGIN,
    .propose = aot_propose,
    .create = aot_create,
    .destroy = aot_destroy,
    .prepare = aot_prepare,
    .destroy_state = aot_destroy_state,
    .enqueue = aot_enqueue,
    .artifacts = aot_artifacts,
};
