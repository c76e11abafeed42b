// The factory of providers, which ONNX Runtime opens the library for.
#include <stdatomic.h>
#include <string.h>

#include "ortep/ep.h"
#include "ortep/gpu.h"
#include "ortep/operators.h"

#define FACTORY_API __attribute__((visibility("default")))

typedef struct factory_t {
  OrtEpFactory base;
  // ONNX Runtime's, and one of each provider and allocator: a program may
  // unregister the library while it has sessions or tensors.
  atomic_size_t references;
  // Of sessions without a file for it: later ones need no measurements that an
  // earlier one made.
  rabbet_timing_cache_t* timing_cache;
  // By the number of the device, in memory infos and in names.
  rabbet_ort_gpu_t gpus[RABBET_ORT_MOST_GPUS];
  size_t gpu_count;
} factory_t;

static void factory_release(factory_t* factory) {
  if (atomic_fetch_sub(&factory->references, 1) != 1) return;
  for (size_t i = 0; i < factory->gpu_count; ++i)
    rabbet_ort_gpu_close(&factory->gpus[i]);
  rabbet_timing_cache_release(factory->timing_cache);
  rabbet_free(rabbet_allocator_system(), factory);
}

static const char* factory_name(const OrtEpFactory* self) {
  (void)self;
  return RABBET_ORT_EP_NAME;
}

static const char* factory_vendor(const OrtEpFactory* self) {
  (void)self;
  return "Rabbet";
}

static uint32_t factory_vendor_id(const OrtEpFactory* self) {
  (void)self;
  return 0;
}

static const char* factory_version(const OrtEpFactory* self) {
  (void)self;
  return rabbet_version();
}

// ---- Devices

// Whether the program wants devices that ONNX Runtime has not found: its
// library has a name that ends in ".virtual".
static bool factory_wants_virtual(void) {
  OrtKeyValuePairs* entries = NULL;
  rabbet_status_t status = ORT_EP(GetEnvConfigEntries, &entries);
  const char* value =
      rabbet_is_ok(status)
          ? rabbet_ort.api->GetKeyValue(entries, "allow_virtual_devices")
          : NULL;
  const bool wants = value && strcmp(value, "1") == 0;
  if (entries) rabbet_ort.api->ReleaseKeyValuePairs(entries);
  rabbet_status_ignore(status);
  return wants;
}

static rabbet_status_t factory_add_device(OrtEpFactory* self,
                                          const OrtHardwareDevice* device,
                                          const rabbet_ort_gpu_t* gpu,
                                          OrtEpDevice** out_device) {
  OrtKeyValuePairs* metadata = NULL;
  rabbet_ort.api->CreateKeyValuePairs(&metadata);
  rabbet_ort.api->AddKeyValuePair(metadata, RABBET_ORT_DEVICE_KEY,
                                  gpu ? gpu->name : "cpu");
  rabbet_status_t status =
      ORT_EP(CreateEpDevice, self, device, metadata, NULL, out_device);
  rabbet_ort.api->ReleaseKeyValuePairs(metadata);
  if (rabbet_is_ok(status) && gpu)
    status = ORT_EP(EpDevice_AddAllocatorInfo, *out_device, gpu->memory);
  return status;
}

// The next GPU; false if there is none, or no driver.
static bool factory_open_gpu(factory_t* factory) {
  if (factory->gpu_count == RABBET_ORT_MOST_GPUS) return false;
  rabbet_status_t status = rabbet_ort_gpu_open(
      (int)factory->gpu_count, &factory->gpus[factory->gpu_count]);
  const bool is_open = rabbet_is_ok(status);
  rabbet_status_ignore(status);
  factory->gpu_count += is_open;
  return is_open;
}

// GPUs count in the order in which ONNX Runtime lists them.
static rabbet_status_t factory_add_found(factory_t* factory,
                                         const OrtHardwareDevice* device,
                                         OrtEpDevice** out_devices,
                                         size_t* count) {
  const rabbet_ort_gpu_t* gpu = NULL;
  if (rabbet_ort.api->HardwareDevice_Type(device) ==
      OrtHardwareDeviceType_GPU) {
    if (rabbet_ort.api->HardwareDevice_VendorId(device) !=
            RABBET_ORT_GPU_VENDOR ||
        !factory_open_gpu(factory))
      return rabbet_ok();
    gpu = &factory->gpus[factory->gpu_count - 1];
  } else if (rabbet_ort.api->HardwareDevice_Type(device) !=
             OrtHardwareDeviceType_CPU) {
    return rabbet_ok();
  }
  RABBET_RETURN_IF_ERROR(
      factory_add_device(&factory->base, device, gpu, &out_devices[*count]));
  ++*count;
  return rabbet_ok();
}

