#include "device/cuda/cudnn/cudnn.h"

#include "device/cuda/driver/library.h"

static const char* const cudnn_names[] = {"libcudnn.so.9", "libcudnn.so", NULL};
static const rabbet_cuda_library_t cudnn_library = {
    .title = "cuDNN 9, which computes convolutions,",
    .variable = "RABBET_CUDNN",
    .file_names = cudnn_names,
    .hint =
        "pip install nvidia-cudnn-cu13 (or -cu12 with a driver for CUDA "
        "12), or install NVIDIA's package",
};

static const rabbet_cuda_symbol_t cudnn_symbols[] = {
#define RABBET_CUDNN_CALL(result, name, parameters) \
  {#name, offsetof(rabbet_cudnn_t, name), false},
#include "device/cuda/cudnn/cudnn.def"
#undef RABBET_CUDNN_CALL
};

rabbet_status_t rabbet_cudnn_status(const rabbet_cudnn_t* library,
                                    cudnnStatus_t result, const char* call) {
  char message[512] = "";
  rabbet_status_code_t code = RABBET_STATUS_INTERNAL;
  if (result / 1000 == CUDNN_STATUS_NOT_SUPPORTED / 1000)
    code = RABBET_STATUS_UNSUPPORTED;
  if (result / 1000 == CUDNN_STATUS_NOT_INITIALIZED / 1000)
    code = RABBET_STATUS_UNAVAILABLE;
  if (result == CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED ||
      result == CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED)
    code = RABBET_STATUS_OUT_OF_MEMORY;
  const char* name = library->cudnnGetErrorString(result);
  library->cudnnGetLastErrorString(message, sizeof(message));
  message[sizeof(message) - 1] = 0;
  return RABBET_STATUS(code, "%s: %s (%s)", call,
                       message[0] ? message : "no message",
                       name ? name : "no name");
}

// ---- Handles ---------------------------------------------------------------

rabbet_status_t rabbet_cudnn_acquire(rabbet_cudnn_t* library,
                                     rabbet_cudnn_slot_t** out_slot) {
  *out_slot = NULL;
  for (size_t i = 0; i < RABBET_CUDNN_HANDLES; ++i) {
    rabbet_cudnn_slot_t* slot = &library->slots[i];
    if (atomic_exchange_explicit(&slot->busy, true, memory_order_acquire))
      continue;
    rabbet_status_t status = rabbet_ok();
    if (!slot->handle) {
      cudnnHandle_t handle = NULL;
      status = RABBET_CUDNN(library, cudnnCreate, (&handle));
      if (rabbet_is_ok(status)) slot->handle = handle;
    }
    if (rabbet_is_ok(status))
      *out_slot = slot;
    else
      rabbet_cudnn_release(slot);
    return status;
  }
  return RABBET_STATUS(RABBET_STATUS_OUT_OF_RANGE,
                       "more than %d threads use cuDNN on one device at once",
                       RABBET_CUDNN_HANDLES);
}

void rabbet_cudnn_release(rabbet_cudnn_slot_t* slot) {
  atomic_store_explicit(&slot->busy, false, memory_order_release);
}

// ---- Opening ---------------------------------------------------------------

static rabbet_status_t cudnn_first_handle(rabbet_cuda_device_t* device,
                                          rabbet_cudnn_t* library) {
  CUcontext before = NULL;
  rabbet_cudnn_slot_t* slot = NULL;
  RABBET_RETURN_IF_ERROR(rabbet_cuda_enter(device, &before));
  rabbet_status_t status = rabbet_cudnn_acquire(library, &slot);
  if (slot) rabbet_cudnn_release(slot);
  rabbet_cuda_leave(device, before);
  return status;
}

static rabbet_status_t cudnn_open(rabbet_cuda_device_t* device,
                                  rabbet_cudnn_t* library) {
  void* handle = NULL;
  RABBET_RETURN_IF_ERROR(rabbet_cuda_library_open(&cudnn_library, &handle));
  RABBET_RETURN_IF_ERROR(rabbet_cuda_library_bind(
      &cudnn_library, handle, cudnn_symbols,
      sizeof(cudnn_symbols) / sizeof(cudnn_symbols[0]), library));
  library->version = library->cudnnGetVersion();
  if (library->version < 90000 || library->version >= 100000)
    return RABBET_STATUS(RABBET_STATUS_UNAVAILABLE,
                         "cuDNN has version number %zu, and 9 is needed: %s",
                         library->version, cudnn_library.hint);
  return cudnn_first_handle(device, library);
}

static rabbet_status_t cudnn_make(rabbet_cuda_device_t* device) {
  rabbet_cudnn_t* library = NULL;
  RABBET_RETURN_IF_ERROR(rabbet_allocate(device->base.allocator,
                                         sizeof(*library), (void**)&library));
  rabbet_status_t status = cudnn_open(device, library);
  if (!rabbet_is_ok(status)) {
    rabbet_free(device->base.allocator, library);
    return status;
  }
  device->cudnn = library;
  return rabbet_ok();
}

rabbet_status_t rabbet_cudnn_get(rabbet_cuda_device_t* device,
                                 rabbet_cudnn_t** out_library) {
  pthread_mutex_lock(&device->libraries);
  rabbet_status_t status = device->cudnn ? rabbet_ok() : cudnn_make(device);
  *out_library = device->cudnn;
  pthread_mutex_unlock(&device->libraries);
  return status;
}

uint64_t rabbet_cudnn_version(rabbet_device_t* device) {
  rabbet_cudnn_t* library = NULL;
  rabbet_status_ignore(rabbet_cudnn_get(rabbet_cuda(device), &library));
  return library ? library->version : 0;
}

void rabbet_cudnn_destroy(rabbet_cuda_device_t* device, bool inside) {
  rabbet_cudnn_t* library = device->cudnn;
  if (!library) return;
  for (size_t i = 0; i < RABBET_CUDNN_HANDLES; ++i)
    if (inside && library->slots[i].handle)
      library->cudnnDestroy(library->slots[i].handle);
  rabbet_free(device->base.allocator, library);
  device->cudnn = NULL;
}

int rabbet_cudnn_type(rabbet_dtype_t dtype) {
  if (dtype == RABBET_DTYPE_FLOAT) return CUDNN_DATA_FLOAT;
  if (dtype == RABBET_DTYPE_HALF) return CUDNN_DATA_HALF;
  if (dtype == RABBET_DTYPE_BF16) return CUDNN_DATA_BFLOAT16;
  return -1;
}
