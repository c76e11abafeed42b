// What ONNX Runtime opens the library for: the factory of providers.
#include <string.h>

#include "ortep/ep.h"
#include "ortep/operators.h"

#define FACTORY_API __attribute__((visibility("default")))

typedef struct factory_t {
  OrtEpFactory base;
  // Of sessions without a file for it: later ones need no measurements that an
  // earlier one made.
  rabbet_timing_cache_t* timing_cache;

} factory_t;

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

static OrtStatus* factory_get_devices(OrtEpFactory* self,
                                      const OrtHardwareDevice* const* devices,
                                      size_t count, OrtEpDevice** out_devices,
                                      size_t capacity, size_t* out_count) {
  *out_count = 0;
  rabbet_status_t status = rabbet_ok();
  for (size_t i = 0; i < count && *out_count < capacity; ++i) {
    if (rabbet_ort.api->HardwareDevice_Type(devices[i]) !=
        OrtHardwareDeviceType_CPU)
      continue;
    status = ORT_EP(CreateEpDevice, self, devices[i], NULL, NULL,
                    &out_devices[*out_count]);
    if (!rabbet_is_ok(status)) break;
    ++*out_count;
  }
  return rabbet_ort_error(status);
}

static OrtStatus* factory_create_ep(OrtEpFactory* self,
                                    const OrtHardwareDevice* const* devices,
                                    const OrtKeyValuePairs* const* metadata,
                                    size_t count,
                                    const OrtSessionOptions* options,
                                    const OrtLogger* logger, OrtEp** out_ep) {
  const factory_t* factory = (const factory_t*)self;
  (void)devices, (void)metadata, (void)count;
  return rabbet_ort_error(rabbet_ort_ep_create(options, logger, "cpu", false,
                                               factory->timing_cache, out_ep));
}

static void factory_release_ep(OrtEpFactory* self, OrtEp* ep) {
  (void)self;
  rabbet_ort_ep_destroy(ep);
}

static void factory_release_allocator(OrtEpFactory* self,
                                      OrtAllocator* allocator) {
  (void)self, (void)allocator;
}

static OrtStatus* factory_create_data_transfer(OrtEpFactory* self,
                                               OrtDataTransferImpl** out) {
  (void)self;
  *out = NULL;
  return NULL;
}

static bool factory_is_stream_aware(const OrtEpFactory* self) {
  (void)self;
  return false;
}

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
      .ReleaseAllocator = factory_release_allocator,
      .CreateDataTransfer = factory_create_data_transfer,
      .IsStreamAware = factory_is_stream_aware,
      .GetNumCustomOpDomains = factory_count_domains,
      .GetCustomOpDomains = factory_get_domains,
  };
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
  // Too old to have the table that makes statuses: its first one will do.
  if (!rabbet_is_ok(status)) {
    rabbet_ort.api = base->GetApi(1);
    return rabbet_ort_error(status);
  }
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
  factory_t* factory = (factory_t*)self;
  if (!factory) return NULL;

  rabbet_timing_cache_release(factory->timing_cache);
  rabbet_free(rabbet_allocator_system(), factory);
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
  if (!rabbet_is_ok(status)) rabbet_ort.api = base->GetApi(1);
  if (rabbet_is_ok(status)) status = rabbet_ort_operators_add(options);
  return rabbet_ort_error(status);
}
