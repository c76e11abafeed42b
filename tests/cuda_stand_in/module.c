// Modules: shared objects that the stand-in compiler made (nvrtc.c), loaded
// from memory. Their functions, and the copies of a launch's parameters.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "cuda_stand_in/internal.h"
#include "cuda_stand_in/stand_in.h"

static int modules_alive;
static CUmodule modules;
int module_count(void) {
  return modules_alive;
}

// ---- Images ----------------------------------------------------------------

// A file in memory that holds the shared object; -1 where there is none.
static int image_file(const void* data, size_t size) {
  int file = memfd_create("cuda_stand_in", MFD_CLOEXEC);
  if (file < 0) return -1;
  size_t at = 0;
  while (at < size) {
    ssize_t written = write(file, (const char*)data + at, size - at);
    if (written <= 0) break;
    at += (size_t)written;
  }
  if (at == size) return file;
  close(file);
  return -1;
}

static int hex_digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

static int image_from_ptx(const char* text) {
  char* at = NULL;
  size_t size = strtoull(text + strlen(STAND_IN_PTX), &at, 10);
  if (*at != '\n' || strlen(++at) < 2 * size) return -1;
  uint8_t* data = malloc(size);
  if (!data) return -1;
  bool good = true;
  for (size_t i = 0; i < size; ++i) {
    int high = hex_digit(at[2 * i]), low = hex_digit(at[2 * i + 1]);
    good = good && high >= 0 && low >= 0;
    data[i] = (uint8_t)(high << 4 | low);
  }
  int file = good ? image_file(data, size) : -1;
  free(data);
  return file;
}

static CUresult image_open(const void* image, int* out_file) {
  if (strncmp(image, STAND_IN_PTX, strlen(STAND_IN_PTX)) == 0) {
    log_add(", PTX");
    *out_file = image_from_ptx(image);
    return *out_file >= 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_IMAGE;
  }
  struct stand_in_image header;
  if (strncmp(image, STAND_IN_CUBIN, 8) != 0) return CUDA_ERROR_INVALID_IMAGE;
  memcpy(&header, image, sizeof(header));
  log_add(", cubin of sm_%u%u", header.major, header.minor);
  // Machine code runs on its own generation, from its own minor version on.
  if ((int)header.major != context_major || (int)header.minor > context_minor)
    return CUDA_ERROR_NO_BINARY_FOR_GPU;
  *out_file = image_file((const char*)image + sizeof(header), header.size);
  return *out_file >= 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_IMAGE;
}

// ---- Modules ---------------------------------------------------------------

static void module_free(CUmodule module) {
  if (module->handle) dlclose(module->handle);
  free(module->functions);
  free(module);
}

static bool module_bind(CUmodule module) {
  module->state = dlsym(module->handle, "stand_in_module");
  module->kernels = dlsym(module->handle, "stand_in_kernels");
  module->shared_begin = dlsym(module->handle, "stand_in_bss_begin");
  uint8_t** end = dlsym(module->handle, "stand_in_bss_end");
  if (!module->state || !module->kernels || !module->shared_begin || !end)
    return false;
  module->shared_begin = *(uint8_t**)module->shared_begin;
  module->shared_size = (size_t)(*end - module->shared_begin);
  return module->state->abi == STAND_IN_ABI;
}

// A path that no module had before: the loader takes a file that it knows by
// name for the same library, and numbers of files come again. The bits of a
// counter stand as "./" or ".//" in it.
static void module_path(int file, char path[96]) {
  static uint32_t count;
  int at = snprintf(path, 96, "/proc/self/fd/");
  for (uint32_t bits = count++; bits; bits >>= 1)
    at += snprintf(path + at, 96 - (size_t)at, bits & 1 ? ".//" : "./");
  snprintf(path + at, 96 - (size_t)at, "%d", file);
}

