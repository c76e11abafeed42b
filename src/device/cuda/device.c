// An NVIDIA GPU as a device: a context of the driver, memory, streams.
#include "device/device.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "device/cuda/cublaslt/cublaslt.h"
#include "device/cuda/cuda.h"
#include "device/cuda/cudnn/cudnn.h"
#include "device/cuda/driver/library.h"
#include "device/cuda/driver/memory_pool.h"
#include "device/cuda/driver/stream.h"
#include "device/cuda/loops/loops.h"
#include "device/cuda/nccl/communicator.h"
#include "device/cuda/programs/program.h"
#include "device/empty_kernel.h"

// ---- The context -----------------------------------------------------------

// The driver cannot be asked about a context that may be destroyed: its handle
// points to freed memory, or to a newer context. It can be asked about an
// address, so a context is watched by an allocation in it.
static bool cuda_context_lives(const rabbet_cuda_device_t* device) {
  const rabbet_cuda_driver_t* driver = device->driver;
  unsigned long long id = 0;
  CUcontext current = NULL;
  if (!device->witness) return true;
  CUresult result = driver->cuPointerGetAttribute(
      &id, CU_POINTER_ATTRIBUTE_BUFFER_ID, device->witness);
  if (result == CUDA_SUCCESS) return id == device->witness_id;
  if (result == CUDA_ERROR_INVALID_VALUE) return false;
  // Without an answer, the context is known to live only while it is current.
  return driver->cuCtxGetCurrent(&current) == CUDA_SUCCESS &&
         current == device->context;
}

rabbet_status_t rabbet_cuda_enter(const rabbet_cuda_device_t* device,
                                  CUcontext* out_before) {
  const rabbet_cuda_driver_t* driver = device->driver;
  *out_before = NULL;
  if (!cuda_context_lives(device))
    return RABBET_STATUS(
        RABBET_STATUS_FAILED_PRECONDITION,
        "the CUDA context in which '%s' works, current when it was opened, is "
        "destroyed (cuCtxDestroy); build or load anew in another, and destroy "
        "a context after the last use of its models",
        device->base.name);
  RABBET_RETURN_IF_ERROR(RABBET_CUDA(driver, cuCtxGetCurrent, (out_before)));
  if (*out_before == device->context) return rabbet_ok();
  return RABBET_CUDA(driver, cuCtxSetCurrent, (device->context));
}

// Libraries that operators use (CuPy, Numba) check once per thread whether a
// context is current and then call the driver without checking again. So a
// thread that had no context keeps the first GPU's primary one, as the CUDA
// runtime would choose. The context of another GPU is not left current: it
// would change the thread's current device in torch and in the runtime.
void rabbet_cuda_leave(const rabbet_cuda_device_t* device, CUcontext before) {
  if (before == device->context) return;
  if (!before && device->stays_current) return;
  // It fails only while the driver shuts down with the process.
  device->driver->cuCtxSetCurrent(before);
}

// ---- Memory ----------------------------------------------------------------

rabbet_status_t rabbet_cuda_explain_memory(const rabbet_cuda_device_t* device,
                                           rabbet_status_t status,
                                           size_t size) {
  size_t available = 0, total = 0;
  rabbet_status_ignore(
      RABBET_CUDA_INSIDE(device, cuMemGetInfo, (&available, &total)));
  return rabbet_status_annotate(
      status, "allocating %zu bytes on '%s', of which %zu of %zu are free",
      size, device->base.name, available, total);
}

static rabbet_status_t cuda_allocate_inside(rabbet_cuda_device_t* device,
                                            size_t size, CUdeviceptr* memory) {
  CUresult result = device->driver->cuMemAlloc(memory, size);
  // The pool may hold memory that calls have freed.
  if (result == CUDA_ERROR_OUT_OF_MEMORY && rabbet_cuda_pool_trim(device))
    result = device->driver->cuMemAlloc(memory, size);
  return rabbet_cuda_driver_check(device->driver, result, "cuMemAlloc");
}

