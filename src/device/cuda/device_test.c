// The CUDA device on the stand-in GPU: order of work, contexts, clean-up.
#include <pthread.h>

#include "cuda_stand_in/device.h"
#include "faults/fault_allocator.h"

static const rabbet_device_vtable_t* table_of(rabbet_cuda_device_t* device) {
  return device->base.vtable;
}

// ---- Opening ---------------------------------------------------------------

// The first test: the driver is opened once for the process.
static void no_gpu(void** state) {
  (void)state;
  rabbet_device_t* device = NULL;
  setenv("RABBET_STAND_IN_DEVICES", "0", 1);
  RABBET_EXPECT_ERROR(rabbet_device_open(0, rabbet_allocator_system(), &device),
                      RABBET_STATUS_UNAVAILABLE,
                      "no CUDA-capable device is detected");
  assert_null(device);
  setenv("RABBET_STAND_IN_DEVICES", "2", 1);
}

static void signature(void** state) {
  (void)state;
  rabbet_cuda_device_t* device = stand_in_device_open();
  const char* text = table_of(device)->signature(&device->base);
  assert_string_equal(device->base.name, "cuda:0");
  assert_string_equal(device->base.kind, "cuda");
  assert_false(device->base.host_memory);
  assert_int_equal(strncmp(text, "cuda; Stand-in GPU; sm_90; ", 27), 0);
  assert_non_null(strstr(text, rabbet_version()));
  stand_in_device_close(device);
  stand_in_expect_clean();
}

static void gpus_that_will_not_do(void** state) {
  (void)state;
  rabbet_device_t* device = NULL;
  RABBET_EXPECT_ERROR(rabbet_device_open(5, rabbet_allocator_system(), &device),
                      RABBET_STATUS_UNAVAILABLE,
                      "there is no device 'cuda:5': the driver shows 2 GPUs");
  RABBET_EXPECT_ERROR(
      rabbet_device_open(-1, rabbet_allocator_system(), &device),
      RABBET_STATUS_UNAVAILABLE, "cuda:-1");
  stand_in()->set_capability(6, 1);
  RABBET_EXPECT_ERROR(rabbet_device_open(0, rabbet_allocator_system(), &device),
                      RABBET_STATUS_UNAVAILABLE,
                      "compute capability 6.1; 7.0 or newer is needed");
  stand_in()->set_capability(9, 0);
  assert_null(device);
  stand_in_expect_clean();
}

static void class_names_are_unique(void** state) {
  (void)state;
  rabbet_cuda_device_t* device = stand_in_device_open();
  size_t count = 0;
  const rabbet_kernel_class_t* const* classes =
      table_of(device)->kernel_classes(&device->base, &count);
  assert_true(count > 0);
  for (size_t i = 0; i < count; ++i) {
    assert_true(classes[i]->version > 0);
    for (size_t k = 0; k < i; ++k)
      assert_string_not_equal(classes[i]->name, classes[k]->name);
  }
  stand_in_device_close(device);
}

// ---- Memory ----------------------------------------------------------------

static void memory(void** state) {
  (void)state;
  rabbet_cuda_device_t* device = stand_in_device_open();
  rabbet_device_t* base = &device->base;
  const rabbet_device_vtable_t* v = table_of(device);
  unsigned char *a = NULL, *b = NULL, back[4] = {0};
  RABBET_EXPECT_OK(v->allocate(base, 1000, (void**)&a));
  RABBET_EXPECT_OK(v->allocate(base, 1000, (void**)&b));
  assert_int_equal((uintptr_t)a % 256, 0);
  RABBET_EXPECT_OK(v->fill(base, a, 7, 1000, NULL));
  RABBET_EXPECT_OK(v->copy(base, b, a, 1000, NULL));
  RABBET_EXPECT_OK(v->copy_to_device(base, b, "xy", 2, NULL));
  RABBET_EXPECT_OK(v->copy_to_host(base, back, b, 3, NULL));
  RABBET_EXPECT_OK(v->synchronize(base, NULL));
  assert_string_equal((char*)back, "xy\7");
  // Empty operations make no driver calls.
  stand_in()->clear_log();
  RABBET_EXPECT_OK(v->copy(base, b, b, 1000, NULL));
  RABBET_EXPECT_OK(v->copy(base, b, NULL, 0, NULL));
  RABBET_EXPECT_OK(v->copy_to_device(base, b, NULL, 0, NULL));
  RABBET_EXPECT_OK(v->copy_to_host(base, NULL, b, 0, NULL));
  RABBET_EXPECT_OK(v->fill(base, b, 0, 0, NULL));
  v->free(base, NULL);
  assert_int_equal(stand_in()->calls(NULL), 0);
  RABBET_EXPECT_ERROR(v->fill(base, b, 0, 1001, NULL), RABBET_STATUS_INTERNAL,
                      "cuMemsetD8Async: invalid argument");
  v->free(base, a);
  v->free(base, b);
  void* empty = NULL;
  RABBET_EXPECT_OK(v->allocate(base, 0, &empty));
  assert_non_null(empty);
  v->free(base, empty);
  stand_in_device_close(device);
  stand_in_expect_clean();
}

