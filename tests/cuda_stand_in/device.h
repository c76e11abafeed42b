// The CUDA device on the stand-in GPU (tests/cuda_stand_in), for tests.
#ifndef RABBET_TESTS_CUDA_STAND_IN_DEVICE_H_
#define RABBET_TESTS_CUDA_STAND_IN_DEVICE_H_

#include "check.h"
#include "cuda_stand_in/stand_in.h"
#include "device/cuda/cuda.h"

static inline rabbet_cuda_device_t* stand_in_device_open(void) {
  rabbet_device_t* device = NULL;
  stand_in();  // without it the test is skipped
  RABBET_EXPECT_OK(rabbet_device_open(0, rabbet_allocator_system(), &device));
  return rabbet_cuda(device);
}

static inline void stand_in_device_close(rabbet_cuda_device_t* device) {
  device->base.vtable->destroy(&device->base);
}

// Nothing is left, and nothing was used wrongly.
static inline void stand_in_expect_clean(void) {
  stand_in_alive_t alive = stand_in()->alive();
  assert_int_equal(alive.contexts, 0);
  assert_int_equal(alive.allocations, 0);
  assert_int_equal(alive.streams, 0);
  assert_int_equal(alive.events, 0);
  assert_int_equal(alive.modules, 0);
  assert_int_equal(alive.graphs, 0);
  assert_int_equal(alive.graph_execs, 0);
  assert_int_equal(alive.pools, 0);
  assert_int_equal(alive.library_objects, 0);
  assert_int_equal(alive.pending, 0);
  assert_int_equal(stand_in()->take_misuses(), 0);
}

// For groups of tests whose state is a device of their own.
static inline int stand_in_device_setup(void** state) {
  *state = stand_in_device_open();
  return 0;
}
static inline int stand_in_device_teardown(void** state) {
  stand_in_device_close(*state);
  stand_in_expect_clean();
  return 0;
}

// Runs `body` with the first call of the driver failing, then the second, ...,
// until none fails: each time it must end in an error that names the call, or
// in OK where only the release of something failed; nothing may be left.
// Returns how many calls failed.
static inline int stand_in_fail_each(rabbet_status_t (*body)(void* context),
                                     void* context) {
  for (int n = 0;; ++n) {
    stand_in()->fail_call(NULL, n, 999);
    rabbet_status_t status = body(context);
    const char* failed = stand_in()->failed();
    stand_in()->stop_failing();
    if (!failed) {
      RABBET_EXPECT_OK(status);
      stand_in_expect_clean();
      return n;
    }
    // An update that fails makes a graph anew.
    bool survived = strstr(failed, "ExecUpdate") || strstr(failed, "Destroy") ||
                    strstr(failed, "Free") || strstr(failed, "Release") ||
                    strstr(failed, "Unload");
    if (rabbet_is_ok(status) ? !survived
                             : !strstr(rabbet_status_message(status), failed))
      fail_msg("%s failed, and the status is %s: %s", failed,
               rabbet_status_code_name(rabbet_status_code(status)),
               rabbet_status_message(status));
    rabbet_status_free(status);
    stand_in_expect_clean();
  }
}

#endif  // RABBET_TESTS_CUDA_STAND_IN_DEVICE_H_
