#include "device/cuda/cublaslt/cublaslt.h"

#include "device/cuda/driver/library.h"

static const char* const cublaslt_names[] = {
    "libcublasLt.so.13", "libcublasLt.so.12", "libcublasLt.so", NULL};
static const rabbet_cuda_library_t cublaslt_library = {
    .title = "cuBLASLt, which computes matrix products,",
    .variable = "RABBET_CUBLASLT",
    .file_names = cublaslt_names,
    .hint = "pip install nvidia-cublas, or install a CUDA toolkit",
};

static const rabbet_cuda_symbol_t cublaslt_symbols[] = {
#define RABBET_CUBLASLT_CALL(result, name, parameters) \
  {#name, offsetof(rabbet_cublaslt_t, name), false},
#include "device/cuda/cublaslt/cublaslt.def"
#undef RABBET_CUBLASLT_CALL
};

rabbet_status_t rabbet_cublaslt_status(const rabbet_cublaslt_t* library,
                                       cublasStatus_t result,
                                       const char* call) {
  rabbet_status_code_t code = RABBET_STATUS_INTERNAL;
  if (result == CUBLAS_STATUS_ALLOC_FAILED) code = RABBET_STATUS_OUT_OF_MEMORY;
  if (result == CUBLAS_STATUS_NOT_INITIALIZED) code = RABBET_STATUS_UNAVAILABLE;
  if (result == CUBLAS_STATUS_NOT_SUPPORTED ||
      result == CUBLAS_STATUS_ARCH_MISMATCH)
    code = RABBET_STATUS_UNSUPPORTED;
  const char* text = library->cublasLtGetStatusString(result);
  const char* name = library->cublasLtGetStatusName(result);
  return RABBET_STATUS(code, "%s: %s (%s)", call, text ? text : "no text",
                       name ? name : "no name");
}

static rabbet_status_t cublaslt_open(rabbet_cuda_device_t* device,
                                     rabbet_cublaslt_t* library) {
  void* handle = NULL;
  CUcontext before = NULL;
  RABBET_RETURN_IF_ERROR(rabbet_cuda_library_open(&cublaslt_library, &handle));
  RABBET_RETURN_IF_ERROR(rabbet_cuda_library_bind(
      &cublaslt_library, handle, cublaslt_symbols,
      sizeof(cublaslt_symbols) / sizeof(cublaslt_symbols[0]), library));
  library->version = library->cublasLtGetVersion();
  RABBET_RETURN_IF_ERROR(rabbet_cuda_enter(device, &before));
  rabbet_status_t status =
      RABBET_CUBLASLT(library, cublasLtCreate, (&library->handle));
  rabbet_cuda_leave(device, before);
  return status;
}

static rabbet_status_t cublaslt_make(rabbet_cuda_device_t* device) {
  rabbet_cublaslt_t* library = NULL;
  RABBET_RETURN_IF_ERROR(rabbet_allocate(device->base.allocator,
                                         sizeof(*library), (void**)&library));
  rabbet_status_t status = cublaslt_open(device, library);
  if (!rabbet_is_ok(status)) {
    rabbet_free(device->base.allocator, library);
    return status;
  }
  device->cublaslt = library;
  return rabbet_ok();
}

rabbet_status_t rabbet_cublaslt_get(rabbet_cuda_device_t* device,
                                    const rabbet_cublaslt_t** out_library) {
  pthread_mutex_lock(&device->libraries);
  rabbet_status_t status =
      device->cublaslt ? rabbet_ok() : cublaslt_make(device);
  *out_library = device->cublaslt;
  pthread_mutex_unlock(&device->libraries);
  return status;
}

uint64_t rabbet_cublaslt_version(rabbet_device_t* device) {
  const rabbet_cublaslt_t* library = NULL;
  rabbet_status_ignore(rabbet_cublaslt_get(rabbet_cuda(device), &library));
  return library ? library->version : 0;
}

void rabbet_cublaslt_destroy(rabbet_cuda_device_t* device, bool inside) {
  rabbet_cublaslt_t* library = device->cublaslt;
  if (!library) return;
  if (inside) library->cublasLtDestroy(library->handle);
  rabbet_free(device->base.allocator, library);
  device->cublaslt = NULL;
}

int rabbet_cublaslt_type(rabbet_dtype_t dtype) {
  if (dtype == RABBET_DTYPE_FLOAT) return CUDA_R_32F;
  if (dtype == RABBET_DTYPE_HALF) return CUDA_R_16F;
  if (dtype == RABBET_DTYPE_BF16) return CUDA_R_16BF;
  if (dtype == RABBET_DTYPE_INT8) return CUDA_R_8I;
  if (dtype == RABBET_DTYPE_INT32) return CUDA_R_32I;
  if (dtype == RABBET_DTYPE_FP8) return CUDA_R_8F_E4M3;
  return -1;
}
