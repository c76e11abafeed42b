// The CPU as a device.
#include "conformance/cpu_device.h"

#include <sched.h>
#include <stdatomic.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "device/cpu/cpu.h"
#include "device/cpu/parallel.h"
#include "faults/fault_allocator.h"

int omp_get_max_threads(void);  // as oneDNN finds it

static void signature(void** state) {
  rabbet_device_t* device = *state;
  const char* text = device->vtable->signature(device);
  assert_string_equal(device->name, "cpu");
  assert_string_equal(device->kind, "cpu");
  assert_true(device->host_memory);
  assert_int_equal(strncmp(text, "cpu; ", 5), 0);
  assert_non_null(strstr(text, "oneDNN "));
  assert_non_null(strstr(text, rabbet_version()));
  rabbet_device_t* other = NULL;
  RABBET_EXPECT_OK(rabbet_device_open(0, rabbet_allocator_system(), &other));
  assert_string_equal(other->vtable->signature(other), text);
  other->vtable->destroy(other);
}

static void one_ordinal(void** state) {
  (void)state;
  rabbet_device_t* device = NULL;
  RABBET_EXPECT_ERROR(rabbet_device_open(1, rabbet_allocator_system(), &device),
                      RABBET_STATUS_INVALID_ARGUMENT, "ordinal 1");
  assert_null(device);
}

static void class_names_are_unique(void** state) {
  rabbet_device_t* device = *state;
  size_t count = 0;
  const rabbet_kernel_class_t* const* classes =
      device->vtable->kernel_classes(device, &count);
  assert_true(count > 0);
  for (size_t i = 0; i < count; ++i) {
    assert_non_null(classes[i]->propose);
    assert_non_null(classes[i]->create);
    assert_non_null(classes[i]->destroy);
    assert_non_null(classes[i]->enqueue);
    assert_true(classes[i]->version > 0);
    for (size_t k = 0; k < i; ++k)
      assert_string_not_equal(classes[i]->name, classes[k]->name);
  }
}

static void memory(void** state) {
  rabbet_device_t* device = *state;
  const rabbet_device_vtable_t* v = device->vtable;
  unsigned char *a = NULL, *b = NULL;
  RABBET_EXPECT_OK(v->allocate(device, 1000, (void**)&a));
  RABBET_EXPECT_OK(v->allocate(device, 1000, (void**)&b));
  assert_int_equal((uintptr_t)a % 256, 0);
  RABBET_EXPECT_OK(v->fill(device, a, 7, 1000, NULL));
  RABBET_EXPECT_OK(v->copy(device, b, a, 1000, NULL));
  RABBET_EXPECT_OK(v->copy(device, b, b, 1000, NULL));
  RABBET_EXPECT_OK(v->copy_to_device(device, b, "xy", 2, NULL));
  unsigned char back[3] = {0};
  RABBET_EXPECT_OK(v->copy_to_host(device, back, b, 3, NULL));
  RABBET_EXPECT_OK(v->copy(device, b, NULL, 0, NULL));
  RABBET_EXPECT_OK(v->synchronize(device, NULL));
  assert_memory_equal(back, "xy\7", 3);
  v->free(device, a);
  v->free(device, b);
}

static void threads_are_set_and_restored(void** state) {
  rabbet_device_t* device = *state;
  int before = omp_get_max_threads();
  void *outer = NULL, *inner = NULL;
  RABBET_EXPECT_OK(device->vtable->begin_run(device, 3, &outer));
  assert_int_equal(omp_get_max_threads(), 3);
  RABBET_EXPECT_OK(device->vtable->begin_run(device, 1, &inner));
  assert_int_equal(omp_get_max_threads(), 1);
  device->vtable->end_run(device, inner);
  assert_int_equal(omp_get_max_threads(), 3);
  device->vtable->end_run(device, outer);
  assert_int_equal(omp_get_max_threads(), before);
}

static void tell_helper(void* context, int64_t begin, int64_t end) {
  atomic_long* helper = context;
  (void)begin, (void)end;
  if (rabbet_cpu_slot() == 1) *helper = syscall(SYS_gettid);
  while (*helper == 0)  // or this thread might run both shares
    sched_yield();
}