static void memory_runs_out(void** state) {
  (void)state;
  rabbet_cuda_device_t* device = stand_in_device_open();
  const rabbet_device_vtable_t* v = table_of(device);
  void *first = NULL, *second = &second;
  size_t own = stand_in()->alive().bytes;  // of the device itself
  stand_in()->limit_memory((1 << 20) + own);
  RABBET_EXPECT_OK(v->allocate(&device->base, 1 << 19, &first));
  RABBET_EXPECT_ERROR(v->allocate(&device->base, 3 << 19, &second),
                      RABBET_STATUS_OUT_OF_MEMORY,
                      "allocating 1572864 bytes on 'cuda:0', of which 524288 "
                      "of 1048577 are free");
  assert_null(second);
  stand_in()->limit_memory((size_t)1 << 30);
  v->free(&device->base, first);
  stand_in_device_close(device);
  stand_in_expect_clean();
}

// ---- Order -----------------------------------------------------------------

// Work waits until somebody waits for it.
static void work_is_late(void** state) {
  (void)state;
  rabbet_cuda_device_t* device = stand_in_device_open();
  rabbet_device_t* base = &device->base;
  const rabbet_device_vtable_t* v = table_of(device);
  void *stream = NULL, *data = NULL;
  unsigned char* pinned = NULL;
  RABBET_EXPECT_OK(v->create_stream(base, &stream));
  RABBET_EXPECT_OK(v->allocate(base, 64, &data));
  RABBET_EXPECT_OK(v->allocate_host(base, 64, (void**)&pinned));
  assert_int_equal((uintptr_t)pinned % 64, 0);
  memset(pinned, 1, 64);
  RABBET_EXPECT_OK(v->copy_to_device(base, data, pinned, 64, stream));
  memset(pinned, 2, 64);  // too early: the copy has not read it
  RABBET_EXPECT_OK(v->copy_to_host(base, pinned, data, 32, stream));
  assert_int_equal(pinned[0], 2);
  // The default stream does not wait for this one.
  RABBET_EXPECT_OK(v->synchronize(base, NULL));
  assert_int_equal(stand_in()->alive().pending, 2);
  RABBET_EXPECT_OK(v->synchronize(base, stream));
  assert_int_equal(pinned[0], 2);
  assert_int_equal(stand_in()->alive().pending, 0);
  v->free_host(base, pinned);
  v->free(base, data);
  v->destroy_stream(base, stream);
  v->free_host(base, NULL);
  v->destroy_stream(base, NULL);
  stand_in_device_close(device);
  stand_in_expect_clean();
}

static rabbet_status_t count_down(void* context) {
  int* left = context;
  if ((*left)-- == 0) return RABBET_STATUS(RABBET_STATUS_CANCELLED, "stopped");
  return rabbet_ok();
}

static void time_of_a_body(void** state) {
  (void)state;
  rabbet_cuda_device_t* device = stand_in_device_open();
  const rabbet_device_vtable_t* v = table_of(device);
  int left = 5;
  int64_t ns = -1;
  RABBET_EXPECT_OK(v->time(&device->base, NULL, 5, count_down, &left, &ns));
  assert_int_equal(left, 0);
  assert_true(ns >= 0);
  RABBET_EXPECT_ERROR(v->time(&device->base, NULL, 5, count_down, &left, &ns),
                      RABBET_STATUS_CANCELLED, "stopped");
  stand_in_device_close(device);
  stand_in_expect_clean();
}

