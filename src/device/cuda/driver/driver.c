#include "device/cuda/driver/driver.h"

#include <pthread.h>
#include <stddef.h>

#include "device/cuda/driver/library.h"

static const char* const driver_names[] = {"libcuda.so.1", "libcuda.so", NULL};
static const rabbet_cuda_library_t driver_library = {
    .title = "the CUDA driver",
    .variable = "RABBET_CUDA_DRIVER",
    .file_names = driver_names,
    .hint =
        "install NVIDIA's driver (in a container, start it with GPU access)",
};

static const rabbet_cuda_symbol_t driver_symbols[] = {
#define RABBET_CUDA_CALL(name, symbol, parameters) \
  {symbol, offsetof(rabbet_cuda_driver_t, name), false},
#define RABBET_CUDA_OPTIONAL(name, symbol, parameters) \
  {symbol, offsetof(rabbet_cuda_driver_t, name), true},
#include "device/cuda/driver/driver.def"
#undef RABBET_CUDA_CALL
#undef RABBET_CUDA_OPTIONAL
};

static pthread_mutex_t driver_lock = PTHREAD_MUTEX_INITIALIZER;
static rabbet_cuda_driver_t driver_table;
static bool driver_ready;
static bool driver_kept;  // whether the first primary context is retained

rabbet_status_t rabbet_cuda_driver_status(const rabbet_cuda_driver_t* driver,
                                          CUresult result, const char* call) {
  const char *name = NULL, *text = NULL;
  if (driver->cuGetErrorName(result, &name) != CUDA_SUCCESS || !name)
    name = "an unknown error";
  if (driver->cuGetErrorString(result, &text) != CUDA_SUCCESS || !text)
    text = "no description";
  rabbet_status_code_t code = RABBET_STATUS_INTERNAL;
  if (result == CUDA_ERROR_OUT_OF_MEMORY) code = RABBET_STATUS_OUT_OF_MEMORY;
  if (result == CUDA_ERROR_NO_DEVICE || result == CUDA_ERROR_INVALID_DEVICE ||
      result == CUDA_ERROR_NOT_INITIALIZED)
    code = RABBET_STATUS_UNAVAILABLE;
  if (result == CUDA_ERROR_NOT_SUPPORTED) code = RABBET_STATUS_UNSUPPORTED;
  return RABBET_STATUS(code, "%s: %s (%s)", call, text, name);
}

static rabbet_status_t driver_open(void) {
  void* handle = NULL;
  RABBET_RETURN_IF_ERROR(rabbet_cuda_library_open(&driver_library, &handle));
  RABBET_RETURN_IF_ERROR(rabbet_cuda_library_bind(
      &driver_library, handle, driver_symbols,
      sizeof(driver_symbols) / sizeof(driver_symbols[0]), &driver_table));
  RABBET_RETURN_IF_ERROR(RABBET_CUDA(&driver_table, cuInit, (0)));
  return RABBET_CUDA(&driver_table, cuDriverGetVersion,
                     (&driver_table.version));
}

rabbet_status_t rabbet_cuda_driver_get(
    const rabbet_cuda_driver_t** out_driver) {
  *out_driver = NULL;
  pthread_mutex_lock(&driver_lock);
  rabbet_status_t status = driver_ready ? rabbet_ok() : driver_open();
  if (rabbet_is_ok(status)) {
    driver_ready = true;
    *out_driver = &driver_table;
  }
  pthread_mutex_unlock(&driver_lock);
  return status;
}

rabbet_status_t rabbet_cuda_driver_keep_first(
    const rabbet_cuda_driver_t* driver, CUdevice first) {
  rabbet_status_t status = rabbet_ok();
  CUcontext context = NULL;
  pthread_mutex_lock(&driver_lock);
  if (!driver_kept)
    status = RABBET_CUDA(driver, cuDevicePrimaryCtxRetain, (&context, first));
  driver_kept = driver_kept || rabbet_is_ok(status);
  pthread_mutex_unlock(&driver_lock);
  return status;
}
