// For bench/gpu_calls.py: the plugin "add_one" of the namespace "bench_c",
// which launches one kernel, and the same launch in a loop without an engine.
//
// Both use the kernel that gpu_calls_use loaded, in the context that was
// current then; it must be called before anything else here.
#include <dlfcn.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "rabbet/plugin.h"

#define EXPORT __attribute__((visibility("default")))
#define THREADS 256

typedef int (*launch_t)(void* function, unsigned gx, unsigned gy, unsigned gz,
                        unsigned bx, unsigned by, unsigned bz, unsigned shared,
                        void* stream, void** parameters, void** extra);
typedef int (*load_t)(void** module, const void* image);
typedef int (*get_t)(void** function, void* module, const char* name);

static launch_t launch_kernel;
static void* kernel;  // add_one(const float* x, int count, float* y)

// 0, a driver's error code, or -1: no driver.
EXPORT int gpu_calls_use(const void* image, const char* name) {
  const char* path = getenv("RABBET_CUDA_DRIVER");
  void* library = dlopen(path ? path : "libcuda.so.1", RTLD_NOW | RTLD_GLOBAL);
  if (!library) return -1;
  load_t load = (load_t)dlsym(library, "cuModuleLoadData");
  get_t get = (get_t)dlsym(library, "cuModuleGetFunction");
  launch_kernel = (launch_t)dlsym(library, "cuLaunchKernel");
  if (!load || !get || !launch_kernel) return -1;
  void* module = NULL;
  int result = load(&module, image);
  return result ? result : get(&kernel, module, name);
}

static int launch(const void* x, int32_t count, void* y, void* stream) {
  void* parameters[] = {(void*)&x, &count, (void*)&y};
  unsigned blocks = ((unsigned)count + THREADS - 1) / THREADS;
  return launch_kernel(kernel, blocks, 1, 1, THREADS, 1, 1, 0, stream,
                       parameters, NULL);
}

// `times` launches, from x to y and back.
EXPORT int gpu_calls_launch(int32_t times, void* x, void* y, int32_t count,
                            void* stream) {
  int result = 0;
  for (int32_t i = 0; i < times && result == 0; ++i)
    result = launch(i % 2 ? y : x, count, i % 2 ? x : y, stream);
  return result;
}

// ---- The plugin ------------------------------------------------------------

static int32_t add_one_output_count(void* self) {
  (void)self;
  return 1;
}

static rabbet_status_t add_one_describe(void* self,
                                        rabbet_dim_builder_t* builder,
                                        const rabbet_plugin_input_t* inputs,
                                        size_t input_count,
                                        rabbet_plugin_output_t* outputs) {
  (void)self, (void)builder;
  if (input_count != 1 || inputs[0].dtype != RABBET_DTYPE_FLOAT)
    return RABBET_STATUS(RABBET_STATUS_INVALID_ARGUMENT,
                         "bench_c::add_one has one input of FLOAT");
  outputs[0].dtype = inputs[0].dtype;
  outputs[0].rank = inputs[0].rank;
  memcpy(outputs[0].dims, inputs[0].dims, sizeof(outputs[0].dims));
  return rabbet_ok();
}

static rabbet_status_t add_one_enqueue(void* self,
                                       const rabbet_plugin_call_t* call) {
  (void)self;
  int64_t count = 1;
  for (int32_t i = 0; i < call->inputs[0].dims.rank; ++i)
    count *= call->inputs[0].dims.d[i];
  int result = launch(call->inputs[0].data, (int32_t)count,
                      call->outputs[0].data, call->stream);
  if (result == 0) return rabbet_ok();
  return RABBET_STATUS(RABBET_STATUS_PLUGIN, "cuLaunchKernel: error %d",
                       result);
}

static rabbet_plugin_capture_t add_one_capture(
    void* self, const rabbet_plugin_call_t* call) {
  (void)self, (void)call;
  return RABBET_PLUGIN_CAPTURE_SAFE;
}

static rabbet_status_t add_one_create(void* user_data,
                                      const rabbet_plugin_create_t* args,
                                      rabbet_plugin_instance_t* out_instance) {
  static const rabbet_plugin_vtable_t vtable = {
      .struct_size = sizeof(vtable),
      .output_count = add_one_output_count,
      .describe = add_one_describe,
      .enqueue = add_one_enqueue,
      .capture = add_one_capture,
  };
  (void)user_data, (void)args;
  *out_instance = (rabbet_plugin_instance_t){.vtable = &vtable};
  if (kernel) return rabbet_ok();
  return RABBET_STATUS(RABBET_STATUS_FAILED_PRECONDITION,
                       "no kernel is loaded; call gpu_calls_use first");
}

static rabbet_status_t add_one_register(void) {
  const rabbet_plugin_creator_t creator = {.struct_size = sizeof(creator),
                                           .name = "add_one",
                                           .plugin_namespace = "bench_c",
                                           .origin = "gpu_calls.c",
                                           .create = add_one_create,
                                           .input_count = 1};
  return rabbet_plugin_register(&creator);
}

RABBET_PLUGIN_LIBRARY(add_one_register)
