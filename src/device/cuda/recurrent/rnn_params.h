// Parameters of the kernels in rnn.cu. C and CUDA C++.
#pragma once

#include "device/cuda/programs/index.h"
#include "ops/rnn.h"

#define RNN_WARPS 4  // of a block, each with a hidden element
#define RNN_ROWS 8   // sequences that a warp multiplies by weights at once

// Addresses of a call. In the workspace: states as FLOAT, [directions][batch]
// [hidden], h of even steps and of odd ones; z and the reset state of a GRU.
typedef struct rnn_memory_t {
  const void *x, *weights, *bias, *hidden, *cell, *peepholes, *lengths;
  void *y, *last_hidden, *last_cell;
  float *h[2], *c, *z, *reset;
  int32_t is_long;  // lengths of 64 bits
} rnn_memory_t;
