// The CPU as a device: host memory, no streams, work done when a call returns.
#include "device/device.h"

#include <stdio.h>
#include <string.h>

#include "base/large_pages.h"
#include "base/math.h"
#include "base/thread.h"
#include "device/cpu/bytes/kernels.h"
#include "device/cpu/cpu.h"
#include "device/cpu/dnnl/headroom.h"
#include "device/cpu/parallel.h"

#if defined(__x86_64__)
#include <cpuid.h>
#endif

#define RABBET_CPU_ALIGNMENT 256

// ---- Signature -------------------------------------------------------------

// The processor's name from CPUID, without repeated blanks.
static void cpu_model(char out_text[64]) {
  snprintf(out_text, 64, "unknown processor");
#if defined(__x86_64__)
  unsigned registers[12] = {0};
  if ((unsigned)__get_cpuid_max(0x80000000u, NULL) < 0x80000004u) return;
  for (unsigned i = 0; i < 3; ++i)
    __get_cpuid(0x80000002u + i, &registers[4 * i], &registers[4 * i + 1],
                &registers[4 * i + 2], &registers[4 * i + 3]);
  const char* name = (const char*)registers;
  size_t size = 0;
  for (size_t i = 0; i < sizeof(registers) && name[i]; ++i) {
    if (name[i] == ' ' && (size == 0 || out_text[size - 1] == ' ')) continue;
    out_text[size++] = name[i];
  }
  while (size > 0 && out_text[size - 1] == ' ')
    --size;
  out_text[size] = 0;
  unsigned a = 0, b = 0, c = 0, d = 0;
  if (!__get_cpuid(1, &a, &b, &c, &d)) return;
  // Hypervisors often hide the name, but rarely family, model and stepping.
  unsigned family = (a >> 8) & 15, model = (a >> 4) & 15;
  if (family == 15 || family == 6) model |= (a >> 12) & 0xf0;
  if (family == 15) family += (a >> 20) & 255;
  snprintf(out_text + size, 64 - size, " %u.%u.%u", family, model, a & 15);
#endif
}

static void cpu_write_signature(rabbet_cpu_device_t* device) {
  char model[64], version[32];
  cpu_model(model);
  rabbet_dnnl_version(version);
  snprintf(device->signature, sizeof(device->signature),
           "cpu; %s; %s; oneDNN %s; rabbet %s", model, rabbet_dnnl_isa(),
           version, rabbet_version());
}

// ---- The interface ---------------------------------------------------------

static void cpu_destroy(rabbet_device_t* base) {
  rabbet_cpu_device_t* device = (rabbet_cpu_device_t*)base;
  rabbet_dnnl_destroy(device->dnnl);
  rabbet_free(base->allocator, device);
}

static const char* cpu_signature(rabbet_device_t* base) {
  return ((rabbet_cpu_device_t*)base)->signature;
}

static const rabbet_kernel_class_t* const cpu_classes[] = {
#define RABBET_CPU_KERNEL(name, ...) &name,
#include "device/kernels.def"
};

static const rabbet_kernel_class_t* const* cpu_kernel_classes(
    rabbet_device_t* device, size_t* out_count) {
  (void)device;
  *out_count = sizeof(cpu_classes) / sizeof(cpu_classes[0]);
  return cpu_classes;
}

static rabbet_status_t cpu_allocate(rabbet_device_t* device, size_t size,
                                    void** out_memory) {
  RABBET_RETURN_IF_ERROR(rabbet_allocate_aligned(
      device->allocator, size, RABBET_CPU_ALIGNMENT, out_memory));
  rabbet_use_large_pages(*out_memory, size);
  return rabbet_ok();
}

static void cpu_free(rabbet_device_t* device, void* memory) {
  rabbet_free_aligned(device->allocator, memory, RABBET_CPU_ALIGNMENT);
}

static rabbet_status_t cpu_copy(rabbet_device_t* device, void* target,
                                const void* source, size_t size, void* stream) {
  (void)device, (void)stream;
  if (size > 0 && target != source) memcpy(target, source, size);
  return rabbet_ok();
}

static rabbet_status_t cpu_fill(rabbet_device_t* device, void* target,
                                uint8_t byte, size_t size, void* stream) {
  (void)device, (void)stream;
  if (size > 0) memset(target, byte, size);
  return rabbet_ok();
}

static rabbet_status_t cpu_synchronize(rabbet_device_t* device, void* stream) {
  (void)device, (void)stream;
  return rabbet_ok();
}

// The token is the thread count to restore.
static rabbet_status_t cpu_begin_run(rabbet_device_t* device, int threads,
                                     void** out_token) {
  (void)device;
  *out_token = NULL;
  int before = 0;
  RABBET_RETURN_IF_ERROR(rabbet_cpu_begin_threads(threads, &before));
  *out_token = (void*)(intptr_t)before;
  return rabbet_ok();
}

static void cpu_end_run(rabbet_device_t* device, void* token) {
  (void)device;
  rabbet_cpu_end_threads((int)(intptr_t)token);
}

static void cpu_let_threads_go(rabbet_device_t* device) {
  (void)device;
  rabbet_cpu_release_threads();
}

