// The device "far": computes like the null device, but its memory is closed to
// the host save in copies and kernels, so that touching it crashes at once. It
// also refuses copies whose device side is not its memory.
#define _GNU_SOURCE
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/math.h"
#include "device/device.h"
#include "device/reference_kernel.h"

#define FAR_MOST 256

static struct {
  uint8_t* memory;
  size_t size;
} far_blocks[FAR_MOST];

static void far_protect(int rights) {
  for (size_t i = 0; i < FAR_MOST; ++i) {
    if (far_blocks[i].memory)
      mprotect(far_blocks[i].memory, far_blocks[i].size, rights);
  }
}

static bool far_owns(const void* address, size_t size) {
  const uint8_t* at = address;
  for (size_t i = 0; i < FAR_MOST; ++i) {
    if (far_blocks[i].memory && at >= far_blocks[i].memory &&
        at + size <= far_blocks[i].memory + far_blocks[i].size)
      return true;
  }
  return false;
}

// ---- Memory

static rabbet_status_t far_allocate(rabbet_device_t* device, size_t size,
                                    void** out_memory) {
  (void)device;
  *out_memory = NULL;
  size_t rounded = rabbet_align_up(size + 1, (size_t)sysconf(_SC_PAGESIZE));
  for (size_t i = 0; i < FAR_MOST; ++i) {
    if (far_blocks[i].memory) continue;
    void* memory =
        mmap(NULL, rounded, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) break;
    far_blocks[i].memory = memory;
    far_blocks[i].size = rounded;
    *out_memory = memory;
    return rabbet_ok();
  }
  return RABBET_STATUS(RABBET_STATUS_OUT_OF_MEMORY, "no far memory is left");
}

static void far_free(rabbet_device_t* device, void* memory) {
  (void)device;
  for (size_t i = 0; i < FAR_MOST; ++i) {
    if (!memory || far_blocks[i].memory != memory) continue;
    munmap(memory, far_blocks[i].size);
    far_blocks[i].memory = NULL;
  }
}

static rabbet_status_t far_move(void* target, const void* source, size_t size,
                                bool target_far, bool source_far) {
  if (size == 0) return rabbet_ok();
  if (far_owns(target, size) != target_far ||
      far_owns(source, size) != source_far)
    return RABBET_STATUS(RABBET_STATUS_INVALID_ARGUMENT,
                         "a copy between the wrong kinds of memory");
  far_protect(PROT_READ | PROT_WRITE);
  memmove(target, source, size);
  far_protect(PROT_NONE);
  return rabbet_ok();
}

static rabbet_status_t far_copy_to_device(rabbet_device_t* device, void* target,
                                          const void* source, size_t size,
                                          void* stream) {
  (void)device, (void)stream;
  return far_move(target, source, size, true, false);
}

static rabbet_status_t far_copy_to_host(rabbet_device_t* device, void* target,
                                        const void* source, size_t size,
                                        void* stream) {
  (void)device, (void)stream;
  return far_move(target, source, size, false, true);
}

static rabbet_status_t far_copy(rabbet_device_t* device, void* target,
                                const void* source, size_t size, void* stream) {
  (void)device, (void)stream;
  return far_move(target, source, size, true, true);
}

static rabbet_status_t far_fill(rabbet_device_t* device, void* target,
                                uint8_t byte, size_t size, void* stream) {
  (void)device, (void)stream;
  far_protect(PROT_READ | PROT_WRITE);
  memset(target, byte, size);
  far_protect(PROT_NONE);
  return rabbet_ok();
}

static rabbet_status_t far_synchronize(rabbet_device_t* device, void* stream) {
  (void)device, (void)stream;
  return rabbet_ok();
}

static rabbet_status_t far_time(rabbet_device_t* device, void* stream,
                                int count,
                                rabbet_status_t (*body)(void* context),
                                void* context, int64_t* out_ns) {
  (void)device, (void)stream, (void)count, (void)body, (void)context;
  *out_ns = 0;
  return RABBET_STATUS(RABBET_STATUS_UNSUPPORTED, "nobody builds for 'far'");
}

