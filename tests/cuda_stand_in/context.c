// The device, its primary context, the names of errors.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cuda_stand_in/internal.h"

#define CONTEXT_MOST 8
#define CREATED_MOST 8

// The primary ones by their devices, then those of cuCtxCreate.
static struct CUctx_st contexts[CONTEXT_MOST + CREATED_MOST];
_Thread_local CUcontext context_current;
size_t context_memory_limit = (size_t)1 << 30;
int context_major = 9, context_minor = 0;

static int context_devices(void) {
  const char* text = getenv("RABBET_STAND_IN_DEVICES");
  int count = text && *text ? atoi(text) : 1;
  return count < CONTEXT_MOST ? count : CONTEXT_MOST;
}

size_t context_memory(void) {
  return context_memory_limit;
}

int context_count(void) {
  int count = 0;
  for (int i = 0; i < CONTEXT_MOST + CREATED_MOST; ++i)
    count += contexts[i].references;
  return count;
}

int context_count_but_kept(void) {
  return context_count() - (contexts[0].references > 0);
}

CUcontext context_of_device(int device) {
  if (device < 0 || device >= CONTEXT_MOST) return NULL;
  return contexts[device].references > 0 ? &contexts[device] : NULL;
}

CUresult context_check(unsigned flags) {
  if (!(flags & NEEDS_CONTEXT)) return CUDA_SUCCESS;
  if (!context_current) return ERROR_INVALID_CONTEXT;
  if (context_current->references == 0) return ERROR_CONTEXT_IS_DESTROYED;
  if (flags & RELEASES) return CUDA_SUCCESS;
  return context_current->broken;
}

static CUresult device_check(CUdevice device) {
  return device >= 0 && device < context_devices() ? CUDA_SUCCESS
                                                   : CUDA_ERROR_INVALID_DEVICE;
}

// ---- Errors ----------------------------------------------------------------