static rabbet_status_t cpu_time(rabbet_device_t* device, void* stream,
                                int count,
                                rabbet_status_t (*body)(void* context),
                                void* context, int64_t* out_ns) {
  (void)device, (void)stream;
  *out_ns = 0;
  int64_t begin = rabbet_time_ns();
  for (int i = 0; i < count; ++i)
    RABBET_RETURN_IF_ERROR(body(context));
  *out_ns = rabbet_time_ns() - begin;
  return rabbet_ok();
}

// Counts interruptions of all threads if loops use several, as a loop waits for
// its slowest thread.
static uint64_t cpu_interruptions(rabbet_device_t* device) {
  (void)device;
  return rabbet_interruptions(rabbet_cpu_threads() > 1);
}

static int64_t cpu_waited(rabbet_device_t* device) {
  struct timespec ran;
  (void)device;
  if (rabbet_cpu_threads() > 1 ||
      clock_gettime(CLOCK_THREAD_CPUTIME_ID, &ran) != 0)
    return -1;
  return rabbet_time_ns() - ((int64_t)ran.tv_sec * 1000000000 + ran.tv_nsec);
}

// Independent multiplications, which keep the processor's units busy. Their
// time shows a lower clock, or another program on the same core.
static uint64_t cpu_work(uint64_t seed) {
  uint64_t a = seed, b = seed + 1, c = seed + 2, d = seed + 3;
  for (int i = 0; i < 2000; ++i) {
    a = a * 0x9e3779b97f4a7c15u + 1;
    b = b * 0x9e3779b97f4a7c15u + 3;
    c = c * 0x9e3779b97f4a7c15u + 5;
    d = d * 0x9e3779b97f4a7c15u + 7;
  }
  return a ^ b ^ c ^ d;
}

static int64_t cpu_pace(rabbet_device_t* device) {
  (void)device;
  int64_t least = INT64_MAX;
  for (int i = 0; i < 3; ++i) {
    int64_t begin = rabbet_time_ns();
    uint64_t result = cpu_work((uint64_t)begin);
    __asm__ volatile("" : : "r"(result));  // the compiler must compute it
    least = rabbet_min_i64(least, rabbet_time_ns() - begin);
  }
  return least;
}

static const rabbet_device_vtable_t cpu_vtable = {
    .struct_size = sizeof(rabbet_device_vtable_t),
    .destroy = cpu_destroy,
    .signature = cpu_signature,
    .kernel_classes = cpu_kernel_classes,
    .allocate = cpu_allocate,
    .free = cpu_free,
    .copy_to_device = cpu_copy,
    .copy_to_host = cpu_copy,
    .copy = cpu_copy,
    .fill = cpu_fill,
    .synchronize = cpu_synchronize,
    .begin_run = cpu_begin_run,
    .end_run = cpu_end_run,
    .time = cpu_time,
    .release_threads = cpu_let_threads_go,
    .interruptions = cpu_interruptions,
    .waited = cpu_waited,
    .pace = cpu_pace,
};

// What a hypervisor may hide of a processor that has the same name.
static uint32_t cpu_features(void) {
  return 1u | (uint32_t)rabbet_cpu_isa() << 1 |
         (uint32_t)rabbet_cpu_has_vnni() << 8 |
         (uint32_t)rabbet_cpu_has_vbmi() << 9 |
         (uint32_t)rabbet_cpu_has_quick_small_numbers() << 10;
}

uint32_t rabbet_device_abi(void) {
  return RABBET_DEVICE_ABI;
}

RABBET_PRIVATE_API rabbet_status_t rabbet_device_open(
    int ordinal, rabbet_allocator_t allocator, rabbet_device_t** out_device) {
  *out_device = NULL;
  if (ordinal != 0)
    return RABBET_STATUS(RABBET_STATUS_INVALID_ARGUMENT,
                         "there is one CPU device, \"cpu\"; found ordinal %d",
                         ordinal);
  rabbet_cpu_device_t* device = NULL;
  RABBET_RETURN_IF_ERROR(rabbet_cpu_check_thread_room(rabbet_cpu_threads()));
  RABBET_RETURN_IF_ERROR(
      rabbet_allocate(allocator, sizeof(*device), (void**)&device));
  device->base.vtable = &cpu_vtable;
  device->base.allocator = allocator;
  rabbet_refcount_initialize(&device->base.references);
  snprintf(device->base.name, sizeof(device->base.name), "cpu");
  snprintf(device->base.kind, sizeof(device->base.kind), "cpu");
  device->base.host_memory = true;
  device->base.traits = RABBET_DEVICE_WEIGHT_ONLY;
  if (rabbet_bytes_kernels())
    device->base.traits |= RABBET_DEVICE_QUANTIZED_CHAINS;
  device->base.features = cpu_features();
  rabbet_status_t status = rabbet_dnnl_create(allocator, &device->dnnl);
  if (!rabbet_is_ok(status)) {
    rabbet_free(allocator, device);
    return status;
  }
  cpu_write_signature(device);
  *out_device = &device->base;
  return rabbet_ok();
}