static CUresult module_open(CUmodule module, const void* image) {
  static const unsigned sizes[] = {8, 8, 8, 4, 12, sizeof(CUtensorMap)};
  static const struct stand_in_kernel idle[] = {
      {"idle", NULL, 0, sizeof(sizes) / sizeof(sizes[0]), sizes}, {0}};
  if (strcmp(image, STAND_IN_IDLE) == 0) {
    module->kernels = idle;
    return CUDA_SUCCESS;
  }
  int file = -1;
  char path[96];
  CUresult result = image_open(image, &file);
  if (result != CUDA_SUCCESS) return result;
  module_path(file, path);
  module->handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (!module->handle) fprintf(stderr, "CUDA stand-in: %s\n", dlerror());
  close(file);
  return module->handle && module_bind(module) ? CUDA_SUCCESS
                                               : CUDA_ERROR_INVALID_IMAGE;
}

static bool module_make_functions(CUmodule module) {
  while (module->kernels[module->count].name)
    ++module->count;
  module->functions = calloc(module->count + 1, sizeof(struct CUfunc_st));
  for (size_t i = 0; module->functions && i < module->count; ++i)
    module->functions[i] = (struct CUfunc_st){
        .module = module, .kernel = &module->kernels[i], .most_shared = 49152};
  return module->functions != NULL;
}

static CUresult module_load(CUmodule* out_module, const void* image) {
  *out_module = NULL;
  CUmodule module = calloc(1, sizeof(*module));
  if (!module) return CUDA_ERROR_OUT_OF_MEMORY;
  CUresult result = module_open(module, image);
  if (result == CUDA_SUCCESS && !module_make_functions(module))
    result = CUDA_ERROR_OUT_OF_MEMORY;
  if (result != CUDA_SUCCESS) {
    module_free(module);
    return result;
  }
  ++modules_alive;
  module->context = context_current;
  module->next = modules;
  modules = *out_module = module;
  return CUDA_SUCCESS;
}

CUresult stand_in_cuModuleLoadData(CUmodule* module, const void* image) {
  ENTRY(cuModuleLoadData, NEEDS_CONTEXT | UNSAFE_IN_CAPTURE, ("image"),
        module_load(module, image));
}

// Takes it from the list; false if it is not there.
static bool module_take(CUmodule module) {
  CUmodule* at = &modules;
  while (*at && *at != module)
    at = &(*at)->next;
  if (!*at) return false;
  *at = module->next;
  return true;
}

void module_drop(CUcontext context) {
  for (CUmodule at = modules, next = NULL; at; at = next) {
    next = at->next;
    if (at->context != context || !module_take(at)) continue;
    module_free(at);
    --modules_alive;
  }
}

static CUresult module_unload(CUmodule module) {
  if (!module) return ERROR_INVALID_HANDLE;
  if (!module_take(module)) {
    misuse("unloading what is no module: %p", (void*)module);
    return ERROR_INVALID_HANDLE;
  }
  if (stream_uses(module)) {
    misuse("a module is unloaded whose kernels are still to run");
    stream_drain_all();
  }
  module_free(module);
  --modules_alive;
  return CUDA_SUCCESS;
}

CUresult stand_in_cuModuleUnload(CUmodule module) {
  ENTRY(cuModuleUnload, NEEDS_CONTEXT | UNSAFE_IN_CAPTURE | RELEASES, (" "),
        module_unload(module));
}

static CUresult module_function(CUfunction* function, CUmodule module,
                                const char* name) {
  *function = NULL;
  if (!module) return ERROR_INVALID_HANDLE;
  for (size_t i = 0; i < module->count; ++i)
    if (strcmp(module->kernels[i].name, name) == 0)
      *function = &module->functions[i];
  return *function ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}

CUresult stand_in_cuModuleGetFunction(CUfunction* function, CUmodule module,
                                      const char* name) {
  ENTRY(cuModuleGetFunction, NEEDS_CONTEXT, ("%s", name),
        module_function(function, module, name));
}

// ---- Functions -------------------------------------------------------------

static int function_most_threads(CUfunction function) {
  unsigned bound = function->kernel->most_threads;
  return bound > 0 && bound < 1024 ? (int)bound : 1024;
}

