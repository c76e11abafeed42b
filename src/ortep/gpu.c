#include "ortep/gpu.h"

#include <assert.h>
#include <stdio.h>

#include "device/device.h"

// Not told: ONNX Runtime takes memory of another alignment for another
// device's, and a program that binds to "cuda" names none.
enum { GPU_ALIGNMENT = 0 };
#define GPU_NAME "cuda:%d"

rabbet_status_t rabbet_ort_gpu_open(int ordinal, rabbet_ort_gpu_t* out_gpu) {
  *out_gpu = (rabbet_ort_gpu_t){0};
  snprintf(out_gpu->name, sizeof(out_gpu->name), GPU_NAME, ordinal);
  RABBET_RETURN_IF_ERROR(rabbet_device_create(
      out_gpu->name, rabbet_allocator_system(), &out_gpu->device));
  rabbet_status_t status =
      ORT(CreateMemoryInfo_V2, "Rabbet", OrtMemoryInfoDeviceType_GPU,
          RABBET_ORT_GPU_VENDOR, ordinal, OrtDeviceMemoryType_DEFAULT,
          GPU_ALIGNMENT, OrtDeviceAllocator, &out_gpu->memory);
  if (!rabbet_is_ok(status)) rabbet_ort_gpu_close(out_gpu);
  return status;
}

int rabbet_ort_gpu_ordinal(const char* name) {
  int ordinal = -1;
  const int count = sscanf(name, GPU_NAME, &ordinal);
  assert(count == 1);
  (void)count;
  return ordinal;
}

void rabbet_ort_gpu_close(rabbet_ort_gpu_t* gpu) {
  if (gpu->memory) rabbet_ort.api->ReleaseMemoryInfo(gpu->memory);
  if (gpu->virtual_device)
    rabbet_ort.ep->ReleaseHardwareDevice(gpu->virtual_device);
  rabbet_device_release(gpu->device);
  *gpu = (rabbet_ort_gpu_t){0};
}

// ---- Memory

typedef struct gpu_allocator_t {
  OrtAllocator base;
  const rabbet_ort_gpu_t* gpu;
} gpu_allocator_t;

// NULL says that there is no memory.
static void* gpu_allocate(OrtAllocator* self, size_t size) {
  rabbet_device_t* device = ((gpu_allocator_t*)self)->gpu->device;
  void* memory = NULL;
  if (size)
    rabbet_status_ignore(device->vtable->allocate(device, size, &memory));
  return memory;
}

static void gpu_free(OrtAllocator* self, void* memory) {
  rabbet_device_t* device = ((gpu_allocator_t*)self)->gpu->device;
  if (memory) device->vtable->free(device, memory);
}

static const OrtMemoryInfo* gpu_memory_info(const OrtAllocator* self) {
  return ((const gpu_allocator_t*)self)->gpu->memory;
}

rabbet_status_t rabbet_ort_gpu_allocator(const rabbet_ort_gpu_t* gpu,
                                         OrtAllocator** out_allocator) {
  gpu_allocator_t* allocator = NULL;
  *out_allocator = NULL;
  RABBET_RETURN_IF_ERROR(rabbet_allocate(
      rabbet_allocator_system(), sizeof(*allocator), (void**)&allocator));
  allocator->base = (OrtAllocator){
      .version = ORT_INTERFACE_VERSION,
      .Alloc = gpu_allocate,
      .Free = gpu_free,
      .Info = gpu_memory_info,
      .Reserve = gpu_allocate,
  };
  allocator->gpu = gpu;
  *out_allocator = &allocator->base;
  return rabbet_ok();
}

void rabbet_ort_gpu_release_allocator(OrtAllocator* allocator) {
  rabbet_free(rabbet_allocator_system(), allocator);
}

// ---- Streams

typedef struct gpu_stream_t {
  OrtSyncStreamImpl base;
  rabbet_device_t* device;
  void* stream;
} gpu_stream_t;

typedef struct gpu_notification_t {
  OrtSyncNotificationImpl base;
  const gpu_stream_t* stream;
} gpu_notification_t;

static OrtStatus* gpu_synchronize(const gpu_stream_t* stream) {
  return rabbet_ort_error(
      stream->device->vtable->synchronize(stream->device, stream->stream));
}

static void gpu_release_notification(OrtSyncNotificationImpl* self) {
  rabbet_free(rabbet_allocator_system(), self);
}
static OrtStatus* gpu_activate(OrtSyncNotificationImpl* self) {
  (void)self;
  return NULL;
}
// The host waits for all that the producer has enqueued: devices have no wait
// of one stream for another.
static OrtStatus* gpu_wait_on_device(OrtSyncNotificationImpl* self,
                                     OrtSyncStream* consumer) {
  (void)consumer;
  return gpu_synchronize(((gpu_notification_t*)self)->stream);
}
static OrtStatus* gpu_wait_on_host(OrtSyncNotificationImpl* self) {
  return gpu_synchronize(((gpu_notification_t*)self)->stream);
}

