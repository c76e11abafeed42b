// Parameters of the kernels of attention.cu and staged.cu. C and CUDA C++.
#pragma once

#include "device/cuda/programs/index.h"

// Strides in elements: batch, head, row. Columns of q, k, v and y lie beside
// each other; the mask's have a stride of their own, and any may be 0.
typedef struct attend_t {
  int64_t q[3], k[3], v[3], y[3], mask[4];
  // Strides of the axis outside of the batch for q, k, v, y and the mask. The
  // batch has so many entries; 0: there is no such axis.
  int64_t outside[5];
  uint32_t batches;
  // Rows are those of all heads that share keys: row r is query r / share of
  // head r % share; in staged.cu, those of a head. k and v have strides of
  // distinct heads.
  uint32_t rows, keys, share;
  float scale;
  float other;  // in place of scores that a mask of BOOL does not keep
  float cap;    // scores become cap tanh(score / cap)
  // A band: a query keeps keys from `first` to `last` places behind its own;
  // to other scores `other` is added. All keys that count lie between `near`
  // and `far` places behind a query.
  int32_t first, last, near, far;
  // Of staged.cu alone. The survey of the mask has a byte for each tile of
  // queries and keys: `survey` are its strides of batch, head and row of tiles,
  // and how many heads it has. pairs: two neighbours of the mask are one load.
  uint32_t survey[3], survey_heads, pairs;
} attend_t;