// ---- Contexts --------------------------------------------------------------

static void context_is_put_back(void** state) {
  (void)state;
  rabbet_cuda_device_t* device = stand_in_device_open();
  rabbet_device_t* base = &device->base;
  const rabbet_device_vtable_t* v = table_of(device);
  const rabbet_cuda_driver_t* driver = device->driver;
  CUcontext other = NULL, now = NULL;
  assert_int_equal(driver->cuDevicePrimaryCtxRetain(&other, 1), 0);
  assert_ptr_not_equal(other, device->context);
  CUcontext befores[] = {NULL, other, device->context};
  for (size_t i = 0; i < 3; ++i) {
    void *data = NULL, *token = NULL;
    int left = 1;
    int64_t ns = 0;
    assert_int_equal(driver->cuCtxSetCurrent(befores[i]), 0);
    RABBET_EXPECT_OK(v->allocate(base, 16, &data));
    RABBET_EXPECT_OK(v->fill(base, data, 0, 16, NULL));
    RABBET_EXPECT_OK(v->synchronize(base, NULL));
    RABBET_EXPECT_OK(v->time(base, NULL, 1, count_down, &left, &ns));
    RABBET_EXPECT_ERROR(v->fill(base, data, 0, 17, NULL),
                        RABBET_STATUS_INTERNAL, "cuMemsetD8Async");
    v->free(base, data);
    // If no context was current, the first GPU's primary one stays.
    CUcontext after = befores[i] ? befores[i] : device->context;
    driver->cuCtxGetCurrent(&now);
    assert_ptr_equal(now, after);
    assert_int_equal(driver->cuCtxSetCurrent(befores[i]), 0);
    RABBET_EXPECT_OK(v->begin_run(base, 1, &token));
    driver->cuCtxGetCurrent(&now);
    assert_ptr_equal(now, device->context);
    v->end_run(base, token);
    driver->cuCtxGetCurrent(&now);
    assert_ptr_equal(now, after);
  }
  assert_int_equal(driver->cuCtxSetCurrent(other), 0);
  stand_in_device_close(device);
  driver->cuCtxGetCurrent(&now);
  assert_ptr_equal(now, other);
  driver->cuCtxSetCurrent(NULL);
  assert_int_equal(driver->cuDevicePrimaryCtxRelease(1), 0);
  stand_in_expect_clean();
}

// Another GPU's context would change a thread's current device.
static void context_of_another_gpu_is_not_left(void** state) {
  (void)state;
  const rabbet_cuda_driver_t* driver = NULL;
  rabbet_device_t* device = NULL;
  CUcontext now = NULL;
  void *data = NULL, *token = NULL;
  RABBET_EXPECT_OK(rabbet_cuda_driver_get(&driver));
  assert_int_equal(driver->cuCtxSetCurrent(NULL), 0);
  RABBET_EXPECT_OK(rabbet_device_open(1, rabbet_allocator_system(), &device));
  RABBET_EXPECT_OK(device->vtable->begin_run(device, 1, &token));
  RABBET_EXPECT_OK(device->vtable->allocate(device, 16, &data));
  device->vtable->free(device, data);
  device->vtable->end_run(device, token);
  device->vtable->destroy(device);
  assert_int_equal(driver->cuCtxGetCurrent(&now), 0);
  assert_null(now);
  stand_in_expect_clean();
}

// A library like CuPy: it looks once for each thread whether a context is
// current and calls the driver from then on. False where a call fails.
static bool library_call(const rabbet_cuda_driver_t* driver) {
  static _Thread_local bool has_context;
  CUcontext now = NULL;
  CUdeviceptr memory = 0;
  if (!has_context && driver->cuCtxGetCurrent(&now) != CUDA_SUCCESS)
    return false;
  has_context = has_context || now;
  return has_context && driver->cuMemAlloc(&memory, 16) == CUDA_SUCCESS &&
         driver->cuMemFree(memory) == CUDA_SUCCESS;
}

