// Parameters of the kernel in ahead.cu. C and CUDA C++.
#pragma once

#include "device/cuda/programs/index.h"

enum {
  AHEAD_COUNT = 8,
  AHEAD_CHUNK = 4096,  // bytes that a thread asks for
  AHEAD_THREADS = 64,
};

typedef struct ahead_t {
  const char* addresses[AHEAD_COUNT];  // aligned to 16
  int64_t bytes[AHEAD_COUNT];          // multiples of 16
  int32_t count;
} ahead_t;
