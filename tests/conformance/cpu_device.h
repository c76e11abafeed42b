// The CPU device for tests, opened without the loader.
#ifndef RABBET_TESTS_CONFORMANCE_CPU_DEVICE_H_
#define RABBET_TESTS_CONFORMANCE_CPU_DEVICE_H_

#include "conformance/kernel_case.h"

static inline int cpu_fixture_open(void** state) {
  rabbet_device_t* device = NULL;
  RABBET_EXPECT_OK(rabbet_device_open(0, rabbet_allocator_system(), &device));
  *state = device;
  return 0;
}

static inline int cpu_fixture_close(void** state) {
  rabbet_device_t* device = *state;
  device->vtable->destroy(device);
  return 0;
}

#endif  // RABBET_TESTS_CONFORMANCE_CPU_DEVICE_H_