static rabbet_status_t factory_add_virtual(factory_t* factory,
                                           OrtEpDevice** out_devices,
                                           size_t capacity, size_t* count) {
  while (*count < capacity && factory_open_gpu(factory)) {
    rabbet_ort_gpu_t* gpu = &factory->gpus[factory->gpu_count - 1];
    RABBET_RETURN_IF_ERROR(
        ORT_EP(CreateHardwareDevice, OrtHardwareDeviceType_GPU,
               RABBET_ORT_GPU_VENDOR, (uint32_t)factory->gpu_count - 1,
               "NVIDIA", NULL, &gpu->virtual_device));
    RABBET_RETURN_IF_ERROR(factory_add_device(
        &factory->base, gpu->virtual_device, gpu, &out_devices[*count]));
    ++*count;
  }
  return rabbet_ok();
}

static OrtStatus* factory_get_devices(OrtEpFactory* self,
                                      const OrtHardwareDevice* const* devices,
                                      size_t count, OrtEpDevice** out_devices,
                                      size_t capacity, size_t* out_count) {
  factory_t* factory = (factory_t*)self;
  rabbet_status_t status = rabbet_ok();
  *out_count = 0;
  for (size_t i = 0; rabbet_is_ok(status) && i < count && *out_count < capacity;
       ++i)
    status = factory_add_found(factory, devices[i], out_devices, out_count);
  if (rabbet_is_ok(status) && factory_wants_virtual())
    status = factory_add_virtual(factory, out_devices, capacity, out_count);
  return rabbet_ort_error(status);
}

// A provider has one device: the first of those that were chosen.
static OrtStatus* factory_create_ep(OrtEpFactory* self,
                                    const OrtHardwareDevice* const* devices,
                                    const OrtKeyValuePairs* const* metadata,
                                    size_t count,
                                    const OrtSessionOptions* options,
                                    const OrtLogger* logger, OrtEp** out_ep) {
  factory_t* factory = (factory_t*)self;
  (void)devices;
  const char* device =
      count && metadata[0]
          ? rabbet_ort.api->GetKeyValue(metadata[0], RABBET_ORT_DEVICE_KEY)
          : NULL;
  const bool on_gpu = device && strcmp(device, "cpu") != 0;
  rabbet_status_t status =
      rabbet_ort_ep_create(options, logger, device ? device : "cpu", on_gpu,
                           factory->timing_cache, out_ep);
  if (rabbet_is_ok(status)) atomic_fetch_add(&factory->references, 1);
  return rabbet_ort_error(status);
}

static void factory_release_ep(OrtEpFactory* self, OrtEp* ep) {
  if (!ep) return;
  rabbet_ort_ep_destroy(ep);
  factory_release((factory_t*)self);
}

// ---- Memory and streams of GPUs

static const rabbet_ort_gpu_t* factory_find_gpu(const factory_t* factory,
                                                const OrtMemoryDevice* memory) {
  const uint32_t id = rabbet_ort.ep->MemoryDevice_GetDeviceId(memory);
  if (rabbet_ort.ep->MemoryDevice_GetDeviceType(memory) !=
      OrtMemoryInfoDeviceType_GPU)
    return NULL;
  return id < factory->gpu_count ? &factory->gpus[id] : NULL;
}

static OrtStatus* factory_create_allocator(OrtEpFactory* self,
                                           const OrtMemoryInfo* info,
                                           const OrtKeyValuePairs* options,
                                           OrtAllocator** out) {
  (void)options;
  *out = NULL;
  if (!info) return NULL;
  const rabbet_ort_gpu_t* gpu = factory_find_gpu(
      (const factory_t*)self, rabbet_ort.ep->MemoryInfo_GetMemoryDevice(info));
  if (!gpu) return NULL;
  rabbet_status_t status = rabbet_ort_gpu_allocator(gpu, out);
  if (rabbet_is_ok(status))
    atomic_fetch_add(&((factory_t*)self)->references, 1);
  return rabbet_ort_error(status);
}

static void factory_release_allocator(OrtEpFactory* self,
                                      OrtAllocator* allocator) {
  if (!allocator) return;
  rabbet_ort_gpu_release_allocator(allocator);
  factory_release((factory_t*)self);
}

static OrtStatus* factory_create_data_transfer(OrtEpFactory* self,
                                               OrtDataTransferImpl** out) {
  const factory_t* factory = (const factory_t*)self;
  *out = NULL;
  if (!factory->gpu_count) return NULL;
  return rabbet_ort_error(
      rabbet_ort_gpu_transfer(factory->gpus, factory->gpu_count, out));
}

