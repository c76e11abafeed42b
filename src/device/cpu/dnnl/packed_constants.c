// Constants as kernels read them: packed for a primitive, of another type, or
// with factors. Programs of one kernel share them.
#include <string.h>

#include "device/cpu/dnnl/program.h"
#include "device/cpu/vectors/convert.h"

struct rabbet_dnnl_packed_t {
  rabbet_dnnl_packed_t* next;
  int32_t value;         // -2 - value: with factors
  rabbet_dtype_t dtype;  // flat copies: the type converted to
  int64_t offset;        // of the packed part in the constant
  void* layout;          // oneDNN's; NULL: flat copy. Behind this struct
  void* data;
  size_t bytes;
  int users;
};

static void packed_destroy(rabbet_dnnl_kernel_t* kernel,
                           rabbet_dnnl_packed_t* packed) {
  kernel->base.kept_bytes -= packed->bytes;
  if (packed->data) kernel->device->vtable->free(kernel->device, packed->data);
  rabbet_free(kernel->allocator, packed);
}

void rabbet_dnnl_packed_clear(rabbet_dnnl_kernel_t* kernel) {
  while (kernel->packed) {
    rabbet_dnnl_packed_t* packed = kernel->packed;
    kernel->packed = packed->next;
    packed_destroy(kernel, packed);
  }
}

void rabbet_dnnl_packed_release(rabbet_dnnl_kernel_t* kernel,
                                rabbet_dnnl_packed_t* packed) {
  pthread_mutex_lock(&kernel->mutex);
  if (--packed->users == 0) {
    rabbet_dnnl_packed_t** link = &kernel->packed;
    while (*link != packed)
      link = &(*link)->next;
    *link = packed->next;
    packed_destroy(kernel, packed);
  }
  pthread_mutex_unlock(&kernel->mutex);
}

// With the lock held.
static void packed_add(rabbet_dnnl_kernel_t* kernel,
                       rabbet_dnnl_packed_t* packed, size_t bytes) {
  packed->next = kernel->packed;
  kernel->packed = packed;
  packed->bytes = bytes;
  kernel->base.kept_bytes += bytes;
}

static rabbet_dnnl_packed_t* packed_find(rabbet_dnnl_kernel_t* kernel,
                                         int32_t value, rabbet_dtype_t dtype,
                                         int64_t offset, const void* layout) {
  for (rabbet_dnnl_packed_t* p = kernel->packed; p; p = p->next) {
    if (p->value != value || p->dtype != dtype || p->offset != offset ||
        !p->layout != !layout)
      continue;
    if (!layout || rabbet_dnnl_layout_equal(p->layout, layout)) return p;
  }
  return NULL;
}

// A constant's elements as `dtype`, in memory to be freed by the device; or
// the constant itself, *out_copy NULL, if it has that type.
static rabbet_status_t constant_as(const rabbet_dnnl_program_t* program,
                                   int32_t value, rabbet_dtype_t dtype,
                                   void** out_copy, size_t* out_bytes,
                                   const void** out_data) {
  rabbet_device_t* device = program->kernel->device;
  const rabbet_group_value_t* constant = rabbet_dnnl_value(program, value);
  *out_copy = NULL;
  *out_bytes = 0;
  *out_data = constant->constant;
  if (constant->dtype == dtype) return rabbet_ok();
  int64_t count = 0;
  RABBET_RETURN_IF_ERROR(rabbet_dnnl_physical_count(program, value, &count));
  *out_bytes = (size_t)count * (size_t)(rabbet_dtype_bits(dtype) / 8);
  RABBET_RETURN_IF_ERROR(
      device->vtable->allocate(device, *out_bytes, out_copy));
  rabbet_cpu_convert(constant->dtype, constant->constant, dtype, *out_copy,
                     count);
  *out_data = *out_copy;
  return rabbet_ok();
}