typedef struct library_thread_t {
  const rabbet_cuda_driver_t* driver;
  bool inside, after, without_device;
} library_thread_t;

static void* library_thread(void* context) {
  library_thread_t* thread = context;
  rabbet_device_t* base = &stand_in_device_open()->base;
  void* token = NULL;
  thread->driver->cuCtxSetCurrent(NULL);
  RABBET_EXPECT_OK(base->vtable->begin_run(base, 1, &token));
  thread->inside = library_call(thread->driver);
  base->vtable->end_run(base, token);
  thread->after = library_call(thread->driver);
  base->vtable->destroy(base);
  thread->without_device = library_call(thread->driver);
  return NULL;
}

static void libraries_remember_a_context(void** state) {
  (void)state;
  library_thread_t found = {0};
  pthread_t thread;
  RABBET_EXPECT_OK(rabbet_cuda_driver_get(&found.driver));
  assert_int_equal(pthread_create(&thread, NULL, library_thread, &found), 0);
  assert_int_equal(pthread_join(thread, NULL), 0);
  assert_true(found.inside);
  assert_true(found.after);
  assert_true(found.without_device);
  stand_in_expect_clean();
}

// A program that makes a context of its own instead of using the primary one.
typedef struct own_context_t {
  CUresult (*create)(CUcontext* context, unsigned flags, CUdevice device);
  CUresult (*destroy)(CUcontext context);
} own_context_t;

static own_context_t own_context(void) {
  own_context_t found = {NULL, NULL};
  void* library = dlopen(getenv("RABBET_CUDA_DRIVER"), RTLD_NOW | RTLD_LOCAL);
  *(void**)&found.create = dlsym(library, "cuCtxCreate_v2");
  *(void**)&found.destroy = dlsym(library, "cuCtxDestroy_v2");
  assert_non_null(found.destroy);
  return found;
}

// Opens the GPU while `current` is, and says which context it works in.
static CUcontext context_of_device_opened(const rabbet_cuda_driver_t* driver,
                                          CUcontext current, bool* primary) {
  CUcontext now = NULL;
  assert_int_equal(driver->cuCtxSetCurrent(current), 0);
  rabbet_cuda_device_t* device = stand_in_device_open();
  CUcontext found = device->context;
  *primary = device->primary;
  void* data = NULL;
  RABBET_EXPECT_OK(table_of(device)->allocate(&device->base, 16, &data));
  table_of(device)->free(&device->base, data);
  driver->cuCtxGetCurrent(&now);
  assert_ptr_equal(now, current ? current : found);
  stand_in_device_close(device);
  assert_int_equal(stand_in()->alive().allocations, 0);
  assert_int_equal(stand_in()->alive().events, 0);
  return found;
}

// Runs before a test that opens the GPU in its primary context: that is not
// made where nobody needs it.
static void contexts_of_programs_alone(void** state) {
  (void)state;
  own_context_t made = own_context();
  CUcontext own = NULL;
  const rabbet_cuda_driver_t* driver = NULL;
  bool is_primary = false;
  RABBET_EXPECT_OK(rabbet_cuda_driver_get(&driver));
  assert_int_equal(made.create(&own, 0, 0), 0);
  stand_in()->clear_log();
  assert_ptr_equal(context_of_device_opened(driver, own, &is_primary), own);
  assert_false(is_primary);
  assert_int_equal(stand_in()->calls("cuDevicePrimaryCtxRetain"), 0);
  assert_int_equal(stand_in()->alive().contexts, 1);
  assert_int_equal(made.destroy(own), 0);
  stand_in_expect_clean();
}