// ---- Kernels: the reference and plugin classes with the memory open

static rabbet_kernel_class_t far_reference, far_plugin;

static rabbet_status_t far_create_reference(const rabbet_kernel_spec_t* spec,
                                            rabbet_kernel_t** out_kernel) {
  RABBET_RETURN_IF_ERROR(
      rabbet_reference_kernel_class.create(spec, out_kernel));
  (*out_kernel)->kernel_class = &far_reference;
  return rabbet_ok();
}

static rabbet_status_t far_create_plugin(const rabbet_kernel_spec_t* spec,
                                         rabbet_kernel_t** out_kernel) {
  RABBET_RETURN_IF_ERROR(rabbet_plugin_kernel_class.create(spec, out_kernel));
  (*out_kernel)->kernel_class = &far_plugin;
  return rabbet_ok();
}

static rabbet_status_t far_enqueue_reference(rabbet_kernel_t* kernel,
                                             rabbet_kernel_state_t* state,
                                             const rabbet_kernel_call_t* call) {
  far_protect(PROT_READ | PROT_WRITE);
  rabbet_status_t status =
      rabbet_reference_kernel_class.enqueue(kernel, state, call);
  far_protect(PROT_NONE);
  return status;
}

static rabbet_status_t far_enqueue_plugin(rabbet_kernel_t* kernel,
                                          rabbet_kernel_state_t* state,
                                          const rabbet_kernel_call_t* call) {
  far_protect(PROT_READ | PROT_WRITE);
  rabbet_status_t status =
      rabbet_plugin_kernel_class.enqueue(kernel, state, call);
  far_protect(PROT_NONE);
  return status;
}

static const rabbet_kernel_class_t* const far_kernels[] = {&far_reference,
                                                           &far_plugin};

static const rabbet_kernel_class_t* const* far_kernel_classes(
    rabbet_device_t* device, size_t* out_count) {
  (void)device;
  *out_count = 2;
  return far_kernels;
}

// ---- The device

static void far_destroy(rabbet_device_t* device) {
  rabbet_free(device->allocator, device);
}

static const char* far_signature(rabbet_device_t* device) {
  (void)device;
  return "far";
}

static const rabbet_device_vtable_t far_vtable = {
    .struct_size = sizeof(rabbet_device_vtable_t),
    .destroy = far_destroy,
    .signature = far_signature,
    .kernel_classes = far_kernel_classes,
    .allocate = far_allocate,
    .free = far_free,
    .copy_to_device = far_copy_to_device,
    .copy_to_host = far_copy_to_host,
    .copy = far_copy,
    .fill = far_fill,
    .synchronize = far_synchronize,
    .time = far_time,
};

RABBET_PRIVATE_API rabbet_status_t rabbet_device_open(
    int ordinal, rabbet_allocator_t allocator, rabbet_device_t** out_device);

rabbet_status_t rabbet_device_open(int ordinal, rabbet_allocator_t allocator,
                                   rabbet_device_t** out_device) {
  (void)ordinal;
  rabbet_device_t* device = NULL;
  *out_device = NULL;
  RABBET_RETURN_IF_ERROR(
      rabbet_allocate(allocator, sizeof(*device), (void**)&device));
  far_reference = rabbet_reference_kernel_class;
  far_reference.create = far_create_reference;
  far_reference.enqueue = far_enqueue_reference;
  far_plugin = rabbet_plugin_kernel_class;
  far_plugin.create = far_create_plugin;
  far_plugin.enqueue = far_enqueue_plugin;
  device->vtable = &far_vtable;
  device->allocator = allocator;
  rabbet_refcount_initialize(&device->references);
  strcpy(device->name, "far");
  strcpy(device->kind, "far");
  *out_device = device;
  return rabbet_ok();
}