static rabbet_status_t cuda_allocate(rabbet_device_t* base, size_t size,
                                     void** out_memory) {
  rabbet_cuda_device_t* device = rabbet_cuda(base);
  CUcontext before = NULL;
  CUdeviceptr memory = 0;
  *out_memory = NULL;
  rabbet_status_t status = rabbet_cuda_enter(device, &before);
  if (rabbet_is_ok(status)) {
    status = cuda_allocate_inside(device, size > 0 ? size : 1, &memory);
    rabbet_cuda_leave(device, before);
  }
  if (!rabbet_is_ok(status))
    return rabbet_cuda_explain_memory(device, status, size);
  *out_memory = (void*)(uintptr_t)memory;
  return rabbet_ok();
}

static void cuda_free(rabbet_device_t* base, void* memory) {
  if (!memory) return;
  rabbet_status_ignore(RABBET_CUDA_INSIDE(rabbet_cuda(base), cuMemFree,
                                          ((CUdeviceptr)(uintptr_t)memory)));
}

static rabbet_status_t cuda_copy_to_device(rabbet_device_t* device,
                                           void* target, const void* source,
                                           size_t size, void* stream) {
  if (size == 0) return rabbet_ok();
  return RABBET_CUDA_INSIDE(
      rabbet_cuda(device), cuMemcpyHtoDAsync,
      ((CUdeviceptr)(uintptr_t)target, source, size, (CUstream)stream));
}

static rabbet_status_t cuda_copy_to_host(rabbet_device_t* device, void* target,
                                         const void* source, size_t size,
                                         void* stream) {
  if (size == 0) return rabbet_ok();
  return RABBET_CUDA_INSIDE(
      rabbet_cuda(device), cuMemcpyDtoHAsync,
      (target, (CUdeviceptr)(uintptr_t)source, size, (CUstream)stream));
}

static rabbet_status_t cuda_copy(rabbet_device_t* device, void* target,
                                 const void* source, size_t size,
                                 void* stream) {
  if (size == 0 || target == source) return rabbet_ok();
  return RABBET_CUDA_INSIDE(
      rabbet_cuda(device), cuMemcpyDtoDAsync,
      ((CUdeviceptr)(uintptr_t)target, (CUdeviceptr)(uintptr_t)source, size,
       (CUstream)stream));
}

static rabbet_status_t cuda_fill(rabbet_device_t* device, void* target,
                                 uint8_t byte, size_t size, void* stream) {
  if (size == 0) return rabbet_ok();
  return RABBET_CUDA_INSIDE(
      rabbet_cuda(device), cuMemsetD8Async,
      ((CUdeviceptr)(uintptr_t)target, byte, size, (CUstream)stream));
}

static rabbet_status_t cuda_synchronize(rabbet_device_t* device, void* stream) {
  return RABBET_CUDA_INSIDE(rabbet_cuda(device), cuStreamSynchronize,
                            ((CUstream)stream));
}

static rabbet_status_t cuda_synchronize_all(rabbet_device_t* device) {
  return RABBET_CUDA_INSIDE(rabbet_cuda(device), cuCtxSynchronize, ());
}

rabbet_status_t rabbet_cuda_upload(rabbet_device_t* device, const void* data,
                                   size_t bytes, void** out_memory) {
  *out_memory = NULL;
  if (bytes == 0) return rabbet_ok();
  RABBET_RETURN_IF_ERROR(cuda_allocate(device, bytes, out_memory));
  return rabbet_status_join(
      cuda_copy_to_device(device, *out_memory, data, bytes, NULL),
      cuda_synchronize(device, NULL));
}

// ---- Runs ------------------------------------------------------------------

// The token is the context to go back to.
static rabbet_status_t cuda_begin_run(rabbet_device_t* base, int threads,
                                      void** out_token) {
  (void)threads;
  CUcontext before = NULL;
  RABBET_RETURN_IF_ERROR(rabbet_cuda_enter(rabbet_cuda(base), &before));
  rabbet_cuda_launch_begin();
  *out_token = before;
  return rabbet_ok();
}

static void cuda_end_run(rabbet_device_t* base, void* token) {
  rabbet_cuda_leave(rabbet_cuda(base), token);
}