static void contexts_of_programs(void** state) {
  (void)state;
  own_context_t made = own_context();
  CUcontext own = NULL, primary = NULL, other = NULL;
  const rabbet_cuda_driver_t* driver = NULL;
  bool is_primary = false;
  RABBET_EXPECT_OK(rabbet_cuda_driver_get(&driver));
  assert_int_equal(made.create(&own, 0, 0), 0);
  // The primary one is there, for torch, say.
  assert_int_equal(driver->cuDevicePrimaryCtxRetain(&primary, 0), 0);
  assert_int_equal(driver->cuDevicePrimaryCtxRetain(&other, 1), 0);
  assert_ptr_equal(context_of_device_opened(driver, own, &is_primary), own);
  assert_ptr_equal(context_of_device_opened(driver, primary, &is_primary),
                   primary);
  assert_true(is_primary);
  // Another GPU's context, and no context.
  assert_ptr_equal(context_of_device_opened(driver, other, &is_primary),
                   primary);
  assert_ptr_equal(context_of_device_opened(driver, NULL, &is_primary),
                   primary);
  assert_int_equal(driver->cuDevicePrimaryCtxRelease(0), 0);
  assert_int_equal(driver->cuDevicePrimaryCtxRelease(1), 0);
  assert_int_equal(made.destroy(own), 0);
  stand_in_expect_clean();
}

// The driver never gets the handle of a context that is gone.
static void contexts_of_programs_that_are_gone(void** state) {
  (void)state;
  own_context_t made = own_context();
  const rabbet_cuda_driver_t* driver = NULL;
  CUcontext own = NULL;
  RABBET_EXPECT_OK(rabbet_cuda_driver_get(&driver));
  assert_int_equal(made.create(&own, 0, 0), 0);
  rabbet_cuda_device_t* device = stand_in_device_open();
  CUevent begin = device->begin, end = device->end;
  assert_int_equal(driver->cuEventDestroy(begin), 0);
  assert_int_equal(driver->cuEventDestroy(end), 0);
  assert_int_equal(made.destroy(own), 0);
  stand_in()->clear_log();
  stand_in_device_close(device);
  assert_int_equal(stand_in()->calls("cuCtxSetCurrent"), 0);
  assert_int_equal(stand_in()->calls("cuEventDestroy"), 0);
  stand_in_expect_clean();
}

// The questions about a program's context, each failing.
static rabbet_status_t open_in_own(void* context) {
  const own_context_t* made = context;
  CUcontext own = NULL;
  rabbet_device_t *device = NULL, *first = NULL;
  rabbet_status_t status =
      rabbet_device_open(0, rabbet_allocator_system(), &first);
  if (rabbet_is_ok(status)) {
    if (made->create(&own, 0, 0) == 0)
      status = rabbet_device_open(0, rabbet_allocator_system(), &device);
    if (device) device->vtable->destroy(device);
    if (own) made->destroy(own);
    first->vtable->destroy(first);
  }
  return status;
}

static void contexts_of_programs_fail(void** state) {
  (void)state;
  own_context_t made = own_context();
  assert_true(stand_in_fail_each(open_in_own, &made) > 4);
  CUcontext own = NULL;
  rabbet_device_t* device = NULL;
  assert_int_equal(made.create(&own, 0, 0), 0);
  const char* calls[] = {"cuCtxGetDevice", "cuPointerGetAttribute"};
  for (int i = 0; i < 2; ++i) {
    stand_in()->fail_call(calls[i], 0, 201);
    RABBET_EXPECT_ERROR(
        rabbet_device_open(0, rabbet_allocator_system(), &device),
        RABBET_STATUS_INTERNAL, calls[i]);
    assert_int_equal(stand_in()->alive().allocations, 0);
  }
  stand_in()->stop_failing();
  assert_int_equal(made.destroy(own), 0);
  stand_in_expect_clean();
}

