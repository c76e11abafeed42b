// A stand-in for the CUDA runtime library: what tools call that bring no CUDA
// with them and load libcudart by ctypes (Polygraphy). Over the stand-in
// driver, in the context that is current, or else the primary one.
#include <dlfcn.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

#include "device/cuda/driver/driver_api.h"

#define EXPORT __attribute__((visibility("default")))

enum {
  COPY_HOST_TO_DEVICE = 1,
  COPY_DEVICE_TO_HOST,
  COPY_DEVICE_TO_DEVICE,
};

// The driver's functions that are called here.
#define FUNCTIONS                                                      \
  FUNCTION(cuInit, "cuInit", (unsigned))                               \
  FUNCTION(retain, "cuDevicePrimaryCtxRetain", (CUcontext*, CUdevice)) \
  FUNCTION(release, "cuDevicePrimaryCtxRelease_v2", (CUdevice))        \
  FUNCTION(current, "cuCtxGetCurrent", (CUcontext*))                   \
  FUNCTION(make_current, "cuCtxSetCurrent", (CUcontext))               \
  FUNCTION(allocate, "cuMemAlloc_v2", (CUdeviceptr*, size_t))          \
  FUNCTION(free_memory, "cuMemFree_v2", (CUdeviceptr))                 \
  FUNCTION(to_device, "cuMemcpyHtoDAsync_v2",                          \
           (CUdeviceptr, const void*, size_t, CUstream))               \
  FUNCTION(to_host, "cuMemcpyDtoHAsync_v2",                            \
           (void*, CUdeviceptr, size_t, CUstream))                     \
  FUNCTION(inside, "cuMemcpyDtoDAsync_v2",                             \
           (CUdeviceptr, CUdeviceptr, size_t, CUstream))               \
  FUNCTION(stream_create, "cuStreamCreate", (CUstream*, unsigned))     \
  FUNCTION(stream_wait, "cuStreamSynchronize", (CUstream))             \
  FUNCTION(stream_destroy, "cuStreamDestroy_v2", (CUstream))

static struct {
#define FUNCTION(name, symbol, parameters) CUresult(*name) parameters;
  FUNCTIONS
#undef FUNCTION
  CUcontext primary;
} driver;

// Memory of cudaMalloc goes with the process: who loads this library by ctypes
// leaves it there.
static struct {
  pthread_mutex_t lock;
  CUdeviceptr live[4096];
  size_t count;
} memory = {.lock = PTHREAD_MUTEX_INITIALIZER};

static void runtime_close(void) {
  driver.make_current(driver.primary);
  while (memory.count > 0)
    driver.free_memory(memory.live[--memory.count]);
  driver.make_current(NULL);
  driver.release(0);
}

static void runtime_open(void) {
  const char* path = getenv("RABBET_CUDA_DRIVER");
  void* library = path ? dlopen(path, RTLD_NOW | RTLD_LOCAL) : NULL;
#define FUNCTION(name, symbol, parameters) \
  *(void**)&driver.name = library ? dlsym(library, symbol) : NULL;
  FUNCTIONS
#undef FUNCTION
  if (!driver.stream_destroy) {
    fprintf(stderr, "RABBET_CUDA_DRIVER does not name the stand-in driver\n");
    abort();
  }
}

static CUresult runtime_retain(CUcontext found) {
  CUcontext primary = NULL;
  CUresult result = driver.retain(&primary, 0);
  if (result != CUDA_SUCCESS) return result;
  if (found && found != primary) return driver.release(0);
  driver.primary = primary;
  atexit(runtime_close);
  return CUDA_SUCCESS;
}

// As the runtime does it: the primary context is retained by the first call
// that finds no other, and stays to the end of the process.
static CUresult runtime_enter(void) {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
  CUcontext found = NULL;
  pthread_once(&once, runtime_open);
  CUresult result = driver.cuInit(0);
  if (result == CUDA_SUCCESS) result = driver.current(&found);
  if (result != CUDA_SUCCESS) return result;
  pthread_mutex_lock(&lock);
  if (!driver.primary) result = runtime_retain(found);
  pthread_mutex_unlock(&lock);
  if (result != CUDA_SUCCESS || found) return result;
  return driver.make_current(driver.primary);
}