static CUresult function_get(int* value, int attribute, CUfunction function) {
  if (!function) return ERROR_INVALID_HANDLE;
  switch (attribute) {
    case CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK:
      *value = function_most_threads(function);
      return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES:
      *value = (int)function->module->shared_size;
      return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_NUM_REGS:
      *value = 32;
      return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES:
      *value = function->most_shared;
      return CUDA_SUCCESS;
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
}

CUresult stand_in_cuFuncGetAttribute(int* value, int attribute,
                                     CUfunction function) {
  ENTRY(cuFuncGetAttribute, NEEDS_CONTEXT, ("%d", attribute),
        function_get(value, attribute, function));
}

static CUresult function_set(CUfunction function, int attribute, int value) {
  if (!function) return ERROR_INVALID_HANDLE;
  if (attribute == CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED)
    return CUDA_SUCCESS;
  if (attribute != CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES ||
      value < 0 || value > 232448)
    return CUDA_ERROR_INVALID_VALUE;
  function->most_shared = value;
  return CUDA_SUCCESS;
}

CUresult stand_in_cuFuncSetAttribute(CUfunction function, int attribute,
                                     int value) {
  ENTRY(cuFuncSetAttribute, NEEDS_CONTEXT, ("%d, %d", attribute, value),
        function_set(function, attribute, value));
}

static CUresult function_parameter(CUfunction function, size_t index,
                                   size_t* offset, size_t* size) {
  if (!function) return ERROR_INVALID_HANDLE;
  if (index >= function->kernel->count) return CUDA_ERROR_INVALID_VALUE;
  size_t at = 0;
  for (size_t i = 0; i <= index; at += function->kernel->sizes[i++])
    *offset = at;
  *size = function->kernel->sizes[index];
  return CUDA_SUCCESS;
}

CUresult stand_in_cuFuncGetParamInfo(CUfunction function, size_t index,
                                     size_t* offset, size_t* size) {
  ENTRY(cuFuncGetParamInfo, NEEDS_CONTEXT, ("%zu", index),
        function_parameter(function, index, offset, size));
}

// ---- Launches --------------------------------------------------------------

static bool geometry_is_good(CUfunction function, const unsigned grid[3],
                             const unsigned block[3], unsigned shared_bytes) {
  static const unsigned most_grid[] = {2147483647, 65535, 65535};
  static const unsigned most_block[] = {1024, 1024, 64};
  for (int i = 0; i < 3; ++i)
    if (grid[i] < 1 || grid[i] > most_grid[i] || block[i] < 1 ||
        block[i] > most_block[i])
      return false;
  return block[0] * block[1] * block[2] <=
             (unsigned)function_most_threads(function) &&
         shared_bytes <= (unsigned)function->most_shared;
}

CUresult launch_new(CUfunction function, const unsigned grid[3],
                    const unsigned block[3], unsigned shared_bytes,
                    void** parameters, launch_t** out_launch) {
  *out_launch = NULL;
  if (!function) return ERROR_INVALID_HANDLE;
  if (!geometry_is_good(function, grid, block, shared_bytes))
    return CUDA_ERROR_INVALID_VALUE;
  const struct stand_in_kernel* kernel = function->kernel;
  size_t bytes = sizeof(launch_t) + 64;
  bytes += kernel->count * sizeof(void*);
  for (unsigned i = 0; i < kernel->count; ++i) {
    if (!parameters || !parameters[i]) return CUDA_ERROR_INVALID_VALUE;
    bytes += (kernel->sizes[i] + 63) / 64 * 64;
  }
  bytes = (bytes + 63) / 64 * 64;
  launch_t* launch = aligned_alloc(64, bytes);
  if (!launch) return CUDA_ERROR_OUT_OF_MEMORY;
  *launch = (launch_t){
      .function = function, .cluster = {1, 1, 1}, .shared_bytes = shared_bytes};
  memcpy(launch->grid, grid, sizeof(launch->grid));
  memcpy(launch->block, block, sizeof(launch->block));
  launch->parameters = (void**)(launch + 1);
  uintptr_t at = (uintptr_t)(launch->parameters + kernel->count);
  at = (at + 63) / 64 * 64;
  for (unsigned i = 0; i < kernel->count; ++i) {
    launch->parameters[i] = (void*)at;
    memcpy((void*)at, parameters[i], kernel->sizes[i]);
    at += (kernel->sizes[i] + 63) / 64 * 64;
  }
  *out_launch = launch;
  return CUDA_SUCCESS;
}

// Parameters of up to 8 bytes as numbers, larger ones as their size.
static void launch_log(const launch_t* launch) {
  const struct stand_in_kernel* kernel = launch->function->kernel;
  log_add(", parameters");
  for (unsigned i = 0; i < kernel->count; ++i) {
    uint64_t value = 0;
    if (kernel->sizes[i] > sizeof(value)) {
      log_add(" [%u bytes]", kernel->sizes[i]);
      continue;
    }
    memcpy(&value, launch->parameters[i], kernel->sizes[i]);
    log_add(" 0x%llx", (unsigned long long)value);
  }
}

typedef struct attributes_t {
  bool cooperative, overlaps;
  unsigned cluster[3];
} attributes_t;

static bool cluster_is_good(const unsigned grid[3], const unsigned cluster[3]) {
  uint64_t blocks = 1;
  for (int i = 0; i < 3; ++i) {
    if (cluster[i] < 1 || grid[i] % cluster[i] != 0) return false;
    blocks *= cluster[i];
  }
  return blocks == 1 || (blocks <= STAND_IN_CLUSTER && context_major >= 9);
}

static CUresult launch_submit(CUfunction function, const unsigned grid[3],
                              const unsigned block[3], unsigned shared_bytes,
                              CUstream stream, void** parameters,
                              attributes_t attributes) {
  if (!stream_is_current(stream)) return ERROR_INVALID_HANDLE;
  if (!cluster_is_good(grid, attributes.cluster))
    return ERROR_INVALID_CLUSTER_SIZE;
  launch_t* launch = NULL;
  CUresult result =
      launch_new(function, grid, block, shared_bytes, parameters, &launch);
  if (result != CUDA_SUCCESS) return result;
  launch->overlaps = attributes.overlaps;
  memcpy(launch->cluster, attributes.cluster, sizeof(launch->cluster));
  launch_log(launch);
  op_t op = {.type = OP_KERNEL, .launch = launch};
  return stream_submit(stream, &op);
}

static const char* function_name(CUfunction function) {
  return function ? function->kernel->name : "(no function)";
}

CUresult stand_in_cuLaunchKernel(CUfunction function, unsigned grid_x,
                                 unsigned grid_y, unsigned grid_z,
                                 unsigned block_x, unsigned block_y,
                                 unsigned block_z, unsigned shared_bytes,
                                 CUstream stream, void** parameters,
                                 void** extra) {
  const unsigned grid[] = {grid_x, grid_y, grid_z};
  const unsigned block[] = {block_x, block_y, block_z};
  ENTRY(cuLaunchKernel, NEEDS_CONTEXT,
        ("%s, grid %u %u %u, block %u %u %u, shared %u, stream %d",
         function_name(function), grid_x, grid_y, grid_z, block_x, block_y,
         block_z, shared_bytes, stream_number(stream)),
        extra
            ? CUDA_ERROR_NOT_SUPPORTED
            : launch_submit(function, grid, block, shared_bytes, stream,
                            parameters, (attributes_t){.cluster = {1, 1, 1}}));
}

// Cooperation is logged; kernels that use it are not run here.
static attributes_t config_log(const CUlaunchConfig* config) {
  attributes_t found = {.cluster = {1, 1, 1}};
  for (unsigned i = 0; i < config->numAttrs; ++i) {
    const CUlaunchAttribute* attribute = &config->attrs[i];
    if (attribute->id == CU_LAUNCH_ATTRIBUTE_COOPERATIVE) {
      log_add(", cooperative %d", attribute->value.cooperative);
      found.cooperative = attribute->value.cooperative != 0;
    }
    if (attribute->id ==
        CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION) {
      found.overlaps =
          attribute->value.programmaticStreamSerializationAllowed != 0;
      log_add(", overlaps %d", found.overlaps);
    }
    if (attribute->id == CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION) {
      found.cluster[0] = attribute->value.clusterDim.x;
      found.cluster[1] = attribute->value.clusterDim.y;
      found.cluster[2] = attribute->value.clusterDim.z;
      log_add(", cluster %u %u %u", found.cluster[0], found.cluster[1],
              found.cluster[2]);
    }
  }
  return found;
}

// Of a GPU with room for 8 blocks of the largest size.
static bool too_many_at_once(const unsigned* grid, const unsigned* block) {
  uint64_t threads = (uint64_t)block[0] * block[1] * block[2];
  return (uint64_t)grid[0] * grid[1] * grid[2] * threads > 8 * 1024;
}

static CUresult launch_config(const CUlaunchConfig* config, CUfunction function,
                              void** parameters) {
  const unsigned grid[] = {config->gridDimX, config->gridDimY,
                           config->gridDimZ};
  const unsigned block[] = {config->blockDimX, config->blockDimY,
                            config->blockDimZ};
  const attributes_t attributes = config_log(config);
  if (attributes.overlaps && context_major < 9) return CUDA_ERROR_NOT_SUPPORTED;
  if (attributes.cooperative && too_many_at_once(grid, block))
    return ERROR_COOPERATIVE_LAUNCH_TOO_LARGE;
  return launch_submit(function, grid, block, config->sharedMemBytes,
                       config->hStream, parameters, attributes);
}

CUresult stand_in_cuLaunchKernelEx(const CUlaunchConfig* config,
                                   CUfunction function, void** parameters,
                                   void** extra) {
  ENTRY(cuLaunchKernelEx, NEEDS_CONTEXT,
        ("%s, grid %u %u %u, block %u %u %u, shared %u, stream %d",
         function_name(function), config->gridDimX, config->gridDimY,
         config->gridDimZ, config->blockDimX, config->blockDimY,
         config->blockDimZ, config->sharedMemBytes,
         stream_number(config->hStream)),
        extra ? CUDA_ERROR_NOT_SUPPORTED
              : launch_config(config, function, parameters));
}

// Tensor maps need hardware that the stand-in has none of: it notes what they
// are made from, for tests of that.
static CUresult tensor_map(CUtensorMap* map, CUtensorMapDataType type,
                           uint32_t rank, void* address, const uint64_t* dims,
                           const uint64_t* strides, const uint32_t* box,
                           const uint32_t* element_strides) {
  if (rank < 1 || rank > 5 || !memory_find(address, 1) ||
      (uintptr_t)address % 16 != 0)
    return CUDA_ERROR_INVALID_VALUE;
  memset(map, 0, sizeof(*map));
  map->opaque[0] = (uint64_t)(uintptr_t)address;
  map->opaque[1] = (uint64_t)type << 32 | rank;
  for (uint32_t i = 0; i < rank; ++i) {
    if (dims[i] < 1 || box[i] < 1 || box[i] > 256 || element_strides[i] < 1 ||
        (i + 1 < rank && strides[i] % 16 != 0))
      return CUDA_ERROR_INVALID_VALUE;
    map->opaque[2 + i] = dims[i];
    map->opaque[7 + i] = i + 1 < rank ? strides[i] : 0;
  }
  for (uint32_t i = 0; i < rank; ++i)
    map->opaque[12 + i / 2] |= (uint64_t)box[i] << 32 * (i % 2);
  return CUDA_SUCCESS;
}

CUresult stand_in_cuTensorMapEncodeTiled(
    CUtensorMap* map, CUtensorMapDataType type, uint32_t rank, void* address,
    const uint64_t* dims, const uint64_t* strides, const uint32_t* box,
    const uint32_t* element_strides, int interleave, int swizzle,
    int l2_promotion, int oob_fill) {
  ENTRY(cuTensorMapEncodeTiled, 0,
        ("type %d, rank %u, at %p, interleave %d, swizzle %d, promotion %d, "
         "fill %d",
         type, rank, address, interleave, swizzle, l2_promotion, oob_fill),
        tensor_map(map, type, rank, address, dims, strides, box,
                   element_strides));
}