static rabbet_status_t pack_data(const rabbet_dnnl_program_t* program,
                                 int32_t value,
                                 const rabbet_dnnl_layout_t* layout,
                                 const rabbet_dnnl_primitive_t* primitive,
                                 int arg, void** out_data) {
  rabbet_device_t* device = program->kernel->device;
  void* copy = NULL;
  const void* source = NULL;
  size_t copy_bytes = 0;
  rabbet_dnnl_primitive_t* pack = NULL;
  rabbet_status_t status =
      constant_as(program, value, layout->dtype, &copy, &copy_bytes, &source);
  size_t bytes = rabbet_dnnl_primitive_bytes(primitive, arg);
  if (rabbet_is_ok(status))
    status = device->vtable->allocate(device, bytes, out_data);
  bool is_packed =
      rabbet_is_ok(status) && arg == RABBET_DNNL_WEIGHTS &&
      rabbet_dnnl_pack_winograd(
          layout, primitive,
          (const char*)source + rabbet_dnnl_layout_offset(layout), *out_data);
  if (rabbet_is_ok(status) && !is_packed)
    status = rabbet_dnnl_pack_create(rabbet_cpu_dnnl(device), layout, primitive,
                                     arg, program->shapes->threads,
                                     program->kernel->allocator, &pack);
  void* scratchpad = NULL;
  size_t scratchpad_bytes =
      pack ? rabbet_dnnl_primitive_bytes(pack, RABBET_DNNL_SCRATCHPAD) : 0;
  if (rabbet_is_ok(status) && scratchpad_bytes > 0)
    status = device->vtable->allocate(device, scratchpad_bytes, &scratchpad);
  if (rabbet_is_ok(status) && pack) {
    void* pointers[RABBET_DNNL_ARG_COUNT] = {0};
    pointers[RABBET_DNNL_SRC] =
        (char*)(uintptr_t)source + rabbet_dnnl_layout_offset(layout);
    pointers[RABBET_DNNL_DST] = *out_data;
    pointers[RABBET_DNNL_SCRATCHPAD] = scratchpad;
    status = rabbet_dnnl_primitive_execute(pack, pointers);
  }
  rabbet_dnnl_primitive_destroy(pack);
  if (scratchpad) device->vtable->free(device, scratchpad);
  if (copy) device->vtable->free(device, copy);
  return status;
}

// With the lock held. `primitive` NULL: a flat copy as `dtype`.
static rabbet_status_t packed_create(const rabbet_dnnl_program_t* program,
                                     int32_t value, rabbet_dtype_t dtype,
                                     const rabbet_dnnl_layout_t* layout,
                                     const rabbet_dnnl_primitive_t* primitive,
                                     int arg,
                                     rabbet_dnnl_packed_t** out_packed) {
  rabbet_dnnl_kernel_t* kernel = program->kernel;
  size_t size = 0;
  const void* target =
      primitive ? rabbet_dnnl_primitive_layout(primitive, arg, &size) : NULL;
  rabbet_dnnl_packed_t* packed = NULL;
  RABBET_RETURN_IF_ERROR(rabbet_allocate(
      kernel->allocator, sizeof(*packed) + size, (void**)&packed));
  packed->value = value;
  packed->dtype = dtype;
  packed->offset = layout ? layout->offset : 0;
  size_t bytes = primitive ? rabbet_dnnl_primitive_bytes(primitive, arg) : 0;
  rabbet_status_t status = rabbet_ok();
  if (primitive) {
    packed->layout = packed + 1;
    memcpy(packed->layout, target, size);
    status = pack_data(program, value, layout, primitive, arg, &packed->data);
  } else {
    const void* data = NULL;
    status = constant_as(program, value, dtype, &packed->data, &bytes, &data);
  }
  if (!rabbet_is_ok(status)) {
    packed_destroy(kernel, packed);
    return status;
  }
  packed_add(kernel, packed, bytes);
  *out_packed = packed;
  return rabbet_ok();
}