// Everything that a device hands out, in a context that its maker destroys
// first; `again`: another one lies where it was when it is all given back.
static void context_goes_first(bool again) {
  own_context_t made = own_context();
  CUcontext own = NULL, next = NULL;
  void *data = NULL, *pinned = NULL, *stream = NULL, *event = NULL;
  assert_int_equal(made.create(&own, 0, 0), 0);
  rabbet_cuda_device_t* device = stand_in_device_open();
  rabbet_device_t* base = &device->base;
  RABBET_EXPECT_OK(table_of(device)->allocate(base, 64, &data));
  RABBET_EXPECT_OK(table_of(device)->allocate_host(base, 64, &pinned));
  RABBET_EXPECT_OK(table_of(device)->create_stream(base, &stream));
  RABBET_EXPECT_OK(table_of(device)->create_event(base, &event));
  assert_int_equal(made.destroy(own), 0);
  if (again) {
    assert_int_equal(made.create(&next, 0, 0), 0);
    assert_ptr_equal(next, own);
  }
  stand_in()->clear_log();
  RABBET_EXPECT_ERROR(table_of(device)->fill(base, data, 0, 64, stream),
                      RABBET_STATUS_FAILED_PRECONDITION,
                      "the CUDA context in which 'cuda:0' works");
  table_of(device)->free(base, data);
  table_of(device)->free_host(base, pinned);
  table_of(device)->destroy_stream(base, stream);
  table_of(device)->destroy_event(base, event);
  stand_in_device_close(device);
  // The driver is only asked whether the context is there.
  assert_int_equal(stand_in()->calls(NULL),
                   stand_in()->calls("cuPointerGetAttribute"));
  if (again) assert_int_equal(made.destroy(next), 0);
  stand_in_expect_clean();
}

static void contexts_that_go_first(void** state) {
  (void)state;
  context_goes_first(false);
  context_goes_first(true);
}

// ---- Failures --------------------------------------------------------------

static rabbet_status_t use_memory(rabbet_device_t* base, void* stream) {
  const rabbet_device_vtable_t* v = base->vtable;
  void *data = NULL, *pinned = NULL;
  char byte = 3;
  rabbet_status_t status = v->allocate(base, 64, &data);
  if (rabbet_is_ok(status)) status = v->allocate_host(base, 64, &pinned);
  if (rabbet_is_ok(status)) status = v->fill(base, data, 1, 64, stream);
  if (rabbet_is_ok(status))
    status = v->copy_to_device(base, data, &byte, 1, stream);
  if (rabbet_is_ok(status))
    status = v->copy(base, (char*)data + 32, data, 32, stream);
  if (rabbet_is_ok(status))
    status = v->copy_to_host(base, pinned, data, 64, stream);
  if (rabbet_is_ok(status)) status = v->synchronize(base, stream);
  v->free(base, data);
  v->free_host(base, pinned);
  return status;
}

static rabbet_status_t record(rabbet_device_t* base, void* stream, void* data,
                              void** graph) {
  const rabbet_device_vtable_t* v = base->vtable;
  bool recording = false;
  RABBET_RETURN_IF_ERROR(v->record_begin(base, stream));
  rabbet_status_t status = v->fill(base, data, 4, 16, stream);
  if (rabbet_is_ok(status)) status = v->is_recording(base, stream, &recording);
  if (rabbet_is_ok(status)) return v->record_end(base, stream, graph);
  rabbet_status_ignore(v->record_end(base, stream, NULL));
  return status;
}

static rabbet_status_t use_graphs(rabbet_device_t* base, void* stream) {
  const rabbet_device_vtable_t* v = base->vtable;
  void *data = NULL, *graph = NULL, *token = NULL;
  RABBET_RETURN_IF_ERROR(v->begin_run(base, 1, &token));
  rabbet_status_t status = v->allocate(base, 64, &data);
  if (rabbet_is_ok(status)) status = record(base, stream, data, &graph);
  if (rabbet_is_ok(status)) status = v->launch_graph(base, graph, stream);
  if (rabbet_is_ok(status)) status = record(base, stream, data, &graph);
  if (rabbet_is_ok(status)) status = v->launch_graph(base, graph, stream);
  if (rabbet_is_ok(status)) status = v->synchronize(base, stream);
  v->destroy_graph(base, graph);
  v->free(base, data);
  v->end_run(base, token);
  return status;
}

static rabbet_status_t use_events(rabbet_device_t* base, void* stream) {
  const rabbet_device_vtable_t* v = base->vtable;
  void *begin = NULL, *end = NULL;
  int64_t ns = 0;
  int left = 2;
  rabbet_status_t status = v->create_event(base, &begin);
  if (rabbet_is_ok(status)) status = v->create_event(base, &end);
  if (rabbet_is_ok(status)) status = v->record_event(base, begin, stream);
  if (rabbet_is_ok(status)) status = v->record_event(base, end, stream);
  if (rabbet_is_ok(status)) status = v->elapsed(base, begin, end, &ns);
  if (rabbet_is_ok(status))
    status = v->time(base, stream, 2, count_down, &left, &ns);
  v->destroy_event(base, begin);
  v->destroy_event(base, end);
  return status;
}