static OrtStatus* gpu_create_notification(OrtSyncStreamImpl* self,
                                          OrtSyncNotificationImpl** out) {
  gpu_notification_t* notification = NULL;
  *out = NULL;
  rabbet_status_t status = rabbet_allocate(
      rabbet_allocator_system(), sizeof(*notification), (void**)&notification);
  if (!rabbet_is_ok(status)) return rabbet_ort_error(status);
  notification->base = (OrtSyncNotificationImpl){
      .ort_version_supported = ORT_INTERFACE_VERSION,
      .Release = gpu_release_notification,
      .Activate = gpu_activate,
      .WaitOnDevice = gpu_wait_on_device,
      .WaitOnHost = gpu_wait_on_host,
  };
  notification->stream = (const gpu_stream_t*)self;
  *out = &notification->base;
  return NULL;
}

static void* gpu_stream_handle(OrtSyncStreamImpl* self) {
  return ((gpu_stream_t*)self)->stream;
}
static OrtStatus* gpu_flush(OrtSyncStreamImpl* self) {
  return gpu_synchronize((const gpu_stream_t*)self);
}
static OrtStatus* gpu_end_run(OrtSyncStreamImpl* self) {
  (void)self;
  return NULL;
}
static void gpu_release_stream(OrtSyncStreamImpl* self) {
  gpu_stream_t* stream = (gpu_stream_t*)self;
  stream->device->vtable->destroy_stream(stream->device, stream->stream);
  rabbet_device_release(stream->device);
  rabbet_free(rabbet_allocator_system(), stream);
}

rabbet_status_t rabbet_ort_gpu_stream(const rabbet_ort_gpu_t* gpu,
                                      OrtSyncStreamImpl** out_stream) {
  const rabbet_allocator_t allocator = rabbet_allocator_system();
  gpu_stream_t* stream = NULL;
  *out_stream = NULL;
  RABBET_RETURN_IF_ERROR(
      rabbet_allocate(allocator, sizeof(*stream), (void**)&stream));
  stream->base = (OrtSyncStreamImpl){
      .ort_version_supported = ORT_INTERFACE_VERSION,
      .Release = gpu_release_stream,
      .GetHandle = gpu_stream_handle,
      .CreateNotification = gpu_create_notification,
      .Flush = gpu_flush,
      .OnSessionRunEnd = gpu_end_run,
  };
  stream->device = gpu->device;
  rabbet_status_t status =
      gpu->device->vtable->create_stream(gpu->device, &stream->stream);
  if (!rabbet_is_ok(status)) {
    rabbet_free(allocator, stream);
    return status;
  }
  // A program's stream may be there longer than the factory and its GPUs.
  rabbet_refcount_retain(&stream->device->references);
  *out_stream = &stream->base;
  return rabbet_ok();
}

// ---- Places

static bool gpu_is_host(const OrtMemoryDevice* memory) {
  return rabbet_ort.ep->MemoryDevice_GetDeviceType(memory) ==
         OrtMemoryInfoDeviceType_CPU;
}

static bool gpu_is_nvidia(const OrtMemoryDevice* memory) {
  return rabbet_ort.ep->MemoryDevice_GetDeviceType(memory) ==
             OrtMemoryInfoDeviceType_GPU &&
         rabbet_ort.ep->MemoryDevice_GetVendorId(memory) ==
             RABBET_ORT_GPU_VENDOR;
}

static bool gpu_is_pinned(const OrtMemoryDevice* memory) {
  return gpu_is_nvidia(memory) &&
         rabbet_ort.ep->MemoryDevice_GetMemoryType(memory) ==
             OrtDeviceMemoryType_HOST_ACCESSIBLE;
}

rabbet_status_t rabbet_ort_gpu_find_place(int ordinal, const OrtValue* tensor,
                                          const char* kind, const char* name,
                                          bool* out_is_on_host) {
  const OrtMemoryDevice* memory = rabbet_ort.ep->Value_GetMemoryDevice(tensor);
  *out_is_on_host = false;
  if (!memory)
    return RABBET_STATUS(RABBET_STATUS_INVALID_ARGUMENT, "%s '%s' is no tensor",
                         kind, name);
  *out_is_on_host = gpu_is_host(memory) || gpu_is_pinned(memory);
  const uint32_t id = rabbet_ort.ep->MemoryDevice_GetDeviceId(memory);
  if (*out_is_on_host || (gpu_is_nvidia(memory) && id == (uint32_t)ordinal))
    return rabbet_ok();
  return RABBET_STATUS(
      RABBET_STATUS_INVALID_ARGUMENT,
      "%s '%s' is in memory of device %u of type %d, vendor 0x%x; expected "
      "memory of the host or of '" GPU_NAME "'",
      kind, name, id, (int)rabbet_ort.ep->MemoryDevice_GetDeviceType(memory),
      rabbet_ort.ep->MemoryDevice_GetVendorId(memory), ordinal);
}