// Adds a use of a packed constant, or returns the error of packing it. Unlocks
// the mutex.
static rabbet_status_t packed_use(rabbet_dnnl_program_t* program,
                                  rabbet_dnnl_packed_t* packed,
                                  rabbet_status_t status,
                                  rabbet_dnnl_ref_t* out_ref) {
  if (rabbet_is_ok(status)) ++packed->users;
  pthread_mutex_unlock(&program->kernel->mutex);
  if (!rabbet_is_ok(status)) return status;
  program->packed.data[program->packed.count++] = packed;
  *out_ref = (rabbet_dnnl_ref_t){.place = RABBET_DNNL_REF_FIXED,
                                 .pointer = packed->data};
  return rabbet_ok();
}

rabbet_status_t rabbet_dnnl_packed_get(rabbet_dnnl_program_t* program,
                                       int32_t value, rabbet_dtype_t dtype,
                                       const rabbet_dnnl_layout_t* layout,
                                       const rabbet_dnnl_primitive_t* primitive,
                                       int arg, rabbet_dnnl_ref_t* out_ref) {
  rabbet_dnnl_kernel_t* kernel = program->kernel;
  RABBET_RETURN_IF_ERROR(
      RABBET_VEC_RESERVE(kernel->allocator, &program->packed, 1));
  size_t size = 0;
  const void* target =
      primitive ? rabbet_dnnl_primitive_layout(primitive, arg, &size) : NULL;
  pthread_mutex_lock(&kernel->mutex);
  rabbet_dnnl_packed_t* packed =
      packed_find(kernel, value, dtype, layout ? layout->offset : 0, target);
  rabbet_status_t status = rabbet_ok();
  if (!packed)
    status =
        packed_create(program, value, dtype, layout, primitive, arg, &packed);
  return packed_use(program, packed, status, out_ref);
}

// With the lock held.
static rabbet_status_t scaled_create(const rabbet_dnnl_program_t* program,
                                     int32_t value, const float* factors,
                                     int64_t count,
                                     rabbet_dnnl_packed_t** out_packed) {
  rabbet_dnnl_kernel_t* kernel = program->kernel;
  rabbet_device_t* device = kernel->device;
  const rabbet_group_value_t* constant = rabbet_dnnl_value(program, value);
  int64_t elements = 0;
  RABBET_RETURN_IF_ERROR(rabbet_dnnl_physical_count(program, value, &elements));
  rabbet_dnnl_packed_t* packed = NULL;
  RABBET_RETURN_IF_ERROR(
      rabbet_allocate(kernel->allocator, sizeof(*packed), (void**)&packed));
  packed->value = -2 - value;
  packed->dtype = RABBET_DTYPE_FLOAT;
  rabbet_status_t status = device->vtable->allocate(
      device, (size_t)elements * sizeof(float), &packed->data);
  if (!rabbet_is_ok(status)) {
    packed_destroy(kernel, packed);
    return status;
  }
  for (int64_t i = 0; i < elements; ++i)
    ((float*)packed->data)[i] =
        (float)(rabbet_load_double(constant->dtype, constant->constant, i) *
                factors[i % count]);
  packed_add(kernel, packed, (size_t)elements * sizeof(float));
  *out_packed = packed;
  return rabbet_ok();
}

rabbet_status_t rabbet_dnnl_scaled_input(rabbet_dnnl_program_t* program,
                                         int32_t value, const float* factors,
                                         int64_t count,
                                         rabbet_dnnl_ref_t* out_ref) {
  rabbet_dnnl_kernel_t* kernel = program->kernel;
  RABBET_RETURN_IF_ERROR(
      RABBET_VEC_RESERVE(kernel->allocator, &program->packed, 1));
  pthread_mutex_lock(&kernel->mutex);
  rabbet_dnnl_packed_t* packed =
      packed_find(kernel, -2 - value, RABBET_DTYPE_FLOAT, 0, NULL);
  rabbet_status_t status = rabbet_ok();
  if (!packed) status = scaled_create(program, value, factors, count, &packed);
  return packed_use(program, packed, status, out_ref);
}