#define CALL(expression)             \
  CUresult result = runtime_enter(); \
  return result == CUDA_SUCCESS ? (expression) : result

EXPORT CUresult cudaMalloc(void** out_memory, size_t size);
EXPORT CUresult cudaFree(void* address);
EXPORT CUresult cudaMemcpy(void* target, const void* source, size_t size,
                           int kind);
EXPORT CUresult cudaMemcpyAsync(void* target, const void* source, size_t size,
                                int kind, CUstream stream);
EXPORT CUresult cudaStreamCreate(CUstream* stream);
EXPORT CUresult cudaStreamSynchronize(CUstream stream);
EXPORT CUresult cudaStreamDestroy(CUstream stream);

static CUresult runtime_allocate(void** out_memory, size_t size) {
  CUdeviceptr address = 0;
  *out_memory = NULL;
  if (size == 0) return CUDA_SUCCESS;  // the runtime's answer: no memory
  pthread_mutex_lock(&memory.lock);
  bool room = memory.count < sizeof(memory.live) / sizeof(memory.live[0]);
  CUresult result =
      room ? driver.allocate(&address, size) : CUDA_ERROR_OUT_OF_MEMORY;
  if (result == CUDA_SUCCESS) memory.live[memory.count++] = address;
  pthread_mutex_unlock(&memory.lock);
  *out_memory = (void*)(uintptr_t)address;
  return result;
}

CUresult cudaMalloc(void** out_memory, size_t size) {
  CALL(runtime_allocate(out_memory, size));
}

// An address that is not ours is the driver's to refuse.
static CUresult runtime_free(CUdeviceptr address) {
  pthread_mutex_lock(&memory.lock);
  for (size_t i = 0; i < memory.count; ++i)
    if (memory.live[i] == address)
      memory.live[i--] = memory.live[--memory.count];
  CUresult result = driver.free_memory(address);
  pthread_mutex_unlock(&memory.lock);
  return result;
}

CUresult cudaFree(void* address) {
  CALL(address ? runtime_free((CUdeviceptr)(uintptr_t)address) : CUDA_SUCCESS);
}

static CUresult runtime_copy(void* target, const void* source, size_t size,
                             int kind, CUstream stream) {
  if (size == 0) return CUDA_SUCCESS;
  switch (kind) {
    case COPY_HOST_TO_DEVICE:
      return driver.to_device((CUdeviceptr)(uintptr_t)target, source, size,
                              stream);
    case COPY_DEVICE_TO_HOST:
      return driver.to_host(target, (CUdeviceptr)(uintptr_t)source, size,
                            stream);
    case COPY_DEVICE_TO_DEVICE:
      return driver.inside((CUdeviceptr)(uintptr_t)target,
                           (CUdeviceptr)(uintptr_t)source, size, stream);
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
}

CUresult cudaMemcpyAsync(void* target, const void* source, size_t size,
                         int kind, CUstream stream) {
  CALL(runtime_copy(target, source, size, kind, stream));
}

CUresult cudaMemcpy(void* target, const void* source, size_t size, int kind) {
  CUresult copied = cudaMemcpyAsync(target, source, size, kind, NULL);
  return copied == CUDA_SUCCESS ? driver.stream_wait(NULL) : copied;
}

CUresult cudaStreamCreate(CUstream* stream) {
  CALL(driver.stream_create(stream, CU_STREAM_DEFAULT));
}

CUresult cudaStreamSynchronize(CUstream stream) {
  CALL(driver.stream_wait(stream));
}

CUresult cudaStreamDestroy(CUstream stream) {
  CALL(driver.stream_destroy(stream));
}