// ---- Copies

typedef struct gpu_transfer_t {
  OrtDataTransferImpl base;
  const rabbet_ort_gpu_t* gpus;
  size_t count;
} gpu_transfer_t;

// The GPU whose memory it is; NULL: the host's, or another's.
static const rabbet_ort_gpu_t* gpu_of(const gpu_transfer_t* transfer,
                                      const OrtMemoryDevice* memory) {
  if (!gpu_is_nvidia(memory) || gpu_is_pinned(memory)) return NULL;
  const uint32_t id = rabbet_ort.ep->MemoryDevice_GetDeviceId(memory);
  return id < transfer->count ? &transfer->gpus[id] : NULL;
}

static bool gpu_can_copy(const OrtDataTransferImpl* self,
                         const OrtMemoryDevice* source,
                         const OrtMemoryDevice* target) {
  const gpu_transfer_t* transfer = (const gpu_transfer_t*)self;
  const rabbet_ort_gpu_t* from = gpu_of(transfer, source);
  const rabbet_ort_gpu_t* to = gpu_of(transfer, target);
  return (from && to && from == to) || (from && gpu_is_host(target)) ||
         (to && gpu_is_host(source));
}

static rabbet_status_t gpu_copy(const gpu_transfer_t* transfer,
                                const OrtValue* source, OrtValue* target,
                                void* stream) {
  const rabbet_ort_gpu_t* from =
      gpu_of(transfer, rabbet_ort.ep->Value_GetMemoryDevice(source));
  const rabbet_ort_gpu_t* to =
      gpu_of(transfer, rabbet_ort.ep->Value_GetMemoryDevice(target));
  rabbet_device_t* device = (from ? from : to)->device;
  const void* data = NULL;
  void* place = NULL;
  size_t size = 0;
  RABBET_RETURN_IF_ERROR(ORT(GetTensorSizeInBytes, source, &size));
  RABBET_RETURN_IF_ERROR(ORT(GetTensorData, source, &data));
  RABBET_RETURN_IF_ERROR(ORT(GetTensorMutableData, target, &place));
  if (!size) return rabbet_ok();
  RABBET_RETURN_IF_ERROR(
      from && to ? device->vtable->copy(device, place, data, size, stream)
      : from
          ? device->vtable->copy_to_host(device, place, data, size, stream)
          : device->vtable->copy_to_device(device, place, data, size, stream));
  // The host's memory may go, or be read, at once; and without a stream of
  // its own the caller has nothing to wait for.
  return from && to && stream ? rabbet_ok()
                              : device->vtable->synchronize(device, stream);
}

static OrtStatus* gpu_copy_tensors(OrtDataTransferImpl* self,
                                   const OrtValue** sources, OrtValue** targets,
                                   OrtSyncStream** streams, size_t count) {
  rabbet_status_t status = rabbet_ok();
  for (size_t i = 0; rabbet_is_ok(status) && i < count; ++i) {
    const OrtSyncStreamImpl* stream =
        streams && streams[i] ? rabbet_ort.ep->SyncStream_GetImpl(streams[i])
                              : NULL;
    status = gpu_copy((const gpu_transfer_t*)self, sources[i], targets[i],
                      stream ? ((const gpu_stream_t*)stream)->stream : NULL);
  }
  return rabbet_ort_error(status);
}

static void gpu_release_transfer(OrtDataTransferImpl* self) {
  rabbet_free(rabbet_allocator_system(), self);
}

rabbet_status_t rabbet_ort_gpu_transfer(const rabbet_ort_gpu_t* gpus,
                                        size_t count,
                                        OrtDataTransferImpl** out_transfer) {
  gpu_transfer_t* transfer = NULL;
  *out_transfer = NULL;
  RABBET_RETURN_IF_ERROR(rabbet_allocate(rabbet_allocator_system(),
                                         sizeof(*transfer), (void**)&transfer));
  transfer->base = (OrtDataTransferImpl){
      .ort_version_supported = ORT_INTERFACE_VERSION,
      .Release = gpu_release_transfer,
      .CanCopy = gpu_can_copy,
      .CopyTensors = gpu_copy_tensors,
  };
  transfer->gpus = gpus;
  transfer->count = count;
  *out_transfer = &transfer->base;
  return rabbet_ok();
}