static bool factory_is_stream_aware(const OrtEpFactory* self) {
  return ((const factory_t*)self)->gpu_count > 0;
}

static OrtStatus* factory_create_stream(OrtEpFactory* self,
                                        const OrtMemoryDevice* memory,
                                        const OrtKeyValuePairs* options,
                                        OrtSyncStreamImpl** out) {
  (void)options;
  *out = NULL;
  const rabbet_ort_gpu_t* gpu =
      factory_find_gpu((const factory_t*)self, memory);
  return gpu ? rabbet_ort_error(rabbet_ort_gpu_stream(gpu, out)) : NULL;
}

// ---- Operators

static OrtStatus* factory_count_domains(OrtEpFactory* self, size_t* out) {
  (void)self;
  return rabbet_ort_error(rabbet_ort_operators_count(out));
}

static OrtStatus* factory_get_domains(OrtEpFactory* self,
                                      OrtCustomOpDomain** out, size_t count) {
  (void)self;
  return rabbet_ort_error(rabbet_ort_operators_get(out, count));
}

static rabbet_status_t factory_create(factory_t** out_factory) {
  const rabbet_allocator_t allocator = rabbet_allocator_system();
  factory_t* factory = NULL;
  *out_factory = NULL;
  RABBET_RETURN_IF_ERROR(
      rabbet_allocate(allocator, sizeof(*factory), (void**)&factory));
  factory->base = (OrtEpFactory){
      .ort_version_supported = ORT_INTERFACE_VERSION,
      .GetName = factory_name,
      .GetVendor = factory_vendor,
      .GetSupportedDevices = factory_get_devices,
      .CreateEp = factory_create_ep,
      .ReleaseEp = factory_release_ep,
      .GetVendorId = factory_vendor_id,
      .GetVersion = factory_version,
      .CreateAllocator = factory_create_allocator,
      .ReleaseAllocator = factory_release_allocator,
      .CreateDataTransfer = factory_create_data_transfer,
      .IsStreamAware = factory_is_stream_aware,
      .CreateSyncStreamForDevice = factory_create_stream,
      .GetNumCustomOpDomains = factory_count_domains,
      .GetCustomOpDomains = factory_get_domains,
  };
  atomic_init(&factory->references, 1);
  rabbet_status_t status =
      rabbet_timing_cache_create(NULL, 0, allocator, &factory->timing_cache);
  if (rabbet_is_ok(status))
    *out_factory = factory;
  else
    rabbet_free(allocator, factory);
  return status;
}

FACTORY_API OrtStatus* CreateEpFactories(const char* name,
                                         const OrtApiBase* base,
                                         const OrtLogger* logger,
                                         OrtEpFactory** out_factories,
                                         size_t capacity, size_t* out_count);
FACTORY_API OrtStatus* CreateEpFactories(const char* name,
                                         const OrtApiBase* base,
                                         const OrtLogger* logger,
                                         OrtEpFactory** out_factories,
                                         size_t capacity, size_t* out_count) {
  factory_t* factory = NULL;
  (void)name, (void)logger;
  *out_count = 0;
  rabbet_status_t status = rabbet_ort_open(base);
  if (!rabbet_is_ok(status)) return rabbet_ort_open_error(base, status);
  if (capacity < 1)
    status = RABBET_STATUS(RABBET_STATUS_INVALID_ARGUMENT,
                           "there is no room for a factory");
  if (rabbet_is_ok(status)) status = factory_create(&factory);
  if (!rabbet_is_ok(status)) return rabbet_ort_error(status);
  out_factories[0] = &factory->base;
  *out_count = 1;
  return NULL;
}

FACTORY_API OrtStatus* ReleaseEpFactory(OrtEpFactory* self);
FACTORY_API OrtStatus* ReleaseEpFactory(OrtEpFactory* self) {
  if (self) factory_release((factory_t*)self);
  return NULL;
}

// For sessions that get the provider by its name once their model is loaded, as
// those of Python with `providers=`: their options take this library as one of
// custom operators, too.
FACTORY_API OrtStatus* RegisterCustomOps(OrtSessionOptions* options,
                                         const OrtApiBase* base);
FACTORY_API OrtStatus* RegisterCustomOps(OrtSessionOptions* options,
                                         const OrtApiBase* base) {
  rabbet_status_t status = rabbet_ort_open(base);
  if (!rabbet_is_ok(status)) return rabbet_ort_open_error(base, status);
  return rabbet_ort_error(rabbet_ort_operators_add(options));
}
