// Parameters of the kernels in nms.cu. C and CUDA C++.
#pragma once

#include "device/cuda/programs/index.h"

// Strides are in elements; a list is a class of a batch.
typedef struct nms_t {
  int64_t lists, boxes, classes, batch;
  int64_t score_batch, score_box, score_class;
  int64_t box_batch, box_box, box_class;
  int64_t limit;  // candidates of a batch that are considered; 0: all
  int64_t most;   // room for the chosen keys of a list
  int32_t center, by_class;
  int32_t is_long;  // rows of 64 bits
  int32_t reserved;
} nms_t;

enum { NMS_THREADS = 256 };