// The system's number of the thread that helps in a run on two.
static long run_on_two(rabbet_device_t* device) {
  void* token = NULL;
  atomic_long helper = 0;
  RABBET_EXPECT_OK(device->vtable->begin_run(device, 2, &token));
  rabbet_cpu_parallel(2, 1, tell_helper, &helper);
  device->vtable->end_run(device, token);
  return helper;
}

// A thread that has been joined may be listed for a moment longer.
static void expect_gone(long thread) {
  long found = 0;
  for (int i = 0; i < 1000 && found == 0; ++i) {
    found = syscall(SYS_tgkill, (long)getpid(), thread, 0L);
    if (found == 0) usleep(1000);
  }
  assert_int_equal(found, -1);
}

static void helpers_stay_until_they_are_released(void** state) {
  rabbet_device_t* device = *state;
  device->vtable->release_threads(device);
  long helper = run_on_two(device);
  assert_int_equal(run_on_two(device), helper);
  void* token = NULL;
  RABBET_EXPECT_OK(device->vtable->begin_run(device, 2, &token));
  device->vtable->release_threads(device);
  device->vtable->end_run(device, token);
  assert_int_equal(run_on_two(device), helper);
  device->vtable->release_threads(device);
  expect_gone(helper);
}

static void count_range(void* context, int64_t begin, int64_t end) {
  atomic_fetch_add((atomic_int*)context, begin < end ? 1 : 100);
}

static int ranges_of(int64_t count, int64_t grain) {
  atomic_int ranges = 0;
  rabbet_cpu_parallel(count, grain, count_range, &ranges);
  return ranges;
}

static void small_loops_are_shared_when_they_are_many(void** state) {
  rabbet_device_t* device = *state;
  void* token = NULL;
  device->vtable->release_threads(device);
  RABBET_EXPECT_OK(device->vtable->begin_run(device, 2, &token));
  assert_int_equal(ranges_of(1001, 1000), 2);
  for (int i = 0; i < 100; ++i)
    assert_int_equal(ranges_of(125, 1000), 1);
  int shared = 0;  // at once while the helper spins
  for (int i = 0; i < 3; ++i)
    shared += ranges_of(1000, 1000) - 1;
  assert_in_range(shared, 1, 3);
  device->vtable->end_run(device, token);
  device->vtable->release_threads(device);
}

static rabbet_status_t count_down(void* context) {
  int* left = context;
  if ((*left)-- == 0) return RABBET_STATUS(RABBET_STATUS_CANCELLED, "stopped");
  return rabbet_ok();
}

static void time_of_a_body(void** state) {
  rabbet_device_t* device = *state;
  int left = 5;
  int64_t ns = -1;
  RABBET_EXPECT_OK(
      device->vtable->time(device, NULL, 5, count_down, &left, &ns));
  assert_int_equal(left, 0);
  assert_true(ns >= 0);
  RABBET_EXPECT_ERROR(
      device->vtable->time(device, NULL, 5, count_down, &left, &ns),
      RABBET_STATUS_CANCELLED, "stopped");
}

static rabbet_status_t open_and_close(rabbet_allocator_t allocator,
                                      void* user_data) {
  (void)user_data;
  rabbet_device_t* device = NULL;
  rabbet_status_t status = rabbet_device_open(0, allocator, &device);
  if (device) device->vtable->destroy(device);
  return status;
}

static void memory_runs_out(void** state) {
  (void)state;
  assert_true(rabbet_fault_run(open_and_close, NULL) > 0);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(signature),
      cmocka_unit_test(one_ordinal),
      cmocka_unit_test(class_names_are_unique),
      cmocka_unit_test(memory),
      cmocka_unit_test(threads_are_set_and_restored),
      cmocka_unit_test(helpers_stay_until_they_are_released),
      cmocka_unit_test(small_loops_are_shared_when_they_are_many),
      cmocka_unit_test(time_of_a_body),
      cmocka_unit_test(memory_runs_out),
  };
  return cmocka_run_group_tests(tests, cpu_fixture_open, cpu_fixture_close);
}
