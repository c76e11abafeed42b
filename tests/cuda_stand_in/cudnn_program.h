// A cuDNN operation graph as the stand-in computes it: flat, so that it can be
// copied into a queue and written into a plan's text.
#ifndef RABBET_TESTS_CUDA_STAND_IN_CUDNN_PROGRAM_H_
#define RABBET_TESTS_CUDA_STAND_IN_CUDNN_PROGRAM_H_

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "device/cuda/cudnn/cudnn_api.h"

enum { TENSOR_AXES = 8, PROGRAM_TENSORS = 64, PROGRAM_STEPS = 32 };

typedef struct tensor_t {
  int64_t id;
  int32_t rank, type;
  int64_t dims[TENSOR_AXES], strides[TENSOR_AXES];
  bool is_virtual, by_value;
} tensor_t;

typedef struct step_t {
  int32_t kind;             // type of the operation's descriptor
  int32_t x, b, y;          // tensors; convolution: b is the filter; -1: none
  int32_t t;                // of a selection
  int32_t mode;             // pointwise, reduction
  int32_t axis, precision;  // pointwise
  bool clipped_above;
  double slope, upper, alpha, beta;  // of pointwise functions
  int32_t spatial;
  int64_t pre[TENSOR_AXES], post[TENSOR_AXES], stride[TENSOR_AXES],
      dilation[TENSOR_AXES];
} step_t;

// How an engine rounds the factors of products.
typedef enum rounding_t {
  ROUND_NOTHING,
  ROUND_TF32,
  ROUND_HALF,
} rounding_t;

typedef struct program_t {
  char magic[8];  // "SI-CUDNN"
  tensor_t tensors[PROGRAM_TENSORS];
  int32_t tensor_count;
  step_t steps[PROGRAM_STEPS];
  int32_t step_count;
  int32_t rounding;
  int64_t workspace, engine;
} program_t;
#define PROGRAM_MAGIC "SI-CUDNN"

// A run: where each tensor that is not virtual lies.
typedef struct program_run_t {
  program_t program;
  void* addresses[PROGRAM_TENSORS];
  float numbers[PROGRAM_TENSORS];  // of those by value
  void* workspace;
  bool poisons;  // the context: a test wants it
} program_run_t;

int64_t tensor_count(const tensor_t* tensor);
// The mistake in a step, or NULL.
const char* step_wrong(const program_t* program, const step_t* step);
// For the driver's queue: `data` is a program_run_t.
void program_execute(void* data);

#endif  // RABBET_TESTS_CUDA_STAND_IN_CUDNN_PROGRAM_H_