static const struct {
  CUresult code;
  const char *name, *text;
} errors[] = {
    {CUDA_SUCCESS, "CUDA_SUCCESS", "no error"},
    {CUDA_ERROR_INVALID_VALUE, "CUDA_ERROR_INVALID_VALUE", "invalid argument"},
    {ERROR_COOPERATIVE_LAUNCH_TOO_LARGE,
     "CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE",
     "too many blocks in cooperative launch"},
    {CUDA_ERROR_OUT_OF_MEMORY, "CUDA_ERROR_OUT_OF_MEMORY", "out of memory"},
    {CUDA_ERROR_NOT_INITIALIZED, "CUDA_ERROR_NOT_INITIALIZED",
     "initialization error"},
    {CUDA_ERROR_NO_DEVICE, "CUDA_ERROR_NO_DEVICE",
     "no CUDA-capable device is detected"},
    {CUDA_ERROR_INVALID_DEVICE, "CUDA_ERROR_INVALID_DEVICE",
     "invalid device ordinal"},
    {CUDA_ERROR_INVALID_IMAGE, "CUDA_ERROR_INVALID_IMAGE",
     "device kernel image is invalid"},
    {ERROR_INVALID_CONTEXT, "CUDA_ERROR_INVALID_CONTEXT",
     "invalid device context"},
    {CUDA_ERROR_NO_BINARY_FOR_GPU, "CUDA_ERROR_NO_BINARY_FOR_GPU",
     "no kernel image is available for execution on the device"},
    {ERROR_INVALID_HANDLE, "CUDA_ERROR_INVALID_HANDLE",
     "invalid resource handle"},
    {ERROR_ILLEGAL_STATE, "CUDA_ERROR_ILLEGAL_STATE",
     "the operation cannot be performed in the present state"},
    {CUDA_ERROR_NOT_FOUND, "CUDA_ERROR_NOT_FOUND", "named symbol not found"},
    {CUDA_ERROR_NOT_READY, "CUDA_ERROR_NOT_READY", "device not ready"},
    {CUDA_ERROR_ILLEGAL_ADDRESS, "CUDA_ERROR_ILLEGAL_ADDRESS",
     "an illegal memory access was encountered"},
    {ERROR_CONTEXT_IS_DESTROYED, "CUDA_ERROR_CONTEXT_IS_DESTROYED",
     "context is destroyed"},
    {ERROR_LAUNCH_FAILED, "CUDA_ERROR_LAUNCH_FAILED",
     "unspecified launch failure"},
    {CUDA_ERROR_NOT_SUPPORTED, "CUDA_ERROR_NOT_SUPPORTED",
     "operation not supported"},
    {CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED,
     "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED",
     "operation not permitted when stream is capturing"},
    {CUDA_ERROR_STREAM_CAPTURE_INVALIDATED,
     "CUDA_ERROR_STREAM_CAPTURE_INVALIDATED",
     "operation failed due to a previous error during capture"},
    {ERROR_CAPTURE_MERGE, "CUDA_ERROR_STREAM_CAPTURE_MERGE",
     "operation would result in a merge of separate capture sequences"},
    {ERROR_CAPTURE_UNMATCHED, "CUDA_ERROR_STREAM_CAPTURE_UNMATCHED",
     "capture was not ended in the same stream as it began"},
    {ERROR_CAPTURE_UNJOINED, "CUDA_ERROR_STREAM_CAPTURE_UNJOINED",
     "capturing stream has unjoined work"},
    {ERROR_CAPTURE_ISOLATION, "CUDA_ERROR_STREAM_CAPTURE_ISOLATION",
     "dependency created on uncaptured work in another stream"},
    {ERROR_CAPTURE_IMPLICIT, "CUDA_ERROR_STREAM_CAPTURE_IMPLICIT",
     "operation would make the legacy stream depend on a capturing blocking "
     "stream"},
    {ERROR_CAPTURED_EVENT, "CUDA_ERROR_CAPTURED_EVENT",
     "operation not permitted on an event last recorded in a capturing "
     "stream"},
    {ERROR_CAPTURE_WRONG_THREAD, "CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD",
     "attempt to terminate a thread-local capture sequence from another "
     "thread"},
    {CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE,
     "CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE",
     "the graph update was not performed because it included changes which "
     "violated constraints specific to instantiated graph update"},
};