static rabbet_status_t use_device(void* context) {
  (void)context;
  rabbet_device_t* base = NULL;
  void* stream = NULL;
  RABBET_RETURN_IF_ERROR(
      rabbet_device_open(0, rabbet_allocator_system(), &base));
  rabbet_status_t status = base->vtable->create_stream(base, &stream);
  if (rabbet_is_ok(status)) status = use_memory(base, stream);
  if (rabbet_is_ok(status)) status = use_graphs(base, stream);
  if (rabbet_is_ok(status)) status = use_events(base, stream);
  base->vtable->destroy_stream(base, stream);
  base->vtable->destroy(base);
  return status;
}

static void every_call_fails(void** state) {
  (void)state;
  assert_true(stand_in_fail_each(use_device, NULL) > 40);
}

static void contexts_fail(void** state) {
  (void)state;
  rabbet_cuda_device_t* device = stand_in_device_open();
  void* data = NULL;
  stand_in()->fail_call("cuCtxGetCurrent", 0, 4);
  RABBET_EXPECT_ERROR(table_of(device)->allocate(&device->base, 4, &data),
                      RABBET_STATUS_INTERNAL, "cuCtxGetCurrent");
  assert_int_equal(device->driver->cuCtxSetCurrent(NULL), 0);
  stand_in()->fail_call("cuCtxSetCurrent", 0, 201);
  RABBET_EXPECT_ERROR(table_of(device)->allocate(&device->base, 4, &data),
                      RABBET_STATUS_INTERNAL, "cuCtxSetCurrent");
  stand_in()->stop_failing();
  stand_in_device_close(device);
  stand_in_expect_clean();
}

static rabbet_status_t open_and_close(rabbet_allocator_t allocator,
                                      void* user_data) {
  (void)user_data;
  rabbet_device_t* device = NULL;
  rabbet_status_t status = rabbet_device_open(0, allocator, &device);
  if (device) device->vtable->destroy(device);
  return status;
}

static void host_memory_runs_out(void** state) {
  (void)state;
  assert_true(rabbet_fault_run(open_and_close, NULL) > 0);
  stand_in_expect_clean();
}

// ---- Graphs ----------------------------------------------------------------

static void graphs_are_replayed(void** state) {
  (void)state;
  rabbet_cuda_device_t* device = stand_in_device_open();
  rabbet_device_t* base = &device->base;
  const rabbet_device_vtable_t* v = table_of(device);
  void *stream = NULL, *a = NULL, *b = NULL, *graph = NULL, *token = NULL;
  unsigned char found[16];
  RABBET_EXPECT_OK(v->create_stream(base, &stream));
  RABBET_EXPECT_OK(v->allocate(base, 16, &a));
  RABBET_EXPECT_OK(v->allocate(base, 16, &b));
  RABBET_EXPECT_OK(v->begin_run(base, 1, &token));
  RABBET_EXPECT_OK(v->record_begin(base, stream));
  RABBET_EXPECT_OK(v->copy(base, b, a, 16, stream));
  RABBET_EXPECT_OK(v->fill(base, a, 9, 16, stream));
  RABBET_EXPECT_OK(v->record_end(base, stream, &graph));
  for (unsigned char i = 1; i < 3; ++i) {
    RABBET_EXPECT_OK(v->fill(base, a, i, 16, stream));
    RABBET_EXPECT_OK(v->launch_graph(base, graph, stream));
    RABBET_EXPECT_OK(v->copy_to_host(base, found, b, 16, stream));
    assert_int_equal(found[3], i);
    RABBET_EXPECT_OK(v->copy_to_host(base, found, a, 16, stream));
    assert_int_equal(found[3], 9);
  }
  // Other addresses are put into the graph that there is.
  void* before = graph;
  stand_in()->clear_log();
  RABBET_EXPECT_OK(v->record_begin(base, stream));
  RABBET_EXPECT_OK(v->copy(base, a, b, 16, stream));
  RABBET_EXPECT_OK(v->fill(base, b, 7, 16, stream));
  RABBET_EXPECT_OK(v->record_end(base, stream, &graph));
  assert_ptr_equal(graph, before);
  assert_int_equal(stand_in()->calls("cuGraphInstantiateWithFlags"), 0);
  // Other work makes a graph of its own.
  RABBET_EXPECT_OK(v->record_begin(base, stream));
  RABBET_EXPECT_OK(v->fill(base, b, 7, 16, stream));
  RABBET_EXPECT_OK(v->record_end(base, stream, &graph));
  assert_int_equal(stand_in()->calls("cuGraphInstantiateWithFlags"), 1);
  v->end_run(base, token);
  v->destroy_graph(base, graph);
  v->free(base, a);
  v->free(base, b);
  v->destroy_stream(base, stream);
  stand_in_device_close(device);
  stand_in_expect_clean();
}

