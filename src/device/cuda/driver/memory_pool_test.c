// Memory of calls on the stand-in GPU: order, reuse, clean-up.
#include "device/cuda/driver/memory_pool.h"

#include <string.h>

#include "cuda_stand_in/device.h"
#include "faults/fault_allocator.h"

#define MIB ((size_t)1 << 20)

typedef struct fixture_t {
  rabbet_device_t* base;
  const rabbet_device_vtable_t* v;
  void *a, *b;  // streams
} fixture_t;

static fixture_t fixture_open(void) {
  fixture_t f = {.base = &stand_in_device_open()->base};
  f.v = f.base->vtable;
  RABBET_EXPECT_OK(f.v->create_stream(f.base, &f.a));
  RABBET_EXPECT_OK(f.v->create_stream(f.base, &f.b));
  return f;
}

static void fixture_close(const fixture_t* f) {
  f->v->destroy_stream(f->base, f->a);
  f->v->destroy_stream(f->base, f->b);
  f->v->destroy(f->base);
  stand_in_expect_clean();
}

static uint8_t* take(const fixture_t* f, size_t size, void* stream) {
  void* memory = NULL;
  RABBET_EXPECT_OK(f->v->allocate_async(f->base, size, stream, &memory));
  assert_non_null(memory);
  assert_int_equal((uintptr_t)memory % 256, 0);
  return memory;
}

static void fill(const fixture_t* f, void* memory, uint8_t byte, void* stream) {
  RABBET_EXPECT_OK(f->v->fill(f->base, memory, byte, 64, stream));
}

static int waits(void) {
  return stand_in()->calls("cuCtxSynchronize");
}

// ---- In the order of a stream ----------------------------------------------

// A loop has one piece of memory, and nobody waits.
static void a_loop_reuses(void** state) {
  (void)state;
  fixture_t f = fixture_open();
  void* pinned = NULL;
  uint8_t* first = NULL;
  RABBET_EXPECT_OK(f.v->allocate_host(f.base, 64, &pinned));
  stand_in()->clear_log();
  for (int i = 0; i < 20; ++i) {
    uint8_t* memory = take(&f, 64, f.a);
    if (!first) first = memory;
    assert_ptr_equal(memory, first);
    fill(&f, memory, (uint8_t)i, f.a);
    RABBET_EXPECT_OK(f.v->copy_to_host(f.base, pinned, memory, 64, f.a));
    f.v->free_async(f.base, memory, f.a);
  }
  assert_int_equal(stand_in()->calls("cuMemPoolCreate"), 1);
  assert_int_equal(stand_in()->calls("cuStreamSynchronize") + waits(), 0);
  assert_int_equal(stand_in()->calls("cuMemAlloc"), 0);
  RABBET_EXPECT_OK(f.v->synchronize(f.base, f.a));
  assert_int_equal(((uint8_t*)pinned)[63], 19);
  // No threshold: it is there after the host waited.
  uint8_t* memory = take(&f, 64, f.a);
  assert_ptr_equal(memory, first);
  f.v->free_async(f.base, memory, f.a);
  f.v->free_async(f.base, NULL, f.a);
  f.v->free_host(f.base, pinned);
  fixture_close(&f);
}

static void other_streams_get_what_is_done(void** state) {
  (void)state;
  fixture_t f = fixture_open();
  uint8_t* memory = take(&f, 64, f.a);
  fill(&f, memory, 1, f.a);
  f.v->free_async(f.base, memory, f.a);
  uint8_t* other = take(&f, 64, f.b);
  assert_ptr_not_equal(other, memory);
  RABBET_EXPECT_OK(f.v->synchronize(f.base, f.a));
  uint8_t* again = take(&f, 64, f.b);
  assert_ptr_equal(again, memory);
  f.v->free_async(f.base, other, f.b);
  f.v->free_async(f.base, again, f.b);
  fixture_close(&f);
}