static rabbet_status_t cuda_time_body(rabbet_cuda_device_t* device,
                                      void* stream, int count,
                                      rabbet_status_t (*body)(void* context),
                                      void* context, int64_t* out_ns) {
  const rabbet_cuda_driver_t* driver = device->driver;
  float milliseconds = 0;
  RABBET_RETURN_IF_ERROR(
      RABBET_CUDA(driver, cuEventRecord, (device->begin, (CUstream)stream)));
  for (int i = 0; i < count; ++i)
    RABBET_RETURN_IF_ERROR(body(context));
  RABBET_RETURN_IF_ERROR(
      RABBET_CUDA(driver, cuEventRecord, (device->end, (CUstream)stream)));
  RABBET_RETURN_IF_ERROR(
      RABBET_CUDA(driver, cuEventSynchronize, (device->end)));
  RABBET_RETURN_IF_ERROR(RABBET_CUDA(
      driver, cuEventElapsedTime, (&milliseconds, device->begin, device->end)));
  *out_ns = (int64_t)((double)milliseconds * 1e6);
  return rabbet_ok();
}

static rabbet_status_t cuda_time(rabbet_device_t* base, void* stream, int count,
                                 rabbet_status_t (*body)(void* context),
                                 void* context, int64_t* out_ns) {
  rabbet_cuda_device_t* device = rabbet_cuda(base);
  CUcontext before = NULL;
  *out_ns = 0;
  RABBET_RETURN_IF_ERROR(rabbet_cuda_enter(device, &before));
  rabbet_status_t status =
      cuda_time_body(device, stream, count, body, context, out_ns);
  rabbet_cuda_leave(device, before);
  return status;
}

static rabbet_status_t cuda_mark(rabbet_cuda_device_t* device, int number,
                                 void* stream) {
  const rabbet_cuda_driver_t* driver = device->driver;
  CUevent* mark = &device->marks[number];
  assert(number <= RABBET_DEVICE_TIMES);
  if (!*mark)
    RABBET_RETURN_IF_ERROR(
        RABBET_CUDA(driver, cuEventCreate, (mark, CU_EVENT_DEFAULT)));
  return RABBET_CUDA(driver, cuEventRecord, (*mark, (CUstream)stream));
}

static rabbet_status_t cuda_time_each_body(
    rabbet_cuda_device_t* device, void* stream, int count,
    rabbet_status_t (*body)(void* context), void* context, int64_t* out_ns) {
  const rabbet_cuda_driver_t* driver = device->driver;
  for (int i = 0; i <= count; ++i) {
    RABBET_RETURN_IF_ERROR(body(context));
    RABBET_RETURN_IF_ERROR(cuda_mark(device, i, stream));
  }
  RABBET_RETURN_IF_ERROR(
      RABBET_CUDA(driver, cuEventSynchronize, (device->marks[count])));
  for (int i = 0; i < count; ++i) {
    float milliseconds = 0;
    RABBET_RETURN_IF_ERROR(
        RABBET_CUDA(driver, cuEventElapsedTime,
                    (&milliseconds, device->marks[i], device->marks[i + 1])));
    out_ns[i] = (int64_t)((double)milliseconds * 1e6);
  }
  return rabbet_ok();
}

static rabbet_status_t cuda_time_each(rabbet_device_t* base, void* stream,
                                      int count,
                                      rabbet_status_t (*body)(void* context),
                                      void* context, int64_t* out_ns) {
  rabbet_cuda_device_t* device = rabbet_cuda(base);
  CUcontext before = NULL;
  RABBET_RETURN_IF_ERROR(rabbet_cuda_enter(device, &before));
  rabbet_status_t status =
      cuda_time_each_body(device, stream, count, body, context, out_ns);
  rabbet_cuda_leave(device, before);
  return status;
}

// ---- The interface ---------------------------------------------------------

static const char* cuda_signature(rabbet_device_t* base) {
  return rabbet_cuda(base)->signature;
}

static const rabbet_kernel_class_t* const cuda_classes[] = {
#define RABBET_CUDA_KERNEL(name, ...) &name,
#include "device/kernels.def"
};

static const rabbet_kernel_class_t* const* cuda_kernel_classes(
    rabbet_device_t* device, size_t* out_count) {
  (void)device;
  *out_count = sizeof(cuda_classes) / sizeof(cuda_classes[0]);
  return cuda_classes;
}

