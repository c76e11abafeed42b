// The CUDA driver, opened at run time.
#ifndef RABBET_SRC_DEVICE_CUDA_DRIVER_DRIVER_H_
#define RABBET_SRC_DEVICE_CUDA_DRIVER_DRIVER_H_

#include "base/status.h"
#include "device/cuda/driver/driver_api.h"

typedef struct rabbet_cuda_driver_t {
#define RABBET_CUDA_CALL(name, symbol, parameters) CUresult(*name) parameters;
#define RABBET_CUDA_OPTIONAL RABBET_CUDA_CALL
#include "device/cuda/driver/driver.def"
#undef RABBET_CUDA_CALL
#undef RABBET_CUDA_OPTIONAL
  int version;  // 13000: the newest CUDA that the driver knows
} rabbet_cuda_driver_t;

// The first call opens and initializes the driver for the process. Thread-safe.
// UNAVAILABLE if there is no driver, or no GPU that it can use.
rabbet_status_t rabbet_cuda_driver_get(const rabbet_cuda_driver_t** out_driver);

// Retains the first GPU's primary context, once, until the process ends, as the
// CUDA runtime does: it stays current on threads (rabbet_cuda_leave) and must
// not be destroyed under them. Thread-safe.
rabbet_status_t rabbet_cuda_driver_keep_first(
    const rabbet_cuda_driver_t* driver, CUdevice first);

// A status for a driver function's return code: OUT_OF_MEMORY, UNAVAILABLE or
// INTERNAL, with the driver's own name and text of the error.
rabbet_status_t rabbet_cuda_driver_status(const rabbet_cuda_driver_t* driver,
                                          CUresult result, const char* call);

// Calls a function of the driver: RABBET_CUDA(driver, cuMemFree, (memory)).
#define RABBET_CUDA(driver, name, arguments) \
  rabbet_cuda_driver_check((driver), (driver)->name arguments, #name)
static inline rabbet_status_t rabbet_cuda_driver_check(
    const rabbet_cuda_driver_t* driver, CUresult result, const char* call) {
  return result == CUDA_SUCCESS
             ? rabbet_ok()
             : rabbet_cuda_driver_status(driver, result, call);
}

#endif  // RABBET_SRC_DEVICE_CUDA_DRIVER_DRIVER_H_