static void nothing_is_taken_in_a_capture(void** state) {
  (void)state;
  fixture_t f = fixture_open();
  void *token = NULL, *memory = &memory;
  RABBET_EXPECT_OK(f.v->begin_run(f.base, 1, &token));
  RABBET_EXPECT_OK(f.v->record_begin(f.base, f.a));
  RABBET_EXPECT_ERROR(f.v->allocate_async(f.base, 64, f.a, &memory),
                      RABBET_STATUS_FAILED_PRECONDITION,
                      "the stream is being captured into a CUDA graph");
  assert_null(memory);
  // It has not spoilt the capture.
  bool recording = false;
  RABBET_EXPECT_OK(f.v->is_recording(f.base, f.a, &recording));
  assert_true(recording);
  RABBET_EXPECT_OK(f.v->record_end(f.base, f.a, NULL));
  f.v->end_run(f.base, token);
  fixture_close(&f);
}

// ---- Given up while in use -------------------------------------------------

// Somebody reads it on a stream that we never heard of.
static void retired_memory_is_waited_for(void** state) {
  (void)state;
  fixture_t f = fixture_open();
  void* pinned = NULL;
  RABBET_EXPECT_OK(f.v->allocate_host(f.base, 64, &pinned));
  uint8_t* memory = take(&f, 64, f.a);
  fill(&f, memory, 5, f.a);
  RABBET_EXPECT_OK(f.v->synchronize(f.base, f.a));
  RABBET_EXPECT_OK(f.v->copy_to_host(f.base, pinned, memory, 64, f.b));
  stand_in()->clear_log();
  f.v->retire(f.base, memory);
  f.v->retire(f.base, NULL);
  assert_int_equal(stand_in()->calls(NULL), 0);
  uint8_t* next = take(&f, 64, f.a);
  assert_ptr_equal(next, memory);
  assert_int_equal(waits(), 1);
  fill(&f, next, 6, f.a);
  RABBET_EXPECT_OK(f.v->synchronize(f.base, f.a));
  RABBET_EXPECT_OK(f.v->synchronize(f.base, f.b));
  assert_int_equal(((uint8_t*)pinned)[0], 5);
  // Nothing is retired: no thread waits.
  f.v->free_async(f.base, take(&f, 64, f.a), f.a);
  assert_int_equal(waits(), 1);
  f.v->retire(f.base, next);  // for the end to find
  f.v->free_host(f.base, pinned);
  fixture_close(&f);
}

static void recordings_are_not_waited_in(void** state) {
  (void)state;
  fixture_t f = fixture_open();
  void* token = NULL;
  bool recording = false;
  f.v->retire(f.base, take(&f, 64, f.a));
  RABBET_EXPECT_OK(f.v->begin_run(f.base, 1, &token));
  stand_in()->clear_log();
  // One that never begins does not count.
  stand_in()->fail_call("cuStreamBeginCapture", 0, 999);
  RABBET_EXPECT_ERROR(f.v->record_begin(f.base, f.b), RABBET_STATUS_INTERNAL,
                      "cuStreamBeginCapture");
  stand_in()->stop_failing();
  RABBET_EXPECT_OK(f.v->record_begin(f.base, f.b));
  uint8_t* memory = take(&f, 64, f.a);
  assert_int_equal(waits(), 0);
  RABBET_EXPECT_OK(f.v->is_recording(f.base, f.b, &recording));
  assert_true(recording);
  RABBET_EXPECT_OK(f.v->record_end(f.base, f.b, NULL));
  f.v->free_async(f.base, take(&f, 64, f.a), f.a);
  assert_int_equal(waits(), 1);
  f.v->free_async(f.base, memory, f.a);
  f.v->end_run(f.base, token);
  fixture_close(&f);
}

// Another program's capture on another thread, say.
static void waits_that_fail(void** state) {
  (void)state;
  fixture_t f = fixture_open();
  uint8_t* retired = take(&f, 64, f.a);
  f.v->retire(f.base, retired);
  stand_in()->fail_call("cuCtxSynchronize", 0, 900);
  uint8_t* memory = take(&f, 64, f.a);
  assert_ptr_not_equal(memory, retired);
  stand_in()->stop_failing();
  uint8_t* next = take(&f, 64, f.a);
  assert_ptr_equal(next, retired);
  f.v->free_async(f.base, memory, f.a);
  f.v->free_async(f.base, next, f.a);
  fixture_close(&f);
}

static void many_are_retired(void** state) {
  (void)state;
  fixture_t f = fixture_open();
  uint8_t* all[100];
  size_t before = stand_in()->alive().bytes;
  for (int round = 0; round < 3; ++round) {
    for (int i = 0; i < 100; ++i)
      all[i] = take(&f, 4096, f.a);
    for (int i = 0; i < 100; ++i)
      f.v->retire(f.base, all[i]);
  }
  assert_true(stand_in()->alive().bytes <= before + 100 * 4096);
  fixture_close(&f);
}