static void cuda_destroy(rabbet_device_t* base) {
  rabbet_cuda_device_t* device = rabbet_cuda(base);
  CUcontext before = NULL;
  if (device->context) {
    rabbet_status_t status = rabbet_cuda_enter(device, &before);
    bool inside = rabbet_is_ok(status);
    if (inside && device->begin) device->driver->cuEventDestroy(device->begin);
    if (inside && device->end) device->driver->cuEventDestroy(device->end);
    for (int i = 0; inside && i <= RABBET_DEVICE_TIMES; ++i)
      if (device->marks[i]) device->driver->cuEventDestroy(device->marks[i]);
    if (inside && device->scratch) device->driver->cuMemFree(device->scratch);
    rabbet_cublaslt_destroy(device, inside);
    rabbet_cudnn_destroy(device, inside);
    rabbet_nccl_destroy(device);
    rabbet_cuda_loops_close(device);
    rabbet_cuda_pool_close(device, inside);
    if (inside) rabbet_cuda_leave(device, before);
    rabbet_status_ignore(status);
    rabbet_cuda_programs_destroy(device->programs);
    if (device->witness)
      rabbet_status_ignore(
          RABBET_CUDA_INSIDE(device, cuMemFree, (device->witness)));
    if (device->primary)
      device->driver->cuDevicePrimaryCtxRelease(device->device);
  }
  pthread_mutex_destroy(&device->libraries);
  rabbet_free(base->allocator, device);
}

static rabbet_status_t cuda_settings(rabbet_device_t* base,
                                     rabbet_strbuf_t* out_settings) {
  rabbet_cuda_device_t* device = rabbet_cuda(base);
  pthread_mutex_lock(&device->libraries);
  if (device->cublaslt)
    rabbet_cuda_library_setting(
        "RABBET_CUBLASLT",
        (const void*)(uintptr_t)device->cublaslt->cublasLtGetVersion,
        out_settings);
  if (device->cudnn)
    rabbet_cuda_library_setting(
        "RABBET_CUDNN", (const void*)(uintptr_t)device->cudnn->cudnnGetVersion,
        out_settings);
  pthread_mutex_unlock(&device->libraries);
  return rabbet_strbuf_status(out_settings);
}

static const rabbet_device_vtable_t cuda_vtable = {
    .struct_size = sizeof(rabbet_device_vtable_t),
    .destroy = cuda_destroy,
    .signature = cuda_signature,
    .kernel_classes = cuda_kernel_classes,
    .allocate = cuda_allocate,
    .free = cuda_free,
    .copy_to_device = cuda_copy_to_device,
    .copy_to_host = cuda_copy_to_host,
    .copy = cuda_copy,
    .fill = cuda_fill,
    .synchronize = cuda_synchronize,
    .begin_run = cuda_begin_run,
    .end_run = cuda_end_run,
    .hand_over = rabbet_cuda_launch_hand_over,
    .time = cuda_time,
    .time_each = cuda_time_each,
    .allocate_host = rabbet_cuda_allocate_host,
    .free_host = rabbet_cuda_free_host,
    .create_stream = rabbet_cuda_create_stream,
    .destroy_stream = rabbet_cuda_destroy_stream,
    .create_event = rabbet_cuda_create_event,
    .destroy_event = rabbet_cuda_destroy_event,
    .record_event = rabbet_cuda_record_event,
    .elapsed = rabbet_cuda_elapsed,
    .record_begin = rabbet_cuda_record_begin,
    .is_recording = rabbet_cuda_is_recording,
    .record_end = rabbet_cuda_record_end,
    .launch_graph = rabbet_cuda_launch_graph,
    .destroy_graph = rabbet_cuda_destroy_graph,
    .synchronize_all = cuda_synchronize_all,
    .allocate_async = rabbet_cuda_allocate_async,
    .free_async = rabbet_cuda_free_async,
    .retire = rabbet_cuda_retire,
    .settings = cuda_settings,
    .loop_artifacts = rabbet_cuda_loop_artifacts,
    .prepare_loops = rabbet_cuda_prepare_loops,
    .record_loop = rabbet_cuda_record_loop,
    .copy_in_loop = rabbet_cuda_copy_in_loop,
    .open_communicator = rabbet_nccl_communicator_open,
    .close_communicator = rabbet_nccl_communicator_close,
    .begin_exchanges = rabbet_nccl_begin,
    .end_exchanges = rabbet_nccl_end,
    .check_exchanges = rabbet_nccl_check_exchanges,
    .cancel_exchanges = rabbet_nccl_cancel,
};

