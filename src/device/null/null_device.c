// The device "null": the least that a device can be.
//
// It computes on the host, one thread, with the catalogue's reference kernels.
// A new device starts as a copy of this file; the tests use it as the oracle.
// It takes the caller's thread and stream as they are, so that it has neither
// begin_run nor end_run.
#include <string.h>

#include "device/device.h"
#include "device/reference_kernel.h"

#define RABBET_NULL_ALIGNMENT 256

static const rabbet_kernel_class_t* const null_kernels[] = {
    &rabbet_reference_kernel_class,
    &rabbet_plugin_kernel_class,
};

static void null_destroy(rabbet_device_t* device) {
  rabbet_free(device->allocator, device);
}

static const char* null_signature(rabbet_device_t* device) {
  (void)device;
  return "null";
}

static const rabbet_kernel_class_t* const* null_kernel_classes(
    rabbet_device_t* device, size_t* out_count) {
  (void)device;
  *out_count = sizeof(null_kernels) / sizeof(null_kernels[0]);
  return null_kernels;
}

static rabbet_status_t null_allocate(rabbet_device_t* device, size_t size,
                                     void** out_memory) {
  return rabbet_allocate_aligned(device->allocator, size, RABBET_NULL_ALIGNMENT,
                                 out_memory);
}

static void null_free(rabbet_device_t* device, void* memory) {
  rabbet_free_aligned(device->allocator, memory, RABBET_NULL_ALIGNMENT);
}

// The three directions of copying are one here.
static rabbet_status_t null_copy(rabbet_device_t* device, void* target,
                                 const void* source, size_t size,
                                 void* stream) {
  (void)device, (void)stream;
  if (size > 0) memmove(target, source, size);
  return rabbet_ok();
}

static rabbet_status_t null_fill(rabbet_device_t* device, void* target,
                                 uint8_t byte, size_t size, void* stream) {
  (void)device, (void)stream;
  if (size > 0) memset(target, byte, size);
  return rabbet_ok();
}

static rabbet_status_t null_synchronize(rabbet_device_t* device, void* stream) {
  (void)device, (void)stream;
  return rabbet_ok();
}

static rabbet_status_t null_time(rabbet_device_t* device, void* stream,
                                 int count,
                                 rabbet_status_t (*body)(void* context),
                                 void* context, int64_t* out_ns) {
  (void)device, (void)stream;
  int64_t begin = rabbet_time_ns();
  for (int i = 0; i < count; ++i)
    RABBET_RETURN_IF_ERROR(body(context));
  *out_ns = rabbet_time_ns() - begin;
  return rabbet_ok();
}

static const rabbet_device_vtable_t null_vtable = {
    .struct_size = sizeof(rabbet_device_vtable_t),
    .destroy = null_destroy,
    .signature = null_signature,
    .kernel_classes = null_kernel_classes,
    .allocate = null_allocate,
    .free = null_free,
    .copy_to_device = null_copy,
    .copy_to_host = null_copy,
    .copy = null_copy,
    .fill = null_fill,
    .synchronize = null_synchronize,
    .time = null_time,
};

uint32_t rabbet_device_abi(void) {
  return RABBET_DEVICE_ABI;
}

rabbet_status_t rabbet_device_open(int ordinal, rabbet_allocator_t allocator,
                                   rabbet_device_t** out_device) {
  *out_device = NULL;
  if (ordinal != 0)
    return RABBET_STATUS(RABBET_STATUS_UNAVAILABLE,
                         "there is one null device, number 0");
  rabbet_device_t* device = NULL;
  RABBET_RETURN_IF_ERROR(
      rabbet_allocate(allocator, sizeof(*device), (void**)&device));
  device->vtable = &null_vtable;
  device->allocator = allocator;
  rabbet_refcount_initialize(&device->references);
  strcpy(device->name, "null");
  strcpy(device->kind, "null");
  device->host_memory = true;
  *out_device = device;
  return rabbet_ok();
}
