#include "device/cuda/nccl/nccl.h"

#include "device/cuda/driver/library.h"

enum { NCCL_OLDEST = 21900 };  // splits with a configuration

static const char* const nccl_names[] = {"libnccl.so.2", "libnccl.so", NULL};
static const rabbet_cuda_library_t nccl_library = {
    .title = "NCCL, which exchanges data between GPUs,",
    .variable = "RABBET_NCCL",
    .file_names = nccl_names,
    .hint = "pip install nvidia-nccl-cu13 (or -cu12), or install libnccl2",
};

static const rabbet_cuda_symbol_t nccl_symbols[] = {
#define RABBET_NCCL_CALL(result, name, parameters) \
  {#name, offsetof(rabbet_nccl_t, name), false},
#include "device/cuda/nccl/nccl.def"
#undef RABBET_NCCL_CALL
};

rabbet_status_t rabbet_nccl_status(const rabbet_nccl_t* library,
                                   ncclComm_t comm, ncclResult_t result,
                                   const char* call) {
  rabbet_status_code_t code = RABBET_STATUS_INTERNAL;
  if (result == ncclInvalidArgument || result == ncclInvalidUsage)
    code = RABBET_STATUS_INVALID_ARGUMENT;
  if (result == ncclRemoteError || result == ncclSystemError)
    code = RABBET_STATUS_UNAVAILABLE;
  const char* text = library->ncclGetErrorString(result);
  const char* last = library->ncclGetLastError(comm);
  return RABBET_STATUS(code, "%s: %s (%d)%s%s", call, text ? text : "no text",
                       result, last && *last ? ": " : "", last ? last : "");
}

static rabbet_status_t nccl_open(rabbet_nccl_t* library) {
  void* handle = NULL;
  RABBET_RETURN_IF_ERROR(rabbet_cuda_library_open(&nccl_library, &handle));
  RABBET_RETURN_IF_ERROR(rabbet_cuda_library_bind(
      &nccl_library, handle, nccl_symbols,
      sizeof(nccl_symbols) / sizeof(nccl_symbols[0]), library));
  RABBET_RETURN_IF_ERROR(
      RABBET_NCCL(library, NULL, ncclGetVersion, (&library->version)));
  if (library->version >= NCCL_OLDEST) return rabbet_ok();
  return RABBET_STATUS(RABBET_STATUS_UNAVAILABLE,
                       "NCCL has version %d; %d or newer is needed",
                       library->version, NCCL_OLDEST);
}

rabbet_status_t rabbet_nccl_get(rabbet_cuda_device_t* device,
                                const rabbet_nccl_t** out_library) {
  rabbet_status_t status = rabbet_ok();
  rabbet_nccl_t* library = NULL;
  pthread_mutex_lock(&device->libraries);
  if (!device->nccl) {
    status = rabbet_allocate(device->base.allocator, sizeof(*library),
                             (void**)&library);
    if (rabbet_is_ok(status)) status = nccl_open(library);
    if (!rabbet_is_ok(status)) {
      rabbet_free(device->base.allocator, library);
      library = NULL;
    }
    device->nccl = library;
  }
  *out_library = device->nccl;
  pthread_mutex_unlock(&device->libraries);
  return status;
}

void rabbet_nccl_destroy(rabbet_cuda_device_t* device) {
  rabbet_free(device->base.allocator, device->nccl);
  device->nccl = NULL;
}