// ---- Several engines, and the end ------------------------------------------

static void engines_share(void** state) {
  (void)state;
  fixture_t f = fixture_open();
  fixture_t other = {.base = &stand_in_device_open()->base, .v = f.v};
  uint8_t* memory = take(&f, 64, f.a);
  f.v->retire(f.base, memory);
  uint8_t* next = take(&other, 64, f.a);
  assert_ptr_equal(next, memory);
  assert_int_equal(stand_in()->alive().pools, 1);
  other.v->free_async(other.base, next, f.a);
  other.v->destroy(other.base);
  assert_int_equal(stand_in()->alive().pools, 1);
  fixture_close(&f);
}

// The pool that keeps memory gives it back before anybody is refused.
static void memory_runs_out(void** state) {
  (void)state;
  fixture_t f = fixture_open();
  void* large = NULL;
  size_t own = stand_in()->alive().bytes;  // of the device itself
  stand_in()->limit_memory(8 * MIB + own);
  // Kept for nobody.
  f.v->free_async(f.base, take(&f, 5 * MIB, f.a), f.a);
  f.v->retire(f.base, take(&f, 2 * MIB, f.a));
  RABBET_EXPECT_OK(f.v->allocate_async(f.base, 6 * MIB, f.b, &large));
  f.v->free_async(f.base, large, f.b);
  RABBET_EXPECT_OK(f.v->synchronize(f.base, f.b));
  // Nor before cuMemAlloc is.
  RABBET_EXPECT_OK(f.v->allocate(f.base, 7 * MIB, &large));
  void* refused = &refused;
  RABBET_EXPECT_ERROR(f.v->allocate_async(f.base, 2 * MIB, f.a, &refused),
                      RABBET_STATUS_OUT_OF_MEMORY,
                      "allocating 2097152 bytes on 'cuda:0', of which 1048576 "
                      "of 8388609 are free");
  assert_null(refused);
  f.v->free(f.base, large);
  stand_in()->limit_memory((size_t)1 << 30);
  fixture_close(&f);
}

static void gpus_without_pools(void** state) {
  (void)state;
  setenv("RABBET_STAND_IN_POOLS", "0", 1);
  fixture_t f = fixture_open();
  unsetenv("RABBET_STAND_IN_POOLS");
  stand_in()->clear_log();
  uint8_t* memory = take(&f, 64, f.a);
  fill(&f, memory, 1, f.a);
  f.v->free_async(f.base, memory, f.a);
  f.v->retire(f.base, take(&f, 64, f.a));
  assert_int_equal(stand_in()->calls("cuMemAlloc"), 2);
  assert_int_equal(stand_in()->calls("cuMemFree"), 2);
  assert_int_equal(stand_in()->calls("cuMemPoolCreate"), 0);
  fixture_close(&f);
}

static void contexts_of_programs(void** state) {
  (void)state;
  CUresult (*create)(CUcontext*, unsigned, CUdevice) = NULL;
  CUresult (*destroy)(CUcontext) = NULL;
  void* library = dlopen(getenv("RABBET_CUDA_DRIVER"), RTLD_NOW | RTLD_LOCAL);
  *(void**)&create = dlsym(library, "cuCtxCreate_v2");
  *(void**)&destroy = dlsym(library, "cuCtxDestroy_v2");
  CUcontext own = NULL;
  assert_int_equal(create(&own, 0, 0), 0);
  fixture_t f = fixture_open();
  assert_null(rabbet_cuda(f.base)->pool);
  uint8_t* memory = take(&f, 64, f.a);
  f.v->retire(f.base, take(&f, 64, f.b));
  assert_int_equal(destroy(own), 0);
  f.v->free_async(f.base, memory, f.a);  // it is gone with the context
  fixture_close(&f);
}

// ---- Failures --------------------------------------------------------------