// Neither is logged, counted or made to fail: they describe failures.
CUresult stand_in_cuGetErrorName(CUresult result, const char** name) {
  *name = NULL;
  for (size_t i = 0; i < sizeof(errors) / sizeof(errors[0]); ++i)
    if (errors[i].code == result) *name = errors[i].name;
  return *name ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult stand_in_cuGetErrorString(CUresult result, const char** text) {
  *text = NULL;
  for (size_t i = 0; i < sizeof(errors) / sizeof(errors[0]); ++i)
    if (errors[i].code == result) *text = errors[i].text;
  return *text ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

// ---- The device ------------------------------------------------------------

CUresult stand_in_cuInit(unsigned flags) {
  ENTRY(cuInit, WITHOUT_DRIVER, ("flags %u", flags),
        flags != 0              ? CUDA_ERROR_INVALID_VALUE
        : context_devices() < 1 ? CUDA_ERROR_NO_DEVICE
                                : CUDA_SUCCESS);
}

CUresult stand_in_cuDriverGetVersion(int* version) {
  ENTRY(cuDriverGetVersion, WITHOUT_DRIVER, (" "),
        (*version = 13000, CUDA_SUCCESS));
}

CUresult stand_in_cuDeviceGetCount(int* count) {
  ENTRY(cuDeviceGetCount, 0, (" "), (*count = context_devices(), CUDA_SUCCESS));
}

CUresult stand_in_cuDeviceGet(CUdevice* device, int ordinal) {
  ENTRY(cuDeviceGet, 0, ("%d", ordinal),
        (*device = ordinal, device_check(ordinal)));
}

CUresult stand_in_cuDeviceGetName(char* name, int size, CUdevice device) {
  ENTRY(cuDeviceGetName, 0, ("%d", device),
        (snprintf(name, (size_t)size, "Stand-in GPU"), device_check(device)));
}

static const struct {
  int attribute, value;
} attributes[] = {
    {CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK, 1024},
    {2, 1024},        // the most threads of a block along x,
    {3, 1024},        // y
    {4, 64},          // and z
    {5, 2147483647},  // the most blocks along x,
    {6, 65535},       // y
    {7, 65535},       // and z
    {CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK, 49152},
    {CU_DEVICE_ATTRIBUTE_WARP_SIZE, 32},
    // Few, so that small tensors make kernels loop.
    {CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, 4},
    {CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE, 1 << 20},
    {CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR, 2048},
    {CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN, 232448},
};

static bool has_pools(void) {
  const char* text = getenv("RABBET_STAND_IN_POOLS");
  return !text || strcmp(text, "0") != 0;
}

static CUresult device_attribute(int* value, int attribute, CUdevice device) {
  if (device_check(device) != CUDA_SUCCESS) return CUDA_ERROR_INVALID_DEVICE;
  if (attribute == CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)
    return *value = context_major, CUDA_SUCCESS;
  if (attribute == CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)
    return *value = context_minor, CUDA_SUCCESS;
  if (attribute == CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED)
    return *value = has_pools(), CUDA_SUCCESS;
  for (size_t i = 0; i < sizeof(attributes) / sizeof(attributes[0]); ++i)
    if (attributes[i].attribute == attribute)
      return *value = attributes[i].value, CUDA_SUCCESS;
  return CUDA_ERROR_INVALID_VALUE;
}

CUresult stand_in_cuDeviceGetAttribute(int* value, int attribute,
                                       CUdevice device) {
  ENTRY(cuDeviceGetAttribute, 0, ("%d of %d", attribute, device),
        device_attribute(value, attribute, device));
}

CUresult stand_in_cuDeviceTotalMem(size_t* bytes, CUdevice device) {
  ENTRY(cuDeviceTotalMem, 0, ("%d", device),
        (*bytes = context_memory(), device_check(device)));
}

// ---- Contexts --------------------------------------------------------------

static CUresult context_retain(CUcontext* context, CUdevice device) {
  if (device_check(device) != CUDA_SUCCESS) return CUDA_ERROR_INVALID_DEVICE;
  contexts[device].device = device;
  ++contexts[device].references;
  *context = &contexts[device];
  return CUDA_SUCCESS;
}

CUresult stand_in_cuDevicePrimaryCtxRetain(CUcontext* context,
                                           CUdevice device) {
  ENTRY(cuDevicePrimaryCtxRetain, 0, ("%d", device),
        context_retain(context, device));
}

// After the last release of all, but for the reference that is kept, nobody is
// there to give back what is in the contexts: it is reported.
static CUresult context_drop(CUcontext context) {
  if (--context->references == 0) context->broken = CUDA_SUCCESS;
  if (context_count_but_kept() > 0) return CUDA_SUCCESS;
  stream_drain_all();
  int objects = memory_count() + stream_count() + event_count() +
                module_count() + graph_count() + graph_exec_count();
  if (objects > 0) {
    misuse(
        "the context goes with %d allocations, %d streams, %d events, %d "
        "modules and %d graphs in it",
        memory_count(), stream_count(), event_count(), module_count(),
        graph_count() + graph_exec_count());
    memory_report();
  }
  return CUDA_SUCCESS;
}

static CUresult context_release(CUdevice device) {
  if (device_check(device) != CUDA_SUCCESS) return CUDA_ERROR_INVALID_DEVICE;
  CUcontext context = &contexts[device];
  if (context->references == 0) return ERROR_INVALID_CONTEXT;
  return context_drop(context);
}

CUresult stand_in_cuDevicePrimaryCtxRelease(CUdevice device) {
  ENTRY(cuDevicePrimaryCtxRelease, RELEASES, ("%d", device),
        context_release(device));
}

CUresult stand_in_cuCtxGetCurrent(CUcontext* context) {
  ENTRY(cuCtxGetCurrent, 0, (" "), (*context = context_current, CUDA_SUCCESS));
}

static CUresult context_set(CUcontext context) {
  bool known = context == NULL;
  for (int i = 0; i < CONTEXT_MOST + CREATED_MOST; ++i)
    known = known || (context == &contexts[i] && context->references > 0);
  if (!known) {  // with which a driver may well end the process
    misuse("context %p is gone, or never was", (void*)context);
    return ERROR_INVALID_CONTEXT;
  }
  context_current = context;
  return CUDA_SUCCESS;
}

CUresult stand_in_cuCtxSetCurrent(CUcontext context) {
  ENTRY(cuCtxSetCurrent, 0, ("%p", (void*)context), context_set(context));
}

static CUresult context_device(CUdevice* device) {
  *device = context_current->device;
  return CUDA_SUCCESS;
}

CUresult stand_in_cuCtxGetDevice(CUdevice* device) {
  ENTRY(cuCtxGetDevice, NEEDS_CONTEXT, (" "), context_device(device));
}

static CUresult context_state(CUdevice device, unsigned* flags, int* active) {
  if (device_check(device) != CUDA_SUCCESS) return CUDA_ERROR_INVALID_DEVICE;
  *flags = 0;
  *active = contexts[device].references > 0;
  return CUDA_SUCCESS;
}

CUresult stand_in_cuDevicePrimaryCtxGetState(CUdevice device, unsigned* flags,
                                             int* active) {
  ENTRY(cuDevicePrimaryCtxGetState, 0, ("%d", device),
        context_state(device, flags, active));
}

// ---- Contexts that programs make for themselves ----------------------------

static CUresult context_create(CUcontext* context, CUdevice device) {
  if (device_check(device) != CUDA_SUCCESS) return CUDA_ERROR_INVALID_DEVICE;
  CUcontext made = &contexts[CONTEXT_MOST];
  CUcontext end = made + CREATED_MOST;
  while (made < end && made->references > 0)
    ++made;
  if (made == end) return CUDA_ERROR_OUT_OF_MEMORY;
  *made = (struct CUctx_st){.device = device, .references = 1};
  *context = context_current = made;
  return CUDA_SUCCESS;
}

// Rabbet calls none of these; tests do, in the place of a user's program.
EXPORT CUresult cuDevicePrimaryCtxReset_v2(CUdevice device);
EXPORT CUresult cuCtxCreate_v2(CUcontext* context, unsigned flags,
                               CUdevice device);
EXPORT CUresult cuCtxDestroy_v2(CUcontext context);

CUresult cuCtxCreate_v2(CUcontext* context, unsigned flags, CUdevice device) {
  ENTRY(cuCtxCreate, 0, ("flags %u of %d", flags, device),
        context_create(context, device));
}

// Whatever is in it goes with it: no misuse, as the caller wants it so.
static void context_empty(CUcontext context) {
  stream_drain_all();
  stream_drop(context);
  module_drop(context);
  memory_drop(context);
}

static CUresult context_reset(CUdevice device) {
  if (device_check(device) != CUDA_SUCCESS) return CUDA_ERROR_INVALID_DEVICE;
  context_empty(&contexts[device]);
  contexts[device].broken = CUDA_SUCCESS;
  return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxReset_v2(CUdevice device) {
  ENTRY(cuDevicePrimaryCtxReset, RELEASES, ("%d", device),
        context_reset(device));
}

static CUresult context_destroy(CUcontext context) {
  if (context < &contexts[CONTEXT_MOST] ||
      context >= &contexts[CONTEXT_MOST + CREATED_MOST] ||
      context->references == 0)
    return ERROR_INVALID_CONTEXT;
  context_empty(context);
  if (context_current == context) context_current = NULL;
  return context_drop(context);
}

CUresult cuCtxDestroy_v2(CUcontext context) {
  ENTRY(cuCtxDestroy, RELEASES, ("%p", (void*)context),
        context_destroy(context));
}