// ---- Opening ---------------------------------------------------------------

static rabbet_status_t cuda_attribute(const rabbet_cuda_device_t* device,
                                      int attribute, int* out_value) {
  return RABBET_CUDA(device->driver, cuDeviceGetAttribute,
                     (out_value, attribute, device->device));
}

// Kernels can wait for the previous one from compute capability 9 on; graphs
// support it from CUDA 12.3 on.
static bool cuda_overlaps(const rabbet_cuda_device_t* device) {
  const char* asked = getenv("RABBET_CUDA_OVERLAP");
  return device->major >= 9 && device->driver->version >= 12030 &&
         !(asked && strcmp(asked, "0") == 0);
}

static rabbet_status_t cuda_describe(rabbet_cuda_device_t* device) {
  char model[96];
  int l2 = 0;
  RABBET_RETURN_IF_ERROR(
      RABBET_CUDA(device->driver, cuDeviceGetName,
                  (model, (int)sizeof(model), device->device)));
  RABBET_RETURN_IF_ERROR(cuda_attribute(
      device, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, &device->major));
  RABBET_RETURN_IF_ERROR(cuda_attribute(
      device, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, &device->minor));
  device->base.traits |=
      RABBET_DEVICE_CACHED_ROTATION | RABBET_DEVICE_POINTWISE_OF_SLICES |
      RABBET_DEVICE_ALIGNED_PRODUCTS | RABBET_DEVICE_JOINT_PRODUCTS |
      RABBET_DEVICE_TURNED_PRODUCTS;
  // attention_tiles.c, weight_only.c and few.c have kernels for 8.0 and newer.
  if (device->major >= 8)
    device->base.traits |= RABBET_DEVICE_ATTENTION_OF_SLICES |
                           RABBET_DEVICE_WEIGHT_ONLY |
                           RABBET_DEVICE_WEIGHTS_ALONG_K;
  if (device->major >= 9) device->base.traits |= RABBET_DEVICE_SQUEEZE;
  RABBET_RETURN_IF_ERROR(
      cuda_attribute(device, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT,
                     &device->multiprocessors));
  RABBET_RETURN_IF_ERROR(cuda_attribute(
      device, CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN,
      &device->shared_bytes));
  RABBET_RETURN_IF_ERROR(
      cuda_attribute(device, CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE, &l2));
  device->base.cache_bytes = (size_t)l2;
  snprintf(device->signature, sizeof(device->signature),
           "cuda; %s; sm_%d%d; %d multiprocessors; driver %d; rabbet %s", model,
           device->major, device->minor, device->multiprocessors,
           device->driver->version, rabbet_version());
  if (device->major >= 7) return rabbet_ok();
  return RABBET_STATUS(
      RABBET_STATUS_UNAVAILABLE,
      "%s has compute capability %d.%d; 7.0 or newer is needed", model,
      device->major, device->minor);
}

// The current context if it is of this GPU and not the primary one, else NULL.
static rabbet_status_t cuda_foreign_context(const rabbet_cuda_device_t* device,
                                            CUcontext* out_context) {
  const rabbet_cuda_driver_t* driver = device->driver;
  CUcontext current = NULL, primary = NULL;
  CUdevice owner = -1;
  unsigned flags = 0;
  int active = 0;
  *out_context = NULL;
  RABBET_RETURN_IF_ERROR(RABBET_CUDA(driver, cuCtxGetCurrent, (&current)));
  if (!current) return rabbet_ok();
  RABBET_RETURN_IF_ERROR(RABBET_CUDA(driver, cuCtxGetDevice, (&owner)));
  if (owner != device->device) return rabbet_ok();
  RABBET_RETURN_IF_ERROR(RABBET_CUDA(driver, cuDevicePrimaryCtxGetState,
                                     (device->device, &flags, &active)));
  if (active) {
    RABBET_RETURN_IF_ERROR(RABBET_CUDA(driver, cuDevicePrimaryCtxRetain,
                                       (&primary, device->device)));
    driver->cuDevicePrimaryCtxRelease(device->device);
  }
  if (current != primary) *out_context = current;
  return rabbet_ok();
}

