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
  assert_int_equal(alive.library_objects, 0);
  assert_int_equal(alive.pending, 0);
  assert_int_equal(stand_in()->take_misuses(), 0);
}

#endif  // RABBET_TESTS_CUDA_STAND_IN_DEVICE_H_
