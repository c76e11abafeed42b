// cuBLASLt, NVIDIA's matrix products, opened when first needed.
#ifndef RABBET_SRC_DEVICE_CUDA_CUBLASLT_CUBLASLT_H_
#define RABBET_SRC_DEVICE_CUDA_CUBLASLT_CUBLASLT_H_

#include "device/cuda/cublaslt/cublaslt_api.h"
#include "device/cuda/cuda.h"

// The library with a handle for one device, which many threads may use at once.
typedef struct rabbet_cublaslt_t {
#define RABBET_CUBLASLT_CALL(result, name, parameters) result(*name) parameters;
#include "device/cuda/cublaslt/cublaslt.def"
#undef RABBET_CUBLASLT_CALL
  cublasLtHandle_t handle;
  size_t version;  // 130000
} rabbet_cublaslt_t;

// Opened with the first call and kept by the device. Thread-safe. UNAVAILABLE
// names the missing library or function.
rabbet_status_t rabbet_cublaslt_get(rabbet_cuda_device_t* device,
                                    const rabbet_cublaslt_t** out_library);
// The library's version, or 0 without the library: a class's library_version.
uint64_t rabbet_cublaslt_version(rabbet_device_t* device);
// Called when the device is destroyed. inside: its context is current;
// otherwise the context is gone, and the library's objects with it.
void rabbet_cublaslt_destroy(rabbet_cuda_device_t* device, bool inside);

// A status for a function's return code, with the library's name and text.
rabbet_status_t rabbet_cublaslt_status(const rabbet_cublaslt_t* library,
                                       cublasStatus_t result, const char* call);
// RABBET_CUBLASLT(library, cublasLtMatmul, (handle, ...))
#define RABBET_CUBLASLT(library, name, arguments) \
  rabbet_cublaslt_check((library), (library)->name arguments, #name)
static inline rabbet_status_t rabbet_cublaslt_check(
    const rabbet_cublaslt_t* library, cublasStatus_t result, const char* call) {
  return result == CUBLAS_STATUS_SUCCESS
             ? rabbet_ok()
             : rabbet_cublaslt_status(library, result, call);
}

// CUDA_R_...; -1 for types that have no products.
int rabbet_cublaslt_type(rabbet_dtype_t dtype);

#endif  // RABBET_SRC_DEVICE_CUDA_CUBLASLT_CUBLASLT_H_