// Allocates the witness in the context, which must be current.
static rabbet_status_t cuda_watch_context(rabbet_cuda_device_t* device) {
  CUdeviceptr memory = 0;
  RABBET_RETURN_IF_ERROR(RABBET_CUDA(device->driver, cuMemAlloc, (&memory, 1)));
  rabbet_status_t status = RABBET_CUDA(
      device->driver, cuPointerGetAttribute,
      (&device->witness_id, CU_POINTER_ATTRIBUTE_BUFFER_ID, memory));
  if (rabbet_is_ok(status)) {
    device->witness = memory;
  } else {
    device->driver->cuMemFree(memory);
  }
  return status;
}

// Programs that create a context of their own (cuCtxCreate, PyCUDA) have their
// memory and streams in it, so a device that is opened while it is current uses
// it. Otherwise the device uses the primary context.
static rabbet_status_t cuda_choose_context(rabbet_cuda_device_t* device) {
  CUcontext context = NULL;
  RABBET_RETURN_IF_ERROR(cuda_foreign_context(device, &context));
  device->primary = context == NULL;
  if (device->primary)
    RABBET_RETURN_IF_ERROR(RABBET_CUDA(device->driver, cuDevicePrimaryCtxRetain,
                                       (&context, device->device)));
  device->context = context;
  if (!device->primary) return cuda_watch_context(device);
  if (device->ordinal > 0) return rabbet_ok();
  RABBET_RETURN_IF_ERROR(
      rabbet_cuda_driver_keep_first(device->driver, device->device));
  device->stays_current = true;
  return rabbet_ok();
}

static rabbet_status_t cuda_open(rabbet_cuda_device_t* device) {
  const rabbet_cuda_driver_t* driver = device->driver;
  int count = 0;
  RABBET_RETURN_IF_ERROR(RABBET_CUDA(driver, cuDeviceGetCount, (&count)));
  if (device->ordinal < 0 || device->ordinal >= count)
    return RABBET_STATUS(RABBET_STATUS_UNAVAILABLE,
                         "there is no device '%s': the driver shows %d GPU%s",
                         device->base.name, count, count == 1 ? "" : "s");
  RABBET_RETURN_IF_ERROR(
      RABBET_CUDA(driver, cuDeviceGet, (&device->device, device->ordinal)));
  RABBET_RETURN_IF_ERROR(cuda_describe(device));
  atomic_init(&device->overlaps, cuda_overlaps(device));
  RABBET_RETURN_IF_ERROR(cuda_choose_context(device));
  RABBET_RETURN_IF_ERROR(rabbet_cuda_pool_open(device));
  RABBET_RETURN_IF_ERROR(RABBET_CUDA_INSIDE(
      device, cuEventCreate, (&device->begin, CU_EVENT_DEFAULT)));
  RABBET_RETURN_IF_ERROR(RABBET_CUDA_INSIDE(device, cuEventCreate,
                                            (&device->end, CU_EVENT_DEFAULT)));
  RABBET_RETURN_IF_ERROR(
      RABBET_CUDA_INSIDE(device, cuMemAlloc, (&device->scratch, 1)));
  return rabbet_cuda_programs_create(device->base.allocator, &device->programs);
}

uint32_t rabbet_device_abi(void) {
  return RABBET_DEVICE_ABI;
}

RABBET_PRIVATE_API rabbet_status_t rabbet_device_open(
    int ordinal, rabbet_allocator_t allocator, rabbet_device_t** out_device) {
  *out_device = NULL;
  const rabbet_cuda_driver_t* driver = NULL;
  rabbet_cuda_device_t* device = NULL;
  RABBET_RETURN_IF_ERROR(rabbet_cuda_driver_get(&driver));
  RABBET_RETURN_IF_ERROR(
      rabbet_allocate(allocator, sizeof(*device), (void**)&device));
  device->base.vtable = &cuda_vtable;
  device->base.allocator = allocator;
  rabbet_refcount_initialize(&device->base.references);
  snprintf(device->base.kind, sizeof(device->base.kind), "cuda");
  snprintf(device->base.name, sizeof(device->base.name), "cuda:%d", ordinal);
  pthread_mutex_init(&device->libraries, NULL);
  device->driver = driver;
  device->ordinal = ordinal;
  rabbet_status_t status = cuda_open(device);
  if (!rabbet_is_ok(status)) {
    cuda_destroy(&device->base);
    return status;
  }
  *out_device = &device->base;
  return rabbet_ok();
}