static void recordings_are_spoilt(void** state) {
  (void)state;
  rabbet_cuda_device_t* device = stand_in_device_open();
  rabbet_device_t* base = &device->base;
  const rabbet_device_vtable_t* v = table_of(device);
  void *stream = NULL, *a = NULL, *b = NULL, *graph = NULL, *token = NULL;
  bool recording = false;
  RABBET_EXPECT_OK(v->create_stream(base, &stream));
  RABBET_EXPECT_OK(v->allocate(base, 16, &a));
  RABBET_EXPECT_OK(v->begin_run(base, 1, &token));
  RABBET_EXPECT_OK(v->record_begin(base, stream));
  RABBET_EXPECT_OK(v->fill(base, a, 9, 16, stream));
  RABBET_EXPECT_OK(v->is_recording(base, stream, &recording));
  assert_true(recording);
  RABBET_EXPECT_ERROR(v->allocate(base, 16, &b), RABBET_STATUS_INTERNAL,
                      "cuMemAlloc: operation not permitted when stream is "
                      "capturing");
  RABBET_EXPECT_OK(v->is_recording(base, stream, &recording));
  assert_false(recording);
  RABBET_EXPECT_ERROR(v->fill(base, a, 9, 16, stream), RABBET_STATUS_INTERNAL,
                      "previous error during capture");
  RABBET_EXPECT_ERROR(v->record_end(base, stream, &graph),
                      RABBET_STATUS_INTERNAL, "cuStreamEndCapture");
  assert_null(graph);
  // The stream works again.
  RABBET_EXPECT_OK(v->fill(base, a, 9, 16, stream));
  RABBET_EXPECT_OK(v->record_begin(base, stream));
  RABBET_EXPECT_ERROR(v->synchronize(base, stream), RABBET_STATUS_INTERNAL,
                      "cuStreamSynchronize");
  RABBET_EXPECT_OK(v->record_end(base, stream, NULL));
  RABBET_EXPECT_OK(v->synchronize(base, stream));
  v->end_run(base, token);
  v->free(base, a);
  v->destroy_stream(base, stream);
  stand_in_device_close(device);
  stand_in_expect_clean();
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(no_gpu),
      cmocka_unit_test(contexts_of_programs_alone),
      cmocka_unit_test(every_call_fails),
      cmocka_unit_test(signature),
      cmocka_unit_test(gpus_that_will_not_do),
      cmocka_unit_test(class_names_are_unique),
      cmocka_unit_test(memory),
      cmocka_unit_test(memory_runs_out),
      cmocka_unit_test(work_is_late),
      cmocka_unit_test(time_of_a_body),
      cmocka_unit_test(context_is_put_back),
      cmocka_unit_test(context_of_another_gpu_is_not_left),
      cmocka_unit_test(libraries_remember_a_context),
      cmocka_unit_test(contexts_of_programs),
      cmocka_unit_test(contexts_of_programs_that_are_gone),
      cmocka_unit_test(contexts_of_programs_fail),
      cmocka_unit_test(contexts_that_go_first),
      cmocka_unit_test(contexts_fail),
      cmocka_unit_test(host_memory_runs_out),
      cmocka_unit_test(graphs_are_replayed),
      cmocka_unit_test(recordings_are_spoilt),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