static rabbet_status_t use_pool(const fixture_t* f) {
  void *a = NULL, *b = NULL, *c = NULL;
  rabbet_status_t status = f->v->allocate_async(f->base, 64, f->a, &a);
  if (rabbet_is_ok(status)) status = f->v->fill(f->base, a, 1, 64, f->a);
  f->v->retire(f->base, a);
  if (rabbet_is_ok(status))
    status = f->v->allocate_async(f->base, 128, f->a, &b);
  if (rabbet_is_ok(status)) status = f->v->allocate_async(f->base, 8, f->a, &c);
  f->v->free_async(f->base, b, f->a);
  f->v->retire(f->base, c);
  return status;
}

static rabbet_status_t use_device(void* context) {
  fixture_t f = {0};
  (void)context;
  RABBET_RETURN_IF_ERROR(
      rabbet_device_open(0, rabbet_allocator_system(), &f.base));
  f.v = f.base->vtable;
  rabbet_status_t status = f.v->create_stream(f.base, &f.a);
  if (rabbet_is_ok(status)) status = use_pool(&f);
  f.v->destroy_stream(f.base, f.a);
  f.v->destroy(f.base);
  return status;
}

static void every_call_fails(void** state) {
  (void)state;
  assert_true(stand_in_fail_each(use_device, NULL) > 25);
}

static rabbet_status_t use_with(rabbet_allocator_t allocator, void* user_data) {
  fixture_t f = {0};
  (void)user_data;
  RABBET_RETURN_IF_ERROR(rabbet_device_open(0, allocator, &f.base));
  f.v = f.base->vtable;
  rabbet_status_t status = use_pool(&f);
  f.v->destroy(f.base);
  return status;
}

// Memory that cannot be looked after now is later.
static void host_memory_runs_out(void** state) {
  (void)state;
  assert_true(rabbet_fault_run_tolerant(use_with, NULL) > 1);
  stand_in_expect_clean();
}

// ---- The stand-in finds ----------------------------------------------------

static void misuses_are_found(void** state) {
  (void)state;
  fixture_t f = fixture_open();
  const rabbet_cuda_driver_t* driver = rabbet_cuda(f.base)->driver;
  CUdeviceptr data = 0;
  void* token = NULL;
  RABBET_EXPECT_OK(f.v->begin_run(f.base, 1, &token));
  uint8_t* memory = take(&f, 64, f.a);
  data = (CUdeviceptr)(uintptr_t)memory;
  f.v->free_async(f.base, memory, f.a);
  // Twice, in either way; and used when it is given back.
  assert_int_not_equal(driver->cuMemFreeAsync(data, f.a), 0);
  assert_int_equal(stand_in()->take_misuses(), 1);
  assert_int_not_equal(driver->cuMemFree(data), 0);
  assert_int_equal(stand_in()->take_misuses(), 1);
  assert_int_not_equal(driver->cuMemsetD8Async(data, 0, 64, f.a), 0);
  assert_int_equal(stand_in()->take_misuses(), 1);
  RABBET_EXPECT_OK(f.v->synchronize(f.base, f.a));
  assert_int_not_equal(driver->cuMemsetD8Async(data, 0, 64, f.a), 0);
  assert_int_not_equal(driver->cuMemFree(data), 0);
  assert_int_equal(stand_in()->take_misuses(), 1);
  // A write past its end, as found when it is freed; and memory that is never
  // freed.
  int before = stand_in()->alive().allocations;
  memory = take(&f, 60, f.a);
  assert_int_equal(stand_in()->alive().allocations, before + 1);
  memory[60] = 0;
  f.v->free_async(f.base, memory, f.a);
  RABBET_EXPECT_OK(f.v->synchronize(f.base, f.a));
  assert_int_equal(stand_in()->take_misuses(), 1);
  f.v->end_run(f.base, token);
  fixture_close(&f);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(every_call_fails),
      cmocka_unit_test(host_memory_runs_out),
      cmocka_unit_test(a_loop_reuses),
      cmocka_unit_test(other_streams_get_what_is_done),
      cmocka_unit_test(nothing_is_taken_in_a_capture),
      cmocka_unit_test(retired_memory_is_waited_for),
      cmocka_unit_test(recordings_are_not_waited_in),
      cmocka_unit_test(waits_that_fail),
      cmocka_unit_test(many_are_retired),
      cmocka_unit_test(engines_share),
      cmocka_unit_test(memory_runs_out),
      cmocka_unit_test(gpus_without_pools),
      cmocka_unit_test(contexts_of_programs),
      cmocka_unit_test(misuses_are_found),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
